package pipeline

func init() {
	register(Info{
		Name:   "interleaved-zero-bubble",
		Doc:    "zb-h1 over v chunks per rank, in PyTorch's rounds; v = 1 is zb-h1",
		Source: "arXiv 2401.10241; torch ScheduleInterleavedZeroBubble (ZB1P)",
		Splits: true,
		rule:   equalRounds("interleaved-zero-bubble"),
		order: func(l *list) {
			group := roundSize(l.p, l.m)
			f, b := l.grouped(group)
			l.oneForwardOneBackward((l.v-1)*group+l.p-1-l.rank, f, b, true, l.rank)
		},
		period: torchPeriod,
	})
}
