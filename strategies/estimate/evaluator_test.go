package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
)

// The kinds of jobs that plans are drawn for: dense and mixture of experts, run with the
// host and without it, main gradients and autograd's, replicated and sharded, each pipeline runtime, a card
// that throttles and one that does not.
var bases = []string{
	"{model: gpt3-175b, hardware: a100-80g-sxm, gpus: 256, train: {global_batch: 768, sequence_length: 2048}}",
	"{model: llama3-70b, hardware: h100-sxm, gpus: 64, train: {global_batch: 256}}",
	"{model: mixtral-8x7b, hardware: h200-sxm, gpus: 64, train: {global_batch: 128, expert_imbalance: 1.1}}",
	"{model: qwen3-30b-a3b, hardware: gb200-nvl72, gpus: 16, train: {global_batch: 64, precision: mxfp8}}",
	"{model: deepseek-v2-lite, hardware: h100-sxm, gpus: 32, train: {global_batch: 64}}",
	"{model: llama3-8b, hardware: h100-sxm, gpus: 32, runtime: {recipe: torchtitan}, train: {global_batch: 128}}",
	"{model: llama2-7b, hardware: a100-80g-sxm, gpus: 16, runtime: {recipe: hf-eager}, train: {global_batch: 64, sequence_length: 2048}}",
	"{model: gemma3-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: torchtitan}, train: {global_batch: 64}}",
	"{model: gpt2-xl, hardware: a100-40g-sxm, gpus: 8, runtime: {recipe: hf-eager}, train: {global_batch: 64}}",
}

// tried are the jobs that plans are drawn for. Under the race detector, which slows
// them fifteen times, one will do: an Evaluator starts nothing that could race.
func tried() []string {
	if testing.Short() {
		return bases[:1]
	}
	return bases
}

// drawPlan draws a plan that is legal for a job.
func drawPlan(t *rapid.T, base *strategies.Job) *strategies.Job {
	pick := func(name string, of ...int64) int64 { return rapid.SampledFrom(of).Draw(t, name) }
	kinds := []strategies.DataParallel{strategies.DDP, strategies.ZeRO1, strategies.ZeRO2, strategies.ZeRO3, strategies.FSDP1, strategies.FSDP2}
	p := strategies.Plan{TP: pick("tp", 1, 2, 4, 8), PP: pick("pp", 1, 1, 2, 4, 8), CP: pick("cp", 1, 1, 2), EP: 1, DataParallel: rapid.SampledFrom(kinds).Draw(t, "kind"),
		Bucket: rapid.SampledFrom([]units.Bytes{0, 1 * units.MiB, 25 * units.MiB, 100 * units.MiB, 700 * units.MiB}).Draw(t, "bucket")}
	if base.Model.MoE != nil {
		p.EP, p.ExpertTP = pick("ep", 1, 2, 8), pick("expert_tp", 1, 1, 2, 4)
	}
	if p.PP > 1 {
		p.VirtualStages = pick("v", 1, 1, 2, 3)
		p.Schedule = rapid.SampledFrom([]string{"", "", "gpipe", "zb-h1", "interleaved-zero-bubble", "zb-v", "dualpipe"}).Draw(t, "schedule")
	}
	if rapid.Bool().Draw(t, "sharded in part") && p.DataParallel.ShardsParameters() {
		p.ShardDegree = pick("shard", 2, 4, 8)
	}
	for _, s := range []**bool{&p.SequenceParallel, &p.ReshardAfterForward, &p.SyncEveryMicroBatch} {
		if rapid.Bool().Draw(t, "given") {
			v := rapid.Bool().Draw(t, "on")
			*s = &v
		}
	}
	j, err := base.With("", pick("micro batch", 1, 2, 4), rapid.SampledFrom(append(base.Recomputations(), strategies.Recomputation{Kind: ops.SelectiveRecompute})).Draw(t, "recompute"))
	require.NoError(t, err)
	if methods := j.Recipe.RecomputeMethods; j.Given.Recompute == ops.FullRecompute && len(methods) > 0 && rapid.Bool().Draw(t, "by layers") {
		n := pick("layers", 1, 2, 3, 4)
		j.Given.RecomputeNumLayers, j.Given.RecomputeMethod = &n, strategies.RecomputeMethod(rapid.SampledFrom(methods).Draw(t, "method"))
	}
	if err := j.SetPlan(p); err != nil {
		t.Skip(err)
	}
	return j
}

