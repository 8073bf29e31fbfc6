package whatif

import (
	"slices"
	"strconv"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Size is a job on so many GPUs.
type Size struct {
	GPUs       int64
	Result     *estimate.Result
	Speedup    float64 // of the throughput over the base of the curve; 0 below it
	Efficiency float64 // speedup over the growth in GPUs
	Err        error   // the rule that refuses the size; Result is nil then
}

// Curve is how a job scales.
type Curve struct {
	Kind  string // strong or weak
	Sizes []Size
	Base  int // index of the first size that fits, of the first legal one where none does; -1: none
	Break *Break
	Apart []int // sizes before the break, or of all, that are refused or pay too little: they suit batch or stages badly
}

// Break is where a curve stops paying: none of its larger sizes pays again.
type Break struct {
	At   int    // index of the size
	Rule string // that refuses it; "" when its efficiency is too low
	Term string // the part of the step that takes most more GPU time per token than at the base, as TimeTerms names it
	From float64
	To   float64 // GPU-seconds per million tokens that the term takes at the base and at the break
}

// Scaling is a job grown in both ways.
type Scaling struct {
	Job          *strategies.Job
	Batch        int64 // sequences per step of Strong: those of the job
	Strong, Weak *Curve
	Least        float64 // efficiency below which a curve breaks
}

// LeastEfficiency is below what scaling is called broken.
const LeastEfficiency = 0.8

// Scale grows a job to the given numbers of GPUs (ascending): strong scaling at the
// job's global batch, with micro batches that shrink where a replica gets fewer
// sequences, weak scaling at its batch per GPU. The degrees of the plan stay, data
// parallelism takes the GPUs; a plan that the job leaves open is picked at every
// size. It fails when the job is legal at no size.
func Scale(j *strategies.Job, gpus []int64) (*Scaling, error) {
	base, err := Predict(j, estimate.Options{})
	if err != nil {
		return nil, err
	}
	out := &Scaling{Job: j, Batch: base.Job.Train.GlobalBatch, Least: LeastEfficiency}
	for _, c := range []struct {
		kind string
		into **Curve
		at   func(j, base *strategies.Job, n int64) (*strategies.Job, error)
	}{{"strong", &out.Strong, strong}, {"weak", &out.Weak, weak}} {
		curve := &Curve{Kind: c.kind}
		curve.Sizes = parallel.Map(gpus, func(n int64) Size {
			s := Size{GPUs: n}
			var next *strategies.Job
			if next, s.Err = c.at(j, base.Job, n); s.Err == nil {
				s.Result, s.Err = Predict(next, estimate.Options{})
			}
			return s
		})
		for _, s := range curve.Sizes {
			if s.Err != nil && !diag.IsInput(s.Err) {
				return nil, s.Err
			}
		}
		if curve.measure(out.Least); curve.Base < 0 {
			return nil, curve.Sizes[0].Err
		}
		*c.into = curve
	}
	return out, nil
}

// strong is a job on n GPUs with the global batch of base.
func strong(j, base *strategies.Job, n int64) (*strategies.Job, error) {
	next := *j
	next.GPUs = n
	next.Given.GlobalBatch, next.Given.GradAccumulation = base.Train.GlobalBatch, 0
	if j.Open {
		return &next, nil
	}
	p := j.Plan
	dp := max(n/(p.TP*p.CP*p.PP), 1)
	replica := base.Train.GlobalBatch / dp
	next.Given.MicroBatch = min(base.Train.MicroBatch, max(replica, 1))
	for replica > 0 && replica%next.Given.MicroBatch != 0 {
		next.Given.MicroBatch--
	}
	p.DP = 0
	return &next, next.SetPlan(p)
}

// weak is a job on n GPUs with the batch per replica of base.
func weak(j, base *strategies.Job, n int64) (*strategies.Job, error) {
	next := *j
	next.GPUs = n
	if j.Open {
		if base.Train.GlobalBatch*n%base.GPUs != 0 {
			return nil, diag.Errorf("train.global_batch: %d on %d GPUs is no whole number of sequences for gpus=%d; give a multiple of %d, as in --global-batch %d, or sizes that are multiples of %d GPUs",
				base.Train.GlobalBatch, base.GPUs, n, base.GPUs, (base.Train.GlobalBatch/base.GPUs+1)*base.GPUs, base.GPUs)
		}
		next.Given.GlobalBatch, next.Given.GradAccumulation = base.Train.GlobalBatch*n/base.GPUs, 0
		return &next, nil
	}
	next.Given.MicroBatch, next.Given.GradAccumulation, next.Given.GlobalBatch = base.Train.MicroBatch, base.Train.GradAccumulation, 0
	p := j.Plan
	p.DP = 0
	return &next, next.SetPlan(p)
}

// base is the index of the size that others are held against: nobody runs on one that does
// not fit, so that it proves nothing.
func (c *Curve) base() int {
	if i := slices.IndexFunc(c.Sizes, func(s Size) bool { return s.Err == nil && s.Result.Memory.Fits }); i >= 0 {
		return i
	}
	return slices.IndexFunc(c.Sizes, func(s Size) bool { return s.Err == nil })
}

// measure fills in efficiencies and finds the break.
func (c *Curve) measure(least float64) {
	if c.Base = c.base(); c.Base < 0 {
		return
	}
	base := c.Sizes[c.Base].Result
	for i := c.Base; i < len(c.Sizes); i++ {
		s := &c.Sizes[i]
		if s.Err == nil {
			growth := float64(s.GPUs) / float64(base.Job.GPUs)
			s.Efficiency = s.Result.TokensPerSecond / base.TokensPerSecond
			s.Speedup = s.Efficiency * growth
		}
	}
	last := len(c.Sizes) - 1
	for !c.Sizes[last].pays(least) { // the base does
		last--
	}
	for i := c.Base; i < last; i++ {
		if !c.Sizes[i].pays(least) {
			c.Apart = append(c.Apart, i)
		}
	}
	rest := c.Sizes[last+1:]
	if i := slices.IndexFunc(rest, func(s Size) bool { return s.Err == nil }); i >= 0 {
		c.Break = grown(base, rest[i].Result)
		c.Break.At = last + 1 + i
	} else if len(rest) > 0 {
		c.Break = &Break{At: last + 1, Rule: rest[0].Err.Error()}
	}
}

// pays reports whether a size is legal and efficient.
func (s *Size) pays(least float64) bool { return s.Err == nil && s.Efficiency >= least }

// grown finds the term of the step that takes most more GPU time per token.
func grown(base, r *estimate.Result) *Break {
	per := func(r *estimate.Result) float64 { return float64(r.Job.GPUs) / r.Job.Tokens() * 1e6 }
	before, after := TimeTerms(base), TimeTerms(r)
	b := &Break{}
	most := 0.0
	for _, t := range after {
		from, to := value(before, t.Key)*per(base), t.Value*per(r)
		if more := to - from; more > most || b.Term == "" {
			most, b.Term, b.From, b.To = more, t.Key, from, to
		}
	}
	return b
}

// GPUCounts are the sizes of an axis of GPUs.
func GPUCounts(a Axis) ([]int64, error) {
	if a.Path != "gpus" {
		return nil, diag.Errorf("%s: scaling has one axis, gpus, as in gpus=8..4096", a.Path)
	}
	var out []int64
	for _, v := range a.Values {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 || n > 1<<20 {
			return nil, diag.Errorf("gpus: %q is no number of GPUs from 1 to %d", v, 1<<20)
		}
		if len(out) > 0 && n <= out[len(out)-1] {
			return nil, diag.Errorf("gpus: %d follows %d; write the sizes in ascending order", n, out[len(out)-1])
		}
		out = append(out, n)
	}
	return out, nil
}
