package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// unitOf is a model's unit of that name.
func unitOf(t *testing.T, m *Model, name string) *Unit {
	t.Helper()
	for i := range m.Kinds {
		if m.Kinds[i].Name == name {
			return &m.Kinds[i]
		}
	}
	t.Fatalf("no unit %s", name)
	return nil
}

// TestShortConvolution: a layer of LFM2 gates what it convolves and what comes of it in a kernel each; its
// gradients are four products, a convolution and a concatenation of parts that lie transposed, which the
// projection's gradient reads copied unless there is one sequence (modeling_lfm2.py, cuda_kernels_forward; a
// step of LFM2-1.2B on an H200 has ten of each, PyTorch 2.11, transformers 5.17, causal-conv1d 1.6.1).
func TestShortConvolution(t *testing.T) {
	of := func(s *tape.Section, prim string) (n int) {
		for i := range s.Ops {
			if s.Ops[i].Module == "conv" && s.Ops[i].Prim == prim {
				n++
			}
		}
		return n
	}
	c := config(t, "lfm2-1.2b", "hf-eager")
	for _, batch := range []int64{2, 1} {
		c.MicroBatch = batch
		u := unitOf(t, Build(c), "conv layer")
		for prim, want := range map[string]int{"linear": 2, "mul": 2, "convolve": 1, "clone": 0} {
			require.Equal(t, want, of(&u.Forward, prim), prim)
		}
		for prim, want := range map[string]int{"linear_dgrad": 2, "linear_wgrad": 2, "mul": 4, "convolve_backward": 1, "cat": 1, "clone": int(batch) - 1} {
			require.Equal(t, want, of(&u.Backward, prim), prim)
		}
	}
}

// TestMixerWithMLP: a Mamba mixer and an MLP, or experts beside one, share a layer: Granite 4 with its
// factors on what both add, by the kernels of Nemotron-H's mixer (a step of Granite 4.0 H Micro and one of
// ten layers of H Tiny on an H200: 22 kernels of scans and convolutions, two of norms and three sums in each layer).
func TestMixerWithMLP(t *testing.T) {
	for name, unit := range map[string]string{"granite-4.0-h-micro": "mamba layer", "granite-4.0-h-tiny": "mamba moe layer"} {
		u := unitOf(t, Build(config(t, name, "hf-eager")), unit)
		require.Equal(t, []int{6, 1, 2}, []int{number(&u.Forward, "scan"), number(&u.Forward, "scan_norm"), number(&u.Forward, "mul_scalar")}, name)
		require.Equal(t, []int{16, 1, 3}, []int{number(&u.Backward, "scan_backward"), number(&u.Backward, "scan_norm_backward"), number(&u.Backward, "scan_sum")}, name)
	}
	held := map[model.Role]bool{}
	for _, p := range unitOf(t, Build(config(t, "granite-4.0-h-tiny", "hf-eager")), "mamba moe layer").Params {
		held[p.Role] = true
	}
	require.True(t, held[model.RoleMambaIn] && held[model.RoleExpertsDown] && held[model.RoleSharedGateUp])
	require.False(t, held[model.RoleSharedUp])
}

// TestPairedMixers: a layer of Falcon-H1 has attention and a Mamba mixer on one norm, whose outputs are added, and
// factors: on what either reads and makes, on keys, on the gate and the output of the MLP, and of each part of the
// mixer's projection its own (transformers, modeling_falcon_h1.py).
func TestPairedMixers(t *testing.T) {
	c := config(t, "llama3.2-1b", "hf-eager")
	doc, err := yamlx.Parse("h1.yaml", []byte("{model_type: falcon_h1, num_hidden_layers: 1, hidden_size: 1024, num_attention_heads: 8, intermediate_size: 2048, vocab_size: 1000}"))
	require.NoError(t, err)
	s, errs := model.Decode(doc, doc.Root)
	require.Empty(t, errs)
	c.Spec = s
	u := unitOf(t, Build(c), "paired layer")
	for prim, want := range map[string]int{"mul_scalar": 7, "attention": 1, "scan": 6, "scan_norm": 0, "add": 2 + 3, "linear": 2 + 4 + 3} {
		require.Equal(t, want, number(&u.Forward, prim), prim)
	}
	require.Equal(t, 17, number(&u.Backward, "scan_backward"), "one of them of the gates")
}
