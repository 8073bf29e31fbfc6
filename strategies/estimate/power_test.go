package estimate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/model/tape"
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

// TestSustainedProducts: the clock to which the limit takes an H200 that does nothing but
// multiply 8192³ matrices (measured for 4 s each, 2026-11-21, at 692 W).
func TestSustainedProducts(t *testing.T) {
	h, err := hardware.Load("h200-sxm")
	require.NoError(t, err)
	m, err := newMachine(h)
	require.NoError(t, err)
	law := h.Laws.Power
	gemm := law.Class[workNames[gemmWork]]
	for _, c := range []struct {
		dtype  tape.DType
		layout tape.Layout
		clock  float64
	}{
		{tape.BF16, tape.LayoutForward, 1486e6}, {tape.FP8, tape.LayoutForward, 1446e6}, {tape.FP8, tape.LayoutDgrad, 1377e6},
	} {
		o := tape.Op{Prim: "linear", Class: tape.GEMM, DType: c.dtype, Layout: c.layout, M: 8192, N: 8192, K: 8192, FLOPs: 2 * 8192 * 8192 * 8192, Count: 1}
		use := m.utilization(&o)
		clock := float64(h.GPU.MaxClock.Value) * math.Pow(float64(law.Cap-gemm.Static)/(float64(gemm.Full-gemm.Static)*use), 1/law.Exponent)
		require.InEpsilon(t, c.clock, clock, 0.02, "%s %s", c.dtype, c.layout)
	}
}
