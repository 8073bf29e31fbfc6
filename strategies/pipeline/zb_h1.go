package pipeline

func init() {
	register(Info{
		Name:    "zb-h1",
		Doc:     "1F1B with the weight half of the backward moved into the bubble; memory of 1F1B",
		Source:  "arXiv 2401.10241 section 2.1 (ZB-H1)",
		Splits:  true,
		virtual: 1,
		// A rank holds p-rank micro batches for 1F1B; it may hold rank more
		// before its weight halves must start.
		order: func(l *list) {
			l.oneForwardOneBackward(l.p-1-l.rank, chunk0, chunk0, true, l.rank)
		},
		period: everyMicroBatch,
	})
}
