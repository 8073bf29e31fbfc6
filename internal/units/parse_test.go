package units

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quantities are all parsers and printers, for tests that hold for each.
var quantities = []struct {
	name   string
	units  []unit
	parse  func(string) (float64, error)
	print  func(float64) string
	write  func(float64) ([]byte, error)
	binary bool // printed with two decimals or one instead of four digits
}{
	{"bytes", byteUnits, parser(ParseBytes), printer[Bytes], writer[Bytes], true},
	{"seconds", timeUnits, parser(ParseSeconds), printer[Seconds], writer[Seconds], false},
	{"rate", rateUnits, parser(parsed[Rate]), printer[Rate], writer[Rate], false},
	{"FLOP rate", flopRateUnits, parser(parsed[FLOPRate]), printer[FLOPRate], writer[FLOPRate], false},
	{"hertz", hertzUnits, parser(parsed[Hertz]), printer[Hertz], writer[Hertz], false},
	{"watts", wattUnits, parser(parsed[Watts]), printer[Watts], writer[Watts], false},
	{"joules", jouleUnits, parser(parsed[Joules]), printer[Joules], writer[Joules], false},
}

type quantity interface {
	~float64
	fmt.Stringer
	MarshalText() ([]byte, error)
}

func parser[T quantity](parse func(string) (T, error)) func(string) (float64, error) {
	return func(s string) (float64, error) { v, err := parse(s); return float64(v), err }
}

// parsed reads a quantity as files have it.
func parsed[T any, P interface {
	*T
	UnmarshalText([]byte) error
}](s string) (v T, err error) {
	err = P(&v).UnmarshalText([]byte(s))
	return v, err
}

func printer[T quantity](v float64) string         { return T(v).String() }
func writer[T quantity](v float64) ([]byte, error) { return T(v).MarshalText() }

