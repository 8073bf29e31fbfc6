package fit

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

// powerClasses are the laws' names of the probe's classes.
var powerClasses = map[string]string{"gemm": "gemm", "attention": "attention", "memory": "memory", "issue": "issue", "comm": "collective"}

// Names of readings beside the classes.
const (
	idleWatts, capWatts     = "idle", "cap"
	gemmClock, memoryDamped = "gemm clock", "memory exponent"
)

// Relative uncertainties of readings: NVML reads power to 5 % of it (NVML reference,
// nvmlDeviceGetPowerUsage; two H200 read 6 to 7 % apart at the same work), the limit holds what
// it reads to 1 % (three H200: 685, 689 and 691 W), and clocks move in steps of 15 MHz.
var readingError = map[string]float64{capWatts: 0.01, gemmClock: 0.02, memoryDamped: 0.1}

const wattsError = 0.05

// powerReadings are what work that runs on and on tells: the power at rest and at the
// limit in W, the clock in Hz above which multiplies gain nothing, how the time of
// memory-bound work follows the clock, and what each kind of work would draw at the
// highest clock, W. The deeper a card throttles, the less its clock can be read: the same
// multiply took 1.22 M cycles alone at 1470 MHz and 1.20 M between copies at 1515 MHz on
// two H200, but 1.09 M at 1358 MHz and 1.20 M at 1585 MHz on an H100. The clock of
// multiplies alone is therefore that of the mixture by their times.
func (x *fitter) powerReadings(law *hardware.PowerLaw) map[string]float64 {
	steady, burst := map[string]point{}, map[string]point{}
	for _, p := range x.cases["power"] {
		if gpus, ok := p.whole("gpus"); p.all || ok && gpus[0] > 1 {
			continue
		}
		mode := cmp.Or(p.of["mode"], p.mode)
		if mode == sample.Sustained || p.of["class"] == "idle" {
			steady[p.of["class"]] = p
		} else {
			burst[p.of["class"]] = p
		}
	}
	out := map[string]float64{}
	top := float64(x.base.GPU.TopClock())
	throttled := false
	for name, p := range steady {
		if name == "idle" {
			out[idleWatts] = p.power
			continue
		}
		out[capWatts], throttled = max(out[capWatts], p.power), throttled || p.slow || p.clock > 0 && p.clock < 0.95*top
	}
	if !throttled {
		delete(out, capWatts)
	}
	g, b, mix := steady["gemm"], burst["gemm"], steady["mix"]
	if inMix := mix.seconds - steady["memory"].seconds; mix.clock > 0 && steady["memory"].seconds > 0 && inMix > 0 && g.seconds > 0 {
		g.clock = mix.clock * math.Pow(inMix/g.seconds, 1/cmp.Or(law.GEMMExp, 1))
		steady["gemm"] = g
	}
	if g.clock > 0 && g.seconds > b.seconds && b.seconds > 0 {
		// The sustained time goes by its clock, the burst's by the clock that the current
		// limit allows.
		out[gemmClock] = min(g.clock*math.Pow(g.seconds/b.seconds, 1/cmp.Or(law.GEMMExp, 1)), top)
	}
	if m, b := steady["memory"], burst["memory"]; m.clock > 0 && m.clock < 0.97*top && m.seconds > b.seconds && b.seconds > 0 {
		out[memoryDamped] = math.Log(m.seconds/b.seconds) / math.Log(top/m.clock)
	}
	for name, class := range powerClasses {
		p, c := steady[name], law.Class[class]
		if p.power <= 0 || c.Full <= 0 {
			continue
		}
		ratio := 1.0
		if p.clock > 0 && p.clock < top {
			ratio = p.clock / top
		}
		if class == "gemm" {
			ratio = min(ratio, law.GEMMShare(&x.base.GPU))
		}
		share := float64(c.Static / c.Full) // that does not fall with the clock
		out[class] = p.power / (share + (1-share)*math.Pow(ratio, law.ExponentOf(class)))
	}
	return out
}

// power makes the power law of the reference's and of how the readings differ from
// the reference's. The law was read off longer loops and mixtures of work; a reading
// within its uncertainty of the reference's changes nothing.
func (x *fitter) power() {
	from := x.ref.base.Laws.Power
	now := x.powerReadings(from)
	if x.missing("power", "the power law is", len(now), 1) {
		return
	}
	x.probe("power").Points = len(x.cases["power"])
	then := x.ref.powerReadings(from)
	factor := func(name string) float64 {
		e := wattsError
		if v, ok := readingError[name]; ok {
			e = v
		}
		return told(now[name], then[name], e)
	}
	known := func(name string) bool { return now[name] > 0 && then[name] > 0 }
	law := x.ownPower()
	if known(idleWatts) {
		law.Idle = from.Idle * units.Watts(factor(idleWatts))
	}
	if known(capWatts) {
		law.Cap = from.Cap * units.Watts(factor(capWatts))
		if most := x.machine.GPU.Power.Value; most > 0 { // no board lets more through than its limit
			law.Cap = min(law.Cap, most)
		}
	}
	if known(gemmClock) {
		law.GEMMClock = from.GEMMClock * units.Hertz(factor(gemmClock))
	}
	if known(memoryDamped) {
		law.MemoryExp = from.MemoryExp * factor(memoryDamped)
	}
	for _, class := range slices.Sorted(maps.Values(powerClasses)) {
		if f := units.Watts(factor(class)); known(class) {
			c := law.Class[class]
			c.Full, c.Static = from.Class[class].Full*f, from.Class[class].Static*f
			law.Class[class] = c
		}
	}
	x.machine.Laws.Power, x.own.Power = law, law
}

// ownPower is the base's law, or the reference's where the base knows no power, in the
// watts of this GPU: the limit goes by the card's, what work draws by multiprocessors and
// clock, as strategies/estimate scales it.
func (x *fitter) ownPower() *hardware.PowerLaw {
	law, on := *x.base.Laws.Power, x.machine.GPU
	if len(law.Class) == 0 {
		law = *x.ref.base.Laws.Power
	}
	law.Class = maps.Clone(law.Class)
	if was := law.On; was != nil && was.Power.Value > 0 {
		top := on.TopClock() / was.TopClock()
		scale := units.Watts(float64(on.SMs.Value) / float64(was.SMs.Value) * float64(top) * cmp.Or(on.Draw.Value, 1))
		law.GEMMClock *= top
		law.Cap *= on.Power.Value / was.Power.Value
		law.Idle *= scale
		for k, c := range law.Class {
			c.Full, c.Static = c.Full*scale, c.Static*scale
			law.Class[k] = c
		}
	}
	if on.Draw.Value > 0 {
		on.Draw = measured(1.0, "the power law is this GPU's own")
		x.machine.GPU.Draw = on.Draw
	}
	law.On = &on
	return &law
}
