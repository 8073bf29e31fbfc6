package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// shot is a case with the op that estimate would price for it.
type shot struct {
	*point
	op     tape.Op
	kernel float64 // seconds of the kernel alone, at full clock
}

// busy is the time of the kernel alone: the gap behind it is the launch law's. A
// kernel never takes less than half of the time from one to the next.
func (x *fitter) busy(p *point) float64 { return max(p.seconds-x.gap, p.seconds/2) }

// clockRatio is the SM clock of a case over the highest; 1 when unknown. A reading
// below half is one of an idle GPU and says nothing.
func (x *fitter) clockRatio(p *point) float64 {
	top := float64(x.base.GPU.TopClock())
	if r := p.clock / top; top > 0 && r > 0.5 && r < 0.99 {
		return r
	}
	return 1
}

// slowdown is the time of a class of work in a case over that at the highest clock.
func (x *fitter) slowdown(class string, p *point) float64 {
	return x.machine.Laws.Power.Slowdown(class, &x.base.GPU, x.clockRatio(p))
}

// gemmShots reads the cases of matrix multiplies by dtype.
func (x *fitter) gemmShots() map[tape.DType][]shot {
	out := map[tape.DType][]shot{}
	for _, p := range x.alone("gemm") {
		v, ok := p.whole("m", "n", "k")
		layout, known := kernel.LayoutOf[p.of["layout"]]
		name := p.of["dtype"]
		d, typed := tape.DTypeOf(name)
		if !ok || !known || !typed {
			x.drop("gemm", &p, "m, n, k, layout or dtype cannot be read")
			continue
		}
		s := shot{&p, kernel.GEMM(layout, d, v[0], v[1], v[2]), x.busy(&p) / x.slowdown("gemm", &p)}
		if s.op.M%8 != 0 || s.op.N%8 != 0 || s.op.K%8 != 0 {
			x.drop("gemm", &p, "extents are not multiples of 8")
			continue
		}
		out[d] = append(out[d], s)
	}
	return out
}

// timer prices with the laws of the machine.
func (x *fitter) timer() *kernel.Timer {
	t, err := kernel.New(&x.machine)
	if err != nil { // the base priced before, and no class is ever taken away
		panic(err)
	}
	return t
}

// residuals are ln(measured/predicted) of shots.
func residuals(t *kernel.Timer, shots []shot) []float64 {
	out := make([]float64, len(shots))
	for i := range shots {
		out[i] = math.Log(shots[i].kernel / float64(t.Time(&shots[i].op)))
	}
	return out
}

// Fewest cases for a whole law, and for one factor of it.
const (
	enough = 24
	few    = 4
)

// gemm fits the law to the 16-bit shapes, then the rate of each other format.
func (x *fitter) gemm() {
	all := x.gemmShots()
	shots := all[tape.BF16]
	total := 0
	for _, s := range all {
		total += len(s)
	}
	if len(shots) == 0 {
		shots = all[tape.F16] // the same units at the same rate
	}
	if x.missing("gemm", "the matrix-multiply law is", len(shots), few) {
		return
	}
	fit := x.newGEMM
	if x.same(x.base.Laws.GEMM.On) {
		fit = x.movedGEMM
	}
	law, out, labels := fit(shots)
	if law.Rate["bf16"] > 1 {
		x.note("fit.above-peak", "check gpu.peak of the base profile and the clocks of the samples", "matrix multiplies reach %.0f %% of the dense peak of %s", 100*law.Rate["bf16"], x.base.Name)
	}
	x.otherFormats(law, all, shots)
	law.Releases = nil // the library that is there was measured, whatever its month
	x.machine.Laws.GEMM, x.own.GEMM = law, law
	p := x.probe("gemm")
	p.judge(labels, out, residuals(x.before, shots), law.Residual)
	p.Points = total
}

// same reports whether a law of the base was measured on a GPU of this kind.
func (x *fitter) same(on *hardware.GPU) bool {
	return on != nil && on.Name.Value == x.machine.GPU.Name.Value
}

// movedGEMM is a law measured on a GPU of this kind, each of its points by the ratio
// around it and the rates by that of all: the samples' shapes tell how this machine
// differs, they do not replace a denser table. Errors are those of each shape's ratio,
// foretold from the others.
func (x *fitter) movedGEMM(shots []shot) (*hardware.GEMMLaw, []float64, []string) {
	base := x.base.Laws.GEMM
	var drifts [3][]drift
	place := func(o *tape.Op) [3]float64 { return octaves(float64(o.M), float64(o.N), float64(o.K)) }
	for i := range shots {
		s := &shots[i]
		drifts[s.op.Layout] = append(drifts[s.op.Layout], drift{place(&s.op), x.drifted(s, base.On)})
	}
	all := median(logs(drifts[:]...))
	law := *base
	law.Source = movedSource(base.Source)
	law.Rate = maps.Clone(base.Rate)
	for k := range law.Rate {
		law.Rate[k] *= math.Exp(-all)
	}
	law.Points = slices.Clone(base.Points)
	for i := range law.Points {
		p := &law.Points[i]
		for layout := range p.Time {
			o := kernel.GEMM(tape.Layout(layout), tape.BF16, int64(p.M), int64(p.N), int64(p.K))
			p.Time[layout] *= units.Seconds(math.Exp(around(drifts[layout], place(&o), all, -1)))
		}
	}
	law.Points = append(law.Points, x.newPoints(base, shots)...)
	var out []float64
	var labels []string
	for layout, cases := range drifts {
		for i, d := range cases {
			out = append(out, d.log-around(cases, d.at, all, i))
			labels = append(labels, fmt.Sprintf("%s %.0f×%.0f×%.0f", tape.Layout(layout), math.Exp2(d.at[0]), math.Exp2(d.at[1]), math.Exp2(d.at[2])))
		}
	}
	law.Residual = math.Hypot(base.Residual, holding(out))
	return &law, out, labels
}

