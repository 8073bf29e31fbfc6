package pipeline

import "fmt"

// node is one action, or one overlapped pair, in an order in which everything
// it waits for comes earlier.
type node struct {
	dep, dep2 int32 // how many nodes back a message it waits for was sent; 0: none
	cost      int32 // index into the table of durations
	rank      int32
}

// graph is the order of all ranks as one list. It depends on the schedule and its
// transfers only, never on durations, so it is made once and run for many.
//
// nodes[:body] is the warm-up, nodes[body:tail] whole periods of the steady
// state and nodes[tail:] the cool-down; repeat more periods belong before it. The
// same holds for events.
type graph struct {
	nodes      []node     // under Async
	events     []event    // else
	from       [][4]int32 // by node or event: the ranks of what it waits for
	size       int        // of the two
	body, tail int
	period     int     // nodes in one period
	repeat     int     // periods left out
	reach      int     // no node from body on waits for one further back
	first      []int32 // by rank: its first node
	count      []int64 // by index into the table of durations: nodes of the step
}

// The table of durations has one entry per kind and stage, and one per stage
// for the pair that its forward starts.
const pairKind = kinds

func (pl *Plan) costIndex(k Kind, stage int) int32 { return int32(int(k)*pl.Stages() + stage) }

// step is a node placed in time, every action taking one unit.
type step struct {
	node
	time  int32 // its start
	deps  [2]int32
	chunk int32
	mb    int32
}

// unitOrder runs the lists with every action taking one unit of time, and
// returns the steps sorted by start. In that order the steady state shows as an
// exactly repeating sequence. It fails when the lists wait for each other.
func (pl *Plan) unitOrder(lists [][]Action, m int) ([]step, error) {
	total := 0
	for _, l := range lists {
		total += len(l)
	}
	u := unitRun{pl: pl, m: m, lists: lists, steps: make([]step, 0, total), next: make([]int, len(lists)), clock: make([]int32, len(lists))}
	for k := range u.done {
		u.done[k] = make([]int32, pl.Stages()*m)
	}
	for moved := true; moved; {
		moved = false
		for r := range lists {
			for u.step(r) {
				moved = true
			}
		}
	}
	for r, l := range lists {
		if n := u.next[r]; n < len(l) {
			return nil, fmt.Errorf("pipeline schedule %s (p=%d v=%d m=%d) is stuck: rank %d waits forever at action %d, %v", pl.Name, pl.Ranks, pl.Chunks, m, r, n, l[n])
		}
	}
	return sortSteps(u.steps), nil
}

// unitRun runs the lists of all ranks, every action taking one unit of time.
type unitRun struct {
	pl    *Plan
	m     int // micro batches
	lists [][]Action
	steps []step
	done  [kinds][]int32 // by stage and micro batch: 1 + the step that did it
	next  []int          // by rank: its next action
	clock []int32        // and when that may start
}

// step runs the next action of a rank, or pair of them, and reports whether it could.
func (u *unitRun) step(r int) bool {
	list := u.lists[r][u.next[r]:]
	if len(list) == 0 {
		return false
	}
	run, kind := list[:1], list[0].Kind
	if list[0].Overlap {
		run, kind = list[:2], pairKind
	}
	stage := u.pl.Stage(r, int(run[0].Chunk))
	s := step{node: node{rank: int32(r), cost: u.pl.costIndex(kind, stage)}, time: u.clock[r], deps: [2]int32{-1, -1}, chunk: run[0].Chunk, mb: run[0].MicroBatch}
	for i, a := range run {
		d, ok := u.wait(r, a)
		if !ok {
			return false
		}
		if s.deps[i] = d; d >= 0 {
			s.time = max(s.time, u.steps[d].time+u.steps[d].length(u.pl))
		}
	}
	u.steps = append(u.steps, s)
	for _, a := range run {
		u.done[a.Kind][u.pl.Stage(r, int(a.Chunk))*u.m+int(a.MicroBatch)] = int32(len(u.steps))
	}
	u.clock[r] = s.time + int32(len(run))
	u.next[r] += len(run)
	return true
}

// by is the step that did a pass of a stage; -1: none has yet.
func (u *unitRun) by(k Kind, stage int, mb int32) int32 { return u.done[k][stage*u.m+int(mb)] - 1 }

// wait returns the step on another rank that an action waits for, or -1, and
// whether everything it needs is done.
func (u *unitRun) wait(rank int, a Action) (int32, bool) {
	stage, next, ok := u.pl.Stage(rank, int(a.Chunk)), 0, false
	switch a.Kind {
	case BackwardWeight:
		return -1, u.by(BackwardInput, stage, a.MicroBatch) >= 0
	case Forward:
		next, ok = u.pl.Before(stage)
	default:
		if u.by(Forward, stage, a.MicroBatch) < 0 {
			return -1, false
		}
		next, ok = u.pl.After(stage)
	}
	if !ok {
		return -1, true
	}
	k := a.Kind
	if k != Forward && u.by(Backward, next, a.MicroBatch) < 0 {
		k = BackwardInput
	} else if k != Forward {
		k = Backward
	}
	from := u.by(k, next, a.MicroBatch)
	if from >= 0 && u.steps[from].rank == int32(rank) {
		return -1, true
	}
	return from, from >= 0
}

