package runs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Choice says how well predictions choose among layouts of one job that were all
// measured: same model, machine, number of GPUs and tokens of a step.
type Choice struct {
	Group    string  `json:"group"`
	Name     string  `json:"name"`
	Layouts  int     `json:"layouts"`
	Chosen   string  `json:"chosen"` // the layout predicted to be the fastest
	Best     string  `json:"best"`   // the one that was
	Chance   float64 `json:"chance"` // that was predicted of Chosen to be the best
	Regret   float64 `json:"regret"` // measured time of Chosen over that of Best, minus one
	Spearman float64 `json:"spearman"`
	Range    float64 `json:"range"` // measured time of the slowest layout over that of the fastest, minus one
}

// Fewest is how many layouts make a choice worth showing.
const Fewest = 3

// measuredLayout is a run that was predicted.
type measuredLayout struct {
	plan                string
	predicted, measured float64
	off                 *estimate.Deviations // of predicted
}

// Choices finds the jobs of which so many layouts or more were measured and compares the
// layout predicted to be the fastest with the one that was. list and rows are the
// same runs in the same order.
func Choices(list []Run, rows []Row, fewest int) []Choice {
	var order []string
	sets := map[string][]measuredLayout{}
	firsts := map[string]*Run{}
	for i := range list {
		r, row := &list[i], &rows[i]
		if row.Status != OK || r.Measured.StepTime <= 0 {
			continue
		}
		key := r.Group + "|" + jobKey(r.Job)
		if firsts[key] == nil {
			firsts[key] = r
			order = append(order, key)
		}
		sets[key] = append(sets[key], measuredLayout{layoutOf(r.Job), float64(row.Predicted.StepTime), float64(r.Measured.StepTime), &row.Predicted.Off})
	}
	out := []Choice{}
	for _, key := range order {
		set := distinct(sets[key])
		if len(set) < fewest {
			continue
		}
		byPredicted := func(a, b measuredLayout) int { return cmp.Compare(a.predicted, b.predicted) }
		byMeasured := func(a, b measuredLayout) int { return cmp.Compare(a.measured, b.measured) }
		chosen, best, worst := slices.MinFunc(set, byPredicted), slices.MinFunc(set, byMeasured), slices.MaxFunc(set, byMeasured)
		r := firsts[key]
		name := cmp.Or(r.Name, r.Job.ModelName)
		out = append(out, Choice{
			Group: r.Group, Name: fmt.Sprintf("%s on %d GPUs", name, r.Job.GPUs), Layouts: len(set), Chosen: chosen.plan, Best: best.plan, Chance: chance(set),
			Regret: chosen.measured/best.measured - 1, Spearman: spearman(set), Range: worst.measured/best.measured - 1,
		})
	}
	return out
}

// chance is how probable it is that the layout predicted to be the fastest is.
func chance(set []measuredLayout) float64 {
	times, off := make([]float64, len(set)), make([]*estimate.Deviations, len(set))
	for i, x := range set {
		times[i], off[i] = x.predicted, x.off
	}
	return estimate.Chances(times, off)[slices.Index(times, slices.Min(times))]
}

// jobKey is what layouts of one job have in common: software and the hosts' speed too.
func jobKey(j *strategies.Job) string {
	m := j.Model
	runtime, err := json.Marshal(j.Runtime)
	if err != nil {
		return "" // no runtime is without JSON
	}
	return fmt.Sprint(j.ModelName, m.Hidden, m.Layers, m.Heads, m.FFN, m.Vocab, j.Hardware.Name, j.Hardware.Network.NICBandwidth.Value, j.GPUs, string(runtime), j.Train.Precision, j.Train.SequenceLength, j.Train.GlobalBatch, j.Train.Optimizer)
}

// layoutOf is a plan with the settings that change with it.
func layoutOf(j *strategies.Job) string {
	return fmt.Sprintf("%s, micro batch %d, recompute %s", &j.Plan, j.Train.MicroBatch, j.Train.RecomputeText())
}

// distinct joins repeated measurements of a layout by their means.
func distinct(list []measuredLayout) []measuredLayout {
	var out []measuredLayout
	counts := map[string]int{}
	for _, x := range list {
		i := slices.IndexFunc(out, func(y measuredLayout) bool { return y.plan == x.plan })
		if i < 0 {
			out = append(out, x)
			counts[x.plan] = 1
			continue
		}
		n := float64(counts[x.plan])
		out[i].measured = (out[i].measured*n + x.measured) / (n + 1)
		counts[x.plan]++
	}
	return out
}

// spearman is the rank correlation of predicted and measured times.
func spearman(set []measuredLayout) float64 {
	x := ranks(set, func(m measuredLayout) float64 { return m.predicted })
	y := ranks(set, func(m measuredLayout) float64 { return m.measured })
	mean := float64(len(set)-1) / 2
	var xy, xx, yy float64
	for i := range set {
		a, b := x[i]-mean, y[i]-mean
		xy, xx, yy = xy+a*b, xx+a*a, yy+b*b
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}

// ranks are places from 0 on; equal values share their mean place.
func ranks(set []measuredLayout, value func(measuredLayout) float64) []float64 {
	out := make([]float64, len(set))
	for i := range set {
		below, equal := 0, 0
		for k := range set {
			switch v := value(set[k]); {
			case v < value(set[i]):
				below++
			case v == value(set[i]):
				equal++
			}
		}
		out[i] = float64(below) + float64(equal-1)/2
	}
	return out
}
