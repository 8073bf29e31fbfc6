package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// turnsFirst reports whether heads are turned before they are put in front of tokens, as the
// model does or files that turn pairs of neighbours.
func (b *builder) turnsFirst() bool {
	return (b.Spec.TurnFirst || b.recipe.Structure.Rotary == "interleaved") && !b.t.Compiled
}

// turn gives queries and keys, which it takes over, their positions.
func (b *builder) turn(q, k *tape.Tensor) (_, _ *tape.Tensor) {
	heads, kv := b.heads()
	if b.turnsFirst() {
		first := func(x *tape.Tensor) *tape.Tensor {
			x = b.give(x, b.t.Transpose(x, 1, 2))
			x = b.give(x, b.rotary(x, b.Spec.RotaryDim))
			return b.give(x, b.t.Transpose(x, 1, 2))
		}
		if q = first(q); b.has(model.RoleK) || b.has(model.RoleQKV) {
			k = first(k)
		}
		return q, k
	}
	if b.turnsTogether() && b.Spec.RotaryDim == q.Dim(-1) {
		b.t.Module = "rotary"
		y := b.call("rotary_pair", tensorOf(q), tensorOf(k))
		b.t.Release(q, k)
		return y[0].t, y[1].t
	}
	if b.normsTurned {
		b.t.Module = "rotary"
		turned := func(x *tape.Tensor, r model.Role) *tape.Tensor {
			return b.give(x, b.call("norm_rotary", tensorOf(x), tensorOf(b.p(r)))[0].t)
		}
		return turned(q, model.RoleQNorm), turned(k, model.RoleKNorm)
	}
	turned := b.rotary(q, b.Spec.RotaryDim)
	if b.asTransformers() { // one call turns both
		defer b.t.Release(q)
	} else {
		b.t.Release(q)
	}
	defer b.t.Release(k)
	if (b.masked || b.t.Compiled && b.recipe.Structure.RepeatHeads) && b.program("rotary_repeat") && kv != heads { // the compiler turns the repeated heads
		return turned, b.call("rotary_repeat", tensorOf(k), numberOf(float64(heads)))[0].t
	}
	return turned, b.rotary(k, b.Spec.RotaryDim)
}

// turnsTogether reports whether one kernel turns queries and keys: of a compiler where they are as
// many, and nothing else is done to them.
func (b *builder) turnsTogether() bool {
	heads, kv := b.heads()
	return b.program("rotary_pair") && (!b.t.Compiled || kv == heads && !b.normsTurned && b.recipe.Structure.Rotary == "")
}

// rotary turns the first width elements of each head.
func (b *builder) rotary(x *tape.Tensor, width int64) *tape.Tensor {
	t := b.t
	t.Module = "rotary"
	d := x.Dim(-1)
	if s := &b.recipe.Structure; s.UnfusedRotary || b.Spec.TurnScaled && s.ScaledRotary {
		if n := b.documents(); n > 0 && s.PackedRotary != "" {
			return b.rotaryPacked(x, width, n)
		}
		return b.rotaryApart(x, width)
	}
	program, table, wide := b.turnProgram(x, width)
	of := [4]int64{x.Dim(0), 1, x.Dim(2), wide} // x is [batch, heads, sequence, width]
	if b.turnsFirst() {                         // or [batch, sequence, heads, width]
		of[1], of[2] = x.Dim(1), 1
	}
	cos, sin := t.Outside(table, of[:]...), t.Outside(table, of[:]...)
	if b.recipe.Structure.PartialRotary || width == d && (!b.Spec.TurnJoins || t.Compiled) {
		return b.call(program, tensorOf(x), tensorOf(cos), tensorOf(sin))[0].t
	}
	turn := t.Hold(x)
	if width < d {
		turn = b.give(turn, t.Slice(x, -1, 0, width))
	}
	pass := t.Slice(x, -1, width, d)
	y := b.call(program, tensorOf(turn), tensorOf(cos), tensorOf(sin))[0].t
	z := t.Concat(y, pass)
	t.Release(turn, pass, y)
	return z
}

