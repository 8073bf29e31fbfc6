package tape

import "github.com/perfplan/perfplan/internal/units"

// To casts x to a dtype; the same tensor when it has it already.
func (t *Tape) To(x *Tensor, d DType) *Tensor {
	if x.dtype == d {
		return t.Hold(x)
	}
	t.begin()
	y := t.castTo(x, d, x.param != 0)
	src, weight := x.dtype, x.param != 0
	param := x.param
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		if param > 0 && param == t.Tied {
			return t.Hold(g)
		}
		return t.castTo(g, src, weight)
	})
	return y
}

// castTo emits the copy of a cast, without a node. A compiler casts activations in the
// kernel that makes or reads them; weights, their gradients and those of the residual
// stream, which products read in 16 bits, in one that does nothing else.
func (t *Tape) castTo(x *Tensor, d DType, weight bool) *Tensor {
	if x.dtype == d {
		return t.Hold(x)
	}
	y := t.shape(d, x)
	t.alloc(y)
	switch {
	case !t.Compiled:
		t.kernel("to", y, x)
	case weight, t.phase == Backward && x.dtype == F32 && d.lowPrecision():
		t.emit(Op{Prim: "to", Class: Vectorized, DType: d, Elements: float64(y.Size()), Bytes: x.reads() + y.bytes()})
	}
	return y
}

// Float casts x to fp32.
func (t *Tape) Float(x *Tensor) *Tensor { return t.To(x, F32) }

// operand is the weight that products read: autocast's cast of it, or what is unpacked of it.
func (t *Tape) operand(w *Tensor) *Tensor {
	if w.packed == F32 {
		return t.low(w)
	}
	return t.unpack("unpack", w)
}

// unpack makes a weight of few bits one in the dtype that computes, which lives no longer than a
// product runs (bitsandbytes, autograd/_functions.py, MatMul4Bit). Its scales, of 64 values each,
// are unpacked and shifted first (functional.py, dequantize_4bit).
func (t *Tape) unpack(prim string, w *Tensor) *Tensor {
	defer t.Kind(t.Kind(WeightCopy))
	d, n := w.dtype, w.Size()
	if t.Autocast != F32 {
		d = t.Autocast
	}
	scales := t.empty(F32, ceilDiv(n, 64))
	defer t.Release(scales)
	t.over("unpack_scales", FusedPointwise, scales, units.Bytes(scales.Size())+scales.bytes())
	t.kernel("add_scalar", scales, scales)
	y := t.alloc(t.shape(d, w))
	t.emit(Op{Prim: prim, Class: Unpack, DType: d, Elements: float64(n), Bytes: units.Bytes(n)*w.packed.Size() + y.bytes()})
	return y
}

// Add returns x + y.
func (t *Tape) Add(x, y *Tensor) *Tensor {
	t.begin()
	z := t.apply("add", x, y)
	t.sums(z, x, y)
	return z
}

// sums notes that z is the sum of x and y, whose gradients are its own.
func (t *Tape) sums(z, x, y *Tensor) {
	t.attach([]*Tensor{x, y}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		out := make([]*Tensor, len(n.in))
		for i := range out {
			out[i] = t.Hold(g[0])
		}
		return out
	})
}

