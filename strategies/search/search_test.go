package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

func job(t *testing.T, text string) *strategies.Job {
	t.Helper()
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	require.NoError(t, err)
	j, err := strategies.Decode(doc, doc.Root)
	require.NoError(t, err)
	return j
}

// TestBest: the best simple plan fits, is legal, is no slower than any other one that
// fits, and is found again.
func TestBest(t *testing.T) {
	for i, text := range []string{
		"{model: llama2-7b, gpus: 8}",
		"{model: llama2-70b, gpus: 64, train: {global_batch: 512}}",
		"{model: mixtral-8x7b, hardware: h200-sxm, gpus: 16}",
		"{model: llama2-7b, gpus: 16, runtime: {recipe: torchtitan}}",
		"{model: gpt2, gpus: 1, hardware: a100-40g-sxm, runtime: {recipe: hf-eager}}",
	} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		j := job(t, text)
		best, err := Best(j)
		require.NoError(t, err, text)
		require.True(t, best.Result.Memory.Fits, text)
		require.False(t, best.Job.Open)
		require.Positive(t, best.Legal)
		for _, c := range append([]Candidate{best.Candidate}, best.Others...) { // all kinds alike
			twice := *c.Job
			if twice.Given.MicroBatch, twice.Given.Recompute = 2*c.Job.Train.MicroBatch, c.Job.Train.Recompute; twice.Given.GlobalBatch > 0 {
				twice.Given.GradAccumulation = 0
			}
			if c.Job.Train.MicroBatch >= 16 || twice.SetPlan(c.Job.Plan) != nil {
				continue
			}
			r, err := estimate.Estimate(&twice, estimate.Options{})
			require.NoError(t, err)
			require.True(t, !r.Memory.Fits || r.TokensPerSecond <= c.Result.TokensPerSecond, "%s: %s with micro batch %d", text, c.Job.Plan.String(), twice.Train.MicroBatch)
		}
		for _, c := range best.Others {
			require.True(t, c.Result.Memory.Fits)
			require.LessOrEqual(t, c.Result.TokensPerSecond, best.Result.TokensPerSecond, text)
		}
		again, err := Best(job(t, text))
		require.NoError(t, err)
		require.Equal(t, best.Job.Plan, again.Job.Plan)
		require.Equal(t, best.Result.StepTime, again.Result.StepTime)

		fastest, err := Fastest(j)
		require.NoError(t, err)
		require.Equal(t, best.Job, fastest.Job, text)
		require.Equal(t, best.Result.StepTime, fastest.Result.StepTime)

		alone, err := estimate.Estimate(best.Job, estimate.Options{})
		require.NoError(t, err)
		require.Equal(t, best.Result.StepTime, alone.StepTime, "%s: the plan gives what was promised", text)
		require.True(t, j.Open, "the search does not change its job")
	}
}

// TestBestKeepsWhatIsGiven: what a job states stays.
func TestBestKeepsWhatIsGiven(t *testing.T) {
	best, err := Best(job(t, "{model: llama2-7b, gpus: 8, train: {micro_batch: 3, recompute: full, sequence_length: 2048}}"))
	require.NoError(t, err)
	require.Equal(t, int64(3), best.Job.Train.MicroBatch)
	require.Equal(t, "full", string(best.Job.Train.Recompute))
	best, err = Best(job(t, "{model: llama2-7b, gpus: 8, train: {global_batch: 48}}"))
	require.NoError(t, err)
	require.Equal(t, int64(48), best.Job.Train.GlobalBatch)
}

