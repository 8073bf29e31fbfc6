package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/pipeline"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// away sends what units save to the host beside the kernels of those after them, and fetches
// it beside those before their backward passes.
type away struct {
	s       *step
	all     bool          // of all units; else of the first layers
	modules bool          // or of modules
	trips   []memory.Trip // by unit; none: nothing goes
	sent    []timeline.Task
	came    []timeline.Task
	home    int // of all units, or those with modules: the last fetched one
}

func (a *away) begin(s *step) {
	a.s, a.trips = s, a.trips[:0]
	goes := s.p.awayActivations()
	if !goes.Any() || s.job.Plan.PP > 1 { // of whose passes comeBack says what they wait for
		return
	}
	a.all, a.modules, a.trips = goes.All, goes.Modules, goes.Trips(a.trips, s.chunk.ops)
	a.sent, a.came = resize(a.sent, len(s.list)), resize(a.came, len(s.list))
}

// awayActivations is what of the activations the host has between their passes.
func (p *pricer) awayActivations() memory.Away {
	t := &p.job.Train
	a := memory.Away{Layers: int(t.OffloadLayers), All: t.OffloadActivations, Modules: t.OffloadModules != 0}
	if a.Modules {
		a.Share = t.OffloadShare()
	}
	return a
}

// any reports whether something goes.
func (a *away) any() bool { return len(a.trips) > 0 }

// beforeForward waits for what must be gone.
func (a *away) beforeForward(unit int) {
	if !a.any() {
		return
	}
	if gone := a.trips[unit].Gone; gone >= 0 && !a.modules { // whose memory is used again once they are, and nobody waits
		a.s.sim.Wait(a.sent[gone])
	}
	a.home = len(a.trips)
	if a.streams(unit) { // tensor by tensor, beside the kernels that make them
		a.send(unit, a.s.sim.Now)
	}
}

// afterForward sends what a unit saved that does not go while it runs.
func (a *away) afterForward(unit int) {
	if a.any() && a.trips[unit].Leaves && !a.streams(unit) {
		a.send(unit, a.s.sim.Issued())
	}
}

// streams reports whether what a unit saves leaves while it runs.
func (a *away) streams(unit int) bool { return a.all && a.s.list[unit].Layers > 0 }

// send starts the way of what a unit saved to the host.
func (a *away) send(unit int, ready float64) {
	a.sent[unit] = a.s.sim.Copy(hostStream, "activations to host", float64(a.s.p.toHost(a.goes(unit))), ready)
}

// beforeBackward fetches what may come back by now, and waits for what the unit needs.
func (a *away) beforeBackward(unit int) {
	if !a.any() {
		return
	}
	leaves := a.trips[unit].Leaves
	switch {
	case a.modules && leaves:
		a.fetch(unit, a.s.sim.Now)
	case a.modules:
	case a.all:
		a.s.sim.Wait(a.sent[unit]) // what the last units sent is still on its way
		a.fetch(unit, a.s.sim.Now)
		a.fetch(unit-1, a.s.sim.Now)
	default:
		a.fetch(a.trips[unit].Back, a.s.sim.Now)
	}
	if leaves {
		a.s.sim.Wait(a.came[unit])
	}
	if u := a.s.list[unit]; a.modules && len(u.Forward.Trips) > 0 {
		a.fetch(next(a.trips, a.home), a.s.sim.Now+float64(u.returned()))
	}
}

// fetch starts the way back of what a unit saved, once.
func (a *away) fetch(unit int, ready float64) {
	if unit < 0 || unit >= a.home && (a.all || a.modules) {
		return
	}
	a.home = unit
	a.came[unit] = a.s.sim.Copy(hostStream, "activations from host", float64(a.s.p.toDevice(a.goes(unit))), ready)
}

// next is the last unit before one of which something leaves, or -1.
func next(trips []memory.Trip, unit int) int {
	for unit--; unit >= 0 && !trips[unit].Leaves; unit-- {
	}
	return unit
}

