package tape

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// paramGrad ends a gradient at its parameter, which takes over its storage. What no GEMM
// added to the main gradients (embeddings, norms, biases) a hook does. Those of a parameter that
// is used again are summed where no main gradients do that.
func (t *Tape) paramGrad(param int32, g *Tensor) {
	if t.HasMain && !g.summed {
		class, added := UnrolledMix, g.bytes()
		if t.MainGrad == g.dtype {
			class = Vectorized
		} else if t.MainCast {
			class, added = Vectorized, units.Bytes(g.Size())*t.MainGrad.Size()
			t.emit(Op{Prim: "to", Class: Unrolled, DType: t.MainGrad, Elements: float64(g.Size()), Bytes: g.bytes() + added})
		}
		t.emit(Op{Prim: "accumulate", Class: class, DType: t.MainGrad, Elements: float64(g.Size()), Bytes: 2*units.Bytes(g.Size())*t.MainGrad.Size() + added})
	}
	if i := slices.IndexFunc(t.sec.Grads, func(e ParamGrad) bool { return e.Param == param }); i >= 0 && !t.HasMain {
		old := *g
		old.store = t.sec.Grads[i].Store
		t.sec.Grads = slices.Delete(t.sec.Grads, i, i+1)
		g = t.settle(t.accumulate(&old, g))
	}
	made := ParamGrad{Param: param, Op: int32(len(t.sec.Ops)) - 1, Store: g.store, Bytes: t.stores[g.store].bytes}
	switch {
	case t.Tied == param+1:
		if made.Joins = t.joins(); made.Joins == ByProduct {
			t.sec.Events = slices.DeleteFunc(t.sec.Events, func(e Event) bool { return e.Store == g.store })
		}
	case t.Tied == 0 && made.Op >= 0 && t.sec.Ops[made.Op].Prim == "to": // a product's is a view, whose base stays (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace)
		made.Joins = InPlace
	}
	made.Events = int32(len(t.sec.Events))
	t.sec.Grads = append(t.sec.Grads, made)
}

// joins is how the gradient of Tied joins the table's. TorchInductor makes one product of a
// product and a sum where neither is cast between (traces and a memory snapshot of an H200, PyTorch 2.11).
func (t *Tape) joins() Joins {
	switch {
	case t.Tied == 0:
		return BySum
	case t.Autocast != F32:
		return ByCast
	}
	return ByProduct
}
