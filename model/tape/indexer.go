package tape

import "github.com/perfplan/perfplan/internal/units"

// digits are the values of one of the digits by which PyTorch picks the largest.
const digits = 256

// Low is x in the dtype of autocast, where there is one.
func (t *Tape) Low(x *Tensor) *Tensor { return t.low(x) }

// PickKeys emits the choice of topK keys for each query by scores [batch, queries, keys]
// and the mask that they become: scores that the causal mask leaves, whose largest are picked
// digit by digit, 8 bits at a time, and sorted (aten/native/cuda/TensorTopK.cu, mbtopk).
func (t *Tape) PickKeys(scores *Tensor, topK int64) {
	batch, queries, keys := scores.Dim(0), scores.Dim(1), scores.Dim(2)
	mask := t.empty(Bool, batch, queries, keys)
	all := float64(mask.Size())
	t.emit(Op{Prim: "not", Class: Strided2, DType: Bool, Elements: all, Index: 4, Bytes: 2 * mask.bytes()})
	left := t.maskedCopy(scores, mask)
	t.Release(mask)
	picked := t.empty(I64, batch, queries, topK)
	values := t.empty(scores.dtype, batch, queries, topK)
	t.Tiny("topk", 3)
	rows := float64(batch * queries)
	for range int(scores.dtype.Size()) {
		t.emit(Op{Prim: "topk_digits", Class: Strided2, DType: scores.dtype, Elements: all, Index: 6, Bytes: left.bytes()})
		t.emit(Op{Prim: "topk_counts", Class: Strided2, Elements: digits * rows, Index: 6, Bytes: units.Bytes(6 * digits * rows)})
		t.emit(Op{Prim: "topk_counts", Class: Strided2, Elements: 2 * digits * rows, Index: 6, Bytes: units.Bytes(12 * digits * rows)})
	}
	t.emit(Op{Prim: "topk_gather", Class: Strided2, DType: scores.dtype, Elements: 2 * all, Index: 6, Bytes: left.bytes() + values.bytes() + picked.bytes()})
	t.Tiny("topk", 5)
	n := float64(picked.Size())
	t.emit(Op{Prim: "topk_sort", Class: TopK, DType: scores.dtype, Elements: n, Bytes: 2 * (values.bytes() + picked.bytes())})
	t.Release(left, values)
	narrow := t.To(picked, F32) // int32
	t.Release(picked)
	t.Release(narrow)
	t.KeyMask(batch, queries, topK)
}

// KeyMask emits the mask [batch, queries, queries] that leaves topK keys of each query, by
// their indices, of those that the causal mask leaves.
func (t *Tape) KeyMask(batch, queries, topK int64) {
	wide := t.empty(I64, batch, queries, topK)
	t.emit(Op{Prim: "to", Class: Vectorized, DType: I64, Elements: float64(wide.Size()), Bytes: wide.bytes() * 3 / 2})
	ones := t.empty(Bool, batch, queries, queries)
	t.fill(ones)
	mask := t.empty(Bool, batch, queries, queries)
	t.copied(mask)
	t.emit(Op{Prim: "scatter_", Class: Scatter, DType: Bool, Elements: float64(wide.Size()), Bytes: wide.bytes() + units.Bytes(wide.Size())})
	t.Release(ones, wide)
	t.emit(Op{Prim: "not", Class: Vectorized, DType: Bool, Elements: float64(mask.Size()), Bytes: 2 * mask.bytes()})
	t.emit(Op{Prim: "and", Class: Strided2, DType: Bool, Elements: float64(mask.Size()), Index: 6, Bytes: 3 * mask.bytes()})
	t.Release(mask)
}
