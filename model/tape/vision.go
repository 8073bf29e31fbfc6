package tape

import "github.com/perfplan/perfplan/internal/units"

// Kernels that pick elements one by one, for an element in units of what scatter_add_ takes
// (3.78 ps, class atomic-add), in traces of Qwen3-VL's steps on an H100 (PyTorch 2.11,
// 8.4 million positions of which 4.7 are images', 2026-11-26): elements copied by lists of
// rows and columns 5.6 to 5.9 ps, by three lists 14.7, a running count of a mask 4.8, the
// places where it is set 3.5.
const (
	byRows    = 1.5
	byPlaces  = 3.9
	maskCount = 1.27
	maskFind  = 0.93
)

// patchGradient is what the gradient of a patch projection takes of its forward pass: 5.2,
// 5.8, 4.3 and 7.7 hundredths of a picosecond for a product, with the copies that order it,
// where that takes 11.7, 8.6, 9.3 and 10.7 (Qwen3-VL, Qwen2.5-VL, SigLIP and CLIP on an H100).
const patchGradient = 0.5

// Patches projects patches x [images, patches, pixels] by a convolution whose kernels w
// [width, ...] cover one each, to [images, patches, width]. cuDNN runs it in 16 bits
// without tensor cores (implicit_convolve_sgemm). With planes, the result lies width by
// width, as that of a convolution over whole images does, and its gradient is brought to
// that order first.
func (t *Tape) Patches(x, w, bias *Tensor, planes bool) *Tensor {
	xl, wl, bl := t.low(x), t.low(w), t.low(bias)
	t.begin()
	n, p, width := xl.Dim(0), xl.Dim(1), wl.Dim(0)
	products := float64(n * p * wl.Size())
	y := t.meta(promote(xl, wl), []int64{n, p, width})
	if planes {
		y.dims[1], y.dims[2] = width, p
	}
	y.setContiguous()
	t.alloc(y)
	if planes {
		y.dims[1], y.dims[2] = p, width
		y.strides[1], y.strides[2] = y.strides[2], y.strides[1]
	}
	t.emit(Op{Prim: "patches", Class: Convolution, DType: y.dtype, Elements: products, Bytes: xl.bytes() + wl.bytes() + y.bytes(), FLOPs: units.FLOPs(2 * products)})
	if bl != nil {
		t.emit(Op{Prim: "bias", Class: Strided2, DType: y.dtype, Elements: float64(y.Size()), Index: 4, Bytes: 2 * y.bytes()})
	}
	t.attach([]*Tensor{wl, bl}, []*Tensor{y}, []*Tensor{xl, wl}, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		from := t.Hold(g[0])
		if planes {
			t.Release(from)
			from = t.like(g[0])
			t.over("to", Transposed, from, 2*from.bytes())
		}
		t.scratch(xl.bytes() + from.bytes())
		gw := t.emptyLike(wl)
		t.emit(Op{Prim: "patches_wgrad", Class: Convolution, DType: gw.dtype, Elements: patchGradient * products, Bytes: xl.bytes() + gw.bytes() + from.bytes(), FLOPs: units.FLOPs(2 * products)})
		r := []*Tensor{gw}
		if bl != nil && bl.grad {
			gb := t.empty(gw.dtype, width)
			t.reduce("sum", ColReduce, from, gb)
			r = append(r, gb)
		}
		t.Release(from)
		return r
	})
	t.Release(bl, wl, xl)
	return y
}

// Prepend puts one row in front of those of each x [batch, rows, width].
func (t *Tape) Prepend(x, row *Tensor) *Tensor {
	t.begin()
	b, rows, width := x.Dim(0), x.Dim(1), x.Dim(2)
	y := t.empty(x.dtype, b, rows+1, width)
	t.concat(false, y, row, x)
	t.attach([]*Tensor{row, x}, []*Tensor{y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if row.grad {
			first := t.emptyLike(row)
			t.Tiny("sum", 1)
			r = append(r, first)
		}
		if x.grad {
			rest := t.view(g[0])
			rest.dims[1] = rows
			r = append(r, rest)
		}
		return r
	})
	return y
}

// Detached is a view of x that no gradient comes back through.
func (t *Tape) Detached(x *Tensor) *Tensor {
	z := t.view(x)
	z.grad, z.node = false, -1
	return z
}

// Carry is a view of x in which other goes along, for whom is not told here: it is kept,
// and so is its gradient, which is there when that of x comes.
func (t *Tape) Carry(x, other *Tensor) *Tensor {
	z := t.view(x)
	z.grad, z.node = false, -1
	t.attach([]*Tensor{x, other}, []*Tensor{z}, []*Tensor{other}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if x.grad {
			r = append(r, t.Hold(g[0]))
		}
		if other.grad {
			r = append(r, t.emptyLike(other))
		}
		return r
	})
	return z
}

