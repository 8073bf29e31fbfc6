package cuda

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Driver is one process's GPUs and libraries. It is not for several goroutines at
// once, and nor is what comes from it.
type Driver interface {
	Versions() Versions
	Libraries() []Library
	Devices() []Device
	// Open makes a GPU ready. Its Close frees what it allocated.
	Open(index int) (GPU, error)
	// CommID is a new identity for a group of GPUs; one process makes it and hands
	// it to the others.
	CommID() ([]byte, error)
	// Join makes the local members of a group of ranks GPUs; all processes of the
	// group call it together.
	Join(id []byte, ranks int, members []Member) (Comm, error)
	Now() time.Time
	Sleep(time.Duration)
	// Run runs code of the host's own by the clock of Now.
	Run(code func())
	Close() error
}

// Member is a local GPU's part in a group.
type Member struct {
	Rank   int
	Stream Stream
}

// Versions of what runs; empty when it is not there.
type Versions struct {
	Driver, CUDA, CuBLASLt, NVRTC, NCCL, CuDNN string
}

// Library is where a library was found, or why not.
type Library struct {
	Name, Path string
	Err        error
}

// Device is a GPU's identity and facts.
type Device struct {
	Index          int
	Name, Bus      string
	Memory         int64 // bytes
	SMs            int
	MaxClock       float64 // Hz
	Capability     [2]int  // major, minor
	Free           int64   // bytes, before this process allocated anything
	OtherProcesses int     // that hold memory of the GPU
	PowerLimit     float64 // W; 0 unknown
}

// Architecture is the name to compile for with a compiler that knows the supported
// capabilities, 90 for 9.0: the GPU's own, or of a newer GPU the last one of its major
// version, whose code it runs (CUDA C++ Programming Guide, binary compatibility). A
// compiler that has none of these, or does not say, is left to refuse the GPU's own.
func (d Device) Architecture(supported []int) string {
	own := 10*d.Capability[0] + d.Capability[1]
	best := 0
	for _, c := range supported {
		if c/10 == d.Capability[0] && c <= own {
			best = max(best, c)
		}
	}
	return fmt.Sprintf("sm_%d", cmp.Or(best, own))
}

// Telemetry is what the management library says of a GPU at a moment; a value of 0
// is unknown.
type Telemetry struct {
	ClockHz, PowerW, TempC float64
	Throttled              string // reasons, comma-separated; empty when none
}

// GPU is one GPU of this process.
type GPU interface {
	Device() Device
	Stream() (Stream, error)
	// Gate holds streams, of other GPUs too, until it is released, so that the cost
	// of queueing stays out of what is measured.
	Gate() (Gate, error)
	// Alloc allocates device memory by plain cuMemAlloc.
	Alloc(bytes int64) (Buffer, error)
	// AllocHost allocates memory of the host: pinned, or as malloc gives it.
	AllocHost(bytes int64, pinned bool) (Buffer, error)
	Write(dst Buffer, data []byte) error
	Read(src Buffer, bytes int64) ([]byte, error)
	GEMM(s Stream, g GEMM) (Op, error)
	// Attention prepares fused attention as cuDNN's heuristic picks it, with its own
	// workspace.
	Attention(s Stream, a Attention) (Op, error)
	Kernel(s Stream, k Kernel) (Op, error)
	Copy(s Stream, dst, src Buffer, bytes int64) (Op, error)
	Fill(s Stream, dst Buffer, bytes int64) (Op, error)
	// Capture records n executions of an op into a graph, whose replay is an op.
	Capture(s Stream, op Op, n int) (Op, error)
	Telemetry() (Telemetry, error)
	Close() error
}

// Stream is a queue of work on a GPU.
type Stream interface {
	GPU() GPU
	// Mark puts a point in time into the stream.
	Mark() (Mark, error)
	Sync() error
	Close() error
}

// Mark is a point in time of a stream.
type Mark interface {
	// Since is the time from an earlier mark of the same GPU to this one; both must
	// have passed.
	Since(earlier Mark) (float64, error)
	Close() error
}

// Gate holds streams until it is released.
type Gate interface {
	// Hold queues a wait for the next Release.
	Hold(s Stream) error
	// Release lets all held streams go. It reports whether they were still held: a
	// gate opens by itself after a while rather than hang the GPU.
	Release() (held bool, err error)
	Close() error
}

