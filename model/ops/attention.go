package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// Masked reports whether PyTorch's attention reads a mask in all layers of a model, of which so much
// of a batch is padding; layers with a window read one where it is no longer than the sequence.
func Masked(s *model.Spec, of *recipe.Structure, padding float64) bool {
	return s.Vision.Mutual() || of.ExplicitMask && !s.Bidirectional || s.Position == model.ALiBi || s.Indexer != nil || padding > 0 || s.Masked && of.Transformers
}

// attention runs the attention block on the normed input h, which it borrows.
func (b *builder) attention(h *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t := b.t
	t.Call()
	t.Module = "attention"
	b.masked = b.Attention == "sdpa" && b.vision == nil && (Masked(b.Spec, &b.recipe.Structure, b.toldPadding()) || b.Document > 0 ||
		kind.Windowed && b.Spec.Window <= b.Sequence) // masking_utils.py, _ignore_causal_mask_sdpa
	b.normsTurned = b.turnsNorms(kind)
	if b.Spec.Compress != nil {
		return b.compressed(t.Hold(h), kind)
	}
	if b.recipe.Structure.Indexer == AbsorbedIndexer && b.Spec.Indexer != nil {
		y := b.absorbed(t.Hold(h), kind)
		return b.give(y, b.row(y, model.RoleO))
	}
	if b.Spec.SeparateHeads {
		y := b.headByHead(h, kind)
		t.Module = "attention"
		return b.give(y, b.row(y, model.RoleO))
	}
	var in, q, k, v *tape.Tensor
	after := same
	b.leaving(Projection, func() {
		if b.Spec.MLA != nil {
			in = t.Hold(h)
			q, k, v, after = b.latent(in)
			return
		}
		in = b.block(h, model.RoleQ, model.RoleK, model.RoleV, model.RoleOGate, model.RoleQKV)
		q, k, v = b.project(in)
		k = b.times(k)
	})
	if b.Spec.MLA == nil {
		if b.documents() > 0 {
			for range b.recipe.Structure.PackedWaits {
				t.Wait()
			}
		}
		if b.turns(kind) && !b.QKVRotary {
			q, k = b.turn(q, k)
		}
		if b.Spec.NormTurned && b.Spec.QKNorm != model.NoQKNorm {
			q, k = b.give(q, b.norm(q, model.RoleQNorm, true)), b.give(k, b.norm(k, model.RoleKNorm, true))
		}
		if b.Spec.QueryScale && b.program("query_scale") {
			t.Module = "rotary"
			q = b.give(q, b.call("query_scale", tensorOf(q), tensorOf(t.Outside(q.DType(), 1, 1, q.Dim(2), 1)))[0].t)
		}
	}
	if b.Spec.Indexer != nil {
		b.pick(in, kind)
	}
	t.Release(in)
	k, v = b.cached(k), b.cached(v)
	t.Module = "attention"
	core := func(ins []*tape.Tensor) *tape.Tensor { return b.core(ins[0], ins[1], ins[2], kind) }
	var y *tape.Tensor
	if b.again(CoreAttention) {
		y = t.Checkpoint(false, core, q, k, v)
	} else {
		b.leaving(Core, func() { y = core([]*tape.Tensor{q, k, v}) })
	}
	t.Release(q, k, v)
	t.Release(b.frame...)
	b.frame = nil
	y = after(y)
	// [batch, heads, sequence, width] back to [batch, sequence, heads·width]
	y = b.give(y, t.Transpose(y, 1, 2))
	y = b.give(y, t.Reshape(y, y.Dim(0), y.Dim(1), y.Dim(2)*y.Dim(3)))
	t.Module = "attention"
	if g := b.outputGate; g != nil {
		b.outputGate = nil
		y = b.give(y, b.call("output_gate", tensorOf(y), tensorOf(g))[0].t)
		t.Release(g)
	}
	if b.MicroBatch > 1 && b.program("attention_output") {
		y = b.give(y, b.call("attention_output", tensorOf(y))[0].t)
	}
	var z *tape.Tensor
	t.SavesInput = b.recipe.Structure.SavesAttention && b.Precision.QuantizeRead != 1
	b.leaving(OutputProjection, func() {
		if b.byHand(model.RoleO) {
			z = t.AdaptedLinear(y, false, b.adaptedOf(model.RoleO))[0]
		} else {
			z = b.row(y, model.RoleO)
		}
	})
	t.SavesInput = false
	t.Release(y)
	return z
}

