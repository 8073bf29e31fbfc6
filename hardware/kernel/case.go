package kernel

import (
	"cmp"
	"fmt"
	"slices"

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
	return layerGEMM(tape.New(), layout, d, m, n, k)
}

// AddedGEMM is the weight gradient of the same layer where it is added to sums, as to
// Megatron's main gradients.
func AddedGEMM(d, sums tape.DType, m, n, k int64) tape.Op {
	t := tape.New()
	t.MainGrad, t.HasMain = sums, true
	return layerGEMM(t, tape.LayoutWgrad, d, m, n, k)
}

func layerGEMM(t *tape.Tape, layout tape.Layout, d tape.DType, m, n, k int64) tape.Op {
	if d == tape.TF32 {
		t.TF32, d = true, tape.F32
	}
	if d.Narrow() { // operands are cast in front of the multiply
		t.Quantize, d = d, tape.BF16
	}
	y := t.Linear(t.Input(d, true, m, k), t.Param(0, d, true, n, k), nil, false)
	return one(t, y, d, func(o *tape.Op) bool { return o.Class == tape.GEMM && o.Layout == layout })
}

// Attention is the fused kernel of one direction: s.Batch sequences, queries and
// keys of the same length where s.Keys is 0.
func Attention(d tape.DType, s tape.AttentionShape) tape.Op {
	if d == tape.TF32 { // the kernel of fp32 operands is the same
		d = tape.F32
	}
	for _, o := range attentionOps(d, s) {
		if o.Class == tape.Attention {
			return o
		}
	}
	return tape.Op{}
}

// AroundAttention are the small kernels that run with the fused one of a direction:
// row sums before a backward pass, conversions and sums over heads after it.
func AroundAttention(d tape.DType, s tape.AttentionShape) []tape.Op {
	return slices.DeleteFunc(attentionOps(d, s), func(o tape.Op) bool { return o.Class == tape.Attention })
}

// attentionOps are all that a direction of fused attention runs.
func attentionOps(d tape.DType, s tape.AttentionShape) []tape.Op {
	t := tape.New()
	s.Keys = cmp.Or(s.Keys, s.Queries)
	q := t.Input(d, true, s.Batch, s.Heads, s.Queries, s.QKDim)
	k := t.Param(0, d, true, s.Batch, s.KVHeads, s.Keys, s.QKDim)
	v := t.Param(1, d, true, s.Batch, s.KVHeads, s.Keys, s.VDim)
	y := t.Attention(q, k, v, tape.AttentionOptions{Causal: s.Causal, Window: s.Window, Sinks: s.Sinks, Flavour: s.Flavour})
	sections := sections(t, y, d)
	if s.Backward {
		return sections[1].Ops
	}
	return sections[0].Ops
}

// sections are the ops so far and those of the gradients of y.
func sections(t *tape.Tape, y *tape.Tensor, d tape.DType) [2]tape.Section {
	forward := t.Cut(tape.Backward)
	t.Backward(y, t.GradOf(y, d))
	return [2]tape.Section{forward, t.Cut(tape.Backward)}
}

