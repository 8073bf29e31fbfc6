package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
)

func predicted(t require.TestingT, text string) *Result {
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	require.NoError(t, err)
	j, err := strategies.Decode(doc, doc.Root)
	require.NoError(t, err, text)
	r, err := Estimate(j, Options{})
	require.NoError(t, err)
	return r
}

// TestStragglers: a slow rank never makes a step faster, nor slower than all of it
// by the factor; the slower, the longer; who waits and who is slow are all GPUs. (On
// a GPU whose clock the power limit does not move: waiting leaves power for others.)
func TestStragglers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plan := rapid.SampledFrom([]string{"tp: 2, pp: 2", "tp: 1, pp: 1", "tp: 2, pp: 1", "tp: 1, pp: 4"}).Draw(t, "plan")
		kind := rapid.SampledFrom([]string{"slowdown", "link"}).Draw(t, "kind")
		rank := rapid.IntRange(0, 15).Draw(t, "rank")
		factor := rapid.Float64Range(1, 3).Draw(t, "factor")
		at := func(f float64) *Result {
			return predicted(t, fmt.Sprintf(`{model: llama2-7b, hardware: a100-80g-sxm, gpus: 16, runtime: {recipe: megatron-core, stragglers: "rank=%d,%s=%g"}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 2048, grad_accumulation: 8}}`, rank, kind, f, plan))
		}
		slow, slower := at(factor), at(factor*1.5)
		w := slow.Waiting
		const rounding = 0.002 // such as in what overlaps
		require.GreaterOrEqual(t, float64(slow.StepTime), float64(w.Healthy)*(1-rounding))
		require.LessOrEqual(t, float64(slow.StepTime), float64(w.Healthy)*factor*(1+rounding))
		require.GreaterOrEqual(t, float64(slower.StepTime), float64(slow.StepTime)*(1-rounding))
		gpus := int64(1)
		for _, g := range w.Groups {
			gpus += g.GPUs
		}
		require.EqualValues(t, 16, gpus)
		require.InDelta(t, float64(slow.StepTime), float64(slow.Parts.Total()), 1e-9)
	})
}

// A slow rank of a pipeline slows its stage only, and a part of that hides in the
// bubbles of its neighbours' wait: less is lost than where all ranks meet.
func TestSlowStage(t *testing.T) {
	at := func(plan, straggler string) *Result {
		return predicted(t, fmt.Sprintf(`{model: llama2-7b, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: megatron-core%s}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 2048, grad_accumulation: 16}}`, straggler, plan))
	}
	const slow = `, stragglers: [{rank: 2, slowdown: 1.2}]`
	healthy, staged := at("pp: 4", ""), at("pp: 4", slow)
	require.Equal(t, healthy.StepTime, staged.Waiting.Healthy)
	require.Nil(t, healthy.Waiting)
	for i, s := range staged.Stages { // rank 2 of 8 in 4 stages of 2
		busy := float64(s.Busy / healthy.Stages[i].Busy)
		if i == 1 {
			require.InDelta(t, 1.2, busy, 0.01)
		} else {
			require.InDelta(t, 1, busy, 1e-9, "stage %d", i)
			require.Greater(t, s.Bubble, healthy.Stages[i].Bubble)
		}
	}
	require.Less(t, staged.Waiting.Lost, at("tp: 1", slow).Waiting.Lost)
}

// TestExpectedMaximum against the exact means of normal order statistics (Harter,
// Expected values of normal order statistics, Biometrika 48, 1961).
func TestExpectedMaximum(t *testing.T) {
	require.InDelta(t, 0, expectedMaximum(1), 1e-9)
	for n, want := range map[int64]float64{2: 0.5642, 4: 1.0294, 10: 1.5388, 100: 2.5076, 400: 2.9682} {
		require.InEpsilon(t, want, expectedMaximum(n), 0.05, n)
	}
	const job = `{model: gpt2, hardware: a100-80g-sxm, gpus: %d, runtime: {recipe: megatron-core, jitter: %g}, plan: {data_parallel: ddp}, train: {sequence_length: 1024, micro_batch: 8}}`
	last := units.Seconds(0)
	for _, n := range []int{2, 8, 64} {
		more := predicted(t, fmt.Sprintf(job, n, 0.02)).StepTime - predicted(t, fmt.Sprintf(job, n, 0.0)).StepTime
		require.Greater(t, more, last, "more ranks, a slower slowest")
		last = more
	}
}

