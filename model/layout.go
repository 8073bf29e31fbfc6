package model

import "slices"

// module is what a family calls the module that holds the weights for a use; of several weights
// that it holds itself the first names the use.
type module struct {
	name string
	role Role
}

// layout is the order and the names of the modules of a family, as its
// transformers class defines them. A layout lists every module a layer may
// have; those a Spec does not ask for have no parameters.
type layout struct {
	families  []string
	parallel  Parallel // when set, only for Specs of that form
	embedding []module
	layer     [][]module // blocks in order; blocks are shared between layouts
	head      []module
}

// Blocks of modules that several families share.
var (
	llamaEmbedding = []module{{"model.embed_tokens", RoleEmbed}, {"model.embed_positions", RolePosition}}
	llamaAttention = []module{
		{"self_attn.sinks", RoleSinks},
		{"self_attn.q_proj", RoleQ},
		{"self_attn.q_a_proj", RoleQDown},
		{"self_attn.q_a_layernorm", RoleQDownNorm},
		{"self_attn.q_b_proj", RoleQUp},
		{"self_attn.kv_a_proj_with_mqa", RoleKVDown},
		{"self_attn.kv_a_layernorm", RoleKVDownNorm},
		{"self_attn.kv_b_proj", RoleKVUp},
		{"self_attn.k_proj", RoleK},
		{"self_attn.v_proj", RoleV},
		{"self_attn.qkv_proj", RoleQKV},
		{"self_attn.o_proj", RoleO},
		{"self_attn.q_norm", RoleQNorm},
		{"self_attn.k_norm", RoleKNorm},
	}
	indexer = []module{
		{"self_attn.indexer.wq_b", RoleIndexQ},
		{"self_attn.indexer.wk", RoleIndexK},
		{"self_attn.indexer.k_norm", RoleIndexKNorm},
		{"self_attn.indexer.weights_proj", RoleIndexWeights},
	}
	compressedAttention = []module{
		{"self_attn.sinks", RoleSinks},
		{"self_attn.q_a_proj", RoleQDown},
		{"self_attn.q_a_norm", RoleQDownNorm},
		{"self_attn.q_b_proj", RoleQUp},
		{"self_attn.kv_proj", RoleKVDown},
		{"self_attn.kv_norm", RoleKVDownNorm},
		{"self_attn.o_a_proj", RoleOGroups},
		{"self_attn.o_b_proj", RoleO},
	}
	compressor = []module{
		{"self_attn.compressor.position_bias", RoleSumBias},
		{"self_attn.compressor.kv_proj", RoleSumKV},
		{"self_attn.compressor.gate_proj", RoleSumGate},
		{"self_attn.compressor.kv_norm", RoleSumNorm},
		{"self_attn.compressor.indexer.position_bias", RoleIndexSumBias},
		{"self_attn.compressor.indexer.kv_proj", RoleIndexSumKV},
		{"self_attn.compressor.indexer.gate_proj", RoleIndexSumGate},
		{"self_attn.compressor.indexer.kv_norm", RoleIndexSumNorm},
		{"self_attn.compressor.indexer.q_b_proj", RoleIndexQ},
		{"self_attn.compressor.indexer.weights_proj", RoleIndexWeights},
	}
	streams = []module{
		{"attn_hc.fn", RoleMix1}, {"attn_hc.base", RoleMix1Bias}, {"attn_hc.scale", RoleMix1Scale},
		{"ffn_hc.fn", RoleMix2}, {"ffn_hc.base", RoleMix2Bias}, {"ffn_hc.scale", RoleMix2Scale},
	}
	phi3Attention = []module{{"self_attn.o_proj", RoleO}, {"self_attn.qkv_proj", RoleQKV}}
	llamaMLP      = []module{
		{"mlp.gate_proj", RoleGate},
		{"mlp.up_proj", RoleUp},
		{"mlp.gate_up_proj", RoleGateUp},
		{"mlp.down_proj", RoleDown},
	}
	experts        = []module{{"mlp.experts.gate_up_proj", RoleExpertsGateUp}, {"mlp.experts.down_proj", RoleExpertsDown}}
	graniteExperts = []module{
		{"block_sparse_moe.router", RoleRouter},
		{"block_sparse_moe.experts.gate_up_proj", RoleExpertsGateUp},
		{"block_sparse_moe.experts.down_proj", RoleExpertsDown},
	}
	routerFirst = []module{{"mlp.gate", RoleRouter}}
	ossRouter   = []module{{"mlp.router", RoleRouter}}
	qwenShared  = []module{
		{"mlp.shared_expert.gate_proj", RoleSharedGate},
		{"mlp.shared_expert.up_proj", RoleSharedUp},
		{"mlp.shared_expert.down_proj", RoleSharedDown},
		{"mlp.shared_expert_gate", RoleSharedRouter},
	}
	decoderLatent  = []module{{"mlp.latent_down_proj", RoleLatentDown}, {"mlp.latent_up_proj", RoleLatentUp}}
	deepseekShared = []module{
		{"mlp.shared_experts.gate_up_proj", RoleSharedGateUp},
		{"mlp.shared_experts.gate_proj", RoleSharedGate},
		{"mlp.shared_experts.up_proj", RoleSharedUp},
		{"mlp.shared_experts.down_proj", RoleSharedDown},
	}
	llama4MLP = []module{
		{"feed_forward.experts.gate_up_proj", RoleExpertsGateUp},
		{"feed_forward.experts.down_proj", RoleExpertsDown},
		{"feed_forward.router", RoleRouter},
		{"feed_forward.shared_expert.gate_proj", RoleSharedGate},
		{"feed_forward.shared_expert.up_proj", RoleSharedUp},
		{"feed_forward.shared_expert.down_proj", RoleSharedDown},
		{"feed_forward.gate_proj", RoleGate},
		{"feed_forward.up_proj", RoleUp},
		{"feed_forward.down_proj", RoleDown},
	}
	mambaMixer = mambaModules("mixer")
	shortConv  = []module{
		{"conv.conv", RoleShortConv},
		{"conv.in_proj", RoleShortIn},
		{"conv.out_proj", RoleShortOut},
	}
	nextDelta = []module{
		{"linear_attn", RoleDeltaStep},
		{"linear_attn.conv1d", RoleDeltaConv},
		{"linear_attn.in_proj_qkvz", RoleDeltaQKVZ},
		{"linear_attn.in_proj_ba", RoleDeltaBA},
		{"linear_attn.norm", RoleDeltaNorm},
		{"linear_attn.out_proj", RoleDeltaOut},
	}
	qwenDelta = []module{
		{"linear_attn", RoleDeltaStep},
		{"linear_attn.conv1d", RoleDeltaConv},
		{"linear_attn.norm", RoleDeltaNorm},
		{"linear_attn.out_proj", RoleDeltaOut},
		{"linear_attn.in_proj_qkv", RoleDeltaQKV},
		{"linear_attn.in_proj_z", RoleDeltaZ},
		{"linear_attn.in_proj_b", RoleDeltaB},
		{"linear_attn.in_proj_a", RoleDeltaA},
	}
	gemmaAttention = []module{
		{"self_attn.q_proj", RoleQ},
		{"self_attn.q_norm", RoleQNorm},
		{"self_attn.k_norm", RoleKNorm},
		{"self_attn.k_proj", RoleK},
		{"self_attn.v_proj", RoleV},
		{"self_attn.o_proj", RoleO},
	}
	gemmaEmbedding = []module{
		{"model.embed_tokens", RoleEmbed},
		{"model.embed_tokens_per_layer", RoleLayerEmbed},
		{"model.per_layer_model_projection", RoleLayerEmbedIn},
		{"model.per_layer_projection_norm", RoleLayerEmbedNorm},
	}
	gemmaPerLayer = []module{
		{"per_layer_input_gate", RoleLayerGate},
		{"per_layer_projection", RoleLayerUp},
		{"post_per_layer_input_norm", RoleNorm8},
	}
	gemmaShared = []module{
		{"mlp.gate_proj", RoleSharedGate},
		{"mlp.up_proj", RoleSharedUp},
		{"mlp.down_proj", RoleSharedDown},
	}
	gemmaExperts = []module{
		{"router.scale", RoleRouterScale},
		{"router.per_expert_scale", RoleExpertScale},
		{"router.proj", RoleRouter},
		{"experts.gate_up_proj", RoleExpertsGateUp},
		{"experts.down_proj", RoleExpertsDown},
		{"post_feedforward_layernorm_1", RoleNorm5},
		{"post_feedforward_layernorm_2", RoleNorm7},
		{"pre_feedforward_layernorm_2", RoleNorm6},
	}
	oneNorm   = []module{{"norm", RoleNorm1}, {"norm", RoleNorm2}} // of the one block that a layer is
	preNorms  = []module{{"input_layernorm", RoleNorm1}, {"post_attention_layernorm", RoleNorm2}}
	postNorms = []module{
		{"input_layernorm", RoleNorm1},
		{"post_attention_layernorm", RoleNorm3},
		{"pre_feedforward_layernorm", RoleNorm2},
		{"post_feedforward_layernorm", RoleNorm4},
	}
	decoderNorms = []module{
		{"input_layernorm", RoleNorm1},
		{"post_attention_layernorm", RoleNorm2},
		{"post_self_attn_layernorm", RoleNorm3},
		{"post_mlp_layernorm", RoleNorm4},
	}
	bertAttention = []module{
		{"attention.self.query", RoleQ},
		{"attention.self.key", RoleK},
		{"attention.self.value", RoleV},
		{"attention.output.dense", RoleO},
	}
	bertMLP   = []module{{"intermediate.dense", RoleUp}, {"output.dense", RoleDown}}
	bertLayer = [][]module{bertAttention, {{"attention.output.LayerNorm", RoleNorm3}}, bertMLP, {{"output.LayerNorm", RoleNorm4}}}
	optLayer  = []module{
		{"self_attn.k_proj", RoleK},
		{"self_attn.v_proj", RoleV},
		{"self_attn.q_proj", RoleQ},
		{"self_attn.out_proj", RoleO},
		{"self_attn_layer_norm", RoleNorm1},
		{"fc1", RoleUp},
		{"fc2", RoleDown},
		{"final_layer_norm", RoleNorm2},
	}
	bertHead    = []module{{"cls.predictions.transform.dense", RoleHeadDense}, {"cls.predictions.transform.LayerNorm", RoleHeadNorm}, {"cls.predictions.decoder", RoleHead}}
	robertaHead = []module{{"lm_head.dense", RoleHeadDense}, {"lm_head.layer_norm", RoleHeadNorm}, {"lm_head.decoder", RoleHead}}
	neoxMLP     = []module{{"mlp.dense_h_to_4h", RoleUp}, {"mlp.dense_4h_to_h", RoleDown}}
	llamaHead   = []module{{"model.norm", RoleFinalNorm}, {"lm_head", RoleHead}}
	// The mixture of residual streams that the final norm reads comes after it.
	streamsHead = []module{{"model.norm", RoleFinalNorm}, {"model.hc_head.hc_fn", RoleMix3}, {"model.hc_head.hc_base", RoleMix3Bias}, {"model.hc_head.hc_scale", RoleMix3Scale}, {"head.dense", RoleHeadDense}, {"head.norm", RoleHeadNorm}, {"lm_head", RoleHead}}
)

