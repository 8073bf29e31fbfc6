package capacity

import (
	"math"

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
	Every    int   // one in so many of the legal sizes from there on was looked at, and all of those between the last of them and Nodes
	Tried    int   // sizes that were looked at
	Err      error // why no size was possible
}

// Deadline finds the smallest number of whole nodes on which a job trains on its
// tokens (run.tokens) in time, failures and checkpoints included. The plan is the
// best simple one of every size, or the job's own with data parallelism over the
// GPUs. Sizes up to most GPUs are tried: from the least that kernels alone leave
// possible upwards until one makes it. More nodes may be slower, where they suit batch
// or stages less: the smaller sizes are then looked at, too, where they are many one in
// some, and the smallest that makes it is the answer. Where none makes it, it is the
// fastest found on the way to the largest that is legal.
func Deadline(j *strategies.Job, deadline units.Seconds, most int64) (*Cluster, error) {
	if !j.Run.Tokens.IsSet() {
		return nil, diag.Errorf("run.tokens: is missing; say how much to train on, as in --tokens 2T")
	}
	node := j.Hardware.Node.GPUs.Value
	c := &Cluster{Job: j, Deadline: deadline, Floor: floor(j, deadline)}
	last := most / node
	if last < 1 {
		return nil, diag.Errorf("--max-gpus: %d; a node of %s has %d", most, j.Hardware.Name, node)
	}

	// from returns the first size in [a, b) that is legal, 0 when there is none.
	from := func(a, b int64) (int64, *estimate.Result, error) {
		for n := a; n < b; n++ {
			r, err := c.at(n * node)
			if err == nil {
				return n, r, nil
			}
			if !diag.IsInput(err) {
				return 0, nil, err
			}
			if c.Err == nil {
				c.Err = err
			}
		}
		return 0, nil, nil
	}
	guess := int64(0)              // what the latest size says of the right one; 0: nothing
	likely := int64(math.MaxInt64) // the least of them
	// makes estimates a size and keeps it when it is the best answer so far.
	makes := func(n int64, r *estimate.Result) (bool, error) {
		c.Tried++
		guess = 0
		if !r.Memory.Fits {
			return false, nil
		}
		t, err := Train(r)
		if err != nil {
			if diag.IsInput(err) { // so many GPUs that failures leave no time
				return false, nil
			}
			return false, err
		}
		in := t.Time <= deadline
		guess = int64(math.Ceil(float64(n) * float64(t.Time/deadline)))
		likely = min(likely, guess)
		if in || !c.Met && (c.Training == nil || t.Time < c.Training.Time) {
			c.Training, c.Nodes, c.Met = t, n, c.Met || in
		}
		return in, nil
	}

	c.From = max(c.Floor, int64(math.Ceil(least(j, last*node)*float64(j.Run.Tokens.Value)/float64(deadline)/float64(node))))
	below, above := int64(0), int64(0) // the largest size known to be late; the smallest that is not, or last + 1
	for n := min(c.From, last); above == 0; {
		end := min(2*n, last+1)
		k, r, err := from(n, end)
		if err != nil {
			return nil, err
		}
		if k > 0 {
			in, err := makes(k, r)
			if err != nil {
				return nil, err
			}
			if in {
				above = k
				break
			}
			below = k
		}
		if n = end; k > 0 {
			n = min(max(k+1, guess), 4*k)
		}
		if n > last {
			above = last + 1
		}
	}
	for helped := true; !c.Met && above-below > 1; {
		width := above - below
		mid := (below + above) / 2
		if helped && guess > 0 {
			mid = min(max(guess, below+1), above-1)
		}
		k, r, err := from(mid, above)
		if err != nil {
			return nil, err
		}
		if k == 0 { // nothing legal from there on
			above, helped = mid, false
			continue
		}
		in, err := makes(k, r)
		if err != nil {
			return nil, err
		}
		if in {
			above = k
		} else {
			below = k
		}
		helped = !helped || 2*(above-below) <= width
	}
	if !c.Met {
		return c, c.smaller(last+1, node, makes)
	}
	for least, end := c.From, c.Nodes; ; end = c.From {
		// What a smaller size has shown to be possible may make yet smaller ones likely.
		if c.From = max(least, int64(unlikely*float64(likely))); c.From >= end {
			c.From = end
			return c, nil
		}
		if err := c.smaller(end, node, makes); err != nil {
			return nil, err
		}
	}
}

// unlikely is the share of the nodes that would be enough if GPU-hours stayed what they are
// at best, below which no size is looked at.
const unlikely = 0.9

// mostSizes is about how many sizes are looked at one by one, at some 20 ms each.
const mostSizes = 32

// smaller looks for a size below a number of nodes that makes the deadline, from the
// smallest on, and between it and the one before.
func (c *Cluster) smaller(end, node int64, makes func(int64, *estimate.Result) (bool, error)) error {
	var sizes []*strategies.Job
	for n := c.From; n < end; n++ {
		if j, err := c.on(n * node); err == nil && search.Legal(j) {
			sizes = append(sizes, j)
		}
	}
	every := (len(sizes) + mostSizes - 1) / mostSizes
	c.Every = max(c.Every, every)
	var scout search.Scout
	in := func(j *strategies.Job) (bool, error) {
		limit := c.Deadline
		switch {
		case c.Met:
		case c.Training == nil:
			limit = units.Seconds(math.Inf(1))
		default: // of those that are late the fastest is the answer
			limit = max(limit, c.Training.Time)
		}
		r, err := scout.Within(j, float64(limit)/float64(c.Job.Run.Tokens.Value))
		if r == nil {
			c.Tried++
			return false, err
		}
		return makes(j.GPUs/node, r)
	}
	for i := 0; i < len(sizes); i += every {
		ok, err := in(sizes[i])
		if err != nil {
			return err
		}
		if ok {
			sizes = sizes[max(i-every+1, 0):i]
			break
		}
		if i+every >= len(sizes) {
			sizes = sizes[i+1:]
		}
	}
	for _, j := range sizes {
		if ok, err := in(j); ok || err != nil {
			return err
		}
	}
	return nil
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
	perToken := j.Model.StepFLOPs(j.Train.SequenceLength, j.Train.Attended(), true) / units.FLOPs(j.Train.SequenceLength)
	gpus := tokens * float64((perToken).At(peak)) / float64(deadline)
	return max(1, int64(math.Ceil(gpus/float64(j.Hardware.Node.GPUs.Value))))
}
