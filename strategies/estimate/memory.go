package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/dataparallel"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
)

// measureMemory walks the fullest rank's step.
func (p *pricer) measureMemory(m *ops.Model, r *Result, s *simulation) {
	if s.pipe != nil {
		p.pipelineMemory(m, r, s)
		return
	}
	list := []*ops.Unit{&m.Embedding}
	for _, k := range m.Layers {
		list = append(list, &m.Kinds[k])
	}
	list = append(list, &m.Head)
	step := p.memoryStep(list, true, true)
	step.Record = p.calls != nil
	if step.Mode == memory.Bucketed && s.step.ddp != nil {
		for _, q := range s.step.ddp.queues {
			step.Buckets = append(step.Buckets, q.sizes...)
		}
	}
	peak := memory.Measure(step, allocator.New(allocator.Options{}))
	r.Memory.PeakAllocated, r.Memory.PeakReserved, r.Memory.By, r.Memory.Moment = peak.Allocated, peak.Reserved, peak.By, peak.Moment
	r.points = peak.Points
	p.outside(r)
}

// memoryStep describes a rank's step to the memory walk.
func (p *pricer) memoryStep(list []*ops.Unit, first, last bool) *memory.Step {
	j := p.job
	plan, prec := &j.Plan, j.Precision
	var dense, expert units.Bytes // parameters
	for _, u := range list {
		for _, q := range u.Params {
			switch {
			case q.TiedCopy && first && last:
			case q.Split == model.ExpertSplit:
				expert += units.Bytes(q.Local)
			default:
				dense += units.Bytes(q.Local)
			}
		}
	}
	dp := p.groups["dp"].Ranks
	shard, expertShard := max(p.groups["shard"].Ranks, 1), max(p.groups["expert_shard"].Ranks, 1)
	main := j.Recipe.Structure.MainGradients
	torchDDP := dp > 1 && plan.DataParallel == strategies.DDP && !main
	// Under unit-wise sharding the walk itself keeps the shards of gradients.
	states := dataparallel.StatesOf(plan.DataParallel, prec, main && !(plan.DataParallel.ShardsParameters() && dp > 1))
	w, o, g := states.PerParam(shard)
	we, oe, ge := states.PerParam(expertShard)
	n := dense + expert
	s := &memory.Step{Units: list, MicroBatches: j.Train.GradAccumulation}
	s.Static[memory.Parameters] = w*dense + we*expert
	s.Static[memory.OptimizerStates] = o*dense + oe*expert
	s.Static[memory.Gradients] = g*dense + ge*expert
	if main { // Transformer Engine keeps quantized copies of the weights
		s.Static[memory.WeightCopies] = n * quantizedBytes(prec)
	}
	if !main { // buffers of Megatron are whole
		s.Dense, s.Expert = stored(prec, w, o), stored(prec, we, oe)
	}
	s.Static[memory.Workspaces] = j.Hardware.Laws.Memory.Workspace
	s.SyncEvery = j.SyncsEveryMicroBatch()
	switch {
	case main && !plan.DataParallel.ShardsParameters():
		s.Mode = memory.MainBuffers
	case torchDDP:
		s.Mode = memory.Bucketed
		s.Static[memory.Gathered] = n * prec.Gradients.Size()
	case plan.DataParallel == strategies.ZeRO2 && dp > 1: // gradients are scattered unit by unit, parameters stay whole
		s.Mode = memory.Sharded
		s.Sharding = memory.Sharding{Ranks: shard, ExpertRanks: expertShard, Reduce: prec.Reduce.Size()}
	case plan.DataParallel.ShardsParameters() && dp > 1:
		s.Mode = memory.Sharded
		s.Sharding = memory.Sharding{Ranks: shard, ExpertRanks: expertShard, Gather: prec.Gather.Size(), Reduce: prec.Reduce.Size(), Reshard: plan.Reshard(),
			Root: j.Recipe.Structure.ExposedRoot && first && last, Copies: plan.DataParallel == strategies.FSDP2}
	}
	return s
}

// stored is what each parameter keeps.
func stored(p recipe.Precision, weights, states units.Bytes) memory.Stored {
	n := 2 // Adam's moments
	if p.Master.Size() > 0 {
		n++
	}
	return memory.Stored{Weights: weights, States: states, Tensors: n}
}

// outside adds what lies outside the framework's tensors and decides whether the
// job fits.
func (p *pricer) outside(r *Result) {
	j := p.job
	law := j.Hardware.Laws.Memory
	add := func(name string, b units.Bytes) {
		if b > 0 {
			r.Memory.Outside = append(r.Memory.Outside, Outside{name, b})
		}
	}
	add("cuda_context", law.Context)
	comms := 0
	plan := &j.Plan
	if j.GPUs > 1 {
		comms = 1
		for _, d := range []int64{plan.TP, plan.CP, plan.EP, plan.PP} {
			if d > 1 && d < j.GPUs {
				comms++
			}
		}
		if plan.TP > 1 || plan.Replicas() > 1 && plan.DataParallel.ShardsParameters() {
			comms++
		}
		add("nccl", law.NCCL+units.Bytes(comms)*law.Communicator)
	}
	if r.Memory.PeakReserved == 0 {
		r.Memory.PeakReserved = r.Memory.PeakAllocated
	}
	add("allocator_slack", r.Memory.PeakReserved-r.Memory.PeakAllocated)
	r.Memory.DeviceUsed = r.Memory.PeakAllocated
	for _, x := range r.Memory.Outside {
		r.Memory.DeviceUsed += x.Bytes
	}
	r.Memory.Capacity = j.Hardware.GPU.Memory.Value - law.Reserve
	r.Memory.Fits = r.Memory.DeviceUsed <= r.Memory.Capacity
}
