package tape

import (
	"slices"
	"sync"

	"github.com/perfplan/perfplan/internal/units"
)

// allocUnit is the caching allocator's smallest block: every allocation is
// rounded up to it (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize).
const allocUnit = 512

// Tape records one unit of a model (a layer, the embedding, the head). A Tape is
// not safe for concurrent use.
type Tape struct {
	Autocast DType  // compute dtype of autocast; F32 when it is off
	Module   string // module now running, stamped on ops
	Compiled bool   // a compiler made the kernels: sums of gradients ride along in the kernel that reads them, concatenations
	// are plain fused kernels, GEMM operands are padded to 16 bytes
	WideTables    bool    // and those that add rows to a table's gradient, in fp32
	OneGraph      bool    // and autograd runs all of the backward pass as one node, which holds what it was given to its end
	Tied          int32   // 1 + the parameter that shares its weight with a table, whose gradient OneGraph makes last; 0: none does
	Joined        bool    // fused kernels cut and join heads: in one pass, in the memory order of the first part
	ScalarCat     bool    // contiguous parts are joined value by value: PyTorch before 2.8 (pytorch/pytorch#151818)
	MainGrad      DType   // weight gradients are added into a buffer of this dtype by their GEMM
	HasMain       bool    // MainGrad is set
	MainHook      bool    // by a kernel after it instead
	MainCast      bool    // which adds a copy in that dtype
	ExpertCalls   bool    // GroupedLinear calls the library once for each expert
	ExpertModules bool    // and each is a module, whose products are calls of their own
	TF32          bool    // fp32 operands are multiplied in TF32 (torch.backends.cuda.matmul.allow_tf32)
	Quantize      DType   // GEMM operands are cast to this dtype (FP8, FP4); F32: they are not
	Copies        int64   // of an operand cast to Quantize, one for each axis along which GEMMs read it
	RaggedRead    float64 // QuantizeRead of the rows of experts
	ScaleKernels  int64   // tiny kernels that make the scale of each expert's rows
	QuantizeRead  float64 // what a cast to Quantize costs, in readings of its input beside writing the results
	ScaleRanks    int64   // tensor ranks that share a scale of Quantize, which they agree on before each cast
	OwnScales     bool    // which they do for what they gather alone, and cast the rest each by its own
	NarrowGathers int64   // what only GEMMs read is gathered in Quantize, gradients in so many copies; 0: as it is
	SavesInput    bool    // projections that follow save what they read, not its cast to Quantize, and cast it again
	HalfZero      Zeros   // of the projections that follow

	keeper *keeper // of the checkpoint that runs, when it keeps some outputs
	buffers
	phase  Phase
	record bool // grad mode: make nodes and save tensors
	host   HostWork
	casts  []cast
	lows   []low
	held   []*Tensor
	trips  []trip
	kind   StoreKind // of new storages

	begun, begunEvent       int   // positions where the primitive now running began
	begunStore              int32 // and the first storage it may have made
	lastSave, lastSaveEvent int   // positions up to which saved tensors reach: checkpointing stops there
}

// buffers are what a tape records into. A search builds thousands of units: each tape takes
// those of one before it.
type buffers struct {
	stores  []storage
	nodes   []node
	sec     Section    // that is recorded
	tensors [][]Tensor // of which views and results are taken one after the other
	taken   int        // of these
}

// used are buffers of tapes that have ended.
var used = sync.Pool{New: func() any { return new(buffers) }}

// New returns a tape that records forward ops with gradients.
func New() *Tape {
	return &Tape{record: true, buffers: *used.Get().(*buffers)}
}

// End gives up the tape and its tensors; what Cut returned stays.
func (t *Tape) End() {
	b := t.buffers
	clear(b.nodes[:cap(b.nodes)]) // closures hold tensors
	for i := range b.tensors {
		clear(b.tensors[i])
	}
	b.stores, b.nodes, b.taken = b.stores[:0], b.nodes[:0], 0
	b.sec.reset()
	t.buffers = buffers{}
	used.Put(&b)
}

// tensor returns a new one.
func (t *Tape) tensor() *Tensor {
	const chunk = 128
	i, k := t.taken/chunk, t.taken%chunk
	if i == len(t.tensors) {
		t.tensors = append(t.tensors, make([]Tensor, chunk))
	}
	t.taken++
	return &t.tensors[i][k]
}

