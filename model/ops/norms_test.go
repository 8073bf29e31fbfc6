package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

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
