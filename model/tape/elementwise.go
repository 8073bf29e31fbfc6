package tape

import (
	"math/bits"

	"github.com/perfplan/perfplan/internal/units"
)

// kernel emits the elementwise kernel that TensorIterator would launch to
// write out from ins: flat and vectorized when all operands walk memory alike,
// "unrolled" when a dtype is converted on the way, strided otherwise.
func (t *Tape) kernel(prim string, out *Tensor, ins ...*Tensor) {
	flat, convert, turned := true, false, false
	var again units.Bytes
	bytes := out.bytes()
	for _, x := range ins {
		if x.nd == 0 { // a host scalar travels as a kernel argument
			continue
		}
		bytes += x.reads()
		if x.turnedAgainst(out) {
			turned, again = true, max(again, x.again())
		}
		flat = flat && x.sameLayout(out)
		convert = convert || x.dtype != out.dtype && x.dtype.floating() && out.dtype.floating()
	}
	if flat && !out.dense() {
		flat = false
	}
	// A plain copy from fp32 to a 16-bit type has a vectorized kernel of its own.
	if convert && len(ins) == 1 && prim == "to" && ins[0].dtype == F32 && out.dtype.lowPrecision() && flat {
		convert = false
	}
	class := Vectorized
	switch {
	case flat && convert && len(ins) > 1:
		class = UnrolledMix
	case flat && convert:
		class = Unrolled
	case turned && again > 0:
		class = TransposedAgain
	case turned:
		class = Transposed
	case convert:
		class = StridedCast
	case !flat && out.dtype.Size() <= 2:
		class = Strided2
	case !flat:
		class = Strided4
	}
	o := Op{Prim: prim, Class: class, DType: out.dtype, Elements: float64(out.Size()), Bytes: bytes}
	if class == TransposedAgain {
		o.N = int64(again)
	}
	if !flat {
		o.Index = float64(coalesced(out, ins) * (1 + len(ins)))
	}
	t.emit(o)
}

// coalesced is the number of dimensions that are left when neighbours are merged
// wherever every operand walks them as one (TensorIterator, coalesce_dimensions).
func coalesced(out *Tensor, ins []*Tensor) int {
	order := out.order()
	n := 0
	last := int8(-1) // the inner neighbour, as a dimension of out
	for i := int(out.nd) - 1; i >= 0; i-- {
		d := order[i]
		if out.dims[d] == 1 {
			continue
		}
		if last < 0 || !mergeable(out, ins, d, last) {
			n++
		}
		last = d
	}
	return max(n, 1)
}

func mergeable(out *Tensor, ins []*Tensor, outer, inner int8) bool {
	ok := func(x *Tensor) bool {
		if x.nd == 0 {
			return true
		}
		lead := out.nd - x.nd
		stride := func(d int8) (int64, int64) {
			if d < lead || x.dims[d-lead] == 1 && out.dims[d] != 1 {
				return 0, out.dims[d]
			}
			return x.strides[d-lead], out.dims[d]
		}
		so, _ := stride(outer)
		si, ni := stride(inner)
		return so == si*ni
	}
	if !ok(out) {
		return false
	}
	for _, x := range ins {
		if !ok(x) {
			return false
		}
	}
	return true
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

// like allocates the result of an elementwise op on ins: broadcast shape,
// promoted dtype, and the memory order of the first operand of full size.
func (t *Tape) like(ins ...*Tensor) *Tensor { return t.alloc(t.shape(promote(ins...), ins...)) }

func (t *Tape) shape(dtype DType, ins ...*Tensor) *Tensor {
	var nd int8
	for _, x := range ins {
		nd = max(nd, x.nd)
	}
	y := t.tensor()
	*y = Tensor{nd: nd, dtype: dtype, node: -1, store: -1}
	for i := range nd {
		y.dims[i] = 1
		for _, x := range ins {
			if j := i - (nd - x.nd); j >= 0 && x.dims[j] != 1 {
				y.dims[i] = x.dims[j]
			}
		}
	}
	y.setContiguous()
	for _, x := range ins {
		if x.nd == nd && x.Size() == y.Size() {
			y.permuteLike(x)
			break
		}
	}
	return y
}

// permuteLike lays y out densely in the memory order of x.
func (y *Tensor) permuteLike(x *Tensor) {
	o := x.order()
	s := int64(1)
	for i := int(x.nd) - 1; i >= 0; i-- {
		y.strides[o[i]] = s
		s *= y.dims[o[i]]
	}
}

// promote is PyTorch's result type of tensors with at least one dimension:
// fp32 wins over 16-bit floats, floats win over integers.
func promote(ins ...*Tensor) DType {
	r, have := F32, false
	for _, x := range ins {
		if x.nd == 0 {
			continue
		}
		switch {
		case !have:
			r, have = x.dtype, true
		case x.dtype == r:
		case !r.floating():
			r = x.dtype
		case !x.dtype.floating():
		default:
			r = F32
		}
	}
	return r
}

// To casts x to a dtype; the same tensor when it has it already.
func (t *Tape) To(x *Tensor, d DType) *Tensor {
	if x.dtype == d {
		return t.Hold(x)
	}
	t.begin()
	y := t.castTo(x, d, x.param != 0)
	src, weight := x.dtype, x.param != 0
	param := x.param
	t.attach("to", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		if param > 0 && param == t.Tied {
			return []*Tensor{t.Hold(g[0])}
		}
		return []*Tensor{t.castTo(g[0], src, weight)}
	})
	return y
}

