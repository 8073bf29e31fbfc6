package estimate

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
)

// timed remembers what steps of one pipeline took, by the buckets that gradients fill: many
// of the sizes that a search offers fill the same.
type timed struct {
	job   strategies.Job // but for its bucket
	now   timedStep
	steps [mostSteps]timedStep
	known int // of these
}

// mostSteps bounds what is remembered: more than a search offers sizes.
const mostSteps = 16

type timedStep struct {
	fills []*filled // of each chunk of the layout
	whole bool      // timed to its end
	total float64
	power power
}

// time is what simulate finds of a step of which nothing else is asked.
func (e *Evaluator) time(l *layout, most units.Seconds) {
	p, s, t := &e.p, &e.sim, &e.timed
	if s.own.plan == nil || p.groups[dpGroup].Ranks <= 1 || p.job.Plan.DataParallel.ShardsParameters() {
		e.simulate(l, Options{}, most)
		return
	}
	if !t.job.SameButBucket(p.job) {
		t.job, t.known = *p.job, 0
	}
	t.now.fills = p.fills(t.now.fills[:0], l)
	for i := range t.steps[:t.known] {
		x := &t.steps[i]
		if (x.whole || beyond(units.Seconds(x.total), most)) && slices.Equal(x.fills, t.now.fills) {
			s.total, s.power = x.total, x.power
			return
		}
	}
	e.simulate(l, Options{}, most)
	t.now.whole, t.now.total, t.now.power = !beyond(units.Seconds(s.total), most), s.total, s.power
	if t.known == mostSteps {
		t.known = 0
	}
	t.now, t.steps[t.known] = t.steps[t.known], t.now
	t.known++
}

// fills appends how each chunk of a layout fills the job's buckets.
func (p *pricer) fills(out []*filled, l *layout) []*filled {
	for _, c := range l.chunks {
		for k, g := range [...]group{dpGroup, expertDPGroup} {
			if p.groups[g].Ranks > 1 {
				out = append(out, p.fill(c, k))
			}
		}
	}
	return out
}