// headByHead is attention of heads that are modules of their own, whose outputs are joined.
func (b *builder) headByHead(h *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t := b.t
	if !b.program("separate_head") {
		panic(b.missing("separate_head"))
	}
	outs := make([]*tape.Tensor, b.Spec.Heads)
	for i := range outs {
		t.Call()
		var x [3]*tape.Tensor
		for j, r := range [...]model.Role{model.RoleQ, model.RoleK, model.RoleV} {
			x[j] = b.linear(h, r.Of(int64(i)))
			x[j] = b.give(x[j], t.Reshape(x[j], h.Dim(0), 1, h.Dim(1), x[j].Dim(2)))
		}
		var y *tape.Tensor
		if b.Attention == "unfused" {
			y = b.call("separate_head", tensorOf(x[0]), tensorOf(x[1]), tensorOf(x[2]))[0].t
		} else {
			y = b.core(x[0], x[1], x[2], kind)
		}
		t.Release(x[:]...)
		outs[i] = b.give(y, t.Reshape(y, h.Dim(0), h.Dim(1), y.Dim(3)))
	}
	y := t.Concat(outs...)
	t.Release(outs...)
	return y
}

// heads is the number of query and key/value heads on this rank.
func (b *builder) heads() (q, kv int64) {
	tp := max(b.Shard.TP, 1)
	return ceilDiv(b.Spec.Heads, tp), ceilDiv(b.Spec.KVHeads, min(tp, b.Spec.KVHeads))
}

// split views a projection [batch, sequence, heads·width] as [batch, heads,
// sequence, width].
func (b *builder) split(x *tape.Tensor, heads int64) *tape.Tensor {
	y := b.t.Reshape(x, x.Dim(0), x.Dim(1), heads, x.Dim(2)/heads)
	return b.give(y, b.t.Transpose(y, 1, 2))
}

// asTransformers is whether tensors live as long as in the layers of Hugging Face's models.
func (b *builder) asTransformers() bool {
	return b.recipe.Structure.Transformers && !b.t.Compiled
}

// project makes queries, keys and values.
func (b *builder) project(in *tape.Tensor) (q, k, v *tape.Tensor) {
	t, s := b.t, b.Spec
	heads, kv := b.heads()
	switch {
	case !b.has(model.RoleQKV):
		return b.projectApart(in, heads, kv)
	case s.KVLists && kv != heads && !t.Compiled:
		return b.projectLists(in, heads, kv)
	case s.QKVHeads && !b.recipe.Structure.FusedQKV && !t.Compiled:
		qkv := b.column(in, model.RoleQKV)
		qkv = b.give(qkv, b.split(qkv, heads))
		parts := t.Split(qkv, s.HeadDim, s.HeadDim, s.VDim)
		t.Release(qkv)
		return parts[0], parts[1], parts[2]
	}
	q, k, v = b.projectJoined(in, heads, kv)
	return b.headed(q, heads, model.RoleQNorm), b.headed(k, kv, model.RoleKNorm), b.headedValues(v, kv)
}

