package fit

import (
	"cmp"
	"math"

	"gonum.org/v1/gonum/stat"

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

// How far readings on two hosts of one kind are apart: of the driver's calls, 2.85, 3.14
// and 3.15 us on three of H200.
const hostError = 0.07

// hostReference is what the host of the recipes' costs takes for the code of probe host,
// s: over three machines (two of H200, one of H100, 2026-11-24, go1.26) the readings
// over how much longer than predicted four models took right after each, which wait for
// their hosts; 1.045, 1.050 and 1.065 ms where they took 1.86, 1.58 and 1.44 times as long.
// hostSpread is what such a reading leaves: 0.12 over the 32 of them, with the 0.1 by
// which the recipes' costs themselves are off, and more for kinds of CPU that none of the
// three has.
const (
	hostReference = 1.053e-3
	hostSpread    = 0.2
)

// sharedCores is how far apart readings of the host lie, as a relative standard deviation,
// where its cores are shared: 0.08 to 0.24 in six calibrations of three virtual machines of H200
// (2026-11-27). A thread's core there is fast or takes twice as long, for seconds to minutes.
const sharedCores = 0.1

// launch makes the costs of launches on the device of the reference's and of how the
// probe's times differ from the reference's: between dependent kernels, from one empty
// kernel to the next, and from the host's call to the end on an idle device. What a
// launch costs on the host is the recipes', a framework's and not the driver's: it goes by
// how fast this host runs code of that kind (probe host), or else by how fast it makes the
// driver's calls. That tells little: 1.10, 1.20 and 1.24 times the reference's time
// on those three machines.
func (x *fitter) launch() {
	now, spread := x.launchTimes()
	code := x.alone("host")
	base, from := x.base.Laws.Launch, x.ref.base.Laws.Launch
	x.gap = float64(base.Gap)
	if x.missing("launch", "launch costs are", len(now), 1) && len(code) == 0 {
		return
	}
	then, noise := x.ref.launchTimes()
	l := *base
	if len(now) > 0 {
		factor := func(kind string) units.Seconds {
			return units.Seconds(told(now[kind], then[kind], max(surest, spread[kind], noise[kind])))
		}
		l.Gap, l.Floor, l.Latency = from.Gap*factor("gap"), from.Floor*factor("period"), from.Latency*factor("latency")
		x.probe("launch").Points = len(now)
	}
	if len(code) > 0 {
		mean, apart := readings(code)
		l.Host, l.HostSpread = from.Host/told(mean, hostReference, hostError), min(math.Hypot(hostSpread, apart), 1)
		x.probe("host").Points = len(code)
		if apart > sharedCores {
			x.note("fit.host-varies", "give the processes cores of their own, or calibrate again beside the training", "readings of the host's speed lie %.0f %% apart, as where others share its cores: steps that wait for it vary, too", 100*apart)
		}
	} else {
		l.Host, l.HostSpread = from.Host/told(now["launch"], then["launch"], hostError), 0
		x.note("fit.not-measured", "run perfplan calibrate --only host", "no sample of probe host: the host's speed goes by the driver's calls, which tell little of a framework's")
	}
	l.HostMeasured = false
	l.Python *= l.Host / cmp.Or(base.Host, 1)
	x.gap = float64(l.Gap)
	x.machine.Laws.Launch, x.own.Launch = &l, &l
	x.probe("launch").Base = math.Abs(math.Log(float64(l.Gap / base.Gap)))
}

// readings are the mean of several of one thing, s, and their relative standard deviation.
// A step takes as long as they do in the mean, not in the median.
func readings(points []point) (mean, apart float64) {
	var all []float64
	for i := range points {
		all = append(all, points[i].seconds)
	}
	if len(all) == 1 {
		return all[0], 0
	}
	mean, apart = stat.MeanStdDev(all, nil)
	return mean, apart / mean
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
