package tape

import "github.com/perfplan/perfplan/internal/units"

// CutLoss is the cross entropy of x·Wᵀ, W of shape [vocabulary, width], whose logits no tensor ever
// holds (Cut Cross-Entropy; apple/ml-cross-entropy, cce.py, cce_lse_forward.py, cce_backward.py). The
// forward pass multiplies them out block by block, keeping of each row the logarithm of the sum of
// their exponentials. The backward pass multiplies them out again and adds the products of what kept of
// their gradients, a share of the blocks, to those of x and W, which begin as zeros. Where kept is
// below 1, blocks are found sooner once the vocabulary is in the order of its mean logits. The host
// waits for the number of labels that count.
func (t *Tape) CutLoss(x, w *Tensor, kept float64) *Tensor {
	x, w = t.low(x), t.low(w)
	width, vocab := x.Dim(-1), w.Dim(0)
	rows := x.Size() / width
	products := float64(rows) * float64(vocab) * float64(width) // multiplications of one pass over all blocks
	multiply := func(prim string, class Class, share float64) {
		t.emit(Op{Prim: prim, Class: class, DType: x.dtype, N: width, Elements: share * products,
			Bytes: x.bytes() + w.bytes(), FLOPs: units.FLOPs(2 * share * products)})
	}
	t.begin()
	t.Tiny("cut_loss_labels", 3)
	t.Wait()
	sums := t.empty(F32, rows)
	saved, adds := []*Tensor{x, w, sums}, LossAdds
	if kept < 1 {
		adds = LossKept
		means := t.Zeros(F32, vocab)
		saved = append(saved, means)
		defer t.Release(means)
	}
	multiply("cut_loss", LossBlocks, 1)
	t.Tiny("cut_loss_labels", 1) // the logits of the labels
	y := t.empty(F32)
	t.Tiny("loss", 2) // their distance from the sums, and its mean
	t.attach([]*Tensor{x, w}, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		if kept < 1 {
			t.Tiny("cut_loss_order", 1)
			t.Sort(vocab)
		}
		var grads []*Tensor
		for _, of := range []*Tensor{x, w} {
			if of.grad {
				grads = append(grads, t.zerosLike(of))
			}
		}
		multiply("cut_loss_backward", LossBlocks, 1)
		multiply("cut_loss_adds", adds, kept*float64(len(grads)))
		return grads
	})
	t.Release(x, w, sums)
	return y
}
