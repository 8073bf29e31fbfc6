package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory"
)

// sentAway is Llama-2 7B of Megatron-Core on eight H100 with the activations of some layers on
// the host.
func sentAway(t *testing.T, layers int, link, kind string) *Result {
	t.Helper()
	return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: {inherits: h100-sxm, gpu: {pcie: %s}}, gpus: 8, plan: {dp: 8, data_parallel: %s}, train: {sequence_length: 4096, micro_batch: 2, grad_accumulation: 2, offload_layers: %d}}", link, kind, layers)))
}

// TestAwayMemory: each layer that leaves its activations to the host saves as much as one more
// layer takes, where all of them are there at the peak, and the host has that of all ranks.
func TestAwayMemory(t *testing.T) {
	for _, kind := range []string{"zero1", "fsdp1"} {
		whole := sentAway(t, 0, "63 GB/s", kind)
		var e Evaluator
		m, err := e.prepare(whole.Job)
		require.NoError(t, err)
		f := e.p.footprint()
		one, two := m.chunk(false, []int{0}, false, false).measure(&f, 1, false), m.chunk(false, []int{0, 0}, false, false).measure(&f, 1, false)
		layer := m.units[1].saved
		require.Equal(t, two.Saved-one.Saved, layer, "what one more layer keeps")
		for _, n := range []int{1, 8, 31} {
			r := sentAway(t, n, "63 GB/s", kind)
			saved := float64(whole.Memory.PeakAllocated - r.Memory.PeakAllocated)
			require.InDelta(t, float64(n), saved/float64(layer), 0.3, "%s: %d layers; which unit has the peak may change", kind, n)
			require.Equal(t, 8*units.Bytes(n)*layer, r.Memory.Host-whole.Memory.Host)
			require.Less(t, float64(r.Memory.By[memory.Activations]), float64(whole.Memory.By[memory.Activations]))
			floor, err := new(Evaluator).FloorPeak(r.Job)
			require.NoError(t, err)
			require.LessOrEqual(t, floor, r.Memory.DeviceUsed)
		}
	}
}

// TestAwayTime: a link that carries a layer's activations while the others run costs a step
// next to nothing, one that does not sets its pace: both passes of both micro batches take as
// long as what must come over it before their last layer.
func TestAwayTime(t *testing.T) {
	for _, kind := range []string{"zero1", "fsdp1"} {
		whole, fast, slow := sentAway(t, 0, "63 GB/s", kind), sentAway(t, 16, "450 GB/s", kind), sentAway(t, 16, "8 GB/s", kind)
		require.InEpsilon(t, float64(whole.StepTime), float64(fast.StepTime), 0.02, kind)
		require.Less(t, float64(fast.Exposed["host"]), 0.01*float64(fast.StepTime))
		law := slow.Job.Hardware.Laws.Offload
		bytes := float64(slow.Memory.Host) / 8
		copies := 2 * bytes / 8e9 * (1/law.ToHost + 1/law.ToDevice)
		require.Greater(t, float64(slow.StepTime), copies, kind)
		require.InEpsilon(t, copies, float64(slow.StepTime), 0.25, kind)
		require.Greater(t, float64(slow.Exposed["host"]), 0.5*copies, kind)
		require.InDelta(t, 1, float64(slow.Parts.Total()/slow.StepTime), 1e-9)
	}
}
