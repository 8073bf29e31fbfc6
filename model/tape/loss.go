package tape

import "github.com/perfplan/perfplan/internal/units"

// Kernels of a value a row in Megatron's loss. Forward twelve of mpu/cross_entropy.py (two
// comparisons, or, clone, subtraction, fill, arange, index, copy, fill, logarithm,
// subtraction), product and sum of the masked mean (pretrain_gpt.py, loss_func); backward
// six (arange, cast, 1 - mask, index, subtraction, index_put) and two of the mean.
const (
	lossPicks     = 14
	lossPicksBack = 8
)

// VocabLoss is Megatron's cross entropy over fp32 scores x, [..., vocabulary], one kernel
// for each step: maximum, subtraction, exponential, sum and division, the last four in the
// place of x, which is kept; the gradient multiplies it (mpu/cross_entropy.py,
// _VocabParallelCrossEntropy). With apart the difference is a tensor of its own, which
// takes the place of x from there on (nanotron, _ShardedCrossEntropy;
// Megatron-LM from 2022-09-27 on). It returns a value for each row.
func (t *Tape) VocabLoss(x *Tensor, apart bool) *Tensor {
	t.begin()
	y := t.alloc(t.ofWidth(F32, x, 1))
	n, whole := float64(x.Size()), x.bytes()
	read := func(prim string, passes units.Bytes) {
		t.emit(Op{Prim: prim, Class: FusedPointwise, DType: F32, Elements: n, Bytes: passes * whole})
	}
	rows := func(prim string) { // a value of each row for all of its elements
		t.emit(Op{Prim: prim, Class: Strided4, DType: F32, Elements: n, Index: 6, Bytes: 2 * whole})
	}
	read("max", 1)
	kept := x
	if apart {
		kept = t.like(x)
	}
	rows("sub_")
	t.Tiny("loss", lossPicks)
	read("exp", 2)
	read("sum", 1)
	rows("div_")
	t.attachOne(x, y, []*Tensor{kept}, func(t *Tape, n *node, g *Tensor) *Tensor {
		t.Tiny("loss_backward", lossPicksBack)
		r := t.view(n.saved[0])
		t.host.Views-- // the same tensor, multiplied in its place
		rows("mul_")
		return r
	})
	if apart {
		t.Release(kept)
	}
	return y
}

// CompiledVocabLoss is Megatron-Core's cross entropy over 16-bit logits, [..., vocabulary], in compiled
// pieces (core/fusions/fused_cross_entropy.py): cast and maximum, exponentials and sum, quotient; the gradient
// less the targets, and its product in 16 bits. What a piece writes in place it makes in a copy: exponentials
// lie beside what they are of, and the gradient beside the quotients, so that 10 bytes of a logit are alive
// in either pass, and 4 between. Bytes are those that kernels of ten problems of 25,600 to 151,936 words took an
// H200 to move (PyTorch 2.11, 2026-11-28), exponentials as long as 16. It returns a value for each row.
func (t *Tape) CompiledVocabLoss(logits *Tensor) *Tensor {
	t.begin()
	y := t.alloc(t.ofWidth(F32, logits, 1))
	n := logits.Size()
	pass := func(prim string, class Class, bytes int64) { // of a logit
		t.emit(Op{Prim: prim, Class: class, DType: F32, Elements: float64(n), Bytes: units.Bytes(bytes * n)})
	}
	kept := t.alloc(t.ofWidth(F32, logits, logits.Dim(-1)))
	pass("max", FusedReduce, 6)
	t.Tiny("loss", 1)
	exps := t.like(kept)
	pass("exp_sum", FusedReduce, 16)
	t.Release(exps)
	pass("div_", FusedPointwise, 8)
	t.Tiny("loss", 1)
	t.attachOne(logits, y, []*Tensor{kept}, func(t *Tape, nd *node, _ *Tensor) *Tensor {
		less := t.like(nd.saved[0])
		pass("index_put", FusedPointwise, 8)
		t.Tiny("loss_backward", 1)
		r := t.emptyLike(logits)
		pass("mul_", FusedPointwise, 10)
		t.Release(less)
		return r
	})
	t.Release(kept)
	return y
}

