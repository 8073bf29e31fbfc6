package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// part is a function of a layer, which borrows what it reads.
type part func(x *tape.Tensor) *tape.Tensor

// layer runs one decoder layer on x, which it borrows.
func (b *builder) layer(x *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	mlp := func(h *tape.Tensor) *tape.Tensor { return b.checkpointed(DenseMLP, b.mlp, h) }
	if kind.MoE {
		mlp = func(h *tape.Tensor) *tape.Tensor { return b.checkpointed(Experts, b.moe, h) }
	}
	mlp = b.apart(mlp)
	latent := b.Spec.MLA != nil && kind.Mixer.Attends()
	switch {
	case b.Spec.Streams > 1:
		return b.streamed(x, kind, mlp)
	case b.Spec.Parallel != model.Serial:
		return b.parallel(x, kind, mlp)
	case kind.NoMLP:
		return b.alone(x, kind, model.RoleNorm1, latent, b.mixer(kind), model.RoleNorm3)
	case kind.Mixer == model.NoMixer:
		return b.alone(x, kind, model.RoleNorm2, kind.MoE, mlp, model.RoleNorm4)
	}
	return b.serial(x, kind, latent, mlp)
}

// serial mixes tokens, and then runs the MLP on the sum of that and x.
func (b *builder) serial(x *tape.Tensor, kind model.LayerKind, latent bool, mlp part) *tape.Tensor {
	if b.Spec.Place == model.SumNorm {
		return b.summed(x, kind, mlp)
	}
	t := b.t
	h, after := b.normBefore(x, kind, model.RoleNorm1, latent)
	a := b.mixer(kind)(h)
	t.Release(h)
	a = b.normAfter(after(a), model.RoleNorm3)
	after = same
	var y *tape.Tensor
	if b.program("residual_norm") && b.has(model.RoleNorm2) {
		y, h = b.residualNorm(x, a, model.RoleNorm2, model.RoleO)
	} else {
		y = b.dropoutResidual(x, a, model.RoleO)
		if b.asTransformers() { // the sum takes its name
			t.Release(a)
			a = nil
		}
		if b.Spec.Encoder != nil {
			y = b.give(y, b.reads(y))
		}
		h, after = b.normBefore(y, kind, model.RoleNorm2, kind.MoE)
	}
	t.Release(a)
	b.beforeMLP = y
	m := mlp(h)
	t.Release(h)
	m = b.normAfter(after(m), model.RoleNorm4)
	z := b.dropoutResidual(y, m, model.RoleDown)
	t.Release(y, m)
	if b.Spec.PerLayer != nil {
		z = b.give(z, b.ownPart(z))
	}
	if b.Spec.LayerScale {
		t.Module = "residual"
		z = b.give(z, b.call("layer_scale", tensorOf(z))[0].t)
	}
	return z
}

// residualNorm is one kernel's sum of both, and its norm; last made y.
func (b *builder) residualNorm(x, y *tape.Tensor, r, last model.Role) (sum, normed *tape.Tensor) {
	b.t.Module = "norm"
	b.handed = b.handsOn(r)
	name := "residual_norm"
	if b.dropped(last) > 0 {
		name = "dropout_residual_norm"
	}
	out := b.call(name, tensorOf(x), tensorOf(y), tensorOf(b.p(r)), tensorOf(b.p(r.Bias())))
	return out[0].t, out[1].t
}

// summed runs a layer whose norms are of its sums, which the MLP and the next layer read.
func (b *builder) summed(x *tape.Tensor, kind model.LayerKind, mlp part) *tape.Tensor {
	t := b.t
	normedSum := func(x, y *tape.Tensor, r, last model.Role) *tape.Tensor {
		var sum, h *tape.Tensor
		if b.program("residual_norm") && b.has(r) {
			sum, h = b.residualNorm(x, y, r, last)
		} else {
			sum = b.dropoutResidual(x, y, last)
			h = b.norm(sum, r, true)
		}
		t.Release(sum, y)
		return h
	}
	h := normedSum(x, b.mixer(kind)(x), model.RoleNorm3, model.RoleO)
	if b.Spec.Encoder != nil {
		h = b.give(h, normedSum(h, b.cross(h), model.RoleCrossNorm, model.RoleCrossO))
	}
	y := normedSum(h, mlp(h), model.RoleNorm4, model.RoleDown)
	t.Release(h)
	return y
}

