package whatif

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

func decode(text string) (*strategies.Job, bool, error) {
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	if err != nil {
		return nil, true, err
	}
	j, err := strategies.Decode(doc, doc.Root)
	return j, err != nil && strategies.Malformed(doc, doc.Root), err
}

func job(t require.TestingT, text string) *strategies.Job {
	j, _, err := decode(text)
	require.NoError(t, err, text)
	return j
}

func predict(t require.TestingT, text string) *estimate.Result {
	r, err := Predict(job(t, text), estimate.Options{})
	require.NoError(t, err)
	return r
}

// filled is a job with %s for the values of axes.
func filled(form string) func([]string) (*strategies.Job, bool, error) {
	return func(values []string) (*strategies.Job, bool, error) {
		args := make([]any, len(values))
		for i, v := range values {
			args[i] = v
		}
		return decode(fmt.Sprintf(form, args...))
	}
}

// TestSweep: every point is what the estimator says of it alone, rules refuse only
// their points, and the best fits and is best.
func TestSweep(t *testing.T) {
	const form = `{model: llama2-7b, hardware: h100-sxm, gpus: %s, plan: {tp: %s, data_parallel: zero1}}`
	axes := []Axis{{"gpus", []string{"2", "6", "8"}}, {"plan.tp", []string{"1", "3", "4"}}}
	table, err := Sweep(t.Context(), axes, Objectives[0], filled(form))
	require.NoError(t, err)
	require.Len(t, table.Points, 9)
	for i, p := range table.Points {
		j, _, err := decode(fmt.Sprintf(form, p.Values[0], p.Values[1]))
		require.Equal(t, err == nil, p.Err == nil, p.Values)
		if err != nil {
			require.Equal(t, err.Error(), p.Err.Error())
			continue
		}
		r, err := estimate.Estimate(j, estimate.Options{})
		require.NoError(t, err)
		require.Equal(t, r.StepTime, p.Result.StepTime)
		require.Nil(t, p.Result.Detail)
		if r.Memory.Fits {
			require.LessOrEqual(t, r.TokensPerSecond, table.Points[table.Best].Result.TokensPerSecond, i)
		}
	}
	require.True(t, table.Points[table.Best].Result.Memory.Fits)

	_, err = Sweep(t.Context(), []Axis{{"tp", []string{"3", "5"}}}, Objectives[0], filled(`{model: llama2-7b, gpus: 8, plan: {tp: %s}}`))
	require.ErrorContains(t, err, "tp 3", "nothing is legal")
	_, err = Sweep(t.Context(), []Axis{{"bucket", []string{"1 MiB", "1 Foo"}}}, Objectives[0], filled(`{model: llama2-7b, gpus: 8, plan: {bucket: %s}}`))
	require.ErrorContains(t, err, "Foo", "a value that cannot be read ends the sweep")
}

// countdown is a context that is cancelled once it was asked so many times.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestSweepStopped: what was predicted before a stop is returned, in order; nothing is
// an error.
func TestSweepStopped(t *testing.T) {
	axes := []Axis{{"train.micro_batch", []string{"1", "2", "3", "4", "5", "6"}}}
	form := filled(`{model: gpt2, hardware: h100-sxm, gpus: 8, plan: {data_parallel: ddp}, train: {micro_batch: %s}}`)
	whole, err := Sweep(t.Context(), axes, Objectives[0], form)
	require.NoError(t, err)
	require.Zero(t, whole.Left)
	for predicted := range int64(6) {
		ctx := &countdown{Context: t.Context()}
		ctx.left.Store(6 + predicted) // each point is decoded, then predicted
		table, err := Sweep(ctx, axes, Objectives[0], form)
		if predicted == 0 {
			require.ErrorIs(t, err, context.Canceled)
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, predicted, len(table.Points))
		require.EqualValues(t, 6-predicted, table.Left)
		last := ""
		for _, p := range table.Points {
			require.Greater(t, p.Values[0], last, "in order")
			last = p.Values[0]
			require.Equal(t, whole.Points[last[0]-'1'].Result.StepTime, p.Result.StepTime)
		}
		require.GreaterOrEqual(t, table.Best, 0)
	}
	ctx := &countdown{Context: t.Context()}
	ctx.left.Store(2)
	_, err = Sweep(ctx, axes, Objectives[0], form)
	require.ErrorIs(t, err, context.Canceled)
}

