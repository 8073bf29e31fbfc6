package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// Partitions reports whether gradients leave autograd for the buckets of DeepSpeed's ZeRO engine,
// from which each rank keeps its part: those of all kinds of data parallelism, or, where ZeRO 1 has
// them stay in flat buffers, of ZeRO 2.
func (j *Job) Partitions() bool {
	s := &j.Recipe.Structure
	return s.Partitions || s.FlatStates && j.Plan.DataParallel == ZeRO2
}

// unsummed reports whether gradients stay in the dtype of the layers although a precision has them
// summed up in a wider one: that is BF16_Optimizer's way, which takes the place of ZeRO 1 alone, and
// none where the host has the states (DeepSpeed, runtime/engine.py, _do_optimizer_sanity_check).
func (j *Job) unsummed(p *Plan) bool {
	kind := p.DataParallel
	return j.Recipe.Structure.FlatStates && (kind == ZeRO2 || kind == ZeRO3 || p.Offloads())
}

// gradients is the dtype in which a plan keeps gradients.
func (j *Job) gradients(p *Plan) recipe.DType {
	switch {
	case !j.Recipe.Structure.FlatStates:
		return j.Precision.Gradients
	case !j.Train.DTypes.Gradients.Set && j.unsummed(p):
		return j.Precision.Compute
	}
	return j.Train.DTypes.Apply(j.Recipe.Precision[j.Train.Precision]).Gradients
}

// KeepsViews reports whether products keep views of the weights that ZeRO 3 gathers for them, which DeepSpeed cannot
// free before their gradients: torch.nn.functional.linear saves a transposed view, and the function that takes its place and saves
// the parameter comes with zero.Init around a model as it is made (deepspeed/runtime/zero/partition_parameters.py, mem_efficient_linear).
// A layer that is recomputed meets both passes with what is gathered once.
func (j *Job) KeepsViews() bool {
	made := j.Runtime.ZeroInit
	return made != nil && !*made && j.Train.Recompute != ops.FullRecompute
}

// checkZeroInit refuses to say how DeepSpeed makes a model of frameworks without it.
func (j *Job) checkZeroInit() error {
	if j.Runtime.ZeroInit != nil && !j.Recipe.Structure.Partitions {
		return diag.Errorf("runtime.zero_init: recipe %s makes models in one way; leave it out, or use deepspeed-hf", j.Recipe.Name)
	}
	return nil
}
