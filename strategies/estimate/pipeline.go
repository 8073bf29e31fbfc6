package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/pipeline"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// pipelineRun is the step of a job with pipeline parallelism: every stage's passes
// as durations in the schedule's order, and what stands at the ends.
type pipelineRun struct {
	s      *simulation
	plan   *pipeline.Plan
	result pipeline.Result
	times  pipeline.Times
	tail   []float64 // by rank: after its last action, gradients and optimizer
	reduce []float64 // part of tail that is data-parallel communication
	opt    []float64
	worst  int
	host   []float64 // host-bound part of a rank's actions
	calls  []map[call]int64
}

// runPipeline times each stage and runs the schedule.
func (s *simulation) runPipeline(o Options) {
	p, j := s.p, s.p.job
	name := j.Plan.PipelineSchedule(j.Recipe)
	plan, err := pipeline.Schedule(name, int(j.Plan.PP), int(j.Plan.VirtualStages), int(j.Train.GradAccumulation))
	if err != nil {
		panic(err) // Plan.Check has asked the same question
	}
	r := &pipelineRun{s: s, plan: plan}
	s.pipe = r
	stages := plan.Stages()
	r.times.F, r.times.B = make([]units.Seconds, stages), make([]units.Seconds, stages)
	if plan.Splits {
		r.times.BI, r.times.BW = make([]units.Seconds, stages), make([]units.Seconds, stages)
	}
	r.host = make([]float64, j.Plan.PP)
	for stage := range stages {
		rank, c := plan.Where(stage)
		if int64(rank) >= j.Plan.PP {
			continue
		}
		ch := s.chunkOf(plan, rank, c)
		f, b := p.passes(ch)
		n := float64(j.Train.GradAccumulation)
		r.times.F[stage], r.times.B[stage] = f.duration(p), b.duration(p)
		r.host[rank] += n * (float64(r.times.F[stage]+r.times.B[stage]) - float64(f.seg.Busy+b.seg.Busy))
		if plan.Splits { // weight gradients apart from input gradients
			w := b.weight * units.Seconds(float64(r.times.B[stage])/max(float64(b.seg.Busy), 1e-12))
			r.times.BW[stage] = min(w, r.times.B[stage])
			r.times.BI[stage] = r.times.B[stage] - r.times.BW[stage]
		}
	}
	r.times.Hop = p.hop()
	var buf pipeline.Buffer
	r.result = plan.Run(r.times, &buf)
	// The gradients of a stage are reduced in its last backward pass; what that
	// leaves exposed, and the optimizer, come after its last action.
	r.tail, r.reduce, r.opt = make([]float64, j.Plan.PP), make([]float64, j.Plan.PP), make([]float64, j.Plan.PP)
	for rank := range r.tail {
		if p.calls != nil {
			p.calls = map[call]int64{}
			r.calls = append(r.calls, p.calls)
		}
		r.ends(rank)
		if end := float64(r.result.Finish[rank]) + r.tail[rank]; end > s.total {
			s.total, r.worst = end, rank
		}
	}
}

// chunkOf returns the chunk that a rank runs as its c-th.
func (s *simulation) chunkOf(plan *pipeline.Plan, rank, c int) *chunk {
	stage := plan.ModelStage(plan.Stage(rank, c))
	n := int(s.p.job.Plan.PP)
	return s.chunks[stage%n][stage/n]
}

// passTime is one pass of a chunk.
type passTime struct {
	seg    timeline.Segment
	weight units.Seconds // of a backward pass, in weight gradients
}

// duration of a pass in the steady state: the device's or the host's, whichever
// is longer, with the runtime's own cost per action.
func (t *passTime) duration(p *pricer) units.Seconds {
	return max(t.seg.Busy, t.seg.Host+p.host.Pipeline*p.speed)
}

// passes sums the units of a chunk into its forward and backward pass.
func (p *pricer) passes(c *chunk) (f, b passTime) {
	for _, u := range c.list() {
		f.seg.Add(&u.forward.whole)
		for i := range u.backward.ops {
			if o := &u.backward.ops[i]; o.Prim == "linear_wgrad" || o.Prim == "grouped_mm_wgrad" {
				b.weight += u.backward.launches[i].Busy
			}
		}
	}
	list := c.list()
	for i := len(list) - 1; i >= 0; i-- {
		b.seg.Add(&list[i].backward.whole)
	}
	if !p.job.Recipe.Structure.MainGradients && p.job.Train.GradAccumulation > 1 {
		// All micro batches but the first add their gradients to those that are there.
		n := float64(p.job.Train.GradAccumulation)
		share := units.Seconds((n - 1) / n)
		for _, u := range list {
			for _, g := range u.backward.grads {
				add := p.add("accumulate", g.Bytes)
				b.seg.Busy += add.Busy * share
				b.seg.Loaded += add.Loaded * share
				b.seg.Host += add.Host * share
			}
		}
	}
	return
}

// hop is the time from the end of a pass to its neighbour's start.
func (p *pricer) hop() units.Seconds {
	j := p.job
	tokens := j.Train.MicroBatch * j.Train.SequenceLength / j.Plan.CP
	if j.Plan.SP() {
		tokens /= j.Plan.TP
	}
	size := j.Precision.Compute.Size()
	if j.Precision.Autocast {
		size = j.Precision.Weights.Size()
	}
	t := p.comm("send-recv", "pp", units.Bytes(tokens*j.Model.Hidden)*size)
	if j.Recipe.Overlap.PP {
		return t
	}
	return t
}