// length is the unit time a step takes.
func (s *step) length(pl *Plan) int32 {
	if int(s.cost) >= int(pairKind)*pl.Stages() {
		return 2
	}
	return 1
}

// sortSteps sorts by start, then rank.
func sortSteps(steps []step) []step {
	return ordered(steps, func(s *step) int32 { return s.rank }, func(s *step) int32 { return s.time }, func(s *step) []int32 { return s.deps[:] })
}

// ordered sorts by time, then rank, and renumbers the items that each waits for; -1: none.
func ordered[T any](items []T, rank, time func(*T) int32, deps func(*T) []int32) []T {
	var ranks, times int32
	for i := range items {
		ranks, times = max(ranks, rank(&items[i])+1), max(times, time(&items[i])+1)
	}
	// Counting sort, by rank and then stably by time.
	order := countingSort(items, countingSort(items, nil, ranks, rank), times, time)
	place := make([]int32, len(items))
	for to, from := range order {
		place[from] = int32(to)
	}
	sorted := make([]T, len(items))
	for to, from := range order {
		sorted[to] = items[from]
		waits := deps(&sorted[to])
		for i, d := range waits {
			if d >= 0 {
				waits[i] = place[d]
			}
		}
	}
	return sorted
}

// countingSort returns the indices of items, taken in the order of from, sorted
// stably by a key below n.
func countingSort[T any](items []T, from []int32, n int32, key func(*T) int32) []int32 {
	at := make([]int32, n+1)
	for i := range items {
		at[key(&items[i])+1]++
	}
	for i := int32(1); i <= n; i++ {
		at[i] += at[i-1]
	}
	sorted := make([]int32, len(items))
	for i := range items {
		j := int32(i)
		if from != nil {
			j = from[i]
		}
		k := key(&items[j])
		sorted[at[k]] = j
		at[k]++
	}
	return sorted
}

// newGraph makes the graph of sorted steps, without a period.
func (pl *Plan) newGraph(order []step) *graph {
	g := &graph{nodes: make([]node, len(order)), from: make([][4]int32, len(order)), first: make([]int32, pl.Ranks), count: make([]int64, int(pairKind+1)*pl.Stages())}
	for i := len(order) - 1; i >= 0; i-- {
		s, from := order[i], &g.from[i]
		if s.deps[0] >= 0 {
			s.dep, from[0] = int32(i)-s.deps[0], order[s.deps[0]].rank
		}
		if s.deps[1] >= 0 {
			s.dep2, from[1] = int32(i)-s.deps[1], order[s.deps[1]].rank
		}
		if s.dep == 0 {
			s.dep, s.dep2, from[0] = s.dep2, 0, from[1]
		}
		g.nodes[i] = s.node
		g.first[s.rank] = int32(i)
		g.count[s.cost]++
	}
	g.size, g.body, g.tail = len(order), len(order), len(order)
	return g
}

// fold finds the steady state, in which the order repeats every per micro
// batches of a chunk, and adds repeat periods to it. It reports whether there
// are two whole periods to be found.
func (g *graph) fold(order []step, per, repeat int) bool {
	mid, n := g.periodOf(len(order), per, func(i int) (cost, rank, chunk, mb int32) { s := &order[i]; return s.cost, s.rank, s.chunk, s.mb })
	if n == 0 || !settle(g, g.nodes, mid, n, repeat) {
		return false
	}
	for i := g.body; i < g.size; i++ {
		g.reaches(i, max(g.nodes[i].dep, g.nodes[i].dep2))
	}
	g.eachOfPeriod(func(cost int32) { g.count[cost] += int64(repeat) })
	return true
}

// periodOf returns a forward of rank 0 in the middle of a step, and how many nodes later the same
// comes of per micro batches later; 0: none does.
func (g *graph) periodOf(size, per int, at func(i int) (cost, rank, chunk, mb int32)) (mid, n int) {
	for mid = size / 2; mid < size; mid++ {
		cost, rank, chunk, mb := at(mid)
		if cost < 0 || rank != 0 || chunk != 0 || !g.startsForward(cost) {
			continue
		}
		for next := mid + 1; next < size; next++ {
			if c, _, _, m := at(next); c == cost && m == mb+int32(per) {
				return mid, next - mid
			}
		}
		break
	}
	return mid, 0
}

// settle marks the periods of n nodes around mid, and reports whether there are
// two whole ones.
func settle[N comparable](g *graph, nodes []N, mid, n, repeat int) bool {
	from, to := mid, mid
	for from > 0 && nodes[from-1] == nodes[from-1+n] {
		from--
	}
	for to+n < len(nodes) && nodes[to] == nodes[to+n] {
		to++
	}
	if to-from < n {
		return false
	}
	g.period, g.repeat = n, repeat
	g.body, g.tail = from, from+(to-from)/n*n
	return true
}

// reaches notes how far back node i looks.
func (g *graph) reaches(i int, back int32) {
	if i >= g.tail {
		back -= int32(i - g.tail)
	}
	g.reach = max(g.reach, int(back))
}

// startsForward reports whether a duration is that of a forward or a pair.
func (g *graph) startsForward(cost int32) bool {
	k := Kind(int(cost) / (len(g.count) / int(pairKind+1)))
	return k == Forward || k == pairKind
}
