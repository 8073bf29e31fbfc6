package search

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Options say what to rank, by what, and how much of it to return.
type Options struct {
	Space       Space
	Objective   Objective
	Top         int
	Headroom    float64 // of the capacity that must stay free
	Exhaustive  bool    // estimate every legal plan
	TrainTokens float64 // for Train
	Dollars     float64 // of a GPU hour; 0: the profile's
	Progress    func(Progress)

	manyCuts int // of tests; 0: the constant
}

// DefaultHeadroom is the Headroom that a user who says nothing wants: on average the
// measured runs take so much more of the device than predicted (docs/validation.md).
const DefaultHeadroom = 0.03

// Progress is how far a search is.
type Progress struct {
	Phase       string
	Done, Total int
	Best        string // the best plan so far
	Value       string // what it is best at: its step time, memory or energy
}

// Ranking is the outcome of Rank.
type Ranking struct {
	Job        *strategies.Job
	Options    Options
	Plans      []Ranked // best first
	Rivals     int      // these and the next best, 20 at least, between which the chances to be the best are shared
	Considered int      // plans in the space
	Legal      int      // that break no rule
	Fits       int      // of those evaluated
	Evaluated  int      // memory and, where it suffices, time were predicted
	Pruned     int      // legal, and shown to be worse than those returned without being evaluated
	Rejected   []Count  // illegal or too large, by reason, most frequent first
	Partial    bool     // the search was stopped
	Batches    [2]int64 // the smallest and the largest global batch of the plans that were compared
}

// Count is how many plans one reason rejects.
type Count struct {
	Reason  string
	N       int
	Example string  // the rule's own words for one of them
	Free    float64 // of the memory that must stay free, where that is the reason
}

// Ranked is a plan with its place.
type Ranked struct {
	Candidate
	Rank  int // equal plans share it
	Tie   bool
	Value float64 // by the objective, least is best
	Best  float64 // probability that it is the best of the rivals
}

// Reasons that are not rules: what does not fit, and what fits but leaves less free than
// is asked for.
const (
	statesTooLarge = "memory.states"      // what lives between steps alone
	savedTooLarge  = "memory.activations" // with the activations that a forward pass keeps
	peakTooLarge   = "memory.peak"
	statesTight    = "headroom.states"
	savedTight     = "headroom.activations"
	peakTight      = "headroom.peak"
)

// over is the reason to leave out a plan that uses so much: one where it exceeds the
// memory, the other where it leaves too little free.
func (s *searcher) over(used units.Bytes, large, tight string) Count {
	if used > estimate.Capacity(s.job) {
		return Count{Reason: large}
	}
	return Count{Reason: tight, Free: s.o.Headroom}
}

// layout is a legal plan up to what no rule looks at. A space has some 10^5, so that it holds
// no more than its cut does not say.
type layout struct {
	floor   float64          // of the value of all its ways
	plan    *strategies.Plan // of one of them, shared by cuts that are alike
	depth   *depth
	cut     int32
	ways    uint8 // that Space.variants gives for it
	buckets uint8 // of these, how many differ in their bucket alone: one group
}

// settings are what of a cut makes another job, of which a plan is still to be set.
type settings struct {
	precision  string
	microBatch int64
	recompute  strategies.Recomputation
}

func (c *cut) settings() settings { return settings{c.precision, c.microBatch, c.recompute} }

// base is the job that settings make, or why they make none.
type base struct {
	job *strategies.Job
	err error
}

// searcher is one search.
type searcher struct {
	ctx   context.Context
	job   *strategies.Job
	o     Options
	cuts  []cut
	bases map[settings]base
	limit units.Bytes
	plans []layout  // as listed
	owned []float64 // by layout, once a bar asks for it: its own floor, where there are many; 0: not known yet
	out   *Ranking
	shown Progress // of evaluation

	evaluators []estimate.Evaluator // one for each worker: what listing a plan builds, evaluating and finishing it find
}

// Rank ranks every legal plan of a job's space and returns the best that fit. The
// plan that the job has, if any, does not matter. What is returned is what
// estimating every plan would give, whatever the number of processors: bounds only
// leave out plans that cannot be among the best. A cancelled context ends the search
// with the best so far.
func Rank(ctx context.Context, j *strategies.Job, o Options) (*Ranking, error) {
	return rank(ctx, j, o, &Ranking{})
}

// rank is Rank into out, which holds the counts even where there is an error.
func rank(ctx context.Context, j *strategies.Job, o Options, out *Ranking) (*Ranking, error) {
	s, err := start(ctx, j, o, out)
	if err != nil {
		return nil, err
	}
	return out, s.finish(s.search())
}

