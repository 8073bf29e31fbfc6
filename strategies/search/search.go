package search

import (
	"cmp"
	"slices"
	"sync"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/whole"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Candidate is one way to run a job, estimated.
type Candidate struct {
	Job    *strategies.Job
	Result *estimate.Result
}

// Choice is the outcome of Best.
type Choice struct {
	Candidate
	Legal  int         // plans that no rule forbids
	Others []Candidate // the next best that fit, fastest first
}

// Best ranks the simple plans of a job that leaves its plan open (up to 8 tensor and
// context ranks and 64 expert ranks in powers of two, experts whole or cut over all tensor
// ranks, pipelines of up to 32 ranks with as many stages each as share the layers evenly,
// the recipe's kinds of data parallelism), each with every micro batch and way to reduce
// gradients that the job leaves open, what it says of a plan kept, and no more recomputation
// than memory asks for. It returns the fastest that fits, or the one that lacks the least
// memory. It fails when no plan is legal.
//
// Which of them fit does not depend on how fast a machine is, and the fastest of all is
// taken: a faster machine is never predicted to be slower.
func Best(j *strategies.Job) (*Choice, error) { return choose(j, mostCandidates) }

// Fastest is the Candidate of Best alone, for less.
func Fastest(j *strategies.Job) (Candidate, error) {
	c, err := choose(j, 1)
	if err != nil {
		return Candidate{}, err
	}
	return c.Candidate, nil
}

// choose is Best among so many candidates. Nobody knows beforehand which rank will be slow: the plans are those of a
// machine without stragglers, which slow them afterwards.
func choose(j *strategies.Job, most int) (*Choice, error) {
	slow := j.Runtime.Stragglers
	if slow == nil {
		return chooseHealthy(j, most)
	}
	healthy := *j
	healthy.Runtime.Stragglers = nil
	c, err := chooseHealthy(&healthy, most)
	if err != nil {
		return nil, err
	}
	all := append([]Candidate{c.Candidate}, c.Others...)
	for i := range all {
		job := *all[i].Job
		job.Runtime.Stragglers = slow
		if all[i].Result, err = estimate.Estimate(&job, estimate.Options{}); err != nil {
			return nil, err
		}
		all[i].Job = &job
	}
	c.Candidate, c.Others = all[0], all[1:]
	return c, nil
}

// chooseHealthy is choose for a machine of equal ranks.
func chooseHealthy(j *strategies.Job, most int) (*Choice, error) {
	plans, err := legal(j)
	switch {
	case err != nil && diag.IsInput(err) && possible(j):
		return nil, diag.Errorf("%v; or look beyond the simple plans with perfplan plan", err)
	case err != nil:
		return nil, err
	}
	out := &Choice{Legal: len(plans)}
	c := contest{most: most}
	if c.run(plans); len(c.best) == 0 {
		out.Candidate, err = leastLacking(plans)
		return out, err
	}
	found, err := c.finish()
	if err != nil {
		return nil, err
	}
	out.Candidate, out.Others = found[0], found[1:]
	return out, nil
}

// mostCandidates is how many plans Best returns.
const mostCandidates = 10

// Scout looks at one job on many numbers of GPUs. It remembers what they share.
type Scout struct {
	mu   sync.Mutex
	kept map[strategies.Plan]*estimate.Evaluator // by how layers are cut, the zero Plan for the job's own
}

// evaluator returns that of a way to cut layers, which nobody else uses until done.
func (s *Scout) evaluator(p *strategies.Plan) (e *estimate.Evaluator, done func()) {
	if s == nil {
		e = evaluators.Get().(*estimate.Evaluator)
		return e, func() { evaluators.Put(e) }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strategies.Plan{TP: p.TP, CP: p.CP, EP: p.EP, ExpertTP: p.ExpertTP}
	if s.kept == nil {
		s.kept = map[strategies.Plan]*estimate.Evaluator{}
	}
	if s.kept[key] == nil {
		s.kept[key] = new(estimate.Evaluator)
	}
	return s.kept[key], func() {}
}

// Legal reports whether a job breaks no rule, under one of the simple plans where it leaves
// its plan open.
func Legal(j *strategies.Job) bool {
	return !j.Open || slices.ContainsFunc(simple(j), func(p strategies.Plan) bool {
		c := *j
		return c.SetPlan(p) == nil
	})
}

// Within estimates a job, with the best simple plan where it leaves that open, if it fits
// and takes no longer than so many seconds for a token; else it returns nil.
func (s *Scout) Within(j *strategies.Job, slowest float64) (*estimate.Result, error) {
	if !j.Open {
		e, done := s.evaluator(&strategies.Plan{})
		defer done()
		if floor, err := e.FloorTime(j); err != nil || float64(floor) > slowest*j.Tokens() {
			return nil, err
		}
		r, err := e.Estimate(j, estimate.Options{})
		if err != nil || !r.Memory.Fits || float64(r.StepTime) > slowest*j.Tokens() {
			return nil, err
		}
		return r, nil
	}
	plans, err := legal(j)
	if err != nil {
		return nil, err
	}
	c := contest{most: 1, slowest: slowest, scout: s}
	if c.run(plans); len(c.best) == 0 {
		return nil, nil
	}
	found, err := c.finish()
	if err != nil {
		return nil, err
	}
	return found[0].Result, nil
}

// Floor is the time of a GPU that a token takes at least, whatever the simple plan and
// whatever the number of GPUs: that of the kernels of a step without a pipeline. It is 0
// where it is not known.
func Floor(j *strategies.Job) float64 {
	var jobs []*strategies.Job
	for _, p := range simple(j) {
		if p.PP > 1 || p.DataParallel != kinds(j, p.Offload)[0] {
			continue
		}
		for _, b := range microBatches(j) {
			c := *j
			c.GPUs, c.Given.MicroBatch, c.Given.GradAccumulation, c.Given.GlobalBatch = p.TP*p.CP*p.EP, b, 1, 0
			if c.SetPlan(p) == nil {
				jobs = append(jobs, &c)
			}
		}
	}
	floors := each(jobs, func(j *strategies.Job) (float64, bool) {
		e := evaluators.Get().(*estimate.Evaluator)
		defer evaluators.Put(e)
		t, err := e.FloorTime(j)
		return float64(t) * float64(j.GPUs) / j.Tokens(), err == nil
	})
	if len(floors) == 0 {
		return 0
	}
	return slices.Min(floors)
}

// legal is a job under each of its simple plans that breaks no rule. Where there is none
// it fails with the first rule.
func legal(j *strategies.Job) ([]entrant, error) {
	var out []entrant
	var first error
	for _, p := range simple(j) {
		if e, err := enter(j, p); err == nil {
			out = append(out, e)
		} else if first == nil {
			first = err
		}
	}
	if len(out) == 0 {
		return nil, first
	}
	return out, nil
}

// possible reports whether any plan of a job breaks no rule.
func possible(j *strategies.Job) bool {
	var s Space
	open := Reopen(j)
	return slices.ContainsFunc(s.cuts(open), func(c cut) (found bool) {
		base, err := open.With(c.precision, c.microBatch, c.recompute)
		if err != nil {
			return false
		}
		s.plans(base, &c, func(same []strategies.Plan, d *depth) bool {
			next := *base
			d.set(&next)
			found = next.SetPlan(same[0]) == nil
			return !found
		})
		return found
	})
}

// leastLacking estimates the one of some plans, none of which fits, that needs least
// memory. What lives between steps says of most that they need more than another.
func leastLacking(plans []entrant) (Candidate, error) {
	type load struct {
		job  *strategies.Job
		used units.Bytes
	}
	floors := slices.Concat(each(plans, func(p entrant) ([]load, bool) {
		e := evaluators.Get().(*estimate.Evaluator)
		defer evaluators.Put(e)
		var out []load
		for _, jobs := range p {
			if least, err := e.FloorMemory(jobs[0]); err == nil {
				out = append(out, load{jobs[0], least})
			}
		}
		return out, true
	})...)
	slices.SortStableFunc(floors, func(a, b load) int { return cmp.Compare(a.used, b.used) })
	best := load{job: plans[0][0][0]} // where no model can be built, for the reason
	for _, l := range floors {
		if best.used > 0 && l.used >= best.used {
			break
		}
		for _, j := range leveled(l.job) {
			if used, err := deviceUsed(j, best.used); err == nil && (best.used == 0 || used < best.used) {
				best = load{j, used}
			}
		}
	}
	r, err := predict(best.job)
	return Candidate{best.job, r}, err
}

// simple enumerates plans from the least to the most parallel, those that cut layers
// alike together, each run as the job says.
func simple(j *strategies.Job) []strategies.Plan {
	out := make([]strategies.Plan, 1)
	if p := j.GivenPlan; p != nil {
		out[0] = *p
	}
	out = expand(out, func(*strategies.Plan) []int64 { return powers(min(island(j), j.GPUs, 8)) }, func(p *strategies.Plan, v int64) { p.TP = v })
	out = expand(out, func(p *strategies.Plan) []int64 { return simpleContexts(j, p) }, func(p *strategies.Plan, v int64) { p.CP = v })
	out = expand(out, func(*strategies.Plan) []int64 { return simpleExperts(j) }, func(p *strategies.Plan, v int64) { p.EP = v })
	out = expand(out, func(p *strategies.Plan) []int64 { return expertWidths(j, p.TP, p.SequenceParallel) }, func(p *strategies.Plan, v int64) { p.ExpertTP = v })
	out = expand(out, func(p *strategies.Plan) []int64 { return simpleStages(j, p) }, func(p *strategies.Plan, v int64) { p.PP = v })
	out = expand(out, func(p *strategies.Plan) []int64 { return offeredStages(j, p.PP) }, func(p *strategies.Plan, v int64) { p.VirtualStages = v })
	out = expand(out, func(p *strategies.Plan) []string { return simpleSchedules(j, p) }, func(p *strategies.Plan, v string) { p.Schedule = v })
	return expand(out, func(p *strategies.Plan) []strategies.DataParallel { return simpleKinds(j, p) }, func(p *strategies.Plan, v strategies.DataParallel) { p.DataParallel = v })
}

// powers lists the powers of two up to limit.
func powers(limit int64) []int64 {
	var out []int64
	for n := int64(1); n <= limit; n *= 2 {
		out = append(out, n)
	}
	return out
}

// simpleStages are the numbers of pipeline ranks worth trying: one, and up to 32, or to
// what the global batch asks for, those with which replicas share its sequences evenly.
func simpleStages(j *strategies.Job, p *strategies.Plan) []int64 {
	if j.Recipe.Structure.WholeModels {
		return powers(1)
	}
	most, rest, batch := int64(32), max(j.GPUs/(p.TP*p.CP), 1), j.Given.GlobalBatch
	if batch > 0 {
		most = max(most, rest/whole.GCD(rest, batch))
	}
	return slices.DeleteFunc(whole.Divisors(rest, min(j.Model.Layers, most)), func(pp int64) bool { return pp > 1 && batch%(rest/pp) != 0 })
}

// simpleSchedules are the schedules worth trying: the usual one, and that which fills
// bubbles with the gradients of weights over two stages of a rank.
func simpleSchedules(j *strategies.Job, p *strategies.Plan) []string {
	if p.Schedule != "" || p.VirtualStages != 2 || !slices.Contains(j.Schedules(2), "zb-v") {
		return []string{p.Schedule}
	}
	return []string{"", "zb-v"}
}

// simpleContexts are the context-parallel degrees worth trying, up to 8: one, what a long
// sequence has 16384 tokens for each of, and twice a degree that leaves pipeline ranks
// fewer than four sequences each, which a pipeline is slow with, or replicas that do not
// share the global batch evenly.
func simpleContexts(j *strategies.Job, p *strategies.Plan) []int64 {
	if len(j.Recipe.CPCommTypes) == 0 {
		return powers(1)
	}
	b, s := j.Given.GlobalBatch, j.Train.SequenceLength
	return slices.DeleteFunc(powers(8), func(cp int64) bool {
		few := b > 0 && b*p.TP*cp/2 < 4*j.GPUs && s >= 2048*cp
		uneven := b%max(j.GPUs/max(p.TP*cp/2, 1), 1) != 0 && s >= 512*cp
		return cp > 1 && s < 16384*cp && !few && !uneven
	})
}

func simpleExperts(j *strategies.Job) []int64 {
	if j.Model.MoE == nil || !j.Recipe.Structure.ExpertParallel {
		return powers(1)
	}
	return powers(max(1, min(j.Model.MoE.Experts, j.GPUs, 64)))
}

// simpleKinds are the kinds of data parallelism worth trying: under a pipeline only those
// that keep parameters and gradients whole where the recipe has such, else all, and the
// first where no ranks are left.
func simpleKinds(j *strategies.Job, p *strategies.Plan) []strategies.DataParallel {
	all := kinds(j, p.Offload)
	var out []strategies.DataParallel
	for _, k := range all {
		if p.PP == 1 || k == strategies.DDP || k == strategies.ZeRO1 {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		out = all
	}
	if p.TP*p.PP*p.CP == j.GPUs {
		out = out[:min(len(out), 1)]
	}
	return out
}

// kinds are the recipe's kinds of data parallelism, least sharded first, or those of them
// beside which something is left to the host.
func kinds(j *strategies.Job, o strategies.Offload) []strategies.DataParallel {
	var out []strategies.DataParallel
	for _, k := range j.Beside(o) {
		out = append(out, strategies.DataParallel(k))
	}
	if len(out) == 0 {
		out = []strategies.DataParallel{strategies.DDP}
	}
	return out
}

// leveled is a job with each recomputation that it leaves open, the least first.
func leveled(j *strategies.Job) []*strategies.Job {
	if j.Given.Recompute != "" || j.Train.OffloadLayers > 0 { // beside which there is none
		return []*strategies.Job{j}
	}
	var out []*strategies.Job
	for _, r := range j.Recomputations() {
		c := *j
		c.Train.Recompute, c.Train.RecomputeModules = r.Kind, r.Modules
		out = append(out, &c)
	}
	return out
}

// evaluators are kept from plan to plan: those of a search share much.
var evaluators = sync.Pool{New: func() any { return new(estimate.Evaluator) }}

func predict(j *strategies.Job) (*estimate.Result, error) {
	e := evaluators.Get().(*estimate.Evaluator)
	defer evaluators.Put(e)
	return e.Estimate(j, estimate.Options{})
}

func deviceUsed(j *strategies.Job, limit units.Bytes) (units.Bytes, error) {
	e := evaluators.Get().(*estimate.Evaluator)
	defer evaluators.Put(e)
	return e.DeviceUsed(j, limit)
}

// each runs f over in on all processors and returns what it accepts, in order.
func each[T, R any](in []T, f func(T) (R, bool)) []R {
	type slot struct {
		r  R
		ok bool
	}
	slots := parallel.Map(in, func(x T) slot {
		r, ok := f(x)
		return slot{r, ok}
	})
	var out []R
	for _, s := range slots {
		if s.ok {
			out = append(out, s.r)
		}
	}
	return out
}
