package estimate

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/pipeline"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// Evaluator estimates many plans. It remembers what they share: units priced by all
// that cuts and runs layers, collectives, schedules and their critical paths, steps that
// fill the same buckets, memory walks. What it returns does not depend on what it was asked before. The zero
// value is ready; it must not be shared between goroutines.
type Evaluator struct {
	p       pricer
	cache   ops.Cache
	known   []*priced // the latest last
	sim     simulation
	memory  usage
	outline pipeline.Plan // a schedule without its actions
	timed   timed
	healthy *Evaluator // of jobs with stragglers as if they had none; nil: not asked yet
}

// mostModels is how many ways to cut layers an Evaluator remembers, at some 200 KB
// each.
const mostModels = 24

// Score is the part of a Result by which plans are ranked.
type Score struct {
	StepTime      units.Seconds
	PeakAllocated units.Bytes
	DeviceUsed    units.Bytes
	Fits          bool
	Energy        units.Joules // of one GPU and step
}

// Estimate predicts one training step of a resolved job with a plan.
func (e *Evaluator) Estimate(j *strategies.Job, o Options) (*Result, error) {
	m, err := e.prepare(j)
	if err != nil {
		return nil, err
	}
	p, s := &e.p, &e.sim
	s.own.plan = p.schedule()
	l := m.layout(j, s.own.plan)
	e.simulate(l, o, 0)
	r := &Result{Job: j, Clock: s.power.Clock, Power: s.power.Power, Energy: s.power.Energy}
	s.fill(r)
	if o.Record {
		r.Spans = p.spans(l)
	}
	e.memory.measure(s, p, l, 0, o.Detail)
	e.memory.replay(p)
	if !o.Fullest {
		e.memory.replayOthers(p)
	}
	e.memory.fill(r, o.Fullest)
	p.finish(l, r)
	e.spread(r)
	if err := r.waiting(); err != nil {
		return nil, err
	}
	if o.Detail {
		r.Detail = s.detail()
		r.Detail.Memory = e.memory.peak.Points
	}
	return r, nil
}

// spans runs the step once more at its final clock, every layer of it, so that
// recording changes no figure. Only a rank without pipeline has spans.
func (p *pricer) spans(l *layout) []timeline.Span {
	if p.job.Plan.PP > 1 {
		return nil
	}
	counts := p.counts
	p.counts = nil
	var s simulation
	s.sim.Record = &timeline.Recorder{Spans: make([]timeline.Span, 0, spansOfUnit*len(l.ranks[0].list))}
	s.run(p, l, Options{}, 0)
	p.counts = counts
	return s.sim.Record.Spans
}

// spansOfUnit is about how many spans a unit leaves: it only saves copies of a growing list.
const spansOfUnit = 32

// Limits are what a Score need not go beyond: a plan that uses more memory is not
// timed, and one that takes more time need not be measured, nor timed to the end. Zero is
// no limit.
type Limits struct {
	Memory units.Bytes
	Time   units.Seconds
	Beaten func(Score) bool // no plan of this time and energy with at least this memory matters; nil: each does
}

// Score is Estimate without all that ranking does not need. Of a plan beyond a
// limit only that is known for sure: StepTime is 0 where it was not timed and too long
// where it was not timed to the end, DeviceUsed is 0 where it was not measured, and the
// least that is used of one that is Beaten. After a first plan of its kind it allocates
// nothing.
func (e *Evaluator) Score(j *strategies.Job, limits Limits) (Score, error) {
	m, err := e.prepare(j)
	if err != nil {
		return Score{}, err
	}
	p, s, u := &e.p, &e.sim, &e.memory
	s.own.plan = p.schedule()
	l := m.layout(j, s.own.plan)
	var out Score
	tooSlow := func() bool {
		e.time(l, limits.Time)
		if out.StepTime = units.Seconds(s.total); beyond(out.StepTime, limits.Time) {
			return true
		}
		out.Energy = s.power.Energy
		return false
	}
	measured := func() {
		out.PeakAllocated, out.DeviceUsed, out.Fits = u.peak.Allocated, u.used, u.fits()
	}
	tooLarge := func() bool { return limits.Memory > 0 && u.used > limits.Memory }
	// Without pipeline the memory of a step takes longer to find than its time; with one,
	// only what the allocator reserves for it.
	first := s.own.plan == nil && limits.Time > 0 || e.leavesLate()
	if first && tooSlow() {
		return out, nil
	}
	if u.measure(s, p, l, limits.Memory, false); tooLarge() {
		measured()
		return out, nil
	}
	if !first && tooSlow() {
		return out, nil
	}
	if limits.Beaten != nil && !u.replayed {
		if measured(); limits.Beaten(out) {
			return out, nil
		}
	}
	u.replay(p)
	if measured(); tooLarge() {
		out.StepTime, out.Energy = 0, 0
	}
	return out, nil
}