// TestHostSpeed: a step that waits for the host for all but its GPU's last kernels takes
// as long as the host does, and one that does not wait takes as long as before.
func TestHostSpeed(t *testing.T) {
	at := func(layers int, tokens int64, speed string) *Result {
		return predicted(t, fmt.Sprintf(`{model: {model_type: llama, hidden_size: 256, num_hidden_layers: %d, num_attention_heads: 4, intermediate_size: 512, vocab_size: 512, max_position_embeddings: 131072}, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager%s}, plan: {dp: 1}, train: {sequence_length: %d, micro_batch: 1}}`, layers, speed, tokens))
	}
	now, half, twice := at(32, 64, ""), at(32, 64, ", host_speed: 0.5"), at(32, 64, ", host_speed: 2")
	require.InEpsilon(t, 2, float64(half.StepTime/now.StepTime), 0.02)
	require.InEpsilon(t, 0.5, float64(twice.StepTime/now.StepTime), 0.1)
	require.Equal(t, now.StepTime, at(32, 64, ", host_speed: 1").StepTime)
	require.InEpsilon(t, 1, float64(at(2, 131072, ", host_speed: 0.5").StepTime/at(2, 131072, "").StepTime), 0.02)

	_, err := parse("{model: gpt2, gpus: 1, runtime: {host_speed: -1}}")
	require.ErrorContains(t, err, "runtime.host_speed: -1 is outside 0.05 to 20")
}

// A slow link slows the pipeline transfers that cross it, and those alone: the step
// waits for them where nothing hides them, and for no more than if all were slow.
func TestSlowTransfers(t *testing.T) {
	at := func(link string) *Result {
		return predicted(t, fmt.Sprintf(`{model: llama2-7b, hardware: a100-80g-sxm, gpus: 32, runtime: {recipe: megatron-deepspeed%s}, plan: {pp: 4}, train: {sequence_length: 2048, micro_batch: 4, grad_accumulation: 4}}`, link))
	}
	healthy, slow := at(""), at(`, stragglers: [{rank: 9, link: 20}]`) // rank 9 of 8 in each of 4 stages
	require.Greater(t, slow.Exposed["pp"], healthy.Exposed["pp"])
	require.Greater(t, slow.StepTime, healthy.StepTime)
	all := at(`, stragglers: [{rank: 1, link: 20}, {rank: 9, link: 20}, {rank: 17, link: 20}, {rank: 25, link: 20}]`)
	require.Greater(t, all.StepTime, slow.StepTime)

	j := mustParse(t, `{model: llama2-7b, hardware: a100-80g-sxm, gpus: 32, runtime: {recipe: megatron-deepspeed, stragglers: [{rank: 9, link: 20}]}, plan: {pp: 4}}`)
	var e Evaluator
	_, err := e.prepare(j)
	require.NoError(t, err)
	hop, _, bytes := e.p.hop()
	for i, h := range e.p.hops(nil, hop, bytes) {
		want := hop
		if i/4 == 1 || i%4 == 1 {
			want = 20 * hop
		}
		require.Equal(t, want, h, "ranks %d and %d", i/4, i%4)
	}
}

// TestPartsOfLopsidedPipelines: no part is negative, and the parts are those of the
// stage that the others wait for, whichever ends last.
func TestPartsOfLopsidedPipelines(t *testing.T) {
	for _, job := range []string{
		"{model: gemma2-9b, hardware: rtx-4090, gpus: 16, runtime: {recipe: automodel, stragglers: [{rank: 0, slowdown: 1.5}]}, plan: {pp: 2, virtual_stages: 2, data_parallel: fsdp2}}",
		"{model: llama2-13b, hardware: gb200-nvl72, gpus: 4096, runtime: {recipe: hf-eager}, plan: {cp: 4, pp: 8, data_parallel: zero1, schedule: interleaved-zero-bubble}, train: {sequence_length: 16384, micro_batch: 1, grad_accumulation: 5, recompute: full}}",
		"{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 48, runtime: {recipe: torchtitan, release: '26.03'}, plan: {cp: 4, pp: 4, data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 16, recompute: none}}",
		"{model: bloom-560m, hardware: h200-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {tp: 2, pp: 2}, train: {micro_batch: 8, sequence_length: 4096, recompute: full, recompute_num_layers: 2}}",
	} {
		r := mustEstimate(t, mustParse(t, job))
		p := &r.Parts
		for _, part := range []units.Seconds{p.GEMM, p.Attention, p.Memory, p.Gaps, p.Contention, p.Exposed, p.Host, p.Bubble} {
			require.GreaterOrEqual(t, float64(part), 0.0, "%+v", *p)
		}
		require.InEpsilon(t, float64(r.StepTime), float64(p.Total()), 1e-9)
		require.LessOrEqual(t, float64(r.Forward+r.Backward+r.Optimizer), float64(r.StepTime)*(1+1e-9), "%s", job)
		busiest := r.Stages[0].Busy
		for _, s := range r.Stages {
			busiest = max(busiest, s.Busy)
		}
		require.GreaterOrEqual(t, 1.001*float64(r.StepTime-p.Bubble-p.Contention-p.Exposed), 0.8*float64(busiest), "%s", job)
	}
}

