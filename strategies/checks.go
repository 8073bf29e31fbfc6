package strategies

import "github.com/perfplan/perfplan/internal/diag"

// setChecks takes over whether the host looks for NaNs in each micro batch's loss and in what
// is reduced of gradients (Megatron-LM, --no-check-for-nan-in-loss-and-grad; Megatron-Bridge,
// rerun_state_machine.check_for_nan_in_loss and ddp.check_for_nan_in_grad). It cannot where
// whole steps are replayed (Megatron-LM core_v0.14, training/arguments.py, full_iteration).
func (j *Job) setChecks() error {
	const key = "runtime.nan_checks"
	on, replayed := j.Runtime.NaNChecks, j.Runtime.CUDAGraphs == FullGraphs
	switch {
	case on != nil && !j.Recipe.Structure.NaNChecks:
		return diag.Errorf("%s: recipe %s has no such checks; leave it out, or use megatron-core", key, j.Recipe.Name)
	case isOn(on) && replayed:
		return diag.Errorf("%s: whole steps are replayed from CUDA graphs, in which the host reads nothing; leave it out", key)
	case on == nil && !replayed:
		return nil
	}
	own := *j.Recipe
	own.Structure.CheckGradients = isOn(on)
	j.Recipe = &own
	return nil
}