// TestBestOfAll: bounds leave out nothing that is among the best.
func TestBestOfAll(t *testing.T) {
	if testing.Short() {
		t.Skip("all plans are looked at one by one, which races with nothing")
	}
	t.Parallel()
	for _, text := range []string{
		"{model: llama3-8b, gpus: 16, runtime: {recipe: hf-eager}, train: {global_batch: 96}}",
		"{model: llama2-13b, gpus: 24, train: {global_batch: 48}}",
		"{model: qwen3-30b-a3b, gpus: 8, runtime: {recipe: torchtitan}, train: {global_batch: 16}}",
		"{model: mixtral-8x7b, hardware: h200-sxm, gpus: 16}",
	} {
		j := job(t, text)
		best, err := Best(j)
		require.NoError(t, err)
		plans, err := legal(j)
		require.NoError(t, err)
		all := contest{most: mostCandidates}
		var e estimate.Evaluator
		for n, p := range plans {
			for k, x := range slices.Concat(p...) {
				for _, lean := range leveled(x) {
					limits := estimate.Limits{Memory: estimate.Capacity(lean)}
					if len(all.best) == all.most {
						limits.Time = units.Seconds(all.best[all.most-1].value * lean.Tokens() * (1 + 1e-9))
					}
					s, err := e.Score(lean, limits)
					require.NoError(t, err)
					if limits.Time > 0 && s.StepTime > limits.Time { // as what recomputes more would be: whether it fits does not matter
						break
					}
					if s.Fits {
						all.offer(contestant{n, k, lean, float64(s.StepTime) / lean.Tokens(), s.DeviceUsed})
						break
					}
				}
			}
		}
		require.Len(t, all.best, 1+len(best.Others), text)
		for n, c := range append([]Candidate{best.Candidate}, best.Others...) {
			require.Equal(t, all.best[n].job.Plan, c.Job.Plan, text)
			require.Equal(t, all.best[n].job.Train, c.Job.Train, text)
		}
	}
}

// TestBestOnFasterNetworks: more bandwidth never looks slower, where there is a plan to
// choose.
func TestBestOnFasterNetworks(t *testing.T) {
	t.Parallel()
	for i, text := range []string{
		"{model: llama3-8b, hardware: h100-sxm, gpus: 16, runtime: {recipe: hf-eager}, train: {global_batch: 1024}, network: {bandwidth_per_gpu: %s}}",
		"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, train: {global_batch: 64}, network: {bandwidth_per_gpu: %s}}",
		"{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 32, runtime: {recipe: torchtitan}, train: {global_batch: 1024}, network: {bandwidth_per_gpu: %s}}",
		"{model: llama3-70b, hardware: h100-sxm, gpus: 32, runtime: {recipe: hf-eager}, train: {global_batch: 512}, network: {bandwidth_per_gpu: %s}}",
		"{model: llama3-70b, hardware: h100-sxm, gpus: 96, train: {global_batch: 512}, network: {bandwidth_per_gpu: %s}}",
	} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		last := 0.0
		for _, bandwidth := range []string{"50 Gbit/s", "100 Gbit/s", "200 Gbit/s", "400 Gbit/s"} {
			best, err := Best(job(t, fmt.Sprintf(text, bandwidth)))
			require.NoError(t, err)
			require.True(t, best.Result.Memory.Fits)
			require.GreaterOrEqual(t, best.Result.TokensPerSecond, last, "%s: %s", text, bandwidth)
			last = best.Result.TokensPerSecond
			if testing.Short() {
				break
			}
		}
	}
}

