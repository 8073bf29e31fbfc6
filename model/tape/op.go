package tape

import "github.com/perfplan/perfplan/internal/units"

// Class says which law of the hardware profile prices an op: kernels of one
// class share their limits.
type Class uint8

const (
	NoKernel Class = iota // host work only

	GEMM        // matrix multiply on tensor cores
	GroupedGEMM // one GEMM per expert
	Attention   // fused attention, forward or backward

	Vectorized      // elementwise, contiguous, one dtype (or fp32 to 16-bit copy)
	Arithmetic      // the same with much arithmetic per element: GELU
	Unrolled        // elementwise cast, contiguous (16-bit to fp32)
	UnrolledMix     // elementwise on contiguous operands of different dtypes
	Strided2        // elementwise, broadcast or strided operands, 2-byte elements
	Strided4        // the same, 4-byte elements
	Transposed      // elementwise, operands of which neighbours in the result lie a row apart
	TransposedAgain // the same, all of a part of one operand again and again: N are its bytes
	StridedCast     // broadcast or strided with a dtype conversion inside
	Concat          // CatArrayBatchedCopy
	RowReduce       // sum or mean over the last dimension
	ColReduce       // sum over all leading dimensions
	MidReduce       // sum over a dimension in the middle
	TallReduce      // sum over all leading dimensions of so few columns that few blocks share the work
	Fill            // constant fill, memset
	Memcpy          // device-to-device copy
	Gather          // whole rows by index
	ScatterAdd      // rows added by a sorted index (index_put_ with accumulate)
	SerialAdd       // the same where many rows add up to few, one row after the other
	AtomicAdd       // rows added by an index that is not sorted, each element by an atomic operation
	EmbedDirect     // embedding gradient, tokens one after the other
	EmbedSort       // embedding gradient after a sort by token
	SoftmaxForward
	SoftmaxBackward
	LayerRows    // PyTorch's own kernel of layer norms: a block of threads takes a row
	RMSRows      // the same without means
	NormForward  // fused layer or RMS norm
	NormBackward // gradient of the input in a fused norm
	RMSTuned     // Transformer Engine's norms: kernels tuned for some widths of rows
	RMSTunedBack
	RMSGeneral // and those for any other
	RMSGeneralBack
	LNTuned
	LNTunedBack
	LNGeneral
	LNGeneralBack
	NormSum        // of the partial gradients of the weight that general ones leave
	NormWeight     // gradient of weight and bias in a fused norm
	Dropout        // fused dropout with mask
	DropoutWide    // the same of fp32
	Sort           // radix sort pass
	TopK           // selection of the k largest of each row, and the sort of rows so short
	RowSort        // rows sorted by a program each, in steps of compare and swap (Transformer Engine's map of routed rows, in Triton)
	RowTopK        // selection of the k largest of each row by a warp, one after the other (Transformer Engine's router)
	RowWarp        // a warp for each row, several readings of it in shared memory
	RowHeld        // a warp for each row, which it holds in its registers (Transformer Engine's softmax, by width)
	RowHeldBack    // its gradient, of two rows
	RowProgram     // one program for each row, with next to nothing to do
	RowTriton      // one program for each row, which it reads once (Unsloth's norms and rotary embedding, in Triton)
	RowLoop        // a program on each SM, which takes rows one after the other (Liger-Kernel's gradient of a norm, in Triton)
	RowMap         // rows moved by a map of rows and experts that is read entry by entry (Hybrid-EP's permutations before 2026-05)
	MapScan        // a routing map scanned along its rows (Hybrid-EP)
	Index          // element-wise gather or scatter by index
	Scatter        // the same along a dimension, one index for each element
	FusedPointwise // compiler-fused elementwise (Triton)
	FusedReduce    // fused with a row reduction: a compiler's (Triton), those of cuDNN around attention
	FusedHeavy     // compiler-fused with much arithmetic per element (rotary tables recomputed)
	LossForward    // cross entropy over 16-bit logits in one kernel
	LossBackward
	LossBlocks  // logits multiplied out block by block and summed up where they are (Cut Cross-Entropy)
	LossAdds    // and their gradients, in products that blocks add under locks
	LossKept    // the same of blocks whose gradients are not near zero
	Convolution // of patches that do not overlap, without tensor cores
	Scan        // of a state-space mixer: products of a chunk of tokens (mamba_ssm, in Triton), its convolution, its gated norm
	Chain       // states handed from chunk to chunk of a sequence, one after another
	RowBlock    // handwritten, one block for each row of any width (Transformer Engine's cross entropy, in Triton)
	MultiTensor // one kernel over a list of tensors (foreach copies)
	Optimizer   // fused optimizer over a list of tensors
	ChunkCat    // FSDP2's gradient packing
	SplitCopy   // FSDP2's unpacking after the all-gather
	Unpack      // of 4 bits and the scales of their blocks (bitsandbytes)
	Update32    // of a tensor by a kernel of its own, with states in 32 bits (bitsandbytes)
	Update8     // and in blocks of 8 bits, which are searched for the nearest of 256 values
	Prefetch    // of managed memory, which is on the device already

	Collective // communication; priced by hardware/collective

	NumClasses
)

