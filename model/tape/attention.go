package tape

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// AttentionOptions are the choices of a fused attention call.
type AttentionOptions struct {
	Causal      bool
	Window      int64
	Masked      bool    // an explicit mask tensor is read
	Shared      bool    // it was made once for all layers (Tape.AttentionMask), not for this call
	Mask        *Tensor // it is this one of every head, made before; nil: all heads share one
	Dropout     float64 // probability inside the kernel
	Sinks       bool    // each head has one that is learned
	Flavour     string
	Efficient   bool      // by PyTorch's memory-efficient kernels, which sum up rows in fp32 alone beforehand and convert nothing afterwards
	Accumulates bool      // gradients of keys and values that heads share are added up in fp32 (FlashAttention 3 and 4: hopper/flash_api.cpp and flash_attn/cute/interface.py, dk_accum)
	Direct      bool      // gradients are written once and in their own dtype, those that heads share, too (FlexAttention: torch/_inductor/kernel/flex)
	Narrow      Narrowing // the kernels read q, k, v and the gradient so; without copies as they are
	Ring        Ring
	Apart       int64 // documents of a sequence, which do not see one another; 0: it is one
	Calls       int64 // the parts of a sequence that kernels of their own take, one after the other; 0: one takes it whole
}

// prim is the name of a kernel, which hosts tell apart.
func (o *AttentionOptions) prim(name string) string {
	if o.Direct {
		return "flex_" + name
	}
	return name
}

// Narrowing is how what attention reads is cast.
type Narrowing struct {
	Copies int64   // 2 where scales are of blocks, along either axis; 0: none
	DType  DType   // of each
	Read   float64 // what a cast costs, in readings of its input beside writing the copies
}

// Ring is attention over context-parallel ranks, each of which keeps the keys and values
// of its positions and sees those of the others pass by: around the ring once forward,
// and once more with their gradients backward.
type Ring struct {
	Ranks   int64   // 0: no ring
	Blocks  int64   // keys and values of so many ranks are held at once going forward
	Again   int64   // and backward
	Wide    bool    // gradients go around in fp32
	Returns bool    // and from the last rank back to the one they belong to
	Joins   bool    // keys and values are joined in a tensor of their own, which is kept
	Sent    float64 // of the bytes of keys and values, what goes around; 0: as much
	Back    float64 // the same of their gradients
	Kept    int64   // keys and values of all ranks stay for the backward pass, which gathers none, with so many tensors as large as the keys; 0: gathered again
	// What is moved beside the attention kernels and the exchange to put the steps
	// together, in passes over the output, and by how many kernels.
	Merge, MergeBack         float64
	MergeKernels, BackMerges int
}

