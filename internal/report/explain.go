package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Stage is the intermediate of the flow that an explanation shows.
type Stage string

const (
	Tree     Stage = "tree"     // from the step down to single ops, by time
	Ops      Stage = "ops"      // what a rank runs: shapes, FLOPs, bytes, kernels
	Times    Stage = "times"    // each op alone: time, bound, formula, source
	Timeline Stage = "timeline" // what ran when, by stream
	Memory   Stage = "memory"   // the peak of each pass, by class
)

// ParseStage reads the name of a stage.
func ParseStage(name string) (Stage, error) {
	known := []string{string(Tree), string(Ops), string(Times), string(Timeline), string(Memory)}
	if slices.Contains(known, name) {
		return Stage(name), nil
	}
	return "", diag.Errorf("%q is not a stage%s", name, diag.DidYouMean(name, known))
}

// Explain is a prediction whose result has its detail, and how to show it.
type Explain struct {
	Estimate
	Stage Stage
	Depth int    // of the tree: 1 units, 2 modules, 3 ops
	Unit  string // only this unit; "" for all
}

// WriteExplain prints where a prediction comes from.
func WriteExplain(w io.Writer, x *Explain, f Format, s Style) error {
	if x.Unit != "" {
		var names []string
		for _, u := range x.Result.Detail.Units {
			names = append(names, u.Name)
		}
		if !slices.Contains(names, x.Unit) {
			return diag.Errorf("--unit: the model has no %q; it has %s", x.Unit, strings.Join(names, ", "))
		}
	}
	return Write(w, x, f, s)
}

// units are the units to show.
func (x *Explain) units() []estimate.UnitDetail {
	return slices.DeleteFunc(slices.Clone(x.Result.Detail.Units), func(u estimate.UnitDetail) bool { return x.Unit != "" && u.Name != x.Unit })
}

// grid is the main table of the stage.
func (x *Explain) grid() *grid {
	switch x.Stage {
	case Ops:
		return opsGrid(x.units())
	case Times:
		return timesGrid(x.units())
	case Timeline:
		return timelineGrid(x.Result)
	case Memory:
		return pointsGrid(x.Result)
	}
	return treeGrid(x.tree(), x.Depth, x.Result.StepTime)
}

func (x *Explain) page() *page {
	r := x.Result
	p := &page{title: x.title()}
	p.add(fields{{"Plan", x.planText()}, {"Step time", r.StepTime.String() + rangeText(r)}, {"Bound by", boundText(r.Bound)}, {"Memory", fitText(&r.Memory)}})
	switch x.Stage {
	case Ops:
		p.section("What one rank runs, once per unit and micro batch", x.grid())
	case Times:
		p.section("Each op alone", x.grid(), lawSources(x.units()))
	case Timeline:
		if len(r.Spans) == 0 {
			p.section("Timeline", paragraph("A step with pipeline parallelism is scheduled by stages and records no single spans; see the stages."), stageGrid(r))
			return p
		}
		p.section("Timeline of one rank", x.grid())
	case Memory:
		if len(r.Detail.Memory) > 0 {
			p.section("Peak of each pass, in GiB", x.grid())
		} else if len(r.Stages) > 1 {
			p.section("Pipeline stages", stageGrid(r))
		}
		p.section(memoryTitle(r), memoryGrid(r))
	default:
		p.section("From the step to its ops", x.grid())
		if len(r.Detail.Collectives) > 0 {
			p.section("Collectives of one step, each alone", collectivesGrid(r.Detail.Collectives))
		}
		notes(p, r.Job, r.Notes)
	}
	return p
}

// treeNode is a share of the step with what it is made of.
type treeNode struct {
	name  string
	calls int64 // kernels or ops; 0 when it does not apply
	time  units.Seconds
	bound string // what limits an op
	rate  string // that it reaches, for people
	inner []*treeNode
}

