package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// shards gathers the parameters of each unit before it runs and scatters its
// gradients after.
type shards struct {
	s      *step
	gather []timeline.Task // by unit
	ready  []bool
	params []int64    // by unit, dense
	expert []int64    // by unit, of experts
	grads  [][2]int64 // by unit: of either, those that are trained
	narrow [2][]int64 // of params, of expert: matrices of layers that are gathered as 8-bit products read them, or in the few bits that they are frozen in
	reduce timeline.Task
	frozen int           // so many units, the first, have no backward pass
	held   int           // so many units, the last, stay gathered between their passes
	busy   bool          // reduce is in flight
	home   timeline.Task // copy of the last gradients to the host
	back   bool          // this is the backward pass of a micro batch whose gradients are reduced
	begins bool          // the micro batch is the first one of the step
	ends   bool          // it is the last one
	sums   bool          // the gradients of a unit are added to those that the host has of earlier micro batches
	onHost bool          // shards of parameters and gradients are in the host's memory
	copies bool          // FSDP2 copies in and out of flat buffers
	single bool          // there is no other rank: what would be gathered is copied by the compute stream (_fsdp_param_group.py, wait_for_unshard)
	alone  bool          // no other rank has a part of an expert: nothing to gather or to reduce, but copied all the same (_fsdp_param_group.py, wait_for_unshard)
	flat   bool          // PyTorch's FSDP1 has one parameter per unit, of which those of the model are views
	nests  bool          // units are not layers
	// A layer that is computed again, hooks and all, as a pass of its own (torch.utils.checkpoint, use_reentrant) gathers its
	// parameters for that, drops them, and gathers them once more for its gradients: hooks of the first pass, which keeps no graph,
	// would have told it apart (torch/distributed/fsdp/_runtime_utils.py, _pre_forward). A trace of two H200 (2026-11-30) has 25
	// gathers of 8 layers under FSDP1, and 17 under FSDP2, of other checkpoints, and of layers that checkpoint themselves.
	reentrant bool
	nested    nested
}

func (h *shards) begin(s *step) {
	n := len(s.list)
	policy := s.job.Plan.UnitPolicy()
	if h.nests = policy.Nests(); h.nests {
		h.nested.of = dataparallel.Units(policy, s.chunk.ops)
		n = len(h.nested.of.Leaf)
	}
	h.s, h.busy, h.copies = s, false, s.job.Plan.DataParallel == strategies.FSDP2
	h.onHost = s.job.Plan.OffloadsParameters()
	h.single = h.copies && s.p.groups[shardGroup].Ranks <= 1
	h.alone = h.copies && s.p.groups[expertShardGroup].Ranks <= 1
	h.flat = s.job.Plan.DataParallel == strategies.FSDP1 && !s.job.Recipe.Structure.MainGradients
	h.reentrant = s.p.regathersLayers()
	h.gather = append(h.gather[:0], make([]timeline.Task, n)...)
	h.ready = append(h.ready[:0], make([]bool, n)...)
	h.params, h.expert = append(h.params[:0], make([]int64, n)...), append(h.expert[:0], make([]int64, n)...)
	for k := range h.narrow {
		h.narrow[k] = append(h.narrow[k][:0], make([]int64, n)...)
	}
	h.grads = append(h.grads[:0], make([][2]int64, n)...)
	h.count()
	if h.nests {
		h.nested.begin(h)
		return
	}
	h.held = s.chunk.held(s.job.HeldHead(), s.job.Recipe.Structure.LiveParameters)
	if s.job.Recipe.Structure.ExposedRoot && s.chunk.embedding != nil && s.chunk.head != nil {
		h.joinRoot()
	}
	for h.frozen = 0; h.frozen < n-1 && len(s.list[h.frozen].backward.ops) == 0; h.frozen++ { // a stage may be frozen as a whole
	}
}

// regathersLayers reports whether layers that are computed again gather their parameters for that and for their gradients.
func (p *pricer) regathersLayers() bool {
	plan := &p.job.Plan
	return plan.DataParallel == strategies.FSDP1 && p.job.Recipe.Structure.OuterRecompute && plan.Reshard() && p.groups[shardGroup].Ranks > 1 && p.job.Train.Recompute == ops.FullRecompute && p.job.WholeLayers()
}