var classNames = [NumClasses]string{
	NoKernel:        "host",
	GEMM:            "gemm",
	GroupedGEMM:     "grouped-gemm",
	Attention:       "attention",
	Vectorized:      "vectorized",
	Arithmetic:      "arithmetic",
	Unrolled:        "unrolled",
	UnrolledMix:     "unrolled-mix",
	Strided2:        "strided2",
	Strided4:        "strided4",
	Transposed:      "transposed",
	TransposedAgain: "transposed-again",
	StridedCast:     "strided-cast",
	Concat:          "concat",
	RowReduce:       "row-reduce",
	ColReduce:       "col-reduce",
	MidReduce:       "mid-reduce",
	TallReduce:      "tall-reduce",
	Fill:            "fill",
	Memcpy:          "memcpy",
	Gather:          "gather",
	ScatterAdd:      "scatter-add",
	SerialAdd:       "serial-add",
	AtomicAdd:       "atomic-add",
	EmbedDirect:     "embed-direct",
	EmbedSort:       "embed-sort",
	SoftmaxForward:  "softmax-forward",
	SoftmaxBackward: "softmax-backward",
	LayerRows:       "layer-rows",
	RMSRows:         "rms-rows",
	NormForward:     "norm-forward",
	NormBackward:    "norm-backward",
	RMSTuned:        "rms-tuned",
	RMSTunedBack:    "rms-tuned-backward",
	RMSGeneral:      "rms-general",
	RMSGeneralBack:  "rms-general-backward",
	LNTuned:         "ln-tuned",
	LNTunedBack:     "ln-tuned-backward",
	LNGeneral:       "ln-general",
	LNGeneralBack:   "ln-general-backward",
	NormSum:         "norm-sum",
	NormWeight:      "norm-weight",
	Dropout:         "dropout",
	DropoutWide:     "dropout-wide",
	Sort:            "sort",
	TopK:            "topk",
	RowSort:         "row-sort",
	RowTopK:         "row-topk",
	RowWarp:         "row-warp",
	RowHeld:         "row-held",
	RowHeldBack:     "row-held-backward",
	RowProgram:      "row-program",
	RowTriton:       "row-triton",
	RowLoop:         "row-loop",
	RowMap:          "row-map",
	MapScan:         "map-scan",
	Index:           "index",
	Scatter:         "scatter",
	FusedPointwise:  "fused-pointwise",
	FusedReduce:     "fused-reduce",
	FusedHeavy:      "fused-heavy",
	LossForward:     "loss-forward",
	LossBackward:    "loss-backward",
	LossBlocks:      "loss-blocks",
	LossAdds:        "loss-adds",
	LossKept:        "loss-kept",
	Convolution:     "convolution",
	Scan:            "scan",
	Chain:           "chain",
	RowBlock:        "row-block",
	MultiTensor:     "multi-tensor",
	Optimizer:       "optimizer",
	ChunkCat:        "chunk-cat",
	SplitCopy:       "split-copy",
	Unpack:          "unpack",
	Update32:        "update-32",
	Update8:         "update-8",
	Prefetch:        "prefetch",
	Collective:      "collective",
}

func (c Class) String() string { return classNames[c] }

// ClassOf returns the class of a name, as spelled in hardware profiles.
func ClassOf(name string) (Class, bool) {
	for i, n := range classNames {
		if n == name {
			return Class(i), true
		}
	}
	return 0, false
}

// Layout is which operands of a GEMM are transposed, by its role in training.
type Layout uint8

const (
	LayoutForward Layout = iota // x·Wᵀ
	LayoutDgrad                 // g·W
	LayoutWgrad                 // gᵀ·x
)

var layoutNames = [...]string{"forward", "dgrad", "wgrad"}

func (l Layout) String() string { return layoutNames[l] }

// Zeros is what of a projection a ReLU makes zero by half.
type Zeros uint8

const (
	NoZeros       Zeros = iota
	InputZeros          // its input, a ReLU's output
	GradientZeros       // the gradient of its output, a ReLU's input
)

// in reports whether the GEMM of that layout reads it.
func (z Zeros) in(l Layout) bool {
	return z == InputZeros && l != LayoutDgrad || z == GradientZeros && l != LayoutForward
}

