package pipeline

import (
	"github.com/perfplan/perfplan/internal/diag"
)

// DualPipe sends half of the micro batches down the ranks and half up, through
// two copies of the model. Folding the ranks in the middle gives DualPipeV: one
// copy, half the ranks, two chunks per rank in a V, the same order.
func init() {
	row := Info{
		Name:      "dualpipe",
		Doc:       "DeepSeek's two-way pipeline: forward and backward overlap, parameters held twice",
		Source:    "arXiv 2412.19437; github.com/deepseek-ai/DualPipe",
		Placement: V,
		Copies:    2,
		Splits:    true,
		virtual:   2,
		rule: func(p, _, m int) error {
			if p%2 != 0 {
				return diag.Errorf("dualpipe: %d pipeline ranks are odd, but ranks mirror each other in pairs; use %s", p, nearest(p, func(n int) bool { return n%2 == 0 }))
			}
			if m%2 != 0 || m < 2*p {
				return diag.Errorf("dualpipe: %d micro batches; needs an even number, at least %d (2 x %d pipeline ranks); use %s", m, 2*p, p, nearest(m, func(n int) bool { return n%2 == 0 && n >= 2*p }))
			}
			return nil
		},
		order: func(l *list) {
			l.first[1] = int32(l.m)
			half := l.p / 2
			if l.rank < half {
				dualOrder(l, half, l.rank, 0)
			} else {
				dualOrder(l, half, l.p-1-l.rank, 1)
			}
		},
		period: everyMicroBatch,
	}
	register(row)

	row.Name = "dualpipe-v"
	row.Doc = "dualpipe folded into a V: one copy of the parameters, two chunks per rank"
	row.Source = "torch ScheduleDualPipeV; github.com/deepseek-ai/DualPipe"
	row.Copies = 1
	row.rule = func(p, _, m int) error {
		if m < 2*p {
			return diag.Errorf("dualpipe-v: %d micro batches are fewer than the %d stages (2 x %d pipeline ranks); use at least %d", m, 2*p, p, 2*p)
		}
		return nil
	}
	row.order = func(l *list) { dualOrder(l, l.p, l.rank, 0) }
	register(row)
}

// dualOrder writes the order of the rank that is r steps from the end of a V of
// d ranks; down is the chunk that enters at the end, the other one leaves there.
func dualOrder(l *list, d, r, down int) {
	up := 1 - down
	var waiting []int // chunks whose weight halves are due, oldest first
	input := func(chunk int) {
		l.input(chunk)
		waiting = append(waiting, chunk)
	}
	weight := func() {
		if len(waiting) > 0 {
			l.weight(waiting[0])
			waiting = waiting[1:]
		}
	}
	for range 2 * (d - r - 1) {
		l.forward(down)
	}
	for range r + 1 {
		l.forward(down)
		l.forward(up)
	}
	for range d - r - 1 {
		input(up)
		weight()
		l.forward(up)
	}
	for i := range l.m - 2*d + r + 1 {
		if i == 0 && r == d-1 { // at the fold the forward alone is sooner done
			l.forward(down)
			l.backward(up)
		} else {
			l.pair(down, up)
		}
		l.pair(up, down)
	}
	for range d - r - 1 {
		l.backward(up)
		l.pair(up, down)
	}
	// Drain: whole backwards first, then split ones.
	for i := range 2 * (r + 1) {
		chunk := []int{up, down}[i%2]
		if i <= r {
			l.backward(chunk)
		} else {
			input(chunk)
		}
	}
	for range d - r - 1 {
		weight()
		input(down)
	}
	for range r + 1 {
		weight()
	}
}
