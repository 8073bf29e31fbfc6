package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/capacity"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/goodput"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// Made-up values of the what-if commands, as in sample_test.go.

// training is a run of oneGPU's step.
func training(t *testing.T) *Train {
	e := oneGPU(t)
	p := &goodput.Plan{Goodput: 0.9, Failures: 36000, Step: 0.168, Checkpoint: 30, Restore: 30, Downtime: 930, IntervalSteps: 8000, Interval: 1344, Young: 1470, Daly: 1455, Spares: 2, DataRate: 200e3,
		Losses: []goodput.Loss{{Key: "downtime", Name: "detection and restart", Share: 0.03}, {Key: "rework", Name: "work lost since the last checkpoint", Share: 0.02}, {Key: "checkpoint", Name: "writing checkpoints", Share: 0.02},
			{Key: "spares", Name: "waiting for a node", Share: 0.01}, {Key: "stragglers", Name: "waiting for slow nodes", Share: 0.02}, {Key: "data", Name: "waiting for data"}}}
	return &Train{*e, &capacity.Training{Result: e.Result, Plan: p, Tokens: 2e12, Steps: 1_000_000, Checkpoint: 15.4e9, Time: 177_777.78, Low: 170_000, High: 190_000, GPUs: 17, GPUHours: 839.5, Price: 2.5,
		PriceSource: "a list price that does not exist", Cost: 2098.77, GPUEnergy: 1.2e8, SiteEnergy: 2.3e8,
		Assumed: []goodput.Assumption{{Key: "mtbf_per_gpu", Value: "2112 d", Source: "a paper that does not exist", Kind: "measured"}, {Key: "restart_time", Value: "5 s", Source: "given"}},
		Notes:   []diag.Note{{Code: "example", Text: "something to know", Remedy: "what to do about it"}}}}
}

// waited is a result with stragglers.
func waited(t *testing.T) *Estimate {
	e := pipeline(t)
	e.Result.Job.Runtime.Stragglers = &strategies.Stragglers{{Rank: 3, Slowdown: 1.3}, {Rank: 4, Link: 2}, {Rank: 5, Slowdown: 1.1, Link: 1.2}}
	e.Result.Waiting = &estimate.Waiting{Healthy: 1.6, Each: 0.4, Lost: 0.2, Groups: []estimate.Waiters{{GPUs: 1, Who: "tensor and context ranks beside rank 3", Where: "in the collectives of every layer"},
		{GPUs: 30, Who: "other replicas", Where: "for the reduction of the gradients"}}}
	return e
}

// swept is a sweep with a best point, an equal one, one that does not fit and one that
// a rule refuses.
func swept(t *testing.T) *whatif.Table {
	a, b := *oneGPU(t).Result, *pipeline(t).Result
	a.TokensPerSecond, b.TokensPerSecond = 5000, 6000
	equal := a
	equal.StepTime = 161 * ms
	return &whatif.Table{
		Axes: []whatif.Axis{{Path: "plan.tp", Values: []string{"1", "2"}}, {Path: "hardware", Values: []string{"h100-sxm", "h200-sxm"}}},
		By:   whatif.Objectives[0], Best: 0, Ties: []int{1},
		Points: []whatif.Point{{Values: []string{"1", "h100-sxm"}, Result: &a, Sent: 3 * units.GiB}, {Values: []string{"1", "h200-sxm"}, Result: &equal, Sent: 2 * units.GiB},
			{Values: []string{"2", "h100-sxm"}, Result: &b, Sent: units.GiB}, {Values: []string{"2", "h200-sxm"}, Err: &diag.Error{File: "job.yaml", Line: 3, Col: 2, Message: "plan.tp: 2 is not legal here", Source: "tp: 2"}}},
	}
}

// sharded is a sweep over kinds of data parallelism.
func sharded(t *testing.T) *whatif.Table {
	x := swept(t)
	return &whatif.Table{Axes: []whatif.Axis{{Path: "plan.data_parallel", Values: []string{"ddp", "zero1"}}}, By: x.By, Best: 0,
		Points: []whatif.Point{{Values: []string{"ddp"}, Result: x.Points[0].Result}, {Values: []string{"zero1"}, Result: x.Points[2].Result}}}
}

func sensed(t *testing.T) *Sensitivity {
	gain := func(a, b, c float64) []whatif.Gain {
		return []whatif.Gain{{Known: true, Throughput: a, Fits: true}, {Known: true, Throughput: b, Fits: true}, {Known: true, Throughput: c, Fits: true}}
	}
	return &Sensitivity{*pipeline(t), &whatif.Sensitivity{Levers: []whatif.Lever{
		{Key: "compute_peak", Name: "compute peak", Now: "989.4 TFLOP/s", Elasticity: -0.6, Throughput: 0.6, Gains: gain(0.05, 0.2, 0.4)},
		{Key: "micro_batch", Name: "micro batch", Now: "1", Elasticity: 0.7, Throughput: 0.3, Gains: []whatif.Gain{{}, {}, {Known: true, Throughput: 0.25}}},
		{Key: "host_speed", Name: "host speed", Now: "-", Elasticity: -0.0001, Gains: gain(0, 0, 0)}}}}
}

