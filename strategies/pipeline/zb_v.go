package pipeline

func init() {
	register(Info{
		Name:      "zb-v",
		Doc:       "zero bubble over two chunks per rank placed in a V; memory of 1F1B",
		Source:    "arXiv 2401.10241 section 6; torch ScheduleZBVZeroBubble",
		Placement: V,
		Splits:    true,
		OpenEnds:  true,
		virtual:   2,
		order:     zbV,
		period:    everyMicroBatch,
	})
}

// zbV is drawn for a pipeline that fills: at least 2p-1 micro batches.
func zbV(l *list) {
	p, r := l.p, l.rank
	m := int32(max(l.m, 2*p-1))
	// Fill: down the V, then down and up in turn, then the first backwards.
	for range 2*(p-r) - 1 {
		l.forward(0)
	}
	for range r {
		l.forward(1)
		l.forward(0)
	}
	for range p - r {
		l.forward(1)
		l.input(1)
		l.weight(1)
	}
	// Steady: one whole micro batch of each chunk.
	for l.next[0][Forward] < m || l.next[1][Forward] < l.next[0][Forward] {
		if l.next[0][Forward] < m {
			l.forward(0)
		}
		l.input(0)
		l.weight(0)
		l.forward(1)
		l.input(1)
		l.weight(1)
	}
	// Drain: inputs first, weights last.
	for range r {
		l.input(0)
		l.input(1)
	}
	for range p - r {
		l.input(0)
		l.weight(0)
	}
	for _, c := range []int{1, 0} {
		for l.next[c][BackwardWeight] < l.next[c][BackwardInput] {
			l.weight(c)
		}
	}
}
