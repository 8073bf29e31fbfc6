package estimate

import (
	"slices"
	"sync"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// footprint is what a plan keeps of each parameter on one rank.
type footprint struct {
	// Per parameter, of dense ones and those of experts.
	weights, optimizer, gradients [2]units.Bytes
	frozen                        [2]units.Bytes // weights of those that are not trained
	ranks                         [2]units.Bytes // that share one copy of the optimizer's states
	copies, buckets, workspace    units.Bytes
	returned                      units.Bytes // buffers that layers' inputs come back to from the host
	unpacks                       bool        // frozen weights are unpacked to a buffer that stays
	expandable                    bool        // segments of the allocator
	mode                          memory.Mode
	sharding                      memory.Sharding
	root                          bool  // first and last unit are one where a chunk has both
	heldHead                      bool  // the head's unit stays gathered between its passes
	live                          int64 // parameters of the last units that do so, at most
	policy                        strategies.UnitPolicy
	away                          memory.Away
	every                         bool // gradients are reduced after every micro batch
	dense, expert                 memory.Stored
	bucket                        units.Bytes    // of the plan, where buckets are tensors
	reducing                      units.Bytes    // a bucket that is there all the time
	group                         int64          // parameters that ZeRO 3 updates at once; 0: all
	sum                           units.Bytes    // of a value that lingering gradients are added to
	update                        memory.Update  // its partition per parameter of the rank's
	receives                      bool           // inputs that came from another rank are tensors of their own
	inputs                        bool           // of the layers stay until the last one is done
	holds                         bool           // outputs stay until their gradients have come
	traced                        bool           // backward passes are split by what autograd traces
	buffered                      units.Bytes    // logits of a micro batch, of which the last stage has
	outputs                       int64          // so many
	kept                          units.Bytes    // of the last stage's outputs, to the end of the step
	absent                        units.Bytes    // of a weight that GEMMs read, of what else is kept of parameters
	moment                        [2]units.Bytes // that an optimizer of whole matrices does not keep of these
	dummy                         units.Bytes    // of a value of the unused gradients that autograd gets; 0: none
	nodes                         bool           // layers run as nodes that hold gradients of their inputs
}

func (p *pricer) footprint() footprint {
	j := p.job
	trained := j.Precision.Trained()
	plan, prec := &j.Plan, &trained
	dp := p.groups[dpGroup].Ranks
	shard, expertShard := max(p.groups[shardGroup].Ranks, 1), max(p.groups[expertShardGroup].Ranks, 1)
	parts := j.Partitions()
	main := j.Recipe.Structure.MainGradients && !parts
	// Under unit-wise sharding the walk itself keeps the shards of gradients.
	own := j.Recipe.Structure.FlatStates && prec.Gradients == prec.Compute // autograd's gradients are the main ones
	byUnit := plan.Wraps(dp)
	states := dataparallel.StatesOf(plan.DataParallel, *prec, main && !own && !byUnit)
	f := footprint{workspace: j.Hardware.Laws.Memory.Workspace, every: j.SyncsEveryMicroBatch(), away: p.awayActivations(), inputs: j.Recipe.Structure.Transformers}
	f.buffered, f.outputs = p.buffered()
	f.returned, f.unpacks, f.expandable = p.returned(), j.Recipe.Structure.UnpackBuffer, j.Expandable()
	matrix := j.Recipe.Optimizer[j.Train.Optimizer].Matrix != ""
	frozen := states
	frozen.Weights = j.Precision.Weights.Size()
	for k, n := range [...]int64{shard, expertShard} {
		f.frozen[k], _, _ = frozen.PerParam(n)
		f.weights[k], f.optimizer[k], f.gradients[k] = states.PerParam(n)
		f.ranks[k] = 1
		if states.ShardOptimizer {
			f.ranks[k] = units.Bytes(n)
		}
		if plan.StatesOverCopies() {
			copies := units.Bytes(p.groups[[2]group{replicaGroup, expertReplicaGroup}[k]].Ranks)
			f.optimizer[k], f.ranks[k] = f.optimizer[k]/copies, f.ranks[k]*copies
		}
	}
	if deals(j) {
		f.optimizer[0], f.ranks[0] = f.optimizer[0]/units.Bytes(dp), units.Bytes(dp)
	}
	if matrix {
		f.moment = [2]units.Bytes{prec.Moments.Size() / f.ranks[0], prec.Moments.Size() / f.ranks[1]}
	}
	p.leave(&f)
	if d := prec.Frozen; d.Set { // matrices of layers, whose scales no rank shares
		frozen.Weights = d.Unscaled()
		packed, _, _ := frozen.PerParam(shard)
		f.absent = f.frozen[0] - packed - (d.Size() - d.Unscaled())
	}
	if main { // Transformer Engine keeps quantized copies of the weights
		if !(byUnit && primary(j)) { // gathered unit by unit as they are, and no longer kept than that
			f.copies = quantizedBytes(j)
		}
		if QuantizedAlone(j) { // and nothing else of them
			f.absent = j.Precision.Weights.Size()
		}
	}
	if !main { // buffers of Megatron are whole
		temp := units.Bytes(j.Recipe.Optimizer[j.Train.Optimizer].Temp)
		f.dense, f.expert = stored(*prec, f.weights[0], f.optimizer[0], temp), stored(*prec, f.weights[1], f.optimizer[1], temp)
		f.dense.Frozen, f.expert.Frozen = f.frozen[0], f.frozen[1]
		f.dense.Apart, f.expert.Apart = matrix, matrix
		f.dense, f.expert = tensorwise(f.dense, j), tensorwise(f.expert, j)
		if o := j.Recipe.Optimizer[j.Train.Optimizer]; o.Passing > 0 {
			each := units.Bytes(o.Passing) * prec.Moments.Size()
			f.dense.Passing, f.expert.Passing = each/f.ranks[0], each/f.ranks[1]
		}
		f.dense.Packed, f.expert.Packed = f.frozen[0]-f.absent, f.frozen[1]
	}
	if plan.PP > 1 {
		f.handOver(p)
	}
	switch {
	case main && j.Recipe.Structure.FlatStates && !plan.DataParallel.ShardsParameters():
		f.flat(p, own)
	case main && !plan.DataParallel.ShardsParameters():
		f.mode = memory.MainBuffers
		if j.Recipe.Structure.GradientSweep {
			f.mode = memory.Swept
		}
		if j.Recipe.Structure.MainCopies && prec.Master.Size() > prec.Gradients.Size() {
			f.update.Cast = prec.Master.Size()
		}
		if j.Recipe.Structure.DummyGradients {
			f.dummy = prec.Compute.Size()
		}
		f.nodes = j.Recipe.Structure.NodeGradients && plan.PP == 1 && exchangesOverlap(j) // a virtual stage has few layers
	case dp > 1 && parts && !plan.DataParallel.ShardsParameters():
		f.mode, f.sharding = memory.Sharded, memory.Sharding{Ranks: shard, ExpertRanks: expertShard, Reduce: p.gradSize(), Bucket: p.reduceBucket(), Joined: p.gradSize()}
		if p.wideReduce() > 1 {
			f.sharding.Flush = prec.Reduce.Size()
		}
		if f.sharding.Buffers = 1; j.Recipe.Overlap.GradReduce { // one is filled while another is reduced
			f.sharding.Buffers, f.sharding.Beside = 2, true
		}
		switch late := plan.DataParallel == strategies.ZeRO1; {
		case plan.Offloads(): // not by buckets, as far as memory goes
			f.sharding.Bucket = 0
		case plan.DataParallel == strategies.DDP: // they stay where they are
			f.mode, f.sharding.Bucket = memory.Plain, 0
		case late && !f.sharding.Beside: // all of them once the backward passes are over
			f.mode = memory.Plain
		case late && j.Train.GradAccumulation > 1: // there from the first backward pass on
			f.reducing, f.sharding.Bucket = 2*f.sharding.Bucket, 0
		}
	case dp > 1 && plan.TorchDDP(j.Recipe):
		f.mode, f.buckets, f.bucket = memory.Bucketed, prec.Gradients.Size(), plan.Bucket
		if !plan.BucketViews() {
			f.mode = memory.Copied
		}
	case plan.DataParallel == strategies.ZeRO2 && dp > 1: // gradients are scattered unit by unit, parameters stay whole
		f.mode, f.sharding = memory.Sharded, memory.Sharding{Ranks: shard, ExpertRanks: expertShard, Reduce: prec.Reduce.Size()}
	case byUnit:
		f.policy = plan.UnitPolicy()
		f.mode, f.root, f.heldHead, f.live = memory.Sharded, j.Recipe.Structure.ExposedRoot, j.HeldHead(), j.Recipe.Structure.LiveParameters
		f.sharding = memory.Sharding{Ranks: shard, ExpertRanks: expertShard, Gather: gathers(j).Size(), Reduce: prec.Reduce.Size(), Kept: prec.Weights.Size(), Reshard: plan.Reshard(), Stays: plan.PP > 1 && !plan.Reshard(), OnHost: plan.OffloadsParameters(),
			Copies: plan.DataParallel == strategies.FSDP2, Flat: plan.DataParallel == strategies.FSDP1 && !j.Recipe.Structure.MainGradients, Recasts: plan.DataParallel.FSDP() && !j.Recipe.Structure.MainGradients, Replicas: p.groups[replicaGroup].Ranks > 1, Ahead: j.Recipe.Structure.GatherAhead && plan.EP > 1, OuterLoss: j.Recipe.Structure.OuterLoss}
		if parts {
			f.sharding.Views = j.KeepsViews()
			f.sharding.Parts, f.sharding.Reduce, f.reducing = true, p.gradSize(), p.reduceBucket()*p.wideReduce()
			if !plan.Offloads() { // whose host has the gradients
				f.sharding.Bucket, f.sharding.Flush, f.sharding.Beside, f.sharding.Alone = p.reduceBucket(), prec.Reduce.Size(), true, true
				f.gradients = [2]units.Bytes{p.gradSize() / units.Bytes(shard), p.gradSize() / units.Bytes(expertShard)}
			}
		}
		if g := gathers(j); g.Narrow() {
			f.sharding.Gather, f.sharding.Narrow, f.sharding.NarrowExperts = wideGather(j), g.Size(), main
		}
		if prec.Frozen.Set {
			f.sharding.Packed = narrowGather(j)
		}
		f.sharding.Cast = f.sharding.Copies && prec.Weights.Size() != f.sharding.Gather
	}
	if parts && dp > 1 && !plan.Offloads() {
		f.flatten(p)
		f.group = j.Recipe.Structure.SubGroup
	}
	return f
}

// flat is what DeepSpeed keeps and makes beside its flat buffers. ZeRO 1
// (runtime/zero/stage_1_and_2.py) leaves 16-bit gradients where autograd put them,
// reduces them by buckets of reduce_bucket_size, joins those of its partition and
// casts them. BF16_Optimizer adds them into fp32 after each backward pass and
// leaves them.
func (f *footprint) flat(p *pricer, own bool) {
	prec := &p.job.Precision
	f.update.Copied = prec.Weights.Size()
	if !own {
		f.mode, f.sum = memory.Lingering, prec.Gradients.Size()
		return
	}
	f.mode = memory.Plain
	f.update.Bucket = units.Bytes(p.job.Recipe.Structure.ReduceBucket) * prec.Gradients.Size()
	if !p.job.Plan.Offloads() {
		f.update.Joined, f.update.Cast = prec.Gradients.Size(), prec.Master.Size()
	}
}

// flatten says what the update of flat buffers takes. Stage 0 has none: it casts the gradients of
// all parameters, each into a tensor (runtime/fp16/unfused_optimizer.py). ZeRO 1 and 2 cast master weights from a
// copy of a part of the weights, whose tensors may still be there when these are joined; ZeRO 3
// copies what it has cast.
func (f *footprint) flatten(p *pricer) {
	prec := p.job.Precision.Trained()
	if prec.Master.Size() == 0 { // the weights are its
		return
	}
	if p.job.Plan.DataParallel == strategies.DDP {
		f.dense.Update, f.expert.Update = prec.Master.Size(), prec.Master.Size()
		return
	}
	f.dense.Tensors, f.expert.Tensors = 0, 0
	f.update = memory.Update{Master: prec.Master.Size(), Moment: prec.Moments.Size(), Moments: int(2 - prec.Without),
		Joined: p.gradSize(), Cast: prec.Master.Size(), Norm: doubles}
	if f.update.Clone = prec.Master.Size(); !p.job.Plan.DataParallel.ShardsParameters() {
		f.update.Clone = prec.Weights.Size()
		if p.job.Recipe.Structure.FlatOnDevice {
			f.update.Copied = prec.Weights.Size()
		}
	}
}

// doubles is the size of the values that DeepSpeed takes the norm of (get_grad_norm_direct).
const doubles units.Bytes = 8

// held is how many units, the last of a chunk, stay gathered between their passes: that of
// the head, or those that have at most so many parameters.
func (c *chunk) held(head bool, live int64) int {
	if live <= 0 {
		if head && c.head != nil {
			return 1
		}
		return 0
	}
	n := 0
	for i := len(c.list) - 1; i >= 0; i-- {
		for k := range c.list[i].Params {
			if p := &c.list[i].Params[k]; !p.TiedCopy || c.embedding == nil {
				live -= p.Local
			}
		}
		if live < 0 {
			break
		}
		n++
	}
	return n
}

// reduceBucket is the size of the buckets that gradients are reduced in. DeepSpeed's ZeRO 3
// is taken to run as Hugging Face's Trainer sets it where a configuration says auto: with
// buckets as large as a square matrix (transformers, integrations/deepspeed.py).
func (p *pricer) reduceBucket() units.Bytes {
	j := p.job
	switch {
	case j.Plan.Bucket > 0:
		return j.Plan.Bucket
	case j.Recipe.Structure.ReduceBucket > 0:
		return units.Bytes(j.Recipe.Structure.ReduceBucket) * p.gradSize()
	case j.Plan.DataParallel == strategies.ZeRO3:
		return units.Bytes(j.Model.Hidden*j.Model.Hidden) * p.gradSize()
	}
	return j.Recipe.Overlap.Bucket
}

// handOver says what stages keep of what they receive and send. PyTorch receives into
// buffers that stay, holds outputs until their gradients have come, and those of the
// last stage to the end of the step (torch.distributed.pipelining, stage.py); Megatron
// releases an output once it is sent and holds inputs (schedules.py,
// deallocate_output_tensor).
func (f *footprint) handOver(p *pricer) {
	j := p.job
	if !j.Recipe.Structure.TorchPipeline {
		f.receives = true
		return
	}
	f.holds, f.traced = true, true
	if !j.Recipe.Structure.DroppedOutputs {
		f.kept = p.logits()
	}
}

// stored is what each parameter keeps, and what the update holds of it: so many moments.
func stored(p recipe.Precision, weights, states, update units.Bytes) memory.Stored {
	n := 2 - int(p.Without)
	if p.Master.Size() > 0 {
		n++
	}
	s := memory.Stored{Weights: weights, States: states, Tensors: n}
	if kept := p.MomentBytes() + p.Master.Size(); kept > 0 {
		s.Update = update * states * p.Moments.Size() / kept
	}
	return s
}

// static is what lives between steps of a chunk's parameters, and workspaces.
func (f *footprint) static(c *chunk) (s memory.Bytes) {
	dense, expert := units.Bytes(c.dense), units.Bytes(c.expert)
	s[memory.Parameters] = f.weights[0]*dense + f.weights[1]*expert + f.frozen[0]*units.Bytes(c.frozen[0]) + f.frozen[1]*units.Bytes(c.frozen[1]) - f.absent*units.Bytes(c.multiplied)
	s[memory.OptimizerStates] = f.optimizer[0]*dense + f.optimizer[1]*expert
	if f.dense.Paged > 0 || f.dense.Embedding > 0 {
		s[memory.OptimizerStates], _ = f.statesOf(c)
	}
	if f.moment[0] > 0 {
		for k, n := range c.weights().params {
			s[memory.OptimizerStates] -= f.moment[k] * units.Bytes(n)
		}
	}
	s[memory.Gradients] = f.gradients[0]*dense + f.gradients[1]*expert
	s[memory.WeightCopies] = units.Bytes(c.multiplied) * f.copies
	s[memory.Gathered] = (dense+expert)*f.buckets + f.reducing
	s[memory.Workspaces] = f.workspace + f.returned + f.unpacked(c)
	if c.head != nil {
		s[memory.LogitsLoss] = f.buffered * units.Bytes(max(f.outputs-1, 0))
	}
	return s
}

// updateOf is what the update of all that a rank holds takes, and the values it runs over at
// once.
func (f *footprint) updateOf(c *chunk) (u memory.Update, flat []units.Bytes) {
	if u = f.update; u.Cast == 0 {
		return u, nil
	}
	if f.group == 0 || !f.sharding.Parts {
		return u, []units.Bytes{units.Bytes(c.dense)/f.ranks[0] + units.Bytes(c.expert)/f.ranks[1]}
	}
	n := units.Bytes(0)
	for _, unit := range c.list { // a parameter that makes a group large enough is its last (stage3.py, _create_fp16_sub_groups)
		for i := range unit.Params {
			switch p := &unit.Params[i]; {
			case p.Frozen || p.TiedCopy && c.embedding != nil:
			case p.Split == model.ExpertSplit:
				n += units.Bytes(p.Local) / f.ranks[1]
			default:
				n += units.Bytes(p.Local) / f.ranks[0]
			}
			if n >= units.Bytes(f.group) {
				flat, n = append(flat, n), 0
			}
		}
	}
	if n > 0 {
		flat = append(flat, n)
	}
	return u, flat
}

// dummies are the unused gradients of all that a rank holds: one tensor, which stays,
// for each shape of a weight that a GEMM makes the gradient of.
func (f *footprint) dummies(c *chunk) units.Bytes {
	if f.dummy == 0 {
		return 0
	}
	if c.shapes == nil {
		for i, u := range c.ops {
			if i > 0 && u == c.ops[i-1] {
				continue
			}
			for k := range u.Backward.Ops {
				o := &u.Backward.Ops[k]
				if shape := [2]int64{o.M, o.N}; o.Layout == tape.LayoutWgrad && (o.Class == tape.GEMM || o.Class == tape.GroupedGEMM) && !slices.Contains(c.shapes, shape) {
					c.shapes = append(c.shapes, shape)
				}
			}
		}
	}
	values := int64(0)
	for _, shape := range c.shapes {
		values += shape[0] * shape[1]
	}
	return units.Bytes(values) * f.dummy
}

// step describes a rank's step over a chunk to the memory walk.
func (f *footprint) step(c *chunk) memory.Step {
	s := memory.Step{Units: c.ops, Mode: f.mode, Sharding: f.sharding, SyncEvery: f.every, Dense: f.dense, Expert: f.expert}
	s.Sharding.Root = f.root && c.embedding != nil && c.head != nil
	s.Sharding.Held = c.held(f.heldHead, f.live)
	if f.policy.Nests() {
		s.Sharding.Root, s.Sharding.Held = false, 0
		s.Spans, s.Drops = dataparallel.Units(f.policy, c.ops).Spans()
	}
	s.Sum, s.Away, s.Nodes = f.sum, f.away, f.nodes
	s.Receives, s.HoldsOutput, s.HoldsEmbeddings, s.Traced = f.receives && c.embedding == nil, f.holds, f.inputs, f.traced
	if c.head != nil {
		s.KeptOutput, s.Buffered = f.kept, f.buffered
	}
	return s
}

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
