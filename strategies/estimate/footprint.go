package estimate

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/memory"
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
	f.reduces(p, main, own)
	return f
}

// reduces says in which buffers gradients are made, and how they leave them.
func (f *footprint) reduces(p *pricer, main, own bool) {
	j := p.job
	plan, prec, dp, whole := &j.Plan, j.Precision.Trained(), p.groups[dpGroup].Ranks, !j.Plan.DataParallel.ShardsParameters()
	sharding := memory.Sharding{Ranks: max(p.groups[shardGroup].Ranks, 1), ExpertRanks: max(p.groups[expertShardGroup].Ranks, 1)}
	switch {
	case main && whole && j.Recipe.Structure.FlatStates:
		f.flat(p, own)
	case main && whole:
		f.mainBuffers(j)
	case dp > 1 && j.Partitions() && whole:
		f.mode, f.sharding = memory.Sharded, sharding
		f.partitioned(p)
	case dp > 1 && plan.TorchDDP(j.Recipe):
		f.mode, f.buckets, f.bucket = memory.Bucketed, prec.Gradients.Size(), plan.Bucket
		if !plan.BucketViews() {
			f.mode = memory.Copied
		}
	case plan.DataParallel == strategies.ZeRO2 && dp > 1: // gradients are scattered unit by unit, parameters stay whole
		f.mode, f.sharding = memory.Sharded, sharding
		f.sharding.Reduce = prec.Reduce.Size()
	case plan.Wraps(dp):
		f.mode, f.sharding = memory.Sharded, sharding
		f.byUnit(p, main)
	}
	if j.Partitions() && dp > 1 && !plan.Offloads() {
		f.flatten(p)
		f.group = j.Recipe.Structure.SubGroup
	}
}

// mainBuffers are Megatron's: gradients are added into whole buffers that stay.
func (f *footprint) mainBuffers(j *strategies.Job) {
	prec := j.Precision.Trained()
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
	f.nodes = j.Recipe.Structure.NodeGradients && j.Plan.PP == 1 && exchangesOverlap(j) // a virtual stage has few layers
}

// partitioned is what DeepSpeed's ZeRO 1 and 2 reduce by buckets.
func (f *footprint) partitioned(p *pricer) {
	j := p.job
	plan, prec := &j.Plan, j.Precision.Trained()
	f.sharding.Reduce, f.sharding.Bucket, f.sharding.Joined = p.gradSize(), p.reduceBucket(), p.gradSize()
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
}

// byUnit is what FSDP and ZeRO 3 gather and scatter unit by unit.
func (f *footprint) byUnit(p *pricer, main bool) {
	j := p.job
	plan, prec, s := &j.Plan, j.Precision.Trained(), &f.sharding
	f.policy = plan.UnitPolicy()
	f.root, f.heldHead, f.live = j.Recipe.Structure.ExposedRoot, j.HeldHead(), j.Recipe.Structure.LiveParameters
	s.Gather, s.Reduce, s.Kept, s.Reshard, s.Stays, s.OnHost = gathers(j).Size(), prec.Reduce.Size(), prec.Weights.Size(), plan.Reshard(), plan.PP > 1 && !plan.Reshard(), plan.OffloadsParameters()
	s.Copies, s.Flat, s.Recasts = plan.DataParallel == strategies.FSDP2, plan.DataParallel == strategies.FSDP1 && !j.Recipe.Structure.MainGradients, plan.DataParallel.FSDP() && !j.Recipe.Structure.MainGradients
	s.Replicas, s.Ahead, s.OuterLoss = p.groups[replicaGroup].Ranks > 1, j.Recipe.Structure.GatherAhead && plan.EP > 1, j.Recipe.Structure.OuterLoss
	if j.Partitions() {
		s.Views = j.KeepsViews()
		s.Parts, s.Reduce, f.reducing = true, p.gradSize(), p.reduceBucket()*p.wideReduce()
		if !plan.Offloads() { // whose host has the gradients
			s.Bucket, s.Flush, s.Beside, s.Alone = p.reduceBucket(), prec.Reduce.Size(), true, true
			f.gradients = [2]units.Bytes{p.gradSize() / units.Bytes(s.Ranks), p.gradSize() / units.Bytes(s.ExpertRanks)}
		}
	}
	if g := gathers(j); g.Narrow() {
		s.Gather, s.Narrow, s.NarrowExperts = wideGather(j), g.Size(), main
	}
	if prec.Frozen.Set {
		s.Packed = narrowGather(j)
	}
	s.Cast = s.Copies && prec.Weights.Size() != s.Gather
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