// ends times what a rank does after its last action.
func (r *pipelineRun) ends(rank int) {
	p := r.s.p
	sim := &timeline.Sim{}
	var whole chunk
	for c := range r.plan.Chunks / r.plan.Copies {
		ch := r.s.chunkOf(r.plan, rank, c)
		if ch.embedding != nil {
			whole.embedding = ch.embedding
		}
		if ch.head != nil {
			whole.head = ch.head
		}
		whole.layers = append(whole.layers, ch.layers...)
	}
	st := p.newStep(&whole, sim)
	if st.ddp != nil || st.shards != nil {
		if st.shards != nil {
			st.shards.forward()
		}
		t := sim.Now
		st.backwardPass(p.job.Train.GradAccumulation-1, true)
		with := sim.Now - t
		_, b := p.passes(&whole)
		r.reduce[rank] = max(with-float64(b.duration(p)), 0)
	}
	t := sim.Now
	st.optimizerStep()
	r.opt[rank] = sim.Now - t
	r.tail[rank] = r.reduce[rank] + r.opt[rank]
}

// fill writes the schedule's result.
func (r *pipelineRun) fill(out *Result) {
	p, j := r.s.p, r.s.p.job
	w := r.worst
	n := units.Seconds(j.Train.GradAccumulation)
	out.Optimizer = units.Seconds(r.opt[w])
	out.Bubble = r.result.BubbleFraction()
	out.Exposed = map[string]units.Seconds{}
	if r.reduce[w] > 0 {
		out.Exposed["dp"] = units.Seconds(r.reduce[w])
	}
	var kernels [numWork]units.Seconds
	var busy units.Seconds
	out.Forward, out.Backward = 0, 0
	for c := range r.plan.Chunks / r.plan.Copies {
		ch := r.s.chunkOf(r.plan, w, c)
		for _, u := range ch.list() {
			for _, sec := range []*section{&u.forward, &u.backward} {
				for k, t := range sec.time {
					kernels[k] += t * n
				}
				for g, t := range sec.comm {
					out.Exposed[g] += t * n
				}
			}
		}
		stage := r.plan.Stage(w, c)
		out.Forward += r.times.F[stage] * n
		out.Backward += r.times.B[stage] * n
		busy += (r.times.F[stage] + r.times.B[stage]) * n
	}
	var inline units.Seconds
	for g, t := range out.Exposed {
		if g != "dp" {
			inline += t
		}
	}
	out.Parts = Parts{GEMM: kernels[gemmWork], Attention: kernels[attentionWork], Memory: kernels[memoryWork] + kernels[issueWork],
		Exposed: inline + units.Seconds(r.reduce[w]), Host: units.Seconds(max(r.host[w], 0))}
	out.Parts.Bubble = max(units.Seconds(float64(r.result.Finish[w])-float64(busy)), 0)
	out.HostIdle = out.Parts.Host
	out.Parts.Gaps = out.StepTime - out.Parts.Total()
	out.Stages = out.Stages[:0]
	for rank := range r.tail {
		st := Stage{Rank: rank, Busy: r.result.Busy[rank], Bubble: r.result.Bubble[rank]}
		for c := range r.plan.Chunks / r.plan.Copies {
			ch := r.s.chunkOf(r.plan, rank, c)
			st.Layers += int64(len(ch.layers))
			d, e, _ := ch.params()
			st.Params += d + e
			stage := r.plan.Stage(rank, c)
			st.Forward += r.times.F[stage]
			st.Backward += r.times.B[stage]
		}
		out.Stages = append(out.Stages, st)
	}
	_ = p
}

// pipelineMemory measures every rank.
func (p *pricer) pipelineMemory(m *ops.Model, r *Result, s *simulation) {
	j := p.job
	plan := s.pipe.plan
	var worst memory.Peak
	for rank := range int(j.Plan.PP) {
		static := memory.Bytes{}
		chunks := make([]memory.Chunk, plan.Chunks)
		held := make([]units.Bytes, plan.Chunks)
		for c := range plan.Chunks {
			ch := s.chunkOf(plan, rank, c)
			list := make([]*ops.Unit, 0, len(ch.layers)+2)
			for _, u := range ch.list() {
				list = append(list, u.Unit)
			}
			first, last := ch.embedding != nil, ch.head != nil
			step := p.memoryStep(list, first, last)
			if c > 0 {
				step.Static[memory.Workspaces] = 0
			}
			for k, b := range step.Static {
				static[k] += b
			}
			chunks[c] = memory.MeasureChunk(step)
			if j.Recipe.Structure.TorchPipeline {
				n := units.Bytes(j.Train.GradAccumulation)
				in, out := list[0].Input, list[len(list)-1].Output
				if !first { // a receive buffer for every micro batch
					static[memory.Activations] += n * in
				}
				if !last { // and one for every gradient; outputs are held until theirs has come
					static[memory.Activations] += n * out
					held[c] = out
				} else {
					chunks[c].KeptOutput = p.logits()
				}
			}
		}
		peak := memory.Rank(static, plan.Actions(rank), chunks, held)
		r.Memory.ByStage = append(r.Memory.ByStage, peak.Allocated)
		if rank < len(r.Stages) {
			r.Stages[rank].PeakAllocated = peak.Allocated
		}
		if peak.Allocated > worst.Allocated {
			worst = peak
		}
	}
	r.Memory.PeakAllocated, r.Memory.By, r.Memory.Moment = worst.Allocated, worst.By, worst.Moment
	p.outside(r)
}

// logits is the size of a micro batch's logits on a rank.
func (p *pricer) logits() units.Bytes {
	j := p.job
	return units.Bytes(j.Train.MicroBatch*j.Train.SequenceLength*j.Model.Vocab) * j.Precision.Compute.Size()
}
