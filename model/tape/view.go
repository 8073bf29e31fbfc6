package tape

import "slices"

// Reshape gives x new dims: a view when its strides allow it, a copy otherwise.
// The gradient is reshaped back, which copies when its own layout demands it.
func (t *Tape) Reshape(x *Tensor, dims ...int64) *Tensor {
	z := t.reshape(x, dims)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.reshape(g, x.dims[:x.nd]) })
	return z
}

func (t *Tape) reshape(x *Tensor, dims []int64) *Tensor {
	if strides, ok := viewStrides(x, dims); ok {
		y := t.view(x)
		y.nd = int8(len(dims))
		copy(y.dims[:], dims)
		y.strides = strides
		return y
	}
	c := t.copyContiguous(x)
	y := t.view(c)
	y.nd = int8(len(dims))
	copy(y.dims[:], dims)
	y.setContiguous()
	t.Release(c)
	return y
}

// copyContiguous is clone(memory_format=contiguous).
func (t *Tape) copyContiguous(x *Tensor) *Tensor {
	y := t.emptyLike(x)
	t.kernel("clone", y, x)
	return y
}

// viewStrides returns the strides of x seen with other dims, if no copy is
// needed (aten/src/ATen/TensorUtils.cpp, computeStride): every stretch of new
// dims must fall into a stretch of old dims that is contiguous in itself.
func viewStrides(x *Tensor, dims []int64) (s [maxDims]int64, ok bool) {
	v := len(dims) - 1
	chunk := int64(1)
	if x.nd == 0 {
		return s, true
	}
	base := x.strides[x.nd-1]
	viewed := int64(1)
	for d := int(x.nd) - 1; d >= 0; d-- {
		chunk *= x.dims[d]
		if d > 0 && (x.dims[d-1] == 1 || x.strides[d-1] == chunk*base) {
			continue
		}
		for v >= 0 && (viewed < chunk || dims[v] == 1) {
			s[v] = viewed * base
			viewed *= dims[v]
			v--
		}
		if viewed != chunk {
			return s, false
		}
		if d > 0 {
			base, chunk, viewed = x.strides[d-1], 1, 1
		}
	}
	return s, v < 0
}

// Transpose swaps two dimensions (negative counts from the end).
func (t *Tape) Transpose(x *Tensor, i, j int) *Tensor {
	swap := func(x *Tensor) *Tensor {
		y := t.view(x)
		a, b := i, j
		if a < 0 {
			a += int(y.nd)
		}
		if b < 0 {
			b += int(y.nd)
		}
		y.dims[a], y.dims[b] = y.dims[b], y.dims[a]
		y.strides[a], y.strides[b] = y.strides[b], y.strides[a]
		return y
	}
	z := swap(x)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return swap(g) })
	return z
}

// Contiguous copies x unless it is contiguous already.
func (t *Tape) Contiguous(x *Tensor) *Tensor {
	if x.contiguous() {
		return t.Hold(x)
	}
	t.begin()
	z := t.copyContiguous(x)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.Hold(g) })
	return z
}

// Part reports whether x lies in a larger tensor.
func (t *Tape) Part(x *Tensor) bool { return x.store >= 0 && x.bytes() < t.stores[x.store].bytes }

// Expand broadcasts x to dims; the gradient is summed back by the engine.
func (t *Tape) Expand(x *Tensor, dims ...int64) *Tensor {
	z := t.expandTo(x, dims)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.empty(g.dtype, x.dims[:x.nd]...)
		t.reduce("sum", sumClass(g, x), g, r)
		return r
	})
	return z
}

// Slice takes part [from, to) of dimension dim. Its gradient fills a tensor of
// zeros and copies the part into it (slice_backward).
func (t *Tape) Slice(x *Tensor, dim int, from, to int64) *Tensor {
	if dim < 0 {
		dim += int(x.nd)
	}
	z := t.view(x)
	z.dims[dim] = to - from
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.Zeros(g.dtype, x.dims[:x.nd]...)
		if to > from {
			part := t.view(r)
			part.dims[dim] = to - from
			t.kernel("copy_", part, g)
			t.Release(part)
		}
		return r
	})
	return z
}

