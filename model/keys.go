package model

import (
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// draft is a Spec being read: the fields that keys set directly, and beside
// them the raw settings that finish turns into fields.
type draft struct {
	Spec

	mla     MLA     // used when KVLora is set
	indexer Indexer // used when TopK is set

	// Used when Groups is set. Ratios come as they are, or as kinds of layers whose ratios are apart.
	compress     Compress
	compressRate map[string]int64

	// Layers without an indexer of their own: by letters, F and S, or words, full and shared, which
	// win; or all from indexFrom on but every so many.
	indexEvery   int64
	indexFrom    int64
	indexPattern string
	indexTypes   []string
	moe          MoE // used when Experts is set

	mamba       Mamba // used when a layer has it
	delta       Delta // likewise
	deltaEvery  int64 // every so many layers one has attention, the others a gated delta net; 0: as layerTypes has it
	mambaExpand int64 // inner width over Hidden when mamba_num_heads is absent
	mambaInner  int64 // or that width itself
	conv        Short // likewise
	pattern     string
	blocks      []string

	// What mixes tokens in layers that have an MLP, too: by a word of layerTypes, which has no
	// default where listed; elsewhere than in those that attend, where these are known and it is not.
	mixes     map[string]Mixer
	listed    bool
	attends   []int64
	elsewhere Mixer

	activation     string  // hidden_act; empty: the family's
	expansion      int64   // FFN over Hidden when intermediate_size is absent
	rotaryFraction float64 // RotaryDim over HeadDim; 0: all of it
	headsFloor     bool    // a head's width is rounded down where heads do not divide Hidden
	attnCap        float64 // 0: none
	logitCap       float64 // 0: none
	alibi          bool
	postNorm       bool // HyperCLOVA X: Place is Sandwich
	headNorm       bool // QKNorm is HeadQKNorm
	eachNorm       bool // or EachQKNorm
	fullNorm       bool // or FullQKNorm
	singleNorms    bool // StableLM: a module for every head, of which none is modelled

	encoderLayers, encoderHeads, encoderFFN int64 // of an encoder of text, which a family has or has not
	encodes                                 bool

	vision     Vision  // of an encoder
	projected  int64   // out_hidden_size
	windowSize int64   // side of a window in pixels; 0: none
	fullLayers []int64 // without one

	// Layer i is windowed when from <= i < until (0: no limit) and it is not the
	// last of a group of pattern layers (0: no groups); layerTypes wins.
	useWindow     bool
	windowFrom    int64
	windowUntil   int64
	windowPattern int64 // every so many-th layer, the last of each group, has none
	wholeEvery    int64 // and the first of each group here
	layerTypes    []string
	windowTurns   bool // in a model with windows, layers without one leave the rotary embedding out

	// Layer i leaves the rotary embedding out when noRopeEvery divides i+1 (0: in
	// none); rope, 1 where it does not, wins.
	noRopeEvery int64
	rope        []int64

	// Layer i is sparse when i >= denseFirst, sparseEvery divides i, sparseStep
	// divides i+1 and denseLayers does not list it; sparseLayers wins.
	denseFirst   int64
	sparseEvery  int64
	sparseLast   int64 // the last sparse layer; 0 or less: the last of all
	sparseStep   int64
	denseLayers  []int64
	sparseLayers []int64
	jitter       float64  // input_jitter_noise
	mlpTypes     []string // "dense" or "sparse", layer by layer; wins too

	parallel      bool  // false turns the family's Parallel off
	parallelNorms int64 // Falcon: num_ln_in_parallel_attn
	multiQuery    bool  // Falcon: one key/value head
	blockFFN      int64 // LFM2: wins over intermediate_size
	twoThirds     bool  // LFM2: the MLP is two thirds as wide, times a factor, in multiples of so many
	ffnFactor     float64
	ffnMultiple   int64
	newDecoder    bool  // Falcon: grouped queries and two norms
	embedWidth    int64 // OPT: word_embed_proj_dim

	attnType     string  // MPT: how many query heads share a key
	noBias       bool    // MPT: neither linear layers nor norms have biases
	normType     string  // MPT: a word for Norm; empty: the family's
	positionType string  // Granite 4: rope, or nope for none, which null is too
	gateAndUp    int64   // widths of gate and up together
	zLoss        float64 // of squared logits, which Baichuan 2's class knows alone
	normedVocab  int64   // that of Baichuan 2, whose files need not say more
	turned       bool    // MPT: positions are rotary, and by a table only where they are neither that nor ALiBi
	learned      bool

	global   Global   // Gemma 4
	perLayer PerLayer // likewise
	sharedKV int64    // num_kv_shared_layers
	beside   bool     // enable_moe_block: experts beside the MLP of every layer
}

// key is one key of a configuration file under its canonical name: where its
// value goes and which values are allowed.
type key struct {
	name     string
	min, max int64    // range of a number; max 0: not checked
	one      []string // allowed words
	optional bool     // null means "none"; elsewhere null means the default
	to       func(*draft) []any
}

// Caps on sizes. They are far beyond any model and keep the product of the
// dimensions of one tensor inside int64.
const (
	maxLayers  = 10_000
	maxHeads   = 100_000
	maxHidden  = 1_000_000
	maxFFN     = 10_000_000
	maxVocab   = 100_000_000
	maxSeq     = 1_000_000_000
	maxExperts = 65_536

	// maxParameters bounds a whole model, so that sums stay inside int64 too.
	maxParameters = 1e15
)

// keys are all keys that change what is computed. Which family knows which key,
// and by what name, is in families.go.
var keys = []key{
	{name: "hidden_size", min: 1, max: maxHidden, to: func(d *draft) []any { return []any{&d.Hidden} }},
	{name: "num_hidden_layers", min: 1, max: maxLayers, to: func(d *draft) []any { return []any{&d.Layers} }},
	{name: "num_attention_heads", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.Heads} }},
	{name: "num_key_value_heads", min: 1, max: maxHeads, optional: true, to: func(d *draft) []any { return []any{&d.KVHeads} }},
	{name: "encoder_layers", min: 1, max: maxLayers, to: func(d *draft) []any { return []any{&d.encoderLayers} }},
	{name: "encoder_attention_heads", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.encoderHeads} }},
	{name: "encoder_ffn_dim", min: 1, max: maxFFN, to: func(d *draft) []any { return []any{&d.encoderFFN} }},
	{name: "feed_forward_proj", to: func(d *draft) []any { return []any{(*gatedActivation)(d)} }},
	{name: "relative_attention_num_buckets", min: 2, max: maxHidden, to: func(d *draft) []any { return []any{&d.Buckets} }},
	{name: "scale_decoder_outputs", to: func(d *draft) []any { return []any{&d.HeadScale} }},
	{name: "head_dim", min: 1, max: maxHeads, optional: true, to: func(d *draft) []any { return []any{&d.HeadDim} }},
	{name: "global_head_dim", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.global.HeadDim} }},
	{name: "num_global_key_value_heads", min: 1, max: maxHeads, optional: true, to: func(d *draft) []any { return []any{&d.global.KVHeads} }},
	{name: "per_layer_config", to: func(d *draft) []any { return []any{(*layerConfig)(d)} }},
	{name: "attention_k_eq_v", to: func(d *draft) []any { return []any{&d.global.KeysAreValues} }},
	{name: "hidden_size_per_layer_input", max: maxHidden, optional: true, to: func(d *draft) []any { return []any{&d.perLayer.Width} }},
	{name: "vocab_size_per_layer_input", min: 1, max: maxVocab, to: func(d *draft) []any { return []any{&d.perLayer.Vocab} }},
	{name: "use_double_wide_mlp", to: func(d *draft) []any { return []any{&d.WideFFN} }},
	{name: "num_kv_shared_layers", max: maxLayers, optional: true, to: func(d *draft) []any { return []any{&d.sharedKV} }},
	{name: "enable_moe_block", to: func(d *draft) []any { return []any{&d.beside} }},
	{name: "intermediate_size", min: 1, max: maxFFN, optional: true, to: func(d *draft) []any { return []any{&d.FFN} }},
	{name: "gate_and_up", min: 2, max: maxFFN, to: func(d *draft) []any { return []any{&d.gateAndUp} }},
	{name: "expansion_ratio", min: 1, max: 1000, to: func(d *draft) []any { return []any{&d.expansion} }},
	{name: "vocab_size", min: 1, max: maxVocab, to: func(d *draft) []any { return []any{&d.Vocab} }},
	{name: "max_position_embeddings", min: 1, max: maxSeq, to: func(d *draft) []any { return []any{&d.MaxPositions} }},
	{name: "turned_positions", min: 1, max: maxSeq, to: func(d *draft) []any { return []any{&d.MaxPositions} }},
	{name: "z_loss_weight", to: func(d *draft) []any { return []any{&d.zLoss} }},
	{name: "tie_word_embeddings", to: func(d *draft) []any { return []any{&d.Tied} }},
	{name: "word_embed_proj_dim", min: 1, max: maxHidden, optional: true, to: func(d *draft) []any { return []any{&d.embedWidth} }},

	{name: "gated_mlp", to: func(d *draft) []any { return []any{&d.Gated} }},
	{name: "is_causal", to: func(d *draft) []any { return []any{(*opposite)(&d.Bidirectional)} }},
	{name: "use_bidirectional_attention", to: func(d *draft) []any { return []any{&d.Bidirectional} }},
	{name: "type_vocab_size", max: maxVocab, optional: true, to: func(d *draft) []any { return []any{&d.TypeVocab} }},
	{name: "embedding_norm", to: func(d *draft) []any { return []any{&d.EmbedNorm} }},
	{name: "head_dense", to: func(d *draft) []any { return []any{&d.HeadDense} }},
	{name: "hidden_act", one: activationNames(), optional: true, to: func(d *draft) []any { return []any{&d.activation} }},
	{name: "norm", one: words(RMSNorm, WideRMSNorm, GemmaRMSNorm, CastRMSNorm, LayerNorm, PlainNorm, LayerNormNoB, LayerNormCast, LayerNorm1P), to: func(d *draft) []any { return []any{&d.Norm} }},
	{name: "norm_placement", one: words(PreNorm, PostNorm, Sandwich, SumNorm), to: func(d *draft) []any { return []any{&d.Place} }},
	{name: "use_post_norm", to: func(d *draft) []any { return []any{&d.postNorm} }},
	{name: "parallel", one: words(ParallelOneNorm, ParallelTwoNorm), optional: true, to: func(d *draft) []any { return []any{&d.Parallel} }},
	{name: "use_parallel_residual", to: func(d *draft) []any { return []any{&d.parallel} }},
	{name: "num_ln_in_parallel_attn", min: 1, max: 2, optional: true, to: func(d *draft) []any { return []any{&d.parallelNorms} }},
	{name: "new_decoder_architecture", to: func(d *draft) []any { return []any{&d.newDecoder} }},
	{name: "multi_query", to: func(d *draft) []any { return []any{&d.multiQuery} }},
	{name: "qk_norm", one: words(HeadQKNorm, EachQKNorm, FullQKNorm), optional: true, to: func(d *draft) []any { return []any{&d.QKNorm} }},
	{name: "qk_layernorm", to: func(d *draft) []any { return []any{&d.headNorm} }},
	{name: "single_head_norms", to: func(d *draft) []any { return []any{&d.singleNorms} }},
	{name: "full_norm", to: func(d *draft) []any { return []any{&d.fullNorm} }},
	{name: "each_qk_norm", to: func(d *draft) []any { return []any{&d.eachNorm} }},
	{name: "position", one: words(Rotary, LearnedPosition, ALiBi, NoPosition), to: func(d *draft) []any { return []any{&d.Position} }},
	{name: "attn_type", one: []string{ownKeys, groupedKeys, oneKey}, to: func(d *draft) []any { return []any{&d.attnType} }},
	{name: "position_embedding_type", one: []string{"rope", "nope"}, to: func(d *draft) []any { return []any{&d.positionType} }},
	{name: "rope", to: func(d *draft) []any { return []any{&d.turned} }},
	{name: "learned_pos_emb", to: func(d *draft) []any { return []any{&d.learned} }},
	{name: "alibi", to: func(d *draft) []any { return []any{&d.alibi} }},
	{name: "rotary_dim", min: 1, max: maxHeads, optional: true, to: func(d *draft) []any { return []any{&d.RotaryDim} }},
	{name: "no_rope_layer_interval", max: maxLayers, optional: true, to: func(d *draft) []any { return []any{&d.noRopeEvery} }},
	{name: "no_rope_layers", optional: true, to: func(d *draft) []any { return []any{&d.rope} }},
	{name: "partial_rotary_factor", min: 0, max: 1, to: func(d *draft) []any { return []any{&d.rotaryFraction} }},
	{name: "rope_parameters", to: func(d *draft) []any { return []any{(*ropeParameters)(d)} }},
	{name: "rope_scaling", optional: true, to: func(d *draft) []any { return []any{(*ropeScaling)(&d.TurnScaled)} }},

	{name: "attention_bias", to: func(d *draft) []any { return []any{&d.QKVBias, &d.OutBias} }},
	{name: "qkv_bias", to: func(d *draft) []any { return []any{&d.QKVBias} }},
	{name: "out_bias", to: func(d *draft) []any { return []any{&d.OutBias} }},
	{name: "mlp_bias", to: func(d *draft) []any { return []any{&d.MLPBias} }},
	{name: "bias", to: func(d *draft) []any { return []any{&d.QKVBias, &d.OutBias, &d.MLPBias} }},
	{name: "no_bias", to: func(d *draft) []any { return []any{&d.noBias} }},
	{name: "norm_type", one: []string{"layernorm", "low_precision_layernorm", "rmsnorm", "low_precision_rmsnorm", "triton_rmsnorm"}, to: func(d *draft) []any { return []any{&d.normType} }},
	{name: "head_bias", to: func(d *draft) []any { return []any{&d.HeadBias} }},
	{name: "einsum", to: func(d *draft) []any { return []any{&d.Einsum} }},
	{name: "separate_heads", to: func(d *draft) []any { return []any{&d.SeparateHeads} }},
	{name: "fused_qkv", to: func(d *draft) []any { return []any{&d.FusedQKV} }},
	{name: "fused_gate_up", to: func(d *draft) []any { return []any{&d.FusedGateUp} }},
	{name: "attn_logit_softcapping", optional: true, to: func(d *draft) []any { return []any{&d.attnCap} }},
	{name: "final_logit_softcapping", optional: true, to: func(d *draft) []any { return []any{&d.logitCap} }},

	{name: "embedding_dropout", max: 1, to: func(d *draft) []any { return []any{&d.EmbedDropout} }},
	{name: "attention_dropout", max: 1, optional: true, to: func(d *draft) []any { return []any{&d.AttnDropout} }},
	{name: "residual_dropout", max: 1, to: func(d *draft) []any { return []any{&d.ResidDropout} }},
	{name: "hidden_dropout", max: 1, to: func(d *draft) []any { return []any{&d.EmbedDropout, &d.ResidDropout} }},
	{name: "activation_dropout", max: 1, to: func(d *draft) []any { return []any{&d.ActDropout} }},
	{name: "every_dropout", max: 1, to: func(d *draft) []any {
		return []any{&d.EmbedDropout, &d.AttnDropout, &d.ResidDropout, &d.ActDropout, &d.FinalDropout}
	}},
	{name: "block_dropout", max: 1, to: func(d *draft) []any { return []any{&d.AttnDropout, &d.ResidDropout} }},

	{name: "sliding_window", max: maxSeq, optional: true, to: func(d *draft) []any { return []any{&d.Window} }},
	{name: "use_sliding_window", to: func(d *draft) []any { return []any{&d.useWindow} }},
	{name: "max_window_layers", max: maxLayers, to: func(d *draft) []any { return []any{&d.windowFrom} }},
	{name: "window_until", max: maxLayers, to: func(d *draft) []any { return []any{&d.windowUntil} }},
	{name: "whole_every", min: 1, max: maxLayers, to: func(d *draft) []any { return []any{&d.wholeEvery} }},
	{name: "sliding_window_pattern", min: 1, max: maxLayers, to: func(d *draft) []any { return []any{&d.windowPattern} }},
	{name: "window_letters", to: func(d *draft) []any { return []any{(*windowLetters)(d)} }},
	{name: "layer_types", optional: true, to: func(d *draft) []any { return []any{&d.layerTypes} }},

	{name: "q_lora_rank", max: maxHidden, optional: true, to: func(d *draft) []any { return []any{&d.mla.QLora} }},
	{name: "kv_lora_rank", min: 1, max: maxHidden, to: func(d *draft) []any { return []any{&d.mla.KVLora} }},
	{name: "qk_rope_head_dim", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.mla.Rope} }},
	{name: "qk_nope_head_dim", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.mla.Nope} }},
	{name: "index_n_heads", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.indexer.Heads} }},
	{name: "index_head_dim", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.indexer.HeadDim} }},
	{name: "index_topk", min: 1, max: maxSeq, to: func(d *draft) []any { return []any{&d.indexer.TopK} }},
	{name: "index_topk_freq", min: 1, max: maxLayers, optional: true, to: func(d *draft) []any { return []any{&d.indexEvery} }},
	{name: "index_skip_topk_offset", max: maxLayers, optional: true, to: func(d *draft) []any { return []any{&d.indexFrom} }},
	{name: "index_topk_pattern", optional: true, to: func(d *draft) []any { return []any{&d.indexPattern} }},
	{name: "indexer_types", optional: true, to: func(d *draft) []any { return []any{&d.indexTypes} }},
	{name: "compress_ratios", optional: true, to: func(d *draft) []any { return []any{&d.compress.Ratios} }},
	{name: "compress_rates", optional: true, to: func(d *draft) []any { return []any{(*compressRates)(d)} }},
	{name: "o_groups", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.compress.Groups} }},
	{name: "o_lora_rank", min: 1, max: maxHidden, to: func(d *draft) []any { return []any{&d.compress.Out} }},
	{name: "hc_mult", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.Streams} }},
	{name: "v_head_dim", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.VDim} }},

	{name: "hybrid_override_pattern", optional: true, to: func(d *draft) []any { return []any{&d.pattern} }},
	{name: "layers_block_type", optional: true, to: func(d *draft) []any { return []any{&d.blocks} }},
	{name: "mamba_num_heads", min: 1, max: maxHeads, optional: true, to: func(d *draft) []any { return []any{&d.mamba.Heads} }},
	{name: "mamba_head_dim", max: maxHeads, to: func(d *draft) []any { return []any{(*automatic)(&d.mamba.HeadDim)} }},
	{name: "mamba_num_groups", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.mamba.Groups} }},
	{name: "mamba_state_dim", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.mamba.State} }},
	{name: "mamba_conv_kernel", min: 1, max: 1024, to: func(d *draft) []any { return []any{&d.mamba.Conv} }},
	{name: "mamba_chunk_size", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.mamba.Chunk} }},
	{name: "mamba_expand", min: 1, max: 1000, to: func(d *draft) []any { return []any{&d.mambaExpand} }},
	{name: "mamba_d_ssm", min: 1, max: maxFFN, optional: true, to: func(d *draft) []any { return []any{&d.mambaInner} }},
	{name: "mamba_rms_norm", to: func(d *draft) []any { return []any{(*opposite)(&d.mamba.Normless)} }},
	{name: "mamba_proj_bias", to: func(d *draft) []any { return []any{&d.mamba.Bias} }},
	{name: "mamba_conv_bias", to: func(d *draft) []any { return []any{&d.mamba.ConvBias} }},

	{name: "attention_layers", to: func(d *draft) []any { return []any{&d.attends} }},
	{name: "conv_L_cache", min: 1, max: 1024, to: func(d *draft) []any { return []any{&d.conv.Conv} }},
	{name: "conv_bias", to: func(d *draft) []any { return []any{&d.conv.Bias} }},
	{name: "block_ff_dim", min: 1, max: maxFFN, optional: true, to: func(d *draft) []any { return []any{&d.blockFFN} }},
	{name: "block_auto_adjust_ff_dim", to: func(d *draft) []any { return []any{&d.twoThirds} }},
	{name: "block_ffn_dim_multiplier", max: 1000, optional: true, to: func(d *draft) []any { return []any{&d.ffnFactor} }},
	{name: "block_multiple_of", min: 1, max: maxHidden, to: func(d *draft) []any { return []any{&d.ffnMultiple} }},
	{name: "shared_intermediate_size", min: 1, max: maxFFN, to: func(d *draft) []any { return []any{&d.FFN, &d.moe.SharedFFN} }},

	{name: "attention_output_gate", to: func(d *draft) []any { return []any{&d.GatedAttention} }},
	{name: "full_attention_interval", min: 1, max: maxLayers, optional: true, to: func(d *draft) []any { return []any{&d.deltaEvery} }},
	{name: "mup_enabled", to: func(d *draft) []any { return []any{&d.EmbedScale} }},
	{name: "shared_expert_gate", to: func(d *draft) []any { return []any{&d.moe.SharedGate} }},
	{name: "linear_num_key_heads", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.delta.KeyHeads} }},
	{name: "linear_num_value_heads", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.delta.ValueHeads} }},
	{name: "linear_key_head_dim", min: 1, max: 256, to: func(d *draft) []any { return []any{&d.delta.KeyDim} }}, // flash-linear-attention takes no more (fla/ops/common/chunk_delta_h.py)
	{name: "linear_value_head_dim", min: 1, max: maxHeads, to: func(d *draft) []any { return []any{&d.delta.ValueDim} }},
	{name: "linear_conv_kernel_dim", min: 1, max: 1024, to: func(d *draft) []any { return []any{&d.delta.Conv} }},

	{name: "num_experts", max: maxExperts, optional: true, to: func(d *draft) []any { return []any{&d.moe.Experts} }},
	{name: "num_experts_per_tok", max: maxExperts, optional: true, to: func(d *draft) []any { return []any{&d.moe.TopK} }},
	{name: "moe_topk", to: func(d *draft) []any { return []any{(*alike)(&d.moe.TopK)} }},
	{name: "n_group", max: maxExperts, optional: true, to: func(d *draft) []any { return []any{&d.moe.Groups} }},
	{name: "topk_group", max: maxExperts, optional: true, to: func(d *draft) []any { return []any{&d.moe.TopGroups} }},
	{name: "moe_intermediate_size", min: 1, max: maxFFN, optional: true, to: func(d *draft) []any { return []any{&d.moe.FFN} }},
	{name: "moe_latent_size", min: 1, max: maxHidden, optional: true, to: func(d *draft) []any { return []any{&d.moe.Latent} }},
	{name: "n_shared_experts", max: 1024, optional: true, to: func(d *draft) []any { return []any{&d.moe.Shared} }},
	{name: "shared_expert_intermediate_size", max: maxFFN, optional: true, to: func(d *draft) []any { return []any{&d.moe.SharedFFN} }},
	{name: "enable_moe_fp32_combine", to: func(d *draft) []any { return []any{&d.moe.WideSum} }},
	{name: "router", one: words(SoftmaxRouter, SigmoidRouter, sqrtRouter), to: func(d *draft) []any { return []any{&d.moe.Router} }},
	{name: "input_jitter_noise", max: 1, to: func(d *draft) []any { return []any{&d.jitter} }},
	{name: "norm_topk_prob", to: func(d *draft) []any { return []any{&d.moe.NormTopK} }},
	{name: "first_k_dense_replace", max: maxLayers, optional: true, to: func(d *draft) []any { return []any{&d.denseFirst} }},
	{name: "moe_layer_end_index", min: -1, max: maxLayers, to: func(d *draft) []any { return []any{&d.sparseLast} }},
	{name: "moe_layer_freq", min: 1, max: maxLayers, to: func(d *draft) []any { return []any{&d.sparseEvery} }},
	{name: "decoder_sparse_step", min: 1, max: maxLayers, to: func(d *draft) []any { return []any{&d.sparseStep} }},
	{name: "mlp_only_layers", optional: true, to: func(d *draft) []any { return []any{&d.denseLayers} }},
	{name: "mlp_layer_types", optional: true, to: func(d *draft) []any { return []any{&d.mlpTypes} }},
	{name: "moe_layers", optional: true, to: func(d *draft) []any { return []any{&d.sparseLayers} }},
	{name: "num_nextn_predict_layers", max: maxLayers, optional: true, to: func(d *draft) []any { return []any{&d.MTPLayers} }},
	{name: "mtp_use_repeated_layer", to: func(d *draft) []any { return []any{&d.MTPShared} }},

	{name: "patch_size", min: 1, max: 4096, to: func(d *draft) []any { return []any{&d.vision.Patch} }},
	{name: "temporal_patch_size", min: 1, max: 64, to: func(d *draft) []any { return []any{&d.vision.Frames} }},
	{name: "in_channels", min: 1, max: 64, to: func(d *draft) []any { return []any{&d.vision.Channels} }},
	{name: "spatial_merge_size", min: 1, max: 64, to: func(d *draft) []any { return []any{&d.vision.Merge} }},
	{name: "image_size", min: 1, max: 65536, to: func(d *draft) []any { return []any{&d.vision.Size} }},
	{name: "num_position_embeddings", min: 1, max: maxSeq, to: func(d *draft) []any { return []any{&d.vision.Rows} }},
	{name: "out_hidden_size", min: 1, max: maxHidden, to: func(d *draft) []any { return []any{&d.projected} }},
	{name: "deepstack_visual_indexes", optional: true, to: func(d *draft) []any { return []any{&d.vision.Deep} }},
	{name: "window_size", min: 1, max: 65536, optional: true, to: func(d *draft) []any { return []any{&d.windowSize} }},
	{name: "fullatt_block_indexes", optional: true, to: func(d *draft) []any { return []any{&d.fullLayers} }},
}

