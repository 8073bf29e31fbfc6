package pipeline

// Plan is a legal schedule for given ranks, chunks and micro batches. It is
// read-only and safe for concurrent use.
type Plan struct {
	*Info
	Ranks        int // p
	Chunks       int // v, virtual stages per rank
	MicroBatches int // m, of the whole step
	// Transfers is how Run moves data between ranks: what was asked for, or Async
	// where nobody runs the schedule that way.
	Transfers Transfers

	lists  [][]Action // by rank, for the compact number of micro batches
	graph  *graph
	shared *moments // of all plans with these lists
	own    *moments
}

// plan builds the Plan from the lists of the compact number of micro batches,
// or of all m if those do not settle into a period.
func (i *Info) plan(p, v, m, compact int, t Transfers) (*Plan, error) {
	if t == InStep && i.inStep == nil {
		t = Torch
	}
	pl := &Plan{Info: i, Ranks: p, Chunks: v, MicroBatches: m, Transfers: t, lists: i.lists(p, v, compact), shared: &moments{}, own: &moments{}}
	folded, err := pl.arrange(compact)
	if err != nil {
		return nil, err
	}
	if !folded {
		return i.plan(p, v, m, m, t)
	}
	return pl, nil
}

// arrange makes the graph from the lists of compact micro batches. It returns false
// where those are not all and do not settle into a period.
func (pl *Plan) arrange(compact int) (bool, error) {
	per, repeat := 0, 0
	if compact < pl.MicroBatches {
		per = pl.period(pl.Ranks, pl.Chunks, pl.MicroBatches)
		repeat = (pl.MicroBatches - compact) / (per * pl.Copies)
	}
	ps := pl.programs(pl.lists, compact)
	if ps == nil {
		pl.Transfers = Async
		order, err := pl.unitOrder(pl.lists, compact)
		if err != nil {
			return false, err
		}
		pl.graph = pl.newGraph(order)
		return repeat == 0 || pl.graph.fold(order, per, repeat), nil
	}
	order, err := pl.flowOrder(ps)
	if err != nil {
		return false, err
	}
	pl.graph = pl.newFlowGraph(order)
	return repeat == 0 || pl.graph.foldFlow(order, per, repeat), nil
}

// lists writes the actions of all ranks for m micro batches into one array.
func (i *Info) lists(p, v, m int) [][]Action {
	l := list{p: p, v: v, m: m / i.Copies, next: make([][kinds]int32, v), first: make([]int32, v)}
	per := 2 // actions of a micro batch
	if i.Splits {
		per = 3
	}
	l.actions = make([]Action, 0, p*v*l.m*per)
	lists, at := make([][]Action, p), 0
	for r := range lists {
		l.reset(r)
		i.order(&l)
		lists[r], at = l.actions[at:len(l.actions):len(l.actions)], len(l.actions)
	}
	return lists
}

// Actions returns what a rank runs, in order. The caller must not change it.
func (pl *Plan) Actions(rank int) []Action {
	if pl.graph.repeat == 0 {
		return pl.lists[rank]
	}
	l := list{p: pl.Ranks, v: pl.Chunks, m: pl.MicroBatches / pl.Copies, next: make([][kinds]int32, pl.Chunks), first: make([]int32, pl.Chunks)}
	l.reset(rank)
	pl.order(&l)
	return l.actions
}

// Compact returns the actions of a rank in a step of fewer micro batches that has
// its whole warm-up and cool-down, and its steady state at least three times. The
// caller must not change them.
func (pl *Plan) Compact(rank int) []Action { return pl.lists[rank] }

// Stages returns the number of stages, Ranks x Chunks. Stages of DualPipe's
// second copy of the model follow those of the first.
func (pl *Plan) Stages() int { return pl.Ranks * pl.Chunks }

// ModelStages returns into how many parts the model is cut.
func (pl *Plan) ModelStages() int { return pl.Stages() / pl.Copies }

// ModelStage returns which part of the model a stage computes.
func (pl *Plan) ModelStage(stage int) int { return stage % pl.ModelStages() }

// Stage returns the stage that a rank holds as one of its chunks.
func (pl *Plan) Stage(rank, chunk int) int {
	if pl.Placement == V && chunk%2 == 1 {
		rank = pl.Ranks - 1 - rank
	}
	return chunk*pl.Ranks + rank
}

// Where returns the rank that holds a stage, and as which of its chunks.
func (pl *Plan) Where(stage int) (rank, chunk int) {
	rank, chunk = stage%pl.Ranks, stage/pl.Ranks
	if pl.Placement == V && chunk%2 == 1 {
		rank = pl.Ranks - 1 - rank
	}
	return rank, chunk
}

// Before returns the stage whose output a stage takes; false for the first.
func (pl *Plan) Before(stage int) (int, bool) { return stage - 1, pl.ModelStage(stage) > 0 }

// After returns the stage that takes the output of a stage; false for the last.
func (pl *Plan) After(stage int) (int, bool) {
	return stage + 1, pl.ModelStage(stage) < pl.ModelStages()-1
}
