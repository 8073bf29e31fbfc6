package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestPlainLayers: before 51a2e6b0ff of 2020-09-11 Megatron-LM had no kernels of its own for
// masked softmax, for bias and GELU, and for bias, dropout and sum (microsoft/DeepSpeedExamples
// @a79272cc, Megatron-LM/mpu/transformer.py and layers.py). Scores are divided, multiplied by
// the mask and lessened where it hides them; GELU is nine operations; queries, keys, values and
// what attention makes of them are copied; four projections add their bias, and two outputs are
// dropped and added.
func TestPlainLayers(t *testing.T) {
	for _, recipe := range []string{"megatron-lm", "megatron-deepspeed"} {
		for release, want := range map[string]map[string]int{
			"20.01": {"bias": 4, "clone": 4, "mul_scalar": 2 + 3, "add": 1, "softmax": 1, "add_scalar": 2, "mul": 3, "tanh": 1, "dropout": 3, "residual": 2, "gelu": 0, "scale_mask_softmax": 0, "dropout_residual": 0},
			"20.09": {"bias": 0, "clone": 1, "mul_scalar": 0, "add": 0, "softmax": 0, "add_scalar": 0, "mul": 0, "tanh": 0, "dropout": 1, "residual": 0, "gelu": 1, "scale_mask_softmax": 1, "dropout_residual": 2},
		} {
			c := config(t, "gpt2-medium", recipe)
			var at units.Release
			require.NoError(t, at.UnmarshalText([]byte(release)))
			c.Recipe, c.Attention = c.Recipe.At(at), "unfused"
			layer := &Build(c).Kinds[0]
			for prim, n := range want {
				require.Equal(t, n, number(&layer.Forward, prim), "%s of %s: %s", recipe, release, prim)
			}
		}
	}
}

// TestSharedSum: GPT-NeoX's tensor ranks sum attention and MLP of a layer once, forward; each
// block sums the gradient of its input (EleutherAI/gpt-neox @8dc25da9, transformer.py,
// gpt_j_residual).
func TestSharedSum(t *testing.T) {
	for _, c := range []struct {
		model, recipe     string
		forward, backward int
	}{
		{"pythia-6.9b", "megatron-deepspeed", 1, 2},
		{"gpt2-xl", "megatron-deepspeed", 2, 2}, // one block after the other
		{"pythia-6.9b", "hf-eager", 2, 2},
	} {
		cfg := config(t, c.model, c.recipe)
		cfg.Shard.TP = 4
		layer := &Build(cfg).Kinds[0]
		require.Equal(t, c.forward, number(&layer.Forward, "all-reduce"), "%v", c)
		require.Equal(t, c.backward, number(&layer.Backward, "all-reduce"), "%v", c)
	}
}

// TestPlainPyTorchKernels: what a layer of Qwen3 in plain PyTorch runs. torch's kernel of RMS norms takes inputs and weights
// of one dtype alone (aten/src/ATen/native/layer_norm.cpp, rms_norm_symint), so that of four norms under autocast those of heads, 16 bits
// beside fp32 weights, are put together from other ops. Heads are turned in the dtype of the tables, which are the residual's unless
// they are cast; neighbours are multiplied by themselves; and keys are repeated unless attention lets heads share them.
func TestPlainPyTorchKernels(t *testing.T) {
	for _, c := range []struct {
		precision                      string
		pairs, cast, shares            bool
		norms, roots, products, copies int
		turned                         string
	}{
		{"bf16-autocast", false, false, false, 2, 2, 4, 2, "fp32"},
		{"bf16-autocast", false, true, false, 2, 2, 4, 2, "bf16"},
		{"bf16-pure", false, false, false, 4, 0, 4, 2, "bf16"},
		{"bf16-pure", true, false, true, 4, 0, 8, 0, "fp32"}, // turned before heads are put in front of tokens, as peaks on an H200 say
		{"bf16-pure", false, false, true, 4, 0, 4, 0, "bf16"},
		{"fp32", false, false, false, 4, 0, 4, 2, "fp32"},
	} {
		x := config(t, "qwen3-0.6b", "pytorch")
		own := *x.Recipe
		s := &own.Structure
		s.HeadTables, s.SharesHeads, s.RepeatHeads = c.cast, c.shares, !c.shares
		if c.pairs {
			s.Rotary = "interleaved"
		}
		x.Recipe, x.Precision, x.Attention = &own, own.Precision[c.precision], "sdpa"
		got, turned := map[string]int{}, ""
		for _, o := range Build(x).Kinds[0].Forward.Ops {
			got[o.Module+" "+o.Prim]++
			if o.Module == "rotary" && o.Prim == "mul" {
				turned = o.DType.String()
			}
		}
		require.Equal(t, []int{c.norms, c.roots, c.products, c.copies}, []int{got["norm layer_norm"], got["norm rsqrt"], got["rotary mul"], got["attention clone"]}, "%+v", c)
		require.Equal(t, c.turned, turned, "%+v", c)
	}
}