// mambaModules are those of a state-space mixer of a name.
func mambaModules(name string) []module {
	return []module{
		{name, RoleMambaStep},
		{name + ".conv1d", RoleMambaConv},
		{name + ".in_proj", RoleMambaIn},
		{name + ".norm", RoleMambaNorm},
		{name + ".out_proj", RoleMambaOut},
	}
}

// layouts has one row per naming scheme. The first serves families that no row
// names.
var layouts = []layout{
	{[]string{"llama", "mistral", "qwen2", "qwen3", "gemma", "olmo"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, preNorms}, llamaHead},
	{[]string{"decoder"}, Serial,
		slices.Concat(llamaEmbedding, []module{{"model.embed_types", RoleType}, {"model.embed_norm", RoleEmbedNorm}}), [][]module{llamaAttention, {{"self_attn.o_a_proj", RoleOGroups}}, indexer[1:3], compressor, mambaMixer, qwenDelta, shortConv, llamaMLP, routerFirst, experts, decoderLatent, deepseekShared, {{"mlp.shared_expert_gate", RoleSharedRouter}}, decoderNorms, streams}, streamsHead},
	{[]string{"baichuan"}, Serial,
		llamaEmbedding, [][]module{{
			{"self_attn.W_pack", RoleQKV},
			{"self_attn.o_proj", RoleO},
			{"mlp.gate_proj", RoleGate},
			{"mlp.down_proj", RoleDown},
			{"mlp.up_proj", RoleUp},
		}, preNorms}, llamaHead},
	{[]string{"qwen"}, Serial,
		[]module{{"transformer.wte", RoleEmbed}},
		[][]module{{
			{"ln_1", RoleNorm1},
			{"attn.c_attn", RoleQKV},
			{"attn.c_proj", RoleO},
			{"ln_2", RoleNorm2},
			{"mlp.w1", RoleUp},
			{"mlp.w2", RoleGate},
			{"mlp.c_proj", RoleDown},
		}}, []module{{"transformer.ln_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"internlm2"}, Serial,
		[]module{{"model.tok_embeddings", RoleEmbed}},
		[][]module{{
			{"attention.wqkv", RoleQKV},
			{"attention.wo", RoleO},
			{"feed_forward.w1", RoleGate},
			{"feed_forward.w3", RoleUp},
			{"feed_forward.w2", RoleDown},
			{"attention_norm", RoleNorm1},
			{"ffn_norm", RoleNorm2},
		}}, []module{{"model.norm", RoleFinalNorm}, {"output", RoleHead}}},
	{[]string{"exaone"}, Serial,
		[]module{{"transformer.wte", RoleEmbed}},
		[][]module{{
			{"ln_1", RoleNorm1},
			{"attn.attention.k_proj", RoleK},
			{"attn.attention.v_proj", RoleV},
			{"attn.attention.q_proj", RoleQ},
			{"attn.attention.out_proj", RoleO},
			{"ln_2", RoleNorm2},
			{"mlp.c_fc_0", RoleGate},
			{"mlp.c_fc_1", RoleUp},
			{"mlp.c_proj", RoleDown},
		}}, []module{{"transformer.ln_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"exaone4"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, {{"post_attention_layernorm", RoleNorm3}, {"post_feedforward_layernorm", RoleNorm4}}}, llamaHead},
	{[]string{"afmoe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"self_attn.gate_proj", RoleOGate}, {"input_layernorm", RoleNorm1}, {"post_attention_layernorm", RoleNorm3}, {"pre_mlp_layernorm", RoleNorm2}, {"post_mlp_layernorm", RoleNorm4}},
			llamaMLP, {{"mlp.router.gate", RoleRouter}}, deepseekShared, experts}, llamaHead},
	{[]string{"hyperclovax"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, preNorms, {{"post_norm1", RoleNorm3}, {"post_norm2", RoleNorm4}}}, llamaHead},
	{[]string{"vaultgemma"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, {{"input_layernorm", RoleNorm1}, {"pre_feedforward_layernorm", RoleNorm2}}}, llamaHead},
	{[]string{"flex_olmo"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, routerFirst, experts, {{"post_attention_layernorm", RoleNorm3}, {"post_feedforward_layernorm", RoleNorm4}}}, llamaHead},
	{[]string{"hunyuan_v1_dense", "hunyuan_v1_moe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention[:len(llamaAttention)-2], {{"self_attn.query_layernorm", RoleQNorm}, {"self_attn.key_layernorm", RoleKNorm}}, llamaMLP,
			{{"mlp.gate.wg", RoleRouter}}, experts, {{"mlp.shared_mlp.gate_proj", RoleSharedGate}, {"mlp.shared_mlp.up_proj", RoleSharedUp}, {"mlp.shared_mlp.down_proj", RoleSharedDown}}, preNorms}, llamaHead},
	{[]string{"granitemoehybrid"}, Serial,
		llamaEmbedding, [][]module{preNorms, graniteExperts, {
			{"shared_mlp.input_linear", RoleGateUp}, {"shared_mlp.output_linear", RoleDown},
			{"shared_mlp.input_linear", RoleSharedGateUp}, {"shared_mlp.output_linear", RoleSharedDown},
		}, mambaModules("mamba"), llamaAttention}, llamaHead},
	{[]string{"bamba"}, Serial,
		llamaEmbedding, [][]module{
			{{"feed_forward.gate_proj", RoleGate}, {"feed_forward.up_proj", RoleUp}, {"feed_forward.down_proj", RoleDown}},
			{{"input_layernorm", RoleNorm1}, {"pre_ff_layernorm", RoleNorm2}}, mambaModules("mamba"), llamaAttention,
		}, []module{{"model.final_layernorm", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"falcon_h1"}, Serial,
		llamaEmbedding, [][]module{
			{{"feed_forward.gate_proj", RoleGate}, {"feed_forward.up_proj", RoleUp}, {"feed_forward.down_proj", RoleDown}},
			mambaModules("mamba"), llamaAttention, {{"input_layernorm", RoleNorm1}, {"pre_ff_layernorm", RoleNorm2}},
		}, []module{{"model.final_layernorm", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"lfm2", "lfm2_moe"}, Serial,
		llamaEmbedding, [][]module{{
			{"self_attn.q_proj", RoleQ},
			{"self_attn.k_proj", RoleK},
			{"self_attn.v_proj", RoleV},
			{"self_attn.out_proj", RoleO},
			{"self_attn.q_layernorm", RoleQNorm},
			{"self_attn.k_layernorm", RoleKNorm},
		}, shortConv, {
			{"feed_forward.w1", RoleGate},
			{"feed_forward.w3", RoleUp},
			{"feed_forward.w2", RoleDown},
			{"feed_forward.gate", RoleRouter},
			{"feed_forward.experts.gate_up_proj", RoleExpertsGateUp},
			{"feed_forward.experts.down_proj", RoleExpertsDown},
			{"operator_norm", RoleNorm1},
			{"ffn_norm", RoleNorm2},
		}}, []module{{"model.embedding_norm", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"granitemoe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, preNorms, graniteExperts}, llamaHead},
	{[]string{"ernie4_5_moe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, routerFirst, experts, deepseekShared, preNorms}, llamaHead},
	{[]string{"apertus"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"mlp.up_proj", RoleUp}, {"mlp.down_proj", RoleDown}, {"mlp.act_fn.alpha_p", RoleActPositive}, {"mlp.act_fn.alpha_n", RoleActNegative}},
			{{"attention_layernorm", RoleNorm1}, {"feedforward_layernorm", RoleNorm2}}}, llamaHead},
	{[]string{"glm4"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"mlp.gate_up_proj", RoleGateUp}, {"mlp.down_proj", RoleDown}}, decoderNorms}, llamaHead},
	{[]string{"gemma2", "gemma3_text", "olmo2", "olmo3"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, postNorms}, llamaHead},
	{[]string{"gemma4_text", "gemma4_unified_text"}, Serial,
		gemmaEmbedding, [][]module{gemmaAttention, llamaMLP, gemmaShared, postNorms, gemmaPerLayer, gemmaExperts}, llamaHead},
	{[]string{"starcoder2"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"mlp.c_fc", RoleUp}, {"mlp.c_proj", RoleDown}}, preNorms}, llamaHead},
	{[]string{"phi3"}, Serial,
		llamaEmbedding, [][]module{phi3Attention, llamaMLP, preNorms}, llamaHead},
	{[]string{"mixtral", "qwen2_moe", "olmoe", "minimax_m2"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, routerFirst, experts, qwenShared, preNorms}, llamaHead},
	{[]string{"qwen3_next"}, Serial,
		llamaEmbedding, [][]module{nextDelta, llamaAttention, llamaMLP, routerFirst, experts, qwenShared, preNorms}, llamaHead},
	{[]string{"qwen3_5_text", "qwen3_5_moe_text"}, Serial,
		llamaEmbedding, [][]module{qwenDelta, llamaAttention, llamaMLP, routerFirst, experts, qwenShared, preNorms}, llamaHead},
	{[]string{"deepseek_v32", "glm_moe_dsa"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, indexer, llamaMLP, experts, routerFirst, deepseekShared, preNorms}, llamaHead},
	{[]string{"deepseek_v4"}, Serial,
		llamaEmbedding, [][]module{compressedAttention, compressor, routerFirst, experts, deepseekShared, preNorms, streams},
		streamsHead},
	{[]string{"qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe", "glm4v_moe_text", "glm4_moe_lite", "dots1", "solar_open", "exaone_moe", "hy_v3", "mellum"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, experts, routerFirst, deepseekShared, preNorms}, llamaHead},
	{[]string{"nemotron_h"}, Serial,
		[]module{{"backbone.embeddings", RoleEmbed}},
		[][]module{oneNorm, mambaMixer, {
			{"mixer.q_proj", RoleQ}, {"mixer.k_proj", RoleK}, {"mixer.v_proj", RoleV}, {"mixer.o_proj", RoleO},
			{"mixer.up_proj", RoleUp}, {"mixer.down_proj", RoleDown},
			{"mixer.experts.up_proj", RoleExpertsGateUp}, {"mixer.experts.down_proj", RoleExpertsDown},
			{"mixer.gate", RoleRouter},
			{"mixer.shared_experts.up_proj", RoleSharedUp}, {"mixer.shared_experts.down_proj", RoleSharedDown},
			{"mixer.fc1_latent_proj", RoleLatentDown}, {"mixer.fc2_latent_proj", RoleLatentUp},
		}}, []module{{"backbone.norm_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"phimoe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, ossRouter, experts, preNorms}, llamaHead},
	{[]string{"gpt_oss"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, ossRouter, experts, preNorms}, llamaHead},
	{[]string{"llama4_text"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llama4MLP, preNorms}, llamaHead},
	{[]string{"phi"}, Serial,
		llamaEmbedding, [][]module{{
			{"self_attn.q_proj", RoleQ},
			{"self_attn.k_proj", RoleK},
			{"self_attn.v_proj", RoleV},
			{"self_attn.dense", RoleO},
			{"self_attn.q_layernorm", RoleQNorm},
			{"self_attn.k_layernorm", RoleKNorm},
			{"mlp.fc1", RoleUp},
			{"mlp.fc2", RoleDown},
		}, preNorms}, []module{{"model.final_layernorm", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"gpt2", "gpt_bigcode"}, Serial,
		[]module{{"transformer.wte", RoleEmbed}, {"transformer.wpe", RolePosition}},
		[][]module{{
			{"ln_1", RoleNorm1},
			{"attn.c_attn", RoleQKV},
			{"attn.c_proj", RoleO},
			{"ln_2", RoleNorm2},
			{"mlp.c_fc", RoleUp},
			{"mlp.c_proj", RoleDown},
		}}, []module{{"transformer.ln_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"gptj"}, Serial,
		[]module{{"transformer.wte", RoleEmbed}},
		[][]module{{
			{"ln_1", RoleNorm1},
			{"attn.k_proj", RoleK},
			{"attn.v_proj", RoleV},
			{"attn.q_proj", RoleQ},
			{"attn.out_proj", RoleO},
			{"mlp.fc_in", RoleUp},
			{"mlp.fc_out", RoleDown},
		}}, []module{{"transformer.ln_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"gpt_neox"}, Serial,
		[]module{{"gpt_neox.embed_in", RoleEmbed}},
		[][]module{preNorms, {{"attention.query_key_value", RoleQKV}, {"attention.dense", RoleO}}, neoxMLP},
		[]module{{"gpt_neox.final_layer_norm", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"bloom"}, Serial,
		[]module{{"transformer.word_embeddings", RoleEmbed}, {"transformer.word_embeddings_layernorm", RoleEmbedNorm}},
		[][]module{{
			{"input_layernorm", RoleNorm1},
			{"self_attention.query_key_value", RoleQKV},
			{"self_attention.dense", RoleO},
			{"post_attention_layernorm", RoleNorm2},
		}, neoxMLP}, []module{{"transformer.ln_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"falcon"}, ParallelTwoNorm,
		[]module{{"transformer.word_embeddings", RoleEmbed}},
		[][]module{{{"self_attention.query_key_value", RoleQKV}, {"self_attention.dense", RoleO}}, neoxMLP, {{"ln_attn", RoleNorm1}, {"ln_mlp", RoleNorm2}}},
		[]module{{"transformer.ln_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	{[]string{"falcon"}, Serial,
		[]module{{"transformer.word_embeddings", RoleEmbed}},
		[][]module{{{"self_attention.query_key_value", RoleQKV}, {"self_attention.dense", RoleO}}, neoxMLP, preNorms},
		[]module{{"transformer.ln_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
	// OPT defines its final norm before the layers; it is listed with the head,
	// where it is used.
	{[]string{"opt"}, Serial,
		[]module{{"model.decoder.embed_tokens", RoleEmbed}, {"model.decoder.embed_positions", RolePosition}},
		[][]module{optLayer}, []module{{"model.decoder.final_layer_norm", RoleFinalNorm}, {"lm_head", RoleHead}}},
	bertLayout("bert", "bert", bertLayer, bertHead),
	bertLayout("ernie", "ernie", bertLayer, bertHead),
	bertLayout("roberta", "roberta", bertLayer, robertaHead),
	bertLayout("xlm-roberta", "roberta", bertLayer, robertaHead),
	bertLayout("data2vec-text", "data2vec_text", bertLayer, robertaHead),
	bertLayout("roberta-prelayernorm", "roberta_prelayernorm", [][]module{bertAttention, {{"attention.LayerNorm", RoleNorm1}, {"intermediate.LayerNorm", RoleNorm2}}, bertMLP},
		slices.Concat([]module{{"roberta_prelayernorm.LayerNorm", RoleFinalNorm}}, robertaHead)),
	bertLayout("xlm-roberta-xl", "roberta", [][]module{bertAttention, {{"attention.self_attn_layer_norm", RoleNorm1}}, bertMLP, {{"LayerNorm", RoleNorm2}}},
		slices.Concat([]module{{"roberta.encoder.LayerNorm", RoleFinalNorm}}, robertaHead)),
	bertLayout("distilbert", "distilbert", [][]module{{
		{"attention.q_lin", RoleQ},
		{"attention.k_lin", RoleK},
		{"attention.v_lin", RoleV},
		{"attention.out_lin", RoleO},
		{"sa_layer_norm", RoleNorm3},
		{"ffn.lin1", RoleUp},
		{"ffn.lin2", RoleDown},
		{"output_layer_norm", RoleNorm4},
	}}, []module{{"vocab_transform", RoleHeadDense}, {"vocab_layer_norm", RoleHeadNorm}, {"vocab_projector", RoleHead}}),
	{[]string{"t5", "mt5", "umt5"}, Serial,
		[]module{{"shared", RoleEmbed}, {"block.0.layer.0.SelfAttention.relative_attention_bias", RoleRelative}},
		[][]module{{
			{"SelfAttention.q", RoleQ},
			{"SelfAttention.k", RoleK},
			{"SelfAttention.v", RoleV},
			{"SelfAttention.o", RoleO},
			{"SelfAttention.relative_attention_bias", RoleRelative},
			{"layer.0.layer_norm", RoleNorm1},
			{"EncDecAttention.q", RoleCrossQ},
			{"EncDecAttention.k", RoleCrossK},
			{"EncDecAttention.v", RoleCrossV},
			{"EncDecAttention.o", RoleCrossO},
			{"layer.1.layer_norm", RoleCrossNorm},
			{"DenseReluDense.wi_0", RoleGate},
			{"DenseReluDense.wi", RoleUp},
			{"DenseReluDense.wo", RoleDown},
			{"layer.-1.layer_norm", RoleNorm2},
		}}, []module{{"final_layer_norm", RoleFinalNorm}, {"lm_head", RoleHead}}},
	bartLayout("bart", RoleNorm3, RoleNorm4),
	bartLayout("mbart", RoleNorm1, RoleNorm2),
	bartLayout("marian", RoleNorm3, RoleNorm4),
	bartLayout("pegasus", RoleNorm1, RoleNorm2),
	bartLayout("m2m_100", RoleNorm1, RoleNorm2),
	{[]string{"biogpt"}, Serial,
		[]module{{"biogpt.embed_tokens", RoleEmbed}, {"biogpt.embed_positions", RolePosition}},
		[][]module{optLayer}, []module{{"biogpt.layer_norm", RoleFinalNorm}, {"output_projection", RoleHead}}},
	{[]string{"modernbert"}, Serial,
		[]module{{"model.embeddings.tok_embeddings", RoleEmbed}, {"model.embeddings.norm", RoleEmbedNorm}},
		[][]module{{
			{"attn_norm", RoleNorm1},
			{"attn.Wqkv", RoleQKV},
			{"attn.Wo", RoleO},
			{"mlp_norm", RoleNorm2},
			{"mlp.Wi", RoleGateUp},
			{"mlp.Wo", RoleDown},
		}}, []module{{"model.final_norm", RoleFinalNorm}, {"head.dense", RoleHeadDense}, {"head.norm", RoleHeadNorm}, {"decoder", RoleHead}}},
	{[]string{"mpt"}, Serial,
		[]module{{"transformer.wte", RoleEmbed}, {"transformer.wpe", RolePosition}},
		[][]module{{
			{"norm_1", RoleNorm1},
			{"attn.Wqkv", RoleQKV},
			{"attn.q_ln", RoleQNorm},
			{"attn.k_ln", RoleKNorm},
			{"attn.out_proj", RoleO},
			{"norm_2", RoleNorm2},
			{"ffn.up_proj", RoleUp},
			{"ffn.down_proj", RoleDown},
		}}, []module{{"transformer.norm_f", RoleFinalNorm}, {"lm_head", RoleHead}}},
}

// bertLayout is the layout of an encoder after BERT, whose embeddings are under a prefix.
func bertLayout(family, prefix string, layer [][]module, head []module) layout {
	return layout{[]string{family}, Serial, []module{
		{prefix + ".embeddings.word_embeddings", RoleEmbed},
		{prefix + ".embeddings.position_embeddings", RolePosition},
		{prefix + ".embeddings.token_type_embeddings", RoleType},
		{prefix + ".embeddings.LayerNorm", RoleEmbedNorm},
	}, layer, head}
}

// layoutOf finds the layout of a Spec.
func layoutOf(s *Spec) *layout {
	for i := range layouts {
		for _, name := range layouts[i].families {
			if name == s.ModelType && (layouts[i].parallel == Serial || layouts[i].parallel == s.Parallel) {
				return &layouts[i]
			}
		}
	}
	return &layouts[0]
}