// count adds up what of each unit is gathered and reduced.
func (h *shards) count() {
	s := h.s
	narrows, main := gathers(s.job).Narrow(), s.job.Recipe.Structure.MainGradients
	for i, u := range s.list {
		for j, p := range u.Params {
			if p.TiedCopy && s.chunk.embedding != nil {
				continue
			}
			to := i
			if h.nests {
				to = h.nested.of.Of[i][j]
			}
			count, k := h.params, 0
			if p.Split == model.ExpertSplit {
				count, k = h.expert, 1
			}
			count[to] += p.Local
			if !p.Frozen {
				h.grads[to][k] += p.Local
			}
			if narrows && u.Narrowed(&p, main) || s.job.Precision.Frozen.Set && p.Packs() {
				h.narrow[k][to] += p.Local
			}
		}
	}
}

// joinRoot makes one unit of what is outside of layers: embedding, final norm, head, what is around an encoder.
func (h *shards) joinRoot() {
	for i, u := range h.s.list {
		if i > 0 && u.Layers == 0 {
			h.params[0] += h.params[i]
			h.grads[0][0] += h.grads[i][0]
			h.params[i], h.grads[i][0] = 0, 0
		}
	}
}

// gathered is the size of so many parameters, some of them narrow, as they are gathered.
func (h *shards) gathered(params, narrow float64) units.Bytes {
	return units.Bytes(narrow)*narrowGather(h.s.job) + units.Bytes(params-narrow)*wideGather(h.s.job)
}

// gathers is the dtype in which shards of parameters are gathered: the job's, or, where
// Megatron-FSDP keeps weights as 8-bit products read them alone, along rows for the forward
// pass and along columns for the backward one, theirs (fsdp/src/megatron_fsdp,
// param_and_grad_buffer.py, transpose_weight_buffer).
func gathers(j *strategies.Job) recipe.DType {
	if primary(j) && j.Plan.DataParallel.ShardsParameters() && j.Model.LoRA == nil && !j.Train.DTypes.Gather.Set {
		return j.Precision.GEMM
	}
	return j.Precision.Gather
}

// narrowGather is the element size in which matrices of layers are gathered: as 8-bit products
// read them, or as frozen ones are stored, of which each rank has all scales.
func narrowGather(j *strategies.Job) units.Bytes {
	if d := j.Precision.Frozen; d.Set {
		return d.Unscaled()
	}
	return gathers(j).Size()
}

// wideGather is the element size in which parameters are gathered that no 8-bit product
// reads: embedding, head, norms, experts under PyTorch.
func wideGather(j *strategies.Job) units.Bytes {
	g := gathers(j)
	if g.Narrow() {
		return j.Precision.Compute.Size()
	}
	return g.Size()
}

// launchGather queues the all-gather of unit i: the cast and copy into the flat
// buffer on the side stream, then the collective.
func (h *shards) launchGather(i int, ready float64) {
	if h.ready[i] || h.params[i] == 0 {
		return
	}
	s := h.s
	h.ready[i] = true
	if h.single {
		return
	}
	n, among := float64(s.p.groups[shardGroup].Ranks), float64(max(s.p.groups[expertShardGroup].Ranks, 1))
	params, narrow, expert, narrowed := float64(h.params[i]), float64(h.narrow[0][i]), float64(h.expert[i]), float64(h.narrow[1][i])
	if h.alone {
		expert, narrowed = 0, 0
	}
	t := s.p.comm(collective.AllGather, shardGroup, h.gathered(params, narrow)) + s.p.comm(collective.AllGather, expertShardGroup, h.gathered(expert, narrowed))
	if s.job.Plan.StatesOverCopies() && h.begins { // what the other copies have updated of its shard, as either pass reads it, before that (param_and_grad_buffer.py, outer_fsdp_group_param_gather)
		t += s.p.comm(collective.AllGather, replicaGroup, h.gathered(params/n, narrow/n)) + s.p.comm(collective.AllGather, expertReplicaGroup, h.gathered(expert/among, narrowed/among))
	}
	w, wide := s.job.Precision.Weights.Size(), wideGather(s.job)
	narrow = narrow/n + narrowed/among
	local := params/n + expert/among
	if h.onHost {
		s.sim.Copy(dpStream, "parameters from host", float64(s.p.toDevice(units.Bytes(local)*w)), ready)
	}
	if g := gathers(s.job); g.Narrow() && narrow > 0 && h.copies { // multiplied by its scale, clamped and cast (torchao/float8/fsdp_utils.py, fsdp_pre_all_gather)
		for _, b := range [...]units.Bytes{2 * w, 2 * w, w + g.Size()} {
			t += s.p.run(&tape.Op{Prim: "fsdp_cast", Class: tape.Vectorized, DType: tape.F32, Count: 1, Elements: narrow, Bytes: units.Bytes(narrow) * b}, true)
		}
	}
	if rest := local - narrow; rest > 0 && w != wide {
		t += s.p.run(&tape.Op{Prim: "fsdp_cast", Class: tape.MultiTensor, Count: 1, Elements: rest, Bytes: units.Bytes(rest) * (w + wide)}, true)
	}
	if h.copies {
		t += s.p.run(&tape.Op{Prim: "fsdp_copy_in_gather", Class: tape.MultiTensor, Count: 1, Elements: local, Bytes: 2 * h.gathered(local, narrow)}, true)
	}
	h.gather[i] = s.sim.Launch(dpStream, "all-gather", float64(t), ready, s.p.slow(collective.AllGather))
}