// EveryOther takes every other element of the last dimension, the even ones or the odd ones.
// Its gradient is as Slice's.
func (t *Tape) EveryOther(x *Tensor) *Tensor {
	z := t.spread(x)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.Zeros(g.dtype, x.dims[:x.nd]...)
		part := t.spread(r)
		t.kernel("copy_", part, g)
		t.Release(part)
		return r
	})
	return z
}

// spread is the view of every other element of the last dimension.
func (t *Tape) spread(x *Tensor) *Tensor {
	z, last := t.view(x), x.nd-1
	z.dims[last] /= 2
	z.strides[last] *= 2
	z.spaced = true
	return z
}

// Pairs puts the elements of y behind those of x, one by one (stack along a new last
// dimension, flattened). Its gradient is views of every other element.
func (t *Tape) Pairs(x, y *Tensor) *Tensor {
	t.begin()
	z := t.alloc(t.ofWidth(promote(x, y), x, 2*x.Dim(-1)))
	t.host.Views += 3
	t.concat(false, z, x, y)
	t.attach([]*Tensor{x, y}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		out := make([]*Tensor, len(n.in))
		for i := range out {
			out[i] = t.spread(g[0])
		}
		return out
	})
	return z
}

func (t *Tape) fill(x *Tensor) {
	t.over("fill_", Fill, x, x.bytes())
}

// Split cuts the last dimension into parts of the given widths. Its gradient is
// one concatenation.
func (t *Tape) Split(x *Tensor, widths ...int64) []*Tensor {
	return t.split(x, int(x.nd)-1, widths)
}

// Chunk cuts dimension dim into n parts, of which it is a multiple, as Split does.
func (t *Tape) Chunk(x *Tensor, dim int, n int64) []*Tensor {
	return t.split(x, dim, slices.Repeat([]int64{x.dims[dim] / n}, int(n)))
}

func (t *Tape) split(x *Tensor, dim int, widths []int64) []*Tensor {
	outs := make([]*Tensor, len(widths))
	for i, w := range widths {
		outs[i] = t.view(x)
		outs[i].dims[dim] = w
		t.host.Views--
	}
	t.host.Views++
	joined := t.Joined
	t.attach([]*Tensor{x}, outs, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := t.meta(x.dtype, x.dims[:x.nd])
		if joined {
			r.permuteLike(x)
		}
		t.alloc(r)
		t.concat(joined, r, g...)
		return []*Tensor{r}
	})
	return outs
}

// Pieces cuts dimension dim into n parts, as equal as they can be. Its gradient is one
// concatenation.
func (t *Tape) Pieces(x *Tensor, dim int, n int64) []*Tensor {
	outs := make([]*Tensor, n)
	for i, whole := int64(0), x.dims[dim]; i < n; i++ {
		outs[i] = t.view(x)
		outs[i].dims[dim] = whole*(i+1)/n - whole*i/n
		t.attach([]*Tensor{x}, outs[i:i+1], nil, func(t *Tape, _ *node, g []*Tensor) []*Tensor {
			if i > 0 { // nodes go back from the last to the first, which joins all
				return []*Tensor{nil}
			}
			r := t.emptyLike(x)
			t.concat(false, r, g...)
			return []*Tensor{r}
		})
	}
	return outs
}

// Refill copies parts along dimension dim into views of one new tensor, one after
// another. Autograd answers each by a copy of the gradient of the whole, a clone of the
// part's and zeros copied over it (torch/csrc/autograd/functions/tensor.cpp, CopySlices).
func (t *Tape) Refill(dim int, parts ...*Tensor) *Tensor {
	whole := t.meta(parts[0].dtype, parts[0].dims[:parts[0].nd])
	whole.dims[dim] = 0
	for _, p := range parts {
		whole.dims[dim] += p.dims[dim]
	}
	whole.setContiguous()
	t.alloc(whole)
	for _, p := range parts {
		t.begin()
		y := t.view(whole)
		y.dims[dim] = p.dims[dim]
		t.kernel("copy_", y, p)
		t.Release(y)
	}
	t.attach(parts, []*Tensor{whole}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := make([]*Tensor, len(n.in))
		for i := range r {
			left := t.emptyLike(whole)
			t.kernel("copy_", left, g[0])
			r[i] = t.empty(whole.dtype, n.in[i].meta.dims[:n.in[i].meta.nd]...)
			t.kernel("clone", r[i], r[i])
			if i > 0 { // before the first one the whole has no gradient
				zeros := t.like(r[i])
				t.fill(zeros)
				t.kernel("copy_", zeros, zeros)
				t.Release(zeros)
			}
			t.Release(left)
		}
		return r
	})
	return whole
}