// Merged views rows [1, n, width] as [1, n / k, k·width].
func (t *Tape) Merged(x *Tensor, k int64) *Tensor {
	return t.Reshape(x, x.Dim(0), x.Dim(1)/k, x.Dim(2)*k)
}

// Parted views x in parts along its third dimension, which attention takes one by one; the
// gradients of the parts are joined in one tensor.
func (t *Tape) Parted(x *Tensor) *Tensor {
	z := t.view(x)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.emptyLike(x)
		t.concat(false, r, g)
		return r
	})
	return z
}

// Assembled joins what attention made of parts; its gradient is views.
func (t *Tape) Assembled(x *Tensor) *Tensor {
	t.begin()
	y := t.like(x)
	t.over("cat", Vectorized, y, 2*y.bytes())
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.Hold(g) })
	return y
}

// PutImages puts rows of images [.., n, width] among those of x [batch, rows, width]: by a
// mask, or by lists of places, for whose length the host waits, in a copy of x in another order
// that is copied back (Megatron-Bridge, models/qwen_vl/modelling_qwen3_vl/model.py).
func (t *Tape) PutImages(x, images *Tensor, lists bool) *Tensor {
	if !lists {
		return t.maskedScatter(x, images)
	}
	t.begin()
	n, bytes := float64(images.Size()), images.bytes()
	y := t.Copy(x)
	turn := func(t *Tape) {
		t.emit(Op{Prim: "clone", Class: Strided2, DType: y.dtype, Elements: float64(y.Size()), Index: 6, Bytes: 2 * y.bytes()})
	}
	put := func(t *Tape, prim string) {
		t.Tiny("nonzero", 4)
		t.Wait()
		t.emit(Op{Prim: prim, Class: AtomicAdd, DType: y.dtype, Elements: byRows * n, Bytes: 2*bytes + 16*units.Bytes(n/float64(x.Dim(-1)))})
	}
	turn(t)
	put(t, "index_put_")
	turn(t)
	t.attach([]*Tensor{x, images}, []*Tensor{y}, nil, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		turn(t)
		if x.grad {
			left := t.Copy(g[0])
			put(t, "index_put_")
			turn(t)
			r = append(r, left)
		}
		if images.grad {
			into := t.emptyLike(images)
			put(t, "index")
			r = append(r, into)
		}
		return r
	})
	return y
}

// maskedScatter copies rows of images [.., n, width] to where a mask of x [batch, rows,
// width] is set (torch.masked_scatter, with a mask as wide as x). The gradient of x is
// masked, and that of the images picked, for whose number the host waits.
func (t *Tape) maskedScatter(x, images *Tensor) *Tensor {
	t.begin()
	n, picked := float64(x.Size()), float64(images.Size())
	one := units.Bytes(x.Size())
	y := t.Copy(x)
	mask := t.empty(Bool, x.Dim(0), x.Dim(1), x.Dim(2))
	expand := Op{Prim: "clone", Class: Strided2, DType: Bool, Elements: n, Index: 4, Bytes: one}
	t.emit(expand)
	t.scratch(8 * one)
	t.Tiny("scan", 1)
	t.emit(Op{Prim: "scan", Class: AtomicAdd, DType: I64, Elements: maskCount * n, Bytes: 9 * one})
	t.Tiny("masked_scatter_check", 1)
	t.emit(Op{Prim: "masked_scatter", Class: Vectorized, DType: x.dtype, Elements: n, Bytes: 9*one + 2*y.bytes() + images.bytes()})
	t.Release(mask)
	t.attach([]*Tensor{x, images}, []*Tensor{y}, nil, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		if x.grad {
			left := t.Copy(g[0])
			t.emit(Op{Prim: "masked_fill", Class: Strided2, DType: left.dtype, Elements: n, Index: 4, Bytes: 2 * left.bytes()})
			r = append(r, left)
		}
		if images.grad {
			t.emit(expand)
			t.Tiny("nonzero", 2)
			t.Wait()
			places := 24 * units.Bytes(picked)
			t.scratch(2*places + one)
			t.emit(Op{Prim: "nonzero", Class: AtomicAdd, DType: I64, Elements: maskFind * n, Bytes: one + 8*units.Bytes(picked)})
			t.emit(Op{Prim: "nonzero", Class: Vectorized, DType: I64, Elements: picked, Bytes: places * 4 / 3})
			into := t.emptyLike(images)
			t.emit(Op{Prim: "masked_select", Class: AtomicAdd, DType: images.dtype, Elements: byPlaces * picked, Bytes: places + 2*into.bytes()})
			r = append(r, into)
		}
		return r
	})
	return y
}

