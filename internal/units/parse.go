package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unit is one accepted spelling: factor × 10^exp base units. The power of ten
// is kept apart so that "989.4 TFLOP/s" reads as the number nearest to 989.4e12,
// which 989.4 × 1e12 often is not.
type unit struct {
	name   string
	exp    int
	factor float64
}

// The spellings of each quantity; the first is the one shown in errors.
var (
	byteUnits = []unit{
		{"GiB", 0, 1 << 30}, {"MiB", 0, 1 << 20}, {"KiB", 0, 1 << 10}, {"TiB", 0, 1 << 40}, {"PiB", 0, 1 << 50},
		{"GB", 9, 1}, {"MB", 6, 1}, {"kB", 3, 1}, {"KB", 3, 1}, {"TB", 12, 1}, {"PB", 15, 1}, {"B", 0, 1},
	}
	timeUnits = []unit{
		{"ms", -3, 1}, {"s", 0, 1}, {"us", -6, 1}, {"µs", -6, 1}, {"μs", -6, 1}, {"ns", -9, 1}, {"ps", -12, 1}, {"fs", -15, 1}, // micro sign and Greek mu
		{"min", 0, 60}, {"h", 0, 3600}, {"d", 0, 86400},
	}
	rateUnits = []unit{
		{"GB/s", 9, 1}, {"TB/s", 12, 1}, {"MB/s", 6, 1}, {"kB/s", 3, 1}, {"B/s", 0, 1},
		{"GiB/s", 0, 1 << 30}, {"MiB/s", 0, 1 << 20}, {"TiB/s", 0, 1 << 40},
		{"Gbit/s", 9, 1. / 8}, {"Mbit/s", 6, 1. / 8}, {"Tbit/s", 12, 1. / 8},
		{"Gbps", 9, 1. / 8}, {"Mbps", 6, 1. / 8}, {"Tbps", 12, 1. / 8},
	}
	flopRateUnits = []unit{
		{"TFLOP/s", 12, 1}, {"PFLOP/s", 15, 1}, {"GFLOP/s", 9, 1}, {"MFLOP/s", 6, 1}, {"FLOP/s", 0, 1},
		{"TFLOPS", 12, 1}, {"PFLOPS", 15, 1}, {"GFLOPS", 9, 1},
	}
	hertzUnits = []unit{{"MHz", 6, 1}, {"GHz", 9, 1}, {"kHz", 3, 1}, {"Hz", 0, 1}}
	wattUnits  = []unit{{"W", 0, 1}, {"kW", 3, 1}, {"MW", 6, 1}, {"mW", -3, 1}}
	jouleUnits = []unit{{"J", 0, 1}, {"kJ", 3, 1}, {"MJ", 6, 1}, {"mJ", -3, 1}, {"Wh", 0, 3600}, {"kWh", 3, 3600}}
)

// parse reads "number unit". The space may be left out. It refuses a bare
// number, a foreign unit, and anything not finite or negative.
func parse(s, quantity string, units []unit) (float64, error) {
	number, name := split(s)
	if _, err := strconv.ParseFloat(number, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is not a %s; write a number and a unit, as in \"25 %s\"", quote(s), quantity, units[0].name)
	}
	if name == "" {
		if v, _ := strconv.ParseFloat(number, 64); v <= 0 { // which few quantities may be
			number = "25"
		}
		return 0, fmt.Errorf("%s has no unit; write a %s as in \"%s %s\"; units: %s", quote(s), quantity, shorten(number), units[0].name, names(units))
	}
	for _, u := range units {
		if u.name != name {
			continue
		}
		v := u.read(number)
		if math.IsInf(v, 0) || v < 0 {
			return 0, fmt.Errorf("%s is not a usable %s; it must be finite and not negative", quote(s), quantity)
		}
		return v, nil
	}
	return 0, fmt.Errorf("%s: %s is not a unit of %s; use %s", quote(s), quote(name), quantity, names(units))
}

// split cuts the number, without its underscores, from the unit.
func split(s string) (number, unit string) {
	s = strings.TrimSpace(s)
	i := 0
	for ; i < len(s) && strings.IndexByte("+-.,0123456789eE_", s[i]) >= 0; i++ {
		// An e belongs to the number only when a digit or a sign follows.
		if (s[i] == 'e' || s[i] == 'E') && (i+1 == len(s) || strings.IndexByte("+-0123456789", s[i+1]) < 0) {
			break
		}
	}
	return strings.ReplaceAll(s[:i], "_", ""), strings.TrimSpace(s[i:])
}

// read returns a well-formed number of units u in base units.
func (u unit) read(number string) float64 {
	mantissa, exp := number, 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		// An exponent too large for an int is cut to the largest, which overflows too.
		mantissa = number[:i]
		exp, _ = strconv.Atoi(number[i+1:])
		exp = min(max(exp, -1<<20), 1<<20)
	}
	v, _ := strconv.ParseFloat(mantissa+"e"+strconv.Itoa(exp+u.exp), 64) // out of range is infinite
	return v*u.factor + 0                                                // + 0 makes a zero of "-0"
}

func names(units []unit) string {
	all := make([]string, len(units))
	for i, u := range units {
		all[i] = u.name
	}
	return strings.Join(all, ", ")
}

func quote(s string) string { return strconv.Quote(shorten(s)) }

// shorten keeps a message readable when the value is a whole page.
func shorten(s string) string {
	const most = 60
	for i := range s {
		if i >= most {
			return s[:i] + "…"
		}
	}
	return s
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

// The UnmarshalText methods read a quantity from a file or a flag. On an error
// the value is zero.

func (b *Bytes) UnmarshalText(t []byte) (err error)   { *b, err = ParseBytes(string(t)); return }
func (s *Seconds) UnmarshalText(t []byte) (err error) { *s, err = ParseSeconds(string(t)); return }
func (r *Rate) UnmarshalText(t []byte) error          { return read(r, t, "data rate", rateUnits) }
func (r *FLOPRate) UnmarshalText(t []byte) error      { return read(r, t, "arithmetic rate", flopRateUnits) }
func (h *Hertz) UnmarshalText(t []byte) error         { return read(h, t, "frequency", hertzUnits) }
func (w *Watts) UnmarshalText(t []byte) error         { return read(w, t, "power", wattUnits) }
func (j *Joules) UnmarshalText(t []byte) error        { return read(j, t, "energy", jouleUnits) }

func read[T ~float64](to *T, text []byte, quantity string, units []unit) error {
	v, err := parse(string(text), quantity, units)
	*to = T(v)
	return err
}
