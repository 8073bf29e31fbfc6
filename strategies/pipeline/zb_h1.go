package pipeline

import "github.com/perfplan/perfplan/internal/units"

func init() {
	register(Info{
		Name:          "zb-h1",
		Doc:           "1F1B with the weight half of the backward moved into the bubble; memory of 1F1B",
		Source:        "arXiv 2401.10241 section 2.1 (ZB-H1)",
		Splits:        true,
		BubbleFormula: "(p-1)(F+B-W)",
		Bubble: func(p, _, _ int, f, b, w units.Seconds) units.Seconds {
			return units.Seconds(p-1) * (f + b - w)
		},
		ExactIf:     "W <= F, W <= B and m >= p",
		exact:       weightsFit,
		PeakFormula: "min(m, p)",
		Peak:        func(p, _, m int) float64 { return float64(min(m, p)) },
		virtual:     1,
		// A rank holds p-rank micro batches for 1F1B; it may hold rank more
		// before its weight halves must start.
		order: func(l *list) {
			l.oneForwardOneBackward(l.p-1-l.rank, chunk0, chunk0, true, l.rank)
		},
		period: everyMicroBatch,
	})
}

// weightsFit reports whether a weight half fits wherever it is put and the
// pipeline fills.
func weightsFit(p, _, m int, f, b, w units.Seconds) bool { return w <= min(f, b) && m >= p }
