package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// Streams of a Sim.
const (
	dpStream      = 0 // gathers and reductions of the sharding group
	replicaStream = 1 // all-reduces between copies (HSDP)
)

// chunk is the part of the model that a rank runs as one pipeline stage.
type chunk struct {
	embedding, head *unit
	layers          []*unit
}

// list returns the units of the chunk in forward order.
func (c *chunk) list() []*unit {
	out := make([]*unit, 0, len(c.layers)+2)
	if c.embedding != nil {
		out = append(out, c.embedding)
	}
	out = append(out, c.layers...)
	if c.head != nil {
		out = append(out, c.head)
	}
	return out
}

// params are the parameters of the chunk on this rank, before data-parallel
// sharding: dense ones and those of experts.
func (c *chunk) params() (dense, expert int64, tensors int) {
	for _, u := range c.list() {
		for _, p := range u.Params {
			if p.TiedCopy && c.embedding != nil {
				continue
			}
			if p.Split == model.ExpertSplit {
				expert += p.Local
			} else {
				dense += p.Local
			}
			tensors++
		}
	}
	return
}

// step runs the micro batches of one rank without pipeline neighbours.
type step struct {
	p     *pricer
	job   *strategies.Job
	sim   *timeline.Sim
	chunk *chunk
	list  []*unit

	forward, backward, optimizer float64

	ddp     *buckets
	shards  *shards
	exposed map[string]float64
}

func (p *pricer) newStep(c *chunk, sim *timeline.Sim) *step {
	s := &step{p: p, job: p.job, sim: sim, chunk: c, list: c.list(), exposed: map[string]float64{}}
	dp := p.groups["dp"].Ranks
	switch kind := p.job.Plan.DataParallel; {
	case dp <= 1:
	case kind.ShardsParameters():
		s.shards = s.newShards()
	default:
		s.ddp = s.newBuckets()
	}
	return s
}

// syncs reports whether gradients are reduced after micro batch i of n.
func (s *step) syncs(i, n int64) bool {
	return i == n-1 || s.job.SyncsEveryMicroBatch()
}

// run runs all micro batches and the optimizer.
func (s *step) run() {
	n := s.job.Train.GradAccumulation
	for i := int64(0); i < n; i++ {
		t0 := s.sim.Now
		s.forwardPass(i)
		t1 := s.sim.Now
		s.backwardPass(i, s.syncs(i, n))
		s.forward += t1 - t0
		s.backward += s.sim.Now - t1
	}
	t := s.sim.Now
	s.optimizerStep()
	s.optimizer = s.sim.Now - t
}

func (s *step) label(name string) {
	if s.sim.Record != nil {
		s.sim.Record.Label = name
	}
}

func (s *step) wait(t timeline.Task, group string) {
	s.exposed[group] += s.sim.Wait(t)
}

// forwardPass runs one micro batch forward.
func (s *step) forwardPass(i int64) {
	if s.shards != nil {
		s.shards.forward()
		return
	}
	if s.ddp != nil {
		s.ddp.beforeForward(i)
	}
	for _, u := range s.list {
		s.label(u.Name + " forward")
		s.runAll(&u.forward)
	}
}

// runAll runs a section whole, stopping the host where it waits for the device.
func (s *step) runAll(sec *section) {
	if sec.syncAt < 0 {
		s.sim.Run(&sec.whole)
		return
	}
	for i := range sec.parts {
		s.sim.Run(&sec.parts[i])
	}
}

// backwardPass runs one micro batch backward, with reductions when sync is set.
func (s *step) backwardPass(i int64, sync bool) {
	first := i == 0
	if s.shards != nil {
		s.shards.backward(first, sync)
		return
	}
	for j := len(s.list) - 1; j >= 0; j-- {
		u := s.list[j]
		s.label(u.Name + " backward")
		if s.ddp != nil && sync {
			s.ddp.unit(u, first)
			continue
		}
		s.runAll(&u.backward)
		s.keepGradients(u, first)
	}
	if s.ddp != nil && sync {
		s.ddp.finish()
	}
}

