package tape

import "github.com/perfplan/perfplan/internal/units"

// Autograd functions around projections with adapters, whose gradients are written out by hand: Unsloth's
// (unslothai/unsloth 015bdef0d of 2026-08, unsloth/kernels/fast_lora.py, utils.py and swiglu.py) and
// Axolotl's after them (axolotl-ai-cloud/axolotl 067b021c8 of 2026-07, src/axolotl/kernels/lora.py).
// Adapters are added in the epilogue of their second product, and what a function can make again or
// overwrite is not kept.

// Adapted is a frozen projection W [out, in], perhaps with a bias, and its adapter A [rank, in] and B [out, rank].
type Adapted struct{ W, Bias, A, B *Tensor }

func (p *Adapted) out() int64  { return p.W.Dim(0) }
func (p *Adapted) in() int64   { return p.W.Dim(1) }
func (p *Adapted) rank() int64 { return p.A.Dim(0) }

// AdaptedLinear are projections of x [..., in]. inPlace: the gradient of x takes its place (Unsloth's LoRA_QKV; LoRA_W does not).
func (t *Tape) AdaptedLinear(x *Tensor, inPlace bool, ps ...Adapted) []*Tensor {
	t.begin()
	t.note("by_hand")
	ys := make([]*Tensor, len(ps))
	for i := range ps {
		ys[i] = t.adapted(x, &ps[i])
	}
	kept := t.keptCasts(x.dtype, ps)
	t.attach(adaptedInputs(x, ps), ys, append([]*Tensor{x}, kept...), func(t *Tape, n *node, g []*Tensor) []*Tensor {
		t.note("by_hand_backward")
		gs := make([]*Tensor, len(ps))
		for i := range ps {
			gs[i] = t.packed(g[i])
		}
		casts := t.newCasts(x.dtype, ps)
		var grads, lows []*Tensor
		for i := range ps {
			grads, lows = t.adapterGrads(grads, lows, x, &ps[i])
		}
		gx := t.place(x, inPlace)
		t.adaptedBack(gs, ps, lows)
		t.Release(casts...)
		t.Release(gs...)
		return t.adaptedGradients(n, x, gx, grads)
	})
	t.Release(kept...)
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
	kept := t.keptCasts(x.dtype, ps)
	t.attach(adaptedInputs(x, ps), []*Tensor{y}, append([]*Tensor{x, e, g}, kept...), func(t *Tape, n *node, gr []*Tensor) []*Tensor {
		t.note("by_hand_backward")
		gy := t.packed(gr[0])
		casts := t.newCasts(x.dtype, ps)
		h := t.like(e)
		t.adaptedBack([]*Tensor{gy}, []Adapted{down}, nil)
		t.over("gate_by_hand_backward", FusedPointwise, h, 6*h.bytes())
		ofDown, low := t.adapterGrads(nil, nil, h, &down)
		t.Release(low...)
		grads, lows := t.adapterGrads(nil, nil, x, &gate) // the gradients of both are there now
		grads, lows = t.adapterGrads(grads, lows, x, &up)
		t.Release(h, gy)
		gx := t.place(x, inPlace)
		t.adaptedBack([]*Tensor{e, g}, []Adapted{gate, up}, lows)
		t.Release(casts...)
		return t.adaptedGradients(n, x, gx, append(grads, ofDown...))
	})
	t.Release(e, g)
	t.Release(kept...)
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

// adapted is x·Wᵀ + x·Aᵀ·Bᵀ, of which the latter is added as its product ends, and a bias (matmul_lora).
func (t *Tape) adapted(x *Tensor, p *Adapted) *Tensor {
	rows := x.Size() / p.in()
	w := t.frozenOperand(p.W)
	y := t.alloc(t.ofWidth(x.dtype, x, p.out()))
	t.gemm("adapted", LayoutForward, x.dtype, rows, p.out(), p.in(), 1)
	t.Release(w)
	a := t.converted(p.A, x.dtype)
	low := t.empty(x.dtype, rows, p.rank())
	t.gemm("adapted", LayoutForward, x.dtype, rows, p.rank(), p.in(), 1)
	b := t.converted(p.B, x.dtype)
	t.addGemm("adapted", LayoutForward, x.dtype, rows, p.out(), p.rank())
	t.Release(a, low, b)
	if p.Bias != nil {
		t.kernel("bias", y, y, p.Bias)
	}
	return y
}

// addGemm is a product [m, n] over k that is added to what is there.
func (t *Tape) addGemm(prim string, layout Layout, d DType, m, n, k int64) {
	t.gemm(prim, layout, d, m, n, k, 1)
	o := &t.sec.Ops[len(t.sec.Ops)-1]
	o.Bytes += units.Bytes(m*n) * d.Size()
	o.Adds = true
}

// adaptedBack is the gradient of the input that projections read, of those of their outputs gs, all in one
// place: adapters' parts go after the products of frozen weights where their products lows with B are still
// there, which it takes over, else each beside its own.
func (t *Tape) adaptedBack(gs []*Tensor, ps []Adapted, lows []*Tensor) {
	for i, p := range ps {
		rows := gs[i].Size() / p.out()
		w := t.frozenOperand(p.W)
		if i == 0 {
			t.gemm("adapted_backward", LayoutDgrad, gs[i].dtype, rows, p.in(), p.out(), 1)
		} else {
			t.addGemm("adapted_backward", LayoutDgrad, gs[i].dtype, rows, p.in(), p.out())
		}
		t.Release(w)
		if lows == nil {
			low := t.empty(gs[i].dtype, rows, p.rank())
			t.gemm("adapted_backward", LayoutDgrad, gs[i].dtype, rows, p.rank(), p.out(), 1)
			t.addGemm("adapted_backward", LayoutDgrad, gs[i].dtype, rows, p.in(), p.rank())
			t.Release(low)
		}
	}
	for i, low := range lows {
		t.addGemm("adapted_backward", LayoutDgrad, low.dtype, low.Dim(0), ps[i].in(), ps[i].rank())
		t.Release(low)
	}
}

// frozenOperand is a frozen weight as products read it: without bitsandbytes' Python around its kernels.
func (t *Tape) frozenOperand(w *Tensor) *Tensor {
	if w.packed == F32 {
		return t.low(w)
	}
	return t.unpack("unpack_by_hand", w)
}

// keptCasts are the adapters in the dtype that computes, cast once more for the backward pass, where functions keep them.
func (t *Tape) keptCasts(d DType, ps []Adapted) []*Tensor {
	if !t.KeepsAdapters {
		return nil
	}
	return t.adapterCasts(d, ps)
}

// newCasts are those that the backward pass makes else.
func (t *Tape) newCasts(d DType, ps []Adapted) []*Tensor {
	if t.KeepsAdapters {
		return nil
	}
	return t.adapterCasts(d, ps)
}

func (t *Tape) adapterCasts(d DType, ps []Adapted) []*Tensor {
	var casts []*Tensor
	for _, p := range ps {
		casts = append(casts, t.converted(p.A, d), t.converted(p.B, d))
	}
	return casts
}

// adapterGrads adds to grads the gradients of A and B from the input x of a projection and the gradient of
// its output, in the dtype of both; and to lows what it multiplied with B, where functions keep that.
func (t *Tape) adapterGrads(grads, lows []*Tensor, x *Tensor, p *Adapted) (_, _ []*Tensor) {
	rows := x.Size() / p.in()
	product := func(m, n, k int64) *Tensor {
		y := t.empty(x.dtype, m, n)
		t.gemm("adapted_backward", LayoutWgrad, x.dtype, m, n, k, 1)
		return y
	}
	low := product(rows, p.rank(), p.out())
	ga := product(p.rank(), p.in(), rows)
	if t.KeepsAdapters {
		lows = append(lows, t.Hold(low))
	}
	t.Release(low)
	low = product(p.rank(), rows, p.in())
	gb := product(p.out(), p.rank(), rows)
	t.Release(low)
	return append(grads, ga, gb), lows
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
