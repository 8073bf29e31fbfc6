package memory

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// Chunk is the memory behaviour of one model chunk of a pipeline rank: what one
// micro batch leaves behind and how far each pass reaches above what is there.
type Chunk struct {
	Saved      units.Bytes                  // left by a forward pass until its backward pass
	Parked     units.Bytes                  // left by a split backward pass until its weights' part
	Whole      units.Bytes                  // parameters left gathered by the forward passes, once for all
	Stays      bool                         // and by the backward passes
	Reach      [pipeline.Passes]units.Bytes // highest point of a pass above its start
	Gradients  units.Bytes                  // left by the first backward pass
	Reduced    units.Bytes                  // and by the last one
	KeptOutput units.Bytes                  // of each micro batch, kept to the end of the step (outputs of the last stage)
	saved      Bytes
	parked     Bytes
	moment     [pipeline.Passes]string
}

// MeasureChunk runs two micro batches of a chunk one after the other, neither of which
// is the last of more than one, and then the last; and again with split backward passes,
// where there are.
func MeasureChunk(s *Step) Chunk {
	c := Chunk{KeptOutput: s.KeptOutput}
	c.walk(s, false)
	if s.Splits {
		c.walk(s, true)
	}
	return c
}

// walk measures whole or split backward passes.
func (c *Chunk) walk(s *Step, split bool) {
	sync := s.Synced(s.MicroBatches == 1)
	w := new(tracker).walkers([]*Step{s}, 2)[0]
	pass := func(k pipeline.Pass, run func()) {
		start := w.t.now
		w.t.peak = start
		run()
		w.t.settle()
		c.Reach[k], c.moment[k] = w.t.peak-start, w.label(w.t.moment)
	}
	run := func(first, sync bool) {
		w.split = split
		w.backward(first, sync)
		w.split = false
	}
	backward := func(k pipeline.Pass, first bool) {
		if split {
			k += pipeline.FirstInput - pipeline.FirstBackward
		}
		pass(k, func() { run(first, sync) })
	}
	pass(pipeline.ForwardPass, w.forward)
	c.Whole = 0
	for k := range w.full {
		if b := &w.t.blocks[w.fullID(k)]; b.live {
			c.Whole += b.bytes
		}
	}
	c.Saved, c.saved = w.t.now-c.Whole, w.t.by
	c.saved[Gathered] -= c.Whole
	backward(pipeline.FirstBackward, true)
	if split {
		c.Parked, c.parked = w.t.now, w.t.by
		w.weights()
		c.Parked -= w.t.now
		for k, b := range w.t.by {
			c.parked[k] -= b
		}
	}
	c.Gradients = w.t.now
	if c.Stays = w.Sharding.Stays && !sync; c.Stays {
		c.Gradients -= c.Whole
	}
	w.slot(1)
	w.forward()
	backward(pipeline.LaterBackward, false)
	if c.Reduced = c.Gradients; !sync {
		w.weights()
		last := len(w.Units) - 1
		w.t.free(w.id(last, w.Units[last].OutputStore)) // the loss
		w.forward()
		run(false, true)
		w.weights()
		c.Reduced = w.t.now
	}
	w.t.release()
}

// left is what backward passes have left of a chunk's gradients.
func (c *Chunk) left(h *pipeline.Held) units.Bytes {
	switch {
	case h.Ended:
		return c.Reduced
	case h.Started:
		return c.Gradients
	}
	return 0
}

// gathered is what there is of a chunk's parameters between passes.
func (c *Chunk) gathered(h *pipeline.Held) units.Bytes {
	if h.Alive > 0 || h.Started && !h.Ended && c.Stays {
		return c.Whole
	}
	return 0
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
			at += units.Bytes(h.Alive-h.Parked)*x.Saved + units.Bytes(h.Parked)*x.Parked + units.Bytes(h.Forward)*x.KeptOutput
			at += x.left(&h)
			if k != m.Chunk || m.Pass != pipeline.ForwardPass { // which gathers them
				at += x.gathered(&h)
			}
		}
		if at += c.Reach[m.Pass]; at > p.Allocated {
			p.Allocated, worst = at, i
		}
	}
	if at, outputs := joined(base, moments, chunks); at > p.Allocated {
		p.Allocated, p.Moment = at, "outputs of all micro batches joined"
		p.By[LogitsLoss] += outputs
		for _, c := range chunks {
			p.By[Gradients] += c.Reduced
		}
		return p
	}
	if worst < 0 {
		return p
	}
	m := &moments[worst]
	p.Moment = chunks[m.Chunk].moment[m.Pass]
	for k, h := range m.Held {
		for j, b := range chunks[k].saved {
			p.By[j] += b*units.Bytes(h.Alive-h.Parked) + chunks[k].parked[j]*units.Bytes(h.Parked)
		}
		p.By[Gradients] += chunks[k].left(&h)
		p.By[Gathered] += chunks[k].gathered(&h)
	}
	p.By[Activations] += p.Allocated - p.By.Total()
	return p
}

// joined is what is there at the end of the passes, when PyTorch's schedules put the outputs
// of all micro batches into one tensor (torch/distributed/pipelining/schedules.py,
// _merge_outputs), and how much of it these and that are. Nothing where none are kept.
func joined(base units.Bytes, moments []pipeline.Moment, chunks []*Chunk) (at, outputs units.Bytes) {
	at = base
	for k, c := range chunks {
		n := 0
		for i := range moments {
			n = max(n, int(moments[i].Held[k].Forward))
		}
		outputs += 2 * units.Bytes(n) * c.KeptOutput
		at += c.Reduced
	}
	if outputs == 0 {
		return 0, 0
	}
	return at + outputs, outputs
}
