package tape

import "github.com/perfplan/perfplan/internal/units"

// DeltaShape is the problem of a gated delta net on one rank (model.Delta): every sequence
// by itself, every value head with a query and a key of its own.
type DeltaShape struct {
	Batch, Sequence   int64
	Heads             int64 // value heads
	KeyDim, ValueDim  int64
	Unnormed, Strided bool // queries and keys are yet to be normalised; inputs are parts of what they come from, and copied
}

// deltaChunk is how many tokens the kernels take at once (fla, chunk_gated_delta_rule).
const deltaChunk = 64

// What kernels of the rule take beside their bytes on an H100 (flash-linear-attention
// @bc3b101, PyTorch 2.11, Triton 3.6, 2026-11-25), in ps: fitted, one by one, to 22 shapes of 1024
// to 65536 tokens, 4 to 48 heads of 64 and of 128, within 3 to 9 % on average.
const (
	solveWork   = 3.7 // of a pair of tokens of a chunk: a triangular matrix inverted
	unsolveWork = 2.1 // of a pair: gradients of it
	mixWork     = 900 // of a token and head whose tile of a state has 128 × 128 elements; it grows with the tile's square
	chainStart  = 450e3
	chainKey    = 5.9e3 // beside chainStart for each element of a key, 256 at most: from one chunk's state to the next
	chainBack   = 1.68  // the same of its gradient over that
	convWork    = 0.2   // of an element of a convolution in Triton
	unconvWork  = 3.4   // and of its gradient
	deltaTile   = 128   // elements of a key or value that a program takes at most
)

type deltaSizes struct {
	heads, pairs  float64 // tokens by heads; pairs of tokens of a chunk
	q, v          float64 // elements of all queries, or keys; of all values
	states        float64 // of all chunks
	chain, across float64 // ps from a sequence's first chunk to its last; work that grows with a tile's square
}

func (s *DeltaShape) sizes() deltaSizes {
	n, k, v := float64(s.Batch*s.Sequence*s.Heads), float64(s.KeyDim), float64(s.ValueDim)
	chunks := float64((s.Sequence + deltaChunk - 1) / deltaChunk)
	tile := min(k, deltaTile) * min(v, deltaTile) / (deltaTile * deltaTile)
	return deltaSizes{heads: n, pairs: n * deltaChunk, q: n * k, v: n * v, states: chunks * float64(s.Batch*s.Heads) * k * v,
		chain: chunks * (chainStart + chainKey*k), across: mixWork * n * tile * tile * max(1, k/deltaTile)}
}