// one runs the gradients of y and returns the op that is looked for.
func one(t *tape.Tape, y *tape.Tensor, d tape.DType, is func(*tape.Op) bool) tape.Op {
	for _, s := range sections(t, y, d) {
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

// access is one kind of access to memory: the kernel that has it, over about n
// elements.
type access struct {
	kind, what string
	types      []tape.DType // of the operands; the first is the usual one
	op         func(t *tape.Tape, d tape.DType, n int64)
}

var (
	both = []tape.DType{tape.BF16, tape.F32}
	low  = both[:1]
	fp32 = both[1:]
)

// accesses are the kinds, in the words of the calibration.
var accesses = []access{
	{"copy", "contiguous elementwise kernel that reads and writes as much", both, func(t *tape.Tape, d tape.DType, n int64) { t.Scale("copy_", t.Outside(d, n)) }},
	{"add", "sum of two contiguous tensors", both, func(t *tape.Tape, d tape.DType, n int64) { t.Add(t.Outside(d, n), t.Outside(d, n)) }},
	{"rmw", "contiguous tensor scaled in place", both, func(t *tape.Tape, d tape.DType, n int64) { t.Scale("mul_", t.Outside(d, n)) }},
	{"cast", "fp32 to 16-bit", low, func(t *tape.Tape, d tape.DType, n int64) { t.To(t.Outside(tape.F32, n), d) }},
	{"memcpy", "device-to-device copy by the driver", both, func(t *tape.Tape, d tape.DType, n int64) { t.Copy(t.Outside(d, n)) }},
	{"fill", "constant written", both, func(t *tape.Tape, d tape.DType, n int64) { t.Zeros(d, n) }},
	{"upcast", "16-bit to fp32", low, func(t *tape.Tape, d tape.DType, n int64) { t.Float(t.Outside(d, n)) }},
	{"broadcast", "product of rows with a vector", both, func(t *tape.Tape, d tape.DType, n int64) {
		t.Mul(t.Outside(d, rows(n, width), width), t.Outside(d, width))
	}},
	{"strided", "product of transposed heads with a table of positions", both, func(t *tape.Tape, d tape.DType, n int64) {
		heads := int64(width / headWidth)
		x := t.Transpose(t.Outside(d, 1, rows(n, width), heads, headWidth), 1, 2)
		t.Mul(x, t.Outside(d, 1, 1, rows(n, width), headWidth))
	}},
	{"slice", "half of each row copied", low, func(t *tape.Tape, d tape.DType, n int64) {
		t.Contiguous(t.Slice(t.Outside(d, rows(n, width/2), width), -1, 0, width/2))
	}},
	{"concat", "two halves of each row joined", low, func(t *tape.Tape, d tape.DType, n int64) {
		x := t.Outside(d, rows(n, width), width)
		t.Concat(t.Slice(x, -1, 0, width/2), t.Slice(x, -1, width/2, width))
	}},
	{"reduce_row", "mean of each row", fp32, func(t *tape.Tape, d tape.DType, n int64) { t.Mean(t.Outside(d, rows(n, width), width)) }},
	{"reduce_col", "sum of each column", low, func(t *tape.Tape, d tape.DType, n int64) { t.SumRows(t.Outside(d, rows(n, width), width)) }},
	{"softmax_fp32", "log-softmax over a vocabulary", fp32, func(t *tape.Tape, d tape.DType, n int64) {
		t.Softmax("log_softmax", t.Outside(d, rows(n, vocabulary), vocabulary))
	}},
	{"softmax_fp32_backward", "its gradient", fp32, func(t *tape.Tape, d tape.DType, n int64) {
		y := t.Softmax("log_softmax", t.Input(d, true, rows(n, vocabulary), vocabulary))
		t.Cut(tape.Backward)
		t.Backward(y, t.GradOf(y, d))
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
// as near as whole rows come. The operands have the named type; "" is the usual one.
func Access(kind, dtype string, bytes units.Bytes) (tape.Op, error) {
	for i := range accesses {
		a := &accesses[i]
		if a.kind != kind {
			continue
		}
		d := a.types[0]
		if dtype != "" {
			known := make([]string, len(a.types))
			for k, t := range a.types {
				known[k] = t.String()
			}
			at := slices.Index(known, dtype)
			if at < 0 {
				return tape.Op{}, fmt.Errorf("%s has no kernel of type %q%s", kind, dtype, diag.DidYouMean(dtype, known))
			}
			d = a.types[at]
		}
		n := float64(1 << 20)
		o := record(a, d, int64(n))
		for range 3 { // bytes are nearly proportional to elements, but for the row that is broadcast
			n = max(n*float64(bytes/o.Bytes), 1)
			o = record(a, d, int64(n))
		}
		return o, nil
	}
	return tape.Op{}, fmt.Errorf("%q is not a kind of access%s", kind, diag.DidYouMean(kind, Kinds()))
}

// record runs a case on about n elements; its kernel is the first after the last cut.
func record(a *access, d tape.DType, n int64) tape.Op {
	t := tape.New()
	a.op(t, d, n)
	return t.Cut(tape.Forward).Ops[0]
}

// LayoutOf names the multiplies of a linear layer.
var LayoutOf = map[string]tape.Layout{"fprop": tape.LayoutForward, "dgrad": tape.LayoutDgrad, "wgrad": tape.LayoutWgrad}

// Adam is the fused optimizer on n parameters that are held, with gradients and
// moments, in one format: it reads all four and writes all but the gradients.
func Adam(d tape.DType, n float64) tape.Op {
	return tape.Op{Prim: "optimizer", Class: tape.Optimizer, DType: d, Elements: n, Bytes: 7 * units.Bytes(n) * d.Size(), Count: 1, Phase: tape.Optimize}
}
