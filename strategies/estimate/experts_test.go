package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestExpertGroups: Megatron-Core lays the ranks of experts out on their own, whatever
// the tensor ranks of the rest: those that share an expert's matrices next to each other,
// then those with other experts, then those with copies.
func TestExpertGroups(t *testing.T) {
	for _, c := range []struct {
		plan               string
		shared, exchanging collective.Group
		copies             collective.Group
	}{
		{"tp: 2, ep: 4, expert_tp: 2", collective.Group{Ranks: 2, PerNode: 2, Stride: 1}, collective.Group{Ranks: 4, PerNode: 4, Stride: 2}, collective.Group{Ranks: 2, PerNode: 1, Stride: 8}},
		{"tp: 1, ep: 4, expert_tp: 4", collective.Group{Ranks: 4, PerNode: 4, Stride: 1}, collective.Group{Ranks: 4, PerNode: 2, Stride: 4}, collective.Group{Ranks: 1, PerNode: 1, Stride: 16}},
		{"tp: 4, ep: 1, expert_tp: 2", collective.Group{Ranks: 2, PerNode: 2, Stride: 1}, collective.Group{Ranks: 1, PerNode: 1, Stride: 2}, collective.Group{Ranks: 8, PerNode: 4, Stride: 2}},
	} {
		j := mustParse(t, "{model: mixtral-8x7b, hardware: h100-sxm, gpus: 16, plan: {"+c.plan+"}, train: {sequence_length: 1024}}")
		var e Evaluator
		_, err := e.prepare(j)
		require.NoError(t, err)
		for g, want := range map[group]collective.Group{expertTPGroup: c.shared, epGroup: c.exchanging, expertDPGroup: c.copies} {
			got := e.p.groups[g]
			got.Sharing = 0
			require.Equal(t, want, got, "%s: %s", c.plan, g)
		}
	}
}

// TestExpertTensorParallelismCosts: to cut experts along their width saves no
// multiplication, and what it adds is communication within the ranks that share them.
func TestExpertTensorParallelismCosts(t *testing.T) {
	const text = "{model: mixtral-8x7b, hardware: h100-sxm, gpus: 8, plan: {ep: 2, expert_tp: %d, data_parallel: zero1}, train: {sequence_length: 1024, micro_batch: 4, global_batch: 64}}"
	one, four := mustEstimate(t, mustParse(t, fmt.Sprintf(text, 1))), mustEstimate(t, mustParse(t, fmt.Sprintf(text, 4)))
	require.Zero(t, one.Exposed["expert_tp"])
	require.Positive(t, four.Exposed["expert_tp"])
	require.InEpsilon(t, float64(one.Parts.GEMM), float64(four.Parts.GEMM), 0.1)
	require.Less(t, four.MFU, one.MFU)
	require.Less(t, float64(four.Memory.By[memory.Parameters]), float64(one.Memory.By[memory.Parameters]), "each rank holds a part of each expert")
}
