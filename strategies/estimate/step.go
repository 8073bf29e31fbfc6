package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// Streams of a Sim.
const (
	dpStream      = 0 // gathers and reductions of the sharding group
	replicaStream = 1 // all-reduces between copies (HSDP)
	hostStream    = 2 // gradients and activations on their way to the host, beside parameters that come from there
)

// step runs the micro batches of one rank without pipeline neighbours.
type step struct {
	p     *pricer
	job   *strategies.Job
	sim   *timeline.Sim
	chunk *chunk
	list  []*unit

	forward, backward, optimizer float64
	hosted                       float64 // of the optimizer, by the host while the device waits
	opening                      float64 // what a pipeline's chunks leave exposed of their gathers, where these are chunk by chunk; else below 0
	matrices                     []updatedMatrix

	ddp    *buckets // of replicated parameters
	shards *shards  // of sharded ones
	listed *listed  // of those that are gathered one by one
	own    struct {
		ddp    buckets
		shards shards
		listed listed
	}
	away            away // activations of the first layers
	batches, layers steady
}

// begin readies the step for a chunk, keeping its memory.
func (s *step) begin(p *pricer, c *chunk, sim *timeline.Sim) {
	s.p, s.job, s.sim, s.chunk, s.list = p, p.job, sim, c, c.list
	s.forward, s.backward, s.optimizer, s.hosted, s.ddp, s.shards, s.listed = 0, 0, 0, 0, nil, nil, nil
	s.opening, s.matrices = -1, s.matrices[:0]
	s.away.begin(s)
	if p.job.Plan.Offloads() {
		sim.Crowd = p.hardware.Laws.Offload.Crowd
	}
	switch kind := p.job.Plan.DataParallel; {
	case p.groups[dpGroup].Ranks <= 1 && !(kind.ShardsParameters() && p.host.Hooks.Any()) && !p.hooked() && !p.job.Plan.Wraps(1): // hooks run for one rank, too
	case kind == strategies.ZeRO3 && p.job.Recipe.Structure.ListGather:
		s.listed = &s.own.listed
		s.listed.begin(s)
	case kind.ShardsParameters():
		s.shards = &s.own.shards
		s.shards.begin(s)
	default:
		s.ddp = &s.own.ddp
		s.ddp.begin(s)
	}
}

// syncs reports whether gradients are reduced after micro batch i of n.
func (s *step) syncs(i, n int64) bool {
	return i == n-1 || s.job.SyncsEveryMicroBatch()
}

// run runs all micro batches and the optimizer.
func (s *step) run() {
	n, trainer := s.job.Train.GradAccumulation, s.job.Trainer()
	s.batches.begin(s)
	for i := int64(0); i < n; i++ {
		if 1 <= i && i < n-1 { // all but the first and the last are equal
			if s.batches.repeats() {
				k := n - 1 - i
				s.forward += float64(k) * s.batches.forward
				s.backward += float64(k) * s.batches.backward
				s.batches.skip(int(k))
				i += k
			}
		}
		t0 := s.sim.Now
		s.forwardPass(i)
		t1 := s.sim.Now
		s.backwardPass(i, s.syncs(i, n))
		s.away.end()
		s.batches.forward, s.batches.backward = t1-t0, s.sim.Now-t1
		s.forward += t1 - t0
		s.backward += s.sim.Now - t1
		if trainer {
			s.sim.WaitHost()
			s.sim.Host += float64(s.p.host.Trainer.Pass * s.p.python)
		}
	}
	t := s.sim.Now
	s.optimizerStep()
	s.optimizer = s.sim.Now - t
	if trainer {
		s.nextBatches()
	}
}