// TestBestFinds: what takes more than the smallest micro batch and the framework's own
// way to reduce gradients, what takes interleaved pipelines, context ranks for a small
// batch, many stages.
func TestBestFinds(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		text string
		rate float64 // tokens/s per GPU, at least
		dp   int64
		than string // and no slower than this plan
	}{
		{"{model: llama3-70b, hardware: h100-sxm, gpus: 32, runtime: {recipe: hf-eager}, train: {global_batch: 512}}", 894.9, 32, "{model: llama3-70b, hardware: h100-sxm, gpus: 32, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2, sync_every_micro_batch: true}, train: {global_batch: 512, micro_batch: 2, recompute: full}}"}, // 903 while products at the power limit were taken to be faster
		{"{model: llama3-8b, hardware: l40s, gpus: 8, runtime: {recipe: hf-eager}, train: {global_batch: 1024}}", 1250, 8, ""},
		{"{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 32, runtime: {recipe: torchtitan}, train: {global_batch: 1024}}", 8398, 32, ""},
		{"{model: llama3.1-405b, hardware: h100-sxm, gpus: 16384, train: {global_batch: 2048, sequence_length: 8192}}", 191, 128, ""}, // of 192.0 that Rank finds
		{"{model: llama3.1-405b, hardware: gb200-nvl72, gpus: 8192, train: {global_batch: 2048, sequence_length: 8192}}", 397.6, 128, "{model: llama3.1-405b, hardware: gb200-nvl72, gpus: 8192, plan: {tp: 4, cp: 2, pp: 8, virtual_stages: 8, data_parallel: zero1}, train: {global_batch: 2048, sequence_length: 8192, micro_batch: 1}}"}, // 406 while transfers beside the passes of interleaved schedules slowed none
		{"{model: qwen3-235b-a22b, hardware: h100-sxm, gpus: 4096, train: {global_batch: 4096}}", 1740, 256, ""},
		{"{model: deepseek-v3, hardware: h800-sxm, gpus: 2048, train: {global_batch: 15360, precision: fp8}}", 1651, 256, "{model: deepseek-v3, hardware: h800-sxm, gpus: 2048, plan: {tp: 2, ep: 32, pp: 8, data_parallel: zero1}, train: {global_batch: 15360, micro_batch: 1, precision: fp8}}"},                                                                                                     // of chunks of unlike sizes, and parts of a layer recomputed: 1268 without; 1660 while products at the power limit were taken to be faster
		{"{model: kimi-k2, hardware: h200-sxm, gpus: 1024, train: {global_batch: 4096}}", 1805, 128, "{model: kimi-k2, hardware: h200-sxm, gpus: 1024, plan: {ep: 8, pp: 32, data_parallel: zero1}, train: {global_batch: 4096, micro_batch: 1}}"},                                                                                                                                                      // 1398 while 61 layers were one chunk a rank; 1833 as above
		{"{model: llama3-70b, hardware: h100-sxm, gpus: 256, runtime: {recipe: torchtitan}, train: {global_batch: 512}}", 966, 8, "{model: llama3-70b, hardware: h100-sxm, gpus: 256, runtime: {recipe: torchtitan}, plan: {tp: 4, pp: 8, virtual_stages: 2, schedule: zb-v, dp: 8, data_parallel: fsdp2, reshard_after_forward: false}, train: {global_batch: 512, micro_batch: 1, recompute: none}}"}, // 980 while no loss was taken by chunks, 975 as above; zb-v would reach 1018, but split passes of PyTorch keep their graph: 80 GiB
		{"{model: deepseek-v2-lite, hardware: h200-sxm, gpus: 144, runtime: {recipe: torchtitan}, train: {global_batch: 2048, sequence_length: 8192}}", 13400, 16, ""},                                                                                                                                                                                                                                  // of stages with one chunk each
		{"{model: gemma3-27b, hardware: h200-sxm, gpus: 512, runtime: {recipe: megatron-script, nan_checks: false}, train: {global_batch: 480}}", 2512, 32, "{model: gemma3-27b, hardware: h200-sxm, gpus: 512, runtime: {recipe: megatron-script, nan_checks: false}, plan: {tp: 4, cp: 4, dp: 32, data_parallel: zero1}, train: {global_batch: 480, micro_batch: 15}}"},                               // of context ranks where the batch lacks factors of the GPUs; 2548 as above
		{"{model: llama3.1-405b, hardware: b200-sxm, gpus: 2048, train: {global_batch: 480}}", 263.8, 4, "{model: llama3.1-405b, hardware: b200-sxm, gpus: 2048, plan: {tp: 8, cp: 8, pp: 8, virtual_stages: 8, data_parallel: zero1}, train: {global_batch: 480, micro_batch: 15}}"},                                                                                                                   // 266, likewise
		{"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 256, train: {global_batch: 96}}", 4039, 32, "{model: mixtral-8x7b, hardware: h100-sxm, gpus: 256, plan: {tp: 4, cp: 2, ep: 8, expert_tp: 4, dp: 32, data_parallel: zero1}, train: {global_batch: 96, micro_batch: 3}}"},                                                                                                                       // of experts cut over tensor ranks
	} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		best, err := Best(job(t, c.text))
		require.NoError(t, err, c.text)
		require.True(t, best.Result.Memory.Fits, c.text)
		require.GreaterOrEqual(t, best.Result.TokensPerSecond, c.rate, c.text)
		require.Equal(t, c.dp, best.Job.Plan.DP, c.text)
		if c.than != "" {
			given, err := estimate.Estimate(job(t, c.than), estimate.Options{})
			require.NoError(t, err, c.than)
			require.GreaterOrEqual(t, best.Result.TokensPerSecond, given.TokensPerSecond, c.than)
		}
	}
}