// TestObjectives: each marks the least or the largest of its own.
func TestObjectives(t *testing.T) {
	const form = `{model: gpt2, hardware: aws-p5, gpus: %s, plan: {data_parallel: ddp}, train: {micro_batch: 4}}`
	axes := []Axis{{"gpus", []string{"1", "2", "8", "16"}}}
	for _, o := range Objectives {
		table, err := Sweep(t.Context(), axes, o, filled(form))
		require.NoError(t, err)
		best := o.Of(table.Points[table.Best].Result)
		require.Positive(t, best, o.Name)
		for _, p := range table.Points {
			if o.Lower {
				require.LessOrEqual(t, best, o.Of(p.Result), o.Name)
			} else {
				require.GreaterOrEqual(t, best, o.Of(p.Result), o.Name)
			}
		}
	}
	_, err := ParseObjective("toknes")
	require.ErrorContains(t, err, `did you mean "tokens"?`)
}

// TestSent: the volumes of ZeRO (Rajbhandari et al., arXiv 1910.02054, section 7):
// with gradients in 16 bits, stages 1 and 2 send as much as DDP, twice the parameters,
// and stage 3 half as much again. Megatron's fp32 gradients send 4 bytes to reduce
// and 2 to gather.
func TestSent(t *testing.T) {
	const ranks = 8.0
	sent := func(kind string) float64 {
		table, err := Sweep(t.Context(), []Axis{{"plan.data_parallel", []string{kind}}}, Objectives[0],
			filled(`{model: gpt2, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core}, plan: {data_parallel: %s}, train: {sequence_length: 1024}}`))
		require.NoError(t, err)
		r := table.Points[0].Result
		return float64(table.Points[0].Sent) / float64(r.Job.Model.Params().Total) / ((ranks - 1) / ranks)
	}
	require.InEpsilon(t, 2*4, sent("ddp"), 0.01)
	require.InEpsilon(t, 4+2, sent("zero1"), 0.01)
	require.InEpsilon(t, 4+2, sent("zero2"), 0.01)
	require.InEpsilon(t, 4+2+2, sent("zero3"), 0.1)
}

