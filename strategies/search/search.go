package search

import (
	"cmp"
	"slices"
	"sync"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
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
	Fit    int         // of these, in some setting, in memory
	Others []Candidate // the next best that fit, fastest first
}

// better orders candidates: what fits before what does not, then by throughput,
// then by memory; those that do not fit by how much they lack.
func better(a, b Candidate) int {
	x, y := a.Result, b.Result
	if x.Memory.Fits != y.Memory.Fits {
		if x.Memory.Fits {
			return -1
		}
		return 1
	}
	if !x.Memory.Fits {
		return cmp.Compare(x.Memory.DeviceUsed, y.Memory.DeviceUsed)
	}
	if c := cmp.Compare(y.TokensPerSecond, x.TokensPerSecond); c != 0 {
		return c
	}
	return cmp.Compare(x.Memory.DeviceUsed, y.Memory.DeviceUsed)
}

// Best tries the simple plans of a job that leaves its plan open (one tensor-,
// expert- and pipeline-parallel degree each, the recipe's kinds of data
// parallelism, recomputation only as far as memory asks for it, each with the micro
// batch that gives it most tokens/s) and returns the fastest that fits, or the one
// that lacks the least memory. It fails when no plan is legal.
func Best(j *strategies.Job) (*Choice, error) {
	jobs, err := legal(j)
	if err != nil {
		return nil, err
	}
	out := &Choice{Legal: len(jobs)}
	found := fastest(jobs)
	if out.Fit = len(found); out.Fit > 0 {
		out.Candidate, out.Others = found[0], found[1:]
		return out, nil
	}
	out.Candidate, err = leastLacking(jobs)
	return out, err
}

// legal is a job under each of its simple plans that breaks no rule. Where there is none
// it fails with the first rule.
func legal(j *strategies.Job) ([]*strategies.Job, error) {
	var jobs []*strategies.Job
	var first error
	for _, p := range simple(j) {
		c := *j
		if err := c.SetPlan(p); err == nil {
			jobs = append(jobs, &c)
		} else if first == nil {
			first = err
		}
	}
	if len(jobs) == 0 {
		return nil, first
	}
	return jobs, nil
}

// fastest estimates the jobs that fit and orders them, the fastest first.
func fastest(jobs []*strategies.Job) []Candidate {
	found := each(jobs, func(j *strategies.Job) (Candidate, bool) {
		lean, ok := fitting(j)
		if !ok {
			return Candidate{}, false
		}
		return widest(lean)
	})
	slices.SortStableFunc(found, better)
	return found
}

// leastLacking estimates the one of some jobs that needs least memory.
func leastLacking(jobs []*strategies.Job) (Candidate, error) {
	loads := each(jobs, func(j *strategies.Job) (load, bool) { return leanest(j, 0) })
	slices.SortStableFunc(loads, func(a, b load) int { return cmp.Compare(a.used, b.used) })
	for _, l := range loads {
		if r, err := predict(l.job); err == nil {
			return Candidate{l.job, r}, nil
		}
	}
	if _, err := predict(jobs[0]); err != nil { // for the reason, which no plan changes
		return Candidate{}, err
	}
	return Candidate{}, diag.Errorf("plan: none of %d legal plans could be estimated", len(jobs))
}

