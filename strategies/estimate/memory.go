package estimate

import (
	"slices"
	"sync"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// measured are the walks over a chunk, by what they depend on beside it.
type measured struct {
	chunks []measuredChunk
	peaks  []measuredPeak
}

type measuredChunk struct {
	walk
	chunk *memory.Chunk
}

// walk is what the walk over a chunk depends on.
type walk struct {
	mode     memory.Mode
	sharding memory.Sharding
	away     memory.Away
	synced   bool
	splits   bool
	receives bool // its input from another rank
	holds    bool // its output until the gradient has come
}

type measuredPeak struct {
	batches   int64 // 1, or 2 for more
	footprint footprint
	peak      memory.Peak
}

// mostPeaks bounds what a chunk remembers: more than a search asks of one.
const mostPeaks = 64

// measure walks one micro batch of a chunk.
func (c *chunk) measure(f *footprint, batches int64, splits bool) *memory.Chunk {
	s := f.step(c)
	s.MicroBatches, s.Splits = batches, splits
	key := walk{mode: s.Mode, sharding: s.Sharding, away: s.Away, synced: s.Synced(batches == 1), splits: splits, receives: s.Receives, holds: s.HoldsOutput}
	for i := range c.memory.chunks {
		if m := &c.memory.chunks[i]; m.walk == key {
			return m.chunk
		}
	}
	m := memory.MeasureChunk(&s)
	if len(c.memory.chunks) >= mostPeaks {
		c.memory.chunks = c.memory.chunks[:0]
	}
	c.memory.chunks = append(c.memory.chunks, measuredChunk{key, &m})
	return &m
}

// usage is the memory of the fullest rank.
type usage struct {
	peak          memory.Peak
	byStage       []units.Bytes // peak of each pipeline rank
	context, nccl units.Bytes
	paged         units.Bytes // states in managed memory
	used          units.Bytes // what the device shows
	capacity      units.Bytes
	chunks        []*memory.Chunk // of one rank
	fullest       int             // pipeline rank

	// What it follows from: plans that differ in their buckets share it.
	layout    *layout
	plan      *pipeline.Plan
	batches   int64
	footprint footprint
	measured  bool
	replayed  bool // with the allocator
}

func (u *usage) fits() bool { return u.used <= u.capacity }

// measure finds the fullest rank of a plan; record keeps every point of its step. That
// of a pipeline is replayed apart: it takes longer than everything else. So does the
// allocator of a whole step, and is left out where the tensors alone take more than most
// and than the device has; 0 is no limit.
func (u *usage) measure(s *simulation, p *pricer, l *layout, most units.Bytes, record bool) {
	plan := s.own.plan
	f, n := p.footprint(), p.job.Train.GradAccumulation
	if f.away.Modules && plan == nil {
		f.away.Late = p.late(l.stages[0])
	}
	if record || !u.measured || u.layout != l || u.plan != plan || u.batches != n || u.footprint != f {
		u.layout, u.plan, u.batches, u.footprint, u.measured, u.replayed = l, plan, n, f, !record, plan == nil
		u.byStage = u.byStage[:0]
		if plan != nil {
			u.pipeline(p, l, plan, &f)
		} else {
			var whole bool
			u.peak, whole = s.wholeStep(p, l.stages[0], &f, p.room(most), record)
			u.measured = u.measured && whole
		}
		if u.paged = 0; f.dense.Paged > 0 { // without a pipeline
			_, u.paged = f.statesOf(l.stages[0])
		}
	}
	u.settle(p)
}

// settle finds what the device shows.
func (u *usage) settle(p *pricer) {
	u.context, u.nccl = p.outside()
	u.used = u.peak.Allocated + u.context + u.paged
	if u.nccl > 0 {
		u.used += u.nccl
	}
	if slack := u.peak.Reserved - u.peak.Allocated; slack > 0 {
		u.used += slack
	}
	u.capacity = Capacity(p.job)
}

// allocators keep their memory from estimate to estimate.
var allocators = sync.Pool{New: func() any { return allocator.New(allocator.Options{}) }}

// room is the memory beyond which tensors are too large for a limit and for the device,
// whatever the allocator makes of them; 0: there is no limit.
func (p *pricer) room(most units.Bytes) units.Bytes {
	if most == 0 {
		return 0
	}
	context, nccl := p.outside()
	return max(most, Capacity(p.job)) - context - max(nccl, 0)
}

// wholeStep walks the step of a rank that holds the whole model, with the caching
// allocator, or without and false where its tensors alone take more than room.
func (s *simulation) wholeStep(p *pricer, c *chunk, f *footprint, room units.Bytes, record bool) (memory.Peak, bool) {
	key := measuredPeak{batches: min(p.job.Train.GradAccumulation, 2), footprint: *f}
	if !record {
		for i := range c.memory.peaks {
			if m := &c.memory.peaks[i]; m.batches == key.batches && m.footprint == key.footprint {
				return m.peak, true
			}
		}
	}
	step := f.step(c)
	step.Static, step.MicroBatches, step.Record = f.static(c), p.job.Train.GradAccumulation, record
	step.Static[memory.Gradients] += f.dummies(c)
	step.Update, step.Flat = f.updateOf(c)
	if f.mode == memory.Bucketed || f.mode == memory.Copied {
		s.step.begin(p, c, &s.sim)
		for _, q := range s.step.ddp.queues {
			step.Buckets = append(step.Buckets, q.sizes...)
		}
	}
	if room > 0 {
		if bare := tensors(step); bare.Allocated > room {
			return bare, false
		}
	}
	a := allocators.Get().(*allocator.Allocator)
	a.Reset(allocator.Options{Expandable: f.expandable})
	key.peak = memory.Measure(&step, a)
	allocators.Put(a)
	if !record {
		if len(c.memory.peaks) >= mostPeaks {
			c.memory.peaks = c.memory.peaks[:0]
		}
		c.memory.peaks = append(c.memory.peaks, key)
	}
	return key.peak, true
}

// tensors walks a step without the allocator: no block is smaller than what is in it.
func tensors(step memory.Step) memory.Peak {
	var buckets units.Bytes
	for _, b := range step.Buckets {
		buckets += b
	}
	if len(step.Buckets) > 0 {
		step.Static[memory.Gathered] = min(step.Static[memory.Gathered], buckets) // as the allocator makes them
	}
	return memory.Measure(&step, nil)
}

// pipeline measures every rank.
func (u *usage) pipeline(p *pricer, l *layout, plan *pipeline.Plan, f *footprint) {
	j := p.job
	torch := j.Recipe.Structure.TorchPipeline
	u.peak = memory.Peak{}
	u.chunks = resize(u.chunks, plan.Chunks)
	for rank := range plan.Ranks {
		static := u.static(p, l, plan, f, rank)
		for c := range plan.Chunks {
			u.chunks[c] = l.stage(plan, rank, c).measure(f, j.Train.GradAccumulation, plan.Splits)
		}
		peak := memory.Rank(static, plan.Moments(rank, torch), u.chunks)
		u.byStage = append(u.byStage, peak.Allocated)
		if peak.Allocated > u.peak.Allocated {
			u.peak, u.fullest = peak, rank
		}
	}
}

// static is what lives between steps on a pipeline rank, and buffers.
func (u *usage) static(p *pricer, l *layout, plan *pipeline.Plan, f *footprint, rank int) memory.Bytes {
	j := p.job
	static := memory.Bytes{memory.Gradients: f.dummies(l.ranks[rank])}
	for c := range plan.Chunks {
		ch := l.stage(plan, rank, c)
		for k, b := range f.static(ch) {
			if c == 0 || k != int(memory.Workspaces) {
				static[k] += b
			}
		}
		if j.Recipe.Structure.TorchPipeline {
			n := units.Bytes(j.Plan.Fill(&j.Train))
			if ch.embedding == nil { // a receive buffer for every micro batch
				static[memory.Activations] += n * ch.ops[0].Input
			}
			if ch.head == nil { // and one for every gradient
				static[memory.Activations] += n * ch.ops[len(ch.ops)-1].Output
			}
		}
	}
	return static
}

// replay finds what the fullest pipeline rank reserves, and what it allocates in blocks.
func (u *usage) replay(p *pricer) {
	if u.replayed {
		return
	}
	var blocks units.Bytes
	blocks, u.peak.Reserved = u.replayRank(p, u.fullest)
	if more := blocks - u.peak.Allocated; more > 0 {
		u.peak.Allocated += more
		u.peak.By[memory.Rounding] += more
	}
	u.peak.Reserved = max(u.peak.Reserved, u.peak.Allocated) // what ranks hold at once is bounded, what they reserve is replayed
	u.byStage[u.fullest] = u.peak.Allocated
	u.replayed = true
	u.settle(p)
}

// replayOthers finds what all other pipeline ranks allocate in blocks.
func (u *usage) replayOthers(p *pricer) {
	for rank, bare := range u.byStage {
		if rank != u.fullest {
			blocks, _ := u.replayRank(p, rank)
			u.byStage[rank] = max(bare, blocks)
		}
	}
}

// replayRank runs a pipeline rank through the allocator.
func (u *usage) replayRank(p *pricer, rank int) (allocated, reserved units.Bytes) {
	l, plan, f := u.layout, u.plan, &u.footprint
	var steps []*memory.Step
	for c := range plan.Chunks {
		s := f.step(l.stage(plan, rank, c))
		steps = append(steps, &s)
	}
	steps[0].Static = u.static(p, l, plan, f, rank)
	steps[0].Update, steps[0].Flat = f.updateOf(l.ranks[rank])
	actions := plan.Compact(rank)
	if p.job.Recipe.Structure.TorchPipeline { // which keeps something of every micro batch
		actions = plan.Actions(rank)
		for _, s := range steps {
			s.MicroBatches = p.job.Plan.Fill(&p.job.Train)
		}
	}
	a := allocators.Get().(*allocator.Allocator)
	a.Reset(allocator.Options{Expandable: f.expandable})
	defer allocators.Put(a)
	return memory.Replay(steps, actions, a)
}

// logits is the size of a micro batch's logits on a rank: those of its part of the
// sequence and, where the loss is cut, of its part of the vocabulary.
func (p *pricer) logits() units.Bytes {
	j := p.job
	vocab := j.Model.Vocab
	if j.Recipe.Structure.VocabParallel && !j.WholeLoss() {
		vocab = (vocab + j.Plan.TP - 1) / j.Plan.TP
	}
	return units.Bytes(j.Train.MicroBatch*j.Train.SequenceLength/j.Plan.CP*vocab) * j.Precision.Compute.Size()
}

// returned are the buffers that layers' inputs come back to from the host, which stay.
func (p *pricer) returned() units.Bytes {
	j := p.job
	if !j.Train.OffloadActivations {
		return 0
	}
	return units.Bytes(j.Recipe.Offload.Buffers*j.Train.MicroBatch*j.Train.SequenceLength/j.Plan.CP*j.Model.Hidden) * j.Precision.Compute.Size()
}

// unpacked is the buffer, of the largest, that frozen weights of few bits are unpacked to.
func (f *footprint) unpacked(c *chunk) units.Bytes {
	if !f.unpacks {
		return 0
	}
	var most int64
	for _, u := range c.ops {
		for i := range u.Params {
			if p := &u.Params[i]; p.Packs() {
				most = max(most, p.Local)
			}
		}
	}
	return units.Bytes(most) * tape.BF16.Size()
}

// buffered are the logits, in fp32, that DeepSpeed's pipeline engine keeps of the last micro
// batches until others take their place (runtime/pipe/engine.py, pipe_buffers; schedule.py,
// num_pipe_buffers: at least two).
func (p *pricer) buffered() (each units.Bytes, n int64) {
	j, r := p.job, &p.job.Recipe.Structure
	if n = min(int64(r.KeptLogits), j.Train.GradAccumulation); n == 0 || j.Plan.PP == 1 && !r.PipelineEngine {
		return 0, 0
	}
	return p.logits() / j.Precision.Compute.Size() * tape.F32.Size(), n
}

// outside is the device memory that is not in the framework's tensors.
func (p *pricer) outside() (context, nccl units.Bytes) {
	j := p.job
	law := j.Hardware.Laws.Memory
	plan := &j.Plan
	if j.GPUs > 1 {
		comms := 1
		exchange := plan.EP > 1 && j.Model.MoE != nil && !flexDispatch(j) // a communicator of its own, even where it spans all ranks
		if exchange || plan.EP > 1 && plan.EP < j.GPUs {
			comms++
		}
		ring := plan.CP > 1 && !plan.ByHeads() && j.Recipe.Structure.Ring == "torch" // the same, where neighbours send and receive
		if (ring || plan.ByHeads()) && plan.CP == j.GPUs {
			comms++
		}
		if j.Recipe.Structure.Partitions { // of the data ranks, beside that of all (deepspeed/utils/groups.py; 2.2 GB of two H100 outside the allocator, 3.2 where they share sequences)
			comms++
		}
		for _, d := range [...]int64{plan.TP, plan.CP, plan.PP} {
			if d > 1 && d < j.GPUs {
				comms++
			}
		}
		if plan.TP > 1 || plan.Replicas() > 1 {
			comms++
		}
		nccl = law.NCCL + units.Bytes(comms)*law.Communicator
		switch {
		case ring:
			nccl += units.Bytes(min(plan.CP-1, 2)) * law.Peer
		case plan.ByHeads(): // each rank to each other, as experts' ranks do
			nccl += units.Bytes(min(plan.CP, j.Hardware.Node.GPUs.Value)-1) * law.Peer
		}
		if exchange {
			nccl += law.Exchange + units.Bytes(min(plan.EP, j.Hardware.Node.GPUs.Value)-1)*law.Peer
		}
	}
	if context = law.Context; j.Recipe.Context > 0 {
		context = j.Recipe.Context
	}
	return context, nccl
}

// fill writes what was measured into the result, of all ranks or of the fullest.
func (u *usage) fill(r *Result, fullest bool) {
	m := &r.Memory
	m.PeakAllocated, m.PeakReserved, m.By, m.Moment = u.peak.Allocated, u.peak.Reserved, u.peak.By, u.peak.Moment
	if len(u.byStage) > 0 && !fullest {
		m.ByStage = slices.Clone(u.byStage)
		for rank := range r.Stages {
			r.Stages[rank].PeakAllocated = u.byStage[rank]
		}
	}
	for _, x := range []Outside{{"cuda_context", u.context}, {"nccl", u.nccl}, {"paged_states", u.paged}, {"allocator_slack", m.PeakReserved - m.PeakAllocated}} {
		if x.Bytes > 0 {
			m.Outside = append(m.Outside, x)
		}
	}
	m.DeviceUsed, m.Capacity, m.Fits = u.used, u.capacity, u.fits()
}