// TestBestDivides: where the GPUs do not divide the batch, stages take the factor that the
// batch lacks.
func TestBestDivides(t *testing.T) {
	for _, gpus := range []int{48, 96, 136, 2560} { // 136: 17 stages
		text := fmt.Sprintf("{model: llama3-70b, hardware: h100-sxm, gpus: %d, train: {global_batch: 2048}}", gpus)
		best, err := Best(job(t, text))
		require.NoError(t, err, text)
		require.True(t, best.Result.Memory.Fits, text)
		require.Zero(t, 2048%best.Job.Plan.DP, text)
	}
}

// TestBestKeepsHow: what a job says of how a plan runs stays, the rest is chosen.
func TestBestKeepsHow(t *testing.T) {
	free, err := Best(job(t, "{model: llama3-8b, gpus: 8}"))
	require.NoError(t, err)
	best, err := Best(job(t, "{model: llama3-8b, gpus: 8, plan: {schedule: 1f1b}}"))
	require.NoError(t, err)
	require.Equal(t, free.Result.StepTime, best.Result.StepTime)
	require.Equal(t, "1f1b", best.Job.Plan.Schedule)
	for _, on := range []bool{true, false} {
		best, err = Best(job(t, fmt.Sprintf("{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, train: {global_batch: 64}, plan: {sync_every_micro_batch: %v, sequence_parallel: false, bucket: 10MiB}}", on)))
		require.NoError(t, err)
		require.True(t, best.Result.Memory.Fits)
		for _, c := range append([]Candidate{best.Candidate}, best.Others...) {
			require.Equal(t, on, c.Job.SyncsEveryMicroBatch())
			require.False(t, c.Job.Plan.SP())
			require.Equal(t, 10*units.MiB, c.Job.Plan.Bucket)
		}
	}
}

// TestWithin: the fastest plan where it is fast enough, none where it is not.
func TestWithin(t *testing.T) {
	for _, text := range []string{
		"{model: llama3-8b, gpus: 16, train: {global_batch: 64}}",
		"{model: llama3-8b, gpus: 16, plan: {tp: 2}}",
	} {
		j := job(t, text)
		best, err := chosen(j)
		require.NoError(t, err)
		token := float64(best.Result.StepTime) / best.Job.Tokens()
		var s Scout
		for range 2 { // with and without what it remembers
			r, err := s.Within(j, token*1.0001)
			require.NoError(t, err)
			require.NotNil(t, r, text)
			require.Equal(t, best.Result.StepTime, r.StepTime, text)
			require.Equal(t, best.Job.Plan, r.Job.Plan, text)
			r, err = s.Within(j, token*0.9999)
			require.NoError(t, err)
			require.Nil(t, r, text)
		}
	}
}

