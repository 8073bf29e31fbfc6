package cuda

import (
	"fmt"
	"math"
	"slices"
)

// Attention is softmax(Q·Kᵀ/√width)·V over whole sequences, fused, or its backward
// pass. Tensors are tokens-major as projections write them: Q, O and their gradients
// [batch, sequence, heads, width], K, V and theirs [batch, sequence, kv heads, width];
// each key/value head serves heads/kv heads query heads. Statistics, which training
// keeps, are the logarithms of the softmax's sums, fp32 [batch, heads, sequence].
type Attention struct {
	Batch, Sequence, Heads, KVHeads, Width int64
	Causal, Backward                       bool
	DType                                  string // bf16, fp16
	// The backward pass reads Q, K, V, O, Stats and DO; the forward pass writes O and
	// Stats and has no gradients.
	Q, K, V, O, Stats, DO, DQ, DK, DV Buffer
}

// Sizes returns the elements of a tensor of queries, one of keys, and the statistics.
func (a Attention) Sizes() (queries, keys, stats int64) {
	tokens := a.Batch * a.Sequence
	return tokens * a.Heads * a.Width, tokens * a.KVHeads * a.Width, tokens * a.Heads
}

// Reference is the attention's formula in fp64 on the host, for problems of a test's
// size, with its gradients where dO is given.
func (a Attention) Reference(q, k, v, do []float32) (o, dq, dk, dv []float32) {
	queries, keys, _ := a.Sizes()
	o, dq, dk, dv = make([]float32, queries), make([]float32, queries), make([]float32, keys), make([]float32, keys)
	n, w, group := int(a.Sequence), int(a.Width), int(a.Heads/a.KVHeads)
	row := func(t []float32, batch, i, head, heads int) []float32 {
		from := ((batch*n+i)*heads + head) * w
		return t[from : from+w]
	}
	dot := func(x, y []float32) (sum float64) {
		for i := range x {
			sum += float64(x[i]) * float64(y[i])
		}
		return sum
	}
	add := func(to []float32, by float64, x []float32) {
		for i := range x {
			to[i] += float32(by * float64(x[i]))
		}
	}
	scale := 1 / math.Sqrt(float64(w))
	p := make([]float64, n)
	for batch := range int(a.Batch) {
		for head := range int(a.Heads) {
			of := func(t []float32, i int) []float32 { return row(t, batch, i, head, int(a.Heads)) }
			shared := func(t []float32, j int) []float32 { return row(t, batch, j, head/group, int(a.KVHeads)) }
			for i := range n {
				last := n
				if a.Causal {
					last = i + 1
				}
				var sum float64
				for j := range last {
					p[j] = math.Exp(scale * dot(of(q, i), shared(k, j)))
					sum += p[j]
				}
				for j := range last {
					p[j] /= sum
					add(of(o, i), p[j], shared(v, j))
				}
				if do == nil {
					continue
				}
				d := dot(of(do, i), of(o, i))
				for j := range last {
					ds := scale * p[j] * (dot(of(do, i), shared(v, j)) - d)
					add(shared(dv, j), p[j], of(do, i))
					add(shared(dk, j), ds, of(q, i))
					add(of(dq, i), ds, shared(k, j))
				}
			}
		}
	}
	return o, dq, dk, dv
}

// Workspace is the fp32 elements that the backward pass keeps between its kernels, in
// memory of its own: the gradient of Q while it is summed, and the sums of dO·O.
func (a Attention) Workspace() int64 {
	queries, _, stats := a.Sizes()
	if !a.Backward {
		return 0
	}
	return queries + stats
}

// block is what sequences are multiples of: before version 9.16 cuDNN's backward pass
// is wrong at a partial last block of keys (cudnn-frontend pads there).
const block = 128

func (a Attention) String() string {
	direction := "forward"
	if a.Backward {
		direction = "backward"
	}
	return fmt.Sprintf("attention %s of batch %d, sequence %d, heads %d/%d of %d, %s", direction, a.Batch, a.Sequence, a.Heads, a.KVHeads, a.Width, a.DType)
}

