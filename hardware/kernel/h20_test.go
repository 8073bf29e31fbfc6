package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestThrottledTensorCores: TFLOP/s on an H20, whose SMs multiply a quarter as fast as an
// H200's: square products (zzc0721/torch-performance-test-data issue 77) and attention of two
// sequences of 2048 tokens, 2048 elements in all heads (Dao-AILab/flash-attention issue 1310).
func TestThrottledTensorCores(t *testing.T) {
	x, _ := timer(t, "h20")
	for _, c := range []struct {
		n      int64
		dtype  tape.DType
		tflops float64
	}{
		{1024, tape.BF16, 95.1}, {2048, tape.BF16, 120.3}, {4096, tape.BF16, 133.4}, {8192, tape.BF16, 138.6}, {10240, tape.BF16, 142.3},
		{4096, tape.TF32, 71.1}, {8192, tape.TF32, 71.8}, {10240, tape.TF32, 71.8}, {8192, tape.F32, 32.0},
	} {
		o := GEMM(tape.LayoutForward, c.dtype, c.n, c.n, c.n)
		require.InEpsilon(t, c.tflops, 2e-12*float64(c.n*c.n*c.n)/float64(x.Time(&o)), 0.045, "%v", c)
	}
	const tokens, sequences, hidden = 2048, 2, 2048
	for _, c := range []struct {
		width   int64
		causal  bool
		flavour string
		tflops  float64
		off     float64 // FlashAttention 2's law knows no waves: the last is filled in part
	}{
		{64, false, "", 126.1, 0.03},
		{128, false, "", 129.1, 0.03},
		{64, true, "", 109.1, 0.03},
		{128, true, "", 107.8, 0.03},
		{64, false, "flash", 81.8, 0.08},
		{128, false, "flash", 83.7, 0.08},
		{64, true, "flash", 71.0, 0.12},
		{128, true, "flash", 65.9, 0.17},
	} {
		heads := hidden / c.width
		o := Attention(tape.BF16, tape.AttentionShape{Batch: sequences, Heads: heads, KVHeads: heads, Queries: tokens, Keys: tokens, QKDim: c.width, VDim: c.width, Causal: c.causal, Flavour: c.flavour})
		flops := 4e-12 * sequences * hidden * tokens * tokens
		if c.causal {
			flops /= 2
		}
		require.InEpsilon(t, c.tflops, flops/float64(x.Time(&o)), c.off, "%v", c)
	}
}
