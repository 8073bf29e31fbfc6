package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
)

// What MPT's own code reads of attn_config and beside it (llm-foundry, models/mpt and
// models/layers/attention.py), with the parameters that follow by hand of one layer of 4 heads
// of 8, a vocabulary of 10 and the final norm.
func TestMPT(t *testing.T) {
	const (
		table  = 10 * 32
		mlp    = 2 * 32 * 128
		square = 32 * 32
	)
	for text, want := range map[string]struct {
		params   int64
		kv       int64
		position model.Position
		norm     model.Norm
		qk       model.QKNorm
	}{
		"": {table + 4*square + mlp + 3*32, 4, model.ALiBi, model.LayerNormNoB, model.NoQKNorm},
		"attn_config: {attn_type: multihead_attention, kv_n_heads: 4, qk_ln: false, sliding_window_size: -1, clip_qkv: null}": {table + 4*square + mlp + 3*32, 4, model.ALiBi, model.LayerNormNoB, model.NoQKNorm},
		"attn_config: {attn_type: grouped_query_attention, kv_n_heads: 2}":                                                    {table + 3*square + mlp + 3*32, 2, model.ALiBi, model.LayerNormNoB, model.NoQKNorm},
		"attn_config: {attn_type: multiquery_attention}":                                                                      {table + 2*square + 2*8*32 + mlp + 3*32, 1, model.ALiBi, model.LayerNormNoB, model.NoQKNorm},
		"attn_config: {attn_type: grouped_query_attention, kv_n_heads: 2, qk_ln: true}":                                       {table + 3*square + mlp + 3*32 + 32 + 16, 2, model.ALiBi, model.LayerNormNoB, model.FullQKNorm},
		"attn_config: {qk_gn: true}":                                  {table + 4*square + mlp + 3*32 + 8 + 8, 4, model.ALiBi, model.LayerNormNoB, model.HeadQKNorm},
		"attn_config: {rope: true}":                                   {table + 4*square + mlp + 3*32, 4, model.Rotary, model.LayerNormNoB, model.NoQKNorm},
		"attn_config: {rope: true, alibi: false}":                     {table + 4*square + mlp + 3*32, 4, model.Rotary, model.LayerNormNoB, model.NoQKNorm},
		"attn_config: {alibi: false}, max_seq_len: 20":                {table + 20*32 + 4*square + mlp + 3*32, 4, model.LearnedPosition, model.LayerNormNoB, model.NoQKNorm},
		"attn_config: {alibi: false}, learned_pos_emb: false":         {table + 4*square + mlp + 3*32, 4, model.NoPosition, model.LayerNormNoB, model.NoQKNorm},
		"no_bias: false, norm_type: layernorm":                        {table + 4*square + mlp + 6*32 + 4*32 + 128 + 32, 4, model.ALiBi, model.LayerNorm, model.NoQKNorm},
		"norm_type: low_precision_rmsnorm":                            {table + 4*square + mlp + 3*32, 4, model.ALiBi, model.RMSNorm, model.NoQKNorm},
		"attn_config: {tie_word_embeddings: false, num_labels: 3}":    {table + 4*square + mlp + 3*32, 4, model.ALiBi, model.LayerNormNoB, model.NoQKNorm}, // as transformers writes it
		"ffn_config: {ffn_type: mptmlp, fc_type: torch}, fc_type: te": {table + 4*square + mlp + 3*32, 4, model.ALiBi, model.LayerNormNoB, model.NoQKNorm},
	} {
		t.Run(text, func(t *testing.T) {
			s := decode(t, "{model_type: mpt, d_model: 32, n_heads: 4, n_layers: 1, vocab_size: 10, "+text+"}")
			require.Equal(t, want.params, s.Params().Total)
			require.Equal(t, want.kv, s.KVHeads)
			require.Equal(t, want.position, s.Position)
			require.Equal(t, want.norm, s.Norm)
			require.Equal(t, want.qk, s.QKNorm)
		})
	}
	replit := decode(t, "{model_type: mpt, d_model: 3072, n_heads: 24, n_layers: 32, vocab_size: 32768, no_bias: true, attn_config: {attn_type: grouped_query_attention, kv_n_heads: 8, alibi: true}}")
	require.Equal(t, int64(3_322_088_448), replit.Params().Total, "Replit Code 1.5")
	for text, want := range map[string]string{
		"attn_config: {attn_type: grouped_query_attention}":                "missing attn_config.kv_n_heads",
		"attn_config: {attn_type: latent_attention}":                       `attn_type: "latent_attention" is not known`,
		"attn_config: {kv_n_heads: 8}":                                     "kv_n_heads 8: multihead_attention has as many as n_heads, 16; set attn_type to grouped_query_attention, or leave it out",
		"attn_config: {rope: true, alibi: true}":                           "rope and alibi at once are not modelled; set one of them to false",
		"attn_config: {qk_ln: true, qk_gn: true}":                          "qk_ln is one norm over all heads, qk_gn one over each; keep one",
		"attn_config: {prefix_lm: true}":                                   "attn_config.prefix_lm: true is not modelled; only false is",
		"attn_config: {sliding_window_size: 512}":                          "attn_config.sliding_window_size: 512 is not modelled; only -1 is",
		"attn_config: {fused_qkv: false}":                                  "attn_config.fused_qkv: false is not modelled; only true is",
		"attn_config: {reuse_kv_layer_idx: -1}":                            `unknown key "attn_config.reuse_kv_layer_idx"`,
		"attn_config: 3":                                                   "attn_config: expected a mapping",
		"ffn_config: {ffn_type: mptglu}":                                   "ffn_config.ffn_type: mptglu is not modelled; only mptmlp is",
		"norm_type: batchnorm":                                             `norm_type: "batchnorm" is not known`,
		"attn_config: {attn_pdrop: 2}":                                     "attn_pdrop: 2 is out of range",
		"attn_config: {alibi: true, alibi: true}":                          `key "attn_config.alibi" is given twice`,
		"attn_config: {attn_type: grouped_query_attention, kv_n_heads: 3}": "kv_n_heads 3 does not divide num_attention_heads 16",
	} {
		_, err := decodeText("{model_type: mpt, " + text + "}")
		require.ErrorContains(t, err, want, text)
	}
}
