package tape

import "github.com/perfplan/perfplan/internal/units"

// Softmax normalises the last dimension, under autocast in fp32, and saves its result. log_softmax costs
// the same forward; the gradient of softmax is multiplied with the result in a kernel of its own first.
func (t *Tape) Softmax(prim string, x *Tensor) *Tensor {
	if t.Autocast != F32 {
		return t.FloatSoftmax(prim, x)
	}
	return t.softmax(prim, x, x.dtype)
}

// FloatSoftmax is the softmax with dtype=torch.float32, which autocast asks for, too. Of fp16, and of no
// other dtype, one kernel each way casts as well (aten/src/ATen/native/SoftMax.cpp, softmax and
// log_softmax: half_to_float).
func (t *Tape) FloatSoftmax(prim string, x *Tensor) *Tensor {
	if x.dtype == F16 && !t.Compiled {
		return t.softmax(prim, x, F32)
	}
	in := t.Float(x)
	y := t.softmax(prim, in, F32)
	t.Release(in)
	return y
}

// Logarithms is the log_softmax of x in its own dtype, which cross_entropy asks for, so that autocast
// leaves it (aten/native/LossNLL.cpp, cross_entropy_loss; aten/src/ATen/autocast_mode.h,
// AT_FORALL_FP32_SET_OPT_DTYPE).
func (t *Tape) Logarithms(x *Tensor) *Tensor { return t.softmax("log_softmax", x, x.dtype) }

func (t *Tape) softmax(prim string, in *Tensor, d DType) *Tensor {
	t.begin()
	y := t.alloc(t.shape(d, in))
	t.emit(Op{Prim: prim, Class: SoftmaxForward, DType: in.dtype, N: in.Dim(-1), Elements: float64(in.Size()), Bytes: in.bytes() + y.bytes()})
	t.attachOne(in, y, []*Tensor{y}, func(t *Tape, n *node, g *Tensor) *Tensor {
		if prim == "softmax" {
			return t.softmaxBackward(g, in.dtype)
		}
		r := t.alloc(t.shape(in.dtype, g))
		t.emit(Op{Prim: prim + "_backward", Class: SoftmaxBackward, DType: g.dtype, N: r.Dim(-1), Elements: float64(r.Size()), Bytes: 2*g.bytes() + r.bytes()})
		return r
	})
	return y
}

// FusedSoftmax is the softmax of scores x as a compiler joins it with what makes them (scale, cap and
// mask), with casts and with dropout. The gradient comes from the scores and two fp32 values of a row,
// not from the result, which the product after it keeps in 16 bits alone (torch/_functorch/partitioners.py,
// is_materialized_backwards); from the result where that is as wide. Converts: the mask is made in the
// kernel, of another dtype than the scores, which keeps it from holding rows.
//
// On an H200 (PyTorch 2.11, 2026-11-30) rows of up to 1024 that a kernel holds take 1.8 ps an element, longer ones, which it
// reads twice, 2.8, and under autocast with a causal mask 4.2; dropout inside 3 ps more, 5 of GPT-2. Work multiplies the
// time an element of the class, to which its bytes add.
func (t *Tape) FusedSoftmax(x *Tensor, dropout, converts bool) *Tensor {
	f := Fused{Prim: "softmax", Class: LossForward, Back: FusedReduce, DType: x.dtype, Mask: dropout, Work: 1}
	switch {
	case converts:
		f.Work = 2.7
	case x.Dim(-1) > 1024:
		f.Work = 1.8
	}
	if dropout {
		f.Work += 2.1
	}
	if x.dtype.lowPrecision() {
		f.Save, f.SaveRows = []int{0}, 2
	} else {
		f.SaveOut = true
	}
	return t.Fuse(f, x)[0]
}

// LossMetric is the cross entropy of logits once more, for a metric, under autocast and
// without gradient: logarithms in the dtype of the logits, which cross_entropy_loss asks
// for, then their cast, as autocast takes the loss in fp32 (aten/native/LossNLL.cpp; a
// profile on H100). It comes after the backward pass, when what it takes is free, so that
// it adds nothing to the peak.
func (t *Tape) LossMetric(x *Tensor) {
	n, rows := x.Size(), x.Size()/x.Dim(-1)
	t.begin()
	t.emit(Op{Prim: "log_softmax", Class: SoftmaxForward, DType: x.dtype, N: x.Dim(-1), Elements: float64(n), Bytes: 2 * x.bytes()})
	if x.dtype.lowPrecision() {
		t.begin()
		t.emit(Op{Prim: "to", Class: Unrolled, DType: F32, Elements: float64(n), Bytes: x.bytes() + units.Bytes(n)*4})
	}
	t.begin()
	t.emit(pick("nll_loss", F32, rows))
	t.Tiny("metric", 4) // the items that count, their sum, two sums kept
}

