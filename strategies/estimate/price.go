package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// kind of work, for power and for contention.
type work uint8

const (
	gemmWork work = iota
	attentionWork
	memoryWork
	issueWork
	commWork
	engineWork // pieces that copy engines exchange beside a GEMM
	numWork
)

var workNames = [numWork]string{"gemm", "attention", "memory", "issue", "collective", "copy-engine"}

// workOf sorts kernel classes by what limits them.
func workOf(c tape.Class) work {
	switch c {
	case tape.GEMM, tape.GroupedGEMM, tape.LossBlocks, tape.LossAdds, tape.LossKept:
		return gemmWork
	case tape.Attention:
		return attentionWork
	case tape.Unrolled, tape.UnrolledMix, tape.Strided2, tape.Strided4, tape.Transposed, tape.TransposedAgain, tape.StridedCast, tape.Concat, tape.MidReduce, tape.ScatterAdd, tape.SerialAdd, tape.AtomicAdd, tape.EmbedDirect, tape.EmbedSort, tape.ChunkCat:
		return issueWork
	case tape.Collective:
		return commWork
	}
	return memoryWork
}

// pricer turns ops into launches for one job.
type pricer struct {
	*machine
	job     *strategies.Job
	host    *recipe.Host
	speed   units.Seconds // time factor of the calls a host makes of the libraries and the driver
	python  units.Seconds // and of its Python
	graphs  string        // what is replayed from CUDA graphs
	hides   units.Seconds // share of the exchanges between experts that run beside another micro batch
	block   bool          // the host waits for every kernel: what it does between two is time of the device
	issue   units.Seconds // host cost of a collective of data parallelism
	check   units.Seconds // and of a check of gradients before it; below 0: not asked for yet
	ordered bool          // kernels of all streams start in the order of their launches
	groups  [numGroups]collective.Group
	clock                 // of the rank at hand
	clocks  []clock       // of all pipeline ranks
	most    []clock       // of these: a rank that waits for a straggler gains nothing by a higher one; empty: the full clock
	rounds  int           // of the search for them
	own     units.Seconds // time factor of everything: what the user's own runs took, over their predictions
	pace    units.Seconds // time factor of kernels, with that: the slowest of several ranks sets it
	uneven  units.Seconds // and of those of passes: the longest of several ranks' batches
	across  units.Seconds // time factor of collectives across nodes that nobody measured, of a network slower than said; 0: as said
	lags    []lag         // by pipeline rank; nil where nobody is slow
	prices  [prices]price
	filling filled // while it is not known whether it is like another
	counts  *tally // of what is no part of a unit, when recorded
}

// begin readies the pricer for a job on its machine.
func (p *pricer) begin(j *strategies.Job) {
	p.job, p.host, p.speed, p.python, p.clock, p.most, p.rounds, p.counts = j, &j.Recipe.Host, 1, 1, fullClock, p.most[:0], 0, nil
	p.clocks = resize(p.clocks, int(max(j.Plan.PP, 1)))
	for rank := range p.clocks {
		p.clocks[rank] = fullClock
	}
	if l := j.Hardware.Laws; l.Launch.Host > 0 {
		p.speed = units.Seconds(1 / l.Launch.Host)
		p.python = units.Seconds(1 / cmp.Or(l.Launch.Python, l.Launch.Host))
	}
	for _, f := range [...]float64{j.Recipe.Host.Speed, j.Runtime.HostSpeed} {
		if f > 0 {
			p.speed /= units.Seconds(f)
			p.python /= units.Seconds(f)
		}
	}
	if j.GPUs > 1 { // ranks wait for each other, and so for the slowest of their hosts
		slowest := units.Seconds(1 + j.Recipe.Host.Skew*expectedMaximum(j.GPUs))
		p.speed *= slowest
		p.python *= slowest
	}
	if p.graphs = replayed(j); p.graphs == strategies.FullGraphs {
		p.speed, p.python = 0, 0
	}
	p.hides = hiddenExchanges(j)
	p.block = j.Runtime.LaunchBlocking != nil && *j.Runtime.LaunchBlocking
	if p.own = 1; j.Runtime.OwnRuns != nil {
		p.own = units.Seconds(j.Runtime.OwnRuns.Ratio)
	}
	p.speed *= p.own
	p.python *= p.own
	p.issue, p.check = p.host.Primitives["collective"]*p.python, -1
	p.ordered = j.OneConnection()
	p.lags, p.pace = lagsOf(j), p.own
	if j.GPUs > 1 {
		p.pace *= units.Seconds(p.law.skew * (1 + j.Runtime.Jitter*expectedMaximum(j.GPUs)))
	}
	if len(p.lags) == 1 { // of a pipeline, only some stages are slow: lag.stretch
		p.pace *= p.lags[0].compute
	}
	p.uneven = units.Seconds(longestBatch(j))
	p.placeGroups()
}