// newPoints are the shapes that the base lacks. What the reference's probe measured,
// too, is no news of a kind of machine; a probe's weight gradients are not added to
// anything, as those of the base's points may be.
func (x *fitter) newPoints(base *hardware.GEMMLaw, shots []shot) hardware.GEMMPoints {
	var out hardware.GEMMPoints
	for _, p := range gemmPoints(shots) {
		if !x.ref.is(base.On) && !slices.ContainsFunc(base.Points, func(q hardware.GEMMPoint) bool { return q.M == p.M && q.N == p.N && q.K == p.K }) {
			if base.PointsAdded {
				p.Time[tape.LayoutWgrad] = 0
			}
			out = append(out, p)
		}
	}
	return out
}

// movedSource is the source of a law that samples moved.
func movedSource(source string) string {
	return strings.TrimSuffix(source, movedBy) + movedBy
}

const movedBy = "; times by what perfplan calibrate measured on this machine"

// newGEMM fits the constants of the law, with the base's as a weak prior, and keeps
// the samples' shapes as its points. Errors are those of each shape, foretold from the
// others.
func (x *fitter) newGEMM(shots []shot) (*hardware.GEMMLaw, []float64, []string) {
	base := x.base.Laws.GEMM
	on := x.machine.GPU
	law := *base
	law.Points, law.PointsAdded, law.On, law.Source = nil, false, &on, ""
	with := func(f []float64) *hardware.GEMMLaw {
		l := law
		l.Rate = maps.Clone(base.Rate)
		for k := range l.Rate {
			l.Rate[k] *= f[0]
		}
		l.Setup = base.Setup * units.Seconds(f[1])
		if len(f) > 2 {
			l.KOverhead, l.SmallTile, l.Memory, l.Exponent = base.KOverhead*f[2], base.SmallTile*f[3], base.Memory*f[4], 1+(base.Exponent-1)*f[5]
		}
		return &l
	}
	n := 6
	if len(shots) < enough {
		n = 2
		x.note("fit.few-gemm", "measure at least 24 shapes", "probe gemm has %d 16-bit cases: only the rate and the fixed cost of the law are fitted", len(shots))
	}
	best := refine(n, func(f []float64) []float64 {
		x.machine.Laws.GEMM = with(f)
		return residuals(x.timer(), shots)
	})
	fitted := with(best)
	x.machine.Laws.GEMM = fitted
	alone := deviation(residuals(x.timer(), shots))
	fitted.Points = gemmPoints(shots)
	left := x.timer().LeaveOneOut()
	out := make([]float64, len(left))
	labels := make([]string, len(left))
	for i, l := range left {
		out[i] = l.Log
		labels[i] = fmt.Sprintf("%s %d×%d×%d", l.Op.Layout, l.Op.M, l.Op.N, l.Op.K)
	}
	fitted.Residual = deviation(out)
	fitted.Extrapolate = max(base.Extrapolate, alone)
	return fitted, out, labels
}

// otherFormats sets the rate of each format by the median of its shapes.
func (x *fitter) otherFormats(l *hardware.GEMMLaw, all map[tape.DType][]shot, done []shot) {
	x.machine.Laws.GEMM = l
	var thin []string // formats with too few shapes
	for _, d := range slices.Sorted(maps.Keys(all)) {
		shots := all[d]
		if d == tape.BF16 || len(shots) == 0 || &shots[0] == &done[0] {
			continue
		}
		name := d.String()
		if len(shots) < few {
			thin = append(thin, name)
			continue
		}
		start := cmp.Or(l.Rate[name], l.Rate["bf16"])
		f := refine(1, func(f []float64) []float64 {
			l.Rate[name] = start * f[0]
			return residuals(x.timer(), shots)
		})
		l.Rate[name] = start * f[0]
	}
	if len(thin) > 0 {
		x.note("fit.too-few", "run perfplan calibrate --only gemm", "probe gemm has fewer than %d usable cases of %s: their rates are inherited from %s", few, strings.Join(thin, ", "), x.base.Name)
	}
}

// gemmPoints are the measured shapes, by layer, in ascending order.
func gemmPoints(shots []shot) hardware.GEMMPoints {
	rows := map[[3]float64]*hardware.GEMMPoint{}
	for _, s := range shots {
		v, _ := s.whole("m", "n", "k")
		key := [3]float64{float64(v[0]), float64(v[1]), float64(v[2])}
		if rows[key] == nil {
			rows[key] = &hardware.GEMMPoint{M: key[0], N: key[1], K: key[2]}
		}
		rows[key].Time[s.op.Layout] = units.Seconds(s.kernel)
	}
	var out hardware.GEMMPoints
	for _, key := range slices.SortedFunc(maps.Keys(rows), func(a, b [3]float64) int { return slices.Compare(a[:], b[:]) }) {
		out = append(out, *rows[key])
	}
	return out
}
