package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// adapted adds to y, which it takes over, what the adapter of the projection of that role
// makes of its input x: dropout, A, B and a constant (PEFT, tuners/lora/layer.py; NeMo,
// ParallelLinearAdapter). Tensor ranks put together what each has of A's outputs before B.
// Where the projection sums over them, its output is that of a rank's part of the sequence
// or of all, and so is B's, whose columns each has a part of.
func (b *builder) adapted(x, y *tape.Tensor, r model.Role) *tape.Tensor {
	if !b.has(r.Down()) {
		return y
	}
	t, dtype := b.t, y.DType()
	modules := 4 // around the projection, dropout, A and B
	if b.recipe.Structure.InnerScale {
		modules = 2 // A and B alone
	}
	for range modules {
		t.Call()
	}
	quantize := t.Quantize
	t.Quantize = tape.F32 // too narrow for 8 bits
	defer func() { t.Quantize = quantize }()
	down, up := b.p(r.Down()), b.p(r.Up())
	if b.UnitApart {
		x = t.AdapterUnits(x, b.UnitCopies)
		defer t.Release(x)
		defer t.Wait()
	}
	p, inside := b.Spec.LoRA.Dropout, b.recipe.Structure.InnerScale
	h, four := t.Hold(x), b.packed(r) && !inside // tuners/lora/bnb.py, Linear4bit
	if four {
		y = b.give(y, t.Copied(y))
	}
	if (!four || t.Autocast == tape.F32) && !b.program("adapter_sum") { // which casts else; compiled, there and back is nothing
		h = b.give(h, t.To(h, down.DType()))
	}
	if b.fuses() {
		h = b.give(h, t.BitDropout(h, p, quantize))
	} else if p > 0 && !inside {
		if b.program("adapter_dropout") {
			h = b.give(h, b.call("adapter_dropout", tensorOf(h))[0].t)
		} else {
			h = b.give(h, t.Dropout(h, p))
		}
	}
	if b.recipe.Structure.TritonAdapters {
		h = b.give(h, t.TritonAdapter(h, down, up))
		if p > 0 {
			h = b.give(h, t.Dropout(h, p))
		}
		z := t.Add(y, h)
		t.Release(h, y)
		return z
	}
	h = b.give(h, t.Linear(h, down, nil, false))
	if inside {
		h = b.give(h, t.Scale("mul_scalar", h))
	}
	summed := b.params[down.Param()].Split == model.RowSplit
	if summed {
		h = b.give(h, t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Forward: "all-reduce"}, h))
	} else {
		h = b.give(h, t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: -1, Forward: "all-gather", Grow: true}, h))
	}
	h = b.give(h, t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Backward: "all-reduce"}, h)) // each rank has columns of B
	h = b.give(h, t.Linear(h, up, nil, false))
	if b.fuses() {
		return b.give(y, b.give(h, t.AddedTo(y, h)))
	}
	if summed {
		h = b.give(h, b.columns(h))
	}
	if b.program("adapter_sum") {
		return b.give(y, b.give(h, b.call("adapter_sum", tensorOf(y), tensorOf(h))[0].t))
	}
	switch {
	case !inside:
		h = b.give(h, t.Scale("mul_scalar", h))
	case p > 0:
		h = b.give(h, t.Dropout(h, p))
	}
	if four && t.Autocast == tape.F32 {
		h = b.give(h, t.To(h, dtype))
	}
	z := t.Add(y, h)
	t.Release(h, y)
	return b.give(z, t.To(z, dtype))
}

// columns puts together the columns that tensor ranks have of h and, with sequence
// parallelism, keeps the rank's part of the sequence.
func (b *builder) columns(h *tape.Tensor) *tape.Tensor {
	c := tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: -1, Forward: "all-gather", Grow: true}
	h = b.t.Communicate(c, h)
	if !b.Shard.SequenceParallel || b.Shard.TP <= 1 {
		return h
	}
	return b.give(h, b.t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: 1, Backward: "all-gather", Shrink: true}, h))
}

// byHand reports whether the projections of those roles run in one function with their adapters, whose gradients
// are written out by hand (Unsloth, models/llama.py, patch_peft_model; Axolotl, monkeypatch/lora_kernels.py).
func (b *builder) byHand(roles ...model.Role) bool {
	if !b.recipe.Structure.ByHand || b.Spec.LoRA == nil || b.Spec.LoRA.Dropout > 0 || b.Spec.GatedAttention {
		return false
	}
	for _, r := range roles {
		if !b.has(r.Down()) || b.has(r.Bias()) && !b.recipe.Structure.KeptAdapters {
			return false
		}
	}
	return true
}

// adaptedOf is the projection of that role with its adapter.
func (b *builder) adaptedOf(r model.Role) tape.Adapted {
	return tape.Adapted{W: b.p(r), Bias: b.p(r.Bias()), A: b.p(r.Down()), B: b.p(r.Up())}
}
