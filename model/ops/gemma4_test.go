package ops

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// The models of one H200 that profiler traces are of (2026-11-25; transformers 5, bf16, two
// sequences of 2048): one like Gemma 4 31B, one like 26B-A4B, one like E2B.
var gemmas = map[string]string{
	"dense":   "hidden_size: 2560, intermediate_size: 10240, num_hidden_layers: 6, num_attention_heads: 16, num_key_value_heads: 8, num_global_key_value_heads: 2, attention_k_eq_v: true, sliding_window: 1024, hidden_size_per_layer_input: 0",
	"experts": "hidden_size: 2048, intermediate_size: 2112, num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, num_global_key_value_heads: 2, attention_k_eq_v: true, sliding_window: 1024, hidden_size_per_layer_input: 0, enable_moe_block: true, num_experts: 32, top_k_experts: 8, moe_intermediate_size: 704",
	"shared": "hidden_size: 1536, intermediate_size: 6144, num_hidden_layers: 10, num_attention_heads: 8, num_key_value_heads: 1, sliding_window: 512, hidden_size_per_layer_input: 256, vocab_size_per_layer_input: 32000, num_kv_shared_layers: 5, use_double_wide_mlp: true, " +
		"layer_types: [sliding_attention, sliding_attention, sliding_attention, sliding_attention, full_attention, sliding_attention, sliding_attention, sliding_attention, sliding_attention, full_attention]",
}

func gemma(t testing.TB, name string) Config {
	doc, err := yamlx.Parse("model.yaml", []byte("{model_type: gemma4_text, vocab_size: 32000, final_logit_softcapping: 30.0, "+gemmas[name]+"}"))
	require.NoError(t, err)
	s, errs := model.Decode(doc, doc.Root)
	require.NoError(t, errs.Err())
	c := config(t, "gemma4-e2b", "hf-eager")
	c.Spec, c.Precision, c.Sequence, c.Efficient = s, c.Recipe.Precision["bf16-pure"], 2048, "efficient"
	return c
}

// at is the unit that layer i runs.
func at(m *Model, i int) *Unit { return &m.Kinds[m.Layers[i]] }

// TestGemma4Kernels: kernels of each layer in those traces, from one scaling of the stream
// to the next, without two fills of one element for each mask; all of their backward passes.
// The sorts of experts are as many as the device likes; a copy of rows stands for each norm's
// power of its mean backward, beside one that is a copy there, too.
func TestGemma4Kernels(t *testing.T) {
	for name, c := range map[string]struct {
		forward  map[int]int
		backward int
		within   float64
	}{
		"dense":   {map[int]int{1: 89 - 2, 4: 89 - 2, 5: 85}, 975, 0.001},
		"experts": {map[int]int{1: 171 - 2, 5: 167}, 1839, 0.03},
		"shared":  {map[int]int{1: 101 - 2, 4: 98, 5: 78 - 2, 9: 75}, 1693, 0.001},
	} {
		m := built(t, gemma(t, name))
		for i, want := range c.forward {
			require.InEpsilon(t, want, launches(&at(m, i).Forward), c.within, "%s, layer %d", name, i)
		}
		n := launches(&m.Embedding.Backward) + launches(&m.Head.Backward)
		for i := range m.Layers {
			n += launches(&at(m, i).Backward) + number(&at(m, i).Backward, "copy")/2
		}
		require.InEpsilon(t, c.backward, n, 0.015, "%s: backward", name)
	}
}

// TestGemma4Norms: nine kernels where there is a weight, seven where there is none, of values
// (modeling_gemma4.py, Gemma4RMSNorm; the same traces). A layer has four norms of the stream,
// one more of its own part, three more around experts; and those of heads.
func TestGemma4Norms(t *testing.T) {
	const weighted, plain = 9, 7
	for _, x := range []struct {
		name            string
		layer           int
		weighted, plain int
	}{{"dense", 0, 4 + 2, 1}, {"dense", 5, 4 + 2, 1}, {"experts", 0, 4 + 3 + 2, 1}, {"shared", 0, 4 + 1 + 2, 1}, {"shared", 5, 4 + 1 + 1, 0}, {"shared", 9, 4 + 1 + 1, 0}} {
		u := at(built(t, gemma(t, x.name)), x.layer)
		require.Equal(t, weighted*x.weighted+plain*x.plain, in(&u.Forward, "norm"), "%s, layer %d", x.name, x.layer)
		classes := map[string]int{}
		for _, o := range u.Forward.Ops {
			if o.Module == "norm" {
				classes[o.Prim+" "+o.Class.String()]++
			}
		}
		require.Equal(t, map[string]int{
			"to unrolled": 2*x.weighted + x.plain, "pow vectorized": 2 * (x.weighted + x.plain), "mean row-reduce": x.weighted + x.plain, "add_scalar vectorized": x.weighted + x.plain,
			"mul strided4": 2*x.weighted + x.plain, "to vectorized": x.weighted + x.plain,
		}, classes, "%s, layer %d", x.name, x.layer)
	}
}

