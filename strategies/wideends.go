package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
)

// resolveWideEnds leaves the model first and last layers whose products are in 16 bits beside
// those in fewer (Megatron-LM, core/fp8_utils.py, is_first_last_bf16_layer; core/fp4_utils.py).
func (j *Job) resolveWideEnds() error {
	t, layers := &j.Train, j.Model.Layers
	ends := [2]int64{t.NumLayersAtStartInBF16, t.NumLayersAtEndInBF16}
	for i, key := range [2]string{"train.num_layers_at_start_in_bf16", "train.num_layers_at_end_in_bf16"} {
		switch n := ends[i]; {
		case n == 0:
		case n < 0 || n > layers:
			return diag.Errorf("%s: %d; give 0 to the %d layers of the model", key, n, layers)
		case !j.Recipe.Structure.WideEnds:
			return diag.Errorf("%s: recipe %s has no such layers; leave it out, or use %s", key, j.Recipe.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.WideEnds })))
		case !j.Precision.GEMM.Narrow():
			return diag.Errorf("%s: %d, but products of %s are in 16 bits in all layers; leave it out, or take a train.precision of fewer, as fp8", key, n, t.Precision)
		case t.Precision == delayedPrecision:
			return diag.Errorf("%s: %d, but with delayed scaling the framework refuses such layers; leave it out, or set train.precision to fp8", key, n)
		}
	}
	if ends != j.Model.WideEnds {
		own := *j.Model
		own.WideEnds = ends
		j.Model = &own
	}
	return nil
}

// delayedPrecision has scales from the steps before.
const delayedPrecision = "fp8-delayed"
