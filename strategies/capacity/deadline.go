package capacity

import (
	"math"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/search"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// Cluster is the answer for one kind of machine.
type Cluster struct {
	Job      *strategies.Job // as asked, on some number of GPUs
	Deadline units.Seconds
	Met      bool
	Training *Training // of the smallest cluster that makes it, else of the fastest; nil: no size is legal and fits
	Nodes    int64
	Floor    int64 // nodes that could make it at the arithmetic peak, without a loss
	From     int64 // nodes of the smallest size that was looked at
	Every    int64 // of the legal sizes from there on multiples of so many nodes were looked at, and all of those between the last of them and Nodes
	Tried    int   // sizes that were looked at
	Err      error // why no size was possible
}

// Deadline finds the smallest number of whole nodes on which a job trains on its
// tokens (run.tokens) in time, failures and checkpoints included. The plan is the
// best simple one of every size, or the job's own with data parallelism over the
// GPUs. Sizes up to most GPUs are tried: from the least that kernels alone leave
// possible upwards until one makes it. More nodes may be slower, where they suit batch
// or stages less: the smaller sizes are then looked at, too, where they are many the
// roundest, and the smallest that makes it is the answer. Where none makes it, it is the
// fastest found on the way to the largest that is legal.
func Deadline(j *strategies.Job, deadline units.Seconds, most int64) (*Cluster, error) {
	if !j.Run.Tokens.IsSet() {
		return nil, diag.Errorf("run.tokens: is missing; say how much to train on, as in --tokens 2T")
	}
	node := j.Hardware.Node.GPUs.Value
	last := most / node
	if last < 1 {
		return nil, diag.Errorf("--max-gpus: %d; a node of %s has %d", most, j.Hardware.Name, node)
	}
	c := &Cluster{Job: j, Deadline: deadline, Floor: floor(j, deadline)}
	c.From = max(c.Floor, int64(math.Ceil(least(j, last*node)*float64(j.Run.Tokens.Value)/float64(deadline)/float64(node))))
	s := sizing{Cluster: c, node: node, last: last, likely: math.MaxInt64}
	for _, step := range []func() error{s.climb, s.narrow, s.settle} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// sizing is a search for the smallest cluster, in nodes.
type sizing struct {
	*Cluster
	node   int64 // GPUs of one
	last   int64 // the largest size that may be tried
	below  int64 // the largest size known to be late
	above  int64 // the smallest known not to be, or one more than there are
	guess  int64 // what the latest size says of the right one; 0: nothing
	likely int64 // the least of them
	scout  search.Scout
}

// climb goes upwards until a size is in time or none is left.
func (s *sizing) climb() error {
	for n := min(s.From, s.last); n <= s.last; {
		end := min(2*n, s.last+1)
		k, in, err := s.first(n, end)
		switch {
		case err != nil:
			return err
		case k == 0:
			n = end
			continue
		case in:
			s.above = k
			return nil
		}
		s.below = k
		n = min(max(k+1, s.guess), 4*k)
	}
	if s.Tried == 0 {
		_, s.Err = s.at(min(s.From, s.last) * s.node)
	}
	s.above = s.last + 1
	return nil
}

// narrow looks, where no size is in time yet, between the last that was late and the
// largest, the likely ones first.
func (s *sizing) narrow() error {
	for helped := true; !s.Met && s.above-s.below > 1; {
		width := s.above - s.below
		mid := (s.below + s.above) / 2
		if helped && s.guess > 0 {
			mid = min(max(s.guess, s.below+1), s.above-1)
		}
		k, in, err := s.first(mid, s.above)
		switch {
		case err != nil:
			return err
		case k == 0: // nothing legal from there on
			s.above, helped = mid, false
			continue
		case in:
			s.above = k
		default:
			s.below = k
		}
		helped = !helped || 2*(s.above-s.below) <= width
	}
	return nil
}

// unlikely is the share of the nodes that would be enough if GPU-hours stayed what they are
// at best, below which no size is looked at. A size that suits the batch, so that a pipeline
// may be interleaved, has taken two thirds of the GPU-hours of sizes around it.
const unlikely = 0.6

// settle looks at the sizes below the answer, or at all where there is none. What a smaller
// size has shown to be possible may make yet smaller ones likely.
func (s *sizing) settle() error {
	if !s.Met {
		return s.smaller(s.last + 1)
	}
	for least, end := s.From, s.Nodes; ; end = s.From {
		if s.From = max(least, int64(unlikely*float64(s.likely))); s.From >= end {
			s.From = end
			return nil
		}
		if err := s.smaller(end); err != nil {
			return err
		}
	}
}

// mostSizes is how many sizes are looked at one by one, at some 20 ms each.
const mostSizes = 64

// smaller looks for a size below a number of nodes that makes the deadline, from the
// smallest on, and between it and the one before. Where there are many, these are
// multiples of a power of two: what divides well suits batch and stages best.
func (s *sizing) smaller(end int64) error {
	var sizes []*strategies.Job
	for n := s.From; n < end; n++ {
		if j, err := s.on(n * s.node); err == nil && search.Legal(j) {
			sizes = append(sizes, j)
		}
	}
	round, every := sizes, int64(1)
	for ; len(round) > mostSizes; every *= 2 {
		round = slices.DeleteFunc(slices.Clone(round), func(j *strategies.Job) bool { return j.GPUs%(2*every*s.node) != 0 })
	}
	s.Every = max(s.Every, every)
	late := int64(0) // GPUs
	for _, j := range round {
		in, err := s.scouted(j)
		if err != nil {
			return err
		}
		if in {
			end = j.GPUs / s.node
			break
		}
		late = j.GPUs
	}
	for _, j := range sizes {
		if j.GPUs <= late || j.GPUs >= end*s.node {
			continue
		}
		if in, err := s.scouted(j); in || err != nil {
			return err
		}
	}
	return nil
}

// scouted reports whether a size is in time, which a scout may rule out at less cost.
func (s *sizing) scouted(j *strategies.Job) (bool, error) {
	limit := s.Deadline
	switch {
	case s.Met:
	case s.Training == nil:
		limit = units.Seconds(math.Inf(1))
	default: // of those that are late the fastest is the answer
		limit = max(limit, s.Training.Time)
	}
	r, err := s.scout.Within(j, float64(limit)/float64(s.Job.Run.Tokens.Value))
	if r == nil {
		s.Tried++
		return false, err
	}
	return s.makes(j.GPUs/s.node, r)
}

// first estimates the first size in [a, b) that is legal, and reports whether it is in
// time; a size of 0 says that there is none.
func (s *sizing) first(a, b int64) (int64, bool, error) {
	for n := a; n < b; n++ {
		if in, err := s.fastest(n); !diag.IsInput(err) {
			return n, in, err
		}
	}
	return 0, false, nil
}

// fastest reports whether a size is in time with its fastest plan.
func (s *sizing) fastest(n int64) (bool, error) {
	j, err := s.on(n * s.node)
	if err != nil {
		return false, err
	}
	r, err := s.scout.Within(j, math.Inf(1))
	if err != nil {
		return false, err
	}
	return s.makes(n, r)
}

// makes reports whether a size is in time, and keeps it when it is the best answer so far. One
// without a result does not fit.
func (s *sizing) makes(n int64, r *estimate.Result) (bool, error) {
	s.Tried++
	s.guess = 0
	if r == nil {
		return false, nil
	}
	t, err := Train(r)
	if diag.IsInput(err) { // so many GPUs that failures leave no time
		return false, nil
	}
	if err != nil {
		return false, err
	}
	in := t.Time <= s.Deadline
	s.guess = int64(math.Ceil(float64(n) * float64(t.Time/s.Deadline)))
	s.likely = min(s.likely, s.guess)
	if in || !s.Met && (s.Training == nil || t.Time < s.Training.Time) {
		s.Training, s.Nodes, s.Met = t, n, s.Met || in
	}
	return in, nil
}

// at estimates the job on so many GPUs.
func (c *Cluster) at(gpus int64) (*estimate.Result, error) {
	j, err := c.on(gpus)
	if err != nil {
		return nil, err
	}
	return whatif.Predict(j, estimate.Options{})
}

// on is the job on so many GPUs.
func (c *Cluster) on(gpus int64) (*strategies.Job, error) {
	next := *c.Job
	next.GPUs = gpus
	if !c.Job.Open {
		p := c.Job.Plan
		p.DP = 0
		if err := next.SetPlan(p); err != nil {
			return nil, err
		}
	}
	return &next, nil
}

// least is the time of a GPU that a token takes at least on up to so many, 0 where that is
// not known before.
func least(j *strategies.Job, gpus int64) float64 {
	if !j.Open {
		return 0
	}
	next := *j
	next.GPUs = gpus
	return search.Floor(&next)
}

// floor is the number of nodes that have enough arithmetic, at the highest peak of
// the GPU and without any loss, to be in time.
func floor(j *strategies.Job, deadline units.Seconds) int64 {
	var peak units.FLOPRate
	for _, d := range []string{"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"} {
		peak = max(peak, j.Hardware.GPU.Peak.Of(d))
	}
	tokens := float64(j.Run.Tokens.Value)
	perToken := j.Model.StepFLOPs(j.Train.SequenceLength, j.Train.Attended(), true) / units.FLOPs(j.Train.PerSequence())
	gpus := tokens * float64((perToken).At(peak)) / float64(deadline)
	return max(1, int64(math.Ceil(gpus/float64(j.Hardware.Node.GPUs.Value))))
}
