package estimate

import (
	"fmt"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
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
	numWork
)

var workNames = [numWork]string{"gemm", "attention", "memory", "issue", "collective"}

// workOf sorts kernel classes by what limits them.
func workOf(c tape.Class) work {
	switch c {
	case tape.GEMM, tape.GroupedGEMM:
		return gemmWork
	case tape.Attention:
		return attentionWork
	case tape.Unrolled, tape.UnrolledMix, tape.Strided2, tape.Strided4, tape.StridedCast, tape.Concat, tape.MidReduce, tape.ScatterAdd, tape.EmbedDirect, tape.EmbedSort, tape.ChunkCat:
		return issueWork
	case tape.Collective:
		return commWork
	}
	return memoryWork
}

// pricer turns ops into launches for one job.
type pricer struct {
	job    *strategies.Job
	timer  *kernel.Timer
	fabric *collective.Fabric
	host   recipe.Host
	speed  units.Seconds // host cost multiplier
	groups map[string]collective.Group
	ratio  float64 // SM clock over its maximum
	rounds int     // of the search for it
	law    lawView
	lags   []lag          // by pipeline rank
	calls  map[call]int64 // collectives of data parallelism, when recorded
}

// lawView is the part of the hardware laws that the pricer reads often.
type lawView struct {
	gap, latency         units.Seconds
	collectives          map[string]float64
	skew                 float64
	gemmClock, gemmRates float64 // of the maximum clock: above which GEMMs gain nothing, at which their rates were measured
	memory               float64 // time factor of memory-bound work at the current clock
}

func newPricer(j *strategies.Job) (*pricer, error) {
	timer, err := kernel.New(j.Hardware)
	if err != nil {
		return nil, err
	}
	h := j.Hardware
	fabric, err := collective.FabricOf(h.GPU, h.Node, h.Network, h.Software, h.Laws.Collectives...)
	if err != nil {
		return nil, fmt.Errorf("hardware %s: %w", h.Name, err)
	}
	l := h.Laws
	p := &pricer{job: j, timer: timer, fabric: fabric, host: j.Recipe.Host, speed: 1, ratio: 1}
	if l.Launch.Host > 0 {
		p.speed = units.Seconds(1 / l.Launch.Host)
	}
	if p.host.Graphed {
		p.speed = 0
	}
	p.law = lawView{gap: l.Launch.Gap, latency: l.Launch.Latency,
		collectives: l.Overlap.Collectives, skew: max(l.Overlap.Skew, 1), gemmClock: 1, gemmRates: 1, memory: 1}
	if l.Power != nil {
		c := float64(max(h.GPU.MaxClock.Value, h.GPU.Clock.Value))
		if l.Power.GEMMClock > 0 {
			p.law.gemmClock = float64(l.Power.GEMMClock) / c
		}
		p.law.gemmRates = p.law.gemmClock
		if on := l.Power.On; l.Power.GEMMRates > 0 && on != nil {
			p.law.gemmRates = float64(l.Power.GEMMRates / max(on.MaxClock.Value, on.Clock.Value))
		}
	}
	p.groups = p.placeGroups()
	p.lags = lagsOf(j)
	p.law.skew *= 1 + j.Runtime.Jitter*expectedMaximum(j.GPUs)
	return p, nil
}

// placeGroups lays the parallel groups on the machine in Megatron's order: tensor
// ranks next to each other, then context, then data, then pipeline; expert ranks run over
// tensor, context and data.
func (p *pricer) placeGroups() map[string]collective.Group {
	l := &p.job.Plan
	g := map[string]collective.Group{
		"tp": p.fabric.Group(l.TP, 1),
		"cp": p.fabric.Group(l.CP, l.TP),
		"ep": p.fabric.Group(l.EP, l.ExpertTP),
	}
	dp := l.DP * l.CP // context ranks hold the same parameters
	shard := min(l.Shard(), dp)
	g["dp"] = p.fabric.Group(dp, l.TP)
	g["shard"] = p.fabric.Group(shard, l.TP)
	g["replicas"] = p.fabric.Group(dp/shard, l.TP*shard)
	g["pp"] = p.fabric.Group(min(l.PP, 2), l.TP*dp)
	// Experts are spread over tensor, context and data ranks alike; what is left shares copies of them.
	edp := max(l.TP*dp/(l.EP*l.ExpertTP), 1)
	stride := l.EP * l.ExpertTP
	if l.EP == 1 && l.ExpertTP == 1 { // not spread: experts go with the rest
		edp, stride = dp, l.TP
	}
	g["expert_dp"] = p.fabric.Group(edp, stride)
	g["expert_shard"] = p.fabric.Group(min(shard, edp), stride)
	return g
}

