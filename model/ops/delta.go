package ops

import (
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// delta runs a gated delta net on the normed input h, which it borrows.
func (b *builder) delta(h *tape.Tensor) *tape.Tensor {
	t := b.t
	in := b.mixerInput(h, "delta", "a gated delta net")
	var y *tape.Tensor
	if b.recipe.Structure.Mixers == WholeMixer {
		y = b.deltaEager(in)
	} else {
		y = b.deltaApart(in)
	}
	t.Module = "delta"
	z := b.row(y, model.RoleDeltaOut)
	t.Release(y)
	return z
}

// deltaShape is the problem on this rank, whose sequences are packed documents where they are.
func (b *builder) deltaShape(ranks int64) tape.DeltaShape {
	m := b.Spec.Delta
	s := tape.DeltaShape{Batch: b.MicroBatch, Sequence: b.Sequence, Heads: ceilDiv(m.ValueHeads, ranks), KeyDim: m.KeyDim, ValueDim: m.ValueDim}
	if n := b.documents(); n > 1 {
		s.Batch, s.Sequence = s.Batch*n, ceilDiv(s.Sequence, n)
	}
	return s
}

// deltaEager runs it as transformers does (modeling_qwen3_next.py, modeling_qwen3_5.py).
func (b *builder) deltaEager(in *tape.Tensor) *tape.Tensor {
	t, m := b.t, b.Spec.Delta
	batch, seq := b.MicroBatch, b.Sequence
	keys, values := m.Keys(), m.Values()
	var mixed, gate, strength, decay *tape.Tensor
	if b.has(model.RoleDeltaQKVZ) { // what belongs to a key head lies side by side
		qkvz, ba := b.column(in, model.RoleDeltaQKVZ), b.column(in, model.RoleDeltaBA)
		qkvz = b.give(qkvz, t.Reshape(qkvz, batch, seq, m.KeyHeads, 2*m.KeyDim+2*values/m.KeyHeads))
		ba = b.give(ba, t.Reshape(ba, batch, seq, m.KeyHeads, 2*m.ValueHeads/m.KeyHeads))
		p := t.Split(qkvz, m.KeyDim, m.KeyDim, values/m.KeyHeads, values/m.KeyHeads)
		q := t.Split(ba, m.ValueHeads/m.KeyHeads, m.ValueHeads/m.KeyHeads)
		t.Release(qkvz, ba)
		flat := func(x *tape.Tensor, width int64) *tape.Tensor { return b.give(x, t.Reshape(x, batch, seq, width)) }
		v := flat(p[2], values)
		gate = flat(p[3], values)
		strength, decay = flat(q[0], m.ValueHeads), flat(q[1], m.ValueHeads)
		k0, k1 := flat(p[0], keys), flat(p[1], keys)
		mixed = t.Concat(k0, k1, v)
		t.Release(k0, k1, v)
	} else {
		mixed, gate = b.column(in, model.RoleDeltaQKV), b.column(in, model.RoleDeltaZ)
		strength, decay = b.column(in, model.RoleDeltaB), b.column(in, model.RoleDeltaA)
	}
	t.Release(in)
	t.Module = "delta"
	mixed = b.give(mixed, t.Convolve(mixed, b.p(model.RoleDeltaConv), false))
	p := t.Split(mixed, keys, keys, values)
	t.Release(mixed)
	g := b.call("delta_gates", tensorOf(strength), tensorOf(decay), tensorOf(b.p(model.RoleDeltaDecay)), tensorOf(b.p(model.RoleDeltaStep)))
	t.Release(strength, decay)
	repeats := m.ValueHeads / m.KeyHeads
	for i, heads := range []int64{m.KeyHeads, m.KeyHeads, m.ValueHeads} {
		p[i] = b.give(p[i], t.Reshape(p[i], batch, seq, heads, p[i].Dim(-1)/heads))
		if i < 2 && repeats > 1 { // repeat_interleave
			p[i] = b.give(p[i], t.Reshape(p[i], batch, seq, heads, 1, m.KeyDim))
			p[i] = b.give(p[i], t.Expand(p[i], batch, seq, heads, repeats, m.KeyDim))
			p[i] = b.give(p[i], t.Reshape(p[i], batch, seq, m.ValueHeads, m.KeyDim))
		}
	}
	s := b.deltaShape(1)
	s.Unnormed, s.Strided = true, true
	y := t.Delta(p[0], p[1], p[2], g[0].t, g[1].t, s)
	t.Release(p...)
	t.Release(g[0].t, g[1].t)
	rows := batch * seq * m.ValueHeads
	y = b.give(y, t.Reshape(y, rows, m.ValueDim))
	gate = b.give(gate, t.Reshape(gate, rows, m.ValueDim))
	y = b.give(y, b.deltaNorm(y, gate))
	return b.give(y, t.Reshape(y, batch, seq, values))
}

// deltaNorm normalises each head and multiplies it by its gate, which it takes over.
func (b *builder) deltaNorm(y, gate *tape.Tensor) *tape.Tensor {
	b.t.Call()
	z := b.call("delta_norm", tensorOf(y), tensorOf(gate), tensorOf(b.p(model.RoleDeltaNorm)))[0].t
	b.t.Release(gate)
	b.t.Module = "delta"
	return z
}

// deltaApart runs it as Megatron-Core does (megatron/core/ssm/gated_delta_net): one
// projection, cut over tensor ranks by heads and over context ranks by heads for positions.
func (b *builder) deltaApart(in *tape.Tensor) *tape.Tensor {
	t, m := b.t, b.Spec.Delta
	tp, cp := max(b.Shard.TP, 1), max(b.Shard.CP, 1)
	if b.documents() > 0 { // the host asks for the last end and the lengths of queries' and of keys' documents, and whether they are the same (_resolve_cu_seqlens, gdn.py)
		for range 2 + 2 + 1 {
			t.Wait()
		}
	}
	x := b.column(in, model.RoleDeltaIn)
	t.Release(in)
	t.Module = "delta"
	if cp > 1 {
		keys, values, heads := m.Keys()/tp, m.Values()/tp, m.ValueHeads/tp
		x = b.give(x, b.headsOf(x, cp, channels{keys, 1}, channels{keys, 1}, channels{values, 1}, channels{values, 1}, channels{heads, 1}, channels{heads, 1}))
	}
	ranks := tp * cp
	heads := ceilDiv(m.ValueHeads, ranks)
	keys, values := ceilDiv(m.KeyHeads, ranks)*m.KeyDim, heads*m.ValueDim
	p := t.Split(x, 2*keys+values, values, heads, heads)
	t.Release(x)
	mixed := t.Convolve(p[0], b.p(model.RoleDeltaConv), true)
	t.Release(p[0])
	batch, seq := mixed.Dim(0), mixed.Dim(1)
	s := b.deltaShape(ranks)
	parts := t.DeltaInputs(mixed, p[1], p[2], p[3], b.p(model.RoleDeltaDecay), b.p(model.RoleDeltaStep), 2*keys, s)
	t.Release(mixed)
	t.Release(p[1:]...)
	y := t.Delta(parts[0], parts[1], parts[2], parts[3], parts[4], s)
	t.Release(parts[:5]...)
	y = b.give(y, t.Reshape(y, batch*seq*heads, m.ValueDim))
	gate := t.Reshape(parts[5], batch*seq*heads, m.ValueDim)
	t.Release(parts[5])
	y = b.give(y, b.deltaNorm(y, gate))
	y = b.give(y, t.Reshape(y, batch, seq, values))
	y = b.give(y, b.sequencesFirst(y))
	if cp > 1 {
		y = b.give(y, b.positionsOf(y, cp))
	}
	return y
}