// keepGradients adds the gradients of a unit to those of earlier micro batches:
// the first takes over what the backward pass allocated, later ones add.
func (s *step) keepGradients(u *unit, first bool) {
	if s.job.Recipe.Structure.MainGradients {
		return // the weight-gradient GEMM adds into the buffer itself
	}
	tied := s.tiedBytes(u)
	if first && tied == 0 {
		return
	}
	if !first {
		for _, g := range u.backward.grads {
			seg := s.p.add("accumulate", g.Bytes)
			s.sim.Run(&seg)
		}
	}
	if tied > 0 { // the embedding's gradient joins that of the head
		seg := s.p.add("tied", tied)
		s.sim.Run(&seg)
	}
}

// tiedBytes is the size of the gradient that a tied embedding adds to the head's.
func (s *step) tiedBytes(u *unit) units.Bytes {
	if u != s.chunk.embedding || s.chunk.head == nil || !s.job.Model.Tied {
		return 0
	}
	return units.Bytes(u.Params[0].Local) * s.gradSize()
}

// gradSize is the bytes of one element of a gradient as autograd makes it.
func (s *step) gradSize() units.Bytes {
	p := s.job.Precision
	if p.Autocast {
		return p.Weights.Size()
	}
	return p.Compute.Size()
}

// add prices an in-place sum of two tensors of the given size.
func (p *pricer) add(prim string, b units.Bytes) timeline.Segment {
	return p.kernelOf(tape.Op{Prim: prim, Class: tape.Vectorized, Count: 1, Bytes: 3 * b, Elements: float64(b) / 4, Phase: tape.Backward, Host: tape.HostWork{Calls: 1, Nodes: 1}})
}

// --- replicated parameters: DDP, ZeRO-1, ZeRO-2 ---

// buckets reduces gradients bucket by bucket.
type buckets struct {
	s      *step
	queues [2]queue // dense gradients and those of experts
	i      int      // gradients of this pass so far
	tasks  []timeline.Task
	kind   string
	copies bool // gradients are copied into the bucket (torch DDP)
}

// queue are the buckets of one group of ranks.
type queue struct {
	group  string
	closes []bool // by gradient, in the order they become ready
	sizes  []units.Bytes
	next   int
}

func (s *step) newBuckets() *buckets {
	b := &buckets{s: s, kind: "all-reduce"}
	plan, r := &s.job.Plan, s.job.Recipe
	if plan.DataParallel != strategies.DDP {
		b.kind = "reduce-scatter"
	}
	b.copies = !r.Structure.MainGradients
	var grads [2][]units.Bytes
	reduce := s.job.Precision.Reduce.Size() / s.gradElement()
	for j := len(s.list) - 1; j >= 0; j-- {
		u := s.list[j]
		for _, g := range u.backward.grads {
			size := g.Bytes
			if u == s.chunk.head && s.job.Model.Tied && s.chunk.embedding != nil && u.Params[g.Param].TiedCopy {
				size = 0 // complete only with the embedding's
			}
			dense, expert := size*reduce, units.Bytes(0)
			if u.Params[g.Param].Split == model.ExpertSplit {
				dense, expert = 0, dense
			}
			grads[0], grads[1] = append(grads[0], dense), append(grads[1], expert)
		}
	}
	limit := plan.Bucket
	first := limit
	if limit == 0 {
		limit, first = s.defaultBucket()
	}
	for k := range b.queues {
		q := &b.queues[k]
		q.group = [2]string{"dp", "expert_dp"}[k]
		if s.p.groups[q.group].Ranks > 1 {
			q.closes, q.sizes = dataparallel.Buckets(grads[k], first, limit)
		}
	}
	return b
}

// gradElement is the bytes of a gradient element as the units' sections hold it.
func (s *step) gradElement() units.Bytes { return s.gradSize() }