// check refuses what no cuDNN runs and what this package does not ask for.
func (a Attention) check() error {
	switch {
	case a.DType != "bf16" && a.DType != "fp16":
		return fmt.Errorf("%v: use bf16 or fp16", a)
	case a.Batch < 1 || a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0:
		return fmt.Errorf("%v: the heads must be a multiple of the key/value heads", a)
	case a.Sequence < block || a.Sequence%block != 0:
		return fmt.Errorf("%v: the sequence must be a multiple of %d", a, block)
	case a.Width < 8 || a.Width%8 != 0:
		return fmt.Errorf("%v: the width must be a multiple of 8", a)
	}
	queries, keys, stats := a.Sizes()
	wide, narrow := []Buffer{a.Q, a.O}, []Buffer{a.K, a.V}
	if a.Backward {
		wide, narrow = append(wide, a.DO, a.DQ), append(narrow, a.DK, a.DV)
	}
	small := func(bytes int64) func(Buffer) bool {
		return func(b Buffer) bool { return b == nil || b.Bytes() < bytes }
	}
	w := Width(a.DType)
	if slices.ContainsFunc(wide, small(queries*w)) || slices.ContainsFunc(narrow, small(keys*w)) || small(stats*4)(a.Stats) {
		return fmt.Errorf("%v: the buffers are too small", a)
	}
	return nil
}

// Numbers of cudnnDataType_t, cudnnPointwiseMode_t and cudnnReduceTensorOp_t of
// cuDNN 9 (cudnn_graph.h).
const (
	dnnFloat, dnnHalf, dnnInt32, dnnBFloat16, dnnBoolean = 0, 2, 4, 9, 11

	pointMul, pointAdd, pointDiv, pointSub, pointExp, pointLog = 1, 0, 6, 9, 13, 15
	pointIdentity, pointGE, pointIndex, pointSelect            = 21, 303, 501, 601

	reduceAdd, reduceMax = 0, 3
)

var dnnTypes = map[string]int{"bf16": dnnBFloat16, "fp16": dnnHalf}

// Kinds of operation, as numbered in shim.h.
const (
	dnnPointwise = iota
	dnnMatmul
	dnnReduction
	dnnReshape
)

// dnnTensor is a tensor of a graph. One without buffer is virtual, passed from one
// operation to the next, unless it is a value.
type dnnTensor struct {
	dims, strides [4]int64
	dtype         int
	buffer        Buffer
	scratch       bool // real, in memory of the operation's own
	value         *float32
}

// dnnOp is an operation on tensors by number; none is -1.
type dnnOp struct {
	kind, mode, axis, compute int
	x, b, t, y                int
}

// dnnGraph is a graph of cuDNN's operations, which its flash-attention engines know by
// their pattern; that of cudnn-frontend's SDPA nodes, in their order.
type dnnGraph struct {
	a       Attention
	tensors []dnnTensor
	ops     []dnnOp
}

func (g *dnnGraph) add(t dnnTensor) int {
	g.tensors = append(g.tensors, t)
	return len(g.tensors) - 1
}

// dense strides of row-major dimensions.
func dense(dims [4]int64) (out [4]int64) {
	n := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		out[i] = n
		n *= dims[i]
	}
	return out
}

// swapped exchanges the last two of four.
func swapped(v [4]int64) [4]int64 { return [4]int64{v[0], v[1], v[3], v[2]} }

// operand is a tensor [batch, heads, sequence, width] of 16 bits in memory; transposed
// it is seen as [batch, heads, width, sequence].
func (g *dnnGraph) operand(b Buffer, heads int64, transposed bool) int {
	a := g.a
	t := dnnTensor{
		dims:    [4]int64{a.Batch, heads, a.Sequence, a.Width},
		strides: [4]int64{a.Sequence * heads * a.Width, a.Width, heads * a.Width, 1},
		dtype:   dnnTypes[a.DType], buffer: b,
	}
	if transposed {
		t.dims, t.strides = swapped(t.dims), swapped(t.strides)
	}
	return g.add(t)
}

