package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// kernelShots reads the cases of memory-bound kernels and of the optimizer.
func (x *fitter) kernelShots() []shot {
	var out []shot
	for _, p := range x.alone("memory") {
		bytes, ok := p.number("bytes")
		if !ok {
			x.drop("memory", &p, "bytes cannot be read")
			continue
		}
		op, err := kernel.Access(p.of["kind"], p.of["dtype"], units.Bytes(bytes))
		if err != nil {
			x.drop("memory", &p, err.Error())
			continue
		}
		op.Bytes = units.Bytes(bytes) // as the probe counts them
		if n, ok := p.number("elements"); ok {
			op.Elements = n
		}
		if v, ok := p.whole("dims", "operands"); ok {
			op.Index = float64(v[0] * v[1])
		}
		if v, ok := p.whole("width"); ok && op.N > 0 {
			op.N = v[0]
		}
		out = append(out, shot{&p, op, x.atFullClock(&p, op.Class)})
	}
	for _, p := range x.alone("adam") {
		n, ok := p.number("params")
		d, typed := tape.DTypeOf(cmp.Or(p.of["dtype"], "fp32"))
		if !ok || !typed {
			x.drop("adam", &p, "params or dtype cannot be read")
			continue
		}
		out = append(out, shot{&p, kernel.Adam(d, n), x.atFullClock(&p, tape.Optimizer)})
	}
	return out
}

// atFullClock is the time of a kernel that moves memory, were the clock the highest.
func (x *fitter) atFullClock(p *point, c tape.Class) float64 {
	work := "memory"
	if x.machine.Laws.Kernels[c.String()].Limit == "issue" {
		work = "issue"
	}
	return x.busy(p) / x.slowdown(work, p)
}

// fewest cases of a class that move its law.
var fewest = map[string]int{"memory": few, "adam": 2}

// kernels makes the law of each class that was measured: the reference's law, times
// what the probe's kernel of this class takes here over what it takes there. A class
// that the probes have no kernel for keeps its law.
func (x *fitter) kernels() {
	byProbe, classes := map[string][]shot{}, map[tape.Class][]shot{}
	for _, s := range x.kernelShots() {
		there, ok := x.ref.shots[s.probe+" "+s.name]
		if !ok {
			x.drop(s.probe, s.point, "the reference samples lack the case")
			continue
		}
		s.spread = math.Hypot(s.spread, there.spread)
		byProbe[s.probe], classes[s.op.Class] = append(byProbe[s.probe], s), append(classes[s.op.Class], s)
	}
	x.missing("memory", "the laws of memory-bound kernels are", len(byProbe["memory"]), few)
	x.missing("adam", "the law of the optimizer is", len(byProbe["adam"]), fewest["adam"])
	type record struct {
		left, base []float64
		labels     []string
		worst      float64
	}
	records := map[string]*record{}
	middle := map[string][]float64{} // ln of each class's ratio, by what limits it
	for c := range tape.NumClasses {
		some := classes[c]
		if len(some) == 0 {
			continue
		}
		probe := some[0].probe
		if len(some) < fewest[probe] {
			if len(byProbe[probe]) >= fewest[probe] {
				x.note("fit.too-few", "run perfplan calibrate --only "+probe, "kernel class %s has %d cases, fewer than the %d needed: its law is inherited from %s", c, len(some), fewest[probe], x.base.Name)
			}
			continue
		}
		k := curveOf(some, x.ratio)
		errors := k.errors
		law := x.ref.base.Laws.Kernels[c.String()]
		residual := law.Residual
		if len(law.Bytes) > 0 {
			law = x.moved(law, &k)
			law.Residual = math.Hypot(residual, k.scatter())
		} else {
			law, errors = x.refined(c, law, some)
			law.Residual = math.Hypot(residual, math.Hypot(holding(errors), k.noise))
			if there, here := &x.ref.base.GPU, &x.machine.GPU; law.Limit == "both" { // the probe's kernel takes the memory's time alone
				law.Element *= units.Seconds(kernel.IssueScale(there, here) / float64(there.Bandwidth.Value/here.Bandwidth.Value))
			}
		}
		law.Source = fmt.Sprintf("law of the %s times %.3f to %.3f, the time of the probe's kernels here over there", x.ref.base.GPU.Name.Value, slices.Min(k.values), slices.Max(k.values))
		x.set(c, law)
		middle[law.Limit] = append(middle[law.Limit], math.Log(median(k.values)))
		if records[probe] == nil {
			records[probe] = &record{}
		}
		r := records[probe]
		for i, s := range some {
			r.left, r.labels = append(r.left, errors[i]), append(r.labels, s.name)
			here := float64(x.ref.before.Time(&s.op)) * x.ratio(&s)
			r.base = append(r.base, math.Log(here/float64(x.before.Time(&s.op))))
		}
	}
	x.widen(middle)
	for name, law := range x.own.Kernels {
		probe := "memory"
		if name == tape.Optimizer.String() {
			probe = "adam"
		}
		records[probe].worst = max(records[probe].worst, law.Residual)
	}
	for probe, r := range records {
		x.probe(probe).judge(r.labels, r.left, r.base, r.worst)
	}
}

