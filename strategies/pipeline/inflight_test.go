package pipeline

import "github.com/perfplan/perfplan/internal/units"

// InFlight is what a rank holds at its worst moment.
type InFlight struct {
	Whole  []int       // by chunk: micro batches between forward and backward
	Weight []int       // by chunk: micro batches between the two halves of a split backward
	Bytes  units.Bytes // what they weigh
}

// PeakInFlight replays the actions of a rank and returns the moment at which
// the activations held weigh most. whole is what one micro batch of each chunk
// holds from its forward to its backward, or to the input half of it; weight is
// what it then holds until the weight half. A nil whole counts every micro
// batch as 1, a nil weight means that the input half frees nothing.
func (pl *Plan) PeakInFlight(rank int, whole, weight []units.Bytes) InFlight {
	v := pl.Chunks
	counts := make([]int, 4*v)
	now, pending := counts[:v], counts[v:2*v]
	peak := InFlight{Whole: counts[2*v : 3*v], Weight: counts[3*v:]}
	size := func(of []units.Bytes, c int32) units.Bytes {
		if of == nil {
			return 1
		}
		return of[c]
	}
	if weight == nil {
		weight = whole
	}
	for _, a := range pl.lists[rank] {
		switch c := a.Chunk; a.Kind {
		case Forward:
			now[c]++
		case Backward:
			now[c]--
		case BackwardInput:
			now[c]--
			pending[c]++
		case BackwardWeight:
			pending[c]--
		}
		var held units.Bytes
		for c := range now {
			held += units.Bytes(now[c])*size(whole, int32(c)) + units.Bytes(pending[c])*size(weight, int32(c))
		}
		if held > peak.Bytes {
			peak.Bytes = held
			copy(peak.Whole, now)
			copy(peak.Weight, pending)
		}
	}
	return peak
}
