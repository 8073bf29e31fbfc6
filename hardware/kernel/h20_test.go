package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
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

// TestUnalignedExtents: extents that 16 bytes do not divide have kernels of Ampere's instructions on all GPUs. Of a unit of work at an H200's peak (hopper.yaml)
// these take 1.26 for products (h20.yaml), and the rest for other work. That takes as many clocks on SMs whose tensor cores multiply less a clock, which do
// so at 0.9 of their peak.
func TestUnalignedExtents(t *testing.T) {
	rate := func(p *hardware.Profile) float64 { // of a clock and SM
		return float64(p.GPU.Peak.FP16.Value) / float64(p.GPU.SMs.Value) / float64(p.GPU.Clock.Value)
	}
	_, hopper := timer(t, "h200-sxm")
	for _, name := range []string{"rtx-2080-ti", "rtx-3080", "rtx-3090", "rtx-4090", "rtx-5080", "rtx-5090", "t4", "quadro-rtx-8000", "v100-32g-sxm", "a40", "rtx-a5000", "rtx-a6000", "l4", "l40s", "rtx-6000-ada", "gb10", "rtx-pro-4500-blackwell", "rtx-pro-5000-blackwell", "rtx-pro-6000-blackwell"} {
		_, p := timer(t, name)
		for align, shares := range p.Laws.GEMM.Unaligned {
			for i, share := range shares {
				other := 1/(hopper.Laws.GEMM.Unaligned[align][i]*hopper.Laws.GEMM.Rate["fp16"]) - 1.26
				products := 1 / 0.9
				require.InDelta(t, products/(products+other*rate(p)/rate(hopper)), share, 0.02, "%s: %d bytes, layout %d", name, align, i)
			}
		}
	}
}
