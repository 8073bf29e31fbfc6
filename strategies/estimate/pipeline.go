package estimate

import (
	"slices"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/pipeline"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// pipelineRun is the step of a job with pipeline parallelism: every stage's passes
// as durations in the schedule's order, and what stands at the ends.
type pipelineRun struct {
	s      *simulation
	plan   *pipeline.Plan
	path   *path
	paths  [2]path   // at the full clock, which many plans share, and at the last lower one
	tail   []float64 // by rank: after its last action, gradients and optimizer
	reduce []float64 // part of tail that is data-parallel communication
	opt    []float64
	worst  int       // the rank that the parts of the step are of
	counts []*tally  // by rank, when recorded
	loads  []load    // by rank
	opened []float64 // by rank: what stays exposed of gathers that open its step
	closes []int     // by chunk of the rank at hand: its last action
	bare   pipeline.Buffer
	hops   []units.Seconds
	opens  [][2]timeline.Task // by chunk of the rank at hand: the gathers of its parameters
}

// course is what all passes of a pipeline have in common.
type course struct {
	plan    *pipeline.Plan
	layout  *layout
	wide    bool // gradients kept in a wider dtype
	hop     units.Seconds
	bytes   units.Bytes   // of one transfer
	collect units.Seconds // of received pieces, by the tensor ranks
	batches int64         // micro batches of the step, which drain the pipeline in between
	again   regather
	away    memory.Away // what the host has of activations
}

// path is the critical path of a schedule, with what it follows from.
type path struct {
	course
	clocks []clock
	hops   []units.Seconds // between each two ranks, where they differ
	lags   []lag
	waits  []units.Seconds // by rank: for parameters that are gathered again
	comes  []units.Seconds // by rank: for what comes back from the host

	result pipeline.Result
	times  pipeline.Times
	beside pipeline.Times // the same beside a transfer
	launch pipeline.Launches
	host   []units.Seconds // by rank: for which its passes wait for the host
	gather []units.Seconds // by rank: collecting received pieces
	busy   []units.Seconds // by rank: kernels and gaps of its passes
	slowed []units.Seconds // by rank: of these, by transfers beside them, where the schedule does not say when these run
	sends  []int64         // by rank: transfers of one micro batch
	buffer pipeline.Buffer
}

// schedules are shared by all evaluators.
var schedules pipeline.Cache

// schedule is the job's pipeline schedule, nil without pipeline.
func (p *pricer) schedule() *pipeline.Plan {
	j := p.job
	if j.Plan.PP <= 1 {
		return nil
	}
	plan, err := schedules.Get(j.Plan.PipelineSchedule(j.Recipe), int(j.Plan.PP), int(j.Plan.VirtualStages), int(j.Plan.Fill(&j.Train)), p.transfers())
	if err != nil {
		panic(err) // Plan.Check has asked the same question
	}
	return plan
}

// runPipeline times each stage, runs the schedule and, unless that alone is beyond most, what
// ranks do after it, which only adds to its time.
func (s *simulation) runPipeline(most units.Seconds) {
	p, j, r := s.p, s.p.job, s.pipe
	r.s, r.worst, r.counts = s, 0, r.counts[:0]
	hop, collect, bytes := p.hop()
	r.path = &r.paths[0]
	if slices.ContainsFunc(p.clocks, func(c clock) bool { return c != fullClock }) {
		r.path = &r.paths[1]
	}
	r.hops = p.hops(r.hops[:0], hop, bytes)
	x := r.path
	now := course{plan: r.plan, layout: s.layout, wide: p.keepsWide(), hop: hop, bytes: bytes, collect: collect, batches: j.Train.GradAccumulation, again: p.gathersAgain(), away: p.awayActivations()}
	known := x.course == now && slices.Equal(x.hops, r.hops) && slices.Equal(x.clocks, p.clocks) && slices.Equal(x.lags, p.lags)
	if !known {
		x.course, x.lags = now, p.lags
		x.clocks, x.hops = append(x.clocks[:0], p.clocks...), append(x.hops[:0], r.hops...)
		x.run(s)
	}
	if beyond(x.result.Total, most) {
		s.total = float64(x.result.Total)
		return
	}
	// The gradients of a stage are reduced in its last backward pass; what that
	// leaves exposed, and the optimizer, come after its last action.
	n := int(j.Plan.PP)
	r.tail, r.reduce, r.opt, r.loads = resize(r.tail, n), resize(r.reduce, n), resize(r.opt, n), resize(r.loads, n)
	r.opened = resize(r.opened, n)
	recorded := p.counts != nil
	for rank := range r.tail {
		p.counts = nil // sums counts what passes add
		s.clock(rank)
		r.opened[rank] = r.opening(rank)
		switch before := r.like(rank); {
		case recorded:
			p.counts = newTally()
			r.counts = append(r.counts, p.counts)
			r.ends(rank)
		case before < rank:
			r.tail[rank], r.reduce[rank], r.opt[rank], r.loads[rank] = r.tail[before], r.reduce[before], r.opt[before], r.loads[before]
		default:
			r.ends(rank)
		}
	}
	fill := slices.Min(x.result.Bubble) // the busiest waits for nothing but the first and the last micro batches
	for rank := range r.tail {
		l := &r.loads[rank]
		l.once, l.each = l.once+fill, x.result.Bubble[rank]-fill
		if end := float64(r.path.result.Finish[rank]) + r.tail[rank]; end > s.total {
			s.total, r.worst = end, rank
		}
	}
	if j.Recipe.Optimizer[j.Train.Optimizer].Clip {
		s.total = r.together()
	}
}

// together is the end of a step that clips gradients by the norm of all: no rank
// updates its parameters before every other has reduced its gradients.
func (r *pipelineRun) together() float64 {
	reduced, updated := 0.0, 0.0
	for rank, opt := range r.opt {
		reduced = max(reduced, float64(r.path.result.Finish[rank])+r.tail[rank]-opt)
		updated = max(updated, opt)
	}
	return reduced + updated
}

// like is the first rank that holds the same chunks as this one, at the same clock, and ends alike.
func (r *pipelineRun) like(rank int) int {
	l := r.s.layout
	for i := range rank {
		if l.ranks[i] == l.ranks[rank] && r.s.p.clocks[i] == r.s.p.clocks[rank] && l.stage(r.plan, i, 0) == l.stage(r.plan, rank, 0) && r.s.p.lag(i) == r.s.p.lag(rank) && r.opened[i] == r.opened[rank] && (!r.byChunk() || r.closesLike(i, rank)) {
			return i
		}
	}
	return rank
}

// begin makes room for the times of all ranks.
func (x *path) begin(p *pricer) {
	j, plan := p.job, x.plan
	resizeTimes(&x.times, plan)
	resizeTimes(&x.beside, plan)
	x.host, x.gather, x.busy = cleared(x.host, int(j.Plan.PP)), cleared(x.gather, int(j.Plan.PP)), cleared(x.busy, int(j.Plan.PP))
	x.waits, x.comes = cleared(x.waits, int(j.Plan.PP)), cleared(x.comes, int(j.Plan.PP))
	x.sends, x.slowed = cleared(x.sends, int(j.Plan.PP)), cleared(x.slowed, int(j.Plan.PP))
	x.times.Hop, x.times.Hops, x.times.Beside, x.times.Launches = x.hop, x.hops, nil, nil
	if runsAhead(plan) {
		l, n := &x.launch, plan.Stages()
		l.F, l.B = resize(l.F, n), resize(l.B, n)
		l.BI, l.BW = resize(l.BI, n), resize(l.BW, n)
		x.times.Beside, x.times.Launches = &x.beside, l
	}
}

// run times all stages and runs the schedule.
func (x *path) run(s *simulation) {
	counts := s.p.counts
	s.p.counts = nil // sums counts what passes add
	x.begin(s.p)
	for rank := range x.plan.Ranks {
		s.clock(rank)
		x.time(s, rank)
	}
	x.result = s.p.runSchedule(x.plan, x.times, &x.buffer)
	for rank, t := range x.result.Hosted {
		x.host[rank] += t
	}
	s.p.counts = counts
}

// time sets the times of a rank's stages, priced at its clock.
func (x *path) time(s *simulation, rank int) {
	p, plan := s.p, x.plan
	n := units.Seconds(p.job.Train.GradAccumulation) / units.Seconds(plan.Copies)
	for c := range plan.Chunks {
		stage := plan.Stage(rank, c)
		ch := x.layout.stage(plan, rank, c)
		forward, backward := p.stagePasses(ch)
		f, b := *forward, *backward
		waits := units.Seconds(0)
		if x.again.some() {
			waits = s.gathering(ch, &b, plan)
			b.gather = waits
		}
		comes := p.comeBack(ch, f.duration(p)+b.duration(p))
		b.gather += comes
		p.lag(rank).stretch(&f)
		p.lag(rank).stretch(&b)
		if from, ok := plan.Before(stage); ok && !sameRank(plan, from, stage) {
			f.gather = x.collect
			x.sends[rank]++ // a gradient
		}
		if from, ok := plan.After(stage); ok && !sameRank(plan, from, stage) {
			b.gather += x.collect
			x.sends[rank]++ // an activation
		}
		x.gather[rank] += (f.gather + b.gather - waits - comes) * n
		x.waits[rank] += waits * n
		x.comes[rank] += comes * n
		x.busy[rank] += (f.busy + b.busy) * n
		x.times.F[stage], x.times.B[stage] = f.alone(p, plan), b.alone(p, plan)
		if p.stops(plan) {
			x.times.F[stage], x.times.B[stage] = p.stopped(plan, stage, &f, &b)
		}
		if plan.Transfers == pipeline.Async {
			hop := x.longest(rank)
			slowF, slowB := f.besideTransfer(hop), b.besideTransfer(hop)
			x.times.F[stage] += slowF
			x.times.B[stage] += slowB
			x.slowed[rank] += (slowF + slowB) * n
			x.host[rank] -= (slowF + slowB) * n
		}
		if runsAhead(plan) {
			own := p.action(plan)
			x.launch.F[stage], x.launch.B[stage] = f.launch(own, 1), b.launch(own, 1)
		}
		x.beside.F[stage], x.beside.B[stage] = x.times.F[stage]+f.fewer, x.times.B[stage]+b.fewer
		x.host[rank] += n * (x.times.F[stage] + x.times.B[stage] - (f.busy + b.busy + f.gather + b.gather))
		if plan.Splits { // weight gradients apart from input gradients
			w := b.weight * units.Seconds(float64(x.times.B[stage])/max(float64(b.seg.Busy), 1e-12))
			x.times.BW[stage] = min(w, x.times.B[stage])
			x.times.BI[stage] = x.times.B[stage] - x.times.BW[stage]
			slow := x.beside.B[stage] / max(x.times.B[stage], 1e-12)
			x.beside.BW[stage], x.beside.BI[stage] = x.times.BW[stage]*slow, x.times.BI[stage]*slow
			if runsAhead(plan) {
				own, share, parts := p.action(plan), x.times.BW[stage]/max(x.times.B[stage], 1e-12), units.Seconds(max(p.host.PartedPass, 1))
				x.launch.BI[stage], x.launch.BW[stage] = b.launch(own, parts*(1-share)), b.launch(own, parts*share)
			}
		}
	}
}

// runSchedule runs a schedule. Where the optimizer looks at norm and overflow only after
// its update, no rank waits for the others at the end of a step.
func (p *pricer) runSchedule(plan *pipeline.Plan, t pipeline.Times, b *pipeline.Buffer) pipeline.Result {
	r := plan.Run(t, b)
	r.Repeat(int(p.job.Train.GradAccumulation / p.job.Plan.Fill(&p.job.Train)))
	if rolls(plan, p.job.Recipe) {
		r.Roll()
	}
	return r
}

// rolls reports whether a rank begins its next step without waiting for the others.
func rolls(plan *pipeline.Plan, r *recipe.Recipe) bool {
	return plan.OpenEnds && r.Structure.PostValidation
}

// stage is the chunk that a rank runs as its c-th.
func (l *layout) stage(plan *pipeline.Plan, rank, c int) *chunk {
	return l.stages[plan.ModelStage(plan.Stage(rank, c))]
}

// passTime is one pass of a chunk.
type passTime struct {
	seg    timeline.Segment
	busy   units.Seconds // of the device in kernels and gaps: seg.Busy without the waits for the host
	weight units.Seconds // of a backward pass, in weight gradients
	// That its GEMMs take longer while one side of a transfer waits for the other: its
	// blocks hold multiprocessors but move nothing. That slows GEMMs, whose blocks are as
	// many as there are multiprocessors, and leaves other kernels alone (traces of
	// interleaved 1F1B on H200: GEMMs 1.55, attention 1.04, the rest 1.00 times their time).
	fewer  units.Seconds
	sync   bool             // the host waits for the device on the way
	rest   timeline.Segment // what follows the last such wait
	comm   units.Seconds    // in collectives that nothing hides
	gather units.Seconds    // collecting its received input from the tensor ranks
}

// runs adds a section to a pass.
func (t *passTime) runs(s *section) {
	if len(s.waits) == 0 {
		t.seg.Add(&s.whole)
		t.rest.Add(&s.whole)
		return
	}
	for i := range s.parts {
		g := &s.parts[i].Segment
		t.seg.Add(g)
		if t.rest.Add(g); g.Sync {
			t.sync, t.rest = true, timeline.Segment{}
		}
	}
}

// duration of a pass in the steady state: the device's or the host's, whichever
// is longer, with the runtime's own cost per action.
func (t *passTime) duration(p *pricer) units.Seconds {
	return max(t.seg.Busy, t.seg.Host+p.host.Pipeline*p.python) + t.gather
}

// besideTransfer is what a pass loses to the one transfer that it has beside it in Megatron's
// interleaved schedule, which sends and receives at once (p2p_communication.py).
func (t *passTime) besideTransfer(hop units.Seconds) units.Seconds {
	return t.fewer * min(hop/max(t.seg.Busy, 1e-12), 1)
}

// longest is a rank's longest transfer.
func (x *path) longest(rank int) units.Seconds {
	if n := len(x.busy); len(x.hops) > 0 {
		return slices.Max(x.hops[rank*n : (rank+1)*n])
	}
	return x.hop
}

// alone is how long a pass takes once its input is there: where hosts run ahead it is
// launched by then. Where they stop it takes no less.
func (t *passTime) alone(p *pricer, plan *pipeline.Plan) units.Seconds {
	switch {
	case runsAhead(plan):
		return t.seg.Busy + t.gather
	case p.stops(plan):
		return max(t.seg.Busy, t.seg.Host) + t.gather
	}
	return t.duration(p)
}

// stops reports whether hosts wait for the device at each transfer, so that it idles until
// they have launched what comes next.
func (p *pricer) stops(plan *pipeline.Plan) bool {
	return p.job.Recipe.Structure.SyncTransfers && plan.Transfers == pipeline.Blocking
}

// stopped is how long the passes of a stage take where hosts stop at each transfer. A pass
// that follows another without a transfer in between goes on where the host is: in 1F1B a
// backward of the last stage and a forward of the first, which has its warm-up ones counted
// alike; of several chunks a backward behind the forward of its turn (Megatron-LM,
// core/pipeline_parallel/schedules.py).
func (p *pricer) stopped(plan *pipeline.Plan, stage int, f, b *passTime) (forward, backward units.Seconds) {
	own := p.host.Pipeline * p.python
	forward, backward = own+idle(&f.seg), own+idle(&b.seg)
	_, before := plan.Before(stage)
	_, after := plan.After(stage)
	switch both := f.seg; {
	case !plan.Alternates():
	case !after || plan.Chunks > 1:
		both.Add(&b.seg)
		backward = own + idle(&both) - forward
	case !before:
		both = b.seg
		both.Add(&f.seg)
		forward = own + idle(&both) - backward
	}
	return forward + f.gather, backward + b.gather
}

// idle is how long passes take that begin on an idle device, until their host is free, too.
func idle(s *timeline.Segment) units.Seconds { return max(s.Lag, s.Host) }

// launch is what the host takes for a share of a pass, with what the runtime takes before it.
func (t *passTime) launch(runtime, share units.Seconds) pipeline.Launch {
	return pipeline.Launch{Host: runtime + t.seg.Host*share, Lag: runtime + t.seg.Lag*share, Sync: t.sync, Ahead: max(t.rest.Lag-t.rest.Host, 0) * share}
}

// action is what the pipeline's runtime takes on the host for each pass.
func (p *pricer) action(plan *pipeline.Plan) units.Seconds {
	if plan.Listed() && p.host.Runtime > 0 {
		return p.host.Runtime * p.python
	}
	return p.host.Pipeline * p.python
}

// runsAhead reports whether hosts launch passes without waiting for what these receive.
func runsAhead(plan *pipeline.Plan) bool { return plan.Transfers != pipeline.Blocking }

func sameRank(plan *pipeline.Plan, a, b int) bool {
	x, _ := plan.Where(a)
	y, _ := plan.Where(b)
	return x == y
}

// resizeTimes makes room for the stages of a plan.
func resizeTimes(t *pipeline.Times, plan *pipeline.Plan) {
	n := plan.Stages()
	t.F, t.B = resize(t.F, n), resize(t.B, n)
	if t.BI, t.BW = t.BI[:0], t.BW[:0]; plan.Splits {
		t.BI, t.BW = resize(t.BI, n), resize(t.BW, n)
	}
}

// resize returns s with n elements of any value, reusing its memory.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// cleared is resize with zeros.
func cleared[T any](s []T, n int) []T {
	s = resize(s, n)
	clear(s)
	return s
}

// transfers is how the framework moves data between stages.
func (p *pricer) transfers() pipeline.Transfers {
	switch r := p.job.Recipe; {
	case r.Structure.TorchPipeline && r.Structure.StepsInLine:
		return pipeline.InStep
	case r.Structure.TorchPipeline:
		return pipeline.Torch
	case r.Overlap.PP && (p.job.Plan.VirtualStages > 1 || !r.Structure.SyncTransfers):
		return pipeline.Async
	}
	return pipeline.Blocking
}

// passes sums the units of a chunk into its forward and backward pass, without what
// data parallelism adds.
func (p *pricer) passes(c *chunk) (f, b *passTime) { return p.passesOf(c, false) }

// stagePasses is passes with gradients kept as the job's data parallelism keeps them.
func (p *pricer) stagePasses(c *chunk) (f, b *passTime) { return p.passesOf(c, p.keepsWide()) }

// passesOf sums the passes of a chunk, or returns those that it has. They must not be changed.
func (p *pricer) passesOf(c *chunk, wide bool) (f, b *passTime) {
	x := &c.passes
	if key := (passesKey{p.ratio, p.job.Train.GradAccumulation, wide}); x.passesKey != key {
		x.passesKey = key
		x.forward, x.backward = p.sum(c, wide)
	}
	return &x.forward, &x.backward
}

func (p *pricer) sum(c *chunk, wide bool) (f, b passTime) {
	list := c.runs
	f.seg.Host, b.seg.Host = p.host.Pass*p.python, p.host.Pass*p.python
	for _, u := range list {
		f.runs(&u.forward)
		f.busy += u.forward.whole.Busy
		f.fewer += u.forward.fewer
		b.fewer += u.backward.fewer
		f.comm += u.forward.exposed()
		b.comm += u.backward.exposed()
		b.weight += u.backward.weight
	}
	for i := len(list) - 1; i >= 0; i-- {
		b.runs(&list[i].backward)
		b.busy += list[i].backward.whole.Busy
	}
	if !p.job.Recipe.Structure.AddsGradients(&p.job.Precision) && p.job.Train.GradAccumulation > 1 {
		// All micro batches but the first add their gradients to those that are there.
		n := float64(p.job.Train.GradAccumulation)
		share := units.Seconds((n - 1) / n)
		for _, u := range list {
			for _, g := range u.backward.grads {
				if !wide {
					b.add(p.kernelOf(sum("accumulate", g.Bytes)), share)
					continue
				}
				b.add(p.kernelOf(p.kept(g.Bytes, true)), 1-share)
				b.add(p.kernelOf(p.kept(g.Bytes, false)), share)
			}
		}
	}
	return
}

// add is so much of a kernel that a pass runs on average.
func (b *passTime) add(k timeline.Segment, share units.Seconds) {
	b.seg.Busy += k.Busy * share
	b.busy += k.Busy * share
	b.seg.Loaded += k.Loaded * share
	b.seg.Host += k.Host * share
	b.seg.Lag = max(b.seg.Lag, b.seg.Busy) // among the others: a device that waits for its host has run it by then
}

// keepsWide reports whether FSDP2 keeps the gradients of micro batches in a wider dtype
// than autograd makes them.
func (p *pricer) keepsWide() bool {
	return p.job.Plan.DataParallel == strategies.FSDP2 && p.job.Precision.Reduce.Size() > p.gradSize()
}

// kept is how it keeps one of the given size.
func (p *pricer) kept(b units.Bytes, first bool) tape.Op {
	n := b / p.gradSize()
	return keep(float64(n), b, n*p.job.Precision.Reduce.Size(), first)
}

// hop is the time of one transfer between stages, and what it then takes to make
// the input whole. Where tensor ranks hold the same activation (no sequence
// parallelism), Megatron sends a part from each to its counterpart, which gathers
// them (arXiv 2104.04473 section 4.1, scatter/gather optimization; DeepSpeed:
// pipe_partitioned). PyTorch sends the whole from each, and so did Megatron before.
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
	bytes = units.Bytes(tokens*j.Model.Handed()) * size
	if r := j.Recipe.Structure; j.Plan.TP > 1 && !j.Plan.SP() && r.SharedTPInput && !r.TorchPipeline && !r.WholeSends {
		gather = p.comm(collective.AllGather, tpGroup, bytes)
		bytes /= units.Bytes(j.Plan.TP)
	}
	return p.exchange(p.comm(collective.SendRecv, ppGroup, bytes), true), gather, bytes
}