// lag is how slow a pipeline rank is.
func (p *pricer) lag(rank int) lag {
	if p.lags == nil {
		return lag{1, 1}
	}
	return p.lags[rank]
}

// placeGroups lays the parallel groups on the machine in the plan's order.
func (p *pricer) placeGroups() {
	l, g := &p.job.Plan, &p.groups
	at := l.Strides()
	group := p.fabric.Group
	if p.job.GPUs > p.fabric.Island() {
		group = p.fabric.Straddling
	}
	g[tpGroup] = group(l.TP, at.TP)
	g[cpGroup] = group(l.CP, at.CP)
	g[expertTPGroup] = group(l.ExpertTP, at.ExpertTP)
	g[amaxGroup] = p.amaxRanks(at)
	g[epGroup] = group(l.EP, at.EP)
	if m, nodes := p.job.Model.MoE, g[epGroup].Nodes(); m != nil && nodes > 1 {
		reach := ops.Reach
		if p.job.Train.Routing == strategies.InTurnRouting {
			reach = ops.ReachInTurn
		}
		g[epGroup].Spread = reach(m, l.EP) / reach(m, nodes)
	}
	dp := l.DP * l.CP // context ranks hold the same parameters
	shard := min(l.Shard(), dp)
	inner := at.CP // of the two, where there are both
	if l.CP == 1 || l.DP > 1 && at.DP < at.CP {
		inner = at.DP
		g[dpGroup] = p.fabric.Grid(l.DP, at.DP, l.CP, at.CP)
	} else {
		g[dpGroup] = p.fabric.Grid(l.CP, at.CP, l.DP, at.DP)
	}
	if g[shardGroup], g[replicaGroup] = g[dpGroup], p.fabric.Group(1, 1); shard < dp {
		g[shardGroup], g[replicaGroup] = p.fabric.Group(shard, inner), p.fabric.Group(dp/shard, inner*shard)
	}
	g[ppGroup] = p.fabric.Group(min(l.PP, 2), at.PP)
	g[embeddingGroup] = p.fabric.Group(min(l.PP, 2), at.PP*(l.PP-1))
	// Experts are spread over tensor, context and data ranks alike; what is left shares copies of them.
	if l.EP == 1 && l.ExpertTP == 1 { // not spread: experts go with the rest
		g[expertDPGroup], g[expertShardGroup], g[expertReplicaGroup] = g[dpGroup], g[shardGroup], g[replicaGroup]
		return
	}
	edp := max(l.TP*dp/(l.EP*l.ExpertTP), 1)
	g[expertDPGroup] = p.fabric.Group(edp, at.ExpertDP)
	each := max(edp/(dp/shard), 1) // of the ranks that share one copy of all
	g[expertShardGroup], g[expertReplicaGroup] = p.fabric.Group(each, at.ExpertDP), p.fabric.Group(edp/each, at.ExpertDP*each)
}

// inLayers are the groups whose collectives belong to the units of a model.
type inLayers [amaxGroup + 1]collective.Group

func (p *pricer) inLayers() inLayers { return inLayers(p.groups[:amaxGroup+1]) }

// comm is the time of a collective alone. It counts the call.
func (p *pricer) comm(op collective.Op, g group, bytes units.Bytes) units.Seconds {
	t := p.commTime(op, g, bytes)
	if p.counts != nil && t > 0 {
		p.counts.calls[call{op, g, bytes}]++
	}
	return t
}

// prices is how many collectives a pricer remembers: a step has some dozens.
const prices = 512

// price is a collective with its time.
type price struct {
	op    collective.Op
	group collective.Group
	bytes units.Bytes
	time  units.Seconds
}

func (p *pricer) commTime(op collective.Op, group group, bytes units.Bytes) units.Seconds {
	g := p.groups[group]
	if g.Ranks <= 1 || bytes <= 0 {
		return 0
	}
	h := math.Float64bits(float64(bytes)) ^ uint64(g.Ranks)<<20 ^ uint64(g.Stride)<<7 ^ uint64(op)
	h *= 0x9e3779b97f4a7c15 // 2^64 over the golden ratio
	at := &p.prices[h>>32%prices]
	if at.bytes != bytes || at.op != op || at.group != g {
		*at = price{op, g, bytes, p.alone(op, bytes, g)}
	}
	return at.time * p.link() * p.own
}

