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
		require.Equal(t, want, j.MaskKernel(), "%+v", c)
		_, ok := j.Hardware.Laws.Attention.Flavour[c.kernel]
		require.True(t, ok, "%s has no law of it", c.hardware)
	}
}

// TestMaskKernel: a job says what PyTorch's attention runs where it reads a mask, as code does by
// torch.nn.attention.sdpa_kernel, and as builds with another cuDNN than the wheels' do (sdp_utils.cpp of 2.10 and 2.11
// asks for one after 9.15.0).
func TestMaskKernel(t *testing.T) {
	for _, c := range []struct{ hardware, release, attention, asked, kernel, wrong string }{
		{"h100-sxm", "25.06", "sdpa", "cudnn", "", ""},
		{"h100-sxm", "26.04", "sdpa", "efficient", "efficient", ""},
		{"gb200-nvl72", "26.02", "sdpa", "cudnn", "", ""},
		{"rtx-4090", "26.06", "sdpa", "efficient", "efficient-small", ""},
		{"a100-80g-sxm", "26.06", "sdpa", "cudnn", "", "runtime.mask_kernel: cudnn, whose attention nobody has timed on"},
		{"h100-sxm", "26.06", "flash", "cudnn", "", "runtime.mask_kernel: cudnn, but flash attention is not PyTorch's to choose"},
		{"h100-sxm", "26.06", "sdpa", "math", "", `runtime.mask_kernel: "math" is not known`},
	} {
		j, err := decode(fmt.Sprintf(`{model: llama3.2-1b, hardware: %s, gpus: 1, runtime: {recipe: hf-eager, attention: %s, mask_kernel: %s, release: "%s"}, train: {micro_batch: 1, padding: 0.5}}`, c.hardware, c.attention, c.asked, c.release))
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.kernel, j.MaskKernel(), "%+v", c)
	}
}
