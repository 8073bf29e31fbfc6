package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
)

// adapted is a model of the catalog with adapters.
func adapted(t *testing.T, name string, rank int64, targets ...string) *model.Spec {
	t.Helper()
	s, err := model.Load(name)
	require.NoError(t, err)
	a, err := s.Adapted(rank, targets, 0)
	require.NoError(t, err)
	require.Nil(t, s.LoRA, "the model itself stays as it is")
	return a.AtSequence(1024)
}

// TestAdaptedCounts: the trained parameters are those that PEFT and Meta's LoRA paper count.
func TestAdaptedCounts(t *testing.T) {
	for _, c := range []struct {
		name    string
		rank    int64
		targets []string
		want    int64
		source  string
	}{
		{"llama2-7b", 8, []string{"q", "v"}, 4194304, "PEFT, print_trainable_parameters of Llama-2-7B, r 8, its default targets"},
		{"llama3-8b", 16, nil, 41943040, "the same of Llama-3-8B, r 16, all-linear"},
		{"llama2-70b", 16, []string{"qkv", "o"}, 80 * 16 * (8192 + 8192 + 2*(8192+1024) + 2*8192), "q, k and v each with an adapter: by hand"},
		{"gpt2", 16, []string{"qkv"}, 589824, "PEFT, c_attn of GPT-2, r 16"},
		{"gpt3-175b", 4, []string{"qkv"}, 96 * 4 * (12288 + 3*12288), "by hand: one adapter of a fused projection"},
		{"deepseek-v2-lite", 8, []string{"attention"}, 27 * 8 * ((2048 + 3072) + (2048 + 576) + (512 + 4096) + (2048 + 2048)), "by hand: queries, latents, heads, output"},
		{"mixtral-8x7b", 8, []string{"attention"}, 32 * 8 * (4*4096 + 2*(4096+1024)), "by hand: experts have none"},
	} {
		s := adapted(t, c.name, c.rank, c.targets...)
		n := s.Params()
		require.Equal(t, c.want, n.Trained, "%s: %s", c.name, c.source)
		whole, err := model.Load(c.name)
		require.NoError(t, err)
		require.Equal(t, whole.AtSequence(1024).Params().Total+c.want, n.Total, "%s: beside what there was", c.name)
		require.Equal(t, whole.AtSequence(1024).Params().Total, whole.AtSequence(1024).Params().Trained, "%s: all without", c.name)
	}
}

// TestAdaptedTensors: everything is frozen but adapters, A maps inputs to the rank and B the
// rank to outputs, whatever way round the weight is stored; each is cut as its weight is.
func TestAdaptedTensors(t *testing.T) {
	for _, name := range []string{"llama3-8b", "gpt2", "phi3-mini", "deepseek-v2-lite", "mixtral-8x7b"} {
		s := adapted(t, name, 8)
		at := map[model.Role]model.Tensor{}
		for _, k := range s.Kinds() {
			for _, x := range s.Tensors().Layer(k.LayerKind) {
				at[x.Role] = x
				require.NotEqual(t, x.Frozen, x.Adapter, "%s: %s", name, x.Name)
			}
		}
		pairs := 0
		for r, w := range at {
			a, ok := at[r.Down()]
			if !ok {
				continue
			}
			pairs++
			b, in, out := at[r.Up()], w.Shape[1], w.Shape[0]
			if s.TransposedWeights {
				in, out = out, in
			}
			require.Equal(t, []int64{8, in}, a.Shape, "%s: A of %s", name, r)
			require.Equal(t, []int64{out, 8}, b.Shape, "%s: B of %s", name, r)
			require.Equal(t, w.Split, a.Split, "%s: A of %s", name, r)
			if w.Split == model.RowSplit {
				require.Equal(t, model.ColumnSplit, b.Split, "%s: B of %s", name, r)
			} else {
				require.Equal(t, w.Split, b.Split, "%s: B of %s", name, r)
			}
		}
		require.Positive(t, pairs, name)
		for _, x := range append(s.Tensors().Embedding, s.Tensors().Head...) {
			require.True(t, x.Frozen, "%s: %s", name, x.Name)
		}
	}
}

// TestStepFLOPs: a step is three forward passes, of frozen weights two: what NVIDIA's own
// count of Llama-3 70B with adapters of its queries, keys and values comes to, 0.2788 TFLOP a
// token of packed short documents (Megatron-Bridge 26.06, TFLOP/s over tokens/s).
func TestStepFLOPs(t *testing.T) {
	whole, err := model.Load("llama3-70b")
	require.NoError(t, err)
	require.Equal(t, 3*whole.ForwardFLOPs(4096, 4096, true).Trained(), whole.StepFLOPs(4096, 4096, true))

	s := adapted(t, "llama3-70b", 16, "qkv")
	f := s.ForwardFLOPs(4096, 4096, true)
	require.InEpsilon(t, 2*4096*float64(s.Params().Trained), float64(f.Adapters), 1e-12)
	require.InEpsilon(t, 0.2788e12*4096, float64(s.StepFLOPs(4096, 200, true)), 0.005)
	require.Less(t, float64(s.StepFLOPs(4096, 4096, true)), 0.7*float64(whole.StepFLOPs(4096, 4096, true)))
}
