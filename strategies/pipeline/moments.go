package pipeline

import (
	"slices"
	"sync"
)

// Pass is what a rank is about to run, as memory sees it.
type Pass uint8

const (
	ForwardPass   Pass = iota
	FirstBackward      // of a chunk: gradients appear
	LaterBackward
	FirstInput // the same of a backward pass without its weights' part
	LaterInput
	Passes // how many there are
)

// Moment is a point of a rank's list at which its memory may peak: a pass and
// what the rank holds when it starts.
type Moment struct {
	Pass  Pass
	Chunk int
	Held  []Held // by chunk
}

// Held is what a rank holds of one of its chunks.
type Held struct {
	Alive   int32 // micro batches between their forward pass and the end of their backward pass
	Parked  int32 // of these, those of which only the weights' part is to come
	Forward int32 // micro batches run forward since the step began
	Started bool  // a backward pass has run
	Ended   bool  // all of them have, with the weights' parts
}

// within reports whether all that m holds, o holds too, at the same pass of the same chunk.
// What a chunk leaves when it has ended is no more than what it held before.
func (m *Moment) within(o *Moment) bool {
	for i, h := range m.Held {
		x := o.Held[i]
		if h.Alive-h.Parked > x.Alive-x.Parked || h.Parked > x.Parked || h.Forward > x.Forward || h.Started && !x.Started || x.Ended && h.Started && !h.Ended {
			return false
		}
	}
	return true
}

// moments are remembered by all plans of one schedule.
type moments struct {
	mu     sync.Mutex
	byRank [2][][]Moment // without and with forward counts
}

// Moments returns the moments of a rank that no other one outdoes: whatever the
// chunks weigh, one of them is the rank's peak. counting says that outputs are kept
// to the end of the step, so that the passes run since its start weigh too; without
// it Forward is 0. The caller must not change them.
func (pl *Plan) Moments(rank int, counting bool) []Moment {
	s, k := pl.shared, 0
	if counting {
		s, k = pl.own, 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byRank[k] == nil {
		s.byRank[k] = make([][]Moment, pl.Ranks)
	}
	if s.byRank[k][rank] == nil {
		actions := pl.lists[rank] // the steady state repeats what these hold
		if counting {
			actions = pl.Actions(rank)
		}
		s.byRank[k][rank] = maximal(actions, pl.Chunks, counting)
	}
	return s.byRank[k][rank]
}

// maximal replays a list and keeps the moments that are within no other.
func maximal(actions []Action, chunks int, counting bool) []Moment {
	var kept []Moment
	alike := make([][]int, chunks*int(Passes)) // places in kept, by chunk and pass
	held := make([]Held, chunks)
	last := make([]int, chunks) // by chunk
	for i, a := range actions {
		if a.Kind != Forward {
			last[a.Chunk] = i
		}
	}
	for i, a := range actions {
		h := &held[a.Chunk]
		now := Moment{Pass: ForwardPass, Chunk: int(a.Chunk), Held: held}
		switch {
		case a.Kind == BackwardWeight:
			h.Alive--
			h.Parked--
			h.Ended = i == last[a.Chunk]
			continue
		case a.Kind != Forward:
			now.Pass = backwardPass(a.Kind == BackwardInput, h.Started)
		}
		places := &alike[now.Chunk*int(Passes)+int(now.Pass)]
		if !slices.ContainsFunc(*places, func(k int) bool { return now.within(&kept[k]) }) {
			*places = slices.DeleteFunc(*places, func(k int) bool {
				less := kept[k].within(&now)
				if less { // it goes at the end, so that the others keep their places
					kept[k].Held = nil
				}
				return less
			})
			now.Held = slices.Clone(held)
			*places = append(*places, len(kept))
			kept = append(kept, now)
		}
		switch a.Kind {
		case Forward:
			h.Alive++
			if counting {
				h.Forward++
			}
		case Backward:
			h.Started, h.Ended = true, i == last[a.Chunk]
			h.Alive--
		case BackwardInput:
			h.Started = true
			h.Parked++
		}
	}
	return slices.Clone(slices.DeleteFunc(kept, func(m Moment) bool { return m.Held == nil }))
}

// backwardPass is the first or a later backward pass of a chunk, whole or without its
// weights' part.
func backwardPass(split, started bool) Pass {
	p := FirstBackward
	if split {
		p = FirstInput
	}
	if started {
		p++
	}
	return p
}