// SoftmaxLoss is cross entropy over fp32 scores x, [..., vocabulary], of a softmax that is kept and
// whose logarithm is a tensor of its own; the gradient multiplies the softmax in its place
// (Megatron-DeepSpeed, core/sequence_parallel/cross_entropy.py). It returns a value for each row.
func (t *Tape) SoftmaxLoss(x *Tensor) *Tensor {
	t.begin()
	kept, logs := t.like(x), t.like(x)
	n, whole := float64(x.Size()), x.bytes()
	t.emit(Op{Prim: "softmax", Class: SoftmaxForward, DType: F32, N: x.Dim(-1), Elements: n, Bytes: 2 * whole})
	t.kernel("log", logs, kept)
	t.Release(logs)
	y := t.alloc(t.ofWidth(F32, x, 1))
	t.emit(pick("nll_loss", F32, y.Size()))
	t.attachOne(x, y, []*Tensor{kept}, func(t *Tape, nd *node, g *Tensor) *Tensor {
		t.emit(pick("nll_loss_backward", F32, g.Size()))
		r := t.view(nd.saved[0])
		t.host.Views-- // the same tensor, multiplied in its place
		t.emit(Op{Prim: "mul_", Class: Strided4, DType: F32, Elements: n, Index: 6, Bytes: 2 * whole})
		return r
	})
	t.Release(kept)
	return y
}

// LogitsUse is what a compiled graph does with logits besides taking the loss of them.
type LogitsUse int

const (
	LossAlone LogitsUse = iota // nothing
	Shifted                    // it slices them to shift the labels, or returns them: their gradient is filled with zeros first
	Returned                   // it returns them, so that the backward pass is given a gradient of zeros
	Consumed                   // nothing, and they are its own: their gradient takes their place (donated buffers of torch/_functorch/aot_autograd.py)
)

// odd reports whether rows of 16-bit values begin at odd ones, so that kernels read them one by one.
func odd(x *Tensor) bool { return x.dtype.Size() == 2 && x.Dim(-1)%2 != 0 }

// oddLoss is what kernels of a compiled loss take longer for odd rows: 50,257 words in bf16 1.81 to 1.84 ps forward and 2.12 to 2.19 backward,
// 50,304 and 32,000 1.39 to 1.61 and 1.54 to 1.61, 30,522 1.45 to 1.56 and 1.70 to 1.76 (17 models on an H200, PyTorch 2.11, 2026-11-30).
const oddLoss = 1.3

// cappedLoss is what they take longer where they cap logits, too: of Gemma 2 of 768 wide and 50,304 words by 16,384 tokens 1556 and 1797 us,
// without 1144 and 1406 (H200, PyTorch 2.11, 2026-11-30).
const cappedLoss = 1.4

// FusedLoss is cross entropy generated as two kernels over 16-bit logits: the
// forward one reads them once, the backward one reads them again and writes
// their gradient. Neither fp32 logits nor log-probabilities exist, unless these are kept for the
// backward pass. Capped ones are made by the forward kernel, which others may ask for.
func (t *Tape) FusedLoss(logits *Tensor, use LogitsUse, capped, kept bool) *Tensor {
	t.begin()
	y := t.empty(F32)
	rows := logits.Size() / logits.Dim(-1)
	stats := t.empty(F32, rows, 2)
	n, saved := float64(logits.Size()), []*Tensor{logits, stats}
	if capped {
		n *= cappedLoss
		saved = append(saved, t.emptyLike(logits))
	}
	wide := units.Bytes(0)
	if kept {
		saved = append(saved, t.empty(F32, logits.Size()))
		wide = units.Bytes(logits.Size()) * F32.Size()
	}
	if odd(logits) {
		n *= oddLoss
	}
	t.emit(Op{Prim: "fused_loss", Class: LossForward, DType: logits.dtype, N: logits.Dim(-1), Elements: n, Bytes: logits.bytes() + wide})
	t.attachOne(logits, y, saved, func(t *Tape, nd *node, g *Tensor) *Tensor {
		// Besides the logits and their gradient others of their size may be alive: a zero-filled one, and, when the
		// vocabulary is not aligned, the padded copy that the GEMMs read.
		aligned := logits.Dim(-1)%padTo == 0
		var zeros *Tensor
		bytes := 2*logits.bytes() + wide
		if use == Returned || use == Shifted {
			bytes += logits.bytes()
			if zeros = t.zerosLike(logits); use == Shifted && !aligned && !odd(logits) { // whose place their gradient takes
				t.Release(zeros)
				zeros = nil
			}
		}
		var r *Tensor
		if use == Consumed {
			r = t.view(nd.saved[0])
			t.host.Views-- // the same tensor
		} else {
			r = t.emptyLike(logits)
		}
		t.emit(Op{Prim: "fused_loss_backward", Class: LossBackward, DType: logits.dtype, N: logits.Dim(-1), Elements: n, Bytes: bytes})
		if t.OneGraph && zeros != nil {
			t.stays(zeros)
		} else {
			t.Release(zeros)
		}
		if !aligned {
			p := t.pad(r)
			t.Release(r)
			r = p
		}
		if t.joins() == ByProduct {
			t.stays(t.Hold(r))
		}
		return r
	})
	t.Release(saved[1:]...)
	return y
}

