package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// TestWrittenOutModel: CS336's model keeps what its softmax divides beside the quotient, and the
// sigmoid that SiLU multiplies by (cs336_basics/nn_utils.py and model.py): eight sequences of 512 tokens with 32
// heads keep 1.69 GiB a layer in fp32 on a GB300 (92.50 - 38.45 GiB of 32 layers and the logits, stored text 71532916388),
// which was 1.27 with the kernels that PyTorch has.
func TestWrittenOutModel(t *testing.T) {
	for name, want := range map[string]float64{"cs336": 1.67, "hf-eager": 1.27} {
		c := config(t, "llama2-7b", name)
		s := *c.Spec
		s.Hidden, s.Heads, s.KVHeads, s.HeadDim, s.VDim, s.FFN = 2560, 32, 32, 80, 80, 10240
		c.Spec, c.Precision, c.Attention, c.AsTheyAre = &s, c.Recipe.Precision["fp32"], "unfused", true
		c.MicroBatch, c.Sequence = 8, 512
		kind := Build(c).Kinds[0]
		require.Equal(t, model.SiLU, s.Activation)
		n := map[string]int{}
		for _, o := range kind.Forward.Ops {
			n[o.Prim]++
		}
		if name == "cs336" {
			require.Equal(t, []int{1, 1, 1, 1, 1, 0}, []int{n["max"], n["exp"], n["div"], n["where"], n["sigmoid"], n["softmax"]})
		}
		require.InEpsilon(t, want, float64(kind.Saved())/(1<<30), 0.03, name)
	}
}

// TestModelOf2024: CS336's first model multiplies by torch.nn.Linear and has GELU by erf written out, whose gradient is five kernels of
// the error function, two scalings and two products (cs336_basics/model.py of spring 2024).
func TestModelOf2024(t *testing.T) {
	c := of(t, "gpt2", "cs336", "24.04")
	s := *c.Spec
	s.Activation, s.Norm = model.GELU, model.RMSNorm
	c.Spec, c.Precision, c.Attention, c.AsTheyAre = &s, c.Recipe.Precision["fp32"], "unfused", true
	kind := Build(c).Kinds[0]
	count := func(ops []tape.Op) map[string]int {
		n := map[string]int{}
		for _, o := range ops {
			if o.Module == "mlp" {
				n[o.Prim]++
				require.NotEqual(t, tape.Transposed, o.Class, "no gradient is turned")
			}
		}
		return n
	}
	forward, backward := count(kind.Forward.Ops), count(kind.Backward.Ops)
	require.Equal(t, []int{2, 1, 2, 1, 1, 0}, []int{forward["linear"], forward["erf"], forward["mul_scalar"], forward["add_scalar"], forward["mul"], forward["gelu"]})
	require.Equal(t, []int{1, 1, 1}, []int{backward["pow"], backward["neg"], backward["exp"]})
	require.Zero(t, c.Recipe.Host.Primitives["linear"])
	require.NotZero(t, of(t, "gpt2", "cs336", "25.04").Recipe.Host.Primitives["linear"])
}

// TestTurnedWeights: CS336's projections multiply by a turned view of their weights (einops.einsum), whose gradients lie turned, too, until
// AccumulateGrad copies each into its weight's layout (torch/csrc/autograd/functions/accumulate_grad.h), in fp32 under autocast as well.
// Backward passes of 2.7 billion took an H100 29 ms longer in bf16 than without, 32 in fp32 (yzhang's writeup of 2026).
func TestTurnedWeights(t *testing.T) {
	for recipe, want := range map[string]int{"cs336": 7, "pytorch": 0} {
		for _, precision := range []string{"fp32", "bf16-autocast"} {
			c := config(t, "llama2-7b", recipe)
			c.Precision, c.Attention, c.AsTheyAre, c.MicroBatch, c.Sequence = c.Recipe.Precision[precision], "unfused", true, 1, 512
			n := 0
			for _, o := range Build(c).Kinds[0].Backward.Ops {
				if o.Prim == "clone" && o.Class == tape.Transposed {
					n++
					require.Equal(t, tape.F32, o.DType)
				}
			}
			require.Equal(t, want, n, "%s %s", recipe, precision)
		}
	}
}