// only are keys whose other values describe something that is not modelled.
var only = map[string]string{
	"add_cross_attention":                      "false",
	"is_encoder_decoder":                       "false",
	"do_layer_norm_before":                     "true",
	"layer_norm_elementwise_affine":            "true",
	"apply_residual_connection_post_layernorm": "false",
	"language_model_only":                      "false",
	"qk_layer_norms":                           "false",
}

// irrelevant are the keys of config.json that change neither shapes nor
// arithmetic: numerics, tokens, generation, training, serialization.
const irrelevant = `
	perfplan source description model_type name

	architectures auto_map transformers_version torch_dtype dtype name_or_path revision attn_implementation
	use_cache use_bfloat16 torchscript tf_legacy_loss return_dict output_attentions output_hidden_states
	is_decoder cross_attention_hidden_size tie_encoder_decoder pruned_heads chunk_size_feed_forward
	remove_invalid_values tokenizer_class tokenizer_name prefix task_specific_params finetuning_task problem_type
	id2label label2id num_labels classifier_dropout pretraining_tp gradient_checkpointing per_layer_config
	quantization quantization_config compression_config unsloth_version unsloth_fixed for_llm_compressor
	model_max_length use_flash_attn use_flash_attention use_parallel_attention fused_rotary verbose

	bos_token_id cls_token_id eos_token_id pad_token_id sep_token_id unk_token_id mask_token_id decoder_start_token_id
	forced_bos_token_id forced_eos_token_id begin_suppress_tokens suppress_tokens bad_words_ids max_length
	min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
	typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
	num_return_sequences exponential_decay_length_penalty return_dict_in_generate output_scores
	cache_implementation num_logits_to_keep

	initializer_range initializer_factor init_std init_device init_config rms_norm_eps layer_norm_eps
	layer_norm_epsilon norm_eps norm_epsilon norm_type rope_theta rope_scaling rope_parameters
	rope_local_base_freq rope_interleave rope_interleaved is_llama_config rotary rotary_base rotary_emb_base original_max_position_embeddings
	initial_context_length query_pre_attn_scalar logit_scale scale_attn_weights
	scale_attn_by_inverse_layer_idx reorder_and_upcast_attn attention_softmax_in_fp32 masked_softmax_fusion
	bias_dropout_fusion skip_bias_add skip_bias_add_qkv slow_but_exact offset_alibi seq_length n_ctx layerdrop
	activation_dropout clip_qkv embedding_fraction learned_pos_emb sliding_window_size use_mrope

	output_router_logits router_aux_loss_coef router_jitter_noise router_z_loss_coef aux_loss_alpha seq_aux
	ep_size topk_method scoring_func routed_scaling_factor swiglu_limit

	summary_type summary_use_proj summary_activation summary_first_dropout summary_last_dropout
	summary_proj_to_labels n_special predict_special_tokens output_past

	video_token_id vision_start_token_id vision_end_token_id spatial_merge_size projector_hidden_act vision_feature_layer multimodal_projector_bias
	attn_temperature_tuning attn_scale floor_scale use_qk_norm vision_config image_token_index
	image_token_id vision_token_id ignore_index vision_feature_select_strategy image_seq_length mm_tokens_per_image boi_token_index boi_token_id eoi_token_index eoi_token_id
	vision_soft_tokens_per_image neftune_noise_alpha perceiver_config pixel_shuffle_factor use_resampler transformers.js_config
	audio_config audio_token_id boa_token_id eoa_token_id eoa_token_index`

