package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// onHost is a job of small layers that waits for its host: under a recipe, split by a
// plan over two GPUs.
const onHost = "{model: {model_type: llama, hidden_size: 1024, num_hidden_layers: 8, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, " +
	"vocab_size: 32000, tie_word_embeddings: false}, hardware: h100-sxm, gpus: 2, runtime: {recipe: %s, attention: sdpa}, plan: %s, " +
	"train: {sequence_length: 64, micro_batch: 1, precision: %s}}"

// TestCompiledTensorRanks: what layers on two tensor ranks take more than alone is a
// quarter as much when they are compiled: 21 ms of 40 in turns on two H100 (2026-11-25),
// where eager ones take 77 of 98.
func TestCompiledTensorRanks(t *testing.T) {
	took := func(recipe, plan string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(onHost, recipe, plan, "bf16-pure"))).StepTime)
	}
	const split, whole = "{tp: 2, sequence_parallel: false}", "{dp: 2, data_parallel: ddp}"
	eager := took("hf-eager", split) - took("hf-eager", whole)
	compiled := took("hf-compile-layer", split) - took("hf-compile-layer", whole)
	require.Less(t, compiled, eager/3)
	require.Greater(t, compiled, eager/8)
}

// TestLayersCompiledAlone: a recipe of compiled layers has the eager model around them
// however it is asked for.
func TestLayersCompiledAlone(t *testing.T) {
	const plan = "{dp: 2, data_parallel: fsdp2}"
	named := mustEstimate(t, mustParse(t, fmt.Sprintf(onHost, "hf-compile-layer", plan, "bf16-mixed")))
	scoped := mustEstimate(t, mustParse(t, fmt.Sprintf(onHost, "hf-compile, compile_scope: layer", plan, "bf16-mixed")))
	require.Equal(t, scoped.StepTime, named.StepTime)
	require.Equal(t, scoped.Memory, named.Memory)
}

// TestKeptUnits: a unit of FSDP2 that stays gathered costs its host less in both passes,
// and backward by far (h100-pair-turns: 2 and 9 ms of 41 for nine units).
func TestKeptUnits(t *testing.T) {
	took := func(reshard bool) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf(onHost, "hf-eager", fmt.Sprintf("{dp: 2, data_parallel: fsdp2, reshard_after_forward: %v}", reshard), "bf16-mixed")))
	}
	kept, dropped := took(false), took(true)
	forward, backward := dropped.Forward-kept.Forward, dropped.Backward-kept.Backward
	require.Positive(t, float64(forward))
	require.Greater(t, float64(backward), 2*float64(forward))
}

// TestCompiledLayersRecomputeAll: a checkpoint around eager layers ends with what the backward
// pass needs last, the input of the down projection; a compiled one runs its graph to the end.
func TestCompiledLayersRecomputeAll(t *testing.T) {
	step := func(recipe, recompute string) *Result {
		return predicted(t, fmt.Sprintf("{model: llama3-8b, hardware: h200-sxm, gpus: 1, runtime: {recipe: %s}, plan: {dp: 1}, train: {sequence_length: 8192, micro_batch: 1, recompute: %s, precision: bf16-pure}}", recipe, recompute))
	}
	again := func(recipe string) float64 { // share of the forward pass, which the head is a tenth of
		kept := step(recipe, "none")
		return float64(step(recipe, "full").StepTime-kept.StepTime) / float64(kept.Forward)
	}
	require.InDelta(t, 0.94, again("hf-compile-layer"), 0.05)
	require.InDelta(t, 0.76, again("hf-eager"), 0.05)
}

// TestUnreducedPasses: passes that reduce no gradients cost hosts less under FSDP2, some 0.58 ms
// a unit, in either mode (12 layers against 4 in turns on four H200, 2026-11-27).
func TestUnreducedPasses(t *testing.T) {
	for _, reshard := range []bool{true, false} {
		took := func(every bool) units.Seconds {
			plan := fmt.Sprintf("{dp: 2, data_parallel: fsdp2, reshard_after_forward: %v, sync_every_micro_batch: %v}", reshard, every)
			job := strings.Replace(fmt.Sprintf(onHost, "hf-eager", plan, "bf16-mixed"), "micro_batch: 1", "micro_batch: 1, grad_accumulation: 2", 1)
			return mustEstimate(t, mustParse(t, job)).Backward
		}
		require.InEpsilon(t, 10*0.58e-3, float64(took(true)-took(false)), 0.15, "ten units, of which root and head are one with hooks of their own")
	}
}

