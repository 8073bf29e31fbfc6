package tape

import (
	"math/bits"

	"github.com/perfplan/perfplan/internal/units"
)

// sortedRow is what PyTorch pads the k values of a row to before it sorts them
// (aten/src/ATen/native/cuda/Sort.cu, sortKeyValueInplace).
const sortedRow = 16

// TopK emits a selection of k of each row's values and the sort of the result.
func (t *Tape) TopK(x *Tensor, k int64) *Tensor {
	t.begin()
	y := t.alloc(t.ofWidth(x.dtype, x, k))
	t.over("topk", TopK, x, x.bytes()+3*y.bytes())
	rows := y.Size() / k
	t.emit(Op{Prim: "topk_sort", Class: TopK, DType: x.dtype, Elements: float64(rows * max(k, sortedRow)), Bytes: 6 * y.bytes()})
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.zerosLike(x)
		t.scatter("topk_backward", g)
		return r
	})
	return y
}

// scatter emits a kernel that moves each element of x to or from where an index says.
func (t *Tape) scatter(prim string, x *Tensor) {
	t.over(prim, Scatter, x, 2*x.bytes()+8*units.Bytes(x.Size()))
}

// RoutingMap spreads the choice of k of each row of x, [rows, experts], to a map of
// booleans: zeros like x become integers, a copy of which takes ones by index
// (Megatron-Core moe/moe_utils.py, topk_routing_with_score_function).
func (t *Tape) RoutingMap(x *Tensor, k int64) {
	zeros := t.shape(x.dtype, x)
	t.fill(t.alloc(zeros))
	numbers := t.alloc(t.shape(F32, x)) // int32
	t.kernel("to", numbers, zeros)
	t.Release(zeros)
	copied := t.alloc(t.shape(F32, x))
	t.copied(copied)
	t.Release(numbers)
	t.emit(Op{Prim: "scatter_", Class: Scatter, DType: F32, Elements: float64(x.Size() / x.Dim(-1) * k), Bytes: units.Bytes(x.Size()/x.Dim(-1)*k) * 12})
	m := t.alloc(t.shape(Bool, x))
	t.cast(m, copied)
	t.Release(copied, m)
}

// Dense spreads probabilities p, [rows, k], over zeros like scores, [rows, experts],
// and the choice to a map. It returns p, whose gradient is gathered the same way.
func (t *Tape) Dense(p, scores *Tensor) *Tensor {
	t.begin()
	zeros := t.alloc(t.shape(p.dtype, scores))
	t.fill(zeros)
	t.copied(zeros)
	t.scatter("scatter", p)
	t.Release(zeros)
	t.RoutingMap(scores, p.Dim(-1))
	y := t.emptyLike(p)
	t.attachOne(p, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		r := t.emptyLike(p)
		t.scatter("scatter_backward", r)
		return r
	})
	return y
}

// Drop leaves each of the experts the tokens that score best for it, n rows for all
// experts: a selection along the columns of a map of scores, spread to a map, which masks
// the scores (Megatron-Core moe/moe_utils.py, apply_router_token_dropping). Its gradient, a
// product of a few us, is left out.
func (t *Tape) Drop(tokens, experts, n int64) {
	all := float64(tokens * experts)
	size := units.Bytes(4 * all)
	// along columns at half the pace of rows: 99, 60 and 32 us for 4096 tokens and 160, 128 and 8 experts on an H200
	t.emit(Op{Prim: "topk", Class: TopK, DType: F32, Elements: 2 * all, Bytes: size + units.Bytes(12*n)})
	for range 2 {
		t.emit(Op{Prim: "fill_", Class: Fill, DType: F32, Elements: all, Bytes: size})
	}
	t.emit(Op{Prim: "scatter_", Class: Scatter, DType: F32, Elements: float64(n), Bytes: units.Bytes(12 * n)})
	t.emit(Op{Prim: "to", Class: Unrolled, DType: Bool, Elements: all, Bytes: size + units.Bytes(all)})
	t.emit(Op{Prim: "mul", Class: UnrolledMix, DType: F32, Elements: all, Bytes: 2*size + units.Bytes(all)})
}

