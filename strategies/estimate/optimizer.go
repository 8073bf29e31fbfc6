package estimate

import (
	"cmp"
	"math"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// optimizerStep updates the parameters of the rank.
func (s *step) optimizerStep() {
	u := s.update()
	s.label("optimizer", "")
	if s.shards != nil {
		s.sim.Host += float64(units.Seconds(u.tensors) * s.p.host.Hooks.Step * s.p.python)
	}
	if n := s.gradientPasses(s.chunk.dense, s.chunk.expert); n > 0 {
		passes := s.p.kernelOf(tape.Op{Prim: "grad_passes", Class: tape.Vectorized, Count: 1, Elements: n, Bytes: units.Bytes(n) * s.job.Precision.Gradients.Size(), Phase: tape.Optimize})
		s.sim.Run(&passes)
	}
	if s.job.Plan.Offloads() {
		s.hostUpdate(&u)
	} else {
		seg := s.updateKernel(&u)
		s.readyGradients(&u)
		s.updateMatrices(&u)
		if u.Waits { // for all before, too, with the first tensor
			s.sim.Run(&timeline.Segment{Sync: true})
		}
		s.sim.Run(&seg)
		s.copyWeights(&u)
	}
	if s.listed != nil {
		s.listed.finish()
	}
	if k := s.job.Plan.DataParallel; (k == strategies.ZeRO1 || k == strategies.ZeRO2) && s.p.groups[dpGroup].Ranks > 1 {
		s.gatherParameters()
	}
}

// update is what an optimizer goes through.
type update struct {
	recipe.Optimizer
	local    float64     // parameters that the rank updates
	apart    float64     // of these, those that are updated matrix by matrix
	tables   float64     // and those of embeddings that another optimizer updates
	tensors  int         // that they lie in
	gradient units.Bytes // of one parameter, as the optimizer reads it
	copies   bool        // master weights are tensors of their own, beside those that compute
}

func (s *step) update() update {
	prec := s.job.Precision.Trained()
	local, experts := float64(s.chunk.dense), float64(s.chunk.expert)
	if dataparallel.StatesOf(s.job.Plan.DataParallel, prec, false).ShardOptimizer {
		local /= float64(s.p.groups[shardGroup].Ranks)
		experts /= float64(s.p.groups[expertShardGroup].Ranks)
	}
	if deals(s.job) {
		local /= float64(s.p.groups[dpGroup].Ranks)
	}
	if s.job.Plan.StatesOverCopies() {
		local /= float64(s.p.groups[replicaGroup].Ranks)
		experts /= float64(s.p.groups[expertReplicaGroup].Ranks)
	}
	u := update{Optimizer: s.job.Recipe.Optimizer[s.job.Train.Optimizer], local: local + experts, tensors: s.updated(), gradient: prec.Gradients.Size()}
	if u.Matrix != "" {
		m := s.chunk.weights()
		u.apart = local*float64(m.params[0])/float64(max(s.chunk.dense, 1)) + experts*float64(m.params[1])/float64(max(s.chunk.expert, 1))
		u.tensors = max(u.tensors-m.tensors, 0)
	}
	if u.Embedding != "" {
		u.tables = float64(s.chunk.tables())
	}
	// Flat states that no replica shares are taken to be updated in one pass: DeepSpeed's
	// stage 0 casts and copies, too, but no step of it has been measured.
	whole := s.job.Recipe.Structure.FlatStates && s.job.Plan.DataParallel == strategies.DDP
	if whole {
		u.Norm = 0
	}
	if u.copies = s.job.Recipe.Structure.MainCopies && prec.Master.Set && !whole; u.copies {
		u.gradient = max(u.gradient, prec.Master.Size())
	}
	return u
}

// traffic is what the update of one parameter reads and writes: its gradient is read, its
// moments and its weight are read and written.
func (s *step) traffic(u *update) units.Bytes {
	prec := s.job.Precision.Trained()
	if u.Bytes > 0 {
		return units.Bytes(u.Bytes)
	}
	per := u.gradient + 2*prec.MomentBytes()
	switch {
	case prec.Master.Set && u.copies:
		per += 2 * prec.Master.Size()
	case prec.Master.Set:
		per += 2*prec.Master.Size() + prec.Weights.Size()
	default:
		per += 2 * prec.Weights.Size()
	}
	if s.scales() && u.asks() { // and writes what it has scaled (aten/native/cuda/fused_adam_utils.cuh, FusedAdamMathFunctor)
		per += u.gradient
	}
	return per + units.Bytes(u.Read)*per
}

// updateKernel is the update itself.
func (s *step) updateKernel(u *update) timeline.Segment {
	prec := s.job.Precision.Trained()
	class, _ := tape.ClassOf(u.Class)
	small, launches, others := s.short(u)
	seg := s.p.kernelOf(tape.Op{Prim: "optimizer", Class: class, Count: 1, Elements: cmp.Or(u.Work, 1) * (u.local - u.apart - u.tables - small + u.Zero*u.local/float64(max(s.chunk.dense+s.chunk.expert, 1))*s.unseen(u.Steps)), Bytes: units.Bytes(u.local-u.apart-small) * s.traffic(u), Phase: tape.Optimize})
	gaps := units.Seconds(others) * s.p.gap()
	seg.Busy, seg.Loaded = seg.Busy+gaps, seg.Loaded+gaps
	if launches > 0 {
		tiny := s.p.kernelOf(tape.Op{Prim: "optimizer", Class: class, Count: int32(launches), Elements: 1, Bytes: 1, Phase: tape.Optimize})
		seg.Busy, seg.Loaded = seg.Busy+tiny.Busy, seg.Loaded+tiny.Loaded
	}
	s.tensorwise(u, &seg)
	host := s.updateHost(u)
	seg.Host += host * s.p.python
	seg.Lag += host * s.p.python
	if u.Waits {
		seg.Lag, seg.Sync = seg.Busy+seg.Host+units.Seconds(u.tensors)*s.p.latency(), true
	}
	if u.Each && prec.Master.Set {
		copies := s.p.kernelOf(tape.Op{Prim: "copy_weights", Class: tape.Vectorized, Count: 1, Elements: u.local, Bytes: units.Bytes(u.local) * (prec.Master.Size() + prec.Weights.Size()), Phase: tape.Optimize})
		seg.Busy, seg.Loaded = seg.Busy+copies.Busy, seg.Loaded+copies.Loaded
	}
	if u.Each || u.Calls > 0 && !u.Waits { // the device is at one tensor while the host is at the next
		seg.Lag = max(seg.Busy, seg.Host+s.p.latency()+seg.Busy/units.Seconds(max(u.tensors, 1)))
	}
	return seg
}

// updateHost is how long the host works on an update. DTensors take it longer: under
// FSDP2 all tensors are, under tensor parallelism those that it cuts.
func (s *step) updateHost(u *update) units.Seconds {
	distributed := 0
	switch {
	case s.p.host.DTensorParam <= 0:
	case s.job.Plan.DataParallel == strategies.FSDP2 && s.job.Plan.Wraps(s.p.groups[dpGroup].Ranks):
		distributed = u.tensors
	case (s.job.Recipe.Structure.DTensor || s.job.Recipe.Structure.FunctionalTP) && s.job.Plan.TP > 1:
		distributed = s.chunk.cut
	}
	more := (s.p.host.DTensorParam - s.p.host.Tensor) * units.Seconds(cmp.Or(u.DTensor, 1))
	host := s.p.host.Step + s.passedOver() + units.Seconds(u.tensors)*s.p.host.Tensor + units.Seconds(distributed)*more
	return host + s.launches(u)*s.p.host.Backward // as those of updates that programs describe: nothing is recorded for a gradient
}

// short is what of an update tensor by tensor is in tensors so small that their kernels take as long as a kernel takes at
// least: values, and launches; and the launches for the others.
func (s *step) short(u *update) (values float64, launches, others float64) {
	if u.Calls == 0 || u.Waits {
		return 0, 0, 0
	}
	h := s.job.Hardware
	enough := float64(h.Laws.Launch.Floor) * float64(h.GPU.Bandwidth.Value) / float64(s.traffic(u)) // values that a kernel is at for as long
	share := u.local / float64(max(s.chunk.dense+s.chunk.expert, 1))
	s.chunk.trained(func(p *ops.Param) {
		n, calls := share*float64(p.Local), u.callsOf(p)
		if n < calls*enough {
			values, launches = values+n, launches+calls
		} else {
			others += calls
		}
	})
	return values, launches, others
}

// launches is how many kernels update tensors one by one.
func (s *step) launches(u *update) units.Seconds {
	if u.Calls == 0 {
		return 0
	}
	n, tensors := 0., 0
	s.chunk.trained(func(p *ops.Param) { n, tensors = n+u.callsOf(p), tensors+1 })
	n *= float64(u.tensors) / float64(max(tensors, 1))
	if s.widens(u) {
		n += float64(u.tensors) * updateCasts
	}
	return units.Seconds(n)
}

// callsOf is how many of them update a tensor.
func (u *update) callsOf(p *ops.Param) float64 {
	if len(p.Dims) == 1 {
		return cmp.Or(u.Vectors, u.Calls)
	}
	return u.Calls
}

// scales reports whether a scaler of the framework's keeps gradients in the range of fp16.
func (s *step) scales() bool {
	return s.job.Recipe.Structure.GradScaler && s.job.Precision.Trained().Compute.DType == tape.F16
}

// asks reports whether the update's kernel asks on the device whether all gradients are finite (torch/amp/grad_scaler.py,
// _step_supports_amp_scaling).
func (u *update) asks() bool { return u.Class == "optimizer" && u.Matrix == "" }

// readyGradients casts, unscales and clips gradients before the update.
func (s *step) readyGradients(u *update) {
	prec := s.job.Precision.Trained()
	if kind := s.job.Plan.DataParallel; u.Check > 0 && (kind == strategies.ZeRO1 || kind == strategies.ZeRO2) {
		s.mainCopies("check_gradients", tape.MultiTensor, u.local, 1, units.Bytes(u.Check), true)
	}
	if u.Join > 0 {
		s.mainCopies("join_gradients", tape.SplitCopy, u.local, 1, units.Bytes(u.Join), false)
	}
	if u.copies && u.gradient > prec.Gradients.Size() {
		s.mainCopies("cast_gradients", tape.Unrolled, u.local, u.tensors, prec.Gradients.Size()+u.gradient, false)
	}
	if u.copies && prec.Weights.DType == tape.F16 { // unscale, and look for infinities
		s.mainCopies("unscale", tape.MultiTensor, u.local, 1, 2*u.gradient, true)
	}
	if s.scales() {
		s.mainCopies("unscale", tape.MultiTensor, u.local, 1, 2*u.gradient, !u.asks())
	}
	if u.Clip {
		s.clip(u)
	}
}

// scaledElement is what a gradient that is scaled counts where elements, not bytes, limit the kernel, over one whose square is summed
// (hardware/laws/hopper.yaml, multi-tensor).
const scaledElement = 1.63

// clip takes the norm over all gradients, which most frameworks' hosts wait for, and scales.
func (s *step) clip(u *update) {
	n := u.local
	if s.job.Recipe.Structure.WholeNorm || deals(s.job) { // of all of them, on every rank
		n = float64(s.chunk.dense + s.chunk.expert)
	}
	b := units.Bytes(n) * u.gradient
	read := b
	if u.Norm > 0 {
		read = units.Bytes(n * u.Norm)
	}
	norm := s.p.kernelOf(tape.Op{Prim: "grad_norm", Class: tape.MultiTensor, Count: 1, Elements: n, Bytes: read})
	norm.Host += (s.p.host.Clip + units.Seconds(u.tensors)*s.p.host.ClipTensor) * s.p.python
	norm.Sync = !u.Each && !s.job.Recipe.Structure.NormStays
	s.sim.Run(&norm)
	clip := tape.Op{Prim: "grad_clip", Class: tape.MultiTensor, Count: 1, Elements: n * scaledElement, Bytes: 2 * b}
	if u.Each { // mul_ by a tensor of one value is no flat kernel
		clip.Class, clip.Elements, clip.Index = tape.Strided4, n, 9
	}
	scale := s.p.kernelOf(clip)
	s.sim.Run(&scale)
}

// copyWeights writes what computes from the updated weights.
func (s *step) copyWeights(u *update) {
	prec := s.job.Precision.Trained()
	if u.copies {
		s.mainCopies("copy_weights", tape.Vectorized, u.local, u.tensors, prec.Master.Size()+prec.Weights.Size(), false)
	}
	if !s.job.Recipe.Structure.MainGradients || s.job.Model.LoRA != nil {
		return
	}
	if q := s.requantized(); q > 0 { // the copies of the new weights that quantized GEMMs read
		n := units.Bytes(s.chunk.multiplied)
		if s.gathersCopies() { // its shards of them
			n = units.Bytes(u.local)
		}
		s.kernel(tape.Op{Prim: "quantize_weights", Class: tape.MultiTensor, Count: 1, Elements: float64(n), Bytes: n * q, Phase: tape.Optimize})
	}
}

// gatherParameters hands every rank the parameters that the others have updated.
func (s *step) gatherParameters() {
	s.listParameters(s.chunk.dense)
	t, first := s.gathers()
	switch {
	case s.opening >= 0:
		t = s.opening
	case s.job.Recipe.Overlap.ParamGather: // bucket by bucket beside the next forward pass, which waits for the first one
		if s.chunk.embedding == nil { // later stages wait for their first input meanwhile
			first = 0
		}
		t = max(t-s.forward/float64(s.job.Train.GradAccumulation), first)
	case s.job.Recipe.Structure.GathersAll && s.job.Plan.EP > 1 && s.job.Model.MoE != nil:
		again, _ := s.gathers()
		t += again
	}
	kind := "all-gather"
	if s.job.Plan.TorchDDP(s.job.Recipe) {
		kind = "broadcast"
	}
	task := s.sim.Launch(dpStream, kind, t, s.sim.Now, 1)
	s.sim.Wait(task)
}

// gathers is how long the parameters of the chunk are gathered, and of that those which its
// first layers need.
func (s *step) gathers() (t, first float64) {
	for k, n := range [2]int64{s.chunk.dense, s.chunk.expert} {
		q := &s.ddp.queues[k]
		var g float64
		if s.job.Plan.TorchDDP(s.job.Recipe) {
			g = s.broadcasts(q, units.Bytes(n)*s.job.Precision.Weights.Size())
		} else {
			g = float64(s.p.comm(collective.AllGather, q.group, units.Bytes(n)*s.job.Precision.Gather.Size()))
		}
		t, first = t+g, first+g*q.firstShare()
	}
	return t, first
}

// broadcasts is how long parameters of so many bytes take to go out from the ranks that updated them,
// each by a call of its own (torch/distributed/optim/zero_redundancy_optimizer.py, _sync_params).
func (s *step) broadcasts(q *queue, params units.Bytes) (t float64) {
	var sum units.Bytes
	for _, b := range q.grads {
		sum += b
	}
	for _, b := range q.grads {
		t += float64(s.p.comm(collective.Broadcast, q.group, params*b/sum))
	}
	return t
}

// updated is the number of tensors that the rank's optimizer goes through: all, or, where
// a rank has a part of each bucket, those of which it has something. FSDP1's flat parameters
// are such buckets (torch/distributed/fsdp/_flat_param.py, _use_sharded_views and
// _use_sharded_grad_views: others are empty and have no gradient).
func (s *step) updated() int {
	n := 0
	for k, tensors := range s.chunk.tensors {
		ranks, buckets := int(s.p.groups[[2]group{shardGroup, expertShardGroup}[k]].Ranks), s.parts(k)
		if s.shards != nil && s.shards.flat {
			buckets = s.shards.buckets(k)
		}
		if buckets > 0 && ranks > 1 {
			tensors = min(tensors, (tensors+ranks-1)/ranks+buckets)
		}
		n += tensors
	}
	return n
}

// passedOver is how long the host is at tensors that a rank of Megatron-FSDP has nothing of: it
// cuts each out of gradients and of either weights, and reshapes the first
// (param_and_grad_buffer.py, update_main_grads, copy_main_weights_to_model_weights).
func (s *step) passedOver() units.Seconds {
	if s.shards == nil || s.parts(0) == 0 {
		return 0
	}
	return units.Seconds(4*(s.chunk.tensors[0]+s.chunk.tensors[1]-s.updated())) * s.p.host.View
}

// parts is how many buckets of dense tensors (0) or of experts' (1) there are, of each of
// which a rank updates its part; 0 where it updates whole tensors. Megatron-FSDP has a bucket for
// each unit, and no gradient for what of it a rank has nothing of (param_and_grad_buffer.py, update_main_grads).
func (s *step) parts(k int) int {
	kind := s.job.Plan.DataParallel
	switch {
	case !s.job.Recipe.Structure.MainGradients || s.job.Recipe.Structure.ListParameters:
		return 0
	case s.shards != nil && kind == strategies.FSDP1:
		return s.shards.buckets(k)
	case s.ddp != nil && (kind == strategies.ZeRO1 || kind == strategies.ZeRO2):
		return len(s.ddp.queues[k].sizes)
	}
	return 0
}

// listParameters is what ZeRO ranks copy around a gather into a list: the rank's own part
// and all outputs into flat tensors, the list out of what NCCL gathered, and each rank's
// part of each parameter into it, by a call of its own (nanotron, optim/zero.py,
// _all_gather_params, and distributed.py, all_gather_coalesced; traces of four H200).
func (s *step) listParameters(params int64) {
	ranks := s.p.groups[dpGroup].Ranks
	if !s.job.Recipe.Structure.ListParameters || ranks <= 1 || params == 0 { // a stage may have the loss alone
		return
	}
	size := float64(params) * float64(s.job.Precision.Gather.Size())
	calls := int64(s.chunk.tensors[0]+s.chunk.tensors[1]) * ranks
	flat := s.p.kernelOf(tape.Op{Prim: "flatten_params", Class: tape.SplitCopy, Count: 1, Elements: float64(params), Bytes: units.Bytes((2/float64(ranks) + 4) * size), Phase: tape.Optimize, Host: tape.HostWork{Calls: 4}})
	s.sim.Run(&flat)
	out := s.p.kernelOf(tape.Op{Prim: "copy_params", Class: tape.Vectorized, Count: int32(calls), Elements: float64(params) / float64(calls), Bytes: units.Bytes(2 * size / float64(calls)), Phase: tape.Optimize, Host: tape.HostWork{Calls: 1}})
	slices := units.Seconds(2*calls) * s.p.host.View * s.p.speed
	out.Host += slices
	out.Lag = max(out.Busy, out.Host+s.p.latency()+out.Busy/units.Seconds(calls))
	s.sim.Run(&out)
}

// mainCopies runs a pass over the n values of the optimizer that moves so many bytes of
// each, by a call for each of some tensors; sync: the host waits for what it found.
func (s *step) mainCopies(prim string, class tape.Class, n float64, calls int, bytes units.Bytes, sync bool) {
	k := int32(max(calls, 1))
	seg := s.p.kernelOf(tape.Op{Prim: prim, Class: class, Count: k, Elements: n / float64(k), Bytes: units.Bytes(n) * bytes / units.Bytes(k), Phase: tape.Optimize})
	seg.Sync = sync
	s.sim.Run(&seg)
}

// unseen is how many elements of the embedding have not had a gradient within the
// given number of steps, when tokens are drawn evenly: no token asked for their rows. A
// tied embedding has gradients from the head.
func (s *step) unseen(steps float64) float64 {
	u := s.chunk.embedding
	if u == nil || s.job.Model.Tied || steps <= 0 || s.job.Model.LoRA != nil {
		return 0
	}
	return float64(u.Params[0].Local) * math.Exp(-steps*s.job.Tokens()/float64(s.job.Model.Vocab))
}

// gradientPasses is the number of values that go through the GPU once a step where
// main gradients are set to zero, checked for NaNs and scaled before their reduction,
// of a rank's parameters outside and in experts.
func (s *step) gradientPasses(dense, expert int64) float64 {
	r, plan := &s.job.Recipe.Structure, &s.job.Plan
	if !r.MainGradients || plan.DataParallel.ShardsParameters() {
		return 0
	}
	every, experts := 0, 0
	if r.ZeroGradients {
		every++
	}
	if r.CheckGradients {
		every++
	}
	if replicas := s.p.groups[dpGroup].Ranks; replicas > 1 || r.SingleRank {
		switch r.ScaleGradients {
		case "all":
			every += 2
		case "experts": // the collective averages over fewer ranks than hold the batch
			if s.p.groups[expertDPGroup].Ranks < replicas {
				experts = 2
			}
		}
	}
	return float64(dense)*float64(every) + float64(expert)*float64(every+experts)
}

// requantized is what making those copies moves for each weight: it is read in 16 bits, or,
// gathered as one of them already, turned where GEMMs read another.
func (s *step) requantized() units.Bytes {
	q, prec := quantizedBytes(s.job), &s.job.Precision
	switch {
	case q == 0:
		return 0
	case primary(s.job) && prec.Gather.Size() < prec.Compute.Size():
		return 2 * (q - prec.GEMM.Size())
	}
	return prec.Compute.Size() + q
}

// gathersCopies is whether shards are gathered of each of the copies that quantized GEMMs
// read, so that ranks quantize theirs alone (fsdp/src/megatron_fsdp, copy_main_weights_to_model_weights):
// of MXFP8, which has one for either pass; of others one is gathered and turned.
func (s *step) gathersCopies() bool {
	return s.job.Precision.GEMM.DType == tape.MXFP8 && gathers(s.job).DType == tape.MXFP8
}

// primary reports whether the weights that quantized GEMMs read are stored as those read them
// alone, which takes the distributed optimizer or FSDP (megatron/training/arguments.py, --fp8-param-gather);
// or frozen ones of 8 bits (NeMo, peft.model.fp8_params).
func primary(j *strategies.Job) bool {
	switch {
	case !j.Recipe.Structure.MainGradients:
		return false
	case j.Model.LoRA != nil:
		return j.Precision.GEMM.Set && j.Precision.GEMM.Size() == tape.FP8.Size()
	}
	return j.Precision.KeptQuantized() && j.Plan.DataParallel != strategies.DDP
}

// QuantizedAlone reports whether a rank keeps the weights that quantized GEMMs read in no
// other form: as weight copies (memory.WeightCopies), and not among its parameters.
func QuantizedAlone(j *strategies.Job) bool {
	return primary(j) && !j.Plan.DataParallel.ShardsParameters()
}

// quantizedBytes is the size per parameter of the copies that quantized GEMMs read,
// 0 without quantization. Of frozen weights with one scale there is one, which is transposed
// where it is read (Megatron-Bridge, disable_parameter_transpose_cache).
func quantizedBytes(j *strategies.Job) units.Bytes {
	copies := j.Precision.Copies(anyLayout(j))
	if j.Model.LoRA != nil && j.Precision.GEMM.DType == tape.FP8 {
		copies = min(copies, 1)
	}
	return units.Bytes(copies) * j.Precision.GEMM.Size()
}
