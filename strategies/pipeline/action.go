package pipeline

import "strconv"

// Kind is what an Action computes.
type Kind uint8

const (
	Forward        Kind = iota // forward pass
	Backward                   // whole backward pass: gradients of input and weights
	BackwardInput              // gradient of the input only; the stage before needs nothing else
	BackwardWeight             // gradient of the weights, any time after BackwardInput
	kinds
)

// String returns the letter PyTorch's schedules print: F, B, I or W.
func (k Kind) String() string { return "FBIW"[k : k+1] }

// Action is one entry of a rank's list: a pass of one micro batch through one
// of the model chunks of the rank.
type Action struct {
	Kind Kind
	// Overlap marks a Forward that runs as one overlapped pair with the
	// Backward right after it (DualPipe). The pair starts when the inputs of
	// both are there.
	Overlap    bool
	Chunk      int32 // virtual stage of this rank, 0 .. Chunks-1
	MicroBatch int32 // 0 .. MicroBatches-1
}

// String returns kind, micro batch and chunk, as in "F3.1"; a plus marks the
// first of an overlapped pair.
func (a Action) String() string {
	s := a.Kind.String() + strconv.Itoa(int(a.MicroBatch)) + "." + strconv.Itoa(int(a.Chunk))
	if a.Overlap {
		s += "+"
	}
	return s
}
