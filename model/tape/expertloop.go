package tape

import "github.com/perfplan/perfplan/internal/units"

// OneHot is a map of which of so many experts the k of each row of scores [rows, k] are, an
// integer of 64 bits for each, [rows, k, experts]: zeros, and ones by index (aten/src/ATen/native/Onehot.cpp).
func (t *Tape) OneHot(scores *Tensor, experts int64) *Tensor {
	y := t.Zeros(I64, scores.Dim(0), scores.Dim(1), experts)
	t.emit(Op{Prim: "scatter_", Class: Scatter, DType: I64, Elements: float64(scores.Size()), Bytes: 16 * units.Bytes(scores.Size())})
	return y
}

// CountHot sums a map that OneHot made for each expert.
func (t *Tape) CountHot(m *Tensor) { t.over("sum", TallReduce, m, m.bytes()) }

// AddInto adds the rows of x to those of y that an index names (index_add_), one atomic
// addition for each element, and returns y. Its gradient is the result's; that of x gathers rows of it.
func (t *Tape) AddInto(y, x *Tensor) *Tensor {
	t.begin()
	t.emit(Op{Prim: "index_add_", Class: AtomicAdd, DType: x.dtype, Elements: indexAdd * float64(x.Size()), Bytes: 3 * x.bytes()})
	z := t.view(y)
	index := []*Tensor{nil} // as of Rows
	t.attach([]*Tensor{y, x}, []*Tensor{z}, index, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var whole, rows *Tensor
		if y.grad {
			whole = t.Hold(g[0])
		}
		if x.grad {
			rows = t.emptyLike(x)
			t.permutation("index_select", rows, rows)
		}
		return present(whole, rows)
	})
	return z
}
