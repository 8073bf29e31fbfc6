package tape

import "github.com/perfplan/perfplan/internal/units"

// embedSortRows is the number of tokens above which PyTorch sorts the tokens
// before it adds their gradients (aten/native/cuda/Embedding.cu).
const embedSortRows = 3072

// Embedding gathers rows of w by token. Its gradient fills a table of zeros and
// adds the rows: directly for few tokens, after a radix sort for many.
func (t *Tape) Embedding(ids, w *Tensor) *Tensor {
	t.begin()
	h := w.Dim(-1)
	dims := ids.dims
	dims[ids.nd] = h
	y := t.empty(w.dtype, dims[:ids.nd+1]...)
	t.emit(Op{Prim: "embedding", Class: Gather, DType: w.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()})
	rows := ids.Size()
	t.attachOne(w, y, []*Tensor{ids}, func(t *Tape, n *node, g *Tensor) *Tensor {
		if t.WholeModel {
			return t.wideTable(w, rows)
		}
		r := t.zerosLike(w)
		if rows <= embedSortRows {
			t.emit(Op{Prim: "embedding_backward", Class: EmbedDirect, DType: w.dtype, Elements: float64(rows), Bytes: 2 * units.Bytes(rows*h) * w.dtype.Size()})
			return r
		}
		// Sorted: the tokens are ordered, cut into segments of equal token and
		// summed in fp32, then scattered.
		t.scratch(units.Bytes(rows*8*4) + units.Bytes(rows*h)*4)
		t.Sort(rows)
		t.emit(Op{Prim: "embedding_backward", Class: EmbedSort, DType: w.dtype, Elements: segmented(rows, w.dims[0]) * float64(h), Bytes: 2 * units.Bytes(rows*h) * w.dtype.Size()})
		return r
	})
	return y
}

// wideTable is the gradient of a table as a compiler makes it: rows are added to zeros in fp32,
// one by one, and their sums cast (TorchInductor's decomposition of embedding_dense_backward; traces
// of TinyLlama with 128,256 rows on an H200: 228, 42 and 359 us).
func (t *Tape) wideTable(table *Tensor, rows int64) *Tensor {
	h := table.dims[1]
	wide := t.empty(F32, table.dims[:2]...)
	t.emit(Op{Prim: "fill_", Class: FusedPointwise, DType: F32, Elements: float64(wide.Size()), Bytes: wide.bytes()})
	t.emit(Op{Prim: "embedding_backward", Class: AtomicAdd, DType: F32, Elements: float64(rows * h), Bytes: units.Bytes(rows*h) * (table.dtype.Size() + 2*F32.Size())})
	if table.dtype == F32 {
		return wide
	}
	r := t.emptyLike(table)
	t.Release(wide) // before autograd adds what it makes to another gradient
	t.over("to", Vectorized, r, wide.bytes()+r.bytes())
	return r
}

// segmented is the number of rows that the sum of so many into a table takes as long as:
// segments of at most ten equal ones are summed, and their sums added and scattered. A row
// of many takes 0.8 ps an element, a segment 10 more: 36,864 rows into 2304 take 2.5 ps for
// each, rows that differ 10 to 13 (Qwen3-VL's positions, four embeddings; an H100, 2026-11-26).
func segmented(rows, table int64) float64 {
	const perRow = 0.07
	segments := min(rows, rows/10+table)
	return perRow*float64(rows) + (1-perRow)*float64(segments)
}

// indexSortPasses is the number of radix passes over the bits that an index into
// a few thousand rows occupies (traces of Mixtral and Qwen3-MoE).
const indexSortPasses = 2

// Sort emits a radix sort of n keys with values: a histogram, then a pass per
// eight bits of a 64-bit key, each with a memset.
func (t *Tape) Sort(n int64) {
	t.Tiny("memset", 3)
	t.emit(Op{Prim: "sort", Class: Sort, DType: I64, Elements: float64(n), Bytes: units.Bytes(n) * 8})
	for range 8 {
		t.Tiny("memset", 1)
		t.emit(Op{Prim: "sort", Class: Sort, DType: I64, Elements: float64(n), Bytes: units.Bytes(n) * 32})
	}
}

// serialRows is how many rows must add up to one for the chain of additions, which one
// warp does one after the other, to take longer than reading the rows.
const serialRows = 32

// warp is the number of threads that run together.
const warp = 32