// reset empties a section, whose buffers are filled anew.
func (s *Section) reset() {
	*s = Section{Ops: s.Ops[:0], Events: s.Events[:0], Grads: s.Grads[:0], Deferred: s.Deferred[:0]}
}

// Kind sets what new storages hold and returns the former kind.
func (t *Tape) Kind(k StoreKind) StoreKind {
	old := t.kind
	t.kind = k
	return old
}

// Cut ends the current section and returns it; recording goes on in a new one
// of the given phase.
func (t *Tape) Cut(next Phase) Section {
	s := t.sec
	s.Ops, s.Events, s.Grads, s.Deferred = slices.Clone(s.Ops), slices.Clone(s.Events), slices.Clone(s.Grads), slices.Clone(s.Deferred)
	t.sec.reset()
	t.phase = next
	if next == Backward {
		for _, x := range t.held {
			t.stays(x)
		}
		t.held = t.held[:0]
	}
	t.lastSave, t.lastSaveEvent = 0, 0
	return s
}

// Held leaves x to the end of the backward pass that comes.
func (t *Tape) Held(x *Tensor) { t.held = append(t.held, t.Hold(x)) }

// stays leaves x to the end of the pass.
func (t *Tape) stays(x *Tensor) {
	s := &t.stores[x.store]
	t.sec.Deferred = append(t.sec.Deferred, Event{Store: x.store, Bytes: -s.bytes, Kind: s.kind})
}

// stopEarly cuts what was recorded since position op after the last tensor that
// was saved, as non-reentrant checkpointing stops its recomputation there.
func (t *Tape) stopEarly() {
	t.sec.Ops = t.sec.Ops[:t.lastSave]
	kept, cut := t.sec.Events[:t.lastSaveEvent], slices.Clone(t.sec.Events[t.lastSaveEvent:])
	for _, e := range cut {
		// Keep releases of what was allocated before the cut.
		if e.Bytes < 0 && !slices.ContainsFunc(cut, func(o Event) bool { return o.Store == e.Store && o.Bytes > 0 }) {
			e.Op = min(e.Op, int32(t.lastSave))
			kept = append(kept, e)
		}
	}
	t.sec.Events = kept
}

// --- tensors ---

// Param returns parameter i of the unit. It lives outside the tape's memory.
func (t *Tape) Param(i int, dtype DType, grad bool, dims ...int64) *Tensor {
	x := t.outside(dtype, dims)
	x.param, x.grad = int32(i)+1, grad
	return x
}

// Packed says that a weight is stored in another dtype, of which each product makes a copy
// that it reads.
func (t *Tape) Packed(w *Tensor, d DType) *Tensor {
	w.packed = d
	return w
}

// Outside returns a tensor that others allocate and release: position tables,
// token ids.
func (t *Tape) Outside(dtype DType, dims ...int64) *Tensor { return t.outside(dtype, dims) }

func (t *Tape) outside(dtype DType, dims []int64) *Tensor {
	x := t.meta(dtype, dims)
	x.store = int32(len(t.stores))
	t.stores = append(t.stores, storage{bytes: roundUp(x.bytes()), refs: 1})
	return x
}

// Input returns a tensor that the unit takes over from the unit before it: the
// caller has allocated it, this tape releases it. Its storage is 0 when it is
// the first tensor of the tape.
func (t *Tape) Input(dtype DType, grad bool, dims ...int64) *Tensor {
	x := t.outside(dtype, dims)
	t.stores[x.store].owned = true
	t.stores[x.store].kind = t.kind
	if grad && t.record {
		x.grad = true
		x.node = t.addNode(node{name: "input", isInput: true})
	}
	return x
}

// Lent returns a tensor that another tape made and keeps. Its gradient is added to that of
// others who read it, which this tape does not make, if it has one.
func (t *Tape) Lent(dtype DType, grad bool, dims ...int64) *Tensor {
	x := t.outside(dtype, dims)
	if !t.record || !grad {
		return x
	}
	x.grad = true
	x.node = t.addNode(node{name: "lent", nout: 1, run: func(t *Tape, n *node, g []*Tensor) []*Tensor {
		sum := t.outside(dtype, dims)
		t.kernel("add_", sum, sum, g[0])
		t.Release(sum)
		return nil
	}})
	return x
}

func (t *Tape) meta(dtype DType, dims []int64) *Tensor {
	x := t.tensor()
	*x = Tensor{nd: int8(len(dims)), dtype: dtype, node: -1, store: -1}
	copy(x.dims[:], dims)
	x.setContiguous()
	return x
}