// castTo emits the copy of a cast, without a node. A compiler casts activations in the
// kernel that makes or reads them, and weights and their gradients in one that
// does nothing else.
func (t *Tape) castTo(x *Tensor, d DType, weight bool) *Tensor {
	if x.dtype == d {
		return t.Hold(x)
	}
	y := t.shape(d, x)
	t.alloc(y)
	switch {
	case !t.Compiled:
		t.kernel("to", y, x)
	case weight:
		t.emit(Op{Prim: "to", Class: Vectorized, DType: d, Elements: float64(y.Size()), Bytes: x.reads() + y.bytes()})
	}
	return y
}

// Float casts x to fp32.
func (t *Tape) Float(x *Tensor) *Tensor { return t.To(x, F32) }

// operand is the weight that products read: autocast's cast of it, or what is unpacked of it,
// which lives no longer than they run (bitsandbytes, autograd/_functions.py, MatMul4Bit).
func (t *Tape) operand(w *Tensor) *Tensor {
	if w.packed == F32 {
		return t.low(w)
	}
	defer t.Kind(t.Kind(WeightCopy))
	y := t.empty(w.dtype, w.dims[:w.nd]...)
	n := w.Size()
	t.emit(Op{Prim: "dequantize", Class: FusedPointwise, DType: w.dtype, Elements: float64(n), Bytes: units.Bytes(n)*w.packed.Size() + y.bytes()})
	return y
}

// Add returns x + y.
func (t *Tape) Add(x, y *Tensor) *Tensor {
	t.begin()
	z := t.like(x, y)
	t.kernel("add", z, x, y)
	t.attach("add", []*Tensor{x, y}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		out := make([]*Tensor, len(n.in))
		for i := range out {
			out[i] = t.Hold(g[0])
		}
		return out
	})
	return z
}

// Sub returns x − y; the gradient of y is negated in a kernel of its own.
func (t *Tape) Sub(x, y *Tensor) *Tensor {
	t.begin()
	z := t.like(x, y)
	t.kernel("sub", z, x, y)
	xg, yg := x.grad, y.grad
	t.attach("sub", []*Tensor{x, y}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if xg {
			r = append(r, t.Hold(g[0]))
		}
		if yg {
			m := t.like(g[0])
			t.kernel("neg", m, g[0])
			r = append(r, m)
		}
		return r
	})
	return z
}

// AddTo adds y, which takes no gradient, to x in place.
func (t *Tape) AddTo(x, y *Tensor) *Tensor {
	t.begin()
	t.kernel("add_", x, x, y)
	return t.Hold(x)
}

