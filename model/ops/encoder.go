package ops

import (
	"cmp"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// encodesText records the units of an encoder of text, and the order in which they run.
func (x *Cache) encodesText(c Config) (list []Unit, order []int) {
	c.Spec, c.Sequence, c.Source = c.Spec.Encoder, c.Source, 0
	params := c.Spec.Tensors()
	list, order = append(list, buildEntry(c, params.Embedding)), append(order, 0)
	layer := x.layer(c, []model.LayerKind{c.Spec.Kind(0)}, params)
	layer.Name = "encoder " + layer.Name
	list = append(list, layer)
	for range c.Spec.Layers {
		order = append(order, 1)
	}
	if behind := c.Spec.Behind(); len(behind) > 0 {
		list, order = append(list, buildExit(c, behind)), append(order, 2)
	}
	return list, order
}

// buildEntry records what comes before the layers of either stack of an encoder-decoder model. That of
// the decoder takes over what the encoder made, which all its layers read.
func buildEntry(c Config, tensors []model.Tensor) Unit {
	b := newBuilder(c, tensors)
	t, s := b.t, c.Spec
	name, decodes := "encoder embedding", s.Encoder != nil
	var in *tape.Tensor
	rows := c.MicroBatch // of positions: the encoder's of each sequence
	if decodes {
		name, rows = "embedding", 1
		in = t.Input(b.hidden, true, c.MicroBatch, c.Source, s.Hidden)
		t.Tiny("shift", 6) // labels become what the decoder reads
	}
	t.Module = "embedding"
	x := t.Embedding(t.Outside(tape.I64, c.MicroBatch, c.Sequence), b.p(model.RoleEmbed))
	if s.EmbedScale {
		x = b.give(x, t.Scale("mul_scalar", x))
	}
	w, kernels := b.p(model.RolePosition), 2
	if s.Position == model.Sinusoidal { // of positions that are counted from what is no padding, in either stack
		w, kernels, rows = t.Outside(b.weight, s.MaxPositions, s.Hidden), 6, c.MicroBatch
	}
	if w != nil {
		t.Tiny("positions", kernels)
		if decodes && c.Recipe.Structure.StepSync {
			t.Tiny("prologue", 5)
			t.Wait()
		}
		y := t.Embedding(t.Outside(tape.I64, rows, c.Sequence), w)
		x = b.give(x, t.Add(x, y))
		t.Release(y)
	}
	if b.has(model.RoleEmbedNorm) {
		x = b.give(x, b.norm(x, model.RoleEmbedNorm, true))
	}
	x = b.give(x, b.dropout(x, b.dropouts.embed))
	if b.Padding > 0 && b.Attention == "sdpa" { // of each stack's attention to what the encoder reads
		m := t.KeyPaddingMask(c.MicroBatch, c.Sequence, cmp.Or(c.Source, c.Sequence))
		x = b.give(x, t.Keep(x, m))
		t.Release(m)
	}
	if w := b.p(model.RoleRelative); w != nil { // which the first layer makes for all
		t.Module = "position_bias"
		y := b.withMask(t.Biases(w, c.Sequence, c.Sequence, !decodes))
		x = b.give(x, t.Carry(x, y))
		t.Release(y)
	}
	if decodes {
		if s.Position == model.RelativeBias { // and zeros where there are none
			heads, _ := b.heads()
			y := b.withMask(t.Zeros(b.compute(), 1, heads, c.Sequence, c.Source))
			x = b.give(x, t.Keep(x, y))
			t.Release(y)
		}
		x = b.give(x, t.Carry(x, in))
		t.Release(in)
	}
	return b.finish(name, in, x)
}

// compute is the dtype of what projections make.
func (b *builder) compute() tape.DType {
	if b.t.Autocast != tape.F32 {
		return b.t.Autocast
	}
	return b.hidden
}

// buildExit records the norm behind an encoder's layers.
func buildExit(c Config, tensors []model.Tensor) Unit {
	b := newBuilder(c, tensors)
	x := b.input(b.hiddenDims())
	y := b.norm(x, model.RoleFinalNorm, true)
	b.t.Release(x)
	y = b.give(y, b.dropout(y, c.Spec.FinalDropout))
	return b.finish("encoder norm", x, y)
}

// cross runs attention to what the encoder made on h, which it borrows.
func (b *builder) cross(h *tape.Tensor) *tape.Tensor {
	t := b.t
	t.Call()
	t.Module = "cross_attention"
	heads, kv := b.heads()
	q := b.column(h, model.RoleCrossQ)
	q = b.give(q, b.split(q, heads))
	made := t.Lent(b.hidden, true, b.MicroBatch, b.Source, b.Spec.Hidden)
	read := func(r model.Role) *tape.Tensor {
		x := b.column(made, r)
		return b.give(x, b.split(x, kv))
	}
	k, v := read(model.RoleCrossK), read(model.RoleCrossV)
	t.Release(made)
	k, v = b.cached(k), b.cached(v)
	b.crosses = true
	b.masked = b.Attention == "sdpa" && (b.Spec.Position == model.RelativeBias || b.toldPadding() > 0) // zeros, or what is padding
	var y *tape.Tensor
	switch {
	case b.writesBiases():
		y = b.written(q, k, v, t.Outside(b.compute(), q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)))
	case b.Spec.Position == model.RelativeBias && b.Attention == "unfused":
		y = b.eager(q, k, v, t.Outside(b.compute(), 1, q.Dim(1), q.Dim(2), k.Dim(2)))
	default:
		y = b.core(q, k, v, model.LayerKind{})
	}
	b.crosses, b.masked = false, false
	t.Release(q, k, v)
	y = b.give(y, t.Transpose(y, 1, 2))
	y = b.give(y, t.Reshape(y, y.Dim(0), y.Dim(1), y.Dim(2)*y.Dim(3)))
	z := b.row(y, model.RoleCrossO)
	t.Release(y)
	return z
}

