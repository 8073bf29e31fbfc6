package fit

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// memoryShots reads the cases of memory-bound kernels.
func (x *fitter) memoryShots() []shot {
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
	return out
}

// atFullClock is the time of a kernel that moves memory, were the clock the highest:
// issue-bound kernels follow the clock, others hardly.
func (x *fitter) atFullClock(p *point, c tape.Class) float64 {
	r := x.clockRatio(p)
	if x.machine.Laws.Kernels[c.String()].Limit == "issue" {
		return x.busy(p) * r
	}
	if w := x.machine.Laws.Power; w != nil {
		return x.busy(p) * math.Pow(r, w.MemoryExp)
	}
	return x.busy(p)
}

// memory replaces the law of each class that was measured: its curve, or the
// constants of its formula.
func (x *fitter) memory() {
	shots := x.memoryShots()
	if x.missing("memory", "the laws of memory-bound kernels are", len(shots), few) {
		return
	}
	before := residuals(x.before, shots)
	x.floor(shots)
	classes := map[tape.Class][]shot{}
	for _, s := range shots {
		classes[s.op.Class] = append(classes[s.op.Class], s)
	}
	var left []float64
	var labels []string
	worst := 0.0
	for c := range tape.NumClasses {
		some := classes[c]
		if len(some) == 0 {
			continue
		}
		if len(some) < few {
			x.note("fit.too-few", "run perfplan calibrate --only memory", "kernel class %s has %d cases, fewer than the %d needed: its law is inherited from %s", c, len(some), few, x.base.Name)
			continue
		}
		base := x.base.Laws.Kernels[c.String()]
		var out []float64
		if len(base.Bytes) > 0 {
			out = x.curve(c, base, some)
		} else {
			out = x.formula(c, base, some)
		}
		left, labels = append(left, out...), append(labels, names(some)...)
		worst = max(worst, x.own.Kernels[c.String()].Residual)
	}
	x.probe("memory").judge(labels, left, before, worst)
}

// floor is the shortest kernel: of those that were seen, where launch did not measure
// an empty one.
func (x *fitter) floor(shots []shot) {
	if x.own.Launch != nil && x.own.Launch.Floor != x.base.Laws.Launch.Floor {
		return
	}
	least := math.Inf(1)
	for _, s := range shots {
		least = min(least, s.kernel)
	}
	l := *x.machine.Laws.Launch
	l.Floor = units.Seconds(least)
	x.machine.Laws.Launch, x.own.Launch = &l, &l
}

// set puts the law of a class into the machine and the profile.
func (x *fitter) set(c tape.Class, l hardware.KernelLaw) {
	on := x.machine.GPU
	l.On, l.Source = &on, ""
	all := map[string]hardware.KernelLaw{c.String(): l}
	for k, v := range x.machine.Laws.Kernels {
		if k != c.String() {
			all[k] = v
		}
	}
	x.machine.Laws.Kernels = all
	if x.own.Kernels == nil {
		x.own.Kernels = map[string]hardware.KernelLaw{}
	}
	x.own.Kernels[c.String()] = l
}

// curve makes the law of a class of the measured times, and returns the errors of
// its cases, each size of the curve left out in turn.
func (x *fitter) curve(c tape.Class, base hardware.KernelLaw, shots []shot) []float64 {
	k := curveOf(shots)
	law := hardware.KernelLaw{Bytes: k.bytes, Time: k.times, Limit: base.Limit, Spread: hardware.Spread{Residual: k.deviation(), Extrapolate: base.Extrapolate}}
	x.set(c, law)
	return k.errors
}

// curve is the median time of cases by size.
type curve struct {
	bytes  []units.Bytes // ascending
	times  []units.Seconds
	left   []float64 // ln(measured/predicted) of each size, predicted from its neighbours
	within []float64 // of each case, against the median of its size
	errors []float64 // of each case, its size left out
	noise  float64   // relative standard deviation of the medians
}

// sameSize is how much larger bytes may be that count as one size: kernels of one
// class round to whole rows differently.
const sameSize = 1.05