// TestStragglersNeverSpeedUp: a slow rank leaves the others power, which must not make a
// pipeline faster than without it.
func TestStragglersNeverSpeedUp(t *testing.T) {
	for _, slowdown := range []float64{1.01, 1.05, 1.3, 3} {
		for rank := 0; rank < 4; rank++ {
			const job = "{model: llama2-13b, hardware: h200-sxm, gpus: 4, runtime: {recipe: megatron-core%s}, plan: {pp: 4}, train: {micro_batch: 2, grad_accumulation: 16}}"
			healthy := predicted(t, fmt.Sprintf(job, ""))
			slow := predicted(t, fmt.Sprintf(job, fmt.Sprintf(", stragglers: [{rank: %d, slowdown: %g}]", rank, slowdown)))
			require.GreaterOrEqual(t, float64(slow.StepTime), float64(healthy.StepTime)*(1-1e-9), "rank %d, %g", rank, slowdown)
			require.LessOrEqual(t, float64(slow.Clock), float64(healthy.Clock)*(1+1e-9))
		}
	}
}

// TestSlowestHost: ranks that wait for each other wait for the slowest of their hosts; a step
// that waits for no host takes as long on eight as on two, but for what they exchange.
func TestSlowestHost(t *testing.T) {
	step := func(gpus, sequence int) float64 {
		r := predicted(t, fmt.Sprintf("{model: {model_type: llama, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, vocab_size: 8192}, hardware: h200-sxm, gpus: %d, runtime: {recipe: hf-eager}, plan: {dp: %[1]d, data_parallel: ddp}, train: {sequence_length: %d, micro_batch: 1, optimizer: sgd}}", gpus, sequence))
		return float64(r.StepTime)
	}
	slowest := (1 + 0.1*expectedMaximum(8)) / (1 + 0.1*expectedMaximum(2))
	require.InDelta(t, 1.08, slowest, 0.005)
	require.InDelta(t, slowest, step(8, 128)/step(2, 128), 0.01)
	require.InDelta(t, 1, step(8, 16384)/step(2, 16384), 0.02)
}

// TestWaitingDrawsLess: GPUs that wait for a slow one draw what pauses do, 270 W of an H100 and
// not 668.
func TestWaitingDrawsLess(t *testing.T) {
	const job = "{model: llama3-8b, hardware: h100-sxm, gpus: 16, plan: {tp: 2}, runtime: {stragglers: %s}}"
	healthy := mustEstimate(t, mustParse(t, fmt.Sprintf(job, "[]")))
	at := func(slowdown int) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf(job, fmt.Sprintf("[{rank: 3, slowdown: %d}]", slowdown))))
	}
	twice, stuck := at(2), at(1000)
	wait := float64(healthy.Energy) + 270*float64(twice.Waiting.Each)
	require.InEpsilon(t, wait, float64(twice.Energy), 0.03, "a sixteenth works on")
	require.InEpsilon(t, float64(twice.Energy), float64(twice.Power)*float64(twice.StepTime), 1e-9)
	require.InEpsilon(t, 270, float64(stuck.Power), 0.1)
	var e Evaluator // what plans are ranked by says the same
	scored, err := e.Score(stuck.Job, Limits{})
	require.NoError(t, err)
	require.Equal(t, stuck.Energy, scored.Energy)
	floor, err := e.FloorEnergy(stuck.Job)
	require.NoError(t, err)
	require.LessOrEqual(t, float64(floor), float64(scored.Energy))
}

// A search with stragglers times each plan without them, too: what that follows from is kept from plan to plan.
func TestScoresWithStragglersKeepWhatTheyShare(t *testing.T) {
	j := mustParse(t, "{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {stragglers: 'rank=1,slowdown=1.2'}, plan: {tp: 2, data_parallel: zero1}, train: {micro_batch: 1, grad_accumulation: 4, sequence_length: 1024}}")
	var e Evaluator
	first, err := e.Score(j, Limits{})
	require.NoError(t, err)
	again := testing.AllocsPerRun(5, func() {
		got, err := e.Score(j, Limits{})
		require.NoError(t, err)
		require.Equal(t, first, got)
	})
	require.Less(t, again, 20.)
}
