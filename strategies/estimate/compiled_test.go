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
