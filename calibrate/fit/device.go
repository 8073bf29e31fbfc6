package fit

import (
	"maps"
	"math"
	"slices"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// launch reads the gap between dependent kernels and the shortest kernel. What a
// launch costs on the host stays the recipes': theirs is a framework's, not the driver's.
func (x *fitter) launch() {
	base := x.base.Laws.Launch
	l := *x.machine.Laws.Launch
	x.gap = float64(l.Gap)
	found := map[string]float64{}
	for _, c := range x.alone("launch") {
		x.probe("launch").Points++
		found[c.of["kind"]] = c.seconds
	}
	if found["floor"] > 0 {
		l.Floor = units.Seconds(found["floor"])
	}
	gap := found["gap"]
	if gap == 0 { // lost in the resolution of the clock
		gap = found["period"] - found["floor"]
	}
	if gap > 0 {
		l.Gap = units.Seconds(gap)
	}
	if x.missing("launch", "launch costs are", len(found), 1) {
		return
	}
	x.probe("launch").Base = math.Abs(math.Log(float64(l.Gap / base.Gap)))
	x.gap = float64(l.Gap)
	x.machine.Laws.Launch, x.own.Launch = &l, &l
}

// powerClasses are the laws' names of the probe's classes.
var powerClasses = map[string]string{"gemm": "gemm", "attention": "attention", "memory": "memory", "issue": "issue", "comm": "collective"}

// power reads the limit, the power at rest, the clock above which multiplies gain
// nothing, and the power of each kind of work, from work that runs on and on.
func (x *fitter) power() {
	steady, burst := map[string]point{}, map[string]point{}
	for _, p := range x.cases["power"] {
		if gpus, ok := p.whole("gpus"); p.all || ok && gpus[0] > 1 {
			continue
		}
		mode := p.of["mode"]
		if mode == "" {
			mode = p.mode
		}
		if mode == sample.Sustained || p.of["class"] == "idle" {
			steady[p.of["class"]] = p
		} else {
			burst[p.of["class"]] = p
		}
		x.probe("power").Points++
	}
	base := x.base.Laws.Power
	if x.missing("power", "the power law is", len(steady), 1) || base == nil {
		return
	}
	on := x.machine.GPU
	law := *base
	law.On, law.Class = &on, maps.Clone(base.Class)
	top := float64(max(x.base.GPU.MaxClock.Value, x.base.GPU.Clock.Value))
	if p := steady["idle"]; p.power > 0 {
		law.Idle = units.Watts(p.power)
	}
	var highest units.Watts
	throttled := false
	for _, name := range slices.Sorted(maps.Keys(steady)) {
		p := steady[name]
		highest, throttled = max(highest, units.Watts(p.power)), throttled || p.slow || p.clock > 0 && p.clock < 0.95*top && name != "idle"
	}
	if throttled && highest > 0 {
		law.Cap = highest
	}
	g, b := steady["gemm"], burst["gemm"]
	if g.clock > 0 && g.seconds > 0 && b.seconds > 0 && g.seconds > b.seconds {
		// The sustained rate is in proportion to its clock, the burst's to the clock that the
		// current limit allows.
		law.GEMMClock = units.Hertz(min(g.clock*g.seconds/b.seconds, top))
	}
	if m, b := steady["memory"], burst["memory"]; m.clock > 0 && m.clock < 0.97*top && m.seconds > b.seconds && b.seconds > 0 {
		law.MemoryExp = math.Log(m.seconds/b.seconds) / math.Log(top/m.clock)
	}
	for _, name := range slices.Sorted(maps.Keys(powerClasses)) {
		p, class := steady[name], powerClasses[name]
		c, known := law.Class[class]
		if p.power <= 0 || !known {
			continue
		}
		ratio := 1.0
		if p.clock > 0 && p.clock < top {
			ratio = p.clock / top
		}
		if class == "gemm" && law.GEMMClock > 0 {
			ratio = min(ratio, float64(law.GEMMClock)/top)
		}
		draw := units.Watts(p.power)
		if class == "collective" { // on top of what runs beside it
			draw = max(draw-law.Idle, 0)
		}
		if draw <= c.Static { // the part that does not fall with the clock cannot exceed all of it
			c.Static = draw * c.Static / max(c.Full, 1)
		}
		c.Full = c.Static + (draw-c.Static)/units.Watts(math.Pow(ratio, law.Exponent))
		law.Class[class] = c
	}
	x.machine.Laws.Power, x.own.Power = &law, &law
}

// copies keeps the curves between host and device.
func (x *fitter) copies() {
	type way struct {
		direction string
		pinned    bool
	}
	sets := map[way][]point{}
	cases := x.alone("copy")
	for i := range cases {
		p := &cases[i]
		w := way{p.of["direction"], p.flag("pinned")}
		if _, ok := p.number("bytes"); !ok || w.direction != "h2d" && w.direction != "d2h" {
			x.drop("copy", p, "direction or bytes cannot be read")
			continue
		}
		sets[w] = append(sets[w], *p)
	}
	if x.missing("copy", "copies between host and device are", len(sets), 1) {
		return
	}
	var out []float64
	var labels []string
	worst := 0.0
	for _, w := range []way{{"h2d", true}, {"h2d", false}, {"d2h", true}, {"d2h", false}} {
		if sets[w] == nil {
			continue
		}
		k := sizes(sets[w])
		c := hardware.CopyCurve{Direction: w.direction, Pinned: w.pinned, Bytes: k.bytes, Time: k.times, RelErr: k.deviation()}
		x.own.Copies = append(x.own.Copies, c)
		worst = max(worst, c.RelErr)
		for i, b := range k.bytes {
			out, labels = append(out, k.left[i]), append(labels, w.direction+" "+b.String())
		}
	}
	x.probe("copy").judge(labels, out, nil, worst)
}

// overlap reads how much compute and communication slow each other: the time of
// each side beside the other over its time alone, which the case without the other
// gives.
func (x *fitter) overlap() {
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
	if x.missing("overlap", "the slowdown of overlapped work is", len(slow), 1) {
		return
	}
	law := *x.base.Laws.Overlap
	law.Collectives = maps.Clone(law.Collectives)
	if law.Collectives == nil {
		law.Collectives = map[string]float64{}
	}
	p := x.probe("overlap")
	var off []float64
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(slow)) {
		middle := median(slow[name])
		for _, f := range slow[name] {
			off, labels = append(off, math.Log(f/middle)), append(labels, name)
		}
		factor := max(middle, 1)
		switch name {
		case "gemm":
			// taken below, once the slowdown of memory is known
		case "copy":
			law.Memory = factor
		case "attention":
			law.Attention = factor
		default:
			law.Collectives[name] = factor
		}
	}
	x.machine.Laws.Overlap = &law
	if f := slow["gemm"]; len(f) > 0 {
		law.SMs = x.taken(&law, max(median(f), 1))
	}
	p.judge(labels, off, nil, deviation(off))
	x.own.Overlap = &law
}

// besideGEMM is the product that the probe runs beside collectives: one of many waves
// at the library's best rate.
var besideGEMM = kernel.GEMM(tape.LayoutForward, tape.BF16, 8192, 8192, 4096)

// taken is the number of SMs without which the probe's product takes so much longer.
func (x *fitter) taken(law *hardware.OverlapLaw, factor float64) int64 {
	timer := x.timer()
	best, least := int64(0), math.Inf(1)
	for n := range x.base.GPU.SMs.Value / 2 {
		law.SMs = n
		if off := math.Abs(math.Log(timer.Beside(&besideGEMM) / factor)); off < least {
			best, least = n, off
		}
	}
	return best
}
