package pipeline

import "github.com/perfplan/perfplan/internal/units"

func init() {
	register(Info{
		Name:   "zb-h2",
		Doc:    "zero bubble: twice the warm-up of 1F1B fills the wait for the first backward; twice the memory",
		Source: "arXiv 2401.10241 section 2.2 (ZB-H2)",
		Splits: true,
		// Ranks start one forward apart, and the last ends as much later.
		OpenEnds:      true,
		BubbleFormula: "(p-1)max(0, F+B-2W)",
		Bubble: func(p, _, _ int, f, b, w units.Seconds) units.Seconds {
			return units.Seconds(p-1) * max(0, f+b-2*w)
		},
		ExactIf: "W <= F, W <= B and m >= 2p-1",
		exact: func(p, v, m int, f, b, w units.Seconds) bool {
			return weightsFit(2*p-1, v, m, f, b, w)
		},
		PeakFormula: "min(m, 2p-1)",
		Peak:        func(p, _, m int) float64 { return float64(min(m, 2*p-1)) },
		virtual:     1,
		order: func(l *list) {
			l.oneForwardOneBackward(2*(l.p-1-l.rank), chunk0, chunk0, true, 2*l.rank)
		},
		period: everyMicroBatch,
	})
}