// TestCompiledOwnFiles holds training files in plain PyTorch against the memory that they allocated on one and two H200 (PyTorch 2.11,
// 2026-11-30), compiled whole or layer by layer, where the rest runs as recipe pytorch has it.
func TestCompiledOwnFiles(t *testing.T) {
	const model = "{model_type: decoder, hidden_size: %d, num_hidden_layers: %d, num_attention_heads: %d, num_key_value_heads: %d, intermediate_size: %d, gated_mlp: true, hidden_act: silu, norm: rmsnorm, position: rope, bias: false, vocab_size: %d, tie_word_embeddings: false}"
	for _, c := range []struct {
		width, layers, heads, keys, mlp, words int
		runtime                                string
		gpus, tokens, batch                    int
		kind, precision                        string
		allocated, within                      float64 // GB
	}{
		{2048, 12, 16, 16, 5632, 32000, "nanogpt, returns_logits: false", 1, 2048, 8, "ddp", "bf16-autocast", 26.4309, 0.01},
		{2048, 12, 16, 16, 5632, 32000, "litgpt, returns_logits: false", 1, 2048, 8, "ddp", "bf16-pure", 18.97, 0.01},
		{3072, 8, 24, 8, 8192, 32000, "nanogpt, returns_logits: false, enable_gqa: false", 1, 4096, 2, "ddp", "bf16-pure", 13.3552, 0.01},
		{4096, 8, 32, 8, 14336, 32000, "litgpt, compile_scope: layer, enable_gqa: false", 2, 4096, 2, "fsdp2", "bf16-mixed", 24.7245, 0.01},
		{2048, 12, 16, 16, 5632, 32000, "nanogpt, compile_scope: layer", 1, 2048, 8, "ddp", "bf16-autocast", 29.757, 0.03},
		{2048, 12, 16, 16, 5632, 32000, "nanogpt, compile_scope: layer", 2, 2048, 8, "ddp, bucket_view: false", "bf16-autocast", 37.3772, 0.01},
		{2048, 12, 16, 16, 5632, 32000, "nanogpt, returns_logits: false", 2, 2048, 8, "ddp, bucket_view: false", "bf16-autocast", 33.2501, 0.01},
		{2048, 12, 16, 16, 5632, 32000, "nanogpt, returns_logits: false", 2, 2048, 8, "ddp, bucket_view: false", "bf16-pure", 21.5737, 0.01}, // in every other layer gate and up are apart
		{2048, 12, 16, 8, 5632, 32000, "nanogpt, returns_logits: false", 2, 2048, 4, "ddp, bucket_view: false", "bf16-autocast", 22.0786, 0.01},
	} {
		j := mustParse(t, fmt.Sprintf("{model: "+model+", hardware: h200-sxm, gpus: %d, runtime: {recipe: %s, attention: sdpa, release: '26.04'}, plan: {dp: %[7]d, data_parallel: %[9]s}, train: {sequence_length: %d, micro_batch: %d, grad_accumulation: 1, precision: %s, optimizer: adamw-fused, clip_gradients: true, recompute: none}}",
			c.width, c.layers, c.heads, c.keys, c.mlp, c.words, c.gpus, c.runtime, c.kind, c.tokens, c.batch, c.precision))
		if strings.Contains(c.runtime, "layer") {
			require.Equal(t, "pytorch", j.Recipe.Name)
			require.Equal(t, "hf-compile-layer", j.Layers.Name)
			require.Equal(t, strings.Contains(c.runtime, "enable_gqa"), j.Layers.Structure.RepeatHeads, "%+v", c)
		}
		require.InEpsilon(t, c.allocated*1e9, float64(mustEstimate(t, j).Memory.PeakAllocated), c.within, "%+v", c)
	}
}
