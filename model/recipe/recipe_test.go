package recipe

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestEveryRecipeLoads: whole, with a source, a default for everything a job may leave
// out, and kernel classes that exist.
func TestEveryRecipeLoads(t *testing.T) {
	require.Equal(t, []string{"aa-scaling", "automodel", "automodel-moe", "cs336", "deepspeed-hf", "hf-compile", "hf-compile-layer", "hf-eager", "litgpt", "llm-foundry", "megatron-core", "megatron-deepspeed", "megatron-lm", "megatron-pretrain", "megatron-script", "nanochat", "nanogpt", "nanotron", "pytorch", "torchtitan", "torchtitan-eager", "unsloth"}, Names())
	for _, name := range Names() {
		r, err := Load(name)
		require.NoError(t, err, name)
		require.Equal(t, name, r.Name)
		require.NotEmpty(t, r.Title, name)
		require.NotEmpty(t, r.Source, name)
		require.NotEmpty(t, r.Host.Source, name)
		require.Contains(t, r.Precision, r.Default, name)
		require.Contains(t, r.Optimizer, r.DefaultOptimizer, name)
		require.Contains(t, []string{"sdpa", "flash", "unfused"}, r.Attention, name)
		require.NotEmpty(t, r.DataParallel, name)
		require.Contains(t, []string{"", "transformer-engine", "torch"}, r.Structure.Ring, name)
		for n, o := range r.Optimizer {
			_, known := tape.ClassOf(o.Class)
			require.True(t, known, "%s: optimizer %s", name, n)
			if o.Embedding != "" {
				require.True(t, r.Optimizer[o.Embedding].States.Set, "%s: optimizer %s leaves embeddings to %s", name, n, o.Embedding)
			}
		}
		for n, p := range r.Precision {
			require.True(t, p.Weights.Set && p.Compute.Set && p.Gradients.Set && p.Moments.Set && p.Reduce.Set && p.Gather.Set, "%s: %s leaves a dtype open", name, n)
		}
		for _, p := range []string{"rms_norm", "layer_norm", "cross_entropy", "silu", "gelu"} {
			require.Contains(t, r.Programs, p, name)
		}
		turns := map[bool]string{false: "rotary", true: "rotary_apart"}[r.Structure.UnfusedRotary]
		require.Contains(t, r.Programs, turns, name)
		again, err := Load(name)
		require.NoError(t, err)
		require.Same(t, r, again, "read once")
	}
}

// TestPrecision: plain bf16 means the recipe's own mixed precision (bytes per
// parameter of weights, master copy and both moments).
func TestPrecision(t *testing.T) {
	for _, c := range []struct {
		recipe, precision string
		bytes             float64
	}{
		{"megatron-core", "bf16", 2 + 4 + 8}, {"megatron-lm", "fp16", 2 + 4 + 8}, {"deepspeed-hf", "bf16", 2 + 4 + 8}, {"hf-eager", "bf16-pure", 2 + 4}, {"hf-eager", "bf16-autocast", 4 + 8},
		{"hf-eager", "fp32", 4 + 8}, {"llm-foundry", "bf16", 4 + 8}, {"torchtitan", "bf16", 4 + 8},
	} {
		r, err := Load(c.recipe)
		require.NoError(t, err)
		p, ok := r.Precision[c.precision]
		require.True(t, ok, "%s %s", c.recipe, c.precision)
		require.InDelta(t, c.bytes, float64(p.Weights.Size()+p.Master.Size()+2*p.Moments.Size()), 0, "%s %s", c.recipe, c.precision)
	}
}

// TestCastsAreTransformerEngines: what pretrain_gpt.py stores differs from Megatron-Core's
// other users, what its casts cost does not.
func TestCastsAreTransformerEngines(t *testing.T) {
	core, err := Load("megatron-core")
	require.NoError(t, err)
	pretrain, err := Load("megatron-pretrain")
	require.NoError(t, err)
	for name, p := range pretrain.Precision {
		of := core.Precision[name]
		require.Equal(t, of.QuantizeRead, p.QuantizeRead, name)
		require.Equal(t, of.RaggedRows, p.RaggedRows, name)
	}
}