// returned is how long the gradients of the modules of a unit run that leave what they save to
// the host: only then is that of the unit before fetched.
func (u *unit) returned() (t units.Seconds) {
	for i := range u.Forward.Trips {
		p := &u.Forward.Trips[i]
		for _, l := range u.backward.launches[p.From:p.To] {
			t += l.Gap + l.Busy
		}
	}
	return t
}

// comeBack is what the passes of a stage of a pipeline over one micro batch, of such a time, wait
// for what modules have left to the host: the backward pass for what has not come back yet,
// and both for the link. What its last layer left is fetched beside the micro batch before.
func (p *pricer) comeBack(c *chunk, passes units.Seconds) units.Seconds {
	goes := p.awayActivations()
	if !goes.Modules {
		return 0
	}
	trips := goes.Trips(nil, c.ops)
	home := next(trips, len(trips))
	came := make([]units.Seconds, len(trips))
	var now, link, busy, sent, back units.Seconds
	for i := len(trips) - 1; i >= 0; i-- {
		u := c.list[i]
		if now = max(now, came[i]); len(u.Forward.Trips) > 0 {
			if home = next(trips, max(home, 0)); home >= 0 {
				link = max(link, now+u.returned()) + p.toDevice(trips[home].Bytes())
				came[home] = link
			}
		}
		now += u.backward.whole.Busy
		busy += u.backward.whole.Busy
		sent += p.toHost(trips[i].Bytes())
		back += p.toDevice(trips[i].Bytes())
	}
	return max(now-busy, max(sent, back)-passes, 0)
}

// late is how many of the units of a whole model that leave something to the host have not sent it
// when the forward pass ends: copies may be slower than kernels, and no kernel waits for them.
func (p *pricer) late(c *chunk) (n int) {
	var now, sent units.Seconds
	trips := p.awayActivations().Trips(nil, c.ops)
	var at []units.Seconds
	for i, u := range c.list {
		now += u.forward.whole.Busy
		if trips[i].Leaves {
			sent = max(sent, now) + p.toHost(trips[i].Bytes())
			at = append(at, sent)
		}
	}
	for n < len(at) && at[len(at)-1-n] > now {
		n++
	}
	return n
}

// end lets the host wait for both streams after a micro batch (TRL's, __exit__).
func (a *away) end() {
	if a.any() && a.all {
		a.s.sim.WaitHost()
	}
}

// goes is how much of what a unit saves goes.
func (a *away) goes(unit int) units.Bytes {
	switch {
	case a.all:
		return a.s.list[unit].streamed
	case a.modules:
		return a.trips[unit].Bytes()
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
	_, ranks := p.job.HostThreads()
	if goes.Modules {
		return p.modulesOnHost(l, goes) * units.Bytes(ranks)
	}
	for _, u := range l.stages[0].list {
		switch {
		case goes.All:
			sum += u.streamed
		case u.Layers > 0 && goes.Layers > 0:
			sum += u.saved
			goes.Layers--
		}
	}
	return sum * units.Bytes(ranks)
}

// modulesOnHost is the most that a rank has there of what modules save, of all micro batches in
// flight.
func (p *pricer) modulesOnHost(l *layout, goes memory.Away) (most units.Bytes) {
	bytes := func(c *chunk) (sum units.Bytes) {
		for _, t := range goes.Trips(nil, c.ops) {
			sum += t.Bytes()
		}
		return sum
	}
	plan := p.schedule()
	if plan == nil {
		return bytes(l.stages[0])
	}
	for rank := range plan.Ranks {
		for _, m := range plan.Moments(rank, p.job.Recipe.Structure.TorchPipeline) {
			var sum units.Bytes
			for k, h := range m.Held {
				alive := int(h.Alive)
				if k == m.Chunk && m.Pass == pipeline.ForwardPass { // whose own are on their way there
					alive++
				}
				sum += units.Bytes(alive) * bytes(l.stage(plan, rank, k))
			}
			most = max(most, sum)
		}
	}
	return most
}
