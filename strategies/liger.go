package strategies

import (
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
)

// Liger reports whether Liger-Kernel's operators take the place of a model's own.
func (j *Job) Liger() bool {
	on := j.Runtime.LigerKernels
	return on != nil && *on
}

// setLiger puts Liger-Kernel's operators in the place of the model's own where the job says so, or
// says nothing and the framework does (NeMo AutoModel, _transformers/kernel_patches.py: not with
// tensor or context ranks), or those of the framework's own class of the model where the job says
// nothing.
func (j *Job) setLiger() error {
	s, p := &j.Recipe.Structure, j.GivenPlan
	why := j.Model.Ligerless()
	own := slices.Contains(s.OwnModels, j.Model.ModelType)
	if own && s.OwnClass != "" && j.Runtime.LigerKernels == nil {
		var err error
		j.Recipe, err = j.Recipe.With(s.OwnClass)
		return err
	}
	if j.Runtime.LigerKernels == nil && s.UsesLiger && j.Recipe.Liger != "" && why == "" && (p == nil || p.TP <= 1 && p.CP <= 1) && !own {
		j.Runtime.LigerKernels = new(true)
		j.note("runtime.liger_kernels", true, "the framework's own choice")
	}
	switch {
	case !j.Liger():
		return nil
	case j.Recipe.Liger == "":
		return diag.Errorf("runtime.liger_kernels: recipe %s is not known to run them; leave it out, or use hf-eager, automodel or deepspeed-hf", j.Recipe.Name)
	case why != "":
		return diag.Errorf("runtime.liger_kernels: %s %s, and what Liger-Kernel replaces of such a one is not known; leave it out", j.ModelName, why)
	}
	var err error
	j.Recipe, err = j.Recipe.With(j.Recipe.Liger)
	return err
}
