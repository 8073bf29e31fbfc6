package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestLossOfContextRanks: those of Megatron-DeepSpeed make the softmax of their logits and its
// logarithm, each a tensor of its own, and multiply the former in its place
// (core/sequence_parallel/cross_entropy.py). Others change their logits in their place
// (core/tensor_parallel/cross_entropy.py).
func TestLossOfContextRanks(t *testing.T) {
	for cp, want := range map[int64]map[string]int{
		1: {"max": 1, "exp": 1, "softmax": 0, "log": 0, "mul_": 1},
		4: {"max": 0, "exp": 0, "softmax": 1, "log": 1, "mul_": 1},
	} {
		c := config(t, "llama2-7b", "megatron-deepspeed")
		c.Sequence, c.Shard.CP, c.Shard.CPHeads = 4096*cp, cp, cp > 1
		head := &Build(c).Head
		wide := units.Bytes(4 * 4096 * c.MicroBatch * 32000)
		for prim, n := range want {
			require.Equal(t, n, number(&head.Forward, prim)+number(&head.Backward, prim), "cp %d: %s", cp, prim)
		}
		var live, most units.Bytes
		sizes := map[int32]units.Bytes{}
		for _, e := range head.Forward.Events {
			if e.Bytes > 0 {
				sizes[e.Store] = e.Bytes
				live += e.Bytes
			} else {
				live -= sizes[e.Store]
			}
			most = max(most, live)
		}
		require.Equal(t, map[int64]int{1: 1, 4: 3}[cp], int(most/wide), "cp %d: copies in fp32 at once", cp)
	}
}
