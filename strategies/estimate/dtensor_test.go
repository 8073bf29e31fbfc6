package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTensorRanksKeepTheHostLonger: layers of tensor ranks run on distributed tensors, whose
// Python a step of 128 tokens waits for at each of the seven products of a layer, by
// transformers' plan and by torchtitan's, which have the same styles
// (torch.distributed.tensor.parallel). Compiled layers have the Python of their graphs alone.
func TestTensorRanksKeepTheHostLonger(t *testing.T) {
	const text = "{model: llama3.2-1b, hardware: h200-sxm, gpus: 2, runtime: {recipe: %s}, plan: {tp: 2, data_parallel: ddp}, train: {sequence_length: 128, micro_batch: 1, recompute: none}}"
	for _, c := range []struct {
		recipe            string
		dtensor, backward float64 // of the recipe's, for a product
	}{
		{"hf-eager", 400e-6, 520e-6}, {"torchtitan-eager", 400e-6, 520e-6}, {"torchtitan", 30e-6, 87e-6},
	} {
		step := func(dtensor bool) float64 {
			j := mustParse(t, fmt.Sprintf(text, c.recipe))
			r := *j.Recipe
			if j.Recipe = &r; !dtensor {
				r.Host.DTensor, r.Host.DTensorBack = 0, 0
			}
			return float64(mustEstimate(t, j).StepTime)
		}
		const products = 16 * 7
		require.InEpsilon(t, products*(c.dtensor+c.backward), step(true)-step(false), 0.25, c.recipe)
	}
}
