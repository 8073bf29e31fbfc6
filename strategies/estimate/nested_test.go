package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// calls are how often a step calls a collective of data ranks.
func calls(r *Result, kind string) (n int64) {
	for _, c := range r.Detail.Collectives {
		if c.Kind == kind {
			n += c.Count
		}
	}
	return n
}

// TestNestedUnits: gathers and reductions of a model of 12 layers by the units of FSDP1. Those of
// layers with each matrix of a million parameters inside are 51, of which the root alone stays
// gathered: 101 gathers, as a profile of two steps of mini-llm-distributed-training has 202; a layer
// that is computed again gathers two of its three matrices once more, and the last stays.
func TestNestedUnits(t *testing.T) {
	t.Parallel()
	const text = `{model: {model_type: decoder, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, head_dim: 64, intermediate_size: 3072, gated_mlp: false, hidden_act: gelu, norm: rmsnorm, position: learned, max_position_embeddings: 512, bias: false, vocab_size: 32000, tie_word_embeddings: false},
 hardware: rtx-4090, gpus: 2, runtime: {recipe: hf-eager, attention: unfused}, plan: {data_parallel: %s}, train: {sequence_length: 512, micro_batch: 8, precision: bf16-mixed, reduce_dtype: bf16, recompute: %s}}`
	run := func(plan, recompute string) *Result {
		r, err := Estimate(mustParse(t, fmt.Sprintf(text, plan, recompute)), Options{Detail: true})
		require.NoError(t, err)
		return r
	}
	for _, c := range []struct {
		plan, recompute   string
		gathers, scatters int64
	}{
		{"fsdp1", "none", 1 + 2*12, 13},
		{"fsdp2", "none", 2 * 13, 13},
		{"fsdp1, units: model", "none", 1, 1},
		{"fsdp2, units: model", "none", 1, 1},
		{"fsdp1, units: modules", "none", 1 + 2*24, 25},
		{"fsdp1, unit_params: 1M", "none", 101, 51},
		{"fsdp1, units: layers, unit_params: 1M", "full", 101 + 24, 51},
		{"fsdp1, unit_params: 1M, reshard_after_forward: false", "none", 51, 51},
		{"fsdp1, units: size, unit_params: 5M", "none", 1 + 2*14, 15}, // a layer has 7.1 million, its MLP 4.7
		{"fsdp1, units: size, unit_params: 8M", "none", 2 * 3, 3},     // all layers are one
	} {
		r := run(c.plan, c.recompute)
		require.Equal(t, [2]int64{c.gathers, c.scatters}, [2]int64{calls(r, "all-gather"), calls(r, "reduce-scatter")}, c)
	}
	layers, model, leaves := run("fsdp1", "none"), run("fsdp1, units: model", "none"), run("fsdp1, unit_params: 1M", "none")
	require.Zero(t, calls(model, "all-reduce"))
	require.Greater(t, float64(leaves.StepTime), 1.3*float64(layers.StepTime), "hosts run hooks around each matrix")
	require.InEpsilon(t, 11*2*7.08e6, float64(model.Memory.PeakAllocated-layers.Memory.PeakAllocated), 0.01, "eleven layers more are gathered, in 16 bits")
	require.InEpsilon(t, 2*24.6e6, float64(layers.Memory.PeakAllocated-leaves.Memory.PeakAllocated), 0.01, "the table is no part of the root")
	few := fmt.Sprintf(strings.Replace(text, "sequence_length: 512, micro_batch: 8", "sequence_length: 8, micro_batch: 1", 1), "fsdp1, units: model", "none")
	const n = 134.5e6 // of which a rank has half, and half of both moments
	require.InEpsilon(t, n*(3*4/2+3*2), float64(predicted(t, few).Memory.PeakAllocated), 0.03, "parameters, gradients of their views and the one these are joined into, in 16 bits")
}