// tree breaks the step down: units with their modules and ops, then what is not a
// kernel of a unit. The inner times of a node add up to its own.
func (x *Explain) tree() *treeNode {
	r := x.Result
	root := &treeNode{name: "step", time: r.StepTime}
	var kernels units.Seconds
	for i := range r.Detail.Units {
		alike := func(u estimate.UnitDetail) bool { return u.Name == r.Detail.Units[i].Name }
		if slices.ContainsFunc(r.Detail.Units[:i], alike) {
			continue
		}
		u := unitNode(slices.DeleteFunc(slices.Clone(r.Detail.Units[i:]), func(u estimate.UnitDetail) bool { return !alike(u) }), r.Detail.Passes)
		kernels += u.time
		root.inner = append(root.inner, u)
	}
	root.sort()
	for _, p := range parts(r) {
		switch p.key {
		case "gemm", "attention", "memory_bound": // the kernels of the units
			continue
		}
		if p.time < negligible && p.time > -negligible {
			continue
		}
		node := &treeNode{name: p.name, time: p.time}
		for _, q := range p.inner {
			node.inner = append(node.inner, &treeNode{name: q.name, time: q.time})
		}
		if p.key == "gaps" {
			node.inner = looseNodes(r.Detail.Kernels, p.time)
		}
		root.inner = append(root.inner, node)
	}
	if rest := r.Parts.GEMM + r.Parts.Attention + r.Parts.Memory - kernels; rest > negligible || rest < -negligible {
		root.inner = append(root.inner, &treeNode{name: "other kernels", time: rest})
	}
	if x.Unit != "" {
		root.inner = slices.DeleteFunc(root.inner, func(u *treeNode) bool { return u.name != x.Unit && !strings.HasPrefix(u.name, x.Unit+" ×") })
	}
	return root
}

// looseNodes are the kernels that are no part of a unit, and what is left of the time that
// they and the gaps between kernels take.
func looseNodes(list []estimate.KernelDetail, whole units.Seconds) []*treeNode {
	var out []*treeNode
	rest := whole
	for i := range list {
		k := &list[i]
		if k.Beside {
			continue
		}
		t := k.Time * units.Seconds(k.Count)
		rest -= t
		op := estimate.OpDetail{Op: k.Op, Time: k.Time, Why: k.Why}
		out = append(out, &treeNode{name: k.Op.Prim + " " + cmp.Or(shape(k.Op), k.Op.Bytes.String()), calls: kernels(k.Op) * k.Count, time: t, bound: string(k.Why.Bound), rate: rate(&op)})
	}
	if len(out) == 0 {
		return nil
	}
	out = append(out, &treeNode{name: "gaps and the rest", time: rest})
	slices.SortStableFunc(out, func(a, b *treeNode) int { return cmp.Compare(b.time, a.time) })
	return out
}

// unitNode is all units of a name over the whole step, in so many passes: graphs may cut them otherwise.
func unitNode(list []estimate.UnitDetail, passes int64) *treeNode {
	node := &treeNode{name: list[0].Name}
	modules := map[string]*treeNode{}
	ops := map[string]*treeNode{}
	count := 0
	for i := range list {
		u := &list[i]
		count += u.Count
		node.calls += int64(u.Count) * passes
		node.add(u, passes, modules, ops)
	}
	if count > 1 {
		node.name = fmt.Sprintf("%s × %d", node.name, count)
	}
	node.sort()
	return node
}

// add puts the kernels of a unit below those of others of its name.
func (n *treeNode) add(u *estimate.UnitDetail, passes int64, modules, ops map[string]*treeNode) {
	times := int64(u.Count) * passes
	for _, list := range [][]estimate.OpDetail{u.Forward, u.Backward} {
		for i := range list {
			o := &list[i]
			if o.Comm != nil || o.Op.Class == tape.NoKernel {
				continue
			}
			name := cmp.Or(o.Op.Module, "other")
			m := modules[name]
			if m == nil {
				m = &treeNode{name: name}
				modules[name] = m
				n.inner = append(n.inner, m)
			}
			label := opName(o.Op) + " " + shape(o.Op)
			leaf := ops[name+"\x00"+label]
			if leaf == nil {
				leaf = &treeNode{name: strings.TrimSpace(label), bound: string(o.Why.Bound), rate: rate(o)}
				ops[name+"\x00"+label] = leaf
				m.inner = append(m.inner, leaf)
			}
			t := o.Time * units.Seconds(times)
			leaf.time += t
			leaf.calls += kernels(o.Op) * times
			m.time += t
			m.calls += kernels(o.Op) * times
			n.time += t
		}
	}
}

// sort orders every level by time.
func (n *treeNode) sort() {
	slices.SortStableFunc(n.inner, func(a, b *treeNode) int {
		return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.name, b.name))
	})
	for _, c := range n.inner {
		c.sort()
	}
}

// opName names an op with the pass it belongs to, unless its own name says it.
func opName(o *tape.Op) string {
	for _, end := range []string{"_backward", "_dgrad", "_wgrad"} {
		if strings.HasSuffix(o.Prim, end) {
			return o.Prim
		}
	}
	if o.Phase == tape.Forward {
		return o.Prim
	}
	return o.Prim + " (" + o.Phase.String() + ")"
}

