package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/recipe"
)

// byHand is a layer of that model with adapters by Unsloth's functions.
func byHand(t *testing.T, name string, dropout float64) *Unit {
	c := config(t, name, "unsloth")
	spec, err := c.Spec.Adapted(16, nil, dropout)
	require.NoError(t, err)
	c.Spec = spec
	p, ok := c.Recipe.Precision["nf4-frozen"]
	require.True(t, ok)
	c.Precision = p
	list, _ := unitsOf(Build(c))
	return list[slices.IndexFunc(list, func(u *Unit) bool { return slices.Contains(prims(&u.Forward), "attention") })]
}

// TestByHand: the kernels of a layer in the order of a trace of Unsloth's kernels on an H200 (16 layers as Llama
// 3.1 8B has them, in 4 bits, PyTorch 2.11, 2026-11-29), those that split sums of products left out.
func TestByHand(t *testing.T) {
	layer := byHand(t, "llama3.2-1b", 0)
	var want []string
	of := func(prims ...string) { want = append(want, prims...) }
	projection := []string{"unpack_scales", "add_scalar", "unpack_by_hand", "adapted", "to", "adapted", "to", "adapted"}
	of("frozen_norm")
	for range 3 {
		of(projection...)
	}
	of("row_turn", "row_turn", "attention")
	of(projection...)
	of("add", "frozen_norm")
	of(projection...)
	of(projection...)
	of("gate_by_hand")
	of(projection...)
	of("add")
	require.Equal(t, want, prims(&layer.Forward))
	n := map[string]int{}
	for _, p := range prims(&layer.Backward) {
		n[p]++
	}
	// Of each of seven projections two products make adapters' gradients of two others, and three the input's
	require.Equal(t, 7*(4+3), n["adapted_backward"])
	require.Equal(t, 7, n["unpack_by_hand"])
	require.Equal(t, 2*14, n["to"], "adapters, and their gradients")
	require.Equal(t, []int{2, 2, 1}, []int{n["frozen_norm_backward"], n["row_turn_backward"], n["gate_by_hand_backward"]})
}

// TestByHandOrNot: with dropout adapters are PEFT's modules, and so are those beside biases (models/llama.py,
// patch_peft_model).
func TestByHandOrNot(t *testing.T) {
	require.NotContains(t, prims(&byHand(t, "llama3.2-1b", 0.1).Forward), "adapted")
	biased := prims(&byHand(t, "qwen2.5-0.5b", 0).Forward)
	n := func(prim string) (n int) {
		for _, p := range biased {
			if p == prim {
				n++
			}
		}
		return
	}
	require.Equal(t, []int{3 * 4, 3 * 3}, []int{n("adapted"), n("linear")}, "output and MLP by hand; three with biases and their adapters by modules")
}

// TestKeptAdapters: Axolotl's functions keep adapters as they cast them and what they multiplied with B, of seven
// projections one product less for each of six (trace of an H200, 2026-11-29), and take biases.
func TestKeptAdapters(t *testing.T) {
	layer := func(name string) (forward, backward map[string]int) {
		c := config(t, name, "hf-eager")
		spec, err := c.Spec.Adapted(16, nil, 0)
		require.NoError(t, err)
		r := *c.Recipe
		r.Structure.ByHand, r.Structure.KeptAdapters = true, true
		c.Spec, c.Recipe, c.Precision = spec, &r, c.Recipe.Precision["nf4-frozen"]
		list, _ := unitsOf(Build(c))
		u := list[slices.IndexFunc(list, func(u *Unit) bool { return slices.Contains(prims(&u.Forward), "attention") })]
		count := func(names []string) map[string]int {
			n := map[string]int{}
			for _, p := range names {
				n[p]++
			}
			return n
		}
		return count(prims(&u.Forward)), count(prims(&u.Backward))
	}
	forward, backward := layer("llama3.2-1b")
	require.Equal(t, []int{21, 7, 0}, []int{forward["adapted"], forward["unpack_by_hand"], forward["bias"]})
	require.Equal(t, 7*(4+3)-6, backward["adapted_backward"])
	require.Equal(t, 7, backward["unpack_by_hand"])
	biased, _ := layer("qwen2.5-0.5b")
	require.Equal(t, []int{21, 3}, []int{biased["adapted"], biased["bias"]})
}

// TestJoinedLossChunks holds how many chunks Unsloth's loss has against traces of 4096 tokens of 128,256 words and 8192 of 151,936. Until
// 2026-07 they were rounded: on a DGX Spark with 32,768 tokens of 151,936 words and 120 GiB free all were in one, of 60 GiB at most.
func TestJoinedLossChunks(t *testing.T) {
	for _, c := range []struct {
		release             string
		free                float64
		rows, words, chunks int64
	}{
		{"26.08", 0, 4096, 128256, 1}, {"26.08", 0, 8192, 128256, 1}, {"26.08", 0, 8192, 151936, 4}, {"26.08", 0, 65536, 128256, 8},
		{"26.06", 120, 32768, 151936, 1}, {"26.06", 20, 65536, 151936, 4}, {"25.08", 0, 8192, 151936, 4}, {"25.08", 0, 2048, 128256, 1},
	} {
		r, err := recipe.Load("unsloth")
		require.NoError(t, err)
		var at units.Release
		require.NoError(t, at.UnmarshalText([]byte(c.release)))
		b := &builder{Config: Config{LossConfig: LossConfig{FreeGiB: c.free}}, recipe: r.At(at)}
		require.Equal(t, c.chunks, b.lossChunks(c.rows, c.words), c)
	}
}
