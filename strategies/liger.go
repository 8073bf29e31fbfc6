package strategies

import (
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
)

// Liger reports whether Liger-Kernel's operators take the place of a model's own.
func (j *Job) Liger() bool {
	on := j.Runtime.LigerKernels
	return on != nil && *on
}

// setLiger puts Liger-Kernel's operators in the place of the model's own where the job says so, or
// says nothing and the framework does (NeMo AutoModel, _transformers/kernel_patches.py: not with
// tensor or context ranks).
func (j *Job) setLiger() error {
	s, p := &j.Recipe.Structure, j.GivenPlan
	why := j.ligerless()
	if j.Runtime.LigerKernels == nil && s.UsesLiger && why == "" && (p == nil || p.TP <= 1 && p.CP <= 1) && !slices.Contains(s.OwnModels, j.Model.ModelType) {
		on := true
		j.Runtime.LigerKernels = &on
		j.note("runtime.liger_kernels", on, "the framework's own choice")
	}
	switch {
	case !j.Liger():
		return nil
	case j.Recipe.Liger == "":
		return diag.Errorf("runtime.liger_kernels: recipe %s is not known to run them; leave it out, or use hf-eager, automodel or deepspeed-hf", j.Recipe.Name)
	case why != "":
		return diag.Errorf("runtime.liger_kernels: %s %s, of which what Liger-Kernel replaces is not known; leave it out", j.ModelName, why)
	}
	var err error
	j.Recipe, err = j.Recipe.With(j.Recipe.Liger)
	return err
}

// ligerless is what a model has that no measured operator of Liger-Kernel stands for, "" for none.
func (j *Job) ligerless() string {
	m := j.Model
	switch {
	case m.MoE != nil:
		return "has experts"
	case m.MLA != nil || m.Mixers != nil:
		return "mixes tokens by other than plain attention"
	case m.Vision != nil:
		return "has an encoder of images"
	case !slices.Contains([]model.Norm{model.RMSNorm, model.WideRMSNorm, model.GemmaRMSNorm}, m.Norm):
		return "does not normalise by RMS"
	case !m.Gated || m.Activation != model.SiLU && m.Activation != model.GELUTanh:
		return "has no MLP with a gate of SiLU or GELU (tanh)"
	case m.Position != model.Rotary || m.RotaryDim != m.HeadDim:
		return "does not turn whole heads"
	}
	return ""
}
