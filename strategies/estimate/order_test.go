package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
)

// TestOrderPlacesGroups: what is counted first shares a node (Megatron-Core's
// RankGenerator; nodes of 8).
func TestOrderPlacesGroups(t *testing.T) {
	type place = collective.Group
	for _, c := range []struct {
		job, plan string
		want      map[group]place
	}{
		{"model: llama2-7b", "tp: 2, pp: 4", map[group]place{tpGroup: {Ranks: 2, PerNode: 2, Stride: 1}, dpGroup: {Ranks: 4, PerNode: 4, Stride: 2}, ppGroup: {Ranks: 2, PerNode: 1, Stride: 8}}},
		{"model: llama2-7b", "tp: 2, pp: 4, order: tp-cp-ep-pp-dp", map[group]place{tpGroup: {Ranks: 2, PerNode: 2, Stride: 1}, dpGroup: {Ranks: 4, PerNode: 1, Stride: 8}, ppGroup: {Ranks: 2, PerNode: 2, Stride: 2}}},
		{"model: llama2-7b", "tp: 2, pp: 4, order: dp-pp-tp-cp-ep", map[group]place{tpGroup: {Ranks: 2, PerNode: 1, Stride: 16}, dpGroup: {Ranks: 4, PerNode: 4, Stride: 1}, ppGroup: {Ranks: 2, PerNode: 2, Stride: 4}}},
		{"model: llama2-7b", "tp: 4, cp: 4, order: tp-dp-cp-ep-pp", map[group]place{cpGroup: {Ranks: 4, PerNode: 1, Stride: 8}, dpGroup: {Ranks: 8, PerNode: 2, Stride: 4}}},
		{"model: llama2-7b", "tp: 4, cp: 2, order: cp-tp-dp-ep-pp", map[group]place{tpGroup: {Ranks: 4, PerNode: 4, Stride: 2}, cpGroup: {Ranks: 2, PerNode: 2, Stride: 1}, dpGroup: {Ranks: 8, PerNode: 2, Stride: 1}}},
		{"model: mixtral-8x7b", "tp: 2, ep: 4, expert_tp: 1, order: tp-cp-dp-ep-pp", map[group]place{dpGroup: {Ranks: 16, PerNode: 4, Stride: 2}, expertDPGroup: {Ranks: 8, PerNode: 8, Stride: 1}, epGroup: {Ranks: 4, PerNode: 1, Stride: 8}}},
	} {
		j := mustParse(t, fmt.Sprintf("{%s, hardware: h100-sxm, gpus: 32, plan: {%s}}", c.job, c.plan))
		var e Evaluator
		_, err := e.prepare(j)
		require.NoError(t, err)
		for g, want := range c.want {
			got := e.p.groups[g]
			got.Sharing, got.Spread = 0, 0
			require.Equal(t, want, got, "%s: %s", c.plan, g)
		}
	}
}

// TestTensorRanksThatDoNotDivideNodes: data ranks beside 3 or 6 tensor ranks are spread over
// the nodes that the GPUs fill, not over as many as nodes of 2 or 1 of them would need.
func TestTensorRanksThatDoNotDivideNodes(t *testing.T) {
	for tp, nodes := range map[int]int64{3: 6, 6: 6} {
		var e Evaluator
		_, err := e.prepare(mustParse(t, fmt.Sprintf("{model: gpt2, hardware: h100-sxm, gpus: 48, plan: {tp: %d}, train: {sequence_length: 768}}", tp)))
		require.NoError(t, err)
		require.Equal(t, nodes, e.p.groups[dpGroup].Nodes(), "tp %d", tp)
	}
}

// TestOrderMovesCommunication: the order changes neither work nor memory, only where
// communication goes; in one node nothing.
func TestOrderMovesCommunication(t *testing.T) {
	at := func(gpus int, plan, order string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: h100-sxm, gpus: %d, plan: {%s, order: %s}, train: {sequence_length: 2048, grad_accumulation: 8}}", gpus, plan, order)))
	}
	usual, swapped := at(32, "tp: 2, pp: 4", "tp-cp-ep-dp-pp"), at(32, "tp: 2, pp: 4", "tp-cp-ep-pp-dp")
	require.Equal(t, mustEstimate(t, mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 32, plan: {tp: 2, pp: 4}, train: {sequence_length: 2048, grad_accumulation: 8}}")).StepTime, usual.StepTime)
	require.Greater(t, swapped.Exposed["dp"], usual.Exposed["dp"], "gradients leave the node")
	require.Less(t, swapped.Exposed["pp"], usual.Exposed["pp"], "activations stay in it")
	require.Equal(t, usual.Memory.PeakAllocated, swapped.Memory.PeakAllocated)
	require.InEpsilon(t, usual.MFU*float64(usual.StepTime), swapped.MFU*float64(swapped.StepTime), 1e-12)
	require.Greater(t, at(32, "tp: 4", "dp-tp-cp-ep-pp").Exposed["tp"], 2*at(32, "tp: 4", "tp-cp-ep-dp-pp").Exposed["tp"], "tensor ranks in different nodes")

	rapid.Check(t, func(r *rapid.T) {
		order := rapid.SampledFrom([]string{"tp-cp-ep-pp-dp", "pp-dp-tp-cp-ep", "dp-tp-cp-ep-pp", "ep-pp-tp-dp-cp"}).Draw(r, "order")
		plan := rapid.SampledFrom([]string{"tp: 2, pp: 2", "tp: 4, pp: 2", "tp: 2", "pp: 4"}).Draw(r, "plan")
		require.InEpsilon(r, float64(at(8, plan, "tp-cp-ep-dp-pp").StepTime), float64(at(8, plan, order).StepTime), 1e-9)
	})
}

// TestTransfersOfMixedPipelines: where pipeline ranks are counted so that some
// neighbours share a node and others do not, only the transfers between nodes are slow.
func TestTransfersOfMixedPipelines(t *testing.T) {
	j := mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 32, plan: {tp: 2, pp: 8, order: tp-cp-ep-pp-dp}}")
	var e Evaluator
	_, err := e.prepare(j)
	require.NoError(t, err)
	hop, _, bytes := e.p.hop()
	hops := e.p.hops(nil, hop, bytes)
	require.Len(t, hops, 64)
	for from := range 7 {
		if got := hops[8*from+from+1]; from == 3 {
			require.Greater(t, got, 2*hop, "rank 3 ends the first node")
		} else {
			require.Equal(t, hop, got)
		}
	}
}

// TestWholeSends: until 2021-04 each of Megatron-LM's tensor ranks sent the next stage all that they share,
// since then a part, which its counterpart gathers: eight ranks of a node whose adapter they share send
// eight times as much.
func TestWholeSends(t *testing.T) {
	of := func(release string) (units.Seconds, units.Seconds, units.Bytes) {
		j := mustParse(t, fmt.Sprintf("{model: gpt2-medium, hardware: v100-32g-sxm, gpus: 16, runtime: {recipe: megatron-lm, attention: unfused, release: %q}, "+
			"plan: {tp: 8, pp: 2, sequence_parallel: false}, train: {precision: fp16, micro_batch: 32, grad_accumulation: 4}}", release))
		var e Evaluator
		_, err := e.prepare(j)
		require.NoError(t, err)
		return e.p.hop()
	}
	whole, none, all := of("21.03")
	part, gather, eighth := of("21.04")
	require.Zero(t, none)
	require.Positive(t, gather)
	require.Equal(t, 8*eighth, all)
	require.InEpsilon(t, 8*float64(part), float64(whole), 0.05)
}
