package fit

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// attentionShots reads the 16-bit cases of fused attention. The time of a case holds
// that of the small kernels beside the fused one, whose own laws foretell them.
func (x *fitter) attentionShots() []shot {
	var out []shot
	timer := x.timer()
	for _, p := range x.alone("attention") {
		v, ok := p.whole("seq", "heads", "kv_heads", "head_dim", "batch")
		d, typed := tape.DTypeOf(p.of["dtype"])
		direction := p.of["direction"]
		switch {
		case !ok || !typed || direction != "fwd" && direction != "bwd" || v[1]%v[2] != 0:
			x.drop("attention", &p, "seq, heads, kv_heads, head_dim, batch, direction or dtype cannot be read")
			continue
		case d != tape.BF16 && d != tape.F16:
			x.drop("attention", &p, "the law is of 16-bit kernels")
			continue
		}
		shape := tape.AttentionShape{Batch: v[4], Heads: v[1], KVHeads: v[2], Queries: v[0], QKDim: v[3], VDim: v[3], Causal: p.flag("causal"), Backward: direction == "bwd"}
		alone := x.busy(&p)
		for _, o := range kernel.AroundAttention(d, shape) {
			alone -= float64(timer.Time(&o)) + x.gap
		}
		out = append(out, shot{&p, kernel.Attention(d, shape), max(alone, p.seconds/2) / x.slowdown("attention", &p)})
	}
	return out
}

// attention fits the law of both directions.
func (x *fitter) attention() {
	shots := x.attentionShots()
	if x.missing("attention", "the attention law is", len(shots), few) {
		return
	}
	fit := x.newAttention
	if x.same(x.base.Laws.Attention.On) {
		fit = x.movedAttention
	}
	law, out, labels := fit(shots)
	law.Releases = nil // as of products
	law.Flavour = flavours(x.base.Laws.Attention, law)
	x.machine.Laws.Attention, x.own.Attention = law, law
	p := x.probe("attention")
	p.judge(labels, out, residuals(x.before, shots), law.Residual)
	p.Points = len(shots)
}

// movedAttention is a law measured on a GPU of this kind, moved as movedGEMM moves
// its own. Cases with the whole square, which training does not run, tell of the rate.
func (x *fitter) movedAttention(shots []shot) (*hardware.AttentionLaw, []float64, []string) {
	base := x.base.Laws.Attention
	law := *base
	law.Source = movedSource(base.Source)
	law.Points = slices.Clone(base.Points)
	measured := attentionPoints(shots)
	var out []float64
	var labels []string
	for direction, pass := range []*hardware.AttentionPass{&law.Forward, &law.Backward} {
		var drifts, causal []drift
		for i := range shots {
			s := &shots[i]
			if a := s.op.Attn; a.Backward == (direction == 1) {
				d := drift{octaves(float64(a.Queries), float64(a.QKDim), float64(a.Batch*a.Heads)), x.drifted(s, base.On)}
				drifts = append(drifts, d)
				if a.Causal {
					causal = append(causal, d)
				}
				labels = append(labels, attentionName(a))
			}
		}
		all := median(logs(drifts))
		for _, d := range drifts { // a causal case among its own kind
			out = append(out, d.log-around(causal, d.at, all, slices.Index(causal, d)))
		}
		pass.Rate = slices.Clone(pass.Rate)
		for i := range pass.Rate {
			pass.Rate[i] *= math.Exp(-all)
		}
		for i := range law.Points {
			p := &law.Points[i]
			p.Time[direction] *= units.Seconds(math.Exp(around(causal, octaves(p.Sequence, p.Width, p.Batch*p.Heads), all, -1)))
		}
	}
	for _, p := range measured {
		if !x.ref.is(base.On) && !slices.ContainsFunc(base.Points, func(q hardware.AttentionPoint) bool { p.Time = q.Time; return p == q }) {
			law.Points = append(law.Points, p)
		}
	}
	law.Residual = math.Hypot(base.Residual, holding(out))
	return &law, out, labels
}

// attentionName is a problem in one line.
func attentionName(a *tape.AttentionShape) string {
	direction := "fwd"
	if a.Backward {
		direction = "bwd"
	}
	return fmt.Sprintf("%s batch %d, seq %d, heads %d of %d", direction, a.Batch, a.Queries, a.Heads, a.QKDim)
}