// projectJoined cuts queries, keys, values and what gates them from one projection.
func (b *builder) projectJoined(in *tape.Tensor, heads, kv int64) (q, k, v *tape.Tensor) {
	t, s := b.t, b.Spec
	qkv := b.column(in, model.RoleQKV)
	widths := []int64{heads * s.HeadDim, kv * s.HeadDim, kv * s.VDim}
	if s.GatedAttention {
		widths = append(widths, heads*s.HeadDim)
	}
	if b.QKVRotary {
		t.Module = "rotary"
		turned := b.call("qkv_rotary", tensorOf(qkv))[0].t
		parts := t.Portions(turned, widths...)
		t.Release(qkv, turned)
		return parts[0], parts[1], parts[2]
	}
	var parts []*tape.Tensor
	if s.QKVSlices && !t.Compiled {
		at := int64(0)
		for _, w := range widths {
			parts = append(parts, t.Slice(qkv, -1, at, at+w))
			at += w
		}
	} else {
		parts = t.Split(qkv, widths...)
	}
	t.Release(qkv)
	q, k, v = parts[0], parts[1], parts[2]
	if b.recipe.Structure.GroupedQKV && kv != heads { // a head of the next group does not follow the last of this one
		q = b.give(q, t.Contiguous(q))
		if s.GatedAttention {
			parts[3] = b.give(parts[3], t.Contiguous(parts[3]))
		}
	}
	if b.recipe.Structure.CopiedQKV {
		if v = b.give(v, t.Contiguous(v)); !t.Compiled { // where norm or rotary embedding copies queries and keys
			q, k = b.give(q, t.Contiguous(q)), b.give(k, t.Contiguous(k))
		}
	}
	if s.GatedAttention {
		b.outputGate = parts[3]
	}
	return b.fullNorm(q, model.RoleQNorm), b.fullNorm(k, model.RoleKNorm), v
}

// projectApart makes queries, keys and values by projections of their own, and keys serve as
// values where those have none.
func (b *builder) projectApart(in *tape.Tensor, heads, kv int64) (q, k, v *tape.Tensor) {
	t, s := b.t, b.Spec
	if b.byHand(model.RoleQ, model.RoleK, model.RoleV) {
		p := b.t.AdaptedLinear(in, !b.recipe.Structure.KeptAdapters, b.adaptedOf(model.RoleQ), b.adaptedOf(model.RoleK), b.adaptedOf(model.RoleV))
		q, k = b.fullNorm(p[0], model.RoleQNorm), b.fullNorm(p[1], model.RoleKNorm)
		return b.headed(q, heads, model.RoleQNorm), b.headed(k, kv, model.RoleKNorm), b.headedValues(p[2], kv)
	}
	oneByOne := b.asTransformers() && b.has(model.RoleV) // projected and cut
	q = b.column(in, model.RoleQ)
	if s.GatedAttention && !s.GateApart { // a head's queries and its gate lie side by side
		q = b.give(q, t.Reshape(q, q.Dim(0), q.Dim(1), heads, 2*s.HeadDim))
		p := t.Split(q, s.HeadDim, s.HeadDim)
		t.Release(q)
		q, b.outputGate = p[0], b.give(p[1], t.Reshape(p[1], p[1].Dim(0), p[1].Dim(1), heads*s.HeadDim))
		if s.QKNorm != model.HeadQKNorm {
			q = b.give(q, t.Reshape(q, q.Dim(0), q.Dim(1), heads*s.HeadDim))
		}
	}
	q = b.fullNorm(q, model.RoleQNorm)
	t.Module = "attention"
	if !b.has(model.RoleK) {
		return b.borrowed(q, heads, kv)
	}
	if oneByOne {
		q = b.headed(q, heads, model.RoleQNorm)
		t.Module = "attention"
	}
	k = b.fullNorm(b.column(in, model.RoleK), model.RoleKNorm)
	t.Module = "attention"
	if oneByOne {
		k = b.headed(k, kv, model.RoleKNorm)
		t.Module = "attention"
	}
	if b.has(model.RoleV) {
		v = b.column(in, model.RoleV)
	} else {
		v = t.Hold(k)
	}
	if s.GateApart {
		b.outputGate = b.column(in, model.RoleOGate)
	}
	if !oneByOne {
		q, k = b.headed(q, heads, model.RoleQNorm), b.headed(k, kv, model.RoleKNorm)
	}
	return q, k, b.headedValues(v, kv)
}

// fullNorm norms all heads of queries or keys, which it takes over, at once where the model does.
func (b *builder) fullNorm(x *tape.Tensor, r model.Role) *tape.Tensor {
	if b.Spec.QKNorm != model.FullQKNorm {
		return x
	}
	x = b.give(x, b.norm(x, r, true))
	b.t.Module = "attention"
	return x
}

// turns reports whether a layer turns queries and keys by their positions.
func (b *builder) turns(kind model.LayerKind) bool {
	return b.Spec.Position == model.Rotary && b.Spec.RotaryDim > 0 && !kind.NoRope
}