func TestSensitivity(t *testing.T) {
	s, err := Sense(predict(t, `{model: llama2-7b, hardware: h200-sxm, gpus: 32, plan: {tp: 4, data_parallel: zero1}, train: {micro_batch: 2}}`))
	require.NoError(t, err)
	byKey := map[string]Lever{}
	for i, l := range s.Levers {
		byKey[l.Key] = l
		if i > 0 {
			require.LessOrEqual(t, l.Raised, s.Levers[i-1].Raised, "sorted")
		}
		if l.Key == "micro_batch" {
			continue
		}
		require.InDelta(t, l.Throughput, -l.Elasticity, 1e-9, "the work stays")
		require.LessOrEqual(t, l.Elasticity, 0.02, "%s: more of it never slows", l.Key)
		require.GreaterOrEqual(t, l.Elasticity, -1.5, l.Key)
		for k := 1; k < len(l.Gains); k++ {
			require.GreaterOrEqual(t, l.Gains[k].Throughput, l.Gains[k-1].Throughput-0.003, "%s: twice buys no less than half", l.Key)
		}
	}
	require.InDelta(t, math.Log1p(byKey["compute_peak"].Gains[0].Throughput)/math.Log1p(Raises[0]), byKey["compute_peak"].Raised, 1e-9, "what +10 % buys")
	require.Contains(t, byKey, "micro_batch")
	require.Less(t, byKey["compute_peak"].Elasticity, -0.05)
	require.Less(t, byKey["nvlink_bandwidth"].Elasticity, -0.02, "measured collectives follow the links")

	// A machine whose links a job says otherwise has what more of them was said to buy.
	const links = "{model: llama2-7b, hardware: %s, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {data_parallel: zero1}, train: {micro_batch: 1}}"
	now := predict(t, fmt.Sprintf(links, "h200-sxm"))
	s, err = Sense(now)
	require.NoError(t, err)
	nvlink := s.Levers[slices.IndexFunc(s.Levers, func(l Lever) bool { return l.Key == "nvlink_bandwidth" })]
	for i, rate := range []string{"495GB/s", "675GB/s", "900GB/s"} {
		r := predict(t, fmt.Sprintf(links, "{inherits: h200-sxm, gpu: {nvlink: "+rate+"}}"))
		require.InDelta(t, nvlink.Gains[i].Throughput, r.TokensPerSecond/now.TokensPerSecond-1, 1e-9, rate)
	}

	// A global batch that is given stays, so that the work does; else it grows.
	for batch, held := range map[string]bool{", global_batch: 256": true, ", grad_accumulation: 16": false} {
		s, err := Sense(predict(t, `{model: llama2-7b, hardware: h200-sxm, gpus: 8, plan: {data_parallel: zero1}, train: {micro_batch: 2`+batch+`}}`))
		require.NoError(t, err)
		l := s.Levers[slices.IndexFunc(s.Levers, func(l Lever) bool { return l.Key == "micro_batch" })]
		require.InDelta(t, 0, l.Throughput, 0.1)
		if held {
			require.InDelta(t, l.Throughput, -l.Elasticity, 1e-9)
		} else {
			require.InDelta(t, 1, l.Elasticity, 0.1)
		}
	}

	// The peak is that of what the job multiplies (NVIDIA T4 and H100 datasheets).
	for job, want := range map[string]string{
		"{model: gpt2, hardware: t4, gpus: 1, plan: {}, train: {sequence_length: 1024}}":                       "65.00 TFLOP/s",
		"{model: gpt2, hardware: h100-sxm, gpus: 1, plan: {}, train: {sequence_length: 1024, precision: fp8}}": "1979 TFLOP/s",
	} {
		s, err := Sense(predict(t, job))
		require.NoError(t, err)
		at := slices.IndexFunc(s.Levers, func(l Lever) bool { return l.Key == "compute_peak" })
		require.Equal(t, want, s.Levers[at].Now)
	}

	// A single GPU sends nothing.
	s, err = Sense(predict(t, `{model: gpt2, hardware: h200-sxm, gpus: 1, plan: {}, train: {sequence_length: 1024}}`))
	require.NoError(t, err)
	for _, l := range s.Levers {
		if l.Key == "nvlink_bandwidth" || l.Key == "nic_rate" || l.Key == "latency" {
			require.Zero(t, l.Elasticity, l.Key)
		}
	}
}

// TestHostLevers: what a host gives is worth something where something is left to it, and no
// lever where nothing is.
func TestHostLevers(t *testing.T) {
	const form = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: hf-eager, cpu_threads: 8}, plan: {data_parallel: fsdp2, dp: 2%s}, train: {micro_batch: 1, sequence_length: 1024}}"
	find := func(more, key string) (Lever, bool) {
		s, err := Sense(predict(t, fmt.Sprintf(form, more)))
		require.NoError(t, err)
		at := slices.IndexFunc(s.Levers, func(l Lever) bool { return l.Key == key })
		if at < 0 {
			return Lever{}, false
		}
		return s.Levers[at], true
	}
	for _, key := range []string{"host_memory", "host_link"} {
		lever, ok := find(", offload: parameters", key)
		require.True(t, ok, key)
		require.Less(t, lever.Elasticity, -0.05, key)
		_, ok = find("", key)
		require.False(t, ok, key)
	}
}

