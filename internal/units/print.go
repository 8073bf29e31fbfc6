package units

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The MarshalText methods write what the matching UnmarshalText reads back to
// the same bits, in the unit that keeps the text short. A negative quantity, a
// difference, is written too, though none is read.

func (b Bytes) MarshalText() ([]byte, error) {
	return marshal(float64(b), []unit{{"GiB", 0, 1 << 30}, {"MiB", 0, 1 << 20}, {"KiB", 0, 1 << 10}, {"GB", 9, 1}, {"MB", 6, 1}, {"B", 0, 1}})
}
func (s Seconds) MarshalText() ([]byte, error) {
	return marshal(float64(s), []unit{{"s", 0, 1}, {"ms", -3, 1}, {"us", -6, 1}, {"ns", -9, 1}})
}
func (r Rate) MarshalText() ([]byte, error) {
	return marshal(float64(r), []unit{{"TB/s", 12, 1}, {"GB/s", 9, 1}, {"MB/s", 6, 1}, {"B/s", 0, 1}})
}
func (r FLOPRate) MarshalText() ([]byte, error) {
	return marshal(float64(r), []unit{{"TFLOP/s", 12, 1}, {"GFLOP/s", 9, 1}, {"FLOP/s", 0, 1}})
}
func (h Hertz) MarshalText() ([]byte, error) {
	return marshal(float64(h), []unit{{"MHz", 6, 1}, {"Hz", 0, 1}})
}
func (w Watts) MarshalText() ([]byte, error)  { return marshal(float64(w), []unit{{"W", 0, 1}}) }
func (j Joules) MarshalText() ([]byte, error) { return marshal(float64(j), []unit{{"J", 0, 1}}) }

// marshal picks the spelling with the fewest characters that reads back to v;
// ties go to the first. Base units, which every list has, always read back.
func marshal(v float64, units []unit) ([]byte, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("units: %v %s cannot be written; a quantity is finite", v, units[len(units)-1].name)
	}
	best := ""
	for _, u := range units {
		number := u.write(v)
		if s := number + " " + u.name; u.read(number) == v && (best == "" || len(s) < len(best)) {
			best = s
		}
	}
	return []byte(best), nil
}

// write returns v base units as a number of units u, with all its digits.
func (u unit) write(v float64) string {
	mantissa, exp, _ := strings.Cut(strconv.FormatFloat(v/u.factor, 'e', -1, 64), "e")
	e, _ := strconv.Atoi(exp)
	shifted, _ := strconv.ParseFloat(mantissa+"e"+strconv.Itoa(e-u.exp), 64)
	return strconv.FormatFloat(shifted, 'g', -1, 64)
}

// scale is a unit to print in, for values of at least from base units.
type scale struct {
	name       string
	unit, from float64
}

// String prints a memory size in binary units, as nvidia-smi does.
func (b Bytes) String() string {
	a := math.Abs(float64(b))
	switch {
	case a >= float64(TiB):
		return fmt.Sprintf("%.2f TiB", float64(b/TiB))
	case a >= float64(GiB):
		return fmt.Sprintf("%.2f GiB", float64(b/GiB))
	case a >= float64(MiB):
		return fmt.Sprintf("%.1f MiB", float64(b/MiB))
	case a >= float64(KiB):
		return fmt.Sprintf("%.1f KiB", float64(b/KiB))
	}
	return fmt.Sprintf("%.0f B", math.Round(float64(b))+0) // + 0 makes a zero of -0
}

// String prints four significant digits in the unit that suits the size.
func (s Seconds) String() string {
	if s == 0 {
		return "0 s"
	}
	return show(float64(s), []scale{
		{" d", 86400, 2 * 86400}, {" h", 3600, 2 * 3600}, {" s", 1, 1}, {" ms", 1e-3, 1e-3}, {" us", 1e-6, 1e-6}, {" ns", 1e-9, 0},
	})
}

// String prints a data rate in decimal units, as network and memory vendors do.
func (r Rate) String() string {
	return show(float64(r), []scale{{" TB/s", 1e12, 1e12}, {" GB/s", 1e9, 1e9}, {" MB/s", 1e6, 1e6}, {" kB/s", 1e3, 1e3}, {" B/s", 1, 0}})
}

// Bits prints a data rate in Gbit/s, as network cards are sold.
func (r Rate) Bits() string {
	if bits := float64(r) * 8; bits < 1e9 {
		return show(bits, []scale{{" Mbit/s", 1e6, 1e6}, {" kbit/s", 1e3, 1e3}, {" bit/s", 1, 0}})
	}
	return strconv.FormatFloat(math.Round(float64(r)*8/1e8)/10, 'f', -1, 64) + " Gbit/s"
}

// String prints an arithmetic rate in the unit of the datasheets.
func (r FLOPRate) String() string {
	return show(float64(r), []scale{{" TFLOP/s", 1e12, 1e12}, {" GFLOP/s", 1e9, 1e9}, {" MFLOP/s", 1e6, 1e6}, {" FLOP/s", 1, 0}})
}

// String prints a frequency in MHz, as nvidia-smi does.
func (h Hertz) String() string {
	return show(float64(h), []scale{{" MHz", 1e6, 1e6}, {" kHz", 1e3, 1e3}, {" Hz", 1, 0}})
}

// String prints a power in watts, that of a data hall in megawatts.
func (w Watts) String() string {
	return show(float64(w), []scale{{" MW", 1e6, 1e6}, {" W", 1, 1}, {" mW", 1e-3, 0}})
}

// String prints an energy in joules, that of a long run in megajoules.
func (j Joules) String() string {
	return show(float64(j), []scale{{" MJ", 1e6, 1e6}, {" J", 1, 1}, {" mJ", 1e-3, 0}})
}

// String prints an amount of arithmetic with an SI prefix.
func (f FLOPs) String() string {
	return show(float64(f), []scale{
		{" EFLOP", 1e18, 1e18}, {" PFLOP", 1e15, 1e15}, {" TFLOP", 1e12, 1e12}, {" GFLOP", 1e9, 1e9}, {" MFLOP", 1e6, 1e6}, {" FLOP", 1, 0},
	})
}

// Count prints a number of things (parameters, tokens) with an SI prefix.
func Count(n float64) string {
	if math.Abs(n) < 1000 && n == math.Trunc(n) {
		return strconv.FormatFloat(n+0, 'f', 0, 64)
	}
	return show(n, []scale{{"T", 1e12, 1e12}, {"B", 1e9, 1e9}, {"M", 1e6, 1e6}, {"k", 1e3, 1e3}, {"", 1, 0}})
}

// show prints v in the first scale that it reaches once it is rounded (0.99999 s
// is 1.000 s, not 1000 ms), else in the last.
func show(v float64, scales []scale) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(math.Abs(v), 'e', 3, 64), 64)
	i := slices.IndexFunc(scales[:len(scales)-1], func(s scale) bool { return rounded >= s.from })
	if i < 0 {
		i = len(scales) - 1
	}
	return sig4(v/scales[i].unit) + scales[i].name
}

// sig4 prints four significant digits without an exponent and without losing
// integer digits; three decimals below one.
func sig4(v float64) string {
	if v == 0 {
		return "0"
	}
	_, exp, _ := strings.Cut(strconv.FormatFloat(v, 'e', 3, 64), "e")
	e, _ := strconv.Atoi(exp)
	return strconv.FormatFloat(v, 'f', min(max(3-e, 0), 3), 64)
}