// alloc allocates a fresh tensor with the layout already set in x.
func (t *Tape) alloc(x *Tensor) *Tensor {
	b := roundUp(x.bytes())
	x.store = int32(len(t.stores))
	t.stores = append(t.stores, storage{bytes: b, refs: 1, kind: t.kind, owned: true})
	t.event(x.store, b)
	return x
}

// Empty returns a fresh tensor that no op writes (its kernels are counted elsewhere).
func (t *Tape) Empty(dtype DType, dims ...int64) *Tensor { return t.empty(dtype, dims...) }

func (t *Tape) empty(dtype DType, dims ...int64) *Tensor { return t.alloc(t.meta(dtype, dims)) }

func (t *Tape) event(store int32, bytes units.Bytes) {
	if bytes != 0 {
		t.sec.Events = append(t.sec.Events, Event{Store: store, Op: int32(len(t.sec.Ops)), Bytes: bytes, Kind: t.stores[store].kind})
	}
}

// scratch allocates and releases memory that one kernel needs while it runs.
func (t *Tape) scratch(b units.Bytes) {
	if b <= 0 {
		return
	}
	b = roundUp(b)
	id := int32(len(t.stores))
	t.stores = append(t.stores, storage{bytes: b, kind: Workspace, owned: true})
	t.event(id, b)
	t.event(id, -b)
}

// Bytes is the size of the block that holds x.
func (t *Tape) Bytes(x *Tensor) units.Bytes { return t.stores[x.store].bytes }

func roundUp(b units.Bytes) units.Bytes {
	n := (int64(b) + allocUnit - 1) / allocUnit * allocUnit
	return units.Bytes(n)
}

// Hold adds an owner and returns x.
func (t *Tape) Hold(x *Tensor) *Tensor {
	if x != nil && x.store >= 0 {
		t.stores[x.store].refs++
		for _, m := range x.more {
			t.Hold(m)
		}
	}
	return x
}

// Release gives up one ownership; the last one frees the storage.
func (t *Tape) Release(xs ...*Tensor) {
	for _, x := range xs {
		if x == nil || x.store < 0 {
			continue
		}
		t.Release(x.more...)
		s := &t.stores[x.store]
		if s.refs--; s.refs == 0 && s.owned {
			t.event(x.store, -s.bytes)
		}
	}
}

// view returns another tensor on x's storage.
func (t *Tape) view(x *Tensor) *Tensor {
	y := t.tensor()
	*y = *x
	y.node, y.grad, y.param = -1, false, 0
	t.Hold(x)
	t.host.Views++
	return y
}

// --- ops ---

// emit appends an op and gives it the host work gathered since the last one.
func (t *Tape) emit(o Op) {
	o.Module, o.Phase = t.Module, t.phase
	if o.Count == 0 && o.Class != NoKernel {
		o.Count = 1
	}
	h := t.host
	h.Calls++
	h.Asked = t.asks()
	o.Host = h
	t.host = HostWork{}
	t.sec.Ops = append(t.sec.Ops, o)
}

// Call notes that a Python module is called; the host cost goes to the next op.
func (t *Tape) Call() { t.host.Modules++ }

// note records host work that a recipe prices under a name of its own.
func (t *Tape) note(prim string) {
	t.sec.Ops = append(t.sec.Ops, Op{Module: t.Module, Prim: prim, Phase: t.phase})
}

// Note records n times host work that a recipe prices under a name of its own.
func (t *Tape) Note(prim string, n int) {
	for range n {
		t.note(prim)
	}
}

// Called notes a collective over one rank, which is called but moves nothing.
func (t *Tape) Called(prim string) {
	t.sec.Ops = append(t.sec.Ops, Op{Module: t.Module, Prim: prim, Phase: t.phase, Host: HostWork{Calls: 1, Asked: t.asks()}})
}

// Flush turns host work without a following kernel into an op of its own.
func (t *Tape) Flush() {
	if t.host != (HostWork{}) {
		t.sec.Ops = append(t.sec.Ops, Op{Module: t.Module, Prim: "host", Phase: t.phase, Host: t.host})
		t.host = HostWork{}
	}
}

// Tiny emits n kernels too small to matter but for their launch.
func (t *Tape) Tiny(prim string, n int) {
	for range n {
		t.emit(Op{Prim: prim, Class: Vectorized, Elements: 1})
	}
}

// Wait emits the host's wait for the device: a copy of one value to the host.
func (t *Tape) Wait() {
	t.emit(Op{Prim: "item", Class: Memcpy, Elements: 1, Bytes: 1, Sync: true})
}

