package tape

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
)

// SparseOptions say how attention to picked keys runs.
type SparseOptions struct {
	TopK   int64   // keys that a query sees at most
	Window int64   // and of those before it, which come first among the keys; 0: none
	Ratio  int64   // tokens that each key after them stands for
	Sink   *Tensor // learned by each head; nil: none is
	Values int64   // width of values, which are the first elements of keys
	Apart  int64   // documents of a sequence, which do not see one another; 0: it is one
	Picks  bool    // an indexer picks the keys; else a layer before has
	Learns bool    // and learns from what attention makes of them
	Lends  bool    // layers after this one see the same keys
	Ranks  int64   // tensor ranks, each of which has some of attention's heads
	ByHead bool    // no kernel scores keys for all of its heads: products in fp32 do for one after the other, and add up
	Rows   bool    // queries without keys are taken out before the gradient, whose number the host waits for
}

// seen is how many keys a query of a sequence of s goes through on average. Where keys are
// picked those that are not there are left out; else kernels go through a place for each key,
// whether a query sees it or not (csa.py, build_flat_topk_idxs, and fused_sparse_attention.py,
// _get_topk_alignment, of Megatron-Core's dev branch @d48bd6be0a).
func (o *SparseOptions) seen(s, topK int64) int64 {
	const align = 64
	if !o.Picks {
		return (o.Window + topK + align - 1) / align * align
	}
	near := AttentionShape{Queries: s, Keys: s, Causal: true, Window: o.Window}
	far := AttentionShape{Queries: s, Keys: s, Causal: true, Picked: topK * o.Ratio}
	return int64((near.Pairs()+far.Pairs()/float64(o.Ratio))/float64(s)) + align/2
}

// Of each query's picked keys, as many kernels read and write an index or a score: bounds,
// order and lengths of what is picked; and where the indexer learns, masks, both
// distributions and their divergence. Counted in Megatron-Core @d98e8a64dd,
// experimental_attention_variant/dsa_cudnn_kernels.py (_indexer_topk_bshd,
// _prepare_attention_topk_indices, _compute_sparse_indexer_loss_and_grads).
const (
	pickPasses  = 25
	pickSorts   = 2
	learnPasses = 40
	learnSorts  = 1
	// indexHeads are those that the gradient of an indexer's scores is padded to (ibid.,
	// _pad_indexer_heads_for_backward).
	indexHeads = 64
	// scoreScratch holds the scores of all keys, a part of the queries at a time, and
	// pickScratch what picking the largest takes beside them (ibid.).
	scoreScratch = 1 << 30
	pickScratch  = 2 << 30
)

// paddedHeads are those that FlashMLA's kernels compute (ibid., _flash_mla_head_padding).
func paddedHeads(n int64) int64 {
	if n <= 64 {
		return 64
	}
	return (n + 127) / 128 * 128
}

// scoreByHead emits the scores of so many keys by the heads of an indexer's queries iq, one by
// one in fp32: those of a part of the queries at a time, 1 GiB of them (ibid.,
// _compute_indexer_scores_chunk_with_global_rows).
func (t *Tape) scoreByHead(iq *Tensor, keys int64) {
	b, s, heads, w := iq.Dim(0), iq.Dim(1), iq.Dim(2), iq.Dim(3)
	all := units.Bytes(b*s*keys) * F32.Size()
	t.scratch(2 * min(all, scoreScratch))
	parts := int32(max((all+scoreScratch-1)/scoreScratch, 1))
	old := t.TF32
	t.TF32 = false
	for range heads {
		t.gemm("index_scores", LayoutForward, F32, s, keys, w, b)
	}
	t.TF32 = old
	each := Op{Class: Vectorized, DType: F32, Count: int32(heads) * parts, Elements: float64(b*s*keys) / float64(parts), Bytes: 2 * all / units.Bytes(parts)}
	for _, prim := range []string{"relu_", "mul_", "add_"} {
		o := each
		if o.Prim = prim; prim == "add_" {
			o.Bytes = o.Bytes * 3 / 2
		}
		t.emit(o)
	}
	t.Tiny("index_heads", 2*int(heads)*int(parts)) // casts of queries and weights
}

// shapes are the problems of b sequences of s queries and so many keys: of all places that a query
// goes through, and of picked keys alone; and the keys that an indexer scores.
func (o *SparseOptions) shapes(b, s, heads, width, keys int64) (whole, picked AttentionShape, scored int64) {
	apart := max(o.Apart, 1)
	topK := min(o.TopK, keys/apart)
	if o.Ratio > 0 {
		topK = min(o.TopK, s/apart/o.Ratio)
	}
	whole = AttentionShape{Batch: b * apart, Heads: paddedHeads(heads), KVHeads: 1, Queries: s / apart, Keys: keys / apart, QKDim: width, VDim: o.Values, Causal: true, Picked: topK, Flavour: "sparse"}
	picked = whole
	if o.Window == 0 {
		return whole, picked, keys
	}
	if o.Ratio > 0 {
		scored = s / o.Ratio
	}
	whole.Causal, picked.Causal = false, false
	whole.Picked = o.seen(s/apart, topK)
	whole.Keys, picked.Keys = whole.Picked, topK
	return whole, picked, scored
}