// alone is the time of a collective by itself, on a network as slow as across has it.
func (p *pricer) alone(op collective.Op, bytes units.Bytes, g collective.Group) units.Seconds {
	t := p.fabric.Time(op, bytes, g)
	if p.across > 0 && g.Nodes() > 1 && p.fabric.Cost(op, bytes, g).Source != collective.Measured {
		t *= p.across
	}
	return t
}

// link is the time factor of collectives without pipeline.
func (p *pricer) link() units.Seconds {
	if len(p.lags) == 1 {
		return p.lags[0].link
	}
	return 1
}

// gap is the pause between two kernels.
func (p *pricer) gap() units.Seconds { return p.law.gap * p.own }

// latency is how long an idle device takes to start a kernel.
func (p *pricer) latency() units.Seconds { return p.law.latency * p.own }

// device is the time of an op's kernels at the current clock.
func (p *pricer) device(o *tape.Op) units.Seconds {
	return p.clocked(p.full(o), workOf(o.Class))
}

// full is the same at the full clock.
func (p *pricer) full(o *tape.Op) units.Seconds {
	t := p.timer.Time(o) * p.pace
	if o.Phase != tape.Optimize {
		t *= p.uneven
	}
	return t
}

// clocked is the time at the current clock of what takes t at the full one.
func (p *pricer) clocked(t units.Seconds, w work) units.Seconds {
	t *= units.Seconds(p.slower[w])
	if w == gemmWork {
		t *= units.Seconds(p.law.gemmRates)
	}
	return t
}

// hostCost is the CPU time of an op, of a section in which tensor ranks exchange pieces beside GEMMs or not.
func (p *pricer) hostCost(o *tape.Op, tiled bool) units.Seconds {
	h := p.host
	if replays(p.graphs, o) {
		return 0
	}
	per, view := h.Call, h.View
	switch {
	case o.Phase == tape.Backward:
		per, view = h.Backward, h.ViewBack
	case o.Phase == tape.Optimize && o.Host.Calls > 0: // nothing is recorded for a gradient
		per = h.Backward
	}
	c := units.Seconds(o.Host.Calls)*per + units.Seconds(o.Host.Views)*view + units.Seconds(o.Host.Nodes)*h.Node
	own := h.Primitives[o.Prim]
	if called, ok := h.Called[o.Prim]; ok && !tiled {
		own = called
	}
	python := units.Seconds(o.Host.Modules)*h.Module + own
	if o.Host.Asked {
		python += units.Seconds(int32(o.Host.Calls+o.Host.Views)+max(o.Count-1, 0)) * h.Policy
	}
	if n := units.Seconds(o.Count - 1); n > 0 {
		if again, ok := h.Again[o.Prim]; ok {
			python += n * again
		} else {
			c += n * per
		}
	}
	switch {
	case o.Class == tape.GroupedGEMM: // most of an expert is the wrapping of its tensors: as calls Qwen3 in 16 bits on GB200 would take 33 % too long
		python += units.Seconds(o.Batch) * expertCost(h, o)
	case o.Prim == "grouped_quantize":
		c += units.Seconds(o.Count) * h.ExpertCast
	}
	if o.Bytes > recipe.LargeTensor && h.Large > 0 {
		c *= units.Seconds(h.Large)
		python *= units.Seconds(h.Large)
	}
	python += p.dtensorCost(o)
	return c*p.speed + python*p.python
}

// section is a priced tape.Section.
type section struct {
	ops      []tape.Op
	base     []base
	launches []timeline.Launch
	whole    timeline.Segment // all of it
	parts    []part           // cut after every completed gradient and every wait of the host; the last is the rest
	grads    []tape.ParamGrad
	time     [numWork]units.Seconds // device time alone by kind of work
	moved    units.Bytes            // by memory-bound kernels
	effort   [numWork]units.Seconds // the same at full power: a GEMM below its best rate draws less
	latent   [numWork]units.Seconds // of time, in kernels too small to draw power
	pauses   units.Seconds          // gaps before those
	weight   units.Seconds          // in GEMMs that make weight gradients
	flops    units.FLOPs
	again    units.FLOPs // of flops, spent on recomputation
	comm     [numGroups]units.Seconds
	fewer    units.Seconds // that GEMMs take longer beside a collective
	waits    []int         // launches before the host waits for the device
}

