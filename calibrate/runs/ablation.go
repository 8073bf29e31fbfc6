package runs

import (
	"maps"
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/model/tape"
)

// Effect is something that the estimator models and that can be left out.
type Effect struct {
	Name string
	What string // what is predicted without it
	off  func(*hardware.Laws)
}

// Effects in the order in which a prediction meets them. Each is left out by changing
// laws of the machine; the estimator stays the same.
var Effects = []Effect{
	{"matrix shapes", "the law of tiles and waves alone prices matrix multiplies", func(l *hardware.Laws) {
		g := *l.GEMM
		g.Points = nil
		l.GEMM = &g
	}},
	{"matrix efficiency", "matrix multiplies run at the datasheet's peak", func(l *hardware.Laws) {
		g := *l.GEMM
		g.Points, g.Setup, g.Reset, g.KOverhead, g.SmallTile, g.Grouped = nil, 0, 0, 0, 0, 1
		g.Rate = map[string]float64{"bf16": 1, "fp16": 1, "tf32": 1, "fp32": 1, "fp8": 1, "fp4": 1}
		g.Scaled = nil
		l.GEMM = &g
	}},
	{"attention shapes", "one rate by head size prices attention", func(l *hardware.Laws) {
		a := *l.Attention
		a.Points = nil
		l.Attention = &a
	}},
	{"kernel classes", "every memory-bound kernel moves its bytes like a copy", func(l *hardware.Laws) {
		l.Kernels = map[string]hardware.KernelLaw{tape.Vectorized.String(): l.Kernels[tape.Vectorized.String()]}
	}},
	{"gaps", "kernels follow each other at once", func(l *hardware.Laws) {
		x := *l.Launch
		x.Gap, x.Latency = 0, 0
		l.Launch = &x
	}},
	{"host", "launches cost the host nothing", func(l *hardware.Laws) {
		x := *l.Launch
		x.Host = math.Inf(1)
		l.Launch = &x
	}},
	{"clocks", "the power limit slows nothing", func(l *hardware.Laws) {
		if l.Power != nil {
			p := *l.Power
			p.Cap = 0
			l.Power = &p
		}
	}},
	{"collective curves", "collectives are priced by NCCL's model alone", func(l *hardware.Laws) { l.Collectives = nil }},
	{"contention", "compute and collectives do not slow each other", func(l *hardware.Laws) {
		o := *l.Overlap
		o.SMs, o.Attention, o.Memory, o.Issue = 0, 1, 1, 1
		o.Collectives = maps.Clone(o.Collectives)
		for k := range o.Collectives {
			o.Collectives[k] = 1
		}
		l.Overlap = &o
	}},
	{"skew", "the slowest of several GPUs is as fast as one", func(l *hardware.Laws) {
		o := *l.Overlap
		o.Skew = 1
		l.Overlap = &o
	}},
}

// Ablation is the error of the step time without one effect.
type Ablation struct {
	Effect, What string
	Groups       []Group // by name, the last of all runs
}

// Ablate validates the runs as they are, under no name, and then without each effect
// in turn. It tells how many effects are done; told may be nil. It is an error when none
// of the runs can be predicted.
func Ablate(list []Run, told func(done int)) ([]Ablation, error) {
	whole := Validate(list)
	if err := whole.Refusal(); err != nil {
		return nil, err
	}
	out := []Ablation{{Groups: whole.Summary}}
	for done, e := range Effects {
		if told != nil {
			told(done)
		}
		without := make([]Run, len(list))
		for i, r := range list {
			if r.Job != nil {
				job, machine := *r.Job, *r.Job.Hardware
				e.off(&machine.Laws)
				job.Hardware = &machine
				r.Job = &job
			}
			without[i] = r
		}
		out = append(out, Ablation{e.Name, e.What, Validate(without).Summary})
	}
	return out, nil
}
