package model

// part is what a module of a decoder is for. Its parameters follow from the
// part and the Spec.
type part uint8

const (
	partTokens    part = iota // token embedding
	partPositions             // learned position table
	partEmbedNorm             // norm after the embedding

	partLayerEmbed // table of embeddings for each layer, projection that is added to them, norm of what it makes
	partLayerEmbedIn
	partLayerEmbedNorm
	partLayerGate // into and out of the width of a layer's part, norm after it
	partLayerUp
	partPostLayer

	partNorm1 // norm on the input of attention
	partNorm2 // norm on the input of the MLP
	partPost1 // norm on the output of attention
	partPost2 // norm on the output of the MLP

	// Of experts beside the MLP: norms on the MLP's output, on the experts' input and on
	// their output, factors of the router's input and of each expert.
	partPostMLP
	partPreExperts
	partPostExperts
	partRouterScale
	partExpertScale

	partSinks // one learned sink per head
	partQuery
	partKey
	partValue
	partQKV // the three fused
	partOut
	partQueryNorm
	partKeyNorm
	partQueryDown // latent attention: to the query latent, its norm, and up from it
	partQueryLatentNorm
	partQueryUp
	partKVDown // to the key/value latent and the shared rotary key, its norm, and up from it
	partKVLatentNorm
	partKVUp
	partIndexQuery // of an indexer
	partIndexKey
	partIndexNorm
	partIndexWeights
	partIndexSumKV // of the sums that it scores
	partIndexSumGate
	partIndexSumBias
	partIndexSumNorm
	partSumKV // of sums of tokens
	partSumGate
	partSumBias
	partSumNorm
	partOutGroups

	// Of residual streams: weights of their mixtures, biases, factors.
	partMix1
	partMix1Bias
	partMix1Scale
	partMix2
	partMix2Bias
	partMix2Scale
	partMix3
	partMix3Bias
	partMix3Scale

	partMamba // what a mixer holds itself: time steps, decays, skips
	partMambaConv
	partMambaIn
	partMambaNorm
	partMambaOut

	partDelta // what a gated delta net holds itself: bias of the decays, their logarithms
	partDeltaConv
	partDeltaQKVZ // its projections, in two
	partDeltaBA
	partDeltaQKV // or four
	partDeltaZ
	partDeltaB
	partDeltaA
	partDeltaNorm
	partDeltaOut

	partGate
	partUp
	partGateUp // the two fused
	partDown
	partActPositive // parameters of the activation
	partActNegative

	partRouter
	partExpertsUp   // gate and up of all experts in one tensor
	partExpertsDown // down of all experts
	partLatentDown  // into and out of the width of experts
	partLatentUp
	partSharedGate
	partSharedUp
	partSharedDown
	partSharedSwitch // sigmoid gate on the shared experts

	partFinalNorm
	partHead
)