// curveOf draws a curve through cases.
func curveOf(shots []shot) curve {
	order := make([]int, len(shots))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(shots[a].op.Bytes, shots[b].op.Bytes) })
	k := curve{within: make([]float64, len(shots)), errors: make([]float64, len(shots))}
	var spreads []float64
	size := make([]int, len(shots))
	for i := 0; i < len(order); {
		first := shots[order[i]].op.Bytes
		var bytes, times []float64
		from := i
		for ; i < len(order) && shots[order[i]].op.Bytes <= first*sameSize; i++ {
			s := &shots[order[i]]
			bytes, times = append(bytes, float64(s.op.Bytes)), append(times, s.kernel)
			spreads = append(spreads, s.spread/1.96) // half a 95 % interval
			size[order[i]] = len(k.bytes)
		}
		t := median(times)
		for _, j := range order[from:i] {
			k.within[j] = math.Log(shots[j].kernel / t)
		}
		k.bytes, k.times = append(k.bytes, units.Bytes(median(bytes))), append(k.times, units.Seconds(t))
	}
	k.noise = median(spreads)
	k.left = leftOut(k.bytes, k.times)
	for i := range k.errors {
		k.errors[i] = k.within[i] + k.left[size[i]]
	}
	return k
}

// deviation of a time that a curve gives. Of the error of a size left out half
// counts, since the sizes stand twice as close as without it.
func (k *curve) deviation() float64 {
	return min(max(math.Hypot(math.Hypot(holding(k.left)/2, holding(k.within)), k.noise), surest), 1)
}

// leftOut is ln(measured/predicted) of each point of a curve, predicted from its
// neighbours, straight in logarithms; of the ends from the two points next to them.
func leftOut(bytes []units.Bytes, times []units.Seconds) []float64 {
	n := len(bytes)
	out := make([]float64, n)
	at := func(i, a, b int) float64 {
		w := math.Log(float64(bytes[i]/bytes[a])) / math.Log(float64(bytes[b]/bytes[a]))
		return math.Log(float64(times[i])) - (1-w)*math.Log(float64(times[a])) - w*math.Log(float64(times[b]))
	}
	for i := 1; i < n-1; i++ {
		out[i] = at(i, i-1, i+1)
	}
	return out
}

// formula refines the constants of a class that follows a formula: those that it
// has, and the factors of the row widths that were measured.
func (x *fitter) formula(c tape.Class, base hardware.KernelLaw, shots []shot) []float64 {
	law := base
	law.Wide = slices.Clone(base.Wide)
	var set []func(f float64)
	for _, k := range []struct{ to, from *units.Seconds }{{&law.Setup, &base.Setup}, {&law.Element, &base.Element}, {&law.Index, &base.Index}, {&law.Byte, &base.Byte}} {
		if *k.from > 0 {
			set = append(set, func(f float64) { *k.to = *k.from * units.Seconds(f) })
		}
	}
	for i, w := range base.Wide {
		if slices.ContainsFunc(shots, func(s shot) bool {
			n := float64(s.op.N)
			return n >= w.Width && (i+1 == len(base.Wide) || n < base.Wide[i+1].Width)
		}) {
			set = append(set, func(f float64) { law.Wide[i].Factor = w.Factor * f })
		}
	}
	with := func(factors []float64) {
		for i, f := range factors {
			set[i](f)
		}
		x.set(c, law)
	}
	with(refine(len(set), func(f []float64) []float64 {
		with(f)
		return residuals(x.timer(), shots)
	}))
	out := residuals(x.timer(), shots)
	var spreads []float64
	for _, s := range shots {
		spreads = append(spreads, s.spread/1.96)
	}
	free := math.Sqrt(float64(len(shots)) / float64(max(len(shots)-len(set), 1))) // what the constants took of the errors
	law.Residual = max(math.Hypot(holding(out)*free, median(spreads)), surest)
	x.set(c, law)
	return out
}

// adam refines the law of the fused optimizer.
func (x *fitter) adam() {
	var shots []shot
	for _, p := range x.alone("adam") {
		n, ok := p.number("params")
		d, typed := tape.DTypeOf(cmp.Or(p.of["dtype"], "fp32"))
		if !ok || !typed {
			x.drop("adam", &p, "params or dtype cannot be read")
			continue
		}
		shots = append(shots, shot{&p, kernel.Adam(d, n), x.atFullClock(&p, tape.Optimizer)})
	}
	const need = 2
	if x.missing("adam", "the law of the optimizer is", len(shots), need) {
		return
	}
	before := residuals(x.before, shots)
	out := x.formula(tape.Optimizer, x.base.Laws.Kernels[tape.Optimizer.String()], shots)
	x.probe("adam").judge(names(shots), out, before, x.own.Kernels[tape.Optimizer.String()].Residual)
}
