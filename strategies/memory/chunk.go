package memory

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// Chunk is the memory behaviour of one model chunk of a pipeline rank: what one
// micro batch leaves behind and how far each pass reaches above what is there.
type Chunk struct {
	Saved        units.Bytes // left by a forward pass until its backward pass
	Whole        units.Bytes // parameters left gathered by the forward passes, once for all
	Stays        bool        // and by the backward passes
	Forward      units.Bytes // highest point of a forward pass above its start
	First, Later units.Bytes // highest point of the first and of a later backward pass above its start
	Gradients    units.Bytes // left by the first backward pass
	KeptOutput   units.Bytes // of each micro batch, kept to the end of the step (outputs of the last stage)
	at           [3]Bytes    // classes at these points
	saved        Bytes
	moment       [3]string
}

// MeasureChunk runs two micro batches of a chunk one after the other, neither of which
// is the last of more than one.
func MeasureChunk(s *Step) Chunk {
	sync := s.Synced(s.MicroBatches == 1)
	w := new(tracker).walkers([]*Step{s}, 2)[0]
	c := Chunk{KeptOutput: s.KeptOutput}
	pass := func(k int, run func()) units.Bytes {
		start := w.t.now
		w.t.peak = start
		run()
		w.t.settle()
		c.at[k], c.moment[k] = w.t.at, w.label(w.t.moment)
		return w.t.peak - start
	}
	c.Forward = pass(0, w.forward)
	for k := range w.full {
		if b := &w.t.blocks[w.fullID(k)]; b.live {
			c.Whole += b.bytes
		}
	}
	c.Saved, c.saved = w.t.now-c.Whole, w.t.by
	c.saved[Gathered] -= c.Whole
	c.First = pass(1, func() { w.backward(true, sync) })
	c.Gradients = w.t.now
	if c.Stays = w.Sharding.Stays && !sync; c.Stays {
		c.Gradients -= c.Whole
	}
	w.slot(1)
	w.forward()
	c.Later = pass(2, func() { w.backward(false, sync) })
	w.t.release()
	return c
}

// Rank returns the peak of a pipeline rank, over what lives between steps, from
// the moments of its list.
func Rank(static Bytes, moments []pipeline.Moment, chunks []*Chunk) Peak {
	base := static.Total()
	p := Peak{Allocated: base, By: static, Moment: "between steps"}
	worst := -1
	for i := range moments {
		m := &moments[i]
		c := chunks[m.Chunk]
		at := base
		for k, h := range m.Held {
			x := chunks[k]
			at += units.Bytes(h.Alive)*x.Saved + units.Bytes(h.Forward)*x.KeptOutput
			if h.Started {
				at += x.Gradients
			}
			if (h.Alive > 0 || h.Started && x.Stays) && (k != m.Chunk || m.Pass != pipeline.ForwardPass) { // which gathers them
				at += x.Whole
			}
		}
		if at += c.reach(m.Pass); at > p.Allocated {
			p.Allocated, worst = at, i
		}
	}
	if worst < 0 {
		return p
	}
	m := &moments[worst]
	p.Moment = chunks[m.Chunk].moment[m.Pass]
	for k, h := range m.Held {
		for j, b := range chunks[k].saved {
			p.By[j] += b * units.Bytes(h.Alive)
		}
		if h.Started {
			p.By[Gradients] += chunks[k].Gradients
		}
		if h.Alive > 0 || h.Started && chunks[k].Stays {
			p.By[Gathered] += chunks[k].Whole
		}
	}
	p.By[Activations] += p.Allocated - p.By.Total()
	return p
}

// reach is the highest point of a pass above its start.
func (c *Chunk) reach(p pipeline.Pass) units.Bytes {
	switch p {
	case pipeline.ForwardPass:
		return c.Forward
	case pipeline.FirstBackward:
		return c.First
	}
	return c.Later
}
