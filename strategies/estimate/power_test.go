package estimate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestClockAt: at the clock found the dynamic energy is what was left for it, unless
// even the full clock draws less or the lowest more; GEMMs draw no more above their own.
func TestClockAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high float64) float64 { return rapid.Float64Range(low, high).Draw(t, name) }
		p := &pricer{machine: &machine{law: lawView{gemmClock: draw("gemm clock", 0.5, 1)}}}
		exponent := draw("exponent", 1, 3)
		gemms, others := draw("gemms", 0, 500), draw("others", 1, 500)
		left := draw("left", 0, 1000)
		energy := func(r float64) float64 {
			return gemms*math.Pow(min(r, p.law.gemmClock), exponent) + others*math.Pow(r, exponent)
		}
		r := p.clockAt(left, gemms+others, gemms, exponent)
		switch {
		case r == 1:
			require.LessOrEqual(t, energy(1), left+1e-6)
		case r == 0.3:
			require.GreaterOrEqual(t, energy(0.3), left-1e-6)
		default:
			require.InDelta(t, left, energy(r), 1e-6)
		}
	})
}