// part is a stretch of a section.
type part struct {
	timeline.Segment
	grad bool // the next gradient is complete at its end
}

// base is what does not change with the clock in the price of an op.
type base struct {
	busy   units.Seconds // at the full clock
	use    units.Seconds // share of the tensor cores' best rate
	loaded units.Seconds // factor under communication
	work   work
	group  group // of a collective
	kind   collective.Op
	role   role
	cover  int           // op that a ring, or an exchange in pieces, runs beside
	whole  units.Seconds // of the GEMMs that are cut for the exchange, at the full clock
	piece  units.Seconds // of one of their pieces
	after  units.Seconds // of what adds up the pieces of all ranks
}

// role is what an op does beside taking time.
type role uint8

const (
	kernelRole  role = iota
	hostRole         // no kernel
	commRole         // a collective that the compute stream waits for
	asyncRole        // one that hides behind the GEMM of a linear layer's backward before it
	ringRole         // one that hides behind the attention kernels after it
	tiledRole        // one that goes in as many pieces as there are ranks, beside the pieces of the GEMM that reads or makes them
	dgradRole        // such a GEMM: input gradient
	wgradRole        // weight gradient
	groupedRole      // a weight gradient of experts
)

// price prices a section. tiled says that tensor ranks exchange pieces beside GEMMs.
func (p *pricer) price(sec *tape.Section, tiled bool) section {
	n := len(sec.Ops)
	s := section{ops: sec.Ops, grads: sec.Grads, base: make([]base, n), launches: make([]timeline.Launch, n)}
	var idle units.Seconds // that a blocked host has worked since the last kernel
	for i := range sec.Ops {
		o, b, l := &sec.Ops[i], &s.base[i], &s.launches[i]
		l.Host = p.hostCost(o, tiled)
		b.work = workOf(o.Class)
		switch {
		case o.Class == tape.Collective:
			b.group, b.kind, b.role = groupOf(o.Comm.Group), kindOf(o.Comm.Kind), commRole
			switch {
			case o.Comm.Async:
				b.role = asyncRole
			case tiled && b.group == tpGroup:
				p.tile(sec.Ops, i, b)
			case o.Comm.Ring && p.job.Recipe.Overlap.CP:
				b.role, b.cover = ringRole, i+slices.IndexFunc(sec.Ops[i:], func(o tape.Op) bool { return o.Class == tape.Attention })
			}
			b.busy = p.commTime(b.kind, b.group, o.Comm.Bytes)
			if b.role == tiledRole && b.kind == collective.AllGather {
				b.busy *= p.fabric.Links(p.groups[b.group])
			}
			l.Comm = true
		case o.Class == tape.NoKernel:
			b.role = hostRole
		default:
			b.busy, b.use, b.loaded = p.full(o), units.Seconds(p.utilization(o)), units.Seconds(p.timer.Beside(o))
			l.Gap = p.gap() * units.Seconds(o.Count)
			switch o.Prim {
			case "linear_dgrad":
				b.role = dgradRole
			case "linear_wgrad":
				b.role = wgradRole
			case "grouped_mm_wgrad":
				b.role = groupedRole
			}
		}
		if p.block {
			if idle += l.Host; b.busy > 0 {
				l.Gap, idle = idle+p.launched(o), 0
			}
		}
		s.flops += o.FLOPs
		if o.Phase == tape.Recompute {
			s.again += o.FLOPs
		}
		if o.Sync && p.speed > 0 { // a graph cannot wait for the host
			s.waits = append(s.waits, i+1)
		}
	}
	return s
}

// enter adds what the host does before the first of all launches.
func (s *section) enter(host units.Seconds) {
	if len(s.launches) > 0 {
		s.launches[0].Host += host
	}
}

