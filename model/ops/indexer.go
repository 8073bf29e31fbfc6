package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// How a recipe runs attention to the keys that an indexer picks.
const (
	MaskedIndexer   = "masked"   // all keys are read, and a mask leaves those that are picked; the indexer is not trained
	AbsorbedIndexer = "absorbed" // kernels gather picked keys of the latent, into which queries are brought; the indexer learns from attention's scores
)

// indexInputs are what an indexer reads: what attention does and the query latent.
// Neither gets a gradient of it.
type indexInputs struct{ hidden, latent *tape.Tensor }

// indexQueries makes the queries, the keys and the weights of scores of an indexer, which
// takes over its inputs: [batch, sequence, heads, width], [batch, sequence, width] and [batch,
// sequence, heads].
func (b *builder) indexQueries(in indexInputs) (q, k, w *tape.Tensor) {
	t, x, rope := b.t, b.Spec.Indexer, b.Spec.MLA.Rope
	t.Module = "indexer"
	t.Call()
	hidden, latent := t.Detached(in.hidden), t.Detached(in.latent)
	t.Release(in.hidden, in.latent)
	q = b.linear(latent, model.RoleIndexQ)
	q = b.give(q, t.Reshape(q, q.Dim(0), q.Dim(1), x.Heads, x.HeadDim))
	k = b.linear(hidden, model.RoleIndexK)
	t.Call()
	k = b.give(k, b.call("layer_norm", tensorOf(k), tensorOf(b.p(model.RoleIndexKNorm)), tensorOf(b.p(model.RoleIndexKNorm.Bias())))[0].t)
	k = b.give(k, t.Reshape(k, k.Dim(0), k.Dim(1), 1, x.HeadDim))
	q, k = b.give(q, b.indexRotary(q, rope)), b.give(k, b.indexRotary(k, rope))
	k = b.give(k, t.Reshape(k, k.Dim(0), k.Dim(1), x.HeadDim))
	w = b.linear(hidden, model.RoleIndexWeights)
	t.Module = "indexer"
	t.Release(hidden, latent)
	return q, k, w
}

// indexRotary turns the first width elements of an indexer's heads [batch, sequence, heads,
// width].
func (b *builder) indexRotary(x *tape.Tensor, width int64) *tape.Tensor {
	t := b.t
	program, table := "rotary", width
	switch {
	case b.recipe.Structure.UnfusedRotary || !b.recipe.Structure.Transformers:
		y := t.Transpose(x, 1, 2)
		y = b.give(y, b.rotaryApart(y, width))
		return b.give(y, t.Transpose(y, 1, 2))
	case b.Spec.Indexer.Pairs:
		program, table = "rotary_pair_parts", width/2
	}
	turn, pass := t.Slice(x, -1, 0, width), t.Slice(x, -1, width, x.Dim(3))
	of := [4]int64{x.Dim(0), x.Dim(1), 1, table}
	y := b.call(program, tensorOf(turn), tensorOf(t.Outside(b.hidden, of[:]...)), tensorOf(t.Outside(b.hidden, of[:]...)))[0].t
	z := t.Concat(y, pass)
	if b.asTransformers() {
		b.frame = append(b.frame, t.Hold(y), t.Hold(pass))
	}
	t.Release(turn, pass, y)
	return z
}

// pick settles which keys the queries of a layer see that reads in, which it borrows.
func (b *builder) pick(in *tape.Tensor, kind model.LayerKind) {
	if kind.Follows {
		b.followMasked(b.MicroBatch, b.Sequence)
		return
	}
	b.pickMasked(indexInputs{b.t.Hold(in), b.queryLatent})
	b.queryLatent = nil
}