// buckets is how many units have trained parameters, dense (0) or of experts (1).
func (h *shards) buckets(k int) (n int) {
	for i := range h.grads {
		if h.grads[i][k] > 0 {
			n++
		}
	}
	return
}

// countGathers counts the gathers of all units as often again, once in each backward pass.
func (h *shards) countGathers(passes int64) {
	for i := range h.params {
		dense := h.gathered(float64(h.params[i]), float64(h.narrow[0][i]))
		expert := h.gathered(float64(h.expert[i]), float64(h.narrow[1][i]))
		for range passes {
			h.s.p.comm(collective.AllGather, shardGroup, dense)
			if !h.alone {
				h.s.p.comm(collective.AllGather, expertShardGroup, expert)
			}
		}
	}
}

// open waits for the parameters of unit i and copies them out.
func (h *shards) open(i int) {
	if h.params[i] == 0 || !h.ready[i] {
		return
	}
	s := h.s
	if !h.single {
		s.sim.Wait(h.gather[i])
	}
	if h.copies {
		n, own := float64(h.params[i]+h.expert[i]), 0.
		switch {
		case h.single:
			n, own = 0, n
		case h.alone:
			n, own = float64(h.params[i]), float64(h.expert[i])
		}
		if h.onHost && h.single {
			s.sim.Fetch(float64(s.p.toDevice(units.Bytes(own)*s.job.Precision.Weights.Size())), s.sim.Issued())
		}
		if w, wide := s.job.Precision.Weights.Size(), wideGather(s.job); own > 0 {
			if w != wide {
				s.kernel(tape.Op{Prim: "fsdp_cast", Class: tape.Vectorized, Count: 1, Elements: own, Bytes: units.Bytes(own) * (w + wide)})
			}
			s.kernel(tape.Op{Prim: "fsdp_copy", Class: tape.Memcpy, Count: 1, Elements: own, Bytes: 2 * units.Bytes(own) * wide})
		}
		if n == 0 {
			return
		}
		s.kernel(tape.Op{Prim: "fsdp_copy_out", Class: tape.SplitCopy, Count: 1, Elements: n, Bytes: 2 * h.gathered(n, float64(h.narrow[0][i]+h.narrow[1][i]))})
	}
}

// drop forgets the gathered parameters of unit i.
func (h *shards) drop(i int) { h.ready[i] = false }

// hooks is what the host does around unit i, and around its experts where they are a unit
// of their own.
func (h *shards) hooks(i int, backward bool) {
	of := h.s.p.host
	c, back := of.FSDPUnit, of.FSDPBack
	if !h.reshards(i) {
		c, back = of.KeptUnit, of.KeptBack
	}
	if backward {
		if c = back; h.back && !(h.s.job.AdapterUnits() && h.s.list[i].Layers > 0) { // whose units reduce by themselves
			c += of.FSDPReduce
		}
	}
	if h.expert[i] > 0 && h.s.job.Plan.EP > 1 {
		c *= 2
	}
	if h.onHost { // to the device and cast, tensor by tensor; and gradients from there
		calls := 2 * len(h.s.list[i].Params)
		if h.back {
			calls *= 2
		}
		c += units.Seconds(calls) * of.Call
	}
	h.s.sim.Host += float64((c + h.moduleHooks(i, backward)) * h.s.p.python)
}

