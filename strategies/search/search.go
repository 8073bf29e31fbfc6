package search

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/parallel"
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
	plans := simple(j)
	var firstErr error
	jobs := make([]*strategies.Job, 0, len(plans))
	for _, p := range plans {
		c := *j
		if err := c.SetPlan(p); err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		jobs = append(jobs, &c)
	}
	if len(jobs) == 0 {
		return nil, firstErr
	}
	run := fitting
	if j.Given.MicroBatch == 0 {
		run = widest
	}
	found := each(jobs, run)
	out := &Choice{Legal: len(jobs)}
	slices.SortStableFunc(found, better)
	if len(found) == 0 { // for the reason, which no plan changes
		if _, err := estimate.Estimate(jobs[0], estimate.Options{}); err != nil {
			return nil, err
		}
		return nil, diag.Errorf("plan: none of %d legal plans could be estimated", len(jobs))
	}
	for _, c := range found {
		if c.Result.Memory.Fits {
			out.Fit++
		}
	}
	out.Candidate = found[0]
	out.Others = found[1:]
	if n := max(out.Fit-1, 0); n < len(out.Others) {
		out.Others = out.Others[:n]
	}
	return out, nil
}

// simple enumerates plans from the least to the most parallel.
func simple(j *strategies.Job) []strategies.Plan {
	var out []strategies.Plan
	node := max(j.Hardware.Node.GPUs.Value, j.Hardware.Node.NVLinkDomain.Value)
	for tp := int64(1); tp <= min(node, j.GPUs, 8); tp *= 2 {
		for pp := int64(1); tp*pp <= j.GPUs && pp <= min(j.Model.Layers, 16); pp *= 2 {
			for _, cp := range simpleContexts(j) {
				for _, ep := range experts(j) {
					for _, kind := range kinds(j) {
						if pp > 1 && kind != strategies.DDP && kind != strategies.ZeRO1 {
							continue
						}
						out = append(out, strategies.Plan{TP: tp, PP: pp, CP: cp, EP: ep, DataParallel: kind})
						if tp*pp*cp == j.GPUs {
							break // nothing left to shard over
						}
					}
				}
			}
		}
	}
	return out
}

// simpleContexts are the context-parallel degrees worth trying: more than one only for
// long sequences.
func simpleContexts(j *strategies.Job) []int64 {
	out := []int64{1}
	if j.Recipe.Structure.WholeSequences {
		return out
	}
	for cp := int64(2); cp <= min(8, j.Train.SequenceLength/16384); cp *= 2 {
		out = append(out, cp)
	}
	return out
}

