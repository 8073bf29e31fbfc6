package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestFlashAttention2Blackwell: FlashAttention 2 has no kernels of Blackwell; those of
// compute capability 8.0 run there. TFLOP/s on a B200 of attention to all keys, 16,384
// tokens in heads of 2048 elements in all (Dao-AILab/flash-attention issue 1589, 2.7.4) and
// eight sequences of 16 heads (meta-pytorch/tritonbench pull request 171).
func TestFlashAttention2Blackwell(t *testing.T) {
	x, _ := timer(t, "b200-sxm")
	for _, c := range []struct {
		batch, heads, tokens, width int64
		backward                    bool
		tflops                      float64
	}{
		{16, 32, 1024, 64, false, 359},
		{8, 32, 2048, 64, false, 381},
		{4, 32, 4096, 64, false, 307},
		{2, 32, 8192, 64, false, 343},
		{1, 32, 16384, 64, false, 379},
		{16, 32, 1024, 64, true, 281},
		{8, 32, 2048, 64, true, 302},
		{4, 32, 4096, 64, true, 315},
		{2, 32, 8192, 64, true, 329},
		{1, 32, 16384, 64, true, 334},
		{8, 16, 1024, 128, false, 315},
		{8, 16, 2048, 128, false, 352},
		{8, 16, 4096, 128, false, 354},
		{8, 16, 8192, 128, false, 362},
		{8, 16, 16384, 128, false, 331},
	} {
		o := Attention(tape.BF16, tape.AttentionShape{Batch: c.batch, Heads: c.heads, KVHeads: c.heads, Queries: c.tokens, QKDim: c.width, VDim: c.width, Flavour: "flash", Backward: c.backward})
		flops := 4 * float64(c.batch*c.heads*c.tokens*c.tokens*c.width)
		if c.backward {
			flops *= 2.5
		}
		require.InEpsilon(t, c.tflops, flops/float64(x.Time(&o))/1e12, 0.2, "%v", c)
	}
}

// TestFlashAttention1Widths: the first FlashAttention has kernels of 32, 64 and 128 elements,
// and computes other heads as the next one (csrc/flash_attn/fmha_api.cpp of 0.2.2,
// run_fmha_fwd and run_fmha_bwd); the second has further ones.
func TestFlashAttention1Widths(t *testing.T) {
	for _, machine := range []string{"a100-80g-sxm", "h100-sxm", "b200-sxm", "l40s", "rtx-3080", "rtx-3090", "rtx-4090", "rtx-5080", "rtx-5090"} {
		x, _ := timer(t, machine)
		at := func(flavour string, width int64, backward bool) float64 {
			o := Attention(tape.BF16, tape.AttentionShape{Batch: 16, Heads: 32, KVHeads: 32, Queries: 2048, QKDim: width, VDim: width, Causal: true, Flavour: flavour, Backward: backward})
			return float64(x.Time(&o))
		}
		for _, backward := range []bool{false, true} {
			require.InEpsilon(t, at("flash1", 128, backward), at("flash1", 80, backward), 1e-9, machine)
			require.InEpsilon(t, at("flash1", 64, backward), at("flash1", 48, backward), 1e-9, machine)
			require.Less(t, at("flash", 80, backward), 0.9*at("flash", 128, backward), machine)
		}
	}
}