// moduleHooks is what the host does around the modules of a unit and for each of its
// parameters. Small parameters stay gathered (DeepSpeed, stage3_param_persistence_threshold),
// as do those of the last units until their backward pass, and one rank gathers none (_no_gather_coalesced).
func (h *shards) moduleHooks(i int, backward bool) units.Seconds {
	of, n := &h.s.p.host.Hooks, &h.s.list[i].hooked
	around := of.Module
	if backward {
		around = of.Backward
	}
	c := n.modules * float64(around)
	shared := h.s.p.groups[shardGroup].Ranks > 1
	if shared && !(backward && h.ready[i]) {
		c += n.matrices * float64(of.Parameter)
	}
	if backward {
		flush, gradient := of.Flush, of.Gradient
		if shared {
			flush, gradient = flush+of.Reduce, gradient+of.Cut
		}
		c += n.again*float64(of.Module) + n.gradients*float64(gradient) + h.flushes(i)*float64(flush)
	}
	return units.Seconds(c)
}

// leastShared is how many elements a parameter has of which ZeRO 3 leaves each rank a part: smaller ones stay whole everywhere
// (stage3_param_persistence_threshold). Buckets of one square matrix are those of Hugging Face's Trainer, which then asks for ten times the
// width (transformers, integrations/deepspeed.py, trainer_config_finalize).
func (p *pricer) leastShared() int64 {
	if h := p.job.Model.Hidden; p.reduceBucket() <= units.Bytes(h*h)*p.gradSize() {
		return 10 * h
	}
	return persistent
}

// flushes is how many buckets the gradients of unit i fill, part of one at the end. A bucket
// is reduced before a gradient that it has no room for.
func (h *shards) flushes(i int) float64 {
	p := h.s.p
	if p.host.Hooks.Flush == 0 {
		return 0
	}
	limit, have, n := p.reduceBucket(), units.Bytes(0), 0.
	for k := range h.s.list[i].Params {
		x := &h.s.list[i].Params[k]
		if x.Frozen {
			continue
		}
		size := units.Bytes(x.Local) * p.gradSize()
		if have > 0 && have+size > limit {
			have, n = 0, n+1
		}
		have += size
	}
	return n + min(float64(have/limit), 1)
}

func (h *shards) forward() {
	s := h.s
	h.back = false
	if h.nests {
		h.nested.forward()
		return
	}
	last := len(s.list) - 1
	h.hooks(0, false)
	h.launchGather(0, s.sim.Issued())
	s.layers.begin(s)
	before := false // whether the parameters of the unit before were on their way as it began
	for i := 0; i <= last; i++ {
		again := s.layers.repeats() && h.ready[i] == before
		if before = h.ready[i]; again {
			if k := h.equal(i, 1); k > 0 {
				s.layers.skip(k)
				h.shift(i, k, 1)
				i += k
			}
		}
		u := s.list[i]
		s.away.beforeForward(i)
		if i > 0 && h.params[i] > 0 && !h.ready[i] {
			h.hooks(i, false)
			h.launchGather(i, s.sim.Issued())
		}
		h.open(i)
		if i == last && s.job.Runtime.LossChunks > 1 && h.reshards(i) { // sharded when the model returns, the head is gathered for the loss
			h.drop(i)
			h.launchGather(i, s.sim.Issued())
			h.open(i)
		}
		s.label(u.Name, " forward")
		// The host reaches the next unit while the device is busy with this one.
		if i < last && h.params[i+1] > 0 && len(u.forward.waits) == 0 {
			host := s.sim.Host
			s.sim.Host += float64(u.forward.whole.Host)
			h.hooks(i+1, false)
			h.launchGather(i+1, s.sim.Issued())
			hook := s.sim.Host - host - float64(u.forward.whole.Host)
			s.sim.Host = host
			s.runAll(&u.forward)
			s.sim.Host += hook
		} else {
			if i < last && h.params[i+1] > 0 && s.job.Recipe.Structure.GatherAhead { // before the host waits
				h.hooks(i+1, false)
				h.launchGather(i+1, s.sim.Issued())
			}
			s.runAll(&u.forward)
		}
		s.away.afterForward(i)
		if h.reshards(i) {
			h.drop(i)
		}
	}
	if h.reshards(0) && h.params[last] == 0 {
		h.drop(0)
	}
}

