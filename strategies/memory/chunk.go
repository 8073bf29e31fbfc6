package memory

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// Chunk is the memory behaviour of one model chunk of a pipeline rank: what one
// micro batch leaves behind and how far each pass reaches above what is there.
type Chunk struct {
	Saved        units.Bytes // left by a forward pass until its backward pass
	Forward      units.Bytes // highest point of a forward pass above its start
	First, Later units.Bytes // highest point of the first and of a later backward pass above its start
	Gradients    units.Bytes // left by the first backward pass
	KeptOutput   units.Bytes // of each micro batch, kept to the end of the step (outputs of the last stage)
	at           [3]Bytes    // classes at these points
	saved        Bytes
	moment       [3]string
}

// MeasureChunk runs two micro batches of a chunk one after the other.
func MeasureChunk(s *Step) Chunk {
	empty := *s
	empty.Static = Bytes{}
	w := newWalker(&empty, nil)
	var c Chunk
	pass := func(k int, run func()) units.Bytes {
		start := w.t.now
		w.t.peak = start
		run()
		c.at[k], c.moment[k] = w.t.at, w.t.moment
		return w.t.peak - start
	}
	c.Forward = pass(0, w.forward)
	c.Saved, c.saved = w.t.now, w.t.by
	c.First = pass(1, func() { w.backward(true, true) })
	c.Gradients = w.t.now
	w.base = w.width * len(w.Units)
	w.forward()
	c.Later = pass(2, func() { w.backward(false, true) })
	return c
}

// Rank returns the peak of a pipeline rank that runs actions on its chunks over
// what lives between steps. held[c] is what each micro batch in flight holds
// beyond the chunk's own tensors (the output of a stage until its gradient has come).
func Rank(static Bytes, actions []pipeline.Action, chunks []Chunk, held []units.Bytes) Peak {
	var now units.Bytes
	base := static.Total()
	p := Peak{Allocated: base, By: static, Moment: "between steps"}
	alive := make([]int64, len(chunks))
	started := make([]bool, len(chunks))
	kept := units.Bytes(0)
	reach := func(c, k int, by units.Bytes) {
		if at := base + now + by; at > p.Allocated {
			p.Allocated, p.Moment = at, chunks[c].moment[k]
			p.By = static
			for i, n := range alive {
				for j, b := range chunks[i].saved {
					p.By[j] += b * units.Bytes(n)
				}
				if started[i] {
					p.By[Gradients] += chunks[i].Gradients
				}
			}
			rest := at - p.By.Total()
			p.By[Activations] += rest
		}
	}
	for _, a := range actions {
		c := int(a.Chunk)
		switch a.Kind {
		case pipeline.Forward:
			reach(c, 0, chunks[c].Forward)
			now += chunks[c].Saved + held[c] + chunks[c].KeptOutput
			kept += chunks[c].KeptOutput
			alive[c]++
		case pipeline.Backward, pipeline.BackwardInput:
			if started[c] {
				reach(c, 2, chunks[c].Later)
			} else {
				reach(c, 1, chunks[c].First)
				now += chunks[c].Gradients
				started[c] = true
			}
			if a.Kind == pipeline.Backward {
				now -= chunks[c].Saved + held[c]
				alive[c]--
			}
		case pipeline.BackwardWeight:
			now -= chunks[c].Saved + held[c]
			alive[c]--
		}
	}
	return p
}
