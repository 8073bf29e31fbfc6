package tape

import (
	"math/bits"

	"github.com/perfplan/perfplan/internal/units"
)

// Liger-Kernel's operators (linkedin/Liger-Kernel 0.8, src/liger_kernel/ops): autograd functions
// around Triton kernels, whose gradients mostly take the place of what they read.

// blockedRows and blockedWidth are from how many rows on, and up to which width, its norm takes 16
// rows at a time (ops/rms_norm.py, rms_norm_backward); blockedShare is what a row then takes of what
// it takes alone: 0.12 (128 wide) and 0.09 (64) of 131072 and 524288 rows on an H200, 2026-11-26.
const (
	blockedRows  = 4096 * 8
	blockedWidth = 256
	blockedShare = 0.11
)

// wideBlock is the block from which on half of a norm's time is that of the block, a power of two,
// whatever of it is there: 8192 rows of 5120, 6144, 7168 and 8192 values take 55, 59, 63 and 67 us on
// an H200.
const wideBlock = 8192

// LigerNorm normalises the last dimension by its RMS. Its gradient is a loop of each SM over its
// rows, which leaves partial sums of the weight's, added up and cast. apart: it does not overwrite
// what it reads, but a tensor of zeros.
func (t *Tape) LigerNorm(x, w *Tensor, apart bool) *Tensor {
	t.begin()
	y := t.emptyLike(x)
	rows, width := x.Size()/x.Dim(-1), x.Dim(-1)
	rstd := t.empty(F32, rows)
	read := x.reads() + y.bytes()
	if block := int64(1) << bits.Len64(uint64(width-1)); block >= wideBlock {
		read *= (1 + units.Bytes(block)/units.Bytes(width)) / 2
	}
	t.emit(Op{Prim: "liger_norm", Class: FusedReduce, DType: x.dtype, Elements: float64(x.Size()), N: width, Bytes: read})
	t.attach([]*Tensor{x, w}, []*Tensor{y}, []*Tensor{x, rstd}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		gy := t.packed(g[0])
		gx := gy
		if apart {
			gx = t.zerosLike(x)
			t.Release(gy)
		}
		part := t.empty(F32, fusedPartials/2, width)
		loops := float64(rows)
		if rows >= blockedRows && width <= blockedWidth {
			loops *= blockedShare
		}
		t.emit(Op{Prim: "liger_norm_backward", Class: RowLoop, DType: x.dtype, Elements: loops, N: width, Bytes: gy.bytes() + x.bytes() + gx.bytes()})
		sum := t.empty(F32, width)
		t.emit(Op{Prim: "liger_norm_sum", Class: ColReduce, DType: F32, Elements: float64(part.Size()), N: width, Bytes: part.bytes()})
		var r []*Tensor
		if x.grad {
			r = append(r, gx)
		} else {
			t.Release(gx)
		}
		if len(n.in) > len(r) {
			r = append(r, t.To(sum, n.in[len(r)].meta.dtype))
		}
		t.Release(part, sum)
		return r
	})
	t.Release(rstd)
	return y
}

// LigerGate multiplies what an activation makes of g with u, in one kernel; its gradient applies the
// activation anew and overwrites both. work and backWork: elements that the kernels count, over
// those there are, of kernels that arithmetic limits; 0: memory does.
func (t *Tape) LigerGate(g, u *Tensor, work, backWork float64) *Tensor {
	t.begin()
	y := t.like(g, u)
	kernel := func(prim string, work float64, b units.Bytes) Op {
		o := Op{Prim: prim, Class: FusedPointwise, DType: g.dtype, Elements: float64(g.Size()), Bytes: b}
		if work > 0 {
			o.Class, o.Elements = FusedHeavy, o.Elements*work
		}
		return o
	}
	t.emit(kernel("liger_gate", work, g.bytes()+u.bytes()+y.bytes()))
	back := kernel("liger_gate_backward", backWork, 2*(g.bytes()+u.bytes())+y.bytes())
	t.attach([]*Tensor{g, u}, []*Tensor{y}, []*Tensor{g, u}, func(t *Tape, n *node, gs []*Tensor) []*Tensor {
		t.emit(back)
		r := make([]*Tensor, len(n.in))
		for i := range r {
			r[i] = t.view(n.saved[i])
			t.host.Views--
		}
		return r
	})
	return y
}

// LigerRope turns queries and keys, of shape [batch, heads, sequence, width], in their place by one
// kernel, and their gradients likewise.
func (t *Tape) LigerRope(q, k *Tensor) (_, _ *Tensor) {
	t.begin()
	turn := func(prim string, xs ...*Tensor) {
		var b units.Bytes
		for _, x := range xs {
			b += 2 * x.bytes()
		}
		t.over(prim, FusedReduce, xs[0], b)
	}
	y, z := t.rowsFirst(q), t.rowsFirst(k)
	turn("liger_rope", y, z)
	t.attach([]*Tensor{q, k}, []*Tensor{y, z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := make([]*Tensor, len(n.in))
		for i := range r {
			r[i] = t.rowsFirst(g[i])
		}
		turn("liger_rope_backward", r...)
		return r
	})
	return y, z
}

// rowsFirst is x, of shape [batch, heads, sequence, width], or a copy of it whose heads lie side by
// side in each row.
func (t *Tape) rowsFirst(x *Tensor) *Tensor {
	swap := func(x *Tensor) *Tensor {
		y := t.view(x)
		t.host.Views--
		y.dims[1], y.dims[2] = y.dims[2], y.dims[1]
		y.strides[1], y.strides[2] = y.strides[2], y.strides[1]
		return y
	}
	y := swap(x)
	z := t.packed(y)
	w := swap(z)
	t.Release(y, z)
	return w
}

// packed is x, or a copy of it that is contiguous.
func (t *Tape) packed(x *Tensor) *Tensor {
	if x.contiguous() {
		return t.Hold(x)
	}
	return t.copyContiguous(x)
}
