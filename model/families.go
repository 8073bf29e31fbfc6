package model

import (
	"slices"
	"strings"
)

// family is how one model_type is read: which keys it knows, and the defaults
// of its configuration class in transformers 5.17 (older ones, such as mpt and
// opt, are unchanged since 4.x).
type family struct {
	name    string
	also    string // words: other model_types of the same architecture
	text    string // model_type of the nested text_config, for multimodal files, whose own keys are those below
	encoder string // and of their vision_config, where it is modelled
	// Words: "canonical", "its-name=canonical", "its-name=" for a key without effect, "its-name==value"
	// for one of which no other value is modelled, "its-name=." for a mapping, whose keys are words
	// with its name and a dot before theirs.
	keys string
	base draft
}

// Groups of keys that families share.
const (
	coreKeys   = " hidden_size num_hidden_layers num_attention_heads vocab_size max_position_embeddings tie_word_embeddings hidden_act is_causal"
	denseKeys  = coreKeys + " intermediate_size"
	groupKeys  = " num_key_value_heads head_dim attention_dropout"
	llamaKeys  = denseKeys + groupKeys
	gptKeys    = denseKeys + " n_embd=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads n_positions=max_position_embeddings n_inner=intermediate_size activation_function=hidden_act embd_pdrop=embedding_dropout attn_pdrop=attention_dropout resid_pdrop=residual_dropout"
	windowKeys = " sliding_window layer_types"
	qwenKeys   = llamaKeys + windowKeys + " use_sliding_window"
	glmKeys    = llamaKeys + " attention_bias=qkv_bias partial_rotary_factor rope_parameters"
	glmMoEKeys = denseKeys + groupKeys + expertKeys + sharedKeys + " n_routed_experts=num_experts attention_bias=qkv_bias use_qk_norm=qk_layernorm partial_rotary_factor rope_parameters moe_layer_freq"
	// Their own class's code had more.
	hunyuanKeys    = " attention_bias eod_token_id= org_vocab_size= use_qk_norm= use_cla= cla_share_factor= attention_head_dim= mlp_bias= add_classification_head= class_num= dense_list= group_limited_greedy= head_pad_token_id= im_start_id= im_end_id= text_start_id= text_end_id= moe_drop_tokens= moe_random_routing_dropped_token= moe_layer_num_skipped= moe_intermediate_size= num_shared_expert= use_mixed_mlp_moe= capacity_factor= norm_topk_prob= use_rotary_pos_emb= pool_type= position_embedding_xdrope= mask_init_id= num_media_embeds= anyres_pooling_size= routed_scaling_factor="
	glmImageKeys   = " image_start_token_id= image_end_token_id= video_start_token_id= video_end_token_id="
	multiplierKeys = " embedding_multiplier= residual_multiplier= attention_multiplier= logits_scaling="
	gemmaKeys      = llamaKeys + " hidden_activation=hidden_act attention_bias use_bidirectional_attention"
	gemma4Keys     = gemmaKeys + windowKeys + " final_logit_softcapping global_head_dim num_global_key_value_heads per_layer_config attention_k_eq_v use_bidirectional_attention= rope_parameters="
	expertKeys     = " num_experts num_local_experts=num_experts num_experts_per_tok n_group topk_group norm_topk_prob"
	qwenMoE        = expertKeys + " moe_intermediate_size decoder_sparse_step mlp_only_layers"
	mixtralMoE     = coreKeys + groupKeys + expertKeys + " intermediate_size=moe_intermediate_size"
	latentKeys     = " q_lora_rank kv_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim"
	// Of a state-space mixer, as Megatron-Core spells them.
	mambaKeys = " mamba_num_heads mamba_head_dim mamba_num_groups mamba_state_dim mamba_conv_kernel mamba_chunk_size mamba_expand mamba_proj_bias mamba_conv_bias"
	// And as transformers does.
	stateKeys = " n_groups=mamba_num_groups conv_kernel=mamba_conv_kernel chunk_size=mamba_chunk_size expand=mamba_expand use_conv_bias=mamba_conv_bias use_bias=mamba_proj_bias" +
		timeStepKeys + " residual_in_fp32= rescale_prenorm_residual="
	// And as Bamba does.
	bambaKeys    = " mamba_n_heads=mamba_num_heads mamba_n_groups=mamba_num_groups mamba_d_state=mamba_state_dim mamba_d_head=mamba_head_dim mamba_d_conv=mamba_conv_kernel mamba_expand mamba_chunk_size mamba_conv_bias mamba_proj_bias" + timeStepKeys
	timeStepKeys = " use_mamba_kernels= time_step_min= time_step_max= time_step_floor= time_step_limit= time_step_rank="
	// Of LFM2, whose files spell some sizes twice, as its own code does and as transformers does.
	lfm2Keys = coreKeys + " num_key_value_heads head_dim hidden_act= conv_L_cache conv_bias conv_dim=hidden_size conv_dim_out=hidden_size conv_use_xavier_init= layer_types full_attn_idxs=attention_layers tie_embedding=tie_word_embeddings num_heads=num_attention_heads block_dim=hidden_size theta= use_pos_enc==true" +
		" block_norm_eps= block_use_swiglu==true block_use_xavier_init= block_mlp_init_scale= block_out_init_scale="
	// Of a gated delta net.
	deltaKeys  = " linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim full_attention_interval layer_types attention_output_gate attn_output_gate=attention_output_gate"
	nextKeys   = llamaKeys + deltaKeys + " attention_bias partial_rotary_factor rope_parameters mtp_num_hidden_layers=num_nextn_predict_layers num_nextn_predict_layers mtp_use_dedicated_embeddings= mamba_ssm_dtype= mlp_only_layers output_gate_type==swish"
	sharedKeys = " moe_intermediate_size n_shared_experts first_k_dense_replace num_nextn_predict_layers"

	// Of MPT's attention; transformers writes keys of all configurations beside them.
	mptAttention = " attn_config=. attn_config.attn_type=attn_type attn_config.kv_n_heads=num_key_value_heads attn_config.alibi=alibi attn_config.rope=rope attn_config.attn_pdrop=block_dropout attn_config.qk_ln=full_norm attn_config.qk_gn=qk_layernorm" +
		" attn_config.attn_logit_softcapping=attn_logit_softcapping attn_config.sliding_window_size==-1 attn_config.prefix_lm==false attn_config.fused_qkv==true attn_config.nope==false attn_config.attn_impl= attn_config.alibi_bias_max= attn_config.softmax_scale= attn_config.attn_uses_sequence_id=" +
		" attn_config.rope_impl= attn_config.rope_dail_config= attn_config.rope_hf_config= attn_config.tie_word_embeddings="

	bertKeys = denseKeys + " hidden_dropout_prob=hidden_dropout attention_probs_dropout_prob=attention_dropout type_vocab_size position_embedding_type==absolute is_decoder==false" +
		" directionality==bidi pooler_fc_size= pooler_num_attention_heads= pooler_num_fc_layers= pooler_size_per_head= pooler_type=" // of a pooler that the head for masked tokens has not

	// head_dim in a DeepSeek file is the rotary part only, so it is not read.
	deepseekKeys = denseKeys + latentKeys + expertKeys + sharedKeys + " attention_dropout attention_bias mlp_bias n_routed_experts=num_experts num_mtp_layers=num_nextn_predict_layers moe_layer_freq num_key_value_heads= head_dim= qk_head_dim="
	// Of an indexer, and what files beside it hold, which says nothing more; of files that are read
	// as DeepSeek-V3, without it, none of these do.
	pickKeys    = " index_topk index_head_dim index_n_heads index_topk_freq index_skip_topk_offset"
	besideIndex = " indexer_rope_interleave= layer_types= mlp_layer_types"
	indexKeys   = pickKeys + " index_topk_pattern indexer_types" + besideIndex
	noIndexKeys = " index_topk= index_head_dim= index_n_heads= index_topk_freq= index_skip_topk_offset= index_topk_pattern= indexer_types=" + besideIndex
)

// llamaLike fills in what most families took over from Llama.
func llamaLike(d draft) draft {
	d.Gated, d.Position = true, Rotary
	fill(&d.Activation, SiLU)
	fill(&d.Norm, RMSNorm)
	fill(&d.Place, PreNorm)
	return d
}

// ungatedLlama is the same without a gate in the MLP.
func ungatedLlama(d draft) draft {
	d = llamaLike(d)
	d.Gated = false
	return d
}

