package ops

import (
	"maps"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// predictor adds the parameters of the modules of multi-token prediction to the head's.
// What it returns runs them on the hidden states that the head reads, which it takes over, or
// on the residual streams x that these were made of, and gives these and what each module made.
//
// A module joins the norms of the hidden states before it and of the next token's
// embedding, brings them back to the hidden width and runs a layer and a norm; embedding
// and head are the main model's (megatron/core/transformer/multi_token_prediction.py;
// arXiv 2412.19437, section 2.2). The table of the embedding is copied to the head's rank.
func (b *builder) predictor(params model.Parameters) func(x, h *tape.Tensor) []*tape.Tensor {
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
	return func(x, h *tape.Tensor) []*tape.Tensor {
		states, own := []*tape.Tensor{h}, b.t.Quantize
		streams := b.t.Hold(x)
		for _, roles := range modules {
			module := *b // also for what its backward pass computes again
			module.roles, b.t.Quantize = roles, layers
			if b.Spec.Streams > 1 {
				var state *tape.Tensor
				state, streams = module.predictStreams(streams, kind)
				states = append(states, state)
				continue
			}
			states = append(states, module.predict(states[len(states)-1], kind))
		}
		b.t.Release(streams)
		b.t.Quantize = own
		return states
	}
}

// predict runs one module on hidden states, which it borrows.
func (b *builder) predict(h *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t := b.t
	e := b.nextToken()
	n := b.norm(h, model.RoleMTPHiddenNorm, true)
	t.Module = "mtp"
	x := t.Concat(e, n)
	t.Release(e, n)
	in := b.columnInput(x)
	t.Release(x)
	y := b.linear(in, model.RoleMTPProj)
	t.Release(in)
	y = b.give(y, b.rejoin(y))
	y = b.predictLayer(y, kind)
	return b.give(y, b.norm(y, model.RoleMTPNorm, true))
}

// predictLayer runs the layer of a module on y, which it takes over.
func (b *builder) predictLayer(y *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	run := func(ins []*tape.Tensor) *tape.Tensor { return b.layer(ins[0], kind) }
	if b.Recompute == FullRecompute {
		return b.give(y, b.t.Checkpoint(b.recipe.Structure.EarlyStop && !b.WholeLayers, run, y))
	}
	return b.give(y, run([]*tape.Tensor{y}))
}

// nextToken is the normed embedding of the token after each.
func (b *builder) nextToken() *tape.Tensor {
	t := b.t
	t.Module = "mtp"
	t.Call()
	ids := t.Outside(tape.I64, b.MicroBatch, ceilDiv(b.Sequence, max(b.Shard.CP, 1)))
	t.Tiny("mtp", 4) // tokens and positions, rolled (roll_tensor)
	e := t.Embedding(ids, b.p(model.RoleEmbed))
	if b.recipe.Structure.VocabParallel {
		e = b.give(e, b.reduceOutput(e))
	}
	return b.give(e, b.norm(e, model.RoleMTPEmbedNorm, true))
}

// predictStreams runs one module on residual streams x, which it takes over, and gives what
// the head reads and the streams that it made. Each stream and the next token's embedding are
// projected by themselves (Megatron-Core dev @d48bd6be0a, multi_token_prediction.py).
func (b *builder) predictStreams(x *tape.Tensor, kind model.LayerKind) (state, streams *tape.Tensor) {
	t := b.t
	batch, seq, width := b.hiddenDims()
	e := b.nextToken()
	t.Module = "mtp"
	e = b.give(e, b.linear(e, model.RoleMTPProj))
	x = b.give(x, t.Reshape(x, batch, seq*b.Spec.Streams, b.Spec.Hidden))
	x = b.give(x, b.norm(x, model.RoleMTPHiddenNorm, true))
	t.Module = "mtp"
	x = b.give(x, b.linear(x, model.RoleMTPStreams))
	x = b.give(x, t.Fuse(tape.Fused{Prim: "add", Class: tape.Vectorized, DType: x.DType()}, x, e)[0])
	t.Release(e)
	x = b.give(x, t.Reshape(x, batch, seq, width))
	x = b.predictLayer(x, kind)
	state = b.join(x)
	return b.give(state, b.norm(state, model.RoleMTPNorm, true)), x
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