// turnProgram is the program that turns the first width elements of heads x, and dtype and width of the tables that it reads.
func (b *builder) turnProgram(x *tape.Tensor, width int64) (program string, table tape.DType, wide int64) {
	s := &b.recipe.Structure
	program, table, wide = "rotary", b.hidden, width
	if s.HeadTables {
		table = x.DType()
	}
	if turn := b.Spec.Turn; turn != model.TurnHalves {
		program = b.variant(program, "_"+string(turn))
	}
	if program != "rotary" {
		switch b.Spec.Turn {
		case model.TurnFP32, model.TurnJoined:
			table = tape.F32
		case model.TurnParts, model.TurnPairParts:
			wide /= 2
		}
	} else if b.Spec.QKNorm == model.HeadQKNorm || b.Spec.Sinks {
		if program = b.variant(program, "_halves"); s.WideHalves && program != "rotary" {
			program, table = b.variant(program, "_fp32"), tape.F32
		}
	}
	if s.FusedTurns {
		program, wide = b.variant("rotary", "_fused"), width
		if b.Spec.TurnScaled {
			program = b.variant(program, "_scaled")
		}
	}
	switch s.Rotary {
	case "complex":
		program = "rotary_complex"
	case "interleaved":
		program, table, wide = "rotary_interleaved", tape.F32, width/2
	}
	return b.turning(program), table, wide
}

// turning is the program, and its kernel, that does for latent attention what the named
// one does.
func (b *builder) turning(program string) string {
	if b.t.Joined && program == "rotary" {
		return b.variant(program, "_latent")
	}
	return program
}

// joinedDocuments are turned at once, and so are gatheredDocuments (Structure.PackedRotary).
const (
	joinedDocuments   = "joined"
	gatheredDocuments = "gathered"
)

// rotaryPacked turns packed documents, for whose lengths and last end the host waits: one
// after another, or all by tables that are joined (Megatron-Core, rope_utils.py,
// _apply_rotary_pos_emb_thd). Tables gathered by positions take the host 15 small kernels,
// 9 more where context ranks share documents, and no wait.
func (b *builder) rotaryPacked(x *tape.Tensor, width, documents int64) *tape.Tensor {
	const positions = 2
	t := b.t
	if b.recipe.Structure.PackedRotary == gatheredDocuments {
		t.Tiny("positions", 15)
		if b.Shard.CP > 1 {
			t.Tiny("positions", 9)
		}
		return b.rotaryApart(x, width)
	}
	t.Tiny("lengths", 2)
	t.Wait()
	t.Wait()
	if b.Shard.CP > 1 { // the angles of a document's two parts are joined (_get_thd_freqs_on_this_cp_rank)
		t.Tiny("cat", int(documents))
	}
	if b.recipe.Structure.PackedRotary == joinedDocuments {
		t.Tiny("cat", 1)
		return b.rotaryApart(x, width)
	}
	parts := t.Pieces(x, positions, documents)
	for i, p := range parts {
		parts[i] = b.give(p, b.rotaryApart(p, width))
	}
	y := t.Refill(positions, parts...)
	t.Release(parts...)
	return y
}

// rotaryApart turns the first width elements of each head where no kernel of the recipe
// does, position by position as they lie, and joins them with the rest, be it nothing.
func (b *builder) rotaryApart(x *tape.Tensor, width int64) *tape.Tensor {
	t := b.t
	y := t.Transpose(x, 1, 2)
	table := func() value { return tensorOf(t.Outside(y.DType(), y.Dim(0), y.Dim(1), 1, width)) }
	rest := t.Slice(y, -1, width, y.Dim(3))
	if width < y.Dim(3) {
		y = b.give(y, t.Slice(y, -1, 0, width))
	}
	if b.Spec.MLA != nil { // whose pairs are neighbours: first all even elements, then all odd ones
		even, odd := t.Slice(y, -1, 0, width/2), t.Slice(y, -1, width/2, width)
		y = b.give(y, t.Concat(even, odd))
		t.Release(even, odd)
	}
	y = b.give(y, b.call("rotary_apart", tensorOf(y), table(), table())[0].t)
	y = b.give(y, t.Concat(y, rest))
	t.Release(rest)
	return b.give(y, t.Transpose(y, 1, 2))
}
