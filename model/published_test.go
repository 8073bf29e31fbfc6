package model_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
)

// What published files say beside what is read of them changes nothing, or says the same.
func TestKeysOfPublishedFiles(t *testing.T) {
	for text, with := range map[string]string{
		"model_type: llama":                                        "is_llama_config: true, rope_interleaved: false, activation: swiglu",
		"model_type: gpt2":                                         "n_special: 0, predict_special_tokens: true, output_past: true",
		"model_type: bert":                                         "directionality: bidi, pooler_fc_size: 768, pooler_type: first_token_transform, position_embedding_type: absolute, gradient_checkpointing: false",
		"model_type: modernbert":                                   "cls_token_id: 50281, mlp_dropout: 0.0, position_embedding_type: absolute, sparse_prediction: false, reference_compile: null, norm_bias: false, decoder_bias: true, local_rope_theta: 10000.0",
		"model_type: phi3":                                         "full_attn_mod: 1, interpolate_factor: 1",
		"model_type: gpt_neox":                                     "attention_probs_dropout_prob: 0, hidden_dropout_prob: 0",
		"model_type: glm_moe_dsa":                                  "index_share_for_mtp_iteration: true, moe_router_dtype: float32",
		"model_type: gemma4_text":                                  "expert_intermediate_size: null",
		"model_type: qwen3_5_text":                                 "output_gate_type: swish",
		"model_type: minimax_m2":                                   "partial_rotary_factor: 0.5, attn_type_list: [1, 1], shared_intermediate_size: 0, use_qk_norm: true, qk_norm_type: per_layer, use_routing_bias: true",
		"model_type: ernie4_5_moe":                                 "use_rmsnorm: true",
		"model_type: gpt_bigcode":                                  "runner_max_sequence_length: null",
		"model_type: nemotron":                                     "kv_channels: 128, rope_percent: 0.5",
		"model_type: hunyuan_v1_moe, num_experts: 4":               "anyres_pooling_size: 2",
		"model_type: falcon":                                       "ff_factor: 4",
		"model_type: mistral":                                      "some_key_of_tomorrow: null",
		"model_type: gemma4, text_config: {num_hidden_layers: 2}":  "vision_soft_tokens_per_image: 280",
		"model_type: qwen3_5, text_config: {num_hidden_layers: 4}": "language_model_only: false",
		"model_type: kimi_k25, text_config: {model_type: kimi_k2, num_hidden_layers: 4}": "media_placeholder_token_id: 163605, projection_hidden_size: 1152, projection_layer_norm_eps: 1.0e-05",
		"model_type: llava_onevision, text_config: {num_hidden_layers: 4}":               "video_token_index: 151647",
		"model_type: gemma": "num_image_tokens: 256", // PaliGemma's text_config
		"model_type: smolvlm, text_config: {model_type: llama, num_hidden_layers: 4}":                "scale_factor: 4, vision_config: {model_type: smolvlm_vision}",
		"model_type: paligemma, text_config: {model_type: gemma2, num_hidden_layers: 4}":             "hidden_size: 2304, projection_dim: 2304",
		"model_type: smolvlm, text_config: {model_type: llama, transformers.js_config: {dtype: q4}}": "vocab_size: 49280",
	} {
		want, got := decode(t, "{"+text+"}"), decode(t, "{"+text+", "+with+"}")
		want.Defaulted, got.Defaulted = nil, nil
		require.Equal(t, want, got, with)
	}
	require.Equal(t, int64(3*4544), decode(t, "{model_type: falcon, ff_factor: 3}").FFN)
	require.Equal(t, int64(32), decode(t, "{model_type: minimax_m2, partial_rotary_factor: 0.25}").RotaryDim)
	require.Equal(t, int64(48), decode(t, "{model_type: minimax_m2, rotary_dim: 48}").RotaryDim)
	require.Equal(t, int64(1), decode(t, "{model_type: ernie4_5_moe, num_nextn_predict_layers: 1}").MTPLayers)
	require.Equal(t, int64(192), decode(t, "{model_type: nemotron, kv_channels: 192}").HeadDim)
	for text, want := range map[string]string{
		"model_type: llama, activation: gelu":                             "activation: gelu is not modelled; only swiglu is",
		"model_type: phi3, full_attn_mod: 2":                              "full_attn_mod: 2 is not modelled; only 1 is",
		"model_type: minimax_m2, attn_type_list: [1, 0]":                  "attn_type_list: 0 is not modelled; only 1 is", // lightning attention
		"model_type: minimax_m2, shared_intermediate_size: 1536":          "shared_intermediate_size: 1536 is not modelled; only 0 is",
		"model_type: minimax_m2, use_qk_norm: false":                      "use_qk_norm: false is not modelled; only true is",
		"model_type: qwen3_5_text, output_gate_type: sigmoid":             "output_gate_type: sigmoid is not modelled; only swish is",
		"model_type: mistral, some_key_of_tomorrow: false":                `unknown key "some_key_of_tomorrow"`,
		"model_type: mistral, slidng_window: null":                        `unknown key "slidng_window"; did you mean "sliding_window"?`, // which would turn it off
		"model_type: decoder, some_key_of_tomorrow: null, hidden_size: 8": `unknown key "some_key_of_tomorrow"`,
		"model_type: smolvlm, text_config: {qk_layer_norms: true}":        "qk_layer_norms: true is not modelled; only false is",
		"model_type: qwen3_5, language_model_only: true":                  "language_model_only: true is not modelled; only false is",
	} {
		_, err := decodeText("{" + text + "}")
		require.ErrorContains(t, err, want)
	}
}

