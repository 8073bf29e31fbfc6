package search

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Front is what no other plan beats in everything: time, GPUs, memory, cost and
// energy of a token. Of plans that are nearly alike one stands for the others: each plan
// that is not among the points is at most Alike better than one of them in time, cost and
// energy, and by at most Memory in memory, on no fewer GPUs.
type Front struct {
	Points  []Point // by GPUs, then by time
	GPUs    []int64 // the numbers of GPUs looked at
	Memory  units.Bytes
	Partial bool
}

// Alike is how much better a plan may be than the one that stands for it on a Front, as a
// share of its figures: less than predictions are good for.
const Alike = 0.01

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

// standsFor reports whether o is hardly better than g in anything.
func (g *goals) standsFor(o *goals, memory units.Bytes) bool {
	near := func(a, b float64) bool { return a <= b*(1+Alike) }
	return near(g.time, o.time) && g.gpus <= o.gpus && g.memory <= o.memory+memory && near(g.energy, o.energy) &&
		near(g.time*float64(g.gpus), o.time*float64(o.gpus))
}

// goalsOf is what a plan is compared by.
func goalsOf(j *strategies.Job, s *estimate.Score) goals {
	tokens := j.Tokens()
	return goals{float64(s.StepTime) / tokens, j.GPUs, s.DeviceUsed, float64(s.Energy) * float64(j.GPUs) / tokens}
}

// member is a plan on its way to a front.
type member struct {
	goals
	job strategies.Job
}

// Pareto finds the front over the job's GPUs and their halves, down to the fewest
// on which something fits. It evaluates every plan whose states fit: there is no
// bound for energy.
func Pareto(ctx context.Context, j *strategies.Job, o Options) (*Front, error) {
	out := &Front{Memory: estimate.Capacity(j) / 16}
	var all []*member
	for gpus := j.GPUs; gpus >= 1 && ctx.Err() == nil; gpus /= 2 {
		base := *j
		base.GPUs = gpus
		next := o
		next.Progress = o.looking(fmt.Sprintf("on %d GPUs", gpus))
		here, err := unbeaten(ctx, &base, next)
		if err != nil && gpus == j.GPUs {
			return nil, err
		}
		if len(here) == 0 {
			break
		}
		out.GPUs = append(out.GPUs, gpus)
		all = append(all, here...)
	}
	out.Partial = ctx.Err() != nil
	var e estimate.Evaluator
	for _, m := range thin(all, out.Memory) {
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

// unbeaten are the plans of a job that no other one beats; of equal ones the first.
func unbeaten(ctx context.Context, j *strategies.Job, o Options) ([]*member, error) {
	s, err := start(ctx, j, o, &Ranking{})
	if err != nil {
		return nil, err
	}
	var front []*member
	var scratch strategies.Job
	s.each(func() (float64, bool) { return 0, false }, func(f *scored) {
		s.apply(&scratch, &f.found)
		g := goalsOf(&scratch, &f.score)
		if slices.ContainsFunc(front, func(m *member) bool { return m.beats(&g) || m.goals == g }) {
			return
		}
		front = slices.DeleteFunc(front, func(m *member) bool { return g.beats(&m.goals) })
		front = append(front, &member{g, scratch})
	})
	return front, nil
}

// thin leaves out the plans that others beat, or stand for: on the fewest GPUs the
// fastest first.
func thin(all []*member, memory units.Bytes) []*member {
	slices.SortStableFunc(all, func(a, b *member) int { return cmp.Or(cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.time, b.time)) })
	var out []*member
	for _, m := range all {
		if slices.ContainsFunc(out, func(x *member) bool { return x.standsFor(&m.goals, memory) }) {
			continue
		}
		if !slices.ContainsFunc(all, func(x *member) bool { return x.beats(&m.goals) }) {
			out = append(out, m)
		}
	}
	return out
}