// exchange is the time of a transfer between two stages that alone takes t. Where hosts
// deal with one tensor after the other, those of both directions, it is that of them all;
// a stage without layers takes in no mask.
func (p *pricer) exchange(t units.Seconds, layers bool) units.Seconds {
	if p.host.Transfer <= 0 {
		return t
	}
	tensors := 2
	if layers && p.job.Recipe.Structure.SendsMask {
		tensors++
	}
	return 2*t + units.Seconds(tensors)*p.host.Transfer*p.python
}

// hops appends the times of transfers between each two pipeline ranks, where these
// differ: logits are larger than what layers send, a slow link slows the transfers that
// cross it, and an order that counts something after pipeline ranks may have some of them
// share a node.
func (p *pricer) hops(out []units.Seconds, hop units.Seconds, bytes units.Bytes) []units.Seconds {
	l, island := &p.job.Plan, p.fabric.Island()
	apart := l.Strides().PP
	serial := p.host.Transfer > 0
	differ := (l.Order != "" || serial) && apart < island && apart*l.PP > island
	slow := slices.ContainsFunc(p.lags, func(l lag) bool { return l.link > 1 })
	loss := l.LossApart(p.job.Model, p.job.Recipe)
	empty := serial && slices.Contains(l.SplitLayers(p.job.Model, p.job.Recipe, p.job.Model.Layers, l.PP*l.VirtualStages), 0)
	if !differ && !slow && !empty {
		return out
	}
	head := l.PP - 1
	if loss {
		head--
	}
	bare := p.exchange(p.comm(collective.SendRecv, ppGroup, bytes), false) // the head's, and only it and the loss have no layers
	across := hop
	if differ {
		across = p.exchange(p.alone(collective.SendRecv, bytes, p.fabric.Group(2, island))*p.own, true)
	}
	for a := range l.PP {
		for b := range l.PP {
			t := hop
			if a*apart/island != b*apart/island {
				t = across
			}
			switch last := max(a, b); {
			case loss && min(a, b) == l.PP-2: // logits and their gradient
				t = p.exchange(p.comm(collective.SendRecv, ppGroup, p.logits()), false)
			case empty && t == hop && last >= head:
				t = bare
			}
			out = append(out, t*max(p.lag(int(a)).link, p.lag(int(b)).link))
		}
	}
	return out
}

