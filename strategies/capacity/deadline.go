package capacity

import (
	"math"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
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
	Tried    int   // sizes that were estimated
	Err      error // why no size was possible
}

// Deadline finds the smallest number of whole nodes on which a job trains on its
// tokens (run.tokens) in time, failures and checkpoints included. The plan is the
// best simple one of every size, or the job's own with data parallelism over the
// GPUs. Sizes up to most GPUs are tried: from the floor upwards until one makes it,
// then between the last two. That takes for granted that more nodes are not slower;
// the next size is the one that would be in time if the GPU-hours stayed the same,
// or the middle when that was of no help. Where none makes it, the same search ends
// at the largest that is legal.
func Deadline(j *strategies.Job, deadline units.Seconds, most int64) (*Cluster, error) {
	if !j.Run.Tokens.IsSet() {
		return nil, diag.Errorf("run.tokens: is missing; say how much to train on, as in --tokens 2T")
	}
	node := j.Hardware.Node.GPUs.Value
	c := &Cluster{Job: j, Deadline: deadline, Floor: floor(j, deadline)}
	s := sizing{Cluster: c, last: most / node}
	if s.last < 1 {
		return nil, diag.Errorf("--max-gpus: %d; a node of %s has %d", most, j.Hardware.Name, node)
	}
	if err := s.climb(); err != nil {
		return nil, err
	}
	if err := s.narrow(); err != nil {
		return nil, err
	}
	return c, nil
}

// sizing is a search for the smallest cluster, in nodes.
type sizing struct {
	*Cluster
	last  int64 // the largest size that may be tried
	below int64 // the largest size known to be late
	above int64 // the smallest known not to be, or one more than there are
	guess int64 // what the latest size says of the right one; 0: nothing
}

// climb goes from the floor upwards until a size is in time or none is left.
func (s *sizing) climb() error {
	for n := min(s.Floor, s.last); n <= s.last; {
		end := min(2*n, s.last+1)
		k, in, err := s.try(n, end)
		if err != nil {
			return err
		}
		switch {
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
	s.above = s.last + 1
	return nil
}

// narrow closes in on the smallest size between the two.
func (s *sizing) narrow() error {
	for helped := true; s.above-s.below > 1; {
		width := s.above - s.below
		mid := (s.below + s.above) / 2
		if helped && s.guess > 0 {
			mid = min(max(s.guess, s.below+1), s.above-1)
		}
		k, in, err := s.try(mid, s.above)
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

// try estimates the first size in [a, b) that is legal, and reports whether it is in
// time; a size of 0 says that there is none.
func (s *sizing) try(a, b int64) (int64, bool, error) {
	for n := a; n < b; n++ {
		r, err := s.at(n * s.Job.Hardware.Node.GPUs.Value)
		if err == nil {
			in, err := s.makes(n, r)
			return n, in, err
		}
		if !diag.IsInput(err) {
			return 0, false, err
		}
		if s.Err == nil {
			s.Err = err
		}
	}
	return 0, false, nil
}

// makes reports whether a size is in time, and keeps it when it is the best answer so far.
func (s *sizing) makes(n int64, r *estimate.Result) (bool, error) {
	s.Tried++
	s.guess = 0
	if !r.Memory.Fits {
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
	if in || !s.Met && (s.Training == nil || t.Time < s.Training.Time) {
		s.Training, s.Nodes, s.Met = t, n, s.Met || in
	}
	return in, nil
}

// at estimates the job on so many GPUs.
func (c *Cluster) at(gpus int64) (*estimate.Result, error) {
	next := *c.Job
	next.GPUs = gpus
	if !c.Job.Open {
		p := c.Job.Plan
		p.DP = 0
		if err := next.SetPlan(p); err != nil {
			return nil, err
		}
	}
	return whatif.Predict(&next, estimate.Options{})
}

// floor is the number of nodes that have enough arithmetic, at the highest peak of
// the GPU and without any loss, to be in time.
func floor(j *strategies.Job, deadline units.Seconds) int64 {
	var peak units.FLOPRate
	for _, d := range []string{"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"} {
		peak = max(peak, j.Hardware.GPU.Peak.Of(d))
	}
	tokens := float64(j.Run.Tokens.Value)
	perToken := j.Model.StepFLOPs(j.Train.SequenceLength, j.Train.Attended(), true) / units.FLOPs(j.Train.SequenceLength)
	gpus := tokens * float64((perToken).At(peak)) / float64(deadline)
	return max(1, int64(math.Ceil(gpus/float64(j.Hardware.Node.GPUs.Value))))
}
