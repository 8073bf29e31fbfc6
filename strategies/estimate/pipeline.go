package estimate

import (
	"sync"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
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
	beside pipeline.Times // the same beside a transfer
	tail   []float64      // by rank: after its last action, gradients and optimizer
	reduce []float64      // part of tail that is data-parallel communication
	opt    []float64
	worst  int
	host   []float64       // host-bound part of a rank's actions
	gather []units.Seconds // by rank: collecting received pieces
	calls  []map[call]int64
	hop    units.Bytes // of one transfer
	sends  []int64     // by rank: transfers of one micro batch
}

// schedule is what a plan of the pipeline depends on.
type schedule struct {
	name    string
	p, v, m int
	mode    pipeline.Transfers
}

// planCache keeps the latest small plans: one serves all rounds of the search for
// the clock, and most candidates of a search for the best job.
type planCache struct {
	mu    sync.Mutex
	plans map[schedule]*pipeline.Plan
	order []schedule
}

var plans planCache

func (c *planCache) get(s schedule) (*pipeline.Plan, error) {
	const most, largest = 32, 1 << 14
	c.mu.Lock()
	plan := c.plans[s]
	c.mu.Unlock()
	if plan != nil {
		return plan, nil
	}
	plan, err := pipeline.ScheduleAs(s.name, s.p, s.v, s.m, s.mode)
	if err != nil || s.p*s.v*s.m > largest {
		return plan, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans == nil {
		c.plans = map[schedule]*pipeline.Plan{}
	}
	if c.plans[s] == nil {
		if len(c.order) == most {
			delete(c.plans, c.order[0])
			c.order = append(c.order[:0], c.order[1:]...)
		}
		c.plans[s] = plan
		c.order = append(c.order, s)
	}
	return plan, nil
}

// runPipeline times each stage and runs the schedule.
func (s *simulation) runPipeline(m *ops.Model) {
	p, j := s.p, s.p.job
	plan, err := plans.get(schedule{j.Plan.PipelineSchedule(j.Recipe), int(j.Plan.PP), int(j.Plan.VirtualStages), int(j.Train.GradAccumulation), p.transfers()})
	if err != nil {
		panic(err) // Plan.Check has asked the same question
	}
	r := &pipelineRun{s: s, plan: plan}
	s.pipe = r
	parts := p.cut(m, plan.ModelStages())
	s.chunks = make([][]*chunk, plan.Ranks)
	for rank := range s.chunks {
		for c := range plan.Chunks {
			s.chunks[rank] = append(s.chunks[rank], parts[plan.ModelStage(plan.Stage(rank, c))])
		}
	}
	n := s.passesOf()
	r.times, r.beside = newTimes(plan), newTimes(plan)
	r.host, r.gather = make([]float64, j.Plan.PP), make([]units.Seconds, j.Plan.PP)
	r.sends = make([]int64, j.Plan.PP)
	var gather units.Seconds
	r.times.Hop, gather, r.hop = p.hop()
	for stage := range plan.Stages() {
		rank, c := plan.Where(stage)
		f, b := p.passes(s.chunks[rank][c])
		p.lags[rank].stretch(&f)
		p.lags[rank].stretch(&b)
		if from, ok := plan.Before(stage); ok && !sameRank(plan, from, stage) {
			f.gather = gather
			r.sends[rank]++ // a gradient
		}
		if from, ok := plan.After(stage); ok && !sameRank(plan, from, stage) {
			b.gather = gather
			r.sends[rank]++ // an activation
		}
		r.gather[rank] += (f.gather + b.gather) * n
		r.times.F[stage], r.times.B[stage] = f.duration(p), b.duration(p)
		r.beside.F[stage], r.beside.B[stage] = f.beside(p), b.beside(p)
		r.host[rank] += float64(n * (r.times.F[stage] + r.times.B[stage] - (f.seg.Busy + b.seg.Busy + f.gather + b.gather)))
		if plan.Splits { // weight gradients apart from input gradients
			w := b.weight * units.Seconds(float64(r.times.B[stage])/max(float64(b.seg.Busy), 1e-12))
			r.times.BW[stage] = min(w, r.times.B[stage])
			r.times.BI[stage] = r.times.B[stage] - r.times.BW[stage]
			slow := r.beside.B[stage] / max(r.times.B[stage], 1e-12)
			r.beside.BW[stage], r.beside.BI[stage] = r.times.BW[stage]*slow, r.times.BI[stage]*slow
		}
	}
	if plan.Transfers == pipeline.Torch {
		r.times.Beside = &r.beside
	}
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

// passTime is one pass of a chunk.
type passTime struct {
	seg    timeline.Segment
	weight units.Seconds // of a backward pass, in weight gradients
	fewer  units.Seconds // that its GEMMs take longer when a transfer holds multiprocessors
	comm   units.Seconds // in collectives that nothing hides
	gather units.Seconds // collecting its received input from the tensor ranks
}

// duration of a pass in the steady state: the device's or the host's, whichever
// is longer, with the runtime's own cost per action.
func (t *passTime) duration(p *pricer) units.Seconds {
	return max(t.seg.Busy, t.seg.Host+p.host.Pipeline*p.speed) + t.gather
}

// beside is duration while one side of a transfer waits for the other: its blocks
// hold multiprocessors but move nothing. That slows GEMMs, whose blocks are as many
// as there are multiprocessors, and leaves other kernels alone (traces of
// interleaved 1F1B on H200: GEMMs 1.55, attention 1.04, the rest 1.00 times their
// time).
func (t *passTime) beside(p *pricer) units.Seconds {
	return max(t.seg.Busy+t.fewer, t.seg.Host+p.host.Pipeline*p.speed) + t.gather
}

func sameRank(plan *pipeline.Plan, a, b int) bool {
	x, _ := plan.Where(a)
	y, _ := plan.Where(b)
	return x == y
}

// newTimes returns Times for the stages of a plan.
func newTimes(plan *pipeline.Plan) (t pipeline.Times) {
	n := plan.Stages()
	t.F, t.B = make([]units.Seconds, n), make([]units.Seconds, n)
	if plan.Splits {
		t.BI, t.BW = make([]units.Seconds, n), make([]units.Seconds, n)
	}
	return t
}

// transfers is how the framework moves data between stages.
func (p *pricer) transfers() pipeline.Transfers {
	switch r := p.job.Recipe; {
	case r.Structure.TorchPipeline:
		return pipeline.Torch
	case r.Overlap.PP:
		return pipeline.Async
	}
	return pipeline.Blocking
}

// passes sums the units of a chunk into its forward and backward pass.
func (p *pricer) passes(c *chunk) (f, b passTime) {
	for _, u := range c.list() {
		f.seg.Add(&u.forward.whole)
		f.fewer += u.forward.fewer
		b.fewer += u.backward.fewer
		f.comm += u.forward.exposed()
		b.comm += u.backward.exposed()
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

// hop is the time of one transfer between stages, and what it then takes to make
// the input whole. Where tensor ranks hold the same activation (no sequence
// parallelism), Megatron sends a part from each to its counterpart, which gathers
// them (arXiv 2104.04473 section 4.1, scatter/gather optimization; DeepSpeed:
// pipe_partitioned). PyTorch sends the whole from each.
func (p *pricer) hop() (transfer, gather units.Seconds, bytes units.Bytes) {
	j := p.job
	tokens := j.Train.MicroBatch * j.Train.SequenceLength / j.Plan.CP
	if j.Plan.SP() {
		tokens /= j.Plan.TP
	}
	size := j.Precision.Compute.Size()
	if j.Precision.Autocast {
		size = j.Precision.Weights.Size()
	}
	bytes = units.Bytes(tokens*j.Model.Hidden) * size
	if r := j.Recipe.Structure; j.Plan.TP > 1 && !j.Plan.SP() && r.SharedTPInput && !r.TorchPipeline {
		gather = p.comm("all-gather", "tp", bytes)
		bytes /= units.Bytes(j.Plan.TP)
	}
	return p.comm("send-recv", "pp", bytes), gather, bytes
}

// ends times what a rank does after its last action.
func (r *pipelineRun) ends(rank int) {
	p := r.s.p
	sim := &timeline.Sim{}
	var whole chunk
	for _, ch := range r.s.chunks[rank] {
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
	scale := 0.0
	if p.job.Recipe.Structure.TorchPipeline && p.job.Train.GradAccumulation > 1 {
		// scale_grads divides the sums by the number of micro batches.
		for _, u := range r.s.chunks[rank][0].list() {
			for _, g := range u.backward.grads {
				k := p.scaled(g.Bytes)
				scale += float64(k.Busy)
			}
		}
	}
	t := sim.Now
	st.optimizerStep()
	r.reduce[rank] *= float64(p.lags[rank].link)
	r.opt[rank] = (sim.Now - t) * float64(p.lags[rank].compute)
	r.tail[rank] = r.reduce[rank] + scale + r.opt[rank]
}

// scaled prices the division of a gradient by a number.
func (p *pricer) scaled(b units.Bytes) timeline.Segment {
	return p.kernelOf(tape.Op{Prim: "scale", Class: tape.Vectorized, Count: 1, Bytes: 2 * b, Elements: float64(b) / 4, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}})
}

// fill writes the schedule's result.
func (r *pipelineRun) fill(out *Result) {
	w := r.worst
	n := r.s.passesOf()
	out.Optimizer = units.Seconds(r.opt[w])
	out.Bubble = r.result.BubbleFraction()
	out.Exposed = map[string]units.Seconds{}
	if r.reduce[w] > 0 {
		out.Exposed["dp"] = units.Seconds(r.reduce[w])
	}
	if t := r.gather[w]; t > 0 {
		out.Exposed["tp"] = t
	}
	finish := r.result.Finish[w]
	if t := finish - r.withoutTransfers(w); t > 0 {
		out.Exposed["pp"] = t
	}
	var kernels [numWork]units.Seconds
	var busy units.Seconds
	out.Forward, out.Backward = 0, 0
	for c, ch := range r.s.chunks[w] {
		for _, u := range ch.list() {
			for _, sec := range []*section{&u.forward, &u.backward} {
				for k, t := range sec.time {
					kernels[k] += t * n * r.s.p.lags[w].compute
				}
				for g, t := range sec.comm {
					out.Exposed[g] += t * n * r.s.p.lags[w].link
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
	slowed := r.result.Slowed[w]
	out.Parts = Parts{GEMM: kernels[gemmWork], Contention: slowed, Attention: kernels[attentionWork], Memory: kernels[memoryWork] + kernels[issueWork],
		Exposed: inline + units.Seconds(r.reduce[w]), Host: units.Seconds(max(r.host[w], 0))}
	out.Parts.Bubble = max(finish-busy-slowed-out.Exposed["pp"], 0)
	out.HostIdle = out.Parts.Host
	out.Parts.Gaps = out.StepTime - out.Parts.Total()
	out.Stages = out.Stages[:0]
	for rank := range r.tail {
		st := Stage{Rank: rank, Busy: r.result.Busy[rank], Bubble: r.result.Bubble[rank]}
		for c, ch := range r.s.chunks[rank] {
			st.Layers += int64(len(ch.layers))
			d, e, _ := ch.params()
			st.Params += d + e
			stage := r.plan.Stage(rank, c)
			st.Forward += r.times.F[stage]
			st.Backward += r.times.B[stage]
		}
		out.Stages = append(out.Stages, st)
	}
}

// withoutTransfers is when a rank would finish if transfers took no time.
func (r *pipelineRun) withoutTransfers(rank int) units.Seconds {
	t := r.times
	t.Hop = 0
	var buf pipeline.Buffer
	return r.plan.Run(t, &buf).Finish[rank]
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
			ch := s.chunks[rank][c]
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
