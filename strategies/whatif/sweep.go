package whatif

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/search"
)

// Point is one combination of values.
type Point struct {
	Values []string // by axis
	Result *estimate.Result
	Sent   units.Bytes // by one GPU of the slowest rank, per step
	Err    error       // the rule that refuses the point; Result is nil then
	Picked bool        // the job leaves its plan open: Result has the best simple one
}

// Table is the outcome of a sweep.
type Table struct {
	Axes   []Axis
	Points []Point
	By     Objective
	Best   int   // index of the best point that fits; -1: none does
	Ties   []int // others within a thousandth of it
	Left   int   // points that a stop left out
}

// Objective is what a sweep looks for.
type Objective struct {
	Name, Title string
	Lower       bool                           // less is better
	Of          func(*estimate.Result) float64 // 0: not known
}

// Objectives are the known ones; the first is the default.
var Objectives = []Objective{
	{"tokens", "tokens/s per GPU", false, func(r *estimate.Result) float64 { return r.TokensPerSecond }},
	{"step", "step time in s", true, func(r *estimate.Result) float64 { return float64(r.StepTime) }},
	{"throughput", "tokens/s in all", false, func(r *estimate.Result) float64 { return r.TokensPerSecond * float64(r.Job.GPUs) }},
	{"mfu", "MFU", false, func(r *estimate.Result) float64 { return r.MFU }},
	{"memory", "GiB used per GPU", true, func(r *estimate.Result) float64 { return float64(r.Memory.DeviceUsed / units.GiB) }},
	{"energy", "kJ per million tokens", true, func(r *estimate.Result) float64 {
		return float64(TokenEnergy(r)) / 1e3
	}},
	{"cost", "US dollars per million tokens", true, func(r *estimate.Result) float64 {
		return Price(r.Job) / 3600 / r.TokensPerSecond * 1e6
	}},
}

// TokenEnergy is what the GPUs draw for a million tokens, 0 where no power is known.
func TokenEnergy(r *estimate.Result) units.Joules {
	return r.Energy * units.Joules(float64(r.Job.GPUs)/r.Job.Tokens()*1e6)
}

// Price is what a GPU-hour of a job costs in US dollars: as the job says, else as its
// machine's profile does, 0 when neither knows.
func Price(j *strategies.Job) float64 {
	if p := j.Run.Price; p.IsSet() {
		return p.Value
	}
	return j.Hardware.Price.GPUHour.Value
}

// ParseObjective returns the objective of a name.
func ParseObjective(name string) (Objective, error) {
	names := make([]string, len(Objectives))
	for i, o := range Objectives {
		if names[i] = o.Name; o.Name == name {
			return o, nil
		}
	}
	return Objective{}, diag.Errorf("%q is not an objective%s", name, diag.DidYouMean(name, names))
}

// better orders two values of an objective; what is not known comes last.
func (o *Objective) better(a, b float64) int {
	switch {
	case a == 0 || b == 0:
		return cmp.Compare(b, a)
	case o.Lower:
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

// Sweep estimates a job at every combination of the axes. decode makes the job of a
// combination; malformed reports whether its error is about how a value is written,
// which ends the sweep, and not about a rule, which refuses the point. A job that
// leaves its plan open gets the best simple one at every point. It fails when every
// point is refused, with the first rule. A cancelled context ends the sweep with the
// points that were predicted, or fails where there is none.
func Sweep(ctx context.Context, axes []Axis, by Objective, decode func(values []string) (j *strategies.Job, malformed bool, err error)) (*Table, error) {
	combinations, err := Product(axes)
	if err != nil {
		return nil, err
	}
	t := &Table{Axes: axes, By: by, Best: -1, Points: make([]Point, len(combinations))}
	jobs := make([]*strategies.Job, len(combinations))
	for i, values := range combinations {
		if ctx.Err() != nil {
			break
		}
		j, malformed, err := decode(values)
		if malformed {
			return nil, err
		}
		jobs[i], t.Points[i] = j, Point{Values: values, Err: err, Picked: j != nil && j.Open}
	}
	type outcome struct {
		result *estimate.Result
		err    error
		left   bool
	}
	found := parallel.Map(jobs, func(j *strategies.Job) (o outcome) {
		if o.left = ctx.Err() != nil; j != nil && !o.left {
			o.result, o.err = Predict(j, estimate.Options{Detail: true})
		}
		return o
	})
	all := t.Points
	t.Points = make([]Point, 0, len(all))
	for i, o := range found {
		p := &all[i]
		switch {
		case p.Err != nil:
		case o.left:
			t.Left++
			continue
		case o.err != nil && !diag.IsInput(o.err):
			return nil, o.err
		case o.err != nil:
			p.Err = o.err
		default:
			p.Result, p.Sent = o.result, Sent(o.result)
			p.Result.Detail = nil // of no further use, and large
		}
		t.Points = append(t.Points, *p)
	}
	if t.Left > 0 && !slices.ContainsFunc(t.Points, func(p Point) bool { return p.Result != nil }) {
		return nil, ctx.Err()
	}
	if i := slices.IndexFunc(t.Points, func(p Point) bool { return p.Err == nil }); i < 0 {
		return nil, t.Points[0].Err
	}
	if t.mark(); t.Best < 0 && slices.ContainsFunc(t.Points, func(p Point) bool { return p.Result != nil && p.Result.Memory.Fits }) {
		return nil, diag.Errorf("by %s: is not known of any point that fits; give a price with --price, or hardware with a price and a power law", by.Name)
	}
	return t, nil
}

// tie is how near in the objective two points count as equal.
const tie = 1e-3

// mark finds the best point that fits, and its equals.
func (t *Table) mark() {
	value := func(i int) float64 {
		r := t.Points[i].Result
		if r == nil || !r.Memory.Fits {
			return 0
		}
		return t.By.Of(r)
	}
	for i := range t.Points {
		if value(i) != 0 && (t.Best < 0 || t.By.better(value(i), value(t.Best)) < 0) {
			t.Best = i
		}
	}
	for i := range t.Points {
		if v := value(i); v != 0 && i != t.Best && math.Abs(v/value(t.Best)-1) < tie {
			t.Ties = append(t.Ties, i)
		}
	}
}

// Predict estimates a job, with the best simple plan when it leaves that open.
func Predict(j *strategies.Job, o estimate.Options) (*estimate.Result, error) {
	if j.Open {
		c, err := search.Fastest(j)
		if err != nil {
			return nil, err
		}
		j = c.Job
	}
	return estimate.Estimate(j, o)
}

// Sent is what one GPU of the slowest rank sends per step: the bytes of a collective
// times the share of them that crosses its links (the bus factor of nccl-tests). The
// result needs its Detail.
func Sent(r *estimate.Result) units.Bytes {
	var sum units.Bytes
	for _, c := range r.Detail.Collectives {
		var op collective.Op
		if op.UnmarshalText([]byte(c.Kind)) == nil {
			sum += c.Bytes * units.Bytes(float64(c.Count)*op.BusFactor(c.Ranks))
		}
	}
	return sum
}