var collectiveOps = map[string]collective.Op{
	"all-reduce": collective.AllReduce, "all-gather": collective.AllGather, "reduce-scatter": collective.ReduceScatter,
	"all-to-all": collective.AllToAll, "send-recv": collective.SendRecv, "broadcast": collective.Broadcast,
}

// comm is the time of a collective alone. It counts the call.
func (p *pricer) comm(kind, group string, bytes units.Bytes) units.Seconds {
	t := p.commTime(kind, group, bytes)
	if p.calls != nil && t > 0 {
		p.calls[call{kind, group, bytes}]++
	}
	return t
}

func (p *pricer) commTime(kind, group string, bytes units.Bytes) units.Seconds {
	g := p.groups[group]
	if g.Ranks <= 1 || bytes <= 0 {
		return 0
	}
	t := p.fabric.Time(collectiveOps[kind], bytes, g)
	if len(p.lags) == 1 { // of a pipeline, only some stages are slow: lag.stretch
		t *= p.lags[0].link
	}
	return t
}

// slow is the time of a collective under compute over its time alone.
func (p *pricer) slow(kind string) float64 {
	if s, ok := p.law.collectives[kind]; ok {
		return s
	}
	return 1.1
}

// device is the time of an op's kernels at the current clock.
func (p *pricer) device(o *tape.Op) units.Seconds {
	t := p.timer.Time(o)
	if p.job.GPUs > 1 {
		t *= units.Seconds(p.law.skew)
	}
	if len(p.lags) == 1 {
		t *= p.lags[0].compute
	}
	switch workOf(o.Class) {
	case gemmWork: // no gain above the clock that the current limit allows
		return t * units.Seconds(p.law.gemmRates/min(p.law.gemmClock, p.ratio))
	case attentionWork, issueWork:
		return t / units.Seconds(p.ratio)
	case commWork:
		return t
	}
	return t * units.Seconds(p.law.memory)
}

// hostCost is the CPU time of an op.
func (p *pricer) hostCost(o *tape.Op) units.Seconds {
	h := &p.host
	per, view := h.Call, h.View
	if o.Phase == tape.Backward {
		per, view = h.Backward, h.ViewBack
	}
	c := units.Seconds(o.Host.Calls)*per + units.Seconds(o.Host.Views)*view + units.Seconds(o.Host.Modules)*h.Module + units.Seconds(o.Host.Nodes)*h.Node
	if o.Count > 1 {
		c += units.Seconds(o.Count-1) * per
	}
	c += h.Primitives[o.Prim]
	if o.Bytes > recipe.LargeTensor && h.Large > 0 {
		c *= units.Seconds(h.Large)
	}
	if p.job.Recipe.Structure.DTensor && p.job.Plan.TP > 1 && o.Class == tape.GEMM && o.Module != "head" {
		switch {
		case o.Phase != tape.Backward:
			c += h.DTensor
		case o.Layout == tape.LayoutDgrad:
			c += h.DTensorBack
		}
	}
	return c * p.speed
}

// section is a priced tape.Section.
type section struct {
	ops      []tape.Op
	launches []timeline.Launch
	whole    timeline.Segment   // all of it
	parts    []timeline.Segment // cut after every completed gradient; the last is the rest
	grads    []tape.ParamGrad
	params   []ops.Param
	time     [numWork]units.Seconds // device time alone by kind of work
	effort   [numWork]units.Seconds // the same at full power: a GEMM below its best rate draws less
	flops    units.FLOPs
	again    units.FLOPs // of flops, spent on recomputation
	comm     map[string]units.Seconds
	fewer    units.Seconds // that GEMMs take longer beside a collective
	syncAt   int           // launches before the host waits for the device; -1: never
}