// Delta is the gated delta rule over chunks of 64 tokens by the kernels of
// flash-linear-attention (fla/ops/gated_delta_rule/chunk.py): of queries and keys
// [batch, sequence, heads, KeyDim], values [batch, sequence, heads, ValueDim], decays in
// fp32 and strengths [batch, sequence, heads] it makes [batch, sequence, heads, ValueDim].
// Kept are its inputs and the inverted matrix of each chunk; the backward pass computes the
// rest again. What hands a state from chunk to chunk has one program for a head and a part
// of its values, and so takes no less than a sequence's chunks one after another.
func (t *Tape) Delta(q, k, v, decay, strength *Tensor, s DeltaShape) *Tensor {
	z, d := s.sizes(), q.dtype
	low := func(n float64) units.Bytes { return units.Bytes(n) * d.Size() }
	wide := func(n float64) units.Bytes { return units.Bytes(n) * F32.Size() }
	held := func(dtype DType, n float64) *Tensor { return t.empty(dtype, int64(n)) }
	rule := func(prim string, work float64, bytes units.Bytes, products float64) {
		if work > 0 {
			work += passWork * float64(bytes)
		}
		t.emit(Op{Prim: prim, Class: Scan, DType: d, Elements: work, Bytes: bytes, FLOPs: units.FLOPs(2 * products)})
	}
	chain := func(prim string, factor float64, bytes units.Bytes, products float64) {
		t.emit(Op{Prim: prim, Class: Chain, DType: d, Elements: factor * z.chain, Bytes: bytes, FLOPs: units.FLOPs(2 * products)})
	}
	inside, across := z.pairs*float64(s.KeyDim), z.q*float64(s.ValueDim)
	matrices := z.pairs // elements of all chunks' matrices
	// w and u, products of a chunk's matrix with its keys and values
	apart := func(prim string) (w, u *Tensor) {
		w, u = held(d, z.q), held(d, z.v)
		rule(prim, 0, low(2*z.q+2*z.v+matrices), inside+z.pairs*float64(s.ValueDim))
		return w, u
	}
	hand := func(prim string) (states, fresh *Tensor) {
		states, fresh = held(d, z.states), held(d, z.v)
		chain(prim, 1, low(2*z.q+2*z.v+z.states), 2*across)
		return states, fresh
	}

	const prim = "delta"
	t.begin()
	var saved []*Tensor
	for _, x := range []*Tensor{q, k, v} {
		y := t.Hold(x)
		if s.Strided && !x.contiguous() {
			t.Release(y)
			y = t.copyContiguous(x)
		}
		if s.Unnormed && x != v {
			normed := t.empty(d, x.dims[:x.nd]...)
			roots := held(F32, z.heads)
			t.emit(Op{Prim: "l2norm", Class: FusedReduce, DType: d, Bytes: 2 * low(z.q)})
			t.Release(y)
			y, saved = normed, append(saved, roots)
		}
		saved = append(saved, y)
	}
	sums := held(F32, z.heads)
	rule("delta_sum", 0, 2*wide(z.heads), 0)
	solved := held(d, matrices)
	t.fill(solved)
	rule(prim, solveWork*z.pairs, low(z.q+matrices), inside)
	w, u := apart(prim)
	states, fresh := hand(prim)
	y := t.empty(d, s.Batch, s.Sequence, s.Heads, s.ValueDim)
	rule(prim, 0, low(2*z.q+2*z.v+z.states), across+inside+z.pairs*float64(s.ValueDim))
	t.Release(w, u, states, fresh)
	t.attach([]*Tensor{q, k, v, decay, strength}, []*Tensor{y}, append(saved, sums, strength, solved), func(t *Tape, n *node, g []*Tensor) []*Tensor {
		const prim = "delta_backward"
		w, u := apart(prim)
		states, fresh := hand(prim)
		t.Release(u)
		gv := held(d, z.v)
		rule(prim, 0, low(2*z.q+2*z.v), inside+z.pairs*float64(s.ValueDim))
		gstates, gfresh := held(d, z.states), held(d, z.v)
		chain(prim, chainBack, low(3*z.q+3*z.v+z.states), 3*across)
		t.Release(gv)
		gq, gk, gw := t.empty(d, s.Batch, s.Sequence, s.Heads, s.KeyDim), t.empty(d, s.Batch, s.Sequence, s.Heads, s.KeyDim), held(d, z.q)
		gsums := t.empty(F32, s.Batch, s.Sequence, s.Heads)
		rule(prim, z.across, low(6*z.q+3*z.v+2*z.states), 3*across+4*inside)
		t.Tiny("sum", 1)
		gk2, gv3, gstrength := held(d, z.q), t.empty(d, s.Batch, s.Sequence, s.Heads, s.ValueDim), t.empty(strength.dtype, s.Batch, s.Sequence, s.Heads)
		rule(prim, unsolveWork*z.pairs, low(6*z.q+3*z.v+matrices), 4*inside+2*z.pairs*float64(s.ValueDim))
		t.Release(gfresh)
		t.kernel("add", gk, gk, gk2)
		t.Tiny("add", 1)
		rule("delta_sum", 0, 2*wide(z.heads), 0)
		t.Release(w, states, fresh, gstates, gw, gk2)
		if s.Unnormed {
			for _, x := range []**Tensor{&gq, &gk} {
				before := *x
				*x = t.empty(d, s.Batch, s.Sequence, s.Heads, s.KeyDim)
				t.emit(Op{Prim: "l2norm_backward", Class: FusedReduce, DType: d, Bytes: 3 * low(z.q)})
				t.Release(before)
			}
		}
		return []*Tensor{gq, gk, gv3, gsums, gstrength}
	})
	t.Release(saved...)
	t.Release(sums, solved)
	return y
}

// Convolve is a causal convolution of each channel of x, whose neighbours lie beside each other,
// with weights [channels, 1, width] and what activates it, by causal-conv1d or in Triton
// (fla/modules/conv/triton), whose backward pass convolves again. x is kept.
func (t *Tape) Convolve(x, w *Tensor, triton bool) *Tensor {
	forward, backward := passWork*2*float64(x.dtype.Size()), convGradWork+passWork*3*float64(x.dtype.Size())
	if triton {
		forward, backward = forward+convWork, unconvWork
	}
	return t.convolve(x, w, nil, triton, forward, backward)
}

// ConvolveBare is the same by causal-conv1d, with a bias or without, where nothing activates it.
func (t *Tape) ConvolveBare(x, w, b *Tensor) *Tensor {
	return t.convolve(x, w, b, false, 0, bareGradWork)
}

