package estimate

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// nested runs units of FSDP that are not layers: a unit is gathered before the first module that
// is in it runs, and while the one before that does; it is sharded again, and its gradients are
// reduced, behind the last. One that has several modules of a model, its root the most, is
// gathered all that while.
type nested struct {
	h           *shards
	of          dataparallel.Partition
	uses        uses
	turn        int     // the first of the backward pass
	opens, ends [][]int // by use: the units that it is the first to be in, and the last
	open        []bool  // by unit: its parameters are there
}

func (x *nested) begin(h *shards) {
	*x = nested{h: h, of: x.of, uses: x.uses[:0], open: make([]bool, len(x.of.Leaf))}
	var unit []int // by weight
	list, at := h.s.list, make([]map[int]int, len(h.s.list))
	for i, u := range list {
		at[i] = map[int]int{}
		for k := range u.Params {
			if u.Params[k].TiedCopy && h.s.chunk.embedding != nil { // the table, the first of all
				at[i][k] = 0
				continue
			}
			at[i][k] = len(unit)
			unit = append(unit, x.of.Of[i][k])
		}
	}
	for i, u := range list {
		x.uses = x.uses.add(&u.forward, i, u, at[i])
	}
	x.turn = len(x.uses)
	for i := len(list) - 1; i >= 0; i-- {
		if i == len(list)-1 || len(list[i].backward.ops) > 0 { // else it is frozen
			x.uses = x.uses.add(&list[i].backward, i, list[i], at[i])
		}
	}
	x.opens, x.ends = make([][]int, len(x.uses)), make([][]int, len(x.uses))
	x.span(unit, 0, x.turn)
	x.span(unit, x.turn, len(x.uses))
}

// span finds from where to where units are in use among the modules of a pass. Those inside
// layers that are computed again are sharded between that and their backward pass, unless it
// follows at once: hooks before a module that is computed again shard it behind.
func (x *nested) span(unit []int, from, to int) {
	type stretch struct{ first, last int }
	var in []map[int]stretch // of units: while layers are computed again, or all
	for range 2 {
		in = append(in, map[int]stretch{})
	}
	use := func(n, part, k int) {
		s, ok := in[part][n]
		if !ok {
			s.first = k
		}
		in[part][n] = stretch{s.first, k}
	}
	for k := from; k < to; k++ {
		u := &x.uses[k]
		again := from > 0 && !u.grads
		for j, w := range u.weights {
			n := unit[w]
			switch leaf := x.of.Leaf[n]; {
			case leaf && !(j == 0 && u.matched) && x.matched(unit, n, k): // a bias: with its matrix
			case again && (leaf || x.regathers(n)):
				use(n, 1, k)
			default:
				use(n, 0, k)
			}
		}
		for _, n := range x.of.Of[u.stretch] {
			switch {
			case x.of.Leaf[n]:
			case again && x.regathers(n):
				use(n, 1, k)
			default:
				use(n, 0, k)
			}
		}
	}
	for n, a := range in[1] {
		if s, ok := in[0][n]; ok && s.first == a.last+1 && !x.regathers(n) {
			in[0][n] = stretch{a.first, s.last}
			delete(in[1], n)
		}
	}
	for _, spans := range in {
		for n, s := range spans {
			x.opens[s.first], x.ends[s.last] = append(x.opens[s.first], n), append(x.ends[s.last], n)
		}
	}
	for k := from; k < to; k++ { // from outside to inside, and back
		slices.Sort(x.opens[k])
		slices.Sort(x.ends[k])
		slices.Reverse(x.ends[k])
	}
}

// matched reports whether a module of the stretch of use k multiplies by a weight of unit n.
func (x *nested) matched(unit []int, n, k int) bool {
	for i := range x.uses {
		if u := &x.uses[i]; u.matched && u.sec == x.uses[k].sec && u.stretch == x.uses[k].stretch && unit[u.weights[0]] == n {
			return true
		}
	}
	return false
}

// regathers reports whether unit n is gathered for a layer that is computed again, and then once more.
func (x *nested) regathers(n int) bool { return x.h.reentrant && x.h.reshards(n) }

func (x *nested) forward() { x.run(0, x.turn, x.shard) }

// shard lets go of a unit that does not stay for its backward pass.
func (x *nested) shard(n int) {
	if x.h.reshards(n) {
		x.drop(n)
	}
}

func (x *nested) drop(n int) {
	x.h.drop(n)
	x.open[n] = false
}