// Op is work prepared for the streams it was made with.
type Op interface {
	// Enqueue queues n executions one after the other and does not wait.
	Enqueue(n int) error
	Close() error
}

// Buffer is memory of a device or of the host.
type Buffer interface {
	Bytes() int64
	Close() error
}

// Comm is a group of GPUs that communicate.
type Comm interface {
	// Collective prepares an operation on the streams of the local members; bytes is
	// the larger of what a rank gives and gets (nccl-tests' size). Buffers are those
	// of the members, in and out, at least so large. Kind of operation: all-reduce
	// (sum), all-gather, reduce-scatter, all-to-all, broadcast, send-recv (pairs of
	// neighbours). Elements are bf16.
	Collective(c Collective) (Op, error)
	// Capture records an operation into one graph for each member and prepares its
	// replay.
	Capture(op Op, n int) (Op, error)
	Close() error
}

// Collective is one operation of a group.
type Collective struct {
	Op      string
	Bytes   int64
	In, Out []Buffer // by member
}

// Layout is which of a layer's three matrix multiplies runs.
type Layout string

// The layer has M tokens, N outputs and K inputs; X is [M,K], W [N,K], Y [M,N], all
// row-major.
const (
	FProp Layout = "fprop" // Y = X·Wᵀ
	DGrad Layout = "dgrad" // dX = dY·W
	WGrad Layout = "wgrad" // dW = dYᵀ·X
)

// GEMM is a matrix multiply of a layer.
type GEMM struct {
	M, N, K int64
	Layout  Layout
	DType   string // bf16, fp16, tf32, fp32, fp8 (e4m3 operands with scales, bf16 result)
	// Operands and result in the order of the layout's formula: fprop X, W, Y;
	// dgrad dY, W, dX; wgrad dY, X, dW.
	A, B, C Buffer
	// Scale is a device fp32 that fp8 operands are multiplied by.
	Scale     Buffer
	Workspace Buffer
}

// Sizes returns the elements of A, B and C.
func (g GEMM) Sizes() (a, b, c int64) {
	switch g.Layout {
	case DGrad:
		return g.M * g.N, g.N * g.K, g.M * g.K
	case WGrad:
		return g.M * g.N, g.M * g.K, g.N * g.K
	}
	return g.M * g.K, g.N * g.K, g.M * g.N
}

// Width is the bytes of an operand element of a dtype.
func Width(dtype string) int64 {
	switch dtype {
	case "fp8":
		return 1
	case "bf16", "fp16":
		return 2
	}
	return 4
}

// Kernel is a launch of a kernel from source.
type Kernel struct {
	Source string // CUDA C++; compiled once for each GPU
	Name   string // an extern "C" function in it
	Grid   [3]int
	Block  [3]int
	Args   []any // Buffer, int32, int64, float32, []byte (a struct by value)
	Work   Work
}

// Work is what a kernel does. No GPU needs it; the fake goes by it.
type Work struct {
	Bytes    float64 // moved to and from memory
	Elements float64 // handled, where issue and not memory limits
	Seconds  float64 // fixed
}

// Error is a failed call of a library.
type Error struct {
	Call   string // cuMemAlloc
	Code   int
	Name   string // CUDA_ERROR_OUT_OF_MEMORY
	Text   string // out of memory
	Device int    // local index; -1 when none
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Device >= 0 {
		fmt.Fprintf(&b, "GPU %d: ", e.Device)
	}
	fmt.Fprintf(&b, "%s failed with code %d", e.Call, e.Code)
	if e.Name != "" {
		b.WriteString(" " + e.Name)
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	return b.String()
}

// Missing says what a machine lacks for calibration; a remedy is part of the text.
type Missing struct{ Text string }

func (m *Missing) Error() string { return m.Text }

// Unavailable says that a machine cannot do one thing, such as attention without
// cuDNN; all else works.
type Unavailable struct{ Text string }

func (u *Unavailable) Error() string { return u.Text }

// Options of Open.
type Options struct {
	Folders []string // looked in first for libraries
}

// Collectives are the operations of a group, in the order of shim.h.
var Collectives = []string{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv"}
