package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Models of the runs of Megatron-Core core_v0.14.0 with Transformer Engine 2.7 that
// TestRecomputeModules quotes.
const (
	qwenLike = `{model_type: decoder, hidden_size: 2048, num_hidden_layers: %d, num_attention_heads: 32, num_key_value_heads: 4, head_dim: 128, intermediate_size: 6144, gated_mlp: true, vocab_size: 151936,
		num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: 768, qk_norm: head}`
	deepSeekLike = `{model_type: decoder, hidden_size: 2048, num_hidden_layers: %d, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 10944, gated_mlp: true, vocab_size: 102400, num_experts: 64,
		num_experts_per_tok: 6, moe_intermediate_size: 1408, n_shared_experts: 2, first_k_dense_replace: 1, q_lora_rank: 1536, kv_lora_rank: 512, qk_rope_head_dim: 64, qk_nope_head_dim: 128, v_head_dim: 128}`
	llamaLike = `{model_type: decoder, hidden_size: 4096, num_hidden_layers: %d, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256}`
)

// TestRecomputeModules: memory of parts of layers that are computed again, against
// torch.cuda.max_memory_allocated on an H100 (one GPU) and on four H200, 2026-11-22, and
// what it saves against nothing computed again.
func TestRecomputeModules(t *testing.T) {
	for _, c := range []struct {
		model, modules           string
		layers, gpus, micro, acc int
		plain, peak              float64 // measured GB without and with
		saved                    float64 // tolerance of the difference, relative; 0: its sign
	}{
		{qwenLike, "moe_act, layernorm", 4, 1, 2, 2, 63.3722, 62.8352, 0.01},
		{qwenLike, "moe", 4, 1, 2, 2, 63.3722, 61.0674, 0.02},
		{qwenLike, "moe_act, layernorm", 6, 4, 2, 4, 32.1813, 31.3745, 0.01},
		{deepSeekLike, "mla_up_proj", 6, 4, 1, 4, 23.5503, 23.1686, 0},
		{llamaLike, "mlp", 6, 1, 2, 2, 0, 48.5819, 0},
	} {
		ep := 1
		if c.model != llamaLike {
			ep = c.gpus
		}
		run := func(recompute string) *Result {
			return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: %d, plan: {dp: %d, ep: %d, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: %d, grad_accumulation: %d, precision: bf16, %s}}",
				fmt.Sprintf(c.model, c.layers), c.gpus, c.gpus, ep, c.micro, c.acc, recompute)))
		}
		none, some := run("recompute: none"), run("recompute: selective, recompute_modules: ["+c.modules+"]")
		text := c.modules
		require.InEpsilon(t, c.peak*1e9, float64(some.Memory.PeakAllocated), 0.02, text)
		require.Less(t, some.Memory.PeakAllocated, none.Memory.PeakAllocated, text)
		if c.saved > 0 {
			require.InEpsilon(t, (c.plain-c.peak)*1e9, float64(none.Memory.PeakAllocated-some.Memory.PeakAllocated), c.saved, text)
		}
		require.Greater(t, some.StepTime, none.StepTime, text)
		require.InEpsilon(t, none.MFU*float64(none.StepTime), some.MFU*float64(some.StepTime), 1e-9, "model FLOPs do not change")
		if c.modules == "moe_act, layernorm" { // no matrix products
			require.InEpsilon(t, none.HFU*float64(none.StepTime), some.HFU*float64(some.StepTime), 1e-9)
		} else {
			require.Greater(t, some.HFU*float64(some.StepTime), none.HFU*float64(none.StepTime), text)
		}
		// All of a layer's parts save no more than the layer from its input.
		require.GreaterOrEqual(t, some.Memory.PeakAllocated, run("recompute: full").Memory.PeakAllocated, text)
	}
	j := "{model: llama2-7b, hardware: h200-sxm, gpus: 8, plan: {dp: 8, data_parallel: zero1}, train: {recompute: selective%s}}"
	require.Equal(t, mustEstimate(t, mustParse(t, fmt.Sprintf(j, ""))).StepTime, mustEstimate(t, mustParse(t, fmt.Sprintf(j, ", recompute_modules: core_attn"))).StepTime)
}

// TestIdleRecompute: what Megatron takes without effect changes nothing here either: more layers
// than a stage has are all of them, and norms that projections take in are not computed again.
func TestIdleRecompute(t *testing.T) {
	const job = "{model: llama2-7b, hardware: h100-sxm, gpus: 8, plan: {pp: 4, dp: 2, data_parallel: zero1}, train: {micro_batch: 1, grad_accumulation: 8, recompute: %s}}"
	for given, same := range map[string]string{
		"full, recompute_num_layers: 99":                 "full",
		"selective, recompute_modules: [layernorm]":      "none",
		"selective, recompute_modules: [mlp, layernorm]": "selective, recompute_modules: [mlp]",
	} {
		got, want := mustEstimate(t, mustParse(t, fmt.Sprintf(job, given))), mustEstimate(t, mustParse(t, fmt.Sprintf(job, same)))
		require.Equal(t, want.StepTime, got.StepTime, given)
		require.Equal(t, want.Memory.PeakAllocated, got.Memory.PeakAllocated, given)
	}
}