func (x *nested) backward(first, sync bool) {
	h := x.h
	x.run(x.turn, len(x.uses), func(n int) {
		x.drop(n)
		h.scatter(n, first, sync)
	})
	h.settle()
	for n := range x.open {
		x.drop(n)
	}
}

// run runs modules of the step's order and says of each unit when it has done with it.
func (x *nested) run(from, to int, end func(unit int)) {
	s, asked := x.h.s, false
	for k := from; k < to; k++ {
		u := &x.uses[k]
		begins := k == from || x.uses[k-1].stretch != u.stretch
		if begins {
			x.enter(u, from > 0)
		}
		if !asked {
			x.ask(k)
		}
		for _, n := range x.opens[k] {
			if !x.open[n] {
				x.h.open(n)
				x.open[n] = true
			}
		}
		segments := u.segments(s.p.latency())
		hook := 0.
		asked = k+1 < to && (u.grads || len(segments) == 1)
		switch {
		case asked && u.grads: // BACKWARD_PRE
			x.ask(k + 1)
		case asked: // the host reaches the next module while the device is busy with this one
			host := s.sim.Host
			s.sim.Host += float64(segments[0].Host)
			x.ask(k + 1)
			hook = s.sim.Host - host - float64(segments[0].Host)
			s.sim.Host = host
		}
		for i := range segments {
			s.sim.Run(&segments[i])
		}
		s.sim.Host += hook
		if k+1 == to || x.uses[k+1].stretch != u.stretch {
			x.leave(u, from > 0)
		}
		for _, n := range x.ends[k] {
			if from > 0 && !u.grads { // to be gathered again
				x.drop(n)
				continue
			}
			end(n)
		}
	}
}

// enter begins a pass over a stretch of the model.
func (x *nested) enter(u *use, backward bool) {
	s := x.h.s
	if backward {
		s.away.beforeBackward(u.stretch)
		s.label(u.name, " backward")
		return
	}
	s.away.beforeForward(u.stretch)
	s.label(u.name, " forward")
}

// leave ends it.
func (x *nested) leave(u *use, backward bool) {
	s := x.h.s
	if !backward {
		s.away.afterForward(u.stretch)
		return
	}
	if tied := s.tiedBytes(s.list[u.stretch]); tied > 0 {
		s.kernel(sum("tied", tied))
	}
}

// ask has the units gathered that use k is the first to be in.
func (x *nested) ask(k int) {
	h := x.h
	for _, n := range x.opens[k] {
		if h.params[n]+h.expert[n] == 0 {
			continue
		}
		h.s.sim.Host += float64(x.hooks(n, k) * h.s.p.python)
		h.launchGather(n, h.s.sim.Issued())
	}
}

// hooks is what the host does around unit n from use k on. Inside a layer it is what FSDP1 takes
// around one of the two matrices of an adapter; the root makes a view of each parameter, of
// which autograd joins the gradients (_flat_param.py, _get_unflat_views).
func (x *nested) hooks(n, k int) units.Seconds {
	h, u := x.h, &x.uses[k]
	of, again := h.s.p.host, k >= x.turn && !u.grads
	if x.of.Leaf[n] && of.Primitives["adapter_units"] > 0 {
		switch {
		case u.grads:
			return of.Primitives["adapter_units_backward"] / 2
		case again:
			return of.Primitives["adapter_units_again"] / 2
		}
		return of.Primitives["adapter_units"] / 2
	}
	c, back, view := of.FSDPUnit, of.FSDPBack, of.View
	if !h.reshards(n) {
		c, back = of.KeptUnit, of.KeptBack
	}
	if k >= x.turn && !(again && x.regathers(n)) {
		if c, view = back, of.ViewBack; h.back {
			c += of.FSDPReduce
		}
	}
	if n == dataparallel.Root && h.flat {
		c += units.Seconds(x.rooted()) * view
	}
	return c
}

// rooted is how many parameters are of the root.
func (x *nested) rooted() (n int) {
	for _, of := range x.of.Of {
		for _, unit := range of {
			if unit == dataparallel.Root {
				n++
			}
		}
	}
	return n
}

// segments are the kernels of a module, cut where the host waits.
func (u *use) segments(latency units.Seconds) (out []timeline.Segment) {
	from := u.from
	for _, w := range u.sec.waits {
		if from < w && w <= u.to {
			g := timeline.Compress(u.sec.launches[from:w], latency)
			g.Sync = true
			out, from = append(out, g), w
		}
	}
	return append(out, timeline.Compress(u.sec.launches[from:u.to], latency))
}
