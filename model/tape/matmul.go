package tape

import "github.com/perfplan/perfplan/internal/units"

// gemm emits one matrix multiply of M×K by K×N, batch times, reading both
// operands and writing the result once.
func (t *Tape) gemm(prim string, layout Layout, d DType, m, n, k, batch int64) {
	if d == F32 && t.TF32 {
		d = TF32
	}
	b := float64(batch)
	t.emit(Op{
		Prim: prim, Class: GEMM, DType: d, M: m, N: n, K: k, Batch: batch, Layout: layout,
		Elements: b * float64(m) * float64(n),
		Bytes:    units.Bytes(b*(float64(m)*float64(k)+float64(k)*float64(n)+float64(m)*float64(n))) * d.Size(),
		FLOPs:    units.FLOPs(2 * b * float64(m) * float64(n) * float64(k)),
	})
}

// multiply emits a GEMM of a layer's weight: in the quantized dtype where there is
// one, whose result is 16-bit; a weight gradient is read and written where it
// is accumulated.
func (t *Tape) multiply(prim string, layout Layout, d DType, m, n, k int64, zeros Zeros) {
	operands := d
	if t.Quantize != F32 && d.lowPrecision() {
		operands = t.Quantize
	}
	t.gemm(prim, layout, operands, m, n, k, 1)
	o := &t.sec.Ops[len(t.sec.Ops)-1]
	o.Zeros = zeros.in(layout)
	out := units.Bytes(m * n)
	o.Bytes += out * (d.Size() - operands.Size())
	if layout == LayoutWgrad && t.HasMain && !t.MainHook {
		o.Bytes += out * (2*t.MainGrad.Size() - d.Size())
		o.Adds = true
	}
}

// quantized casts a GEMM operand: the kernel reads it once and writes it row-wise
// and column-wise, since the forward and the gradient GEMMs read it along
// different axes, or once for both; only the former where no weight gradient reads it. It
// returns the copy that the backward pass saves. What was gathered as GEMMs read it is not
// cast again, and a compiler casts for all that read x at once. Without quantization, and
// where products cast for themselves, it returns x itself.
func (t *Tape) quantized(x *Tensor, wgrad bool) *Tensor {
	if t.Quantize == F32 || t.Quantize == FP8Row || !x.dtype.lowPrecision() {
		return t.Hold(x)
	}
	q := t.empty(t.Quantize, x.dims[:x.nd]...)
	if !x.narrow && !x.cast {
		if wgrad {
			t.quantize(x, units.Bytes(t.Copies), t.QuantizeRead)
		} else {
			t.quantize(x, 1, t.QuantizeOne)
		}
		x.cast = t.Compiled
	}
	return q
}

// shareScale emits the reduction of x's largest magnitude over all of ScaleRanks.
func (t *Tape) shareScale(x *Tensor) {
	if t.ScaleRanks > 1 && !x.whole {
		t.emit(Op{Prim: "all-reduce", Class: Collective, DType: F32, Elements: 1, Comm: &Comm{Kind: "all-reduce", Group: "tp", Bytes: F32.Size()}})
	}
}

// quantize emits the cast of x to so many copies, which costs so many readings of it beside.
func (t *Tape) quantize(x *Tensor, copies units.Bytes, read float64) {
	if !t.OwnScales {
		t.shareScale(x)
	}
	t.narrow(x, Narrowing{Copies: int64(copies), DType: t.Quantize, Read: read})
}

func (t *Tape) narrow(x *Tensor, to Narrowing) {
	t.emit(Op{Prim: "quantize", Class: FusedPointwise, DType: to.DType, Elements: float64(x.Size()),
		Bytes: units.Bytes(to.Read*float64(x.bytes())) + units.Bytes(to.Copies*x.Size())*to.DType.Size()})
}

// along casts x for products that sum along its rows or its columns, with a scale for each of them: by rows a kernel reads them
// again from its cache, by columns it looks for the largest values first. A compiler casts an activation once for all products of a
// pass that read it so (torchao, float8/float8_linear.py, matmul_with_hp_or_float8_args). nil: what products read has no such scales.
func (t *Tape) along(x *Tensor, columns bool) *Tensor {
	if t.Quantize != FP8Row || !x.dtype.lowPrecision() {
		return nil
	}
	done, read := &x.cast, 1.
	if columns {
		done, read = &x.turned, 2
	}
	q := t.empty(t.Quantize, x.dims[:x.nd]...)
	if x.param != 0 || !*done {
		t.narrow(x, Narrowing{Copies: 1, DType: t.Quantize, Read: read})
		*done = t.Compiled
	}
	return q
}

// rescale multiplies what a product of gradients made by the scales of its rows and columns, of a product that was told of none.
func (t *Tape) rescale(y *Tensor) {
	if t.Rescales && t.Quantize == FP8Row && y.dtype.lowPrecision() {
		t.emit(Op{Prim: "rescale", Class: FusedPointwise, DType: y.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()})
	}
}

