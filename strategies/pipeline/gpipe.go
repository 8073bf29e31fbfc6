package pipeline

import "github.com/perfplan/perfplan/internal/units"

func init() {
	register(Info{
		Name:          "gpipe",
		Doc:           "all forwards, then all backwards; simplest, holds every micro batch",
		Source:        "arXiv 1811.06965; torch ScheduleGPipe",
		BubbleFormula: "(p-1)(F+B+W)",
		Bubble:        fillAndDrain,
		PeakFormula:   "m",
		Peak:          func(_, _, m int) float64 { return float64(m) },
		virtual:       1,
		blocking:      blockingOneByOne,
		torch:         torchGPipe,
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

// fillAndDrain is the idle time of filling and draining p ranks once with
// 1/v of their work.
func fillAndDrain(p, v, _ int, f, b, w units.Seconds) units.Seconds {
	return units.Seconds(p-1) * (f + b + w) / units.Seconds(v)
}

// enoughToFill reports whether every rank has a micro batch at some moment.
func enoughToFill(p, _, m int, _, _, _ units.Seconds) bool { return m >= p }