// activations are the Hugging Face names of the activations that are modelled.
var activations = []struct {
	name string
	is   Activation
}{
	{"silu", SiLU}, {"swish", SiLU},
	{"gelu", GELU}, {"gelu_python", GELU}, {"quick_gelu", QuickGELU},
	{"gelu_pytorch_tanh", GELUTanh}, {"gelu_python_tanh", GELUTanh},
	{"gelu_new", GELUNew}, {"gelu_fast", GELUNew}, {"gelu_accurate", GELUNew},
	{"relu", ReLU}, {"relu2", ReLU2}, {"xielu", XIELU},
}

func activationNames() []string {
	names := make([]string, len(activations))
	for i, a := range activations {
		names[i] = a.name
	}
	return names
}

func words[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// vocabulary is what the tables of keys and families say, indexed once.
type vocabulary struct {
	keys       map[string]*key
	irrelevant map[string]bool
	families   map[string]*family
	known      map[*family]map[string]string // key as a file spells it → canonical name
	spoken     map[string][]string           // key as a file spells it → families that know it
}

var vocabularyOnce = sync.OnceValue(func() *vocabulary {
	v := &vocabulary{
		keys:       make(map[string]*key, len(keys)),
		irrelevant: map[string]bool{},
		families:   make(map[string]*family, len(families)),
		known:      make(map[*family]map[string]string, len(families)),
		spoken:     map[string][]string{},
	}
	for i := range keys {
		v.keys[keys[i].name] = &keys[i]
	}
	for name := range strings.FieldsSeq(irrelevant) {
		v.irrelevant[name] = true
	}
	for i := range families {
		f := &families[i]
		if v.families[f.name] == nil {
			v.families[f.name] = f
		}
		for name := range strings.FieldsSeq(f.also) {
			v.families[name] = f
		}
		v.known[f] = f.names()
		for spelled := range v.known[f] {
			if f != ungated() { // which shares the name of the row before it
				v.spoken[spelled] = append(v.spoken[spelled], f.name)
			}
		}
	}
	return v
})

// opposite reads what a field says the opposite of, as is_causal: attention goes both ways where it is false.
type opposite bool

// DecodeNode takes the opposite of what it is given.
func (o *opposite) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	var v bool
	errs := doc.DecodeInto(n, &v)
	*o = opposite(!v)
	return errs
}

