package capacity

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// Quantity is what can be made as large as a cluster holds.
type Quantity struct {
	Name, Path string // path in a job file
	Step, Most int64  // of a number; 0: a name of the model catalog
}

// Quantities are the known ones.
var Quantities = []Quantity{
	{"sequence", "train.sequence_length", 1024, 1 << 24},
	{"micro-batch", "train.micro_batch", 1, 1 << 20},
	{"model", "model", 0, 0},
}

// ParseQuantity returns the quantity of a name.
func ParseQuantity(name string) (Quantity, error) {
	names := make([]string, len(Quantities))
	for i, q := range Quantities {
		if names[i] = q.Name; q.Name == name {
			return q, nil
		}
	}
	return Quantity{}, diag.Errorf("%q is not a quantity%s", name, diag.DidYouMean(name, names))
}

// Tried is one value that was tried.
type Tried struct {
	Value  string
	Result *estimate.Result // nil when a rule refuses it
	Err    error
}

func (t *Tried) fits() bool { return t.Result != nil && t.Result.Memory.Fits }

// Largest is the largest value that fits, and the next one tried, which does not.
type Largest struct {
	Quantity Quantity
	Best     *Tried // nil: nothing fits
	Next     *Tried // nil: even the largest fits; without Best the one that lacks least
	Count    int    // of values tried
}

// FindLargest finds the largest value of a quantity with which a job fits. decode
// makes the job of a value. Numbers are doubled until one does not fit, then
// bisected; of the catalog's models the first that fits is taken, the largest first.
// It fails when no value makes a legal job.
func FindLargest(q Quantity, decode func(value string) (*strategies.Job, error)) (*Largest, error) {
	out := &Largest{Quantity: q}
	var refused error
	try := func(value string) (*Tried, error) {
		t := &Tried{Value: value}
		var j *strategies.Job
		if j, t.Err = decode(value); t.Err == nil {
			t.Result, t.Err = whatif.Predict(j, estimate.Options{})
		}
		out.Count++
		switch {
		case t.Err != nil && !diag.IsInput(t.Err):
			return nil, t.Err
		case t.Err != nil:
			if refused == nil {
				refused = t.Err
			}
		case t.fits():
			out.Best = t
			return t, nil
		}
		if out.Next == nil || out.Best != nil || lacksLess(t, out.Next) {
			out.Next = t
		}
		return t, nil
	}
	var err error
	if q.Step == 0 {
		err = largestModel(try)
	} else {
		err = largestNumber(q.values(decode), try)
	}
	if err == nil && out.Best == nil && out.Next != nil && out.Next.Result == nil {
		err = refused
	}
	return out, err
}

// lacksLess reports whether a is nearer to fitting than b.
func lacksLess(a, b *Tried) bool {
	if a.Result == nil || b.Result == nil {
		return a.Result != nil
	}
	return a.Result.Memory.DeviceUsed < b.Result.Memory.DeviceUsed
}

func largestModel(try func(string) (*Tried, error)) error {
	list := model.Catalog()
	slices.SortStableFunc(list, func(a, b model.Entry) int { return cmp.Compare(b.Parameters, a.Parameters) })
	for _, e := range list {
		if t, err := try(e.Name); err != nil || t.fits() {
			return err
		}
	}
	return nil
}

// values lists what is tried of a number, in ascending order: of micro batches under a
// global batch those that divide what a replica gets of it and suit the schedule, and
// one beyond, for the rule.
func (q Quantity) values(decode func(string) (*strategies.Job, error)) []int64 {
	var out []int64
	if q.Path == "train.micro_batch" {
		if j, err := decode("1"); err == nil && j.Given.GlobalBatch > 0 {
			share := j.Given.GlobalBatch
			if !j.Open {
				share /= j.Plan.DP
			}
			for n := int64(1); n <= min(share, q.Most); n++ {
				if share%n != 0 {
					continue
				}
				if _, err := decode(strconv.FormatInt(n, 10)); err == nil {
					out = append(out, n)
				}
			}
			return append(out, share+1)
		}
	}
	for n := q.Step; n <= q.Most; n += q.Step {
		out = append(out, n)
	}
	return out
}

func largestNumber(values []int64, try func(string) (*Tried, error)) error {
	fits := func(i int) (bool, error) {
		t, err := try(strconv.FormatInt(values[i], 10))
		return err == nil && t.fits(), err
	}
	below, above := -1, len(values) // the largest that fits, the smallest that does not
	for i := 0; i < len(values); i = max(2*i, i+1) {
		ok, err := fits(i)
		if err != nil {
			return err
		}
		if ok {
			below = i
		} else if below >= 0 || i >= 1024 {
			above = i
			break
		}
	}
	for below >= 0 && above-below > 1 {
		mid := (below + above) / 2
		ok, err := fits(mid)
		if err != nil {
			return err
		}
		if ok {
			below = mid
		} else {
			above = mid
		}
	}
	return nil
}