// AddAt adds rows [.., n, width] to those of x that a mask names, of a copy: they are
// picked, summed and put back, each time by a list of places for whose length the host waits
// (transformers, modeling_qwen3_vl.py, _deepstack_process). What is added comes from another
// tape: its gradient is made here and let go of.
func (t *Tape) AddAt(x *Tensor, rows int64) *Tensor {
	t.begin()
	width := x.Dim(-1)
	n := float64(rows * width)
	bytes := units.Bytes(n) * x.dtype.Size()
	find := func(t *Tape) {
		t.Tiny("nonzero", 4)
		t.Wait()
	}
	at := func(t *Tape, prim string) {
		t.emit(Op{Prim: prim, Class: AtomicAdd, DType: x.dtype, Elements: byRows * n, Bytes: 2*bytes + 16*units.Bytes(rows)})
	}
	y := t.Copy(x)
	find(t)
	picked := t.empty(x.dtype, rows, width)
	at(t, "index")
	sum := t.like(picked)
	t.kernel("add", sum, picked, sum)
	t.Release(picked)
	find(t)
	at(t, "index_put_")
	t.Release(sum)
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor {
		left := t.Copy(g)
		find(t)
		at(t, "index_put_")
		find(t)
		picked := t.empty(x.dtype, rows, width)
		at(t, "index")
		back := t.like(left)
		t.fill(back)
		find(t)
		t.Tiny("index_put_setup", 8)
		t.emit(Op{Prim: "index_put_", Class: ScatterAdd, DType: x.dtype, Elements: n, Bytes: 2*bytes + back.bytes()})
		t.kernel("add_", left, left, back)
		t.Release(back, picked)
		return left
	})
	return y
}

// Unbind cuts x [1, n, 3·width] into queries, keys and values as the parts of a dimension of
// three that is brought to the front: their gradients are stacked there, and copied back.
func (t *Tape) Unbind(x *Tensor) []*Tensor {
	outs := make([]*Tensor, 3)
	for i := range outs {
		outs[i] = t.view(x)
		outs[i].dims[x.nd-1] /= 3
	}
	t.attach([]*Tensor{x}, outs, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := t.emptyLike(x)
		t.emit(Op{Prim: "cat", Class: Concat, DType: r.dtype, Elements: stacked * float64(r.Size()), Bytes: 2 * r.bytes()})
		t.emit(Op{Prim: "clone", Class: Strided2, DType: r.dtype, Elements: float64(r.Size()), Index: 8, Bytes: 2 * r.bytes()})
		return []*Tensor{r}
	})
	return outs
}

// stacked is what an element of three stacked tensors takes, of which none is contiguous in
// the stack, in units of class concat: 3.3 ps (28 million, same traces).
const stacked = 0.83

// Planes lays x [batch, rows, width] out width by width, as a unit before it left it.
func (t *Tape) Planes(x *Tensor) {
	x.strides = [maxDims]int64{x.dims[1] * x.dims[2], 1, x.dims[1]}
}

// Flat reports whether x is contiguous.
func (x *Tensor) Flat() bool { return x.contiguous() }

// Pool averages k rows of x [images, rows, width] each by avg_pool2d, which reads and writes
// them width by width.
func (t *Tape) Pool(x *Tensor, k int64) *Tensor {
	t.begin()
	b, rows, width := x.Dim(0), x.Dim(1), x.Dim(2)
	turned := func(prim string) {
		t.over(prim, Transposed, x, 2*x.bytes())
	}
	turned("clone")
	y := t.meta(x.dtype, []int64{b, rows / k, width})
	y.strides = [maxDims]int64{rows / k * width, 1, rows / k}
	t.alloc(y)
	t.over("avg_pool2d", Strided2, x, x.bytes()+y.bytes())
	t.attachOne(x, y, []*Tensor{x}, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.emptyLike(x)
		t.emit(Op{Prim: "avg_pool2d_backward", Class: Strided2, DType: r.dtype, Elements: float64(r.Size()), Index: 4, Bytes: r.bytes() + g.bytes()})
		return r
	})
	return y
}

// BoolMask combines masks of all pairs of positions of a batch.
func (t *Tape) BoolMask(batch, positions int64) *Tensor {
	m := t.empty(Bool, batch, 1, positions, positions)
	t.emit(Op{Prim: "mask", Class: Strided2, DType: Bool, Elements: float64(m.Size()), Index: 4, Bytes: 2 * m.bytes()})
	return m
}
