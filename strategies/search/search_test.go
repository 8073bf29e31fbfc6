package search

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
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
		require.Equal(t, best.Fit-1, len(best.Others), text)
		require.LessOrEqual(t, best.Fit, best.Legal, text)
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

// TestBestOfNone: nothing fits, or nothing is legal, or the recipe runs no such model.
func TestBestOfNone(t *testing.T) {
	best, err := Best(job(t, "{model: llama3.1-405b, gpus: 1}"))
	require.NoError(t, err)
	require.False(t, best.Result.Memory.Fits)
	require.Zero(t, best.Fit)
	for _, c := range best.Others {
		require.GreaterOrEqual(t, c.Result.Memory.DeviceUsed, best.Result.Memory.DeviceUsed, "the one that lacks least")
	}
	_, err = Best(job(t, "{model: llama2-7b, gpus: 7, train: {global_batch: 5}}"))
	require.ErrorContains(t, err, "do not divide")
	require.True(t, diag.IsInput(err))
	_, err = Best(job(t, "{model: mixtral-8x7b, gpus: 8, runtime: {recipe: llm-foundry}}"))
	require.ErrorContains(t, err, "does not run this model")
	_, err = Best(job(t, "{model: gpt2, gpus: 8, runtime: {recipe: torchtitan}}"))
	require.ErrorContains(t, err, "torchtitan has no dropout of what blocks add")
	require.ErrorContains(t, err, "model.residual_dropout=0")
	_, err = Best(job(t, "{model: {model_type: gpt2, resid_pdrop: 0}, gpus: 8, runtime: {recipe: torchtitan}}"))
	require.NoError(t, err)
}

// TestRemedies: each makes the job fit, the cheapest comes first, and what it sets is
// legal and does what it says.
func TestRemedies(t *testing.T) {
	for _, text := range []string{
		"{model: llama2-7b, gpus: 8, plan: {}, train: {micro_batch: 8}}",
		"{model: llama2-70b, gpus: 16, plan: {tp: 8, data_parallel: zero1}}",
		"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: ddp}}",
	} {
		j := job(t, text)
		before, err := estimate.Estimate(j, estimate.Options{})
		require.NoError(t, err)
		require.False(t, before.Memory.Fits, text)
		list := Remedies(j, before)
		require.NotEmpty(t, list, text)
		require.LessOrEqual(t, len(list), 3)
		for i, r := range list {
			require.True(t, r.Candidate.Result.Memory.Fits, "%s: %v", text, r.Set)
			require.NotEmpty(t, r.Set)
			if i > 0 && len(r.Set) == len(list[i-1].Set) {
				require.GreaterOrEqual(t, r.Slowdown, list[i-1].Slowdown, "%s: the cheapest first", text)
			}
			require.InEpsilon(t, before.TokensPerSecond/r.Candidate.Result.TokensPerSecond, r.Slowdown+1, 1e-9)
			again, err := estimate.Estimate(r.Candidate.Job, estimate.Options{})
			require.NoError(t, err)
			require.True(t, again.Memory.Fits)
		}
		require.False(t, j.Open)
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
