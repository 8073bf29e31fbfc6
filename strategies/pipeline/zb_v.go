package pipeline

import "github.com/perfplan/perfplan/internal/units"

func init() {
	register(Info{
		Name:          "zb-v",
		Doc:           "zero bubble over two chunks per rank placed in a V; memory of 1F1B",
		Source:        "arXiv 2401.10241 section 6; torch ScheduleZBVZeroBubble",
		Placement:     V,
		Splits:        true,
		OpenEnds:      true,
		BubbleFormula: "0 if F = B = W",
		Bubble:        func(_, _, _ int, _, _, _ units.Seconds) units.Seconds { return 0 },
		ExactIf:       "F = B = W and m >= 2p-1",
		exact: func(p, v, m int, f, b, w units.Seconds) bool {
			return m >= 2*p-1 && f == b && b == w
		},
		PeakFormula: "min(m, p)",
		Peak:        func(p, _, m int) float64 { return float64(min(m, p)) },
		virtual:     2,
		order:       zbV,
		period:      everyMicroBatch,
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