// --- autograd ---

type edge struct {
	node  int32 // producing node, -1 when the gradient ends at a parameter
	out   int8
	param int32 // 1 + parameter
	meta  Tensor
}

// node is one entry of the autograd tape.
type node struct {
	name    string
	module  string
	kind    StoreKind
	narrow  DType  // Quantize of its GEMMs
	in      []edge // inputs that need a gradient, in the order backward returns them
	saved   []*Tensor
	nout    int8
	grads   [maxOuts]*Tensor // gradients of the outputs, summed over their uses
	isInput bool
	run     func(t *Tape, n *node, g []*Tensor) []*Tensor
}

func (t *Tape) addNode(n node) int32 {
	n.module, n.kind, n.narrow = t.Module, t.kind, t.Quantize
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
func (t *Tape) attach(name string, ins, outs, saved []*Tensor, run func(t *Tape, n *node, g []*Tensor) []*Tensor) {
	if !t.needs(ins...) {
		return
	}
	n := node{name: name, nout: int8(len(outs)), run: run}
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
	recording, kind, narrow := t.record, t.kind, t.Quantize
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
		t.Module, t.kind, t.Quantize = n.module, n.kind, n.narrow
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
	t.record, t.kind, t.Quantize = recording, kind, narrow
	for i, j := 0, len(inputs)-1; i < j; i, j = i+1, j-1 {
		inputs[i], inputs[j] = inputs[j], inputs[i]
	}
	return inputs
}

// Checkpoint runs f on activations without saving anything but these inputs; its
// gradient runs f again and then the gradients of that run. Parameters reach f
// by closure. With early, the second run ends after the last tensor it saves.
func (t *Tape) Checkpoint(early bool, f func(ins []*Tensor) *Tensor, ins ...*Tensor) *Tensor {
	return t.checkpoint(early, nil, f, ins)
}

// Discard runs f on activations without saving anything but these inputs, as Checkpoint
// does, and lets go of its outputs too: after takes what their readers made of them and
// frees what these saved. Before the readers' gradients f runs again and fills it anew
// (Megatron-Core, tensor_parallel/random.py, CheckpointWithoutOutput).
func (t *Tape) Discard(f func(ins []*Tensor) []*Tensor, ins ...*Tensor) (outs []*Tensor, after func(made *Tensor) *Tensor) {
	if !t.record {
		return f(ins), func(made *Tensor) *Tensor { return made }
	}
	t.note("discard")
	t.record = false
	outs = f(ins)
	t.record = true
	stores := make([]int32, len(outs))
	for i, y := range outs {
		stores[i] = y.store
	}
	slices.Sort(stores)
	stores = slices.Compact(stores)
	var again []*Tensor // the outputs of the second run
	lo := 0             // its first node
	t.begin()
	t.attach("discard", ins, outs, ins, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		first := -1
		for i, y := range again {
			switch {
			case y.node < 0 || g[i] == nil:
			case first < 0:
				first = i
			default:
				t.nodes[y.node].grads[y.outIdx] = t.Hold(g[i])
			}
		}
		out := t.run(lo, again[first], t.Hold(g[first]))
		t.nodes = t.nodes[:lo]
		return out
	})
	return outs, func(made *Tensor) *Tensor {
		var dropped []int32 // of the outputs that readers saved
		for _, id := range stores {
			if s := &t.stores[id]; s.owned && s.refs > 0 {
				t.event(id, -s.bytes)
				s.owned = false
				dropped = append(dropped, id)
			}
		}
		y := *made
		y.node, y.grad = -1, false
		t.begin()
		t.attach("discarded", []*Tensor{made}, []*Tensor{&y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
			outer := t.phase
			lo = len(t.nodes)
			t.note("discard_backward")
			t.phase, t.record = Recompute, true
			again = f(t.inputs(ins))
			t.EndAutocast()
			t.Release(again...)
			t.phase, t.record = outer, false
			for _, id := range dropped {
				t.stores[id].owned = true
				t.event(id, t.stores[id].bytes)
			}
			return []*Tensor{t.Hold(g[0])}
		})
		return &y
	}
}

// inputs are copies of tensors for a second run, with gradients that end there.
func (t *Tape) inputs(ins []*Tensor) []*Tensor {
	again := make([]*Tensor, len(ins))
	for i, x := range ins {
		c := *x
		if x.grad {
			c.node, c.outIdx = t.addNode(node{name: "input", isInput: true}), 0
		}
		again[i] = &c
	}
	return again
}