// lossTiny and lossTinyBack are the kernels on numbers by expert and on single ones that
// make the loss that balances experts, and its gradient.
const (
	lossTiny     = 6
	lossTinyBack = 4
)

// Balanced returns probabilities p and adds the loss that balances experts, from scores
// of all of them, [rows, experts]: rows by expert and scores by expert are summed up,
// multiplied and summed. Its gradient is spread over the scores (Megatron-Core
// moe/moe_utils.py, switch_load_balancing_loss_func and MoEAuxLossAutoScaler).
func (t *Tape) Balanced(p, scores *Tensor) *Tensor {
	t.begin()
	t.CountRows(scores)
	t.over("sum", TallReduce, scores, scores.bytes())
	t.Tiny("balance_loss", lossTiny)
	y := t.emptyLike(p)
	t.attach([]*Tensor{p, scores}, []*Tensor{y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		t.Tiny("balance_loss_backward", lossTinyBack)
		r := t.emptyLike(scores)
		t.emit(Op{Prim: "balance_loss_backward", Class: Strided4, DType: scores.dtype, Elements: float64(scores.Size()), Index: 4, Bytes: r.bytes()})
		q := t.emptyLike(p)
		return []*Tensor{q, r}
	})
	return y
}

// FusedTopK is TopK with the scores, the map and the probabilities of the chosen in one
// kernel, and one for the gradient (Transformer Engine common/fused_router). rounds is how
// often each row is searched beside: choices among groups of experts.
func (t *Tape) FusedTopK(x *Tensor, k, rounds int64) *Tensor {
	t.begin()
	y := t.alloc(t.ofWidth(x.dtype, x, k))
	t.routed("router_topk", x, k+rounds)
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.unrouted("router_topk_backward", x) })
	return y
}

// FusedScores are the scores of all experts for the loss that balances them, with the map
// of the k largest.
func (t *Tape) FusedScores(x *Tensor, k int64) *Tensor {
	t.begin()
	y := t.empty(F32, x.dims[:x.nd]...)
	t.routed("router_scores", x, k)
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor { return t.unrouted("router_scores_backward", x) })
	return y
}

func (t *Tape) routed(prim string, x *Tensor, rounds int64) {
	t.emit(Op{Prim: prim, Class: RowTopK, DType: x.dtype, Elements: float64(x.Size()) * float64(rounds), Bytes: 3*x.bytes() + units.Bytes(x.Size())})
}

func (t *Tape) unrouted(prim string, x *Tensor) *Tensor {
	r := t.emptyLike(x)
	t.over(prim, RowWarp, x, 3*x.bytes()+units.Bytes(x.Size()))
	return r
}

// BalancedFused is Balanced with one kernel for the loss and one for its gradient.
func (t *Tape) BalancedFused(p, scores *Tensor) *Tensor {
	t.begin()
	t.CountRows(scores)
	t.over("balance_loss", TallReduce, scores, scores.bytes())
	y := t.emptyLike(p)
	t.attach([]*Tensor{p, scores}, []*Tensor{y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		t.Tiny("balance_loss_backward", 1)
		r := t.zerosLike(scores)
		return []*Tensor{t.emptyLike(p), r}
	})
	return y
}

// CountRows counts the rows of each expert by a map like scores, [rows, experts].
func (t *Tape) CountRows(scores *Tensor) {
	t.emit(Op{Prim: "to", Class: Unrolled, DType: I64, Elements: float64(scores.Size()), Bytes: 9 * units.Bytes(scores.Size())})
	t.emit(Op{Prim: "sum", Class: TallReduce, DType: I64, Elements: float64(scores.Size()), Bytes: 8 * units.Bytes(scores.Size())})
}

// ScanMap gathers the routing maps of so many ranks, [tokens, experts] of a byte each, and
// numbers the rows that they stand for.
func (t *Tape) ScanMap(ranks, tokens, experts int64) {
	n := ranks * tokens * experts
	t.emit(Op{Prim: "all-gather", Class: Collective, DType: Bool, Elements: float64(n), Comm: &Comm{Kind: "all-gather", Group: "ep", Bytes: units.Bytes(n)}})
	t.emit(Op{Prim: "scan_map", Class: MapScan, DType: Bool, Elements: float64(n), Bytes: units.Bytes(n)})
}

