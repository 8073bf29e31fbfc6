package tape

import (
	"slices"
	"sync"

	"github.com/perfplan/perfplan/internal/units"
)

// Tape records one unit of a model (a layer, the embedding, the head). A Tape is
// not safe for concurrent use.
type Tape struct {
	Autocast DType  // compute dtype of autocast; F32 when it is off
	Module   string // module now running, stamped on ops
	Compiled bool   // a compiler made the kernels: sums of gradients ride along in the kernel that reads them, concatenations
	// are plain fused kernels, GEMM operands are padded to 16 bytes
	WholeModel     bool    // and it sees all of the model: rows are added to a table's gradient in fp32, and what makes a layer's gradient sums it up
	Unpadded       bool    // but they are not
	OneGraph       bool    // and autograd runs all of the backward pass as one node, which holds what it was given to its end
	Graphs         bool    // a compiler has the unit in several graphs
	Graph          byte    // of which this one reads the parameter at hand
	Tied           int32   // 1 + the parameter that shares its weight with a table, whose gradient OneGraph makes last; 0: none does
	Joined         bool    // fused kernels cut and join heads: in one pass, in the memory order of the first part
	ScalarCat      bool    // contiguous parts are joined value by value: PyTorch before 2.8 (pytorch/pytorch#151818)
	MainGrad       DType   // weight gradients are added into a buffer of this dtype by their GEMM
	HasMain        bool    // MainGrad is set
	MainHook       bool    // by a kernel after it instead
	MainCast       bool    // which adds a copy in that dtype
	ExpertCalls    bool    // GroupedLinear calls the library once for each expert
	JointProducts  bool    // but for those along a multiple of 128 values, which one kernel makes, though not gradients of weights
	ExpertModules  bool    // and each is a module, whose products are calls of their own
	TF32           bool    // fp32 operands are multiplied in TF32 (torch.backends.cuda.matmul.allow_tf32)
	Quantize       DType   // GEMM operands are cast to this dtype (FP8, FP4); F32: they are not
	Copies         int64   // of an operand cast to Quantize, one for each axis along which GEMMs read it
	RaggedRead     float64 // QuantizeRead of the rows of experts
	ScaleKernels   int64   // tiny kernels that make the scale of each expert's rows
	SumsBack       bool    // GEMMs add the gradients of their inputs to those of other uses, which come before
	QuantizeOne    float64 // the same of a cast to one of two copies
	QuantizeRead   float64 // what a cast to Quantize costs, in readings of its input beside writing the results
	ScaleRanks     int64   // tensor ranks that share a scale of Quantize, which they agree on before each cast
	OwnScales      bool    // which they do for what they gather alone, and cast the rest each by its own
	Rescales       bool    // gradients of products in FP8Row are multiplied by the scales in a kernel of their own
	NarrowGathers  int64   // what only GEMMs read is gathered in Quantize, gradients in so many copies; 0: as it is
	StackedExperts bool    // each expert's product takes its weight out of the stack of all, and products are joined
	TurnedWeights  bool    // gradients of projections' weights come out turned, and are copied into the weights' layout
	SavesInput     bool    // projections that follow save what they read, not its cast to Quantize, and cast it again
	PackedInputs   bool    // products of a weight in few bits save what they read
	KeepsAdapters  bool    // functions of adapters keep these cast, and what they multiplied with B (Adapted)
	HalfZero       Zeros   // of the projections that follow
	Leaf           bool    // modules that follow are inside one whose parameters hooks treat at once, who know none of theirs

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

// over emits a kernel over all elements of x.
func (t *Tape) over(prim string, class Class, x *Tensor, bytes units.Bytes) {
	t.emit(Op{Prim: prim, Class: class, DType: x.dtype, Elements: float64(x.Size()), Bytes: bytes})
}

// Call notes that a Python module is called; the host cost goes to the next op.
func (t *Tape) Call() {
	t.host.Modules++
	if t.Leaf {
		t.host.Inner++
	}
}

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
