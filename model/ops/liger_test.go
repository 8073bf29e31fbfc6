package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// ligerConfig is config with Liger-Kernel's operators.
func ligerConfig(t testing.TB, name string) Config {
	c := config(t, name, "hf-eager")
	r, err := c.Recipe.With(c.Recipe.Liger)
	require.NoError(t, err)
	c.Recipe = r
	return c
}

// prims are the kernels of a section, but for what runs beside them unseen.
func prims(s *tape.Section) (out []string) {
	for _, o := range s.Ops {
		if o.Class != tape.NoKernel && o.Prim != "memset" {
			out = append(out, o.Prim)
		}
	}
	return
}

// TestLigerLayer: the kernels of a layer in the order of traces of Llama 3.2 1B and Phi-3 on an
// H200 (2026-11-26).
func TestLigerLayer(t *testing.T) {
	list, _ := unitsOf(Build(ligerConfig(t, "llama3.2-1b")))
	layer := list[slices.IndexFunc(list, func(u *Unit) bool { return slices.Contains(prims(&u.Forward), "liger_rope") })]
	require.Equal(t, []string{"liger_norm", "linear", "linear", "linear", "liger_rope", "attention", "linear", "add",
		"liger_norm", "linear", "linear", "liger_gate", "linear", "add"}, prims(&layer.Forward))
	count := func(s *tape.Section, prim string) (n int) {
		for _, p := range prims(s) {
			if p == prim {
				n++
			}
		}
		return
	}
	for prim, n := range map[string]int{"liger_norm_backward": 2, "liger_norm_sum": 2, "liger_gate_backward": 1, "liger_rope_backward": 1, "fill_": 0, "mul": 0} {
		require.Equal(t, n, count(&layer.Backward, prim), prim)
	}
	list, _ = unitsOf(Build(ligerConfig(t, "phi3-mini")))
	layer = list[slices.IndexFunc(list, func(u *Unit) bool { return slices.Contains(prims(&u.Forward), "liger_rope") })]
	require.Equal(t, []string{"liger_norm", "linear", "clone", "clone", "liger_rope", "attention", "linear", "add",
		"liger_norm", "linear", "clone", "clone", "liger_gate", "linear", "add"}, prims(&layer.Forward), "halves and thirds of joined projections are copied")
}

// TestLigerKeepsExperts: of gpt-oss it replaces norms and rotary embedding, and nothing of its
// experts (apply_liger_kernel_to_gpt_oss).
func TestLigerKeepsExperts(t *testing.T) {
	count := func(c Config) (n map[string]int) {
		n = map[string]int{}
		list, _ := unitsOf(Build(c))
		for _, p := range prims(&list[2].Forward) {
			n[p]++
		}
		return
	}
	liger, own := count(ligerConfig(t, "gpt-oss-20b")), count(config(t, "gpt-oss-20b", "hf-eager"))
	require.Equal(t, []int{2, 1, 0}, []int{liger["liger_norm"], liger["liger_rope"], liger["liger_gate"]})
	for _, p := range []string{"sigmoid", "clamp", "grouped_linear"} {
		require.Equal(t, own[p], liger[p], p)
	}
	require.Zero(t, own["liger_norm"])
}

// TestLigerRunsEverywhere: of each kind of model that it is known of, recomputed or not, memory is
// given back, and less is kept than by the model's own operators.
func TestLigerRunsEverywhere(t *testing.T) {
	for _, name := range []string{"llama3.2-1b", "qwen2.5-7b", "qwen3-0.6b", "mistral-7b", "gemma-2b", "gemma2-2b", "gemma3-1b", "phi3-mini", "olmo2-7b", "granite-3.3-8b", "gpt-oss-20b"} {
		for _, again := range []Recompute{NoRecompute, SelectiveRecompute, FullRecompute} {
			c, own := ligerConfig(t, name), config(t, name, "hf-eager")
			c.Recompute, own.Recompute = again, again
			list, _ := unitsOf(Build(c))
			for _, u := range list {
				sound(t, "liger", u)
			}
			if again == NoRecompute {
				was, _ := unitsOf(Build(own))
				require.Less(t, list[2].Saved(), was[2].Saved(), name)
			}
		}
	}
}

// TestLigerNorm: the gradient of a norm loops over rows, 16 at a time where these are many and
// short, and that of Gemma 2, whose residuals lie between two norms, has a tensor of its own.
func TestLigerNorm(t *testing.T) {
	loops := func(name string) (n []float64, fills int) {
		list, _ := unitsOf(Build(ligerConfig(t, name)))
		for _, u := range list {
			for _, o := range u.Backward.Ops {
				if o.Class == tape.RowLoop {
					n = append(n, o.Elements)
				} else if o.Prim == "fill_" || o.Prim == "zeros" || o.Class == tape.Fill {
					fills++
				}
			}
		}
		return
	}
	plain, none := loops("llama3.2-1b")
	require.Equal(t, float64(1024), plain[0]/float64(ligerConfig(t, "llama3.2-1b").MicroBatch), "a loop for each token")
	_, fills := loops("gemma2-2b")
	require.Greater(t, fills, none)
}

// TestTritonAdapters: adapters in kernels of their own, of each kind of model.
func TestTritonAdapters(t *testing.T) {
	for _, name := range []string{"llama3.2-1b", "qwen3-0.6b", "phi3-mini"} {
		c := adaptedConfig(t, name, "automodel")
		r := *c.Recipe
		r.Structure.TritonAdapters = true
		c.Recipe = &r
		list, _ := unitsOf(Build(c))
		adapters := 0
		for _, u := range list {
			sound(t, "automodel", u)
			for _, p := range prims(&u.Forward) {
				if p == "triton_adapter" {
					adapters++
				}
			}
		}
		require.Positive(t, adapters, name)
	}
}