func TestLoadUnknown(t *testing.T) {
	_, err := Load("hf-eagr")
	require.ErrorContains(t, err, `did you mean "hf-eager"?`)
	require.True(t, diag.IsInput(err))
	_, err = Load("../recipe/hf-eager")
	require.Error(t, err)
	_, err = Load("base/pytorch")
	require.Error(t, err, "it only serves to be extended")
}

func TestParseProgram(t *testing.T) {
	p, err := ParseProgram("norm(x, w)", `
    v = mean(pow(x, 2))   # a comment
    a, b = halves(mul(x, rsqrt(v)))
    tiny(3)
    x = fused(save(a), b, rows=-1.5, class=reduce)
    return x, mul(w, a)
`)
	require.NoError(t, err)
	require.Equal(t, "norm", p.Name)
	require.Equal(t, []string{"x", "w"}, p.Params)
	require.Equal(t, 5, p.Slots, "x, w, v, a, b")
	require.Len(t, p.Body, 5)

	mean := p.Body[0].Values[0]
	require.Equal(t, Call, mean.Kind)
	require.Equal(t, "pow", mean.Args[0].Word)
	require.Equal(t, Expr{Kind: Variable, Slot: 0}, mean.Args[0].Args[0])
	require.Equal(t, Expr{Kind: Number, Number: 2}, mean.Args[0].Args[1])
	require.Equal(t, []int{3, 4}, p.Body[1].Targets)
	require.Nil(t, p.Body[2].Targets)
	require.Equal(t, []int{0}, p.Body[3].Targets, "assigned again, not made anew")
	require.Equal(t, Expr{Kind: Keyword, Word: "rows", Args: []Expr{{Kind: Number, Number: -1.5}}}, p.Body[3].Values[0].Args[2])
	require.Equal(t, "reduce", p.Body[3].Values[0].Args[3].Args[0].Word)
	require.True(t, p.Body[4].Return)
	require.Len(t, p.Body[4].Values, 2)
}

func TestParseProgramErrors(t *testing.T) {
	for _, c := range []struct{ heading, body, want string }{
		{"", "return x", "expected name(parameters)"},
		{"f", "return x", "expected ( after the name"},
		{"f(x", "return x", "expected a parameter name"},
		{"f(x, 1)", "return x", "expected a parameter name"},
		{"f(x)", "", "does not end with return"},
		{"f(x)", "return x\ny = x", "does not end with return"},
		{"f(x)", "return", "line 1 (return): expected a value"},
		{"f(x)", "y = \nreturn y", "line 1 (y =): expected a value"},
		{"f(x)", "y = add(x\nreturn y", "expected , or ) after an argument of add"},
		{"f(x)", "y = add(x) z\nreturn y", `unexpected "z"`},
		{"f(x)", "y = 1.2.3\nreturn y", `"1.2.3" is not a number`},
		{"f(x)", "1 = x\nreturn x", "expected a variable"},
	} {
		_, err := ParseProgram(c.heading, c.body)
		require.ErrorContains(t, err, c.want, c.heading+" "+c.body)
	}
}