// Granite 4 without Mamba mixers and experts is Granite with one projection of gate and up,
// whose width is the shared experts' (Granite 4.0 Micro has 3,402,836,480 parameters).
func TestDenseGraniteHybrid(t *testing.T) {
	kinds := "[" + strings.Repeat("attention, ", 39) + "attention]"
	const sizes = "hidden_size: 2560, num_hidden_layers: 40, num_attention_heads: 40, num_key_value_heads: 8, vocab_size: 100352, tie_word_embeddings: true"
	s := decode(t, "{model_type: granitemoehybrid, "+sizes+", shared_intermediate_size: 8192, intermediate_size: 512, num_local_experts: 0, num_experts_per_tok: 0, position_embedding_type: rope, mamba_n_heads: 128, mamba_d_head: 40, mamba_chunk_size: 256, layer_types: "+kinds+"}")
	require.Equal(t, int64(3_402_836_480), s.Params().Total)
	require.Equal(t, model.Rotary, s.Position)
	require.Nil(t, s.MoE)
	require.Nil(t, s.Mixers)
	same := decode(t, "{model_type: granite, "+sizes+", intermediate_size: 8192}")
	require.Equal(t, same.Params().Total, s.Params().Total)
	require.True(t, s.EmbedScale && s.ResidScale && s.LogitScale && s.FusedGateUp)
	for _, none := range []string{"nope", "null"} {
		require.Equal(t, model.NoPosition, decode(t, "{model_type: granitemoehybrid, num_hidden_layers: 1, num_local_experts: 0, layer_types: [attention], position_embedding_type: "+none+"}").Position)
	}
}

// Of multimodal files the text is read as that of its own type would be; of types that are not
// known an error says where it is.
func TestWrappers(t *testing.T) {
	for outer, text := range map[string]string{
		"kimi_k25": "model_type: kimi_k2", "glm4v": "model_type: glm4v_text", "glm4v_moe": "model_type: glm4v_moe_text", "internvl": "model_type: qwen3", "cohere2_vision": "model_type: cohere2",
		"aya_vision": "model_type: cohere2", "llava_next": "model_type: mistral", "llava_onevision": "model_type: qwen2", "paligemma": "model_type: gemma", "idefics3": "model_type: llama", "smolvlm": "model_type: llama",
	} {
		want := decode(t, "{"+text+", num_hidden_layers: 2}")
		want.TextOnly = true
		got := decode(t, "{model_type: "+outer+", text_config: {"+text+", num_hidden_layers: 2}, vision_config: {model_type: some_vision}}")
		require.Equal(t, want, got, outer)
	}
	require.True(t, decode(t, "model_type: glm4v_moe_text").QKVBias, "as its class has it, GLM-4.5's has not")
	for text, want := range map[string]string{
		"model_type: qwen3_omni_moe, thinker_config: {text_config: {model_type: qwen3_omni_moe_text}}": `model_type "qwen3_omni_moe" is not known, but thinker_config.text_config (model_type: qwen3_omni_moe_text) of the file is; write that to a file of its own for the language model alone`,
		"model_type: some_vl, text_config: {model_type: qwen3}":                                        `model_type "some_vl" is not known, but text_config (model_type: qwen3) of the file is`,
		"model_type: mllama, text_config: {model_type: mllama_text_model}":                             `model_type "mllama" is not known; describe the model with model_type: decoder`,
		"model_type: paligemma, text_config: {}, projection_dimension: 8":                              "unknown key",
	} {
		_, err := decodeText("{" + text + "}")
		require.ErrorContains(t, err, want)
	}
}