// Rows gathers rows of x by an index of n entries (x[index]). In the gradient the
// index is sorted and the rows are added into zeros (index_put_ with accumulate,
// indexing_backward_kernel in aten/native/cuda/Indexing.cu): the rows that belong to
// one row of x one after the other. busiest is the share of the row of x that is
// picked most often over the mean share.
func (t *Tape) Rows(x *Tensor, n int64, busiest float64) *Tensor {
	t.begin()
	h := x.Dim(-1)
	y := t.empty(x.dtype, n, h)
	t.emit(Op{Prim: "index", Class: Gather, DType: x.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()})
	index := []*Tensor{nil} // autograd saves it, of which a tape knows no tensor: recomputation goes on to here
	t.attachOne(x, y, index, func(t *Tape, nd *node, g *Tensor) *Tensor { return t.addSorted(g, x.dtype, x.dims[:x.nd], busiest) })
	return y
}

// addSorted adds rows into those of a tensor of zeros that an index names, which is sorted first
// (index_put_ with accumulate).
func (t *Tape) addSorted(x *Tensor, d DType, dims []int64, busiest float64) *Tensor {
	r := t.Zeros(d, dims...)
	t.Tiny("index_put_setup", 6)
	rows := x.Size() / x.Dim(-1)
	for range indexSortPasses {
		t.Tiny("memset", 1)
		t.emit(Op{Prim: "sort", Class: Sort, DType: I64, Elements: float64(rows), Bytes: units.Bytes(rows) * 32})
	}
	put := Op{Prim: "index_put_", Class: ScatterAdd, DType: d, Elements: float64(x.Size()), Bytes: 2*x.bytes() + min(x.bytes(), r.bytes())}
	chain := rows / max(r.Dim(0), 1)
	if r.Dim(-1) == 1 { // a warp adds as many at once (indexing_backward_kernel_stride_1)
		chain /= warp
	}
	if chain >= serialRows {
		put.Class, put.Elements = SerialAdd, float64(chain)*max(busiest, 1)
	}
	t.emit(put)
	return r
}

// AddRows adds up the rows of x in n rows of zeros in the order of their index (scatter_add of one
// index for whole rows with deterministic algorithms, which is index_put_ with accumulate:
// _scatter_via_index_put in aten/native/TensorAdvancedIndexing.cpp). The gradient gathers them.
func (t *Tape) AddRows(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.addSorted(x, x.dtype, []int64{n, x.Dim(-1)}, 1)
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor {
		r := t.emptyLike(x)
		t.permutation("gather", r, r)
		return r
	})
	return y
}

// indexPut is how much longer index_put_ takes for an element of whole rows than
// scatter_add_ does, and outerProduct the products of a column with a row in fp32: 4.55 and 6.86
// ps on an H200 (torchtitan v0.2.2, 131,072 rows of 2048, 2026-11-22), where that takes 3.8.
// innerProduct is what a row of products takes for an element: as much as a sum of two rows.
const (
	indexPut     = 1.2
	outerProduct = 1.8
	innerProduct = 1 + midOutput/2
)

// PutRows writes the rows of x where an index says, element by element, into n rows: of
// zeros, or as they come, of which the last is left out (torchtitan models/moe/utils.py,
// _unpermute). The gradient gathers them; of what was left out it makes zeros, into which
// the gradient of the rest is copied.
func (t *Tape) PutRows(x *Tensor, n int64, zeros bool) *Tensor {
	t.begin()
	y := t.empty(x.dtype, n, x.Dim(-1))
	if zeros {
		t.fill(y)
	}
	t.emit(Op{Prim: "index_put_", Class: AtomicAdd, DType: x.dtype, Elements: indexPut * float64(x.Size()), Bytes: 2 * x.bytes()})
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor {
		from := t.Hold(g)
		if !zeros {
			t.Release(from)
			from = t.like(g)
			t.fill(from)
			t.copied(from)
		}
		r := t.emptyLike(x)
		t.permutation("index", from, r)
		t.Release(from)
		return r
	})
	return y
}

// Scatter writes the rows of x where an index says into as many (empty[index] = x): element by
// element, or as fast as they are read where a compiler makes the kernel. The gradient gathers them.
func (t *Tape) Scatter(x *Tensor) *Tensor {
	t.begin()
	y := t.emptyLike(x)
	put := Op{Prim: "index_put_", Class: AtomicAdd, DType: x.dtype, Elements: indexPut * float64(x.Size()), Bytes: 2 * x.bytes()}
	if t.Compiled {
		put.Class, put.Elements = Gather, float64(x.Size())
	}
	t.emit(put)
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor {
		r := t.like(g)
		t.permutation("index", g, r)
		return r
	})
	return y
}

// Stacked copies x with a row of zeros after it (torch.vstack); the gradient is a view.
func (t *Tape) Stacked(x *Tensor) *Tensor {
	t.begin()
	y := t.emptyLike(x)
	t.Tiny("zeros", 1)
	t.emit(Op{Prim: "cat", Class: Memcpy, DType: x.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()}) // of whole rows, as fast
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.view(g) })
	return y
}