// TestFloor: no choice on any number of GPUs is faster.
func TestFloor(t *testing.T) {
	t.Parallel()
	for i, text := range []string{
		"{model: llama3-8b, gpus: %d, train: {global_batch: 1920}}",
		"{model: llama3-8b, gpus: %d, runtime: {recipe: hf-eager}}",
		"{model: mixtral-8x7b, hardware: h200-sxm, gpus: %d}",
	} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		floor := Floor(job(t, fmt.Sprintf(text, 1024)))
		require.Positive(t, floor)
		for _, n := range []int{16, 96, 256} {
			best, err := Best(job(t, fmt.Sprintf(text, n)))
			require.NoError(t, err)
			require.Less(t, floor*best.Result.TokensPerSecond, 1.0, "%s: %d", text, n)
			require.Greater(t, floor*best.Result.TokensPerSecond, 0.4, "%s: %d: a bound that says something", text, n)
		}
	}
}

// TestBestOfNone: nothing fits, or nothing is legal, or the recipe runs no such model.
func TestBestOfNone(t *testing.T) {
	best, err := Best(job(t, "{model: llama3.1-405b, gpus: 1}"))
	require.NoError(t, err)
	require.False(t, best.Result.Memory.Fits)
	for _, c := range best.Others {
		require.GreaterOrEqual(t, c.Result.Memory.DeviceUsed, best.Result.Memory.DeviceUsed, "the one that lacks least")
	}
	both, err := Best(job(t, "{model: llama2-7b, gpus: 8, train: {global_batch: 64, grad_accumulation: 4}}"))
	require.NoError(t, err)
	require.EqualValues(t, 4, both.Job.Train.GradAccumulation, "as it was given")
	_, err = Best(job(t, "{model: llama2-7b, gpus: 37, train: {global_batch: 5}}"))
	require.ErrorContains(t, err, "do not divide")
	require.NotContains(t, err.Error(), "perfplan plan", "which finds none, either")
	require.True(t, diag.IsInput(err))
	_, err = Best(job(t, "{model: gpt2, gpus: 24, runtime: {recipe: deepspeed-hf}, train: {global_batch: 8}}")) // 3 tensor ranks would do
	require.ErrorContains(t, err, "use a multiple of 24, as in 24; or look beyond the simple plans with perfplan plan")
	require.True(t, diag.IsInput(err))
	_, err = Best(job(t, "{model: mixtral-8x7b, gpus: 8, runtime: {recipe: llm-foundry}}"))
	require.ErrorContains(t, err, "does not run this model")
	_, err = Best(job(t, "{model: gpt2, gpus: 8, runtime: {recipe: torchtitan}}"))
	require.ErrorContains(t, err, "torchtitan has no dropout of what blocks add")
	require.ErrorContains(t, err, "model.residual_dropout=0")
	_, err = Best(job(t, "{model: {model_type: gpt2, resid_pdrop: 0}, gpus: 8, runtime: {recipe: torchtitan}}"))
	require.NoError(t, err)
}

// with makes a job of a text with settings, as the commands do.
func with(t *testing.T, text string) func(set []string) (*strategies.Job, error) {
	return func(set []string) (*strategies.Job, error) {
		doc, err := yamlx.Parse("job.yaml", []byte(text))
		require.NoError(t, err)
		for _, s := range set {
			path, value, _ := strings.Cut(s, "=")
			require.NoError(t, doc.Set("--set", path, value, ""))
		}
		return strategies.Decode(doc, doc.Root)
	}
}

// remedied is a job that does not fit and what would make it.
func remedied(t *testing.T, text string) (list []Remedy, most int64) {
	j := job(t, text)
	before, err := chosen(j)
	require.NoError(t, err)
	require.False(t, before.Result.Memory.Fits, text)
	return Remedies(j, before.Result, with(t, text))
}

