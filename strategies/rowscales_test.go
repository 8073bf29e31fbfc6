package strategies

import (
	"fmt"
	"testing"
)

// TestCheckRowScales: where products may have scales by row, and on what GPUs: those whose kernels for them are timed.
func TestCheckRowScales(t *testing.T) {
	const job = "{model: %s, hardware: %s, gpus: 8, runtime: {recipe: torchtitan}, plan: {%s}, train: {precision: fp8-rowwise, sequence_length: 4096%s}}"
	for _, c := range []struct{ model, hardware, plan, train, want string }{
		{"llama3-8b", "h100-sxm", "dp: 8", "", ""},
		{"llama3-8b", "b200-sxm", "dp: 8", "", ""},
		{"llama3-8b", "h100-sxm", "tp: 2, dp: 4", "", "train.precision: fp8-rowwise with tp 2, whose exchange of scales is not known; use tp 1, or fp8"},
		{"qwen3-30b-a3b", "h100-sxm", "dp: 8", "", "train.precision: fp8-rowwise with experts"},
		{"llama3-8b", "h100-sxm", "dp: 8", ", dtypes: {gather: fp8}", "train.dtypes.gather: fp8, but torchao gathers in 16 bits"},
		{"llama3-8b", "a100-80g-sxm", "dp: 8", "", "train.precision: fp8-rowwise multiplies in fp8-rowwise"},
		{"llama3-8b", "l40s", "dp: 8", "", "train.precision: fp8-rowwise multiplies in fp8-rowwise"},
	} {
		refuses(t, fmt.Sprintf(job, c.model, c.hardware, c.plan, c.train), c.want)
	}
}