func TestScale(t *testing.T) {
	s, err := Scale(job(t, `{model: llama2-7b, hardware: h200-sxm, gpus: 16, plan: {data_parallel: zero1}, train: {micro_batch: 2, global_batch: 64}}`), []int64{8, 12, 16, 32, 64, 128})
	require.NoError(t, err)
	for _, c := range []*Curve{s.Strong, s.Weak} {
		require.Equal(t, 0, c.Base)
		for _, x := range c.Sizes {
			if x.Err != nil {
				continue
			}
			j := x.Result.Job
			require.Equal(t, x.GPUs, j.GPUs)
			require.InDelta(t, x.Speedup, x.Efficiency*float64(x.GPUs)/8, 1e-9)
			if c.Kind == "strong" {
				require.EqualValues(t, 64, j.Train.GlobalBatch)
			} else {
				require.EqualValues(t, 4*x.GPUs, j.Train.GlobalBatch)
			}
		}
		require.InDelta(t, 1, c.Sizes[0].Efficiency, 1e-12)
	}
	require.Error(t, s.Strong.Sizes[1].Err, "12 replicas do not divide 64 sequences")
	require.NoError(t, s.Strong.Sizes[4].Err, "the micro batch shrinks to one sequence")
	require.Equal(t, []int{1}, s.Strong.Apart, "which larger sizes recover from")
	require.Equal(t, 5, s.Strong.Break.At)
	require.Contains(t, s.Strong.Break.Rule, "64 sequences do not divide")

	// Over slow links, the reduction of gradients ends strong scaling.
	s, err = Scale(job(t, `{model: llama2-7b, hardware: h100-sxm, network: {bandwidth_per_gpu: 25 Gbit/s}, gpus: 8, plan: {data_parallel: zero1}, train: {global_batch: 64}}`), []int64{8, 16, 32, 64})
	require.NoError(t, err)
	require.Equal(t, "exposed_comm.dp", s.Strong.Break.Term)
	require.Less(t, s.Strong.Sizes[s.Strong.Break.At].Efficiency, LeastEfficiency)
	require.Greater(t, s.Strong.Break.To, s.Strong.Break.From)
}

// TestScaleOdd: weak scaling has no batch for sizes that divide the job's by no whole sequences, and
// says which batch has one.
func TestScaleOdd(t *testing.T) {
	_, err := Scale(job(t, `{model: llama2-7b, hardware: h200-sxm, gpus: 8, train: {global_batch: 9}}`), []int64{1, 3})
	require.ErrorContains(t, err, "train.global_batch: 9 on 8 GPUs is no whole number of sequences for gpus=1; give a multiple of 8, as in --global-batch 16, or sizes that are multiples of 8 GPUs")
}

// TestScaleBreak: a curve breaks where no larger size pays again, at the first of these that is
// legal; what does not pay before stands apart.
func TestScaleBreak(t *testing.T) {
	const refused = -1
	for _, c := range []struct {
		tokens []float64 // of a GPU
		apart  []int
		at     int // of the break; -1: none
	}{
		{[]float64{10, 9, 8, 9}, nil, -1},
		{[]float64{10, 5, 9, refused, 9}, []int{1, 3}, -1},
		{[]float64{10, 5, 9, refused, 7, 6}, []int{1}, 4},
		{[]float64{10, 9, refused, refused}, nil, 2},
		{[]float64{10, 7}, nil, 1},
	} {
		curve := &Curve{}
		for i, v := range c.tokens {
			s := Size{GPUs: int64(i + 1)}
			if v == refused {
				s.Err = errors.New("a rule")
			} else {
				s.Result = &estimate.Result{Job: &strategies.Job{GPUs: s.GPUs}, TokensPerSecond: v}
				s.Result.Memory.Fits = true
			}
			curve.Sizes = append(curve.Sizes, s)
		}
		curve.measure(LeastEfficiency)
		require.Equal(t, c.apart, curve.Apart, "%v", c.tokens)
		if c.at < 0 {
			require.Nil(t, curve.Break, "%v", c.tokens)
			continue
		}
		require.Equal(t, c.at, curve.Break.At, "%v", c.tokens)
		require.Equal(t, c.tokens[c.at] == refused, curve.Break.Rule != "", "%v", c.tokens)
	}
}

// TestScaleBase: a size that does not fit is held against nothing, and nothing against it,
// unless none fits.
func TestScaleBase(t *testing.T) {
	j := job(t, `{model: llama3-70b, hardware: h100-sxm, gpus: 8, plan: {tp: 8}, train: {global_batch: 64}}`)
	s, err := Scale(j, []int64{8, 16, 64, 128})
	require.NoError(t, err)
	for _, c := range []*Curve{s.Strong, s.Weak} {
		require.Equal(t, 2, c.Base)
		require.Zero(t, c.Sizes[1].Efficiency)
		require.InDelta(t, 1, c.Sizes[2].Efficiency, 1e-12)
		require.InDelta(t, 2*c.Sizes[3].Efficiency, c.Sizes[3].Speedup, 1e-12)
	}
	s, err = Scale(j, []int64{8, 16})
	require.NoError(t, err)
	require.Zero(t, s.Strong.Base)
	require.InDelta(t, 2*s.Strong.Sizes[1].Efficiency, s.Strong.Sizes[1].Speedup, 1e-12)
}

