package strategies

import (
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// checkImbalance checks how unevenly experts get tokens.
func (j *Job) checkImbalance() error {
	t := &j.Train
	switch m := j.Model.MoE; {
	case t.Imbalance == 0:
	case m == nil:
		return diag.Errorf("train.expert_imbalance: %g, but the model has no experts; leave it out", t.Imbalance)
	case !(t.Imbalance >= 1 && t.Imbalance*float64(m.TopK) <= float64(m.Experts)):
		most := math.Floor(1e3*float64(m.Experts)/float64(m.TopK)) / 1e3
		return diag.Errorf("train.expert_imbalance: %g; give tokens of the busiest expert rank over the mean, 1 to %g where each goes to %d of %d experts", t.Imbalance, most, m.TopK, m.Experts)
	}
	return nil
}

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

// setExpertGEMM takes over what multiplies for the experts of a rank. The kernels for all of
// them are of 16 bits, and of Hopper on (Transformer Engine, common/gemm/cublaslt_gemm.cu,
// nvte_multi_tensor_gemm, which is of Hopper alone and adds no biases; PyTorch, aten/src/ATen/native/cuda/GroupMM.cu).
func (j *Job) setExpertGEMM() error {
	const key = "runtime.expert_gemm"
	how, gpu, m := j.Runtime.ExpertGEMM, j.Hardware.GPU.Architecture.Value, j.Model.MoE
	kinds := []string{CuBLASExperts, CUTLASSExperts, TorchExperts}
	switch {
	case how == "":
		return nil
	case m == nil:
		return diag.Errorf("%s: %s has no experts; leave it out", key, j.ModelName)
	case !slices.Contains(kinds, how):
		return oneOf(key, how, kinds)
	case !j.Recipe.Structure.ExpertCalls:
		return diag.Errorf("%s: recipe %s multiplies for experts in one way; leave it out, or use megatron-core", key, j.Recipe.Name)
	case how == CuBLASExperts:
		return nil
	case j.Precision.GEMM.Narrow():
		return diag.Errorf("%s: %s multiplies in 16 bits, but train.precision is %s; use bf16, or leave it out", key, how, j.Train.Precision)
	case how == CUTLASSExperts && gpu != "hopper":
		return diag.Errorf("%s: %s runs on Hopper GPUs alone, and %s is none; leave it out", key, how, j.Hardware.Name)
	case gpu != "hopper" && !strings.HasPrefix(gpu, "blackwell"):
		return diag.Errorf("%s: %s has kernels for Hopper and Blackwell GPUs, and %s is none; leave it out", key, how, j.Hardware.Name)
	case how == CUTLASSExperts && m.ExpertBias:
		return diag.Errorf("%s: %s adds no biases, which the experts of %s have; leave it out", key, how, j.ModelName)
	}
	own := *j.Recipe
	if how == CUTLASSExperts {
		own.Structure.JointProducts = true
	} else { // one weight of all, and one gradient to hand over
		own.Structure.ExpertCalls, own.Host.ExpertGrad = false, 0
	}
	j.Recipe = &own
	return nil
}
