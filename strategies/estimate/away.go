package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// away sends what units save to the host beside the kernels of those after them, and fetches
// it beside those before their backward passes.
type away struct {
	s     *step
	all   bool          // of all units; else of the first layers
	layer []bool        // units that are layers
	trips []memory.Trip // by unit; none: nothing goes
	sent  []timeline.Task
	came  []timeline.Task
	home  int // of all units: the last fetched one
}

func (a *away) begin(s *step) {
	a.s, a.layer, a.trips = s, a.layer[:0], a.trips[:0]
	goes := s.p.awayActivations()
	if !goes.Any() {
		return
	}
	for _, u := range s.list {
		a.layer = append(a.layer, u.Layers > 0)
	}
	a.all, a.trips = goes.All, goes.Trips(a.trips, a.layer)
	a.sent, a.came = resize(a.sent, len(s.list)), resize(a.came, len(s.list))
}

// awayActivations is what of the activations the host has between their passes.
func (p *pricer) awayActivations() memory.Away {
	t := &p.job.Train
	return memory.Away{Layers: int(t.OffloadLayers), All: t.OffloadActivations}
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
	a.home = len(a.trips)
	if a.all && a.layer[unit] { // tensor by tensor, beside the kernels that make them
		a.send(unit, a.s.sim.Now)
	}
}

// afterForward sends what a unit saved that does not go while it runs.
func (a *away) afterForward(unit int) {
	if a.any() && a.trips[unit].Leaves && !(a.all && a.layer[unit]) {
		a.send(unit, a.s.sim.Issued())
	}
}

// send starts the way of what a unit saved to the host.
func (a *away) send(unit int, ready float64) {
	a.sent[unit] = a.s.sim.Copy(hostStream, "activations to host", float64(a.s.p.toHost(a.goes(unit))), ready)
}

// beforeBackward fetches what may come back by now, and waits for what the unit needs.
func (a *away) beforeBackward(unit int) {
	if !a.any() {
		return
	}
	if a.all {
		a.s.sim.Wait(a.sent[unit]) // what the last units sent is still on its way
		a.fetch(unit)
		a.fetch(unit - 1)
	} else {
		a.fetch(a.trips[unit].Back)
	}
	if a.trips[unit].Leaves {
		a.s.sim.Wait(a.came[unit])
	}
}

// fetch starts the way back of what a unit saved, once.
func (a *away) fetch(unit int) {
	if unit < 0 || unit >= a.home && a.all {
		return
	}
	a.home = unit
	a.came[unit] = a.s.sim.Copy(hostStream, "activations from host", float64(a.s.p.toDevice(a.goes(unit))), a.s.sim.Now)
}

// end lets the host wait for both streams after a micro batch (TRL's, __exit__).
func (a *away) end() {
	if a.any() && a.all {
		a.s.sim.WaitHost()
	}
}

// goes is how much of what a unit saves goes.
func (a *away) goes(unit int) units.Bytes {
	if a.all {
		return a.s.list[unit].streamed
	}
	return a.s.list[unit].saved
}

// streamed is what a unit leaves to the host where all activations go there, which spares the
// parameters: but for copies that autocast made, and matrices that FSDP2 has gathered, which
// are no longer known as such. What the output layer saves stays (TRL,
// models/activation_offloading.py, get_act_offloading_ctx_manager).
func (p *pricer) streamed(u *ops.Unit) units.Bytes {
	if u.Layers == 0 {
		return u.SavedTensors()
	}
	sum := u.Saved()
	if p.job.Plan.DataParallel == strategies.FSDP2 && p.job.Train.Recompute != ops.FullRecompute {
		for _, w := range u.Params {
			if len(w.Dims) > 1 {
				sum += units.Bytes(w.Local) * p.job.Precision.Compute.Size()
			}
		}
	}
	return sum
}

// onHost is what the activations take of a node's host memory.
func (p *pricer) onHost(l *layout) units.Bytes {
	var sum units.Bytes
	goes := p.awayActivations()
	for _, u := range l.stages[0].list {
		switch {
		case goes.All:
			sum += u.streamed
		case u.Layers > 0 && goes.Layers > 0:
			sum += u.saved
			goes.Layers--
		}
	}
	_, ranks := p.job.HostThreads()
	return sum * units.Bytes(ranks)
}