// glmLike fills in what GLM and GLM-4 have in common.
func glmLike(d draft) draft {
	d.Vocab, d.Hidden, d.FFN, d.Layers, d.Heads, d.KVHeads, d.HeadDim, d.MaxPositions = 151552, 4096, 13696, 40, 32, 2, 128, 131072
	d.QKVBias, d.FusedGateUp, d.Turn, d.rotaryFraction = true, true, TurnPairs, 0.5
	return llamaLike(d)
}

// glmMoELike fills in what GLM-4.5 and GLM-4.5V have in common.
func glmMoELike(d draft) draft {
	d.Hidden, d.FFN, d.Layers, d.Heads, d.KVHeads, d.headsFloor = 4096, 10944, 46, 96, 8, true
	d.moe = MoE{Experts: 128, TopK: 8, FFN: 1408, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true}
	d.denseFirst, d.rotaryFraction = 1, 0.5
	return llamaLike(d)
}

// cohereLike fills in what Command R and Command R7B have in common.
func cohereLike(d draft) draft {
	d.Vocab, d.Hidden, d.FFN, d.Layers, d.Heads, d.MaxPositions = 256000, 8192, 22528, 40, 64, 8192
	d.Norm, d.Parallel, d.parallel, d.Turn, d.Tied, d.LogitScale = LayerNormCast, ParallelOneNorm, true, TurnPairsFP32, true, true
	return llamaLike(d)
}

// nextLike fills in what Qwen's models from Qwen3-Next on have in common.
func nextLike(d draft) draft {
	d.HeadDim, d.MaxPositions, d.Norm, d.QKNorm = 256, 32768, GemmaRMSNorm, HeadQKNorm
	d.GatedAttention, d.deltaEvery, d.rotaryFraction = true, 4, 0.25
	d.mixes = map[string]Mixer{"linear_attention": DeltaMixer}
	return llamaLike(d)
}

// gemma4Like fills in what the language models of Gemma 4 have in common.
func gemma4Like(d draft) draft {
	d.Vocab, d.Hidden, d.FFN, d.Layers, d.Heads, d.KVHeads, d.HeadDim = 262144, 2304, 9216, 30, 8, 4, 256
	d.Activation, d.Norm, d.Place, d.QKNorm, d.ValueNorm = GELUTanh, CastRMSNorm, Sandwich, HeadQKNorm, true
	d.Tied, d.EmbedScale, d.LayerScale, d.TurnFirst = true, true, true, true
	d.global.HeadDim, d.useWindow, d.windowPattern = 512, true, 6
	return llamaLike(d)
}

// gptLike fills in what the families before Llama have in common.
func gptLike(d draft) draft {
	d.expansion = 4
	fill(&d.Activation, GELU)
	fill(&d.Norm, LayerNorm)
	fill(&d.Place, PreNorm)
	return d
}

// biased turns on the biases of all linear layers but the head.
func biased(d draft) draft {
	d.QKVBias, d.OutBias, d.MLPBias = true, true, true
	return d
}

// encoderLike fills in what encoders after BERT have in common.
func encoderLike(d draft) draft {
	fill(&d.Position, LearnedPosition)
	fill(&d.Place, SumNorm)
	d.Bidirectional, d.EmbedNorm, d.HeadDense, d.HeadBias, d.Tied = true, true, true, true, true
	return gptLike(d)
}

// bertLike fills in what BERT and those after it have in common, whose sizes are its but for those given.
func bertLike(s Spec) draft {
	s.NarrowLoss, s.EmbedDropout, s.AttnDropout, s.ResidDropout = true, 0.1, 0.1, 0.1
	for _, size := range []struct {
		of  *int64
		own int64
	}{{&s.Hidden, 768}, {&s.FFN, 3072}, {&s.Layers, 12}, {&s.Heads, 12}, {&s.MaxPositions, 512}} {
		fill(size.of, size.own)
	}
	return encoderLike(biased(draft{Spec: s}))
}

// preNormed turns an encoder's norms of sums into norms before its blocks and one behind all.
func preNormed(d draft, embeddings bool) draft {
	d.Place, d.EmbedNorm = PreNorm, embeddings
	return d
}

func fill[T comparable](p *T, value T) {
	if *p == *new(T) {
		*p = value
	}
}

