package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// short runs a short convolution on the normed input h, which it borrows, as transformers does
// where causal-conv1d is installed (modeling_lfm2.py, cuda_kernels_forward).
func (b *builder) short(h *tape.Tensor) *tape.Tensor {
	t := b.t
	in := b.mixerInput(h, "conv", "a short convolution")
	x := b.column(in, model.RoleShortIn)
	t.Release(in)
	t.Module = "conv"
	x = b.give(x, t.Transpose(x, 1, 2)) // channels first, as they are cut
	p := t.Chunk(x, 1, 3)
	t.Release(x)
	mixed := t.Mul(p[0], p[2])
	mixed = b.give(mixed, t.ConvolveBare(mixed, b.p(model.RoleShortConv), b.p(model.RoleShortConv.Bias())))
	y := t.Mul(p[1], mixed)
	t.Release(mixed)
	t.Release(p...)
	y = b.give(y, t.Transpose(y, 1, 2))
	z := b.row(y, model.RoleShortOut)
	t.Release(y)
	return z
}