// ropeParameters reads the one setting of rope_parameters that changes shapes.
type ropeParameters draft

// DecodeNode takes partial_rotary_factor and leaves the numerics alone.
func (r *ropeParameters) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	if _, v := yamlx.Key(n, "partial_rotary_factor"); v != nil {
		return doc.DecodeInto(v, &r.rotaryFraction)
	}
	return nil
}

// compressRates reads how many tokens the sums of each kind of layer are of.
type compressRates draft

// DecodeNode takes one number for each kind.
func (r *compressRates) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	if n.Kind != yaml.MappingNode {
		return diag.List{doc.Errorf(n, "compress_rates: expected a mapping of %s and %s to tokens", pickedSums, allSums)}
	}
	r.compressRate = map[string]int64{}
	var errs diag.List
	for i := 0; i < len(n.Content); i += 2 {
		kind, v := n.Content[i], n.Content[i+1]
		var rate int64
		wrong := doc.DecodeInto(v, &rate)
		switch {
		case kind.Value != pickedSums && kind.Value != allSums:
			wrong = diag.List{doc.Errorf(kind, "compress_rates: %q is not known; %s and %s are", kind.Value, pickedSums, allSums)}
		case wrong == nil && (rate < 2 || rate > maxSeq):
			wrong = diag.List{doc.Errorf(v, "compress_rates: %s %d is out of range; use 2 to %d", kind.Value, rate, int64(maxSeq))}
		}
		errs = append(errs, wrong...)
		r.compressRate[kind.Value] = rate
	}
	return errs
}

