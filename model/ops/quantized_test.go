package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// gathers are the sizes of the all-gathers of a section.
func gathers(s *tape.Section) (sizes []units.Bytes) {
	for i := range s.Ops {
		if c := s.Ops[i].Comm; c != nil && c.Kind == "all-gather" {
			sizes = append(sizes, c.Bytes)
		}
	}
	return
}

// TestNarrowGathers: what only GEMMs read is gathered as they read it where the recipe
// says so. Of a layer's two gathers forward and four backward, two of those are of
// gradients, which are gathered twice (Transformer Engine 2.8, pytorch/distributed.py).
func TestNarrowGathers(t *testing.T) {
	for precision, want := range map[string][2]units.Bytes{ // bytes an element of inputs and of gradients
		"bf16": {2, 2}, "fp8": {2, 2}, "nvfp4": {0.5, 1},
	} {
		c := config(t, "llama3.2-1b", "megatron-core")
		c.Precision, c.Shard.TP, c.Shard.SequenceParallel = c.Recipe.Precision[precision], 2, true
		m := Build(c)
		elements := units.Bytes(c.MicroBatch * c.Sequence * c.Spec.Hidden)
		layer, sum := m.Kinds[0], units.Bytes(0)
		require.Equal(t, []units.Bytes{want[0] * elements, want[0] * elements}, gathers(&layer.Forward), precision)
		back := gathers(&layer.Backward)
		require.Len(t, back, 4)
		for _, b := range back {
			sum += b
		}
		require.Equal(t, 2*(want[0]+want[1])*elements, sum, precision)
		require.Equal(t, []units.Bytes{2 * elements}, gathers(&m.Head.Forward), "the output layer stays in 16 bits")
	}
}

// TestQuantizedExperts: rows are padded and back around quantized experts, but not
// where Hybrid-EP has padded them.
func TestQuantizedExperts(t *testing.T) {
	permutations := func(precision string, nvlink bool) (n int) {
		c := config(t, "qwen3-30b-a3b", "megatron-core")
		c.Precision, c.Shard.EP, c.Shard.WideNVLink = c.Recipe.Precision[precision], 8, nvlink
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Prim == "permute" {
				n++
			}
		}
		return
	}
	require.Equal(t, permutations("bf16", false)+2, permutations("mxfp8", false))
	require.Equal(t, permutations("bf16", true), permutations("mxfp8", true))
}

// TestQuantizeTraffic: current scaling reads a tensor for its maximum before it reads it
// for the cast.
func TestQuantizeTraffic(t *testing.T) {
	c := config(t, "llama3.2-1b", "megatron-core")
	c.Precision = c.Recipe.Precision["fp8"]
	cast := func(c Config) units.Bytes {
		for _, o := range Build(c).Kinds[0].Forward.Ops {
			if o.Prim == "quantize" {
				return o.Bytes / units.Bytes(o.Elements)
			}
		}
		return 0
	}
	require.Equal(t, units.Bytes(2*2+2), cast(c))
	c.Precision = c.Recipe.At(12*24 + 6).Precision["fp8"]
	require.Equal(t, units.Bytes(2+2), cast(c), "delayed scaling")
}