// rows is a fp32 tensor of one number for each query: [batch, heads, sequence, 1].
func (g *dnnGraph) rows(b Buffer) int {
	dims := [4]int64{g.a.Batch, g.a.Heads, g.a.Sequence, 1}
	return g.add(dnnTensor{dims: dims, strides: dense(dims), dtype: dnnFloat, buffer: b})
}

// scores is a virtual tensor [batch, heads, queries, keys].
func (g *dnnGraph) scores(dtype int) int {
	dims := [4]int64{g.a.Batch, g.a.Heads, g.a.Sequence, g.a.Sequence}
	return g.add(dnnTensor{dims: dims, strides: dense(dims), dtype: dtype})
}

// wide is a tensor [batch, heads, sequence, width] that no buffer of the caller holds.
func (g *dnnGraph) wide(dtype int) int {
	dims := [4]int64{g.a.Batch, g.a.Heads, g.a.Sequence, g.a.Width}
	return g.add(dnnTensor{dims: dims, strides: dense(dims), dtype: dtype})
}

func (g *dnnGraph) value(v float32) int {
	return g.add(dnnTensor{dims: [4]int64{1, 1, 1, 1}, strides: [4]int64{1, 1, 1, 1}, dtype: dnnFloat, value: &v})
}

// point puts an operation on up to two operands into y.
func (g *dnnGraph) point(mode, x, b, y int) int {
	g.ops = append(g.ops, dnnOp{kind: dnnPointwise, mode: mode, compute: dnnFloat, x: x, b: b, t: -1, y: y})
	return y
}

func (g *dnnGraph) matmul(a, b, y int) int {
	g.ops = append(g.ops, dnnOp{kind: dnnMatmul, compute: dnnFloat, x: a, b: b, t: -1, y: y})
	return y
}

func (g *dnnGraph) reduce(mode, x, y int) int {
	g.ops = append(g.ops, dnnOp{kind: dnnReduction, mode: mode, compute: dnnFloat, x: x, b: -1, t: -1, y: y})
	return y
}

// transposed sees a tensor of rows by columns as one of columns by rows, of a dtype.
func (g *dnnGraph) transposed(x, dtype int) int {
	t := g.tensors[x]
	y := g.add(dnnTensor{dims: swapped(t.dims), strides: swapped(t.strides), dtype: dtype})
	g.ops = append(g.ops, dnnOp{kind: dnnReshape, x: x, b: -1, t: -1, y: y})
	return y
}

// mask puts -∞, or the least number, where a key is behind its query.
func (g *dnnGraph) mask(x int, least float32) int {
	row, column, seen := g.scores(dnnInt32), g.scores(dnnInt32), g.scores(dnnBoolean)
	y := g.scores(dnnFloat)
	g.ops = append(g.ops,
		dnnOp{kind: dnnPointwise, mode: pointIndex, axis: 2, compute: dnnFloat, x: x, b: -1, t: -1, y: row},
		dnnOp{kind: dnnPointwise, mode: pointIndex, axis: 3, compute: dnnFloat, x: x, b: -1, t: -1, y: column},
		dnnOp{kind: dnnPointwise, mode: pointGE, compute: dnnBoolean, x: row, b: column, t: -1, y: seen},
		dnnOp{kind: dnnPointwise, mode: pointSelect, compute: dnnFloat, x: x, b: g.value(least), t: seen, y: y})
	return y
}

// graph composes the operations of a problem for a version of cuDNN as it counts them
// (91400 is 9.14.0).
func (a Attention) graph(version int) *dnnGraph {
	g := &dnnGraph{a: a}
	least := float32(math.Inf(-1))
	if version < 91000 { // as cudnn-frontend has it: a finite number before 9.10, infinity since
		least = -math.MaxFloat32
	}
	if a.Backward {
		g.backward(least)
	} else {
		g.forward(least)
	}
	return g
}