// Reopen returns a job without its plan, but with its global batch: plans of the
// ranking then train alike.
func Reopen(j *strategies.Job) *strategies.Job {
	next := *j
	if !j.Open {
		next.Given.GlobalBatch, next.Given.GradAccumulation = j.Train.GlobalBatch, 0
	}
	next.Open, next.Plan, next.GivenPlan, next.Unchosen = true, strategies.Plan{}, nil, nil
	return &next
}

// start lists the space.
func start(ctx context.Context, j *strategies.Job, o Options, out *Ranking) (*searcher, error) {
	s, err := begin(ctx, j, o, out)
	if err != nil {
		return nil, err
	}
	return s, s.enumerate("listing", nil)
}

// begin makes a searcher that knows nothing yet.
func begin(ctx context.Context, j *strategies.Job, o Options, out *Ranking) (*searcher, error) {
	o.Objective = cmp.Or(o.Objective, Tokens)
	o.Top = cmp.Or(o.Top, defaultTop)
	if err := o.known(j); err != nil {
		return nil, err
	}
	out.Job, out.Options = j, o
	return &searcher{ctx: ctx, job: j, o: o, limit: units.Bytes(float64(estimate.Capacity(j)) * (1 - o.Headroom)), out: out,
		evaluators: make([]estimate.Evaluator, max(runtime.GOMAXPROCS(0), 1))}, nil
}

const defaultTop = 10

// known fails where the objective is a figure that nothing is known of.
func (o *Options) known(j *strategies.Job) error {
	switch {
	case o.Objective == Time && j.Given.GlobalBatch == 0:
		return diag.Errorf("train.global_batch: is missing, so each plan would train on a batch of its own, and the step of the smallest would win; give it, or rank by tokens")
	case o.Objective == Cost && o.Price(j) == 0:
		return diag.Errorf("run.price_per_gpu_hour: is missing, and hardware %s has no price, so no cost is known; give --price in US dollars, or a machine of a cloud, such as aws-p5", j.Hardware.Name)
	case o.Objective == Train && o.TrainTokens == 0:
		return diag.Errorf("run.tokens: is missing, so no time to train is known; say how much to train on, as in --tokens 2T, or rank by tokens")
	case o.Objective == Energy && j.Hardware.Laws.Power == nil:
		return diag.Errorf("hardware: %s has no power law, so no energy is known; rank by tokens, or take a machine whose power was measured", j.Hardware.Name)
	}
	return nil
}

// Price is what an hour of one GPU costs in US dollars, 0 where it is not known.
func (o *Options) Price(j *strategies.Job) float64 {
	return cmp.Or(o.Dollars, j.Hardware.Price.GPUHour.Value)
}

// reasons counts plans that are left out, by reason.
type reasons map[string]*Count

// add counts n plans. The first of a reason is its example.
func (r reasons) add(why Count, n int) {
	if known := r[why.Reason]; known != nil {
		known.N += n
		return
	}
	why.N = n
	r[why.Reason] = &why
}

// broken counts n plans that break a rule.
func (r reasons) broken(err error, n int) {
	why := Count{Reason: strategies.Rule(err)}
	if r[why.Reason] == nil { // else nobody reads the text
		why.Example = err.Error()
	}
	r.add(why, n)
}

// reject adds reasons to the ranking.
func (s *searcher) reject(r reasons) {
	for _, why := range r {
		s.out.Rejected = append(s.out.Rejected, *why)
	}
}

// listing is what one cut adds to a search.
type listing struct {
	plans      []layout
	batches    [2]int64 // the smallest and the largest global batch
	considered int
	legal      int
	rejected   reasons // of this cut and of those after it that are alike
	err        error   // the model cannot be built
}

// family is what cuts have in common that are alike: why plans of theirs are left out, and plans.
type family struct {
	rejected reasons
	plans    map[strategies.Plan]*kept
}

// kept is a plan with what it keeps of parameters, which does not depend on what is computed.
type kept struct {
	plan   strategies.Plan
	states units.Bytes
}

// add takes plans in that differ in nothing that a rule looks at.
func (l *listing) add(p layout, same []strategies.Plan, batch int64) {
	p.ways, p.buckets = uint8(len(same)), 1
	for int(p.buckets) < len(same) && same[p.buckets].Bucket != same[0].Bucket {
		p.buckets++
	}
	l.plans, l.batches = append(l.plans, p), span(l.batches, [2]int64{batch, batch})
}

// span is from the least to the most of two ranges, of which that from 0 is none.
func span(a, b [2]int64) [2]int64 {
	if a[0] == 0 {
		return b
	}
	if b[0] == 0 {
		return a
	}
	return [2]int64{min(a[0], b[0]), max(a[1], b[1])}
}

