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
