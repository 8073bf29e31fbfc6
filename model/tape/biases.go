package tape

import "github.com/perfplan/perfplan/internal/units"

// Kernels over all pairs of positions that make the row of each in a table of biases
// (modeling_t5.py, _relative_position_bucket; traces of an H200): both ways 16, of which nine read and
// write 8 bytes a pair, one way 15.
const (
	bucketKernels       = 15
	bucketKernelsSecond = 16 // where keys behind a query have rows of their own
)

// What a row of a table of biases takes at least, however narrow: in bytes of a gather, 0.61 ns for each of
// 262,144 rows of 32 and of 64 bytes, 0.70 of 16,384; and in elements of the sum of gradients into a table of a
// few rows, whose parts few threads list, 0.52 ns beyond sorting (traces of T5 on an H200, PyTorch 2.11, 2026-11-30).
const (
	leastGather = 2300
	leastSum    = 37
)

// biasIndex is the index arithmetic of a sum of scores and biases: three dimensions of two operands.
const biasIndex = 6

// laid makes of x [queries, keys, heads] a view [1, heads, queries, keys].
func laid(x *Tensor) {
	q, k, h := x.dims[0], x.dims[1], x.dims[2]
	x.nd = 4
	x.dims = [maxDims]int64{1, h, q, k}
	x.strides = [maxDims]int64{q * k * h, 1, k * h, h}
}

// Biases are those of the scores of each pair of positions, [1, heads, queries, keys]: rows of a table w
// [rows, heads] by how far key and query are apart. Rows of all pairs add up to its gradient.
func (t *Tape) Biases(w *Tensor, queries, keys int64, both bool) *Tensor {
	t.Tiny("arange", 3)
	n := bucketKernels
	if both {
		n = bucketKernelsSecond
	}
	pairs := queries * keys
	for range n {
		t.begin()
		t.emit(Op{Prim: "bucket", Class: Vectorized, DType: I64, Elements: float64(pairs), Bytes: units.Bytes(12 * pairs)})
	}
	t.begin()
	y := t.empty(w.dtype, queries, keys, w.Dim(1))
	t.emit(Op{Prim: "embedding", Class: Gather, DType: w.dtype, Elements: float64(y.Size()), Bytes: max(2*y.bytes(), leastGather*units.Bytes(pairs))})
	laid(y)
	ids := t.empty(I64, queries, keys)
	t.attachOne(w, y, []*Tensor{ids}, func(t *Tape, nd *node, g *Tensor) *Tensor {
		turned, class := t.emptyLike(g), Strided4
		if g.dtype.lowPrecision() {
			class = Strided2
		}
		t.emit(Op{Prim: "clone", Class: class, DType: g.dtype, Elements: float64(g.Size()), Index: biasIndex, Bytes: 2 * g.bytes()})
		t.Release(turned)
		r := t.zerosLike(w)
		t.Sort(pairs)
		t.emit(Op{Prim: "embedding_backward", Class: EmbedSort, DType: w.dtype, Elements: max(segmented(pairs, w.dims[0])*float64(w.Dim(1)), leastSum*float64(pairs)), Bytes: 2 * units.Bytes(pairs*w.Dim(1)) * w.dtype.Size()})
		return r
	})
	t.Release(ids)
	return y
}

// LentBiases are Biases that another tape made and keeps, as Lent, learned or not.
func (t *Tape) LentBiases(d DType, learned bool, heads, queries, keys int64) *Tensor {
	x := t.outside(d, []int64{queries, keys, heads})
	laid(x)
	if !t.record || !learned {
		return x
	}
	x.grad = true
	x.node = t.addNode(node{nout: 1, run: func(t *Tape, n *node, g []*Tensor) []*Tensor {
		sum := t.outside(d, []int64{1, heads, queries, keys})
		t.kernel("add_", sum, sum, g[0])
		t.Release(sum)
		return nil
	}})
	return x
}

// CausalBiases are biases of which those of keys behind a query are the least number there is
// (torch.where), for which each call makes a mask of positions.
func (t *Tape) CausalBiases(x *Tensor) *Tensor {
	mask := t.empty(Bool, 1, 1, x.Dim(2), x.Dim(3))
	t.Tiny("arange", 2)
	t.begin()
	t.kernel("ge", mask)
	z := t.MaskedBiases(x, mask)
	t.Release(mask)
	return z
}

// MaskedBiases are biases of which those that a mask leaves out are the least number there is: of every
// sequence where it is, and lying as they do (TensorIterator.cpp, reorder_dimensions: the mask is alike for all heads).
func (t *Tape) MaskedBiases(x, mask *Tensor) *Tensor {
	pick := func(t *Tape, x, mask *Tensor) *Tensor {
		t.Tiny("fill_", 1)
		z := t.shape(x.dtype, x, mask)
		z.permuteLike(x)
		z = t.alloc(z)
		t.kernel("where", z, mask, x)
		return z
	}
	t.begin()
	z := pick(t, x, mask)
	t.attachOne(x, z, []*Tensor{mask}, func(t *Tape, n *node, g *Tensor) *Tensor { return pick(t, g, n.saved[0]) })
	return z
}

// AddBiases adds biases to scores x in place. Their gradient is the sum of that of all sequences.
func (t *Tape) AddBiases(x, biases *Tensor) *Tensor {
	t.begin()
	z := t.view(x)
	t.host.Views--
	if biases.sameLayout(x) { // of every sequence
		t.kernel("add_", z, z, biases)
	} else {
		t.addTurned("add_", z, x, biases)
	}
	t.sums(z, x, biases)
	return z
}

// SumBiases are scores x and biases, in the wider dtype of both.
func (t *Tape) SumBiases(x, biases *Tensor) *Tensor {
	t.begin()
	z := t.like(x, biases)
	if biases.turnedAgainst(z) {
		t.addTurned("add", z, x, biases)
	} else {
		t.kernel("add", z, x, biases)
	}
	t.sums(z, x, biases)
	return z
}

// addTurned emits the sum z of scores x and of biases that lie head by head for each pair, so that those of a head
// are read apart from each other, and again for each head and sequence.
func (t *Tape) addTurned(prim string, z, x, biases *Tensor) {
	class := StridedCast
	if biases.dtype == x.dtype {
		class = Strided4
	}
	t.emit(Op{Prim: prim, Class: class, DType: z.dtype, Elements: float64(z.Size()), Index: biasIndex, Bytes: x.bytes() + z.bytes() + biases.bytes(), Apart: z.Dim(2) * z.Dim(3)})
}

// Cached joins keys or values x to those of a cache that has none yet (transformers' DynamicCache): a
// copy that lies contiguously.
func (t *Tape) Cached(x *Tensor) *Tensor {
	t.begin()
	y := t.emptyLike(x)
	t.concat(false, y, x)
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.Hold(g) })
	return y
}