// turnsNorms reports whether a compiler makes one kernel of the norm of a head and of what turns it: of whole
// heads, neither repeated nor borrowed from another layer.
func (b *builder) turnsNorms(kind model.LayerKind) bool {
	s := b.Spec
	heads, kv := b.heads()
	return b.t.Compiled && b.turns(kind) && s.QKNorm == model.HeadQKNorm && !s.NormTurned && s.RotaryDim == s.HeadDim && s.MLA == nil &&
		(!b.masked || kv == heads) && b.program("norm_rotary")
}

// headed cuts queries or keys, which it takes over, into heads, and norms these where the model does.
func (b *builder) headed(x *tape.Tensor, heads int64, r model.Role) *tape.Tensor {
	t, s := b.t, b.Spec
	if s.QKNorm != model.HeadQKNorm && s.QKNorm != model.EachQKNorm || s.NormTurned || b.normsTurned {
		return b.give(x, b.split(x, heads))
	}
	y := t.Reshape(x, x.Dim(0), x.Dim(1), heads, s.HeadDim)
	y = b.give(y, b.norm(y, r, true))
	return b.give(x, b.give(y, t.Transpose(y, 1, 2)))
}

// headedValues is the same of values.
func (b *builder) headedValues(v *tape.Tensor, kv int64) *tape.Tensor {
	t := b.t
	if !b.Spec.ValueNorm {
		return b.give(v, b.split(v, kv))
	}
	v = b.give(v, t.Reshape(v, v.Dim(0), v.Dim(1), kv, b.Spec.VDim))
	t.Module = "norm"
	t.Call()
	v = b.give(v, b.call("rms_norm_plain", tensorOf(v))[0].t)
	return b.give(v, t.Transpose(v, 1, 2))
}

// borrowed makes queries of their projection, which it takes over, beside keys and values
// that a layer before made.
func (b *builder) borrowed(q *tape.Tensor, heads, kv int64) (_, k, v *tape.Tensor) {
	t, s := b.t, b.Spec
	q = b.give(q, t.Reshape(q, q.Dim(0), q.Dim(1), heads, s.HeadDim))
	q = b.give(q, b.norm(q, model.RoleQNorm, true))
	t.Module = "attention"
	lend := func(width int64) *tape.Tensor {
		x := t.Lent(q.DType(), true, q.Dim(0), q.Dim(1), kv, width)
		return b.give(x, t.Transpose(x, 1, 2))
	}
	k, v = lend(s.HeadDim), lend(s.VDim)
	return b.give(q, t.Transpose(q, 1, 2)), k, v
}

// projectLists cuts queries, keys and values of each group of heads from one
// projection, keys and values by lists of indices, and gives each query head of several
// groups keys and values of its own. A single key/value head stays one.
func (b *builder) projectLists(in *tape.Tensor, heads, kv int64) (q, k, v *tape.Tensor) {
	t, d := b.t, b.Spec.HeadDim
	qkv := b.column(in, model.RoleQKV)
	batch, seq := qkv.Dim(0), qkv.Dim(1)
	qkv = b.give(qkv, t.Reshape(qkv, batch, seq, kv, heads/kv+2, d))
	q = t.Slice(qkv, 3, 0, heads/kv)
	q = b.give(q, t.Reshape(q, batch, seq, heads, d))
	take := func() *tape.Tensor {
		x, n := t.Take(qkv, 3), kv
		if kv > 1 {
			x, n = b.give(x, t.Expand(x, batch, seq, kv, heads/kv, d)), heads
		}
		x = b.give(x, t.Reshape(x, batch, seq, n, d))
		return b.give(x, t.Transpose(x, 1, 2))
	}
	k, v = take(), take()
	t.Release(qkv)
	return b.give(q, t.Transpose(q, 1, 2)), k, v
}

// documents are how many a sequence is packed of; 0: it is not.
func (b *builder) documents() int64 {
	if b.Document == 0 {
		return 0
	}
	return max(b.Sequence/b.Document, 1)
}

