package estimate

import (
	"github.com/perfplan/perfplan/strategies/timeline"
)

// steady watches a Sim at the start of equal stretches of work, micro batches or
// layers, to pass over those that would go like the last. A recorded Sim runs
// them all, each with its own spans.
type steady struct {
	sim               *timeline.Sim
	tally             *tally           // of the pricer, where it counts
	marks             [2]timeline.Mark // at the start of the last stretch, and of this one
	counts            [2]*tally        // at the marks
	seen              int
	each              bool    // stretches wait for what others sent away: none is like another
	every             bool    // run all stretches: what the others are compared with
	forward, backward float64 // of the last stretch, where it is a micro batch
}

func (w *steady) begin(s *step) {
	w.sim, w.tally, w.seen = s.sim, s.p.counts, 0
	w.each = s.away.any()
}

// repeats marks the start of a stretch and reports whether the one before it
// ended as it began.
func (w *steady) repeats() bool {
	if w.every || w.each || w.sim.Record != nil {
		return false
	}
	if w.seen++; w.seen > 1 {
		w.marks[0], w.counts[0] = w.marks[1], w.counts[1]
	}
	w.sim.Mark(&w.marks[1])
	if w.tally != nil {
		w.counts[1] = w.tally.clone()
	}
	return w.seen > 1 && w.marks[1].Repeats(&w.marks[0])
}

// skip lets n further stretches pass like the last. It returns what streams fall
// behind by.
func (w *steady) skip(n int) [timeline.MaxStreams]timeline.Task {
	tasks := w.sim.Skip(&w.marks[0], n)
	if w.tally != nil {
		w.tally.repeat(w.counts[0], int64(n))
	}
	w.seen = 0
	return tasks
}
