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
	layers []int           // units that are layers
	trips  []memory.Trip   // by unit; none: nothing goes
	sent   []timeline.Task // by unit
	came   []timeline.Task
}

func (a *away) begin(s *step) {
	a.s, a.layers, a.trips = s, a.layers[:0], a.trips[:0]
	n := int(s.job.Train.OffloadLayers)
	if n == 0 {
		return
	}
	for i, u := range s.list {
		if u.Layers > 0 {
			a.layers = append(a.layers, i)
		}
	}
	a.trips = memory.Trips(a.trips, len(s.list), a.layers, n)
	a.sent, a.came = resize(a.sent, len(s.list)), resize(a.came, len(s.list))
}

// any reports whether something goes.
func (a *away) any() bool { return len(a.trips) > 0 }

// beforeForward waits for what must be gone.
func (a *away) beforeForward(unit int) {
	if !a.any() {
		return
	}
	if gone := a.trips[unit].Gone; gone >= 0 {
		a.s.sim.Wait(a.sent[gone])
	}
}

// afterForward sends what a layer saved.
func (a *away) afterForward(unit int) {
	if a.any() && a.trips[unit].Leaves {
		a.sent[unit] = a.s.sim.Copy(hostStream, "activations to host", float64(a.s.p.toHost(a.s.list[unit].saved)), a.s.sim.Issued())
	}
}

// beforeBackward fetches what may come back by now, and waits for what the layer needs.
func (a *away) beforeBackward(unit int) {
	if !a.any() {
		return
	}
	if back := a.trips[unit].Back; back >= 0 {
		a.came[back] = a.s.sim.Copy(hostStream, "activations from host", float64(a.s.p.toDevice(a.s.list[back].saved)), a.s.sim.Now)
	}
	if a.trips[unit].Leaves {
		a.s.sim.Wait(a.came[unit])
	}
}

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