// latent is multi-head latent attention: low-rank queries, keys and values, and a
// rotary part that all heads of the key share. Tensor ranks project down what they have of the
// sequence, and gather that (Megatron-Core, multi_latent_attention.py, whose down projections
// are duplicated). after takes what attention makes of them.
func (b *builder) latent(in *tape.Tensor) (q, k, v *tape.Tensor, after func(made *tape.Tensor) *tape.Tensor) {
	t, m := b.t, b.Spec.MLA
	t.Joined = b.recipe.Structure.FusedRotary
	defer func() { t.Joined = false }()
	down := t.Hold(in)
	if m.QLora > 0 {
		down = b.give(down, b.linear(in, model.RoleQDown))
	}
	if !b.again(LatentProjection) {
		q, k, v = b.raise(down, nil, in)
		return q, k, v, same
	}
	kv := b.linear(in, model.RoleKVDown)
	out, after := t.Discard(func(ins []*tape.Tensor) []*tape.Tensor {
		joined := t.Joined
		t.Joined = b.recipe.Structure.FusedRotary
		q, k, v := b.raise(t.Hold(ins[0]), t.Hold(ins[1]), nil)
		t.Joined = joined
		return []*tape.Tensor{q, k, v}
	}, down, kv)
	t.Release(down, kv)
	return out[0], out[1], out[2], after
}

// raised is a column-parallel projection of a latent.
func (b *builder) raised(x *tape.Tensor, r model.Role) *tape.Tensor {
	whole := b.block(x, r)
	return b.give(whole, b.column(whole, r))
}

// raise makes queries, keys and values of their low ranks, which it takes over; that of
// keys and values it makes from the block's input where it is not there yet.
func (b *builder) raise(down, kv, in *tape.Tensor) (q, k, v *tape.Tensor) {
	t, s, m := b.t, b.Spec, b.Spec.MLA
	heads, _ := b.heads()
	if m.QLora > 0 {
		down = b.give(down, b.norm(down, model.RoleQDownNorm, false))
		t.Module = "attention"
	}
	if b.has(model.RoleIndexQ) {
		b.queryLatent = t.Hold(down)
	}
	q = b.give(down, b.raised(down, model.RoleQUp))
	q = b.give(q, b.split(q, heads))
	var qp []*tape.Tensor
	if t.Joined { // in place: only the part that turns is read and written
		still := -float64(m.Nope) / float64(m.Nope+m.Rope)
		t.Module = "rotary"
		q = b.give(q, t.Fuse(tape.Fused{Prim: b.turning("rotary"), Class: tape.FusedPointwise, DType: q.DType(), Read: still, Write: still, BackRead: still, BackWrite: still}, q)[0])
		t.Module = "attention"
	} else {
		qp = t.Split(q, m.Nope, m.Rope)
		if b.asTransformers() {
			b.frame = append(b.frame, t.Hold(q))
		}
		t.Release(q)
	}
	if kv == nil {
		kv = b.linear(in, model.RoleKVDown)
	}
	kvp := t.Split(kv, m.KVLora, m.Rope)
	t.Release(kv)
	c := b.give(kvp[0], b.norm(kvp[0], model.RoleKVDownNorm, false))
	t.Module = "attention"
	up := b.give(c, b.raised(c, model.RoleKVUp))
	up = b.give(up, b.split(up, heads))
	upp := t.Split(up, m.Nope, s.VDim)
	t.Release(up)
	kr := b.give(kvp[1], b.wholeSequence(kvp[1]))
	kr = b.give(kr, b.split(kr, 1))
	kr = b.give(kr, b.rotary(kr, m.Rope))
	kr = b.give(kr, t.Expand(kr, kr.Dim(0), heads, kr.Dim(2), m.Rope))
	if qp != nil {
		qr := b.give(qp[1], b.rotary(qp[1], m.Rope))
		t.Module = "attention"
		q = t.Concat(qp[0], qr)
		t.Release(qp[0], qr)
	}
	t.Module = "attention"
	if s.KeysCopied && !t.Compiled && qp != nil && b.program("rotary_pair_parts") {
		k = t.Refill(3, upp[0], kr)
	} else {
		k = t.Concat(upp[0], kr)
	}
	t.Release(upp[0], kr)
	return q, k, upp[1]
}

