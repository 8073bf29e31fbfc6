package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of data. It is a float64 so that totals of 1e15 bytes
// scale by fractions without overflow.
type Bytes float64

// FLOPs is an amount of arithmetic; one multiply-add is two FLOPs.
type FLOPs float64

// Seconds is a duration. time.Duration is not used inside the model: its 1 ns
// grid is coarser than the sums of many small kernels.
type Seconds float64

// Rate is a data rate in bytes per second.
type Rate float64

// FLOPRate is an arithmetic rate in FLOPs per second.
type FLOPRate float64

// Hertz is a frequency.
type Hertz float64

// Watts is a power.
type Watts float64

// Joules is an energy.
type Joules float64

// At returns the time to move b at rate r; infinite when r is zero.
func (b Bytes) At(r Rate) Seconds { return Seconds(float64(b) / float64(r)) }

// Per returns the rate that moves b in t.
func (b Bytes) Per(t Seconds) Rate { return Rate(float64(b) / float64(t)) }

// At returns the time to execute f at rate r; infinite when r is zero.
func (f FLOPs) At(r FLOPRate) Seconds { return Seconds(float64(f) / float64(r)) }

// Per returns the rate that executes f in t.
func (f FLOPs) Per(t Seconds) FLOPRate { return FLOPRate(float64(f) / float64(t)) }

// For returns the energy of drawing w for t.
func (w Watts) For(t Seconds) Joules { return Joules(float64(w) * float64(t)) }

// Over returns the average power that spends j in t.
func (j Joules) Over(t Seconds) Watts { return Watts(float64(j) / float64(t)) }

// Common scales, for literals in code and tests.
const (
	KB Bytes = 1e3
	MB Bytes = 1e6
	GB Bytes = 1e9
	TB Bytes = 1e12

	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40

	Millisecond Seconds = 1e-3
	Microsecond Seconds = 1e-6
	Nanosecond  Seconds = 1e-9

	GBps   Rate     = 1e9
	TBps   Rate     = 1e12
	TFLOPS FLOPRate = 1e12
)

// unit is one accepted spelling and its factor to the SI base unit.
type unit struct {
	name   string
	factor float64
}

// The spellings of each quantity; the first is the one shown in errors.
var (
	byteUnits = []unit{
		{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TiB", 1 << 40},
		{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"TB", 1e12}, {"PB", 1e15}, {"B", 1},
	}
	timeUnits = []unit{
		{"ms", 1e-3}, {"s", 1}, {"us", 1e-6}, {"µs", 1e-6}, {"ns", 1e-9}, {"ps", 1e-12},
		{"min", 60}, {"h", 3600}, {"d", 86400},
	}
	rateUnits = []unit{
		{"GB/s", 1e9}, {"TB/s", 1e12}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1},
		{"GiB/s", 1 << 30}, {"MiB/s", 1 << 20}, {"TiB/s", 1 << 40},
		{"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8}, {"Tbit/s", 1e12 / 8},
		{"Gbps", 1e9 / 8}, {"Tbps", 1e12 / 8},
	}
	flopRateUnits = []unit{
		{"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"GFLOP/s", 1e9}, {"FLOP/s", 1},
		{"TFLOPS", 1e12}, {"PFLOPS", 1e15}, {"GFLOPS", 1e9},
	}
	hertzUnits = []unit{{"MHz", 1e6}, {"GHz", 1e9}, {"kHz", 1e3}, {"Hz", 1}}
	wattUnits  = []unit{{"W", 1}, {"kW", 1e3}, {"MW", 1e6}, {"mW", 1e-3}}
	jouleUnits = []unit{{"J", 1}, {"kJ", 1e3}, {"MJ", 1e6}, {"mJ", 1e-3}, {"Wh", 3600}, {"kWh", 3.6e6}}
)

// parse reads "number unit". The space may be left out. It refuses a bare
// number, a foreign unit, and anything not finite or negative.
func parse(s, quantity string, units []unit) (float64, error) {
	text := strings.TrimSpace(s)
	i := 0
	for i < len(text) && strings.IndexByte("+-.0123456789eE_", text[i]) >= 0 {
		// An e or E belongs to the number only when a digit or sign follows.
		if (text[i] == 'e' || text[i] == 'E') && (i+1 >= len(text) || strings.IndexByte("+-0123456789", text[i+1]) < 0) {
			break
		}
		i++
	}
	number, name := strings.ReplaceAll(text[:i], "_", ""), strings.TrimSpace(text[i:])
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a %s; write a number and a unit, as in \"25 %s\"", s, quantity, units[0].name)
	}
	if name == "" {
		return 0, fmt.Errorf("%q has no unit; write a %s as in \"%s %s\"", s, quantity, number, units[0].name)
	}
	for _, u := range units {
		if u.name == name {
			v *= u.factor
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				return 0, fmt.Errorf("%q is not a usable %s; it must be finite and not negative", s, quantity)
			}
			return v, nil
		}
	}
	return 0, fmt.Errorf("%q: %q is not a unit of %s; use %s", s, name, quantity, names(units))
}

func names(units []unit) string {
	all := make([]string, len(units))
	for i, u := range units {
		all[i] = u.name
	}
	return strings.Join(all, ", ")
}

// ParseBytes reads an amount of data such as "25 MiB" or "80GB".
func ParseBytes(s string) (Bytes, error) {
	v, err := parse(s, "data size", byteUnits)
	return Bytes(v), err
}

// ParseSeconds reads a duration such as "529.5 ms" or "3 us".
func ParseSeconds(s string) (Seconds, error) {
	v, err := parse(s, "time", timeUnits)
	return Seconds(v), err
}