// nextBatches is what transformers' Trainer does between two steps: it sends a batch to the device, which waits for
// that, and then takes the next one (trainer.py, get_batch_samples; accelerate, data_loader.py, DataLoaderShard).
func (s *step) nextBatches() {
	s.sim.WaitHost()
	t := &s.job.Train
	var host units.Seconds
	if s.job.Runtime.DataWorkers == 0 {
		host = units.Seconds(t.MicroBatch*t.PerSequence()*t.GradAccumulation) * s.p.host.Trainer.Token * s.p.python
	}
	s.sim.Run(&timeline.Segment{Host: host, Lag: host, Sync: true})
}

func (s *step) label(unit, pass string) {
	if s.sim.Record != nil {
		s.sim.Record.Label = unit + pass
	}
}

// forwardPass runs one micro batch forward.
func (s *step) forwardPass(i int64) {
	s.sim.Host += float64(s.p.host.Pass * s.p.python)
	s.forwardUnits(i)
	s.agree(" forward", (*unit).forwards)
}

// forwardUnits runs its units.
func (s *step) forwardUnits(i int64) {
	if s.listed != nil {
		s.listed.forward()
		return
	}
	if s.shards != nil {
		s.shards.begins = i == 0
		s.shards.forward()
		return
	}
	if s.ddp != nil {
		s.ddp.beforeForward(i)
	}
	for i, u := range s.list {
		s.away.beforeForward(i)
		s.cut(i, s.p.host.Split)
		s.label(u.Name, " forward")
		s.runAll(&u.forward)
		s.away.afterForward(i)
	}
}

// cut is what the host does more for unit i where buckets of gradients cut a compiled graph: a
// piece ends with each (torch/_dynamo/backends/distributed.py, DDPOptimizer).
func (s *step) cut(i int, each units.Seconds) {
	if s.ddp == nil || each == 0 || s.job.Recipe.Structure.OwnReductions {
		return
	}
	from := s.ddp.at[i]
	for k := range s.ddp.queues {
		if q := &s.ddp.queues[k]; q.on {
			for _, closes := range q.closes[from : from+len(s.list[i].backward.grads)] {
				if closes {
					s.sim.Host += float64(each * s.p.python)
				}
			}
		}
	}
}

// runAll runs a section whole, stopping the host where it waits for the device.
func (s *step) runAll(sec *section) {
	if len(sec.waits) == 0 {
		s.sim.Run(&sec.whole)
		return
	}
	for i := range sec.parts {
		s.sim.Run(&sec.parts[i].Segment)
	}
}

