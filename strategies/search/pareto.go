package search

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

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
	Partial bool // the search was stopped before it was over
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
	job   strategies.Job
	order [3]int32 // place of the plan in the space: cut, layout of it, way
}

// replaces reports whether o is worthless beside m, which is better or as good and first.
func (m *member) replaces(o *member) bool {
	return m.beats(&o.goals) || m.goals == o.goals && slices.Compare(m.order[:], o.order[:]) < 0
}

// Pareto finds the front over the job's GPUs and their halves, down to the fewest
// on which something fits. It times the plans that nothing beats by their floors, and replays
// what the allocator does for those that nothing beats then.
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

// unbeaten are the plans of a job that no other one beats; of equal ones the first. Plans
// are evaluated as they are listed, so that each model is built but once.
func unbeaten(ctx context.Context, j *strategies.Job, o Options) ([]*member, error) {
	s, err := begin(ctx, j, o, &Ranking{})
	if err != nil {
		return nil, err
	}
	var f frontier
	err = s.enumerate("evaluating", func(e *estimate.Evaluator, l *listing) {
		m := &member{}
		limits := estimate.Limits{Memory: s.limit, Beaten: func(x estimate.Score) bool {
			m.goals = goalsOf(&m.job, &x)
			return f.beats(m)
		}}
		beaten := false // whatever its way
		for x := range every(l.plans) {
			if ctx.Err() != nil {
				break
			}
			p := &l.plans[x.layout]
			s.set(&m.job, p, x.way)
			m.order = [3]int32{p.cut, x.layout, int32(x.way)}
			if x.way == 0 {
				m.goals = floorsOf(e, m.job)
				beaten = f.beats(m)
			}
			if beaten {
				continue
			}
			score, err := e.Score(&m.job, limits)
			if err != nil || score.DeviceUsed == 0 || score.DeviceUsed > s.limit {
				continue
			}
			if m.goals = goalsOf(&m.job, &score); !f.beats(m) {
				next := *m
				f.add(&next)
			}
		}
		l.plans = nil
	})
	slices.SortFunc(f.list, func(a, b *member) int { return slices.Compare(a.order[:], b.order[:]) })
	return f.list, err
}

// floorsOf are goals that no plan that differs from a job's in its ways alone goes below.
func floorsOf(e *estimate.Evaluator, j strategies.Job) goals {
	j.Plan.ReshardAfterForward, j.Plan.SyncEveryMicroBatch = &yes, &no
	var s estimate.Score // what fails is 0, and listing has built this model
	s.StepTime, _ = e.FloorTime(&j)
	s.DeviceUsed, _ = e.FloorPeak(&j)
	s.Energy, _ = e.FloorEnergy(&j)
	return goalsOf(&j, &s)
}

// frontier are plans that do not beat each other.
type frontier struct {
	mu   sync.RWMutex
	list []*member
}

// beats reports whether a member makes m worthless: it beats it, or is as good and comes
// before it.
func (f *frontier) beats(m *member) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.ContainsFunc(f.list, func(x *member) bool { return x.replaces(m) })
}

// add takes a plan in for those that it beats, unless one beats it.
func (f *frontier) add(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.list, func(x *member) bool { return x.replaces(m) }) {
		f.list = append(slices.DeleteFunc(f.list, m.replaces), m)
	}
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
