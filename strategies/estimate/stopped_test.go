package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/pipeline"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// TestStopped: a pass begins on an idle device, launched by a host that has just waited,
// unless no transfer lies between it and the pass before it.
func TestStopped(t *testing.T) {
	type pass struct{ host, busy, lag units.Seconds }
	for _, c := range []struct {
		schedule                string
		chunks, stage           int
		f, b                    pass
		forward, backward, kept units.Seconds // kept: of both, by going on
	}{
		{"1f1b", 1, 1, pass{2, 10, 11}, pass{3, 20, 21}, 12, 22, 0},
		{"1f1b", 1, 3, pass{2, 10, 11}, pass{3, 20, 21}, 12, 20, 2},             // behind the forward pass
		{"1f1b", 1, 0, pass{2, 10, 11}, pass{3, 20, 21}, 10, 22, 2},             // behind the backward pass
		{"1f1b", 1, 1, pass{10, 1, 10.5}, pass{15, 2, 15.5}, 11.5, 16.5, 0},     // hosts that are slower
		{"1f1b", 1, 3, pass{10, 1, 10.5}, pass{15, 2, 15.5}, 11.5, 15, 1.5},     //
		{"1f1b", 1, 1, pass{10, 1, 9}, pass{15, 2, 14}, 11, 16, 0},              // which go on behind their last kernel
		{"gpipe", 1, 3, pass{2, 10, 11}, pass{3, 20, 21}, 12, 22, 0},            // whose backward passes follow one another
		{"interleaved-1f1b", 2, 2, pass{2, 10, 11}, pass{3, 20, 21}, 12, 20, 2}, // turns of both without a transfer between them
	} {
		name := fmt.Sprintf("%s, stage %d, %v", c.schedule, c.stage, c.f)
		plan, err := new(pipeline.Cache).Get(c.schedule, 4, c.chunks, 8, pipeline.Blocking)
		require.NoError(t, err, name)
		p := &pricer{python: 1, host: &recipe.Host{Pipeline: 1}}
		f := passTime{seg: timeline.Segment{Host: c.f.host, Busy: c.f.busy, Lag: c.f.lag}}
		b := passTime{seg: timeline.Segment{Host: c.b.host, Busy: c.b.busy, Lag: c.b.lag}}
		forward, backward := p.stopped(plan, c.stage, &f, &b)
		require.InDelta(t, float64(c.forward), float64(forward), 1e-12, name)
		require.InDelta(t, float64(c.backward), float64(backward), 1e-12, name)
		apart := 2*p.host.Pipeline + idle(&f.seg) + idle(&b.seg)
		require.InDelta(t, float64(c.kept), float64(apart-forward-backward), 1e-12, name)
		require.GreaterOrEqual(t, forward+backward, max(c.f.busy, c.f.host)+max(c.b.busy, c.b.host), "%s: what floors count", name)
	}
}

// TestTransfers: Megatron's schedules of one chunk send and receive in between passes,
// whatever overlaps; interleaved ones beside them, if anything does.
func TestTransfers(t *testing.T) {
	for _, c := range []struct {
		recipe string
		chunks int
		want   pipeline.Transfers
		stops  bool
	}{
		{"megatron-lm", 1, pipeline.Blocking, true}, {"megatron-lm", 2, pipeline.Blocking, true},
		{"megatron-core", 1, pipeline.Blocking, true}, {"megatron-core", 2, pipeline.Async, false},
		{"megatron-pretrain", 1, pipeline.Blocking, true}, {"megatron-pretrain", 2, pipeline.Async, false},
		{"megatron-deepspeed", 1, pipeline.Blocking, false}, {"nanotron", 1, pipeline.Blocking, false},
		{"hf-eager", 1, pipeline.Torch, false}, {"torchtitan", 2, pipeline.Torch, false},
	} {
		r, err := recipe.Load(c.recipe)
		require.NoError(t, err)
		j := mustParse(t, "{model: llama2-7b, gpus: 4, plan: {pp: 4}}")
		j.Recipe, j.Plan.VirtualStages = r, int64(c.chunks)
		p := &pricer{job: j}
		require.Equal(t, c.want, p.transfers(), "%s, %d", c.recipe, c.chunks)
		require.Equal(t, c.stops, p.stops(&pipeline.Plan{Transfers: p.transfers()}), "%s, %d", c.recipe, c.chunks)
	}
}

// TestBesideTransfer: a pass is slowed while a transfer runs beside it, and no more than
// where one always does; that is contention, not waiting for the host.
func TestBesideTransfer(t *testing.T) {
	f := passTime{seg: timeline.Segment{Busy: 10}, fewer: 2}
	for hop, want := range map[units.Seconds]float64{0: 0, 1: 0.2, 10: 2, 30: 2} {
		require.InDelta(t, want, float64(f.besideTransfer(hop)), 1e-12)
	}
	at := func(bandwidth, plan string) *Result {
		return predicted(t, fmt.Sprintf("{model: llama3-70b, hardware: h100-sxm, gpus: 64, network: {bandwidth_per_gpu: %s}, plan: {tp: 8, pp: 8%s}, train: {sequence_length: 8192, micro_batch: 1, grad_accumulation: 16}}", bandwidth, plan))
	}
	slow, fast := at("50 Gbit/s", ", virtual_stages: 2"), at("400 Gbit/s", ", virtual_stages: 2")
	require.Greater(t, slow.Parts.Contention, 4*fast.Parts.Contention)
	require.Positive(t, fast.Parts.Contention)
	require.InDelta(t, float64(slow.Parts.Host), float64(fast.Parts.Host), 0.01*float64(fast.StepTime))
	require.Zero(t, at("400 Gbit/s", "").Parts.Contention, "between passes")
}