// absorbed is attention to the keys that an indexer picks of the input in of a block, which it
// takes over, but for the projection of its output. Tensor ranks project down what they have of
// the sequence and gather latents. Queries are brought into the latent, which is keys and values
// of all heads at once, and what attention makes of it is brought out by head (Megatron-Core,
// experimental_attention_variant/absorbed_mla.py and dsa.py).
func (b *builder) absorbed(in *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t, s, m, x := b.t, b.Spec, b.Spec.MLA, b.Spec.Indexer
	heads, _ := b.heads()
	latent := b.linear(in, model.RoleQDown)
	kv := b.linear(in, model.RoleKVDown)
	latent = b.give(latent, b.norm(latent, model.RoleQDownNorm, false))
	kvp := t.Split(kv, m.KVLora, m.Rope)
	t.Release(kv)
	kvp[0] = b.give(kvp[0], b.norm(kvp[0], model.RoleKVDownNorm, false))
	t.Module = "attention"
	q := b.raised(latent, model.RoleQUp)
	batch, seq := q.Dim(0), q.Dim(1)
	byHead := func(y *tape.Tensor, width int64) *tape.Tensor { // [1, heads, tokens, width]
		y = b.give(y, t.Reshape(y, 1, batch*seq, heads, width))
		return b.give(y, t.Transpose(y, 1, 2))
	}
	weights := t.Reshape(b.p(model.RoleKVUp), 1, heads, m.Nope+s.VDim, m.KVLora)
	q = byHead(q, m.Nope+m.Rope)
	qp := t.Split(q, m.Nope, m.Rope)
	t.Release(q)
	up := t.Slice(weights, 2, 0, m.Nope)
	a := t.Matmul(qp[0], up)
	t.Release(up, qp[0])
	a = b.give(a, t.Transpose(a, 1, 2))
	a = b.give(a, t.Contiguous(a))
	turned := b.give(qp[1], b.rotaryApart(qp[1], m.Rope))
	turned = b.give(turned, t.Transpose(turned, 1, 2))
	t.Module = "attention"
	q = t.Concat(a, turned)
	t.Release(a, turned)
	q = b.give(q, t.Reshape(q, batch, seq, heads, m.KVLora+m.Rope))

	kr := b.give(kvp[1], b.split(kvp[1], 1))
	kr = b.give(kr, b.rotaryApart(kr, m.Rope))
	t.Module = "attention"
	kr = b.give(kr, t.Reshape(kr, kr.Dim(0), kr.Dim(2), m.Rope))
	kv = t.Concat(kvp[0], kr)
	t.Release(kvp[0], kr)
	kv = b.give(kv, b.wholeSequence(kv))
	kv = b.give(kv, b.ofAllPositions(kv))

	o := tape.SparseOptions{TopK: x.TopK, Values: m.KVLora, Apart: b.documents(), Picks: !kind.Follows, Learns: s.LoRA == nil && !x.Idle, Lends: x.Shared(), Ranks: b.Shard.TP}
	single := o.Apart == 0 && b.Shard.CP <= 1 && !o.Lends // dsa_cudnn_kernels.py, run_fused_dsa_attention
	o.ByHead = !single && (o.Apart == 0 || b.Shard.CP <= 1)
	o.Rows = o.Apart == 0 || b.Shard.CP <= 1 || o.Lends
	ins := []*tape.Tensor{q, kv}
	if o.Picks {
		iq, ik, iw := b.indexQueries(indexInputs{b.gatheredTokens(in), b.gatheredTokens(latent)})
		ins = append(ins, iq, b.give(ik, b.ofAllPositions(ik)), iw)
	}
	t.Release(in, latent)
	t.Module = "attention"
	core := func(ins []*tape.Tensor) *tape.Tensor {
		if !o.Picks {
			return t.Sparse(ins[0], ins[1], nil, nil, nil, o)
		}
		return t.Sparse(ins[0], ins[1], ins[2], ins[3], ins[4], o)
	}
	var y *tape.Tensor
	if b.again(CoreAttention) {
		y = t.Checkpoint(false, core, ins...)
	} else {
		b.leaving(Core, func() { y = core(ins) })
	}
	t.Release(ins...)
	down := t.Slice(weights, 2, m.Nope, m.Nope+s.VDim)
	t.Release(weights)
	y = byHead(y, m.KVLora)
	y = b.give(y, t.MatmulT(y, down))
	t.Release(down)
	y = b.give(y, t.Transpose(y, 1, 2))
	y = b.give(y, t.Contiguous(y))
	return b.give(y, t.Reshape(y, batch, seq, heads*s.VDim))
}

