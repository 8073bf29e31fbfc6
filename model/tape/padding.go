package tape

// PaddingMask makes the mask of a batch of padded sequences, [batch, 1, tokens, tokens], which all layers read: one
// to add to the scores in d, by the kernels of transformers before 4.53 (modeling_llama.py,
// _prepare_4d_causal_attention_mask_with_cache_position, then AttentionMaskConverter._unmask_unattended), or one of
// booleans, by those since (masking_utils.py, sdpa_mask).
func (t *Tape) PaddingMask(d DType, batch, tokens int64, additive bool) *Tensor {
	if !additive {
		causal := t.empty(Bool, 1, 1, tokens, tokens)
		t.kernel("mask", causal)         // keys up to the query
		t.kernel("mask", causal, causal) // and with ones
		m := t.empty(Bool, batch, 1, tokens, tokens)
		t.kernel("mask", m, causal) // and with those that are no padding
		t.Release(causal)
		return m
	}
	causal := t.empty(d, 1, 1, tokens, tokens)
	t.kernel("mask", causal)         // full
	t.kernel("mask", causal, causal) // triu
	later := t.empty(Bool, 1, 1, tokens, tokens)
	t.kernel("mask", later)
	t.kernel("mask", causal, causal, later)
	t.Release(later)
	m := t.empty(d, batch, 1, tokens, tokens)
	t.kernel("mask", m, causal) // clone
	t.Release(causal)
	sum := t.emptyLike(m)
	t.kernel("mask", sum, m) // with the padding
	none := t.empty(Bool, batch, 1, tokens, tokens)
	t.kernel("mask", none, sum)
	t.Release(sum)
	filled := t.emptyLike(m)
	t.kernel("mask", filled, m, none)
	t.kernel("mask", m, filled) // copied back
	t.Release(filled)
	t.kernel("mask", none, m) // rows that see nothing
	t.emit(Op{Prim: "mask", Class: RowReduce, DType: Bool, Elements: float64(none.Size()), Bytes: none.bytes()})
	t.Release(none)
	seen := t.emptyLike(m)
	t.kernel("mask", seen, m)
	t.Release(m)
	return seen
}

// Unpad gathers n tokens of each sequence of x [batch, heads, sequence, width], on average. The gradient is
// scattered into zeros (flash_attn/bert_padding.py, IndexFirstAxis).
func (t *Tape) Unpad(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.tokens(x, n)
	t.permutation("unpad", y, y)
	t.attachOne(x, y, nil, func(t *Tape, _ *node, g *Tensor) *Tensor {
		r := t.tokens(g, x.Dim(2))
		t.fill(r)
		t.emit(Op{Prim: "scatter_", Class: AtomicAdd, DType: r.dtype, Elements: float64(g.Size()), Bytes: 2 * g.bytes()})
		return r
	})
	return y
}

// Pad writes the tokens of x [batch, heads, tokens, width] into zeros of n tokens each. The gradient
// gathers them (flash_attn/bert_padding.py, IndexPutFirstAxis).
func (t *Tape) Pad(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.tokens(x, n)
	t.fill(y)
	t.emit(Op{Prim: "index_put_", Class: AtomicAdd, DType: y.dtype, Elements: indexPut * float64(x.Size()), Bytes: 2 * x.bytes()})
	t.attachOne(x, y, nil, func(t *Tape, _ *node, g *Tensor) *Tensor {
		r := t.tokens(g, x.Dim(2))
		t.permutation("unpad", r, r)
		return r
	})
	return y
}

// tokens is memory for as many heads as x [batch, heads, tokens, width] has of n tokens, token by token.
func (t *Tape) tokens(x *Tensor, n int64) *Tensor {
	y := t.meta(x.dtype, []int64{x.Dim(0), x.Dim(1), n, x.Dim(3)})
	y.permuteLike(x)
	return t.alloc(y)
}

// KeyPaddingMask is the mask by which queries see the keys of a sequence that are no padding, all others too
// (transformers, masking_utils.py, create_bidirectional_mask and sdpa_mask).
func (t *Tape) KeyPaddingMask(batch, queries, keys int64) *Tensor {
	all := t.empty(Bool, 1, 1, queries, keys)
	t.kernel("mask", all)      // ones
	t.kernel("mask", all, all) // and with ones
	m := t.empty(Bool, batch, 1, queries, keys)
	t.kernel("mask", m, all) // and with those that are no padding
	t.Release(all)
	return m
}
