package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// away sends what the first layers of a model save to the host beside the kernels of the
// layers after them, and fetches it beside those before its backward pass.
type away struct {
	s      *step
	layers int             // that do so; 0: none
	at     []int           // units that are layers
	layer  []int           // by unit: its place in at; -1: it is none
	sent   []timeline.Task // by layer
	came   []timeline.Task
}

func (a *away) begin(s *step) {
	a.s, a.layers = s, int(s.job.Train.OffloadLayers)
	if a.layers == 0 {
		return
	}
	a.at, a.layer = a.at[:0], a.layer[:0]
	for i, u := range s.list {
		if u.Layers == 0 {
			a.layer = append(a.layer, -1)
			continue
		}
		a.layer = append(a.layer, len(a.at))
		a.at = append(a.at, i)
	}
	a.sent, a.came = resize(a.sent, len(a.at)), resize(a.came, len(a.at))
}

// number is which layer a unit is; -1 where it is none, or nothing goes away.
func (a *away) number(unit int) int {
	if a.layers == 0 {
		return -1
	}
	return a.layer[unit]
}

// beforeForward waits for what must be gone.
func (a *away) beforeForward(unit int) {
	n := a.number(unit)
	if n < 0 {
		return
	}
	if gone, _ := memory.Away(len(a.at), a.layers, n); gone >= 0 {
		a.s.sim.Wait(a.sent[gone])
	}
}

// afterForward sends what a layer saved.
func (a *away) afterForward(unit int) {
	if n := a.number(unit); n >= 0 && n < a.layers {
		a.sent[n] = a.s.sim.Copy(hostStream, "activations to host", float64(a.s.p.toHost(a.saved(n))), a.s.sim.Issued())
	}
}

// beforeBackward fetches what may come back by now, and waits for what the layer needs.
func (a *away) beforeBackward(unit int) {
	n := a.number(unit)
	if n < 0 {
		return
	}
	if _, back := memory.Away(len(a.at), a.layers, n); back >= 0 {
		a.came[back] = a.s.sim.Copy(hostStream, "activations from host", float64(a.s.p.toDevice(a.saved(back))), a.s.sim.Now)
	}
	if n < a.layers {
		a.s.sim.Wait(a.came[n])
	}
}

func (a *away) saved(layer int) units.Bytes { return a.s.list[a.at[layer]].saved }

// onHost is what the activations of the first layers take of a node's host memory.
func (p *pricer) onHost(l *layout) units.Bytes {
	var sum units.Bytes
	left := p.job.Train.OffloadLayers
	for _, u := range l.stages[0].list {
		if u.Layers > 0 && left > 0 {
			sum += u.saved
			left--
		}
	}
	_, ranks := p.job.HostThreads()
	return sum * units.Bytes(ranks)
}