// ratio is the time of a case over the reference's.
func (x *fitter) ratio(s *shot) float64 {
	return s.kernel / x.ref.shots[s.probe+" "+s.name].kernel
}

// moved is a law that is a curve, each size by the ratio there.
func (x *fitter) moved(law hardware.KernelLaw, k *curve) hardware.KernelLaw {
	law.Time = slices.Clone(law.Time)
	for i, b := range law.Bytes {
		law.Time[i] *= units.Seconds(k.at(b))
	}
	law.Long.Element *= units.Seconds(median(k.values))
	law.Parts.Time *= units.Seconds(median(k.values))
	return law
}

// refined is a law that is a formula, with the constants that make it differ from the
// reference's as the cases do, and ln(measured/fitted) of the cases' ratios. Of cases
// that the shortest kernel hides nothing follows.
func (x *fitter) refined(c tape.Class, from hardware.KernelLaw, shots []shot) (hardware.KernelLaw, []float64) {
	law := from
	law.Wide = slices.Clone(from.Wide)
	var set []func(f float64)
	for _, k := range []struct{ to, from *units.Seconds }{{&law.Setup, &from.Setup}, {&law.Element, &from.Element}, {&law.Index, &from.Index}, {&law.Byte, &from.Byte}, {&law.Beyond, &from.Beyond}} {
		if *k.from > 0 {
			set = append(set, func(f float64) { *k.to = *k.from * units.Seconds(f) })
		}
	}
	for i, w := range from.Wide {
		if slices.ContainsFunc(shots, func(s shot) bool {
			n := float64(s.op.N)
			return n >= w.Width && (i+1 == len(from.Wide) || n < from.Wide[i+1].Width)
		}) {
			set = append(set, func(f float64) { law.Wide[i].Factor, law.Wide[i].Half = w.Factor*f, w.Half*f })
		}
	}
	floor := x.ref.base.Laws.Launch.Floor
	errors := func(f []float64) []float64 {
		for i := range f {
			set[i](f[i])
		}
		x.set(c, law)
		timer := x.timer()
		out := make([]float64, len(shots))
		for i := range shots {
			if there := x.ref.before.Time(&shots[i].op); there > floor {
				out[i] = math.Log(x.ratio(&shots[i]) * float64(there/timer.Time(&shots[i].op)))
			}
		}
		return out
	}
	best := refine(len(set), errors)
	return law, errors(best)
}

// widen adds what a law of another GPU's PyTorch leaves open: kernels that the same
// thing limits do not change alike from GPU to GPU, so neither need PyTorch's and the
// probe's of one class.
func (x *fitter) widen(middle map[string][]float64) {
	if x.ref.is(&x.machine.GPU) {
		return
	}
	for name, law := range x.own.Kernels {
		var off []float64
		for _, m := range middle[law.Limit] {
			off = append(off, m-median(middle[law.Limit]))
		}
		law.Residual = math.Hypot(law.Residual, holding(off))
		x.own.Kernels[name] = law
	}
	x.machine.Laws.Kernels = maps.Clone(x.machine.Laws.Kernels)
	maps.Copy(x.machine.Laws.Kernels, x.own.Kernels)
}

// set puts the law of a class into the machine and the profile.
func (x *fitter) set(c tape.Class, l hardware.KernelLaw) {
	on := x.machine.GPU
	l.On = &on
	x.machine.Laws.Kernels = maps.Clone(x.machine.Laws.Kernels)
	x.machine.Laws.Kernels[c.String()] = l
	if x.own.Kernels == nil {
		x.own.Kernels = map[string]hardware.KernelLaw{}
	}
	x.own.Kernels[c.String()] = l
}