// enumerate lists the legal plans whose states fit, with their floors. What a cut adds is
// given to then, where there is one, on several processors, with the evaluator that knows its
// model.
func (s *searcher) enumerate(phase string, then func(*estimate.Evaluator, *listing)) error {
	s.cuts = s.o.Space.cuts(s.job)
	s.bases = map[settings]base{}
	for i := range s.cuts {
		x := s.cuts[i].settings()
		if _, ok := s.bases[x]; !ok {
			j, err := s.job.With(x.precision, x.microBatch, x.recompute)
			s.bases[x] = base{j, err}
		}
	}
	parts := make([]listing, len(s.cuts))
	runs := alike(s.cuts)
	var done atomic.Int64
	parallel.Workers(len(runs)-1, func(w int, next func() (int, bool)) {
		e := &s.evaluators[w]
		for k, ok := next(); ok; k, ok = next() {
			all := family{reasons{}, map[strategies.Plan]*kept{}}
			parts[runs[k]].rejected = all.rejected
			for i := runs[k]; i < runs[k+1] && s.ctx.Err() == nil; i++ {
				if s.list(e, i, &parts[i], all); then != nil && len(parts[i].plans) > 0 {
					then(e, &parts[i])
				}
				s.progress(Progress{Phase: phase, Done: int(done.Add(1)), Total: len(s.cuts)})
			}
		}
	})
	err := s.join(parts)
	s.out.Partial = s.ctx.Err() != nil
	if s.out.Legal > 0 || s.out.Partial {
		return nil
	}
	return s.nothingLegal(err)
}

// alike is where runs of cuts begin that differ in what is recomputed and in the micro batch
// alone, and so share layers, and after the last one where they end.
func alike(cuts []cut) (at []int) {
	for i := range cuts {
		x := cuts[i]
		if i > 0 {
			x.recompute, x.microBatch = cuts[i-1].recompute, cuts[i-1].microBatch
		}
		if i == 0 || x != cuts[i-1] {
			at = append(at, i)
		}
	}
	return append(at, len(cuts))
}

// list lists the legal plans of one cut whose states fit, with their floors, and counts the
// others.
func (s *searcher) list(e *estimate.Evaluator, i int, l *listing, all family) {
	c := &s.cuts[i]
	b := s.bases[c.settings()]
	if b.err != nil {
		l.err = b.err
		return
	}
	var j, scratch strategies.Job
	s.o.Space.plans(b.job, c, func(same []strategies.Plan, d *depth) bool {
		l.considered += len(same)
		j = *b.job
		d.set(&j)
		if err := j.SetPlan(same[0]); err != nil {
			all.rejected.broken(err, len(same))
			return true
		}
		l.legal += len(same)
		known := all.plans[j.Plan]
		if known == nil {
			plain := storing(&scratch, &j)
			plain.Train.MicroBatch = 1
			known = &kept{plan: j.Plan}
			if known.states, l.err = e.FloorMemory(plain); l.err != nil {
				return false
			}
			all.plans[j.Plan] = known
		}
		floor, why, err := s.floor(e, &j, &scratch, known.states)
		switch {
		case err != nil:
			l.err = err
			return false
		case why.Reason != "":
			all.rejected.add(why, len(same))
			return true
		}
		l.add(layout{floor: floor, plan: &known.plan, depth: d, cut: int32(i)}, same, j.Train.GlobalBatch)
		return true
	})
	l.plans = slices.Clone(l.plans) // without room to grow
}

// storing is a job that recomputes nothing, which overwrites scratch.
func storing(scratch, j *strategies.Job) *strategies.Job {
	*scratch = *j
	scratch.Train.Recompute, scratch.Train.RecomputeModules, scratch.Train.RecomputeNumLayers = ops.NoRecompute, 0, nil
	return scratch
}

// loosely reports whether the floor of a job may be that of one which recomputes nothing:
// kernels that run again only add to it, so that no model need be built of most ways to
// recompute. What they save is memory, which must not be what counts, nor what decides.
func (s *searcher) loosely(j *strategies.Job) bool {
	return s.many() && j.Train.Recompute != ops.NoRecompute && !j.Train.OffloadActivations && j.Train.OffloadModules == 0 && s.o.Objective != Memory
}

// many reports whether there are more cuts than models are built of.
func (s *searcher) many() bool { return len(s.cuts) > cmp.Or(s.o.manyCuts, manyCuts) }

// manyCuts is from how many on the models of all take longer to build than what own floors
// spare is to evaluate: DeepSeek-V3 on 2048 GPUs has 27,720 (18 s and 9, 2 cores), Llama 3.1 405B on 4096 945 (1.6 and 2.1).
const manyCuts = 4096