// module is a named part.
type module struct {
	name string
	part part
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
	llamaEmbedding = []module{{"model.embed_tokens", partTokens}, {"model.embed_positions", partPositions}}
	llamaAttention = []module{
		{"self_attn.sinks", partSinks},
		{"self_attn.q_proj", partQuery},
		{"self_attn.q_a_proj", partQueryDown},
		{"self_attn.q_a_layernorm", partQueryLatentNorm},
		{"self_attn.q_b_proj", partQueryUp},
		{"self_attn.kv_a_proj_with_mqa", partKVDown},
		{"self_attn.kv_a_layernorm", partKVLatentNorm},
		{"self_attn.kv_b_proj", partKVUp},
		{"self_attn.k_proj", partKey},
		{"self_attn.v_proj", partValue},
		{"self_attn.qkv_proj", partQKV},
		{"self_attn.o_proj", partOut},
		{"self_attn.q_norm", partQueryNorm},
		{"self_attn.k_norm", partKeyNorm},
	}
	indexer = []module{
		{"self_attn.indexer.wq_b", partIndexQuery},
		{"self_attn.indexer.wk", partIndexKey},
		{"self_attn.indexer.k_norm", partIndexNorm},
		{"self_attn.indexer.weights_proj", partIndexWeights},
	}
	compressedAttention = []module{
		{"self_attn.sinks", partSinks},
		{"self_attn.q_a_proj", partQueryDown},
		{"self_attn.q_a_norm", partQueryLatentNorm},
		{"self_attn.q_b_proj", partQueryUp},
		{"self_attn.kv_proj", partKVDown},
		{"self_attn.kv_norm", partKVLatentNorm},
		{"self_attn.o_a_proj", partOutGroups},
		{"self_attn.o_b_proj", partOut},
	}
	compressor = []module{
		{"self_attn.compressor.position_bias", partSumBias},
		{"self_attn.compressor.kv_proj", partSumKV},
		{"self_attn.compressor.gate_proj", partSumGate},
		{"self_attn.compressor.kv_norm", partSumNorm},
		{"self_attn.compressor.indexer.position_bias", partIndexSumBias},
		{"self_attn.compressor.indexer.kv_proj", partIndexSumKV},
		{"self_attn.compressor.indexer.gate_proj", partIndexSumGate},
		{"self_attn.compressor.indexer.kv_norm", partIndexSumNorm},
		{"self_attn.compressor.indexer.q_b_proj", partIndexQuery},
		{"self_attn.compressor.indexer.weights_proj", partIndexWeights},
	}
	streams = []module{
		{"attn_hc.fn", partMix1}, {"attn_hc.base", partMix1Bias}, {"attn_hc.scale", partMix1Scale},
		{"ffn_hc.fn", partMix2}, {"ffn_hc.base", partMix2Bias}, {"ffn_hc.scale", partMix2Scale},
	}
	phi3Attention = []module{{"self_attn.o_proj", partOut}, {"self_attn.qkv_proj", partQKV}}
	llamaMLP      = []module{
		{"mlp.gate_proj", partGate},
		{"mlp.up_proj", partUp},
		{"mlp.gate_up_proj", partGateUp},
		{"mlp.down_proj", partDown},
	}
	experts     = []module{{"mlp.experts.gate_up_proj", partExpertsUp}, {"mlp.experts.down_proj", partExpertsDown}}
	routerFirst = []module{{"mlp.gate", partRouter}}
	ossRouter   = []module{{"mlp.router", partRouter}}
	qwenShared  = []module{
		{"mlp.shared_expert.gate_proj", partSharedGate},
		{"mlp.shared_expert.up_proj", partSharedUp},
		{"mlp.shared_expert.down_proj", partSharedDown},
		{"mlp.shared_expert_gate", partSharedSwitch},
	}
	decoderLatent  = []module{{"mlp.latent_down_proj", partLatentDown}, {"mlp.latent_up_proj", partLatentUp}}
	deepseekShared = []module{
		{"mlp.shared_experts.gate_proj", partSharedGate},
		{"mlp.shared_experts.up_proj", partSharedUp},
		{"mlp.shared_experts.down_proj", partSharedDown},
	}
	llama4MLP = []module{
		{"feed_forward.experts.gate_up_proj", partExpertsUp},
		{"feed_forward.experts.down_proj", partExpertsDown},
		{"feed_forward.router", partRouter},
		{"feed_forward.shared_expert.gate_proj", partSharedGate},
		{"feed_forward.shared_expert.up_proj", partSharedUp},
		{"feed_forward.shared_expert.down_proj", partSharedDown},
		{"feed_forward.gate_proj", partGate},
		{"feed_forward.up_proj", partUp},
		{"feed_forward.down_proj", partDown},
	}
	mambaMixer = []module{
		{"mixer", partMamba},
		{"mixer.conv1d", partMambaConv},
		{"mixer.in_proj", partMambaIn},
		{"mixer.norm", partMambaNorm},
		{"mixer.out_proj", partMambaOut},
	}
	nextDelta = []module{
		{"linear_attn", partDelta},
		{"linear_attn.conv1d", partDeltaConv},
		{"linear_attn.in_proj_qkvz", partDeltaQKVZ},
		{"linear_attn.in_proj_ba", partDeltaBA},
		{"linear_attn.norm", partDeltaNorm},
		{"linear_attn.out_proj", partDeltaOut},
	}
	qwenDelta = []module{
		{"linear_attn", partDelta},
		{"linear_attn.conv1d", partDeltaConv},
		{"linear_attn.norm", partDeltaNorm},
		{"linear_attn.out_proj", partDeltaOut},
		{"linear_attn.in_proj_qkv", partDeltaQKV},
		{"linear_attn.in_proj_z", partDeltaZ},
		{"linear_attn.in_proj_b", partDeltaB},
		{"linear_attn.in_proj_a", partDeltaA},
	}
	gemmaAttention = []module{
		{"self_attn.q_proj", partQuery},
		{"self_attn.q_norm", partQueryNorm},
		{"self_attn.k_norm", partKeyNorm},
		{"self_attn.k_proj", partKey},
		{"self_attn.v_proj", partValue},
		{"self_attn.o_proj", partOut},
	}
	gemmaEmbedding = []module{
		{"model.embed_tokens", partTokens},
		{"model.embed_tokens_per_layer", partLayerEmbed},
		{"model.per_layer_model_projection", partLayerEmbedIn},
		{"model.per_layer_projection_norm", partLayerEmbedNorm},
	}
	gemmaPerLayer = []module{
		{"per_layer_input_gate", partLayerGate},
		{"per_layer_projection", partLayerUp},
		{"post_per_layer_input_norm", partPostLayer},
	}
	gemmaShared = []module{
		{"mlp.gate_proj", partSharedGate},
		{"mlp.up_proj", partSharedUp},
		{"mlp.down_proj", partSharedDown},
	}
	gemmaExperts = []module{
		{"router.scale", partRouterScale},
		{"router.per_expert_scale", partExpertScale},
		{"router.proj", partRouter},
		{"experts.gate_up_proj", partExpertsUp},
		{"experts.down_proj", partExpertsDown},
		{"post_feedforward_layernorm_1", partPostMLP},
		{"post_feedforward_layernorm_2", partPostExperts},
		{"pre_feedforward_layernorm_2", partPreExperts},
	}
	oneNorm   = []module{{"norm", partNorm1}, {"norm", partNorm2}} // of the one block that a layer is
	preNorms  = []module{{"input_layernorm", partNorm1}, {"post_attention_layernorm", partNorm2}}
	postNorms = []module{
		{"input_layernorm", partNorm1},
		{"post_attention_layernorm", partPost1},
		{"pre_feedforward_layernorm", partNorm2},
		{"post_feedforward_layernorm", partPost2},
	}
	decoderNorms = []module{
		{"input_layernorm", partNorm1},
		{"post_attention_layernorm", partNorm2},
		{"post_self_attn_layernorm", partPost1},
		{"post_mlp_layernorm", partPost2},
	}
	neoxMLP   = []module{{"mlp.dense_h_to_4h", partUp}, {"mlp.dense_4h_to_h", partDown}}
	llamaHead = []module{{"model.norm", partFinalNorm}, {"lm_head", partHead}}
	// The mixture of residual streams that the final norm reads comes after it.
	streamsHead = []module{{"model.norm", partFinalNorm}, {"model.hc_head.hc_fn", partMix3}, {"model.hc_head.hc_base", partMix3Bias}, {"model.hc_head.hc_scale", partMix3Scale}, {"lm_head", partHead}}
)

