package units

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
)

func TestString(t *testing.T) {
	for _, c := range []struct {
		v      fmt.Stringer
		want   string
		reason string
	}{
		{Bytes(0), "0 B", ""},
		{Bytes(1023), "1023 B", "below 1 KiB"},
		{25 * MiB, "25.0 MiB", "DDP's bucket"},
		{80 * GB, "74.51 GiB", "decimal prints as binary"},
		{143771 * MiB, "140.40 GiB", "an H200, as nvidia-smi counts it"},
		{3 * TiB, "3.00 TiB", ""},
		{-1536 * KiB, "-1.5 MiB", "a difference"},

		{Seconds(0), "0 s", ""},
		{Seconds(0.5295), "529.5 ms", ""},
		{Seconds(0.99999), "1.000 s", "not 1000 ms"},
		{Seconds(0.99994), "999.9 ms", ""},
		{Seconds(-0.25), "-250.0 ms", "time won"},
		{Seconds(3e-6), "3.000 us", ""},
		{Seconds(5.23e-7), "523.0 ns", ""},
		{Seconds(4e-13), "0.000 ns", "below what is printed"},
		{Seconds(7199), "7199 s", ""},
		{Seconds(7200), "2.000 h", ""},
		{Seconds(86400), "24.00 h", ""},
		{Seconds(86400 * 365), "365.0 d", ""},
		{Seconds(math.Inf(1)), "+Inf", "a rate of zero"},
		{Seconds(math.NaN()), "NaN", ""},

		{Rate(4.8e12), "4.800 TB/s", "H200 memory"},
		{Rate(50e9), "50.00 GB/s", "400 Gbit/s"},
		{bits(50e9), "400 Gbit/s", "NDR"},
		{bits(12.5e9 / 3), "33.3 Gbit/s", ""},
		{Rate(999.96e9), "1.000 TB/s", "not 1000.0 GB/s"},
		{Rate(2.5e5), "250.0 kB/s", ""},
		{Rate(0), "0 B/s", ""},

		{FLOPRate(989.4e12), "989.4 TFLOP/s", "H100 bf16"},
		{FLOPRate(1978.9e12), "1979 TFLOP/s", "H100 fp8"},
		{FLOPRate(999.96e12), "1000 TFLOP/s", "four digits, not 1000.0"},
		{FLOPRate(5e9), "5.000 GFLOP/s", ""},
		{FLOPRate(0), "0 FLOP/s", ""},

		{Hertz(1.98e9), "1980 MHz", "as nvidia-smi prints it"},
		{Hertz(32768), "32.77 kHz", ""},
		{Hertz(50), "50.00 Hz", ""},

		{Watts(700), "700.0 W", ""},
		{Watts(10200), "10200 W", "a DGX H100"},
		{Watts(70e6), "70.00 MW", "a hundred thousand of them"},
		{Watts(0.25), "250.0 mW", ""},

		{Joules(301), "301.0 J", ""},
		{Joules(2.5e6), "2.500 MJ", ""},
		{Joules(0.002), "2.000 mJ", ""},

		{FLOPs(0), "0 FLOP", ""},
		{FLOPs(512), "512.0 FLOP", ""},
		{FLOPs(312e15), "312.0 PFLOP", ""},
		{FLOPs(3.14e23), "314000 EFLOP", "GPT-3's training, table D.1 of arXiv 2005.14165"},
	} {
		require.Equal(t, c.want, c.v.String(), c.reason)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 1: "1", 999: "999", 12.5: "12.50", 1000: "1.000k", 4096: "4.096k", 999999: "1.000M",
		6738415616: "6.738B", // Llama-2-7B's parameters
		1.5e13:     "15.00T", -2000: "-2.000k",
	} {
		require.Equal(t, want, Count(n))
	}
}

func TestMarshalText(t *testing.T) {
	for _, c := range []struct {
		v    interface{ MarshalText() ([]byte, error) }
		want string
	}{
		{80 * GiB, "80 GiB"}, {80 * GB, "80 GB"}, {25 * MiB, "25 MiB"}, {Bytes(0), "0 B"}, {Bytes(1000), "1000 B"},
		{Seconds(0.5295), "0.5295 s"}, {Seconds(9e-3), "9 ms"}, {Seconds(1.5e-7), "150 ns"}, {Seconds(-0.5), "-0.5 s"},
		{Rate(4.8e12), "4.8 TB/s"}, {Rate(50e9), "50 GB/s"},
		{FLOPRate(989.4e12), "989.4 TFLOP/s"},
		{Hertz(1.98e9), "1980 MHz"},
		{Watts(700), "700 W"},
		{Joules(301), "301 J"},
	} {
		got, err := c.v.MarshalText()
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
	}
	_, err := json.Marshal(map[string]any{"t": Bytes(1).At(0)})
	require.ErrorContains(t, err, "+Inf ns cannot be written; a quantity is finite")
}