// Clamp bounds x on one or both sides; the gradient compares with each bound and
// selects (clamp_backward in FunctionsManual.cpp).
func (t *Tape) Clamp(x *Tensor, sides int) *Tensor {
	t.begin()
	z := t.like(x)
	t.kernel("clamp", z, x)
	t.attach("clamp", []*Tensor{x}, []*Tensor{z}, []*Tensor{x}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		t.Tiny("fill_", 1)
		mask := t.alloc(t.shape(Bool, n.saved[0]))
		for range sides {
			t.kernel("compare", mask, n.saved[0])
		}
		if sides > 1 {
			t.kernel("logical_and", mask, mask, mask)
		}
		r := t.like(g[0])
		t.emit(Op{Prim: "where", Class: Strided2, DType: r.dtype, Elements: float64(r.Size()), Index: 4, Bytes: g[0].bytes() + r.bytes() + mask.bytes()})
		t.Release(mask)
		return []*Tensor{r}
	})
	return z
}

// Above is where x is greater than zero, a byte for each element, without a gradient.
func (t *Tape) Above(x *Tensor) *Tensor {
	t.begin()
	m := t.alloc(t.shape(Bool, x))
	t.kernel("gt", m, x)
	return m
}

// Where takes x where the mask is set and y elsewhere; either gradient is one kernel.
func (t *Tape) Where(mask, x, y *Tensor) *Tensor {
	t.begin()
	z := t.like(x, y)
	t.kernel("where", z, mask, x, y)
	t.attach("where", []*Tensor{x, y}, []*Tensor{z}, []*Tensor{mask}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		out := make([]*Tensor, len(n.in))
		for i := range out {
			out[i] = t.like(g[0])
			t.kernel("where", out[i], n.saved[0], g[0])
		}
		return out
	})
	return z
}

// Expm1 is eˣ − 1, whose gradient adds one to the result again.
func (t *Tape) Expm1(x *Tensor) *Tensor {
	t.begin()
	z := t.like(x)
	t.kernel("expm1", z, x)
	t.attach("expm1", []*Tensor{x}, []*Tensor{z}, []*Tensor{z}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		one := t.like(n.saved[0])
		t.kernel("add", one, n.saved[0])
		r := t.like(g[0])
		t.kernel("mul", r, g[0], one)
		t.Release(one)
		return []*Tensor{r}
	})
	return z
}

// Minimum is the smaller of x and a number on the device. Its gradient is halved where both
// are equal and zero where x is the greater (minimum in derivatives.yaml).
func (t *Tape) Minimum(x *Tensor) *Tensor {
	t.begin()
	z := t.like(x)
	t.kernel("minimum", z, x)
	t.attach("minimum", []*Tensor{x}, []*Tensor{z}, []*Tensor{x}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		equal := t.alloc(t.shape(Bool, n.saved[0]))
		t.kernel("eq", equal, n.saved[0])
		half := t.like(g[0])
		t.kernel("div", half, g[0])
		r := t.like(g[0])
		t.kernel("where", r, equal, half, g[0])
		t.Release(equal, half)
		greater := t.alloc(t.shape(Bool, n.saved[0]))
		t.kernel("gt", greater, n.saved[0])
		t.kernel("masked_fill_", r, r, greater)
		t.Release(greater)
		return []*Tensor{r}
	})
	return z
}

// Uniform is random numbers for each element of x.
func (t *Tape) Uniform(x *Tensor) *Tensor {
	t.begin()
	z := t.like(x)
	t.kernel("uniform_", z)
	return z
}

// RowMax is the largest value of each row; the gradient scatters into zeros.
func (t *Tape) RowMax(x *Tensor) *Tensor {
	t.begin()
	m := t.meta(x.dtype, x.dims[:x.nd])
	m.dims[m.nd-1] = 1
	m.setContiguous()
	t.alloc(m)
	at := t.empty(I64, m.dims[:m.nd]...)
	t.reduce("max", RowReduce, x, m)
	src := *x
	t.attach("max", []*Tensor{x}, []*Tensor{m}, []*Tensor{at}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := t.empty(src.dtype, src.dims[:src.nd]...)
		t.fill(r)
		t.emit(Op{Prim: "scatter_", Class: Index, DType: src.dtype, Elements: float64(g[0].Size()), Bytes: g[0].bytes() * 6})
		return []*Tensor{r}
	})
	t.Release(at)
	return m
}

