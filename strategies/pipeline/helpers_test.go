package pipeline

import "github.com/perfplan/perfplan/internal/units"

// equal returns the same times for every stage.
func equal(pl *Plan, f, b, w units.Seconds) Times {
	t := Times{}
	for range pl.Stages() {
		t.F, t.BI, t.BW = append(t.F, f), append(t.BI, b), append(t.BW, w)
	}
	return t
}

// uneven returns times of a model whose ends carry the embedding and the head.
func uneven(pl *Plan) Times {
	t := equal(pl, 1*units.Millisecond, 1.1*units.Millisecond, 0.9*units.Millisecond)
	t.Hop = 20 * units.Microsecond
	t.F[0] += 0.05 * units.Millisecond
	last := pl.ModelStages() - 1
	t.F[last] += 0.4 * units.Millisecond
	t.BI[last] += 0.3 * units.Millisecond
	return t
}