func TestGPUCounts(t *testing.T) {
	got, err := GPUCounts(Axis{"gpus", []string{"8", "16"}})
	require.NoError(t, err)
	require.Equal(t, []int64{8, 16}, got)
	for _, a := range []Axis{{"tp", []string{"1"}}, {"gpus", []string{"16", "8"}}, {"gpus", []string{"x"}}, {"gpus", []string{"0"}}} {
		_, err := GPUCounts(a)
		require.Error(t, err, a)
	}
}

// TestTimeTerms: the terms of a step add up to it, whatever the job.
func TestTimeTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := fmt.Sprintf(`{model: llama2-7b, hardware: h100-sxm, gpus: 32, plan: {tp: %d, pp: %d, data_parallel: %s}}`, rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "tp"), rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "pp"),
			rapid.SampledFrom([]string{"ddp", "zero1", "fsdp2"}).Draw(t, "kind"))
		r := predict(t, text)
		sum := 0.0
		for _, x := range TimeTerms(r) {
			sum += x.Value
		}
		require.InEpsilon(t, float64(r.StepTime), sum, 1e-6)
	})
}

func TestDiff(t *testing.T) {
	a := Side{Name: "a", Step: 10, Used: 5, Time: []Term{{"gemm", 6}, {"exposed_comm.dp", 4}}, Memory: []Term{{"parameters", 5}}, Job: []Setting{{"gpus", "8"}, {"plan.tp", "1"}, {"old", "x"}}}
	b := Side{Name: "b", Step: 9, Used: 7, Time: []Term{{"gemm", 6.5}, {"exposed_comm.tp", 2.5}}, Memory: []Term{{"parameters", 5}, {"nccl", 2}}, Job: []Setting{{"gpus", "8"}, {"plan.tp", "2"}, {"new", "y"}}}
	d := Diff(a, b)
	require.Equal(t, []Move{{"exposed_comm.dp", 4, 0}, {"exposed_comm.tp", 0, 2.5}, {"gemm", 6, 6.5}}, d.Time)
	require.Equal(t, []Move{{"nccl", 0, 2}, {"parameters", 5, 5}}, d.Memory)
	require.Equal(t, []Changed{{"plan.tp", "1", "2"}, {"old", "x", ""}, {"new", "", "y"}}, d.Settings)
	sum := 0.0
	for _, m := range d.Time {
		sum += m.Change()
	}
	require.InDelta(t, b.Step-a.Step, sum, 1e-12)
	same := Diff(a, a)
	require.Empty(t, same.Settings)
	for _, m := range same.Time {
		require.Zero(t, m.Change())
	}
}

func TestSplitExposed(t *testing.T) {
	got := SplitExposed([]Term{{"gemm", 1}, {"exposed_comm", 5}, {"host", 2}}, map[string]float64{"tp": 3, "dp": 1})
	require.Equal(t, []Term{{"gemm", 1}, {"exposed_comm.dp", 1}, {"exposed_comm.tp", 3}, {"exposed_comm", 1}, {"host", 2}}, got)
	require.Equal(t, []Term{{"gemm", 1}}, SplitExposed([]Term{{"gemm", 1}}, map[string]float64{"tp": 3}))
}

// Two sweeps of the same give the same, byte for byte.
func TestSweepIsDeterministic(t *testing.T) {
	show := func() string {
		table, err := Sweep(t.Context(), []Axis{{"gpus", []string{"4", "8", "16"}}}, Objectives[0], filled(`{model: llama2-7b, gpus: %s}`))
		require.NoError(t, err)
		var b strings.Builder
		for _, p := range table.Points {
			fmt.Fprintln(&b, p.Values, p.Result.Job.Plan.String(), math.Float64bits(float64(p.Result.StepTime)), math.Float64bits(float64(p.Sent)))
		}
		return b.String() + fmt.Sprint(table.Best, table.Ties)
	}
	first := show()
	for range 3 {
		require.Equal(t, first, show())
	}
}