// shape is the problem an op solves.
func shape(o *tape.Op) string {
	switch {
	case o.Attn != nil:
		a := o.Attn
		s := fmt.Sprintf("%d×%d heads, %d×%d, width %d", a.Batch, a.Heads, a.Queries, a.Keys, a.QKDim)
		if a.Causal {
			s += ", causal"
		}
		return s
	case o.Class == tape.GEMM || o.Class == tape.GroupedGEMM:
		s := fmt.Sprintf("%d×%d×%d", o.M, o.N, o.K)
		if o.Batch > 1 {
			s = fmt.Sprintf("%d of ", o.Batch) + s
		}
		return s
	case o.Comm != nil:
		return "over " + o.Comm.Group
	case o.Elements > 0:
		return units.Count(o.Elements)
	}
	return ""
}

// rate is the rate that an op reaches in what limits it: arithmetic, else memory,
// and the limit where it is neither.
func rate(o *estimate.OpDetail) string {
	bound, bytes := string(o.Why.Bound), o.Op.Bytes*units.Bytes(max(o.Op.Count, 1)) // of all kernels, as FLOPs and Time are
	switch {
	case o.Time <= 0:
		return ""
	case o.Op.FLOPs > 0 && o.Why.Bound == kernel.Compute:
		return o.Op.FLOPs.Per(o.Time).String()
	case o.Op.Bytes > 0 && o.Why.Bound == kernel.Memory:
		return bytes.Per(o.Time).String()
	case o.Op.FLOPs > 0:
		return bound + " " + o.Op.FLOPs.Per(o.Time).String()
	case o.Op.Bytes > 0 && o.Why.Bound != kernel.Latency:
		return bound + " " + bytes.Per(o.Time).String()
	}
	return bound
}

// smallest share of the step that the tree shows for itself.
const smallShare = 0.002

// large are the inner nodes worth a line of their own; a single small one is, too.
func (n *treeNode) large(step units.Seconds) []*treeNode {
	i := slices.IndexFunc(n.inner, func(c *treeNode) bool { return float64(c.time/step) < smallShare })
	if i < 0 || i == len(n.inner)-1 {
		return n.inner
	}
	return n.inner[:i]
}

func treeGrid(root *treeNode, depth int, step units.Seconds) *grid {
	g := &grid{bars: true, barDrop: true, columns: []column{{flex: 60, least: 36}, {title: "time", right: true}, {title: "share", right: true}, {title: "calls", right: true, drop: 2}, {title: "rate", right: true, drop: 1}}}
	var walk func(n *treeNode, level int)
	walk = func(n *treeNode, level int) {
		calls := ""
		if n.calls > 0 {
			calls = thousands(float64(n.calls))
		}
		l := line{cells: []string{n.name, n.time.String(), percent(float64(n.time / step)), calls, n.rate}, level: level, sum: level == 0}
		if level > 0 {
			l.share = float64(n.time / step)
		}
		g.lines = append(g.lines, l)
		if level >= depth {
			return
		}
		shown := n.inner
		if level > 0 {
			shown = n.large(step)
		}
		var rest units.Seconds
		for i, c := range n.inner {
			if i < len(shown) {
				walk(c, level+1)
			} else {
				rest += c.time
			}
		}
		if small := len(n.inner) - len(shown); small > 0 {
			g.lines = append(g.lines, line{cells: []string{fmt.Sprintf("%d smaller", small), rest.String(), percent(float64(rest / step)), "", ""}, level: level + 1})
		}
	}
	walk(root, 0)
	return g
}

// eachOp calls f for the ops of the units in the order in which they run.
func eachOp(list []estimate.UnitDetail, f func(unit string, o *estimate.OpDetail)) {
	for i := range list {
		u := &list[i]
		for _, ops := range [][]estimate.OpDetail{u.Forward, u.Backward} {
			for k := range ops {
				f(u.Name, &ops[k])
			}
		}
	}
}

func opsGrid(list []estimate.UnitDetail) *grid {
	g := &grid{columns: []column{{title: "unit", drop: 1}, {title: "phase", drop: 1}, {title: "module", drop: 1}, {title: "op", flex: 40, least: 18}, {title: "class", drop: 3}, {title: "dtype", drop: 5}, {title: "shape", flex: 48, least: 16},
		{title: "FLOPs", right: true, drop: 2}, {title: "bytes", right: true}, {title: "kernels", right: true, drop: 4}}}
	eachOp(list, func(unit string, o *estimate.OpDetail) {
		flops := ""
		if o.Op.FLOPs > 0 {
			flops = o.Op.FLOPs.String()
		}
		g.row(unit, o.Op.Phase.String(), o.Op.Module, o.Op.Prim, o.Op.Class.String(), o.Op.DType.String(), shape(o.Op), flops, moved(o.Op).String(), integer(kernels(o.Op)))
	})
	return g.joined()
}