// Attention is a fused kernel on q [b, heads, s, d], k and v [b, kvHeads, s, d].
// It saves q, k, v, the output and one fp32 per row; its gradient recomputes
// the scores (2.5 times the forward FLOPs), with small kernels before (row dot
// products) and after (fp32 dQ to 16 bits), and one per key and value when
// heads share them. In a ring k and v are those of one rank, and the kernels stand for
// all its steps.
func (t *Tape) Attention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	vl := t.low(v)
	kl := t.low(k)
	ql := t.low(q)
	kept := t.narrowed(o.Narrow, kl, ql, vl)
	t.begin()
	b, heads, sq, d := ql.Dim(0), ql.Dim(1), ql.Dim(2), ql.Dim(3)
	kv, sk, dv := kl.Dim(1), kl.Dim(2)*max(o.Ring.Ranks, 1), vl.Dim(3)
	apart, calls := max(o.Apart, 1), max(o.Calls, 1)
	shape := AttentionShape{Batch: b * apart, Heads: heads, KVHeads: kv, Queries: sq / apart / calls, Keys: sk / apart / calls, QKDim: d, VDim: dv,
		Causal: o.Causal, Window: o.Window, Masked: o.Masked, Dropout: o.Dropout > 0, Sinks: o.Sinks, Flavour: o.Flavour}
	var bias *Tensor
	seen := (kl.bytes() + vl.bytes()) * units.Bytes(max(o.Ring.Ranks, 1))
	y := t.meta(ql.dtype, []int64{b, heads, sq, dv})
	y.permuteLike(ql) // same memory order as the queries
	stats := t.produce(true, t.meta(F32, []int64{b, heads, sq, 1}), func(*Tensor) {})
	io := ql.bytes() + seen + y.bytes()
	var gathered *Tensor
	if n := o.Ring.Kept; n > 0 {
		gathered = t.produce(true, t.meta(kl.dtype, []int64{o.Ring.Ranks*(kl.Size()+vl.Size()) + n*kl.Size()}), func(*Tensor) { t.exchange(o.Ring, kl, vl, false) })
	}
	y = t.produce(true, y, func(y *Tensor) {
		if o.Mask != nil {
			bias = t.low(o.Mask)
			io += bias.bytes()
		} else if o.Masked && o.Shared {
			io += units.Bytes(b*sq*sk) * ql.dtype.Size()
		} else if o.Masked { // the boolean mask becomes an additive one for every call
			bias = t.AttentionMask(ql.dtype, b, sq, sk)
			io += bias.bytes()
		}
		if o.Ring.Kept == 0 {
			t.exchange(o.Ring, kl, vl, false)
		}
		t.called(o.Calls, Op{Prim: "memset", Class: Vectorized, Elements: 1})
		t.attends(o, Op{Prim: o.prim("attention"), Class: Attention, DType: ql.dtype, Attn: &shape, Elements: float64(y.Size()), Bytes: io + stats.bytes()})
		t.merge("ring_merge", y, o.Ring.Merge, o.Ring.MergeKernels)
	})
	saved := append(slices.Clone(kept), stats, y, bias, gathered)
	var joined *Tensor
	if o.Ring.Joins {
		joined = t.empty(kl.dtype, kl.Size()+vl.Size())
		saved = []*Tensor{ql, joined, y, stats, bias}
	}
	ins := []*Tensor{ql, kl, vl}
	t.attach(ins, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		back := shape
		back.Backward = true
		t.Release(t.narrowed(o.Narrow, g[0])...)
		grads := make([]*Tensor, len(ins))
		for i, x := range ins {
			grads[i] = t.like(x) // dense, whatever they are slices of (empty_like)
		}
		t.exchange(o.Ring, kl, vl, true)
		t.merge("ring_merge_backward", y, o.Ring.MergeBack, o.Ring.BackMerges)
		rows := units.Bytes(b * heads * sq)
		dq32 := rows * units.Bytes(d) * 4
		if o.Direct {
			dq32 = 0
		}
		held := dq32 + rows*4
		switch shared := units.Bytes(b * kl.Dim(2) * (d + dv)); { // gradients of keys and values that heads share
		case heads == kv || o.Direct:
		case o.Accumulates:
			held += shared * units.Bytes(kv) * 4
		default: // for each, before they are summed: 33,685,760 bytes in all, 512 tokens of two sequences, 32 and 16 heads of 128 (a snapshot of an H100)
			held += shared * units.Bytes(heads) * ql.dtype.Size()
		}
		t.scratch(held)
		t.called(o.Calls, Op{Prim: "memset", Class: Vectorized, Elements: 1})
		if o.Efficient {
			t.beforeEfficient(o, y, &shape, dq32)
		} else {
			t.attends(o, Op{Prim: "attention_dot", Class: FusedReduce, DType: ql.dtype, Elements: float64(y.Size()), Bytes: 2*rows*units.Bytes(dv)*ql.dtype.Size() + dq32})
		}
		t.attends(o, Op{Prim: o.prim("attention_backward"), Class: Attention, DType: ql.dtype, Attn: &back, Elements: float64(y.Size()), Bytes: 2*io + dq32})
		if !o.Efficient && !o.Direct {
			t.attends(o, Op{Prim: "attention_convert", Class: FusedReduce, DType: ql.dtype, Elements: float64(ql.Size()), Bytes: dq32 + ql.bytes()})
		}
		if heads != kv && !o.Direct {
			for _, x := range grads[1:] { // of keys and values
				passes := max(o.Ring.Ranks, 1)
				narrow := x.bytes() * units.Bytes(passes)
				t.emit(Op{Prim: "attention_reduce_heads", Class: FusedReduce, DType: ql.dtype, Elements: float64(passes * x.Size()), Bytes: narrow * units.Bytes(1+heads/kv)})
			}
		}
		var r []*Tensor
		for i, x := range ins {
			if x.grad {
				r = append(r, grads[i])
			} else {
				t.Release(grads[i])
			}
		}
		return r
	})
	t.Release(stats, bias, joined, gathered)
	t.Release(kept...)
	t.Release(vl, kl, ql)
	return y
}