// layouts has one row per naming scheme. The first serves families that no row
// names.
var layouts = []layout{
	{[]string{"llama", "mistral", "qwen2", "qwen3", "gemma", "olmo"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, preNorms}, llamaHead},
	{[]string{"decoder"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"self_attn.o_a_proj", partOutGroups}}, indexer[1:3], compressor, mambaMixer, qwenDelta, llamaMLP, routerFirst, experts, decoderLatent, deepseekShared, {{"mlp.shared_expert_gate", partSharedSwitch}}, decoderNorms, streams}, streamsHead},
	{[]string{"baichuan"}, Serial,
		llamaEmbedding, [][]module{{
			{"self_attn.W_pack", partQKV},
			{"self_attn.o_proj", partOut},
			{"mlp.gate_proj", partGate},
			{"mlp.down_proj", partDown},
			{"mlp.up_proj", partUp},
		}, preNorms}, llamaHead},
	{[]string{"qwen"}, Serial,
		[]module{{"transformer.wte", partTokens}},
		[][]module{{
			{"ln_1", partNorm1},
			{"attn.c_attn", partQKV},
			{"attn.c_proj", partOut},
			{"ln_2", partNorm2},
			{"mlp.w1", partUp},
			{"mlp.w2", partGate},
			{"mlp.c_proj", partDown},
		}}, []module{{"transformer.ln_f", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"internlm2"}, Serial,
		[]module{{"model.tok_embeddings", partTokens}},
		[][]module{{
			{"attention.wqkv", partQKV},
			{"attention.wo", partOut},
			{"feed_forward.w1", partGate},
			{"feed_forward.w3", partUp},
			{"feed_forward.w2", partDown},
			{"attention_norm", partNorm1},
			{"ffn_norm", partNorm2},
		}}, []module{{"model.norm", partFinalNorm}, {"output", partHead}}},
	{[]string{"exaone"}, Serial,
		[]module{{"transformer.wte", partTokens}},
		[][]module{{
			{"ln_1", partNorm1},
			{"attn.attention.k_proj", partKey},
			{"attn.attention.v_proj", partValue},
			{"attn.attention.q_proj", partQuery},
			{"attn.attention.out_proj", partOut},
			{"ln_2", partNorm2},
			{"mlp.c_fc_0", partGate},
			{"mlp.c_fc_1", partUp},
			{"mlp.c_proj", partDown},
		}}, []module{{"transformer.ln_f", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"exaone4"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, {{"post_attention_layernorm", partPost1}, {"post_feedforward_layernorm", partPost2}}}, llamaHead},
	{[]string{"hunyuan_v1_dense", "hunyuan_v1_moe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention[:len(llamaAttention)-2], {{"self_attn.query_layernorm", partQueryNorm}, {"self_attn.key_layernorm", partKeyNorm}}, llamaMLP,
			{{"mlp.gate.wg", partRouter}}, experts, {{"mlp.shared_mlp.gate_proj", partSharedGate}, {"mlp.shared_mlp.up_proj", partSharedUp}, {"mlp.shared_mlp.down_proj", partSharedDown}}, preNorms}, llamaHead},
	{[]string{"granitemoehybrid"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, preNorms, {{"shared_mlp.input_linear", partGateUp}, {"shared_mlp.output_linear", partDown}}}, llamaHead},
	{[]string{"granitemoe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, preNorms, {{"block_sparse_moe.router", partRouter}, {"block_sparse_moe.experts.gate_up_proj", partExpertsUp}, {"block_sparse_moe.experts.down_proj", partExpertsDown}}}, llamaHead},
	{[]string{"ernie4_5_moe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, routerFirst, experts, deepseekShared, preNorms}, llamaHead},
	{[]string{"apertus"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"mlp.up_proj", partUp}, {"mlp.down_proj", partDown}, {"mlp.act_fn.alpha_p", partActPositive}, {"mlp.act_fn.alpha_n", partActNegative}},
			{{"attention_layernorm", partNorm1}, {"feedforward_layernorm", partNorm2}}}, llamaHead},
	{[]string{"glm4"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"mlp.gate_up_proj", partGateUp}, {"mlp.down_proj", partDown}}, decoderNorms}, llamaHead},
	{[]string{"gemma2", "gemma3_text", "olmo2", "olmo3"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, postNorms}, llamaHead},
	{[]string{"gemma4_text"}, Serial,
		gemmaEmbedding, [][]module{gemmaAttention, llamaMLP, gemmaShared, postNorms, gemmaPerLayer, gemmaExperts}, llamaHead},
	{[]string{"starcoder2"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, {{"mlp.c_fc", partUp}, {"mlp.c_proj", partDown}}, preNorms}, llamaHead},
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
	{[]string{"qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe", "glm4v_moe_text", "glm4_moe_lite", "dots1", "solar_open"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llamaMLP, experts, routerFirst, deepseekShared, preNorms}, llamaHead},
	{[]string{"nemotron_h"}, Serial,
		[]module{{"backbone.embeddings", partTokens}},
		[][]module{oneNorm, mambaMixer, {
			{"mixer.q_proj", partQuery}, {"mixer.k_proj", partKey}, {"mixer.v_proj", partValue}, {"mixer.o_proj", partOut},
			{"mixer.up_proj", partUp}, {"mixer.down_proj", partDown},
			{"mixer.experts.up_proj", partExpertsUp}, {"mixer.experts.down_proj", partExpertsDown},
			{"mixer.gate", partRouter},
			{"mixer.shared_experts.up_proj", partSharedUp}, {"mixer.shared_experts.down_proj", partSharedDown},
			{"mixer.fc1_latent_proj", partLatentDown}, {"mixer.fc2_latent_proj", partLatentUp},
		}}, []module{{"backbone.norm_f", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"phimoe"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, ossRouter, experts, preNorms}, llamaHead},
	{[]string{"gpt_oss"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, ossRouter, experts, preNorms}, llamaHead},
	{[]string{"llama4_text"}, Serial,
		llamaEmbedding, [][]module{llamaAttention, llama4MLP, preNorms}, llamaHead},
	{[]string{"phi"}, Serial,
		llamaEmbedding, [][]module{{
			{"self_attn.q_proj", partQuery},
			{"self_attn.k_proj", partKey},
			{"self_attn.v_proj", partValue},
			{"self_attn.dense", partOut},
			{"self_attn.q_layernorm", partQueryNorm},
			{"self_attn.k_layernorm", partKeyNorm},
			{"mlp.fc1", partUp},
			{"mlp.fc2", partDown},
		}, preNorms}, []module{{"model.final_layernorm", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"gpt2", "gpt_bigcode"}, Serial,
		[]module{{"transformer.wte", partTokens}, {"transformer.wpe", partPositions}},
		[][]module{{
			{"ln_1", partNorm1},
			{"attn.c_attn", partQKV},
			{"attn.c_proj", partOut},
			{"ln_2", partNorm2},
			{"mlp.c_fc", partUp},
			{"mlp.c_proj", partDown},
		}}, []module{{"transformer.ln_f", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"gptj"}, Serial,
		[]module{{"transformer.wte", partTokens}},
		[][]module{{
			{"ln_1", partNorm1},
			{"attn.k_proj", partKey},
			{"attn.v_proj", partValue},
			{"attn.q_proj", partQuery},
			{"attn.out_proj", partOut},
			{"mlp.fc_in", partUp},
			{"mlp.fc_out", partDown},
		}}, []module{{"transformer.ln_f", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"gpt_neox"}, Serial,
		[]module{{"gpt_neox.embed_in", partTokens}},
		[][]module{preNorms, {{"attention.query_key_value", partQKV}, {"attention.dense", partOut}}, neoxMLP},
		[]module{{"gpt_neox.final_layer_norm", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"bloom"}, Serial,
		[]module{{"transformer.word_embeddings", partTokens}, {"transformer.word_embeddings_layernorm", partEmbedNorm}},
		[][]module{{
			{"input_layernorm", partNorm1},
			{"self_attention.query_key_value", partQKV},
			{"self_attention.dense", partOut},
			{"post_attention_layernorm", partNorm2},
		}, neoxMLP}, []module{{"transformer.ln_f", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"falcon"}, ParallelTwoNorm,
		[]module{{"transformer.word_embeddings", partTokens}},
		[][]module{{{"self_attention.query_key_value", partQKV}, {"self_attention.dense", partOut}}, neoxMLP, {{"ln_attn", partNorm1}, {"ln_mlp", partNorm2}}},
		[]module{{"transformer.ln_f", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"falcon"}, Serial,
		[]module{{"transformer.word_embeddings", partTokens}},
		[][]module{{{"self_attention.query_key_value", partQKV}, {"self_attention.dense", partOut}}, neoxMLP, preNorms},
		[]module{{"transformer.ln_f", partFinalNorm}, {"lm_head", partHead}}},
	// OPT defines its final norm before the layers; it is listed with the head,
	// where it is used.
	{[]string{"opt"}, Serial,
		[]module{{"model.decoder.embed_tokens", partTokens}, {"model.decoder.embed_positions", partPositions}},
		[][]module{{
			{"self_attn.k_proj", partKey},
			{"self_attn.v_proj", partValue},
			{"self_attn.q_proj", partQuery},
			{"self_attn.out_proj", partOut},
			{"self_attn_layer_norm", partNorm1},
			{"fc1", partUp},
			{"fc2", partDown},
			{"final_layer_norm", partNorm2},
		}}, []module{{"model.decoder.final_layer_norm", partFinalNorm}, {"lm_head", partHead}}},
	{[]string{"mpt"}, Serial,
		[]module{{"transformer.wte", partTokens}, {"transformer.wpe", partPositions}},
		[][]module{{
			{"norm_1", partNorm1},
			{"attn.Wqkv", partQKV},
			{"attn.q_ln", partQueryNorm},
			{"attn.k_ln", partKeyNorm},
			{"attn.out_proj", partOut},
			{"norm_2", partNorm2},
			{"ffn.up_proj", partUp},
			{"ffn.down_proj", partDown},
		}}, []module{{"transformer.norm_f", partFinalNorm}, {"lm_head", partHead}}},
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