// sharesMask reports whether one mask is made for all layers: a compiler that sees all of them
// sees that they need the same one.
func (b *builder) sharesMask() bool {
	return b.recipe.Structure.Compiled && b.recipe.Structure.ExplicitMask && b.Attention == "sdpa" && !b.headMasks() && !b.LayerGraphs
}

// headMasks reports whether all layers read one mask of every head, whatever implementation of attention they call.
func (b *builder) headMasks() bool {
	s := &b.recipe.Structure
	return b.Spec.HeadMasks && (s.Transformers || s.ExplicitMask)
}

// flavour is the implementation of the attention law that runs without a mask.
func (b *builder) flavour() string {
	if b.Attention == "sdpa" {
		return b.sdpaFlavour(b.SDPA)
	}
	return b.recipe.Flavour(b.Attention)
}

// sdpaFlavour is that of PyTorch's attention, of whose kernels one takes fp32: the law's own.
func (b *builder) sdpaFlavour(flavour string) string {
	if b.Precision.Compute.DType == tape.F32 {
		return ""
	}
	return flavour
}

// efficient reports whether a flavour of PyTorch's attention is that of its memory-efficient kernels, which alone take fp32.
func (b *builder) efficient(flavour string) bool {
	return b.Attention == "sdpa" && (b.Precision.Compute.DType == tape.F32 || flavour != "" && flavour == b.Efficient)
}

// core is softmax(q·kᵀ)·v by the chosen implementation.
func (b *builder) core(q, k, v *tape.Tensor, kind model.LayerKind) *tape.Tensor {
	t, s := b.t, b.Spec
	rescales := s.Sinks && b.Attention != "unfused" && b.program("sinks")
	o := tape.AttentionOptions{Causal: !s.Bidirectional && !b.crosses, Dropout: b.dropouts.attention, Sinks: s.Sinks && !rescales && b.Attention == "flash", Flavour: b.flavour()}
	o.Accumulates = b.Attention == "flash-attn-3" || b.Attention == "flash-attn-4"
	o.Direct = b.Attention == "flex"
	if o.Narrow = b.Precision.AttentionCasts(); o.Narrow.Copies > 0 {
		o.Flavour = b.Precision.Attention.String()
	}
	if kind.Windowed {
		o.Window = s.Window
	}
	if b.Attention != "sdpa" { // which computes all pairs, masked
		o.Apart = b.documents()
	}
	if b.recipe.Structure.RepeatHeads {
		k, v = b.repeat(k, q.Dim(1)), b.repeat(v, q.Dim(1))
		defer t.Release(k, v)
	}
	if b.Shard.CPHeads {
		t.Tiny("positions", b.recipe.Structure.TradeKernels)
		q, k, v = b.toHeads(q, o.Narrow), b.toHeads(k, o.Narrow), b.toHeads(v, o.Narrow)
		q, k, v = b.give(q, b.documentChunks(q, false)), b.give(k, b.documentChunks(k, false)), b.give(v, b.documentChunks(v, false))
		defer t.Release(q, k, v)
	}
	if b.batchFirst() {
		q, k, v = b.swapped(q), b.swapped(k), b.swapped(v)
		defer t.Release(q, k, v)
	}
	if b.unpads() {
		return b.unpadded(q, k, v, o)
	}
	y := b.attend(q, k, v, o)
	if b.batchFirst() {
		y = b.give(y, b.copied(y))
	}
	if rescales {
		y = b.give(y, b.rescaled(y))
	}
	if b.Shard.CPHeads {
		y = b.give(y, b.documentChunks(y, true))
		y = b.give(y, b.fromHeads(y, o.Narrow))
	}
	return y
}

// rescaled is attention's output y, [batch, heads, sequence, width], with a share of each row for the
// head's sink, which the kernel knows nothing of: by the logarithm of the row's sum of scores, one fp32 value.
func (b *builder) rescaled(y *tape.Tensor) *tape.Tensor {
	t := b.t
	sums := t.Outside(tape.F32, y.Dim(0), y.Dim(1), y.Dim(2), 1)
	sinks := t.Reshape(b.p(model.RoleSinks), 1, y.Dim(1), 1, 1)
	s := t.Sub(sums, sinks)
	t.Release(sums, sinks)
	z := b.call("sinks", tensorOf(y), tensorOf(s))[0].t
	t.Release(s)
	return z
}