// wholeSequence gathers what tensor ranks that cut the sequence have of it.
func (b *builder) wholeSequence(x *tape.Tensor) *tape.Tensor {
	if !b.Shard.SequenceParallel {
		return b.t.Hold(x)
	}
	return b.t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: 1, Forward: "all-gather", Backward: "reduce-scatter", Grow: true}, x)
}

// ofAllPositions gathers what context ranks have of keys [batch, sequence, width], and puts it in
// order.
func (b *builder) ofAllPositions(x *tape.Tensor) *tape.Tensor {
	if b.Shard.CP <= 1 {
		return b.t.Hold(x)
	}
	y := b.t.Communicate(tape.CommSpec{Group: "cp", Ranks: b.Shard.CP, Dim: 1, Forward: "all-gather", Backward: "reduce-scatter", Grow: true}, x)
	return b.give(y, b.reorder(y, 1))
}

// gatheredTokens is x of all positions that tensor ranks have parts of; no gradient goes back.
func (b *builder) gatheredTokens(x *tape.Tensor) *tape.Tensor {
	if !b.Shard.SequenceParallel {
		return b.t.Hold(x)
	}
	own := b.t.Detached(x)
	defer b.t.Release(own)
	return b.t.Communicate(tape.CommSpec{Group: "tp", Ranks: b.Shard.TP, Dim: 1, Forward: "all-gather", Grow: true}, own)
}

// pickMasked picks keys as transformers does: every head's scores of all keys lie in memory,
// and so does a copy of the keys for each query, which its batched products read
// (modeling_deepseek_v32.py, modeling_glm_moe_dsa.py; traces of an H100).
func (b *builder) pickMasked(in indexInputs) {
	t, x := b.t, b.Spec.Indexer
	held := len(b.frame)
	q, k, w := b.indexQueries(in)
	defer func() { // the function of the indexer returns
		t.Release(b.frame[held:]...)
		b.frame = b.frame[:held]
	}()
	if b.asTransformers() {
		b.frame = append(b.frame, t.Hold(q))
	}
	batch, seq := q.Dim(0), q.Dim(1)
	q, k = b.give(q, t.Float(q)), b.give(k, t.Float(k))
	q, k = b.give(q, t.Low(q)), b.give(k, t.Low(k))
	k = b.give(k, t.Transpose(k, 1, 2))
	k = b.give(k, t.Reshape(k, batch, 1, x.HeadDim, seq))
	k = b.give(k, t.Expand(k, batch, seq, x.HeadDim, seq))
	s := t.Matmul(q, k)
	t.Release(q, k)
	s = b.give(s, t.Scale("mul_scalar", s))
	s = b.give(s, t.Unary("relu", s))
	w = b.give(w, t.Float(w))
	w = b.give(w, t.Scale("mul_scalar", w))
	w = b.give(w, t.Low(w))
	w = b.give(w, t.Reshape(w, batch, seq, 1, x.Heads))
	sums := t.Matmul(w, s)
	t.Release(w, s)
	sums = b.give(sums, t.Reshape(sums, batch, seq, seq))
	t.PickKeys(sums, min(x.TopK, seq))
	t.Release(sums)
}

// followMasked makes the mask of keys that a layer before picked.
func (b *builder) followMasked(batch, seq int64) {
	b.t.KeyMask(batch, seq, min(b.Spec.Indexer.TopK, seq))
}
