package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// FloorTime is a step time that no plan with this cut, schedule and number of micro
// batches goes below, whatever its data parallelism: the kernels of the busiest
// stage at the full clock, and the pipeline filling up before it where steps do not
// roll into each other. A lower clock, exposed communication, hosts that run ahead of
// their devices and the optimizer only add to it.
func (e *Evaluator) FloorTime(j *strategies.Job) (units.Seconds, error) {
	m, l, schedule, err := e.shape(j)
	if err != nil {
		return 0, err
	}
	p := &e.p
	for _, u := range m.units {
		u.clock(p)
	}
	n := units.Seconds(j.Train.GradAccumulation)
	if schedule == nil {
		f, b := p.passes(l.stages[0])
		return n * (f.seg.Busy + b.seg.Busy), nil
	}
	n /= units.Seconds(schedule.Copies) // each takes its share of the micro batches
	var floor units.Seconds
	for rank := range schedule.Ranks {
		var busy, host, after units.Seconds // after: of a host behind a pass's last kernel
		first := schedule.ModelStages()
		for c := range schedule.Chunks {
			f, b := p.passes(l.stage(schedule, rank, c))
			busy += f.alone(p, schedule) + b.alone(p, schedule)
			host += f.seg.Host + b.seg.Host
			after = max(after, f.seg.Host-f.seg.Lag, b.seg.Host-b.seg.Lag)
			first = min(first, schedule.ModelStage(schedule.Stage(rank, c)))
		}
		var fill units.Seconds
		if !rolls(schedule, j.Recipe) {
			for stage := range first {
				f, _ := p.passes(l.stages[stage])
				fill += f.alone(p, schedule)
			}
		}
		floor = max(floor, fill+n*busy, n*host-after)
	}
	return floor, nil
}

// FloorEnergy is energy of a GPU that no step with this cut, schedule and number of micro
// batches takes less than: in its kernels and, for the rest of FloorTime, idling. Kernels take
// what they do at the full clock, unless the card holds them to a lower one: then on average
// they draw what it lets through, as far as throttle comes to that, and take no less time.
func (e *Evaluator) FloorEnergy(j *strategies.Job) (units.Joules, error) {
	time, err := e.FloorTime(j)
	if err != nil || j.Hardware.Laws.Power == nil {
		return 0, err
	}
	m, _, schedule, err := e.shape(j)
	if err != nil {
		return 0, err
	}
	n, l := units.Seconds(j.Train.GradAccumulation), m.layout(j, schedule)
	if schedule != nil {
		n /= units.Seconds(schedule.Copies)
	}
	p := &e.p
	card, floor := p.card(), 0.0
	for _, rank := range l.ranks {
		work, _ := rank.work(n)
		d := card.demand(&work, p, fullClock)
		least := d.fixed + d.drawn
		switch {
		case len(j.Runtime.Slow()) > 0: // at the clock of another one, that of its healthy peers
			least = d.fixed
		case card.limit > 0:
			least = min(least, nearLimit*card.limit*float64(work.busy)/card.worst)
		}
		floor += least + card.rests(max(float64(time-work.busy), 0), 0)
	}
	return units.Joules(floor / float64(len(l.ranks))), nil
}

// nearLimit is how near throttle brings the power of a card that it slows down to its limit,
// at least.
const nearLimit = 0.99

// FloorMemory is device memory that a plan needs at least on its fullest rank:
// what lives between steps.
func (e *Evaluator) FloorMemory(j *strategies.Job) (units.Bytes, error) {
	_, l, schedule, err := e.shape(j)
	if err != nil {
		return 0, err
	}
	f := e.p.footprint()
	context, nccl := e.p.outside()
	if schedule == nil {
		s := f.static(l.stages[0])
		return s.Total() + context + nccl, nil
	}
	var most units.Bytes
	for rank := range schedule.Ranks {
		var sum units.Bytes
		for c := range schedule.Chunks {
			s := f.static(l.stage(schedule, rank, c))
			if c > 0 {
				sum -= f.workspace // one for all
			}
			sum += s.Total()
		}
		most = max(most, sum)
	}
	return most + context + nccl, nil
}

// FloorPeak is FloorMemory with the activations that a whole model keeps from its
// forward to its backward pass, without pipeline; with one, or where the host has them,
// it is FloorMemory.
func (e *Evaluator) FloorPeak(j *strategies.Job) (units.Bytes, error) {
	floor, err := e.FloorMemory(j)
	if err != nil || j.Plan.PP > 1 || j.Train.OffloadActivations || j.Train.OffloadModules != 0 {
		return floor, err
	}
	m, l, _, err := e.shape(j)
	if err != nil {
		return 0, err
	}
	f := e.p.footprint()
	f.away = memory.Away{}
	bare, most := floor, units.Bytes(0)
	for k := range m.units[1:m.head] {
		if l.counts[k+1] == 0 {
			continue
		}
		// What one more layer of the kind keeps; the first may hold its input in
		// common with what is before it.
		batches := j.Train.GradAccumulation
		one, two := m.chunk([]int{k}, ends{}).measure(&f, batches, false), m.chunk([]int{k, k}, ends{}).measure(&f, batches, false)
		floor += (two.Saved - one.Saved) * units.Bytes(l.counts[k+1]-1)
		most = max(most, two.Saved-one.Saved)
	}
	return max(floor-most*units.Bytes(j.Train.OffloadLayers), bare), nil
}

// Capacity is the device memory that a job may use.
func Capacity(j *strategies.Job) units.Bytes {
	return j.Hardware.GPU.Memory.Value - j.Hardware.Laws.Memory.Reserve
}

// shape readies the evaluator for a job and returns its model and staged layout. The
// schedule has no order of actions.
func (e *Evaluator) shape(j *strategies.Job) (*priced, *layout, *pipeline.Plan, error) {
	m, err := e.prepare(j)
	if err != nil {
		return nil, nil, nil, err
	}
	if j.Plan.PP <= 1 {
		return m, m.staged(j, nil), nil, nil
	}
	info, err := pipeline.Lookup(j.Plan.PipelineSchedule(j.Recipe))
	if err != nil {
		return nil, nil, nil, err
	}
	e.outline = pipeline.Plan{Info: info, Ranks: int(j.Plan.PP), Chunks: int(j.Plan.VirtualStages), Transfers: e.p.transfers()}
	return m, m.staged(j, &e.outline), &e.outline, nil
}
