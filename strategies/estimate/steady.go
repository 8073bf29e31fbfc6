package estimate

import "github.com/perfplan/perfplan/strategies/timeline"

// steady watches a Sim at the start of equal stretches of work, micro batches or
// layers, to pass over those that would go like the last.
type steady struct {
	sim               *timeline.Sim
	marks             [2]timeline.Mark // at the start of the last stretch, and of this one
	seen              int
	recorded          bool             // spans or calls are: each counts
	every             bool    // run all stretches: what the others are compared with
	forward, backward float64 // of the last stretch, where it is a micro batch
}

func (w *steady) begin(sim *timeline.Sim, recorded bool) {
	w.sim, w.seen, w.recorded = sim, 0, recorded || sim.Record != nil
}

// repeats marks the start of a stretch and reports whether the one before it
// ended as it began.
func (w *steady) repeats() bool {
	if w.every || w.recorded {
		return false
	}
	if w.seen++; w.seen > 1 {
		w.marks[0] = w.marks[1]
	}
	w.sim.Mark(&w.marks[1])
	return w.seen > 1 && w.marks[1].Repeats(&w.marks[0])
}

// skip lets n further stretches pass like the last. It returns what streams fall
// behind by.
func (w *steady) skip(n int) [timeline.MaxStreams]timeline.Task {
	tasks := w.sim.Skip(&w.marks[0], n)
	w.seen = 0
	return tasks
}
