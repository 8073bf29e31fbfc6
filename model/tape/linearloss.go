package tape

import (
	"math/bits"

	"github.com/perfplan/perfplan/internal/units"
)

// GEMMAdds is to which gradients of the output layer the GEMMs of a loss in pieces add.
type GEMMAdds string

const (
	AddsApart GEMMAdds = ""      // none
	AddsWide  GEMMAdds = "wide"  // fp32 ones, from 16-bit logits
	AddsAlike GEMMAdds = "alike" // those in the dtype of the logits
)

func (a GEMMAdds) to(gradient, logits DType) bool {
	switch a {
	case AddsWide:
		return gradient == F32 && logits != F32
	case AddsAlike:
		return gradient == logits
	}
	return false
}

// Pieces is what a version does with the pieces of a loss.
type Pieces struct {
	Adds   GEMMAdds
	Wide   bool // logits in 16 bits are cast to fp32 for the kernel, and their gradient back
	Scaled bool // their gradient is multiplied by what of all labels a piece has
}

// LinearLoss is the cross entropy of x·Wᵀ, W of shape [vocabulary, width], whose logits never
// exist but in pieces of rows: of each piece they are multiplied out, turned into their
// gradient in place and multiplied to the gradients of x and of W, so that the backward pass
// finds both. As many rows go into a piece as make its logits as large as x, rounded up to a
// power of two. The gradient of W is multiplied out, cast to fp32 and added for each piece, but
// where its GEMM adds to it. Autocast casts Wᵀ anew for each piece, since it
// keeps no cast of a view (Liger-Kernel, ops/fused_linear_cross_entropy.py; autocast_mode.cpp,
// cached_cast).
func (t *Tape) LinearLoss(x, w *Tensor, how Pieces) *Tensor {
	width, vocab := x.Dim(-1), w.Dim(0)
	rows := x.Size() / width
	wider := (vocab + width - 1) / width
	piece := min(int64(1)<<bits.Len64(uint64((rows+wider-1)/wider-1)), rows)
	pieces := (rows + piece - 1) / piece
	wl, xl := t.low(w), t.low(x)
	each := func(o Op) {
		o.Count = int32(pieces)
		t.emit(o)
	}
	multiply := func(prim string, layout Layout, m, n, k int64) *Op {
		t.gemm(prim, layout, xl.dtype, m, n, k, 1)
		o := &t.sec.Ops[len(t.sec.Ops)-1]
		o.Count, o.FLOPs = int32(pieces), o.FLOPs*units.FLOPs(pieces)
		return o
	}
	t.begin()
	t.Tiny("loss", 2) // labels that count
	t.Wait()
	gx := t.zerosLike(x)
	var gw *Tensor // of a head that is trained
	if w.grad {
		gw = t.Zeros(w.dtype, vocab, width)
	}
	logits := t.empty(xl.dtype, piece, vocab)
	if w.dtype != wl.dtype {
		view := t.empty(wl.dtype, width, vocab)
		each(Op{Prim: "to", Class: Unrolled, DType: wl.dtype, Elements: float64(w.Size()), Bytes: w.bytes() + view.bytes()})
		t.Release(view)
	}
	multiply("linear", LayoutForward, piece, vocab, width)
	t.lossOfPiece(logits, how, each)
	multiply("linear_dgrad", LayoutDgrad, piece, width, vocab)
	if gw != nil {
		product := multiply("linear_wgrad", LayoutWgrad, vocab, width, piece)
		if how.Adds.to(gw.dtype, xl.dtype) {
			product.Bytes += units.Bytes(gw.Size()) * (2*gw.dtype.Size() - xl.dtype.Size())
			product.Adds = true
		} else {
			t.addPieces(gw, xl.dtype, each)
		}
	}
	t.Release(logits, wl, xl)
	y := t.empty(F32)
	t.Tiny("loss", 2) // sum, and its mean
	t.attach([]*Tensor{x, w}, []*Tensor{y}, []*Tensor{gx, gw}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		t.Tiny("loss_backward", 2) // is the loss's gradient 1?
		t.Wait()
		grads := make([]*Tensor, len(n.saved))
		for i, g := range n.saved {
			grads[i] = t.Hold(g)
		}
		return grads
	})
	t.Release(gx, gw)
	return y
}

// lossOfPiece turns the logits of a piece into their gradient.
func (t *Tape) lossOfPiece(logits *Tensor, how Pieces, each func(Op)) {
	read, n := t.Hold(logits), float64(logits.Size())
	cast := how.Wide && logits.dtype != F32
	if cast {
		t.Release(read)
		read = t.empty(F32, logits.dims[:logits.nd]...)
		each(Op{Prim: "to", Class: Unrolled, DType: F32, Elements: n, Bytes: logits.bytes() + read.bytes()})
	}
	each(Op{Prim: "linear_loss", Class: LossBackward, DType: read.dtype, N: logits.Dim(-1), Elements: n, Bytes: 3 * read.bytes()})
	if cast {
		each(Op{Prim: "to", Class: Unrolled, DType: logits.dtype, Elements: n, Bytes: logits.bytes() + read.bytes()})
	}
	t.Release(read)
	if how.Scaled {
		each(Op{Prim: "mul_scalar", Class: Vectorized, DType: logits.dtype, Elements: n, Bytes: 2 * logits.bytes()})
	}
}

// LigerLoss is the cross entropy of logits x by the kernel that LinearLoss runs on each piece: it
// reads them twice and writes their gradient over them, so that the backward pass has only to ask
// whether the loss's own is 1. The host waits for the number of labels that count and two checks of
// them (Liger-Kernel, ops/cross_entropy.py).
func (t *Tape) LigerLoss(x *Tensor) *Tensor {
	t.begin()
	for range 3 {
		t.Tiny("loss", 2)
		t.Wait()
	}
	t.emit(Op{Prim: "linear_loss", Class: LossBackward, DType: x.dtype, N: x.Dim(-1), Elements: float64(x.Size()), Bytes: 3 * x.bytes()})
	y := t.empty(F32)
	t.Tiny("loss", 1) // sum
	t.attachOne(x, y, []*Tensor{x}, func(t *Tape, n *node, g *Tensor) *Tensor {
		t.Tiny("loss_backward", 2)
		t.Wait()
		return t.Hold(n.saved[0])
	})
	return y
}

// addPieces adds the products of all pieces, in the dtype of the logits, to the gradient gw.
func (t *Tape) addPieces(gw *Tensor, logits DType, each func(Op)) {
	part := t.empty(logits, gw.dims[:gw.nd]...)
	wide, class, n := t.Hold(part), Vectorized, float64(gw.Size())
	if logits != F32 {
		t.Release(wide)
		wide = t.empty(F32, gw.dims[:gw.nd]...)
		each(Op{Prim: "to", Class: Unrolled, DType: F32, Elements: n, Bytes: part.bytes() + wide.bytes()})
	}
	if gw.dtype != F32 {
		class = UnrolledMix
	}
	each(Op{Prim: "add_", Class: class, DType: gw.dtype, Elements: n, Bytes: wide.bytes() + 2*gw.bytes()})
	t.Release(part, wide)
}
