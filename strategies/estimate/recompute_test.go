package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
)

// recomputing is a job under other settings of recomputation.
func recomputing(t require.TestingT, j *strategies.Job, r ops.Recompute, method strategies.RecomputeMethod, n *int64) *Result {
	next := *j
	next.Given.Recompute, next.Given.RecomputeMethod, next.Given.RecomputeNumLayers = r, method, n
	require.NoError(t, next.SetPlan(j.Plan))
	out, err := Estimate(&next, Options{})
	require.NoError(t, err)
	return out
}

// figures are the figures that two spellings of one thing agree on.
func figures(r *Result) any {
	return []any{r.StepTime, r.Forward, r.Backward, r.MFU, r.HFU, r.Memory.PeakAllocated, r.Memory.ByStage, r.Memory.DeviceUsed, r.Energy, r.Parts}
}

// Block recomputation of no layer is none, that of all layers is full, and in between
// each further layer costs time and saves memory.
func TestRecomputeByLayers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{model: llama2-7b, hardware: a100-80g-sxm, gpus: 32, plan: {tp: 2, pp: 4}, train: {micro_batch: 2, grad_accumulation: 8}}",
		"{model: llama2-7b, hardware: h100-sxm, gpus: 16, plan: {pp: 4, virtual_stages: 2}, train: {grad_accumulation: 8}}",
		"{model: llama2-7b, hardware: h100-sxm, gpus: 16, plan: {tp: 4}, train: {micro_batch: 4}}",
		"{model: gpt2-xl, hardware: a100-40g-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2}, train: {micro_batch: 2}}",
	} {
		j := mustParse(t, text)
		stages := j.Plan.PP * j.Plan.VirtualStages
		layers := j.Model.Layers / stages
		none, full := recomputing(t, j, ops.NoRecompute, "", nil), recomputing(t, j, ops.FullRecompute, "", nil)
		before := none
		for n := range layers + 1 {
			r := recomputing(t, j, ops.FullRecompute, strategies.RecomputeBlock, &n)
			switch n {
			case 0:
				require.Equal(t, figures(none), figures(r), text)
			case layers:
				require.Equal(t, figures(full), figures(r), text)
			}
			if n > 0 {
				require.Greater(t, r.StepTime, before.StepTime, "%s: %d layers", text, n)
				require.GreaterOrEqual(t, r.HFU/r.MFU, before.HFU/before.MFU)
			}
			require.LessOrEqual(t, r.Memory.PeakAllocated, before.Memory.PeakAllocated, "%s: %d layers", text, n)
			require.InDelta(t, float64(none.MFU)*float64(none.StepTime), r.MFU*float64(r.StepTime), 1e-9, "model FLOPs do not change")
			before = r
		}
		require.Less(t, full.Memory.PeakAllocated, none.Memory.PeakAllocated)
	}
}

// Every layer by itself is full recomputation in all spellings; layers that are
// recomputed together take as long and keep fewer inputs, but hold the activations of
// all of them at once.
func TestRecomputeTogether(t *testing.T) {
	j := mustParse(t, "{model: gpt3-175b, hardware: h100-sxm, gpus: 64, runtime: {cuda_graphs: full}, plan: {tp: 8, pp: 8}, train: {micro_batch: 1, grad_accumulation: 32}}")
	full := recomputing(t, j, ops.FullRecompute, "", nil)
	at := map[int64]*Result{}
	for _, n := range []int64{1, 2, 4, 12} {
		at[n] = recomputing(t, j, ops.FullRecompute, strategies.RecomputeUniform, &n)
		require.InEpsilon(t, float64(full.StepTime), float64(at[n].StepTime), 1e-6)
		require.InEpsilon(t, full.HFU, at[n].HFU, 1e-6)
		for i, s := range at[n].Stages {
			require.Equal(t, full.Stages[i].Layers, s.Layers)
			require.Equal(t, full.Stages[i].Params, s.Params)
		}
	}
	require.Equal(t, figures(full), figures(at[1]))
	require.Less(t, at[2].Memory.PeakAllocated, full.Memory.PeakAllocated)
	require.Greater(t, at[12].Memory.PeakAllocated, at[2].Memory.PeakAllocated, "all layers of a stage at once")

	e := mustParse(t, "{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2}}")
	one := int64(1)
	require.Equal(t, figures(recomputing(t, e, ops.FullRecompute, "", nil)), figures(recomputing(t, e, ops.FullRecompute, strategies.RecomputeEvery, &one)))
}

// Every k-th layer: the more layers go without, the faster and the larger.
func TestRecomputeEvery(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		j := mustParse(tt, rapid.SampledFrom([]string{
			"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2}}",
			"{model: llama2-7b, hardware: h100-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2}, train: {micro_batch: 2}}",
			"{model: llama3-8b, hardware: h100-sxm, gpus: 16, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2, pp: 2}}",
		}).Draw(t, "job"))
		k := rapid.Int64Range(1, 8).Draw(t, "every")
		next := 2 * k
		a, b := recomputing(t, j, ops.FullRecompute, strategies.RecomputeEvery, &k), recomputing(t, j, ops.FullRecompute, strategies.RecomputeEvery, &next)
		require.Greater(t, a.StepTime, b.StepTime)
		require.Less(t, a.Memory.PeakAllocated, b.Memory.PeakAllocated)
		require.Greater(t, a.HFU/a.MFU, b.HFU/b.MFU)
	})
}
