package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/model"
)

// looking is a model of the catalog with images in each sequence.
func looking(t require.TestingT, name string, i model.Images) *model.Spec {
	s, err := model.Load(name)
	require.NoError(t, err)
	s.Vision = s.Vision.Of(i)
	return s
}

// seen is a forward pass and a step over one sequence, without the language model's part.
func seen(s *model.Spec) (forward, step float64) {
	const seq = 4096
	text := *s
	text.Vision = nil
	return float64(s.ForwardFLOPs(seq, seq, true).Vision), float64(s.StepFLOPs(seq, seq, true) - text.StepFLOPs(seq, seq, true))
}

// Tokens of images of known sizes, and into what attention cuts them.
func TestImageTokens(t *testing.T) {
	for _, test := range []struct {
		name                       string
		height, width              int64
		patches, positions, tokens int64
		windows                    int64
	}{
		// 28 by 28 pixels a token, windows of 112 by 112 (arXiv 2502.13923, section 2.1).
		{"qwen2.5-vl-7b", 28, 28, 4, 4, 1, 1},
		{"qwen2.5-vl-7b", 448, 672, 32 * 48, 32 * 48, 16 * 24, 4 * 6},
		// What is left at two edges is windows, too (transformers, get_window_index).
		{"qwen2.5-vl-7b", 476, 448, 34 * 32, 34 * 32, 17 * 16, 5 * 4},
		{"qwen2-vl-7b", 448, 672, 32 * 48, 32 * 48, 16 * 24, 1},
		// 32 by 32 pixels a token: patches of 16, merged by two.
		{"qwen3-vl-8b", 1024, 768, 64 * 48, 64 * 48, 32 * 24, 1},
		{"qwen3.5-27b", 64, 32, 8, 8, 2, 1},
		// 256 tokens of 896 by 896 pixels (arXiv 2503.19786, section 2.1).
		{"gemma3-12b", 896, 896, 64 * 64, 64 * 64, 256, 1},
		// 576 of 336 by 336 (arXiv 2310.03744), and a class token that is left out.
		{"llava-1.5-7b", 336, 336, 24 * 24, 577, 576, 1},
	} {
		v := looking(t, test.name, model.Images{Height: test.height, Width: test.width}).Vision
		require.Equal(t, []int64{test.patches, test.positions, test.tokens, test.windows},
			[]int64{v.Patches(), v.Positions(), v.Tokens(), v.Parts(v.Encoder.Kind(0))}, "%s at %dx%d", test.name, test.height, test.width)
		require.Equal(t, int64(1), v.Parts(model.LayerKind{}), "a layer without windows sees an image whole")
	}
}

// Pairs of patches that see one another are those of each window, however large it is: of 34 by
// 32 patches four windows of 8 by 8 and one of 2 by 8 along either of four columns.
func TestPairs(t *testing.T) {
	v := looking(t, "qwen2.5-vl-7b", model.Images{Height: 476, Width: 448}).Vision
	require.Equal(t, int64(4*(4*64*64+16*16)), v.Pairs(v.Encoder.Kind(0)))
	require.Equal(t, int64(34*32*34*32), v.Pairs(model.LayerKind{}))
	v = looking(t, "llava-1.5-7b", model.Images{Height: 336, Width: 336}).Vision
	require.Equal(t, int64(577*577), v.Pairs(v.Encoder.Kind(0)), "a class token sees all, too")
}

