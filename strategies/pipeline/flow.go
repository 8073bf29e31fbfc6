package pipeline

import (
	"fmt"
	"slices"
)

// event is a pass or a call, in an order in which all that it waits for comes
// earlier, and every call of a rank before the passes written after it.
type event struct {
	// How many events back stands what it waits for; 0: nothing. Of a pass, the
	// first is its call; of an end, they are the starts on the other sides. Of an
	// exchange, the first is the other rank.
	deps [4]int32
	cost int32 // of a pass: index into the table of durations; else the kind of event
	rank int32
}

// Events of calls.
const (
	exchangeEvent = -1 - iota // all of a call that two ranks have between themselves
	startEvent                // the start of one rank's call
	endEvent                  // its end
)

// placed is an event of a unit-time run, in which a pass takes two units and a
// transfer one.
type placed struct {
	event
	at    [4]int32 // deps as indices of events; -1: none
	time  int32    // of a pass, its start or the end of the calls before it, whichever is later; of a start, its start; else the end
	chunk int32
	mb    int32
}

// side is a call of some rank: one more than its number; 0: none.
type side struct{ rank, call int32 }

// flow turns programs into events by running them.
type flow struct {
	pl     *Plan
	ps     []program
	ranks  []flowRank
	events []placed
}

type flowRank struct {
	next        int       // step of the program
	clock, comm int32     // when its streams are free
	peers       [][4]side // by call: the calls on the other sides of its messages
	begun       []int32   // by call: the event that starts it; -1: not yet
	ended       []int32   // by call: the event that ends it; -1: not yet
}

// flowOrder runs the programs in unit time and returns their events in order of
// time. As with unitOrder, the steady state shows as an exactly repeating sequence.
// It fails when calls wait for each other.
func (pl *Plan) flowOrder(ps []program) ([]placed, error) {
	f := &flow{pl: pl, ps: ps, ranks: make([]flowRank, len(ps))}
	if err := f.join(); err != nil {
		return nil, err
	}
	for moved := true; moved; {
		moved = false
		for r := range ps {
			for f.step(r) {
				moved = true
			}
		}
	}
	for r := range ps {
		if n := f.ranks[r].next; n < len(ps[r].steps) {
			return nil, fmt.Errorf("%v: rank %d waits forever at step %d of %d", f.stuck(), r, n, len(ps[r].steps))
		}
	}
	return sortPlaced(f.events), nil
}

func (f *flow) stuck() string {
	return fmt.Sprintf("pipeline schedule %s (p=%d v=%d m=%d) is stuck with %v transfers", f.pl.Name, f.pl.Ranks, f.pl.Chunks, f.ps[0].m, f.pl.Transfers)
}

// join finds the two calls of each message.
func (f *flow) join() error {
	sides := make([][2]side, 2*f.pl.Stages()*f.ps[0].m) // by message
	total := 0
	for r := range f.ps {
		p, s := &f.ps[r], &f.ranks[r]
		n := len(p.ends)
		total += len(p.steps) + n
		s.peers, s.begun, s.ended = make([][4]side, n), make([]int32, n), make([]int32, n)
		for c := range n {
			s.begun[c], s.ended[c] = -1, -1
			for _, m := range p.call(int32(c)) {
				i := 0
				if sides[m][0].call > 0 {
					i = 1
				}
				sides[m][i] = side{int32(r), int32(c) + 1}
			}
		}
	}
	for r := range f.ps {
		for c := range f.ps[r].ends {
			peers := f.ranks[r].peers[c][:0]
			for _, m := range f.ps[r].call(int32(c)) {
				other := sides[m][0]
				if other.rank == int32(r) {
					other = sides[m][1]
				}
				if other.call == 0 {
					return fmt.Errorf("%v: nobody takes a message of rank %d", f.stuck(), r)
				}
				if !slices.Contains(peers, other) {
					peers = append(peers, other)
				}
			}
		}
	}
	f.events = make([]placed, 0, total)
	return nil
}