// simple enumerates plans from the least to the most parallel.
func simple(j *strategies.Job) []strategies.Plan {
	out := []strategies.Plan{{}}
	out = expand(out, func(*strategies.Plan) []int64 { return powers(min(island(j), j.GPUs, 8)) }, func(p *strategies.Plan, v int64) { p.TP = v })
	out = expand(out, func(p *strategies.Plan) []int64 { return simpleStages(j, p.TP) }, func(p *strategies.Plan, v int64) { p.PP = v })
	out = expand(out, func(*strategies.Plan) []int64 { return simpleContexts(j) }, func(p *strategies.Plan, v int64) { p.CP = v })
	out = expand(out, func(*strategies.Plan) []int64 { return simpleExperts(j) }, func(p *strategies.Plan, v int64) { p.EP = v })
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

// simpleStages are the numbers of pipeline stages worth trying where so many ranks share
// a stage: up to 16, or to what the global batch asks for, whose sequences replicas
// share evenly.
func simpleStages(j *strategies.Job, ranks int64) []int64 {
	most, rest := int64(16), j.GPUs/ranks
	if b := j.Given.GlobalBatch; b > 0 && rest > 0 {
		most = max(most, rest/gcd(rest, b))
	}
	return divisors(rest, min(j.Model.Layers, most))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// simpleContexts are the context-parallel degrees worth trying: more than one only for
// long sequences.
func simpleContexts(j *strategies.Job) []int64 {
	if j.Recipe.Structure.WholeSequences {
		return powers(1)
	}
	return powers(max(1, min(8, j.Train.SequenceLength/16384)))
}

func simpleExperts(j *strategies.Job) []int64 {
	if j.Model.MoE == nil || !j.Recipe.Structure.ExpertParallel {
		return powers(1)
	}
	return powers(max(1, min(j.Model.MoE.Experts, j.GPUs, 64)))
}

// simpleKinds are the kinds of data parallelism worth trying: under a pipeline only those
// that keep parameters and gradients whole, and the first where no ranks are left.
func simpleKinds(j *strategies.Job, p *strategies.Plan) []strategies.DataParallel {
	var out []strategies.DataParallel
	for _, k := range kinds(j) {
		if p.PP == 1 || k == strategies.DDP || k == strategies.ZeRO1 {
			out = append(out, k)
		}
	}
	if p.TP*p.PP*p.CP == j.GPUs {
		out = out[:min(len(out), 1)]
	}
	return out
}

// kinds are the recipe's kinds of data parallelism, least sharded first.
func kinds(j *strategies.Job) []strategies.DataParallel {
	var out []strategies.DataParallel
	for _, k := range j.Recipe.DataParallel {
		out = append(out, strategies.DataParallel(k))
	}
	if len(out) == 0 {
		out = []strategies.DataParallel{strategies.DDP}
	}
	return out
}

// load is a job with the memory that it takes.
type load struct {
	job  *strategies.Job
	used units.Bytes
}

func (l load) fits() bool { return l.used <= estimate.Capacity(l.job) }

// leanest is a job with as little recomputation as lets it fit, or with that which
// needs least memory, as far as the job leaves that open. Of what needs more than a
// limit only that is known; 0 is no limit.
func leanest(j *strategies.Job, limit units.Bytes) (load, bool) {
	var best load
	for _, level := range levels(j) {
		c := *j
		c.Train.Recompute = level
		used, err := deviceUsed(&c, limit)
		if err != nil {
			continue
		}
		if l := (load{&c, used}); best.job == nil || l.used < best.used {
			best = l
		}
		if best.fits() {
			break
		}
	}
	return best, best.job != nil
}

// fitting is a job with as little recomputation as lets it fit, if any does. It predicts
// no time, and soon sees that what lives between steps is too large.
func fitting(j *strategies.Job) (*strategies.Job, bool) {
	if !statesFit(j) {
		return nil, false
	}
	l, ok := leanest(j, estimate.Capacity(j))
	return l.job, ok && l.fits()
}

// levels are the recomputations that a job leaves open, the least first.
func levels(j *strategies.Job) []ops.Recompute {
	if j.Given.Recompute != "" {
		return []ops.Recompute{j.Train.Recompute}
	}
	return recomputations
}

// widest estimates a job that fits, where it gives no micro batch with the one that is
// fastest, doubling it as long as that is faster and fits.
func widest(j *strategies.Job) (Candidate, bool) {
	best, ok := estimated(j)
	if j.Given.MicroBatch > 0 {
		return best, ok
	}
	for range 4 {
		if !ok {
			break
		}
		wide, legal := doubled(best.Job, j.Given.Recompute)
		if !legal {
			break
		}
		lean, fits := fitting(wide)
		if !fits {
			break
		}
		now, known := estimated(lean)
		if !known || better(now, best) >= 0 {
			break
		}
		best = now
	}
	return best, ok
}

// doubled is a job with twice the micro batch, at the recomputation that it has come to.
// That is open again afterwards as far as it was given.
func doubled(j *strategies.Job, given ops.Recompute) (*strategies.Job, bool) {
	c := *j
	c.Given.MicroBatch, c.Given.Recompute = 2*j.Train.MicroBatch, j.Train.Recompute
	if c.Given.GlobalBatch > 0 {
		c.Given.GradAccumulation = 0
	}
	if c.SetPlan(j.Plan) != nil {
		return nil, false
	}
	c.Given.Recompute = given
	return &c, true
}

func estimated(j *strategies.Job) (Candidate, bool) {
	r, err := predict(j)
	return Candidate{j, r}, err == nil
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

// statesFit reports whether what lives between steps fits.
func statesFit(j *strategies.Job) bool {
	e := evaluators.Get().(*estimate.Evaluator)
	defer evaluators.Put(e)
	least, err := e.FloorMemory(j)
	return err == nil && least <= estimate.Capacity(j)
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
