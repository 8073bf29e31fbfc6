package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// checkGroupedMLP checks kernels that run all of the MLPs of a rank's experts (Megatron-Core,
// moe/experts.py, _is_fused_impl_supported; Transformer Engine, pytorch/ops/fused/grouped_mlp.py).
func (j *Job) checkGroupedMLP() error {
	const key = "runtime.grouped_mlp_fusion"
	on := j.Runtime.GroupedMLPFusion
	switch m := j.Model.MoE; {
	case on == nil:
		return nil
	case m == nil:
		return diag.Errorf("%s: %s has no experts; leave it out", key, j.ModelName)
	case j.Recipe.Programs["experts_joint"] == nil:
		return diag.Errorf("%s: recipe %s has no such kernels; leave it out, or use megatron-core", key, j.Recipe.Name)
	case !*on:
		return nil
	case j.Precision.GEMM.DType != tape.MXFP8:
		return diag.Errorf("%s: its kernels are known for experts that multiply in %s; leave it out, or set train.precision: %[2]s", key, tape.MXFP8)
	case m.ExpertBias && !j.Recipe.Structure.BiasedMLPs:
		return diag.Errorf("%s: its kernels add no biases of experts before release 26.06; set runtime.release to that or a later one, or leave it out", key)
	case j.Train.Capacity > 0:
		return diag.Errorf("%s: not of experts of equal capacity; leave it or train.expert_capacity out", key)
	case !j.Model.Gated && (j.Model.Activation != model.ReLU2 || !j.Recipe.Structure.FusedReLU2):
		return diag.Errorf("%s: of experts without a gate it squares a ReLU; set runtime.squared_relu_fusion, or leave it out", key)
	}
	return nil
}
