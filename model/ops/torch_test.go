package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestFunctionalCollectives: a compiled torchtitan layer under tensor and sequence
// parallelism gathers and reduces four times, in the forward and backward pass together,
// keeps what it gathered, and copies what is cut and, of more than one sequence, what is
// gathered (kernels cat_split, cat_reduce_scatter_tensor_split and
// add_cat_reduce_scatter_tensor_split in a profile of PyTorch 2.11 on two H200,
// 2026-11-21: 62.6, 62 and, with the terms that they add up, 94 and 126 us of 128 MiB).
func TestFunctionalCollectives(t *testing.T) {
	for sequences, gathered := range map[int64]int{1: 0, 4: 4} {
		c := config(t, "llama3-8b", "torchtitan")
		c.Shard.TP, c.Shard.SequenceParallel, c.MicroBatch, c.Sequence = 2, true, sequences, 4096
		layer := &Build(c).Kinds[0]
		count := map[string]int{}
		var joined []units.Bytes
		whole := units.Bytes(2 * sequences * c.Sequence * c.Spec.Hidden) // of a gathered activation
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				o := &s.Ops[i]
				count[o.Prim] += int(max(o.Count, 1))
				if o.Prim == "join" {
					joined = append(joined, o.Bytes/whole)
				}
			}
		}
		require.Equal(t, 4, count["all-gather"])
		require.Equal(t, 4, count["reduce-scatter"])
		require.Equal(t, 4+gathered, count["join"])
		passes := map[units.Bytes]int{2: 2 + gathered, 3: 1, 4: 1} // gate and up, then q, k and v have a term each
		for _, p := range joined {
			passes[p]--
		}
		require.Equal(t, map[units.Bytes]int{2: 0, 3: 0, 4: 0}, passes)
	}
}

// TestFloat8Gathers: torchtitan's tensor ranks gather what has one scale in 8 bits, in both
// passes (torchao/float8/float8_tensor_parallel.py), and reduce in 16.
func TestFloat8Gathers(t *testing.T) {
	c := config(t, "llama3-8b", "torchtitan")
	c.Precision, c.Shard.TP, c.Shard.SequenceParallel = c.Recipe.Precision["fp8"], 8, true
	layer := &Build(c).Kinds[0]
	elements := units.Bytes(c.MicroBatch * c.Sequence * c.Spec.Hidden)
	require.Equal(t, []units.Bytes{elements, elements}, gathers(&layer.Forward))
	require.Equal(t, []units.Bytes{elements, elements}, gathers(&layer.Backward))
	for i := range layer.Forward.Ops {
		if m := layer.Forward.Ops[i].Comm; m != nil && m.Kind == "reduce-scatter" {
			require.Equal(t, 2*elements, m.Bytes)
		}
	}
}

// TestTorchRing: PyTorch's ring attention exchanges keys and values of every query head in
// 16 bits and their gradients in fp32. Two H200, 32 heads of 128, 65,536 tokens
// (2026-11-21): beside the attention kernels of each step the ranks move 6.3 and
// 7.7 GB forward, the first in steps of half of its queries, and 19.7 GB backward, counted
// from the kernels of a profile.
func TestTorchRing(t *testing.T) {
	c := config(t, "llama3-8b", "torchtitan")
	c.Shard.CP, c.MicroBatch, c.Sequence, c.Attention = 2, 1, 65536, "flash"
	layer := &Build(c).Kinds[0]
	moved := func(s *tape.Section, prim string) (sum units.Bytes) {
		for i := range s.Ops {
			if o := &s.Ops[i]; o.Prim == prim {
				sum += o.Bytes * units.Bytes(max(o.Count, 1))
			}
		}
		return
	}
	require.InEpsilon(t, 7.0e9, float64(moved(&layer.Forward, "ring_merge")), 0.05)
	require.InEpsilon(t, 19.7e9, float64(moved(&layer.Backward, "ring_merge_backward")), 0.05)
	kv := units.Bytes(65536 * 32 * 128)
	require.Equal(t, []units.Bytes{2 * kv, 2 * kv}, gathers(&layer.Forward))
	for i := range layer.Backward.Ops {
		if m := layer.Backward.Ops[i].Comm; m != nil && m.Kind == "reduce-scatter" {
			require.Equal(t, 4*kv, m.Bytes)
		}
	}
}
