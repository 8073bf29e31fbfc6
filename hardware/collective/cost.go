package collective

import (
	"cmp"
	"maps"
	"math"
	"sort"

	"github.com/perfplan/perfplan/internal/units"
)

// Source says what a cost rests on.
type Source string

const (
	Measured Source = "measured" // a curve of this very group
	Scaled   Source = "scaled"   // the model, corrected by curves of other groups of this machine
	Modelled Source = "model"    // NCCL's tables and the fitted shapes alone
)

// Cost is the cost of one collective on one group with the machine to itself.
type Cost struct {
	Time      units.Seconds
	Algorithm string
	Protocol  string
	CTAs      int        // thread blocks: the streaming multiprocessors it takes from compute
	AlgBW     units.Rate // bytes over time, as nccl-tests prints it
	BusBW     units.Rate // AlgBW times the operation's BusFactor
	Source    Source
	RelErr    float64 // one standard deviation of Time, as a fraction
	// Alternatives are all algorithms and protocols that NCCL weighed, its choice
	// among them, fastest by its own estimate first. Empty for send-recv and all-to-all.
	Alternatives []Choice
}

// Choice is one algorithm and protocol that NCCL weighed.
type Choice struct {
	Algorithm string
	Protocol  string
	Nominal   units.Seconds // NCCL's own estimate, from which it chooses
	Time      units.Seconds // the Cost's of the choice; of others as much more or less as the model has them take
}

// Cost explains one call: what NCCL picks, what it takes, how sure that is.
// Operations on a group of one, and of no bytes, cost nothing.
func (f *Fabric) Cost(op Op, bytes units.Bytes, g Group) Cost {
	p := f.plan(op, g)
	if p.empty() || !(bytes > 0) {
		return Cost{Source: Modelled}
	}
	b := float64(bytes)
	c := Cost{Time: p.law.Time(bytes), Source: p.source, RelErr: p.relErr(bytes)}
	c.AlgBW = bytes.Per(c.Time)
	n := g.Ranks
	if op.ofTokens() && g.Nodes() > 1 { // a row crosses once for all ranks of an island
		n = g.Nodes()
	}
	c.BusBW = c.AlgBW * units.Rate(op.BusFactor(n))
	if p.exchange != nil {
		c.Algorithm, c.Protocol, c.CTAs = PointToPoint.String(), p.exchange.protocol(b).String(), p.exchange.ctas(b)
		return c
	}
	choice, chosen := p.tuning.choose(b), p.chosenTime(b)
	picked := p.tuning.candidates[choice]
	c.Algorithm, c.Protocol, c.CTAs = picked.algorithm.String(), picked.protocol.String(), p.tuning.ctas(picked, b)
	for i, k := range p.tuning.candidates {
		time := c.Time
		if i != choice { // what curves correct in the choice, they would in the others
			time *= units.Seconds(p.timers[i].time(b) / chosen)
		}
		c.Alternatives = append(c.Alternatives, Choice{k.algorithm.String(), k.protocol.String(), units.Seconds(p.tuning.nominal(k, b) * 1e-6), time})
	}
	sort.SliceStable(c.Alternatives, func(i, j int) bool { return c.Alternatives[i].Nominal < c.Alternatives[j].Nominal })
	return c
}

// Time is the time of one call, for inner loops: it allocates nothing once a
// group has been seen.
func (f *Fabric) Time(op Op, bytes units.Bytes, g Group) units.Seconds {
	return f.plan(op, g).law.Time(bytes)
}

// planKey names what a plan is for.
type planKey struct {
	op    Op
	group Group
}

// plan is all that is known of one operation on one group.
type plan struct {
	law      Law
	source   Source
	tuning   *tuning   // what NCCL decides; nil for exchanges and empty plans
	timers   []timer   // the time of each of its candidates
	exchange *exchange // send-recv and all-to-all
	near     float64   // distance to the nearest curve used, in doublings
	curve    *Curve    // that curve; nil for the model alone
	machine  float64   // one standard deviation of the model that the machine adds, relative
}

func (p *plan) empty() bool { return p.tuning == nil && p.exchange == nil }

