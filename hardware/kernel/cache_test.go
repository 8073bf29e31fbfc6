package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestCache: what a cache holds moves faster. Loops of PyTorch's elementwise kernels over the
// same values, which leave all in the cache of an RTX 4090 or 5090, bound what a step's take
// from below (mli/transformers-benchmarks issue 4; cloudrift-ai/emmy, relu of [512, 16384]),
// the memory's rate from above; a step writes what it makes to memory, half of these bytes.
func TestCache(t *testing.T) {
	for _, c := range []struct {
		gpu   string
		bytes units.Bytes
		loops units.Seconds
	}{
		{"rtx-4090", 33.6e6, 8.7e-6},
		{"rtx-4090", 67.1e6, 18e-6},
		{"rtx-5090", 67.1e6, 12.5e-6},
	} {
		x, p := timer(t, c.gpu)
		o := tape.Op{Class: tape.Vectorized, DType: tape.F32, Elements: float64(c.bytes) / 8, Bytes: c.bytes, Count: 1}
		took, rate := x.Time(&o), p.GPU.Streams()
		require.Greater(t, took, c.loops)
		require.InEpsilon(t, float64((c.bytes / 2).At(rate)), float64(took), 0.25, "%v", c)
		o.Bytes *= 30
		require.InEpsilon(t, float64(o.Bytes.At(rate)), float64(x.Time(&o)), 0.04, "what no cache holds")
	}
}

// A larger cache makes no kernel slower, a smaller one none faster.
func TestCacheOrder(t *testing.T) {
	for _, name := range []string{"rtx-3090", "rtx-4090", "rtx-a6000", "a30", "gb10", "rtx-6000-ada", "rtx-2080-ti", "a100-80g-sxm", "b200-sxm"} {
		x, p := timer(t, name)
		c := x.classes[tape.Vectorized]
		require.Equal(t, c.cache > 1, p.GPU.Cached() > c.law.On.Cached())
		for b := units.Bytes(1e5); b < 1e10; b *= 1.3 {
			if f := c.cached(b); c.cache > 1 {
				require.LessOrEqual(t, f, 1.0, "%s, %v", name, b)
			} else {
				require.GreaterOrEqual(t, f, 1.0, "%s, %v", name, b)
			}
		}
	}
}