// reshards reports whether unit i drops its parameters after the forward pass. The root of FSDP1
// does not (torch/distributed/fsdp/_runtime_utils.py, _post_forward_reshard).
func (h *shards) reshards(i int) bool {
	if !h.s.job.Plan.Reshard() || h.s.job.Plan.DataParallel == strategies.ZeRO2 {
		return false
	}
	if h.nests {
		return !h.nested.of.Kept[i]
	}
	root := h.flat && i == 0 && h.params[len(h.params)-1] == 0
	return i < len(h.params)-h.held && !root
}

func (h *shards) backward(first, sync bool) {
	s := h.s
	h.back = sync
	if h.nests {
		h.nested.backward(first, sync)
		return
	}
	last := len(s.list) - 1
	root := h.params[last] == 0 // embedding and head are one unit, held from the head to the end
	h.hooks(last, true)
	if root {
		h.launchGather(0, s.sim.Issued())
		h.open(0)
	} else {
		h.launchGather(last, s.sim.Issued())
	}
	s.layers.begin(s)
	before := false // whether the parameters of the unit before were on their way as it began
	for i := last; i >= h.frozen; i-- {
		again := s.layers.repeats() && h.ready[i] == before
		if before = h.ready[i]; again {
			if k := h.equal(i, -1); k > 0 {
				s.layers.skip(k)
				h.shift(i, k, -1)
				i -= k
			}
		}
		u := s.list[i]
		if i < last && len(u.backward.ops) == 0 { // frozen, between projectors of inner layers that are trained
			continue
		}
		s.away.beforeBackward(i)
		if !(root && (i == last || i == 0)) {
			h.launchGather(i, s.sim.Issued())
			h.open(i)
			if h.reentrant && u.Layers > 0 && h.reshards(i) {
				h.hooks(i, false)
				h.drop(i)
				h.launchGather(i, s.sim.Issued())
				h.open(i)
			}
		}
		// One unit ahead: the next one's parameters are gathered beside this one's gradients.
		if i > h.frozen && !(root && s.list[i-1].Layers == 0) && len(s.list[i-1].backward.ops) > 0 {
			h.hooks(i-1, true)
			h.launchGather(i-1, s.sim.Issued())
		}
		s.label(u.Name, " backward")
		s.runAll(&u.backward)
		if root {
			if tied := s.tiedBytes(u); tied > 0 {
				s.kernel(sum("tied", tied))
			}
		}
		h.drop(i)
		if root && i == last {
			h.ready[0] = true // still held
			continue
		}
		h.scatter(i, first, sync)
	}
	if root && h.frozen > 0 {
		h.scatter(0, first, sync)
	}
	h.settle()
	for i := range h.ready {
		h.drop(i)
	}
}

// settle waits for what is in flight.
func (h *shards) settle() {
	if !h.busy {
		return
	}
	s := h.s
	s.sim.Wait(h.reduce)
	if h.onHost { // finalize_backward, grad_offload_event
		s.sim.Wait(h.home)
		s.sim.Run(&timeline.Segment{Sync: true})
	}
	h.busy = false
}

// scatter reduces the gradients of unit i, or adds them to those kept from
// earlier micro batches.
func (h *shards) scatter(i int, first, sync bool) {
	if h.grads[i] == [2]int64{} {
		return
	}
	s := h.s
	prec := s.job.Precision
	u := float64(h.grads[i][0] + h.grads[i][1])
	full := units.Bytes(u) * prec.Reduce.Size()
	grad := units.Bytes(u) * s.p.gradSize()
	if h.flat { // the views were split off the flat parameter: autograd joins their gradients
		s.kernel(tape.Op{Prim: "fsdp_join", Class: tape.SplitCopy, Count: 1, Elements: u, Bytes: 2 * grad, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}})
	}
	if !sync || !first && s.job.Train.GradAccumulation > 1 && !s.job.SyncsEveryMicroBatch() { // kept unsharded in the reduce dtype
		s.kernel(keep(u, grad, full, first))
		if !sync {
			return
		}
		grad = full
	}
	h.sums = h.onHost && h.copies && !first && s.job.SyncsEveryMicroBatch()
	h.scatterKept(i, grad)
}

