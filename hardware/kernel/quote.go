package kernel

import (
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// Quote is the price of one kernel with all that is known about it.
type Quote struct {
	Explain
	Low, High units.Seconds // 80 % range
	Clock     units.Hertz   // SM clock that the time holds for
	On        string        // GPU that the law was measured on, when it is another; "" otherwise

	Rate      units.FLOPRate // FLOPs over time; 0 for kernels without matrix multiplies
	Format    string         // that the multiplies run in
	Peak      units.FLOPRate // dense, of that format
	Bandwidth units.Rate     // bytes over time
	Memory    units.Rate     // of the datasheet
}

// Quote prices an op.
func (t *Timer) Quote(o *tape.Op) Quote {
	q := Quote{Explain: t.Explain(o), Clock: t.gpu.TopClock(), Memory: t.gpu.Bandwidth.Value}
	own, other := t.Spread(o)
	q.RelErr = math.Hypot(own, other)
	q.Low, q.High = hardware.Range(q.Time, q.RelErr)
	if on := t.on(o); on != nil && on.Name.Value != t.gpu.Name.Value {
		q.On = on.Name.Value
	}
	n := units.Bytes(max(o.Count, 1))
	q.Rate = o.FLOPs.Per(q.Time)
	q.Bandwidth = (o.Bytes * n).Per(q.Time)
	if o.FLOPs > 0 {
		q.Format, q.Peak = t.peak(o.DType)
		if o.Class == tape.Attention && o.DType == tape.F32 {
			if q.Peak < t.attn.fp32 {
				q.Format = "3xTF32"
			}
			q.Peak = t.attn.fp32
		}
	}
	return q
}

// on is the GPU that the law of an op was measured on; nil when there is no law.
func (t *Timer) on(o *tape.Op) *hardware.GPU {
	switch o.Class {
	case tape.GEMM, tape.GroupedGEMM:
		return t.gemm.law.On
	case tape.Attention:
		return t.attn.law.On
	}
	if c := &t.classes[o.Class]; c.known {
		return c.law.On
	}
	return nil
}

// peak is the format that multiplies of a dtype run in, and its dense rate.
func (t *Timer) peak(d tape.DType) (string, units.FLOPRate) {
	for _, name := range Formats(d) {
		if p := t.gpu.Peak.Of(name); p > 0 {
			return name, p
		}
	}
	return "", 0
}