// FLOPs of an encoder by hand: two for each element of a matrix and what it multiplies, four
// for each pair of patches and element of a head. Weights have gradients, and so have inputs
// but for pixels, unless nothing in front of them is trained.
func TestVisionFLOPs(t *testing.T) {
	for _, test := range []struct {
		name                                     string
		height, width                            int64
		pixels, layers, attention, first, second float64 // of the projector: its two products
		norm                                     bool    // that has a norm of its own in front of them
	}{
		{"qwen2.5-vl-7b", 448, 672, // 28 layers see windows of 64 patches, four all 1536
			2 * 1536 * 3 * 2 * 14 * 14 * 1280,
			2 * 1536 * 32 * (4*1280*1280 + 3*1280*3420),
			4 * 1280 * 1536 * (28*64 + 4*1536),
			2 * 384 * 5120 * 5120, 2 * 384 * 5120 * 3584, true},
		{"qwen2-vl-7b", 448, 672,
			2 * 1536 * 3 * 2 * 14 * 14 * 1280,
			2 * 1536 * 32 * (4*1280*1280 + 2*1280*5120),
			4 * 1280 * 1536 * 32 * 1536,
			2 * 384 * 5120 * 5120, 2 * 384 * 5120 * 3584, true},
		{"qwen3-vl-4b", 512, 768, // one projector for what comes out, three for inner layers
			2 * 1536 * 3 * 2 * 16 * 16 * 1024,
			2 * 1536 * 24 * (4*1024*1024 + 2*1024*4096),
			4 * 1024 * 1536 * 24 * 1536,
			2 * 384 * 4 * 4096 * 4096, 2 * 384 * 4 * 4096 * 2560, true},
		{"gemma3-4b", 896, 896, // one product, of 16 patches' mean
			2 * 4096 * 3 * 14 * 14 * 1152,
			2 * 4096 * 27 * (4*1152*1152 + 2*1152*4304),
			4 * 1152 * 4096 * 27 * 4096,
			2 * 256 * 1152 * 2560, 0, true},
		{"llava-1.5-7b", 336, 336, // the last of 24 layers is not read; its norm is not, either
			2 * 576 * 3 * 14 * 14 * 1024,
			2 * 577 * 23 * (4*1024*1024 + 2*1024*4096),
			4 * 1024 * 577 * 23 * 577,
			2 * 576 * 1024 * 4096, 2 * 576 * 4096 * 4096, false},
	} {
		const each = 3
		encoder, projector := test.pixels+test.layers+test.attention, test.first+test.second
		own := test.second // what gradients pass for the projector's sake alone
		if test.norm {
			own += test.first
		}
		for _, c := range []struct {
			encoder, projector bool // frozen
			step               float64
		}{
			{false, false, 3*(encoder+projector) - test.pixels},
			{false, true, 3*encoder - test.pixels + 2*projector},
			{true, false, encoder + 2*projector + own},
			{true, true, encoder + projector},
		} {
			forward, step := seen(looking(t, test.name, model.Images{Each: each, Height: test.height, Width: test.width, FrozenEncoder: c.encoder, FrozenProjector: c.projector}))
			require.InEpsilon(t, each*(encoder+projector), forward, 1e-12, test.name)
			require.InEpsilon(t, each*c.step, step, 1e-12, "%s: frozen encoder %v, projector %v", test.name, c.encoder, c.projector)
		}
	}
}

// FLOPs are linear in the number of images, grow with their size, and leave those of the
// language model alone; what is frozen costs less.
func TestVisionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"qwen2-vl-7b", "qwen2.5-vl-3b", "qwen3-vl-2b", "qwen3-vl-30b-a3b", "qwen3.5-27b", "gemma3-4b", "llava-1.5-7b"}).Draw(t, "model")
		of := looking(t, name, model.Images{}).Vision
		unit := of.Patch * of.Merge
		i := model.Images{Each: 1, Height: unit * rapid.Int64Range(1, 40).Draw(t, "rows"), Width: unit * rapid.Int64Range(1, 40).Draw(t, "columns")}
		one := looking(t, name, i)
		v := one.Vision
		require.Equal(t, v.Patches(), v.Tokens()*v.Merge*v.Merge)
		require.Equal(t, i.Height*i.Width, v.Patches()*v.Patch*v.Patch)
		require.Equal(t, of.Height, int64(0), "Of leaves the model's own alone")

		forward, step := seen(one)
		require.Positive(t, forward)
		require.LessOrEqual(t, 2*forward, step)
		require.Less(t, step, 3*forward)

		n := rapid.Int64Range(2, 9).Draw(t, "images")
		more, larger, kept := i, i, i
		more.Each, larger.Height, kept.FrozenEncoder = n, i.Height+unit, true
		several, stepOfSeveral := seen(looking(t, name, more))
		require.InEpsilon(t, float64(n)*forward, several, 1e-12)
		require.InEpsilon(t, float64(n)*step, stepOfSeveral, 1e-9)
		grown, _ := seen(looking(t, name, larger))
		require.Greater(t, grown, forward)
		same, less := seen(looking(t, name, kept))
		require.Equal(t, forward, same)
		require.Less(t, less, step)

		text := *one
		text.Vision = nil
		all, alone := one.ForwardFLOPs(8192, 4096, true), text.ForwardFLOPs(8192, 4096, true)
		require.InEpsilon(t, 2*forward, float64(all.Vision), 1e-12, "of two sequences")
		all.Vision = 0
		require.Equal(t, alone, all)
		none := looking(t, name, model.Images{Height: i.Height, Width: i.Width})
		require.Zero(t, none.ForwardFLOPs(4096, 4096, true).Vision, "no images")
	})
}

