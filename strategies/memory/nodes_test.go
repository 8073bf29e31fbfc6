package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// TestNodes: of every layer with experts the nodes of a backward pass hold, in tensors of the
// hidden states, two of these and two gradients of these, k of the rows to be sent and twice k of
// the rows that came (with fused permutation and an even load), and the next micro batch's forward
// pass comes on top of them. Qwen3 30B-A3B on H200 with 8 expert ranks took 119.2 GB instead of
// the 78 that it takes without them (Megatron-LM 0d8e0714cd, fine_grained_callables.py).
func TestNodes(t *testing.T) {
	s, err := model.Load("qwen3-30b-a3b")
	require.NoError(t, err)
	r, err := recipe.Load("megatron-core")
	require.NoError(t, err)
	for _, c := range []struct {
		flex    bool
		tensors float64
	}{{false, 4 + 3*8}, {true, 4 + 1 + 2*5.296}} { // rows that Hybrid-EP sends go once to each of 8 ranks: 8 * (1 - C(112, 8) / C(128, 8))
		m := ops.Build(ops.Config{Spec: s, Recipe: r, Precision: r.Precision["bf16"], Shard: ops.Shard{TP: 1, CP: 1, EP: 8, ExpertTP: 1, Flex: c.flex, Domains: 1},
			KernelConfig: ops.KernelConfig{Attention: "flash"}, InputConfig: ops.InputConfig{MicroBatch: 2, Sequence: 4096}, ExpertConfig: ops.ExpertConfig{Imbalance: 1}})
		step := &Step{MicroBatches: 2, Mode: MainBuffers, Units: []*ops.Unit{&m.Embedding}}
		for _, k := range m.Layers {
			step.Units = append(step.Units, &m.Kinds[k])
		}
		step.Units = append(step.Units, &m.Head)
		hidden := units.Bytes(2 * 4096 * 2048 * 2)
		require.InEpsilon(t, c.tensors, float64(nodes(step.Units[1])/hidden), 0.01)
		require.Equal(t, nodes(step.Units[1]), nodes(step.Units[48]))

		bare := Measure(step, nil)
		step.Nodes = true
		held := Measure(step, nil)
		require.InDelta(t, 48*float64(nodes(step.Units[1])), float64(held.Allocated-bare.Allocated), 0.1*float64(bare.Allocated))
		require.Equal(t, "head forward", held.Moment)
		step.MicroBatches = 1 // none runs beside it
		require.Equal(t, bare.Allocated, Measure(step, nil).Allocated)
	}
}
