package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// normed reports whether there is a norm of that role, with parameters or without.
func (b *builder) normed(r model.Role) bool {
	return b.has(r) || b.Spec.Norm == model.PlainNorm && b.Spec.Normed(r)
}

// norm normalises x with the weight of that role. own: it is a module of its own, whatever
// the recipe does in one with the projection behind it.
func (b *builder) norm(x *tape.Tensor, r model.Role, own bool) *tape.Tensor {
	b.t.Module = "norm"
	b.t.Call()
	w := b.p(r)
	b.handed = b.handsOn(r)
	written := ""
	unfused := b.recipe.Structure.UnfusedNorm
	if b.Spec.Norm.Layer() {
		unfused = b.recipe.Structure.UnfusedLayerNorm
	}
	switch {
	case unfused:
		written = "_unfused"
	case own:
		written = "_own"
	}
	switch b.Spec.Norm {
	case model.RMSNorm:
		if x.DType() != w.DType() && written != "_unfused" && b.program("rms_norm_mixed") {
			written = "_mixed"
		}
		return b.call(b.variant("rms_norm", written), tensorOf(x), tensorOf(w))[0].t
	case model.NarrowRMSNorm:
		return b.call("rms_norm_as_is", tensorOf(x), tensorOf(w))[0].t
	case model.WideRMSNorm:
		return b.call(b.variant("rms_norm", "_wide"), tensorOf(x), tensorOf(w))[0].t
	case model.CastRMSNorm:
		name := "rms_norm_cast"
		if !b.Spec.ValueNorm && !b.program(name) { // but for a cast of its weight as any other
			name = b.variant("rms_norm", written)
		}
		return b.call(name, tensorOf(x), tensorOf(w))[0].t
	case model.LayerNormCast:
		return b.call(b.variant("layer_norm", "_cast"), tensorOf(x), tensorOf(w), value{})[0].t
	case model.PlainNorm:
		written = "_plain"
	case model.LayerNorm1P:
		return b.call(b.variant("layer_norm", "_1p"), tensorOf(x), tensorOf(w), tensorOf(b.p(r.Bias())))[0].t
	case model.GemmaRMSNorm:
		return b.call(b.variant("gemma_rms_norm", written), tensorOf(x), tensorOf(w))[0].t
	}
	return b.call(b.variant("layer_norm", written), tensorOf(x), tensorOf(w), tensorOf(b.p(r.Bias())))[0].t
}