// batchFirst reports whether attention takes heads batch by batch that lie sequence first.
func (b *builder) batchFirst() bool {
	return b.recipe.Structure.FlashBatches && b.Attention != "unfused"
}

// swapped is x [batch, heads, sequence, width] with the other of batch and sequence first: a
// copy of several sequences, and of what lies in a larger tensor.
func (b *builder) swapped(x *tape.Tensor) *tape.Tensor {
	y := b.t.Transpose(x, 0, 2)
	y = b.give(y, b.copied(y))
	return b.give(y, b.t.Transpose(y, 0, 2))
}

// copied is x [a, heads, b, width] as it lies when its dimensions are a, b, heads and width.
func (b *builder) copied(x *tape.Tensor) *tape.Tensor {
	y := b.t.Transpose(x, 1, 2)
	y = b.give(y, b.t.Contiguous(y))
	return b.give(y, b.t.Transpose(y, 1, 2))
}

// attend is core of what is there of heads and positions.
func (b *builder) attend(q, k, v *tape.Tensor, o tape.AttentionOptions) *tape.Tensor {
	t, s := b.t, b.Spec
	if b.recipe.Structure.CopiesValues && b.Attention == "flash" && k.Store() != v.Store() && t.Part(v) {
		v = t.Transpose(v, 1, 2) // as it lies in the projection
		v = b.give(v, t.Contiguous(v))
		v = b.give(v, t.Transpose(v, 1, 2))
		defer t.Release(v)
	}
	if s.Position == model.RelativeBias && !b.crosses {
		return b.biased(q, k, v)
	}
	sent, back := b.narrowed(o.Narrow)
	written := b.writtenOut(q, k)
	fused := !b.masked && b.Attention != "unfused" && !(s.KVLists && b.Attention == "sdpa") && !written
	if cp := b.ringRanks(); cp > 1 && fused {
		o.Ring = b.ring(q, k)
		o.Ring.Sent, o.Ring.Back = sent, back
	} else if cp > 1 { // scores of all keys at once
		c := tape.CommSpec{Group: "cp", Ranks: cp, Dim: 2, Forward: "all-gather", Backward: "reduce-scatter", Grow: true}
		k, v = t.Communicate(c, k), t.Communicate(c, v)
		defer t.Release(k, v)
	}
	if b.Attention == "unfused" {
		return b.unfused(q, k, v)
	}
	if written {
		name := "attention_math"
		if !b.recipe.Structure.MathWidens {
			name = "attention_math_narrow"
		}
		return t.Lowered(func(x []*tape.Tensor) *tape.Tensor {
			return b.call(name, tensorOf(x[0]), tensorOf(x[1]), tensorOf(x[2]))[0].t
		}, q, k, v)
	}
	wide := b.Attention == "sdpa" && (max(s.HeadDim, s.VDim) > FlashHead || o.Flavour == "flash" && s.HeadDim != s.VDim) // sdp_utils_cpp.h, check_head_dim_size_flash
	if wide {
		o.Flavour = b.Efficient
	}
	if b.masked {
		o.Masked, o.Shared = true, b.sharesMask()
		switch {
		case b.crosses && s.Position == model.RelativeBias:
			o.Mask = t.Outside(b.compute(), 1, q.Dim(1), q.Dim(2), k.Dim(2))
			if b.toldPadding() > 0 {
				o.Mask = b.give(o.Mask, t.MaskedBiases(o.Mask, b.keyPadding(q, k)))
				defer t.Release(o.Mask)
			}
		case b.headMasks():
			o.Mask = t.Outside(b.hidden, q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2))
		case b.masksPairs() && b.recipe.Structure.AdditiveMask:
			o.Mask = t.Outside(b.hidden, q.Dim(0), 1, q.Dim(2), k.Dim(2))
		}
		o.Flavour = b.sdpaFlavour(b.MaskedSDPA)
	}
	o.Efficient = b.efficient(o.Flavour)
	if wide || b.masked || b.repeatsHeads() { // each rules out shared heads
		k, v = b.repeat(k, q.Dim(1)), b.repeat(v, q.Dim(1))
		defer t.Release(k, v)
	}
	if b.program("attention_layout") {
		laid := b.call("attention_layout", tensorOf(q), tensorOf(k), tensorOf(v))
		q, k, v = laid[0].t, laid[1].t, laid[2].t
		defer t.Release(q, k, v)
	}
	return t.Attention(q, k, v, o)
}

