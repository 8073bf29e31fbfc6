package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
)

// checkTokenMetrics refuses metrics of logits that there are not.
func (j *Job) checkTokenMetrics() error {
	const key = "train.token_metrics"
	switch {
	case !j.Train.TokenMetrics:
	case !j.Recipe.Structure.TokenMetrics:
		return diag.Errorf("%s: recipe %s takes none; leave it out, or use %s", key, j.Recipe.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.TokenMetrics })))
	case j.LinearLoss() != "" || j.Runtime.LossChunks > 1 || j.LossAlone():
		return diag.Errorf("%s: the loss makes no whole logits to take them from; leave it out, or runtime.fused_linear_cross_entropy and runtime.loss_chunks", key)
	}
	return nil
}

// Trainer reports whether transformers' Trainer makes the steps.
func (j *Job) Trainer() bool { return isOn(j.Runtime.Trainer) }

// mostWorkers bounds runtime.data_workers.
const mostWorkers = 1024

// checkTrainer refuses transformers' Trainer where another loop makes the steps.
func (j *Job) checkTrainer() error {
	r := &j.Runtime
	switch {
	case r.DataWorkers < 0 || r.DataWorkers > mostWorkers:
		return diag.Errorf("runtime.data_workers: %d; give 0 to %d", r.DataWorkers, mostWorkers)
	case r.DataWorkers > 0 && !j.Trainer():
		return diag.Errorf("runtime.data_workers: %d, but a loop is taken to have its batches ready unless it is a Trainer's; set runtime.trainer to true, or leave it out", r.DataWorkers)
	case j.Trainer() && !j.Recipe.Structure.Trainer:
		return diag.Errorf("runtime.trainer: recipe %s has a loop of its own; leave it out, or use %s", j.Recipe.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.Trainer })))
	}
	return nil
}

// checkTrainerStages refuses it where a plan has pipeline stages.
func (j *Job) checkTrainerStages(p *Plan) error {
	if p.PP > 1 && j.Trainer() {
		return diag.Errorf("runtime.trainer: true, but a Trainer runs no pipeline (pp %d); leave it out, or set plan.pp to 1", p.PP)
	}
	return nil
}

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