// plan returns the remembered plan, or draws it up.
func (f *Fabric) plan(op Op, g Group) *plan {
	key := planKey{op, f.normal(g)}
	if known := f.plans.Load(); known != nil {
		if p, ok := (*known)[key]; ok {
			return p
		}
	}
	p := f.draw(key.op, key.group)
	if f.LatencyScale > 0 {
		p.law.delay(p.law.Latency() * units.Seconds(f.LatencyScale-1))
	}
	f.grow.Lock()
	defer f.grow.Unlock()
	next := map[planKey]*plan{key: p}
	if known := f.plans.Load(); known != nil {
		maps.Copy(next, *known)
	}
	f.plans.Store(&next)
	return p
}

// draw makes the plan of a group: its own curve where there is one, else the
// model, corrected by the curves that are near.
func (f *Fabric) draw(op Op, g Group) *plan {
	p := f.model(op, g)
	if p.empty() {
		return p
	}
	type witness struct {
		residual residual
		weight   float64
	}
	var witnesses []witness
	p.near = math.Inf(1)
	for _, own := range []bool{true, false} { // the operation's own curves, else its twin's
		for i := range f.Curves {
			c := &f.Curves[i]
			d, ok := distance(g, c.group())
			if !ok || own != (c.Op == op) || !own && c.Op != op.twin() || c.Check() != nil {
				continue
			}
			if own && c.group() == g {
				p.law, p.source, p.near, p.curve = c.law(), Measured, 0, c
				return p
			}
			if d < p.near {
				p.near, p.curve = d, c
			}
			w := witness{c.residual(&f.model(c.Op, c.group()).law), 1 / (d*d + 1e-6)}
			witnesses = append(witnesses, w)
		}
		if len(witnesses) > 0 {
			break
		}
	}
	if len(witnesses) == 0 {
		return p
	}
	times := make([]float64, len(knots))
	for i, b := range knots {
		var sum, weights float64
		for _, w := range witnesses {
			sum += w.weight * w.residual.at(b)
			weights += w.weight
		}
		times[i] = float64(p.law.Time(units.Bytes(b))) * math.Exp(sum/weights)
	}
	slower := times[0] / float64(p.law.Time(units.Bytes(knots[0])))
	p.law, p.source = newLaw(knots, times, slower*p.law.low.at), Scaled
	return p
}

// knots are the sizes at which laws of the model are drawn: 1 KiB to 256 GiB by
// half powers of two. Beyond them the last slope goes on, which says nothing where
// NCCL's choice changes before: large groups turn from trees to rings at tens of GB.
var knots = func() []float64 {
	var k []float64
	for e := 10.0; e <= 38; e += 0.5 {
		k = append(k, math.Exp2(e))
	}
	return k
}()

// model is the plan without measurements. The version of NCCL decides the
// choice; the newest table, as the best description of the hardware, times it.
func (f *Fabric) model(op Op, g Group) *plan {
	p := &plan{source: Modelled}
	if g.Ranks < 2 || op >= opCount {
		return p
	}
	if f.view(releaseOf(f.NCCL), g).staged {
		p.machine = fitted().Host.Error
	}
	var time func(bytes float64) float64
	if op == AllToAll || op == SendRecv || op.ofTokens() {
		p.exchange = f.exchangeOf(op, g)
		time = p.exchange.time
	} else {
		p.tuning = f.tune(releaseOf(f.NCCL), op, g)
		p.timers = f.timersOf(p.tuning, g)
		time = p.chosenTime
	}
	times := make([]float64, len(knots))
	for i, b := range knots {
		times[i] = time(b) * 1e-6
	}
	if p.tuning != nil && g.Nodes() > 1 && g.PerNode > 1 { // the same bytes pass each island's links
		island := f.model(op, Group{Ranks: g.PerNode, PerNode: g.PerNode, Stride: g.Stride})
		for i, b := range knots {
			times[i] = max(times[i], float64(island.law.Time(units.Bytes(b))))
		}
	}
	p.law = newLaw(knots, times, time(1)*1e-6)
	return p
}

