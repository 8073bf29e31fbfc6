package fit

import (
	"maps"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/model/tape"
)

// slowdowns are the times of each side of an overlap, by what it runs, over its time
// alone, which the case without the other side gives.
func (x *fitter) slowdowns() map[string][]float64 {
	alone, slow := map[string]float64{}, map[string][]float64{}
	cases := x.cases["overlap"]
	side := func(p *point) string {
		if p.of["side"] == "comm" {
			return p.of["op"]
		}
		return p.of["what"]
	}
	by := func(p *point) bool { return p.of["what"] == "none" || p.of["op"] == "none" }
	for i := range cases {
		if p := &cases[i]; by(p) {
			alone[side(p)+" "+p.of["bytes"]+" "+p.of["gpus"]] = p.seconds
		}
	}
	for i := range cases {
		p := &cases[i]
		if by(p) {
			continue
		}
		if a := alone[side(p)+" "+p.of["bytes"]+" "+p.of["gpus"]]; a > 0 {
			slow[side(p)] = append(slow[side(p)], p.seconds/a)
		} else {
			x.drop("overlap", p, "its time alone is missing")
		}
	}
	return slow
}

// overlap makes the law of how much compute and communication slow each other of the
// reference's and of how the slowdowns differ from the reference's.
func (x *fitter) overlap() {
	slow := x.slowdowns()
	if x.missing("overlap", "the slowdown of overlapped work is", len(slow), 1) {
		return
	}
	then := x.ref.slow
	law, from := *x.base.Laws.Overlap, x.ref.base.Laws.Overlap
	law.Collectives = maps.Clone(law.Collectives)
	if law.Collectives == nil {
		law.Collectives = map[string]float64{}
	}
	var off []float64
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(slow)) {
		middle := median(slow[name])
		var here []float64
		for _, f := range slow[name] {
			here, labels = append(here, math.Log(f/middle)), append(labels, name)
		}
		off = append(off, here...)
		if len(then[name]) == 0 {
			continue // nothing to compare with
		}
		f := told(middle, median(then[name]), max(deviation(here), overlapError))
		switch name {
		case "gemm":
			x.machine.Laws.Overlap = &law
			law.SMs = x.taken(&law, from, f)
		case "copy":
			law.Memory = max(from.Memory*f, 1)
		case "attention":
			law.Attention = max(from.Attention*f, 1)
		default:
			law.Collectives[name] = max(from.Collectives[name]*f, 1)
		}
	}
	x.machine.Laws.Overlap, x.own.Overlap = &law, &law
	x.probe("overlap").judge(labels, off, nil, deviation(off))
}

// besideGEMM is the product that the probe runs beside collectives: one of many waves
// at the library's best rate.
var besideGEMM = kernel.GEMM(tape.LayoutForward, tape.BF16, 8192, 8192, 4096)

// overlapError is how far slowdowns of one machine differ from run to run: what is
// beside what depends on when each side began.
const overlapError = 0.03

// taken is the number of SMs without which the probe's product slows so much more than
// the reference's law says; where many fit, the law's.
func (x *fitter) taken(law, from *hardware.OverlapLaw, factor float64) int64 {
	beside := func(sms int64) float64 {
		law.SMs = sms
		return x.timer().Beside(&besideGEMM)
	}
	goal := max(beside(from.SMs)*factor, 1)
	best, least := from.SMs, math.Abs(math.Log(beside(from.SMs)/goal))
	for n := range x.base.GPU.SMs.Value / 2 {
		if off := math.Abs(math.Log(beside(n) / goal)); off < least {
			best, least = n, off
		}
	}
	return best
}