// The values are those of the SI brochure (9th edition, tables 4, 7 and 8) and
// IEC 80000-13 (binary prefixes; 8 bit = 1 byte), as Go's own constants.
func TestUnits(t *testing.T) {
	want := map[string]map[string]float64{
		"bytes": {
			"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
			"KiB": 1024, "MiB": 1048576, "GiB": 1073741824, "TiB": 1099511627776, "PiB": 1125899906842624,
		},
		"seconds": {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "ps": 1e-12, "fs": 1e-15, "min": 60, "h": 3600, "d": 86400},
		"rate": {
			"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "MiB/s": 1048576, "GiB/s": 1073741824, "TiB/s": 1099511627776,
			"Mbit/s": 125e3, "Gbit/s": 125e6, "Tbit/s": 125e9, "Mbps": 125e3, "Gbps": 125e6, "Tbps": 125e9,
		},
		"FLOP rate": {
			"FLOP/s": 1, "MFLOP/s": 1e6, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "GFLOPS": 1e9, "TFLOPS": 1e12, "PFLOPS": 1e15,
		},
		"hertz":  {"Hz": 1, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
		"watts":  {"mW": 1e-3, "W": 1, "kW": 1e3, "MW": 1e6},
		"joules": {"mJ": 1e-3, "J": 1, "kJ": 1e3, "MJ": 1e6, "Wh": 3600, "kWh": 3.6e6},
	}
	for _, q := range quantities {
		require.Len(t, want[q.name], len(q.units), q.name) // no spelling untested, none twice
		for _, u := range q.units {
			got, err := q.parse("1 " + u.name)
			require.NoError(t, err, u.name)
			require.Equal(t, want[q.name][u.name], got, u.name)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in     string
		want   Bytes
		reason string
	}{
		{"25 MiB", 26214400, "DDP's default bucket (torch bucket_cap_mb)"},
		{"80GB", 80e9, "no space"},
		{"  141 \t GB ", 141e9, "spaces around"},
		{"1.5 KiB", 1536, "fraction"},
		{".5 kB", 500, "no digit before the point"},
		{"5. kB", 5000, "no digit after it"},
		{"1_000_000 B", 1e6, "underscores group digits"},
		{"+3 B", 3, "a sign"},
		{"1e3 MB", 1e9, "exponent"},
		{"1E+3 MB", 1e9, "exponent with sign"},
		{"25e-1 kB", 2500, "negative exponent"},
		{"2e3B", 2000, "exponent and no space"},
		{"0 B", 0, "nothing"},
		{"-0 B", 0, "a zero has no sign"},
		{"1e-400 B", 0, "below the smallest float"},
		{"1e-99999999999999999999 B", 0, "exponent below the smallest integer"},
		{"0e99999999999999999999 B", 0, "zero at any scale"},
		{"1e300 B", 1e300, "above any memory, but a number"},
	} {
		got, err := ParseBytes(c.in)
		require.NoError(t, err, "%s (%s)", c.in, c.reason)
		require.Equal(t, c.want, got, "%s (%s)", c.in, c.reason)
		require.False(t, math.Signbit(float64(got)), c.in)
	}
}

// A quantity is the float nearest to what the text says. Multiplying by the
// prefix misses it for one text in five: 529.5 * 1e-3 is not 0.5295.
func TestParseIsExact(t *testing.T) {
	for in, want := range map[string]float64{
		"529.5 ms": 529.5e-3, "9 ms": 9e-3, "0.3 us": 0.3e-6, "17.1 ns": 17.1e-9, "1.1e3 us": 1.1e-3,
	} {
		got, err := ParseSeconds(in)
		require.NoError(t, err)
		require.Equal(t, want, float64(got), in)
	}
	got, err := parsed[FLOPRate]("989.4 TFLOP/s")
	require.NoError(t, err)
	require.Equal(t, FLOPRate(989.4e12), got)
	bits, err := parsed[Rate]("400 Gbit/s")
	require.NoError(t, err)
	require.Equal(t, Rate(50e9), bits)
}

func TestParseErrors(t *testing.T) {
	long := strings.Repeat("9", 1000) + "日"
	for _, c := range []struct{ in, want string }{
		{"", `"" is not a data size; write a number and a unit, as in "25 GiB"`},
		{" ", `" " is not a data size; write a number and a unit, as in "25 GiB"`},
		{"GB", `"GB" is not a data size; write a number and a unit, as in "25 GiB"`},
		{"1.2.3 GB", `"1.2.3 GB" is not a data size; write a number and a unit, as in "25 GiB"`},
		{"1,000 MB", `"1,000 MB" is not a data size; write a number and a unit, as in "25 GiB"`},
		{"1-2 GB", `"1-2 GB" is not a data size; write a number and a unit, as in "25 GiB"`},
		{"1e+ GB", `"1e+ GB" is not a data size; write a number and a unit, as in "25 GiB"`},
		{"NaN GB", `"NaN GB" is not a data size; write a number and a unit, as in "25 GiB"`},
		{"inf GB", `"inf GB" is not a data size; write a number and a unit, as in "25 GiB"`},
		{"25", `"25" has no unit; write a data size as in "25 GiB"; units: GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{"25 gb", `"25 gb": "gb" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{"25 Gb", `"25 Gb": "Gb" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{"25 GB/s", `"25 GB/s": "GB/s" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{"1 GB 2", `"1 GB 2": "GB 2" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{"0x10 B", `"0x10 B": "x10 B" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{"1e", `"1e": "e" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{"-5 GB", `"-5 GB" is not a usable data size; it must be finite and not negative`},
		{"1e400 GB", `"1e400 GB" is not a usable data size; it must be finite and not negative`},
		{"1e308 PiB", `"1e308 PiB" is not a usable data size; it must be finite and not negative`},
		{"1e99999999999999999999 B", `"1e99999999999999999999 B" is not a usable data size; it must be finite and not negative`},
		{"5 \x1b[31m", `"5 \x1b[31m": "\x1b[31m" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
		{long, `"` + strings.Repeat("9", 60) + `…": "日" is not a unit of data size; use GiB, MiB, KiB, TiB, PiB, GB, MB, kB, KB, TB, PB, B`},
	} {
		got, err := ParseBytes(c.in)
		require.EqualError(t, err, c.want)
		require.Zero(t, got, c.in)
	}
	for _, q := range quantities { // each names itself and its first unit
		_, err := q.parse("fast")
		require.ErrorContains(t, err, `"25 `+q.units[0].name+`"`, q.name)
		_, err = q.parse("1 parsec")
		require.ErrorContains(t, err, "use "+q.units[0].name, q.name)
	}
}

func TestUnmarshalText(t *testing.T) {
	var all struct {
		b Bytes
		s Seconds
		r Rate
		f FLOPRate
		h Hertz
		w Watts
		j Joules
	}
	require.NoError(t, all.b.UnmarshalText([]byte("1 KiB")))
	require.NoError(t, all.s.UnmarshalText([]byte("1 ms")))
	require.NoError(t, all.r.UnmarshalText([]byte("1 GB/s")))
	require.NoError(t, all.f.UnmarshalText([]byte("1 TFLOP/s")))
	require.NoError(t, all.h.UnmarshalText([]byte("1 MHz")))
	require.NoError(t, all.w.UnmarshalText([]byte("1 W")))
	require.NoError(t, all.j.UnmarshalText([]byte("1 J")))
	require.Equal(t, []any{Bytes(1024), Seconds(1e-3), Rate(1e9), FLOPRate(1e12), Hertz(1e6), Watts(1), Joules(1)},
		[]any{all.b, all.s, all.r, all.f, all.h, all.w, all.j})
	require.Error(t, all.b.UnmarshalText([]byte("1 KiB/s")))
	require.Zero(t, all.b)
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseSeconds("529.5 ms"); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzParseBytes(f *testing.F)    { fuzz(f, "bytes") }
func FuzzParseSeconds(f *testing.F)  { fuzz(f, "seconds") }
func FuzzParseRate(f *testing.F)     { fuzz(f, "rate") }
func FuzzParseFLOPRate(f *testing.F) { fuzz(f, "FLOP rate") }
func FuzzParseHertz(f *testing.F)    { fuzz(f, "hertz") }
func FuzzParseWatts(f *testing.F)    { fuzz(f, "watts") }
func FuzzParseJoules(f *testing.F)   { fuzz(f, "joules") }

// fuzz checks that whatever is accepted is usable and survives being written,
// and that whatever is refused is refused in a few words.
func fuzz(f *testing.F, name string) {
	for _, q := range quantities {
		if q.name != name {
			continue
		}
		for _, u := range q.units {
			f.Add("1.5e3" + u.name)
		}
		for _, s := range []string{"", "25", "1e400 B", "-1 " + q.units[0].name, "1__0e", "+.e-5\u00a0s", "١ ms", "1e-7\xff", "+", "1.", "5e+3", "1e5e5 s", "0x1p4 B", "1,5 W", "-0 J"} {
			f.Add(s)
		}
		f.Fuzz(func(t *testing.T, s string) {
			v, err := q.parse(s)
			if err != nil {
				require.Zero(t, v)
				require.Less(t, len(err.Error()), 1000)
				return
			}
			require.True(t, v >= 0 && !math.IsInf(v, 0) && !math.Signbit(v), "%q is %v", s, v)
			text, err := q.write(v)
			require.NoError(t, err)
			back, err := q.parse(string(text))
			require.NoError(t, err)
			require.Equal(t, v, back, "%q was written as %q", s, text)
			require.NotEmpty(t, q.print(v))
		})
	}
}