// floor is what the value of a legal plan cannot fall below, or the reason to leave it
// out: the least that it needs, its states first, does not fit. It sets the ways that keep
// least, and overwrites scratch.
func (s *searcher) floor(e *estimate.Evaluator, j, scratch *strategies.Job, states units.Bytes) (float64, Count, error) {
	if states > s.limit {
		return 0, s.over(states, statesTooLarge, statesTight), nil
	}
	j.Plan.ReshardAfterForward, j.Plan.SyncEveryMicroBatch = &yes, &no
	of := j
	if s.loosely(j) {
		of = storing(scratch, j)
	}
	least, err := e.FloorPeak(of)
	if err == nil && least > s.limit && of != j {
		of = j
		least, err = e.FloorPeak(of)
	}
	if err == nil && least > s.limit {
		return 0, s.over(least, savedTooLarge, savedTight), nil
	}
	value, err := s.o.Objective.floor(e, of, least)
	return value, Count{}, err
}

// own is the floor of a plan whose floor is that of another.
func (s *searcher) own(e *estimate.Evaluator, j *strategies.Job) float64 {
	if s.loosely(j) {
		if floor, err := s.o.Objective.floor(e, j, 0); err == nil {
			return floor
		}
	}
	return math.Inf(-1) // above no bar
}

// join puts together what the cuts add, in their order, and returns the first error.
func (s *searcher) join(parts []listing) error {
	rejected := reasons{}
	var err error
	plans := 0
	for i := range parts {
		plans += len(parts[i].plans)
	}
	s.plans = make([]layout, 0, plans)
	for i := range parts {
		p := &parts[i]
		s.out.Considered += p.considered
		s.out.Legal += p.legal
		s.out.Batches = span(s.out.Batches, p.batches)
		if err == nil {
			err = p.err
		}
		for _, why := range p.rejected {
			rejected.add(*why, why.N)
		}
		s.plans = append(s.plans, p.plans...)
		p.plans = nil
	}
	s.reject(rejected)
	return err
}

// nothingLegal is the error of a space without a legal plan: why the model cannot be
// built, where it cannot, else the most frequent reason.
func (s *searcher) nothingLegal(err error) error {
	switch {
	case err != nil:
		return err
	case len(s.out.Rejected) > 0:
		s.sortRejected()
		return diag.Errorf("no plan is legal: %s", s.out.Rejected[0].Example)
	}
	return diag.Errorf("no plan within the bounds has %s; leave one of these keys out, or loosen the bounds, such as the largest tp", s.o.Space.Fix)
}

func (s *searcher) sortRejected() {
	slices.SortFunc(s.out.Rejected, func(a, b Count) int {
		if c := cmp.Compare(b.N, a.N); c != 0 {
			return c
		}
		return cmp.Compare(a.Reason, b.Reason)
	})
}

func (s *searcher) progress(p Progress) {
	if s.o.Progress != nil {
		s.o.Progress(p)
	}
}

// apply makes of a job that of a plan. scratch is overwritten.
func (s *searcher) apply(scratch *strategies.Job, f found) { s.set(scratch, &s.plans[f.layout], f.way) }

// set makes of a job that of a layout and one of its ways. scratch is overwritten.
func (s *searcher) set(scratch *strategies.Job, l *layout, way uint8) {
	*scratch = *s.bases[s.cuts[l.cut].settings()].job
	l.depth.set(scratch)
	p := *l.plan
	s.o.Space.variant(scratch, &p, int(way))
	scratch.Take(p)
}

// search returns the best plans.
func (s *searcher) search() *top {
	best := &top{most: max(s.o.Top, rivals)}
	s.each(func() (float64, bool) {
		bar, full := best.bar()
		return bar, full && !s.o.Exhaustive
	}, func(f *scored) { best.add(f, s.o.Objective) })
	return best
}

// same is the relative difference of two values that is rounding.
const same = 1e-9

// finish estimates the best plans in full and gives them their places.
func (s *searcher) finish(best *top) error {
	candidates := make([]Ranked, len(best.list))
	errs := make([]error, len(best.list))
	parallel.Workers(len(best.list), func(w int, next func() (int, bool)) {
		e := &s.evaluators[w]
		for i, ok := next(); ok; i, ok = next() {
			var j strategies.Job
			s.apply(&j, best.list[i].found)
			r, err := e.Estimate(&j, estimate.Options{})
			if err != nil {
				errs[i] = err
				continue
			}
			candidates[i] = Ranked{Candidate: Candidate{&j, r}, Value: best.list[i].value}
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	likely(candidates, s.o.Objective)
	for i := range candidates {
		c := &candidates[i]
		if c.Rank = i + 1; i > 0 && c.Value <= candidates[i-1].Value*(1+same) {
			c.Rank, c.Tie, candidates[i-1].Tie = candidates[i-1].Rank, true, true
		}
	}
	s.out.Plans, s.out.Rivals = candidates[:min(len(candidates), s.o.Top)], len(candidates)
	return nil
}
