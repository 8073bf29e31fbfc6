package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
)

// setTensorRanks takes over which layouts a training file of one's own gives DTensor's
// parallelize_module where torchtitan's are others: input_layouts of each ColwiseParallel, by
// which every projection gathers what it reads, in the place of PrepareModuleInput before a
// block (torch/distributed/tensor/parallel/style.py), and none for embedding and output layer.
func (j *Job) setTensorRanks() error {
	r, own := j.Recipe, *j.Recipe
	for _, s := range []struct {
		key string
		on  *bool
		set func()
	}{
		{"runtime.shared_tp_input", j.Runtime.SharedTPInput, func() { own.Structure.OwnTPInputs = true }},
		{"runtime.vocab_parallel", j.Runtime.VocabParallel, func() { own.Structure.VocabParallel = false }},
	} {
		if s.on != nil && !r.Structure.FunctionalTP {
			return diag.Errorf("%s: recipe %s has no such switch; leave it out, or use %s", s.key, r.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.FunctionalTP })))
		}
		if isOff(s.on) {
			s.set()
			j.Recipe = &own
		}
	}
	return nil
}
