package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/memory"
)

// changed is the result of a draft with a change; nil where a rule refuses it.
func changed(t *rapid.T, d draft, change func(d *draft)) *Result {
	change(&d)
	j, err := parse(d.String())
	var r *Result
	if err == nil {
		r, err = Estimate(j, Options{})
	}
	require.True(t, err == nil || diag.IsInput(err), "%s: %v", d, err)
	return r
}

// asked is the peak of what is allocated without how blocks round it, which is as chance has it.
func asked(r *Result) float64 {
	return float64(r.Memory.PeakAllocated - r.Memory.By[memory.Rounding])
}

// splitsBackward reports whether the schedule takes the backward pass apart, by which a host that
// launches slowly moves work of the device onto the critical path or off it.
func splitsBackward(s string) bool {
	return strings.HasPrefix(s, "zb") || strings.HasPrefix(s, "dual") || s == "interleaved-zero-bubble"
}

// inTurn reports whether stages gather their parameters one after another, which may take longer than
// all at once.
func inTurn(j *strategies.Job) bool {
	return j.Plan.PP > 1 && j.Plan.VirtualStages <= 1 && j.Recipe.Structure.GathersInTurn
}

// TestTurnsOfStages: gathers in turn hold up a step no longer than those of as many stages do that it
// waits for once where nothing runs beside.
func TestTurnsOfStages(t *testing.T) {
	for _, model := range []string{"llama3-8b", "gpt2-xl", "mixtral-8x7b"} {
		for _, hardware := range []string{"h100-sxm", "a100-80g-sxm", "l40s"} {
			for _, pp := range []int{2, 4, 8} {
				of := func(runtime string) *Result {
					j := mustParse(t, fmt.Sprintf("{model: %s, hardware: %s, gpus: %d, runtime: {recipe: megatron-core%s}, plan: {pp: %d, dp: 4, schedule: 1f1b, data_parallel: zero1}, train: {sequence_length: 1024, micro_batch: 1, grad_accumulation: 8}}", model, hardware, 4*pp, runtime, pp))
					require.True(t, inTurn(j))
					return mustEstimate(t, j)
				}
				on, off := of(""), of(", overlap_param_gather: false")
				require.NotEqual(t, on.StepTime, off.StepTime)
				require.LessOrEqual(t, float64(on.StepTime), float64(off.StepTime+units.Seconds(pp-1)*off.Exposed["dp"]), "%s on %s, pp %d", model, hardware, pp)
			}
		}
	}
}

