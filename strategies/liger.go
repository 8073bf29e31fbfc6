package strategies

import (
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// LigerOperators are what Liger-Kernel replaces of a layer (linkedin/Liger-Kernel,
// transformers/monkey_patch.py: rms_norm, swiglu or geglu, rope).
type LigerOperators = Parts[ligered]

type ligered struct{}

func (ligered) known() []string { return []string{"norm", "gate", "rotary"} }
func (ligered) done() string    { return "run by Liger-Kernel" }

// hasOperator reports whether a program is of one of the operators, or of none that can be chosen.
func hasOperator(chosen LigerOperators, program string) bool {
	for i, begins := range []string{"rms_norm gemma_rms_norm", "glu", "rotary"} {
		if slices.ContainsFunc(strings.Fields(begins), func(b string) bool { return strings.HasPrefix(program, b) }) {
			return chosen&(1<<i) != 0
		}
	}
	return true
}

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
	case !j.Liger() && j.Runtime.LigerOperators != 0:
		return diag.Errorf("runtime.liger_operators: %s, but liger_kernels is not on; set it, or leave them out", j.Runtime.LigerOperators)
	case !j.Liger():
		return nil
	case j.Recipe.Liger == "":
		return diag.Errorf("runtime.liger_kernels: recipe %s is not known to run them; leave it out, or use hf-eager, automodel or deepspeed-hf", j.Recipe.Name)
	case why != "":
		return diag.Errorf("runtime.liger_kernels: %s %s, and what Liger-Kernel replaces of such a one is not known; leave it out", j.ModelName, why)
	}
	before := j.Recipe.Programs
	var err error
	if j.Recipe, err = j.Recipe.With(j.Recipe.Liger); err != nil || j.Runtime.LigerOperators == 0 {
		return err
	}
	for name := range j.Recipe.Programs { // a map of this job's own
		switch was, there := before[name]; {
		case hasOperator(j.Runtime.LigerOperators, name):
		case there:
			j.Recipe.Programs[name] = was
		default:
			delete(j.Recipe.Programs, name)
		}
	}
	return nil
}