// repeatsHeads reports whether transformers repeats keys and values for PyTorch's attention, with a mask or without.
func (b *builder) repeatsHeads() bool {
	s := &b.recipe.Structure
	return b.Attention == "sdpa" && s.Transformers && !s.Compiled && !s.SharesHeads
}

// writtenOut reports whether PyTorch's attention of q and k writes out the scores: where it is asked
// to, and as no fused kernel of it broadcasts heads unasked, nor each of them when it is asked.
func (b *builder) writtenOut(q, k *tape.Tensor) bool {
	return b.Attention == "math" || b.Attention == "sdpa" && k.Dim(1) != q.Dim(1) && !b.masked && (b.Spec.KVLists && !b.t.Compiled || b.HeadsApart) && b.program("attention_math")
}

// unfused is attention whose scores are a tensor, by the program of the recipe that fits the model.
func (b *builder) unfused(q, k, v *tape.Tensor) *tape.Tensor {
	t, s := b.t, b.Spec
	k, v = b.repeat(k, q.Dim(1)), b.repeat(v, q.Dim(1))
	defer t.Release(k, v)
	program := "attention_unfused"
	switch own := program + "_" + s.ModelType; {
	case !t.Compiled && b.program(own):
		program = own
	case s.NarrowSoftmax && !t.Compiled && b.program("attention_narrow"):
		program = "attention_narrow"
	case b.headMasks() && !t.Compiled && b.program("attention_head_masks"):
		program = "attention_head_masks"
	case s.AttnSoftcap && b.program("attention_capped"):
		program = "attention_capped"
	case s.Sinks && !t.Compiled && b.program("attention_sinks"):
		program = "attention_sinks"
	case b.AsTheyAre && !t.Compiled:
		program = "attention_as_is"
	case b.recipe.Structure.PlainLayers:
		program = "attention_plain"
	case !b.fusedSoftmax(q, k):
		program = "attention_unaligned"
	case b.recipe.Structure.CausalSoftmax:
		program = "attention_causal"
	}
	return b.call(program, tensorOf(q), tensorOf(k), tensorOf(v))[0].t
}

// FlashHead is the width of the widest heads that flash attention and cuDNN take
// (flash_attn_interface.py; cuDNN's scaled dot product attention); PyTorch's
// memory-efficient kernel takes wider ones.
const FlashHead = 256

// fusedSoftmax reports whether the recipe's kernel for masked softmax takes the scores of q and k.
func (b *builder) fusedSoftmax(q, k *tape.Tensor) bool {
	r := &b.recipe.Structure
	return (r.SoftmaxHeads == 0 || q.Dim(0)*q.Dim(1)%r.SoftmaxHeads == 0) && (r.SoftmaxKeys == 0 || k.Dim(2) <= r.SoftmaxKeys)
}

// repeat copies key or value heads so that each query head has its own.
func (b *builder) repeat(x *tape.Tensor, heads int64) *tape.Tensor {
	t := b.t
	kv := x.Dim(1)
	if kv == heads {
		return t.Hold(x)
	}
	if b.program("repeat_heads") {
		return b.call("repeat_heads", tensorOf(x), numberOf(float64(heads)))[0].t
	}
	y := t.Reshape(x, x.Dim(0), kv, 1, x.Dim(2), x.Dim(3))
	y = b.give(y, t.Expand(y, x.Dim(0), kv, heads/kv, x.Dim(2), x.Dim(3)))
	return b.give(y, t.Reshape(y, x.Dim(0), heads, x.Dim(2), x.Dim(3)))
}