// CheckpointSome is Checkpoint but for the outputs of attention, of collectives that are
// Kept and, with products, of every other matrix multiply, which the second run finds kept
// (torch.utils.checkpoint with the policy that torchtitan calls selective activation
// checkpointing by op).
func (t *Tape) CheckpointSome(products bool, f func(ins []*Tensor) *Tensor, ins ...*Tensor) *Tensor {
	return t.checkpoint(false, &keeper{products: products}, f, ins)
}

// Unread runs f, whose outputs no gradient reads, as a compiler sees: a checkpoint that
// keeps some outputs neither keeps these nor computes them again.
func (t *Tape) Unread(f func() *Tensor) *Tensor {
	if k := t.keeper; k != nil && !k.unread {
		k.unread = true
		defer func() { k.unread = false }()
	}
	return f()
}

// keeper holds outputs of a checkpoint's first run for the second.
type keeper struct {
	products bool // every other product is kept
	again    bool
	unread   bool // no gradient reads what runs
	seen     int  // matrix multiplies so far
	kept     []*Tensor
}

// asks reports whether a checkpoint's policy sees the calls of the dispatcher: a compiler
// has asked it once for all.
func (t *Tape) asks() bool { return t.keeper != nil && !t.Compiled }

// product reports whether a checkpoint keeps the matrix multiply that comes next.
func (t *Tape) product() bool {
	k := t.keeper
	if k == nil || !k.products {
		return false
	}
	k.seen++
	return k.seen%2 == 1
}

// produce allocates y and runs the kernels that compute it: in a checkpoint's second
// run neither, when y was kept or nothing reads it.
func (t *Tape) produce(keep bool, y *Tensor, kernels func(*Tensor)) *Tensor {
	k := t.keeper
	keep = keep && k != nil && !k.unread
	switch {
	case keep && k.again:
		y := k.kept[0]
		k.kept = k.kept[1:]
		if t.asks() { // and hands it out
			t.host.Views++
		}
		return y
	case k != nil && k.again && k.unread:
		return y
	}
	t.alloc(y)
	kernels(y)
	if keep {
		k.kept = append(k.kept, t.Hold(y))
	}
	return y
}

func (t *Tape) checkpoint(early bool, keep *keeper, f func(ins []*Tensor) *Tensor, ins []*Tensor) *Tensor {
	if !t.record {
		return f(ins)
	}
	t.note("checkpoint")
	t.record, t.keeper = false, keep
	y := f(ins)
	t.record, t.keeper = true, nil
	t.begin()
	t.attach("checkpoint", ins, []*Tensor{y}, ins, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		outer, lo := t.phase, len(t.nodes)
		again := t.inputs(ins)
		t.note("checkpoint_backward")
		t.phase, t.record = Recompute, true
		t.lastSave, t.lastSaveEvent = len(t.sec.Ops), len(t.sec.Events)
		if keep != nil {
			keep.again, keep.seen = true, 0
		}
		t.keeper = keep
		y := f(again)
		t.keeper = nil
		t.EndAutocast()
		t.Release(y)
		if early {
			t.stopEarly()
			t.host = HostWork{}
		}
		t.phase, t.record = outer, false
		out := t.run(lo, y, t.Hold(g[0]))
		t.nodes = t.nodes[:lo]
		return out
	})
	return y
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

// sumClass is the class of a sum over the dimensions of g that x does not have.
func sumClass(g, x *Tensor) Class {
	if x.Dim(-1) == 1 && g.Dim(-1) != 1 {
		return RowReduce
	}
	if g.nd != x.nd {
		return ColReduce
	}
	for i := range g.nd {
		if g.dims[i] != x.dims[i] {
			return ColReduce
		}
		if g.dims[i] > 1 { // such as the sum over repeated key and value heads
			return MidReduce
		}
	}
	return ColReduce
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
	sum := t.like(old, g)
	t.kernel("add", sum, old, g)
	t.Release(old, g)
	return sum
}

// settle writes out a pending sum, for consumers that cannot add it up themselves.
func (t *Tape) settle(g *Tensor) *Tensor {
	if len(g.more) == 0 {
		return g
	}
	sum := t.like(g)
	t.emit(Op{Prim: "sum", Class: FusedPointwise, DType: sum.dtype, Elements: float64(sum.Size()), Bytes: g.reads() + sum.bytes()})
	t.Release(g)
	return sum
}