// What an Evaluator returns does not depend on what it has seen, and a Score is the
// Result's.
func TestEvaluatorForgetsNothingAndAddsNothing(t *testing.T) {
	t.Parallel()
	for _, text := range tried() {
		base := mustParse(t, text)
		var used Evaluator
		rapid.Check(t, func(t *rapid.T) {
			j := drawPlan(t, base)
			want, err := Estimate(j, Options{})
			require.NoError(t, err)
			beaten, err := used.Score(j, Limits{Beaten: func(Score) bool { return true }})
			require.NoError(t, err)
			require.Equal(t, want.StepTime, beaten.StepTime)
			require.Equal(t, want.Energy, beaten.Energy)
			require.LessOrEqual(t, beaten.DeviceUsed, want.Memory.DeviceUsed)
			memory, err := used.DeviceUsed(j, 0)
			require.NoError(t, err)
			require.Equal(t, want.Memory.DeviceUsed, memory)
			got, err := used.Score(j, Limits{})
			require.NoError(t, err)
			require.Equal(t, want.StepTime, got.StepTime)
			require.Equal(t, want.Memory.PeakAllocated, got.PeakAllocated)
			require.Equal(t, want.Memory.DeviceUsed, got.DeviceUsed)
			require.Equal(t, want.Memory.Fits, got.Fits)
			require.Equal(t, want.Energy, got.Energy)
			require.GreaterOrEqual(t, float64(want.Memory.PeakReserved), float64(want.Memory.PeakAllocated)*(1-1e-9))

			again, err := used.Estimate(j, Options{})
			require.NoError(t, err)
			require.Equal(t, want, again)
		})
	}
}

// Memory that follows from the clock of a step is that of the Estimate, too, whatever is asked for first.
func TestMemoryAtTheClockOfTheStep(t *testing.T) {
	t.Parallel()
	j := mustParse(t, "{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 16, plan: {tp: 2, ep: 8, data_parallel: fsdp1, shard_degree: 4}, train: {micro_batch: 4, grad_accumulation: 2, recompute: selective, precision: fp8-block, offload_modules: [moe_act]}}")
	want, err := Estimate(j, Options{})
	require.NoError(t, err)
	var score, used Evaluator
	got, err := score.Score(j, Limits{})
	require.NoError(t, err)
	require.Equal(t, want.Memory.PeakAllocated, got.PeakAllocated)
	require.Equal(t, want.Memory.DeviceUsed, got.DeviceUsed)
	memory, err := used.DeviceUsed(j, 0)
	require.NoError(t, err)
	require.Equal(t, want.Memory.DeviceUsed, memory)
}