// Mul returns x · y. The gradient of y is computed before that of x, as in the
// generated MulBackward0 (outputs in alphabetical order: other, self).
func (t *Tape) Mul(x, y *Tensor) *Tensor {
	t.begin()
	z := t.like(x, y)
	t.kernel("mul", z, x, y)
	xg, yg := x.grad, y.grad
	var saved []*Tensor
	if xg {
		saved = append(saved, y)
	}
	if yg {
		saved = append(saved, x)
	}
	t.attach("mul", []*Tensor{x, y}, []*Tensor{z}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		times := func(a *Tensor) *Tensor {
			r := t.like(g[0], a)
			t.kernel("mul", r, g[0], a)
			return r
		}
		switch {
		case xg && yg:
			gy := times(n.saved[1])
			return []*Tensor{times(n.saved[0]), gy}
		default:
			return []*Tensor{times(n.saved[0])}
		}
	})
	return z
}

// Scale returns x times, plus or divided by a host scalar: one kernel each way
// for a product, none backward for a sum.
func (t *Tape) Scale(prim string, x *Tensor) *Tensor {
	t.begin()
	z := t.like(x)
	t.kernel(prim, z, x)
	t.attach(prim, []*Tensor{x}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		if prim == "add_scalar" {
			return []*Tensor{t.Hold(g[0])}
		}
		r := t.like(g[0])
		t.kernel(prim, r, g[0])
		return []*Tensor{r}
	})
	return z
}

// unaryRule is an elementwise function of one tensor: whether it saves its
// result instead of its input, and whether its gradient reads the saved tensor.
type unaryRule struct {
	saveResult, saveNothing bool
	arithmetic              float64 // beyond what moving the bytes hides: 1 for a tanh form, 2 for erf
	strided                 float64 // and beyond index arithmetic, in units of that of an operand in a dimension
}

var unary = map[string]unaryRule{
	"silu":      {strided: 4}, // traces of experts' steps on H200: 2.5 to 2.9 ps of a value in halves of rows where a copy takes 2.1, its gradient 3.1 to 3.4 where a product takes 2.4 to 2.8
	"gelu":      {arithmetic: 2},
	"gelu_tanh": {arithmetic: 1},
	"relu":      {saveResult: true},
	"tanh":      {saveResult: true},
	"sigmoid":   {saveResult: true},
	"neg":       {saveNothing: true},
	"exp":       {saveResult: true},
	"softplus":  {},
}

// Unary applies an elementwise function with a fused gradient kernel.
func (t *Tape) Unary(prim string, x *Tensor) *Tensor {
	rule := unary[prim]
	t.begin()
	z := t.like(x)
	t.kernel(prim, z, x)
	t.heavy(rule)
	saved := []*Tensor{x}
	if rule.saveResult {
		saved[0] = z
	}
	if rule.saveNothing {
		saved = nil
	}
	t.attach(prim, []*Tensor{x}, []*Tensor{z}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		ins := append([]*Tensor{g[0]}, n.saved...)
		r := t.like(ins...)
		t.kernel(prim+"_backward", r, ins...)
		t.heavy(rule)
		return []*Tensor{r}
	})
	return z
}

// heavy marks the last op as one whose arithmetic shows beside its memory traffic, or beside
// its index arithmetic.
func (t *Tape) heavy(rule unaryRule) {
	switch o := &t.sec.Ops[len(t.sec.Ops)-1]; o.Class {
	case Vectorized:
		if rule.arithmetic > 0 {
			o.Class, o.Index = Arithmetic, rule.arithmetic
		}
	case Strided2, Strided4:
		o.Index += rule.strided
	}
}

// Pow returns x to an integer power. Its gradient is written out as a power, a
// scaling and a product (pow_backward); a first power is a copy.
func (t *Tape) Pow(x *Tensor, exponent float64) *Tensor {
	in := t.fp32(x)
	t.begin()
	z := t.like(in)
	t.kernel("pow", z, in)
	t.attach("pow", []*Tensor{in}, []*Tensor{z}, []*Tensor{in}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		s := n.saved[0]
		var p *Tensor
		if exponent == 2 {
			p = t.Copy(s)
		} else {
			p = t.like(s)
			t.kernel("pow", p, s)
		}
		m := t.like(p)
		t.kernel("mul", m, p)
		r := t.like(g[0], m)
		t.kernel("mul", r, g[0], m)
		t.Release(m, p) // which one expression made
		return []*Tensor{r}
	})
	t.Release(in)
	return z
}

