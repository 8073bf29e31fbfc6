package tape

import (
	"math/bits"

	"github.com/perfplan/perfplan/internal/units"
)

// sumClass is the class of a sum over the dimensions of g that x does not have.
func sumClass(g, x *Tensor) Class {
	if x.Dim(-1) == 1 && g.Dim(-1) != 1 {
		return RowReduce
	}
	if g.nd != x.nd {
		return ColReduce
	}
	for i := range g.nd {
		if g.dims[i] != x.dims[i] {
			return ColReduce
		}
		if g.dims[i] > 1 { // such as the sum over repeated key and value heads
			return MidReduce
		}
	}
	return ColReduce
}

// midOutput is what a sum over a few rows in the middle takes for what it writes, in units of
// what it takes for what it reads: 4.5 to 4.9 ps of a sum of two rows, 6.3 of four and 7 of
// eight (traces of Mixtral on an H200, of MiniMax-M2 and Qwen3-Next on an H100).
const midOutput = 10

// reduce emits a sum or mean of x into out.
func (t *Tape) reduce(prim string, class Class, x, out *Tensor) {
	o := Op{Prim: prim, Class: class, DType: x.dtype, Elements: float64(x.Size()), Bytes: x.bytes() + out.bytes()}
	switch class {
	case RowReduce:
		o.N = x.Dim(-1)
	case ColReduce:
		o.N = out.Size()
		if !t.Compiled {
			t.scratch(sumScratch(x.Size()/o.N, o.N))
		}
	case MidReduce:
		o.Elements += midOutput * float64(out.Size())
	}
	t.emit(o)
}

// reduceRows reduces the last dimension of x to one.
func (t *Tape) reduceRows(prim string, x *Tensor) *Tensor {
	y := t.alloc(t.ofWidth(x.dtype, x, 1))
	t.reduce(prim, RowReduce, x, y)
	return y
}

// Of PyTorch's sums (ATen/native/cuda/Reduce.cuh): threads of a block, values that one reads at
// once, the least and the most that one should sum; and the threads that an H100 or H200 runs at
// once, of which an A100 has a fifth less and a B200 an eighth more.
const (
	sumThreads = 512
	sumVector  = 4
	sumLeast   = 16
	sumMost    = 256
	sumRunning = 132 * 2048
)

// sumScratch is what the blocks of a sum of rows of n values share their parts in, in fp32: every
// thread's, where there are so many rows and so few columns that several blocks have the same
// (setReduceConfig and global_memory_size; snapshots of an H100 show
// 138,412,032 bytes for 8192 rows of 3072 values, 37,748,736 for 1024 of 4608).
func sumScratch(rows, n int64) units.Bytes {
	const threads = sumThreads / sumVector
	most := min(lastPower(ceilDiv(n, sumVector)), threads)
	height := min(lastPower(rows), threads/min(most, warp))
	width := min(most, threads/height)
	values := ceilDiv(rows, height)
	columns := ceilDiv(n, sumVector*width)
	running := sumRunning / (width * height)
	if values < sumMost || columns > running {
		return 0
	}
	blocks := max(min(ceilDiv(running, columns), ceilDiv(values, sumLeast)), ceilDiv(values, sumMost))
	if blocks == 1 {
		return 0
	}
	return units.Bytes(4 * n * blocks * width * sumVector)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// lastPower is the largest power of two that is not above n.
func lastPower(n int64) int64 { return 1 << (bits.Len64(uint64(n)) - 1) }

// RowMax is the largest value of each row; the gradient scatters into zeros.
func (t *Tape) RowMax(x *Tensor) *Tensor {
	t.begin()
	m := t.alloc(t.ofWidth(x.dtype, x, 1))
	at := t.empty(I64, m.dims[:m.nd]...)
	t.reduce("max", RowReduce, x, m)
	t.attachOne(x, m, []*Tensor{at}, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.zerosLike(x)
		t.emit(Op{Prim: "scatter_", Class: Index, DType: x.dtype, Elements: float64(g.Size()), Bytes: g.bytes() * 6})
		return r
	})
	t.Release(at)
	return m
}

// RowNorm is the norm of each row, keeping it. Its gradient divides by it, kernels of a value
// each row, and multiplies x (linalg_vector_norm_backward in FunctionsManual.cpp).
func (t *Tape) RowNorm(x *Tensor) *Tensor {
	in := t.fp32(x)
	t.begin()
	m := t.reduceRows("norm", in)
	t.attachOne(in, m, []*Tensor{in, m}, func(t *Tape, n *node, g *Tensor) *Tensor {
		x, m := n.saved[0], n.saved[1]
		ratio := t.apply("div", g, m)
		zero := t.compare("eq", m)
		t.kernel("masked_fill_", ratio, ratio, zero)
		r := t.apply("mul", x, ratio)
		t.Release(ratio, zero)
		return r
	})
	t.Release(in)
	return m
}

// Mean averages over the last dimension, keeping it. Its gradient is an
// expanded tensor divided by the width.
func (t *Tape) Mean(x *Tensor) *Tensor {
	t.begin()
	m := t.reduceRows("mean", x)
	t.attachOne(x, m, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		wide := t.expandTo(g, x.dims[:x.nd])
		r := t.emptyLike(x)
		t.kernel("div", r, wide)
		t.Release(wide)
		return r
	})
	return m
}

// Var is the variance over the last dimension, keeping it. Its gradient multiplies what x is off
// its mean, which is taken again (var_backward in FunctionsManual.cpp).
func (t *Tape) Var(x *Tensor) *Tensor {
	t.begin()
	v := t.reduceRows("var", x)
	t.attachOne(x, v, []*Tensor{x}, func(t *Tape, n *node, g *Tensor) *Tensor {
		x := n.saved[0]
		share := t.apply("mul", g)
		mean := t.reduceRows("mean", x)
		off := t.apply("sub", x, mean)
		r := t.apply("mul", share, off)
		t.Release(share, mean, off)
		return r
	})
	return v
}

// Sum adds over the last dimension, keeping it; the gradient is an expanded view.
func (t *Tape) Sum(x *Tensor) *Tensor {
	x = t.fp32(x)
	defer t.Release(x)
	t.begin()
	m := t.reduceRows("sum", x)
	t.attachOne(x, m, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.expandTo(g, x.dims[:x.nd]) })
	return m
}

// SumRows adds up all rows of a matrix, as the gradient of a bias does; it has no
// gradient itself.
func (t *Tape) SumRows(x *Tensor) *Tensor {
	t.begin()
	r := t.empty(x.dtype, x.Dim(-1))
	t.reduce("sum", ColReduce, x, r)
	return r
}

// SumGroups adds rows in groups of k: [n, h] to [n/k, h]. Its gradient repeats
// each row, which copies.
func (t *Tape) SumGroups(x *Tensor, k int64) *Tensor {
	t.begin()
	z := t.empty(x.dtype, x.Dim(0)/k, x.Dim(1))
	t.reduce("sum", MidReduce, x, z)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		row := t.view(g)
		row.nd, row.dims, row.strides = 3, [maxDims]int64{x.dims[0] / k, 1, x.dims[1]}, [maxDims]int64{x.dims[1], x.dims[1], 1}
		wide := t.expandTo(row, []int64{x.dims[0] / k, k, x.dims[1]})
		r := t.reshape(wide, x.dims[:2])
		t.Release(row, wide)
		return r
	})
	return z
}