// keep is how FSDP keeps so many gradients until they are reduced: in the reduction's
// dtype, cast from the first micro batch and added to from later ones
// (_fsdp_param.py, to_accumulated_grad_if_needed).
func keep(n float64, grad, full units.Bytes, first bool) tape.Op {
	op := tape.Op{Prim: "fsdp_accumulate", Class: tape.Unrolled, Count: 1, Elements: n, Bytes: full + grad, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}}
	if !first {
		op.Class, op.Bytes = tape.UnrolledMix, 2*full+grad
	}
	return op
}

// scatterAll reduces the kept gradients of all units, one after the other
// (torch/distributed/pipelining/stage.py, run_post_backward).
func (h *shards) scatterAll() {
	for i := range h.params {
		if h.grads[i] != [2]int64{} {
			h.scatterKept(i, units.Bytes(h.grads[i][0]+h.grads[i][1])*h.s.job.Precision.Reduce.Size())
		}
	}
	if h.busy {
		h.s.sim.Wait(h.reduce)
		h.busy = false
	}
}

// scatterKept reduces the gradients of unit i, which are of so many bytes.
func (h *shards) scatterKept(i int, grad units.Bytes) {
	s := h.s
	prec := s.job.Precision
	u := float64(h.grads[i][0] + h.grads[i][1])
	full := units.Bytes(u) * prec.Reduce.Size()
	if h.busy { // one reduce-scatter in flight
		s.sim.Wait(h.reduce)
	}
	if h.copies {
		s.kernel(tape.Op{Prim: "fsdp_copy_in", Class: tape.ChunkCat, Count: 1, Elements: u, Bytes: grad + full, Phase: tape.Backward})
	}
	dense, expert := units.Bytes(h.grads[i][0])*prec.Reduce.Size(), units.Bytes(h.grads[i][1])*prec.Reduce.Size()
	t := s.p.comm(collective.ReduceScatter, shardGroup, dense) + s.p.comm(collective.ReduceScatter, expertShardGroup, expert)
	if h.flat {
		t += h.prepare(u, grad, full)
	}
	t += s.bucketPasses(dense, shardGroup, 1) + s.bucketPasses(expert, expertShardGroup, 1) // one of them into the bucket (stage3.py, add_grad_to_ipg_bucket)
	if own := h.aloneGrads(i); own > 0 {                                                    // divided, and copied (foreach_reduce)
		b := 2 * units.Bytes(own) * prec.Reduce.Size()
		t += s.p.run(&tape.Op{Prim: "fsdp_divide", Class: tape.Vectorized, DType: tape.F32, Count: 1, Elements: float64(own), Bytes: b}, true)
		t += s.p.run(&tape.Op{Prim: "fsdp_copy", Class: tape.Memcpy, Count: 1, Elements: float64(own), Bytes: b}, true)
	}
	if (h.copies || h.flat) && prec.Reduce != prec.Gradients { // what comes out is cast on the same stream (foreach_reduce, _cast_grad_to_param_dtype; 174 us for 52.5 million values in a trace of two H200)
		n := float64(h.shard(i))
		t += s.p.run(&tape.Op{Prim: "fsdp_cast_reduced", Class: tape.Unrolled, DType: tape.F32, Count: 1, Elements: n, Bytes: units.Bytes(n) * (prec.Reduce.Size() + prec.Gradients.Size())}, true)
	}
	ready := s.sim.Issued()
	h.reduce, h.busy = s.sim.Launch(dpStream, "reduce-scatter", float64(t), ready, s.p.slow(collective.ReduceScatter)), true
	if g := &s.p.groups; g[replicaGroup].Ranks > 1 && (h.ends || !s.job.Recipe.Structure.MainGradients) { // Megatron-FSDP reduces among copies once a step (megatron_fsdp.py, outer_fsdp_group_grad_reduce)
		kind := collective.AllReduce
		if s.job.Plan.StatesOverCopies() { // a copy goes on with the part that it updates
			kind = collective.ReduceScatter
		}
		ar := s.p.comm(kind, replicaGroup, dense/units.Bytes(g[shardGroup].Ranks)) + s.p.comm(kind, expertReplicaGroup, expert/units.Bytes(g[expertShardGroup].Ranks))
		h.reduce = s.sim.Launch(replicaStream, kind.String(), float64(ar), s.sim.Now+float64(t), s.p.slow(kind))
	}
	switch {
	case h.onHost:
		h.leave(i)
	case s.job.Plan.Offloads():
		h.reduce = s.sim.Copy(dpStream, "gradients to host", float64(h.summed(i)), ready)
	}
}

