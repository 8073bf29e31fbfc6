package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// TestReentrant: a reentrant checkpoint computes whole layers again, down projection and all, where
// another one stops with what that reads. Steps of Llamas by transformers on an H200, which were 2.5 %
// too fast without it (calibrate/runs/data/expandable-segments.yaml).
func TestReentrant(t *testing.T) {
	const text = "{model: llama3.2-1b, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: sdpa}, plan: {}, train: {sequence_length: 4096, micro_batch: 4, precision: bf16-pure, recompute: "
	again := func(recompute string) (products int) {
		layer := ops.Build(config(mustParse(t, text+recompute+"}}"))).Kinds[0]
		for i := range layer.Backward.Ops {
			if o := &layer.Backward.Ops[i]; o.Phase == tape.Recompute && o.Class == tape.GEMM {
				products++
			}
		}
		return
	}
	require.Equal(t, 7, again("full, use_reentrant: true"))
	require.Equal(t, 6, again("full, use_reentrant: false"))
	require.Equal(t, 6, again("full"))
	require.Zero(t, again("none, use_reentrant: true"))

	of := func(recompute string) *Result { return mustEstimate(t, mustParse(t, text+recompute+"}}")) }
	stops, whole := of("full"), of("full, use_reentrant: true")
	require.InDelta(t, 1.04, float64(whole.StepTime)/float64(stops.StepTime), 0.02)
	require.InEpsilon(t, float64(stops.Memory.PeakAllocated), float64(whole.Memory.PeakAllocated), 0.001)
}