// newAttention fits rate and diagonal by head width, and the fixed cost, of each
// direction. Widths that were not measured keep the base's constants.
func (x *fitter) newAttention(shots []shot) (*hardware.AttentionLaw, []float64, []string) {
	base, on := x.base.Laws.Attention, x.machine.GPU
	law := *base
	law.Points, law.On, law.Source = nil, &on, ""
	law.Widths = attentionWidths(base, shots)
	law.Forward, law.Backward = widened(base, &base.Forward, law.Widths), widened(base, &base.Backward, law.Widths)
	for _, backward := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(shots), func(s shot) bool { return s.op.Attn.Backward != backward })
		if len(some) == 0 {
			continue
		}
		pass := &law.Forward
		if backward {
			pass = &law.Backward
		}
		from := *pass
		n := len(law.Widths)
		with := func(f []float64) {
			pass.Rate, pass.Diagonal = slices.Clone(from.Rate), slices.Clone(from.Diagonal)
			for i := range n {
				pass.Rate[i] *= f[1+i]
				pass.Diagonal[i] *= f[1+n+i]
			}
			pass.Setup, pass.Launch = from.Setup*units.Seconds(f[0]), from.Launch*units.Seconds(f[0])
		}
		with(refine(1+2*n, func(f []float64) []float64 {
			with(f)
			x.machine.Laws.Attention = &law
			return residuals(x.timer(), some)
		}))
	}
	x.machine.Laws.Attention = &law
	alone := deviation(residuals(x.timer(), shots))
	law.Points = attentionPoints(shots)
	timer := x.timer()
	left := timer.LeaveOneOutAttention()
	out, labels := make([]float64, len(left)), make([]string, len(left))
	for i, l := range left {
		out[i], labels[i] = l.Log, attentionName(l.Op.Attn)
	}
	for _, s := range shots { // those without a mask are no points: the law foretells them
		if !s.op.Attn.Causal {
			out, labels = append(out, residuals(timer, []shot{s})[0]), append(labels, s.name)
		}
	}
	law.Residual, law.Extrapolate = deviation(out), max(base.Extrapolate, alone)
	return &law, out, labels
}

// attentionWidths are the head widths of the base and of the samples.
func attentionWidths(base *hardware.AttentionLaw, shots []shot) []float64 {
	widths := map[float64]bool{}
	for _, w := range base.Widths {
		widths[w] = true
	}
	for _, s := range shots {
		widths[float64(s.op.Attn.QKDim)] = true
	}
	return slices.Sorted(maps.Keys(widths))
}

// widened is a pass with its tables at other widths.
func widened(base *hardware.AttentionLaw, p *hardware.AttentionPass, widths []float64) hardware.AttentionPass {
	out := hardware.AttentionPass{Setup: p.Setup, Rows: p.Rows, Launch: p.Launch, Bytes: p.Bytes}
	for _, w := range widths {
		out.Rate = append(out.Rate, base.At(p.Rate, w))
		out.Diagonal = append(out.Diagonal, base.At(p.Diagonal, w))
		out.Masked = append(out.Masked, base.At(p.Masked, w))
		if len(p.Block) > 0 {
			out.Block = append(out.Block, base.At(p.Block, w))
			out.Longest = append(out.Longest, base.At(p.Longest, w))
		}
	}
	return out
}

// flavours are the base's other implementations at the widths of a law that was fitted
// over it: each as much slower than the law's own kernel as there, for no probe runs them.
func flavours(base, law *hardware.AttentionLaw) map[string]hardware.AttentionFlavour {
	at := func(f hardware.FlavourPass, from, to *hardware.AttentionPass) hardware.FlavourPass {
		for _, table := range []*[]float64{&f.Rate, &f.Diagonal, &f.Masked, &f.Block, &f.Longest, &f.Kept, (*[]float64)(&f.Dropout)} {
			old := *table
			if *table = nil; old == nil {
				continue
			}
			for _, w := range law.Widths {
				*table = append(*table, base.At(old, w))
			}
		}
		for i, w := range law.Widths {
			for _, rates := range [][]float64{f.Rate, f.Kept} {
				if rates != nil {
					rates[i] *= to.Rate[i] / base.At(from.Rate, w)
				}
			}
		}
		return f
	}
	out := map[string]hardware.AttentionFlavour{}
	for name, f := range base.Flavour {
		out[name] = hardware.AttentionFlavour{Heads: f.Heads, Forward: at(f.Forward, &base.Forward, &law.Forward), Backward: at(f.Backward, &base.Backward, &law.Backward)}
	}
	return out
}

// attentionPoints are the measured causal problems, in ascending order.
func attentionPoints(shots []shot) hardware.AttentionPoints {
	rows := map[[5]float64]*hardware.AttentionPoint{}
	for _, s := range shots {
		a := s.op.Attn
		if !a.Causal {
			continue
		}
		key := [5]float64{float64(a.QKDim), float64(a.Queries), float64(a.Batch), float64(a.Heads), float64(a.KVHeads)}
		if rows[key] == nil {
			rows[key] = &hardware.AttentionPoint{Batch: key[2], Sequence: key[1], Heads: key[3], KVHeads: key[4], Width: key[0]}
		}
		i := 0
		if a.Backward {
			i = 1
		}
		rows[key].Time[i] = units.Seconds(s.kernel)
	}
	var out hardware.AttentionPoints
	for _, key := range slices.SortedFunc(maps.Keys(rows), func(a, b [5]float64) int { return slices.Compare(a[:], b[:]) }) {
		out = append(out, *rows[key])
	}
	return out
}
