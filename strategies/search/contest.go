package search

import (
	"cmp"
	"slices"
	"sync"

	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// entrant is a job under one plan: for each way to reduce gradients with every micro
// batch, the smallest first. Its recomputation is still to be found.
type entrant [][]*strategies.Job

// enter gives a job a plan. Where it may save memory by what shards of parameters it keeps
// over the micro batches (sparing), it has both ways. It fails with the rule that the smallest
// micro batch breaks.
func enter(j *strategies.Job, p strategies.Plan) (entrant, error) {
	var out entrant
	var first error
	for _, spare := range []bool{false, true} {
		var list []*strategies.Job
		for _, b := range microBatches(j) {
			if n := len(list); n > 0 && b < 2*list[n-1].Train.MicroBatch {
				continue // not worth telling apart
			}
			c := *j
			c.Given.MicroBatch = b
			q := p
			if spare && q.ReducesOnce() {
				q.ReshardAfterForward = &yes
			} else if spare {
				q.SyncEveryMicroBatch = &yes
			}
			if err := c.SetPlan(q); err != nil {
				if first == nil {
					first = err
				}
				continue
			}
			c.Given = j.Given
			list = append(list, &c)
		}
		if len(list) == 0 {
			return out, first
		}
		given := p.SyncEveryMicroBatch
		if p.ReducesOnce() {
			given = p.ReshardAfterForward
		}
		if out = append(out, list); given != nil || sparing(list[0]) == "" {
			break
		}
	}
	return out, nil
}

// sparing is the key of a plan with which a job of sharded parameters keeps less over its micro
// batches, "" where there is none: it may reduce gradients after each instead of adding
// whole ones up, and in a pipeline drop parameters after each forward pass.
func sparing(j *strategies.Job) string {
	switch p := &j.Plan; {
	case !p.DataParallel.FSDP() || p.DP*p.CP <= 1 || j.Train.GradAccumulation <= 1:
		return ""
	case p.ReducesOnce() && !p.Reshard():
		return "plan.reshard_after_forward"
	case !p.ReducesOnce() && !j.SyncsEveryMicroBatch():
		return "plan.sync_every_micro_batch"
	}
	return ""
}

// fits reports whether some setting does.
func (p entrant) fits() bool {
	e := evaluators.Get().(*estimate.Evaluator)
	defer evaluators.Put(e)
	return slices.ContainsFunc(p, func(jobs []*strategies.Job) bool {
		return slices.ContainsFunc(leveled(jobs[0]), func(j *strategies.Job) bool { return within(e, j, estimate.Capacity(j)) })
	})
}

// contest finds the fastest plans, each in its fastest setting that fits.
type contest struct {
	most    int     // plans to find
	slowest float64 // time of a token that none may exceed; 0: any
	scout   *Scout  // whose evaluators to use; nil: those of the pool
	mu      sync.Mutex
	best    []contestant // the fastest first, one of each plan
}

type contestant struct {
	plan, setting int
	job           *strategies.Job
	value         float64 // time of a token
	used          units.Bytes
}

// less orders by time, then by memory, then as listed.
func (a *contestant) less(b *contestant) int {
	return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.used, b.used), cmp.Compare(a.plan, b.plan), cmp.Compare(a.setting, b.setting))
}

// run lets plans compete. The best are those of timing every setting of every plan: what
// is left out has a floor above theirs. Plans that share kernels stand together, and one
// evaluator has them all.
func (c *contest) run(plans []entrant) {
	var groups [][2]int
	for i := range plans {
		if i == 0 || !plans[i].cutAs(plans[i-1]) {
			groups = append(groups, [2]int{i, i})
		}
		groups[len(groups)-1][1]++
	}
	parallel.Map(groups, func(g [2]int) (none struct{}) {
		e, done := c.scout.evaluator(&plans[g[0]][0][0].Plan)
		defer done()
		for i := g[0]; i < g[1]; i++ {
			c.enter(e, i, plans[i])
		}
		return
	})
}

// cutAs reports whether layers are cut as under another plan.
func (e entrant) cutAs(f entrant) bool {
	p, q := &e[0][0].Plan, &f[0][0].Plan
	return p.TP == q.TP && p.CP == q.CP && p.EP == q.EP && p.ExpertTP == q.ExpertTP
}

// enter times the settings of a plan.
func (c *contest) enter(e *estimate.Evaluator, plan int, p entrant) {
	setting := 0
	for _, jobs := range p {
		least, err := e.FloorMemory(jobs[0])
		for _, j := range jobs {
			if setting++; err != nil || least > estimate.Capacity(j) {
				continue
			}
			c.try(e, contestant{plan: plan, setting: setting, job: j})
		}
	}
}

// try times a setting with as little recomputation as lets it fit.
func (c *contest) try(e *estimate.Evaluator, x contestant) {
	most := estimate.Capacity(x.job)
	for _, j := range leveled(x.job) {
		if c.late(e, x.plan, j) {
			return // and slower with more recomputation
		}
		if least, err := e.FloorPeak(j); err != nil || least > most {
			continue
		}
		slowest := units.Seconds(c.bar(x.plan) * (1 + same) * j.Tokens())
		s, err := e.Score(j, estimate.Limits{Memory: most, Time: slowest})
		switch {
		case err == nil && s.Fits:
			x.job, x.value, x.used = j, float64(s.StepTime)/j.Tokens(), s.DeviceUsed
			c.offer(x)
			return
		case slowest > 0 && s.StepTime > slowest:
			return
		}
	}
}

// within reports whether a job fits. It predicts no time, and soon sees that what lives
// between steps or between passes is too large.
func within(e *estimate.Evaluator, j *strategies.Job, most units.Bytes) bool {
	if least, err := e.FloorPeak(j); err != nil || least > most {
		return false
	}
	used, err := e.DeviceUsed(j, most)
	return err == nil && used <= most
}

// bar is the time of a token beyond which a setting of a plan is not among the best, 0
// where there is none.
func (c *contest) bar(plan int) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.best, func(x contestant) bool { return x.plan == plan }); i >= 0 {
		return c.best[i].value
	}
	if len(c.best) < c.most {
		return c.slowest
	}
	return c.best[len(c.best)-1].value
}

// late reports whether a job cannot be among the best.
func (c *contest) late(e *estimate.Evaluator, plan int, j *strategies.Job) bool {
	bar := c.bar(plan)
	if bar == 0 {
		return false
	}
	floor, err := e.FloorTime(j)
	return err == nil && float64(floor) > bar*j.Tokens()
}

// offer keeps a contestant that is among the best.
func (c *contest) offer(x contestant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.best, func(y contestant) bool { return y.plan == x.plan }); i >= 0 {
		if x.less(&c.best[i]) >= 0 {
			return
		}
		c.best = slices.Delete(c.best, i, i+1)
	}
	at, _ := slices.BinarySearchFunc(c.best, x, func(a, b contestant) int { return a.less(&b) })
	c.best = slices.Insert(c.best, at, x)
	c.best = c.best[:min(len(c.best), c.most)]
}

// finish estimates the best.
func (c *contest) finish() ([]Candidate, error) {
	type outcome struct {
		Candidate
		err error
	}
	var out []Candidate
	for _, o := range parallel.Map(c.best, func(x contestant) outcome {
		r, err := predict(x.job)
		return outcome{Candidate{x.job, r}, err}
	}) {
		if o.err != nil {
			return nil, o.err
		}
		out = append(out, o.Candidate)
	}
	return out, nil
}