// merge emits what puts the steps of a ring together, whose output is y.
func (t *Tape) merge(prim string, y *Tensor, passes float64, kernels int) {
	for range kernels {
		t.emit(Op{Prim: prim, Class: FusedPointwise, DType: y.dtype, Elements: float64(y.Size()), N: y.Dim(-1), Bytes: units.Bytes(passes) * y.bytes() / units.Bytes(kernels)})
	}
}

// exchange emits one turn of keys k and values v, whose gradients go with them on the
// way back.
func (t *Tape) exchange(r Ring, k, v *Tensor, back bool) {
	if r.Ranks == 0 {
		return
	}
	own := k.bytes() + v.bytes()
	grads := own
	if r.Sent > 0 {
		own, grads = own*units.Bytes(r.Sent), own*units.Bytes(r.Back)
	}
	bytes, held := own, units.Bytes(r.Blocks)*own
	if back {
		held = units.Bytes(r.Again) * own
	}
	if r.Kept > 0 { // in a tensor that stays
		held = 0
		if back {
			bytes = 0
		}
	}
	if back {
		if r.Wide {
			grads *= F32.Size() / k.dtype.Size()
		}
		held += 2 * grads
		if r.Returns {
			grads *= units.Bytes(r.Ranks) / units.Bytes(r.Ranks-1)
		}
		bytes += grads
	}
	t.scratch(held)
	t.emit(Op{Prim: "all-gather", Class: Collective, DType: k.dtype, Elements: float64(r.Ranks * (k.Size() + v.Size())),
		Comm: &Comm{Kind: "all-gather", Group: "cp", Bytes: bytes * units.Bytes(r.Ranks), Ring: true}})
}

// beforeEfficient is what runs before the gradient's kernel of PyTorch's memory-efficient attention: in fp32 the row
// sums of output times gradient, which in 16 bits the kernel makes itself, and zeros in fp32 sums of the queries'
// gradient that blocks of keys add to (aten/native/transformers/cuda/attention_backward.cu,
// _efficient_attention_backward, with its rule for when one block sees all keys).
func (t *Tape) beforeEfficient(o AttentionOptions, y *Tensor, s *AttentionShape, sums units.Bytes) {
	if y.dtype == F32 {
		t.attends(o, Op{Prim: "attention_product", Class: Vectorized, DType: F32, Elements: float64(y.Size()), Bytes: 3 * y.bytes()})
		t.attends(o, Op{Prim: "attention_sum", Class: RowReduce, DType: F32, N: s.VDim, Elements: float64(y.Size()), Bytes: y.bytes() + y.bytes()/units.Bytes(s.VDim)})
	}
	block := int64(64)
	if s.QKDim > 64 {
		block = 128
	}
	if s.Keys > 2*block || s.Keys > block && s.Batch*s.Heads < 256 {
		t.attends(o, Op{Prim: "attention_zero", Class: Fill, DType: F32, Elements: float64(sums / 4), Bytes: sums})
	}
}

// attends emits a kernel of attention: one for each call or for each step of a ring. In
// that, a rank's queries see their own keys as alone, and half of the pairs with those of
// every other rank: all queries half the keys of an earlier one, half the queries all keys
// of a later one, since each rank has a piece from the start of the sequence and its
// counterpart from the end.
func (t *Tape) attends(o AttentionOptions, k Op) {
	n := o.Ring.Ranks
	if n < 2 || !o.Causal || o.Masked || o.Window > 0 {
		if k.Attn != nil {
			k.FLOPs = k.Attn.FLOPs()
		}
		t.called(o.Calls, k)
		return
	}
	if k.Attn == nil {
		rows := 1 + 0.75*float64(n-1) // of the queries: three quarters on average
		k.Elements, k.Bytes = k.Elements*rows, k.Bytes*units.Bytes(rows)
		t.called(n, k)
		return
	}
	own, other := *k.Attn, *k.Attn
	own.Keys /= n
	other.Keys, other.Causal = max(own.Keys/2, 1), false
	k.Elements, k.Bytes = k.Elements/float64(n), k.Bytes/units.Bytes(n)
	k.Attn, k.FLOPs = &own, own.FLOPs()
	t.emit(k)
	// What is asked before the first one is not asked again.
	k.Prim, k.Attn, k.FLOPs, k.Count = k.Prim+"_step", &other, other.FLOPs()*units.FLOPs(n-1), int32(n-1)
	t.emit(k)
}

// called emits an op that n kernels of their own share, which the host calls one by one; 0: one.
func (t *Tape) called(n int64, o Op) {
	if n > 1 {
		o.Count, o.Elements, o.Bytes, o.FLOPs = int32(n), o.Elements/float64(n), o.Bytes/units.Bytes(n), o.FLOPs*units.FLOPs(n)
	}
	t.emit(o)
}

