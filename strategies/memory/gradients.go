package memory

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// backwardUnit applies a unit's backward events and does with its gradients what
// the mode says.
func (w *walker) backwardUnit(i int, u *ops.Unit, first, sync bool) {
	sec := &u.Backward
	switch w.Mode {
	case MainBuffers:
		w.events(i, w.bare[i]) // the GEMM writes into the buffer
		return
	case Plain, Bucketed, Copied:
		// Later micro batches add into the gradient that is there: theirs goes at once.
		release := !first || w.Mode == Bucketed && sync
		w.complete(i, sec.Events, 0, sec.Grads, func(g *tape.ParamGrad) {
			w.buckets()
			w.sum(i, g)
			w.settle(i, g, release && !w.waits(i, g))
			if w.Mode == Bucketed && sync && !first { // what was kept of those before is part of the bucket now
				w.t.free(w.grads + i*w.width + int(g.Store))
			}
		})
	case Lingering, Swept:
		w.events(i, sec.Events)
		for _, g := range sec.Grads {
			w.t.made(w.id(i, g.Store))
		}
	case Sharded:
		done := 0 // events
		if w.afterLoss(i) {
			head := slices.IndexFunc(sec.Ops, func(o tape.Op) bool { return !ofLoss(o) })
			done = before(sec.Events, head+1) // what comes with its first op is of the loss: logits go, their gradient is cast
			w.events(i, sec.Events[:done])
			w.reopen(i)
		}
		if w.Sharding.Bucket > 0 {
			w.complete(i, sec.Events, done, sec.Grads, func(g *tape.ParamGrad) {
				w.sum(i, g)
				w.fill(i, g)
			})
		} else {
			w.complete(i, sec.Events, done, sec.Grads, func(g *tape.ParamGrad) {
				if !w.Sharding.Copies { // gradients of one flat parameter
					return
				}
				w.sum(i, g)
				if w.adds(first) && !w.waits(i, g) && !w.recast(i, g) { // at once
					w.t.free(w.id(i, g.Store))
				}
			})
		}
		w.scatter(i, u, first, sync)
	}
}

// bare are the events of the units' backward passes but for those that make gradients.
func bare(list []*ops.Unit) [][]tape.Event {
	out := make([][]tape.Event, len(list))
	for i, u := range list {
		if i > 0 && u == list[i-1] {
			out[i] = out[i-1]
			continue
		}
		grads := u.Backward.Grads
		out[i] = slices.DeleteFunc(slices.Clone(u.Backward.Events), func(e tape.Event) bool {
			return e.Bytes > 0 && slices.ContainsFunc(grads, func(g tape.ParamGrad) bool { return g.Store == e.Store })
		})
	}
	return out
}

// complete applies the events of a unit from one on and says of every gradient when it is
// complete.
func (w *walker) complete(i int, events []tape.Event, from int, grads []tape.ParamGrad, done func(*tape.ParamGrad)) {
	for k := from; k < len(events); k++ {
		for ; len(grads) > 0 && k >= int(grads[0].Events); grads = grads[1:] {
			done(&grads[0])
		}
		w.event(i, events, k)
	}
	for k := range grads {
		done(&grads[k])
	}
}

// use is where a gradient of a table is made: a store of a unit.
type use struct {
	unit  int
	store int32
}

// sum adds a gradient of a table to that of its later use, as a tied head, which waited for it: autograd gives
// a parameter the sum of both, in a tensor of its own (a memory snapshot of one H200) unless the
// head's is a cast's (three runs on H200), and so does a product that is added to a copy of the
// table's. What an embedding made is added to in its place (traces of T5 and BART on an H200).
func (w *walker) sum(i int, g *tape.ParamGrad) {
	at := slices.Index(w.tied.uses, use{i, g.Store})
	if at <= 0 {
		return
	}
	waited := w.tied.uses[at-1]
	both, table, head := w.at(i, keepID), w.id(i, g.Store), w.id(waited.unit, waited.store)
	if w.tied.inPlace || waited.unit < len(w.Units)-1 {
		w.t.free(table)
		w.t.move(head, table)
		return
	}
	w.t.take(both, g.Bytes, Gradients)
	w.t.free(table)
	w.t.free(head)
	w.t.move(both, table)
}

// waits is whether a gradient is of a table that is used before.
func (w *walker) waits(i int, g *tape.ParamGrad) bool {
	at := slices.Index(w.tied.uses, use{i, g.Store})
	return at >= 0 && at < len(w.tied.uses)-1
}

// settle ends the life of a new gradient or keeps it.
func (w *walker) settle(i int, g *tape.ParamGrad, release bool) {
	id := w.id(i, g.Store)
	if release {
		w.t.free(id)
		return
	}
	w.t.made(id)
}

// freeGrads releases the gradients that autograd left of a unit of sharding.
func (w *walker) freeGrads(i int) {
	w.gradients(i, func(unit int, g *tape.ParamGrad) { w.t.free(w.id(unit, g.Store)) })
}

// gradients calls f with those of a part.
func (w *walker) gradients(i int, f func(unit int, g *tape.ParamGrad)) {
	from, to := w.within(i)
	for k := from; k < to; k++ {
		for j := range w.Units[k].Backward.Grads {
			if g := &w.Units[k].Backward.Grads[j]; w.partOf(k, int(g.Param)) == i {
				f(k, g)
			}
		}
	}
}

// tie finds the gradients of the table that the head is tied to, or that embeddings share. None waits
// where the table is another rank's, or is not trained.
func (w *walker) tie() {
	last := len(w.Units) - 1
	for i := last; i >= 0; i-- {
		for _, g := range w.Units[i].Backward.Grads {
			if p := &w.Units[i].Params[g.Param]; i == last && p.TiedCopy || i < last && p.Role == model.RoleEmbed {
				w.tied.uses = append(w.tied.uses, use{i, g.Store})
				w.tied.inPlace = w.tied.inPlace || i == last && g.Joins == tape.InPlace
				break
			}
		}
	}
}

// add adds autograd's gradients to those of the buffers, one by one and cast to
// their dtype, and leaves them.
func (w *walker) add() {
	w.grads = w.base
	for i, u := range w.Units {
		for _, g := range u.Backward.Grads {
			w.t.take(w.at(i, castID), units.Bytes(u.Params[g.Param].Local)*w.Sum, Gradients)
			w.t.free(w.at(i, castID))
		}
	}
}

// drop releases the gradients that add left.
func (w *walker) drop() {
	if w.Mode != Lingering {
		return
	}
	here := w.base
	w.base = w.grads
	for i := range w.Units {
		w.freeGrads(i)
	}
	w.base = here
}
