package memory

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// Replay runs a pipeline rank through the caching allocator and returns the most that
// is allocated and reserved. The chunks are walked as MeasureChunk walks them, in the
// order of the rank's list; what lives between steps, and what goes with it, is that of
// the first. Where the first step leaves the optimizer's states behind, or its update
// takes more than the passes, two more follow.
func Replay(chunks []*Step, actions []pipeline.Action, alloc *allocator.Allocator) (allocated, reserved units.Bytes) {
	t := &tracker{alloc: alloc, bare: true}
	slots := inFlight(actions, len(chunks)) + 1 // the kept gradients have their own
	r := rank{walkers: t.walkers(chunks, slots)}
	for range chunks {
		r.free, r.used = append(r.free, make([]int, 0, slots)), append(r.used, make([]int, 0, slots))
	}
	begin(r.walkers...)
	s := chunks[0]
	if s.Dense.Tensors > 0 || len(s.Flat) > 0 {
		r.first(true)
		r.step(actions, slots)
		r.first(false)
		r.step(actions, slots) // which cuts what the next one finds no longer whole
	}
	r.step(actions, slots)
	t.release()
	return t.peak, alloc.PeakReserved()
}

// rank runs the list of a pipeline rank.
type rank struct {
	walkers []*walker
	// By chunk: slots of no micro batch, and of those in flight, the oldest first.
	free, used [][]int
}

// inFlight is the most micro batches of one chunk between their forward pass and the
// end of their backward pass.
func inFlight(actions []pipeline.Action, chunks int) int {
	now, most := make([]int, chunks), 0
	for _, a := range actions {
		switch a.Kind {
		case pipeline.Forward:
			now[a.Chunk]++
			most = max(most, now[a.Chunk])
		case pipeline.Backward, pipeline.BackwardWeight:
			now[a.Chunk]--
		}
	}
	return most
}

// first says whether the step that follows is the first.
func (r *rank) first(yes bool) {
	for _, w := range r.walkers {
		w.warm = yes
	}
}

func (r *rank) step(actions []pipeline.Action, slots int) {
	started := make([]bool, len(r.walkers))
	split := make([]int, len(r.walkers)) // by chunk: micro batches whose weights' part is to come
	kept := make([]int, len(r.walkers))
	last := make([]int, len(r.walkers)) // by chunk: its last backward pass
	for i, a := range actions {
		if a.Kind == pipeline.Backward || a.Kind == pipeline.BackwardInput {
			last[a.Chunk] = i
		}
	}
	repeats := true
	for c, w := range r.walkers {
		repeats = repeats && w.KeptOutput == 0 // of which there are ever more
		kept[c] = w.next
		r.free[c], r.used[c] = r.free[c][:0], r.used[c][:0]
		for k := range slots {
			r.free[c] = append(r.free[c], k)
		}
	}
	t := r.walkers[0].t
	reserved, since := units.Bytes(0), 0 // actions
	for i := 0; i < len(actions); i++ {
		if now := t.alloc.Reserved(); now > reserved {
			reserved, since = now, i
		} else if repeats && i-since == 2*slots*len(r.walkers) { // every slot has been used again and nothing more was needed
			i += r.repeated(actions[i:])
		}
		a := actions[i]
		c := a.Chunk
		w := r.walkers[c]
		free, used := r.free[c], r.used[c]
		switch a.Kind {
		case pipeline.Forward:
			k := free[len(free)-1]
			r.free[c], r.used[c] = free[:len(free)-1], append(used, k)
			w.slot(k)
			w.forward()
		case pipeline.BackwardWeight:
			w.slot(used[0])
			w.weights()
			split[c]--
			r.end(int(c))
		default:
			w.slot(used[split[c]])
			w.split = a.Kind == pipeline.BackwardInput
			w.backward(!started[c], w.Synced(i == last[c]))
			w.split = false
			if a.Kind == pipeline.BackwardInput {
				split[c]++
			} else {
				r.end(int(c))
			}
			started[c] = true
		}
	}
	for c, w := range r.walkers {
		if n := w.next - kept[c]; n > 0 {
			w.keep(units.Bytes(n)*w.KeptOutput, LogitsLoss) // all in one (joined)
		}
		for ; w.next > kept[c]; w.next-- { // outputs
			w.t.free(w.next - 1)
		}
		w.update()
	}
}

// repeated is how many of the actions come back to where a rank is now: as many micro
// batches in flight of each chunk, of as many of them the weights' part to come, and the
// same actions next.
func (r *rank) repeated(actions []pipeline.Action) int {
	type state struct{ alive, split int }
	more := make([]state, len(r.walkers)) // than now
	last := 0
	for i, a := range actions {
		if i > 0 && a.Kind == actions[0].Kind && a.Chunk == actions[0].Chunk && !slices.ContainsFunc(more, func(s state) bool { return s != state{} }) {
			last = i
		}
		s := &more[a.Chunk]
		switch a.Kind {
		case pipeline.Forward:
			s.alive++
		case pipeline.Backward:
			s.alive--
		case pipeline.BackwardInput:
			s.split++
		case pipeline.BackwardWeight:
			s.alive, s.split = s.alive-1, s.split-1
		}
	}
	return last
}

// end gives the slot of the oldest micro batch to the next, but for that of the kept
// gradients.
func (r *rank) end(c int) {
	w, k := r.walkers[c], r.used[c][0]
	r.used[c] = append(r.used[c][:0], r.used[c][1:]...)
	last := len(w.Units) - 1
	w.slot(k)
	w.t.free(w.id(last, w.Units[last].OutputStore)) // the loss
	if w.base != w.grads || w.Mode == Lingering {
		r.free[c] = append(r.free[c], k)
	}
}
