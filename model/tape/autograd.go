package tape

import "slices"

type edge struct {
	node  int32 // producing node, -1 when the gradient ends at a parameter
	out   int8
	param int32 // 1 + parameter
	meta  Tensor
}

// node is one entry of the autograd tape.
type node struct {
	module  string
	kind    StoreKind
	narrow  DType  // Quantize of its GEMMs
	fused   bool   // Compiled, of its kernels
	in      []edge // inputs that need a gradient, in the order backward returns them
	saved   []*Tensor
	nout    int8
	grads   [maxOuts]*Tensor // gradients of the outputs, summed over their uses
	isInput bool
	run     func(t *Tape, n *node, g []*Tensor) []*Tensor
}

func (t *Tape) addNode(n node) int32 {
	n.module, n.kind, n.narrow, n.fused = t.Module, t.kind, t.Quantize, t.Compiled
	t.nodes = append(t.nodes, n)
	return int32(len(t.nodes) - 1)
}

// begin marks the start of a primitive.
func (t *Tape) begin() {
	t.begun, t.begunEvent, t.begunStore = len(t.sec.Ops), len(t.sec.Events), int32(len(t.stores))
}

// needs reports whether a gradient must flow to any of the inputs.
func (t *Tape) needs(xs ...*Tensor) bool {
	if !t.record {
		return false
	}
	for _, x := range xs {
		if x != nil && x.grad {
			return true
		}
	}
	return false
}

// attach makes outs the outputs of a new node. run returns one gradient per
// input of ins that requires one; it borrows the output gradients g. saved
// tensors are held until the node has run.
func (t *Tape) attach(ins, outs, saved []*Tensor, run func(t *Tape, n *node, g []*Tensor) []*Tensor) {
	if !t.needs(ins...) {
		return
	}
	n := node{nout: int8(len(outs)), run: run}
	for _, x := range ins {
		if x != nil && x.grad {
			n.in = append(n.in, edge{node: x.node, out: x.outIdx, param: x.param, meta: *x})
		}
	}
	for _, s := range saved {
		if s != nil {
			n.saved = append(n.saved, t.Hold(s))
		}
	}
	if len(saved) > 0 { // inputs are saved before the kernel runs, results (an output, a mask) after it
		t.lastSave, t.lastSaveEvent = t.begun, t.begunEvent
		for _, s := range saved {
			if s != nil && s.store >= t.begunStore {
				t.lastSave, t.lastSaveEvent = len(t.sec.Ops), len(t.sec.Events)
			}
		}
	}
	id := t.addNode(n)
	for i, o := range outs {
		o.grad, o.node, o.outIdx = true, id, int8(i)
	}
}

// attachOne is attach of one input and one output, of which run gets the gradient.
func (t *Tape) attachOne(x, y *Tensor, saved []*Tensor, run func(t *Tape, n *node, g *Tensor) *Tensor) {
	t.attach([]*Tensor{x}, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor { return []*Tensor{run(t, n, g[0])} })
}

// present are the gradients that there are, of inputs in their order.
func present(grads ...*Tensor) []*Tensor {
	return slices.DeleteFunc(grads, func(g *Tensor) bool { return g == nil })
}

// Twice lists the storages that more than one node saves whole, in the order of their second.
func (t *Tape) Twice() []int32 {
	var once, twice []int32
	for i := range t.nodes {
		for _, x := range t.nodes[i].saved {
			switch {
			case x.store < 0 || slices.Contains(twice, x.store) || x.bytes() < t.stores[x.store].bytes: // or a part, as of q, k and v
			case slices.Contains(once, x.store):
				twice = append(twice, x.store)
			default:
				once = append(once, x.store)
			}
		}
	}
	return twice
}

// GradOf allocates the gradient that arrives at an output from the unit after
// it; like Input, this tape releases it.
func (t *Tape) GradOf(y *Tensor, dtype DType) *Tensor {
	g := t.outside(dtype, y.dims[:y.nd])
	t.stores[g.store].owned = true
	return g
}

// Backward runs the nodes that y depends on, latest first (the engine's
// priority is the creation order), starting from gradient g, which it takes
// over. It returns the gradient of the tape's Input, or nil.
func (t *Tape) Backward(y, g *Tensor) *Tensor {
	grads := t.run(0, y, g)
	if len(grads) == 0 {
		return nil
	}
	return grads[0]
}