// narrowed casts what fused attention reads, with two kernels that lay out the scales of
// either of two copies. Without copies it returns the tensors themselves.
func (t *Tape) narrowed(to Narrowing, tensors ...*Tensor) []*Tensor {
	kept := make([]*Tensor, len(tensors))
	for i, x := range tensors {
		if to.Copies == 0 {
			kept[i] = t.Hold(x)
			continue
		}
		kept[i] = t.empty(to.DType, to.Copies*x.Size())
		t.narrow(x, to)
	}
	if to.Copies > 1 {
		t.Tiny("scales", int(2*to.Copies))
	}
	return kept
}

// AttentionMask makes the additive mask of a batch from a boolean one.
func (t *Tape) AttentionMask(d DType, batch, queries, keys int64) *Tensor {
	m := t.empty(d, batch, 1, queries, keys)
	t.emit(Op{Prim: "attention_mask", Class: Strided2, DType: d, Elements: float64(m.Size()), Index: 6, Bytes: m.bytes() * 3 / 2})
	return m
}

// MaskOf makes the additive mask of one causal call from nothing but its shape.
func (t *Tape) MaskOf(d DType, queries, keys int64) *Tensor {
	m := t.empty(d, queries, keys)
	t.emit(Op{Prim: "attention_mask", Class: Strided2, DType: d, Elements: float64(m.Size()), Index: 4, Bytes: m.bytes() * 3 / 2})
	return m
}

// headMaskKernels are those of a mask of pairs of positions that all heads share, from one of positions
// (modeling_baichuan.py of 13B: product, comparison, tril, difference, comparison, product, difference, cast, masked_fill).
const headMaskKernels = 9

// HeadMasks makes the additive mask of every head of a batch, as the sum of one of positions and of slopes,
// which are there since the first step.
func (t *Tape) HeadMasks(d DType, batch, heads, queries, keys int64) (slopes, mask *Tensor) {
	slopes = t.empty(d, 1, heads, queries, keys)
	seen := t.empty(d, batch, 1, queries, keys)
	for range headMaskKernels {
		t.kernel("mask", seen, seen)
	}
	mask = t.empty(d, batch, heads, queries, keys)
	t.kernel("add", mask, seen, slopes)
	t.Release(seen)
	return slopes, mask
}

// ChunkIndices makes the indices of parts of packed documents by which a copy of x orders
// them, part by part, where their bounds are computed on the device and read back: four
// kernels of arithmetic before context ranks exchange x and eight after it, which the host
// takes longer to launch than the device to run and which are part of its cost here, one for
// the indices and two waits (Transformer Engine before 2.18). The gradient goes the other way.
func (t *Tape) ChunkIndices(x *Tensor, before bool, parts int) *Tensor {
	indices := func(t *Tape, before bool) {
		prim := "chunk_indices"
		if before {
			prim = "chunk_bounds"
		}
		for range parts {
			t.Tiny(prim, 1)
			t.Wait()
			t.Wait()
		}
	}
	indices(t, before)
	z := t.view(x)
	t.attachOne(x, z, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		indices(t, !before)
		return t.Hold(g)
	})
	return z
}

// Pairs is the number of query-key pairs of one head of one sequence that are
// computed: all, the causal half with the diagonal, or those inside a window, which
// lies around a query where attention goes both ways, or picked. Fewer
// queries than keys are the share of one context-parallel rank, which holds as many
// early as late positions, so that all ranks compute the same.
func (a *AttentionShape) Pairs() float64 {
	q, k, w := float64(a.Queries), float64(a.Keys), float64(max(a.Window, a.Picked))
	everything := w <= 0 || w >= k
	switch {
	case a.Masked || !a.Causal && everything:
		return q * k
	case !a.Causal:
		return w*q - w*w/4*q/k // half of the window on either side
	case everything:
		return q * (k + 1) / 2 // query i sees the keys up to its own position
	}
	return w*q - w*(w-1)/2*q/k
}

// FLOPs is the arithmetic of the kernel: two GEMMs forward, five backward, over
// the computed pairs.
func (a *AttentionShape) FLOPs() units.FLOPs {
	f := 2 * float64(a.Batch*a.Heads) * a.Pairs() * float64(a.QKDim+a.VDim)
	if a.Backward {
		f *= 2.5
	}
	return units.FLOPs(f)
}
