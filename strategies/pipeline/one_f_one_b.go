package pipeline

func init() {
	register(Info{
		Name:     "1f1b",
		Doc:      "one forward, one backward; the bubble of gpipe with at most p micro batches held",
		Source:   "arXiv 2006.09503 (PipeDream-Flush); Megatron-LM; torch Schedule1F1B",
		virtual:  1,
		order:    oneFOneB,
		blocking: blockingOneFOneB,
		torch:    torchOneFOneB,
		period:   everyMicroBatch,
	})
}

func oneFOneB(l *list) {
	l.oneForwardOneBackward(l.p-1-l.rank, chunk0, chunk0, false, 0)
}

func everyMicroBatch(_, _, _ int) int { return 1 }