// Types whose names are alike are other architectures; one that is written otherwise is not.
func TestRespelledTypes(t *testing.T) {
	for _, name := range []string{"minimax_m3", "gpt_neo_2", "mllama", "pixtral", "exaone_xl", "xglm2", "qwen_vl", "mistral4", "nemotron_flash", "deepseek_ref"} {
		_, err := decodeText("{model_type: " + name + "}")
		require.ErrorContains(t, err, "describe the model with model_type: decoder", name)
	}
	for name, want := range map[string]string{"Qwen-3": "qwen3", "qwen3-moe": "qwen3_moe", "gptneox": "gpt_neox", "GPT-2": "gpt2", "deepseek-v3": "deepseek_v3", "lama": "llama", "mixtrall": "mixtral"} {
		_, err := decodeText("{model_type: " + name + "}")
		require.ErrorContains(t, err, "is not known; did you mean \""+want+"\"?")
	}
}

// Types by code of their own: the sizes of InternLM 7B, InternLM2 7B, InternLM3 8B, Orion 14B,
// EXAONE 3.0 7.8B and MiMo-7B, whose cards say 7.32, 7.74, 8.8, 14.5, 7.82 and, with the layer of
// multi-token prediction, 7.83 billion parameters.
func TestOwnCode(t *testing.T) {
	for text, want := range map[string]int64{
		"model_type: internlm, hidden_size: 4096, intermediate_size: 11008, num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 103168, bias: true":                                                                                              7_321_948_160,
		"model_type: internlm2, hidden_size: 4096, intermediate_size: 14336, num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 8, vocab_size: 92544, bias: false, attn_implementation: eager":                                         7_737_708_544,
		"model_type: internlm3, hidden_size: 4096, intermediate_size: 10240, num_attention_heads: 32, num_hidden_layers: 48, num_key_value_heads: 2, head_dim: 128, vocab_size: 128512, bias: false, qkv_bias: false":                                    8_804_241_408,
		"model_type: orion, hidden_size: 5120, intermediate_size: 15360, num_attention_heads: 40, num_hidden_layers: 40, num_key_value_heads: 40, vocab_size: 84608, max_sequence_length: 4096":                                                          14_498_703_360,
		"model_type: exaone, hidden_size: 4096, intermediate_size: 14336, num_attention_heads: 32, num_layers: 32, num_key_value_heads: 8, head_dim: 128, vocab_size: 102400, activation_function: silu, embed_dropout: 0.0, tie_word_embeddings: false": 7_818_448_896,
		"model_type: mimo, hidden_size: 4096, intermediate_size: 11008, num_attention_heads: 32, num_hidden_layers: 36, num_key_value_heads: 8, head_dim: 128, vocab_size: 151680, attention_bias: true, use_sliding_window: false, use_mrope: false":    7_622_619_136,
	} {
		require.Equal(t, want, decode(t, "{"+text+"}").Params().Total, text)
	}
	mimo := decode(t, "{model_type: mimo, num_hidden_layers: 36, num_key_value_heads: 8, num_nextn_predict_layers: 1}").Params()
	require.Equal(t, int64(7_833_409_536), mimo.Total+mimo.MTP, "MiMo-7B")
	s := decode(t, "{model_type: internlm2, num_hidden_layers: 1}")
	require.True(t, s.FusedQKV && s.QKVBias && s.OutBias && !s.MLPBias)
	require.Equal(t, model.LayerNorm, decode(t, "{model_type: orion}").Norm)
	require.Equal(t, int64(4*2048), decode(t, "{model_type: exaone}").FFN)
	for text, want := range map[string]string{
		"model_type: internlm3, bias: true":       "bias: true is not modelled; only false is",
		"model_type: orion, attention_bias: true": "attention_bias: true is not modelled; only false is",
	} {
		_, err := decodeText("{" + text + "}")
		require.ErrorContains(t, err, want)
	}
}

