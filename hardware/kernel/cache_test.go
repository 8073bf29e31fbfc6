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

// TestScatteredValues: a sum whose biases lie head by head reads each of them from the cache while this
// holds a line for each pair of positions, and else from memory (traces of T5 on an H200, PyTorch 2.11,
// 2026-11-30 and 12-01). A B200 holds those of 1024 x 1024 pairs, an H200 does not.
func TestScatteredValues(t *testing.T) {
	sum := func(batch, heads, pairs int64) *tape.Op {
		n := batch * heads * pairs
		return &tape.Op{Class: tape.StridedCast, Prim: "add_", DType: tape.F32, Elements: float64(n), Index: 6, Bytes: units.Bytes(8*n + 2*heads*pairs), Apart: pairs, Count: 1}
	}
	h200, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		op   *tape.Op
		time float64
	}{{sum(8, 32, 1024*1024), 4.304e-3}, {sum(8, 16, 512*512), 156.4e-6}, {sum(8, 16, 128*128), 11.2e-6}} {
		got := h200.Time(c.op)
		require.InEpsilon(t, c.time, float64(got), 0.12, "%g values", c.op.Elements)
	}
	b200, _ := timer(t, "b200-sxm")
	of := func(x *Timer, pairs int64) float64 {
		got := x.Time(sum(8, 32, pairs))
		return float64(got) / float64(pairs)
	}
	require.Greater(t, of(h200, 1024*1024), 2*of(h200, 512*512))
	require.InEpsilon(t, of(b200, 512*512), of(b200, 1024*1024), 0.15)
	require.Greater(t, of(b200, 2048*2048), 1.5*of(b200, 1024*1024))
}
