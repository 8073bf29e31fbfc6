package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const ulyssesJob = "{model: {model_type: decoder, hidden_size: 2048, num_hidden_layers: 4, num_attention_heads: 16, intermediate_size: 8192, gated_mlp: false, vocab_size: 50304, tie_word_embeddings: true}, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: megatron-deepspeed, release: '23.08', attention: flash-attn}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 32768, micro_batch: 1, precision: fp16, recompute: %s}}"

// TestUlyssesOfMegatronDeepSpeed: each of queries, keys, values and attention's output changes from
// positions to heads by an all-to-all of a rank's part, and so do their gradients (DeepSpeed,
// sequence/layer.py, DistributedAttention); full recomputation does so once more.
func TestUlyssesOfMegatronDeepSpeed(t *testing.T) {
	const part = 2 * 2048 * 32768 / 8.
	for recompute, times := range map[string]float64{"none": 8, "full": 12} {
		_, exchanges := moved(t, fmt.Sprintf(ulyssesJob, "cp: 8", recompute))
		require.InEpsilon(t, 4*times*part, exchanges["all-to-all"], 1e-9, recompute)
	}
}

// TestHeadsComeBack: whichever way attention runs, context ranks get their positions of all heads
// back from it: all of them multiply as much as one without.
func TestHeadsComeBack(t *testing.T) {
	for _, c := range []struct{ model, recipe, attention, plan string }{
		{"llama3-8b", "deepspeed-hf", "sdpa", ""},
		{"llama3-8b", "deepspeed-hf", "unfused", ""},
		{"command-r7b", "deepspeed-hf", "unfused", ""}, // attention beside the MLP
		{"falcon-40b", "deepspeed-hf", "sdpa", ""},
		{"llama3-8b", "megatron-core", "flash", ", cp_comm_type: a2a"},
		{"llama3-8b", "megatron-core", "unfused", ", cp_comm_type: a2a"},
	} {
		of := func(cp int, plan string) float64 {
			products, attention := executed(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: h100-sxm, gpus: %d, runtime: {recipe: %s, attention: %s}, plan: {cp: %d, dp: 1, data_parallel: ddp%s}, train: {sequence_length: 4096, micro_batch: 1}}",
				c.model, cp, c.recipe, c.attention, cp, plan)))
			return products + attention
		}
		require.InEpsilon(t, of(1, ""), of(4, c.plan), 1e-6, "%+v", c)
	}
}
