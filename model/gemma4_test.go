package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
)

// plain writes tensors as "name [shape]", the name without .weight.
func plain(tensors []model.Tensor) string {
	var b strings.Builder
	for _, t := range tensors {
		if !t.TiedCopy {
			fmt.Fprintf(&b, "%s %v\n", strings.TrimSuffix(t.Name, ".weight"), t.Shape)
		}
	}
	return b.String()
}

// TestGemma4Tensors: list(model.named_parameters()) and the count of three models of
// transformers 5 that ran on an H100 (2026-11-26): one like 31B, one like 26B-A4B, one like
// E2B. The keys' norm lies before the keys' projection, norms of experts after the experts.
func TestGemma4Tensors(t *testing.T) {
	const (
		norms = `input_layernorm [%[1]d]
post_attention_layernorm [%[1]d]
pre_feedforward_layernorm [%[1]d]
post_feedforward_layernorm [%[1]d]
`
		experts = `router.scale [2048]
router.per_expert_scale [32]
router.proj [32 2048]
experts.gate_up_proj [32 1408 2048]
experts.down_proj [32 2048 704]
post_feedforward_layernorm_1 [2048]
post_feedforward_layernorm_2 [2048]
pre_feedforward_layernorm_2 [2048]
`
		own = `per_layer_input_gate [256 1536]
per_layer_projection [1536 256]
post_per_layer_input_norm [1536]
`
	)
	// Widths: hidden size, of queries, of a head, of keys, of values, of the MLP; 0: no such tensor.
	layer := func(hidden, q, head, k, v, ffn int, rest string) string {
		s := fmt.Sprintf("self_attn.q_proj [%d %d]\nself_attn.q_norm [%d]\n", q, hidden, head)
		if k > 0 {
			s += fmt.Sprintf("self_attn.k_norm [%d]\nself_attn.k_proj [%d %d]\n", head, k, hidden)
		}
		if v > 0 {
			s += fmt.Sprintf("self_attn.v_proj [%d %d]\n", v, hidden)
		}
		return s + fmt.Sprintf("self_attn.o_proj [%[2]d %[1]d]\nmlp.gate_proj [%[3]d %[2]d]\nmlp.up_proj [%[3]d %[2]d]\nmlp.down_proj [%[2]d %[3]d]\n", q, hidden, ffn) +
			fmt.Sprintf(norms, hidden) + rest
	}
	for _, test := range []struct {
		text      string
		total     int64
		embedding string
		hidden    int
		layers    map[int64]string
	}{
		{`hidden_size: 2560, intermediate_size: 10240, num_hidden_layers: 6, num_attention_heads: 16, num_key_value_heads: 8, num_global_key_value_heads: 2, attention_k_eq_v: true,
		  sliding_window: 1024, hidden_size_per_layer_input: 0`, 755_697_664, "model.embed_tokens [32000 2560]\n", 2560, map[int64]string{
			0: layer(2560, 4096, 256, 2048, 2048, 10240, ""),
			4: layer(2560, 4096, 256, 2048, 2048, 10240, ""),
			5: layer(2560, 8192, 512, 1024, 0, 10240, ""),
		}},
		{`hidden_size: 2048, intermediate_size: 2112, num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, num_global_key_value_heads: 2, attention_k_eq_v: true,
		  sliding_window: 1024, hidden_size_per_layer_input: 0, enable_moe_block: true, num_experts: 32, top_k_experts: 8, moe_intermediate_size: 704`, 1_056_151_232, "model.embed_tokens [32000 2048]\n", 2048, map[int64]string{
			0: layer(2048, 2048, 256, 1024, 1024, 2112, experts),
			5: layer(2048, 4096, 512, 1024, 0, 2112, experts),
		}},
		{`hidden_size: 1536, intermediate_size: 6144, num_hidden_layers: 10, num_attention_heads: 8, num_key_value_heads: 1, attention_k_eq_v: false, sliding_window: 512, hidden_size_per_layer_input: 256,
		  vocab_size_per_layer_input: 32000, num_kv_shared_layers: 5, use_double_wide_mlp: true, layer_types: [` + strings.Repeat("sliding_attention, sliding_attention, sliding_attention, sliding_attention, full_attention, ", 2) + `]`, 647_841_024,
			"model.embed_tokens [32000 1536]\nmodel.embed_tokens_per_layer [32000 2560]\nmodel.per_layer_model_projection [2560 1536]\nmodel.per_layer_projection_norm [256]\n", 1536, map[int64]string{
				0: layer(1536, 2048, 256, 256, 256, 6144, own),
				4: layer(1536, 4096, 512, 512, 512, 6144, own),
				5: layer(1536, 2048, 256, 0, 0, 12288, own),
				9: layer(1536, 4096, 512, 0, 0, 12288, own),
			}},
	} {
		s := decode(t, "{model_type: gemma4_text, head_dim: 256, global_head_dim: 512, final_logit_softcapping: 30.0, vocab_size: 32000, "+test.text+"}")
		p := s.Tensors()
		require.Equal(t, test.embedding, plain(p.Embedding))
		require.Equal(t, fmt.Sprintf("model.norm [%d]\n", test.hidden), plain(p.Head), "the head is the table")
		for i, want := range test.layers {
			require.Equal(t, want, plain(p.Layer(s.Kind(i))), "layer %d of %d", i, s.Layers)
		}
		require.Equal(t, test.total, s.Params().Total)
	}
}

