package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// TestNormWidths: Transformer Engine has RMS norms tuned for rows of 4096 and layer norms for
// those of 12,288, none for RMS norms of 5120 or of a head's 128; cuDNN takes all in MXFP8's
// recipes; older Megatron has kernels of its own.
func TestNormWidths(t *testing.T) {
	for _, c := range []struct {
		model, recipe, precision string
		norm, back               []tape.Class // of the norms of a layer, in turn
		sum                      tape.Class
	}{
		{"llama3-8b", "megatron-core", "bf16", []tape.Class{tape.RMSTuned, tape.RMSTuned}, []tape.Class{tape.RMSTunedBack, tape.RMSTunedBack}, tape.NormSum},
		{"llama2-13b", "megatron-core", "bf16", []tape.Class{tape.RMSGeneral, tape.RMSGeneral}, []tape.Class{tape.RMSGeneralBack, tape.RMSGeneralBack}, tape.NormSum},
		{"llama2-13b", "megatron-core", "mxfp8", []tape.Class{tape.RMSTuned, tape.RMSTuned}, []tape.Class{tape.RMSTunedBack, tape.RMSTunedBack}, tape.NormSum},
		{"gpt3-175b", "megatron-core", "bf16", []tape.Class{tape.LNTuned, tape.LNTuned}, []tape.Class{tape.LNTunedBack, tape.LNTunedBack}, tape.NormSum},
		{"qwen3-8b", "megatron-core", "bf16", []tape.Class{tape.RMSTuned, tape.RMSGeneral, tape.RMSGeneral, tape.RMSTuned},
			[]tape.Class{tape.RMSTunedBack, tape.RMSGeneralBack, tape.RMSGeneralBack, tape.RMSTunedBack}, tape.NormSum},
		{"llama2-7b", "megatron-lm", "bf16", []tape.Class{tape.NormForward, tape.NormForward}, []tape.Class{tape.NormBackward, tape.NormBackward}, tape.ColReduce},
	} {
		conf := config(t, c.model, c.recipe)
		p, ok := conf.Recipe.Precision[c.precision]
		require.True(t, ok)
		conf.Precision = p
		layer := &Build(conf).Kinds[0]
		classes := func(s *tape.Section, prims ...string) (out []tape.Class) {
			for i := range s.Ops {
				for _, p := range prims {
					if s.Ops[i].Prim == p {
						out = append(out, s.Ops[i].Class)
					}
				}
			}
			return out
		}
		require.Equal(t, c.norm, classes(&layer.Forward, "norm", "norm_own"), c)
		require.Equal(t, c.back, classes(&layer.Backward, "norm_backward", "norm_own_backward"), c)
		for _, sum := range classes(&layer.Backward, "norm_sum", "norm_own_sum") {
			require.Equal(t, c.sum, sum, c)
		}
	}
}

// TestNarrowSaved: with one scale a tensor, tensor ranks keep their part of what was gathered
// as it was sent, and the output projection keeps what attention does; values that are a part
// of one projection beside turned keys are copied, so that the projection goes. Of a layer of
// 5120 and 8192 tokens on each of two ranks measured 0.1 to 0.3 % off (two and four H200 and
// H100, core_v0.16.1 with Transformer Engine 2.11, 2026-11-27), where it was 2 to 5.
func TestNarrowSaved(t *testing.T) {
	kept := func(precision string, change func(*recipe.Structure)) units.Bytes {
		c := config(t, "llama2-13b", "megatron-script")
		c.Shard.TP, c.Shard.SequenceParallel, c.MicroBatch, c.Sequence = 2, true, 2, 4096
		c.Precision = c.Recipe.Precision[precision]
		r := *c.Recipe
		change(&r.Structure)
		c.Recipe = &r
		return left(&Build(c).Kinds[0].Forward)
	}
	same := func(*recipe.Structure) {}
	tokens, width := units.Bytes(8192), units.Bytes(5120)
	for _, c := range []struct {
		precision string
		change    func(*recipe.Structure)
		more      units.Bytes
	}{
		{"fp8", func(s *recipe.Structure) { s.SavesAttention = false }, tokens * width / 2},
		{"bf16", func(s *recipe.Structure) { s.SavesAttention = false }, 0},
		{"bf16", func(s *recipe.Structure) { s.CopiesValues = false }, 2 * 2 * tokens * width / 2},
	} {
		require.Equal(t, c.more, kept(c.precision, c.change)-kept(c.precision, same), c)
	}
	// Two inputs of column-parallel projections, each a rank's part, in 8 bits rather than 16.
	require.Less(t, kept("fp8", same), kept("bf16", same))
}