// Types by code of their own whose files say things in another way: sizes of Baichuan 7B and 13B, of
// Baichuan 2 7B and 13B and of Qwen 1.8B, 7B, 14B and 72B, as the safetensors of the hub have them.
func TestBaichuanAndQwen(t *testing.T) {
	const (
		baichuan7  = "model_type: baichuan, hidden_size: 4096, intermediate_size: 11008, num_attention_heads: 32, num_hidden_layers: 32, max_position_embeddings: 4096, hidden_act: silu, tie_word_embeddings: false, "
		baichuan13 = "model_type: baichuan, hidden_size: 5120, intermediate_size: 13696, num_attention_heads: 40, num_hidden_layers: 40, model_max_length: 4096, hidden_act: silu, gradient_checkpointing: false, tie_word_embeddings: false, "
		qwen       = "model_type: qwen, attn_dropout_prob: 0.0, emb_dropout_prob: 0.0, bf16: false, fp16: false, fp32: false, kv_channels: 128, layer_norm_epsilon: 1e-06, max_position_embeddings: 8192, no_bias: true, onnx_safe: null, rotary_emb_base: 10000, rotary_pct: 1.0, scale_attn_weights: true, seq_length: 2048, tie_word_embeddings: false, tokenizer_class: QWenTokenizer, use_cache: true, use_dynamic_ntk: true, use_flash_attn: auto, use_logn_attn: true, "
	)
	for text, want := range map[string]struct {
		params   int64
		position model.Position
		ffn      int64
		normed   bool
	}{
		baichuan7 + "vocab_size: 64000":                    {7_000_559_616, model.Rotary, 11008, false},
		baichuan7 + "vocab_size: 125696":                   {7_505_973_248, model.Rotary, 11008, true},
		baichuan13 + "vocab_size: 64000":                   {13_264_901_120, model.ALiBi, 13696, false},
		baichuan13 + "vocab_size: 125696":                  {13_896_668_160, model.ALiBi, 13696, true},
		baichuan13 + "vocab_size: 64000, z_loss_weight: 0": {13_264_901_120, model.ALiBi, 13696, true},
		qwen + "hidden_size: 2048, intermediate_size: 11008, num_attention_heads: 16, num_hidden_layers: 24, vocab_size: 151936": {1_836_828_672, model.Rotary, 5504, false},
		qwen + "hidden_size: 4096, intermediate_size: 22016, num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 151936": {7_721_324_544, model.Rotary, 11008, false},
		qwen + "hidden_size: 5120, intermediate_size: 27392, num_attention_heads: 40, num_hidden_layers: 40, vocab_size: 152064": {14_167_290_880, model.Rotary, 13696, false},
		qwen + "hidden_size: 8192, intermediate_size: 49152, num_attention_heads: 64, num_hidden_layers: 80, vocab_size: 152064": {72_287_920_128, model.Rotary, 24576, false},
	} {
		s := decode(t, "{"+text+"}")
		require.Equal(t, want.params, s.Params().Total, text)
		require.Equal(t, want.position, s.Position, text)
		require.Equal(t, want.ffn, s.FFN, text)
		require.Equal(t, want.normed, s.NormHead, text)
		require.Equal(t, want.position == model.ALiBi, s.HeadMasks, text)
		require.True(t, s.FusedQKV && s.KVHeads == s.Heads && !s.OutBias && !s.MLPBias && !s.Tied, text)
		require.Equal(t, strings.HasPrefix(text, "model_type: qwen"), s.QKVBias, text)
	}
	require.Equal(t, int64(11008), decode(t, "{model_type: qwen}").FFN, "QWenConfig has 22016")
	for text, want := range map[string]string{
		"model_type: qwen, intermediate_size: 22015":     "intermediate_size 22015 is twice the width of the MLP; give an even number",
		"model_type: qwen, no_bias: false":               "no_bias: false is not modelled; only true is",
		"model_type: qwen, num_key_value_heads: 8":       `"num_key_value_heads" is a key of`,
		"model_type: qwen, visual: {image_size: 448}":    "unknown key",
		"model_type: baichuan, num_key_value_heads: 8":   `"num_key_value_heads" is a key of`,
		"model_type: baichuan, tie_word_embeddings: yes": "tie_word_embeddings",
	} {
		_, err := decodeText("{" + text + "}")
		require.ErrorContains(t, err, want, text)
	}
}
