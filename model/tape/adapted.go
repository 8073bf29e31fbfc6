package tape

import "github.com/perfplan/perfplan/internal/units"

// Unsloth's autograd functions around projections with adapters (unslothai/unsloth at 015bdef0d of
// 2026-08, unsloth/kernels/fast_lora.py, utils.py and swiglu.py): gradients are written out by hand,
// adapters are added in the epilogue of their second product, and what a function can make again or
// overwrite is not kept.

// Adapted is a frozen projection W [out, in] with its adapter A [rank, in] and B [out, rank].
type Adapted struct{ W, A, B *Tensor }

func (p *Adapted) out() int64  { return p.W.Dim(0) }
func (p *Adapted) in() int64   { return p.W.Dim(1) }
func (p *Adapted) rank() int64 { return p.A.Dim(0) }

// AdaptedLinear are projections of x [..., in], whose gradient takes its place if so
// (LoRA_QKV; LoRA_W, which does not).
func (t *Tape) AdaptedLinear(x *Tensor, inPlace bool, ps ...Adapted) []*Tensor {
	t.begin()
	t.note("by_hand")
	ys := make([]*Tensor, len(ps))
	for i := range ps {
		ys[i] = t.adapted(x, &ps[i])
	}
	t.attach(adaptedInputs(x, ps), ys, []*Tensor{x}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		t.note("by_hand_backward")
		gs := make([]*Tensor, len(ps))
		for i := range ps {
			gs[i] = t.packed(g[i])
		}
		casts := t.adapterCasts(x.dtype, ps)
		var grads []*Tensor
		for i := range ps {
			grads = append(grads, t.adapterGrads(x, gs[i], &ps[i])...)
		}
		gx := t.place(x, inPlace)
		for i := range ps {
			t.adaptedBack(gs[i], &ps[i], i > 0)
		}
		t.Release(casts...)
		t.Release(gs...)
		return t.adaptedGradients(n, x, gx, grads)
	})
	return ys
}

// AdaptedGate is an MLP with a gate, all of it one function (LoRA_MLP): it keeps what gate and up
// make of x, and its backward pass makes their product again in the kernel that makes their
// gradients, in the place of all three.
func (t *Tape) AdaptedGate(x *Tensor, inPlace bool, gate, up, down Adapted) *Tensor {
	t.begin()
	t.note("by_hand")
	e, g := t.adapted(x, &gate), t.adapted(x, &up)
	h := t.like(e)
	t.over("gate_by_hand", FusedPointwise, h, 3*h.bytes())
	y := t.adapted(h, &down)
	t.Release(h)
	ps := []Adapted{gate, up, down}
	t.attach(adaptedInputs(x, ps), []*Tensor{y}, []*Tensor{x, e, g}, func(t *Tape, n *node, gr []*Tensor) []*Tensor {
		t.note("by_hand_backward")
		gy := t.packed(gr[0])
		casts := t.adapterCasts(x.dtype, ps)
		h := t.like(e)
		t.adaptedBack(gy, &down, false)
		t.over("gate_by_hand_backward", FusedPointwise, h, 6*h.bytes())
		ofDown := t.adapterGrads(h, gy, &down)
		grads := append(t.adapterGrads(x, e, &gate), t.adapterGrads(x, g, &up)...) // their gradients are there now
		t.Release(h, gy)
		gx := t.place(x, inPlace)
		t.adaptedBack(g, &up, false)
		t.adaptedBack(e, &gate, true)
		t.Release(casts...)
		return t.adaptedGradients(n, x, gx, append(grads, ofDown...))
	})
	t.Release(e, g)
	return y
}

// adaptedInputs are x and the adapters, whose gradients a function returns.
func adaptedInputs(x *Tensor, ps []Adapted) []*Tensor {
	ins := []*Tensor{x}
	for _, p := range ps {
		ins = append(ins, p.A, p.B)
	}
	return ins
}

