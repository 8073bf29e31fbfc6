package strategies

import (
	"cmp"
	"fmt"
	"slices"
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

// SDPAKernels are what a job may name of the kernels of PyTorch's attention, as torch.nn.attention.SDPBackend has them: math is
// an attention of its own (runtime.attention).
var SDPAKernels = []string{"cudnn", "flash", "efficient"}

// runsCuDNN reports whether cuDNN's attention has a law on the job's GPU: on Hopper and on Blackwell of data centers.
func (j *Job) runsCuDNN() bool {
	c := j.Hardware.GPU.Capability.Value
	return strings.HasPrefix(c, "9.") || strings.HasPrefix(c, "10.")
}

// SDPAFlavours are the flavours of the attention law that PyTorch's attention has without a mask and with one, which FlashAttention
// does not take; "" for the law's own, which is cuDNN's where that has one, else FlashAttention's. What is tried first is what the
// job says, else what the framework's code asks for, else goes by the GPU (aten/native/transformers/cuda/sdp_utils.cpp,
// priority_order and check_prefer_cudnn_attention).
func (j *Job) SDPAFlavours() (plain, masked string) {
	s := &j.Recipe.Structure
	kernel := cmp.Or(j.Runtime.SDPAKernel, s.SDPAKernel)
	if kernel == "" && slices.Contains(s.CuDNNFirst, j.Hardware.GPU.Capability.Value) {
		kernel = "cudnn"
	}
	if kernel == "cudnn" && max(j.Model.HeadDim, j.Model.VDim) > j.cuDNNHead() {
		kernel = ""
	}
	masked = j.EfficientKernel()
	gpu := j.Hardware.GPU.Architecture.Value
	switch {
	case kernel == "cudnn" && j.runsCuDNN():
		masked = ""
	case kernel == "efficient":
		plain = masked
	case s.FirstFlash && gpu != "volta":
		if plain = "flash1"; j.Model.HeadDim > j.firstFlashHead() {
			plain = masked
		}
	case gpu == "volta", gpu == "turing": // before compute capability 8.0, the first that FlashAttention 2 has (sdp_utils.cpp, check_flash_attention_hardware_support)
		plain = masked
	case j.runsCuDNN():
		plain = "flash"
	}
	return plain, masked
}

// plansAttention reports whether PyTorch's attention is cuDNN's, of which each length of a batch needs a plan.
func (j *Job) plansAttention() bool {
	plain, masked := j.SDPAFlavours()
	if j.Train.Padding > 0 {
		plain = masked
	}
	return j.Runtime.Attention == "sdpa" && j.runsCuDNN() && plain == ""
}

// cuDNNHead is the widest head that PyTorch gives to cuDNN: on Blackwell 128, or DeepSeek's 192 with values of 128
// (sdp_utils.cpp of 2.8 to 2.11, check_cudnn_tensor_shapes).
func (j *Job) cuDNNHead() int64 {
	switch {
	case !strings.HasPrefix(j.Hardware.GPU.Capability.Value, "10."):
		return 256
	case j.Model.HeadDim == 192 && j.Model.VDim == 128:
		return 192
	}
	return 128
}

// firstFlashHead is the widest head that PyTorch before 2.2, which has FlashAttention 1, gives to it in training (sdp_utils.cpp
// of 2.1, check_head_dim_size and check_head_dim_gtr64_and_sm_ge86_lt90).
func (j *Job) firstFlashHead() int64 {
	if c := j.Hardware.GPU.Capability.Value; c == "8.6" || c == "8.9" {
		return 64
	}
	return 128
}

// checkSDPAKernel holds runtime.sdpa_kernel against attention and GPU.
func (j *Job) checkSDPAKernel() error {
	kernel := j.Runtime.SDPAKernel
	if kernel == "" {
		return nil
	}
	if err := oneOf("runtime.sdpa_kernel", kernel, SDPAKernels); err != nil {
		return err
	}
	switch {
	case j.Runtime.Attention != "sdpa":
		return diag.Errorf("runtime.sdpa_kernel: %s, but %s attention is not PyTorch's to choose; leave it out, or set runtime.attention to sdpa", kernel, j.Runtime.Attention)
	case kernel == "cudnn" && !j.Runs("flash-attn"): // compute capability 8.0 on (sdp_utils.cpp, check_cudnn_hardware_support)
		return diag.Errorf("runtime.sdpa_kernel: cudnn, whose attention %s does not run; use efficient, or leave it out", gpuName(j.Hardware))
	}
	return nil
}

// untimed remarks on cuDNN's attention where it has no law.
func (j *Job) untimed() []diag.Note {
	if j.Runtime.SDPAKernel != "cudnn" || j.runsCuDNN() {
		return nil
	}
	return []diag.Note{{Code: "attention.untimed", Text: fmt.Sprintf("runtime.sdpa_kernel: cudnn, whose attention nobody has timed on %s, is predicted as FlashAttention 2", gpuName(j.Hardware)),
		Remedy: "run perfplan calibrate on the machine, or give runs of your own with --runs"}}
}