// positive draws numbers of every size, and of the sizes that occur.
func positive() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64Range(0, math.MaxFloat64), rapid.Float64Range(0, 1e-3), rapid.Float64Range(0, 1e18),
		rapid.Map(rapid.Int64Range(0, 1<<50), func(n int64) float64 { return float64(n) }),
		rapid.Custom(func(t *rapid.T) float64 { // a few decimal digits at any scale
			return float64(rapid.IntRange(0, 99999).Draw(t, "digits")) * math.Pow10(rapid.IntRange(-15, 18).Draw(t, "scale"))
		}))
}

// What is written reads back to the same bits.
func TestMarshalTextRoundTrip(t *testing.T) {
	for _, q := range quantities {
		t.Run(q.name, rapid.MakeCheck(func(t *rapid.T) {
			v := positive().Draw(t, "v")
			text, err := q.write(v)
			require.NoError(t, err)
			back, err := q.parse(string(text))
			require.NoError(t, err)
			require.Equal(t, v, back, "%s", text)

			minus, err := q.write(-v)
			require.NoError(t, err)
			require.Equal(t, string(text), strings.TrimPrefix(string(minus), "-"))
		}))
	}
}

// What is printed reads back to within half of the last digit printed.
func TestStringRoundTrip(t *testing.T) {
	for _, q := range quantities {
		t.Run(q.name, rapid.MakeCheck(func(t *rapid.T) {
			v := min(positive().Draw(t, "v"), 1e300) // above, the rounded text may read as infinite
			text := q.print(v)
			back, err := q.parse(text)
			require.NoError(t, err)
			number, name := split(text)
			last := 1.0
			if _, decimals, ok := strings.Cut(number, "."); ok {
				last = math.Pow10(-len(decimals))
			}
			for _, u := range q.units {
				if u.name == name {
					last *= u.factor * math.Pow10(u.exp)
				}
			}
			require.InDelta(t, v, back, last*0.500001+v*1e-15, text)
			if smallest := map[string]float64{"seconds": 1e-9, "watts": 1e-3, "joules": 1e-3}[q.name]; !q.binary && v >= max(smallest, 1e-9) && (smallest > 0 || v >= 1) {
				require.InEpsilon(t, v, back, 5.01e-4, "%s: four significant digits", text)
			}
			if back > 0 {
				require.Equal(t, "-"+text, q.print(-v), "a difference")
			}
		}))
	}
}

// The methods that cross dimensions undo each other.
func TestDimensions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Float64Range(1e-9, 1e24).Draw(t, "amount")
		rate := rapid.Float64Range(1e-9, 1e24).Draw(t, "rate")
		near := func(want, got float64) { require.InEpsilon(t, want, got, 1e-14) }

		near(amount, float64(Bytes(amount).At(Rate(rate)))*rate)
		near(rate, float64(Bytes(amount).Per(Bytes(amount).At(Rate(rate)))))
		near(amount, float64(FLOPs(amount).At(FLOPRate(rate)))*rate)
		near(rate, float64(FLOPs(amount).Per(FLOPs(amount).At(FLOPRate(rate)))))
	})
}

// Nothing divided by nothing is nothing: an op without bytes on a link without
// bandwidth takes no time, and no NaN gets into a sum.
func TestZero(t *testing.T) {
	require.Zero(t, Bytes(0).At(0))
	require.Zero(t, Bytes(0).Per(0))
	require.Zero(t, FLOPs(0).At(0))
	require.Zero(t, FLOPs(0).Per(0))
	require.True(t, math.IsInf(float64(Bytes(1).At(0)), 1))
	require.True(t, math.IsInf(float64(FLOPs(1).At(0)), 1))
	require.Equal(t, Seconds(2), (2 * GB).At(GBps))
	require.Equal(t, Joules(1400), Watts(700).For(2))
}

// bits prints a rate as network cards are sold.
type bits Rate

func (b bits) String() string { return Rate(b).Bits() }
