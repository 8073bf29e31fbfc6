package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/memory"
)

// TestOptimizers: Adam keeps two moments of each parameter, Megatron's SGD one,
// torch.optim.SGD none, which then reads and writes as many bytes less; Adam's loop over
// tensors, ten launches for each, takes longer than its few launches of many tensors.
func TestOptimizers(t *testing.T) {
	of := func(recipe, optimizer string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: gpt2, hardware: h100-sxm, gpus: 1, runtime: {recipe: %s}, plan: {}, train: {micro_batch: 1, precision: %s, optimizer: %s}}", recipe, map[string]string{"hf-eager": "bf16-autocast", "megatron-lm": "bf16"}[recipe], optimizer)))
	}
	parameters := float64(of("hf-eager", "sgd").Job.Model.Params().Total)
	states := func(r *Result) float64 { return float64(r.Memory.By[memory.OptimizerStates]) / parameters }
	for _, c := range []struct {
		recipe, optimizer string
		bytes             float64
	}{
		{"hf-eager", "adamw-fused", 8}, {"hf-eager", "adamw-foreach", 8}, {"hf-eager", "adamw", 8}, {"hf-eager", "sgd", 0},
		{"megatron-lm", "adamw-fused", 12}, {"megatron-lm", "sgd", 8},
	} {
		require.InDelta(t, c.bytes, states(of(c.recipe, c.optimizer)), 0.1, "%s %s", c.recipe, c.optimizer)
	}
	require.Less(t, float64(of("hf-eager", "sgd").Optimizer), 0.8*float64(of("hf-eager", "adamw-foreach").Optimizer))
	require.Greater(t, float64(of("hf-eager", "adamw").Optimizer), 2*float64(of("hf-eager", "adamw-foreach").Optimizer))
}
