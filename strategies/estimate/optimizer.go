package estimate

import (
	"math"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
)

// optimizerStep updates the parameters of the rank.
func (s *step) optimizerStep() {
	dense, expert, tensors := s.chunk.dense, s.chunk.expert, s.updated()
	o := s.job.Recipe.Optimizer[s.job.Train.Optimizer]
	prec := s.job.Precision.Trained()
	states := dataparallel.StatesOf(s.job.Plan.DataParallel, prec, false)
	local := float64(dense)
	experts := float64(expert)
	if states.ShardOptimizer {
		local /= float64(s.p.groups[shardGroup].Ranks)
		experts /= float64(s.p.groups[expertShardGroup].Ranks)
	}
	local += experts
	gradient := prec.Gradients.Size() // as the optimizer reads it
	copies := s.job.Recipe.Structure.MainCopies && prec.Master.Set
	if copies {
		gradient = max(gradient, prec.Master.Size())
	}
	per := gradient + 2*prec.MomentBytes() // read g; read and write the moments
	if prec.Master.Set {
		per += 2 * prec.Master.Size()
		if !copies {
			per += prec.Weights.Size()
		}
	} else {
		per += 2 * prec.Weights.Size()
	}
	per += units.Bytes(o.Read) * per
	class, _ := tape.ClassOf(o.Class)
	distributed := 0 // tensors that are DTensors: under FSDP2 all, under tensor parallelism those it cuts
	switch {
	case s.p.host.DTensorParam <= 0:
	case s.job.Plan.DataParallel == strategies.FSDP2 && s.p.groups[dpGroup].Ranks > 1:
		distributed = tensors
	case s.job.Recipe.Structure.DTensor && s.job.Plan.TP > 1:
		distributed = s.chunk.cut
	}
	host := s.p.host.Step + units.Seconds(tensors-distributed)*s.p.host.Tensor + units.Seconds(distributed)*s.p.host.DTensorParam
	host += units.Seconds(float64(tensors)*o.Calls) * s.p.host.Call
	s.label("optimizer", "")
	if n := s.gradientPasses(dense, expert); n > 0 {
		passes := s.p.kernelOf(tape.Op{Prim: "grad_passes", Class: tape.Vectorized, Count: 1, Elements: n, Bytes: units.Bytes(n) * prec.Gradients.Size(), Phase: tape.Optimize})
		s.sim.Run(&passes)
	}
	seg := s.p.kernelOf(tape.Op{Prim: "optimizer", Class: class, Count: 1, Elements: local + o.Zero*local/float64(max(dense+expert, 1))*s.unseen(o.Steps), Bytes: units.Bytes(local) * per, Phase: tape.Optimize})
	seg.Host += host * s.p.python
	seg.Lag += host * s.p.python
	if o.Each { // the device is at one tensor while the host is at the next
		if prec.Master.Set {
			copies := s.p.kernelOf(tape.Op{Prim: "copy_weights", Class: tape.Vectorized, Count: 1, Elements: local, Bytes: units.Bytes(local) * (prec.Master.Size() + prec.Weights.Size()), Phase: tape.Optimize})
			seg.Busy, seg.Loaded = seg.Busy+copies.Busy, seg.Loaded+copies.Loaded
		}
		seg.Lag = max(seg.Busy, seg.Host+s.p.latency()+seg.Busy/units.Seconds(max(tensors, 1)))
	}
	if copies && gradient > prec.Gradients.Size() {
		s.mainCopies("cast_gradients", tape.Unrolled, local, tensors, prec.Gradients.Size()+gradient, false)
	}
	if copies && prec.Weights.DType == tape.F16 { // unscale, and look for infinities
		s.mainCopies("unscale", tape.MultiTensor, local, 1, 2*gradient, true)
	}
	if o.Clip { // norm over all gradients, a scalar to the host, scaling
		n := local
		if s.job.Recipe.Structure.AllReduce { // all of them, on every rank
			n = float64(dense + expert)
		}
		b := units.Bytes(n) * gradient
		norm := s.p.kernelOf(tape.Op{Prim: "grad_norm", Class: tape.MultiTensor, Count: 1, Elements: n, Bytes: b})
		norm.Sync = !o.Each
		s.sim.Run(&norm)
		clip := tape.Op{Prim: "grad_clip", Class: tape.MultiTensor, Count: 1, Elements: n, Bytes: 2 * b}
		if o.Each { // mul_ by a tensor of one value is no flat kernel
			clip.Class, clip.Index = tape.Strided4, 9
		}
		scale := s.p.kernelOf(clip)
		s.sim.Run(&scale)
	}
	s.sim.Run(&seg)
	if copies {
		s.mainCopies("copy_weights", tape.Vectorized, local, tensors, prec.Master.Size()+prec.Weights.Size(), false)
	}
	if s.job.Recipe.Structure.MainGradients && s.job.Model.LoRA == nil { // the copies of the new weights that quantized GEMMs read
		if q := s.requantized(); q > 0 {
			n := units.Bytes(s.chunk.matrices)
			seg := s.p.kernelOf(tape.Op{Prim: "quantize_weights", Class: tape.MultiTensor, Count: 1, Elements: float64(n), Bytes: n * q, Phase: tape.Optimize})
			s.sim.Run(&seg)
		}
	}
	if s.listed != nil {
		s.listed.finish()
	}
	if k := s.job.Plan.DataParallel; (k == strategies.ZeRO1 || k == strategies.ZeRO2) && s.p.groups[dpGroup].Ranks > 1 {
		s.listParameters(dense)
		t, first := 0.0, 0.0
		for k, n := range [2]int64{dense, expert} {
			q := &s.ddp.queues[k]
			g := float64(s.p.comm(collective.AllGather, q.group, units.Bytes(n)*prec.Gather.Size()))
			t, first = t+g, first+g*q.firstShare()
		}
		if s.job.Recipe.Overlap.ParamGather { // bucket by bucket beside the next forward pass, which waits for the first one
			if s.chunk.embedding == nil { // later stages wait for their first input meanwhile
				first = 0
			}
			t = max(t-s.forward/float64(s.job.Train.GradAccumulation), first)
		}
		task := s.sim.Launch(dpStream, "all-gather", t, s.sim.Now, 1)
		s.sim.Wait(task)
	}
}

// updated is the number of tensors that the rank's optimizer goes through: all, or, where
// a rank has a part of each bucket, those of which it has something.
func (s *step) updated() int {
	n := 0
	for k, tensors := range s.chunk.tensors {
		if ranks := int(s.p.groups[[2]group{shardGroup, expertShardGroup}[k]].Ranks); s.parts() && ranks > 1 {
			tensors = min(tensors, (tensors+ranks-1)/ranks+len(s.ddp.queues[k].sizes))
		}
		n += tensors
	}
	return n
}

// parts reports whether the optimizer of a rank updates its part of each bucket.
func (s *step) parts() bool {
	kind := s.job.Plan.DataParallel
	return s.ddp != nil && s.job.Recipe.Structure.MainGradients && !s.job.Recipe.Structure.ListParameters && (kind == strategies.ZeRO1 || kind == strategies.ZeRO2)
}

// listParameters is what ZeRO ranks copy around a gather into a list: the rank's own part
// and all outputs into flat tensors, the list out of what NCCL gathered, and each rank's
// part of each parameter into it, by a call of its own (nanotron, optim/zero.py,
// _all_gather_params, and distributed.py, all_gather_coalesced; traces of four H200).
func (s *step) listParameters(params int64) {
	ranks := s.p.groups[dpGroup].Ranks
	if !s.job.Recipe.Structure.ListParameters || ranks <= 1 {
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