// clock sets the times that depend on the clock.
func (s *section) clock(p *pricer) {
	s.latent, s.pauses = [numWork]units.Seconds{}, 0
	s.time, s.effort, s.comm, s.weight, s.fewer, s.moved = [numWork]units.Seconds{}, [numWork]units.Seconds{}, [numGroups]units.Seconds{}, 0, 0, 0
	var cover, loaded units.Seconds // last GEMM that an asynchronous collective hides behind: alone, beside one
	for i := range s.base {
		b, l := &s.base[i], &s.launches[i]
		switch b.role {
		case hostRole:
		case commRole, asyncRole, ringRole, tiledRole:
			t, exposed := b.busy, b.busy
			slow := units.Seconds(p.slow(b.kind))
			switch b.role {
			case asyncRole:
				exposed = beside(t, cover, loaded, slow)
				cover, loaded = 0, 0
			case ringRole: // a step more of attention than of the ring
				a, ranks := &s.base[b.cover], units.Seconds(p.job.Plan.CP)
				alone := p.clocked(a.busy, a.work) * (ranks - 1) / ranks
				exposed = beside(t, alone, alone*a.loaded, slow)
			case tiledRole:
				piece, steps := p.clocked(b.piece, gemmWork), units.Seconds(p.job.Plan.TP-1)
				exposed = piece + max(steps*piece, t) + p.clocked(b.after, memoryWork) - p.clocked(b.whole, gemmWork)
			}
			l.Busy, l.Loaded = exposed, exposed
			s.comm[b.group] += exposed
			kind := commWork
			if b.role == tiledRole {
				kind = engineWork
			}
			s.time[kind] += t
			s.effort[kind] += t
		default:
			l.Busy = p.clocked(b.busy, b.work)
			l.Loaded = l.Busy * b.loaded
			if b.work == gemmWork {
				s.fewer += l.Loaded - l.Busy
			}
			s.time[b.work] += l.Busy
			if b.use == 0 {
				s.latent[b.work] += l.Busy
				s.pauses += l.Gap
			} else if b.work == memoryWork {
				s.moved += s.ops[i].Bytes * units.Bytes(max(s.ops[i].Count, 1))
			}
			s.effort[b.work] += l.Busy * b.use
			switch b.role {
			case dgradRole:
				cover, loaded = l.Busy, l.Loaded
			case wgradRole:
				cover, loaded = l.Busy, l.Loaded
				s.weight += l.Busy
			case groupedRole:
				s.weight += l.Busy
			}
		}
	}
}

// compress divides the section into what the timeline runs, once its times are known.
func (s *section) compress(p *pricer) {
	s.cut(p.latency())
	s.whole = timeline.Compress(s.launches, p.latency())
}

// beside is by how much a collective of time t, started with a GEMM, lengthens it:
// the collective runs slow times longer, the GEMM at the pace of loaded instead of
// alone until the shorter one is done.
func beside(t, alone, loaded, slow units.Seconds) units.Seconds {
	if t*slow <= loaded {
		return t * slow * (1 - alone/loaded)
	}
	return loaded - alone + t - loaded/slow
}

// tile pairs the exchange at with the GEMM that makes what is scattered, the last before,
// or those that read what is gathered, the next ones of the same operand. Both go in a
// piece for each rank: while one is multiplied copy engines move the next, a step fewer
// than there are pieces (torch/distributed/_symmetric_memory, fused_all_gather_matmul and
// fused_matmul_reduce_scatter; Transformer Engine, comm_gemm_overlap, split_overlap_ag). Gathered
// pieces come from one rank at a time (userbuffers' ring_exchange; _pipelined_multi_all_gather_and_consume),
// scattered ones from all (userbuffers' pipeline).
func (p *pricer) tile(ops []tape.Op, at int, b *base) {
	step, ranks := 1, p.job.Plan.TP
	switch c := ops[at].Comm; c.Kind {
	case "reduce-scatter":
		step = -1
		b.after = p.full(&tape.Op{Class: tape.FusedReduce, DType: ops[at].DType, Elements: ops[at].Elements, Bytes: c.Bytes * (1 + 1/units.Bytes(ranks))})
	case "all-gather":
	default:
		return
	}
	for i := at + step; i >= 0 && i < len(ops) && ops[i].Class != tape.Collective; i += step {
		o := ops[i]
		if first := &ops[b.cover]; o.Class != tape.GEMM || b.role == tiledRole && (o.M != first.M || o.K != first.K) {
			continue
		}
		if b.role != tiledRole {
			b.role, b.cover = tiledRole, i
		}
		whole := p.full(&o)
		b.whole += whole
		piece := whole / units.Seconds(ranks)
		if !p.job.Recipe.Overlap.Streams {
			o.Bytes -= units.Bytes(float64(o.M*(o.K+o.N))*(1-1/float64(ranks))) * o.DType.Size()
			o.M = max(o.M/ranks, 1)
			piece = max(p.full(&o), piece)
		}
		b.piece += piece
		if step < 0 {
			return
		}
	}
}

