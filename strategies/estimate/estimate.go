package estimate

import (
	"cmp"
	"fmt"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// Options choose how much is recorded.
type Options struct {
	Record bool // keep spans for traces
	Detail bool // keep every op with its price and reasons

	// Of a pipeline's ranks find the memory of the fullest only: that of the others takes longer
	// than everything else. ByStage is left out, and so is PeakAllocated of Stages.
	Fullest bool
}

// Estimate predicts one training step of a resolved job with a plan.
func Estimate(j *strategies.Job, o Options) (*Result, error) { return new(Evaluator).Estimate(j, o) }

// build is Build of a cache with a model that the recipe cannot run as an error.
func build(known *ops.Cache, j *strategies.Job) (m *ops.Model, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case ops.Missing:
			err = diag.Errorf("%v", p)
		default:
			panic(p)
		}
	}()
	return known.Build(config(j)), nil
}

// simulation is one run of the timeline over all stages. It keeps its memory from
// run to run.
type simulation struct {
	p      *pricer
	layout *layout
	step   step // of a job without pipeline, of one rank's ends with
	sim    timeline.Sim
	pipe   *pipelineRun // nil without pipeline
	own    pipelineRun
	total  float64
	power  power
}

// run simulates a step at the clocks of the pricer, as long as it is not beyond most.
func (s *simulation) run(p *pricer, l *layout, o Options, most units.Seconds) {
	s.p, s.layout, s.pipe, s.total = p, l, nil, 0
	if o.Detail {
		p.counts = newTally()
	}
	if p.job.Plan.PP > 1 {
		s.pipe = &s.own
		s.runPipeline(most)
		return
	}
	s.clock(0)
	s.sim.Reset()
	s.step.begin(p, l.stages[0], &s.sim)
	s.step.run()
	s.total = s.sim.Now
}

// clock brings the prices of what a pipeline rank runs to its clock.
func (s *simulation) clock(rank int) {
	s.p.clock = s.p.clocks[rank]
	for _, u := range s.layout.ranks[rank].runs {
		u.clock(s.p)
	}
}

// passesOf is how often a rank runs each of its chunks forward and backward:
// once for every micro batch, or for its share of them where the ranks hold
// several copies of the model (DualPipe).
func (s *simulation) passesOf() units.Seconds {
	n := units.Seconds(s.p.job.Train.GradAccumulation)
	if s.pipe != nil {
		n /= units.Seconds(s.pipe.plan.Copies)
	}
	return n
}

// fill writes what the simulation found into the result.
func (s *simulation) fill(r *Result) {
	r.StepTime = units.Seconds(s.total)
	if s.pipe != nil {
		s.pipe.fill(r)
		return
	}
	st, sim := &s.step, &s.sim
	r.Forward, r.Backward, r.Optimizer = units.Seconds(st.forward), units.Seconds(st.backward), units.Seconds(st.optimizer)
	r.HostIdle = units.Seconds(sim.Idle)
	r.Exposed = map[string]units.Seconds{}
	if t := sim.Exposed - sim.Starved; t > 0 {
		r.Exposed["dp"] = units.Seconds(t)
	}
	if sim.Starved > 0 {
		r.Exposed["host"] = units.Seconds(sim.Starved)
	}
	n := units.Seconds(s.p.job.Train.GradAccumulation)
	var kernels [numWork]units.Seconds
	for _, u := range st.chunk.runs {
		for _, sec := range []*section{&u.forward, &u.backward} {
			for k, t := range sec.time {
				kernels[k] += t * n
			}
			addExposed(r.Exposed, sec, n)
		}
	}
	for i := range st.matrices {
		addExposed(r.Exposed, &st.matrices[i].section, units.Seconds(st.matrices[i].count))
	}
	r.Parts = Parts{GEMM: kernels[gemmWork], Attention: kernels[attentionWork], Host: units.Seconds(sim.Idle - st.hosted), Update: units.Seconds(st.hosted), Contention: units.Seconds(sim.Slowed),
		Exposed: units.Seconds(sim.Exposed + sim.Inline)}
	r.Parts.Memory = kernels[memoryWork] + kernels[issueWork]
	// The rest of the compute stream: optimizer, copies of data parallelism, gaps.
	r.Parts.Gaps = r.StepTime - r.Parts.Total()
	moved, exposed := sim.Moved-sim.Copied, sim.Exposed-sim.Starved
	if moved > 0 {
		r.Overlap = new(max(1-exposed/moved, 0))
		if *r.Overlap < 1e-9 {
			*r.Overlap = 0 // rounding
		}
	}
}

// addExposed adds the communication that a section's compute stream waits for, n
// times.
func addExposed(to map[string]units.Seconds, sec *section, n units.Seconds) {
	for g, t := range sec.comm {
		if t > 0 {
			to[groupNames[g]] += t * n
		}
	}
}

