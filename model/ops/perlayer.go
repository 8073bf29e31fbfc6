package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// perLayer makes embeddings of every layer from the tokens ids and the embedded ones x, which
// they go along with to the layers.
func (b *builder) perLayer(x, ids *tape.Tensor) *tape.Tensor {
	t, e := b.t, b.Spec.PerLayer
	each := func(y *tape.Tensor) *tape.Tensor {
		return b.give(y, t.Reshape(y, y.Dim(0), y.Dim(1), b.Spec.Layers, e.Width))
	}
	y := t.Embedding(ids, b.p(model.RoleLayerEmbed))
	y = each(b.give(y, t.Scale("mul_scalar", y)))
	p := b.linear(x, model.RoleLayerEmbedIn)
	p = each(b.give(p, t.Scale("mul_scalar", p)))
	p = b.give(p, b.norm(p, model.RoleLayerEmbedNorm, true))
	t.Module = "embedding"
	sum := t.Add(p, y)
	t.Release(p, y)
	sum = b.give(sum, t.Scale("mul_scalar", sum))
	z := t.Carry(x, sum)
	t.Release(sum)
	return z
}

// ownPart adds to x what a layer makes of it and of its part of the embeddings that every
// layer has one of.
func (b *builder) ownPart(x *tape.Tensor) *tape.Tensor {
	t, s := b.t, b.Spec
	t.Module = "per layer"
	g := b.linear(x, model.RoleLayerGate)
	g = b.give(g, b.activation(g))
	all := t.Lent(g.DType(), s.LoRA == nil, x.Dim(0), x.Dim(1), s.Layers, s.PerLayer.Width)
	part := t.Slice(all, 2, 0, 1)
	part = b.give(part, t.Reshape(part, x.Dim(0), x.Dim(1), s.PerLayer.Width))
	g = b.give(g, t.Mul(g, part))
	t.Release(all, part)
	y := b.linear(g, model.RoleLayerUp)
	t.Release(g)
	y = b.give(y, b.norm(y, model.RoleNorm8, true))
	z := b.residual(x, y)
	t.Release(y)
	return z
}
