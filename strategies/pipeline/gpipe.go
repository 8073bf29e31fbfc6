package pipeline

func init() {
	register(Info{
		Name:     "gpipe",
		Doc:      "all forwards, then all backwards; simplest, holds every micro batch",
		Source:   "arXiv 1811.06965; torch ScheduleGPipe",
		virtual:  1,
		blocking: blockingOneByOne,
		torch:    torchGPipe,
		order: func(l *list) {
			for range l.m {
				l.forward(0)
			}
			for range l.m {
				l.backward(0)
			}
		},
	})
}
