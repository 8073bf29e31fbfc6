package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
)

// TestGradientFusion: without it the gradient of each weight is a tensor that a kernel adds to
// its sum (Megatron-LM core_v0.12, distributed_data_parallel.py, backward hook: main_grad.add_),
// as those of norms always are.
func TestGradientFusion(t *testing.T) {
	for _, recipe := range []string{"megatron-lm", "megatron-core"} {
		sums := func(more string) (n int) {
			built, err := build(new(ops.Cache), mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 1, runtime: {recipe: "+recipe+more+"}, plan: {dp: 1}}"))
			require.NoError(t, err)
			for _, o := range built.Kinds[0].Backward.Ops {
				if o.Prim == "accumulate" {
					n++
				}
			}
			return n
		}
		require.Equal(t, 2, sums(""), recipe)
		require.Equal(t, 2, sums(", gradient_fusion: true"), recipe)
		require.Equal(t, 6, sums(", gradient_fusion: false"), recipe)
	}
}
