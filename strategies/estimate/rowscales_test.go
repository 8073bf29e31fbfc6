package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRowScales: Llama 3 8B by torchtitan on eight H100 of 95 GiB, compiled, one sequence of 8192 tokens each: 6768 tokens/s of a GPU
// with scales by row in 2025-03 (7689.5 with one scale, 6150 in bf16; pytorch/ao torchao/float8/README.md, Training benchmarks), 6984.5
// in 2025-07 (pytorch/ao pull 2595).
func TestRowScales(t *testing.T) {
	step := func(precision, release string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3-8b, hardware: h100-96g-hbm2e-500w, gpus: 8, runtime: {recipe: torchtitan, attention: flash, release: %q}, plan: {dp: 8, data_parallel: fsdp2}, "+
			"train: {sequence_length: 8192, micro_batch: 1, precision: %s, recompute: selective}}", release, precision))).StepTime)
	}
	rows := step("fp8-rowwise", "25.03")
	require.InEpsilon(t, 8192/6768., rows, 0.05)
	require.InEpsilon(t, 8192/6984.5, step("fp8-rowwise", "25.07"), 0.05)
	require.Greater(t, step("bf16", "25.03"), rows)
	require.Less(t, step("fp8", "25.03"), rows)
}