// Op is one kernel launch (or Count equal ones in a row) and the host work in
// front of it.
type Op struct {
	Module string // the module that runs it: "attention", "mlp"; for explain and host cost
	Prim   string // the primitive: "linear", "mul"
	Class  Class
	DType  DType // of the computation
	Phase  Phase

	// GEMM: M×N×K, Batch times. Attention: see AttentionShape.
	M, N, K, Batch int64
	Layout         Layout
	Adds           bool // the result is added to what is there
	Zeros          bool // half of one operand are zeros
	Calls          bool // GroupedGEMM: by a call of the library for each expert, not by one kernel for all
	Wraps          bool // GroupedGEMM: by one kernel, whose tensors are those of each expert
	RowBlocks      bool // norms: a block of threads takes each row, however short
	Attn           *AttentionShape

	Elements float64     // elements the kernel iterates over
	Index    float64     // strided kernels: operands times dimensions, the index arithmetic of one element
	Bytes    units.Bytes // read plus written in device memory
	Apart    int64       // strided kernels: values of one operand, none in a line of the cache with its neighbour, that are read again and again; 0: none
	FLOPs    units.FLOPs // executed
	Count    int32       // kernels

	Host HostWork // what the CPU does before and for this launch
	Sync bool     // the host waits for this op to finish (item(), nonzero())
	Comm *Comm    // for Collective
}

// Phase is the part of the step an op belongs to.
type Phase uint8

const (
	Forward Phase = iota
	Recompute
	Backward
	Optimize
)

var phaseNames = [...]string{"forward", "recompute", "backward", "optimizer"}

func (p Phase) String() string { return phaseNames[p] }

// HostWork counts what the CPU does to launch an op. A recipe gives each count
// its cost.
type HostWork struct {
	Calls   uint16 // dispatcher calls that launch kernels
	Views   uint16 // dispatcher calls that only make a view
	Modules uint16 // Python module calls
	Inner   uint16 // of these, inside a module that hooks take for a leaf (Tape.Leaf)
	Nodes   uint16 // autograd nodes run by the engine
	Asked   bool   // a policy in Python is asked about each of the dispatcher calls (CheckpointSome)
}

// AttentionShape is the problem of one fused attention kernel. Sequence lengths
// are per sequence; heads are those of this rank.
type AttentionShape struct {
	Batch, Heads, KVHeads int64
	Queries, Keys         int64
	QKDim, VDim           int64
	Causal                bool
	Window                int64 // keys each query sees; 0: all
	Picked                int64 // likewise, of any before it; 0: all
	Masked                bool  // explicit mask or bias tensor: no skipping of blocks
	Dropout               bool
	Sinks                 bool   // each head has one that is learned
	Flavour               string // "" for what PyTorch picks (cuDNN), flash for FlashAttention 2
	Backward              bool
}

// Comm is a collective on a named group of ranks.
type Comm struct {
	Kind  string      // all-reduce, all-gather, reduce-scatter, all-to-all, send-recv
	Group string      // tp, cp, ep, dp, pp
	Bytes units.Bytes // of the whole operation, as nccl-tests counts it
	Async bool        // issued on its own stream; the compute stream goes on
	Ring  bool        // goes from rank to rank, a step beside each of the attention kernel after it but the first
}

// Event is an allocation (Bytes > 0) or a release (Bytes < 0) of a storage,
// before op Op of the same section runs.
type Event struct {
	Store int32
	Op    int32
	Bytes units.Bytes
	Kind  StoreKind
}

// StoreKind says what a storage holds, for the memory breakdown.
type StoreKind uint8

const (
	Activation StoreKind = iota
	Gradient             // gradient of a parameter
	WeightCopy           // a parameter cast by autocast
	Workspace            // scratch of one kernel
	Logits               // loss head tensors over the vocabulary
)

var storeKindNames = [...]string{"activations", "gradients", "weight_copies", "workspace", "logits"}

func (k StoreKind) String() string { return storeKindNames[k] }

// ParamGrad says that the gradient of parameter Param is complete after op Op
// and lies in storage Store, which it keeps until the gradients are cleared.
type ParamGrad struct {
	Param, Op, Store int32
	Events           int32 // of the section before it is complete: what its node read is gone
	Bytes            units.Bytes
	Joins            Joins
}

// Joins is how the gradient of a head that is tied to a table becomes part of the table's.
type Joins uint8

const (
	BySum     Joins = iota // autograd adds both, into a third tensor
	ByCast                 // so does the kernel that casts it
	InPlace                // autograd adds the table's to it, which nothing else holds
	ByProduct              // its product comes last, is added to a copy of the table's and has no tensor before
)

// Section is the record of a stretch of the step: the ops in launch order, the
// memory events between them, and the gradients that become complete.
type Section struct {
	Ops    []Op
	Events []Event
	Grads  []ParamGrad
	// Deferred are storages that are released when the whole pass ends: those that nothing but
	// autocast's cache of weight copies holds, and those that a compiled graph does.
	Deferred []Event
	// Twice are storages that more than one node of autograd saves.
	Twice []int32
	// Trips are what goes to the host after a forward section and back for its gradient.
	Trips []Trip
}
