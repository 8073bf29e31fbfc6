package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// TestOnDTensors: which modules of torchtitan's layers run on distributed tensors beside their products.
// SequenceParallel has norms so, Qwen3's and DeepSeek's attention keeps what it projects
// (use_local_output=False; torchtitan/models/qwen3/infra/parallelize.py of 2025-11), and since 703b72e of
// 2026-04-22 all layers do. Compiled layers dispatch nothing, and transformers has local tensors between.
func TestOnDTensors(t *testing.T) {
	for _, c := range []struct {
		model, runtime, plan string
		want                 []string
	}{
		{"llama3.2-1b", "recipe: torchtitan-eager, release: '26.04'", "tp: 2", []string{"norm"}},
		{"llama3.2-1b", "recipe: torchtitan-eager, release: '26.05'", "tp: 2", []string{"norm", "attention", "rotary", "mlp", "residual"}},
		{"qwen3-1.7b", "recipe: torchtitan-eager, release: '26.04'", "tp: 2", []string{"norm", "attention", "rotary"}},
		{"qwen3-1.7b", "recipe: torchtitan-eager, release: '25.06'", "tp: 2", []string{"norm"}},
		{"llama3.2-1b", "recipe: torchtitan, release: '26.05'", "tp: 2", nil},
		{"llama3.2-1b", "recipe: torchtitan-eager, release: '26.05'", "tp: 1, dp: 2", nil},
		{"llama3.2-1b", "recipe: hf-eager", "tp: 2", nil},
	} {
		j := mustParse(t, fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: 2, runtime: {%s}, plan: {%s}, train: {sequence_length: 1024, micro_batch: 1}}", c.model, c.runtime, c.plan))
		got := map[string]bool{}
		layer := ops.Build(config(j)).Kinds[0]
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; onDTensors(j, o) {
					require.NotEqual(t, tape.GEMM, o.Class)
					got[o.Module] = true
				}
			}
		}
		want := map[string]bool{}
		for _, m := range c.want {
			want[m] = true
		}
		require.Equal(t, want, got, "%s %s %s", c.model, c.runtime, c.plan)
	}
}

// TestDTensorHost: steps that wait for their hosts take less since C++ dispatches distributed tensors
// (PyTorch 2.10; pytorch/pytorch pull 166371), longer where more runs on them, and of Qwen3 (36 layers
// against 32) longer than of Llama 3, as with torchtitan 0.2.0 (calibrate/runs/data/twenty-first.yaml).
func TestDTensorHost(t *testing.T) {
	step := func(release, model string) units.Seconds {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: 8, runtime: {recipe: torchtitan-eager, release: '%s'}, plan: {tp: 8}, train: {sequence_length: 256, micro_batch: 1}}", model, release))).StepTime
	}
	require.InDelta(t, 1.07, float64(step("26.01", "llama3.1-8b")/step("26.02", "llama3.1-8b")), 0.03)
	require.InDelta(t, 1.16, float64(step("26.05", "llama3.1-8b")/step("26.04", "llama3.1-8b")), 0.03)
	require.InDelta(t, 1.65, float64(step("25.12", "qwen3-8b")/step("25.12", "llama3.1-8b")), 0.03)
}