// adapted is x·Wᵀ + x·Aᵀ·Bᵀ, of which the latter is added as its product ends (matmul_lora).
func (t *Tape) adapted(x *Tensor, p *Adapted) *Tensor {
	rows := x.Size() / p.in()
	w := t.operand(p.W)
	y := t.alloc(t.ofWidth(x.dtype, x, p.out()))
	t.gemm("adapted", LayoutForward, x.dtype, rows, p.out(), p.in(), 1)
	t.Release(w)
	a := t.converted(p.A, x.dtype)
	low := t.empty(x.dtype, rows, p.rank())
	t.gemm("adapted", LayoutForward, x.dtype, rows, p.rank(), p.in(), 1)
	b := t.converted(p.B, x.dtype)
	t.addGemm("adapted", LayoutForward, x.dtype, rows, p.out(), p.rank())
	t.Release(a, low, b)
	return y
}

// addGemm is a product [m, n] over k that is added to what is there.
func (t *Tape) addGemm(prim string, layout Layout, d DType, m, n, k int64) {
	t.gemm(prim, layout, d, m, n, k, 1)
	o := &t.sec.Ops[len(t.sec.Ops)-1]
	o.Bytes += units.Bytes(m*n) * d.Size()
	o.Adds = true
}

// adaptedBack is the gradient of the input of a projection, from that of its output gy; adds: to one that is there.
func (t *Tape) adaptedBack(gy *Tensor, p *Adapted, adds bool) {
	rows := gy.Size() / p.out()
	w := t.weight(p)
	first := t.gemmOnce
	if adds {
		first = t.addGemm
	}
	first("adapted_backward", LayoutDgrad, gy.dtype, rows, p.in(), p.out())
	t.Release(w)
	low := t.empty(gy.dtype, rows, p.rank())
	t.gemm("adapted_backward", LayoutDgrad, gy.dtype, rows, p.rank(), p.out(), 1)
	t.addGemm("adapted_backward", LayoutDgrad, gy.dtype, rows, p.in(), p.rank())
	t.Release(low)
}

func (t *Tape) gemmOnce(prim string, layout Layout, d DType, m, n, k int64) {
	t.gemm(prim, layout, d, m, n, k, 1)
}

// weight is a frozen weight as products of the backward pass read it.
func (t *Tape) weight(p *Adapted) *Tensor {
	if p.W.packed == F32 {
		return t.Hold(p.W)
	}
	return t.unpack("unpack", p.W)
}

// adapterCasts are the adapters in the dtype that computes, for the backward pass of a function.
func (t *Tape) adapterCasts(d DType, ps []Adapted) []*Tensor {
	var casts []*Tensor
	for _, p := range ps {
		casts = append(casts, t.converted(p.A, d), t.converted(p.B, d))
	}
	return casts
}

// adapterGrads are the gradients of A and B from the input x of a projection and the gradient gy of its
// output, in the dtype of both.
func (t *Tape) adapterGrads(x, gy *Tensor, p *Adapted) []*Tensor {
	rows := x.Size() / p.in()
	product := func(m, n, k int64) *Tensor {
		y := t.empty(x.dtype, m, n)
		t.gemm("adapted_backward", LayoutWgrad, x.dtype, m, n, k, 1)
		return y
	}
	low := product(rows, p.rank(), p.out())
	ga := product(p.rank(), p.in(), rows)
	t.Release(low)
	low = product(p.rank(), rows, p.in())
	gb := product(p.out(), p.rank(), rows)
	t.Release(low)
	return []*Tensor{ga, gb}
}

// place is where the gradient of x goes: into x itself, which the function has kept, or beside it.
func (t *Tape) place(x *Tensor, inPlace bool) *Tensor {
	if !inPlace {
		return t.emptyLike(x)
	}
	gx := t.view(x)
	t.host.Views--
	return gx
}

// adaptedGradients are what a function returns: those of adapters are cast to the dtype of these.
func (t *Tape) adaptedGradients(n *node, x, gx *Tensor, grads []*Tensor) []*Tensor {
	var r []*Tensor
	if x.grad {
		r = append(r, gx)
	} else {
		t.Release(gx)
	}
	for _, g := range grads {
		r = append(r, t.converted(g, n.in[len(r)].meta.dtype))
		t.Release(g)
	}
	return r
}

// headsTurned is how many heads a program of its rotary embedding turns, one after another
// (rope_embedding.py, ROPE_GROUP_SIZE), and turnedWork what one takes of a norm's: 4096 and 8192
// rows of 32 heads take 24 and 50 us on an H200, 2026-11-29.
const (
	headsTurned = 4
	turnedWork  = 0.9
)