func (s *step) defaultBucket() (limit, first units.Bytes) {
	if r := s.job.Recipe.Overlap.Bucket; r > 0 {
		return r, r
	}
	return dataparallel.DefaultBucket, dataparallel.FirstBucket
}

// beforeForward starts a micro batch: buckets are empty, buffers are broadcast.
func (b *buckets) beforeForward(int64) {
	b.i = 0
	for k := range b.queues {
		b.queues[k].next = 0
	}
	if b.copies { // torch DDP broadcasts the module's buffers in every forward
		seg := timeline.Segment{Host: b.s.p.host.Primitives["ddp_forward"] * b.s.p.speed}
		b.s.sim.Run(&seg)
	}
}

// unit runs a unit's backward, copying each gradient into its bucket and reducing
// the bucket when it is full.
func (b *buckets) unit(u *unit, first bool) {
	s := b.s
	sec := &u.backward
	overlap := s.job.Recipe.Overlap.GradReduce
	for k := range sec.grads {
		s.sim.Run(&sec.parts[k])
		g := sec.grads[k]
		if tied := s.tiedBytes(u); tied > 0 && k == 0 {
			seg := s.p.add("tied", tied)
			s.sim.Run(&seg)
		}
		if b.copies {
			bytes := 2 * g.Bytes
			if !first {
				seg := s.p.add("accumulate", g.Bytes)
				s.sim.Run(&seg)
			}
			seg := s.p.kernelOf(tape.Op{Prim: "ddp_copy", Class: tape.Vectorized, Count: 1, Bytes: bytes, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}})
			s.sim.Run(&seg)
		}
		for k := range b.queues {
			if q := &b.queues[k]; overlap && q.closes != nil && q.closes[b.i] {
				b.launch(q)
			}
		}
		b.i++
	}
	s.sim.Run(&sec.parts[len(sec.grads)])
}

func (b *buckets) launch(q *queue) {
	s := b.s
	size := q.sizes[q.next]
	q.next++
	s.sim.Host += float64(s.p.host.Primitives["collective"] * s.p.speed)
	t := s.p.comm(b.kind, q.group, size)
	b.tasks = append(b.tasks, s.sim.Launch(dpStream, b.kind, float64(t), max(s.sim.Host, s.sim.Now), s.p.slow(b.kind)))
}

// finish reduces what is left and waits for everything.
func (b *buckets) finish() {
	s := b.s
	for k := range b.queues {
		for q := &b.queues[k]; q.next < len(q.sizes); {
			b.launch(q)
		}
	}
	for _, t := range b.tasks {
		s.wait(t, "dp")
	}
	b.tasks = b.tasks[:0]
}

// --- sharded parameters: FSDP, ZeRO-3 ---

// shards gathers the parameters of each unit before it runs and scatters its
// gradients after.
type shards struct {
	s      *step
	gather []timeline.Task // by unit
	ready  []bool
	root   []int   // units that share one group, gathered at the start
	params []int64 // by unit, dense
	expert []int64 // by unit, of experts
	reduce *timeline.Task
	copies bool // FSDP2 copies in and out of flat buffers
	gone   bool // root was dropped after the forward pass
	acc    bool
}

func (s *step) newShards() *shards {
	h := &shards{s: s, gather: make([]timeline.Task, len(s.list)), ready: make([]bool, len(s.list)), copies: s.job.Plan.DataParallel == strategies.FSDP2}
	h.params, h.expert = make([]int64, len(s.list)), make([]int64, len(s.list))
	for i, u := range s.list {
		for _, p := range u.Params {
			switch {
			case p.TiedCopy && s.chunk.embedding != nil:
			case p.Split == model.ExpertSplit:
				h.expert[i] += p.Local
			default:
				h.params[i] += p.Local
			}
		}
	}
	if s.job.Recipe.Structure.ExposedRoot && s.chunk.embedding != nil && s.chunk.head != nil {
		last := len(s.list) - 1
		h.params[0] += h.params[last] // one unit: embedding, final norm, head
		h.params[last] = 0
	}
	return h
}