// Sparse is attention of queries q [b, s, heads, d] to the keys kv [b, keys, d] that an
// indexer picks by its queries iq [b, s, h, w], keys ik [b, keys, w] and weights iw [b, s, h]:
// all of its scores, the largest of each query, and a kernel that gathers their keys and
// values. It returns [b, s, heads, o.Values] and saves q, kv, its output and the indices.
// The indexer's own gradients are made on the way forward.
func (t *Tape) Sparse(q, kv, iq, ik, iw *Tensor, o SparseOptions) *Tensor {
	t.begin()
	b, s, heads, d, keys := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3), kv.Dim(1)
	shape, picked, scored := o.shapes(b, s, heads, d, keys)
	topK := picked.Picked
	indices := t.empty(F32, b, s, topK+o.Window) // int32
	attend := func(a AttentionShape, prim string, bytes units.Bytes) {
		t.emit(Op{Prim: prim, Class: Attention, DType: q.dtype, Attn: &a, Elements: float64(b * s * a.Heads), Bytes: bytes, FLOPs: a.FLOPs()})
	}
	passes := func(n int32) {
		t.emit(Op{Prim: "index_passes", Class: Vectorized, DType: F32, Count: n, Elements: float64(indices.Size()), Bytes: 2 * indices.bytes()})
	}
	sorts := func(n int) {
		for range n {
			t.emit(Op{Prim: "index_sort", Class: TopK, DType: I64, Elements: float64(indices.Size()), Bytes: 8 * indices.bytes()})
		}
	}
	learns := o.Picks && o.Learns && t.record
	y := t.meta(q.dtype, []int64{b, s, heads, o.Values})
	rows := t.meta(F32, []int64{b, s, heads})
	io := q.bytes() + kv.bytes() + y.bytes() + indices.bytes()
	var grads []*Tensor
	if o.Picks {
		scores := shape
		scores.Heads, scores.QKDim, scores.VDim, scores.Picked, scores.Flavour = iq.Dim(2), iq.Dim(3), 0, 0, "indexer"
		scores.Causal, scores.Keys = true, scored/max(o.Apart, 1)
		all := units.Bytes(b*s*scored) * F32.Size()
		if o.ByHead {
			t.scoreByHead(iq, keys)
		} else {
			attend(scores, "index_scores", iq.bytes()+ik.bytes()+all)
		}
		t.scratch(min(all, scoreScratch) + min(2*all, pickScratch))
		t.emit(Op{Prim: "index_topk", Class: FusedReduce, DType: F32, Elements: float64(b * s * scored), Bytes: 3*all + indices.bytes()})
		t.scratch(6 * indices.bytes())
		passes(pickPasses)
		sorts(pickSorts)
	}
	if learns {
		passes(learnPasses)
		sorts(learnSorts)
		if o.Lends { // whose normalization a run of the kernel itself finds
			attend(shape, "sparse", io)
		}
		probabilities := picked
		probabilities.VDim = 0
		attend(probabilities, "sparse_scores", q.bytes()+kv.bytes()+indices.bytes())
		if o.Ranks > 1 {
			t.emit(Op{Prim: "all-reduce", Class: Collective, DType: F32, Elements: float64(indices.Size()), Comm: &Comm{Kind: "all-reduce", Group: "tp", Bytes: indices.bytes()}})
		}
		back := picked
		back.Heads, back.QKDim, back.VDim, back.Flavour, back.Backward = max(iq.Dim(2), indexHeads), iq.Dim(3), 0, "indexer", true
		attend(back, "index_backward", 2*iq.bytes()+2*ik.bytes()+3*indices.bytes())
		for _, x := range []*Tensor{iq, ik, iw} {
			grads = append(grads, t.emptyLike(x))
		}
	}
	t.alloc(rows)
	t.alloc(y)
	t.Tiny("sink", 1)
	attend(shape, "sparse", io)
	ins, saved := []*Tensor{q, kv}, []*Tensor{q, kv, y, rows, indices}
	sunk := o.Sink != nil && o.Sink.grad
	if sunk {
		ins = append(ins, o.Sink)
	}
	if learns {
		ins, saved = append(ins, iq, ik, iw), append(saved, grads...)
	}
	t.attach(ins, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		gq, gk := t.emptyLike(q), t.emptyLike(kv)
		if o.Rows { // what goes into the kernel is joined with a row of zeros and selected, what comes out put back
			t.Tiny("nonzero", 4)
			t.Wait()
			copied := []*Tensor{q, y, g[0]}
			t.scratch(2 * (2*y.bytes() + q.bytes()))
			for _, x := range slices.Concat(copied, copied, []*Tensor{gq, gq}) {
				t.over("sparse_rows", Vectorized, x, 2*x.bytes())
			}
			t.Tiny("sparse_rows", 8)
		}
		back := shape
		back.Backward = true
		sums := units.Bytes(kv.Size()) * F32.Size()
		t.scratch(sums)
		t.emit(Op{Prim: "sparse_dot", Class: FusedReduce, DType: q.dtype, Elements: float64(y.Size()), Bytes: 2*y.bytes() + sums})
		attend(back, "sparse_backward", 2*io+sums)
		t.emit(Op{Prim: "sparse_convert", Class: FusedReduce, DType: q.dtype, Elements: float64(kv.Size()), Bytes: sums + gk.bytes()})
		r = append(r, gq, gk)
		if sunk {
			r = append(r, t.like(o.Sink))
		}
		if learns {
			for _, x := range n.saved[5:] {
				r = append(r, t.apply("mul", x))
			}
		}
		return r
	})
	t.Release(rows, indices)
	t.Release(grads...)
	return y
}
