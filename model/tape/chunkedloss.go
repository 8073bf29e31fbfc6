package tape

// ChunkedLoss is the loss of x, [batch, tokens, width], by so many chunks of the tokens, as equal as they can be.
// f takes over a chunk and makes its loss; its gradients follow at once, so that tensors as wide as the vocabulary
// are those of one chunk. Chunks are copied where they are not contiguous. Their gradients are copied into one of
// x, in fp32; those of weights, which f reads, are kept in dtype sums and added up. The backward pass finds both
// (torchtitan, components/loss.py, ChunkedCELoss and GradAccumulator; torch.distributed.fsdp, _fsdp_param.py,
// to_accumulated_grad_if_needed, for weights).
func (t *Tape) ChunkedLoss(x *Tensor, chunks int64, sums DType, f func(chunk *Tensor) *Tensor, weights ...*Tensor) *Tensor {
	t.begin()
	parts := t.chunk(x, chunks)
	whole := t.Zeros(F32, x.dims[:x.nd]...)
	kept := make([]*Tensor, len(weights))
	for _, part := range parts {
		made := len(t.sec.Grads)
		if g := t.alone(part, f); g != nil {
			t.fillIn(whole, g)
		}
		for k, w := range weights {
			if g := t.take(made, w); g != nil {
				kept[k] = t.keepSum(kept[k], g, sums)
			}
		}
	}
	t.Release(parts...)
	gx := t.converted(whole, x.dtype)
	t.Release(whole)
	y := t.empty(F32)
	t.attach(append([]*Tensor{x}, weights...), []*Tensor{y}, append([]*Tensor{gx}, kept...), func(t *Tape, n *node, _ []*Tensor) []*Tensor {
		t.Tiny("loss_backward", 1) // the loss's own gradient
		for k, g := range kept {
			if g != nil {
				t.paramGrad(weights[k].param-1, t.Hold(g))
			}
		}
		grads := make([]*Tensor, len(n.in)) // those of weights have ended
		if x.grad {
			grads[0] = t.Hold(gx)
		}
		return grads
	})
	t.Release(gx)
	t.Release(kept...)
	return y
}

// chunk cuts the second dimension of x into n parts that no gradient leads back from.
func (t *Tape) chunk(x *Tensor, n int64) []*Tensor {
	parts := make([]*Tensor, n)
	for i := range n {
		v := t.view(x)
		v.dims[1] = x.dims[1]*(i+1)/n - x.dims[1]*i/n
		if parts[i] = v; !v.contiguous() {
			parts[i] = t.copyContiguous(v)
			t.Release(v)
		}
		parts[i].grad = x.grad
	}
	return parts
}

// alone runs f on x and then its gradients, of which it returns x's, if there is one.
func (t *Tape) alone(x *Tensor, f func(*Tensor) *Tensor) *Tensor {
	lo, outer := len(t.nodes), t.phase
	y := f(t.Hold(t.inputs([]*Tensor{x})[0]))
	t.phase = Backward
	grads := t.run(lo, y, t.emptyLike(y))
	t.phase, t.nodes = outer, t.nodes[:lo]
	t.Release(y)
	if len(grads) == 0 {
		return nil
	}
	return grads[0]
}

// take takes the gradient of parameter w from those of the section from index first on, or nil.
func (t *Tape) take(first int, w *Tensor) *Tensor {
	for i := first; i < len(t.sec.Grads); i++ {
		if e := t.sec.Grads[i]; e.Param == w.param-1 {
			t.sec.Grads = append(t.sec.Grads[:i], t.sec.Grads[i+1:]...)
			g := t.meta(w.dtype, w.dims[:w.nd])
			g.store = e.Store
			return g
		}
	}
	return nil
}

// keepSum adds g, which it takes over, to a sum in dtype d: its cast begins one.
func (t *Tape) keepSum(sum, g *Tensor, d DType) *Tensor {
	defer t.Release(g)
	if sum == nil {
		return t.converted(g, d)
	}
	t.kernel("add_", sum, sum, g)
	return sum
}

// fillIn copies g, which it takes over, into whole where it belongs.
func (t *Tape) fillIn(whole, g *Tensor) {
	wide := t.converted(g, whole.dtype)
	part := t.view(whole)
	part.dims[1] = g.dims[1]
	t.kernel("copy_", part, wide)
	t.Release(part, wide, g)
}

// converted is x in dtype d by a kernel of its own, whatever is compiled beside it.
func (t *Tape) converted(x *Tensor, d DType) *Tensor {
	if x.dtype == d {
		return t.Hold(x)
	}
	y := t.alloc(t.shape(d, x))
	t.kernel("to", y, x)
	return y
}
