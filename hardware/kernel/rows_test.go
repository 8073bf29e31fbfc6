package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestLayerNorms: PyTorch's layer norms and the gradients of their weights, in us (2.11, H200,
// 2026-11-29). The gradient is summed by strips of 32 columns, one to an SM, so that narrow rows
// take as long as wide ones, until rows are so many that blocks share a strip.
func TestLayerNorms(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	for _, c := range []struct {
		rows, width      int64
		dtype            tape.DType
		forward, weights float64
	}{
		{32768, 768, tape.BF16, 69.8, 145}, {32768, 1024, tape.BF16, 78.2, 148.2}, {32768, 2048, tape.BF16, 117.7, 154.9}, {32768, 4096, tape.BF16, 197.9, 181.7},
		{32768, 5120, tape.BF16, 243.2, 292.2}, {65536, 768, tape.BF16, 136.6, 279.9}, {65536, 8192, tape.BF16, 863.5, 792.3},
		{32768, 1024, tape.F32, 102.7, 148.9}, {32768, 4096, tape.F32, 347, 254.8},
		{98304, 768, tape.BF16, 203.4, 97.3 + 2*16.6}, {98304, 2048, tape.BF16, 344.4, 258.2 + 2*35.1},
	} {
		n := float64(c.rows * c.width)
		moved := units.Bytes(2 * n * float64(c.dtype.Size()))
		f := tape.Op{Prim: "layer_norm", Class: tape.LayerRows, RowBlocks: true, DType: c.dtype, N: c.width, Elements: n, Bytes: moved, Count: 1}
		w := tape.Op{Prim: "layer_norm_weight_backward", Class: tape.NormWeight, DType: c.dtype, N: c.width, Elements: n, Bytes: moved, Count: 1}
		require.InEpsilon(t, c.forward, float64(h200.Time(&f))*1e6, 0.17, "%+v", c)
		require.InEpsilon(t, c.weights, float64(h200.Time(&w))*1e6, 0.17, "%+v", c)
	}
}

// TestNonCausalWindows: a window around each query has as many keys as one before it, and costs about as much.
func TestNonCausalWindows(t *testing.T) {
	h200, _ := timer(t, "h200-sxm")
	s := tape.AttentionShape{Batch: 4, Heads: 12, KVHeads: 12, Queries: 8192, Keys: 8192, QKDim: 64, VDim: 64, Window: 128}
	before := s
	before.Causal = true
	require.InEpsilon(t, before.Pairs(), s.Pairs(), 0.01)
	all := s
	all.Window = 0
	a, b, c := Attention(tape.BF16, s), Attention(tape.BF16, before), Attention(tape.BF16, all)
	require.InEpsilon(t, float64(h200.Time(&b)), float64(h200.Time(&a)), 0.05)
	require.Less(t, 4*float64(h200.Time(&a)), float64(h200.Time(&c)))
}