// moved is what an op reads and writes, or sends.
func moved(o *tape.Op) units.Bytes {
	if o.Comm != nil {
		return o.Comm.Bytes
	}
	return o.Bytes
}

// kernels is the number of launches of an op.
func kernels(o *tape.Op) int64 {
	if o.Class == tape.NoKernel {
		return 0
	}
	return max(int64(o.Count), 1)
}

func timesGrid(list []estimate.UnitDetail) *grid {
	g := &grid{columns: []column{{title: "unit", drop: 3}, {title: "phase", drop: 5}, {title: "op", flex: 40, least: 18}, {title: "shape", flex: 40, drop: 4}, {title: "time", right: true}, {title: "±", right: true},
		{title: "host", right: true, drop: 6}, {title: "bound", drop: 2}, {title: "formula", flex: 60, drop: 1}, {title: "source", flex: 40, drop: 7}}}
	eachOp(list, func(unit string, o *estimate.OpDetail) {
		e := explained(o)
		g.row(unit, o.Op.Phase.String(), o.Op.Prim, shape(o.Op), o.Time.String(), percent(e.relErr), o.Host.String(), e.bound, e.formula, e.source)
	})
	return g.joined()
}

// lawSources lists what the times rest on, which the table may have no room for.
func lawSources(list []estimate.UnitDetail) piece {
	var out bullets
	eachOp(list, func(_ string, o *estimate.OpDetail) {
		s := [2]string{o.Why.Source, ""}
		if o.Comm == nil && s[0] != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	})
	return sources{out}
}

// explanation is the reason of a time, of a kernel or of a collective.
type explanation struct {
	bound, formula, source string
	relErr                 float64
}

func explained(o *estimate.OpDetail) explanation {
	if c := o.Comm; c != nil {
		return explanation{"network", strings.TrimSpace(c.Cost.Algorithm + " " + c.Cost.Protocol), string(c.Cost.Source), c.Cost.RelErr}
	}
	return explanation{string(o.Why.Bound), o.Why.Formula, o.Why.Source, o.Why.RelErr}
}

func collectivesGrid(list []estimate.CommDetail) *grid {
	g := &grid{columns: []column{{title: "operation"}, {title: "group"}, {title: "ranks", right: true}, {title: "size", right: true}, {title: "calls", right: true}, {title: "each", right: true},
		{title: "bus", right: true, drop: 1}, {title: "NCCL", drop: 2}, {title: "from", drop: 3}}}
	at := map[string]int{} // buckets differ by a few bytes, which nobody sees
	counts := []int64{}
	for i := range list {
		c := &list[i]
		ranks := integer(c.Ranks)
		if c.Nodes > 1 {
			ranks += fmt.Sprintf(" on %d nodes", c.Nodes)
		}
		cells := []string{c.Kind, c.Group, ranks, c.Bytes.String(), "", c.Cost.Time.String(), c.Cost.BusBW.String(), strings.TrimSpace(c.Cost.Algorithm + " " + c.Cost.Protocol), string(c.Cost.Source)}
		key := c.Kind + "\x00" + c.Group + "\x00" + c.Bytes.String()
		if _, known := at[key]; !known {
			at[key] = len(counts)
			counts = append(counts, 0)
			g.row(cells...)
		}
		counts[at[key]] += c.Count
	}
	for i, n := range counts {
		g.lines[i].cells[4] = thousands(float64(n))
	}
	return g
}

func timelineGrid(r *estimate.Result) *grid {
	g := &grid{columns: []column{{title: "stream"}, {title: "start", right: true}, {title: "end", right: true, drop: 1}, {title: "lasts", right: true}, {title: "what", flex: 40}}}
	for _, s := range spans(r) {
		g.row(s.Stream, units.Seconds(s.Start).String(), units.Seconds(s.End).String(), units.Seconds(s.End-s.Start).String(), s.Label)
	}
	return g
}

func pointsGrid(r *estimate.Result) *grid {
	g := &grid{columns: []column{{title: "pass", flex: 32}, {title: "allocated", right: true}}}
	points := r.Detail.Memory
	var classes []int
	for c := range r.Memory.By {
		if slices.ContainsFunc(points, func(p point) bool { return p.By[c] > 0 }) {
			classes = append(classes, c)
			g.columns = append(g.columns, column{title: memoryRow(r.Job, className(c)), right: true, drop: 1 + len(classes)})
		}
	}
	for _, p := range points {
		cells := []string{p.Label, gibibytes(p.Allocated)}
		for _, c := range classes {
			cells = append(cells, gibibytes(p.By[c]))
		}
		g.row(cells...)
	}
	return g
}
