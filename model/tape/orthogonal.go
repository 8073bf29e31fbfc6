package tape

// InPlace emits the elementwise kernel that overwrites x with what it makes of x and ys.
func (t *Tape) InPlace(prim string, x *Tensor, ys ...*Tensor) *Tensor {
	t.kernel(prim, x, append([]*Tensor{x}, ys...)...)
	return t.Hold(x)
}

// Elementwise emits the kernel of a new tensor like x, made of x and ys, without a gradient.
func (t *Tape) Elementwise(prim string, x *Tensor, ys ...*Tensor) *Tensor {
	out := t.like(x)
	t.kernel(prim, out, append([]*Tensor{x}, ys...)...)
	return out
}

// Norm is the Frobenius norm of a matrix, of one value.
func (t *Tape) Norm(x *Tensor) *Tensor {
	y := t.empty(x.dtype, 1, 1)
	t.over("norm", RowReduce, x, x.bytes())
	return y
}

// Upright is x, or its transpose, of the shape of y.
func (t *Tape) Upright(x, y *Tensor) *Tensor {
	if x.Dim(0) == y.Dim(0) {
		return t.Hold(x)
	}
	return t.Transpose(x, 0, 1)
}

// Collect emits a collective of the ranks of a group over x.
func (t *Tape) Collect(kind, group string, x *Tensor) {
	t.emit(Op{Prim: kind, Class: Collective, DType: x.dtype, Elements: float64(x.Size()), Comm: &Comm{Kind: kind, Group: group, Bytes: x.bytes()}})
}

// NewtonSchulz is a step towards the orthogonal matrix next to x, of no more rows than columns,
// in 16 bits: A = x·xᵀ, B = b·A + c·A·A, a·x + B·x (torch/optim/_muon.py; Emerging-Optimizers,
// muon_utils.py). Each product that is added to something reads a copy of it in its result.
func (t *Tape) NewtonSchulz(x *Tensor) *Tensor {
	gram := t.empty(x.dtype, x.Dim(0), x.Dim(0))
	t.host.Views++
	t.gemm("newton_schulz", LayoutForward, x.dtype, x.Dim(0), x.Dim(0), x.Dim(1), 1)
	update := t.addmm(gram, x.Dim(0))
	y := t.addmm(x, x.Dim(0))
	t.Release(gram, update)
	return y
}

// addmm is c + a·b, of which a has k columns: c is copied to the result, to which the product is added.
func (t *Tape) addmm(c *Tensor, k int64) *Tensor {
	out := t.empty(c.dtype, c.Dim(0), c.Dim(1))
	if c.contiguous() {
		t.over("copy", Memcpy, c, c.bytes()+out.bytes())
	} else {
		t.kernel("copy", out, c)
	}
	o := &t.sec.Ops[len(t.sec.Ops)-1]
	o.Host.Calls-- // it is part of the same call
	t.gemm("newton_schulz", LayoutDgrad, c.dtype, c.Dim(0), c.Dim(1), k, 1)
	o = &t.sec.Ops[len(t.sec.Ops)-1]
	o.Bytes += out.bytes()
	o.Adds = true
	return out
}

// NewtonSchulzShards is NewtonSchulz of a matrix that ranks hold a part of the rows of, as
// DTensor runs it (traces of two H100 under FSDP2): of a wide one each rank multiplies its
// rows by what it gathers of the others', three times; of a tall one, whose shard x is a part
// of the columns once it is turned, products of parts are summed over the ranks, and those of
// small matrices are made by all.
func (t *Tape) NewtonSchulzShards(x *Tensor, ranks int64, tall bool) *Tensor {
	const group = "shard"
	rows, cols := x.Dim(0), x.Dim(1)
	whole, kind := rows*ranks, "newton_schulz_rows"
	if tall {
		whole, kind = rows, "newton_schulz_columns"
	}
	t.note(kind)
	sum := func(y *Tensor) {
		if tall {
			t.Release(t.Copy(y))
			t.Collect("all-reduce", group, y)
		}
	}
	gather := func(elements int64) {
		if !tall {
			all := t.empty(x.dtype, elements)
			t.Collect("all-gather", group, all)
			t.Release(all)
		}
	}
	if !tall {
		turned := t.Transpose(x, 0, 1)
		flat := t.copyContiguous(turned)
		t.Release(t.Gathered(flat, group, cols, whole), turned, flat)
	}
	gram := t.empty(x.dtype, rows, whole)
	t.gemm("newton_schulz", LayoutForward, x.dtype, rows, whole, cols, 1)
	sum(gram)
	gather(whole * whole)
	update := t.addmm(gram, whole)
	sum(update)
	gather(whole * cols)
	y := t.addmm(x, whole)
	t.Release(gram, update)
	return y
}

// Gathered is a matrix of rows and columns of which each rank of a group has the part x: parts
// are gathered into tensors of their own and joined.
func (t *Tape) Gathered(x *Tensor, group string, rows, cols int64) *Tensor {
	parts := t.empty(x.dtype, rows*cols)
	t.Collect("all-gather", group, parts)
	whole := t.empty(x.dtype, rows, cols)
	t.emit(Op{Prim: "cat", Class: Memcpy, DType: x.dtype, Elements: float64(rows * cols), Bytes: parts.bytes() + whole.bytes()})
	t.Release(parts)
	return whole
}