func scaled(t *testing.T) *whatif.Scaling {
	e := oneGPU(t)
	size := func(gpus int64, efficiency float64) whatif.Size {
		r := *e.Result
		r.StepTime = units.Seconds(1.28 / float64(gpus) / efficiency)
		return whatif.Size{GPUs: gpus, Result: &r, Speedup: efficiency * float64(gpus) / 8, Efficiency: efficiency}
	}
	strong := &whatif.Curve{Kind: "strong", Sizes: []whatif.Size{size(8, 1), size(16, 0.9), size(32, 0.7), {GPUs: 64, Err: errors.New("train.global_batch: too small")}},
		Break: &whatif.Break{At: 2, Term: "exposed_comm.dp", From: 0.1, To: 2.5}}
	weak := &whatif.Curve{Kind: "weak", Sizes: []whatif.Size{size(8, 1), size(16, 0.79), size(32, 0.98), size(64, 0.97)}, Apart: []int{1}}
	return &whatif.Scaling{Job: e.Result.Job, Batch: 4, Strong: strong, Weak: weak, Least: 0.8}
}

func difference() *whatif.Difference {
	return whatif.Diff(
		whatif.Side{Name: "a.json", Step: 2, Tokens: 4000, Used: 50e9, Time: []whatif.Term{{Key: "gemm", Value: 1.5}, {Key: "exposed_comm.dp", Value: 0.3}, {Key: "bubble", Value: 0.2}},
			Memory: []whatif.Term{{Key: "parameters", Value: 30e9}, {Key: "nccl", Value: 20e9}}, Job: []whatif.Setting{{Path: "plan.tp", Value: "1"}, {Path: "train.global_batch", Value: "64"}}},
		whatif.Side{Name: "b.json", Step: 1.8, Tokens: 4500, Used: 45e9, Time: []whatif.Term{{Key: "gemm", Value: 1.2}, {Key: "exposed_comm.tp", Value: 0.4}, {Key: "bubble", Value: 0.2}},
			Memory: []whatif.Term{{Key: "parameters", Value: 15e9}, {Key: "nccl", Value: 30e9}}, Job: []whatif.Setting{{Path: "plan.tp", Value: "2"}, {Path: "train.global_batch", Value: "32"}, {Path: "plan.bucket", Value: "25 MiB"}}})
}

func clusters(t *testing.T) []*capacity.Cluster {
	x := training(t)
	j := *x.Result.Job
	j.Run.Tokens.Value = 2e12
	met := &capacity.Cluster{Job: &j, Deadline: 30 * 86400, Met: true, Training: x.Training, Nodes: 2, Floor: 1, From: 1, Every: 1, Tried: 5}
	late := *met
	late.Met = false
	return []*capacity.Cluster{met, &late, {Job: &j, Deadline: 30 * 86400, Floor: 3, Err: errors.New("plan.tp: 3 is not legal")}, {Job: &j, Deadline: 30 * 86400, Floor: 3, Tried: 2}}
}

func largests(t *testing.T) []MachineLargest {
	fits, misfit := oneGPU(t).Result, pipeline(t).Result
	q := capacity.Quantities[0]
	return []MachineLargest{{"h200-sxm", 8, &capacity.Largest{Quantity: q, Best: &capacity.Tried{Value: "8192", Result: fits}, Next: &capacity.Tried{Value: "9216", Result: misfit}, Count: 7}},
		{"h100-sxm", 8, &capacity.Largest{Quantity: q, Next: &capacity.Tried{Value: "1024", Err: errors.New("plan.cp: 3 does not divide")}, Count: 4}}}
}

// TestSVG: the drawing is well-formed, the same every time, and has a line per
// series.
func TestSVG(t *testing.T) {
	for name, draw := range map[string]func(io.Writer) error{
		"sweep": func(w io.Writer) error { return PlotSweep(w, swept(t)) },
		"scale": func(w io.Writer) error { return PlotScale(w, scaled(t)) },
	} {
		var first, second bytes.Buffer
		require.NoError(t, draw(&first))
		require.NoError(t, draw(&second))
		require.Equal(t, first.String(), second.String(), name)
		for d := xml.NewDecoder(&second); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else {
				require.NoError(t, err, name)
			}
		}
		require.True(t, strings.HasPrefix(first.String(), "<?xml"), name)
		require.Contains(t, first.String(), map[string]string{"sweep": "tokens/s per GPU", "scale": "efficiency"}[name])
	}
}