// Hybrid-EP numbers the rows of each local expert by tiles of numberedTile rows, one on each
// of the SMs at a time, in numberedTime for each expert of a tile's columns: on an H200 22 to
// 245 us for 4 to 128 experts and up to 33,792 rows, 46 and 79 us for 16 and 16,384 or 65,536
// (deepseek-ai/DeepEP hybrid-ep @7febc6e, 2026-11-26).
const (
	numberedTile  = 256
	numberedSMs   = 132
	numberedTime  = 2e6  // ps
	numberedStart = 10e6 // ps
)

// NumberRows numbers the rows of each of so many local experts, of as many tokens as there
// may be (Hybrid-EP csrc/hybrid_ep/extension/permute.cu, permute_preprocessing, before
// 2026-05).
func (t *Tape) NumberRows(tokens, experts int64) {
	rounds := max(float64(tokens)/(numberedTile*numberedSMs), 1)
	t.emit(Op{Prim: "permute_preprocessing", Class: Chain, DType: I32, Elements: numberedStart + numberedTime*rounds*float64(experts), Bytes: 5 * units.Bytes(tokens*experts)})
}

// Notify exchanges the numbers of rows, one for each expert, between the experts' ranks.
func (t *Tape) Notify(kind string, experts int64) {
	t.emit(Op{Prim: kind, Class: Collective, DType: F32, Elements: float64(experts), Comm: &Comm{Kind: kind, Group: "ep", Bytes: units.Bytes(experts) * F32.Size()}})
}

// RowMap makes the map of a fused permutation from one of booleans, [rows, experts]: two
// kernels count rows by expert, a third sorts each row's experts (Transformer Engine
// common/triton/permutation.py, make_row_id_map).
func (t *Tape) RowMap(rows, experts int64) {
	t.Tiny("row_map", 2)
	levels := int64(bits.Len64(uint64(experts - 1)))
	t.emit(Op{Prim: "row_map", Class: RowSort, DType: F32, Elements: float64(rows<<levels) * float64(levels*(levels+1)/2), Bytes: units.Bytes(rows*experts) * 9})
}

// ChunkMap makes the map by which chunks of rows change places (make_chunk_sort_map of
// the same file).
func (t *Tape) ChunkMap(rows int64) {
	t.emit(Op{Prim: "chunk_map", Class: RowProgram, DType: F32, Elements: float64(rows), Bytes: units.Bytes(rows) * 4})
}

// SortChunks cuts the rows of x into n chunks and joins them in another order (torch.split and
// torch.cat; megatron/core/transformer/moe/moe_utils.py, sort_chunks_by_idxs): the host makes a
// view of each chunk, and of each chunk's gradient.
func (t *Tape) SortChunks(x *Tensor, n int64) *Tensor {
	t.begin()
	join := func(prim string) *Tensor {
		y := t.emptyLike(x)
		t.sec.Ops = append(t.sec.Ops, Op{Module: t.Module, Prim: prim, Phase: t.phase, Count: int32(n)})
		t.concat(false, y, y)
		return y
	}
	y := join("chunk")
	t.attachOne(x, y, nil, func(t *Tape, nd *node, g *Tensor) *Tensor { return join("chunk_backward") })
	return y
}

// copied emits a copy as large as x.
func (t *Tape) copied(x *Tensor) {
	t.over("clone", Memcpy, x, 2*x.bytes())
}

// cast emits a conversion to a map of booleans.
func (t *Tape) cast(m, x *Tensor) {
	t.emit(Op{Prim: "to", Class: Unrolled, DType: Bool, Elements: float64(m.Size()), Bytes: m.bytes() + x.bytes()})
}

// Weights are the k weights of each row of x that no router makes. They have a gradient, of
// which nothing comes back to x: what exchanges rows makes one of all that it sends.
func (t *Tape) Weights(x *Tensor, k int64) *Tensor {
	t.begin()
	y := t.empty(F32, x.Dim(0), k)
	t.attach([]*Tensor{x}, []*Tensor{y}, nil, func(*Tape, *node, []*Tensor) []*Tensor { return []*Tensor{nil} })
	return y
}
