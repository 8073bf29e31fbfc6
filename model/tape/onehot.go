package tape

import "github.com/perfplan/perfplan/internal/units"

// oneHot is a kernel of a gate over all pairs of tokens and experts, by the bytes that it moves for each.
type oneHot struct {
	prim  string
	class Class
	dtype DType
	bytes units.Bytes
}

// What DeepSpeed's gates launch (deepspeed/moe/sharded_moe.py, top1gating and top2gating): masks are
// integers of eight bytes, what is multiplied is fp32.
var (
	oneHotChoice = []oneHot{ // for each of a token's experts
		{"argmax", RowReduce, F32, 4}, {"fill_", Fill, I64, 8}, {"cumsum", Vectorized, I64, 16}, {"sub", Vectorized, I64, 16}, // its place among those of its expert
		{"mul", Vectorized, I64, 24}, {"sum", RowReduce, I64, 8}, {"to", Unrolled, F32, 12},
	}
	oneHotLoss = []oneHot{ // that balances experts, and how many tokens each has
		{"sum", TallReduce, I64, 8}, {"mean", TallReduce, F32, 4}, {"to", Unrolled, F32, 12}, {"mean", TallReduce, F32, 4},
	}
	oneHotFirst = []oneHot{ // tokens that an expert leaves out are drawn
		{"rand", Vectorized, F32, 4}, {"mul", Vectorized, F32, 8}, {"add", Vectorized, F32, 8}, {"mul", UnrolledMix, F32, 16},
		{"fill_", Fill, I64, 8}, {"mul", Vectorized, I64, 24},
	}
	oneHotSecond = []oneHot{ // the second expert is drawn, and comes after those of the first
		{"rand", Vectorized, F32, 4}, {"log", Vectorized, F32, 8}, {"neg", Vectorized, F32, 8}, {"log", Vectorized, F32, 8}, {"neg", Vectorized, F32, 8}, {"add", Vectorized, F32, 12},
		{"to", Unrolled, Bool, 9}, {"masked_fill", Vectorized, F32, 9}, {"sum", TallReduce, I64, 8}, {"add", Strided4, I64, 16},
		{"lt", Vectorized, Bool, 9}, {"mul", UnrolledMix, I64, 17}, {"lt", Vectorized, Bool, 9}, {"mul", UnrolledMix, I64, 17}, {"mul", Vectorized, F32, 12}, {"sum", RowReduce, F32, 8},
	}
)

// OneHotGate is what DeepSpeed's gate makes of the probabilities p, [tokens, experts], of which each token
// has the k largest, n places in all: those of the chosen, and zeros. Its gradient goes through the
// loss that balances experts, too.
func (t *Tape) OneHotGate(p *Tensor, k, n int64) *Tensor {
	t.begin()
	all := float64(p.Size())
	run := func(kernels []oneHot) {
		for _, o := range kernels {
			op := Op{Prim: o.prim, Class: o.class, DType: o.dtype, Elements: all, Bytes: o.bytes * units.Bytes(all)}
			switch o.class {
			case RowReduce:
				op.N = p.Dim(-1)
			case Strided4:
				op.Index = 4
			}
			t.emit(op)
		}
	}
	for range k {
		run(oneHotChoice)
		t.scatter("scatter_", t.rowsOf(p))
	}
	run(oneHotLoss)
	if k > 1 {
		run(oneHotSecond)
	} else {
		t.emit(Op{Prim: "topk", Class: TopK, DType: F32, Elements: 2 * all, Bytes: units.Bytes(4*all) + units.Bytes(12*n)}) // along columns, as Drop
		run(oneHotFirst)
		t.emit(Op{Prim: "scatter_", Class: Scatter, DType: I64, Elements: float64(n), Bytes: units.Bytes(16 * n)})
	}
	t.Tiny("balance_loss", lossTiny)
	t.Wait() // for how many tokens each expert has, which the host reads until August 2024
	mask := t.like(p)
	y := t.apply("mul", p, mask)
	t.attachOne(p, y, []*Tensor{mask}, func(t *Tape, nd *node, g *Tensor) *Tensor {
		t.Tiny("balance_loss_backward", lossTinyBack)
		r := t.apply("mul", g, nd.saved[0])
		loss := t.like(g)
		t.emit(Op{Prim: "balance_loss_backward", Class: Strided4, DType: F32, Elements: all, Index: 4, Bytes: loss.bytes()})
		t.kernel("add", r, r, loss)
		t.Release(loss)
		return r
	})
	t.Release(mask)
	return y
}

// rowsOf describes a value for each row of x, of eight bytes.
func (t *Tape) rowsOf(x *Tensor) *Tensor {
	return t.meta(I64, []int64{x.Size() / x.Dim(-1), 1})
}

// Slots spreads the gates of tokens, [tokens, experts], over the places that experts have for them, n in
// all: [tokens, n] in fp32, which is zero but where a token is, from a row of places for each token and
// each of its k experts. Beside it comes where it is not zero.
func (t *Tape) Slots(gates *Tensor, n, k int64) (weights, mask *Tensor) {
	tokens, experts := gates.Dim(0), gates.Dim(1)
	each := n / experts
	var parts []*Tensor
	for range k {
		t.begin()
		hot := t.Zeros(I64, tokens, each)
		t.scatter("scatter_", t.rowsOf(gates))
		place := t.empty(F32, tokens, 1, each)
		t.emit(Op{Prim: "to", Class: Unrolled, DType: F32, Elements: float64(place.Size()), Bytes: hot.bytes() + place.bytes()})
		t.Release(hot)
		column := t.Reshape(gates, tokens, experts, 1)
		parts = append(parts, t.Mul(column, place))
		t.Release(column, place)
	}
	sum := t.Hold(parts[0])
	for _, p := range parts[1:] {
		next := t.Add(sum, p)
		t.Release(sum)
		sum = next
	}
	mask = t.Above(sum)
	weights = t.Reshape(sum, tokens, n)
	t.Release(sum)
	t.Release(parts...)
	return weights, mask
}