// families has one row per model_type.
var families = []family{
	{name: "llama", keys: llamaKeys + " attention_bias mlp_bias activation==swiglu", base: llamaLike(draft{
		Spec: Spec{Vocab: 32000, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048},
	})},
	{name: "mistral", keys: llamaKeys + windowKeys, base: llamaLike(draft{
		Spec:      Spec{Vocab: 32000, Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 131072, Window: 4096},
		useWindow: true,
	})},
	{name: "mistral3", text: "mistral"},
	{name: "llava", text: "llama", encoder: "clip_vision_model", keys: " vocab_size="},
	{name: "llava_next", text: "llama", keys: " vocab_size= image_grid_pinpoints= use_image_newline_parameter="},
	{name: "llava_onevision", text: "qwen2", keys: " vocab_size= video_token_index= image_grid_pinpoints= vision_aspect_ratio="},
	{name: "internvl", text: "qwen2", keys: " downsample_ratio="},
	{name: "idefics3", also: "smolvlm", text: "llama", keys: " vocab_size= scale_factor="},
	{name: "ministral", keys: llamaKeys + windowKeys, base: llamaLike(draft{
		Spec:      Spec{Vocab: 32000, Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 131072, Window: 4096},
		useWindow: true,
	})},
	{name: "ministral3", keys: llamaKeys + " sliding_window layer_types=", base: llamaLike(draft{
		Spec:      Spec{Vocab: 131072, Hidden: 4096, FFN: 14336, Layers: 34, Heads: 32, KVHeads: 8, HeadDim: 128, MaxPositions: 262144, QueryScale: true},
		useWindow: true,
	})},
	{name: "cwm", keys: llamaKeys + windowKeys + " mlp_bias", base: llamaLike(draft{
		Spec:      Spec{Vocab: 128256, Hidden: 6144, FFN: 21504, Layers: 64, Heads: 48, KVHeads: 8, HeadDim: 128, MaxPositions: 131072, Window: 8192},
		useWindow: true, wholeEvery: 4,
	})},
	{name: "arcee", keys: llamaKeys + " attention_bias mlp_bias", base: ungatedLlama(draft{
		Spec: Spec{Vocab: 32000, Hidden: 2560, FFN: 18432, Layers: 32, Heads: 32, MaxPositions: 4096, Activation: ReLU2},
	})},
	{name: "ernie4_5", keys: llamaKeys + " use_bias=bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 103424, Hidden: 1024, FFN: 3072, Layers: 18, Heads: 16, KVHeads: 2, HeadDim: 128, MaxPositions: 131072, Tied: true, Turn: TurnPairsMixed},
	})},
	{name: "glm", keys: glmKeys, base: glmLike(draft{})},
	{name: "glm4v", text: "glm4", keys: glmImageKeys},
	{name: "glm4", also: "glm4v_text", keys: glmKeys, base: glmLike(draft{Spec: Spec{Place: Sandwich}})},
	{name: "helium", keys: llamaKeys + " attention_bias=qkv_bias mlp_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 48000, Hidden: 2560, FFN: 7040, Layers: 24, Heads: 20, KVHeads: 20, HeadDim: 128, MaxPositions: 4096, Norm: CastRMSNorm, Turn: TurnPairs},
	})},
	// By their own code: transformers has no class of them.
	{name: "internlm", keys: llamaKeys + " bias=attention_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 103168, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, QKVBias: true, OutBias: true},
	})},
	{name: "internlm2", keys: llamaKeys + " bias=attention_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 103168, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, QKVBias: true, OutBias: true, FusedQKV: true, QKVSlices: true},
	})},
	{name: "internlm3", keys: llamaKeys + " bias==false qkv_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 128512, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, KVHeads: 32, MaxPositions: 32768},
	})},
	{name: "mimo", keys: qwenKeys + " max_window_layers attention_bias=qkv_bias num_nextn_predict_layers", base: llamaLike(draft{
		Spec:       Spec{Vocab: 151680, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, KVHeads: 32, MaxPositions: 32768, QKVBias: true, Window: 4096},
		windowFrom: 28,
	})},
	{name: "orion", keys: llamaKeys + " attention_bias==false max_sequence_length=", base: llamaLike(draft{
		Spec: Spec{Vocab: 84608, Hidden: 5120, FFN: 15360, Layers: 40, Heads: 40, KVHeads: 40, MaxPositions: 4096, Norm: LayerNorm},
	})},
	{name: "exaone", keys: llamaKeys + " num_layers=num_hidden_layers activation_function=hidden_act embed_dropout=embedding_dropout", base: llamaLike(draft{
		Spec:      Spec{Vocab: 102400, Hidden: 2048, Layers: 32, Heads: 32, MaxPositions: 2048, Tied: true},
		expansion: 4,
	})},
	// Layers without a window have no rotary embedding.
	{name: "exaone4", keys: llamaKeys + windowKeys + " sliding_window_pattern=window_letters", base: llamaLike(draft{
		Spec:      Spec{Vocab: 102400, Hidden: 4096, FFN: 16384, Layers: 32, Heads: 32, KVHeads: 32, MaxPositions: 2048, Place: PostNorm, QKNorm: HeadQKNorm, Window: 4096},
		useWindow: true, windowPattern: 4, windowTurns: true,
	})},
	{name: "cohere", keys: llamaKeys + " attention_bias use_qk_norm=each_qk_norm", base: cohereLike(draft{})},
	{name: "cohere2_vision", also: "aya_vision", text: "cohere2", keys: " downsample_factor= alignment_intermediate_size= adapter_layer_norm_eps="},
	{name: "cohere2", keys: llamaKeys + windowKeys + " attention_bias sliding_window_pattern rotary_pct= position_embedding_type= use_gated_activation= use_parallel_block= use_parallel_embedding= use_embedding_sharing= use_qk_norm= order_of_interleaved_layers= layer_switch=", base: cohereLike(draft{
		Spec: Spec{Window: 4096}, useWindow: true, windowPattern: 4, windowTurns: true,
	})},
	{name: "hunyuan_v1_dense", keys: llamaKeys + hunyuanKeys + " num_experts= moe_topk=", base: llamaLike(draft{
		Spec: Spec{Vocab: 290943, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, QKNorm: HeadQKNorm, NormTurned: true},
	})},
	{name: "hunyuan_v1_moe", keys: llamaKeys + hunyuanKeys + " num_experts num_local_experts=num_experts moe_topk num_experts_per_tok=moe_topk norm_topk_prob=", base: llamaLike(draft{
		Spec: Spec{Vocab: 290943, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, QKNorm: HeadQKNorm, NormTurned: true},
		moe:  MoE{Experts: 1, TopK: 1, Shared: 1, NormTopK: true},
	})},
	// Layers with a Mamba mixer or attention and an MLP, beside experts where there are any.
	{name: "granitemoehybrid", keys: mixtralMoE + bambaKeys + " attention_bias layer_types layers_block_type=layer_types shared_intermediate_size position_embedding_type normalization_function==rmsnorm init_method=" + multiplierKeys, base: llamaLike(draft{
		Spec:         Spec{Vocab: 32000, Hidden: 4096, FFN: 1024, Layers: 32, Heads: 32, MaxPositions: 2048, FusedGateUp: true, EmbedScale: true, ResidScale: true, LogitScale: true},
		moe:          MoE{Experts: 8, TopK: 2, FFN: 11008, SharedFFN: 1024, Shared: 1, ChosenFirst: true, NormTopK: true},
		mamba:        bambaMixer,
		mixes:        mambaWords,
		attends:      []int64{},
		elsewhere:    MambaMixer,
		positionType: "nope",
	})},
	{name: "bamba", keys: llamaKeys + bambaKeys + " attention_bias mlp_bias attn_layer_indices=attention_layers layer_types layers_block_type=layer_types attn_rotary_emb= partial_rotary_factor rope_parameters z_loss_coefficient==0 num_logits_to_keep=", base: llamaLike(draft{
		Spec:           Spec{Vocab: 128000, Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 262144, TurnJoins: true},
		mamba:          bambaMixer,
		mixes:          mambaWords,
		attends:        []int64{},
		elsewhere:      MambaMixer,
		rotaryFraction: 0.5,
	})},
	// Attention and a Mamba mixer side by side in every layer.
	{name: "falcon_h1", keys: llamaKeys + bambaKeys + " attention_bias mlp_bias mamba_d_ssm mamba_rms_norm mamba_norm_before_gate= mamba_use_mlp==true projectors_bias==false mlp_expansion_factor= attn_layer_indices= num_logits_to_keep=" +
		" lm_head_multiplier= embedding_multiplier= mlp_multipliers= key_multiplier= attention_out_multiplier= attention_in_multiplier= ssm_multipliers= ssm_in_multiplier= ssm_out_multiplier=", base: llamaLike(draft{
		Spec:       Spec{Vocab: 128000, Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 8192, EmbedScale: true, LogitScale: true, Factors: true},
		mamba:      Mamba{Heads: 128, Groups: 1, State: 256, Conv: 4, Chunk: 256, ConvBias: true, Normless: true},
		mambaInner: 1024,
		attends:    []int64{},
		elsewhere:  PairedMixer,
	})},
	// Short convolutions in the place of attention in the layers that full_attn_idxs does not list.
	{name: "lfm2", keys: lfm2Keys + " intermediate_size block_ff_dim block_auto_adjust_ff_dim block_ffn_dim_multiplier block_multiple_of", base: llamaLike(draft{
		Spec:      Spec{Vocab: 65536, Hidden: 2560, FFN: 12288, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 128000, QKNorm: HeadQKNorm, Tied: true},
		conv:      genericShort,
		mixes:     shortWords,
		elsewhere: ShortMixer,
		twoThirds: true, ffnFactor: 1, ffnMultiple: 256,
	})},
	{name: "lfm2_moe", keys: lfm2Keys + " intermediate_size moe_intermediate_size num_experts num_experts_per_tok norm_topk_prob num_dense_layers=first_k_dense_replace use_expert_bias==true", base: llamaLike(draft{
		Spec:       Spec{Vocab: 65536, Hidden: 2048, FFN: 7168, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 128000, QKNorm: HeadQKNorm, Tied: true},
		moe:        MoE{Experts: 32, TopK: 4, FFN: 1792, Router: SigmoidRouter, RouterBias: true, NormTopK: true},
		denseFirst: 2,
		conv:       genericShort,
		mixes:      shortWords,
		elsewhere:  ShortMixer,
		listed:     true,
	})},
	{name: "granitemoe", keys: mixtralMoE + " attention_bias" + multiplierKeys, base: llamaLike(draft{
		Spec: Spec{Vocab: 32000, Hidden: 4096, Layers: 32, Heads: 32, MaxPositions: 2048, EmbedScale: true, ResidScale: true, LogitScale: true},
		moe:  MoE{Experts: 8, TopK: 2, FFN: 11008, ChosenFirst: true, NormTopK: true},
	})},
	{name: "dots1", keys: qwenKeys + expertKeys + sharedKeys + " max_window_layers attention_bias n_routed_experts=num_experts", base: llamaLike(draft{
		Spec:       Spec{Vocab: 152064, Hidden: 4608, FFN: 10944, Layers: 62, Heads: 32, KVHeads: 32, MaxPositions: 2048, QKNorm: HeadQKNorm, Window: 4096},
		moe:        MoE{FFN: 1408, Router: SigmoidRouter, RouterBias: true},
		useWindow:  true,
		windowFrom: 62,
	})},
	{name: "solar_open", keys: llamaKeys + expertKeys + sharedKeys + " attention_bias=qkv_bias n_routed_experts=num_experts partial_rotary_factor rope_parameters use_qk_norm=", base: llamaLike(draft{
		Spec: Spec{Vocab: 196608, Hidden: 4096, Layers: 48, Heads: 64, KVHeads: 8, HeadDim: 128, MaxPositions: 131072},
		moe:  MoE{Experts: 128, TopK: 8, FFN: 1280, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true},
	})},
	{name: "afmoe", keys: llamaKeys + windowKeys + expertKeys + " attention_bias moe_intermediate_size num_shared_experts=n_shared_experts num_dense_layers=first_k_dense_replace global_attn_every_n_layers=sliding_window_pattern mup_enabled" +
		" route_scale= route_norm==true score_func==sigmoid num_expert_groups==1 num_limited_groups==1 use_grouped_mm= load_balance_coeff=", base: llamaLike(draft{
		Spec: Spec{Vocab: 200192, Hidden: 2048, FFN: 6144, Layers: 32, Heads: 16, HeadDim: 128, MaxPositions: 16384, Norm: WideRMSNorm, Place: Sandwich, QKNorm: HeadQKNorm,
			GatedAttention: true, GateApart: true, Window: 1024},
		moe:       MoE{Experts: 64, TopK: 6, FFN: 1408, Shared: 2, Router: SigmoidRouter, RouterBias: true, NormTopK: true, LowRouter: true},
		useWindow: true, windowPattern: 4, windowTurns: true, denseFirst: 1,
	})},
	// Multi-token prediction, of which files have a layer, is none of its class's.
	{name: "hy_v3", keys: llamaKeys + expertKeys + sharedKeys + " attention_bias mlp_bias num_shared_experts=n_shared_experts mlp_layer_types enable_moe_fp32_combine router_scaling_factor=" +
		" expert_hidden_dim=moe_intermediate_size moe_router_enable_expert_bias==true moe_router_use_sigmoid==true qk_norm==true route_norm==true norm_topk_prob==true enable_attention_fp32_softmax= enable_lm_head_fp32=", base: llamaLike(draft{
		Spec:       Spec{Vocab: 120832, Hidden: 4096, FFN: 13312, Layers: 80, Heads: 64, KVHeads: 8, HeadDim: 128, MaxPositions: 131072, QKNorm: HeadQKNorm},
		moe:        MoE{Experts: 192, TopK: 8, FFN: 1536, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true, WideSum: true},
		denseFirst: 1,
	})},
	{name: "exaone_moe", keys: llamaKeys + windowKeys + expertKeys + sharedKeys + " sliding_window_pattern=window_letters num_shared_experts=n_shared_experts mlp_layer_types first_last_k_dense_replace= is_moe_layer=" +
		" mtp_loss_scaling_factor= mtp_share_layers=", base: llamaLike(draft{
		Spec:      Spec{Vocab: 102400, Hidden: 4096, FFN: 16384, Layers: 32, Heads: 32, KVHeads: 32, MaxPositions: 2048, QKNorm: HeadQKNorm, Window: 4096},
		moe:       MoE{Experts: 64, TopK: 8, FFN: 1024, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true},
		useWindow: true, windowPattern: 4, windowTurns: true, denseFirst: 1,
	})},
	{name: "ernie4_5_moe", keys: llamaKeys + expertKeys + " use_bias=bias moe_intermediate_size moe_k=num_experts_per_tok moe_num_experts=num_experts moe_num_shared_experts=n_shared_experts" +
		" moe_layer_start_index=first_k_dense_replace moe_layer_end_index moe_layer_interval=decoder_sparse_step moe_norm_min= moe_capacity= moe_gate= moe_use_aux_free= num_nextn_predict_layers use_rmsnorm==true", base: llamaLike(draft{
		Spec:       Spec{Vocab: 103424, Hidden: 2560, FFN: 12288, Layers: 28, Heads: 20, KVHeads: 4, MaxPositions: 131072, Tied: true, Turn: TurnPairsMixed},
		moe:        MoE{Experts: 64, TopK: 6, FFN: 1536, Shared: 2, Corrected: true, NormTopK: true},
		denseFirst: 1,
	})},
	// One norm for attention and MLP where they run side by side, and dropout of the MLP's output alone.
	{name: "stablelm", keys: llamaKeys + " partial_rotary_factor rope_parameters use_qkv_bias=qkv_bias qk_layernorm=single_head_norms use_parallel_residual hidden_dropout=residual_dropout rotary_scaling_factor= use_norm_bias=", base: llamaLike(draft{
		Spec:           Spec{Vocab: 50304, Hidden: 2560, FFN: 6912, Layers: 32, Heads: 32, KVHeads: 32, MaxPositions: 4096, Norm: LayerNorm, Parallel: ParallelOneNorm, Undropped: RoleO},
		rotaryFraction: 0.25,
	})},
	{name: "jais2", keys: llamaKeys + " attention_bias mlp_bias", base: ungatedLlama(biased(draft{
		Spec: Spec{Vocab: 150272, Hidden: 3328, FFN: 26624, Layers: 32, Heads: 26, MaxPositions: 8192, Activation: ReLU2, Norm: LayerNorm},
	}))},
	{name: "apertus", keys: llamaKeys + " attention_bias hidden_dropout= mlp_bias= post_norm= qk_norm=", base: ungatedLlama(draft{
		Spec: Spec{Vocab: 131072, Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, MaxPositions: 65536, Activation: XIELU, QKNorm: HeadQKNorm},
	})},
	{name: "phimoe", keys: mixtralMoE + windowKeys + " attention_bias lm_head_bias=head_bias input_jitter_noise hidden_dropout= expert_dropout= original_max_position_embeddings=", base: llamaLike(draft{
		Spec:      Spec{Vocab: 32064, Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 131072, Norm: LayerNorm},
		moe:       MoE{Experts: 16, TopK: 2, FFN: 6400, Sampled: true},
		useWindow: true,
	})},
	{name: "smollm3", keys: llamaKeys + windowKeys + " use_sliding_window no_rope_layers no_rope_layer_interval max_window_layers= attention_bias mlp_bias", base: llamaLike(draft{
		Spec:        Spec{Vocab: 128256, Hidden: 2048, FFN: 11008, Layers: 36, Heads: 16, KVHeads: 4, MaxPositions: 32768, Tied: true},
		noRopeEvery: 4,
	})},
	{name: "granite", keys: llamaKeys + " attention_bias mlp_bias" + multiplierKeys, base: llamaLike(draft{
		Spec: Spec{Vocab: 32000, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, EmbedScale: true, ResidScale: true, LogitScale: true},
	})},
	// Granite with a norm of what each block adds, and logits times a factor, not divided by one.
	{name: "hyperclovax", keys: llamaKeys + " attention_bias mlp_bias use_post_norm" + multiplierKeys, base: llamaLike(draft{
		Spec:     Spec{Vocab: 32000, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, EmbedScale: true, ResidScale: true, LogitScale: true},
		postNorm: true,
	})},
	{name: "seed_oss", keys: llamaKeys + " attention_bias=qkv_bias attention_out_bias=out_bias mlp_bias residual_dropout", base: llamaLike(draft{
		Spec: Spec{Vocab: 155136, Hidden: 4096, FFN: 27648, Layers: 64, Heads: 80, KVHeads: 8, HeadDim: 128, MaxPositions: 524288, QKVBias: true, AttnDropout: 0.1, ResidDropout: 0.1},
	})},
	{name: "mixtral", keys: mixtralMoE + windowKeys, base: llamaLike(draft{
		Spec:      Spec{Vocab: 32000, Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 131072},
		moe:       MoE{Experts: 8, TopK: 2, FFN: 14336, NormTopK: true},
		useWindow: true,
	})},

	{name: "qwen2_vl", text: "qwen2", encoder: "qwen2_vl_vision"},
	{name: "qwen2_5_vl", text: "qwen2", encoder: "qwen2_5_vl_vision"},
	{name: "qwen2", also: "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text", keys: qwenKeys + " max_window_layers", base: llamaLike(draft{
		Spec:       Spec{Vocab: 151936, Hidden: 4096, FFN: 22016, Layers: 32, Heads: 32, KVHeads: 32, MaxPositions: 32768, QKVBias: true, Window: 4096},
		windowFrom: 28,
	})},
	{name: "qwen2_moe", keys: qwenKeys + qwenMoE + " max_window_layers=window_until qkv_bias shared_expert_intermediate_size", base: llamaLike(draft{
		Spec:          Spec{Vocab: 151936, Hidden: 2048, FFN: 5632, Layers: 24, Heads: 16, KVHeads: 16, MaxPositions: 32768, QKVBias: true, Window: 4096},
		moe:           MoE{Experts: 60, TopK: 4, FFN: 1408, SharedFFN: 5632, SharedGate: true, LowRouter: true},
		windowPattern: 2, windowUntil: 28,
	})},
	{name: "qwen3_vl", text: "qwen3", encoder: "qwen3_vl_vision"},
	{name: "qwen3", also: "qwen3_vl_text", keys: qwenKeys + " max_window_layers attention_bias", base: llamaLike(draft{
		Spec:       Spec{Vocab: 151936, Hidden: 4096, FFN: 22016, Layers: 32, Heads: 32, KVHeads: 32, HeadDim: 128, MaxPositions: 32768, QKNorm: HeadQKNorm, Window: 4096},
		windowFrom: 28,
	})},
	{name: "qwen3_vl_moe", text: "qwen3_moe", encoder: "qwen3_vl_vision"},
	{name: "qwen3_moe", also: "qwen3_vl_moe_text qwen3_omni_moe_text", keys: qwenKeys + qwenMoE + " max_window_layers= attention_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 151936, Hidden: 2048, FFN: 6144, Layers: 24, Heads: 32, KVHeads: 4, MaxPositions: 32768, QKNorm: HeadQKNorm, Window: 4096},
		moe:  MoE{Experts: 128, TopK: 8, FFN: 768, LowRouter: true},
	})},
	{name: "mellum", keys: llamaKeys + windowKeys + expertKeys + " moe_intermediate_size mlp_layer_types attention_bias", base: llamaLike(draft{
		Spec:      Spec{Vocab: 98304, Hidden: 2304, FFN: 7168, Layers: 28, Heads: 32, KVHeads: 4, HeadDim: 128, MaxPositions: 131072, QKNorm: HeadQKNorm, Window: 1024},
		moe:       MoE{Experts: 64, TopK: 8, FFN: 896, NormTopK: true, LowRouter: true},
		useWindow: true, wholeEvery: 1,
	})},

	// Three layers of four are gated delta nets.
	{name: "qwen3_next", keys: nextKeys + qwenMoE + " shared_expert_intermediate_size", base: nextLike(draft{
		Spec:  Spec{Vocab: 151936, Hidden: 2048, FFN: 5632, Layers: 48, Heads: 16, KVHeads: 2},
		delta: Delta{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Conv: 4},
		moe:   MoE{Experts: 512, TopK: 10, FFN: 512, SharedFFN: 512, SharedGate: true, NormTopK: true, LowRouter: true},
	})},
	{name: "qwen3_5", text: "qwen3_5_text", encoder: "qwen3_5_vision"},
	{name: "qwen3_5_text", keys: nextKeys, base: nextLike(draft{
		Spec:  Spec{Vocab: 248320, Hidden: 4096, FFN: 12288, Layers: 32, Heads: 16, KVHeads: 4},
		delta: Delta{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Conv: 4},
	})},
	{name: "qwen3_5_moe", text: "qwen3_5_moe_text", encoder: "qwen3_5_vision"},
	{name: "qwen3_5_moe_text", keys: nextKeys + expertKeys + " moe_intermediate_size shared_expert_intermediate_size", base: nextLike(draft{
		Spec:  Spec{Vocab: 248320, Hidden: 2048, Layers: 40, Heads: 16, KVHeads: 2},
		delta: Delta{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Conv: 4},
		moe:   MoE{Experts: 256, TopK: 8, FFN: 512, SharedFFN: 512, SharedGate: true, NormTopK: true, LowRouter: true},
	})},

	{name: "gemma", keys: gemmaKeys + " hidden_act= num_image_tokens=", base: llamaLike(draft{
		Spec: Spec{Vocab: 256000, Hidden: 3072, FFN: 24576, Layers: 28, Heads: 16, KVHeads: 16, HeadDim: 256, MaxPositions: 8192,
			Activation: GELUTanh, Norm: GemmaRMSNorm, Tied: true, EmbedScale: true},
	})},
	{name: "paligemma", text: "gemma", keys: " hidden_size= projection_dim= vocab_size="},
	{name: "gemma2", keys: gemmaKeys + windowKeys + " hidden_act= attn_logit_softcapping final_logit_softcapping", base: llamaLike(draft{
		Spec: Spec{Vocab: 256000, Hidden: 2304, FFN: 9216, Layers: 26, Heads: 8, KVHeads: 4, HeadDim: 256, MaxPositions: 8192,
			Activation: GELUTanh, Norm: GemmaRMSNorm, Place: Sandwich, Tied: true, EmbedScale: true, Window: 4096},
		attnCap: 50, logitCap: 30, useWindow: true, windowPattern: 2,
	})},
	// Gemma 2 without norms of what blocks add.
	{name: "vaultgemma", keys: gemmaKeys + windowKeys + " hidden_act= attn_logit_softcapping final_logit_softcapping", base: llamaLike(draft{
		Spec: Spec{Vocab: 256000, Hidden: 2304, FFN: 9216, Layers: 26, Heads: 8, KVHeads: 4, HeadDim: 256, MaxPositions: 8192,
			Activation: GELUTanh, Norm: GemmaRMSNorm, Tied: true, EmbedScale: true, Window: 4096},
		attnCap: 50, logitCap: 30, useWindow: true, windowPattern: 2,
	})},
	{name: "gemma3", text: "gemma3_text", encoder: "siglip_vision_model"},
	{name: "gemma3_text", keys: gemmaKeys + windowKeys + " hidden_act= attn_logit_softcapping final_logit_softcapping sliding_window_pattern", base: llamaLike(draft{
		Spec: Spec{Vocab: 262208, Hidden: 2304, FFN: 9216, Layers: 26, Heads: 8, KVHeads: 4, HeadDim: 256, MaxPositions: 131072,
			Activation: GELUTanh, Norm: GemmaRMSNorm, Place: Sandwich, QKNorm: HeadQKNorm, Tied: true, EmbedScale: true, Window: 4096},
		useWindow: true, windowPattern: 6,
	})},

	{name: "gemma4", text: "gemma4_text"},
	{name: "gemma4_unified", text: "gemma4_unified_text"},
	{name: "gemma4_text", keys: gemma4Keys + expertKeys + " moe_intermediate_size expert_intermediate_size=moe_intermediate_size top_k_experts=num_experts_per_tok" +
		" hidden_size_per_layer_input num_kv_shared_layers enable_moe_block use_double_wide_mlp vocab_size_per_layer_input", base: gemma4Like(draft{
		Spec:     Spec{MaxPositions: 131072, Window: 512},
		perLayer: PerLayer{Width: 256, Vocab: 262144},
	})},
	// The language model of one that has no encoder of images (Gemma 4 12B).
	{name: "gemma4_unified_text", keys: gemma4Keys + " hidden_size_per_layer_input==0 num_kv_shared_layers==0 enable_moe_block==false use_double_wide_mlp= vocab_size_per_layer_input=", base: gemma4Like(draft{
		Spec: Spec{MaxPositions: 262144, Window: 1024},
	})},

	{name: "phi3", keys: llamaKeys + windowKeys + " partial_rotary_factor rope_parameters embd_pdrop=embedding_dropout resid_pdrop=residual_dropout full_attn_mod==1 interpolate_factor=", base: llamaLike(draft{
		Spec:      Spec{Vocab: 32064, Hidden: 3072, FFN: 8192, Layers: 32, Heads: 32, MaxPositions: 4096, FusedQKV: true, FusedGateUp: true, TurnJoins: true, QKVSlices: true},
		useWindow: true,
	})},
	{name: "olmo", keys: llamaKeys + " attention_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 50304, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, Norm: PlainNorm, Turn: TurnFP32},
	})},
	{name: "olmo2", keys: llamaKeys + " attention_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 50304, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, Norm: WideRMSNorm, Place: PostNorm, QKNorm: FullQKNorm, Turn: TurnFP32},
	})},
	{name: "olmo3", keys: llamaKeys + windowKeys + " attention_bias rope_parameters", base: llamaLike(draft{
		Spec:      Spec{Vocab: 50304, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 2048, Norm: WideRMSNorm, Place: PostNorm, QKNorm: FullQKNorm, Turn: TurnFP32, Window: 4096},
		useWindow: true, windowPattern: 4,
	})},
	{name: "minimax_m2", keys: mixtralMoE + " rotary_dim partial_rotary_factor rope_parameters use_qk_norm==true qk_norm_type==per_layer use_routing_bias==true attn_type_list==1 shared_intermediate_size==0 shared_moe_mode= mlp_intermediate_size= use_mtp= num_mtp_modules= mtp_transformer_layers= layernorm_full_attention_beta= layernorm_linear_attention_beta= layernorm_mlp_beta= postnorm= max_model_len=", base: llamaLike(draft{
		Spec:           Spec{Vocab: 200064, Hidden: 3072, Layers: 62, Heads: 48, KVHeads: 8, HeadDim: 128, MaxPositions: 196608, QKNorm: FullQKNorm},
		moe:            MoE{Experts: 256, TopK: 8, FFN: 1536, Router: SigmoidRouter, RouterBias: true, LowRouter: true, NormTopK: true},
		rotaryFraction: 0.5,
	})},
	{name: "olmoe", keys: mixtralMoE + " attention_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 50304, Hidden: 2048, Layers: 16, Heads: 16, MaxPositions: 4096, QKNorm: FullQKNorm},
		moe:  MoE{Experts: 64, TopK: 8, FFN: 2048, LowRouter: true},
	})},
	{name: "flex_olmo", keys: mixtralMoE + " attention_bias", base: llamaLike(draft{
		Spec: Spec{Vocab: 100352, Hidden: 4096, Layers: 32, Heads: 32, MaxPositions: 4096, Norm: WideRMSNorm, Place: PostNorm, QKNorm: FullQKNorm, Turn: TurnFP32},
		moe:  MoE{Experts: 7, TopK: 5, FFN: 11008, LowRouter: true},
	})},
	{name: "gpt_oss", keys: mixtralMoE + windowKeys + " attention_bias experts_per_token=num_experts_per_tok rope_scaling rope_parameters=rope_scaling", base: llamaLike(draft{
		Spec: Spec{Vocab: 201088, Hidden: 2880, Layers: 36, Heads: 64, KVHeads: 8, HeadDim: 64, MaxPositions: 131072,
			Norm: WideRMSNorm, QKVBias: true, OutBias: true, Sinks: true, Turn: TurnParts, TurnScaled: true, Window: 128},
		moe:       MoE{Experts: 128, TopK: 4, FFN: 2880, RouterBias: true, ExpertBias: true, Transposed: true, NormTopK: true, Clamped: true},
		useWindow: true, windowPattern: 2,
	})},

	{name: "deepseek_v2", keys: deepseekKeys, base: llamaLike(draft{
		Spec: Spec{Vocab: 102400, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, VDim: 128, MaxPositions: 2048, Turn: TurnParts},
		mla:  MLA{QLora: 1536, KVLora: 512, Rope: 64, Nope: 128},
		moe:  MoE{Experts: 64, FFN: 1407, Shared: 2},
	})},
	{name: "kimi_k25", text: "deepseek_v3", keys: " media_placeholder_token_id= projection_hidden_size= projection_layer_norm_eps= use_unified_vision_chunk= video_placeholder="},
	{name: "deepseek_v3", also: "kimi_k2", keys: deepseekKeys + noIndexKeys, base: llamaLike(draft{
		Spec:       Spec{Vocab: 129280, Hidden: 7168, FFN: 18432, Layers: 61, Heads: 128, VDim: 128, MaxPositions: 4096, MTPLayers: 1, Turn: TurnParts},
		mla:        MLA{QLora: 1536, KVLora: 512, Rope: 64, Nope: 128},
		moe:        MoE{Experts: 256, TopK: 8, FFN: 2048, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true},
		denseFirst: 3,
	})},
	{name: "deepseek_v32", keys: deepseekKeys + indexKeys, base: llamaLike(draft{
		Spec:       Spec{Vocab: 129280, Hidden: 7168, FFN: 18432, Layers: 61, Heads: 128, VDim: 128, MaxPositions: 163840, MTPLayers: 1, Turn: TurnPairParts, KeysCopied: true},
		mla:        MLA{QLora: 1536, KVLora: 512, Rope: 64, Nope: 128},
		indexer:    Indexer{Heads: 64, HeadDim: 128, TopK: 2048},
		moe:        MoE{Experts: 256, TopK: 8, FFN: 2048, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true, Groups: 8, TopGroups: 4},
		denseFirst: 3,
	})},
	{name: "deepseek_v4", keys: coreKeys + groupKeys + expertKeys + pickKeys + " moe_intermediate_size intermediate_size=moe_intermediate_size n_shared_experts num_nextn_predict_layers n_routed_experts=num_experts q_lora_rank qk_rope_head_dim partial_rotary_factor" +
		" compress_ratios compress_rates layer_types sliding_window o_groups o_lora_rank hc_mult hc_sinkhorn_iters= hc_eps= compress_rope_theta= num_hash_layers= mlp_layer_types= expert_dtype= attention_bias mlp_bias", base: llamaLike(draft{
		Spec:     Spec{Vocab: 129280, Hidden: 4096, Layers: 43, Heads: 64, KVHeads: 1, HeadDim: 512, MaxPositions: 1048576, MTPLayers: 1, Turn: TurnPairParts, Sinks: true, Streams: 4, Window: 128},
		mla:      MLA{QLora: 1024},
		compress: Compress{Groups: 8, Out: 1024, Picked: 4},
		indexer:  Indexer{Heads: 64, HeadDim: 128, TopK: 512, Pairs: true},
		moe:      MoE{Experts: 256, TopK: 6, FFN: 2048, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true, Clamped: true},
	})},
	{name: "glm_moe_dsa", keys: deepseekKeys + indexKeys + " index_share_for_mtp_iteration= moe_router_dtype==float32", base: llamaLike(draft{
		Spec:       Spec{Vocab: 154880, Hidden: 6144, FFN: 12288, Layers: 78, Heads: 64, VDim: 256, MaxPositions: 202752, MTPLayers: 1, Turn: TurnPairParts, KeysCopied: true},
		mla:        MLA{QLora: 2048, KVLora: 512, Rope: 64, Nope: 192},
		indexer:    Indexer{Heads: 32, HeadDim: 128, TopK: 2048, Pairs: true},
		indexFrom:  2,
		moe:        MoE{Experts: 256, TopK: 8, FFN: 2048, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true},
		denseFirst: 3,
	})},
	{name: "glm4_moe_lite", keys: deepseekKeys + " mlp_layer_types partial_rotary_factor=", base: llamaLike(draft{
		Spec:       Spec{Vocab: 154880, Hidden: 2048, FFN: 10240, Layers: 47, Heads: 20, VDim: 256, MaxPositions: 202752, Turn: TurnPairParts, KeysCopied: true},
		mla:        MLA{QLora: 768, KVLora: 512, Rope: 64, Nope: 192},
		moe:        MoE{Experts: 64, TopK: 4, FFN: 1536, Shared: 1, Router: SigmoidRouter, RouterBias: true, NormTopK: true},
		denseFirst: 1,
	})},
	{name: "youtu", keys: denseKeys + latentKeys + " attention_dropout attention_bias num_key_value_heads= head_dim= qk_head_dim= mlp_bias embedding_initializer_range=", base: llamaLike(draft{
		Spec: Spec{Vocab: 128256, Hidden: 2048, FFN: 6144, Layers: 32, Heads: 16, VDim: 128, MaxPositions: 131072, Tied: true, Turn: TurnPairParts, KeysCopied: true},
		mla:  MLA{QLora: 1536, KVLora: 512, Rope: 64, Nope: 128},
	})},
	{name: "glm4v_moe", text: "glm4v_moe_text", keys: glmImageKeys},
	{name: "glm4_moe", keys: glmMoEKeys, base: glmMoELike(draft{Spec: Spec{Vocab: 151552, MaxPositions: 131072}})},
	{name: "glm4v_moe_text", keys: glmMoEKeys, base: glmMoELike(draft{Spec: Spec{Vocab: 151424, MaxPositions: 65536, QKVBias: true}})},

	// Llama 4 turns three layers of four into chunked attention; the fourth has no
	// rotary embedding. Here it has, which is 0.1 to 0.3 % of a step of Maverick; left out are
	// the norm without parameters of turned queries and keys and the factor on the fourth's.
	{name: "llama4", text: "llama4_text"},
	{name: "llama4_text", keys: mixtralMoE + " attention_bias intermediate_size_mlp=intermediate_size attention_chunk_size=sliding_window no_rope_layers= no_rope_layer_interval=sliding_window_pattern layer_types interleave_moe_layer_step=decoder_sparse_step moe_layers", base: llamaLike(draft{
		Spec:      Spec{Vocab: 202048, Hidden: 5120, FFN: 16384, Layers: 48, Heads: 40, KVHeads: 8, HeadDim: 128, MaxPositions: 131072, Window: 8192, Chunked: true},
		moe:       MoE{Experts: 16, TopK: 1, FFN: 8192, Shared: 1, Router: SigmoidRouter, Transposed: true},
		useWindow: true, windowPattern: 4,
	})},

	// Each layer is one block: a state-space mixer (M), attention without positions (*), an
	// MLP (-) or experts (E).
	{name: "nemotron_h", keys: denseKeys + groupKeys + expertKeys + stateKeys + " hybrid_override_pattern layers_block_type layer_types=layers_block_type hybrid_layer_pattern=hybrid_override_pattern" +
		" ssm_state_size=mamba_state_dim mamba_num_heads mamba_head_dim mamba_proj_bias= mamba_hidden_act= mamba_ssm_cache_dtype= mlp_hidden_act=hidden_act hidden_act= attention_head_dim=head_dim" +
		" mamba_n_groups=mamba_num_groups mamba_d_conv=mamba_conv_kernel mamba_expand mamba_conv_bias mamba_chunk_size" +
		" mlp_bias attention_bias n_routed_experts=num_experts n_shared_experts moe_intermediate_size moe_shared_expert_intermediate_size=shared_expert_intermediate_size moe_latent_size moe_shared_expert_overlap=" +
		" partial_rotary_factor= num_nextn_predict_layers mtp_hybrid_override_pattern= mtp_layers_block_type= mtp_use_repeated_layer keep_mtp_spec_in_bf16= mtp_loss_scaling_factor= hidden_dropout=residual_dropout sliding_window=", base: draft{
		Spec: Spec{Vocab: 131072, Hidden: 4096, FFN: 21504, Heads: 32, KVHeads: 8, HeadDim: 128, MaxPositions: 4096,
			Activation: ReLU2, Norm: RMSNorm, Place: PreNorm, Position: NoPosition},
		mamba: Mamba{Heads: 128, HeadDim: 64, Groups: 8, State: 128, Conv: 4, Chunk: 128, ConvBias: true},
		moe:   MoE{Router: SigmoidRouter, RouterBias: true, NormTopK: true},
	}},
	{name: "gpt2", keys: gptKeys, base: gptLike(biased(draft{
		Spec: Spec{Vocab: 50257, Hidden: 768, Layers: 12, Heads: 12, MaxPositions: 1024, Activation: GELUNew, Position: LearnedPosition,
			FusedQKV: true, TransposedWeights: true, Tied: true, EmbedDropout: 0.1, AttnDropout: 0.1, ResidDropout: 0.1, LossApart: true},
	}))},
	{name: "gpt_bigcode", keys: gptKeys + " multi_query scale_attention_softmax_in_fp32= num_key_value_heads= attention_softmax_in_fp32= inference_runner= validate_runner_input= pre_allocate_kv_cache= max_batch_size= max_sequence_length= runner_max_sequence_length=", base: gptLike(biased(draft{
		Spec: Spec{Vocab: 50257, Hidden: 768, Layers: 12, Heads: 12, MaxPositions: 1024, Activation: GELUTanh, Position: LearnedPosition,
			FusedQKV: true, QKVHeads: true, Tied: true, EmbedDropout: 0.1, AttnDropout: 0.1, ResidDropout: 0.1},
		multiQuery: true,
	}))},
	{name: "gptj", keys: gptKeys + " rotary_dim", base: gptLike(draft{
		Spec: Spec{Vocab: 50400, Hidden: 4096, Layers: 28, Heads: 16, MaxPositions: 2048, Activation: GELUNew, Position: Rotary, RotaryDim: 64,
			Parallel: ParallelOneNorm, MLPBias: true, HeadBias: true},
		parallel: true,
	})},
	{name: "gpt_neox", keys: denseKeys + " use_parallel_residual attention_bias attention_dropout hidden_dropout rotary_pct=partial_rotary_factor rope_parameters attention_probs_dropout_prob= hidden_dropout_prob=", base: gptLike(biased(draft{
		Spec: Spec{Vocab: 50432, Hidden: 6144, FFN: 24576, Layers: 44, Heads: 64, MaxPositions: 2048, Position: Rotary,
			Parallel: ParallelTwoNorm, FusedQKV: true, QKVHeads: true},
		parallel: true, rotaryFraction: 0.25,
	}))},
	{name: "starcoder2", keys: denseKeys + groupKeys + " activation_function= mlp_type= norm_type= scale_attention_softmax_in_fp32= use_bias=bias sliding_window rope_parameters embedding_dropout residual_dropout", base: gptLike(biased(draft{
		Spec:      Spec{Vocab: 49152, Hidden: 3072, FFN: 12288, Layers: 30, Heads: 24, KVHeads: 2, MaxPositions: 4096, Activation: GELUTanh, Position: Rotary, Tied: true},
		useWindow: true,
	}))},
	{name: "nemotron", keys: denseKeys + groupKeys + " kv_channels=head_dim partial_rotary_factor partial_rotary_percent=partial_rotary_factor rope_percent=partial_rotary_factor rope_parameters attention_bias mlp_bias", base: gptLike(draft{
		Spec:           Spec{Vocab: 256000, Hidden: 6144, FFN: 24576, Layers: 32, Heads: 48, MaxPositions: 4096, Activation: ReLU2, Norm: LayerNorm1P, Position: Rotary},
		rotaryFraction: 0.5,
	})},
	{name: "phi", keys: denseKeys + " num_key_value_heads attention_dropout partial_rotary_factor rope_parameters qk_layernorm embd_pdrop=embedding_dropout resid_pdrop=residual_dropout", base: gptLike(biased(draft{
		Spec: Spec{Vocab: 51200, Hidden: 2048, FFN: 8192, Layers: 24, Heads: 32, MaxPositions: 2048, Activation: GELUNew, Position: Rotary,
			Parallel: ParallelOneNorm, HeadBias: true},
		parallel: true, rotaryFraction: 0.5,
	}))},
	{name: "falcon", keys: denseKeys + " n_embed=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads num_kv_heads=num_key_value_heads n_head_kv=num_key_value_heads ffn_hidden_size=intermediate_size ff_factor=expansion_ratio activation=hidden_act attention_dropout hidden_dropout=residual_dropout alibi new_decoder_architecture multi_query parallel_attn=use_parallel_residual num_ln_in_parallel_attn bias", base: gptLike(draft{
		Spec: Spec{Vocab: 65024, Hidden: 4544, Layers: 32, Heads: 71, MaxPositions: 2048, Position: Rotary,
			Parallel: ParallelOneNorm, FusedQKV: true, Tied: true, KVLists: true},
		parallel: true, multiQuery: true,
	})},
	// BLOOM writes its own tanh GELU out in elementwise kernels.
	{name: "bloom", keys: denseKeys + " n_embed=hidden_size n_embd=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads n_inner= attention_dropout hidden_dropout=residual_dropout", base: gptLike(biased(draft{
		Spec: Spec{Vocab: 250880, Hidden: 64, Layers: 2, Heads: 8, MaxPositions: 2048, Activation: GELUNew, Position: ALiBi,
			FusedQKV: true, Tied: true, EmbedNorm: true},
	}))},
	{name: "opt", keys: coreKeys + " d_model=hidden_size ffn_dim=intermediate_size activation_function=hidden_act attention_dropout dropout=residual_dropout enable_bias=bias word_embed_proj_dim", base: gptLike(biased(draft{
		Spec: Spec{Vocab: 50272, Hidden: 768, FFN: 3072, Layers: 12, Heads: 12, MaxPositions: 2048, Activation: ReLU, Position: LearnedPosition,
			Tied: true, ResidDropout: 0.1, IdlePositions: 2},
	}))},
	{name: "biogpt", keys: denseKeys + " hidden_dropout_prob=hidden_dropout attention_probs_dropout_prob=attention_dropout scale_embedding==true", base: gptLike(biased(draft{
		Spec: Spec{Vocab: 42384, Hidden: 1024, FFN: 4096, Layers: 24, Heads: 16, MaxPositions: 1024, Position: LearnedPosition,
			Tied: true, EmbedScale: true, EmbedDropout: 0.1, AttnDropout: 0.1, ResidDropout: 0.1, IdlePositions: 2},
	}))},
	// Encoders, whose tokens all see each other, with the head of their ForMaskedLM.
	{name: "bert", keys: bertKeys, base: bertLike(Spec{Vocab: 30522, TypeVocab: 2})},
	{name: "ernie", keys: bertKeys + " use_task_id==false task_type_vocab_size=", base: bertLike(Spec{Vocab: 30522, TypeVocab: 2})},
	{name: "distilbert", keys: coreKeys + " dim=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads hidden_dim=intermediate_size activation=hidden_act dropout=hidden_dropout attention_dropout" +
		" sinusoidal_pos_embds==false qa_dropout= seq_classif_dropout= tie_weights_==true", base: bertLike(Spec{Vocab: 30522, Layers: 6, Undropped: RoleO})},
	{name: "roberta", keys: bertKeys, base: bertLike(Spec{Vocab: 50265, TypeVocab: 2})},
	{name: "xlm-roberta", also: "camembert", keys: bertKeys, base: bertLike(Spec{Vocab: 30522, TypeVocab: 2})},
	{name: "data2vec-text", keys: bertKeys, base: bertLike(Spec{Vocab: 30522, TypeVocab: 2})},
	{name: "roberta-prelayernorm", keys: bertKeys, base: preNormed(bertLike(Spec{Vocab: 50265, TypeVocab: 2}), true)},
	{name: "xlm-roberta-xl", keys: bertKeys, base: preNormed(bertLike(Spec{Vocab: 250880, Hidden: 2560, FFN: 10240, Layers: 36, Heads: 32, MaxPositions: 514, TypeVocab: 1, Undropped: RoleDown}), false)},
	{name: "eurobert", keys: llamaKeys + " attention_bias mlp_bias==false classifier_pooling= clf_pooling= hidden_dropout==0 bos_token= eos_token= pad_token= mask_token=", base: llamaLike(draft{
		Spec: Spec{Vocab: 128256, Hidden: 768, FFN: 3072, Layers: 12, Heads: 12, MaxPositions: 8192, Bidirectional: true},
	})},
	{name: "modernbert", keys: llamaKeys + " hidden_activation=hidden_act hidden_act= num_key_value_heads= head_dim= attention_bias mlp_bias norm_bias==false layer_types local_attention=sliding_window global_attn_every_n_layers=whole_every" +
		" embedding_dropout mlp_dropout==0 classifier_bias==false decoder_bias=head_bias position_embedding_type= rope_parameters= local_rope_theta= global_rope_theta= norm_eps= classifier_pooling= classifier_activation= deterministic_flash_attn= sparse_prediction==false sparse_pred_ignore_index= reference_compile= repad_logits_with_grad= initializer_cutoff_factor=", base: encoderLike(draft{
		Spec: Spec{Vocab: 50368, Hidden: 768, FFN: 1152, Layers: 22, Heads: 12, MaxPositions: 8192, Norm: LayerNormNoB, Place: PreNorm, Position: Rotary, Turn: TurnFloats,
			Gated: true, FusedQKV: true, FusedGateUp: true, FirstBare: true, Window: 128},
		useWindow: true, wholeEvery: 3,
	})},
	// Nested and what its own code reads (llm-foundry) beside what transformers' class does, which
	// knows neither shared keys nor rotary embedding.
	{name: "mpt", keys: coreKeys + mptAttention + " d_model=hidden_size n_heads=num_attention_heads n_layers=num_hidden_layers max_seq_len=max_position_embeddings expansion_ratio emb_pdrop=embedding_dropout resid_pdrop= no_bias learned_pos_emb norm_type ffn_config=. ffn_config.ffn_type==mptmlp ffn_config.fc_type= fc_type=", base: gptLike(biased(draft{
		Spec:     Spec{Vocab: 50368, Hidden: 2048, Layers: 24, Heads: 16, MaxPositions: 2048, Position: NoPosition, FusedQKV: true, Tied: true},
		attnType: ownKeys, alibi: true, learned: true, noBias: true,
	}))},
	{name: "t5", keys: t5Keys, base: t5Like(draft{Spec: Spec{Vocab: 32128, FFN: 2048, Heads: 8, Activation: ReLU}, encoderLayers: 6})},
	{name: "mt5", keys: t5Keys, base: t5Like(draft{Spec: Spec{Vocab: 250112, FFN: 1024, Heads: 6, Activation: GELUNew, Gated: true}, encoderLayers: 8})},
	{name: "umt5", keys: t5Keys, base: t5Like(draft{Spec: Spec{Vocab: 250112, FFN: 1024, Heads: 6, Activation: GELUNew, Gated: true, OwnBiases: true}, encoderLayers: 8})},
	{name: "bart", keys: bartKeys, base: bartLike(draft{Spec: Spec{Place: SumNorm}})},
	{name: "mbart", keys: bartKeys, base: bartLike(draft{Spec: Spec{Place: PreNorm}})},
	{name: "marian", keys: bartKeys + " share_encoder_decoder_embeddings==true decoder_vocab_size=", base: bartLike(draft{Spec: Spec{Vocab: 58101, Place: SumNorm, StillPositions: true}})},
	{name: "pegasus", keys: bartKeys, base: bartLike(draft{Spec: Spec{Place: PreNorm, StillPositions: true}})},
	{name: "m2m_100", keys: bartKeys, base: bartLike(draft{Spec: Spec{Vocab: 128112, Place: PreNorm, Position: Sinusoidal, Activation: ReLU}})},
	// Classes of the hub's own. Those of Baichuan whose files have max_position_embeddings turn queries and keys.
	{name: "baichuan", keys: " hidden_size num_hidden_layers num_attention_heads vocab_size intermediate_size hidden_act tie_word_embeddings max_position_embeddings=turned_positions z_loss_weight", base: llamaLike(draft{
		Spec:  Spec{Vocab: 64000, Hidden: 4096, FFN: 11008, Layers: 32, Heads: 32, MaxPositions: 4096, FusedQKV: true, QKVSlices: true, HeadMasks: true},
		alibi: true, normedVocab: 125696,
	})},
	{name: "qwen", keys: coreKeys + " intermediate_size=gate_and_up kv_channels=head_dim no_bias==true rotary_pct=partial_rotary_factor attn_dropout_prob=attention_dropout emb_dropout_prob=embedding_dropout" +
		" n_embd=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads n_positions=max_position_embeddings ffn_hidden_size=gate_and_up padded_vocab_size= attn_pdrop=attention_dropout embd_pdrop=embedding_dropout resid_pdrop=" +
		" use_logn_attn= use_dynamic_ntk= use_cache_quantization= use_cache_kernel= softmax_in_fp32= bf16= fp16= fp32= onnx_safe= params_dtype= pos_emb= tokenizer_type=", base: llamaLike(draft{
		Spec:      Spec{Vocab: 151936, Hidden: 4096, Layers: 32, Heads: 32, MaxPositions: 8192, QKVBias: true, FusedQKV: true, Turn: TurnJoined, TurnFirst: true, Masked: true},
		gateAndUp: 22016,
	})},

	// The generic form: every size must be given. gated_mlp false takes the next row.
	{name: "decoder", keys: decoderKeys, base: llamaLike(draft{useWindow: true, parallel: true, mamba: genericMamba, delta: genericDelta, conv: genericShort, mixes: genericWords})},
	{name: "decoder", keys: decoderKeys, base: gptLike(biased(draft{
		Spec:      Spec{Position: LearnedPosition, FusedQKV: true, Tied: true},
		useWindow: true, parallel: true, mamba: genericMamba, delta: genericDelta, conv: genericShort, mixes: genericWords,
	}))},
}