// TestGemma4Attention: how wide heads are, how many share keys, and what is projected. PyTorch's
// memory-efficient kernel takes heads of 512, for which transformers repeats keys and values;
// a mask, too, has them repeated. Values without a projection are that of the keys.
func TestGemma4Attention(t *testing.T) {
	for _, x := range []struct {
		name     string
		layer    int
		linears  int // of attention, with the output's
		heads    int64
		width    int64
		clones   int // keys and values, where there is more than one head of them
		attended string
		masked   bool
	}{
		{"dense", 0, 4, 16, 256, 2, "", true},
		{"dense", 5, 3, 16, 512, 2, "efficient", false},
		{"shared", 0, 4, 8, 256, 0, "", true},
		{"shared", 4, 4, 8, 512, 0, "efficient", false},
		{"shared", 5, 2, 8, 256, 0, "", true},
		{"shared", 9, 2, 8, 512, 0, "efficient", false},
	} {
		u := at(built(t, gemma(t, x.name)), x.layer)
		linears, clones := 0, 0
		for _, o := range u.Forward.Ops {
			switch {
			case o.Module == "attention" && o.Class == tape.GEMM:
				linears++
			case o.Module == "attention" && o.Prim == "clone":
				clones++
			case o.Class == tape.Attention:
				a := o.Attn
				require.Equal(t, []int64{x.heads, x.heads, x.width, x.width}, []int64{a.Heads, a.KVHeads, a.QKDim, a.VDim}, "%s, layer %d", x.name, x.layer)
				require.Equal(t, x.attended, a.Flavour, "%s, layer %d", x.name, x.layer)
				require.Equal(t, x.masked, a.Masked, "%s, layer %d", x.name, x.layer)
			}
		}
		require.Equal(t, []int{x.linears, x.clones}, []int{linears, clones}, "%s, layer %d", x.name, x.layer)
		others := 3 // of the MLP, and of the layer's own part
		if x.name == "shared" {
			others += 2
		}
		require.Equal(t, x.linears+others, products(&u.Backward)[tape.LayoutWgrad], "%s, layer %d: gradients", x.name, x.layer)
	}
	c := gemma(t, "dense")
	c.Attention = "flash" // is what the user asked for, whatever it takes
	for _, o := range at(built(t, c), 5).Forward.Ops {
		if o.Class == tape.Attention {
			require.NotEqual(t, "efficient", o.Attn.Flavour)
			require.Equal(t, int64(2), o.Attn.KVHeads, "no copies of heads")
		}
	}
}

// TestGemma4Borrows: a layer that reads keys and values of another adds its gradient of them to
// the others', and that of its part of the embeddings; one that has its own does the latter.
func TestGemma4Borrows(t *testing.T) {
	const tokens, all = 2 * 2048, 10 * 256 // embeddings of ten layers
	m := built(t, gemma(t, "shared"))
	for layer, width := range map[int]float64{0: 0, 4: 0, 5: 256, 9: 512} { // of the one head that they borrow
		u := at(m, layer)
		require.Zero(t, number(&u.Forward, "add_"), "nothing is added forward")
		var keys, parts int
		for _, o := range u.Backward.Ops {
			switch {
			case o.Prim != "add_":
			case o.Module == "attention" && o.Elements == tokens*width:
				keys++
			case o.Module == "per layer" && o.Elements == tokens*all:
				parts++
			}
		}
		want := 0
		if width > 0 {
			want = 2
		}
		require.Equal(t, want, keys, "layer %d: keys and values", layer)
		require.Equal(t, 1, parts, "layer %d: the part of all", layer)
	}
}

