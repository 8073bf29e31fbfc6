package fit

import (
	"cmp"
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

// launchTimes are the probe's times by kind, and half the widths of their intervals.
func (x *fitter) launchTimes() (seconds, spread map[string]float64) {
	seconds, spread = map[string]float64{}, map[string]float64{}
	for _, c := range x.alone("launch") {
		seconds[c.of["kind"]], spread[c.of["kind"]] = c.seconds, c.spread
	}
	return seconds, spread
}

// hostError is how far the driver's calls on two hosts of one kind are apart: 2.85, 3.14
// and 3.15 us on three of H200.
const hostError = 0.07

// launch makes the costs of launches on the device of the reference's and of how the
// probe's times differ from the reference's: between dependent kernels, from one empty
// kernel to the next, and from the host's call to the end on an idle device. What a
// launch costs on the host is the recipes', a framework's and not the driver's: it goes by
// how fast this host makes the driver's calls. It is a hint: on hosts of H100 they
// took 1.11 to 1.49 times as long as on the reference's, steps that wait for the host
// 1.62 to 1.78 times (hostSpread in strategies/estimate).
func (x *fitter) launch() {
	now, spread := x.launchTimes()
	base, from := x.base.Laws.Launch, x.ref.base.Laws.Launch
	x.gap = float64(base.Gap)
	if x.missing("launch", "launch costs are", len(now), 1) {
		return
	}
	x.probe("launch").Points = len(now)
	then, noise := x.ref.launchTimes()
	factor := func(kind string) units.Seconds {
		return units.Seconds(told(now[kind], then[kind], max(surest, spread[kind], noise[kind])))
	}
	l := *base
	l.Gap, l.Floor, l.Latency = from.Gap*factor("gap"), from.Floor*factor("period"), from.Latency*factor("latency")
	l.Host, l.HostMeasured = from.Host/told(now["launch"], then["launch"], hostError), true
	l.Python *= l.Host / cmp.Or(base.Host, 1)
	x.gap = float64(l.Gap)
	x.machine.Laws.Launch, x.own.Launch = &l, &l
	x.probe("launch").Base = math.Abs(math.Log(float64(l.Gap / base.Gap)))
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
		c := hardware.CopyCurve{Direction: w.direction, Pinned: w.pinned, Bytes: k.bytes, Time: k.times(), RelErr: k.deviation()}
		x.own.Copies = append(x.own.Copies, c)
		worst = max(worst, c.RelErr)
		for i, b := range k.bytes {
			out, labels = append(out, k.left[i]), append(labels, w.direction+" "+b.String())
		}
	}
	x.probe("copy").judge(labels, out, nil, worst)
}
