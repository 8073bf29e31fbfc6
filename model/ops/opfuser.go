package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// fuses reports whether Transformer Engine's op fuser runs projections with adapters: on one
// tensor rank (Megatron-Bridge, peft/lora.py and lora_layers.py, TEFusedLoRALinear).
func (b *builder) fuses() bool { return b.OpFuser && b.Shard.TP <= 1 }

// castsInside reports whether its kernels write what GEMMs read next as those read it: where
// no maximum is taken before (Transformer Engine, csrc/extensions/activation.cpp).
func (b *builder) castsInside() bool {
	q := b.t.Quantize
	return b.OpFuser && (q == tape.FP8 && b.t.QuantizeRead == 1 || q == tape.MXFP8)
}

// copies are those that products with the weight of that role read of what is cast for them.
func (b *builder) copies(r model.Role) int64 {
	if w := b.p(r); w != nil && w.Trained() {
		return b.t.Copies
	}
	return 1
}

// castAsMade has the kernel that made x, the last one, write what the projection of that role reads.
func (b *builder) castAsMade(x *tape.Tensor, r model.Role) {
	if b.castsInside() {
		b.t.CastAsMade(x, b.copies(r))
	}
}

// normedAsRead has the norm of that role write h as the projection reads it that takes it in. With
// scales of blocks cuDNN's norms alone do (csrc/extensions/normalization.cpp).
func (b *builder) normedAsRead(h *tape.Tensor, norm model.Role) {
	into := map[model.Role]model.Role{model.RoleNorm1: model.RoleQKV, model.RoleNorm2: model.RoleGateUp}[norm]
	if into != "" && b.has(into) && b.Shard.TP <= 1 && (b.t.Quantize == tape.FP8 || b.Precision.CuDNNNorms) {
		b.castAsMade(h, into)
	}
}

// castsBack is x, made by the projection of that role, which reads its gradient as it is made.
func (b *builder) castsBack(x *tape.Tensor, r model.Role) *tape.Tensor {
	if !b.castsInside() {
		return b.t.Hold(x)
	}
	return b.t.CastsBack(x, b.copies(r))
}
