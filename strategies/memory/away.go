package memory

import (
	"slices"

	"github.com/perfplan/perfplan/model/tape"
)

// Trip is what of the tensors that units save goes to the host and comes back around the
// passes of one of them. Units are counted in their chunk.
type Trip struct {
	Leaves bool // its own go after its forward pass, and are awaited by its backward pass
	Gone   int  // whose must be gone before its forward pass; -1: nobody's
	Back   int  // whose come back from the beginning of its backward pass on; -1: nobody's
}

// Away is what of the tensors that units save goes to the host between their passes: those of
// the first so many layers, but never of the last; or all of them. Neither: none.
type Away struct {
	Layers int
	All    bool
}

// Any reports whether something goes.
func (a Away) Any() bool { return a.Layers > 0 || a.All }

// Trips appends to out those of units, in order, by whether each is a layer.
func (a Away) Trips(out []Trip, layer []bool) []Trip {
	if a.All {
		return streamed(out, len(layer))
	}
	var layers []int
	for i, is := range layer {
		if is {
			layers = append(layers, i)
		}
	}
	return buffered(out, len(layer), layers, a.Layers)
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
	layer := make([]bool, len(w.Units))
	for i, u := range w.Units {
		layer[i] = u.Layers > 0
	}
	w.trips = w.Away.Trips(nil, layer)
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
}

// fetch allocates what comes back from the backward pass of a unit on.
func (w *walker) fetch(unit int) {
	if w.Away.Any() {
		stream := compute
		if w.Away.All {
			stream = hostStream
		}
		w.saves(w.trips[unit].Back, func(t *tracker, id int) { t.unpark(stream, id) })
	}
}

// again makes room anew for what comes back from the host for the last unit, though it has
// never been away, as its backward pass begins where its forward pass ends: before the op that
// reads it last, when the node that read it first has let go of it.
func (w *walker) again(unit int, events []tape.Event, k int) {
	if !w.Away.All || w.t.here.pass != backward || unit < len(w.Units)-1 || k > 0 && events[k].Op == events[k-1].Op {
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
	for s := range int32(w.width) {
		// What several nodes save goes once, and stays for the others (TRL, models/activation_offloading.py).
		if !w.Away.All || !slices.Contains(w.Units[unit].Forward.Twice, s) {
			do(w.t, w.id(unit, s))
		}
	}
}