// convolve is a convolution whose kernels take so much for each value.
func (t *Tape) convolve(x, w, b *Tensor, triton bool, forward, backward float64) *Tensor {
	d, n := x.dtype, float64(x.Size())
	low := func(n float64) units.Bytes { return units.Bytes(n) * d.Size() }
	kernel := func(prim string, work float64, bytes units.Bytes) {
		t.emit(Op{Prim: prim, Class: Scan, DType: d, Elements: work * n, Bytes: bytes})
	}
	t.begin()
	y := t.like(x)
	kernel("convolve", forward, 2*low(n))
	t.attach([]*Tensor{x, w, b}, []*Tensor{y}, []*Tensor{x}, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		const prim = "convolve_backward"
		gx := t.like(x)
		sums := len(nd.in) - 1 // of weights and biases
		if triton {
			again := t.empty(d, x.dims[:x.nd]...)
			kernel("convolve", forward, 2*low(n))
			parts := t.empty(F32, (x.Dim(0)*x.Dim(1)+deltaChunk-1)/deltaChunk, w.Size())
			bytes := 4*low(n) + parts.bytes()
			kernel(prim, backward+passWork*float64(bytes)/n, bytes)
			t.reduce("sum", ColReduce, parts, w)
			t.Release(again, parts)
		} else {
			t.Tiny("fill_", sums)
			kernel(prim, backward, 3*low(n))
		}
		t.Tiny("to", sums) // 16 bits of fp32 sums
		r := []*Tensor{gx}
		for _, e := range nd.in[1:] {
			r = append(r, t.emptyLike(&e.meta))
		}
		return r
	})
	return y
}

// DeltaInputs makes of what was convolved [batch, sequence, normed + values], of gates,
// strengths and decays what Delta takes, and the gates, as the compiler does of
// Megatron-Core's function (gated_delta_net/common.py, _prepare_input_for_gated_delta_rule):
// the normed channels, queries and keys, are copied, normalised (l2norm of fla) and repeated
// for each value head, values and gates copied, decays and strengths computed; eight
// kernels, and ten of gradients. Kept are the normalised channels and little else.
func (t *Tape) DeltaInputs(x, gate, strength, decay, logs, step *Tensor, normed int64, s DeltaShape) []*Tensor {
	d := x.dtype
	z := s.sizes()
	tokens := x.Dim(0) * x.Dim(1)
	keys := float64(tokens * normed)
	low := func(n float64) units.Bytes { return units.Bytes(n) * d.Size() }
	fused := func(prim string, class Class, bytes units.Bytes) {
		t.emit(Op{Prim: prim, Class: class, DType: d, Bytes: bytes})
	}
	const prim = "delta_inputs"
	t.begin()
	copied := t.empty(d, tokens, normed)
	fused(prim, FusedPointwise, 2*low(keys))
	unit, roots := t.empty(d, tokens, normed), t.empty(F32, tokens, normed/s.KeyDim)
	fused("l2norm", FusedReduce, 2*low(keys))
	t.Release(copied)
	q, k := t.empty(d, s.Batch, s.Sequence, s.Heads, s.KeyDim), t.empty(d, s.Batch, s.Sequence, s.Heads, s.KeyDim)
	v, gates := t.empty(d, s.Batch, s.Sequence, s.Heads, s.ValueDim), t.empty(d, s.Batch, s.Sequence, s.Heads, s.ValueDim)
	g, w := t.empty(F32, s.Batch, s.Sequence, s.Heads), t.empty(d, s.Batch, s.Sequence, s.Heads)
	for range 2 {
		fused(prim, FusedPointwise, low(keys/2)+low(z.q))
	}
	fused(prim, FusedPointwise, low(z.heads)+2*low(z.heads))
	fused(prim, FusedPointwise, 2*low(z.heads))
	fused(prim, FusedPointwise, 2*low(z.v))
	fused(prim, FusedPointwise, 2*low(z.v))
	outs := []*Tensor{q, k, v, g, w, gates}
	t.attach([]*Tensor{x, gate, strength, decay, logs, step}, outs, []*Tensor{unit, roots, decay, w}, func(t *Tape, n *node, gs []*Tensor) []*Tensor {
		const prim = "delta_inputs_backward"
		t.Tiny(prim, 8) // of decays and strengths, fp32 sums to 16 bits
		sums := t.empty(d, tokens, normed)
		fused(prim, FusedPointwise, 2*low(z.q)+low(keys))
		gunit := t.empty(d, tokens, normed)
		fused("l2norm_backward", FusedReduce, 3*low(keys))
		t.Release(sums)
		gx := t.empty(d, x.dims[:x.nd]...)
		fused(prim, FusedPointwise, 2*low(keys+z.v))
		t.Release(gunit)
		r := []*Tensor{gx, t.Hold(gs[5])}
		for _, e := range n.in[2:] {
			r = append(r, t.emptyLike(&e.meta))
		}
		return r
	})
	t.Release(unit, roots)
	return outs
}
