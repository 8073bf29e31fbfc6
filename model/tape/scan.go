package tape

import "github.com/perfplan/perfplan/internal/units"

// ScanShape is the problem of a state-space mixer on one rank (model.Mamba).
type ScanShape struct {
	Batch, Sequence      int64
	Heads, HeadDim       int64
	Groups, State, Chunk int64
}

// scanSizes are what the kernels of a scan count, in elements.
type scanSizes struct {
	tokens   float64
	x        float64 // inputs: a head's width of each head and token
	bc       float64 // B, or C
	conv     float64 // inputs, B and C
	states   float64 // of all heads, one for each chunk
	scores   float64 // of pairs of tokens of a chunk, by group
	pairs    float64 // the same by head
	products float64 // multiply-adds of inputs and states
}

func (s *ScanShape) sizes() scanSizes {
	n, c := float64(s.Batch*s.Sequence), float64(s.Batch*((s.Sequence+s.Chunk-1)/s.Chunk))
	z := scanSizes{tokens: n, x: n * float64(s.Heads*s.HeadDim), bc: n * float64(s.Groups*s.State), states: c * float64(s.Heads*s.HeadDim*s.State),
		scores: c * float64(s.Groups*s.Chunk*s.Chunk), pairs: n * float64(s.Heads*s.Chunk)}
	z.conv, z.products = z.x+2*z.bc, z.x*float64(s.State)
	return z
}

// What kernels of a scan take, in units of what chunk_scan takes for one pair of tokens, which
// is 1 ps of an H100: fitted, one by one, to 21 shapes of 1024 to 32768 tokens, 32 to 128
// heads, 1 to 8 groups and states of 64 to 256 there (mamba_ssm of 2026-07, PyTorch 2.11, Triton
// 3.6, 2026-11-24), within 2 to 8 % on average. Those that compute take as long on an H200, whose
// memory is 1.43 times as fast: -9 to +21 % of it in three steps, where those that hand states on
// and normalise take 0.68 to 0.72 (Granite 4.0 H Micro, ten layers of H Tiny, six of Bamba, 2026-11-29).
const (
	passWork       = 0.365  // of a byte of a kernel that computes: an H100's memory takes 0.365 ps (laws/hopper.yaml, scan)
	convGradWork   = 0.84   // of an element of the convolution's gradient
	bareGradWork   = 2.2    // the same whole, where nothing activates what is convolved: LFM2-1.2B on an H200, 76 us at 1980 MHz for 33.6 million
	stateWork      = 0.0029 // of a product
	pairGradWork   = 1.6    // of a pair: gradients of inputs
	scoreGradWork  = 0.28   // of scores
	decayGradWork  = 1.12   // of decays
	mixGradWork    = 0.008  // of a product: gradients of B and of C
	gateGradWork   = 0.81   // of an input: gradient of the gates
	partSumWork    = 1.15   // of an element of B's, C's and the scores' gradients, which are summed over parts of a group's heads
	gatedGradWork  = 4.2    // of an input: gradient of a norm over groups of up to 1024
	gatedGradWidth = 1024
)

// GroupNormGradient is what the gradient of a norm over groups of a width takes for each value of
// which it moves so many bytes: a program for each row and group keeps fewer values the wider they are.
func GroupNormGradient(width int64, bytes units.Bytes) float64 {
	return min(1, gatedGradWidth/float64(width))*gatedGradWork + passWork*float64(bytes)
}

// ScanWeights are the parameters of a mixer.
type ScanWeights struct {
	Conv, ConvBias *Tensor
	Step, Decay    *Tensor
	Skip           *Tensor
	Norm, Out      *Tensor // of the norm and the projection where they belong to the same function; nil: they do not
	Transposed     bool    // Out is stored [in, out]
}