// TestRemedies: each is what the job gives once it is set, the fewest GPUs come first and
// of them the fastest.
func TestRemedies(t *testing.T) {
	t.Parallel()
	for i, text := range []string{
		"{model: llama2-7b, gpus: 8, plan: {}, train: {micro_batch: 8}}",
		"{model: llama2-70b, gpus: 16, plan: {tp: 8, data_parallel: zero1}}",
		"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: ddp}}",
		"{model: llama2-7b, gpus: 1}",
		"{model: llama3-70b, gpus: 8}",
		"{model: llama2-13b, gpus: 1, plan: {tp: 1}}",
		"{model: llama2-70b, gpus: 32, plan: {pp: 8, dp: 4}, train: {micro_batch: 4, global_batch: 64, grad_accumulation: 4}}",
		"{model: llama2-7b, gpus: 16, plan: {pp: 2, stage_layers: '[20, 12]'}, train: {micro_batch: 8, recompute: full, recompute_num_layers: 1, recompute_method: block}}",
	} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		list, _ := remedied(t, text)
		require.NotEmpty(t, list, text)
		require.LessOrEqual(t, len(list), mostRemedies)
		for i, r := range list {
			j, err := with(t, text)(r.Set)
			require.NoError(t, err, "%s: %v", text, r.Set)
			again, err := chosen(j)
			require.NoError(t, err)
			require.True(t, again.Result.Memory.Fits, "%s: %v", text, r.Set)
			require.Equal(t, again.Result.StepTime, r.Candidate.Result.StepTime, "%s: %v", text, r.Set)
			require.Equal(t, again.Result.Memory.DeviceUsed, r.Candidate.Result.Memory.DeviceUsed, "%s: %v", text, r.Set)
			require.Equal(t, again.Job.Plan, r.Candidate.Job.Plan, "%s: %v", text, r.Set)
			if i == 0 {
				continue
			}
			last := list[i-1]
			require.GreaterOrEqual(t, j.GPUs, last.Candidate.Job.GPUs, "%s: the fewest GPUs first", text)
			if j.GPUs == last.Candidate.Job.GPUs {
				require.GreaterOrEqual(t, r.Slowdown, last.Slowdown, "%s: the fastest first", text)
			}
		}
	}
}

// TestRemediesFound: what is found, where a search along the chosen plan alone found
// nothing or more GPUs than it takes: the first, and the first that leaves nothing to the
// hosts.
func TestRemediesFound(t *testing.T) {
	if testing.Short() {
		t.Skip("all race alike")
	}
	t.Parallel()
	const host = "plan.offload=optimizer"
	for _, c := range []struct {
		text         string
		first, alone []string // none when nothing helps
		most         int64
	}{
		{"{model: llama2-13b, gpus: 1}", []string{host}, []string{"gpus=4"}, 4},
		{"{model: llama2-13b, gpus: 1, plan: {tp: 1}}", []string{"train.recompute=full", host}, []string{"gpus=4", "plan=null"}, 4},
		{"{model: llama3-70b, gpus: 8}", []string{host}, []string{"gpus=32"}, 32},
		{"{model: llama3.1-405b, gpus: 1}", []string{"gpus=32", host}, []string{"gpus=128"}, 128},
		{"{model: llama2-70b, gpus: 64, plan: {tp: 4, pp: 4, data_parallel: ddp}}", []string{"plan=null"}, []string{"plan=null"}, 64},
		{"{model: llama2-7b, gpus: 8, train: {micro_batch: 16, recompute: none, sequence_length: 32768}}", []string{"train.micro_batch=1"}, []string{"train.micro_batch=1"}, 8},
		{"{model: llama3.1-405b, hardware: l40s, gpus: 32, train: {global_batch: 1}}", []string{"gpus=64", host}, []string{"gpus=256"}, 256},
		{"{model: llama3.1-405b, hardware: l40s, gpus: 32, train: {global_batch: 1, sequence_length: 8388608}}", nil, nil, 32768},
		{"{model: llama3-70b, gpus: 32, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2, dp: 32}, train: {global_batch: 512, recompute: full, micro_batch: 2}}", []string{"plan.sync_every_micro_batch=true"}, []string{"plan.sync_every_micro_batch=true"}, 32},
		{"{model: llama3-70b, gpus: 8, runtime: {recipe: hf-eager}}", []string{"plan.offload=parameters"}, []string{"gpus=32"}, 32},
		{"{model: llama2-13b, gpus: 8, runtime: {recipe: hf-eager}, plan: {dp: 8, data_parallel: fsdp2}, train: {sequence_length: 65536, micro_batch: 1, recompute: full}}", []string{"train.offload_activations=true"}, []string{"plan=null"}, 8},
	} {
		list, most := remedied(t, c.text)
		require.Equal(t, c.most, most, c.text)
		if c.first == nil {
			require.Empty(t, list, c.text)
			continue
		}
		require.NotEmpty(t, list, c.text)
		require.LessOrEqual(t, len(list), mostRemedies, c.text)
		require.Equal(t, c.first, list[0].Set, c.text)
		at := slices.IndexFunc(list, func(r Remedy) bool { return !r.hosted() })
		require.GreaterOrEqual(t, at, 0, c.text)
		require.Equal(t, c.alone, list[at].Set, c.text)
	}
}

