package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestRowScales: with scales by row products cast what they read themselves, by rows from one reading and by columns from two, into 8
// bits, an input once for all that share it; inputs are saved in 16 bits (torchao 0.12, float8/float8_linear.py,
// matmul_with_hp_or_float8_args). Before, gradients were multiplied by their scales in kernels of their own (float8_ops.py,
// addmm_float8_unwrapped). The head is left in 16 bits.
func TestRowScales(t *testing.T) {
	c := config(t, "llama3-8b", "torchtitan")
	bf16 := Build(c).Kinds[0].Saved()
	count := func(precision string) (linear, forward, backward, rescaled int) {
		c.Precision = c.Recipe.Precision[precision]
		m := Build(c)
		k := &m.Kinds[0]
		for i, s := range []*tape.Section{&k.Forward, &k.Backward} {
			for _, o := range s.Ops {
				switch {
				case o.Prim == "linear":
					linear++
					require.Equal(t, tape.FP8Row, o.DType)
				case o.Prim == "quantize" && i == 0:
					forward++
					require.InDelta(t, 3, float64(o.Bytes)/o.Elements, 1e-9)
				case o.Prim == "quantize":
					backward += int(float64(o.Bytes)/o.Elements + 0.5)
				case o.Prim == "rescale":
					rescaled++
					require.InDelta(t, 4, float64(o.Bytes)/o.Elements, 1e-9)
				}
			}
		}
		require.Equal(t, bf16, k.Saved())
		for _, o := range m.Head.Forward.Ops {
			require.NotEqual(t, tape.FP8Row, o.DType)
		}
		return
	}
	linear, forward, backward, rescaled := count("fp8-rowwise")
	require.Equal(t, linear+4, forward)            // weights; what norms, attention and the activation made
	require.Equal(t, linear*(3+5+5)+4*5, backward) // gradients by rows and columns, weights and inputs by columns
	require.Zero(t, rescaled)
	c.Recipe = c.Recipe.At(12*25 + 3)
	bf16 = Build(func() Config { c := c; c.Precision = c.Recipe.Precision["bf16"]; return c }()).Kinds[0].Saved()
	linear, _, _, rescaled = count("fp8-rowwise")
	require.Equal(t, 2*linear, rescaled)
}
