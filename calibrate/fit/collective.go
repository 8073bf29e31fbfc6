package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
)

// collectives keeps the measured curve of each operation and group, with the
// straight line through it for people.
func (x *fitter) collectives() {
	type group struct {
		op           collective.Op
		ranks, nodes int64
	}
	// Replayed from a graph a collective takes the time of the device alone, which is
	// what a step sees while the host runs ahead. Sizes without a replay take the eager time.
	eager, replayed := map[group]map[string]point{}, map[group]map[string]point{}
	cases := x.cases["collective"]
	for i := range cases {
		p := &cases[i]
		var g group
		err := g.op.UnmarshalText([]byte(p.of["op"]))
		v, ok := p.whole("bytes", "gpus")
		if err != nil || !ok || v[1] < 2 {
			x.drop("collective", p, "op, bytes or gpus cannot be read")
			continue
		}
		g.ranks, g.nodes = v[1], 1
		if n, ok := p.whole("nodes"); ok {
			g.nodes = n[0]
		}
		if eager[g] == nil {
			eager[g], replayed[g] = map[string]point{}, map[string]point{}
		}
		if p.flag("graph") {
			replayed[g][p.of["bytes"]] = *p
		} else {
			eager[g][p.of["bytes"]] = *p
		}
	}
	sets := map[group][]point{}
	for g := range eager {
		maps.Copy(eager[g], replayed[g])
		for _, bytes := range slices.Sorted(maps.Keys(eager[g])) {
			sets[g] = append(sets[g], eager[g][bytes])
		}
	}
	order := slices.SortedFunc(maps.Keys(sets), func(a, b group) int {
		return slices.Compare([]int64{int64(a.op), a.ranks, a.nodes}, []int64{int64(b.op), b.ranks, b.nodes})
	})
	if x.missing("collective", "the collectives are", len(order), 1) {
		return
	}
	before, _ := x.fabric(x.base.Laws.Collectives)
	p := x.probe("collective")
	var out, old []float64
	slower := map[string][]float64{} // by operation: ln of the time over the base's
	var labels []string
	worst := 0.0
	for _, g := range order {
		label := fmt.Sprintf("%s on %d GPUs", g.op, g.ranks)
		k := sizes(sets[g])
		if len(k.bytes) < 2 {
			x.note("fit.too-few", "run perfplan calibrate --only collective", "%s has one size: no curve", label)
			continue
		}
		c := hardware.CollectiveCurve{Op: g.op.String(), Ranks: g.ranks, Bytes: k.bytes, Time: k.times(), RelErr: k.deviation()}
		if g.nodes > 1 {
			c.Nodes = g.nodes
		}
		if i := slices.IndexFunc(x.baseCurves(), func(m hardware.CollectiveCurve) bool { return sameGroup(m, c) }); i >= 0 {
			long := x.base.Laws.Collectives[i]
			k = k.over(curveThrough(long.Bytes, long.Time))
			c.Bytes, c.Time, c.RelErr = k.bytes, k.times(), max(k.deviation(), long.RelErr)
		}
		c.Line = line(c.Bytes, c.Time)
		if _, err := x.fabric([]hardware.CollectiveCurve{c}); err != nil {
			x.note("fit.curve", "", "%s: %v; left out", label, err)
			continue
		}
		x.own.Collectives = append(x.own.Collectives, c)
		worst = max(worst, c.RelErr)
		for i, b := range k.bytes {
			out, labels = append(out, k.left[i]), append(labels, label+" "+b.String())
			if before != nil {
				place := collective.Group{Ranks: g.ranks, PerNode: g.ranks / max(g.nodes, 1)}
				ratio := math.Log(k.values[i] / float64(before.Time(g.op, b, place)))
				old, slower[g.op.String()] = append(old, ratio), append(slower[g.op.String()], ratio)
			}
		}
	}
	p.judge(labels, out, old, worst)
	x.keepCurves(slower)
}

// baseCurves are the base's where it measured a GPU of this kind itself.
func (x *fitter) baseCurves() []hardware.CollectiveCurve {
	if !x.base.Own["collectives"] || !x.same(&x.base.GPU) {
		return nil
	}
	return x.base.Laws.Collectives
}

// sameGroup reports whether two curves are of one operation on one group.
func sameGroup(a, b hardware.CollectiveCurve) bool {
	return a.Op == b.Op && a.Ranks == b.Ranks && max(a.Nodes, 1) == max(b.Nodes, 1)
}

// keepCurves keeps what the base measured on groups that the samples lack, as much slower or
// faster as the samples of that operation are in the middle: a file's curves replace the
// inherited ones as a whole.
func (x *fitter) keepCurves(slower map[string][]float64) {
	for _, c := range x.baseCurves() {
		if slices.ContainsFunc(x.own.Collectives, func(m hardware.CollectiveCurve) bool { return sameGroup(m, c) }) {
			continue
		}
		c.Source = cmp.Or(c.Source, x.base.Laws.Source)
		if logs := slower[c.Op]; len(logs) > 0 {
			by := median(logs)
			c.Time = slices.Clone(c.Time)
			for i := range c.Time {
				c.Time[i] *= units.Seconds(math.Exp(by))
			}
			c.RelErr = math.Hypot(c.RelErr, by/2) // machines differ by operation and size, too
			c.Line = line(c.Bytes, c.Time)
		}
		x.own.Collectives = append(x.own.Collectives, c)
	}
}

// fabric is the base machine with other curves.
func (x *fitter) fabric(curves []hardware.CollectiveCurve) (*collective.Fabric, error) {
	b := x.base
	return collective.FabricOf(b.GPU, b.Node, b.Network, b.Software, curves...)
}

// sizes is curveOf for collectives, whose time is that of the call.
func sizes(points []point) curve {
	shots := make([]shot, len(points))
	for i := range points {
		b, _ := points[i].number("bytes")
		shots[i] = shot{point: &points[i], kernel: points[i].seconds}
		shots[i].op.Bytes = units.Bytes(b)
	}
	return curveOf(shots, func(s *shot) float64 { return s.kernel })
}

// line is the straight line of least relative error through a curve.
func line(bytes []units.Bytes, times []units.Seconds) *hardware.AlphaBeta {
	n := len(bytes)
	x, y, w := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range bytes {
		x[i], y[i], w[i] = float64(bytes[i]), float64(times[i]), float64(1/(times[i]*times[i]))
	}
	alpha, slope := stat.LinearRegression(x, y, w, false)
	if !(alpha > 0) { // no line through noise starts before nothing is sent
		alpha, slope = stat.LinearRegression(x, y, w, true)
	}
	if !(slope > 0) {
		return nil
	}
	l := &hardware.AlphaBeta{Alpha: units.Seconds(alpha), Beta: units.Rate(1 / slope), RSquared: stat.RSquared(x, y, w, alpha, slope)}
	for i := range x {
		e := math.Abs((alpha+slope*x[i])/y[i] - 1)
		l.Mean += e / float64(n)
		l.Max = max(l.Max, e)
	}
	return l
}