// load is what the power of a rank follows from.
type load struct {
	time, effort [numWork]units.Seconds // by kind of work, without kernels too small to draw any; the same at full power
	busy         units.Seconds          // in which the card does not idle
	moved        units.Bytes            // by the memory-bound kernels of units
	others       units.Seconds          // memory-bound: the optimizer and the copies of data parallelism
	once, each   units.Seconds          // waits: once in a step, and in every micro batch
	rest         units.Seconds          // and with nothing to do, while the host updates parameters
}

// load is that of a pipeline rank.
func (s *simulation) load(rank int) load {
	if s.pipe != nil {
		return s.pipe.loads[rank]
	}
	l, rest := s.layout.ranks[0].work(s.passesOf())
	moved := units.Seconds(s.sim.Moved - s.sim.Copied)
	l.time[engineWork] += units.Seconds(s.sim.Copied)
	l.rest = units.Seconds(s.step.hosted)
	if s.step.ddp != nil {
		l.once = units.Seconds(s.sim.Exposed)
		moved -= l.once
	}
	l.add(max(units.Seconds(s.sim.Work+s.sim.Inline)-l.busy-rest, 0), moved)
	l.gain(s.step.matrices)
	return l
}

// add adds what is no part of units: memory-bound work, and collectives, which run beside.
func (l *load) add(others, moved units.Seconds) {
	l.others = others
	l.time[memoryWork] += others
	l.effort[memoryWork] += others
	l.busy += others
	l.time[commWork] += moved
	l.effort[commWork] += moved
}

// work is the load of the units of a chunk in so many passes, at their clock, with the time of
// what else they wait for: kernels too small to draw any power, and collectives, whose power
// comes on top of that of idling.
func (c *chunk) work(passes units.Seconds) (l load, rest units.Seconds) {
	list := c.runs
	for i := 0; i < len(list); {
		u, n := list[i], passes
		for i++; i < len(list) && list[i] == u; i++ {
			n += passes
		}
		for _, sec := range [...]*section{&u.forward, &u.backward} {
			for k, t := range sec.time {
				l.time[k] += (t - sec.latent[k]) * n
				l.effort[k] += sec.effort[k] * n
				rest += sec.latent[k] * n
			}
			for _, t := range sec.comm {
				rest += t * n
			}
			rest += sec.pauses * n
			l.moved += sec.moved * units.Bytes(n)
		}
	}
	for k, t := range l.time {
		if k := work(k); k != commWork && k != engineWork {
			l.busy += t
		}
	}
	return l, rest
}

// finish derives the figures that need the whole result.
func (p *pricer) finish(l *layout, r *Result) {
	j := p.job
	gpus := float64(j.GPUs)
	tokens := j.Tokens()
	r.TokensPerSecond = tokens / float64(r.StepTime) / gpus
	r.ModelFLOPs = j.StepFLOPs(true)
	r.Peak = peakOf(j)
	if r.Peak > 0 {
		r.MFU = float64(r.ModelFLOPs) / gpus / float64(r.StepTime) / float64(r.Peak)
	}
	r.HFU = r.MFU
	if j.Train.Recompute != ops.NoRecompute {
		r.HFU = r.MFU * l.recomputeFactor()
	}
	r.Bound = bound(r)
	r.Memory.Host = j.HostMemory() + p.onHost(l)
	p.notes(r)
}

// recomputeFactor is executed over model FLOPs: what is computed once more beside what
// is computed once.
func (l *layout) recomputeFactor() float64 {
	var all, again float64
	for i, u := range l.units {
		all += l.counts[i] * float64(u.forward.flops+u.backward.flops)
		again += l.counts[i] * float64(u.forward.again+u.backward.again)
	}
	return all / (all - again)
}

// peakOf is the dense peak of what matrix multiplies read.
func peakOf(j *strategies.Job) units.FLOPRate {
	d := j.Precision.Operands()
	if d.DType == tape.F32 && j.TF32() {
		d.DType = tape.TF32
	}
	for _, n := range kernel.Formats(d.DType) {
		if v := j.Hardware.GPU.Peak.Of(n); v > 0 {
			return v
		}
	}
	return 0
}

// bound names what most of the step goes to.
func bound(r *Result) string {
	p := &r.Parts
	name, most := "compute", p.GEMM+p.Attention
	for _, x := range [...]struct {
		name string
		time units.Seconds
	}{{"memory", p.Memory}, {"communication", p.Exposed}, {"bubble", p.Bubble}, {"host", p.Host}, {"host_update", p.Update}} {
		if x.time > most {
			name, most = x.name, x.time
		}
	}
	return name
}