// genericMamba is what the generic form takes for given of a state-space mixer
// (megatron/core/transformer/transformer_config.py).
var genericMamba = Mamba{HeadDim: 64, Groups: 8, State: 128, Conv: 4, Chunk: 128, ConvBias: true}

// genericDelta is the same of a gated delta net.
var genericDelta = Delta{KeyDim: 128, ValueDim: 128, Conv: 4}

// genericShort is the same of a short convolution, as LFM2's class has it.
var genericShort = Short{Conv: 3}

// bambaMixer is the state-space mixer of Bamba and of Granite 4 (configuration_bamba.py).
var bambaMixer = Mamba{Heads: 128, Groups: 1, State: 256, Conv: 4, Chunk: 256, ConvBias: true}

// What words of layer_types say of the mixer of a layer, where it is not attention.
var (
	mambaWords   = map[string]Mixer{"mamba": MambaMixer, "linear_attention": MambaMixer}
	shortWords   = map[string]Mixer{"conv": ShortMixer}
	genericWords = map[string]Mixer{"linear_attention": DeltaMixer, "mamba": MambaMixer, "conv": ShortMixer}
)

// ungated is the second row of the generic form.
func ungated() *family { return &families[len(families)-1] }

// decoderKeys are the keys of the generic form: those of DESIGN.md section 4,
// and the switches that tell its two rows apart.
const decoderKeys = llamaKeys + latentKeys + pickKeys + " compress_ratios o_groups o_lora_rank hc_mult" + expertKeys + sharedKeys + windowKeys + mambaKeys + deltaKeys + " conv_L_cache conv_bias shared_expert_gate hybrid_layer_pattern=hybrid_override_pattern moe_latent_size mtp_use_repeated_layer" +
	" gated_mlp activation=hidden_act norm norm_placement parallel qk_norm position rotary_dim partial_rotary_factor no_rope_layer_interval" +
	" bias attention_bias qkv_bias out_bias mlp_bias head_bias einsum fused_qkv separate_heads fused_gate_up use_bidirectional_attention type_vocab_size embedding_norm head_dense" +
	" embedding_dropout residual_dropout sliding_window_pattern moe_layer_freq decoder_sparse_step mlp_only_layers" +
	" shared_expert_intermediate_size router"

// What stands for a canonical name where a key has none.
const (
	nested = "."
	fixed  = "="
)

// named reports whether a model_type is the family's.
func (f *family) named(name string) bool {
	return f.name == name || slices.Contains(strings.Fields(f.also), name)
}

// names maps each key the family knows, as a file spells it, to its canonical
// name; empty for keys without effect, nested for a mapping of keys, and fixed with the
// value for those of which one alone is modelled. A later word wins.
func (f *family) names() map[string]string {
	out := map[string]string{}
	for word := range strings.FieldsSeq(f.keys) {
		spelled, canonical, renamed := strings.Cut(word, "=")
		if !renamed {
			canonical = spelled
		}
		out[spelled] = canonical
	}
	return out
}
