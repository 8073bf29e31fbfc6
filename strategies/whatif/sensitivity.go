package whatif

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Raises are by how much more of a thing is asked what it buys.
var Raises = []float64{0.10, 0.50, 1.00}

// Lever is one thing that could be bought, and what it does for a job.
type Lever struct {
	Key, Name  string
	Now        string  // its present value
	Elasticity float64 // d ln(step time) / d ln(x)
	Throughput float64 // d ln(tokens/s) / d ln(x)
	Raised     float64 // the same of more alone, by which levers are sorted: of some only less has an effect
	Gains      []Gain  // by Raises
}

// Gain is what raising a lever does to the throughput.
type Gain struct {
	Known      bool    // a batch grows by whole sequences only
	Throughput float64 // tokens/s after over before, minus one
	Fits       bool
}

// Sensitivity is what a step time depends on.
type Sensitivity struct {
	Levers []Lever // the most effective first
}

// lever knows how to change a job. change returns false when it cannot.
type lever struct {
	key, name string
	now       func(r *estimate.Result) string
	change    func(j *strategies.Job, factor float64) bool
	coarse    bool // only factors of two
}

// perturbation is the factor up and down of the symmetric difference.
const perturbation = 1.1

// levers change a copy of a job, whose machine is a copy, too.
var levers = []lever{
	{"compute_peak", "compute peak", func(r *estimate.Result) string { return r.Peak.String() }, func(j *strategies.Job, f float64) bool {
		p := &j.Hardware.GPU.Peak
		for _, d := range []*hardware.Datum[units.FLOPRate]{&p.FP32, &p.TF32, &p.BF16, &p.FP16, &p.FP8, &p.FP4} {
			d.Value *= units.FLOPRate(f)
		}
		return true
	}, false},
	{"memory_bandwidth", "memory bandwidth", func(r *estimate.Result) string { return r.Job.Hardware.GPU.Bandwidth.Value.String() }, func(j *strategies.Job, f float64) bool {
		j.Hardware.GPU.Bandwidth.Value *= units.Rate(f)
		return true
	}, false},
	{"nvlink_bandwidth", "NVLink bandwidth", func(r *estimate.Result) string { return r.Job.Hardware.GPU.NVLink.Value.String() }, func(j *strategies.Job, f float64) bool {
		j.Hardware.GPU.NVLink.Value *= units.Rate(f)
		return j.Hardware.GPU.NVLink.Value > 0
	}, false},
	{"nic_rate", "network rate", func(r *estimate.Result) string { return r.Job.Hardware.Network.NICBandwidth.Value.Bits() }, func(j *strategies.Job, f float64) bool {
		net := &j.Hardware.Network
		net.NICBandwidth.Value *= units.Rate(f)
		net.Communicator.Value *= units.Rate(f)
		return net.NICBandwidth.Value > 0
	}, false},
	{"latency", "short messages (1/alpha)", func(*estimate.Result) string { return "-" }, func(j *strategies.Job, f float64) bool {
		s := j.Hardware.Network.LatencyScale
		j.Hardware.Network.LatencyScale = hardware.Of(cmp.Or(s.Value, 1) / f)
		return true
	}, false},
	{"power_limit", "power limit (sustained clock)", func(r *estimate.Result) string { return r.Job.Hardware.GPU.Power.Value.String() }, func(j *strategies.Job, f float64) bool {
		if j.Hardware.Laws.Power == nil || j.Hardware.Laws.Power.Cap == 0 {
			return false
		}
		law := *j.Hardware.Laws.Power
		law.Cap *= units.Watts(f)
		j.Hardware.Laws.Power = &law
		return true
	}, false},
	{"host_speed", "host speed", func(*estimate.Result) string { return "-" }, func(j *strategies.Job, f float64) bool {
		j.Runtime.HostSpeed = cmp.Or(j.Runtime.HostSpeed, 1) * f
		return true
	}, false},
	{"host_memory", "host memory bandwidth", func(r *estimate.Result) string { return r.Job.Hardware.Node.HostRate.Value.String() }, func(j *strategies.Job, f float64) bool {
		j.Hardware.Node.HostRate.Value *= units.Rate(f)
		return j.Plan.Offloads()
	}, false},
	{"host_link", "link to the host", func(r *estimate.Result) string { return r.Job.Hardware.GPU.PCIe.Value.String() }, func(j *strategies.Job, f float64) bool {
		h := j.Hardware
		h.Laws.Copies = slices.Clone(h.Laws.Copies)
		for i := range h.Laws.Copies {
			c := &h.Laws.Copies[i]
			c.Time = slices.Clone(c.Time)
			for k := range c.Time {
				c.Time[k] /= units.Seconds(f)
			}
		}
		h.GPU.PCIe.Value *= units.Rate(f)
		return j.Plan.Offloads() || j.Train.AwayActivations()
	}, false},
	{"micro_batch", "micro batch", func(r *estimate.Result) string { return units.Count(float64(r.Job.Train.MicroBatch)) }, func(j *strategies.Job, f float64) bool {
		b := float64(j.Train.MicroBatch) * f
		if b != math.Trunc(b) || b < 1 {
			return false
		}
		if j.Given.MicroBatch = int64(b); HoldsBatch(j) {
			j.Given.GradAccumulation = 0
		} else {
			j.Given.GradAccumulation = j.Train.GradAccumulation
		}
		j.Given.Recompute = j.Train.Recompute
		return j.SetPlan(j.Plan) == nil
	}, true},
}

