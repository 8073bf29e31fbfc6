package ops

import (
	"maps"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// predictor adds the parameters of the modules of multi-token prediction to the head's.
// What it returns runs them on the hidden states that the head reads, which it takes over,
// and gives these and what each module made.
//
// A module joins the norms of the hidden states before it and of the next token's
// embedding, brings them back to the hidden width and runs a layer and a norm; embedding
// and head are the main model's (megatron/core/transformer/multi_token_prediction.py;
// arXiv 2412.19437, section 2.2). The table of the embedding is copied to the head's rank.
func (b *builder) predictor(params model.Parameters) func(h *tape.Tensor) []*tape.Tensor {
	layers := b.t.Quantize
	if b.Spec.NoMLP != nil { // those of hybrid models stay in 16 bits (Megatron-Bridge, keep_mtp_spec_in_bf16)
		layers = tape.F32
	}
	table, tied := b.roles[model.RoleHead]
	tied = tied && b.Spec.Tied
	kind := b.Spec.MTPKind()
	var modules []map[model.Role]int
	for range b.Spec.MTPModules() {
		if !tied {
			for _, t := range params.Embedding {
				if t.Role == model.RoleEmbed {
					t.TiedCopy, tied, table = true, true, len(b.params)
					b.params = append(b.params, newBuilder(b.Config, []model.Tensor{t}).params...)
				}
			}
		}
		own := newBuilder(b.Config, append(append([]model.Tensor(nil), params.MTP...), params.Layer(kind)...))
		roles := maps.Clone(own.roles)
		for r := range roles {
			roles[r] += len(b.params)
		}
		roles[model.RoleEmbed] = table
		b.params = append(b.params, own.params...)
		modules = append(modules, roles)
	}
	for len(modules) < int(b.Spec.MTPLayers) { // the one again (multi_token_prediction.py, mtp_use_repeated_layer)
		modules = append(modules, modules[0])
	}
	return func(h *tape.Tensor) []*tape.Tensor {
		states, own := []*tape.Tensor{h}, b.t.Quantize
		for _, roles := range modules {
			module := *b // also for what its backward pass computes again
			module.roles, b.t.Quantize = roles, layers
			states = append(states, module.predict(states[len(states)-1], kind))
		}
		b.t.Quantize = own
		return states
	}
}

// predict runs one module on hidden states, which it borrows.
func (b *builder) predict(h *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t := b.t
	t.Module = "mtp"
	t.Call()
	batch, seq := b.MicroBatch, ceilDiv(b.Sequence, max(b.Shard.CP, 1))
	ids := t.Outside(tape.I64, batch, seq)
	t.Tiny("mtp", 4) // tokens and positions, rolled (roll_tensor)
	e := t.Embedding(ids, b.p(model.RoleEmbed))
	if b.recipe.Structure.VocabParallel {
		e = b.give(e, b.reduceOutput(e))
	}
	e = b.give(e, b.norm(e, model.RoleMTPEmbedNorm, true))
	n := b.norm(h, model.RoleMTPHiddenNorm, true)
	t.Module = "mtp"
	x := t.Concat(e, n)
	t.Release(e, n)
	in := b.columnInput(x)
	t.Release(x)
	y := b.linear(in, model.RoleMTPProj)
	t.Release(in)
	y = b.give(y, b.rejoin(y))
	run := func(ins []*tape.Tensor) *tape.Tensor { return b.layer(ins[0], kind) }
	if b.Recompute == FullRecompute {
		y = b.give(y, t.Checkpoint(b.recipe.Structure.EarlyStop, run, y))
	} else {
		y = b.give(y, run([]*tape.Tensor{y}))
	}
	return b.give(y, b.norm(y, model.RoleMTPNorm, true))
}

// rejoin gathers what tensor ranks made of the hidden width, of which each goes on with its
// part of the sequence: as many bytes forward as backward.
func (b *builder) rejoin(y *tape.Tensor) *tape.Tensor {
	t := b.t
	c := tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: 2, Forward: "all-gather", Backward: "all-gather", Sent: float64(b.Shard.TP)}
	if !b.Shard.SequenceParallel { // all go on with all of it, and their gradients are cut
		c.Backward, c.Grow, c.Sent = "", true, 0
	}
	z := t.Communicate(c, y)
	if batch, seq, width := b.hiddenDims(); z.Dim(1) != seq {
		z = b.give(z, t.Reshape(z, batch, seq, width))
	}
	return z
}