// TestGemma4Router: kernels of its product forward, with a norm without weight before it, the
// factors, softmax, the choice and its sum, and a factor of each expert (Gemma4TextRouter).
func TestGemma4Router(t *testing.T) {
	u := at(built(t, gemma(t, "experts")), 0)
	var got []string
	for _, o := range u.Forward.Ops {
		if o.Module == "router" && o.Prim != "memset" {
			got = append(got, fmt.Sprintf("%s %d", o.Prim, int64(o.Elements)))
		}
	}
	const stream, chosen, tokens = 4096 * 2048, 4096 * 8, 4096
	want := []string{}
	for _, k := range []struct {
		prim string
		n    int
	}{{"to", stream}, {"pow", stream}, {"mean", stream}, {"add_scalar", tokens}, {"pow", tokens}, {"mul", stream}, {"to", stream}, {"mul", stream}, {"mul_scalar", stream}, {"linear", tokens * 32}, {"to", tokens * 32},
		{"softmax", tokens * 32}, {"topk", tokens * 32}, {"topk_sort", chosen * 2}, {"sum", chosen}, {"copy", chosen}, {"div", chosen}, {"index", chosen}, {"mul", chosen}} {
		want = append(want, fmt.Sprintf("%s %d", k.prim, k.n))
	}
	require.Equal(t, want, got)
	require.Positive(t, in(&u.Backward, "router"))
}

// TestGemma4IsSound: whatever is recomputed, memory is given back and each parameter has its
// gradient, those that other layers' keys go to and factors of the router among them.
func TestGemma4IsSound(t *testing.T) {
	for name := range gemmas {
		for _, again := range []Recompute{NoRecompute, SelectiveRecompute, FullRecompute} {
			for _, attention := range []string{"sdpa", "flash", "unfused"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, again, attention), func(t *testing.T) {
					c := gemma(t, name)
					c.Recompute, c.Attention = again, attention
					m := built(t, c)
					list, times := unitsOf(m)
					var params, products float64
					for i, u := range list {
						sound(t, "hf-eager", u)
						params += times[i] * float64(u.LocalParams())
						products += times[i] * flops(&u.Forward)
					}
					require.Equal(t, float64(c.Spec.Params().Total), params)
					if f := c.Spec.ForwardFLOPs(c.MicroBatch*c.Sequence, c.Sequence, true); attention == "flash" {
						require.InEpsilon(t, float64(f.Total()-f.Attention), products, 1e-9)
					}
				})
			}
		}
	}
}

// TestMissingNames: who picked a recipe that lacks a program reads which have it, and those run
// the model and are for such models, but for compiled ones, which go without saying.
func TestMissingNames(t *testing.T) {
	for _, x := range []struct{ model, recipe, has string }{
		{"gemma4-31b", "megatron-core", "norms as Gemma 4's, which multiply by their weight in fp32"},
		{"gemma4-26b-a4b", "megatron-core", "norms as Gemma 4's, which multiply by their weight in fp32"},
		{"apertus-8b", "torchtitan-eager", "the activation xIELU (hidden_act: xielu)"},
	} {
		c := config(t, x.model, x.recipe)
		experts := c.Spec.MoE != nil
		_, missing := tryBuild(c)
		text := Missing{x.recipe, missing, experts}.Error()
		names, ok := strings.CutPrefix(text, "runtime.recipe: "+x.recipe+" does not run this model, which has "+x.has+"; use ")
		require.True(t, ok, text)
		named := strings.Split(strings.ReplaceAll(names, " or ", ", "), ", ")
		require.Contains(t, named, "hf-eager")
		for _, r := range recipe.Names() {
			of, err := recipe.Load(r)
			require.NoError(t, err)
			if of.Structure.Compiled || of.Structure.HandLayers || !of.Structure.Takes(experts) {
				require.NotContains(t, named, r)
				continue
			}
			_, missing := tryBuild(config(t, x.model, r))
			require.Equal(t, missing == "", slices.Contains(named, r), "%s: %s", r, text)
		}
	}
	for _, r := range recipe.Names() { // no name of an operation is all that is said
		for _, name := range families {
			if _, missing := tryBuild(config(t, name, r)); missing != "" && !strings.HasPrefix(missing, "dropout_") && !strings.HasPrefix(missing, "a ") {
				require.Contains(t, has, missing, "%s of %s", name, r)
			}
		}
	}
	require.NotContains(t, Missing{"nanotron", "experts", true}.Error(), "automodel,")
	require.NotContains(t, Missing{"nanotron", "gemma_rms_norm", false}.Error(), "automodel-moe")
	require.ErrorContains(t, Missing{Recipe: "megatron-core", Program: "no_such_program"}, "; use another recipe")
}
