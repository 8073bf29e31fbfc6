package pipeline

import "github.com/perfplan/perfplan/internal/units"

func init() {
	register(Info{
		Name:          "interleaved-zero-bubble",
		Doc:           "zb-h1 over v chunks per rank, in PyTorch's rounds; v = 1 is zb-h1",
		Source:        "arXiv 2401.10241; torch ScheduleInterleavedZeroBubble (ZB1P)",
		Splits:        true,
		BubbleFormula: "(p-1)(F+B-W)/v",
		Bubble: func(p, v, _ int, f, b, w units.Seconds) units.Seconds {
			return units.Seconds(p-1) * (f + b - w) / units.Seconds(v)
		},
		ExactIf:     "W <= F, W <= B and m >= p",
		exact:       weightsFit,
		PeakFormula: "min(mv, (v-1)g+p)/v, g = m/max(1, m/p)",
		Peak: func(p, v, m int) float64 {
			return float64(min(m*v, (v-1)*roundSize(p, m)+p)) / float64(v)
		},
		rule: equalRounds("interleaved-zero-bubble"),
		order: func(l *list) {
			group := roundSize(l.p, l.m)
			f, b := l.grouped(group)
			l.oneForwardOneBackward((l.v-1)*group+l.p-1-l.rank, f, b, true, l.rank)
		},
		period: torchPeriod,
	})
}