// forward is S = Q·Kᵀ/√width, masked, P = softmax(S), O = P·V.
func (g *dnnGraph) forward(least float32) {
	a := g.a
	io := dnnTypes[a.DType]
	scale := g.value(float32(1 / math.Sqrt(float64(a.Width))))
	s := g.matmul(g.operand(a.Q, a.Heads, false), g.operand(a.K, a.KVHeads, true), g.scores(dnnFloat))
	s = g.point(pointMul, s, scale, g.scores(dnnFloat))
	if a.Causal {
		s = g.mask(s, least)
	}
	most := g.reduce(reduceMax, s, g.rows(nil))
	e := g.point(pointExp, g.point(pointSub, s, most, g.scores(dnnFloat)), -1, g.scores(dnnFloat))
	sum := g.reduce(reduceAdd, e, g.rows(nil))
	g.point(pointAdd, most, g.point(pointLog, sum, -1, g.rows(nil)), g.rows(a.Stats))
	p := g.point(pointDiv, e, sum, g.scores(io))
	g.matmul(p, g.operand(a.V, a.KVHeads, false), g.operand(a.O, a.Heads, false))
}

// backward is, with D the sums of dO·O over a query's row and P = exp(S - statistics):
// dV = Pᵀ·dO, dS = P·(dO·Vᵀ - D)/√width, dK = dSᵀ·Q, dQ = dS·K (Dao et al., arXiv
// 2205.14135, algorithm 4). The gradients of heads that share keys are summed.
func (g *dnnGraph) backward(least float32) {
	a := g.a
	io := dnnTypes[a.DType]
	scale, one := g.value(float32(1/math.Sqrt(float64(a.Width)))), g.value(1)
	q, k, v := g.operand(a.Q, a.Heads, false), g.operand(a.K, a.KVHeads, true), g.operand(a.V, a.KVHeads, true)
	o, do, stats := g.operand(a.O, a.Heads, false), g.operand(a.DO, a.Heads, false), g.rows(a.Stats)

	d := g.reduce(reduceAdd, g.point(pointMul, do, o, g.wide(dnnFloat)), g.rows(nil))
	d = g.point(pointMul, d, one, g.rows(nil)) // the place of dropout's scale, part of the pattern
	g.tensors[d].scratch = true

	s := g.point(pointMul, g.matmul(q, k, g.scores(dnnFloat)), scale, g.scores(dnnFloat))
	s = g.point(pointSub, s, stats, g.scores(dnnFloat))
	if a.Causal {
		s = g.mask(s, least)
	}
	p := g.point(pointExp, s, -1, g.scores(dnnFloat))
	g.shared(g.transposed(p, io), do, a.DV)

	ds := g.point(pointSub, g.matmul(do, v, g.scores(dnnFloat)), d, g.scores(dnnFloat))
	ds = g.point(pointMul, ds, p, g.scores(dnnFloat))
	ds = g.point(pointMul, ds, scale, g.scores(dnnFloat))
	g.shared(g.transposed(ds, io), q, a.DK)

	dq := g.matmul(ds, g.transposed(k, io), g.wide(dnnFloat))
	g.tensors[dq].scratch = true
	g.point(pointIdentity, dq, -1, g.operand(a.DQ, a.Heads, false))
}

// shared multiplies into the gradient of keys or values, through one of all heads
// where heads share them.
func (g *dnnGraph) shared(x, y int, gradient Buffer) {
	out := g.operand(gradient, g.a.KVHeads, false)
	if g.a.Heads == g.a.KVHeads {
		g.matmul(x, y, out)
		return
	}
	g.reduce(reduceAdd, g.matmul(x, y, g.wide(dnnTypes[g.a.DType])), out)
}
