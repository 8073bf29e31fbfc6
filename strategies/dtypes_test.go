package strategies

import (
	"fmt"
	"testing"
)

// TestDTypes: a job may ask for dtypes that tensors of a model have.
func TestDTypes(t *testing.T) {
	const job = "{model: gpt2, hardware: h100-sxm, gpus: 1, runtime: {recipe: hf-eager}, train: {dtypes: {%s}}}"
	for cell, want := range map[string]string{
		"moments: bf16":            "",
		"moments: 8-bit blocks":    "train.dtypes.moments: 8-bit blocks; use fp32, bf16, fp16, fp8, mxfp8, fp8-block, fp8-rowwise or fp4",
		"weights: nf4":             "train.dtypes.weights: nf4; use fp32",
		"master: bool":             "train.dtypes.master: bool; use fp32",
		"gradients: int64":         "train.dtypes.gradients: int64; use fp32",
		"master: tf32":             "no tensor is stored in tf32",
		"reduce: twelve":           `"twelve" is not a dtype`,
		"gemm: fp8, reduce: int32": "train.dtypes.reduce: int32",
	} {
		refuses(t, fmt.Sprintf(job, cell), want)
	}
}