// chosenTime is the time in us of what NCCL chooses. The choice is trusted only
// so far: a candidate that the shapes price well above another is priced wrong
// more likely than chosen badly.
func (p *plan) chosenTime(bytes float64) float64 {
	best := math.Inf(1)
	for i := range p.timers {
		best = min(best, p.timers[i].time(bytes))
	}
	return min(p.timers[p.tuning.choose(bytes)].time(bytes), fitted().Trust*best)
}

// timer is the model's time of one candidate.
type timer struct {
	tuning    *tuning
	candidate candidate // as the newest table has it
	shape     *shape
	limit     float64 // GB/s that the links really carry
}

// timersOf times the candidates of a tuning.
func (f *Fabric) timersOf(decided *tuning, g Group) []timer {
	newest := f.tune(releaseOf(Version{}), decided.op, g)
	timers := make([]timer, len(decided.candidates))
	for i, k := range decided.candidates {
		t := timer{tuning: decided, candidate: k, limit: math.Inf(1)}
		for _, n := range newest.candidates {
			if n.algorithm == k.algorithm && n.protocol == k.protocol {
				t.tuning, t.candidate = newest, n
			}
		}
		v, gen := t.tuning.view, t.tuning.generation
		t.candidate.bandwidth *= t.tuning.carried
		t.shape = fitted().shapeOf(decided.op, k, v, gen)
		if v.nodes > 1 {
			t.limit = limit(decided.op, k.algorithm, v, f.wire(g))
		} else if v.staged {
			t.limit = inside(decided.op, k.algorithm, v, f.host(v))
		} else if k.algorithm == NVLS && decided.op == AllReduce {
			t.candidate.bandwidth = v.total * fitted().NVLSLinks.of(gen)[0] * v.n / (v.n + 1)
		}
		timers[i] = t
	}
	return timers
}

// limit is the algorithm bandwidth that a wire rate per node allows. A ring
// crosses each node once; in a tree of two nodes each sends all bytes once, in a
// larger one its inner nodes twice (the two trees of NCCL's pair share the load).
func limit(op Op, a Algorithm, v view, wire float64) float64 {
	switch a {
	case Ring, PAT:
		return wire * v.n / op.ringSteps(v.n)
	case Tree, NVLSTree:
		if v.nodes > 2 {
			return wire / 2
		}
	}
	return wire
}

// inside is the algorithm bandwidth inside a node that a rate of each GPU in each direction
// allows. NCCL's tree is a chain there: those between its ends pass every byte on twice.
func inside(op Op, a Algorithm, v view, rate float64) float64 {
	if a == Tree {
		return rate / 2
	}
	return rate * v.n / op.ringSteps(v.n)
}

// time is the time in us of a call.
func (t *timer) time(bytes float64) float64 {
	k, s := &t.candidate, t.shape
	bandwidth := k.bandwidth
	if k.algorithm != NVLSTree { // whose correction is for the choice: on two and four nodes of B200 it reaches what the wire allows
		_, bandwidth = t.tuning.adjust(*k, bytes, func(x float64) float64 { return x })
	}
	bandwidth = min(bandwidth*s.Bandwidth*(1-s.PerRank/t.tuning.view.n), t.limit)
	latency := s.Latency*(k.latency-k.crossing) + cmp.Or(s.Hop, s.Latency)*k.crossing
	return pipeline(latency, bytes/bandwidth/1e3, s.Ramp)
}

// nodes is how many nodes the group spans.
func (p *plan) nodes() float64 {
	if p.exchange != nil {
		return p.exchange.view.nodes
	}
	return p.tuning.view.nodes
}

// relErr grows from a curve's own error to the model's with the distance from
// what was measured, in doublings of ranks, nodes or bytes.
func (p *plan) relErr(b units.Bytes) float64 {
	model := fitted().spreadAt(b, p.nodes() > 1)
	if p.exchange != nil {
		model = max(model, fitted().P2P.Error)
	} else {
		model = max(model, p.timers[p.tuning.choose(float64(b))].shape.Error)
	}
	model = max(model, p.machine)
	if p.curve == nil {
		return model
	}
	d := p.near + p.curve.outside(b)
	return math.Hypot(p.curve.error(), model*d/(1+d))
}