func experts(j *strategies.Job) []int64 {
	out := []int64{1}
	if j.Model.MoE == nil || !j.Recipe.Structure.ExpertParallel {
		return out
	}
	for ep := int64(2); ep <= min(j.Model.MoE.Experts, j.GPUs, 64); ep *= 2 {
		out = append(out, ep)
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

// fitting estimates a job with as much recomputation as it needs to fit, as far
// as the job leaves that open.
func fitting(j *strategies.Job) (Candidate, bool) {
	levels := []ops.Recompute{j.Train.Recompute}
	if j.Given.Recompute == "" {
		levels = []ops.Recompute{ops.NoRecompute, ops.SelectiveRecompute, ops.FullRecompute}
	}
	var best Candidate
	for _, level := range levels {
		c := *j
		c.Train.Recompute = level
		r, err := predict(&c)
		if err != nil {
			continue
		}
		now := Candidate{&c, r}
		if best.Result == nil || better(now, best) < 0 {
			best = now
		}
		if r.Memory.Fits {
			break
		}
	}
	return best, best.Result != nil
}

// widest estimates a job with the micro batch that is fastest, doubling it as long as
// that is faster and fits.
func widest(j *strategies.Job) (Candidate, bool) {
	best, ok := fitting(j)
	for range 4 {
		if !ok || !best.Result.Memory.Fits {
			break
		}
		c := *best.Job
		c.Given.MicroBatch = 2 * best.Job.Train.MicroBatch
		c.Given.Recompute = best.Job.Train.Recompute
		if c.Given.GlobalBatch > 0 {
			c.Given.GradAccumulation = 0
		}
		if c.SetPlan(best.Job.Plan) != nil {
			break
		}
		c.Given.Recompute = j.Given.Recompute
		now, estimated := fitting(&c)
		if !estimated || better(now, best) >= 0 {
			break
		}
		best = now
	}
	return best, ok
}

// evaluators are kept from plan to plan: those of a search share much.
var evaluators = sync.Pool{New: func() any { return new(estimate.Evaluator) }}

func predict(j *strategies.Job) (*estimate.Result, error) {
	e := evaluators.Get().(*estimate.Evaluator)
	defer evaluators.Put(e)
	return e.Estimate(j, estimate.Options{})
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

// Remedy is a change that makes a job fit.
type Remedy struct {
	Set       []string // "train.recompute=full", as --set takes it
	Candidate Candidate
	Slowdown  float64 // tokens/s/GPU before over after, minus one; negative when it is faster
}

// Remedies returns up to three changes that make a job fit, the cheapest in
// throughput per GPU first; single changes before pairs.
func Remedies(j *strategies.Job, r *estimate.Result) []Remedy {
	single := changes(j)
	found := try(j, r, single)
	if len(found) < 3 {
		var pairs []change
		for i, a := range single {
			for _, b := range single[i+1:] {
				if a.key != b.key {
					pairs = append(pairs, a.and(b))
				}
			}
		}
		found = append(found, try(j, r, pairs)...)
	}
	return found[:min(3, len(found))]
}

// change is an edit of a job.
type change struct {
	key  string
	set  []string
	edit func(*strategies.Job, *strategies.Plan)
}

func (a change) and(b change) change {
	return change{set: append(slices.Clone(a.set), b.set...), edit: func(j *strategies.Job, p *strategies.Plan) { a.edit(j, p); b.edit(j, p) }}
}

// changes lists what could be done to a job, one at a time.
func changes(j *strategies.Job) []change {
	var out []change
	add := func(key, value string, edit func(*strategies.Job, *strategies.Plan)) {
		out = append(out, change{key, []string{key + "=" + value}, edit})
	}
	for _, level := range []ops.Recompute{ops.SelectiveRecompute, ops.FullRecompute} {
		if j.Train.Recompute != ops.FullRecompute && j.Train.Recompute != level {
			add("train.recompute", string(level), func(j *strategies.Job, _ *strategies.Plan) { j.Given.Recompute = level })
		}
	}
	if j.Train.Recomputed().Partly() {
		add("train.recompute_num_layers", "null", func(j *strategies.Job, _ *strategies.Plan) {
			j.Given.RecomputeNumLayers, j.Given.RecomputeMethod = nil, ""
		})
	}
	if b := j.Train.MicroBatch; b > 1 {
		h := b / 2
		for b%h != 0 {
			h--
		}
		c := change{key: "train.micro_batch", set: []string{"train.micro_batch=" + strconv.FormatInt(h, 10), "train.grad_accumulation=" + strconv.FormatInt(j.Train.GradAccumulation*b/h, 10)}}
		c.edit = func(j *strategies.Job, _ *strategies.Plan) {
			j.Given.GradAccumulation, j.Given.MicroBatch = j.Train.GradAccumulation*b/h, h
		}
		out = append(out, c)
	}
	for _, k := range kinds(j) {
		if k != j.Plan.DataParallel && j.Plan.DP*j.Plan.CP > 1 {
			add("plan.data_parallel", string(k), func(_ *strategies.Job, p *strategies.Plan) { p.DataParallel = k })
		}
	}
	if j.Plan.DP%2 == 0 {
		add("plan.tp", strconv.FormatInt(2*j.Plan.TP, 10), func(_ *strategies.Job, p *strategies.Plan) { p.TP *= 2; p.DP = 0 })
		add("plan.pp", strconv.FormatInt(2*j.Plan.PP, 10), func(_ *strategies.Job, p *strategies.Plan) { p.PP *= 2; p.DP, p.Schedule, p.StageLayers = 0, "", "" })
	}
	for _, f := range []int64{2, 4, 8} {
		add("gpus", strconv.FormatInt(f*j.GPUs, 10), func(j *strategies.Job, p *strategies.Plan) { j.GPUs *= f; p.DP = 0 })
	}
	return out
}

// try estimates the changes and returns those that fit, cheapest first.
func try(j *strategies.Job, before *estimate.Result, list []change) []Remedy {
	found := each(list, func(c change) (Remedy, bool) {
		next, plan := *j, j.Plan
		next.Given.Recompute, next.Given.MicroBatch, next.Given.GradAccumulation = j.Train.Recompute, j.Train.MicroBatch, j.Train.GradAccumulation
		if c.edit(&next, &plan); plan.DP == 0 && next.Given.GlobalBatch > 0 {
			next.Given.GradAccumulation = 0
		}
		if next.SetPlan(plan) != nil {
			return Remedy{}, false
		}
		r, err := predict(&next)
		if err != nil || !r.Memory.Fits {
			return Remedy{}, false
		}
		return Remedy{c.set, Candidate{&next, r}, before.TokensPerSecond/r.TokensPerSecond - 1}, true
	})
	slices.SortStableFunc(found, func(a, b Remedy) int { return cmp.Compare(a.Slowdown, b.Slowdown) })
	return found
}
