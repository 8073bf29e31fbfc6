package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestCompiledTurns: kernels that turn heads read tables, but in a graph of a whole model of transformers, which holds the
// angles, each computes their sines and cosines (traces of both on an H200, PyTorch 2.11, 2026-11-30). Keys that a file repeats
// come out of the kernel that turns them.
func TestCompiledTurns(t *testing.T) {
	const tokens, width, keys = 4096, 4096, 1024
	for _, c := range []struct {
		model, recipe string
		repeats       bool
		class         tape.Class
		bytes         []units.Bytes // of 16-bit queries, and of keys
	}{
		{"llama2-7b", "hf-compile", false, tape.FusedHeavy, []units.Bytes{4 * 2 * tokens * width}}, // one kernel for both
		{"llama2-7b", "litgpt", false, tape.FusedPointwise, []units.Bytes{4 * 2 * tokens * width}},
		{"llama2-7b", "hf-compile-layer", false, tape.FusedPointwise, []units.Bytes{4 * 2 * tokens * width}},
		{"llama3-8b", "litgpt", false, tape.FusedPointwise, []units.Bytes{2 * 2 * tokens * width, 2 * 2 * tokens * keys}},
		{"llama3-8b", "litgpt", true, tape.FusedPointwise, []units.Bytes{2 * 2 * tokens * width, 2 * tokens * (keys + width)}},
		{"llama3-8b", "nanogpt", true, tape.FusedPointwise, []units.Bytes{2 * 2 * tokens * width, 2 * tokens * (keys + width)}},
	} {
		x := config(t, c.model, c.recipe)
		x.Precision, x.Attention, x.MicroBatch, x.Sequence = x.Recipe.Precision["bf16-pure"], "sdpa", 1, tokens
		own := *x.Recipe
		own.Structure.RepeatHeads, x.Recipe = c.repeats, &own
		var got []units.Bytes
		for _, o := range Build(x).Kinds[0].Forward.Ops {
			if o.Module == "rotary" && o.Class != tape.NoKernel {
				require.Equal(t, c.class, o.Class, "%+v", c)
				got = append(got, o.Bytes)
			}
		}
		require.Equal(t, c.bytes, got, "%+v", c)
	}
}

// TestCompiledStream: autocast's residual stream is fp32. A compiler writes what products read in 16 bits at once, but gradients
// of the stream that they read by kernels of their own, two of a layer of a whole graph and one of a layer by itself
// (traces of an H200, PyTorch 2.11, 2026-11-30: 23 and 12 in 12 layers).
func TestCompiledStream(t *testing.T) {
	const stream = 4096 * 4096
	for _, c := range []struct {
		recipe string
		casts  int
		sums   int // of a layer's gradients, which a whole graph makes with the layer before
	}{{"litgpt", 2, 0}, {"hf-compile-layer", 1, 1}} {
		x := config(t, "llama3-8b", c.recipe)
		x.Precision, x.Attention, x.MicroBatch, x.Sequence = x.Recipe.Precision["bf16-autocast"], "sdpa", 1, 4096
		layer := Build(x).Kinds[0]
		casts, sums := 0, 0
		for _, o := range layer.Backward.Ops {
			if o.Prim == "to" && o.Elements == stream && (o.Module == "residual" || o.Module == "norm") {
				require.Equal(t, units.Bytes(6*stream), o.Bytes, "%+v", c)
				casts++
			}
			if o.Prim == "sum" && o.Module == "norm" {
				sums++
			}
		}
		require.Equal(t, c.casts, casts, "%+v", c)
		require.Equal(t, c.sums, sums, "%+v", c)
		for _, o := range layer.Forward.Ops {
			if o.Module == "norm" && o.Prim == "norm" {
				require.Contains(t, []int64{4 + 2, 4 + 2 + 4 + 2}, int64(o.Bytes)/stream, "%+v", c) // beside their weights
			}
			if o.Prim == "add" {
				require.Equal(t, tape.FusedPointwise, o.Class, "%+v: converts on the way", c)
				require.Equal(t, units.Bytes((4+2+4)*stream), o.Bytes, "%+v", c)
			}
		}
	}
}

// TestCompiledComplex: a compiler has no kernels of complex numbers; neighbours that are turned as pairs are one.
func TestCompiledComplex(t *testing.T) {
	for kind, want := range map[string]int{"": 1, "interleaved": 2, "complex": 6} {
		x := config(t, "llama2-7b", "litgpt")
		own := *x.Recipe
		own.Structure.Rotary = kind
		x.Recipe, x.Attention = &own, "sdpa"
		n := 0
		for _, o := range Build(x).Kinds[0].Forward.Ops {
			if o.Module == "rotary" && o.Class != tape.NoKernel {
				n++
			}
		}
		require.Equal(t, want, n, kind)
	}
}

// TestUnpadded: the compiler pads products to 16 bytes from PyTorch 2.1 on (torch/_inductor/config.py, shape_padding), so that
// GPT-2's 50,257 words take as long as 50,264.
func TestUnpadded(t *testing.T) {
	for release, words := range map[string]int64{"23.10": 50264, "23.09": 50257} {
		x := config(t, "gpt2", "nanogpt")
		var r units.Release
		require.NoError(t, r.UnmarshalText([]byte(release)))
		x.Recipe = x.Recipe.OnPyTorch(r)
		found := false
		for _, o := range Build(x).Head.Forward.Ops {
			if o.Prim == "linear" {
				require.Equal(t, words, max(o.M, o.N), release)
				found = true
			}
		}
		require.True(t, found)
	}
}

// TestCompiledGates: a compiler makes one kernel of what a gate does and one of its gradient, of one matrix for both halves as of two,
// and keeps of ReLU what it made, which the next product reads, too (traces of Phi-3 and OPT on an H200, PyTorch 2.11, 2026-11-30).
func TestCompiledGates(t *testing.T) {
	for _, c := range []struct {
		model    string
		forward  []string
		backward []string
	}{
		{"phi3-mini", []string{"glu"}, []string{"glu_backward"}},
		{"llama2-7b", []string{"glu"}, []string{"glu_backward"}},
		{"opt-1.3b", []string{"relu"}, []string{"relu_backward"}},
	} {
		x := config(t, c.model, "hf-compile")
		x.Precision, x.Attention, x.MicroBatch, x.Sequence = x.Recipe.Precision["bf16-pure"], "sdpa", 1, 2048
		layer := Build(x).Kinds[0]
		apart := func(ops []tape.Op) (names []string) {
			for _, o := range ops {
				if o.Module == "mlp" && (o.Class == tape.FusedPointwise || o.Class == tape.FusedHeavy) {
					names = append(names, o.Prim)
				}
			}
			return
		}
		require.Equal(t, c.forward, apart(layer.Forward.Ops), c.model)
		require.Equal(t, c.backward, apart(layer.Backward.Ops), c.model)
	}
	x := config(t, "opt-1.3b", "hf-compile")
	x.Precision, x.Attention, x.MicroBatch, x.Sequence = x.Recipe.Precision["bf16-pure"], "sdpa", 1, 2048
	with := Build(x).Kinds[0].Saved()
	own := *x.Spec
	own.Activation = "gelu_new"
	x.Spec = &own
	require.EqualValues(t, 2*2048*own.FFN, Build(x).Kinds[0].Saved()-with) // which keeps what it read
}