// step runs the next step of a rank, or the start of it, and reports whether
// anything could.
func (f *flow) step(r int) bool {
	s, p := &f.ranks[r], &f.ps[r]
	if s.next == len(p.steps) {
		return false
	}
	st := p.steps[s.next]
	e := placed{event: event{rank: int32(r)}, at: [4]int32{-1, -1, -1, -1}}
	if st.call < 0 {
		a := p.actions[st.action]
		kind, length := a.Kind, int32(2)
		if a.Overlap {
			kind, length = pairKind, 4
		}
		e.cost, e.chunk, e.mb = f.pl.costIndex(kind, f.pl.Stage(r, int(a.Chunk))), a.Chunk, a.MicroBatch
		if st.wait >= 0 {
			e.at[0] = s.ended[st.wait]
			s.clock = max(s.clock, f.events[e.at[0]].time)
		}
		e.time = max(s.clock, s.comm)
		s.clock += length
		f.events = append(f.events, e)
		s.next++
		return true
	}
	id := int32(len(f.events))
	peers := s.peers[st.call]
	if q, ok := f.alone(peers); ok {
		other := &f.ranks[q.rank]
		if steps := f.ps[q.rank].steps; other.next == len(steps) || steps[other.next].call != q.call-1 {
			return false
		}
		e.cost, e.rank, e.deps[0] = exchangeEvent, min(e.rank, q.rank), max(e.rank, q.rank)
		e.time = max(s.clock, s.comm, other.clock, other.comm) + 1
		s.comm, other.comm = e.time, e.time
		s.ended[st.call], other.ended[q.call-1] = id, id
		s.next++
		other.next++
	} else if s.begun[st.call] < 0 {
		e.cost, e.time = startEvent, max(s.clock, s.comm)
		s.begun[st.call] = id
	} else {
		e.cost, e.time = endEvent, f.events[s.begun[st.call]].time
		for i, q := range peers {
			if q.call == 0 {
				continue
			}
			if e.at[i] = f.ranks[q.rank].begun[q.call-1]; e.at[i] < 0 {
				return false
			}
			e.time = max(e.time, f.events[e.at[i]].time)
		}
		e.time++
		s.comm, s.ended[st.call] = e.time, id
		s.next++
	}
	f.events = append(f.events, e)
	return true
}

// alone returns the one other side of a call that has no further one itself.
func (f *flow) alone(peers [4]side) (side, bool) {
	q := peers[0]
	return q, peers[1].call == 0 && f.ranks[q.rank].peers[q.call-1][1].call == 0
}

// sortPlaced sorts by time; at the same time ends come before passes and passes
// before starts, and ranks in order.
func sortPlaced(events []placed) []placed {
	return ordered(events, func(e *placed) int32 { return e.rank }, func(e *placed) int32 {
		switch e.cost {
		case startEvent:
			return 3*e.time + 2
		case exchangeEvent, endEvent:
			return 3 * e.time
		}
		return 3*e.time + 1
	}, func(e *placed) []int32 { return e.at[:] })
}

// newFlowGraph makes the graph of sorted events, without a period.
func (pl *Plan) newFlowGraph(order []placed) *graph {
	g := &graph{events: make([]event, len(order)), from: make([][4]int32, len(order)), first: make([]int32, pl.Ranks), count: make([]int64, int(pairKind+1)*pl.Stages())}
	for i := len(order) - 1; i >= 0; i-- {
		e := order[i].event
		for k, d := range order[i].at {
			if d >= 0 {
				e.deps[k], g.from[i][k] = int32(i)-d, order[d].rank
			}
		}
		g.events[i] = e
		if e.cost >= 0 {
			g.first[e.rank] = int32(i)
			g.count[e.cost]++
		}
	}
	g.size, g.body, g.tail = len(order), len(order), len(order)
	return g
}

// foldFlow is fold for events.
func (g *graph) foldFlow(order []placed, per, repeat int) bool {
	mid, n := g.periodOf(len(order), per, func(i int) (cost, rank, chunk, mb int32) { e := &order[i]; return e.cost, e.rank, e.chunk, e.mb })
	if n == 0 || !settle(g, g.events, mid, n, repeat) {
		return false
	}
	for i := g.body; i < g.size; i++ {
		e := &g.events[i]
		back := max(e.deps[0], e.deps[1], e.deps[2], e.deps[3])
		if e.cost == exchangeEvent {
			back = 0
		}
		g.reaches(i, back)
	}
	g.eachOfPeriod(func(cost int32) { g.count[cost] += int64(repeat) })
	return true
}
