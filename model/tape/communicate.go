package tape

import "github.com/perfplan/perfplan/internal/units"

// CommSpec is a collective on a tensor in the flow of the layer: the forward one and
// the one its gradient needs. Either name may be empty. The result has the tensor's
// shape with one dimension Ranks times as long after an all-gather, that part of it after a
// reduce-scatter.
type CommSpec struct {
	Forward, Backward string
	Group             string
	Ranks             int64
	Dim               int
	Grow, Shrink      bool    // the result is Ranks times larger, or smaller, along Dim
	Copy              bool    // an all-reduce sums a copy: torch's functional collectives leave their input as it is
	Join              bool    // and move whole blocks: what is cut along Dim is joined before, what is gathered after (torch/distributed/_functional_collectives.py)
	AsyncBackward     bool    // the gradient's collective overlaps with the GEMM after it
	Rows              float64 // the result has this many times the rows; 0: as many
	Sent              float64 // what is sent, over the larger side; 0: as much
	SentBack          float64 // the same of gradients; 0: as Sent
	Operand           bool    // GEMMs alone read what is gathered
	Wide              bool    // gradients are reduced in fp32
	Regather          bool    // layers keep the shard of a gathered input and gather it again
	Kept              bool    // a checkpoint that keeps some outputs keeps this one (CheckpointSome)
}

// Communicate emits the collective c on x; with one rank it returns x.
func (t *Tape) Communicate(c CommSpec, x *Tensor) *Tensor {
	if c.Ranks <= 1 {
		return t.Hold(x)
	}
	t.begin()
	if c.Dim < 0 {
		c.Dim += int(x.nd)
	}
	z := t.meta(x.dtype, x.dims[:x.nd])
	switch {
	case c.Grow:
		z.dims[c.Dim] *= c.Ranks
	case c.Shrink:
		z.dims[c.Dim] = ceilDiv(z.dims[c.Dim], c.Ranks)
	}
	if c.Rows > 0 {
		z.dims[0] = int64(float64(z.dims[0])*c.Rows + 0.5)
	}
	z.setContiguous()
	if c.Forward == "" { // as it is, or the rank's own part
		dims := z.dims
		z = t.view(x)
		if c.Shrink {
			z.dims = dims
			z.setContiguous()
		}
	} else {
		z = t.produce(c.Kept, z, func(z *Tensor) { t.collective(c, c.Forward, x, z, false) })
	}
	if c.Regather && c.Grow && t.record {
		z.shard = &gathered{from: x, spec: c}
	}
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		if c.Backward == "" {
			if c.Grow { // each rank's own part of it
				part := t.Slice(g, c.Dim, 0, x.dims[c.Dim])
				own := t.Contiguous(part)
				t.Release(part)
				return own
			}
			return t.Hold(g)
		}
		r := t.emptyLike(x)
		t.collective(c, c.Backward, g, r, true)
		return r
	})
	return z
}

// collective emits that of a kind from in to out, going forward or with gradients back, and the
// copies around it.
func (t *Tape) collective(c CommSpec, kind string, in, out *Tensor, back bool) {
	bytes := t.gathered(c, kind, max(in.bytes(), out.bytes()), in.dtype)
	if out.narrow = t.narrows(c, kind, in.dtype); out.narrow {
		if t.OwnScales { // else quantize does
			t.shareScale(in)
		}
		t.quantize(in, units.Bytes(t.NarrowGathers), t.QuantizeRead)
	}
	out.whole = c.Operand && kind == "all-gather"
	sent := c.Sent
	if back && c.SentBack > 0 {
		sent = c.SentBack
	}
	if sent > 0 {
		bytes *= units.Bytes(sent)
	}
	if c.Wide && kind == c.Backward {
		bytes *= F32.Size() / in.dtype.Size()
	}
	joined := c.Join && kind == "reduce-scatter"
	var piece *Tensor // in other order
	switch {
	case joined || len(in.more) > 0:
		piece = t.join(in, in.reads()+in.bytes())
	case c.Copy && kind == "all-reduce":
		t.over("copy", Memcpy, in, in.bytes()+out.bytes())
	}
	t.emit(Op{Prim: kind, Class: Collective, DType: in.dtype, Elements: float64(out.Size()),
		Comm: &Comm{Kind: kind, Group: c.Group, Bytes: bytes, Async: back && c.AsyncBackward}})
	if c.Join && kind == "all-gather" && !(t.Compiled && outer(out, c.Dim) == 1) { // whose pieces lie as they should
		piece = t.join(out, 2*bytes)
	}
	t.Release(piece)
}

// join emits the copy of x that puts the pieces of a collective in order and adds up
// the terms of a pending sum. It returns the one beside x.
func (t *Tape) join(x *Tensor, b units.Bytes) *Tensor {
	class := Concat
	piece := t.emptyLike(x)
	if t.Compiled {
		class = FusedPointwise
	}
	t.over("join", class, x, b)
	return piece
}

// outer is the product of the dimensions before dim.
func outer(x *Tensor, dim int) int64 {
	n := int64(1)
	for _, d := range x.dims[:dim] {
		n *= d
	}
	return n
}

// gathered is the size of what a collective moves: with NarrowGathers an all-gather of a
// GEMM's operand moves it as it is multiplied, a gradient in that many copies, as two
// GEMMs read it, along rows and along columns.
func (t *Tape) gathered(c CommSpec, kind string, bytes units.Bytes, d DType) units.Bytes {
	if !t.narrows(c, kind, d) {
		return bytes
	}
	if kind == c.Backward {
		bytes *= units.Bytes(t.NarrowGathers)
	}
	return bytes * t.Quantize.Size() / d.Size()
}

// narrows is whether collective kind of c gathers in Quantize.
func (t *Tape) narrows(c CommSpec, kind string, d DType) bool {
	return t.NarrowGathers > 0 && c.Operand && kind == "all-gather" && t.Quantize != F32 && d.lowPrecision()
}

// gathered says where a gathered tensor came from: a layer that needs it again in
// the backward pass keeps the shard and gathers once more.
type gathered struct {
	from *Tensor
	spec CommSpec
}

// regather repeats the all-gather of a tensor that was kept as a shard, beside
// the GEMM before it.
func (t *Tape) regather(g *gathered) *Tensor {
	x := g.from
	z := t.meta(x.dtype, x.dims[:x.nd])
	z.dims[g.spec.Dim] *= g.spec.Ranks
	z.setContiguous()
	t.alloc(z)
	bytes := t.gathered(g.spec, g.spec.Forward, z.bytes(), x.dtype)
	t.emit(Op{Prim: g.spec.Forward, Class: Collective, DType: x.dtype, Elements: float64(z.Size()),
		Comm: &Comm{Kind: g.spec.Forward, Group: g.spec.Group, Bytes: bytes, Async: g.spec.AsyncBackward}})
	return z
}
