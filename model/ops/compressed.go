package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// compressed is attention to a window and to sums of tokens, with the projections of its
// output, of the input in of a block, which it takes over. One key of a head's width is the
// value of all heads too; queries come through a latent (Megatron-Core dev @d48bd6be0a,
// experimental_attention_variant/deepseek_v4_hybrid_attention.py and csa.py).
func (b *builder) compressed(in *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t, s, c := b.t, b.Spec, b.Spec.Compress
	batch, seq := in.Dim(0), in.Dim(1)
	latent := b.linear(in, model.RoleQDown)
	latent = b.give(latent, b.norm(latent, model.RoleQDownNorm, false))
	raise := func(ins []*tape.Tensor) []*tape.Tensor {
		t.Module = "attention"
		q := b.linear(ins[0], model.RoleQUp)
		q = b.give(q, t.Reshape(q, batch, seq, s.Heads, s.HeadDim))
		q = b.give(q, t.Fuse(tape.Fused{Prim: "query_norm", Class: tape.FusedReduce, DType: q.DType(), Save: []int{0}, SaveRows: 1}, q)[0])
		q = b.give(q, b.turnEnds(q))
		kv := b.linear(ins[1], model.RoleKVDown)
		kv = b.give(kv, b.norm(kv, model.RoleKVDownNorm, false))
		kv = b.give(kv, b.turnEnds(kv))
		t.Module = "attention"
		return []*tape.Tensor{q, kv}
	}
	out, after := b.discarding(LatentProjection, raise, latent, in)
	q, kv := out[0], out[1]

	o := tape.SparseOptions{Window: min(c.Window, seq), Values: s.VDim, Apart: b.documents(), Ratio: kind.Ratio, Ranks: 1, Sink: b.p(model.RoleSinks)}
	ins := []*tape.Tensor{q, kv, nil, nil, nil}
	if sums := seq / max(kind.Ratio, 1); kind.Ratio > 0 && sums > 0 {
		y := b.sums(in, kind.Ratio, s.HeadDim, model.RoleSumKV, model.RoleSumGate, model.RoleSumBias, model.RoleSumNorm)
		ins[1] = b.behind(kv, y)
		o.TopK = sums
		if x := s.Indexer; x != nil && kind.Ratio == c.Picked {
			o.TopK, o.Picks, o.Learns = min(x.TopK, sums), true, s.LoRA == nil && !x.Idle
			ins[2], ins[3], ins[4] = b.indexSums(in, latent, kind.Ratio)
		}
	}
	t.Release(latent, in)
	t.Module = "attention"
	var y *tape.Tensor
	b.leaving(Core, func() { y = t.Sparse(ins[0], ins[1], ins[2], ins[3], ins[4], o) })
	t.Release(ins...)
	y = after(y)
	t.Module = "rotary" // back, into a tensor of its own
	y = b.give(y, t.Fuse(tape.Fused{Prim: "rotary_back", Class: tape.FusedPointwise, DType: y.DType()}, y)[0])
	t.Module = "attention"
	y = b.give(y, t.Reshape(y, 1, batch*seq, c.Groups, s.Heads/c.Groups*s.VDim))
	y = b.give(y, t.Transpose(y, 1, 2))
	w := t.Reshape(b.p(model.RoleOGroups), 1, c.Groups, c.Out, s.Heads/c.Groups*s.VDim)
	y = b.give(y, t.MatmulT(y, w))
	t.Release(w)
	y = b.give(y, t.Transpose(y, 1, 2))
	y = b.give(y, t.Contiguous(y))
	y = b.give(y, t.Reshape(y, batch, seq, c.Groups*c.Out))
	var z *tape.Tensor
	b.leaving(OutputProjection, func() { z = b.row(y, model.RoleO) })
	t.Release(y)
	return z
}

// turnEnds turns the last elements of each head in place.
func (b *builder) turnEnds(x *tape.Tensor) *tape.Tensor {
	b.t.Module = "rotary"
	still := -float64(b.Spec.MLA.Nope) / float64(b.Spec.HeadDim)
	return b.t.Fuse(tape.Fused{Prim: b.turning("rotary"), Class: tape.FusedPointwise, DType: x.DType(), Read: still, Write: still, BackRead: still, BackWrite: still}, x)[0]
}

// sums are weighted sums of every ratio tokens of in, of one width, normed and turned.
// Their projections stay in 16 bits.
func (b *builder) sums(in *tape.Tensor, ratio, width int64, kv, gate, bias, norm model.Role) *tape.Tensor {
	t := b.t
	t.Module = "sums"
	x, scores := b.plainLinear(in, b.p(kv), nil), b.plainLinear(in, b.p(gate), nil)
	y := t.SumTokens(x, scores, b.p(bias), ratio, width)
	t.Release(x, scores)
	y = b.give(y, b.norm(y, norm, true))
	t.Module = "rotary"
	return b.give(y, t.Fuse(tape.Fused{Prim: "rotary", Class: tape.FusedPointwise, DType: y.DType()}, y)[0])
}

// indexSums makes the queries, the sums that are keys, and the weights of scores of an
// indexer of the block's input and the query latent, which get no gradient of it.
func (b *builder) indexSums(in, latent *tape.Tensor, ratio int64) (q, k, w *tape.Tensor) {
	t, x := b.t, b.Spec.Indexer
	hidden, own := t.Detached(in), t.Detached(latent)
	t.Module = "indexer"
	q = b.linear(own, model.RoleIndexQ)
	q = b.give(q, t.Reshape(q, q.Dim(0), q.Dim(1), x.Heads, x.HeadDim))
	q = b.give(q, t.Fuse(tape.Fused{Prim: "rotary", Class: tape.FusedPointwise, DType: q.DType()}, q)[0])
	q = b.give(q, b.hadamard(q))
	k = b.sums(hidden, ratio, x.HeadDim, model.RoleIndexSumKV, model.RoleIndexSumGate, model.RoleIndexSumBias, model.RoleIndexSumNorm)
	k = b.give(k, b.hadamard(k))
	t.Module = "indexer"
	w = b.plainLinear(hidden, b.p(model.RoleIndexWeights), nil)
	w = b.give(w, t.Scale("mul_scalar", w))
	t.Release(hidden, own)
	return q, k, w
}