// TokenMetrics is what TRL's SFTTrainer logs of logits, [batch, sequence, vocabulary], without
// gradient (trl/trainer/sft_trainer.py of v0.22 and later, compute_loss): the entropy of each
// row by chunks of 128 (trl/trainer/utils.py, entropy_from_logits), and the largest of each but
// the last of a sequence, which of several sequences are copied. The host waits for both, and
// for the number of tokens.
func (t *Tape) TokenMetrics(x *Tensor) {
	const chunk = 128
	n := (x.Size()/x.Dim(-1) + chunk - 1) / chunk
	each := func(prim string, class Class, passes units.Bytes) { // rows of a vocabulary are summed by several blocks each
		t.emit(Op{Prim: prim, Class: class, DType: x.dtype, Count: int32(n), Elements: float64(x.Size()) / float64(n), Bytes: passes * x.bytes() / units.Bytes(n)})
	}
	t.begin()
	each("log_softmax", SoftmaxForward, 2)
	each("exp", Vectorized, 2)
	each("mul", Vectorized, 3)
	each("sum", RowReduce, 1)
	t.Tiny("metric", int(n)+6) // each sum's sign; joined, masked, their sum and the mask's, quotient, mean
	t.Wait()
	t.Tiny("metric", 1)
	t.Wait()
	if x.Dim(0) > 1 {
		y := t.like(x)
		t.kernel("clone", y, x)
		t.Release(y)
	}
	t.argmax(x)
	t.Tiny("metric", 7) // what counts, what is right of it, sums, quotient
	t.Wait()
}

// SafeSoftmax is the softmax of PyTorch's math attention: rows without a finite score
// become zeros, for which the result is compared, reduced and selected from
// (_safe_softmax in aten/native/transformers/attention.cpp).
func (t *Tape) SafeSoftmax(x *Tensor) *Tensor {
	t.begin()
	y := t.like(x)
	z := t.like(x)
	mask := t.alloc(t.shape(Bool, x))
	t.emit(Op{Prim: "softmax", Class: SoftmaxForward, DType: x.dtype, N: x.Dim(-1), Elements: float64(x.Size()), Bytes: x.bytes() + y.bytes()})
	t.over("isneginf", Vectorized, x, x.bytes()+mask.bytes())
	// Single bytes are read at a third of the rate of wider values: 298 M in 205 us (Falcon trace, H200).
	t.emit(Op{Prim: "all", Class: RowReduce, DType: Bool, Elements: float64(x.Size()), Bytes: 3 * mask.bytes()})
	t.Tiny("fill_", 1)
	t.emit(Op{Prim: "where", Class: Strided4, DType: x.dtype, Elements: float64(x.Size()), Index: 6, Bytes: y.bytes() + z.bytes()})
	t.Release(mask, y)
	t.attachOne(x, z, []*Tensor{z}, func(t *Tape, n *node, g *Tensor) *Tensor { return t.softmaxBackward(g, x.dtype) })
	return z
}

// softmaxBackward multiplies gradient and result into a tensor of its own, which the
// next kernel reads (aten/native/cuda/SoftMax.cu, softmax_backward_cuda_out).
func (t *Tape) softmaxBackward(g *Tensor, d DType) *Tensor {
	product, r := t.like(g), t.alloc(t.shape(d, g))
	t.emit(Op{Prim: "softmax_backward_mul", Class: Vectorized, DType: g.dtype, N: g.Dim(-1), Elements: float64(g.Size()), Bytes: 3 * g.bytes()})
	t.emit(Op{Prim: "softmax_backward", Class: Vectorized, DType: g.dtype, N: g.Dim(-1), Elements: float64(g.Size()), Bytes: 2*g.bytes() + r.bytes()})
	t.Release(product)
	return r
}

// Argmax looks for the largest of each row, without gradient.
func (t *Tape) Argmax(x *Tensor) {
	t.begin()
	t.argmax(x)
}

func (t *Tape) argmax(x *Tensor) {
	t.emit(Op{Prim: "argmax", Class: RowReduce, DType: x.dtype, Elements: float64(x.Size()), Bytes: x.bytes()})
}