// Scan is Mamba-2's mixer between its projections: of x [batch, sequence, gates + inputs +
// 2·groups·state + heads] it makes [batch, sequence, heads·width], by the kernels of mamba_ssm
// (ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn): a causal convolution, states
// of all chunks from their own tokens, states handed from chunk to chunk, products within
// and across chunks. Only x and the scan's output are kept: the backward pass computes the
// rest again. With Norm and Out the same function normalises by groups, gated, and
// projects, without keeping what lies between.
func (t *Tape) Scan(x *Tensor, w ScanWeights, s ScanShape) *Tensor {
	z, d := s.sizes(), x.dtype
	wide := func(n float64) units.Bytes { return units.Bytes(n) * F32.Size() }
	low := func(n float64) units.Bytes { return units.Bytes(n) * d.Size() }
	takes := func(prim string, work float64, bytes units.Bytes, products float64) {
		t.emit(Op{Prim: prim, Class: Scan, DType: d, Elements: work, Bytes: bytes, FLOPs: units.FLOPs(2 * products)})
	}
	moves := func(prim string, bytes units.Bytes) { takes(prim, 0, bytes, 0) }
	kernel := func(prim string, work float64, bytes units.Bytes, products float64) { // computes
		takes(prim, work+passWork*float64(bytes), bytes, products)
	}
	held := func(dtype DType, n float64) *Tensor { return t.empty(dtype, int64(n)) }
	inner := s.Heads * s.HeadDim
	scores := z.scores * float64(s.State) // products of C and B
	inside := z.pairs * float64(s.HeadDim) / 2

	forward := func(prim string, carried DType) (conv, steps, states *Tensor) { // what both passes compute
		conv = held(d, z.conv)
		kernel(prim, 0, 2*low(z.conv), 0)
		steps = held(F32, 2*z.tokens*float64(s.Heads))
		kernel(prim, 0, 10*units.Bytes(z.tokens*float64(s.Heads)), 0)
		own := held(F32, z.states)
		kernel(prim, stateWork*z.products, low(z.x+z.bc)+wide(z.states), z.products)
		states = held(carried, z.states)
		moves(prim, wide(z.states)+units.Bytes(z.states)*carried.Size())
		t.Release(own)
		return conv, steps, states
	}

	t.Tiny("scan_decay", 2) // -exp(A)
	t.begin()
	conv, steps, states := forward("scan", d)
	cb := held(F32, z.scores)
	kernel("scan", 0, 2*low(z.bc)+wide(z.scores), scores)
	y := t.empty(d, s.Batch, s.Sequence, inner)
	scanned := y
	bytes := low(2*z.x+z.bc+z.states) + wide(z.scores)
	if w.Norm == nil { // gated by the same kernel, which also writes what it gates
		scanned = t.empty(d, s.Batch, s.Sequence, inner)
		bytes += 2 * low(z.x)
	}
	kernel("scan", z.pairs, bytes, z.products+inside)
	t.Release(cb)
	var rows *Tensor
	if w.Norm != nil {
		y = t.empty(d, s.Batch, s.Sequence, inner)
		rows = held(F32, z.tokens*float64(s.Groups))
		moves("scan_norm", 3*low(z.x))
	}
	t.Release(conv, steps, states)
	var out *Tensor
	ins := []*Tensor{x, w.Conv, w.ConvBias, w.Step, w.Decay, w.Skip, w.Norm}
	tokens, width := s.Batch*s.Sequence, int64(0)
	if w.Out != nil {
		out = w.Out
		if out.dtype != d {
			out = t.To(w.Out, d)
		}
		if width = w.Out.Dim(0); w.Transposed {
			width = w.Out.Dim(1)
		}
		between := y
		y = t.empty(d, s.Batch, s.Sequence, width)
		t.gemm("linear", LayoutForward, d, tokens, width, inner, 1)
		t.Release(between)
		ins = append(ins, w.Out)
	}
	saved := []*Tensor{x, scanned, rows}
	if out != nil && out != w.Out {
		saved = append(saved, out)
	}
	t.attach(ins, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		const prim = "scan_backward"
		gy, again := t.Hold(g[0]), (*Tensor)(nil) // the norm's output, which the projection's gradient reads
		if w.Out != nil {
			again = t.empty(d, s.Batch, s.Sequence, inner)
		}
		gx := t.empty(d, x.dims[:x.nd]...)
		gconv := held(d, z.conv)
		if w.Out != nil {
			t.Release(gy)
			gy = t.empty(d, s.Batch, s.Sequence, inner)
			t.gemm("linear_dgrad", LayoutDgrad, d, tokens, inner, width, 1)
		}
		conv, steps, states := forward(prim, F32)
		bytes := 5 * low(z.x)
		if again != nil {
			bytes += low(z.x)
		}
		if w.Norm != nil {
			before := gy
			gy = t.empty(d, s.Batch, s.Sequence, inner)
			takes("scan_norm_backward", z.x*GroupNormGradient(inner/s.Groups, bytes/units.Bytes(z.x)), bytes, 0)
			t.Tiny("sum", 2)
			t.Release(before)
		} else {
			kernel(prim, gateGradWork*z.x, bytes, 0)
			t.Tiny("sum", 1)
		}
		cb := held(F32, z.scores)
		kernel(prim, 0, 2*low(z.bc)+wide(z.scores), scores)
		gown := held(F32, z.states)
		kernel(prim, 0, low(z.x+z.bc)+wide(z.states), z.products)
		gstates, carried := held(d, z.states), held(d, z.states)
		moves(prim, 2*wide(z.states)+2*low(z.states))
		t.Release(gown, states)
		t.Tiny("sum", 4)
		kernel(prim, pairGradWork*z.pairs, low(3*z.x+z.bc+z.states)+wide(z.scores), z.products+inside)
		t.Tiny("sum", 4)
		gsteps := held(F32, 2*z.tokens*float64(s.Heads))
		sums := func(size float64) *Tensor { // parts of the heads of a group, summed
			parts := held(F32, size)
			y := held(F32, size)
			kernel("scan_sum", partSumWork*size, 2*wide(size), 0)
			t.Release(parts)
			return y
		}
		var mixed [2]*Tensor // gradients of B and of C
		for i := range mixed {
			kernel(prim, mixGradWork*z.products, low(z.x+z.bc+z.states)+wide(z.bc), z.products)
			mixed[i] = sums(z.bc)
			t.Tiny("sum", 2)
		}
		kernel(prim, scoreGradWork*z.pairs, 2*low(z.x)+wide(z.scores), inside)
		gscores := sums(z.scores)
		for i := range mixed {
			kernel(prim, 0, wide(z.scores)+2*low(z.bc)+wide(z.bc), scores)
			t.Release(mixed[i])
		}
		t.Release(gscores)
		t.Tiny("sum", 4) // sums along a chunk from its end: two flips, two sums
		kernel(prim, decayGradWork*z.pairs, 2*low(z.x)+wide(z.scores), inside)
		t.Tiny("sum", 3)
		kernel(prim, 0, 16*units.Bytes(z.tokens*float64(s.Heads)), 0)
		t.Release(cb, gstates, carried, gsteps, gy, steps)
		kernel(prim, convGradWork*z.conv, 3*low(z.conv), 0)
		t.Release(conv, gconv)
		t.Tiny("sum", 3) // 16-bit gradients of fp32 sums
		t.Tiny("scan_decay_backward", 2)
		if again != nil {
			t.gemm("linear_wgrad", LayoutWgrad, d, width, inner, tokens, 1)
			t.Release(again)
		}
		r := []*Tensor{gx}
		for _, e := range n.in[1:] {
			r = append(r, t.emptyLike(&e.meta))
		}
		return r
	})
	t.Release(scanned)
	if out != w.Out {
		t.Release(out)
	}
	t.Release(rows)
	return y
}