// Shapes of an encoder's and a projector's parameters, from the __init__ methods of
// transformers 5.17.
func TestVisionTensors(t *testing.T) {
	const text = "hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 10, intermediate_size: 16"
	separate := `self_attn.q_proj.weight [4 4] column
self_attn.q_proj.bias [4] column nodecay
self_attn.k_proj.weight [4 4] column kv
self_attn.k_proj.bias [4] column kv nodecay
self_attn.v_proj.weight [4 4] column kv
self_attn.v_proj.bias [4] column kv nodecay
self_attn.o_proj.weight [4 4] row
self_attn.o_proj.bias [4] whole nodecay
mlp.up_proj.weight [6 4] column
mlp.up_proj.bias [6] column nodecay
mlp.down_proj.weight [4 6] row
mlp.down_proj.bias [4] whole nodecay
input_layernorm.weight [4] whole nodecay
input_layernorm.bias [4] whole nodecay
post_attention_layernorm.weight [4] whole nodecay
post_attention_layernorm.bias [4] whole nodecay
`
	for _, test := range []struct {
		text, patches, layer, projector, deep string
	}{
		{"{model_type: qwen2_5_vl, text_config: {" + text + "}, vision_config: {hidden_size: 4, out_hidden_size: 8, depth: 2, num_heads: 2, intermediate_size: 6}}",
			`patch_embed.proj.weight [4 3 2 14 14] whole
`, `self_attn.qkv_proj.weight [12 4] column
self_attn.qkv_proj.bias [12] column nodecay
self_attn.o_proj.weight [4 4] row
self_attn.o_proj.bias [4] whole nodecay
mlp.gate_proj.weight [6 4] column
mlp.gate_proj.bias [6] column nodecay
mlp.up_proj.weight [6 4] column
mlp.up_proj.bias [6] column nodecay
mlp.down_proj.weight [4 6] row
mlp.down_proj.bias [4] whole nodecay
input_layernorm.weight [4] whole nodecay
post_attention_layernorm.weight [4] whole nodecay
`, `merger.norm.weight [4] whole nodecay
merger.linear_fc1.weight [16 16] column
merger.linear_fc1.bias [16] column nodecay
merger.linear_fc2.weight [8 16] row
merger.linear_fc2.bias [8] whole nodecay
`, ""},
		{"{model_type: qwen3_vl, text_config: {" + text + "}, vision_config: {hidden_size: 4, out_hidden_size: 8, depth: 3, num_heads: 2, intermediate_size: 6, num_position_embeddings: 9, deepstack_visual_indexes: [1]}}",
			`patch_embed.proj.weight [4 3 2 16 16] whole
patch_embed.proj.bias [4] whole nodecay
pos_embed.weight [9 4] whole
`, `self_attn.qkv_proj.weight [12 4] column
self_attn.qkv_proj.bias [12] column nodecay
self_attn.o_proj.weight [4 4] row
self_attn.o_proj.bias [4] whole nodecay
mlp.up_proj.weight [6 4] column
mlp.up_proj.bias [6] column nodecay
mlp.down_proj.weight [4 6] row
mlp.down_proj.bias [4] whole nodecay
input_layernorm.weight [4] whole nodecay
input_layernorm.bias [4] whole nodecay
post_attention_layernorm.weight [4] whole nodecay
post_attention_layernorm.bias [4] whole nodecay
`, `merger.norm.weight [4] whole nodecay
merger.norm.bias [4] whole nodecay
merger.linear_fc1.weight [16 16] column
merger.linear_fc1.bias [16] column nodecay
merger.linear_fc2.weight [8 16] row
merger.linear_fc2.bias [8] whole nodecay
`, `deepstack_merger.norm.weight [16] whole nodecay
deepstack_merger.norm.bias [16] whole nodecay
deepstack_merger.linear_fc1.weight [16 16] column
deepstack_merger.linear_fc1.bias [16] column nodecay
deepstack_merger.linear_fc2.weight [8 16] row
deepstack_merger.linear_fc2.bias [8] whole nodecay
`},
		{"{model_type: gemma3, mm_tokens_per_image: 4, text_config: {head_dim: 4, " + text + "}, vision_config: {hidden_size: 4, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 6, image_size: 16, patch_size: 4}}",
			`patch_embed.proj.weight [4 3 4 4] whole
patch_embed.proj.bias [4] whole nodecay
pos_embed.weight [16 4] whole
`, separate, `post_layernorm.weight [4] whole nodecay
post_layernorm.bias [4] whole nodecay
multi_modal_projector.mm_input_projection_weight [4 8] whole
multi_modal_projector.mm_soft_emb_norm.weight [4] whole nodecay
`, ""},
		{"{model_type: llava, text_config: {" + text + "}, vision_config: {hidden_size: 4, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 6, image_size: 16, patch_size: 4}}",
			`embeddings.class_embedding [4] whole
patch_embed.proj.weight [4 3 4 4] whole
pos_embed.weight [17 4] whole
pre_layernorm.weight [4] whole nodecay
pre_layernorm.bias [4] whole nodecay
`, separate, `post_layernorm.weight [4] whole nodecay
post_layernorm.bias [4] whole nodecay
multi_modal_projector.linear_1.weight [8 4] column
multi_modal_projector.linear_1.bias [8] column nodecay
multi_modal_projector.linear_2.weight [8 8] row
multi_modal_projector.linear_2.bias [8] whole nodecay
`, ""},
	} {
		s := decode(t, test.text)
		p := s.Vision.Tensors(s.Hidden)
		require.Equal(t, test.patches, show(p.Patches), test.text)
		require.Equal(t, test.layer, show(p.Layers.Layer(s.Vision.Encoder.Kind(0))), test.text)
		require.Equal(t, test.projector, show(p.Projector), test.text)
		require.Equal(t, test.deep, show(p.Deep), test.text)
	}
}