// Rsqrt returns 1/√x; its gradient is −½·g·r³ in three kernels.
func (t *Tape) Rsqrt(x *Tensor) *Tensor {
	in := t.fp32(x)
	t.begin()
	z := t.like(in)
	t.kernel("rsqrt", z, in)
	t.attach("rsqrt", []*Tensor{in}, []*Tensor{z}, []*Tensor{z}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		p := t.like(n.saved[0])
		t.kernel("pow", p, n.saved[0])
		m := t.like(g[0])
		t.kernel("mul", m, g[0])
		r := t.like(m, p)
		t.kernel("mul", r, m, p)
		t.Release(p, m)
		return []*Tensor{r}
	})
	t.Release(in)
	return z
}

// Mean averages over the last dimension, keeping it. Its gradient is an
// expanded tensor divided by the width.
func (t *Tape) Mean(x *Tensor) *Tensor {
	t.begin()
	m := t.meta(x.dtype, x.dims[:x.nd])
	m.dims[m.nd-1] = 1
	m.setContiguous()
	t.alloc(m)
	t.reduce("mean", RowReduce, x, m)
	full := *x
	t.attach("mean", []*Tensor{x}, []*Tensor{m}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		wide := t.expandTo(g[0], full.dims[:full.nd])
		r := t.alloc(t.meta(full.dtype, full.dims[:full.nd]))
		t.kernel("div", r, wide)
		t.Release(wide)
		return []*Tensor{r}
	})
	return m
}

// Sum adds over the last dimension, keeping it; the gradient is an expanded view.
func (t *Tape) Sum(x *Tensor) *Tensor {
	t.begin()
	m := t.meta(x.dtype, x.dims[:x.nd])
	m.dims[m.nd-1] = 1
	m.setContiguous()
	t.alloc(m)
	t.reduce("sum", RowReduce, x, m)
	full := *x
	t.attach("sum", []*Tensor{x}, []*Tensor{m}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		return []*Tensor{t.expandTo(g[0], full.dims[:full.nd])}
	})
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

// Zeros is a tensor that a kernel fills with a constant.
func (t *Tape) Zeros(d DType, dims ...int64) *Tensor {
	y := t.empty(d, dims...)
	t.fill(y)
	return y
}

// Copy is a device-to-device copy of a contiguous tensor, without a gradient.
func (t *Tape) Copy(x *Tensor) *Tensor {
	y := t.like(x)
	t.emit(Op{Prim: "copy", Class: Memcpy, DType: x.dtype, Elements: float64(x.Size()), Bytes: x.bytes() + y.bytes()})
	return y
}

// Copied is a device-to-device copy of x whose gradient is a view of a larger one, as
// torch.cat of contiguous tensors makes one of each.
func (t *Tape) Copied(x *Tensor) *Tensor {
	t.begin()
	y := t.Copy(x)
	t.attach("copy", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		return []*Tensor{t.Hold(g[0])}
	})
	return y
}

// expandTo is a broadcast view.
func (t *Tape) expandTo(x *Tensor, dims []int64) *Tensor {
	y := t.view(x)
	lead := int8(len(dims)) - x.nd
	y.nd = int8(len(dims))
	for i := range y.nd {
		j := i - lead
		y.dims[i], y.strides[i] = dims[i], 0
		if j >= 0 && x.dims[j] == dims[i] {
			y.strides[i] = x.strides[j]
		}
	}
	return y
}

// Dropout zeroes elements with probability p and scales the rest; nothing when
// p is 0. It saves a mask of one byte per element.
func (t *Tape) Dropout(x *Tensor, p float64) *Tensor {
	if p == 0 {
		return t.Hold(x)
	}
	t.begin()
	z := t.like(x)
	mask := t.alloc(t.shape(Bool, x))
	t.emit(Op{Prim: "dropout", Class: Dropout, DType: x.dtype, Elements: float64(x.Size()), Bytes: x.bytes() + z.bytes() + mask.bytes()})
	t.attach("dropout", []*Tensor{x}, []*Tensor{z}, []*Tensor{mask}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := t.like(g[0])
		t.kernel("dropout_backward", r, g[0], n.saved[0])
		return []*Tensor{r}
	})
	t.Release(mask)
	return z
}