// run runs the nodes from y down to index lo and returns the gradients of the
// Input nodes among them, in the order they were made.
func (t *Tape) run(lo int, y, g *Tensor) []*Tensor {
	if y.node < 0 {
		t.Release(g)
		return nil
	}
	recording, kind, narrow, fused := t.record, t.kind, t.Quantize, t.Compiled
	t.record = false
	t.nodes[y.node].grads[y.outIdx] = g
	var inputs []*Tensor
	for i := len(t.nodes) - 1; i >= lo; i-- {
		n := t.nodes[i] // a copy: nodes may be appended while it runs
		if n.isInput {
			if n.grads[0] != nil {
				n.grads[0] = t.settle(n.grads[0])
			}
			inputs = append(inputs, n.grads[0])
			t.nodes[i].grads = [maxOuts]*Tensor{}
			continue
		}
		if n.grads == [maxOuts]*Tensor{} {
			t.drop(i)
			continue
		}
		t.Module, t.kind, t.Quantize, t.Compiled = n.module, n.kind, n.narrow, n.fused
		t.host.Nodes++
		began := len(t.sec.Ops)
		out := n.run(t, &n, n.grads[:n.nout])
		t.ran(i, began)
		t.fitAll(n.in, out)
		t.Release(n.grads[:n.nout]...)
		t.nodes[i].grads = [maxOuts]*Tensor{}
		t.drop(i)
		t.route(n.in, out)
	}
	t.record, t.kind, t.Quantize, t.Compiled = recording, kind, narrow, fused
	slices.Reverse(inputs)
	return inputs
}

// drop releases what a node saved.
func (t *Tape) drop(i int) {
	t.Release(t.nodes[i].saved...)
	t.nodes[i].saved = nil
}

// fitAll fits each gradient to its input (sum over broadcast dimensions, cast), while what the
// node was given and had saved is still there (autograd/engine.cpp, call_function).
func (t *Tape) fitAll(in []edge, grads []*Tensor) {
	for i, g := range grads {
		if g != nil {
			grads[i] = t.fit(g, &in[i].meta)
		}
	}
}

// route hands each gradient to the node or parameter it belongs to.
func (t *Tape) route(in []edge, grads []*Tensor) {
	for i, g := range grads {
		if g == nil {
			continue
		}
		e := in[i]
		if e.param > 0 {
			t.paramGrad(e.param-1, g)
			continue
		}
		if e.node < 0 {
			t.Release(g)
			continue
		}
		slot := &t.nodes[e.node].grads[e.out]
		if *slot == nil {
			*slot = g
			continue
		}
		*slot = t.accumulate(*slot, g)
	}
}

// fit reduces g to the shape of x and casts it to x's dtype.
func (t *Tape) fit(g, x *Tensor) *Tensor {
	if g.Size() != x.Size() {
		r := t.empty(g.dtype, x.dims[:x.nd]...)
		t.reduce("sum", sumClass(g, x), g, r)
		t.Release(g)
		g = r
	}
	if g.dtype != x.dtype && (x.param == 0 || x.param != t.Tied) {
		c := t.castTo(g, x.dtype, x.param != 0)
		t.Release(g)
		g = c
	}
	return g
}

// accumulate adds g to old: in place when nothing else holds its storage, as the base of
// a view does, and it is dense, into a new tensor otherwise (input_buffer.cpp, can_accumulate_inplace).
func (t *Tape) accumulate(old, g *Tensor) *Tensor {
	if g.summed { // by the GEMM that made it
		g.summed = false
		t.Release(old)
		return g
	}
	if t.Compiled {
		sum := *old
		sum.more = append(append([]*Tensor(nil), old.more...), g)
		return &sum
	}
	if t.stores[old.store].refs == 1 && t.stores[old.store].owned && old.dense() && !old.view {
		t.kernel("add_", old, old, g)
		t.Release(g)
		return old
	}
	sum := t.apply("add", old, g)
	t.Release(old, g)
	return sum
}

// settle writes out a pending sum, for consumers that cannot add it up themselves.
func (t *Tape) settle(g *Tensor) *Tensor {
	if len(g.more) == 0 {
		return g
	}
	sum := t.like(g)
	if !t.WholeModel {
		t.over("sum", FusedPointwise, sum, g.reads()+sum.bytes())
	}
	t.Release(g)
	return sum
}
