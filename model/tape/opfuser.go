package tape

import "github.com/perfplan/perfplan/internal/units"

// CastAsMade has the kernel that was emitted last write its result x [any shape] as GEMMs
// read it, in so many copies, in the place of what it computes in (Transformer Engine,
// csrc/extensions/activation.cpp and normalization.cpp, FULLY_FUSED).
func (t *Tape) CastAsMade(x *Tensor, copies int64) {
	if t.Quantize == F32 || !x.dtype.lowPrecision() {
		return
	}
	o := &t.sec.Ops[len(t.sec.Ops)-1]
	o.Bytes += units.Bytes(copies*x.Size())*t.Quantize.Size() - x.bytes()
	x.cast = true
}

// CastsBack is x, whose gradient the kernel that makes it writes as GEMMs read it.
func (t *Tape) CastsBack(x *Tensor, copies int64) *Tensor {
	z := t.view(x)
	t.host.Views--
	t.attachOne(x, z, nil, func(t *Tape, _ *node, g *Tensor) *Tensor {
		t.CastAsMade(g, copies)
		return t.Hold(g)
	})
	return z
}

// AddedTo is z, whose GEMM, emitted last, adds y of the same shape to it; gradients of both
// are that of the sum, which no kernel copies (pytorch/ops/fused, forward_linear_scale_add.py).
func (t *Tape) AddedTo(y, z *Tensor) *Tensor {
	t.sec.Ops[len(t.sec.Ops)-1].Bytes += y.bytes()
	sum := t.view(z)
	t.host.Views--
	t.attach([]*Tensor{y, z}, []*Tensor{sum}, nil, func(t *Tape, _ *node, g []*Tensor) []*Tensor {
		return []*Tensor{t.Hold(g[0]), t.Hold(g[0])}
	})
	return sum
}

// BitDropout is dropout that keeps a bit for each value of x and draws eight bits for it, so
// that memory bounds it; narrow: what x was cast to, if it was (Transformer Engine, common/dropout/dropout.cu).
func (t *Tape) BitDropout(x *Tensor, p float64, narrow DType) *Tensor {
	if p == 0 {
		return t.Hold(x)
	}
	t.begin()
	z := t.like(x)
	mask := t.empty(Bool, (x.Size()+7)/8)
	read := x.bytes()
	if x.cast && narrow == FP8 { // dropout.cu reads 8 bits of one scale, too
		read = units.Bytes(x.Size()) * FP8.Size()
	}
	t.over("dropout", Vectorized, x, read+z.bytes()+mask.bytes())
	t.attachOne(x, z, []*Tensor{mask}, func(t *Tape, n *node, g *Tensor) *Tensor {
		gx := t.like(g)
		t.over("dropout_backward", Vectorized, g, g.bytes()+gx.bytes()+n.saved[0].bytes())
		return gx
	})
	t.Release(mask)
	return z
}

// Portions cuts x along its last dimension into tensors of those widths that lie one after
// another, as do their gradients: no kernel moves either.
func (t *Tape) Portions(x *Tensor, widths ...int64) []*Tensor {
	outs := make([]*Tensor, len(widths))
	for i, w := range widths {
		outs[i] = t.view(x)
		outs[i].dims[x.nd-1] = w
		outs[i].setContiguous()
	}
	t.attach([]*Tensor{x}, outs, nil, func(t *Tape, _ *node, _ []*Tensor) []*Tensor { return []*Tensor{t.emptyLike(x)} })
	return outs
}
