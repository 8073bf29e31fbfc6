package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMaskedKernels: which kernel PyTorch runs where attention reads a mask (aten/native/transformers/cuda/sdp_utils.cpp,
// check_prefer_cudnn_attention and can_use_flash_attention, at 2.5.1, 2.8, 2.9, 2.10 and 2.11), and what fits into the
// shared memory of the GPU (mem_eff_attention/kernels/generate_kernels.py).
func TestMaskedKernels(t *testing.T) {
	for _, c := range []struct {
		hardware, release string
		efficient         bool
		kernel            string
	}{
		{"h100-sxm", "25.03", true, "efficient"},  // 2.6
		{"h100-sxm", "25.09", true, "efficient"},  // 2.8
		{"h100-sxm", "25.11", false, "efficient"}, // 2.9
		{"h100-sxm", "26.02", true, "efficient"},  // 2.10
		{"h100-sxm", "26.04", false, "efficient"}, // 2.11
		{"b200-sxm", "26.06", false, "efficient"},
		{"b300-sxm", "25.09", true, "efficient"},
		{"b200-sxm", "25.11", false, "efficient"},
		{"b300-sxm", "25.11", true, "efficient"}, // 2.9, whose list has no 10.3
		{"b300-sxm", "26.04", false, "efficient"},
		{"a100-80g-sxm", "26.06", true, "efficient"},
		{"a40", "26.06", true, "efficient-small"},
		{"l40s", "26.06", true, "efficient-small"},
		{"rtx-4090", "26.06", true, "efficient-small"},
		{"rtx-pro-6000-blackwell", "26.06", true, "efficient-small"},
	} {
		j, err := decode(fmt.Sprintf(`{model: llama3.2-1b, hardware: %s, gpus: 1, runtime: {recipe: hf-eager, release: "%s"}, train: {micro_batch: 1}}`, c.hardware, c.release))
		require.NoError(t, err)
		require.Equal(t, c.kernel, j.EfficientKernel(), "%+v", c)
		want := ""
		if c.efficient {
			want = c.kernel
		}
		_, kernel := j.SDPAFlavours()
		require.Equal(t, want, kernel, "%+v", c)
		_, ok := j.Hardware.Laws.Attention.Flavour[c.kernel]
		require.True(t, ok, "%s has no law of it", c.hardware)
	}
}

// TestSDPAKernels: which kernel PyTorch runs where attention reads no mask: cuDNN's where that is tried first, else
// FlashAttention's, of which GPUs with no law of cuDNN's have their own (sdp_utils.cpp, priority_order). torchtitan asks for
// cuDNN's from 6a3a9da of 2025-10 on, from 3b85aa3 of 2025-05 to then on Blackwell alone.
func TestSDPAKernels(t *testing.T) {
	for _, c := range []struct{ hardware, recipe, runtime, flavour string }{
		{"h100-sxm", "hf-eager", `release: "23.12"`, "flash1"}, // 2.1; FlashAttention 2 is of 2.2
		{"a100-80g-sxm", "nanogpt", `release: "23.02"`, "flash1"},
		{"t4", "hf-eager", `release: "23.02"`, "flash1"},
		{"a100-80g-sxm", "hf-eager", `release: "23.02", sdpa_kernel: efficient`, "efficient"},
		{"rtx-4090", "nanogpt", `release: "23.02"`, "flash1"},        // heads of 64
		{"v100-32g-sxm", "nanogpt", `release: "23.02"`, "efficient"}, // no FlashAttention before compute capability 7.5, nor its second version before 8.0
		{"v100-32g-sxm", "nanogpt", `release: "26.06"`, "efficient"},
		{"t4", "hf-eager", `release: "26.06"`, "efficient"},
		{"h100-sxm", "hf-eager", `release: "24.06"`, "flash"},
		{"h100-sxm", "hf-eager", `release: "25.03"`, "flash"}, // 2.6
		{"h100-sxm", "hf-eager", `release: "25.09"`, "flash"}, // 2.8
		{"h100-sxm", "hf-eager", `release: "25.11"`, ""},      // 2.9
		{"h100-sxm", "hf-eager", `release: "26.02"`, "flash"}, // 2.10
		{"h100-sxm", "hf-eager", `release: "26.04"`, ""},      // 2.11
		{"h100-sxm", "hf-eager", `release: "25.09", libraries: "26.04"`, ""},
		{"h100-sxm", "hf-eager", `release: "26.04", libraries: "25.09"`, "flash"},
		{"h100-sxm", "hf-eager", `release: "25.09", sdpa_kernel: cudnn`, ""},
		{"h100-sxm", "hf-eager", `release: "26.04", sdpa_kernel: flash`, "flash"},
		{"h100-sxm", "deepspeed-hf", `release: "25.09"`, "flash"},
		{"h100-sxm", "nanogpt", `release: "25.09"`, "flash"},
		{"b200-sxm", "hf-eager", `release: "25.09"`, "flash"},
		{"b300-sxm", "hf-eager", `release: "25.11"`, "flash"},
		{"b300-sxm", "hf-eager", `release: "26.04"`, ""},
		{"a100-80g-sxm", "hf-eager", `release: "25.09"`, ""},
		{"a100-80g-sxm", "hf-eager", `release: "26.04", sdpa_kernel: flash`, ""},
		{"a100-80g-sxm", "hf-eager", `release: "26.04", sdpa_kernel: efficient`, "efficient"},
		{"h100-sxm", "torchtitan", `release: "25.04"`, "flash"},
		{"h100-sxm", "torchtitan", `release: "25.07"`, "flash"},
		{"b200-sxm", "torchtitan", `release: "25.04"`, "flash"},
		{"b200-sxm", "torchtitan", `release: "25.07"`, ""},
		{"h100-sxm", "torchtitan", `release: "25.10"`, ""},
		{"h100-sxm", "torchtitan", `release: "26.02"`, ""},
	} {
		j, err := decode(fmt.Sprintf(`{model: llama3.2-1b, hardware: %s, gpus: 1, runtime: {recipe: %s, attention: sdpa, %s}, train: {micro_batch: 1}}`, c.hardware, c.recipe, c.runtime))
		require.NoError(t, err)
		plain, _ := j.SDPAFlavours()
		require.Equal(t, c.flavour, plain, "%+v", c)
	}
}

// TestSDPAKernel: a job says what PyTorch's attention tries first, as code does by torch.nn.attention.sdpa_kernel, and as builds
// with another cuDNN than the wheels' do (sdp_utils.cpp of 2.10 and 2.11 asks for one after 9.15.0).
func TestSDPAKernel(t *testing.T) {
	for _, c := range []struct{ hardware, release, attention, asked, kernel, wrong string }{
		{"h100-sxm", "25.06", "sdpa", "cudnn", "", ""},
		{"h100-sxm", "26.04", "sdpa", "efficient", "efficient", ""},
		{"gb200-nvl72", "26.02", "sdpa", "cudnn", "", ""},
		{"h100-sxm", "26.04", "sdpa", "flash", "efficient", ""},
		{"rtx-4090", "26.06", "sdpa", "efficient", "efficient-small", ""},
		{"a100-80g-sxm", "26.06", "sdpa", "cudnn", "efficient", ""},
		{"t4", "26.06", "sdpa", "cudnn", "", "runtime.sdpa_kernel: cudnn, whose attention Tesla T4 does not run"},
		{"h100-sxm", "26.06", "flash", "cudnn", "", "runtime.sdpa_kernel: cudnn, but flash attention is not PyTorch's to choose"},
		{"h100-sxm", "26.06", "sdpa", "math", "", `runtime.sdpa_kernel: "math" is not known`},
	} {
		j, err := decode(fmt.Sprintf(`{model: llama3.2-1b, hardware: %s, gpus: 1, runtime: {recipe: hf-eager, attention: %s, sdpa_kernel: %s, release: "%s"}, train: {micro_batch: 1, padding: 0.5}}`, c.hardware, c.attention, c.asked, c.release))
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong)
			continue
		}
		require.NoError(t, err)
		_, kernel := j.SDPAFlavours()
		require.Equal(t, c.kernel, kernel, "%+v", c)
	}
}

// TestCuDNNHeads: heads wider than cuDNN's attention takes on Blackwell are FlashAttention's, and with a mask the
// memory-efficient kernel's (sdp_utils.cpp, check_cudnn_tensor_shapes).
func TestCuDNNHeads(t *testing.T) {
	for _, c := range []struct{ hardware, model, plain, masked string }{
		{"b200-sxm", "llama3-8b", "", ""},
		{"b200-sxm", "gemma4-26b-a4b", "flash", "efficient"},
		{"gb300-nvl72", "gemma4-26b-a4b", "flash", "efficient"},
		{"h200-sxm", "gemma4-26b-a4b", "", ""},
		{"b200-sxm", "deepseek-v2-lite", "", ""},
	} {
		j, err := decode(fmt.Sprintf(`{model: %s, hardware: %s, gpus: 1, runtime: {recipe: hf-eager, release: "26.06"}, train: {micro_batch: 1}}`, c.model, c.hardware))
		require.NoError(t, err)
		plain, masked := j.SDPAFlavours()
		require.Equal(t, [2]string{c.plain, c.masked}, [2]string{plain, masked}, "%+v", c)
	}
}
