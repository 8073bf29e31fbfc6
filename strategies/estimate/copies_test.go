package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestOptimizerCopies: of several copies of the optimizer's states (Megatron-Core's
// --num-distributed-optimizer-instances) each rank has more of one. Its gradients are scattered in
// the copy and what it keeps of them is summed over the copies, one after the other; parameters
// are gathered in the copy alone.
func TestOptimizerCopies(t *testing.T) {
	const job = "{model: llama2-7b, hardware: h100-sxm, gpus: 64, runtime: {overlap_grad_reduce: false, overlap_param_gather: false}, plan: {dp: 64, data_parallel: zero1%s}, train: {micro_batch: 1}}"
	var e Evaluator
	of := func(degree string) *Result {
		r, err := e.Estimate(mustParse(t, fmt.Sprintf(job, degree)), Options{})
		require.NoError(t, err)
		return r
	}
	one, all := of(""), of(", shard_degree: 64")
	require.Equal(t, one.StepTime, all.StepTime)
	require.Equal(t, one.Memory.By, all.Memory.By)

	n := units.Bytes(one.Job.Model.Params().Total)
	last := one
	for _, degree := range []units.Bytes{32, 8, 2} {
		r := of(fmt.Sprintf(", shard_degree: %g", float64(degree)))
		require.InEpsilon(t, float64(12*n/degree), float64(r.Memory.By[memory.OptimizerStates]), 1e-9)
		require.Greater(t, r.Memory.PeakAllocated, last.Memory.PeakAllocated)
		last = r

		p := &e.p
		want := p.commTime(collective.ReduceScatter, shardGroup, 4*n) + p.commTime(collective.AllReduce, replicaGroup, 4*n/degree) + p.commTime(collective.AllGather, shardGroup, 2*n)
		require.InEpsilon(t, float64(want), float64(r.Exposed["dp"]), 0.02, "%v ranks", degree)
	}
}
