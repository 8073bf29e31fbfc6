package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

const forkJob = "{model: llama2-7b, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: %s}, plan: {dp: 8, data_parallel: %s}, train: {sequence_length: 2048, micro_batch: 1, precision: fp16}}"

// TestForkReductions: ZeRO 1 sums buckets of gradients over all ranks; ZeRO 2, and ZeRO 1 whose states
// the host has, reduce each rank's part to it until use_multi_rank_bucket_allreduce of November 2023
// (DeepSpeed, stage_1_and_2.py, reduce_ipg_grads and average_tensor).
func TestForkReductions(t *testing.T) {
	const all = 2 * 6738415616.
	for _, c := range []struct{ release, kind, op string }{
		{"", "zero1", "all-reduce"}, {"", "zero2", "reduce"}, {"", "zero1, offload: optimizer", "reduce"}, {"", "zero2, offload: optimizer", "reduce"},
		{", release: '23.12'", "zero2", "all-reduce"}, {", release: '23.12'", "zero1, offload: optimizer", "all-reduce"},
	} {
		_, exchanges := moved(t, fmt.Sprintf(forkJob, "megatron-deepspeed"+c.release, c.kind))
		require.InEpsilon(t, all, exchanges[c.op], 0.01, "%v", c)
	}
}

// TestForkOffload: states and update are the host's as deepspeed-hf's are, whose engine it is; of ZeRO 2
// the GPU has a rank's part of the gradients, of ZeRO 1 all of them.
func TestForkOffload(t *testing.T) {
	const parameters = 6738415616.
	of := func(recipe, kind string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf(forkJob, recipe, kind)))
	}
	for _, kind := range []string{"zero1", "zero2", "zero3"} {
		away, here := of("megatron-deepspeed", kind+", offload: optimizer"), of("megatron-deepspeed", kind)
		other := of("deepspeed-hf", kind+", offload: optimizer")
		require.InEpsilon(t, float64(other.Parts.Update), float64(away.Parts.Update), 0.05, kind)
		require.GreaterOrEqual(t, here.Memory.PeakAllocated-away.Memory.PeakAllocated, units.Bytes(12*parameters/8*0.95), kind)
	}
	peak := func(kind string) units.Bytes {
		job := strings.Replace(fmt.Sprintf(forkJob, "megatron-deepspeed", kind), "micro_batch: 1", "micro_batch: 1, grad_accumulation: 2", 1)
		return mustEstimate(t, mustParse(t, job)).Memory.PeakAllocated
	}
	require.InDelta(t, 2*parameters*7/8, float64(peak("zero1")-peak("zero2")), 2.5e9, "less two buckets and what a layer makes")
}
