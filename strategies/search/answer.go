package search

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// WhyNot says why plans with some keys are not the best.
type WhyNot struct {
	Fix      Fix
	Rejected []Count    // when none is legal
	Misfit   *Candidate // when none fits: the one that lacks least
	Best     *Candidate // the best of them, when some fit
	Behind   float64    // value of Best over that of the best of all, minus one
	Lost     []Term     // where Best loses its time, largest loss first; gains are negative; both times are for the batch of Best
}

// Term is a part of the step time of two plans.
type Term struct {
	Name        string
	Time, Other units.Seconds // of the plan asked for, of the best
}

// Lost is what the plan asked for takes longer.
func (t Term) Lost() units.Seconds { return t.Time - t.Other }

// Explain answers why plans with the given keys are not the best of a ranking.
func Explain(ctx context.Context, r *Ranking, fix Fix) (*WhyNot, error) {
	o := r.Options
	o.Space.Fix, o.Top, o.Exhaustive = o.Space.Fix.And(fix), 1, false
	o.Progress = r.Options.looking("with " + fix.String())
	out := &WhyNot{Fix: fix}
	all := &Ranking{}
	got, err := rank(ctx, r.Job, o, all)
	switch {
	case err != nil && all.Legal == 0 && diag.IsInput(err) && len(all.Rejected) > 0:
		out.Rejected = all.Rejected
		return out, nil
	case err != nil:
		return nil, err
	case len(got.Plans) == 0:
		out.Misfit, err = least(ctx, r.Job, o)
		return out, err
	}
	out.Best = &got.Plans[0].Candidate
	if len(r.Plans) == 0 {
		return out, nil
	}
	out.Behind = got.Plans[0].Value/r.Plans[0].Value - 1
	a, b := out.Best.Result, r.Plans[0].Result
	x, y := terms(a), terms(b)
	alike := units.Seconds(a.Job.Tokens() / b.Job.Tokens()) // a step of another batch is other work
	for i := range x {
		if t := (Term{x[i].Name, x[i].Time, y[i].Time * alike}); t.Time != 0 || t.Other != 0 {
			out.Lost = append(out.Lost, t)
		}
	}
	slices.SortStableFunc(out.Lost, func(a, b Term) int { return cmp.Compare(b.Lost(), a.Lost()) })
	return out, nil
}

// terms are the parts of a step, communication by group.
func terms(r *estimate.Result) []Term {
	p := &r.Parts
	out := []Term{{"matrix products", p.GEMM, 0}, {"attention", p.Attention, 0}, {"memory-bound kernels", p.Memory, 0}, {"optimizer, copies, gaps", p.Gaps, 0},
		{"slowed by overlap", p.Contention, 0}, {"waiting for the host", p.Host, 0}, {"update on the host", p.Update, 0}, {"pipeline bubble", p.Bubble, 0}}
	for _, g := range []string{"tp", "cp", "ep", "expert_tp", "amax", "dp", "pp", "host"} {
		out = append(out, Term{"exposed " + g, r.Exposed[g], 0})
	}
	return out
}

// Nearest is what comes nearest to an impossible request.
type Nearest struct {
	Least    *Candidate // the plan that lacks the least memory
	GPUs     int64      // the fewest of those tried, multiples of a node, on which some plan fits and leaves Headroom free; 0: none found
	Plan     *Candidate // the best of them there
	Headroom float64
}

// most is how many times the GPUs Near tries.
const most = 64

// Near answers a search in which nothing fits. The plan that it names leaves headroom
// free, as that of a search on so many GPUs would, though the search itself may have
// asked for less in the end.
func Near(ctx context.Context, r *Ranking, headroom float64) (*Nearest, error) {
	o := r.Options
	o.Top, o.Exhaustive, o.Headroom = 1, false, headroom
	out := Nearest{Headroom: headroom}
	var err error
	if out.Least, err = least(ctx, r.Job, o); err != nil {
		return nil, err
	}
	node := max(r.Job.Hardware.Node.GPUs.Value, 1)
	try := func(n int64) bool {
		if ctx.Err() != nil {
			return false
		}
		j := *r.Job
		j.GPUs = n
		o.Progress = r.Options.looking(fmt.Sprintf("on %d GPUs", n))
		got, err := Rank(ctx, &j, o)
		if err != nil || len(got.Plans) == 0 {
			return false
		}
		out.GPUs, out.Plan = n, &got.Plans[0].Candidate
		return true
	}
	for _, octave := range larger(r.Job.GPUs, node) { // where twice as many do not do, fewer are not tried
		last := len(octave) - 1
		if !try(octave[last]) {
			continue
		}
		for _, n := range octave[:last] {
			if try(n) {
				break
			}
		}
		break
	}
	return &out, nil
}

// looking is Progress that says of a search where it looks for an answer.
func (o Options) looking(where string) func(Progress) {
	if o.Progress == nil {
		return nil
	}
	return func(p Progress) {
		p.Phase = "looking " + where + ", " + p.Phase
		o.Progress(p)
	}
}

// larger lists numbers of GPUs above n up to each doubling: whole nodes, in steps of a
// quarter, then of halves, of the power of two below.
func larger(n, node int64) [][]int64 {
	var out [][]int64
	last := n
	for base := n; base < n*most; base *= 2 {
		var octave []int64
		for quarter := int64(1); quarter <= 4; quarter++ {
			next := base + base*quarter/4
			if next > node {
				next = next / node * node
			}
			if next > last {
				octave, last = append(octave, next), next
			}
		}
		if len(octave) > 0 {
			out = append(out, octave)
		}
	}
	return out
}

// least is the plan of a space that needs the least memory.
func least(ctx context.Context, j *strategies.Job, o Options) (*Candidate, error) {
	o.Progress = o.looking("for the least memory")
	o.Objective, o.Headroom, o.Top = Memory, unlimited, 1
	got, err := Rank(ctx, j, o)
	if err != nil {
		return nil, err
	}
	if len(got.Plans) == 0 {
		return nil, ctx.Err()
	}
	return &got.Plans[0].Candidate, nil
}

// unlimited is a headroom that lets every plan fit.
const unlimited = -1e12

// Tight reports whether the plans fit and leave too little free. Some of them may be
// larger than was found out.
func (c Count) Tight() bool { return c.Free > 0 }

// String is the reason, for people.
func (c Count) String() string {
	free := fmt.Sprintf("under %.1f %% free", 100*c.Free)
	switch c.Reason {
	case statesTooLarge:
		return "parameters, gradients and optimizer states alone do not fit"
	case savedTooLarge:
		return "with the activations that a forward pass keeps they do not fit"
	case peakTooLarge:
		return "the peak does not fit"
	case statesTight:
		return "parameters, gradients and optimizer states leave " + free
	case savedTight:
		return "with what a forward pass keeps they leave " + free
	case peakTight:
		return "the peak leaves " + free
	}
	return "such as " + c.Example
}
