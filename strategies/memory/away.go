package memory

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// Trip is what of the tensors that units save goes to the host and comes back around the
// passes of one of them. Units are counted in their chunk.
type Trip struct {
	Leaves bool // its own go after its forward pass, and are awaited by its backward pass
	Gone   int  // whose must be gone before its forward pass; -1: nobody's
	Back   int  // whose come back from the beginning of its backward pass on; -1: nobody's

	Parts []*tape.Trip // what of its own goes, where modules say so; nil: all
}

// Bytes is the size of the copies of what modules of the unit send.
func (t *Trip) Bytes() (sum units.Bytes) {
	for _, p := range t.Parts {
		sum += p.Bytes
	}
	return sum
}

// Away is what of the tensors that units save goes to the host between their passes: those of
// the first so many layers, but never of the last; or all of them; or what some modules of them
// save. None of these: none.
type Away struct {
	Layers int
	All    bool

	Modules bool
	Share   float64 // of the modules, the first; what the others save stays
	Late    int     // so many of those that send, the last, have not sent it as the backward pass begins
}

// Any reports whether something goes.
func (a Away) Any() bool { return a.Layers > 0 || a.All || a.Modules }

// Trips appends to out those of units, in order.
func (a Away) Trips(out []Trip, list []*ops.Unit) []Trip {
	switch {
	case a.Modules:
		return a.modules(out, list)
	case a.All:
		return streamed(out, len(list))
	}
	var layers []int
	for i, u := range list {
		if u.Layers > 0 {
			layers = append(layers, i)
		}
	}
	return buffered(out, len(list), layers, a.Layers)
}

// modules are those of units of which some modules send what they save, in order as long as they
// are of the first Share of all. The last of each module in front of the head stays: its backward
// pass follows at once. What goes is taken to be gone as the next unit begins, and comes back
// beside the backward pass of the one after (Megatron-Core, pipeline_parallel/
// fine_grained_activation_offload.py, post_warmup_callback and should_bulk_offload).
func (a Away) modules(out []Trip, list []*ops.Unit) []Trip {
	ends := len(list) > 0 && list[len(list)-1].Layers == 0 // with head or loss
	last, n := map[uint8]int{}, 0
	for i, u := range list {
		for k := range u.Forward.Trips {
			last[u.Forward.Trips[k].Module] = i
			n++
		}
	}
	n -= int(float64(n) * (1 - a.Share))
	for i, u := range list {
		t := Trip{Gone: i - 1, Back: i}
		for k := range u.Forward.Trips {
			p := &u.Forward.Trips[k]
			if n--; n >= 0 && !(ends && last[p.Module] == i) {
				t.Parts = append(t.Parts, p)
			}
		}
		t.Leaves = len(t.Parts) > 0
		out = append(out, t)
	}
	return out
}

// streamed are those of units all of which leave, tensor by tensor: what one saves is taken to
// be gone as the next begins, and comes back for its own backward pass (torchtune,
// training/_activation_offloading.py, whose max_fwd_stash_size lets five tensors lag behind).
func streamed(out []Trip, n int) []Trip {
	for i := range n {
		out = append(out, Trip{Leaves: true, Gone: i - 1, Back: i})
	}
	return out
}

// buffered appends to out those of so many units, of which some are layers, in order, the first
// so many of which leave what they save to the host, but never the last. There is room for one of them more at a
// time than for the others (Transformer Engine, pytorch/cpu_offload.py, OffloadSynchronizer).
func buffered(out []Trip, units int, layers []int, away int) []Trip {
	for range units {
		out = append(out, Trip{Gone: -1, Back: -1})
	}
	n := len(layers)
	away = min(away, n-1)
	for k := range away {
		out[layers[k]].Leaves = true
		out[layers[n-away+k]].Gone = layers[k]
		out[layers[n-1-away+k]].Back = layers[k]
	}
	return out
}

// leaving finds what the walk sends to the host.
func (w *walker) leaving() {
	if !w.Away.Any() {
		return
	}
	w.trips = w.Away.Trips(nil, w.Units)
	for i, late := len(w.trips)-1, w.Away.Late; i >= 0 && late > 0; i-- {
		if w.trips[i].Leaves {
			w.trips[i].Parts = []*tape.Trip{}
			late--
		}
	}
}

// send frees what must be gone before the forward pass of a unit. Parameters that were cast
// are in autocast's cache until that is over.
func (w *walker) send(unit int) {
	if w.Away.Any() {
		w.saves(w.trips[unit].Gone, func(t *tracker, id int) {
			if t.blocks[id].class != WeightCopies {
				t.park(id)
			}
		})
	}
}

// sent frees what the forward pass held until its end.
func (w *walker) sent() {
	for i := range w.trips {
		w.saves(w.trips[i].Gone, (*tracker).park)
	}
	if w.Away.Modules {
		w.saves(len(w.trips)-1, (*tracker).park)
	}
}

// fetch allocates what comes back from the backward pass of a unit on.
func (w *walker) fetch(unit int) {
	if w.Away.Any() {
		stream := compute
		if w.Away.All || w.Away.Modules {
			stream = hostStream
		}
		w.saves(w.trips[unit].Back, func(t *tracker, id int) { t.unpark(stream, id) })
	}
}

// again makes room anew for what comes back from the host for the last unit, though it has
// never been away, as its backward pass begins where its forward pass ends: before the op that
// reads it last, when the node that read it first has let go of it.
func (w *walker) again(unit int, events []tape.Event, k int) {
	if w.t.here.pass != backward || unit < len(w.Units)-1 || k > 0 && events[k].Op == events[k-1].Op {
		return
	}
	for _, e := range events[k:] {
		if e.Bytes < 0 && e.Op == events[k].Op+1 && e.Op > 1 && slices.Contains(w.Units[unit].Forward.Twice, e.Store) {
			w.t.swap(hostStream, w.id(unit, e.Store))
		}
	}
}

// saves does something to all that a unit may have saved.
func (w *walker) saves(unit int, do func(*tracker, int)) {
	if unit < 0 {
		return
	}
	if w.Away.Modules {
		for _, p := range w.trips[unit].Parts {
			for _, s := range p.Stores {
				do(w.t, w.id(unit, s))
			}
		}
		return
	}
	for s := range int32(w.width) {
		// What several nodes save goes once, and stays for the others (TRL, models/activation_offloading.py).
		if !w.Away.All || !slices.Contains(w.Units[unit].Forward.Twice, s) {
			do(w.t, w.id(unit, s))
		}
	}
}
