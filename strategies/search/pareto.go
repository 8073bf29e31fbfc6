package search

import (
	"cmp"
	"context"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Front is what no other plan beats in everything: time, GPUs, memory, cost and
// energy of a token.
type Front struct {
	Points  []Point // by GPUs, then by time
	GPUs    []int64 // the numbers of GPUs looked at
	Partial bool
}

// Point is a plan of a Front.
type Point struct {
	Candidate
	Costs
}

// goals are what a plan of a front is compared by, least is best.
type goals struct {
	time   float64 // seconds of a token
	gpus   int64
	memory units.Bytes
	energy float64 // joules of a token over all GPUs
}

// beats reports whether g is at least as good in everything and better in
// something. Cost goes with GPUs times time.
func (g *goals) beats(o *goals) bool {
	cost, other := g.time*float64(g.gpus), o.time*float64(o.gpus)
	if g.time > o.time || g.gpus > o.gpus || g.memory > o.memory || g.energy > o.energy || cost > other {
		return false
	}
	return g.time < o.time || g.gpus < o.gpus || g.memory < o.memory || g.energy < o.energy
}

// Pareto finds the front over the job's GPUs and their halves, down to the fewest
// on which something fits. It evaluates every plan whose states fit: there is no
// bound for energy. Memory counts in steps of a sixteenth of the capacity:
// finer ones make a plan for every byte.
func Pareto(ctx context.Context, j *strategies.Job, o Options) (*Front, error) {
	out := &Front{}
	type member struct {
		goals
		job strategies.Job
	}
	var front []member
	step := estimate.Capacity(j) / 16
	for gpus := j.GPUs; gpus >= 1 && ctx.Err() == nil; gpus /= 2 {
		base := *j
		base.GPUs = gpus
		fits := false
		s, err := start(ctx, &base, o, &Ranking{})
		if err != nil {
			if gpus == j.GPUs {
				return nil, err
			}
			break
		}
		var here []member
		var scratch strategies.Job
		s.each(func() (float64, bool) { return 0, false }, func(f *scored) {
			fits = true
			s.apply(&scratch, &f.found)
			tokens := scratch.Tokens()
			g := goals{float64(f.score.StepTime) / tokens, gpus, units.Bytes(int64(f.score.DeviceUsed/step)+1) * step, float64(f.score.Energy) * float64(gpus) / tokens}
			for _, m := range here {
				if m.beats(&g) || m.goals == g {
					return
				}
			}
			here = slices.DeleteFunc(here, func(m member) bool { return g.beats(&m.goals) })
			here = append(here, member{g, scratch})
		})
		if !fits {
			break
		}
		out.GPUs = append(out.GPUs, gpus)
		front = append(front, here...)
	}
	out.Partial = ctx.Err() != nil
	var e estimate.Evaluator
	for i := range front {
		m := &front[i]
		if slices.ContainsFunc(front, func(x member) bool { return x.beats(&m.goals) }) {
			continue
		}
		r, err := e.Estimate(&m.job, estimate.Options{})
		if err != nil {
			return nil, err
		}
		out.Points = append(out.Points, Point{Candidate{&m.job, r}, CostsOf(&m.job, r, o.Price(j), o.TrainTokens)})
	}
	slices.SortStableFunc(out.Points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(b.Job.GPUs, a.Job.GPUs), cmp.Compare(float64(a.Result.StepTime)/a.Job.Tokens(), float64(b.Result.StepTime)/b.Job.Tokens()))
	})
	return out, nil
}
