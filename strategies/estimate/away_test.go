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
		one, two := m.chunk([]int{0}, ends{}).measure(&f, 1, false), m.chunk([]int{0, 0}, ends{}).measure(&f, 1, false)
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

// streamed is Llama 3.2 1B on one or more H100 with all activations on the host or not.
func streamed(t *testing.T, with string) *Result {
	t.Helper()
	return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h100-sxm, runtime: {recipe: hf-eager}, %s}", with)))
}

// TestStreamedLayers: where layers are recomputed, their inputs leave beside them and cost
// nothing, but what the loss saves goes and comes while nothing else runs; the device has
// that, and the inputs no more.
func TestStreamedLayers(t *testing.T) {
	const job = "gpus: 1, plan: {dp: 1}, train: {sequence_length: 8192, micro_batch: 2, grad_accumulation: 1, precision: bf16-pure, recompute: full%s}"
	here, away := streamed(t, fmt.Sprintf(job, "")), streamed(t, fmt.Sprintf(job, ", offload_activations: true"))
	h := here.Job.Hardware
	tokens, link := float64(2*8192), float64(h.GPU.PCIe.Value)
	loss := tokens * 128256 * 4 * (1/(link*h.Laws.Offload.ToHost) + 1/(link*h.Laws.Offload.ToDevice))
	require.InDelta(t, loss, float64(away.StepTime-here.StepTime), 0.06*loss)
	require.InDelta(t, loss, float64(away.Exposed["host"]), 0.05*loss)
	inputs := 16 * tokens * 2048 * 2
	require.InDelta(t, inputs, float64(here.Memory.PeakAllocated-away.Memory.PeakAllocated), 0.15*inputs)
	require.Greater(t, float64(away.Memory.Host), tokens*128256*4+inputs)
	require.Zero(t, here.Memory.Host)
}

// TestStreamedLink: without recomputation the link sets the pace of both passes. What two nodes
// save stays, as an attention's output and what both matrices of an MLP read; q, k and v of one
// tensor do not, which are three.
func TestStreamedLink(t *testing.T) {
	const job = "gpus: %d, plan: {%s}, train: {sequence_length: 4096, micro_batch: 2, grad_accumulation: %d, precision: %s, recompute: none, offload_activations: true}"
	one := streamed(t, fmt.Sprintf(job, 1, "dp: 1", 1, "bf16-pure"))
	h := one.Job.Hardware
	pass := float64(one.Memory.Host) / (float64(h.GPU.PCIe.Value) * h.Laws.Offload.ToHost)
	require.InEpsilon(t, 2*pass, float64(one.StepTime), 0.2)
	require.Greater(t, float64(one.StepTime), 2*pass)
	two := streamed(t, fmt.Sprintf(job, 1, "dp: 1", 2, "bf16-pure"))
	require.InEpsilon(t, 2*float64(one.Forward+one.Backward), float64(two.Forward+two.Backward), 0.02, "a micro batch is like another")
	sharded := streamed(t, fmt.Sprintf(job, 2, "dp: 2, data_parallel: fsdp2", 1, "bf16-mixed"))
	var matrices float64
	var e Evaluator
	m, err := e.prepare(one.Job)
	require.NoError(t, err)
	for _, p := range m.units[1].Params {
		if len(p.Dims) > 1 {
			matrices += 16 * 2 * float64(p.Local)
		}
	}
	require.InEpsilon(t, float64(one.Memory.Host)+matrices, float64(sharded.Memory.Host)/2, 0.01, "what FSDP2 gathered goes, too")
	cached := streamed(t, fmt.Sprintf(job, 1, "dp: 1", 1, "bf16-autocast"))
	floor, err := new(Evaluator).FloorPeak(cached.Job)
	require.NoError(t, err)
	require.LessOrEqual(t, floor, cached.Memory.DeviceUsed)
}