// TestReadResult: what is written is read back, term by term.
func TestReadResult(t *testing.T) {
	for _, e := range []*Estimate{oneGPU(t), pipeline(t)} {
		s, err := SideOf(e, "x.json")
		require.NoError(t, err)
		r := e.Result
		require.InEpsilon(t, float64(r.StepTime), s.Step, 1e-12)
		sum := 0.0
		for _, x := range s.Time {
			sum += x.Value
		}
		require.InDelta(t, float64(r.Parts.Total()), sum, 1e-9)
		used := 0.0
		for _, x := range s.Memory {
			used += x.Value
		}
		require.InDelta(t, float64(r.Memory.DeviceUsed), used, 1)
		d := whatif.Diff(s, s)
		require.Empty(t, d.Settings)
		require.NotEmpty(t, s.Job)
	}
	for text, want := range map[string]string{
		`{"schema": "result/v1"}`:                     "a result has a step time",
		`{"step_time_s": 1}`:                          "is no result; write one with perfplan estimate",
		`{"schema": "result/v1", "step_time_s": "x"}`: "expected a number",
		`{"schema": "result/v1", "step_time_s": 1, "memory": {"by_class": {"a": []}}`: "not valid",
		`{"schema": "result/v1", "step_time_s": 1, "memory": {"by_class": [1]}}`:      "by_class",
	} {
		doc, err := yamlx.Parse("r.json", []byte(text))
		if err == nil {
			_, err = ReadResult(doc)
		}
		require.ErrorContains(t, err, want, text)
		require.True(t, diag.IsInput(err))
	}
}

func TestEmptyChart(t *testing.T) {
	table := swept(t)
	table.Points = table.Points[3:]
	var b bytes.Buffer
	require.NoError(t, writeTrend(&b, sweepTrend(table), Style{}))
	require.Contains(t, b.String(), "nothing to draw")
	require.ErrorIs(t, PlotSweep(io.Discard, table), ErrNoCurve)
}

// TestTrendSVG: an axis has all its places, whichever have values.
func TestTrendSVG(t *testing.T) {
	for _, c := range []struct {
		at, y []float64
		err   error
	}{
		{[]float64{1, 4, 16}, []float64{3, 2, 1}, nil},
		{[]float64{1, 4, 16}, []float64{3, missing, missing}, nil}, // logarithmic, about one point
		{[]float64{1, 4, 16}, []float64{missing, missing, missing}, ErrNoCurve},
		{[]float64{64, 128}, []float64{missing, missing}, ErrNoCurve},
	} {
		x := &trend{title: "By time", x: "gpus", y: "time", at: c.at}
		for _, v := range c.at {
			x.names = append(x.names, short(v))
		}
		for i, v := range c.y {
			x.add("", i, v)
		}
		var b bytes.Buffer
		require.ErrorIs(t, writeTrendSVG(&b, x), c.err, c.y)
		for _, n := range x.names {
			require.Equal(t, c.err == nil, strings.Contains(b.String(), ">"+n+"<"), c.y)
		}
	}
}

// What little is lacking is not rounded to nothing.
func TestLacksLittle(t *testing.T) {
	x := largests(t)[0]
	for lacks, want := range map[units.Bytes]string{5 * units.MiB: "5.0 MiB", 512 * units.MiB: "0.50 GiB", 7000 * units.GiB: "7000.00 GiB"} {
		m := &x.Next.Result.Memory
		m.DeviceUsed, m.Fits = m.Capacity+lacks, false
		require.Contains(t, nextText(x.Quantity, x.Next), "lacks "+want+" per GPU")
		require.Contains(t, fitText(m), "DOES NOT FIT, "+want+" too much")
	}
}

// A run of less than a day is not given in days.
func TestShortRun(t *testing.T) {
	x := training(t)
	x.Training.Time, x.Training.Low, x.Training.High, x.Training.Steps = 12, 11, 13, 1
	var b bytes.Buffer
	require.NoError(t, Write(&b, x, Text, Style{Width: 100}))
	require.Regexp(t, `Time +12\.00 s \(11\.00 s to 13\.00 s\): 1 step of `, b.String())
	require.NotContains(t, b.String(), "0.0 d")
}

// TestTrendLabels: numbers beside a trend differ from line to line.
func TestTrendLabels(t *testing.T) {
	for _, y := range [][]float64{{0.05815, 0.05835}, {10321, 10327}, {1, 1000}, {99.99, 100.01}, {0.8, missing, 1}} {
		label := labels([]series{{"a", y}})
		step := (y[len(y)-1] - y[0]) / chartHeight
		for i := range chartHeight {
			v := y[0] + float64(i)*step
			require.NotEqual(t, label(v), label(v+step), y)
		}
	}
	require.Equal(t, "7.5", labels([]series{{"a", []float64{7.5, 7.5}}})(7.5))
}

// TestDeadlineMayBeMissed: a cluster that makes a deadline as predicted and not at the far end of
// the range says so, and which deadline would leave room for it.
func TestDeadlineMayBeMissed(t *testing.T) {
	list := clusters(t)
	for d, want := range map[units.Seconds]string{
		180_000: "may take 2.20 days: the far end of the 80 % range\n    → --deadline 1.95d leaves room for that",
		190_000: "",
	} {
		list[0].Deadline = d
		text := Deadline(list).page().text(Style{Width: 120})
		require.Equal(t, want != "", strings.Contains(text, "may take"), text)
		require.Contains(t, text, want)
	}
}