// ropeScaling reads whether cosines and sines are scaled.
type ropeScaling bool

// DecodeNode looks for YaRN, which scales them.
func (r *ropeScaling) DecodeNode(_ *yamlx.Document, n *yaml.Node) diag.List {
	*r = false
	for _, key := range []string{"rope_type", "type"} {
		if _, v := yamlx.Key(n, key); v != nil && v.Value == "yarn" {
			*r = true
		}
	}
	return nil
}

// automatic reads a number that a file may leave to others by the word auto.
type automatic int64

// DecodeNode takes the word for 0.
func (a *automatic) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	if n.Value == "auto" {
		*a = 0
		return nil
	}
	return doc.DecodeInto(n, (*int64)(a))
}

// alike reads a number that a file may have once or for each layer.
type alike int64

// DecodeNode takes the number that all layers have.
func (a *alike) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return doc.DecodeInto(n, (*int64)(a))
	}
	for _, other := range n.Content {
		if other.Value != n.Content[0].Value {
			return diag.List{doc.Errorf(other, "layers that differ are not modelled; give all the same")}
		}
	}
	return doc.DecodeInto(n.Content[0], (*int64)(a))
}

// windowLetters reads EXAONE's sliding_window_pattern: a number, or letters of which the last
// is a layer without a window, as in LLLG.
type windowLetters draft

