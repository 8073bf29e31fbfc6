package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGradientsFollowThePlan: BF16_Optimizer sums up bf16 gradients in fp32 in the place of ZeRO 1
// alone. ZeRO 2 and 3, and ZeRO 1 whose states the host has, keep and reduce those of autograd
// (DeepSpeed, runtime/engine.py, _configure_optimizer, communication_data_type), unless a job says
// otherwise. A search sets one plan after another.
func TestGradientsFollowThePlan(t *testing.T) {
	const job = "{model: llama2-7b, gpus: 8, runtime: {recipe: megatron-deepspeed}, plan: {dp: 8}, train: {%s}}"
	kept, left := Plan{DataParallel: ZeRO1}, Plan{DataParallel: ZeRO1, Offload: OffloadOptimizer}
	for _, c := range []struct {
		train             string
		plan              Plan
		gradients, reduce string
	}{
		{"precision: bf16", kept, "fp32", "fp32"},
		{"precision: bf16", left, "bf16", "bf16"},
		{"precision: bf16", Plan{DataParallel: ZeRO2}, "bf16", "bf16"},
		{"precision: bf16", Plan{DataParallel: ZeRO3}, "bf16", "bf16"},
		{"precision: bf16, dtypes: {gradients: fp32, reduce: fp32}", Plan{DataParallel: ZeRO3}, "fp32", "fp32"},
		{"precision: fp16", Plan{DataParallel: ZeRO2}, "fp16", "fp16"},
	} {
		j, err := decode(fmt.Sprintf(job, c.train))
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, j.SetPlan(kept))
			require.NoError(t, j.SetPlan(c.plan))
			require.Equal(t, []string{c.gradients, c.reduce}, []string{j.Precision.Gradients.String(), j.Precision.Reduce.String()}, "%v", c)
		}
	}
}
