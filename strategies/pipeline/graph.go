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
	total, stages := 0, pl.Stages()
	for _, l := range lists {
		total += len(l)
	}
	var (
		steps  = make([]step, 0, total)
		done   [kinds][]int32 // by stage and micro batch: 1 + the step that did it
		cursor = make([]int, len(lists))
		clock  = make([]int32, len(lists))
		left   = total
	)
	for k := range done {
		done[k] = make([]int32, stages*m)
	}
	sent := func(k Kind, stage int, mb int32) int32 { return done[k][stage*m+int(mb)] - 1 }
	// wait returns the step on another rank that a waits for, or -1, and
	// whether everything a needs is done.
	wait := func(rank int, a Action) (int32, bool) {
		stage, next, ok := pl.Stage(rank, int(a.Chunk)), 0, false
		switch a.Kind {
		case BackwardWeight:
			return -1, sent(BackwardInput, stage, a.MicroBatch) >= 0
		case Forward:
			next, ok = pl.Before(stage)
		default:
			if sent(Forward, stage, a.MicroBatch) < 0 {
				return -1, false
			}
			next, ok = pl.After(stage)
		}
		if !ok {
			return -1, true
		}
		k := a.Kind
		if k != Forward && sent(Backward, next, a.MicroBatch) < 0 {
			k = BackwardInput
		} else if k != Forward {
			k = Backward
		}
		from := sent(k, next, a.MicroBatch)
		if from >= 0 && steps[from].rank == int32(rank) {
			return -1, true
		}
		return from, from >= 0
	}
	for moved := true; moved; {
		moved = false
		for r, l := range lists {
			for cursor[r] < len(l) {
				run := l[cursor[r]:][:1]
				if run[0].Overlap {
					run = l[cursor[r]:][:2]
				}
				s := step{time: clock[r], deps: [2]int32{-1, -1}, chunk: run[0].Chunk, mb: run[0].MicroBatch}
				stage := pl.Stage(r, int(s.chunk))
				s.rank, s.cost = int32(r), pl.costIndex(run[0].Kind, stage)
				if len(run) == 2 {
					s.cost = pl.costIndex(pairKind, stage)
				}
				ready := true
				for i, a := range run {
					var ok bool
					s.deps[i], ok = wait(r, a)
					ready = ready && ok
					if d := s.deps[i]; d >= 0 {
						s.time = max(s.time, steps[d].time+steps[d].length(pl))
					}
				}
				if !ready {
					break
				}
				steps = append(steps, s)
				for _, a := range run {
					done[a.Kind][pl.Stage(r, int(a.Chunk))*m+int(a.MicroBatch)] = int32(len(steps))
				}
				clock[r] = s.time + int32(len(run))
				cursor[r] += len(run)
				left -= len(run)
				moved = true
			}
		}
	}
	if left > 0 {
		for r, l := range lists {
			if cursor[r] < len(l) {
				return nil, fmt.Errorf("pipeline schedule %s (p=%d v=%d m=%d) is stuck: rank %d waits forever at action %d, %v", pl.Name, pl.Ranks, pl.Chunks, m, r, cursor[r], l[cursor[r]])
			}
		}
	}
	return sortSteps(steps), nil
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
