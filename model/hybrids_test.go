package model_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
)

// Parameters of models whose layers have a state-space mixer or a short convolution in the place of
// attention, as transformers 5.17 counts them.
func TestHybridParams(t *testing.T) {
	granite := func(layers, every, first int) string {
		kinds := make([]string, layers)
		for i := range kinds {
			if kinds[i] = "mamba"; i%every == first {
				kinds[i] = "attention"
			}
		}
		return "{model_type: granitemoehybrid, tie_word_embeddings: true, vocab_size: 100352, mamba_d_head: 64, mamba_d_state: 128, layer_types: [" + strings.Join(kinds, ", ") + "], "
	}
	const lfm2 = "{model_type: lfm2, full_attn_idxs: [2, 5, 8, 10, 12, 14], num_hidden_layers: 16, "
	for text, want := range map[string]int64{
		"{model_type: lfm2}":             2_705_497_600, // all layers have attention
		"{model_type: granitemoehybrid}": 38_601_064_448,
		"{model_type: bamba}":            9_992_765_440,
		"{model_type: falcon_h1}":        8_514_961_408,
		"{model_type: bamba, num_hidden_layers: 6, attn_layer_indices: [3], mamba_d_state: 128}": 2_658_971_776,
		lfm2 + "hidden_size: 2048, intermediate_size: 12288}":                                    1_170_340_608,
		lfm2 + "hidden_size: 2048, intermediate_size: 8192, block_ff_dim: 12288}":                1_170_340_608,
		lfm2 + "hidden_size: 1024, num_attention_heads: 16, intermediate_size: 6656}":            354_483_968,
		granite(40, 10, 5) + "num_hidden_layers: 40, hidden_size: 2048, num_attention_heads: 32, num_key_value_heads: 8, shared_intermediate_size: 8192, num_local_experts: 0, num_experts_per_tok: 0, mamba_n_heads: 64}":                          3_191_396_096,
		granite(10, 10, 5) + "num_hidden_layers: 10, hidden_size: 1536, num_attention_heads: 12, num_key_value_heads: 4, shared_intermediate_size: 1024, intermediate_size: 512, num_local_experts: 64, num_experts_per_tok: 6, mamba_n_heads: 48}": 1_850_365_968,
	} {
		require.Equal(t, want, decode(t, text).Params().Total, text)
	}
}

// What mixes tokens in each layer, as files say it: by words, by a list of layers with attention, or not at all.
func TestMixers(t *testing.T) {
	const generic = "{model_type: decoder, hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 512, vocab_size: 1000, "
	for text, want := range map[string][]model.Mixer{
		"{model_type: lfm2, num_hidden_layers: 3, full_attn_idxs: [1]}":                                                               {"conv", "", "conv"},
		"{model_type: lfm2, num_hidden_layers: 2, layer_types: [full_attention, conv], full_attn_idxs: [1]}":                          {"", "conv"},
		"{model_type: lfm2, num_hidden_layers: 2}":                                                                                    nil,
		"{model_type: bamba, num_hidden_layers: 3, attn_layer_indices: [0, 2]}":                                                       {"", "mamba", ""},
		"{model_type: bamba, num_hidden_layers: 2, attn_layer_indices: null}":                                                         {"mamba", "mamba"},
		"{model_type: falcon_h1, num_hidden_layers: 2}":                                                                               {"paired", "paired"},
		"{model_type: granitemoehybrid, num_hidden_layers: 2}":                                                                        {"mamba", "mamba"},
		"{model_type: granitemoehybrid, num_hidden_layers: 2, layer_types: [linear_attention, attention]}":                            {"mamba", ""}, // as transformers writes them
		"{model_type: granitemoehybrid, num_hidden_layers: 1, layer_types: [attention]}":                                              nil,
		"{model_type: qwen3_next, num_hidden_layers: 4}":                                                                              {"delta", "delta", "delta", ""},
		generic + "layer_types: [mamba, conv, linear_attention, full_attention], linear_num_key_heads: 2, linear_num_value_heads: 2}": {"mamba", "conv", "delta", ""},
	} {
		s := decode(t, text)
		require.Equal(t, want, s.Mixers, text)
		require.Nil(t, s.NoMLP)
	}
	s := decode(t, "{model_type: granitemoehybrid, num_hidden_layers: 1, mamba_n_heads: 64, mamba_d_head: auto}")
	require.Equal(t, int64(128), s.Mamba.HeadDim)
	require.Equal(t, []int64{8, 2, 1024}, []int64{s.MoE.Experts, s.MoE.TopK, s.MoE.SharedFFN}, "of experts beside an MLP")
	h1 := decode(t, "{model_type: falcon_h1, mamba_n_heads: 24, mamba_d_head: auto, mamba_d_ssm: 1536, mamba_rms_norm: true}")
	require.Equal(t, int64(64), h1.Mamba.HeadDim)
	require.Equal(t, h1.Params().Total-32*1536, decode(t, "{model_type: falcon_h1, mamba_n_heads: 24, mamba_d_head: 64, mamba_d_ssm: 1536}").Params().Total, "a norm in every layer")
	f := h1.ForwardFLOPs(4096, 4096, true)
	require.Positive(t, float64(min(f.Attention, f.Scan)), "of both")
	require.Equal(t, int64(11008), decode(t, "{model_type: lfm2, block_auto_adjust_ff_dim: false, intermediate_size: 11008}").FFN)
	require.Equal(t, int64(3776), decode(t, "{model_type: lfm2, block_ffn_dim_multiplier: 1.3, block_multiple_of: 16, intermediate_size: 4352}").FFN)
	require.Equal(t, int64(2901), decode(t, "{model_type: lfm2, block_ffn_dim_multiplier: null, intermediate_size: 4352}").FFN)
	for text, want := range map[string]string{
		"{model_type: lfm2, num_hidden_layers: 2, full_attn_idxs: [2]}":                             "full_attn_idxs names layer 2; there are layers 0 to 1",
		"{model_type: lfm2, num_hidden_layers: 1, layer_types: [mamba]}":                            "layer_types: model_type lfm2 has no mamba; use conv, full_attention,",
		"{model_type: lfm2_moe, num_hidden_layers: 1}":                                              "missing layer_types",
		"{model_type: lfm2_moe, num_hidden_layers: 1, layer_types: [conv], use_expert_bias: false}": "use_expert_bias: false is not modelled",
		"{model_type: bamba, num_hidden_layers: 1, z_loss_coefficient: 0.1}":                        "z_loss_coefficient: 0.1 is not modelled",
		"{model_type: granitemoehybrid, num_hidden_layers: 1, num_experts_per_tok: 0}":              "num_experts_per_tok: 0 is out of range; use 1 to 8",
		generic + "conv_L_cache: 4}":                                                                "no layer has a short convolution; say which have by layer_types",
	} {
		_, err := decodeText(text)
		require.ErrorContains(t, err, want)
	}
}
