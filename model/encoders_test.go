package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Parameters of ForMaskedLM, as transformers 5.17 counts them.
func TestEncoderParams(t *testing.T) {
	for _, c := range []struct {
		text   string
		params int64
	}{
		{"{model_type: bert}", 109_514_298},
		{"{model_type: bert, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 4096}", 335_174_458},
		{"{model_type: roberta, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 4096, max_position_embeddings: 514, type_vocab_size: 1}", 355_412_057},
		{"{model_type: modernbert}", 149_655_232},
		{"{model_type: modernbert, hidden_size: 1024, intermediate_size: 2624, num_hidden_layers: 28, num_attention_heads: 16}", 395_881_664},
	} {
		s := decode(t, c.text)
		require.Equal(t, c.params, s.Params().Total, c.text)
		require.True(t, s.Bidirectional && s.HeadDense && s.Tied)
	}
	// The generic form has all of it.
	require.Equal(t, int64(109_514_298), decode(t, `{model_type: decoder, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: 3072, vocab_size: 30522,
		max_position_embeddings: 512, gated_mlp: false, norm: layernorm, norm_placement: sum, position: learned, bias: true, type_vocab_size: 2, embedding_norm: true, head_dense: true, head_bias: true,
		tie_word_embeddings: true, use_bidirectional_attention: true}`).Params().Total)
	require.True(t, decode(t, "{model_type: xlm-roberta}").NarrowLoss)
}

// ModernBERT's layers 0, 3, 6 see all of a sequence, the others a window, with a list of them or without.
func TestModernWindows(t *testing.T) {
	s := decode(t, "{model_type: modernbert, num_hidden_layers: 7}")
	require.Equal(t, []bool{false, true, true, false, true, true, false}, s.Windows)
	listed := decode(t, "{model_type: modernbert, num_hidden_layers: 2, layer_types: [sliding_attention, full_attention], local_attention: 64}")
	require.Equal(t, []bool{true, false}, listed.Windows)
	require.Equal(t, int64(64), listed.Window)
}

// Where attention goes both ways all pairs count, whatever the convention.
func TestBothWays(t *testing.T) {
	causal, both := decode(t, "{model_type: llama}"), decode(t, "{model_type: llama, is_causal: false}")
	require.Equal(t, causal.ForwardFLOPs(4096, 4096, false), both.ForwardFLOPs(4096, 4096, true))
	require.Less(t, causal.ForwardFLOPs(4096, 4096, true).Attention, both.ForwardFLOPs(4096, 4096, true).Attention)
	require.False(t, decode(t, "{model_type: llama, is_causal: true}").Bidirectional)
	require.True(t, decode(t, "{model_type: gemma3_text, use_bidirectional_attention: true}").Bidirectional)
	for text, want := range map[string]string{
		"{model_type: llama, is_causal: some}":                      "is_causal",
		"{model_type: deepseek_v32, is_causal: false}":              "is_causal: attention both ways is modelled where it sees all tokens or a window",
		"{model_type: qwen3_next, is_causal: false}":                "not beside picked keys",
		"{model_type: modernbert, mlp_dropout: 0.1}":                "mlp_dropout: 0.1 is not modelled; only 0 is",
		"{model_type: bert, is_decoder: true}":                      "is_decoder: true is not modelled; only false is",
		"{model_type: bert, position_embedding_type: relative_key}": "only absolute is",
		"{model_type: electra, hidden_size: 64}":                    "model_type: bert (",
		"{model_type: nemotron_h, norm_placement: sum}":             "norm_placement",
		"{model_type: decoder, norm_placement: sum, parallel: one_norm, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 99, intermediate_size: 64}": "norms of sums are modelled around",
	} {
		_, err := decodeText(text)
		require.ErrorContains(t, err, want, text)
	}
}
