package strategies

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOffloadModules: what modules leave to the host goes by Megatron-Core's rules
// (transformer_config.py, __post_init__; transformer_layer.py, _set_offload_modules).
func TestOffloadModules(t *testing.T) {
	for _, c := range []struct{ job, want string }{
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8, ep: 8}, train: {offload_modules: [expert_fc1, moe_act, mlp_norm], min_offloaded_tensor_size: 0, activation_offload_fraction: 0.5}}", ""},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 4, pp: 2, ep: 4}, train: {offload_modules: 'core_attn, attn_proj', recompute: selective, recompute_modules: [moe_act]}}", ""},
		{"{model: deepseek-v3, gpus: 64, plan: {dp: 64, ep: 64}, train: {offload_modules: [attn_norm, qkv_linear, core_attn]}}", ""},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [mlp]}}", `"mlp" is not a part of a layer that can be left to the host; use attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act or fused_group_mlp`},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: torchtitan}, plan: {dp: 8}, train: {offload_modules: [moe_act]}}", "train.offload_modules: recipe torchtitan leaves no modules' activations to the host; leave it out, or use megatron-core"},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [moe_act]}}", "train.offload_modules: moe_act, but the model has no experts; leave it out"},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [attn_norm]}}", "train.offload_modules: attn_norm, but the model has no norm in front of attention that its projection does not take in; leave it out"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [attn_proj]}}", "attn_proj without core_attn, whose gradient reads the same tensor; add core_attn, or leave attn_proj out"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [fused_group_mlp, moe_act]}}", "fused_group_mlp beside expert_fc1 or moe_act, which are parts of it"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [moe_act], recompute: full}}", "moe_act with recompute full"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [moe_act, core_attn], recompute: selective, recompute_modules: [moe]}}", "train.offload_modules: moe_act inside moe, which train.recompute_modules computes again"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [core_attn], recompute: selective}}", "core_attn, which recompute selective computes again"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [core_attn], offload_layers: 4}}", "beside train.offload_layers or train.offload_activations"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {min_offloaded_tensor_size: 5}}", "say what of train.offload_modules goes; give these, or leave them out"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [moe_act], min_offloaded_tensor_size: -1}}", "train.min_offloaded_tensor_size: -1 is negative"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [moe_act], activation_offload_fraction: 1.5}}", "train.activation_offload_fraction: 1.5 is outside 0 to 1"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: [fused_group_mlp]}}", "set runtime.grouped_mlp_fusion: true, or name expert_fc1 and moe_act"},
		{"{model: mixtral-8x7b, hardware: b200-sxm, gpus: 8, runtime: {grouped_mlp_fusion: true}, plan: {dp: 8, ep: 8}, train: {precision: mxfp8, offload_modules: [fused_group_mlp]}}", ""},
		{"{model: mixtral-8x7b, hardware: b200-sxm, gpus: 8, runtime: {grouped_mlp_fusion: true}, plan: {dp: 8, ep: 8}, train: {precision: mxfp8, offload_modules: [expert_fc1]}}", "expert_fc1 with runtime.grouped_mlp_fusion, which makes one module of experts' MLPs; use fused_group_mlp"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {cuda_graphs: full}, plan: {dp: 8}, train: {offload_modules: [moe_act]}}", "moe_act with runtime.cuda_graphs: full, under which experts keep their activations"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {cuda_graphs: layers}, plan: {dp: 8}, train: {offload_modules: [moe_act, mlp_norm]}}", "mlp_norm with runtime.cuda_graphs: layers, which begin or end at that norm"},
		{"{model: mixtral-8x7b, hardware: {inherits: h100-sxm, gpu: {pcie: 0 GB/s}}, gpus: 8, plan: {dp: 8}, train: {offload_modules: [moe_act]}}", "give gpu.pcie"},
	} {
		_, err := decode(c.job)
		if c.want == "" {
			require.NoError(t, err, c.job)
		} else {
			require.ErrorContains(t, err, c.want, c.job)
		}
	}
	j := mustDecode(t, "{model: mixtral-8x7b, gpus: 8, plan: {dp: 8}, train: {offload_modules: 'moe_act,expert_fc1'}}")
	text, err := json.Marshal(j.Train.OffloadModules)
	require.NoError(t, err)
	require.JSONEq(t, `["expert_fc1", "moe_act"]`, string(text))
	require.Equal(t, int64(1<<20), j.Train.OffloadLeast(), "a million values, Megatron-Core's default")
}