// cut divides the section into its parts.
func (s *section) cut(latency units.Seconds) {
	from, waits := 0, s.waits
	s.parts = s.parts[:0]
	add := func(to int, grad bool) {
		for len(waits) > 0 && waits[0] <= to {
			g := timeline.Compress(s.launches[from:waits[0]], latency)
			g.Sync = true
			s.parts, from, waits = append(s.parts, part{Segment: g}), waits[0], waits[1:]
		}
		s.parts, from = append(s.parts, part{timeline.Compress(s.launches[from:to], latency), grad}), to
	}
	for _, g := range s.grads {
		add(max(int(g.Op)+1, from), true)
	}
	add(len(s.launches), false)
}

// unit is a priced ops.Unit.
type unit struct {
	*ops.Unit
	ratio             float64 // clock of the prices
	forward, backward section
	hooked            hooked
	saved             units.Bytes // kept from its forward to its backward pass
	streamed          units.Bytes // what of it goes to the host where all activations do
}

// hooked counts what hooks run for.
type hooked struct {
	modules, again      float64 // calls of modules forward, and where the backward pass computes them again
	gradients, matrices float64 // of parameters that are trained; of those that ranks share
}

// count counts a unit's, of which ranks share matrices of so many elements or more.
func (h *hooked) count(u *ops.Unit, least int64) {
	for i := range u.Forward.Ops {
		h.modules += float64(u.Forward.Ops[i].Host.Modules - u.Forward.Ops[i].Host.Inner)
	}
	for i := range u.Backward.Ops {
		h.again += float64(u.Backward.Ops[i].Host.Modules - u.Backward.Ops[i].Host.Inner)
	}
	for i := range u.Params {
		x := &u.Params[i]
		if !x.Frozen {
			h.gradients++
		}
		if len(x.Dims) > 1 && x.Local >= least {
			h.matrices++
		}
	}
}

// tensorOverlap is whether tensor ranks exchange pieces beside the GEMMs that make or read
// them: as the job says, else as the recipe does in its precision.
func tensorOverlap(j *strategies.Job) bool {
	if on := j.Runtime.TPOverlap; on != nil {
		return *on
	}
	return j.Recipe.Overlap.TP && !j.Precision.TPApart
}

// unit prices a unit. Tensor ranks overlap in layers alone: torchtitan compiles these and
// leaves embedding and head eager, Megatron's output layer is none of Transformer Engine's.
func (p *pricer) unit(u *ops.Unit) *unit {
	tiled := u.Layers > 0 && tensorOverlap(p.job)
	if p.job.Layers != nil && u.Layers > 0 { // compiled one by one: their host's cost is that of compiled code
		around := p.host
		p.host = &p.job.Layers.Host
		defer func() { p.host = around }()
	}
	priced := &unit{Unit: u, forward: p.price(&u.Forward, tiled), backward: p.price(&u.Backward, tiled), saved: u.Saved()}
	if p.job.Train.OffloadActivations {
		priced.streamed = p.streamed(u)
	}
	if u.Layers > 0 {
		priced.forward.enter(p.host.Graph * p.python)
		priced.backward.enter(p.host.GraphBack * p.python)
	}
	if p.host.Hooks.Any() {
		priced.hooked.count(u, p.leastShared())
	}
	return priced
}

// run is the device time of a kernel that is not part of a unit. It counts the
// kernel; beside says that it runs on a communication stream.
func (p *pricer) run(o *tape.Op, beside bool) units.Seconds {
	if p.counts != nil {
		p.counts.kernels[loose{*o, beside}]++
	}
	return p.device(o)
}

// launched is how long the kernels of an operation take to start on a device that has
// nothing else to do, as each finds it whose host waits for every kernel.
func (p *pricer) launched(o *tape.Op) units.Seconds {
	return p.latency() * units.Seconds(max(o.Count, 1))
}

// kernelOf prices a single kernel that is not part of a unit: optimizer, bucket
// copies, casts.
func (p *pricer) kernelOf(o tape.Op) timeline.Segment {
	l := timeline.Launch{Host: p.hostCost(&o, false), Busy: p.run(&o, false), Gap: p.gap() * units.Seconds(max(o.Count, 1))}
	l.Loaded = l.Busy * units.Seconds(p.timer.Beside(&o))
	if p.block {
		l.Gap = l.Host + p.launched(&o)
	}
	return timeline.Compress([]timeline.Launch{l}, p.latency())
}