// HoldsBatch reports whether micro batches of another size make up the same global batch: that
// which the job gives. Else a step has as many of them as before.
func HoldsBatch(j *strategies.Job) bool { return j.Given.GlobalBatch > 0 }

// Sense perturbs one fact at a time around a job with a plan: how much the step time
// follows it, and what more of it buys. What has no effect stays in the list; what
// the machine lacks does not.
func Sense(r *estimate.Result) (*Sensitivity, error) {
	type question struct {
		lever  *lever
		factor float64
	}
	var questions []question
	factors := func(l *lever) []float64 {
		up := perturbation
		if l.coarse {
			up = 2
		}
		out := []float64{1 / up, up}
		for _, f := range Raises {
			out = append(out, 1+f)
		}
		return out
	}
	for i := range levers {
		for _, f := range factors(&levers[i]) {
			questions = append(questions, question{&levers[i], f})
		}
	}
	type answer struct {
		result *estimate.Result
		err    error
	}
	answers := parallel.Map(questions, func(q question) (a answer) {
		j, h := *r.Job, *r.Job.Hardware
		j.Hardware = &h
		if q.lever.change(&j, q.factor) {
			a.result, a.err = estimate.Estimate(&j, estimate.Options{})
		}
		return a
	})
	out := &Sensitivity{}
	for i := range levers {
		l := &levers[i]
		f := factors(l)
		own := answers[:len(f)]
		answers = answers[len(f):]
		for _, a := range own {
			if a.err != nil {
				return nil, a.err
			}
		}
		x := Lever{Key: l.key, Name: l.name, Now: l.now(r)}
		low, high, span := own[0].result, own[1].result, math.Log(f[1]/f[0])
		if high == nil {
			continue // not there
		}
		if low == nil { // a micro batch of one has no half
			low, span = r, math.Log(f[1])
		}
		if x.Elasticity = math.Log(float64(high.StepTime/low.StepTime)) / span; math.Abs(x.Elasticity) < 1e-9 {
			x.Elasticity = 0 // rounding
		}
		x.Throughput = math.Log(high.TokensPerSecond/low.TokensPerSecond) / span
		x.Raised = math.Log(high.TokensPerSecond/r.TokensPerSecond) / math.Log(f[1])
		for _, a := range own[2:] {
			g := Gain{}
			if a.result != nil {
				g = Gain{true, a.result.TokensPerSecond/r.TokensPerSecond - 1, a.result.Memory.Fits}
			}
			x.Gains = append(x.Gains, g)
		}
		out.Levers = append(out.Levers, x)
	}
	slices.SortStableFunc(out.Levers, func(a, b Lever) int {
		return cmp.Or(cmp.Compare(b.Raised, a.Raised), cmp.Compare(b.Throughput, a.Throughput))
	})
	return out, nil
}