// step is Score without the memory of the step.
func (e *Evaluator) step(j *strategies.Job) (Score, error) {
	m, err := e.prepare(j)
	if err != nil {
		return Score{}, err
	}
	s := &e.sim
	s.own.plan = e.p.schedule()
	e.simulate(m.layout(j, s.own.plan), Options{}, 0)
	return Score{StepTime: units.Seconds(s.total), Energy: s.power.Energy}, nil
}

// leavesLate reports whether what a step holds follows from its clock: what modules leave to the
// host is still there at the end of the forward pass where kernels are faster than copies.
func (e *Evaluator) leavesLate() bool { return e.sim.own.plan == nil && e.p.awayActivations().Modules }

// DeviceUsed is Memory.DeviceUsed of an Estimate, without the time of the step unless memory
// follows from that. Of a plan beyond a limit only that is known for sure; 0 is no limit.
func (e *Evaluator) DeviceUsed(j *strategies.Job, limit units.Bytes) (units.Bytes, error) {
	m, err := e.prepare(j)
	if err != nil {
		return 0, err
	}
	p, s, u := &e.p, &e.sim, &e.memory
	s.own.plan = p.schedule()
	l := m.layout(j, s.own.plan)
	if e.leavesLate() {
		e.simulate(l, Options{}, 0)
	}
	if u.measure(s, p, l, limit, false); limit == 0 || u.used <= limit {
		u.replay(p)
	}
	return u.used, nil
}

// beyond reports whether a step is known to take longer than most; 0 is no limit.
func beyond(t, most units.Seconds) bool { return most > 0 && t > most }

// simulate runs the step at falling clocks until its power fits the card. One that is beyond
// most at the highest it does not run again: at lower ones it takes longer still. A straggler is
// slower than healthy ranks are among themselves: the clocks are theirs at most.
func (e *Evaluator) simulate(l *layout, o Options, most units.Seconds) {
	p, s := &e.p, &e.sim
	var without Score
	if p.lags != nil {
		healthy := *p.job
		healthy.Runtime.Stragglers = nil
		if e.healthy == nil {
			e.healthy = new(Evaluator)
		}
		var err error
		if without, err = e.healthy.step(&healthy); err == nil {
			p.most = append(p.most, e.healthy.p.clocks...)
			copy(p.clocks, p.most)
		}
	}
	if s.run(p, l, o, most); beyond(units.Seconds(s.total), most) {
		return
	}
	for p.throttle(s) {
		s.run(p, l, o, 0)
	}
	if without.Energy > 0 {
		s.idle(p, without)
	}
}

// prepare readies everything for a job and returns its model, priced.
func (e *Evaluator) prepare(j *strategies.Job) (*priced, error) {
	if e.p.machine == nil || e.p.hardware != j.Hardware {
		m, err := machineOf(j.Hardware)
		if err != nil {
			return nil, err
		}
		*e = Evaluator{p: pricer{machine: m}, cache: e.cache}
	}
	e.p.begin(j)
	return e.model(j)
}

// model returns the priced units of a job's model.
func (e *Evaluator) model(j *strategies.Job) (*priced, error) {
	t := e.p.terms()
	for i := len(e.known) - 1; i >= 0; i-- {
		if m := e.known[i]; m.terms == t {
			copy(e.known[i:], e.known[i+1:])
			e.known[len(e.known)-1] = m
			return m, nil
		}
	}
	built, err := build(&e.cache, j)
	if err != nil {
		return nil, err
	}
	m := e.p.priceModel(t, built)
	if len(e.known) >= mostModels {
		e.known = slices.Delete(e.known, 0, 1)
	}
	e.known = append(e.known, m)
	return m, nil
}