func (h *shards) gatherBytes(i int) units.Bytes {
	return units.Bytes(h.params[i]) * h.s.job.Precision.Gather.Size()
}

// launchGather queues the all-gather of unit i: the cast and copy into the flat
// buffer on the side stream, then the collective.
func (h *shards) launchGather(i int, ready float64) {
	if h.ready[i] || h.params[i] == 0 {
		return
	}
	s := h.s
	b := h.gatherBytes(i)
	n := float64(s.p.groups["shard"].Ranks)
	e := units.Bytes(h.expert[i]) * s.job.Precision.Gather.Size()
	t := s.p.comm("all-gather", "shard", b) + s.p.comm("all-gather", "expert_shard", e)
	w := s.job.Precision.Weights.Size()
	local := float64(h.params[i])/n + float64(h.expert[i])/float64(max(s.p.groups["expert_shard"].Ranks, 1))
	if w != s.job.Precision.Gather.Size() {
		t += s.p.device(&tape.Op{Class: tape.MultiTensor, Count: 1, Elements: local, Bytes: units.Bytes(local) * (w + s.job.Precision.Gather.Size())})
	}
	if h.copies {
		t += s.p.device(&tape.Op{Class: tape.MultiTensor, Count: 1, Elements: local, Bytes: units.Bytes(2*local) * s.job.Precision.Gather.Size()})
	}
	h.gather[i] = s.sim.Launch(dpStream, "all-gather", float64(t), ready, s.p.slow("all-gather"))
	h.ready[i] = true
}

// open waits for the parameters of unit i and copies them out.
func (h *shards) open(i int) {
	if h.params[i] == 0 || !h.ready[i] {
		return
	}
	s := h.s
	s.wait(h.gather[i], "dp")
	if h.copies {
		n := h.params[i] + h.expert[i]
		seg := s.p.kernelOf(tape.Op{Prim: "fsdp_copy_out", Class: tape.SplitCopy, Count: 1, Elements: float64(n), Bytes: 2 * units.Bytes(n) * s.job.Precision.Gather.Size()})
		s.sim.Run(&seg)
	}
}

// drop forgets the gathered parameters of unit i.
func (h *shards) drop(i int) { h.ready[i] = false }

func (h *shards) hooks(backward bool) {
	c := h.s.p.host.FSDPUnit
	if backward {
		c = h.s.p.host.FSDPBack
	}
	h.s.sim.Host += float64(c * h.s.p.speed)
}

func (h *shards) forward() {
	s := h.s
	last := len(s.list) - 1
	h.hooks(false)
	h.launchGather(0, s.sim.Host)
	for i, u := range s.list {
		if i > 0 && h.params[i] > 0 && !h.ready[i] {
			h.hooks(false)
			h.launchGather(i, s.sim.Host)
		}
		h.open(i)
		s.label(u.Name + " forward")
		// The host reaches the next unit while the device is busy with this one.
		if i < last && h.params[i+1] > 0 && u.forward.syncAt < 0 {
			host := s.sim.Host
			s.sim.Host += float64(u.forward.whole.Host)
			h.hooks(false)
			h.launchGather(i+1, s.sim.Host)
			hook := s.sim.Host - host - float64(u.forward.whole.Host)
			s.sim.Host = host
			s.runAll(&u.forward)
			s.sim.Host += hook
		} else {
			s.runAll(&u.forward)
		}
		if h.reshards(i) {
			h.drop(i)
		}
	}
	if h.reshards(0) && h.params[last] == 0 {
		h.drop(0)
	}
}