// FrozenNorm normalises the last dimension of x by its RMS, by a program for each row. Its weight is
// frozen; its gradient takes the place of what it reads (rms_layernorm.py).
func (t *Tape) FrozenNorm(x, w *Tensor) *Tensor {
	t.begin()
	in := t.packed(x)
	y := t.emptyLike(x)
	rows := x.Size() / x.Dim(-1)
	rstd := t.empty(F32, rows)
	t.emit(Op{Prim: "frozen_norm", Class: RowTriton, DType: x.dtype, Elements: float64(rows), N: x.Dim(-1), Bytes: in.bytes() + y.bytes()})
	t.attachOne(x, y, []*Tensor{in, rstd}, func(t *Tape, n *node, g *Tensor) *Tensor {
		gy := t.packed(g)
		t.emit(Op{Prim: "frozen_norm_backward", Class: RowTriton, DType: x.dtype, Elements: float64(rows), N: x.Dim(-1), Bytes: 2*gy.bytes() + x.bytes()})
		return gy
	})
	t.Release(rstd, in)
	return y
}

// RowTurn turns the heads of x [batch, heads, sequence, width] in their place, and their gradients
// likewise (rope_embedding.py, Fast_RoPE_Embedding).
func (t *Tape) RowTurn(x *Tensor) *Tensor {
	t.begin()
	turn := func(prim string, x *Tensor) {
		programs := x.Size() / (x.Dim(1) * x.Dim(-1)) * ceilDiv(x.Dim(1), headsTurned)
		t.emit(Op{Prim: prim, Class: RowTriton, DType: x.dtype, Elements: turnedWork * float64(programs), N: x.Dim(-1), Bytes: 2 * x.bytes()})
	}
	y := t.rowsFirst(x)
	turn("row_turn", y)
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		gx := t.rowsFirst(g)
		turn("row_turn_backward", gx)
		return gx
	})
	return y
}

// JoinedLoss is cross entropy of x·wᵀ by so many chunks of the rows of x [..., width], each compiled with its
// gradients: logits are those of one chunk, and the backward pass multiplies the gradient that is there by
// its own (unslothai/unsloth-zoo at ce232d6c, fused_losses/cross_entropy_loss.py, UnslothFusedLoss).
func (t *Tape) JoinedLoss(x, w *Tensor, chunks int64) *Tensor {
	t.begin()
	width, words := x.Dim(-1), w.Dim(0)
	rows := x.Size() / width
	y, gx := t.empty(F32), t.emptyLike(x)
	var gw *Tensor
	if w.grad {
		gw = t.Zeros(w.dtype, words, width)
	}
	wl := t.low(w)
	for i := range chunks {
		m := rows*(i+1)/chunks - rows*i/chunks
		logits := t.empty(x.dtype, m, words)
		t.gemm("linear", LayoutForward, x.dtype, m, words, width, 1)
		n := float64(logits.Size())
		t.emit(Op{Prim: "fused_loss", Class: LossForward, DType: x.dtype, N: words, Elements: n, Bytes: logits.bytes()})
		grads := t.emptyLike(logits)
		t.emit(Op{Prim: "fused_loss_backward", Class: LossBackward, DType: x.dtype, N: words, Elements: n, Bytes: 2 * logits.bytes()})
		t.Release(logits)
		part := t.empty(x.dtype, m, width)
		t.gemm("linear_dgrad", LayoutDgrad, x.dtype, m, width, words, 1)
		if gw != nil {
			p := t.empty(x.dtype, words, width)
			t.gemm("linear_wgrad", LayoutWgrad, x.dtype, words, width, m, 1)
			t.kernel("add_", gw, gw, p)
			t.Release(p)
		}
		t.Release(grads)
		t.over("copy_", FusedPointwise, part, 2*part.bytes())
		t.Release(part)
	}
	t.attach([]*Tensor{x, w}, []*Tensor{y}, []*Tensor{gx, gw}, func(t *Tape, n *node, _ []*Tensor) []*Tensor {
		t.Tiny("loss_backward", 3)
		scaled := func(g *Tensor) *Tensor {
			s := t.emptyLike(g)
			t.over("mul_scalar", UnrolledMix, s, 2*s.bytes())
			return s
		}
		var r []*Tensor
		if x.grad {
			r = append(r, scaled(gx))
		}
		if w.grad {
			r = append(r, scaled(gw))
		}
		return r
	})
	t.Release(gx, gw, wl)
	return y
}