// ParseRate reads a data rate such as "4.8 TB/s" or "400 Gbit/s".
func ParseRate(s string) (Rate, error) {
	v, err := parse(s, "data rate", rateUnits)
	return Rate(v), err
}

// ParseFLOPRate reads an arithmetic rate such as "989.4 TFLOP/s".
func ParseFLOPRate(s string) (FLOPRate, error) {
	v, err := parse(s, "arithmetic rate", flopRateUnits)
	return FLOPRate(v), err
}

// ParseHertz reads a frequency such as "1980 MHz".
func ParseHertz(s string) (Hertz, error) {
	v, err := parse(s, "frequency", hertzUnits)
	return Hertz(v), err
}

// ParseWatts reads a power such as "700 W".
func ParseWatts(s string) (Watts, error) {
	v, err := parse(s, "power", wattUnits)
	return Watts(v), err
}

// ParseJoules reads an energy such as "301 J" or "2 kWh".
func ParseJoules(s string) (Joules, error) {
	v, err := parse(s, "energy", jouleUnits)
	return Joules(v), err
}

func (b *Bytes) UnmarshalText(t []byte) (err error)    { *b, err = ParseBytes(string(t)); return }
func (s *Seconds) UnmarshalText(t []byte) (err error)  { *s, err = ParseSeconds(string(t)); return }
func (r *Rate) UnmarshalText(t []byte) (err error)     { *r, err = ParseRate(string(t)); return }
func (r *FLOPRate) UnmarshalText(t []byte) (err error) { *r, err = ParseFLOPRate(string(t)); return }
func (h *Hertz) UnmarshalText(t []byte) (err error)    { *h, err = ParseHertz(string(t)); return }
func (w *Watts) UnmarshalText(t []byte) (err error)    { *w, err = ParseWatts(string(t)); return }
func (j *Joules) UnmarshalText(t []byte) (err error)   { *j, err = ParseJoules(string(t)); return }

// The MarshalText methods write what the matching UnmarshalText reads, with
// all digits, in the unit that keeps the number short.

func (b Bytes) MarshalText() ([]byte, error) {
	return marshal(float64(b), []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"B", 1}})
}
func (s Seconds) MarshalText() ([]byte, error) {
	return marshal(float64(s), []unit{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}})
}
func (r Rate) MarshalText() ([]byte, error) {
	return marshal(float64(r), []unit{{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"B/s", 1}})
}
func (r FLOPRate) MarshalText() ([]byte, error) {
	return marshal(float64(r), []unit{{"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"FLOP/s", 1}})
}
func (h Hertz) MarshalText() ([]byte, error) {
	return marshal(float64(h), []unit{{"MHz", 1e6}, {"Hz", 1}})
}
func (w Watts) MarshalText() ([]byte, error)  { return marshal(float64(w), []unit{{"W", 1}}) }
func (j Joules) MarshalText() ([]byte, error) { return marshal(float64(j), []unit{{"J", 1}}) }

// marshal picks the spelling with the fewest characters; ties go to the first.
func marshal(v float64, units []unit) ([]byte, error) {
	best := ""
	for _, u := range units {
		s := strconv.FormatFloat(v/u.factor, 'g', -1, 64) + " " + u.name
		if back, err := strconv.ParseFloat(strconv.FormatFloat(v/u.factor, 'g', -1, 64), 64); err != nil || back*u.factor != v {
			continue // would not read back to the same value
		}
		if best == "" || len(s) < len(best) {
			best = s
		}
	}
	if best == "" {
		last := units[len(units)-1]
		best = strconv.FormatFloat(v/last.factor, 'g', -1, 64) + " " + last.name
	}
	return []byte(best), nil
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
	return fmt.Sprintf("%.0f B", float64(b))
}

// String prints four significant digits in the unit that suits the size.
func (s Seconds) String() string {
	a := math.Abs(float64(s))
	switch {
	case a >= 2*86400:
		return sig4(float64(s)/86400) + " d"
	case a >= 2*3600:
		return sig4(float64(s)/3600) + " h"
	case a >= 1:
		return sig4(float64(s)) + " s"
	case a >= 1e-3:
		return sig4(float64(s)*1e3) + " ms"
	case a == 0:
		return "0 s"
	}
	return sig4(float64(s)*1e6) + " us"
}

// String prints a data rate in decimal units, as network and memory vendors do.
func (r Rate) String() string {
	switch a := math.Abs(float64(r)); {
	case a >= 1e12:
		return sig4(float64(r)/1e12) + " TB/s"
	case a >= 1e9:
		return sig4(float64(r)/1e9) + " GB/s"
	}
	return sig4(float64(r)/1e6) + " MB/s"
}

func (r FLOPRate) String() string { return sig4(float64(r)/1e12) + " TFLOP/s" }
func (h Hertz) String() string    { return sig4(float64(h)/1e6) + " MHz" }
func (w Watts) String() string    { return sig4(float64(w)) + " W" }
func (j Joules) String() string   { return sig4(float64(j)) + " J" }

// String prints an amount of arithmetic with an SI prefix.
func (f FLOPs) String() string {
	for _, u := range []unit{{"EFLOP", 1e18}, {"PFLOP", 1e15}, {"TFLOP", 1e12}, {"GFLOP", 1e9}, {"MFLOP", 1e6}} {
		if math.Abs(float64(f)) >= u.factor {
			return sig4(float64(f)/u.factor) + " " + u.name
		}
	}
	return sig4(float64(f)) + " FLOP"
}

// Count prints a number of things (parameters, tokens) with an SI prefix.
func Count(n float64) string {
	for _, u := range []unit{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if math.Abs(n) >= u.factor {
			return sig4(n/u.factor) + u.name
		}
	}
	return sig4(n)
}

// sig4 prints four significant digits without an exponent and without losing
// integer digits.
func sig4(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1000 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}