// backwardPass runs one micro batch backward, with reductions when sync is set.
func (s *step) backwardPass(i int64, sync bool) {
	s.sim.Host += float64(s.p.host.Pass * s.p.python)
	s.agree(" backward", (*unit).backwards)
	first := i == 0
	if s.listed != nil {
		s.listed.backward()
		return
	}
	if s.shards != nil {
		s.shards.begins, s.shards.ends = first, i == s.job.Train.GradAccumulation-1
		s.shards.backward(first, sync)
		return
	}
	s.layers.begin(s)
	for j := len(s.list) - 1; j >= 0; j-- {
		s.away.beforeBackward(j)
		if s.ddp != nil && sync && s.layers.repeats() {
			if j -= s.ddp.skip(j); j < 0 {
				break
			}
		}
		u := s.list[j]
		s.cut(j, s.p.host.SplitBack)
		s.label(u.Name, " backward")
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

// reduce runs the backward passes of all units with their reductions, and nothing else.
func (s *step) reduce(first bool) {
	s.agree(" backward", (*unit).backwards)
	s.layers.begin(s)
	for j := len(s.list) - 1; j >= 0; j-- {
		if s.layers.repeats() {
			if j -= s.ddp.skip(j); j < 0 {
				return
			}
		}
		s.ddp.unit(s.list[j], first)
	}
}

// keepGradients adds the gradients of a unit to those of earlier micro batches:
// the first takes over what the backward pass allocated, later ones add.
func (s *step) keepGradients(u *unit, first bool) {
	if s.job.Recipe.Structure.AddsGradients(&s.job.Precision) {
		return // the GEMM of a weight gradient, or a hook, has added it to the buffer
	}
	tied := s.tiedBytes(u)
	if first && tied == 0 {
		return
	}
	if !first {
		for _, g := range u.backward.grads {
			s.kernel(sum("accumulate", g.Bytes))
		}
	}
	if tied > 0 { // the embedding's gradient joins that of the head
		s.kernel(joined(s.chunk.head, tied))
	}
}

// joined is the op that makes one gradient of so many bytes of a table's and of that of the head
// that is tied to it.
func joined(head *unit, b units.Bytes) tape.Op {
	op := sum("tied", b)
	for _, g := range head.backward.grads {
		switch g.Joins {
		case tape.ByCast:
			op.Bytes = 2*b + g.Bytes
		case tape.ByProduct:
			op.Class, op.Bytes = tape.Memcpy, 2*b
		}
	}
	return op
}

// tiedBytes is the size of the gradient that a tied embedding adds to the head's, and an encoder's to the decoder's.
func (s *step) tiedBytes(u *unit) units.Bytes {
	tied := u == s.chunk.embedding && s.job.Model.Tied || u == s.list[0] && s.job.Model.Encoder != nil
	if !tied || s.chunk.head == nil || s.job.Model.LoRA != nil {
		return 0
	}
	return units.Bytes(u.Params[0].Local) * s.p.gradSize()
}

// wideReduce is how many times their bytes gradients have while they are reduced where
// buckets hold so many of them, and not so many bytes (DeepSpeed's).
func (p *pricer) wideReduce() units.Bytes {
	if !p.job.Partitions() {
		return 1
	}
	return p.job.Precision.Reduce.Size() / p.gradSize()
}

// gradSize is the bytes of one element of a gradient as autograd makes it.
func (p *pricer) gradSize() units.Bytes {
	prec := &p.job.Precision
	switch {
	case p.job.Model.LoRA != nil && prec.Adapters.Set:
		return prec.Adapters.Size()
	case prec.Autocast:
		return prec.Weights.Size()
	}
	return prec.Compute.Size()
}

// kernel runs one operation by itself.
func (s *step) kernel(o tape.Op) {
	seg := s.p.kernelOf(o)
	s.sim.Run(&seg)
}

// sum is an in-place sum of two tensors of the given size.
func sum(prim string, b units.Bytes) tape.Op {
	return tape.Op{Prim: prim, Class: tape.Vectorized, Count: 1, Bytes: 3 * b, Elements: float64(b) / 4, Phase: tape.Backward, Host: tape.HostWork{Calls: 1, Nodes: 1}}
}

// buckets reduces gradients bucket by bucket.
type buckets struct {
	s      *step
	queues [2]queue // dense gradients and those of experts
	at     []int    // of the chunk
	i      int      // gradients of this pass so far
	micro  int64    // batch
	tasks  []timeline.Task
	op     collective.Op
	copies bool // gradients are copied into the bucket (torch DDP)
	hooked bool // by hooks of an optimizer that has parts of them (DeepSpeed)
}

// queue are the buckets of one group of ranks.
type queue struct {
	group  group         // that has the parts of what is reduced
	copies group         // among which these are summed then, where there are several
	on     bool          // there is somebody to reduce with
	grads  []units.Bytes // of the chunk
	closes []bool        // by gradient: it is the last of its bucket
	sizes  []units.Bytes // by bucket
	next   int           // bucket
}

func (b *buckets) begin(s *step) {
	b.s, b.op, b.i, b.tasks = s, collective.AllReduce, 0, b.tasks[:0]
	b.micro = s.job.Train.GradAccumulation - 1 // the only one whose gradients a pipeline rank reduces
	plan, r := &s.job.Plan, s.job.Recipe
	owned := r.Structure.ReduceToOwners && (s.job.Partitions() || plan.Offloads()) // which makes buckets of ZeRO 1, too (stage_1_and_2.py, contiguous_gradients)
	if plan.DataParallel != strategies.DDP && !plan.TorchDDP(r) && (owned || !r.Structure.AllReduce) {
		b.op = collective.ReduceScatter
		if r.Structure.ReduceToOwners && s.job.Precision.Gradients.Size() == 2 {
			b.op = collective.Reduce
		}
	}
	b.hooked = s.p.hooked()
	b.copies = !r.Structure.MainGradients && !r.Structure.OwnReductions || s.job.Partitions()
	reduced := s.p.reduced(s.chunk)
	b.at = reduced.at
	for k := range b.queues {
		q := &b.queues[k]
		all := [2]group{dpGroup, expertDPGroup}[k]
		q.group, q.copies, q.grads, q.next = all, [2]group{replicaGroup, expertReplicaGroup}[k], reduced.bytes[k], 0
		q.closes, q.sizes = nil, nil
		if s.p.groups[q.copies].Ranks > 1 {
			q.group = [2]group{shardGroup, expertShardGroup}[k]
		}
		if q.on = s.p.groups[all].Ranks > 1 || k == 0 && s.p.hooked(); q.on {
			f := s.p.fill(s.chunk, k)
			q.closes, q.sizes = f.closes, f.sizes
		}
	}
}

// hooked reports whether gradients leave autograd for buckets of an optimizer that shards its states
// alone, as they do for one rank, too (DeepSpeed, stage_1_and_2.py, process_gradients).
func (p *pricer) hooked() bool {
	kind := p.job.Plan.DataParallel
	return p.job.Partitions() && (kind == strategies.ZeRO1 || kind == strategies.ZeRO2)
}

// equal returns how many units from j on are one kind with the one before and
// fill buckets like it.
func (b *buckets) equal(j int) int {
	list := b.s.list
	if j+1 >= len(list) || !b.sameSizes(j) {
		return 0
	}
	u, n := list[j+1], 0
	for ; j-n >= 0 && list[j-n] == u && b.sameBuckets(j-n); n++ {
	}
	return n
}

// sameSizes reports whether the unit before j, like j, began on what the unit before
// it had left in the open bucket.
func (b *buckets) sameSizes(j int) bool {
	if !b.s.job.Recipe.Overlap.GradReduce {
		return true
	}
	for k := range b.queues {
		q, n := &b.queues[k], 0
		if !q.on {
			continue
		}
		for _, closes := range q.closes[b.at[j+1]:b.at[j]] {
			if closes {
				n++
			}
		}
		if n > 0 && (q.next >= len(q.sizes) || q.sizes[q.next] != q.sizes[q.next-n]) {
			return false
		}
	}
	return true
}

// sameBuckets reports whether the gradients of unit j close buckets where those of
// the unit before it do.
func (b *buckets) sameBuckets(j int) bool {
	from, to := b.at[j+1], b.at[j]
	n := len(b.s.list[j].backward.grads)
	for k := range b.queues {
		q := &b.queues[k]
		if !q.on {
			continue
		}
		for i := range n {
			if q.closes[from+i] != q.closes[to+i] || q.grads[from+i] != q.grads[to+i] {
				return false
			}
		}
	}
	return true
}

// skip passes over the units from j on that go like the one before, and returns how many
// these are.
func (b *buckets) skip(j int) int {
	s, n := b.s, b.equal(j)
	if n == 0 {
		return 0
	}
	for _, t := range s.layers.skip(n) {
		if t.Some() {
			b.tasks = append(b.tasks, t)
		}
	}
	grads := len(s.list[j].backward.grads)
	for k := range b.queues {
		q := &b.queues[k]
		if !q.on || !s.job.Recipe.Overlap.GradReduce {
			continue
		}
		for _, closes := range q.closes[b.i : b.i+n*grads] {
			if closes {
				q.next++
			}
		}
	}
	b.i += n * grads
	return n
}

// firstShare is the share of a queue's parameters that the first layers of the next
// forward pass belong to: gradients are complete in the opposite order.
func (q *queue) firstShare() float64 {
	if len(q.sizes) == 0 {
		return 1
	}
	var sum units.Bytes
	for _, b := range q.sizes {
		sum += b
	}
	return float64(q.sizes[len(q.sizes)-1]) / float64(max(sum, 1))
}

// beforeForward starts a micro batch: buckets are empty, buffers are broadcast.
func (b *buckets) beforeForward(micro int64) {
	b.i, b.micro = 0, micro
	for k := range b.queues {
		b.queues[k].next = 0
	}
	if b.copies { // torch DDP broadcasts the module's buffers in every forward
		seg := timeline.Segment{Host: b.s.p.host.Primitives["ddp_forward"] * b.s.p.python}
		b.s.sim.Run(&seg)
	}
}

// unit runs a unit's backward, copying each gradient into its bucket and reducing
// the bucket when it is full.
func (b *buckets) unit(u *unit, first bool) {
	s := b.s
	sec := &u.backward
	overlap := s.job.Recipe.Overlap.GradReduce
	k := 0
	for i := range sec.parts {
		s.sim.Run(&sec.parts[i].Segment)
		if !sec.parts[i].grad {
			continue
		}
		g := sec.grads[k]
		if tied := s.tiedBytes(u); tied > 0 && k == 0 {
			s.kernel(sum("tied", tied))
		}
		if !first && !s.job.Recipe.Structure.AddsGradients(&s.job.Precision) {
			s.kernel(sum("accumulate", g.Bytes))
		}
		if b.copies {
			s.kernel(tape.Op{Prim: "ddp_copy", Class: tape.Vectorized, Count: 1, Bytes: 2 * g.Bytes, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}})
		}
		if b.hooked {
			s.sim.Host += float64(s.p.host.Buckets.Gradient * s.p.python)
		}
		for n := range b.queues {
			if q := &b.queues[n]; overlap && q.on && q.closes[b.i] {
				b.launch(q)
			}
		}
		b.i++
		k++
	}
}

func (b *buckets) launch(q *queue) {
	s := b.s
	size := q.sizes[q.next]
	q.next++
	if s.job.Recipe.Structure.CheckGradients { // the host reads whether the bucket's norm is NaN, then whether it is infinite
		s.sim.Host += float64(s.p.checks())
		s.sim.WaitHost()
		s.sim.Host += float64(s.p.checks())
	}
	s.sim.Host += float64(s.p.issue)
	if b.hooked {
		s.sim.Host += float64(s.p.host.Buckets.Reduce * s.p.python)
	}
	t := s.p.comm(b.op, q.group, size) + s.bucketPasses(size, q.group, 0)
	if g := &s.p.groups; g[q.copies].Ranks > 1 { // one after the other on one stream (Megatron-Core, param_and_grad_buffer.py, start_grad_sync)
		t += s.p.comm(collective.AllReduce, q.copies, size/units.Bytes(g[q.group].Ranks))
	}
	task := s.sim.Launch(dpStream, b.op.String(), float64(t), s.sim.Issued(), s.p.slow(b.op))
	b.tasks = append(b.tasks, task)
	if s.p.ordered {
		s.sim.Hold(task, int(q.group))
	}
	b.leave(q, size/s.job.Precision.Reduce.Size())
}

// bucketPasses are the kernels that read and write gradients of so many bytes around their
// reduction, on its stream, with so many more of all of them.
func (s *step) bucketPasses(size units.Bytes, g group, more int) units.Seconds {
	r := &s.job.Recipe.Structure
	if r.BucketPasses+r.PartPasses == 0 || size <= 0 {
		return 0
	}
	moved := 2 * size * (units.Bytes(r.BucketPasses+more) + units.Bytes(r.PartPasses)/units.Bytes(max(s.p.groups[g].Ranks, 1)))
	return s.p.run(&tape.Op{Prim: "bucket_passes", Class: tape.Vectorized, Count: 1, Elements: float64(size / s.job.Precision.Reduce.Size()), Bytes: moved, Phase: tape.Backward}, true)
}

// leave sends a bucket of so many gradients to the hosts of the ranks that have their
// states as soon as they are reduced; ranks with parts of one bucket do so at once. Those
// of earlier micro batches come back to be added to (DeepSpeed, stage_1_and_2.py,
// async_accumulate_grad_in_cpu_via_gpu); the last go in the dtype of the update, each once
// the host has seen that it is finite, which takes it half again what it waits for.
func (b *buckets) leave(q *queue, values units.Bytes) {
	s := b.s
	if !s.job.Plan.Offloads() || !s.job.Recipe.Offload.Reduced || values <= 0 {
		return
	}
	prec := &s.job.Precision
	var all units.Bytes
	for _, size := range q.sizes {
		all += size / prec.Reduce.Size()
	}
	ranks := units.Bytes(s.p.groups[q.group].Ranks)
	tensors := float64(len(q.grads)) * float64(values/all)
	part := values / min(max(values*ranks/all, 1), ranks)
	tensors *= float64(part / values)
	if b.micro > 0 && s.syncs(b.micro-1, s.job.Train.GradAccumulation) {
		b.tasks = append(b.tasks, s.sim.Copy(dpStream, "gradients from host", float64(s.p.toDevice(part*prec.Compute.Size())), s.sim.Issued()))
	}
	if b.micro < s.job.Train.GradAccumulation-1 {
		b.tasks = append(b.tasks, s.sim.Copy(dpStream, "gradients to host", float64(s.p.toHost(part*prec.Compute.Size())), s.sim.Issued()))
		return
	}
	copied := float64(s.p.toHost(part * prec.Master.Size()))
	o := s.job.Recipe.Optimizer[s.job.Train.Optimizer]
	busy := float64(s.p.run(&tape.Op{Prim: "check_gradients", Class: tape.MultiTensor, Count: 1, Elements: float64(part), Bytes: part * units.Bytes(o.Norm+o.Check), Phase: tape.Backward}, true))
	host := tensors * float64(s.job.Recipe.Offload.Checked*s.p.python)
	busy = max(busy+host/2, host-copied)
	b.tasks = append(b.tasks, s.sim.Launch(dpStream, "check gradients", busy, s.sim.Issued(), 1), s.sim.Copy(dpStream, "gradients to host", copied, s.sim.Issued()))
}

// normCheck is what the host does for one of the checks of a bucket's norm (Megatron-Core,
// param_and_grad_buffer.py, check_grads): norm and comparison, or three kernels of isinf,
// and the copy of its result.
var normCheck = tape.Op{Prim: "norm_check", Class: tape.NoKernel, Phase: tape.Optimize, Host: tape.HostWork{Calls: 4}}

// checks is what the host takes for one.
func (p *pricer) checks() units.Seconds {
	if p.check < 0 {
		p.check = p.hostCost(&normCheck, false)
	}
	return p.check
}

// rest reduces what is left.
func (b *buckets) rest() {
	for k := range b.queues {
		for q := &b.queues[k]; q.next < len(q.sizes); {
			b.launch(q)
		}
	}
}

// finish reduces what is left and waits for everything.
func (b *buckets) finish() {
	b.rest()
	for _, t := range b.tasks {
		b.s.sim.Wait(t)
	}
	b.tasks = b.tasks[:0]
	if b.copies && !b.s.job.Plan.BucketViews() { // what came back is copied out (torch/csrc/distributed/c10d/reducer.cpp, finalize_bucket_dense)
		for _, u := range b.s.list {
			for i := range u.backward.grads {
				b.s.kernel(tape.Op{Prim: "ddp_copy", Class: tape.Vectorized, Count: 1, Bytes: 2 * u.backward.grads[i].Bytes, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}})
			}
		}
	}
}
