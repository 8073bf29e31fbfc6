package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestMegatronBuckets: a bucket of Megatron-Core holds 40 million gradients, in groups of
// more than 40 ranks a million for each rank.
func TestMegatronBuckets(t *testing.T) {
	at := func(gpus int) (largest units.Bytes, calls int64) {
		r, err := Estimate(mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core}, plan: {data_parallel: zero1}, train: {precision: bf16}}", gpus)), Options{Detail: true})
		require.NoError(t, err)
		for _, c := range r.Detail.Collectives {
			if c.Kind == "reduce-scatter" {
				largest, calls = max(largest, c.Bytes), calls+c.Count
			}
		}
		return
	}
	const embedding = 32000 * 4096 // the largest parameter, which may come on top
	for _, x := range []struct {
		gpus   int
		values units.Bytes
	}{{8, 40e6}, {64, 64e6}, {512, 512e6}} {
		got, calls := at(x.gpus)
		require.GreaterOrEqual(t, got, 4*x.values, x.gpus)
		require.Less(t, got, 4*(x.values+embedding), x.gpus)
		require.InDelta(t, 6.74e9/float64(x.values), float64(calls), 0.6*6.74e9/float64(x.values), x.gpus)
	}
}

// TestBucketViews: where gradients are no views of DDP's buckets, they stay beside them
// to the end of the step, four bytes of each parameter more, and what was reduced is
// copied out.
func TestBucketViews(t *testing.T) {
	of := func(view string) *Result {
		return mustEstimate(t, mustParse(t, "{model: gpt2-xl, hardware: h200-sxm, gpus: 4, runtime: {recipe: hf-eager}, plan: {data_parallel: ddp"+view+"}, train: {micro_batch: 1, sequence_length: 128, precision: bf16-autocast}}"))
	}
	views, own := of(""), of(", bucket_view: false")
	require.Equal(t, views.Memory, of(", bucket_view: true").Memory)
	gradients := 4 * float64(views.Job.Model.Params().Total)
	require.InEpsilon(t, gradients, float64(own.Memory.By[memory.Gradients]), 1e-2, "the table's goes once it is added to the tied head's")
	require.Greater(t, own.Memory.PeakAllocated, views.Memory.PeakAllocated)
	require.Greater(t, float64(own.StepTime-views.StepTime), 2*gradients/4.8e12)
}

// TestShardedOptimizer: under PyTorch ZeRO 1 keeps gradients as DDP does, in the dtype that
// they are said to have.
func TestShardedOptimizer(t *testing.T) {
	r := mustEstimate(t, mustParse(t, "{model: llama3-8b, hardware: b300-sxm, gpus: 8, runtime: {recipe: torchtitan}, plan: {data_parallel: zero1}, train: {micro_batch: 1, recompute: full, grad_accumulation: 4}}"))
	require.Equal(t, "fp32", r.Job.Precision.Gradients.String())
	held := float64(r.Memory.By[memory.Gradients] + r.Memory.By[memory.Gathered])
	require.GreaterOrEqual(t, held, 4*float64(r.Job.Model.Params().Total))
}