// ends times what a rank does after its last action.
func (r *pipelineRun) ends(rank int) {
	p, sim, st := r.s.p, &r.s.sim, &r.s.step
	sim.Reset()
	whole := r.s.layout.ranks[rank]
	st.begin(p, whole, sim)
	r.reduce[rank] = 0
	if st.ddp != nil || st.shards != nil || st.listed != nil {
		if st.shards != nil || st.listed != nil {
			st.forwardPass(0)
		}
		if st.shards != nil && p.counts != nil && r.path.again.some() {
			st.shards.countGathers(p.job.Train.GradAccumulation)
		}
		t := sim.Now
		switch {
		case p.job.Recipe.Structure.TorchPipeline && st.shards != nil:
			st.shards.scatterAll()
			r.reduce[rank] = sim.Now - t
		case st.ddp != nil && r.byChunk() && !r.sharesTable(whole):
			r.reduce[rank] = r.chunkwise(rank)
			st.begin(p, whole, sim)
		default:
			st.backwardPass(p.job.Train.GradAccumulation-1, true)
			_, b := p.stagePasses(whole)
			r.reduce[rank] = max(sim.Now-t-float64(b.duration(p)), 0)
		}
	}
	rest := 0.0
	if o, ok := r.merge(rank); ok {
		k := p.kernelOf(o)
		rest += float64(k.Busy)
	}
	if p.job.Recipe.Structure.ScaledSums && p.job.Train.GradAccumulation > 1 {
		for _, u := range r.s.layout.stage(r.plan, rank, 0).list {
			for _, g := range u.backward.grads {
				k := p.kernelOf(p.scaling(g.Bytes))
				rest += float64(k.Busy)
			}
		}
	}
	t, work, exposed := sim.Now, sim.Work, sim.Exposed
	st.opening = r.opened[rank] // below 0: gathers hide behind nothing
	st.optimizerStep()
	r.reduce[rank] += float64(r.tied(whole))
	r.reduce[rank] *= float64(p.lag(rank).link)
	r.opt[rank] = (sim.Now - t) * float64(p.lag(rank).compute)
	r.tail[rank] = r.reduce[rank] + rest + r.opt[rank]
	l, others := r.s.layout.ranks[rank].work(r.s.passesOf())
	l.add(max(r.path.busy[rank]-l.busy-others, 0)+units.Seconds(sim.Work-work), 0)
	l.gain(st.matrices)
	l.rest = units.Seconds(st.hosted)
	r.loads[rank] = l
	r.loads[rank].once = units.Seconds(r.reduce[rank] + sim.Exposed - exposed)
}