// shard is how many of the gradients of unit i this rank has once they are reduced.
func (h *shards) shard(i int) units.Bytes {
	g := &h.s.p.groups
	return units.Bytes(float64(h.grads[i][0])/float64(g[shardGroup].Ranks) + float64(h.grads[i][1])/float64(max(g[expertShardGroup].Ranks, 1)))
}

// summed is the time in which the shard of the gradients of unit i goes to the host, whose
// optimizer has its states: to those of earlier micro batches, and from there by the GPU,
// which casts them, to what it updates by (DeepSpeed, stage3.py, partition_grads).
func (h *shards) summed(i int) units.Seconds {
	p, prec := h.s.p, &h.s.job.Precision
	shard := h.shard(i)
	return p.toHost(shard*(prec.Reduce.Size()+prec.Master.Size())) + p.toDevice(shard*prec.Reduce.Size())
}

// leave sends the shard of the gradients of unit i to the host once it is reduced; or, where the
// host adds it to what it has, makes that wait for it.
func (h *shards) leave(i int) {
	p, sim, prec := h.s.p, h.s.sim, &h.s.job.Precision
	shard := h.shard(i)
	if h.sums {
		sim.Wait(h.reduce)
		sim.WaitHost()
		sim.Host += float64(p.addOnHost(shard * prec.Weights.Size()))
		return
	}
	h.home = sim.CopyAfter(h.reduce, hostStream, "gradients to host", float64(p.toHost(shard*max(prec.Weights.Size(), prec.Master.Size()))))
}

// aloneGrads are the gradients of unit i that no other rank has a part of.
func (h *shards) aloneGrads(i int) int64 {
	switch {
	case h.single:
		return h.grads[i][0] + h.grads[i][1]
	case h.alone:
		return h.grads[i][1]
	}
	return 0
}

// equal returns how many units from i on, in the direction of the pass, are one
// kind with the one before, drop their parameters as it does, and are followed by one
// more, whose parameters are gathered ahead.
func (h *shards) equal(i, way int) int {
	list, first, n := h.s.list, i-way, 0
	if first < 0 || first >= len(list) {
		return 0
	}
	like := func(k int) bool { return list[k] == list[first] && h.reshards(k) == h.reshards(first) }
	for k := i + way; k >= 0 && k < len(list) && like(k) && like(i); k += way {
		n++
	}
	return n
}

// shift moves what is known of unit i n units on, past units that went like the
// one before it.
func (h *shards) shift(i, n, way int) {
	to := i + n*way
	h.gather[to], h.ready[to] = h.gather[i], h.ready[i]
	for k := i; k != to; k += way {
		h.gather[k], h.ready[k] = h.gather[i-way], h.ready[i-way]
	}
}

// prepare is what FSDP1 does on the stream of the reduce-scatter: the cast of the whole
// gradient to the reduce dtype, its division by a part of the number of ranks before,
// that by the rest after, and the sum with the shard of earlier micro batches
// (torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook).
func (h *shards) prepare(u float64, grad, full units.Bytes) units.Seconds {
	p := h.s.p
	var t units.Seconds
	if grad != full {
		t += p.device(&tape.Op{Class: tape.Unrolled, Count: 1, Elements: u, Bytes: grad + full})
	}
	shard := full / units.Bytes(p.groups[shardGroup].Ranks)
	for _, b := range []units.Bytes{2 * full, 2 * shard, 3 * shard} {
		t += p.device(&tape.Op{Class: tape.Vectorized, Count: 1, Elements: float64(b) / 8, Bytes: b})
	}
	return t
}
