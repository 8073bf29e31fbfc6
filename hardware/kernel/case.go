package kernel

import (
	"fmt"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// Single kernels, recorded on a tape as a training step records its own, for
// whoever asks about one kernel: commands, and calibration, which measures them.

// GEMM is the matrix multiply of a linear layer on m tokens with n outputs and k
// inputs: x·Wᵀ [m, n], its input gradient g·W [m, k], or its weight gradient gᵀ·x
// [n, k]. All three execute 2·m·n·k FLOPs.
func GEMM(layout tape.Layout, d tape.DType, m, n, k int64) tape.Op {
	t := tape.New()
	if d == tape.FP8 || d == tape.FP4 { // operands are cast in front of the multiply
		t.Quantize, d = d, tape.BF16
	}
	y := t.Linear(t.Input(d, true, m, k), t.Param(0, d, true, n, k), nil, false)
	return one(t, y, d, func(o *tape.Op) bool { return o.Class == tape.GEMM && o.Layout == layout })
}

// Attention is the fused kernel of one direction: s.Batch sequences, queries and
// keys of the same length where s.Keys is 0.
func Attention(d tape.DType, s tape.AttentionShape) tape.Op {
	t := tape.New()
	if s.Keys == 0 {
		s.Keys = s.Queries
	}
	q := t.Input(d, true, s.Batch, s.Heads, s.Queries, s.QKDim)
	k := t.Param(0, d, true, s.Batch, s.KVHeads, s.Keys, s.QKDim)
	v := t.Param(1, d, true, s.Batch, s.KVHeads, s.Keys, s.VDim)
	y := t.Attention(q, k, v, tape.AttentionOptions{Causal: s.Causal, Window: s.Window, Flavour: s.Flavour})
	return one(t, y, d, func(o *tape.Op) bool { return o.Class == tape.Attention && o.Attn.Backward == s.Backward })
}

// one runs the gradients of y and returns the op that is looked for.
func one(t *tape.Tape, y *tape.Tensor, d tape.DType, is func(*tape.Op) bool) tape.Op {
	sections := [2]tape.Section{t.Cut(tape.Backward)}
	t.Backward(y, t.GradOf(y, d))
	sections[1] = t.Cut(tape.Backward)
	for _, s := range sections {
		for i := range s.Ops {
			if is(&s.Ops[i]) {
				return s.Ops[i]
			}
		}
	}
	return tape.Op{}
}

// width is the length of a row of the memory-bound cases, a common hidden size,
// and vocabulary that of a row of logits.
const (
	width      = 4096
	vocabulary = 32000
	headWidth  = 128
)

// access is one kind of access to memory: the kernel that has it, over so many
// elements.
type access struct {
	kind, what string
	op         func(t *tape.Tape, n int64) // records the kernel on about n elements
}

// accesses are the kinds, in the words of the calibration.
var accesses = []access{
	{"copy", "device-to-device copy", func(t *tape.Tape, n int64) { t.Copy(t.Outside(tape.BF16, n)) }},
	{"rmw", "read, compute, write: contiguous, 16-bit", func(t *tape.Tape, n int64) { t.Scale("mul_scalar", t.Outside(tape.BF16, n)) }},
	{"reduce_row", "sum of each row, fp32", func(t *tape.Tape, n int64) { t.Mean(t.Outside(tape.F32, rows(n, width), width)) }},
	{"reduce_col", "sum of each column, 16-bit", func(t *tape.Tape, n int64) { t.SumRows(t.Outside(tape.BF16, rows(n, width), width)) }},
	{"strided", "product of transposed heads with a table of positions, 16-bit", func(t *tape.Tape, n int64) {
		heads := int64(width / headWidth)
		x := t.Transpose(t.Outside(tape.BF16, 1, rows(n, width), heads, headWidth), 1, 2)
		t.Mul(x, t.Outside(tape.BF16, 1, 1, rows(n, width), headWidth))
	}},
	{"cast", "fp32 to 16-bit", func(t *tape.Tape, n int64) { t.To(t.Outside(tape.F32, n), tape.BF16) }},
	{"upcast", "16-bit to fp32", func(t *tape.Tape, n int64) { t.Float(t.Outside(tape.BF16, n)) }},
	{"broadcast", "product of rows with a vector, 16-bit", func(t *tape.Tape, n int64) {
		t.Mul(t.Outside(tape.BF16, rows(n, width), width), t.Outside(tape.BF16, width))
	}},
	{"concat", "two halves of each row joined, 16-bit", func(t *tape.Tape, n int64) {
		x := t.Outside(tape.BF16, rows(n, width), width)
		t.Concat(t.Slice(x, -1, 0, width/2), t.Slice(x, -1, width/2, width))
	}},
	{"slice", "half of each row copied, 16-bit", func(t *tape.Tape, n int64) {
		t.Contiguous(t.Slice(t.Outside(tape.BF16, rows(n, width/2), width), -1, 0, width/2))
	}},
	{"softmax_fp32", "log-softmax over a vocabulary, fp32", func(t *tape.Tape, n int64) {
		t.Softmax("log_softmax", t.Outside(tape.F32, rows(n, vocabulary), vocabulary))
	}},
}

// rows is how many rows hold about n elements.
func rows(n, width int64) int64 { return max((n+width/2)/width, 1) }

// Kinds names the kinds of access that Access knows.
func Kinds() []string {
	names := make([]string, len(accesses))
	for i, a := range accesses {
		names[i] = a.kind
	}
	return names
}

// KindText says what the kernel of a kind does.
func KindText(kind string) string {
	for _, a := range accesses {
		if a.kind == kind {
			return a.what
		}
	}
	return ""
}

// Access is the memory-bound kernel of a kind that reads and writes so many bytes,
// as near as whole rows come.
func Access(kind string, bytes units.Bytes) (tape.Op, error) {
	for _, a := range accesses {
		if a.kind != kind {
			continue
		}
		n := float64(1 << 20)
		o := record(a, int64(n))
		for range 3 { // bytes are nearly proportional to elements, but for the row that is broadcast
			n = max(n*float64(bytes/o.Bytes), 1)
			o = record(a, int64(n))
		}
		return o, nil
	}
	return tape.Op{}, fmt.Errorf("%q is not a kind of access%s", kind, diag.DidYouMean(kind, Kinds()))
}

// record runs a case on about n elements.
func record(a access, n int64) tape.Op {
	t := tape.New()
	t.Grad(false)
	a.op(t, n)
	s := t.Cut(tape.Forward)
	return s.Ops[0]
}

// LayoutOf names the multiplies of a linear layer.
var LayoutOf = map[string]tape.Layout{"fprop": tape.LayoutForward, "dgrad": tape.LayoutDgrad, "wgrad": tape.LayoutWgrad}