// FuzzProgram: no text makes the parser panic, and what it accepts has all its slots.
func FuzzProgram(f *testing.F) {
	for _, name := range Names() {
		r, err := Load(name)
		require.NoError(f, err)
		for heading := range r.Programs {
			f.Add(heading+"(x, y)", "z = fused(save(x), y, rows=1)\nreturn z, mul(x, -1.5)")
		}
	}
	f.Add("f(", "return (")
	f.Add("f(x,,)", "a, b = c(d=e(f), ")
	f.Fuzz(func(t *testing.T, heading, body string) {
		p, err := ParseProgram(heading, body)
		if err != nil {
			return
		}
		if p.Name == "" || len(p.Body) == 0 || !p.Body[len(p.Body)-1].Return {
			t.Fatalf("accepted %q %q", heading, body)
		}
		var check func(e Expr)
		check = func(e Expr) {
			if e.Kind == Variable && (e.Slot < 0 || e.Slot >= p.Slots) {
				t.Fatalf("slot %d of %d", e.Slot, p.Slots)
			}
			for _, a := range e.Args {
				check(a)
			}
		}
		for _, s := range p.Body {
			for _, v := range s.Values {
				check(v)
			}
			for _, slot := range s.Targets {
				if slot < 0 || slot >= p.Slots {
					t.Fatalf("slot %d of %d", slot, p.Slots)
				}
			}
		}
		if strings.Contains(p.Name, "(") {
			t.Fatalf("name %q", p.Name)
		}
	})
}

// TestReleases: what Megatron-Core's recipe took up when.
func TestReleases(t *testing.T) {
	r, err := Load("megatron-core")
	require.NoError(t, err)
	for _, c := range []struct {
		release                        units.Release
		fusedLoss, router, free, again bool
	}{
		{12*24 + 6, false, false, false, false}, {12*25 + 8, true, false, false, true}, {12*26 + 3, true, true, false, true}, {12*26 + 5, true, true, true, true},
	} {
		old := r.At(c.release)
		require.Equal(t, c.fusedLoss, old.Structure.FusedLoss, c.release)
		require.Equal(t, c.router, old.Structure.GraphedLayers, c.release)
		require.Equal(t, c.free, old.Precision["mxfp8"].SyncFree, c.release)
		require.Equal(t, c.again, old.Precision["fp8"].QuantizeRead > 1, c.release)
		require.False(t, old.Precision["fp8"].SyncFree)
		require.Equal(t, c.release < 12*25+7, old.Structure.UnfusedRouter, c.release)
		require.Equal(t, c.release >= 12*25+10, old.Overlap.RemoteEP, c.release)
		require.Equal(t, c.release < 12*26+1, old.Structure.NodeGradients, c.release)
		require.Equal(t, c.release < 12*25+2, old.Structure.UnfusedPermutation, c.release)
		require.Equal(t, c.release >= 12*25+2, old.Structure.AnyLayout, c.release)
		require.Equal(t, c.release >= 12*24+8, old.Precision["fp8"].Gather.DType == tape.FP8, c.release)
	}
	require.False(t, r.Structure.UnfusedRouter || r.Structure.UnfusedPermutation)
	require.True(t, r.Precision["mxfp8"].SyncFree, "the recipe itself is left as it was")
	plain, err := Load("megatron-pretrain")
	require.NoError(t, err)
	require.False(t, plain.Precision["mxfp8"].SyncFree || plain.Structure.FusedLoss || plain.Structure.GraphedLayers || plain.Structure.GraphedDense || plain.Overlap.RemoteEP || plain.Structure.FlexDispatcher == LatentModels || !plain.Structure.UnfusedRouter, "nothing that has to be asked for")
}

// TestReleasesOfMegatronLM: SC'21's runs had no fused accumulation of gradients, those of
// May 2022 did. Its children go by releases of their own.
func TestReleasesOfMegatronLM(t *testing.T) {
	for _, c := range []struct {
		recipe  string
		release units.Release
		hook    bool
	}{
		{"megatron-lm", 12*21 + 3, true}, {"megatron-lm", 12*22 + 1, true}, {"megatron-lm", 12*22 + 4, false}, {"megatron-lm", 0, false},
		{"megatron-core", 12*21 + 3, false}, {"megatron-deepspeed", 12*22 + 4, true},
	} {
		r, err := Load(c.recipe)
		require.NoError(t, err)
		require.Equal(t, c.hook, r.At(c.release).Structure.GradientHook, "%s %s", c.recipe, c.release)
	}
}

