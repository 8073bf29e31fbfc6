package estimate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies"
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

// TestTransformerEngineModules: steps of 8 layers of 1024 and 4 micro batches of 256
// tokens that wait for the host, over those of a dense model. Models took turns on an
// H100's virtual machine; medians of 18 and of 32 turns, where both were measured their mean.
func TestTransformerEngineModules(t *testing.T) {
	const (
		dense  = `model_type: decoder, hidden_size: 1024, num_hidden_layers: 8, num_attention_heads: 8, num_key_value_heads: %d, head_dim: 128, intermediate_size: 4096, gated_mlp: true, vocab_size: 32768`
		latent = `model_type: deepseek_v3, hidden_size: 1024, num_hidden_layers: 8, num_attention_heads: 8, q_lora_rank: 384, kv_lora_rank: 128, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128, intermediate_size: 4096,
			first_k_dense_replace: %d, moe_intermediate_size: 512, n_routed_experts: 16, num_experts_per_tok: 4, n_shared_experts: 1, n_group: 4, topk_group: 2, num_nextn_predict_layers: 0, vocab_size: 32768`
		experts = `, num_experts: 16, num_experts_per_tok: 4, moe_intermediate_size: 512`
	)
	at := func(model, runtime string) float64 {
		return float64(predicted(t, fmt.Sprintf(`{model: {%s}, hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core, release: "25.12", cuda_graphs: none%s}, plan: {dp: 1}, train: {sequence_length: 256, micro_batch: 1, grad_accumulation: 4}}`, model, runtime)).StepTime)
	}
	base := at(fmt.Sprintf(dense, 8), "")
	for _, c := range []struct {
		name, model, runtime string
		ratio                float64
	}{
		{"rotary positions kernel by kernel", fmt.Sprintf(dense, 8), ", rope_fusion: false", 1.27},
		{"queries and keys normalised", fmt.Sprintf(dense, 2) + ", qk_norm: head", "", 1.14},
		{"latent attention", fmt.Sprintf(latent, 8), "", 1.55},
		{"the same kernel by kernel", fmt.Sprintf(latent, 8), ", rope_fusion: false", 1.69},
		{"experts", fmt.Sprintf(dense, 8) + experts, ", token_dispatcher: alltoall", 2.36},
		{"latent attention and experts", fmt.Sprintf(latent, 0), ", token_dispatcher: alltoall", 3.15},
	} {
		require.InEpsilon(t, c.ratio, at(c.model, c.runtime)/base, 0.1, c.name)
	}
}

// TestAroundLayers: what the host does around passes and for each tensor counts where the
// device waits for it: two passes of each micro batch; of Transformer Engine's experts each
// weight; of what is divided by buckets the rank's own.
func TestAroundLayers(t *testing.T) {
	const experts = ", num_experts: 16, num_experts_per_tok: 4, moe_intermediate_size: 512"
	more := func(gpus int, experts string, change func(h *recipe.Host)) float64 {
		job := func() *strategies.Job {
			return mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 8, num_attention_heads: 8, num_key_value_heads: 8, intermediate_size: 4096, gated_mlp: true, vocab_size: 32768, tie_word_embeddings: false%s},
				hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core, cuda_graphs: none}, plan: {ep: %[2]d}, train: {sequence_length: 256, micro_batch: 1, grad_accumulation: 4}}`, experts, gpus))
		}
		j := job()
		r := *j.Recipe
		change(&r.Host)
		j.Recipe = &r
		return 1e3 * float64(mustEstimate(t, j).StepTime-mustEstimate(t, job()).StepTime)
	}
	require.InEpsilon(t, 8, more(1, "", func(h *recipe.Host) { h.Pass += 1e-3 }), 0.01)
	tensor := func(h *recipe.Host) { h.Tensor += 1e-3 }
	require.InEpsilon(t, 51, more(1, "", tensor), 0.01)
	require.InEpsilon(t, 299, more(1, experts, tensor), 0.01)
	require.InDelta(t, 8*4*2+43./2+1, more(2, experts, tensor), 3) // half of the weights of experts, and a part of each other bucket
}

// TestPython: where a host's Python is slower than its calls, what frameworks do in Python
// takes longer, and kernel launches do not.
func TestPython(t *testing.T) {
	at := func(host, python float64) float64 {
		j := mustParse(t, `{model: gpt2, hardware: h200-sxm, gpus: 1, runtime: {recipe: megatron-core}, plan: {}, train: {sequence_length: 128, micro_batch: 1}}`)
		h := *j.Hardware
		l := *h.Laws.Launch
		l.Host, l.Python = host, python
		h.Laws.Launch = &l
		j.Hardware = &h
		return float64(mustEstimate(t, j).StepTime)
	}
	now := at(1, 0)
	require.Equal(t, now, at(1, 1))
	python, calls := at(1, 0.5)-now, at(0.5, 1)-now
	require.Greater(t, python, calls)
	require.InEpsilon(t, at(0.5, 0)-now, python+calls, 0.02)
	require.InEpsilon(t, now, python+calls, 0.05, "all of the step")
}

// TestReplayedExperts: a step with experts that is replayed whole uses more memory than is said,
// which results say; no other does.
func TestReplayedExperts(t *testing.T) {
	said := func(model, graphs string) bool {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: gb200-nvl72, gpus: 8, runtime: {cuda_graphs: %s}, plan: {dp: 8}, train: {sequence_length: 1024}}", model, graphs)))
		return slices.ContainsFunc(r.Notes, func(n diag.Note) bool { return n.Code == "memory.graphs" })
	}
	require.True(t, said("qwen3-30b-a3b", "full"))
	require.False(t, said("qwen3-30b-a3b", "layers"))
	require.False(t, said("llama3-8b", "full"))
}