// tied is the time in which the ranks of embedding and head, where these share a weight
// but no rank, add up its gradients (Megatron-LM: allreduce_embedding_grads; DeepSpeed:
// allreduce_tied_weight_gradients).
func (r *pipelineRun) tied(c *chunk) units.Seconds {
	p := r.s.p
	j := p.job
	var u *unit
	switch {
	case !j.SharesTable() || j.Recipe.Structure.TorchPipeline || (c.embedding == nil) == (c.head == nil):
		return 0
	case c.head != nil:
		u = c.head
	default:
		u = c.embedding
	}
	var table int64
	for i := range u.Params {
		if p := &u.Params[i]; p.TiedCopy || p.Role == model.RoleEmbed {
			table = p.Local
		}
	}
	return p.comm(collective.AllReduce, embeddingGroup, units.Bytes(table)*j.Precision.Gradients.Size())
}

// merge is how PyTorch's schedules join the outputs of all micro batches on the rank
// that has the head (torch/distributed/pipelining/schedules.py, _merge_outputs). Long
// pieces move at the rate of the copies that split one buffer: 3.1 TB/s for 1 GB of
// logits in the trace of a pipeline on H200.
func (r *pipelineRun) merge(rank int) (tape.Op, bool) {
	j := r.s.p.job
	if !j.Recipe.Structure.TorchPipeline || j.Recipe.Structure.DroppedOutputs || r.s.layout.ranks[rank].head == nil {
		return tape.Op{}, false
	}
	b := units.Bytes(j.Train.GradAccumulation) * r.s.p.logits()
	return tape.Op{Prim: "merge_outputs", Class: tape.SplitCopy, Count: 1, Elements: float64(b / j.Precision.Compute.Size()), Bytes: 2 * b,
		Phase: tape.Forward, Host: tape.HostWork{Calls: 1}}, true
}