// price prices a section.
func (p *pricer) price(sec *tape.Section, params []ops.Param) section {
	s := section{ops: sec.Ops, grads: sec.Grads, params: params, launches: make([]timeline.Launch, len(sec.Ops)), syncAt: -1}
	var wgrad units.Seconds // last weight-gradient GEMM, which an asynchronous collective hides behind
	for i := range sec.Ops {
		o := &sec.Ops[i]
		l := &s.launches[i]
		l.Host = p.hostCost(o)
		switch {
		case o.Class == tape.Collective:
			t := p.commTime(o.Comm.Kind, o.Comm.Group, o.Comm.Bytes)
			hidden := units.Seconds(0)
			if o.Comm.Async {
				hidden = min(t, wgrad)
			}
			if o.Comm.Group == "tp" && p.job.Recipe.Overlap.TP {
				hidden = max(hidden, t*units.Seconds(tpOverlap))
			}
			if o.Comm.Group == "cp" && p.job.Recipe.Overlap.CP {
				hidden = t * units.Seconds(cpOverlap)
			}
			l.Busy, l.Loaded, l.Comm = t-hidden, t-hidden, true
			if s.comm == nil {
				s.comm = map[string]units.Seconds{}
			}
			s.comm[o.Comm.Group] += t - hidden
			s.time[commWork] += t
			s.effort[commWork] += t
		case o.Class != tape.NoKernel:
			l.Busy = p.device(o)
			l.Loaded = l.Busy * units.Seconds(p.timer.Beside(o))
			w := workOf(o.Class)
			if w == gemmWork {
				s.fewer += l.Loaded - l.Busy
			}
			s.time[w] += l.Busy
			s.effort[w] += l.Busy * units.Seconds(p.timer.Utilization(o))
			l.Gap = p.law.gap * units.Seconds(o.Count)
			if o.Prim == "linear_wgrad" {
				wgrad = l.Busy
			}
		}
		s.flops += o.FLOPs
		if o.Phase == tape.Recompute {
			s.again += o.FLOPs
		}
		if o.Sync {
			s.syncAt = i + 1
		}
	}
	from := 0
	for _, g := range sec.Grads {
		to := max(int(g.Op)+1, from)
		s.parts = append(s.parts, timeline.Compress(s.launches[from:to], p.law.latency))
		from = to
	}
	s.parts = append(s.parts, timeline.Compress(s.launches[from:], p.law.latency))
	if s.syncAt >= 0 {
		a := timeline.Compress(s.launches[:s.syncAt], p.law.latency)
		a.Sync = true
		b := timeline.Compress(s.launches[s.syncAt:], p.law.latency)
		s.parts = []timeline.Segment{a, b}
	}
	s.whole = timeline.Compress(s.launches, p.law.latency)
	return s
}

// Share of a collective that hides behind the GEMM it belongs to where a recipe
// overlaps them tile by tile (Transformer Engine's userbuffers, ring attention).
const (
	tpOverlap = 0.6
	cpOverlap = 0.8
)

// unit is a priced ops.Unit.
type unit struct {
	*ops.Unit
	forward, backward section
}

func (p *pricer) unit(u *ops.Unit) unit {
	return unit{Unit: u, forward: p.price(&u.Forward, u.Params), backward: p.price(&u.Backward, u.Params)}
}

// kernelOf prices a single kernel that is not part of a unit: optimizer, bucket
// copies, casts.
func (p *pricer) kernelOf(o tape.Op) timeline.Segment {
	l := timeline.Launch{Host: p.hostCost(&o), Busy: p.device(&o), Gap: p.law.gap * units.Seconds(max(o.Count, 1))}
	l.Loaded = l.Busy * units.Seconds(p.timer.Beside(&o))
	return timeline.Compress([]timeline.Launch{l}, p.law.latency)
}
