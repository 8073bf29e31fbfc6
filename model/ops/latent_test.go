package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestLatentsOfTensorRanks: Megatron's tensor ranks project down what they have of a sequence, and
// gather the latents and the part of keys that turns, 3.4 times less than what they were made of
// (Megatron-Core, multi_latent_attention.py, _qkv_down_projection, whose layers are duplicated).
func TestLatentsOfTensorRanks(t *testing.T) {
	const tokens = 4096
	for _, tp := range []int64{1, 2, 8} {
		c := config(t, "deepseek-v3", "megatron-core")
		c.MicroBatch, c.Sequence, c.Shard.TP, c.Shard.SequenceParallel = 1, tokens, tp, tp > 1
		layer := at(built(t, c), 1)
		sound(t, "megatron-core", layer)
		rows := map[int64]int64{} // of products by width of their output
		gathered := units.Bytes(0)
		for i := range layer.Forward.Ops {
			o := &layer.Forward.Ops[i]
			if o.Module == "attention" && o.Prim == "linear" {
				rows[o.N] = o.M
			}
			if o.Comm != nil && o.Comm.Group == "tp" && o.Comm.Kind == "all-gather" && o.Module != "mlp" {
				gathered += o.Comm.Bytes
			}
		}
		heads := 128 / tp
		for width, want := range map[int64]int64{1536: tokens / tp, 512 + 64: tokens / tp, heads * (128 + 64): tokens, heads * (128 + 128): tokens} {
			require.Equal(t, want, rows[width], "tp %d, width %d of %v", tp, width, rows)
		}
		if tp > 1 {
			require.Equal(t, units.Bytes(2*tokens*(1536+512+64)), gathered, "tp %d", tp)
		}
	}
}