// pick is a kernel that reads or writes one value of each row, by its target.
func pick(prim string, d DType, rows int64) Op {
	return Op{Prim: prim, Class: Index, DType: d, Elements: float64(rows), Bytes: units.Bytes(rows) * 8}
}

// NLLLoss picks the log-probability of each target; its gradient is a tensor of
// zeros as large as the logits with one value per row.
func (t *Tape) NLLLoss(logp *Tensor) *Tensor {
	logp = t.fp32(logp)
	defer t.Release(logp)
	t.begin()
	y := t.empty(logp.dtype)
	t.emit(pick("nll_loss", logp.dtype, logp.Size()/logp.Dim(-1)))
	t.attachOne(logp, y, []*Tensor{logp}, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.zerosLike(logp)
		t.emit(pick("nll_loss_backward", logp.dtype, logp.Size()/logp.Dim(-1)))
		return r
	})
	return y
}

// ParallelLoss is the cross entropy over logits whose classes are cut over ranks, as
// PyTorch's loss_parallel computes it, kernel by kernel (distributed/tensor/parallel/loss.py):
// log_softmax by hand, and one gradient of both steps from its result, (0 or -1) plus
// exp, times the gradient of the loss. Three times one value per row is reduced over
// the ranks.
func (t *Tape) ParallelLoss(x *Tensor, reduce func(rows *Tensor)) *Tensor {
	t.begin()
	row := func() *Tensor { return t.empty(x.dtype, x.Size()/x.Dim(-1), 1) }
	most, sum := row(), row()
	t.reduce("amax", RowReduce, x, most)
	reduce(most)
	shifted := t.apply("sub", x, most)
	e := t.apply("exp", shifted)
	t.reduce("sum", RowReduce, e, sum)
	t.Release(e)
	reduce(sum)
	logp := t.apply("sub", shifted, sum)
	t.Release(shifted, sum)
	t.emit(Op{Prim: "gather", Class: Index, DType: x.dtype, Elements: float64(most.Size()), Bytes: 3 * most.bytes()})
	reduce(most)
	t.Release(most)
	y := t.empty(x.dtype)
	t.attachOne(x, y, []*Tensor{logp}, func(t *Tape, n *node, g *Tensor) *Tensor {
		logp := n.saved[0]
		target, e, sum := t.like(logp), t.like(logp), t.like(logp)
		t.fill(target)
		t.kernel("exp", e, logp)
		t.kernel("add", sum, target, e)
		t.Release(e)
		r := t.like(logp)
		t.kernel("mul", r, sum, g)
		t.Release(target, sum)
		return r
	})
	t.Release(logp)
	return y
}

// CompiledParallelLoss is ParallelLoss of 16-bit logits as a compiler generates it (a
// profile of torchtitan on two tensor ranks): the maximum and the sum of exponentials
// read them, the gradient of both steps is made in the forward pass, in fp32 and beside
// a tensor of zeros that takes the targets, and scaled and cast in the backward pass.
func (t *Tape) CompiledParallelLoss(x *Tensor, reduce func(rows *Tensor)) *Tensor {
	t.begin()
	rows := t.empty(F32, x.Size()/x.Dim(-1), 1)
	n := float64(x.Size())
	kernel := func(prim string, b units.Bytes) {
		t.emit(Op{Prim: prim, Class: FusedPointwise, DType: x.dtype, Elements: n, Bytes: b})
	}
	wide := func() *Tensor { return t.empty(F32, x.dims[:x.nd]...) }
	kernel("amax", x.bytes())
	reduce(rows)
	kernel("sum_exp", x.bytes())
	reduce(rows)
	target := wide()
	t.fill(target)
	r := wide()
	kernel("loss_gradient", x.bytes()+target.bytes()+r.bytes())
	reduce(rows)
	t.Release(target, rows)
	y := t.empty(F32)
	t.attachOne(x, y, []*Tensor{r}, func(t *Tape, nd *node, g *Tensor) *Tensor {
		z := t.emptyLike(x)
		t.emit(Op{Prim: "loss_gradient_backward", Class: FusedPointwise, DType: x.dtype, Elements: n, Bytes: nd.saved[0].bytes() + z.bytes()})
		return z
	})
	t.Release(r)
	return y
}