// Sub returns x − y; the gradient of y is negated in a kernel of its own.
func (t *Tape) Sub(x, y *Tensor) *Tensor {
	t.begin()
	z := t.apply("sub", x, y)
	t.attach([]*Tensor{x, y}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if x.grad {
			r = append(r, t.Hold(g[0]))
		}
		if y.grad {
			r = append(r, t.apply("neg", g[0]))
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
	z := t.apply("clamp", x)
	t.attachOne(x, z, []*Tensor{x}, func(t *Tape, n *node, g *Tensor) *Tensor {
		t.Tiny("fill_", 1)
		mask := t.alloc(t.shape(Bool, n.saved[0]))
		for range sides {
			t.kernel("compare", mask, n.saved[0])
		}
		if sides > 1 {
			t.kernel("logical_and", mask, mask, mask)
		}
		r := t.like(g)
		t.emit(Op{Prim: "where", Class: Strided2, DType: r.dtype, Elements: float64(r.Size()), Index: 4, Bytes: g.bytes() + r.bytes() + mask.bytes()})
		t.Release(mask)
		return r
	})
	return z
}

// Above is where x is greater than zero, a byte for each element, without a gradient.
func (t *Tape) Above(x *Tensor) *Tensor {
	t.begin()
	return t.compare("gt", x)
}

// compare is what prim makes of x and another number, a byte for each element.
func (t *Tape) compare(prim string, x *Tensor) *Tensor {
	m := t.alloc(t.shape(Bool, x))
	t.kernel(prim, m, x)
	return m
}

// Where takes x where the mask is set and y elsewhere; either gradient is one kernel.
func (t *Tape) Where(mask, x, y *Tensor) *Tensor {
	t.begin()
	z := t.like(x, y)
	t.kernel("where", z, mask, x, y)
	t.attach([]*Tensor{x, y}, []*Tensor{z}, []*Tensor{mask}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		out := make([]*Tensor, len(n.in))
		for i := range out {
			out[i] = t.like(g[0])
			t.kernel("where", out[i], n.saved[0], g[0])
		}
		return out
	})
	return z
}

// WhereElse takes x where a mask says so and a number elsewhere (torch.where), as its gradient does.
func (t *Tape) WhereElse(x, mask *Tensor) *Tensor {
	t.begin()
	pick := func(t *Tape, x, mask *Tensor) *Tensor {
		z := t.like(x)
		t.kernel("where", z, mask, x)
		return z
	}
	z := pick(t, x, mask)
	t.attachOne(x, z, []*Tensor{mask}, func(t *Tape, n *node, g *Tensor) *Tensor { return pick(t, g, n.saved[0]) })
	return z
}

// Expm1 is eˣ − 1, whose gradient adds one to the result again.
func (t *Tape) Expm1(x *Tensor) *Tensor {
	x = t.fp32(x)
	defer t.Release(x)
	t.begin()
	z := t.apply("expm1", x)
	t.attachOne(x, z, []*Tensor{z}, func(t *Tape, n *node, g *Tensor) *Tensor {
		one := t.apply("add", n.saved[0])
		r := t.apply("mul", g, one)
		t.Release(one)
		return r
	})
	return z
}

// Minimum is the smaller of x and a number on the device. Its gradient is halved where both
// are equal and zero where x is the greater (minimum in derivatives.yaml).
func (t *Tape) Minimum(x *Tensor) *Tensor {
	t.begin()
	z := t.apply("minimum", x)
	t.attachOne(x, z, []*Tensor{x}, func(t *Tape, n *node, g *Tensor) *Tensor {
		equal := t.compare("eq", n.saved[0])
		half := t.apply("div", g)
		r := t.like(g)
		t.kernel("where", r, equal, half, g)
		t.Release(equal, half)
		greater := t.compare("gt", n.saved[0])
		t.kernel("masked_fill_", r, r, greater)
		t.Release(greater)
		return r
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

// Mul returns x · y. The gradient of y is computed before that of x, as in the
// generated MulBackward0 (outputs in alphabetical order: other, self).
func (t *Tape) Mul(x, y *Tensor) *Tensor {
	t.begin()
	z := t.apply("mul", x, y)
	var saved []*Tensor
	if x.grad {
		saved = append(saved, y)
	}
	if y.grad {
		saved = append(saved, x)
	}
	t.attach([]*Tensor{x, y}, []*Tensor{z}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := make([]*Tensor, len(n.in))
		for i := len(r) - 1; i >= 0; i-- {
			r[i] = t.apply("mul", g[0], n.saved[i])
		}
		return r
	})
	return z
}

// Scale returns x times, plus or divided by a host scalar: one kernel each way
// for a product, none backward for a sum.
func (t *Tape) Scale(prim string, x *Tensor) *Tensor {
	t.begin()
	z := t.apply(prim, x)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		if prim == "add_scalar" {
			return t.Hold(g)
		}
		return t.apply(prim, g)
	})
	return z
}

// unaryRule is an elementwise function of one tensor: whether it saves its
// result instead of its input, and whether its gradient reads the saved tensor.
type unaryRule struct {
	saveResult, saveNothing bool
	wide                    bool    // autocast runs it in fp32
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
	"exp":       {saveResult: true, wide: true},
	"softplus":  {wide: true},
	"log":       {wide: true},
}

// Unary applies an elementwise function with a fused gradient kernel.
func (t *Tape) Unary(prim string, x *Tensor) *Tensor {
	rule := unary[prim]
	if rule.wide {
		x = t.fp32(x)
		defer t.Release(x)
	}
	t.begin()
	z := t.apply(prim, x)
	t.heavy(rule)
	saved := []*Tensor{x}
	if rule.saveResult {
		saved[0] = z
	}
	if rule.saveNothing {
		saved = nil
	}
	t.attachOne(x, z, saved, func(t *Tape, n *node, g *Tensor) *Tensor {
		ins := append([]*Tensor{g}, n.saved...)
		r := t.apply(prim+"_backward", ins...)
		t.heavy(rule)
		return r
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
	z := t.apply("pow", in)
	t.attachOne(in, z, []*Tensor{in}, func(t *Tape, n *node, g *Tensor) *Tensor {
		s := n.saved[0]
		var p *Tensor
		if exponent == 2 {
			p = t.Copy(s)
		} else {
			p = t.apply("pow", s)
		}
		m := t.apply("mul", p)
		r := t.apply("mul", g, m)
		t.Release(m, p) // which one expression made
		return r
	})
	t.Release(in)
	return z
}

// Erf is the error function of x. Its gradient is written out: a square, its negative, that one's exponential, a scaling and a product
// (tools/autograd/derivatives.yaml, erf).
func (t *Tape) Erf(x *Tensor) *Tensor {
	t.begin()
	z := t.apply("erf", x)
	t.attachOne(x, z, []*Tensor{x}, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.apply("pow", n.saved[0])
		for _, prim := range []string{"neg", "exp", "mul"} {
			of := r
			r = t.apply(prim, of)
			t.Release(of)
		}
		of := r
		r = t.apply("mul", of, g)
		t.Release(of)
		return r
	})
	return z
}

// Rsqrt returns 1/√x; its gradient is −½·g·r³ in three kernels.
func (t *Tape) Rsqrt(x *Tensor) *Tensor {
	in := t.fp32(x)
	t.begin()
	z := t.apply("rsqrt", in)
	t.attachOne(in, z, []*Tensor{z}, func(t *Tape, n *node, g *Tensor) *Tensor {
		p := t.apply("pow", n.saved[0])
		m := t.apply("mul", g)
		r := t.apply("mul", m, p)
		t.Release(p, m)
		return r
	})
	t.Release(in)
	return z
}

// Sqrt returns √x; its gradient divides by twice that.
func (t *Tape) Sqrt(x *Tensor) *Tensor {
	t.begin()
	z := t.apply("sqrt", x)
	t.attachOne(x, z, []*Tensor{z}, func(t *Tape, n *node, g *Tensor) *Tensor {
		twice := t.apply("mul", n.saved[0])
		r := t.apply("div", g, twice)
		t.Release(twice)
		return r
	})
	return z
}

// Zeros is a tensor that a kernel fills with a constant.
func (t *Tape) Zeros(d DType, dims ...int64) *Tensor {
	y := t.empty(d, dims...)
	t.fill(y)
	return y
}

func (t *Tape) zerosLike(x *Tensor) *Tensor { return t.Zeros(x.dtype, x.dims[:x.nd]...) }

// Copy is a device-to-device copy of a contiguous tensor, without a gradient.
func (t *Tape) Copy(x *Tensor) *Tensor {
	y := t.like(x)
	t.over("copy", Memcpy, x, x.bytes()+y.bytes())
	return y
}

// Copied is a device-to-device copy of x whose gradient is a view of a larger one, as
// torch.cat of contiguous tensors makes one of each.
func (t *Tape) Copied(x *Tensor) *Tensor {
	t.begin()
	y := t.Copy(x)
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.Hold(g) })
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
	class := Dropout
	if x.dtype == F32 {
		class = DropoutWide
	}
	t.over("dropout", class, x, x.bytes()+z.bytes()+mask.bytes())
	t.attachOne(x, z, []*Tensor{mask}, func(t *Tape, n *node, g *Tensor) *Tensor { return t.apply("dropout_backward", g, n.saved[0]) })
	t.Release(mask)
	return z
}