// DecodeNode takes either for the length of a group.
func (w *windowLetters) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	if n.Tag == "!!int" {
		var pattern int64
		errs := doc.DecodeInto(n, &pattern)
		if len(errs) == 0 && (pattern < 0 || pattern > maxLayers) {
			errs = diag.List{doc.Errorf(n, "%d is out of range; use 0 to %d", pattern, int64(maxLayers))}
		}
		w.windowPattern = pattern
		return errs
	}
	if rest, ok := strings.CutSuffix(n.Value, "G"); n.Kind != yaml.ScalarNode || !ok || strings.Trim(rest, "L") != "" {
		return diag.List{doc.Errorf(n, "%q is no pattern; L for each layer with a window, then G, as in LLLG", n.Value)}
	}
	w.windowPattern = int64(len(n.Value))
	return nil
}

// layerConfig reads per_layer_config, which transformers from 5.17 on writes for the sizes that
// attention of layers without a window has of its own (configuration_gemma4.py).
type layerConfig draft

// DecodeNode takes the sizes of a layer, which are those of all that have any.
func (l *layerConfig) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	if n.Kind != yaml.MappingNode {
		return diag.List{doc.Errorf(n, "per_layer_config: expected a mapping of layers to their sizes")}
	}
	for i := 1; i < len(n.Content); i += 2 {
		var errs diag.List
		own := l.global
		for _, size := range []struct {
			name string
			to   *int64
		}{{"head_dim", &own.HeadDim}, {"num_key_value_heads", &own.KVHeads}} {
			_, v := yamlx.Key(n.Content[i], size.name)
			if v == nil {
				continue
			}
			if errs = append(errs, doc.DecodeInto(v, size.to)...); len(errs) == 0 && (*size.to < 1 || *size.to > maxHeads) {
				errs = append(errs, doc.Errorf(v, "per_layer_config: %s %d is out of range; use 1 to %d", size.name, *size.to, maxHeads))
			}
		}
		if len(errs) > 0 {
			return errs
		}
		if i > 1 && own != l.global {
			return diag.List{doc.Errorf(n.Content[i], "per_layer_config: layers of more than two kinds of sizes are not modelled; give all that have any the same ones")}
		}
		l.global = own
	}
	return nil
}
