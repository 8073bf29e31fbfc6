package ops

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFlashBatches: Megatron-LM's tensors lie sequence first, and flash attention takes them
// batch first: queries, keys, values and its output are copied, of one sequence those that lie
// in their projection (megatron/model/transformer.py from d693034ecf of 2022-12-08 on,
// ParallelAttention.forward; microsoft/Megatron-DeepSpeed @99d1eead). Selective recomputation
// runs only what is not flash attention again.
func TestFlashBatches(t *testing.T) {
	for _, c := range []struct {
		model, recipe, attention string
		sequences                int64
		copies, again, scores    int
	}{
		{"gpt2-medium", "megatron-lm", "flash-attn", 1, 3, 0, 0},
		{"gpt2-medium", "megatron-lm", "flash-attn", 4, 4, 0, 0},
		{"llama2-7b", "megatron-lm", "flash-attn", 1, 1, 0, 0}, // queries and keys are turned
		{"llama2-7b", "megatron-lm", "flash-attn", 4, 4, 0, 0},
		{"llama2-7b", "megatron-deepspeed", "flash-attn", 4, 4, 0, 0},
		{"gpt2-medium", "megatron-lm", "unfused", 4, 1, 0, 1},
		{"llama2-7b", "megatron-core", "flash-attn", 4, 0, 1, 0},
	} {
		cfg := config(t, c.model, c.recipe)
		cfg.Attention, cfg.MicroBatch, cfg.Recompute = c.attention, c.sequences, SelectiveRecompute
		layer := &Build(cfg).Kinds[0]
		require.Equal(t, c.copies, number(&layer.Forward, "clone"), "%v", c)
		require.Equal(t, c.again, number(&layer.Backward, "attention"), "%v", c)
		require.Equal(t, c.scores, number(&layer.Backward, "scale_mask_softmax"), "%v", c)
	}
}
