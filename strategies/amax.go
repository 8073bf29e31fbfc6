package strategies

import (
	"cmp"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
)

// Ranks that agree, after each pass of a chunk, on the largest values that delayed scaling takes
// its scales from (Megatron-LM, core/parallel_state.py, get_amax_reduction_group).
const (
	AmaxAll    = "all"    // those that cut the weights or share them: of tensors, contexts and data
	AmaxTensor = "tensor" // of tensors and contexts (TransformerConfig's tp_only_amax_red)
	AmaxNone   = "none"   // nobody (DelayedScaling's reduce_amax false)
)

var amaxReductions = []string{AmaxAll, AmaxTensor, AmaxNone}

// AmaxReduction is which of these does, AmaxNone where no scales are delayed.
func (j *Job) AmaxReduction() string {
	if !j.Precision.Delayed {
		return AmaxNone
	}
	return cmp.Or(j.Runtime.AmaxReduction, j.Recipe.Structure.AmaxRanks, AmaxNone)
}

// checkAmax checks what the job says of it.
func (j *Job) checkAmax() error {
	const key = "runtime.amax_reduction"
	switch given := j.Runtime.AmaxReduction; {
	case given == "":
	case !slices.Contains(amaxReductions, given):
		return oneOf(key, given, amaxReductions)
	case !j.Precision.Delayed:
		return diag.Errorf("%s: %s, but recipe %s takes no scales of precision %s from the passes before; leave it out, or set train.precision to %s", key, given, j.Recipe.Name, j.Train.Precision, delayedPrecision)
	}
	return nil
}
