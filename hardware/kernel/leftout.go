package kernel

import (
	"math"

	"github.com/perfplan/perfplan/model/tape"
)

// LeftOut is how well a law and its other measured shapes foretell one of them.
type LeftOut struct {
	Op  tape.Op
	Log float64 // ln(measured/predicted)
}

// LeaveOneOut predicts each measured shape of the GEMM law from the law and the
// other shapes.
func (t *Timer) LeaveOneOut() []LeftOut {
	var out []LeftOut
	for layout := range t.gemm.points {
		for i := range t.gemm.points[layout] {
			p := &t.gemm.points[layout][i]
			o := tape.Op{Class: tape.GEMM, DType: tape.BF16, Layout: tape.Layout(layout), Batch: 1, Count: 1,
				M: int64(math.Round(math.Exp2(p.m))), N: int64(math.Round(math.Exp2(p.n))), K: int64(math.Round(math.Exp2(p.k)))}
			out = append(out, LeftOut{o, p.residual - math.Log(t.gemm.correction(&o, p))})
		}
	}
	return out
}

// LeaveOneOutAttention does the same for the attention law.
func (t *Timer) LeaveOneOutAttention() []LeftOut {
	var out []LeftOut
	a := &t.attn
	for i := range a.law.Points {
		p := &a.law.Points[i]
		for direction, time := range p.Time {
			if time == 0 {
				continue
			}
			s := pointShape(p, direction == 1)
			o := tape.Op{Class: tape.Attention, DType: tape.BF16, Attn: &s, Count: 1}
			out = append(out, LeftOut{o, math.Log(float64(time) / (a.seconds(&s, a.on) * a.correction(&s, p)))})
		}
	}
	return out
}
