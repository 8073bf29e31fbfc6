package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestDelta: kernels of the gated delta rule, forward and backward, on an H100
// (flash-linear-attention @bc3b101, PyTorch 2.11, Triton 3.6, 2026-11-25), in us.
func TestDelta(t *testing.T) {
	timer, _ := timer(t, "h100-sxm")
	var off float64
	shapes := []struct {
		s                 tape.DeltaShape
		forward, backward float64
	}{
		{tape.DeltaShape{Batch: 1, Sequence: 4096, Heads: 48, KeyDim: 128, ValueDim: 128}, 410, 1152},
		{tape.DeltaShape{Batch: 2, Sequence: 4096, Heads: 48, KeyDim: 128, ValueDim: 128}, 835, 2307},
		{tape.DeltaShape{Batch: 1, Sequence: 8192, Heads: 48, KeyDim: 128, ValueDim: 128}, 807, 2290},
		{tape.DeltaShape{Batch: 1, Sequence: 1024, Heads: 32, KeyDim: 128, ValueDim: 128}, 83, 215},
		{tape.DeltaShape{Batch: 1, Sequence: 2048, Heads: 32, KeyDim: 128, ValueDim: 128}, 144, 407},
		{tape.DeltaShape{Batch: 1, Sequence: 4096, Heads: 32, KeyDim: 128, ValueDim: 128}, 282, 784},
		{tape.DeltaShape{Batch: 2, Sequence: 4096, Heads: 32, KeyDim: 128, ValueDim: 128}, 558, 1552},
		{tape.DeltaShape{Batch: 1, Sequence: 8192, Heads: 32, KeyDim: 128, ValueDim: 128}, 556, 1557},
		{tape.DeltaShape{Batch: 4, Sequence: 4096, Heads: 32, KeyDim: 128, ValueDim: 128}, 1093, 3047},
		{tape.DeltaShape{Batch: 8, Sequence: 2048, Heads: 32, KeyDim: 128, ValueDim: 128}, 1094, 3045},
		{tape.DeltaShape{Batch: 1, Sequence: 32768, Heads: 32, KeyDim: 128, ValueDim: 128}, 2218, 6203},
		{tape.DeltaShape{Batch: 1, Sequence: 4096, Heads: 16, KeyDim: 128, ValueDim: 128}, 175, 501},
		{tape.DeltaShape{Batch: 2, Sequence: 4096, Heads: 16, KeyDim: 128, ValueDim: 128}, 278, 783},
		{tape.DeltaShape{Batch: 4, Sequence: 4096, Heads: 16, KeyDim: 128, ValueDim: 128}, 548, 1533},
		{tape.DeltaShape{Batch: 1, Sequence: 16384, Heads: 16, KeyDim: 128, ValueDim: 128}, 695, 1946},
		{tape.DeltaShape{Batch: 8, Sequence: 4096, Heads: 16, KeyDim: 128, ValueDim: 128}, 1073, 3026},
		{tape.DeltaShape{Batch: 4, Sequence: 1024, Heads: 8, KeyDim: 64, ValueDim: 64}, 51, 106},
		{tape.DeltaShape{Batch: 1, Sequence: 4096, Heads: 8, KeyDim: 128, ValueDim: 128}, 137, 369},
		{tape.DeltaShape{Batch: 4, Sequence: 4096, Heads: 8, KeyDim: 64, ValueDim: 64}, 166, 378},
		{tape.DeltaShape{Batch: 16, Sequence: 1024, Heads: 8, KeyDim: 64, ValueDim: 64}, 144, 319},
		{tape.DeltaShape{Batch: 4, Sequence: 4096, Heads: 8, KeyDim: 128, ValueDim: 128}, 276, 781},
		{tape.DeltaShape{Batch: 2, Sequence: 4096, Heads: 4, KeyDim: 128, ValueDim: 128}, 136, 363},
	}
	for _, c := range shapes {
		forward, backward := ruled(c.s)
		off += offBy(t, timer, forward, c.forward, c.s) + offBy(t, timer, backward, c.backward, c.s)
	}
	require.Less(t, off/float64(2*len(shapes)), 0.06)
}

// TestDeltaChain: from one chunk's state to the next takes its time however little else
// there is to do, so that a single long sequence of few heads takes longer than as many
// tokens in several.
func TestDeltaChain(t *testing.T) {
	timer, _ := timer(t, "h100-sxm")
	chained := func(batch, sequence int64) (sum units.Seconds) {
		forward, backward := ruled(tape.DeltaShape{Batch: batch, Sequence: sequence, Heads: 8, KeyDim: 128, ValueDim: 128})
		for _, ops := range [][]tape.Op{forward, backward} {
			for i := range ops {
				if ops[i].Class == tape.Chain {
					sum += timer.Time(&ops[i])
				}
			}
		}
		return sum
	}
	require.InEpsilon(t, 4, float64(chained(1, 16384)/chained(4, 4096)), 0.15, "309 us of a kernel where four sequences take 87")
}

// ruled are the ops of a gated delta rule.
func ruled(s tape.DeltaShape) (forward, backward []tape.Op) {
	t := tape.New()
	in := func(d tape.DType, width int64) *tape.Tensor {
		return t.Input(d, true, s.Batch, s.Sequence, s.Heads, width)
	}
	q, k, v := in(tape.BF16, s.KeyDim), in(tape.BF16, s.KeyDim), in(tape.BF16, s.ValueDim)
	parts := sections(t, t.Delta(q, k, v, t.Input(tape.F32, true, s.Batch, s.Sequence, s.Heads), t.Input(tape.BF16, true, s.Batch, s.Sequence, s.Heads), s), tape.BF16)
	return parts[0].Ops, parts[1].Ops
}