// reshards reports whether unit i drops its parameters after the forward pass.
func (h *shards) reshards(i int) bool {
	if !h.s.job.Plan.Reshard() || h.s.job.Plan.DataParallel == strategies.ZeRO2 {
		return false
	}
	if i == 0 && h.params[len(h.params)-1] == 0 {
		return true // the root: gathered again for the head's gradient
	}
	return true
}

func (h *shards) backward(first, sync bool) {
	s := h.s
	last := len(s.list) - 1
	root := h.params[last] == 0 // embedding and head are one unit, held from the head to the end
	h.hooks(true)
	if root {
		h.launchGather(0, max(s.sim.Host, s.sim.Now))
		h.open(0)
	} else {
		h.launchGather(last, max(s.sim.Host, s.sim.Now))
	}
	for i := last; i >= 0; i-- {
		u := s.list[i]
		if !(root && (i == last || i == 0)) {
			h.launchGather(i, max(s.sim.Host, s.sim.Now))
			h.open(i)
		}
		// One unit ahead: the next one's parameters are gathered beside this one's gradients.
		if i > 0 && !(root && i-1 == 0) {
			h.hooks(true)
			h.launchGather(i-1, max(s.sim.Host, s.sim.Now))
		}
		s.label(u.Name + " backward")
		s.runAll(&u.backward)
		if root && i == 0 {
			if tied := s.tiedBytes(u); tied > 0 {
				seg := s.p.add("tied", tied)
				s.sim.Run(&seg)
			}
		}
		h.drop(i)
		if root && i == last {
			h.ready[0] = true // still held
			continue
		}
		h.scatter(i, first, sync)
	}
	if h.reduce != nil {
		s.wait(*h.reduce, "dp")
		h.reduce = nil
	}
	for i := range h.ready {
		h.drop(i)
	}
}

// scatter reduces the gradients of unit i, or adds them to those kept from
// earlier micro batches.
func (h *shards) scatter(i int, first, sync bool) {
	if h.params[i] == 0 {
		return
	}
	s := h.s
	prec := s.job.Precision
	u := float64(h.params[i] + h.expert[i])
	full := units.Bytes(u) * prec.Reduce.Size()
	grad := units.Bytes(u) * s.gradSize()
	if !sync || !first && s.job.Train.GradAccumulation > 1 && !s.job.SyncsEveryMicroBatch() { // kept unsharded in the reduce dtype
		op := tape.Op{Prim: "fsdp_accumulate", Class: tape.Unrolled, Count: 1, Elements: u, Bytes: full + grad, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}}
		if !first {
			op.Class, op.Bytes = tape.UnrolledMix, 2*full+grad
		}
		seg := s.p.kernelOf(op)
		s.sim.Run(&seg)
		if !sync {
			return
		}
		grad = full
	}
	if h.reduce != nil { // one reduce-scatter in flight
		s.wait(*h.reduce, "dp")
	}
	if h.copies {
		op := tape.Op{Prim: "fsdp_copy_in", Class: tape.ChunkCat, Count: 1, Elements: u, Bytes: grad + full, Phase: tape.Backward, Host: tape.HostWork{}}
		seg := s.p.kernelOf(op)
		s.sim.Run(&seg)
	}
	dense, expert := units.Bytes(h.params[i])*prec.Reduce.Size(), units.Bytes(h.expert[i])*prec.Reduce.Size()
	t := s.p.comm("reduce-scatter", "shard", dense) + s.p.comm("reduce-scatter", "expert_shard", expert)
	task := s.sim.Launch(dpStream, "reduce-scatter", float64(t), max(s.sim.Now, s.sim.Host), s.p.slow("reduce-scatter"))
	if g := s.p.groups["replicas"]; g.Ranks > 1 {
		shard := dense / units.Bytes(s.p.groups["shard"].Ranks)
		ar := s.p.comm("all-reduce", "replicas", shard)
		task = s.sim.Launch(replicaStream, "all-reduce", float64(ar), s.sim.Now+float64(t), s.p.slow("all-reduce"))
	}
	h.reduce = &task
}

// --- optimizer ---