// TestExpertWidths: experts are cut like the matrices of the rest or not at all, by
// ranks that hold different tokens.
func TestExpertWidths(t *testing.T) {
	for text, want := range map[string][]int64{
		"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 16}":                              {1, 2, 4, 8},
		"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 4}":                               {1, 2, 4},
		"{model: llama2-7b, hardware: h100-sxm, gpus: 16}":                                 {1},
		"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 16, runtime: {recipe: hf-eager}}": {1},
	} {
		j := jobOf(t, text)
		var all []int64
		for _, c := range new(Space).cuts(j) {
			if !slices.Contains(all, c.expertTP) {
				all = append(all, c.expertTP)
			}
			require.Contains(t, []int64{1, c.tp}, c.expertTP, text)
			if c.sp == &no {
				require.EqualValues(t, 1, c.expertTP, text)
			}
		}
		require.Equal(t, want, all, text)
	}
}

// TestPickedKeysLeaveNoChoice: attention to the keys that an indexer picks needs sequence
// parallelism and gathers keys, so that no plan does otherwise.
func TestPickedKeysLeaveNoChoice(t *testing.T) {
	choices := func(model string) (kinds map[strategies.CPCommType]bool, off bool) {
		j := jobOf(t, "{model: "+model+", hardware: h200-sxm, gpus: 16, runtime: {recipe: megatron-core}, train: {sequence_length: 4096}}")
		kinds = map[strategies.CPCommType]bool{}
		for _, c := range new(Space).cuts(j) {
			kinds[c.comm] = true
			off = off || c.sp == &no
		}
		return kinds, off
	}
	kinds, off := choices("glm-5.2")
	require.Equal(t, map[strategies.CPCommType]bool{"": true}, kinds)
	require.False(t, off)
	kinds, off = choices("llama3-8b")
	require.Equal(t, map[strategies.CPCommType]bool{"": true, strategies.A2A: true}, kinds)
	require.True(t, off)
}

// TestBestBeforeStragglers: a slow rank does not change the plan, which nobody chooses for it, but the
// times of all that are shown.
func TestBestBeforeStragglers(t *testing.T) {
	const text = "{model: llama3-8b, gpus: 16, runtime: {stragglers: %s}, train: {global_batch: 64}}"
	healthy, err := Best(job(t, strings.Replace(text, ", runtime: {stragglers: %s}", "", 1)))
	require.NoError(t, err)
	slow, err := Best(job(t, fmt.Sprintf(text, "[{rank: 3, slowdown: 2}]")))
	require.NoError(t, err)
	require.Equal(t, healthy.Job.Plan, slow.Job.Plan)
	require.Equal(t, healthy.Job.Train, slow.Job.Train)
	require.Equal(t, healthy.Result.StepTime, slow.Result.Waiting.Healthy)
	require.Greater(t, slow.Result.StepTime, healthy.Result.StepTime)
	require.Len(t, slow.Others, len(healthy.Others))
	for i, x := range slow.Others {
		require.Equal(t, healthy.Others[i].Job.Plan, x.Job.Plan)
		require.Equal(t, healthy.Others[i].Result.StepTime, x.Result.Waiting.Healthy)
	}
}
