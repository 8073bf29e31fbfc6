package pipeline

import (
	"math"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// Times are the durations of one micro batch, by stage (Plan.Stages entries).
type Times struct {
	F  []units.Seconds // forward
	B  []units.Seconds // whole backward; left out: BI + BW
	BI []units.Seconds // backward by input; needed where Info.Splits
	BW []units.Seconds // backward by weight; needed where Info.Splits
	// Hop is the time of one transfer. Under Async it goes by from the end of a
	// stage to when the next rank may start on its output, and both ranks compute
	// meanwhile; else it begins when both sides have come to it.
	Hop units.Seconds
	// Hops are the same for each two ranks, at the one times Ranks plus the other,
	// where they differ; empty: all are Hop.
	Hops []units.Seconds
	// Beside are the same passes while a transfer, or one side's wait for the
	// other, holds some of the GPU beside them; nil: they are no slower. Async
	// ignores it.
	Beside *Times
	// Launches are what the hosts take to launch these passes, one after the other and
	// waiting for no transfer: what PyTorch waits for, only the device waits for (torch
	// 2.11, ProcessGroupNCCL.cpp, WorkNCCL::synchronize). nil: passes are launched in no
	// time, as under Blocking, where their durations say what hosts add.
	Launches *Launches
	// Overlap is the fraction of the shorter half that an overlapped pair
	// hides: 0 runs the halves one after the other, as PyTorch does unless the
	// model brings its own overlapped pass.
	Overlap float64
}

// Launch is what a host takes to launch one pass.
type Launch struct {
	Host  units.Seconds // until it begins the next one
	Lag   units.Seconds // the pass ends no earlier than this after the host began
	Sync  bool          // the host waits for the device on the way
	Ahead units.Seconds // after which it has launched the rest so long before the pass ends
}

// add is a launch with another one behind it.
func (l Launch) add(o Launch) Launch {
	sum := Launch{Host: l.Host + o.Host, Lag: max(l.Lag, l.Host+o.Lag), Sync: l.Sync || o.Sync, Ahead: o.Ahead}
	if l.Sync && !o.Sync {
		sum.Ahead = l.Ahead + max(o.Lag-o.Host, 0)
	}
	return sum
}

// Launches are those of the passes of one micro batch, by stage, as Times has their
// durations.
type Launches struct{ F, B, BI, BW []Launch }

// Result is the critical path of one step. Its slices, by rank, belong to the
// Buffer and are overwritten by its next Run.
type Result struct {
	Total  units.Seconds // from the start of the first rank to the end of the last
	Period units.Seconds // longest of Finish - Start: the step when ranks need not start or end together
	Start  []units.Seconds
	Finish []units.Seconds
	Busy   []units.Seconds
	Slowed []units.Seconds // part of Busy that passes lost to transfers beside them
	Hosted []units.Seconds // part of Busy that they would lose to their launches if no input were late
	Bubble []units.Seconds // Total - Busy, never below 0
}

// Repeat makes the step one of n runs, of which each begins when all ranks have ended the
// one before.
func (r *Result) Repeat(n int) {
	once, times := r.Total, units.Seconds(n)
	r.Total *= times
	for rank := range r.Finish {
		r.Finish[rank] += r.Total - once
		r.Busy[rank] *= times
		r.Slowed[rank] *= times
		r.Hosted[rank] *= times
		r.Bubble[rank] *= times
		r.Period = max(r.Period, r.Finish[rank]-r.Start[rank])
	}
}

// Roll makes the step one of many whose ranks need not start or end together: each
// begins its next one where it ended this, so that times count from its own start, or
// from that of its host, which launches passes before their first input is there.
func (r *Result) Roll() {
	for rank, start := range r.Start {
		r.Finish[rank] = max(r.Finish[rank]-start, r.Busy[rank])
		r.Period = max(r.Period, r.Finish[rank])
		r.Start[rank] = 0
	}
	r.Total = r.Period
	for rank, busy := range r.Busy {
		r.Bubble[rank] = max(r.Total-busy, 0) // whose sums are inexact
	}
}

// BubbleFraction returns the idle share of all ranks' time.
func (r Result) BubbleFraction() float64 {
	if r.Total == 0 {
		return 0
	}
	var idle units.Seconds
	for _, b := range r.Bubble {
		idle += b
	}
	return float64(idle) / float64(r.Total) / float64(len(r.Bubble))
}

// Buffer is the memory of a Run, to be reused. The zero value is ready; it must
// not be shared between goroutines.
type Buffer struct {
	cost   []float64
	beside []float64 // the same beside a transfer
	end    []float64 // by node or event
	clock  []float64 // by rank: the compute stream is free
	comm   []float64 // by rank: the communication stream is free
	start  []float64 // by rank: of the call at hand
	slowed []float64 // by rank
	held   []spans   // by rank
	launch []Launch  // by cost
	host   []float64 // by rank: its host is free
	free   []free    // by rank
	hops   []float64 // by two ranks, where they differ
	result Result
	whole  bool // run every period; for tests
}

// resize returns s with n elements, reusing its memory; contents are undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// cleared returns s with n zeros, reusing its memory.
func cleared[T any](s []T, n int) []T {
	s = resize(s, n)
	clear(s)
	return s
}

// extend returns s with at least n elements, keeping its contents.
func extend(s []float64, n int) []float64 {
	if n <= len(s) {
		return s
	}
	return slices.Grow(s, n-len(s))[:n]
}

// Run returns the critical path of the step with the given durations. Each rank
// runs its actions in order and waits only for the stage before or after it, in
// the way of the plan's Transfers. Cost is a few nanoseconds per action; of a long
// steady state only as many periods are run as it takes to settle.
func (pl *Plan) Run(t Times, buf *Buffer) Result {
	g := pl.graph
	buf.cost = pl.costs(&t, buf.cost)
	buf.clock = cleared(buf.clock, pl.Ranks)
	buf.end = resize(buf.end, g.size)
	buf.hops = resize(buf.hops, len(t.Hops))
	for i, h := range t.Hops {
		buf.hops[i] = float64(h)
	}
	whole := buf.whole
	if g.events != nil {
		buf.prepare(pl, &t)
		whole = whole || t.Beside != nil
	}

	buf.launched(pl, t.Launches)
	whole = whole || t.Launches != nil

	hop, at := float64(t.Hop), 0
	at = buf.part(g, 0, g.body, at, hop)
	if g.period > 0 {
		left := (g.tail-g.body)/g.period + g.repeat
		for settled := whole; left > 0; left-- {
			buf.end = extend(buf.end, at+g.period)
			at = buf.part(g, g.body, g.body+g.period, at, hop)
			if settled || left == 1 {
				continue
			}
			if c, step := g.settled(buf.end[:at], pl.Ranks); c > 0 {
				settled = true
				n := (left - 1) / c
				left -= n * c
				buf.shift(at, max(g.reach, g.period), float64(n)*step)
			}
		}
		buf.end = extend(buf.end, at+g.size-g.tail)
		buf.part(g, g.tail, g.size, at, hop)
	}
	return pl.collect(hop, buf)
}

// part executes the nodes or events from up to to as number at, at+1, ... of the
// step.
func (buf *Buffer) part(g *graph, from, to, at int, hop float64) int {
	switch {
	case g.events != nil:
		return buf.flow(g.events[from:to], g.from[from:to], at, hop)
	case len(buf.launch) > 0:
		return buf.runLaunched(g.nodes[from:to], g.from[from:to], at, hop)
	case len(buf.hops) > 0:
		return buf.runApart(g.nodes[from:to], g.from[from:to], at)
	}
	return buf.run(g.nodes[from:to], at, hop)
}

// run executes nodes as number at, at+1, ... of the step.
func (buf *Buffer) run(nodes []node, at int, hop float64) int {
	cost, clock, end := buf.cost, buf.clock, buf.end
	for _, n := range nodes {
		t := clock[n.rank]
		if n.dep != 0 {
			if sent := end[at-int(n.dep)] + hop; sent > t { // the built-in max, which minds NaN, takes longer
				t = sent
			}
			if n.dep2 != 0 {
				t = max(t, end[at-int(n.dep2)]+hop)
			}
		}
		t += cost[n.cost]
		clock[n.rank] = t
		end[at] = t
		at++
	}
	return at
}

// runApart is run where transfers between two ranks take their own time.
func (buf *Buffer) runApart(nodes []node, from [][4]int32, at int) int {
	for i, n := range nodes {
		t := buf.clock[n.rank]
		for k, d := range [2]int32{n.dep, n.dep2} {
			if d != 0 {
				t = max(t, buf.end[at-int(d)]+buf.hop(n.rank, from[i][k]))
			}
		}
		t += buf.cost[n.cost]
		buf.clock[n.rank], buf.end[at] = t, t
		at++
	}
	return at
}

// runLaunched is run and runApart where hosts launch what runs.
func (buf *Buffer) runLaunched(nodes []node, from [][4]int32, at int, hop float64) int {
	apart := len(buf.hops) > 0
	for i := range nodes {
		n := &nodes[i]
		t := buf.begins(n.rank, n.cost)
		for k, d := range [2]int32{n.dep, n.dep2} {
			if d == 0 {
				continue
			}
			if apart {
				hop = buf.hop(n.rank, from[i][k])
			}
			t = max(t, buf.end[at-int(d)]+hop)
		}
		t = buf.launch[n.cost].begin(&buf.host[n.rank], t+buf.cost[n.cost])
		buf.clock[n.rank], buf.end[at] = t, t
		at++
	}
	return at
}

// hop is the time of a transfer between two ranks.
func (buf *Buffer) hop(a, b int32) float64 { return buf.hops[int(a)*len(buf.clock)+int(b)] }

// settled returns the smallest c for which the last c periods moved everything
// that later nodes can see by one same step of time, or 0.
//
// Later ends are maxima of sums of these ends. Such a map commutes with adding
// a constant to all of them, so n more times c periods add n steps, exactly; and
// it never enlarges the largest difference, so a tolerance of 5e-13 of a step
// stays below 1e-12 of the total.
func (g *graph) settled(end []float64, ranks int) (c int, step float64) {
	window := max(g.reach, g.period)
	for c = 1; c <= 2*ranks; c++ {
		shift := c * g.period
		if g.body+window+shift > len(end) {
			return 0, 0
		}
		last := len(end) - 1
		step = end[last] - end[last-shift]
		tolerance := 5e-13 * step
		i := last
		for i > last-window && math.Abs(end[i]-end[i-shift]-step) <= tolerance {
			i--
		}
		if i == last-window {
			return c, step
		}
	}
	return 0, 0
}

// shift adds dt to all that nodes from number at on can see.
func (buf *Buffer) shift(at, window int, dt float64) {
	for i := at - window; i < at; i++ {
		buf.end[i] += dt
	}
	for r := range buf.clock {
		buf.clock[r] += dt
	}
	for r := range buf.comm {
		buf.comm[r] += dt
		buf.start[r] += dt
	}
}

// costs lays out the durations by node.cost, reusing the memory of into.
func (pl *Plan) costs(t *Times, into []float64) []float64 {
	n := pl.Stages()
	cost := resize(into, int(pairKind+1)*n)
	for s := range n {
		var f, b, bi, bw float64
		f = float64(t.F[s])
		if len(t.BI) > 0 {
			bi, bw = float64(t.BI[s]), float64(t.BW[s])
		}
		b = bi + bw
		if t.B != nil {
			b = float64(t.B[s])
		}
		for k, c := range [...]float64{f, b, bi, bw} {
			cost[k*n+s] = c
		}
	}
	for s := range n { // pairs join the forward of a stage and the backward of the other chunk
		rank, chunk := pl.Where(s)
		f, b := cost[s], cost[int(Backward)*n+pl.Stage(rank, (chunk+1)%pl.Chunks)]
		cost[int(pairKind)*n+s] = f + b - t.Overlap*min(f, b)
	}
	return cost
}

// launches lays them out as costs does the durations.
func (pl *Plan) launches(l *Launches, into []Launch) []Launch {
	n := pl.Stages()
	all := resize(into, int(pairKind+1)*n)
	for k, by := range [...][]Launch{l.F, l.B, l.BI, l.BW} {
		copy(all[k*n:(k+1)*n], by)
	}
	for s := range n {
		rank, chunk := pl.Where(s)
		all[int(pairKind)*n+s] = all[s].add(all[int(Backward)*n+pl.Stage(rank, (chunk+1)%pl.Chunks)])
	}
	return all
}

// collect reads the result off the ends of the nodes.
func (pl *Plan) collect(hop float64, buf *Buffer) Result {
	g, r, n := pl.graph, &buf.result, pl.Ranks
	r.Start, r.Finish = resize(r.Start, n), resize(r.Finish, n)
	r.Busy, r.Bubble = cleared(r.Busy, n), resize(r.Bubble, n)
	r.Slowed, r.Hosted = cleared(r.Slowed, n), cleared(r.Hosted, n)
	r.Total, r.Period = 0, 0
	for i, count := range g.count {
		if count > 0 {
			rank, _ := pl.Where(i % pl.Stages())
			r.Busy[rank] += units.Seconds(float64(count) * buf.cost[i])
		}
	}
	for rank, i := range g.first {
		start, finish := 0.0, buf.clock[rank]
		if g.events != nil {
			if d := g.events[i].deps[0]; d > 0 {
				start = buf.end[i-d]
			}
			finish = max(finish, buf.comm[rank])
			r.Slowed[rank] = units.Seconds(buf.slowed[rank])
		} else if d := g.nodes[i].dep; d > 0 {
			if len(buf.hops) > 0 {
				hop = buf.hop(int32(rank), g.from[i][0])
			}
			start = buf.end[i-d] + hop
		}
		if len(buf.launch) > 0 { // where launches take long, some of what transfers slow hides beside them
			hosted := min(units.Seconds(buf.free[rank].clock), units.Seconds(finish)-r.Slowed[rank]) - r.Busy[rank]
			r.Hosted[rank] = max(hosted, 0)
		}
		r.Busy[rank] += r.Slowed[rank] + r.Hosted[rank]
		r.Start[rank], r.Finish[rank] = units.Seconds(start), units.Seconds(finish)
		r.Total = max(r.Total, r.Finish[rank])
		r.Period = max(r.Period, r.Finish[rank]-r.Start[rank])
	}
	for rank := range r.Bubble {
		r.Bubble[rank] = max(r.Total-r.Busy[rank], 0) // whose sums are inexact
	}
	return *r
}