// TestSettingsDoWhatTheyAreFor: what is set to save memory saves it, what takes longer takes
// longer: memory but for 0.1 % and times but for 1 %, since what ends earlier may fall beside more
// communication.
func TestSettingsDoWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	const less, more = -1, +1 // no more, and no less
	policy := func(j *strategies.Job) bool { return j.Recipe.Structure.SelectiveOps }
	// Where a layer's parts are run again, each keeps its input: more than some ops of the whole.
	whole := func(j *strategies.Job) bool {
		return policy(j) && j.Train.Recompute == "full" && !j.Recipe.ByParts(j.Model.ModelType)
	}
	aligned := func(j *strategies.Job) bool { return !inTurn(j) }
	const noGather, noOverlap = ", overlap_param_gather: false", ", overlap_grad_reduce: false"
	settings := []struct {
		name         string
		change       func(d *draft)
		memory, time int // 0: either
		of           func(j *strategies.Job) bool
		from         string // of the runtime, which the change replaces
	}{
		{"full recomputation", func(d *draft) { d.recompute = "full" }, less, more, func(j *strategies.Job) bool { return j.Train.Recompute == "none" }, ""},
		{"some ops kept, not all", func(d *draft) { d.recompute = "selective" }, less, more, func(j *strategies.Job) bool { return policy(j) && j.Train.Recompute == "none" }, ""},
		{"some ops kept, not none", func(d *draft) { d.recompute = "selective" }, more, 0, whole, ""},
		{"no overlapped reduction", func(d *draft) { d.runtime = noOverlap }, 0, more, aligned, ""},
		{"no overlapped reduction, nothing gathered beside", func(d *draft) { d.runtime = noOverlap }, 0, more, inTurn, noGather},
		{"no overlapped gathering", func(d *draft) { d.runtime = noGather }, 0, more, aligned, ""},
		{"a faster host", func(d *draft) { d.runtime = ", host_speed: 2" }, 0, less, nil, ""},
		{"a slow rank", func(d *draft) { d.runtime = ", stragglers: [{rank: 0, slowdown: 1.3}]" }, 0, more, nil, ""},
		{"parameters kept gathered", func(d *draft) { d.plan = ", reshard_after_forward: false" }, more, less, nil, ""},
		{"optimizer on the host", func(d *draft) { d.plan = ", offload: optimizer" }, less, 0, nil, ""},
		{"parameters on the host", func(d *draft) { d.plan = ", offload: parameters" }, less, 0, nil, ""},
		{"activations on the host", func(d *draft) { d.train = ", offload_activations: true" }, less, more, nil, ""},
		{"low-rank adapters instead", func(d *draft) { d.train = ", lora: {rank: 8}" }, less, 0, nil, ""},
	}
	rapid.Check(t, func(t *rapid.T) {
		d, j, r := drawn(t)
		holds := func(sign int, slack, a, b float64) bool { return float64(sign)*(b-a) >= -slack*a }
		for _, c := range settings {
			if c.of != nil && !c.of(j) {
				continue
			}
			r := r
			if c.from != "" {
				r = changed(t, d, func(d *draft) { d.runtime = c.from })
			}
			s := changed(t, d, c.change)
			if r == nil || s == nil {
				continue
			}
			require.True(t, holds(c.memory, 1e-3, asked(r), asked(s)), "%s, %s: %v, then %v", d, c.name, asked(r), asked(s))
			if r.Parts.Host == 0 || !splitsBackward(j.Plan.Schedule) {
				require.True(t, holds(c.time, 1e-2, float64(r.StepTime), float64(s.StepTime)), "%s, %s: %v, then %v", d, c.name, r.StepTime, s.StepTime)
			}
		}
	})
}

// TestMoreWork: twice the sequences of a micro batch, or twice the tokens of each, need no less
// memory and time; twice the micro batches at most a tenth more than twice the time, and fill a
// pipeline no worse; on twice the tensor ranks a rank needs no more memory. Scores that are written
// out are left out of times: Megatron's fused softmax takes some numbers of them and not others
// (megatron/model/fused_softmax.py, is_kernel_available).
func TestMoreWork(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d, j, r := drawn(t)
		for _, change := range []func(d *draft){func(d *draft) { d.micro *= 2 }, func(d *draft) { d.seq *= 2 }} {
			s := changed(t, d, change)
			if s == nil {
				continue
			}
			require.GreaterOrEqual(t, asked(s), 0.999*asked(r), "%s, then %d of %d", d, s.Job.Train.MicroBatch, s.Job.Train.SequenceLength)
			if j.Runtime.Attention != "unfused" && !splitsBackward(j.Plan.Schedule) {
				require.GreaterOrEqual(t, float64(s.StepTime), 0.99*float64(r.StepTime), "%s, then %d of %d", d, s.Job.Train.MicroBatch, s.Job.Train.SequenceLength)
			}
		}
		if s := changed(t, d, func(d *draft) { d.acc *= 2 }); s != nil {
			ratio := float64(s.StepTime / r.StepTime)
			require.True(t, ratio >= 1 && ratio <= 2.2, "%s: %v times as long", d, ratio)
			if !strings.HasPrefix(j.Plan.Schedule, "dual") { // whose two directions meet otherwise
				require.LessOrEqual(t, s.Bubble, r.Bubble+2e-3, "%s", d)
			}
		}
		if s := changed(t, d, func(d *draft) { d.tp, d.gpus = 2*d.tp, 2*d.gpus }); s != nil {
			require.LessOrEqual(t, asked(s), 1.005*asked(r), "%s", d)
		}
	})
}