// Jobs that share model and recipe, as those of one search or of one sweep do, get what each
// gets alone: neither the number of hosts, of which all wait for the slowest, nor anything else
// that prices follow from is taken over from the one before.
func TestEvaluatorTakesNothingOver(t *testing.T) {
	t.Parallel()
	dense := "{model: gpt2-xl, hardware: a100-40g-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: ddp}, train: {micro_batch: 1, sequence_length: 128}}"
	megatron := "{model: llama2-7b, hardware: h100-sxm, gpus: 16, plan: {tp: 2, data_parallel: zero1}, train: {micro_batch: 1, sequence_length: 256}}"
	hosted := "{model: llama3-8b, hardware: h100-sxm, gpus: 16, runtime: {recipe: megatron-deepspeed}, plan: {tp: 2, data_parallel: zero1, offload: optimizer}, train: {micro_batch: 1, grad_accumulation: 8, sequence_length: 1024}}"
	titan := "{model: llama3-70b, hardware: h100-sxm, gpus: 64, runtime: {recipe: torchtitan}, plan: {pp: 4, data_parallel: fsdp2, reshard_after_forward: true}, train: {micro_batch: 1, grad_accumulation: 8, sequence_length: 1024}}"
	streamed := "{model: llama2-7b, hardware: h200-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp1}, train: {micro_batch: 1, offload_activations: true}}"
	deepspeed := "{model: gpt-oss-20b, hardware: h20, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {data_parallel: zero1}, train: {micro_batch: 1, grad_accumulation: 4, sequence_length: 1024}}"
	for name, c := range map[string]struct {
		job    string
		change func(j *strategies.Job, p *strategies.Plan)
	}{
		"hosts":                        {dense, func(j *strategies.Job, _ *strategies.Plan) { j.GPUs = 1024 }},
		"speed of hosts":               {dense, func(j *strategies.Job, _ *strategies.Plan) { j.Runtime.HostSpeed = 0.5 }},
		"graphs":                       {megatron, func(j *strategies.Job, _ *strategies.Plan) { j.Runtime.CUDAGraphs = strategies.LayerGraphs }},
		"pieces beside GEMMs":          {megatron, func(j *strategies.Job, _ *strategies.Plan) { j.Runtime.TPOverlap = new(false) }},
		"gathers in a pipeline":        {titan, func(_ *strategies.Job, p *strategies.Plan) { p.ShardDegree = 4 }},
		"gradients to the host":        {hosted, func(_ *strategies.Job, p *strategies.Plan) { p.PP = 4 }},
		"parameters that hooks gather": {deepspeed, func(_ *strategies.Job, p *strategies.Plan) { p.DataParallel = strategies.ZeRO3 }},
		"streamed activations":         {streamed, func(_ *strategies.Job, p *strategies.Plan) { p.DataParallel = strategies.FSDP2 }},
	} {
		t.Run(name, func(t *testing.T) {
			j := mustParse(t, c.job)
			next, p := *j, j.Plan
			p.DP = 0
			c.change(&next, &p)
			require.NoError(t, next.SetPlan(p))
			want, err := Estimate(&next, Options{})
			require.NoError(t, err)
			var used Evaluator
			before, err := used.Score(j, Limits{})
			require.NoError(t, err)
			require.NotEqual(t, want.StepTime, before.StepTime)
			got, err := used.Estimate(&next, Options{})
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

// TestSteadyStateOfShards: layers of which the first has its parameters gathered late, since
// the host waits for the device before it, are not all gathered late; nor do all layers keep or drop
// their parameters as others of their kind do.
func TestSteadyStateOfShards(t *testing.T) {
	for _, job := range []string{
		"{model: bloom-176b, hardware: aws-p5, gpus: 4, runtime: {recipe: hf-compile-layer, host_speed: 1.5}, plan: {data_parallel: fsdp2}, train: {sequence_length: 16384, micro_batch: 1, precision: fp16-autocast}}",
		"{model: phi-2, hardware: aws-p4d, gpus: 16, runtime: {recipe: deepspeed-hf}, plan: {data_parallel: zero3}, train: {sequence_length: 4096, micro_batch: 4, grad_accumulation: 3, recompute: full}}",
		"{model: gptj-6b, hardware: a100-80g-pcie, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {data_parallel: zero3, offload: optimizer}, train: {sequence_length: 2048, micro_batch: 2, grad_accumulation: 3}}",
	} {
		j := mustParse(t, job)
		var whole Evaluator
		_, err := whole.prepare(j)
		require.NoError(t, err)
		whole.sim.step.batches.every, whole.sim.step.layers.every = true, true
		want, err := whole.Estimate(j, Options{})
		require.NoError(t, err)
		require.InEpsilon(t, float64(want.StepTime), float64(mustEstimate(t, j).StepTime), 1e-9, job)
	}
}

// Passing over what repeats gives what running all of it gives, every call counted, and
// counting changes nothing.
func TestSteadyStateIsExact(t *testing.T) {
	t.Parallel()
	for _, text := range tried() {
		base := mustParse(t, text)
		var short, whole Evaluator
		rapid.Check(t, func(t *rapid.T) {
			j := drawPlan(t, base)
			if whole.p.machine == nil { // the first job of a machine makes the Evaluator anew
				_, err := whole.prepare(j)
				require.NoError(t, err)
			}
			whole.sim.step.batches.every, whole.sim.step.layers.every = true, true
			a, err := whole.Estimate(j, Options{Detail: true})
			require.NoError(t, err)
			b, err := short.Estimate(j, Options{Detail: true})
			require.NoError(t, err)
			near := func(want, got units.Seconds, what string) {
				require.InDelta(t, float64(want), float64(got), 1e-9*float64(a.StepTime), what)
			}
			near(a.StepTime, b.StepTime, "step")
			near(a.Forward, b.Forward, "forward")
			near(a.Backward, b.Backward, "backward")
			near(a.Parts.Exposed, b.Parts.Exposed, "exposed")
			near(a.Parts.Contention, b.Parts.Contention, "contention")
			near(a.Parts.Host, b.Parts.Host, "host")
			require.InEpsilon(t, float64(a.Energy), float64(b.Energy), 1e-9)
			require.Equal(t, a.Detail.Collectives, b.Detail.Collectives)
			require.Equal(t, kernelCounts(a.Detail), kernelCounts(b.Detail))

			plain, err := short.Estimate(j, Options{})
			require.NoError(t, err)
			require.Equal(t, b.StepTime, plain.StepTime)
			require.Equal(t, b.Forward, plain.Forward)
			require.Equal(t, b.Backward, plain.Backward)
			require.Equal(t, b.Parts, plain.Parts)
			require.Equal(t, b.Energy, plain.Energy)
		})
	}
}

// TestCountingAtSeveralClocks: ranks that hold the same chunks at other clocks end otherwise.
func TestCountingAtSeveralClocks(t *testing.T) {
	j := mustParse(t, "{model: llama3-70b, hardware: h100-sxm, gpus: 64, plan: {pp: 4, cp: 2, data_parallel: ddp, schedule: zb-h1}, train: {global_batch: 256, micro_batch: 1, recompute: selective}}")
	counted, err := Estimate(j, Options{Detail: true})
	require.NoError(t, err)
	plain, err := Estimate(j, Options{})
	require.NoError(t, err)
	require.NotEqual(t, plain.Stages[1].Clock, plain.Stages[2].Clock)
	require.Equal(t, plain.StepTime, counted.StepTime)
}

// kernelCounts are the kernels outside the units without their times, which depend on
// the last digit of the clock.
func kernelCounts(d *Detail) map[loose]int64 {
	out := map[loose]int64{}
	for _, k := range d.Kernels {
		out[loose{*k.Op, k.Beside}] += k.Count
	}
	return out
}

// No plan is below its floors.
func TestFloors(t *testing.T) {
	t.Parallel()
	for _, text := range tried() {
		base := mustParse(t, text)
		var e, bare Evaluator
		rapid.Check(t, func(t *rapid.T) {
			j := drawPlan(t, base)
			s, err := e.Score(j, Limits{})
			require.NoError(t, err)
			time, err := e.FloorTime(j)
			require.NoError(t, err)
			memory, err := e.FloorMemory(j)
			require.NoError(t, err)
			peak, err := e.FloorPeak(j)
			require.NoError(t, err)
			require.LessOrEqual(t, float64(memory), float64(peak))
			require.LessOrEqual(t, float64(peak), float64(s.DeviceUsed)*(1+1e-12))
			least, err := bare.DeviceUsed(j, 1) // of the tensors alone where they do not fit
			require.NoError(t, err)
			require.LessOrEqual(t, float64(least), float64(s.DeviceUsed)*(1+1e-12))
			require.LessOrEqual(t, float64(time), float64(s.StepTime)*(1+1e-12))
			require.LessOrEqual(t, float64(memory), float64(s.DeviceUsed)*(1+1e-12))
			energy, err := e.FloorEnergy(j)
			require.NoError(t, err)
			require.LessOrEqual(t, float64(energy), float64(s.Energy)*(1+1e-12))
			require.Equal(t, s.Energy > 0, energy > 0)
			require.Positive(t, float64(time))
			require.Positive(t, float64(memory))
		})
	}
}

// A floor walks single layers as no stage of a pipeline has them: with inputs that are there.
func TestFloorsAreNoStages(t *testing.T) {
	j := mustParse(t, "{model: {model_type: llama, hidden_size: 2048, num_hidden_layers: 8, num_attention_heads: 16, intermediate_size: 8192, vocab_size: 1000}, hardware: h100-sxm, gpus: 16, plan: {data_parallel: ddp}, train: {global_batch: 64, micro_batch: 1}}")
	next, p := *j, j.Plan
	p.DP, p.PP, p.VirtualStages = 0, 4, 2
	require.NoError(t, next.SetPlan(p))
	const bare = units.Bytes(1) // a limit with which nothing is replayed
	want, err := new(Evaluator).DeviceUsed(&next, bare)
	require.NoError(t, err)
	var used Evaluator
	_, err = used.FloorPeak(j)
	require.NoError(t, err)
	got, err := used.DeviceUsed(&next, bare)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A plan that does not fit is not timed.
func TestScoreStopsAtTheLimit(t *testing.T) {
	j := mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 8, plan: {data_parallel: zero1}, train: {global_batch: 64}}")
	var e Evaluator
	s, err := e.Score(j, Limits{Memory: 1 * units.GiB})
	require.NoError(t, err)
	require.Zero(t, s.StepTime)
	require.Greater(t, s.DeviceUsed, 1*units.GiB)
	used, err := e.DeviceUsed(j, 1*units.GiB)
	require.NoError(t, err)
	require.Greater(t, used, 1*units.GiB)

	all, err := e.Score(j, Limits{})
	require.NoError(t, err)
	require.Equal(t, all.DeviceUsed, used, "fits the device, so that it is known what the allocator reserves")
	s, err = e.Score(j, Limits{Time: all.StepTime / 2})
	require.NoError(t, err)
	require.Greater(t, s.StepTime, all.StepTime/2)
	require.LessOrEqual(t, s.StepTime, all.StepTime)
	require.Zero(t, s.DeviceUsed)
	s, err = e.Score(j, Limits{Time: all.StepTime})
	require.NoError(t, err)
	require.Equal(t, all, s)
}

// What is known of a plan that is too slow is no more than it takes, and just enough to know it, under
// every way to move data between stages, on cards that clock down and beside stragglers.
func TestScoreGivesUpOnTheSlow(t *testing.T) {
	for _, text := range []string{
		"{model: llama3-70b, hardware: h100-sxm, gpus: 64, plan: {tp: 8}, train: {global_batch: 512}}",
		"{model: llama3-70b, hardware: h100-sxm, gpus: 64, plan: {tp: 8, pp: 4}, train: {global_batch: 512}}",
		"{model: llama3-70b, hardware: h100-sxm, gpus: 64, plan: {tp: 8, pp: 4, virtual_stages: 5, data_parallel: zero1}, train: {global_batch: 512}}",
		"{model: llama3-70b, hardware: h100-sxm, gpus: 64, plan: {tp: 8, pp: 4, virtual_stages: 2, schedule: zb-v}, train: {global_batch: 512}}",
		"{model: llama3-8b, hardware: a100-80g-sxm, gpus: 16, plan: {tp: 2, pp: 4}, runtime: {recipe: torchtitan}, train: {global_batch: 64}}",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 16, plan: {tp: 2, pp: 4}, runtime: {stragglers: [{rank: 3, slowdown: 1.3}]}, train: {global_batch: 64}}",
	} {
		j := mustParse(t, text)
		all, err := new(Evaluator).Score(j, Limits{})
		require.NoError(t, err)
		var e Evaluator
		for _, share := range []units.Seconds{0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999} {
			s, err := e.Score(j, Limits{Time: share * all.StepTime})
			require.NoError(t, err)
			require.Greater(t, s.StepTime, share*all.StepTime, text)
			require.LessOrEqual(t, s.StepTime, all.StepTime, text)
			require.Zero(t, s.DeviceUsed, text)
		}
		s, err := e.Score(j, Limits{Time: all.StepTime})
		require.NoError(t, err)
		require.Equal(t, all, s, text)
	}
}

// Of a plan whose tensors alone do not fit, it is not known what the allocator makes of them:
// less than all is said, but never that it fits, and nothing of it is remembered.
func TestTensorsBeyondTheDevice(t *testing.T) {
	j := mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 8, plan: {data_parallel: zero1}, train: {micro_batch: 16, global_batch: 256, recompute: none}}")
	var e Evaluator
	limit := Capacity(j)
	least, err := e.DeviceUsed(j, limit)
	require.NoError(t, err)
	all, err := e.DeviceUsed(j, 0)
	require.NoError(t, err)
	require.Greater(t, least, limit)
	require.Less(t, least, all)
	s, err := new(Evaluator).Score(j, Limits{Memory: limit})
	require.NoError(t, err)
	require.False(t, s.Fits)
	require.Equal(t, least, s.DeviceUsed)
}

// TestBucketsThatFillAlike: buckets of many sizes end with the same gradients, so that a step is timed
// once for them; what is said of each is what is said where nothing is remembered, also of one that
// was not timed to its end.
func TestBucketsThatFillAlike(t *testing.T) {
	sizes := []units.Bytes{0, units.MiB, 10 * units.MiB, 25 * units.MiB, 50 * units.MiB, 100 * units.MiB, 200 * units.MiB, 800 * units.MiB, 64 * units.GiB, 128 * units.GiB}
	for _, text := range []string{
		"{model: gpt3-175b, hardware: a100-80g-sxm, gpus: 1024, plan: {tp: 8, pp: 8, data_parallel: ddp}, train: {global_batch: 1536, sequence_length: 2048}}",
		"{model: gpt3-175b, hardware: a100-80g-sxm, gpus: 1024, plan: {tp: 8, pp: 8, virtual_stages: 4, data_parallel: zero1}, train: {global_batch: 1536, sequence_length: 2048}}",
		"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 64, plan: {tp: 2, pp: 4, ep: 4, virtual_stages: 2, data_parallel: zero1}, train: {global_batch: 256, micro_batch: 2}}",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 16, runtime: {stragglers: \"rank=3,slowdown=1.3\"}, plan: {tp: 2, pp: 2}, train: {global_batch: 64}}",
	} {
		j := mustParse(t, text)
		whole, err := new(Evaluator).Score(j, Limits{})
		require.NoError(t, err)
		var e Evaluator
		for _, share := range []units.Seconds{1, 0.5, 1.02, 0} {
			limits := Limits{Time: share * whole.StepTime}
			for _, size := range sizes {
				next := *j
				next.Plan.Bucket = size
				got, err := e.Score(&next, limits)
				require.NoError(t, err)
				want, err := new(Evaluator).Score(&next, limits)
				require.NoError(t, err)
				if beyond(want.StepTime, limits.Time) {
					require.True(t, beyond(got.StepTime, limits.Time), "%s %v", text, size)
					got.StepTime = want.StepTime
				}
				require.Equal(t, want, got, "%s %v", text, size)
			}
		}
		require.Less(t, e.timed.known, len(sizes), text)
	}
}

// In the steady state of a search an evaluation allocates nothing.
func TestScoreAllocatesNothing(t *testing.T) {
	const free, held = "model: gpt3-175b, hardware: a100-80g-sxm", "model: llama3-70b, hardware: h100-sxm" // by the limit of its power
	for _, text := range []string{
		free + ", plan: {tp: 8, pp: 8}", free + ", plan: {tp: 8, pp: 8, virtual_stages: 2, data_parallel: zero1, bucket: 100 MiB}", free + ", plan: {tp: 8, data_parallel: zero1}",
		free + ", plan: {tp: 4, pp: 16, virtual_stages: 6, data_parallel: zero1}", held + ", plan: {tp: 8, pp: 4, data_parallel: zero1}",
	} {
		t.Run(text, func(t *testing.T) {
			j := mustParse(t, fmt.Sprintf("{%s, gpus: 1024, train: {global_batch: 1536, sequence_length: 2048}}", text))
			var e Evaluator
			require.Zero(t, testing.AllocsPerRun(20, func() {
				e.timed.known = 0 // as of buckets that fill as none did
				if _, err := e.Score(j, Limits{}); err != nil {
					t.Fatal(err)
				}
			}))
		})
	}
}

func BenchmarkScore(b *testing.B) {
	for name, text := range map[string]string{
		"70B-64-megatron": "{model: llama3-70b, hardware: h100-sxm, gpus: 64, plan: {tp: 8, pp: 4, data_parallel: zero1}, train: {global_batch: 512}}",
		"70B-64-fsdp2":    "{model: llama3-70b, hardware: h100-sxm, gpus: 64, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2}, train: {global_batch: 64}}",
		"175B-1024":       "{model: gpt3-175b, hardware: a100-80g-sxm, gpus: 1024, plan: {tp: 8, pp: 8}, train: {global_batch: 1536, sequence_length: 2048}}",
	} {
		j := mustParse(b, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var e Evaluator
			for b.Loop() {
				e.timed.known = 0 // as of buckets that fill as none did
				if _, err := e.Score(j, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