// cached are keys or values, which it takes over, as a cache has them where the decoder is left to make
// one in training, too: T5's is, unless layers are checkpoints (modeling_t5.py; BART's gets labels and makes none).
func (b *builder) cached(x *tape.Tensor) *tape.Tensor {
	if b.Spec.Position != model.RelativeBias || b.Spec.Encoder == nil || b.Recompute == FullRecompute {
		return x
	}
	return b.give(x, b.t.Cached(x))
}

// writesBiases reports whether attention with biases is code of the model's own.
func (b *builder) writesBiases() bool {
	return b.recipe.Structure.WrittenBiases && b.Spec.Position == model.RelativeBias
}

// withMask are biases, which it takes over, of every sequence, with its mask, where code of the model's own makes them so.
func (b *builder) withMask(biases *tape.Tensor) *tape.Tensor {
	if !b.writesBiases() {
		return biases
	}
	b.t.Tiny("mask", b.recipe.Structure.MaskTiny)
	return b.give(biases, b.t.Add(biases, b.t.Outside(biases.DType(), b.MicroBatch, 1, biases.Dim(2), biases.Dim(3))))
}

// written is attention by code of the model's own.
func (b *builder) written(q, k, v, biases *tape.Tensor) *tape.Tensor {
	return b.call("attention_written", tensorOf(q), tensorOf(k), tensorOf(v), tensorOf(biases))[0].t
}

// eager is attention whose scores, written out, get biases and then the mask.
func (b *builder) eager(q, k, v, biases *tape.Tensor) *tape.Tensor {
	return b.call("attention_biased", tensorOf(q), tensorOf(k), tensorOf(v), tensorOf(biases))[0].t
}

// biased is attention whose scores get biases, which none of PyTorch's fused kernels runs: they have no gradient
// for them, nor take such whose keys do not lie beside each other, as those of a table do not
// (aten/native/transformers/cuda/sdp_utils.cpp, check_requires_grad_and_nested, check_attn_mask_shape and the like).
func (b *builder) biased(q, k, v *tape.Tensor) *tape.Tensor {
	t, s := b.t, b.Spec
	var biases *tape.Tensor
	learned := s.LoRA == nil
	switch w := b.p(model.RoleRelative); {
	case w != nil:
		biases = b.withMask(t.Biases(w, q.Dim(2), k.Dim(2), s.Bidirectional))
	case b.writesBiases():
		biases = t.Lent(b.weight, learned, q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2))
	default:
		biases = t.LentBiases(b.weight, learned, q.Dim(1), q.Dim(2), k.Dim(2))
	}
	if b.writesBiases() {
		defer t.Release(biases)
		return b.written(q, k, v, biases)
	}
	if b.Attention == "unfused" {
		defer t.Release(biases)
		return b.eager(q, k, v, biases)
	}
	switch {
	case b.toldPadding() > 0:
		biases = b.give(biases, t.MaskedBiases(biases, b.keyPadding(q, k)))
	case !s.Bidirectional:
		biases = b.give(biases, t.CausalBiases(biases))
	}
	defer t.Release(biases)
	return t.Lowered(func(x []*tape.Tensor) *tape.Tensor {
		return b.call("attention_math_biased", tensorOf(x[0]), tensorOf(x[1]), tensorOf(x[2]), tensorOf(x[3]))[0].t
	}, q, k, v, biases)
}

// reads adds to the residual stream y what attention to the encoder makes of it.
func (b *builder) reads(y *tape.Tensor) *tape.Tensor {
	h := b.normedOr(y, model.RoleCrossNorm, false)
	a := b.cross(h)
	b.t.Release(h)
	z := b.dropoutResidual(y, a, model.RoleCrossO)
	b.t.Release(a)
	return z
}