// WeighRows sums k rows of 16-bit x each, times their fp32 weights w, [rows/k, k], as a
// batch of products of one row with a matrix of k in fp32, which memory limits (torch.bmm
// of x.float(), kernel by kernel whatever is compiled around it). Its gradients are a
// product with a column and an outer product for each.
func (t *Tape) WeighRows(x, w *Tensor, k int64) *Tensor {
	t.begin()
	rows, h, size := x.Dim(0)/k, x.Dim(1), float64(x.Size())
	cast := func(prim string, class Class, from *Tensor, d DType) *Tensor {
		y := t.empty(d, from.dims[:from.nd]...)
		t.emit(Op{Prim: prim, Class: class, DType: d, Elements: float64(y.Size()), Bytes: from.bytes() + y.bytes()})
		return y
	}
	wide := cast("to", Unrolled, x, F32)
	sum := t.empty(F32, rows, h)
	t.emit(Op{Prim: "bmm", Class: MidReduce, DType: F32, Elements: innerProduct * size, Bytes: wide.bytes() + sum.bytes()})
	y := cast("to", Vectorized, sum, x.dtype)
	t.Release(sum)
	d := x.dtype
	t.attach([]*Tensor{x, w}, []*Tensor{y}, []*Tensor{wide, w}, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		up := cast("to_backward", Unrolled, g[0], F32)
		gw := t.emptyLike(w)
		t.emit(Op{Prim: "bmm_backward", Class: RowReduce, DType: F32, Elements: size, Bytes: nd.saved[0].bytes() + up.bytes()})
		gx := t.empty(F32, rows*k, h)
		t.emit(Op{Prim: "bmm_backward", Class: AtomicAdd, DType: F32, Elements: outerProduct * size, Bytes: gx.bytes() + up.bytes()})
		r := cast("to_backward", Vectorized, gx, d)
		t.Release(up, gx)
		return []*Tensor{r, gw}
	})
	t.Release(wide)
	return y
}

// indexAdd is how much longer index_add_ takes for an element than scatter_add_ does
// (hardware laws, atomic-add).
const indexAdd = 2.08

// IndexSelect copies the rows of x that a list names, n in all, without sorting it: the
// gradient adds them up by index_add_.
func (t *Tape) IndexSelect(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.empty(x.dtype, n, x.Dim(-1))
	t.permutation("index_select", y, y)
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor {
		r := t.zerosLike(x)
		t.emit(Op{Prim: "index_add_", Class: AtomicAdd, DType: x.dtype, Elements: indexAdd * float64(g.Size()), Bytes: 2*g.bytes() + r.bytes()})
		return r
	})
	return y
}

// ScatterAdd adds up rows x in n rows of zeros (scatter_add_): the gradient gathers them.
func (t *Tape) ScatterAdd(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.Zeros(x.dtype, n, x.Dim(-1))
	t.over("scatter_add_", AtomicAdd, x, 2*x.bytes()+y.bytes())
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor {
		r := t.emptyLike(x)
		t.permutation("gather", r, r)
		return r
	})
	return y
}

// Place writes tensors one after the other to those places along dimension dim of a new one that
// lists name, which they fill (y[list] = x). The gradient of each is gathered; that of what was
// there before each but the first is a copy of all with zeros in its places (index_put_'s own).
func (t *Tape) Place(dim int, xs ...*Tensor) *Tensor {
	t.begin()
	dims := xs[0].dims
	dims[dim] *= int64(len(xs))
	y := t.empty(xs[0].dtype, dims[:xs[0].nd]...)
	put := func(t *Tape, x *Tensor, bytes units.Bytes) {
		t.emit(Op{Prim: "index_put_", Class: AtomicAdd, DType: x.dtype, Elements: indexPut * float64(x.Size()), Bytes: bytes})
	}
	for _, x := range xs {
		put(t, x, 2*x.bytes())
	}
	t.attach(xs, []*Tensor{y}, nil, func(t *Tape, _ *node, gs []*Tensor) []*Tensor {
		out, g := make([]*Tensor, len(xs)), t.Hold(gs[0])
		for i := len(xs) - 1; i >= 0; i-- {
			out[i] = t.empty(xs[i].dtype, xs[i].dims[:xs[i].nd]...)
			t.permutation("gather", out[i], out[i])
			if i > 0 {
				rest := t.Copy(g)
				t.Release(g)
				g = rest
				put(t, out[i], out[i].bytes())
			}
		}
		t.Release(g)
		return out
	})
	return y
}