// behind joins the tokens of y to those of x, both of which it takes over.
func (b *builder) behind(x, y *tape.Tensor) *tape.Tensor {
	t, batch, tokens, width := b.t, x.Dim(0), x.Dim(1)+y.Dim(1), x.Dim(2)
	x, y = b.give(x, t.Reshape(x, batch, x.Dim(1)*width)), b.give(y, t.Reshape(y, batch, y.Dim(1)*width))
	z := t.Concat(x, y)
	t.Release(x, y)
	return b.give(z, t.Reshape(z, batch, tokens, width))
}

// hadamard turns heads by a Hadamard matrix (fast_hadamard_transform).
func (b *builder) hadamard(x *tape.Tensor) *tape.Tensor {
	return b.t.Fuse(tape.Fused{Prim: "hadamard", Class: tape.FusedPointwise, DType: x.DType()}, x)[0]
}

// streamed runs a layer of residual streams x [batch, sequence, n·width], which it borrows: a
// block reads one mixture of them, and what it makes is added to n others (Megatron-Core dev
// @d48bd6be0a, transformer/hyper_connection.py and fusions/fused_mhc_kernels.py).
func (b *builder) streamed(x *tape.Tensor, kind model.LayerKind, mlp func(h *tape.Tensor) *tape.Tensor) *tape.Tensor {
	attend := func(h *tape.Tensor) *tape.Tensor { return b.attention(h, kind) }
	y, after := b.mixed(x, model.RoleMix1, model.RoleNorm1, AttentionNorm, b.Spec.MLA != nil, StreamMixes, attend)
	z, _ := b.mixed(y, model.RoleMix2, model.RoleNorm2, ExpertsNorm, kind.MoE, 0, mlp)
	b.t.Release(y)
	return after(z)
}

// mixed runs a block on a mixture of x, which it borrows, and adds what it makes. own: no
// projection takes in the norm in front of it. What comes out is let go of where recomputation
// of those modules is wanted, after what is made of it.
func (b *builder) mixed(x *tape.Tensor, weights, norm model.Role, away Away, own bool, again Modules, f func(h *tape.Tensor) *tape.Tensor) (*tape.Tensor, func(*tape.Tensor) *tape.Tensor) {
	t, n := b.t, b.Spec.Streams
	t.Module = Streams
	views := t.Branch(x, 3)
	w := t.Fuse(tape.Fused{Prim: "stream_weights", Class: tape.FusedReduce, DType: tape.F32, Width: n * (n + 2), Save: []int{0}, SaveOut: true, BackKernels: 2},
		views[0], b.p(weights), b.p(weights+"_bias"), b.p(weights+"_scale"))[0]
	w = b.give(w, t.Fuse(tape.Fused{Prim: "sinkhorn", Class: tape.FusedPointwise, DType: w.DType(), Save: []int{0}}, w)[0])
	one, freed := b.discarding(StreamMixes, func(ins []*tape.Tensor) []*tape.Tensor { return []*tape.Tensor{b.mixture(ins[0], ins[1])} }, views[1], w)
	var h []*tape.Tensor
	var after func(*tape.Tensor) *tape.Tensor
	norms := LayerNorms
	if !own {
		norms, away = 0, 0
	}
	b.leaving(away, func() {
		h, after = b.discarding(norms, func(ins []*tape.Tensor) []*tape.Tensor { return []*tape.Tensor{b.norm(ins[0], norm, own)} }, one...)
	})
	t.Release(one...)
	made := f(h[0])
	t.Release(h...)
	made = freed(after(made)) // the mixture is there again before the norm is, which reads it
	t.Module = Streams
	out, after := b.discarding(again, func(ins []*tape.Tensor) []*tape.Tensor {
		return t.Fuse(tape.Fused{Prim: "stream_merge", Class: tape.FusedPointwise, DType: x.DType(), Save: []int{0, 1, 2}, BackKernels: 2, BackRead: 1}, ins...)
	}, views[2], made, w)
	t.Release(made, w)
	t.Release(views...)
	return out[0], after
}

// mixture is the sum of streams x weighed by w.
func (b *builder) mixture(x, w *tape.Tensor) *tape.Tensor {
	return b.t.Fuse(tape.Fused{Prim: "stream_mix", Class: tape.FusedReduce, DType: x.DType(), Shrink: b.Spec.Streams, Save: []int{0, 1}}, x, w)[0]
}

// join is one stream of all of them (hyper_connection.py, learned_output_contract).
func (b *builder) join(x *tape.Tensor) *tape.Tensor {
	t := b.t
	t.Module = Streams
	views := t.Branch(x, 2)
	w := t.Fuse(tape.Fused{Prim: "stream_weights", Class: tape.FusedReduce, DType: tape.F32, Width: b.Spec.Streams, Save: []int{0}, SaveOut: true},
		views[0], b.p(model.RoleMix3), b.p(model.RoleMix3Bias), b.p(model.RoleMix3Scale))[0]
	y := b.mixture(views[1], w)
	t.Release(w)
	t.Release(views...)
	return y
}

// Streams is the module of residual streams.
const Streams = "streams"