// scaling is the division of what a rank holds of the sum of gradients of the given size,
// as autograd makes them, by the number of micro batches.
func (p *pricer) scaling(b units.Bytes) tape.Op {
	if p.job.Plan.DataParallel.ShardsParameters() {
		b = b / p.gradSize() * p.job.Precision.Gradients.Size() / units.Bytes(p.groups[shardGroup].Ranks)
	}
	return tape.Op{Prim: "scale", Class: tape.Vectorized, Count: 1, Bytes: 2 * b, Elements: float64(b) / 4, Phase: tape.Backward, Host: tape.HostWork{Calls: 1}}
}

// fill writes the schedule's result.
func (r *pipelineRun) fill(out *Result) {
	x := r.path
	for rank, busy := range x.result.Busy { // the rank that the others wait for
		if busy > x.result.Busy[r.worst]*(1+1e-9) {
			r.worst = rank
		}
	}
	w := r.worst
	r.s.clock(w)
	n := r.s.passesOf()
	out.Optimizer = units.Seconds(r.opt[w])
	out.Bubble = x.result.BubbleFraction()
	out.Exposed = map[string]units.Seconds{}
	if t := units.Seconds(r.reduce[w]) + x.waits[w]; t > 0 {
		out.Exposed["dp"] = t
	}
	if t := x.gather[w]; t > 0 {
		out.Exposed["tp"] = t
	}
	if t := x.comes[w]; t > 0 {
		out.Exposed["host"] = t
	}
	var kernels [numWork]units.Seconds
	out.Forward, out.Backward = 0, 0
	for c := range r.plan.Chunks {
		for _, u := range r.s.layout.stage(r.plan, w, c).runs {
			for _, sec := range []*section{&u.forward, &u.backward} {
				for k, t := range sec.time {
					kernels[k] += t * n * r.s.p.lag(w).compute
				}
				addExposed(out.Exposed, sec, n*r.s.p.lag(w).link)
			}
		}
		stage := r.plan.Stage(w, c)
		f, b := x.pace(stage)
		out.Forward += f * n
		out.Backward += b * n
	}
	// What a rank is not busy goes to contention, transfers and the bubble, in this order:
	// the first two are differences of schedules, which may be more than there is.
	finish := x.result.Finish[w]
	if passes := out.Forward + out.Backward; passes > finish { // what the host is behind by in some, it makes up for in others
		out.Forward, out.Backward = out.Forward*(finish/passes), out.Backward*(finish/passes)
	}
	slowed := max(x.result.Slowed[w], 0) + x.slowed[w]
	left := max(finish-x.result.Busy[w], 0)
	if t := min(finish-r.withoutTransfers(w), left); t > 0 {
		out.Exposed["pp"] = t
		left -= t
	}
	var inline units.Seconds
	for g, name := range groupNames { // in a fixed order, for the last digit
		if group(g) != dpGroup {
			inline += out.Exposed[name]
		}
	}
	out.Parts = Parts{GEMM: kernels[gemmWork], Attention: kernels[attentionWork], Memory: kernels[memoryWork] + kernels[issueWork],
		Exposed: inline + units.Seconds(r.reduce[w]) + x.waits[w] + x.comes[w], Host: max(x.host[w], 0), Update: r.loads[w].rest}
	out.Parts.Bubble = left + max(out.StepTime-finish-units.Seconds(r.tail[w]), 0) // others end later
	out.HostIdle = out.Parts.Host + out.Parts.Update
	out.Parts.Contention = min(slowed, max(out.StepTime-out.Parts.Total(), 0))
	out.Parts.Gaps = out.StepTime - out.Parts.Total()
	out.Stages = out.Stages[:0]
	for rank := range r.tail {
		st := Stage{Rank: rank, Busy: x.result.Busy[rank], Bubble: x.result.Bubble[rank], Clock: r.s.p.clockOf(rank)}
		for c := range r.plan.Chunks {
			ch := r.s.layout.stage(r.plan, rank, c)
			for _, u := range ch.layers {
				st.Layers += u.Layers
			}
			st.Params += ch.dense + ch.expert + ch.frozen[0] + ch.frozen[1]
			stage := r.plan.Stage(rank, c)
			f, b := x.pace(stage)
			st.Forward += f
			st.Backward += b
		}
		out.Stages = append(out.Stages, st)
	}
}

// pace is how long the passes of a stage take where many follow one another.
func (x *path) pace(stage int) (f, b units.Seconds) {
	f, b = x.times.F[stage], x.times.B[stage]
	if l := x.times.Launches; l != nil {
		f, b = max(f, l.F[stage].Host), max(b, l.B[stage].Host)
	}
	return f, b
}

// withoutTransfers is when a rank would finish if transfers took no time.
func (r *pipelineRun) withoutTransfers(rank int) units.Seconds {
	t := r.path.times
	t.Hop, t.Hops = 0, nil
	return r.s.p.runSchedule(r.plan, t, &r.bare).Finish[rank]
}
