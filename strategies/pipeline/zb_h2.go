package pipeline

func init() {
	register(Info{
		Name:   "zb-h2",
		Doc:    "zero bubble: twice the warm-up of 1F1B fills the wait for the first backward; twice the memory",
		Source: "arXiv 2401.10241 section 2.2 (ZB-H2)",
		Splits: true,
		// Ranks start one forward apart, and the last ends as much later.
		OpenEnds: true,
		virtual:  1,
		order: func(l *list) {
			l.oneForwardOneBackward(2*(l.p-1-l.rank), chunk0, chunk0, true, 2*l.rank)
		},
		period: everyMicroBatch,
	})
}
