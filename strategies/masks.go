package strategies

import (
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// EfficientKernel is the flavour of the attention law that PyTorch's memory-efficient kernels have on the job's GPU. Where a block
// has 100 KiB of shared memory (compute capability 8.6, 8.9 and 12), the gradient's kernel that keeps what it makes of heads of up
// to 128 in registers does not fit (mem_eff_attention/kernels/generate_kernels.py, BwdKernel.get_all).
func (j *Job) EfficientKernel() string {
	switch c := j.Hardware.GPU.Capability.Value; {
	case c == "8.6", c == "8.9", strings.HasPrefix(c, "12."):
		return "efficient-small"
	}
	return "efficient"
}

// MaskKernels are what a job may name of PyTorch's kernels for attention that reads a mask, as torch.nn.attention.SDPBackend has
// them: FlashAttention takes no mask, and math is an attention of its own (runtime.attention).
var MaskKernels = []string{"cudnn", "efficient"}

// runsCuDNN reports whether PyTorch may try cuDNN's attention before others on the job's GPU: on Hopper and on Blackwell of data
// centers (aten/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention).
func (j *Job) runsCuDNN() bool {
	c := j.Hardware.GPU.Capability.Value
	return strings.HasPrefix(c, "9.") || strings.HasPrefix(c, "10.")
}

// MaskKernel is the flavour of the attention law that PyTorch's attention has where it reads a mask; "" for the law's own, which
// is cuDNN's. Left out of the job it is the memory-efficient kernel wherever cuDNN is not tried first.
func (j *Job) MaskKernel() string {
	kernel := j.Runtime.MaskKernel
	s := &j.Recipe.Structure
	if ultra := j.Hardware.GPU.Capability.Value == "10.3"; kernel == "" && j.runsCuDNN() && !s.EfficientMask && !(ultra && s.EfficientUltra) {
		kernel = "cudnn"
	}
	if kernel == "cudnn" {
		return ""
	}
	return j.EfficientKernel()
}

// checkMaskKernel holds runtime.mask_kernel against attention and GPU.
func (j *Job) checkMaskKernel() error {
	kernel := j.Runtime.MaskKernel
	if kernel == "" {
		return nil
	}
	if err := oneOf("runtime.mask_kernel", kernel, MaskKernels); err != nil {
		return err
	}
	switch {
	case j.Runtime.Attention != "sdpa":
		return diag.Errorf("runtime.mask_kernel: %s, but %s attention is not PyTorch's to choose; leave it out, or set runtime.attention to sdpa", kernel, j.Runtime.Attention)
	case kernel == "cudnn" && !j.runsCuDNN():
		return diag.Errorf("runtime.mask_kernel: cudnn, whose attention nobody has timed on %s; use efficient, or leave it out", gpuName(j.Hardware))
	}
	return nil
}