// turn emits the transpose that a weight gradient reads of an operand which was gathered
// in one copy where GEMMs need two, once for all that read it.
func (t *Tape) turn(x *Tensor) {
	if x.narrow && !x.turned && t.NarrowGathers < t.Copies {
		x.turned = true
		t.transposeQuantized(x)
	}
}

// turnFrozen emits the transpose of a frozen weight that is kept in one quantized copy where
// GEMMs read it along either axis.
func (t *Tape) turnFrozen(w *Tensor) {
	if w.param != 0 && t.Quantize == FP8 && t.Copies > 1 {
		t.transposeQuantized(w)
	}
}

func (t *Tape) transposeQuantized(x *Tensor) {
	n := x.Size()
	t.emit(Op{Prim: "transpose", Class: FusedPointwise, DType: t.Quantize, Elements: float64(n), Bytes: 2 * units.Bytes(n) * t.Quantize.Size()})
}

// Linear returns x·Wᵀ + b for a weight of shape [out, in] (or [in, out] when
// transposed) and an optional bias. x keeps its leading dimensions. The bias is
// added in the GEMM's epilogue; its gradient is a column sum. The weight gradient is
// computed before the input gradient (MmBackward0: mat2 before self).
func (t *Tape) Linear(x, w, b *Tensor, transposed bool) *Tensor {
	wl := t.operand(w) // autocast casts the arguments right to left
	bl := t.low(b)
	xl := t.low(x)
	out, in := w.Dim(0), w.Dim(1)
	if transposed {
		out, in = in, out
	}
	m := xl.Size() / in
	t.host.Views += 2 // flatten, unflatten
	y := t.ofWidth(xl.dtype, xl, out)
	xg, wg, bg := xl.grad, wl.grad, bl != nil && bl.grad
	zeros, sums := t.HalfZero, t.SumsBack
	pad := t.Compiled && !t.Unpadded && (out%padTo != 0 || in%padTo != 0)
	if pad {
		t.Release(t.pad(wl))
		out, in = padded(out), padded(in)
	}
	whole := wg && t.SavesInput && t.Quantize != F32 && xl.dtype.lowPrecision() // cast again for the weight gradient
	kept := t.quantized(xl, wg && !whole)
	again := xl.shard // gathered once more in the backward pass
	var local *Tensor
	if again != nil && xl.narrow && t.NarrowGathers == 1 { // as GEMMs read it
		local = t.empty(t.Quantize, again.from.dims[:again.from.nd]...)
	}
	t.begin()
	y = t.produce(t.product(b != nil), y, func(*Tensor) {
		defer t.Release(t.along(xl, false), t.along(wl, false))
		t.multiply("linear", LayoutForward, xl.dtype, m, out, in, zeros)
	})
	var saved []*Tensor
	switch {
	case !wg:
	case local != nil:
		saved = append(saved, local)
	case again != nil:
		saved = append(saved, again.from)
	case whole:
		saved = append(saved, xl)
	default:
		saved = append(saved, kept)
	}
	packed := w.packed != F32
	switch {
	case xg && !packed:
		saved = append(saved, wl)
	case xg && t.PackedInputs:
		saved = append(saved, xl)
	}
	t.attach([]*Tensor{xl, wl, bl}, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		gy := g[0]
		switch {
		case len(gy.more) > 0:
			gy = t.settle(t.Hold(gy))
			defer t.Release(gy)
		case !gy.contiguous() && !gy.matrix():
			gy = t.copyContiguous(gy)
			defer t.Release(gy)
		}
		var gx, gw, gb *Tensor
		if pad && !gy.padded {
			gy = t.pad(gy)
			defer t.Release(gy)
		}
		t.Release(t.quantized(gy, wg))
		wgrad := func() {
			if !wg {
				return
			}
			defer t.Release(t.along(gy, true), t.along(n.saved[0], true))
			if whole {
				t.Release(t.quantized(n.saved[0], true))
			}
			t.turn(xl)
			t.turn(gy)
			gw = t.empty(gy.dtype, w.dims[:w.nd]...)
			gw.summed = t.HasMain && !t.MainHook
			t.multiply("linear_wgrad", LayoutWgrad, gy.dtype, out, in, m, zeros)
			if t.TurnedWeights {
				t.emit(Op{Prim: "clone", Class: Transposed, DType: w.dtype, Elements: float64(w.Size()), Bytes: 2 * w.bytes(), Index: 4})
			}
			t.rescale(gw)
		}
		if again == nil {
			wgrad()
		}
		if xg {
			if pad {
				t.Release(t.pad(wl))
			}
			if packed {
				defer t.Release(t.unpack("unpack_backward", w))
			}
			if !wg {
				t.turnFrozen(wl)
			}
			gx = t.empty(gy.dtype, xl.dims[:xl.nd]...)
			defer t.Release(t.along(gy, false), t.along(wl, true))
			gx.view = gx.nd > 2 // of a matrix: the memory of a sum of two is a third's (a snapshot of an H100)
			t.multiply("linear_dgrad", LayoutDgrad, gy.dtype, m, in, out, zeros)
			t.rescale(gx)
			if sums {
				t.sec.Ops[len(t.sec.Ops)-1].Bytes += gx.bytes()
				gx.summed = true
			}
		}
		if again != nil { // the input is gathered beside the input gradient, then the weight gradient runs
			full := t.regather(again)
			wgrad()
			t.Release(full)
		}
		if bg {
			gb = t.empty(gy.dtype, out)
			t.reduce("sum", ColReduce, gy, gb)
		}
		return present(gx, gw, gb)
	})
	t.Release(kept, local, wl, bl, xl)
	return y
}

