package strategies

import "strings"

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

// MaskKernel is the flavour of the attention law that PyTorch's attention has where it reads a mask, which
// FlashAttention takes none of; "" for the law's own. That is the memory-efficient kernel wherever cuDNN is not tried first, as it is
// on Hopper and on Blackwell of data centers (aten/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention).
func (j *Job) MaskKernel() string {
	c := j.Hardware.GPU.Capability.Value
	if prefers := strings.HasPrefix(c, "9.") || strings.HasPrefix(c, "10."); prefers && !j.Recipe.Structure.EfficientMask {
		return ""
	}
	return j.EfficientKernel()
}