// notes adds what makes the number less certain.
func (p *pricer) notes(r *Result) {
	j := p.job
	for _, d := range j.Defaults() {
		r.Notes = append(r.Notes, diag.Note{Code: "job.default", Text: d})
	}
	if !j.Hardware.Own["gemm"] && j.Hardware.Laws.GEMM.On != nil && j.Hardware.Laws.GEMM.On.Name.Value != j.Hardware.GPU.Name.Value {
		r.Notes = append(r.Notes, diag.Note{Code: "hardware.scaled", Text: "kernel times of " + j.Hardware.Name + " are scaled from measurements on a " + j.Hardware.Laws.GEMM.On.Name.Value,
			Remedy: "run perfplan calibrate on the machine"})
	}
	if text := collective.AssumedNetwork(j.Hardware); text != "" && j.GPUs > p.fabric.Island() {
		r.Notes = append(r.Notes, diag.Note{Code: "network.assumed", Text: text,
			Remedy: collective.NetworkRemedy + ", or --set network.bandwidth_per_gpu=400Gbit/s"})
	}
	if text := p.fabric.Release().Assumed(); text != "" && j.GPUs > 1 {
		r.Notes = append(r.Notes, diag.Note{Code: "nccl.assumed", Text: text})
	}
	if has := j.Hardware.Node.HostMemory.Value; has > 0 && r.Memory.Host > has {
		r.Notes = append(r.Notes, diag.Note{Code: "memory.host", Text: fmt.Sprintf("what is left to the hosts does not fit: %.2f of %.2f GiB of a node", float64(r.Memory.Host/units.GiB), float64(has/units.GiB))})
	}
	if m := j.Train.OffloadModules; m != 0 && r.Memory.Host == 0 {
		r.Notes = append(r.Notes, diag.Note{Code: "setting.idle", Text: fmt.Sprintf("train.offload_modules: %s leave nothing to the host: no tensor of theirs has %s elements, or none goes", m, units.Count(float64(j.Train.OffloadLeast()))),
			Remedy: "set train.min_offloaded_tensor_size lower, or leave it out"})
	}
	if p.regathersLayers() {
		r.Notes = append(r.Notes, diag.Note{Code: "recompute.reentrant", Text: "checkpoints that use_reentrant gather the parameters of each layer once more, with nothing beside it",
			Remedy: "set use_reentrant to false, use activation_checkpointing of accelerate's fsdp_config, or transformers 4.52 or later"})
	}
	if note, ok := p.hostNote(r); ok {
		r.Notes = append(r.Notes, note)
	}
	if note, ok := unevenNote(j); ok {
		r.Notes = append(r.Notes, note)
	}
	if j.Unmixed() {
		r.Notes = append(r.Notes, diag.Note{Code: "precision.unsharded", Text: fmt.Sprintf("%s itself would compute in %s: it leaves mixed precision to FSDP, which has nothing to shard beside tp %d and pp %d", j.Recipe.Name, j.Precision.Weights, j.Plan.TP, j.Plan.PP),
			Remedy: "set train.precision fp32 with runtime.tf32 false, or shard over dp or cp"})
	}
	if a := precision(j).Attention; a != j.Precision.Attention {
		r.Notes = append(r.Notes, diag.Note{Code: "attention.narrow", Text: fmt.Sprintf("attention multiplies in %s, as in Megatron-Bridge where whole steps with experts are replayed", a),
			Remedy: fmt.Sprintf("set train.dtypes={attention: %s} to leave it in 16 bits", j.Precision.Compute)})
	}
	if ranks := j.Plan.EP; j.Model.MoE != nil && ranks > 1 && j.Train.Imbalance == 0 && j.Train.Capacity == 0 {
		text, remedy := fmt.Sprintf("each of %d expert ranks is taken to get as many tokens as the others", ranks), "set train.expert_imbalance to what yours does"
		if more := imbalance(j) - 1; more > 0 {
			text = fmt.Sprintf("the busiest of %d expert ranks is taken to get %.1f %% more tokens than the mean, as by %s routing", ranks, 100*more, cmp.Or(j.Train.Routing, strategies.RandomRouting))
		}
		if _, learns := routers[j.Train.Routing]; !learns {
			remedy = "a router that learns is less even: set train.routing=learned, or train.expert_imbalance to what yours does"
		}
		r.Notes = append(r.Notes, diag.Note{Code: "experts.balance", Text: text, Remedy: remedy})
	}
	if replayed(j) == strategies.FullGraphs && j.Model.MoE != nil && j.Train.Capacity == 0 { // device memory of hy3_gb300, calibrate/runs/data/eleventh.yaml
		r.Notes = append(r.Notes, diag.Note{Code: "memory.graphs", Text: "memory: what a CUDA graph of a whole step keeps beside is left out, experts' rows of 1.5 times their mean among it (Megatron-Core, moe_expert_rank_capacity_factor): 15 such steps on GB300 used 1.18 to 1.48 times what is said",
			Remedy: "leave a third of the memory free, or set runtime.cuda_graphs=layers"})
	}
	r.Notes = append(append(r.Notes, j.Remarks()...), j.Idle()...)
	if !r.Memory.Fits {
		r.Notes = append(r.Notes, diag.Note{Code: "memory.overflow", Text: fmt.Sprintf("the job does not fit: %.2f of %.2f GiB", float64(r.Memory.DeviceUsed/units.GiB), float64(r.Memory.Capacity/units.GiB))})
	}
}