// Encoders of classes by default, with projectors to 3584: what transformers 5.17.0 counts of a class on
// the meta device beyond its language model (2026-11-29). Qwen3.5's has no projectors of inner layers, which
// files that transformers 5 writes say nothing of.
func TestEncoderDefaults(t *testing.T) {
	const text = "text_config: {hidden_size: 3584, num_attention_heads: 28, num_key_value_heads: 4, num_hidden_layers: 4}"
	for file, want := range map[string]int64{
		"model_type: qwen2_vl, vision_config: {hidden_size: 3584}":                                675_759_104,
		"model_type: qwen2_5_vl, vision_config: {}":                                               3_083_025_152,
		"model_type: qwen3_vl, vision_config: {}":                                                 566_949_104,
		"model_type: qwen3_vl_moe, vision_config: {model_type: qwen3_vl_moe_vision}":              566_949_104,
		"model_type: qwen3_5, vision_config: {}":                                                  453_650_672,
		"model_type: qwen3_5_moe, vision_config: {model_type: qwen3_5_moe_vision}":                453_650_672,
		"model_type: qwen3_5, vision_config: {model_type: qwen3_5, deepstack_visual_indexes: []}": 453_650_672,
	} {
		require.Equal(t, want, decode(t, "{"+file+", "+text+"}").Params().Vision, file)
	}
}