// concat emits the copy of parts into out: vectorized when all are contiguous, or by
// a kernel of its own.
func (t *Tape) concat(joined bool, out *Tensor, parts ...*Tensor) {
	flat, turned := true, false
	for _, p := range parts {
		if p != nil && p.Size() > 0 && !p.contiguous() { // nothing is left out
			flat, turned = false, turned || p.turnedAgainst(out)
		}
	}
	class := Concat
	switch {
	case t.Compiled || joined:
		class = FusedPointwise
	case flat && !t.ScalarCat:
		class = Vectorized
	}
	o := Op{Prim: "cat", Class: class, DType: out.dtype, Elements: float64(out.Size()), Bytes: 2 * out.bytes()}
	switch {
	case class == Concat && flat:
		o.Elements *= flatCat
	case class == Concat && turned:
		o.Elements *= turnedCat
	case class == Concat && len(parts) == 2:
		o.Elements *= unevenCat(parts, out)
	}
	t.emit(o)
}

// flatCat is the factor on the time of a concatenation of contiguous parts, value by
// value: 1.9 to 2.7 ps for each on an H200, where the halves of rotated heads take 4.0
// (CatArrayBatchedCopy_contig of PyTorch 2.11, which takes it for pointers that are not
// aligned; 16 shapes, 2026-11). The aligned loads of 2023 to 2025 take 1.4 to 1.9 for rows
// from 1600 on and up to 4.4 for short ones.
const flatCat = 0.59

// turnedCat is the factor where parts lie transposed, and each value is read from a line of its own: 8.5 ps
// for each on an H200 (gradients of the gates and inputs of LFM2-1.2B's convolutions, three parts of 33.6
// million values, PyTorch 2.11, 2026-11-29).
const turnedCat = 2.13

// unevenCat is the factor on the time of a concatenation of two parts of different
// sizes: every part gets as many blocks, so those of the smaller one idle. Traces of
// Phi-3 (all and nothing) and gpt-oss (1024 to 1) on H200 take 1.5 times what equal
// parts take.
func unevenCat(parts []*Tensor, out *Tensor) float64 {
	var largest int64
	for _, p := range parts {
		if p != nil {
			largest = max(largest, p.Size())
		}
	}
	return 0.5 + float64(largest)/float64(out.Size())
}

// Concat joins tensors along the last dimension. Its gradient is views.
func (t *Tape) Concat(xs ...*Tensor) *Tensor {
	t.begin()
	var width int64
	for _, x := range xs {
		width += x.Dim(-1)
	}
	z := t.ofWidth(promote(xs...), xs[0], width)
	if t.Joined {
		z.permuteLike(xs[0])
	}
	t.alloc(z)
	t.concat(t.Joined, z, xs...)
	widths := make([]int64, 0, len(xs))
	for _, x := range xs {
		if x.grad {
			widths = append(widths, x.Dim(-1))
		}
	}
	t.attach(xs, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		out := make([]*Tensor, len(widths))
		for i, w := range widths {
			out[i] = t.view(g[0])
			out[i].dims[g[0].nd-1] = w
		}
		return out
	})
	return z
}

// Take picks index i of dimension dim by a list of one number, keeping the dimension.
// The list is copied to the device, for which the host waits. In the gradient it is
// sorted and the part is added into a tensor of zeros.
func (t *Tape) Take(x *Tensor, dim int) *Tensor {
	t.Wait()
	t.begin()
	dims := x.dims
	dims[dim] = 1
	z := t.empty(x.dtype, dims[:x.nd]...)
	t.emit(Op{Prim: "index_list", Class: Strided2, DType: x.dtype, Elements: float64(z.Size()), Bytes: 2 * z.bytes(), Index: 4})
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.zerosLike(x)
		t.Tiny("index_put_setup", 4)
		t.emit(Op{Prim: "sort", Class: Sort, DType: I64, Elements: 1, Bytes: 32})
		t.emit(Op{Prim: "index_put_", Class: Strided2, DType: x.dtype, Elements: float64(g.Size()), Bytes: 3 * g.bytes(), Index: 6})
		return r
	})
	return z
}
