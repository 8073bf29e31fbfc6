package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestGradientPasses counts how often a rank's main gradients go through it beside
// their reduction: set to zero (1), checked (1), scaled (2).
func TestGradientPasses(t *testing.T) {
	for _, c := range []struct {
		recipe, plan  string
		dense, expert float64
	}{
		{"megatron-core", "dp: 1", 1, 1},
		{"megatron-core", "dp: 8", 1, 1},        // NCCL averages
		{"megatron-core", "dp: 8, ep: 4", 1, 3}, // over the 2 replicas of an expert, not 8
		{"megatron-lm", "dp: 1", 3, 3},          // divided by one (megatron/model/distributed.py, allreduce_gradients)
		{"megatron-lm", "dp: 8, data_parallel: ddp", 3, 3},
		{"megatron-pretrain", "dp: 1", 2, 2},
		{"megatron-pretrain", "dp: 8, ep: 4", 4, 4},
		{"megatron-pretrain", "dp: 8, data_parallel: zero1", 4, 4},
	} {
		gpus := 1
		if c.plan != "dp: 1" {
			gpus = 8
		}
		j := mustParse(t, fmt.Sprintf("{model: mixtral-8x7b, hardware: h100-sxm, gpus: %d, runtime: {recipe: %s}, plan: {%s}, train: {sequence_length: 1024}}", gpus, c.recipe, c.plan))
		var e Evaluator
		_, err := e.Estimate(j, Options{})
		require.NoError(t, err)
		require.Equal(t, 100*c.dense+10*c.expert, e.sim.step.gradientPasses(100, 10), "%s, %s", c.recipe, c.plan)
	}
}

// TestScriptsOfMegatron: what Megatron-LM's own script leaves off costs time and no memory.
func TestScriptsOfMegatron(t *testing.T) {
	const text = "{model: llama2-7b, hardware: h100-sxm, gpus: 8, runtime: {recipe: %s, fused_cross_entropy: false}, plan: {data_parallel: zero1}, train: {sequence_length: 4096}}"
	asked, plain := mustEstimate(t, mustParse(t, fmt.Sprintf(text, "megatron-core"))), mustEstimate(t, mustParse(t, fmt.Sprintf(text, "megatron-pretrain")))
	require.Greater(t, plain.StepTime, asked.StepTime)
	require.Greater(t, plain.Exposed["dp"], asked.Exposed["dp"])
	require.InDelta(t, 0, *plain.Overlap, 1e-9)
	require.Equal(t, asked.Memory.PeakAllocated, plain.Memory.PeakAllocated)
}

// TestDummyGradients: one 16-bit tensor for each shape of a weight stays, however many
// layers have it.
func TestDummyGradients(t *testing.T) {
	for _, c := range []struct {
		model  string
		values units.Bytes
	}{
		{"{model_type: decoder, hidden_size: 256, num_hidden_layers: %d, num_attention_heads: 2, num_key_value_heads: 2, head_dim: 128, intermediate_size: 1024, gated_mlp: true, vocab_size: 1280, tie_word_embeddings: false}",
			(3*256 + 256 + 2*1024 + 1024 + 1280) * 256},
		{"{model_type: decoder, hidden_size: 256, num_hidden_layers: %d, num_attention_heads: 2, num_key_value_heads: 2, head_dim: 128, intermediate_size: 1024, gated_mlp: true, vocab_size: 1280, tie_word_embeddings: false, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 512}",
			(3*256 + 256 + 4 + 2*512 + 512 + 1280) * 256}, // the router's too; of the experts, one
	} {
		for _, layers := range []int{1, 3} {
			j := mustParse(t, fmt.Sprintf("{model: "+c.model+", hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core}, plan: {}, train: {sequence_length: 256}}", layers))
			var e Evaluator
			_, err := e.Estimate(j, Options{})
			require.NoError(t, err)
			f := e.p.footprint()
			require.Equal(t, 2*c.values, f.dummies(e.sim.layout.stages[0]))
		}
	}
}

// TestClippingWaitsForAllStages: the ends of a step's stages come together before the
// optimizer and after it.
func TestClippingWaitsForAllStages(t *testing.T) {
	var e Evaluator
	_, err := e.Estimate(mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 4, plan: {pp: 4, dp: 1}, train: {sequence_length: 1024, grad_accumulation: 4}}"), Options{})
	require.NoError(t, err)
	s, r := &e.sim, e.sim.pipe
	last, updated := 0.0, 0.0
	for rank := range r.opt {
		last = max(last, float64(r.path.result.Finish[rank])+r.tail[rank])
		updated = max(updated, r.opt[rank])
	}
	require.GreaterOrEqual(t, s.total, last)
	require.GreaterOrEqual(t, s.total, float64(r.path.result.Total)+updated)
}

// TestMainGradientHooks: what no GEMM adds to the main gradients, embedding and norms, a
// hook adds (distributed_data_parallel.py, _make_backward_post_hook): 56 sums of four
// micro batches over 6 layers of Llama-3 8B, 8.7 ms on H200, all but 0.3 of them for the
// embedding (a trace of core_v0.14.0).
func TestMainGradientHooks(t *testing.T) {
	j := mustParse(t, `{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 6, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false},
		hardware: h200-sxm, gpus: 2, runtime: {recipe: megatron-pretrain, release: "25.09"}, plan: {dp: 2, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 4}}`)
	var e Evaluator
	_, err := e.Estimate(j, Options{})
	require.NoError(t, err)
	sums, took := 0, 0.0
	for _, u := range e.sim.layout.ranks[0].list {
		for i := range u.backward.ops {
			if o := &u.backward.ops[i]; o.Prim == "accumulate" {
				sums++
				took += float64(e.sim.p.full(o))
			}
		}
	}
	require.Equal(t, 14, sums)
	require.InEpsilon(t, 8.7e-3/4, took, 0.15)
}

// TestChecksStopTheHost: the checks of Megatron-LM's and Bridge's scripts, on unless turned
// off, read the loss and the norm of every bucket on the host, which the device then waits for
// (traces of core_v0.14.0 on two H200: 20 buckets and four losses a step, after each of
// which the device is idle). Bridge's performance scripts turn them off.
func TestChecksStopTheHost(t *testing.T) {
	took := func(recipe string) *Result {
		return mustEstimate(t, mustParse(t, `{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 6, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false},
			hardware: h200-sxm, gpus: 2, runtime: {recipe: `+recipe+`, release: "25.09"}, plan: {dp: 2, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 4}}`))
	}
	for _, c := range []struct {
		recipe string
		checks bool
	}{{"megatron-pretrain", true}, {"megatron-script", true}, {"megatron-core", false}} {
		own, with, without := took(c.recipe), took(c.recipe+", nan_checks: true"), took(c.recipe+", nan_checks: false")
		require.Greater(t, float64(with.Parts.Host), float64(without.Parts.Host)+4*30e-6, c.recipe)
		require.Greater(t, with.StepTime, without.StepTime, c.recipe)
		if c.checks {
			require.Equal(t, with.StepTime, own.StepTime, c.recipe)
		} else {
			require.Equal(t, without.StepTime, own.StepTime, c.recipe)
		}
	}
}