// TestTurnedNorms: a compiler makes one kernel of the norm of a head and of what turns it, each way, and keeps what
// the norm reads and a factor of each row (Inductor's output for modded-nanogpt on an H100). Where shared heads are
// repeated for a mask, and in eager layers, norms have kernels of their own.
func TestTurnedNorms(t *testing.T) {
	for _, p := range []struct {
		model, recipe string
		joined        int
	}{{"qwen3-0.6b", "hf-compile-layer", 2}, {"qwen3-0.6b", "nanogpt", 2}, {"qwen3-0.6b", "hf-compile", 0}, {"qwen3-0.6b", "hf-eager", 0}, {"llama3.2-1b", "nanogpt", 0}} {
		layer := at(Build(config(t, p.model, p.recipe)), 0)
		require.Equal(t, p.joined, number(&layer.Forward, "norm_rotary"), "%+v", p)
		require.Equal(t, p.joined, number(&layer.Backward, "norm_rotary_backward"), "%+v", p)
		if p.joined > 0 {
			require.Zero(t, number(&layer.Forward, "rotary"), "%+v", p)
			require.Equal(t, 2, number(&layer.Forward, "norm"), "%+v: of the residual stream", p)
		}
	}
}

// TestWrittenLayerNorm: a layer norm of mean, variance, difference, root, quotient, scale and shift (rasbt/LLMs-from-scratch, ch04), whatever the precision,
// which none of its ops casts under autocast (aten/src/ATen/autocast_mode.h). Two norms of a layer; of their gradients (torch/csrc/autograd/FunctionsManual.cpp) four
// sums give what was spread its shape, six products and five quotients are of scale, quotient, root, variance and mean, and two values are negated.
func TestWrittenLayerNorm(t *testing.T) {
	for _, precision := range []string{"bf16-autocast", "bf16-pure", "fp32"} {
		x := config(t, "gpt2", "pytorch")
		own := *x.Recipe
		own.Structure.UnfusedNorm, own.Structure.UnfusedLayerNorm = false, true
		x.Recipe, x.Precision = &own, own.Precision[precision]
		layer := &Build(x).Kinds[0]
		for _, c := range []struct {
			section *tape.Section
			want    map[string]int
		}{
			{&layer.Forward, map[string]int{"mean": 1, "var": 1, "sub": 1, "add_scalar": 1, "sqrt": 1, "div": 1, "mul": 1, "add": 1}},
			{&layer.Backward, map[string]int{"sum": 4, "mul": 6, "div": 5, "neg": 2, "mean": 1, "sub": 1, "add_": 3}}, // the third adds to the residual's
		} {
			got := map[string]int{}
			for _, o := range c.section.Ops {
				if o.Module == "norm" {
					got[o.Prim]++
				}
			}
			for prim := range got {
				require.Zero(t, got[prim]%2, "%s: %v", precision, got)
				got[prim] /= 2
			}
			require.Equal(t, c.want, got, precision)
		}
	}
	// Without a bias there is no shift.
	x := config(t, "gpt2", "pytorch")
	own, spec := *x.Recipe, *x.Spec
	own.Structure.UnfusedLayerNorm, spec.Norm = true, model.LayerNormNoB
	x.Recipe, x.Spec = &own, &spec
	require.Zero(t, number(&Build(x).Kinds[0].Forward, "layer_norm"))
	// PyTorch has always had a kernel for layer norms, for RMS norms since 2.8 alone.
	x = config(t, "gpt2", "pytorch")
	var at units.Release
	require.NoError(t, at.UnmarshalText([]byte("25.02")))
	x.Recipe = x.Recipe.At(at)
	require.True(t, x.Recipe.Structure.UnfusedNorm)
	require.Equal(t, 2, number(&Build(x).Kinds[0].Forward, "layer_norm"))
}
