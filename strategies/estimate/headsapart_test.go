package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeadsApart: PyTorch's attention of heads that share keys in fp32, which no fused kernel of it takes,
// keeps the scores: peak allocated of a Llama of 8 layers and of Qwen2.5 0.5B on an H200, and of 8 layers of
// Llama-3 8B over four tensor ranks of torchtitan v0.2.2, which leaves mixed precision to FSDP (PyTorch
// 2.11, 2026-11-28), in GB.
func TestHeadsApart(t *testing.T) {
	const (
		llama = "{model_type: llama, hidden_size: 2048, num_hidden_layers: 8, num_attention_heads: 32, num_key_value_heads: %d, head_dim: 64, intermediate_size: 8192, vocab_size: %d, tie_word_embeddings: %t, max_position_embeddings: 8192}"
		qwen  = "{model_type: qwen2, hidden_size: 896, num_hidden_layers: 24, num_attention_heads: 14, num_key_value_heads: 2, intermediate_size: 4864, vocab_size: 151936, tie_word_embeddings: true}"
		one   = "{model: %s, hardware: %s, gpus: 1, runtime: {recipe: %s, attention: sdpa, release: %q}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: %d, micro_batch: %d, precision: %s, clip_gradients: false}}"
		titan = "{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 8, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false}, hardware: h200-sxm, gpus: 4, " +
			"runtime: {recipe: torchtitan-eager, tf32: false, release: '26.02', fused_cross_entropy: false}, plan: {tp: 4, dp: 1, data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: 2, precision: fp32, recompute: none}}"
	)
	shared, apart := fmt.Sprintf(llama, 8, 128256, true), fmt.Sprintf(llama, 32, 32000, false)
	peak := func(job string) float64 {
		return float64(mustEstimate(t, mustParse(t, job)).Memory.PeakAllocated) / 1e9
	}
	of := func(model, hardware, recipe, release string, tokens, sequences int, precision string) float64 {
		return peak(fmt.Sprintf(one, model, hardware, recipe, release, tokens, sequences, precision))
	}
	require.InEpsilon(t, 31.033, of(shared, "h200-sxm", "hf-eager", "26.01", 2048, 2, "fp32"), 0.002)
	require.InEpsilon(t, 40.294, of(shared, "h200-sxm", "hf-eager", "26.01", 4096, 1, "fp32"), 0.002)
	require.InEpsilon(t, 30.332, of(qwen, "h200-sxm", "hf-eager", "26.01", 1024, 4, "fp32"), 0.002)
	require.InEpsilon(t, 16.741, of(apart, "h200-sxm", "hf-eager", "26.01", 2048, 2, "fp32"), 0.002, "every head has keys of its own")
	require.InEpsilon(t, 28.93, peak(titan), 0.002)
	for name, fused := range map[string]float64{
		"transformers before 4.48 repeats heads": of(shared, "h200-sxm", "hf-eager", "24.12", 2048, 2, "fp32"),
		"16 bits":                                of(shared, "h200-sxm", "hf-eager", "26.01", 2048, 2, "bf16-autocast"),
		"litgpt repeats heads":                   of(shared, "h200-sxm", "litgpt", "26.01", 2048, 2, "fp32"),
		"memory-efficient kernel from 2.14 on":   of(shared, "h200-sxm", "hf-eager", "26.09", 2048, 2, "fp32"),
	} {
		require.Less(t, fused, 24.0, name)
	}
	ranks := fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: 2, runtime: {recipe: hf-eager, attention: sdpa}, plan: {cp: 2, dp: 1, data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: 1, precision: %%s}}", shared)
	require.Greater(t, peak(fmt.Sprintf(ranks, "fp32")), peak(fmt.Sprintf(ranks, "bf16-autocast"))+8*32*2048*4096*4/1e9, "context ranks keep scores of all keys")
	scores := func(recipe string) float64 {
		return of(shared, "v100-32g-sxm", recipe, "26.01", 2048, 2, "fp16-autocast")
	}
	require.Greater(t, scores("hf-eager"), scores("hf-compile")+4, "FlashAttention needs Ampere; with a mask heads are repeated")
}