// MaskedFill overwrites rows by a mask that broadcasts over the last dimension:
// a copy and a strided kernel, forward and backward.
func (t *Tape) MaskedFill(x, mask *Tensor) *Tensor {
	t.begin()
	z := t.maskedCopy(x, mask)
	t.attachOne(x, z, []*Tensor{mask}, func(t *Tape, n *node, g *Tensor) *Tensor { return t.maskedCopy(g, n.saved[0]) })
	return z
}

// Div returns x / y, with the gradients of DivBackward0: g/y for x and, for y,
// −g·x/y² in four kernels and a reduction (div_tensor_other_grad in FunctionsManual.cpp).
func (t *Tape) Div(x, y *Tensor) *Tensor {
	t.begin()
	z := t.apply("div", x, y)
	t.attach([]*Tensor{x, y}, []*Tensor{z}, []*Tensor{x, y}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if x.grad {
			r = append(r, t.apply("div", g[0], y))
		}
		if y.grad {
			minus := t.apply("neg", g[0])
			a := t.apply("div", x, y)
			b := t.apply("div", a, y)
			c := t.apply("mul", minus, b)
			t.Release(a, b, minus)
			r = append(r, c)
		}
		return r
	})
	return z
}

// MaskRows overwrites rows of x in place by a mask of one value per row, in one
// strided kernel; its gradient is a masked copy.
func (t *Tape) MaskRows(x, mask *Tensor) *Tensor {
	t.begin()
	z := t.view(x)
	t.kernel("masked_fill_", z, z, mask)
	t.attachOne(x, z, []*Tensor{mask}, func(t *Tape, n *node, g *Tensor) *Tensor { return t.maskedCopy(g, n.saved[0]) })
	return z
}

// maskedCopy is masked_fill out of place: a copy, then a strided kernel.
func (t *Tape) maskedCopy(x, mask *Tensor) *Tensor {
	z := t.Copy(x)
	t.kernel("masked_fill_", z, z, mask)
	return z
}