// TestFlavour: flash is the kernel that a framework takes, flash-attn the package's, in
// the version of its time.
func TestFlavour(t *testing.T) {
	for _, c := range []struct{ recipe, release, attention, want string }{
		{"megatron-core", "", "flash", ""},
		{"megatron-core", "", "flash-attn", "flash"},
		{"megatron-core", "23.06", "flash", "flash1"},
		{"megatron-core", "23.06", "flash-attn", "flash1"},
		{"llm-foundry", "", "flash-attn", "flash1"},
		{"megatron-lm", "23.07", "flash-attn", "flash1"}, // flash-attn 2.0 is of 2023-07-17
		{"megatron-lm", "23.08", "flash-attn", "flash"},
		{"megatron-deepspeed", "23.02", "flash-attn", "flash1"},
		{"megatron-deepspeed", "23.02", "flash", "flash1"},
		{"megatron-deepspeed", "23.10", "flash-attn", "flash"},
		{"hf-eager", "", "flash-attn", "flash"},
		{"hf-eager", "", "flash-attn-3", ""}, // cuDNN's, in effect
		{"hf-eager", "", "flash-attn-4", ""},
		{"hf-eager", "", "sdpa", ""},
		{"torchtitan", "", "flex", "flex"},
	} {
		r, err := Load(c.recipe)
		require.NoError(t, err)
		if c.release != "" {
			var at units.Release
			require.NoError(t, at.UnmarshalText([]byte(c.release)))
			r = r.At(at)
		}
		require.Equal(t, c.want, r.Flavour(c.attention), "%v", c)
	}
}

// Every recipe says how far a host that nobody measured may be from its own.
func TestHostSpread(t *testing.T) {
	for _, name := range Names() {
		r, err := Load(name)
		require.NoError(t, err)
		require.Positive(t, r.Host.Spread, name)
	}
}

// Every difference of an older release is one that a recipe can have.
func TestEveryRelease(t *testing.T) {
	for _, name := range Names() {
		r, err := Load(name)
		require.NoError(t, err)
		for _, o := range r.Releases {
			require.NotEmpty(t, o.Source, "%s before %s", name, o.Before)
			require.NotPanics(t, func() { r.At(o.Before - 1) }, "%s before %s", name, o.Before)
		}
	}
}

// TestAgain: what a recipe says of further calls adds to what it inherits, which stays as it is.
func TestAgain(t *testing.T) {
	base, err := Load("hf-eager")
	require.NoError(t, err)
	own, err := Load("megatron-core")
	require.NoError(t, err)
	require.Equal(t, base.Host.Again["attention"], own.Host.Again["attention"])
	require.Greater(t, own.Host.Again["attention_step"], base.Host.Again["attention_step"])
}

// TestReleasesOfTensorRanks: transformers sharded DTensors until 5.0 of 2026-01, plain tensors then, and
// DTensors again since 2026-08 (huggingface/transformers pulls 43157 and 47579); DeepSpeed's AutoTP never did.
func TestReleasesOfTensorRanks(t *testing.T) {
	for _, c := range []struct {
		recipe  string
		release units.Release
		want    [3]bool // DTensor, CopiedSums, GatheredHead
	}{
		{"hf-eager", 0, [3]bool{true, false, false}}, {"hf-eager", 12*26 + 8, [3]bool{true, false, false}}, {"hf-eager", 12*26 + 7, [3]bool{false, true, true}},
		{"hf-eager", 12*26 + 1, [3]bool{false, true, true}}, {"hf-eager", 12 * 26, [3]bool{true, false, true}}, {"deepspeed-hf", 12*26 + 4, [3]bool{}}, {"torchtitan-eager", 12*26 + 4, [3]bool{}},
	} {
		r, err := Load(c.recipe)
		require.NoError(t, err)
		s := r.At(c.release).Structure
		require.Equal(t, c.want, [3]bool{s.DTensor, s.CopiedSums, s.GatheredHead}, "%s %s", c.recipe, c.release)
	}
}
