package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware/collective"
)

// TestAmaxReduction: ranks agree on the largest values once in each pass of each chunk (Transformer
// Engine 1.6 to 2.4, pytorch/fp8.py, fp8_autocast_exit, and module/linear.py,
// reduce_and_update_bwd_fp8_tensors), among those of Megatron-LM's get_amax_reduction_group.
func TestAmaxReduction(t *testing.T) {
	const pipeline = "tp: 4, cp: 2, pp: 4, virtual_stages: 5, schedule: interleaved-1f1b, data_parallel: zero1"
	for _, c := range []struct {
		runtime, plan, precision string
		gpus, ranks              int64
		chunks                   int
	}{
		{"", pipeline, "fp8-delayed", 128, 32, 5},
		{"", pipeline, "fp8-delayed", 512, 128, 5},
		{", amax_reduction: tensor", pipeline, "fp8-delayed", 512, 8, 5},
		{", amax_reduction: none", pipeline, "fp8-delayed", 512, 1, 5},
		{"", pipeline, "fp8", 512, 1, 5},
		{"", pipeline, "bf16", 512, 1, 5},
		{", release: '24.07'", pipeline, "fp8", 128, 32, 5},
		{", release: '24.03'", pipeline, "fp8", 128, 1, 5}, // NVTE_DP_AMAX_REDUCE_INTERVAL=0, NVTE_ASYNC_AMAX_REDUCTION=1
		{"", "tp: 8, data_parallel: zero1", "fp8-delayed", 64, 64, 1},
		{"", "tp: 8, data_parallel: fsdp2", "fp8-delayed", 64, 64, 1},
	} {
		name := fmt.Sprint(c.runtime, c.plan, c.precision, c.gpus)
		j := mustParse(t, fmt.Sprintf("{model: llama3-70b, hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core%s}, plan: {%s}, train: {micro_batch: 1, grad_accumulation: 8, precision: %s, recompute: full}}",
			c.gpus, c.runtime, c.plan, c.precision))
		f, err := collective.FabricOf(j.Hardware.GPU, j.Hardware.Node, j.Hardware.Network, j.Hardware.Software, j.Hardware.Laws.Collectives...)
		require.NoError(t, err)
		call := float64(f.Time(collective.AllReduce, amaxBytes, f.Group(c.ranks, 1)))
		require.InDelta(t, call*float64(2*8*c.chunks), float64(mustEstimate(t, j).Exposed["amax"]), 1e-9, name)
	}
}

// TestAmaxReductionCosts: an all-reduce of a thousand bytes takes a step as much longer as it is exposed, whichever
// way the step goes.
func TestAmaxReductionCosts(t *testing.T) {
	for _, plan := range []string{"tp: 8, data_parallel: zero1", "tp: 8, pp: 4, data_parallel: zero1", "tp: 8, pp: 4, virtual_stages: 5, schedule: interleaved-1f1b, data_parallel: zero1"} {
		of := func(how string) *Result {
			return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3-70b, hardware: {inherits: h100-sxm, gpu: {power: 2000 W}}, gpus: 256, runtime: {recipe: megatron-core, host_speed: 10, amax_reduction: %s}, plan: {%s}, train: {micro_batch: 1, grad_accumulation: 16, precision: fp8-delayed, recompute: full}}", how, plan)))
		}
		all, none := of("all"), of("none")
		require.InEpsilon(t, float64(all.Exposed["amax"]), float64(all.StepTime-none.StepTime), 0.17, plan) // and two kernels, and the pipeline's bubble
		require.Equal(t, none.Memory, all.Memory, plan)
	}
}
