package pipeline

func init() {
	register(Info{
		Name:   "looped-bfs",
		Doc:    "gpipe over v chunks per rank, all micro batches of a chunk at once; suits sharded weights",
		Source: "arXiv 2211.05953; torch ScheduleLoopedBFS",
		order: func(l *list) {
			for c := range l.v {
				for range l.m {
					l.forward(c)
				}
			}
			for c := l.v - 1; c >= 0; c-- { // last in, first out
				for mb := l.m - 1; mb >= 0; mb-- {
					l.actions = append(l.actions, Action{Kind: Backward, Chunk: int32(c), MicroBatch: int32(mb)})
				}
			}
		},
	})
}
