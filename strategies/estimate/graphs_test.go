package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGraphs: what is replayed costs the host nothing: layers but for their experts, or
// all, or of them what prepares the exchange of rows; in a rack the recipe replays dense steps and, since Bridge of 25.11, the layers of
// mixtures of experts.
func TestGraphs(t *testing.T) {
	const moe = "qwen3-30b-a3b"
	run := func(model, hardware, runtime string) *Result {
		plan := "dp: 8"
		if model == moe {
			plan += ", ep: 8"
		}
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: %s, gpus: 8, runtime: {%s}, plan: {%s}, train: {sequence_length: 1024, grad_accumulation: 4}}", model, hardware, runtime, plan)))
	}
	for _, model := range []string{"gpt2", moe} {
		none, layers, full := run(model, "b200-sxm", "cuda_graphs: none"), run(model, "b200-sxm", "cuda_graphs: layers"), run(model, "b200-sxm", "cuda_graphs: full")
		require.Equal(t, none.StepTime, run(model, "b200-sxm", "").StepTime, "no rack")
		require.Less(t, layers.StepTime, none.StepTime)
		if model == moe {
			router := run(model, "b200-sxm", "cuda_graphs: router")
			require.Less(t, router.StepTime, none.StepTime)
			require.Less(t, layers.StepTime, router.StepTime)
		}
		require.Less(t, full.StepTime, layers.StepTime)
		require.Less(t, float64(full.Parts.Host), 10e-6, "the first launch")
		require.Equal(t, none.Memory.PeakAllocated, full.Memory.PeakAllocated)
	}
	rack := func(model, release, graphs string) *Result {
		if graphs != "" {
			graphs = ", cuda_graphs: " + graphs
		}
		return run(model, "gb200-nvl72", fmt.Sprintf("release: \"%s\"%s", release, graphs))
	}
	require.Equal(t, rack("gpt2", "25.04", "full").StepTime, rack("gpt2", "25.04", "").StepTime)
	require.Equal(t, rack(moe, "26.04", "layers").StepTime, rack(moe, "26.04", "").StepTime)
	require.Equal(t, rack(moe, "25.09", "none").StepTime, rack(moe, "25.09", "").StepTime)
	require.Less(t, rack(moe, "26.04", "").StepTime, rack(moe, "26.04", "none").StepTime)
}

// TestTransformerEngineHost: a dense layer of Transformer Engine costs the host 0.8 of
// the 3.3 ms, forward and backward, that it took on virtual machines with H200 GPUs
// (Megatron-Core core_v0.14.0, hidden size 1024, 512 tokens, 16 layers against 4), a layer
// of experts more than twice as much.
func TestTransformerEngineHost(t *testing.T) {
	layer := func(experts string) float64 {
		at := func(layers int) float64 {
			return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: %d, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, gated_mlp: true, vocab_size: 32000%s},
				hardware: h200-sxm, gpus: 1, plan: {dp: 1}, train: {sequence_length: 512, grad_accumulation: 4}}`, layers, experts))).StepTime)
		}
		return (at(16) - at(4)) / 12 / 4
	}
	dense := layer("")
	require.InEpsilon(t, 0.8*3.3e-3, dense, 0.1)
	require.Greater(t, layer(", num_experts: 16, num_experts_per_tok: 4, moe_intermediate_size: 256"), 2*dense)
}