// MaskedFill overwrites rows by a mask that broadcasts over the last dimension:
// a copy and a strided kernel, forward and backward.
func (t *Tape) MaskedFill(x, mask *Tensor) *Tensor {
	t.begin()
	z := t.maskedCopy(x, mask)
	t.attach("masked_fill", []*Tensor{x}, []*Tensor{z}, []*Tensor{mask}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		return []*Tensor{t.maskedCopy(g[0], n.saved[0])}
	})
	return z
}

// Div returns x / y, with the gradients of DivBackward0: g/y for x and, for y,
// −g·x/y² in three kernels and a reduction.
func (t *Tape) Div(x, y *Tensor) *Tensor {
	t.begin()
	z := t.like(x, y)
	t.kernel("div", z, x, y)
	xg, yg := x.grad, y.grad
	t.attach("div", []*Tensor{x, y}, []*Tensor{z}, []*Tensor{x, y}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		x, y := n.saved[0], n.saved[1]
		var r []*Tensor
		if xg {
			gx := t.like(g[0], y)
			t.kernel("div", gx, g[0], y)
			r = append(r, gx)
		}
		if yg {
			a := t.like(x, y)
			t.kernel("div", a, x, y)
			b := t.like(a, y)
			t.kernel("div", b, a, y)
			c := t.like(g[0], b)
			t.kernel("mul", c, g[0], b)
			t.Release(a, b)
			r = append(r, c)
		}
		return r
	})
	return z
}

// RowNorm is the norm of each row, keeping it. Its gradient divides by it, kernels of a value
// each row, and multiplies x (linalg_vector_norm_backward in FunctionsManual.cpp).
func (t *Tape) RowNorm(x *Tensor) *Tensor {
	in := t.fp32(x)
	t.begin()
	m := t.meta(in.dtype, in.dims[:in.nd])
	m.dims[m.nd-1] = 1
	m.setContiguous()
	t.alloc(m)
	t.reduce("norm", RowReduce, in, m)
	t.attach("norm", []*Tensor{in}, []*Tensor{m}, []*Tensor{in, m}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		x, m := n.saved[0], n.saved[1]
		ratio := t.like(g[0], m)
		t.kernel("div", ratio, g[0], m)
		zero := t.alloc(t.shape(Bool, m))
		t.kernel("eq", zero, m)
		t.kernel("masked_fill_", ratio, ratio, zero)
		r := t.like(x, ratio)
		t.kernel("mul", r, x, ratio)
		t.Release(ratio, zero)
		return []*Tensor{r}
	})
	t.Release(in)
	return m
}

// MaskRows overwrites rows of x in place by a mask of one value per row, in one
// strided kernel; its gradient is a masked copy.
func (t *Tape) MaskRows(x, mask *Tensor) *Tensor {
	t.begin()
	z := t.view(x)
	t.kernel("masked_fill_", z, z, mask)
	t.attach("masked_fill", []*Tensor{x}, []*Tensor{z}, []*Tensor{mask}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		return []*Tensor{t.maskedCopy(g[0], n.saved[0])}
	})
	return z
}

// maskedCopy is masked_fill out of place: a copy, then a strided kernel.
func (t *Tape) maskedCopy(x, mask *Tensor) *Tensor {
	z := t.like(x)
	t.emit(Op{Prim: "copy", Class: Memcpy, DType: x.dtype, Elements: float64(x.Size()), Bytes: x.bytes() + z.bytes()})
	t.kernel("masked_fill_", z, z, mask)
	return z
}

// SumGroups adds rows in groups of k: [n, h] to [n/k, h]. Its gradient repeats
// each row, which copies.
func (t *Tape) SumGroups(x *Tensor, k int64) *Tensor {
	t.begin()
	z := t.empty(x.dtype, x.Dim(0)/k, x.Dim(1))
	t.reduce("sum", MidReduce, x, z)
	src := *x
	t.attach("sum", []*Tensor{x}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		row := t.view(g[0])
		row.nd, row.dims, row.strides = 3, [maxDims]int64{src.dims[0] / k, 1, src.dims[1]}, [maxDims]int64{src.dims[1], src.dims[1], 1}
		wide := t.expandTo(row, []int64{src.dims[0] / k, k, src.dims[1]})
		r := t.reshape(wide, src.dims[:2])
		t.Release(row, wide)
		return []*Tensor{r}
	})
	return z
}
