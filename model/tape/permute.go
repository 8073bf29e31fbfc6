package tape

// Permute copies each token's row to the k places its experts read (a fused
// permutation kernel); the gradient sums them back. n is rows times k.
func (t *Tape) Permute(x *Tensor, n int64) *Tensor {
	return t.moveRows("permute", x, n, x.Dim(-1), (*Tape).permutation, (*Tape).permutation)
}

// Unpermute sums the k rows of each token, the opposite of Permute.
func (t *Tape) Unpermute(x *Tensor, k int64) *Tensor { return t.UnpermuteTo(x, x.Dim(0)/k) }

// UnpermuteTo sums rows x up to n of them.
func (t *Tape) UnpermuteTo(x *Tensor, n int64) *Tensor {
	return t.moveRows("unpermute", x, n, x.Dim(1), (*Tape).permutation, (*Tape).permutation)
}

// movement is a kernel that moves the rows of x to those of y.
type movement func(t *Tape, prim string, x, y *Tensor)

// moveRows moves rows of a width to n others by one kernel, and their gradient back by another.
func (t *Tape) moveRows(name string, x *Tensor, n, width int64, forth, back movement) *Tensor {
	t.begin()
	y := t.empty(x.dtype, n, width)
	forth(t, name, x, y)
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor {
		r := t.emptyLike(x)
		back(t, name+"_backward", g, r)
		return r
	})
	return y
}

func (t *Tape) permutation(prim string, x, y *Tensor) {
	t.emit(Op{Prim: prim, Class: Gather, DType: x.dtype, Elements: float64(max(x.Size(), y.Size())), Bytes: x.bytes() + y.bytes()})
}

// Entries of a row's map of local experts that a look at the row itself takes as long as,
// and what a look takes over one of a permutation that brings probabilities along, by which
// permute_kernel and unpermute_kernel of Hybrid-EP are 6 % off on an H200: 12 shapes of
// 4 to 128 local experts, 8,182 to 65,446 rows of 1024 to 4096 that become 16,480 to 263,008
// (deepseek-ai/DeepEP hybrid-ep @7febc6e, 2026-11-26).
var (
	mapForth     = rowMap{row: 8.3, entry: 1}
	mapForthBack = rowMap{row: 6.7, entry: 0.64} // without probabilities
	mapBack      = rowMap{row: 12.2, entry: 0.344}
)

type rowMap struct{ row, entry float64 }

// PermuteByMap copies rows to the places of their local experts, n in all, or sums them back
// to n, by kernels that read a map of rows and experts entry by entry; the gradient is the
// opposite.
func (t *Tape) PermuteByMap(x *Tensor, n, experts int64) *Tensor {
	forth, back := mapForth, mapBack
	if n < x.Dim(0) {
		forth, back = mapBack, mapForthBack
	}
	return t.moveRows("permute", x, n, x.Dim(-1), forth.over(experts), back.over(experts))
}

// over is the kernel that reads a map of so many experts.
func (m rowMap) over(experts int64) movement {
	return func(t *Tape, prim string, x, y *Tensor) {
		rows := float64(min(x.Dim(0), y.Dim(0)))
		t.emit(Op{Prim: prim, Class: RowMap, DType: x.dtype, Elements: rows * (m.row + m.entry*float64(experts)), Bytes: x.bytes() + y.bytes()})
	}
}

// Along makes the n rows of one element that a kernel which moves other rows brings along.
func (t *Tape) Along(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.empty(x.dtype, n, 1)
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor { return t.emptyLike(x) })
	return y
}