// parallel runs attention and the MLP on the same input.
func (b *builder) parallel(x *tape.Tensor, kind model.LayerKind, mlp part) *tape.Tensor {
	t := b.t
	h := b.normedOr(x, model.RoleNorm1, true)
	h2 := h
	if b.Spec.Parallel == model.ParallelTwoNorm {
		h2 = b.normedOr(x, model.RoleNorm2, true)
	} else {
		t.Hold(h)
	}
	b.unsummed = b.recipe.Structure.SharedSum
	a := b.mixer(kind)(h)
	t.Release(h)
	m := mlp(h2)
	t.Release(h2)
	y := b.residual(m, a)
	t.Release(a, m)
	if b.unsummed {
		b.unsummed = false
		y = b.give(y, b.reduceOutput(y))
	}
	z := b.residual(y, x)
	t.Release(y)
	return z
}

// alone is a layer of one block, between norms of those roles.
func (b *builder) alone(x *tape.Tensor, kind model.LayerKind, before model.Role, own bool, block part, behind model.Role) *tape.Tensor {
	h, after := b.normBefore(x, kind, before, own)
	a := block(h)
	b.t.Release(h)
	a = b.normAfter(after(a), behind)
	last := model.RoleO
	if kind.Mixer == model.NoMixer {
		last = model.RoleDown
	}
	y := b.dropoutResidual(x, a, last)
	b.t.Release(a)
	return y
}

// apart is a part of the layer that full recomputation computes again by itself, where the recipe
// has it so; else the part.
func (b *builder) apart(f part) part {
	if b.Recompute != FullRecompute || !b.recipe.ByParts(b.Spec.ModelType) {
		return f
	}
	return func(x *tape.Tensor) *tape.Tensor {
		return b.t.Checkpoint(b.recipe.Structure.EarlyStop, func(ins []*tape.Tensor) *tape.Tensor { return f(ins[0]) }, x)
	}
}

// mixer is what mixes the tokens of a layer.
func (b *builder) mixer(kind model.LayerKind) part {
	switch {
	case kind.Mixer == model.MambaMixer:
		return b.apart(b.mamba)
	case kind.Mixer == model.PairedMixer:
		return b.apart(func(h *tape.Tensor) *tape.Tensor { return b.paired(h, kind) })
	case kind.Mixer == model.DeltaMixer:
		return b.apart(b.delta)
	case kind.Mixer == model.ShortMixer:
		return b.apart(b.short)
	case b.vision != nil && b.vision.Packed:
		return b.apart(func(h *tape.Tensor) *tape.Tensor { return b.look(h, kind) })
	}
	return b.apart(func(h *tape.Tensor) *tape.Tensor { return b.attention(h, kind) })
}

// normedOr is the norm before a block, or x where there is none; own: no projection takes it in.
func (b *builder) normedOr(x *tape.Tensor, r model.Role, own bool) *tape.Tensor {
	if !b.normed(r) {
		return b.t.Hold(x)
	}
	h := b.apart(func(x *tape.Tensor) *tape.Tensor { return b.norm(x, r, own) })(x)
	if !own {
		b.normedAsRead(h, r)
	}
	return h
}

// normBefore is the same, perhaps not kept: after takes what the block made of it.
func (b *builder) normBefore(x *tape.Tensor, kind model.LayerKind, r model.Role, own bool) (h *tape.Tensor, after func(made *tape.Tensor) *tape.Tensor) {
	m, away := LayerNorms, ExpertsNorm
	attends := r == model.RoleNorm1 && kind.Mixer.Attends()
	if attends {
		away = AttentionNorm
	}
	if !own || !b.normed(r) {
		if m, away = 0, 0; attends {
			away = Projection
		}
	}
	b.leaving(away, func() {
		out, then := b.discarding(m, func(ins []*tape.Tensor) []*tape.Tensor { return []*tape.Tensor{b.normedOr(ins[0], r, own)} }, x)
		h, after = out[0], then
	})
	return h, after
}

// normAfter is the norm after a block, if there is one, of x, which it takes over.
func (b *builder) normAfter(x *tape.Tensor, r model.Role) *tape.Tensor {
	if b.normed(r) {
		return b.give(x, b.norm(x, r, true))
	}
	return x
}

// dropped is the probability of dropout of what a block's last projection made.
func (b *builder) dropped(last model.Role) float64 {
	if last == b.Spec.Undropped {
		return 0
	}
	return b.dropouts.resid
}

// dropoutResidual adds what a block's last projection made, with dropout, to the residual stream.
func (b *builder) dropoutResidual(x, y *tape.Tensor, last model.Role) *tape.Tensor {
	if b.dropped(last) > 0 && b.program("dropout_residual") && !b.recipe.Structure.PlainLayers {
		b.t.Module = "residual"
		return b.call("dropout_residual", tensorOf(x), tensorOf(y))[0].t
	}
	y = b.dropout(y, b.dropped(last))
	if b.Spec.ResidScale {
		b.t.Module = "residual"
		y = b.give(y, b.t.Scale("mul_scalar", y))
	}
	z := b.residual(x, y)
	b.t.Release(y)
	return z
}