// optimizerStep updates the parameters of the rank.
func (s *step) optimizerStep() {
	dense, expert, tensors := s.chunk.params()
	o := s.job.Recipe.Optimizer[s.job.Train.Optimizer]
	prec := s.job.Precision
	states := dataparallel.StatesOf(s.job.Plan.DataParallel, prec, false)
	local := float64(dense)
	experts := float64(expert)
	if states.ShardOptimizer {
		local /= float64(s.p.groups["shard"].Ranks)
		experts /= float64(s.p.groups["expert_shard"].Ranks)
	}
	local += experts
	per := prec.Gradients.Size() + 4*prec.Moments.Size() // read g; read and write two moments
	if prec.Master.Set {
		per += 2*prec.Master.Size() + prec.Weights.Size()
	} else {
		per += 2 * prec.Weights.Size()
	}
	per += units.Bytes(o.Read) * per
	class, _ := tape.ClassOf(o.Class)
	each := s.p.host.Tensor
	if d := s.p.host.DTensorParam; d > 0 && (s.job.Plan.DataParallel == strategies.FSDP2 && s.p.groups["dp"].Ranks > 1 || s.job.Recipe.Structure.DTensor && s.job.Plan.TP > 1) {
		each = d
	}
	host := s.p.host.Step + units.Seconds(tensors)*each
	s.label("optimizer")
	seg := s.p.kernelOf(tape.Op{Prim: "optimizer", Class: class, Count: 1, Elements: local, Bytes: units.Bytes(local) * per, Phase: tape.Optimize})
	seg.Host += host * s.p.speed
	seg.Lag += host * s.p.speed
	if o.Clip { // norm over all gradients, a scalar to the host, scaling
		b := units.Bytes(local) * prec.Gradients.Size()
		norm := s.p.kernelOf(tape.Op{Prim: "grad_norm", Class: tape.MultiTensor, Count: 1, Elements: local, Bytes: b})
		norm.Sync = true
		s.sim.Run(&norm)
		scale := s.p.kernelOf(tape.Op{Prim: "grad_clip", Class: tape.MultiTensor, Count: 1, Elements: local, Bytes: 2 * b})
		s.sim.Run(&scale)
	}
	s.sim.Run(&seg)
	if s.job.Recipe.Structure.MainGradients { // quantized copies of the new weights, row-wise and column-wise
		if q := s.quantizedBytes(); q > 0 {
			n := units.Bytes(dense + expert)
			seg := s.p.kernelOf(tape.Op{Prim: "quantize_weights", Class: tape.MultiTensor, Count: 1, Elements: float64(n), Bytes: n * (prec.Compute.Size() + q), Phase: tape.Optimize})
			s.sim.Run(&seg)
		}
	}
	if k := s.job.Plan.DataParallel; (k == strategies.ZeRO1 || k == strategies.ZeRO2) && s.p.groups["dp"].Ranks > 1 {
		t := float64(s.p.comm("all-gather", "dp", units.Bytes(dense)*prec.Gather.Size()) + s.p.comm("all-gather", "expert_dp", units.Bytes(expert)*prec.Gather.Size()))
		if s.job.Recipe.Overlap.ParamGather { // hides behind the next forward pass, but for its first part
			t = max(t-0.9*s.forward/float64(s.job.Train.GradAccumulation), 0.05*t)
		}
		task := s.sim.Launch(dpStream, "all-gather", t, s.sim.Now, 1)
		s.wait(task, "dp")
	}
}

// quantizedBytes is the size per parameter of the copies that quantized GEMMs read,
// 0 without quantization.
func (s *step) quantizedBytes() units.Bytes { return quantizedBytes(s.job.Precision) }

func quantizedBytes(p recipe.Precision) units.Bytes {
	if !p.GEMM.Set || p.GEMM.Size() >= p.Compute.Size() {
		return 0
	}
	return 2 * p.GEMM.Size()
}
