package estimate

import (
	"fmt"
	"math"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
)

// lag is how much slower than a healthy rank the slowest rank of a pipeline stage
// is: the ranks of a stage meet in every layer or at the end of the step, so the
// slowest sets the pace of all. Both are 1 where nobody is slow.
type lag struct{ compute, link units.Seconds }

// lagsOf returns the lag of every pipeline rank, nil where nobody is slow.
func lagsOf(j *strategies.Job) []lag {
	slow := j.Runtime.Slow()
	if len(slow) == 0 {
		return nil
	}
	out := make([]lag, max(j.Plan.PP, 1))
	for i := range out {
		out[i] = lag{1, 1}
	}
	apart := j.Plan.Strides().PP
	for _, s := range slow {
		l := &out[s.Rank/apart%int64(len(out))]
		l.compute, l.link = max(l.compute, units.Seconds(s.Slowdown)), max(l.link, units.Seconds(s.Link))
	}
	return out
}

// expectedMaximum is the mean of the largest of n standard normal values (G. Blom,
// Statistical Estimates and Transformed Beta-Variables, 1958: the quantile at
// (n − 3/8)/(n + 1/4), within 2 % from n = 4 on).
func expectedMaximum(n int64) float64 {
	return quantile((float64(n) - 0.375) / (float64(n) + 0.25))
}

// quantile is that of a standard normal value.
func quantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// stretch slows a pass of a pipeline stage.
func (l lag) stretch(t *passTime) {
	if l == (lag{1, 1}) {
		return // and no rounding
	}
	busy := (t.busy-t.comm)*l.compute + t.comm*l.link
	t.seg.Busy += busy - t.busy
	t.seg.Lag += busy - t.busy // at most: less where the device waits for the host behind a slow kernel
	t.busy = busy
	t.fewer *= l.compute
	t.weight *= l.compute
	t.comm *= l.link
}

// exposed is what a section waits for collectives that nothing hides.
func (s *section) exposed() (t units.Seconds) {
	for _, c := range s.comm {
		t += c
	}
	return t
}

// Waiting is what stragglers cost.
type Waiting struct {
	Healthy units.Seconds // step time without them
	Each    units.Seconds // that every healthy GPU waits more, per step
	Lost    float64       // share of the throughput
	Groups  []Waiters     // who waits, and where
}

// Waiters are GPUs that wait for the stragglers at the same place.
type Waiters struct {
	GPUs  int64
	Who   string
	Where string
}

// idle has the power of a step with stragglers be that of all GPUs: healthy ones take what
// they do in a step without, and draw what pauses draw for what the step takes longer.
func (s *simulation) idle(p *pricer, healthy Score) {
	if s.power.Energy <= 0 {
		return
	}
	c := p.card()
	longer := max(s.total-float64(healthy.StepTime), 0)
	slow := float64(len(p.job.Runtime.Slow())) / float64(p.job.GPUs)
	all := slow*float64(s.power.Energy) + (1-slow)*(float64(healthy.Energy)+c.rests(longer, longer))
	s.power.Energy, s.power.Power = units.Joules(all), units.Watts(all/s.total)
}

// waiting compares a result with that of the job without its stragglers. A healthy
// rank works as long as before, so what the step takes more it waits.
func (r *Result) waiting() error {
	slow := r.Job.Runtime.Slow()
	if len(slow) == 0 {
		return nil
	}
	healthy := *r.Job
	healthy.Runtime.Stragglers = nil
	h, err := Estimate(&healthy, Options{})
	if err != nil {
		return err
	}
	w := &Waiting{Healthy: h.StepTime, Each: max(r.StepTime-h.StepTime, 0), Lost: max(1-float64(h.StepTime/r.StepTime), 0)}
	r.Waiting = w
	p := &r.Job.Plan
	add := func(n int64, who, where string) {
		if n > 0 {
			w.Groups = append(w.Groups, Waiters{n, who, where})
		}
	}
	if len(slow) > 1 {
		add(r.Job.GPUs-int64(len(slow)), "all healthy GPUs", "wherever they meet the slow ones")
		return nil
	}
	peers := p.TP * p.CP
	add(peers-1, fmt.Sprintf("tensor and context ranks beside rank %d", slow[0].Rank), "in the collectives of every layer")
	add(peers*(p.PP-1), "other stages of its pipeline", "for its activations and gradients")
	where := "for the reduction of the gradients"
	if p.DataParallel.ShardsParameters() {
		where = "in the gathers and reductions of every layer"
	} else if p.EP > 1 {
		where = "in the all-to-alls of every layer and the reduction of the gradients"
	}
	add(peers*p.PP*(p.DP-1), "other replicas", where)
	return nil
}