// TestGemma4FLOPs counts by hand: heads of 2 in layers with a window and of 4 in others, which
// have one key head and no values' projection; the last two layers have no keys and an MLP
// twice as wide (modeling_gemma4.py, Gemma4TextAttention and Gemma4TextMLP).
func TestGemma4FLOPs(t *testing.T) {
	const text = "model_type: gemma4_text, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, global_head_dim: 4, " +
		"num_global_key_value_heads: 1, attention_k_eq_v: true, intermediate_size: 16, vocab_size: 10, vocab_size_per_layer_input: 20, sliding_window: 3, " +
		"layer_types: [sliding_attention, full_attention, sliding_attention, full_attention], num_kv_shared_layers: 2, "
	s := decode(t, "{"+text+"hidden_size_per_layer_input: 6, use_double_wide_mlp: true}")
	const tokens, seq = 20, 10
	f := s.ForwardFLOPs(tokens, seq, true)
	const (
		windowed = 8*8 + 2*8*4 + 8*8    // queries, keys and values, output
		global   = 8*16 + 8*4 + 16*8    // values are the keys
		borrows  = 2 * (8*8 + 8*16)     // of either kind: queries and output
		mlps     = 3 * 8 * 16 * 2 * 3   // two, and two of twice their width
		own      = 4 * 2 * 8 * 6        // into and out of each layer's part
		parts    = 8 * 4 * 6            // the projection that makes all of them
		band     = 10*0.5 + 9 + 8 + 3.5 // pairs, half of each edge as TestWindows has it
	)
	require.Equal(t, 2.*tokens*(windowed+global+borrows), float64(f.Projections))
	require.Equal(t, 2.*tokens*(mlps+own+parts), float64(f.MLP))
	require.Equal(t, 2.*tokens*8*10, float64(f.Head), "the tables multiply nothing")
	require.Equal(t, tokens/seq*2*(band*4*4*2+50*4*4*4), float64(f.Attention))

	narrow := decode(t, "{"+text+"hidden_size_per_layer_input: 0}")
	require.Equal(t, 2.*tokens*3*8*16*4, float64(narrow.ForwardFLOPs(tokens, seq, true).MLP))
	require.False(t, s.Kind(1) == s.Kind(3), "one has keys, the other has not")
}

// TestGemma4Layers: the last layer sees all keys whatever layer_types says
// (configuration_gemma4.py), and key heads of layers without a window are those of others
// unless their values are the keys.
func TestGemma4Layers(t *testing.T) {
	s := decode(t, "{model_type: gemma4_text, num_hidden_layers: 2, layer_types: [sliding_attention, sliding_attention], num_global_key_value_heads: 1}")
	require.Equal(t, model.LayerKind{Windowed: true}, s.Kind(0))
	require.Equal(t, model.LayerKind{Global: true}, s.Kind(1))
	require.Equal(t, []int64{256, 4}, []int64{s.Of(s.Kind(0)).HeadDim, s.Of(s.Kind(0)).KVHeads})
	require.Equal(t, []int64{512, 4}, []int64{s.Of(s.Kind(1)).HeadDim, s.Of(s.Kind(1)).KVHeads})
}

// TestLayerConfig: what transformers from 5.17 on writes in the place of global_head_dim and
// num_global_key_value_heads says the same.
func TestLayerConfig(t *testing.T) {
	const shape = "{model_type: gemma4_text, hidden_size: 64, num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 16, attention_k_eq_v: true, hidden_size_per_layer_input: 0, "
	want, err := decodeText(shape + "global_head_dim: 32, num_global_key_value_heads: 2}")
	require.NoError(t, err)
	got, err := decodeText(shape + "per_layer_config: {5: {head_dim: 32, num_key_value_heads: 2}}}")
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = decodeText(shape + "per_layer_config: {4: {head_dim: 32}, 5: {head_dim: 64}}}")
	require.ErrorContains(t, err, "layers of more than two kinds of sizes are not modelled")
	_, err = decodeText(shape + "per_layer_config: {5: {head_dim: 0}}}")
	require.ErrorContains(t, err, "per_layer_config: head_dim 0 is out of range; use 1 to 100000")
	_, err = decodeText(shape + "per_layer_config: 5}")
	require.ErrorContains(t, err, "expected a mapping of layers to their sizes")
}

// TestKindNames: kinds of layer that differ have names that do, by which explain lists them.
func TestKindNames(t *testing.T) {
	for name, want := range map[string]string{
		"gemma4-31b":     "global layer, windowed layer",
		"gemma4-26b-a4b": "global moe layer, windowed moe layer",
		"gemma4-e4b":     "borrowing global layer, borrowing windowed layer, global layer, windowed layer",
	} {
		s, err := model.Load(name)
		require.NoError(t, err)
		var names []string
		for i := range s.Layers {
			names = append(names, s.Kind(i).String())
		}
		slices.Sort(names)
		names = slices.Compact(names)
		require.Equal(t, want, strings.Join(names, ", "))
	}
}
