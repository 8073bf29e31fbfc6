package tape

import "github.com/perfplan/perfplan/internal/units"

// Kernels over all pairs of positions that make the row of each in a table of biases
// (modeling_t5.py, _relative_position_bucket; traces of an H200): both ways 16, of which nine read and
// write 8 bytes a pair, one way 15.
const (
	bucketKernels       = 15
	bucketKernelsSecond = 16 // where keys behind a query have rows of their own
)

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
	t.emit(Op{Prim: "embedding", Class: Gather, DType: w.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()})
	laid(y)
	ids := t.empty(I64, queries, keys)
	t.attachOne(w, y, []*Tensor{ids}, func(t *Tape, nd *node, g *Tensor) *Tensor {
		turned := t.empty(g.dtype, queries, keys, g.Dim(1))
		laid(turned)
		t.kernel("clone", turned, g)
		t.Release(turned)
		r := t.zerosLike(w)
		t.Sort(pairs)
		t.emit(Op{Prim: "embedding_backward", Class: EmbedSort, DType: w.dtype, Elements: segmented(pairs, w.dims[0]) * float64(w.Dim(1)), Bytes: 2 * units.Bytes(pairs*w.Dim(1)) * w.dtype.Size()})
		return r
	})
	t.Release(ids)
	return y
}

// LentBiases are Biases that another tape made and keeps, as Lent.
func (t *Tape) LentBiases(d DType, heads, queries, keys int64) *Tensor {
	x := t.outside(d, []int64{queries, keys, heads})
	laid(x)
	if !t.record {
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
	pick := func(t *Tape, x, mask *Tensor) *Tensor {
		t.Tiny("fill_", 1)
		z := t.like(x)
		t.kernel("where", z, mask, x)
		return z
	}
	t.begin()
	z := pick(t, x, mask)
	t.attachOne(x, z, []*Tensor{mask}, func(t *Tape, n *node, g *Tensor) *Tensor { return pick(t, g, n.saved[0]) })
	t.Release(mask)
	return z
}

// AddBiases adds biases to scores x in place. Their gradient is the sum of that of all sequences.
func (t *Tape) AddBiases(x, biases *Tensor) *Tensor {
	t.begin()
	z := t.view(x)
	t.host.Views--
	t.kernel("add_", z, z, biases)
	t.attach([]*Tensor{x, biases}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		out := make([]*Tensor, len(n.in))
		for i := range out {
			out[i] = t.Hold(g[0])
		}
		return out
	})
	return z
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