// AddBias adds a bias to the rows of x in a kernel of its own. Its gradient is a column sum.
func (t *Tape) AddBias(x, b *Tensor) *Tensor {
	bl := t.low(b)
	t.begin()
	z := t.like(x)
	t.kernel("bias", z, x, bl)
	t.attach([]*Tensor{x, bl}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if x.grad {
			r = append(r, t.Hold(g[0]))
		}
		if bl.grad {
			gb := t.empty(g[0].dtype, bl.Size())
			t.reduce("sum", ColReduce, g[0], gb)
			r = append(r, gb)
		}
		return r
	})
	t.Release(bl)
	return z
}

// padTo is the number of elements to whose multiple the compiler pads the extents
// of a GEMM (torch._inductor, shape_padding: 16 bytes of a 16-bit type).
const padTo = 8

func padded(n int64) int64 { return (n + padTo - 1) / padTo * padTo }

// pad copies x into rows of a padded length. Odd rows are read with accesses of two bytes, as good as reading them
// twice (50,257 words 1.5 ps a value, 30,522 0.92).
func (t *Tape) pad(x *Tensor) *Tensor {
	y := t.emptyLike(x)
	y.padded = true
	reads := x.bytes()
	if odd(x) {
		reads *= 2
	}
	t.over("pad", FusedPointwise, x, reads+y.bytes())
	return y
}

// MatmulT multiplies x [..., m, k] by the transpose of y [..., n, k].
func (t *Tape) MatmulT(x, y *Tensor) *Tensor {
	yt := t.Transpose(y, -1, -2)
	z := t.Matmul(x, yt)
	t.Release(yt)
	return z
}

// Matmul multiplies batched matrices: [..., m, k] by [..., k, n]. Two and more batch
// dimensions are folded into one, for which operands and gradients that do not lie in
// one stretch are copied (aten/src/ATen/native/LinearAlgebra.cpp, _matmul_impl).
func (t *Tape) Matmul(x, y *Tensor) *Tensor {
	if x.nd <= 3 || t.Compiled {
		return t.BatchedMatmul(x, y)
	}
	fold := func(x *Tensor) *Tensor {
		return t.Reshape(x, x.Size()/(x.Dim(-2)*x.Dim(-1)), x.Dim(-2), x.Dim(-1))
	}
	dims := x.dims
	dims[x.nd-1] = y.Dim(-1)
	xf := fold(x)
	yf := fold(y)
	zf := t.BatchedMatmul(xf, yf)
	z := t.Reshape(zf, dims[:x.nd]...)
	t.Release(xf, yf, zf)
	return z
}

// BatchedMatmulT is BatchedMatmul with the transpose of y [..., n, k].
func (t *Tape) BatchedMatmulT(x, y *Tensor) *Tensor {
	yt := t.Transpose(y, -1, -2)
	z := t.BatchedMatmul(x, yt)
	t.Release(yt)
	return z
}

// BatchedMatmul multiplies batched matrices whose batch dimensions fold into one as
// they lie: [..., m, k] by [..., k, n].
func (t *Tape) BatchedMatmul(x, y *Tensor) *Tensor {
	yl := t.low(y)
	xl := t.low(x)
	m, k, n := xl.Dim(-2), xl.Dim(-1), yl.Dim(-1)
	batch := xl.Size() / (m * k)
	t.begin()
	z := t.alloc(t.ofWidth(xl.dtype, xl, n))
	t.gemm("matmul", LayoutForward, xl.dtype, m, n, k, batch)
	var saved []*Tensor
	if yl.grad {
		saved = append(saved, xl)
	}
	if xl.grad {
		saved = append(saved, yl)
	}
	t.attach([]*Tensor{xl, yl}, []*Tensor{z}, saved, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if xl.grad {
			gx := t.emptyLike(xl)
			t.gemm("matmul_dgrad", LayoutDgrad, xl.dtype, m, k, n, batch)
			r = append(r, gx)
		}
		if yl.grad {
			gy := t.emptyLike(yl)
			t.gemm("matmul_wgrad", LayoutWgrad, yl.dtype, k, n, m, batch)
			r = append(r, gy)
		}
		return r
	})
	t.Release(yl, xl)
	return z
}
