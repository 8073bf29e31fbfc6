package probe

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/perfplan/perfplan/calibrate/cuda"
)

// memory measures memory-bound kernels by the way they reach memory, from 4 KiB to
// 4 GiB moved. Operands stay where they are from one execution to the next, so what
// fits into the second-level cache is found there, as in a training step where a
// kernel reads what the one before it wrote.
//
// Case: kind, dtype, bytes (moved in all), elements (of the result, or of the input
// of a reduction); dims and operands for kinds that compute offsets; width of rows.
// Kinds and the kernel classes of hardware/v1 that they stand for: copy, add, rmw,
// cast (vectorized), memcpy, fill, upcast (unrolled), broadcast and strided
// (strided2, strided4), slice (strided2), concat, reduce_row, reduce_col,
// softmax_fp32, softmax_fp32_backward.
var memory = Probe{
	Key: "memory", Doc: "memory-bound kernels by access kind and size (own kernels)", Share: 3, Duty: 0.6,
	Applicable: func(w *World) error { return w.needs("libnvrtc") },
	Cases:      memoryCases,
	Setup:      memorySetup,
	Prepare:    memoryPrepare,
	Verify:     verifyMemory,
}

// access is one kind of memory-bound kernel.
type access struct {
	kind, dtype string
	bytes       int64 // moved for each element
	width       int64 // elements of a row; 0: no rows
	prepare     func(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error)
}

// operands are the buffers of the probe: x and y are read, z is written.
type operands struct{ x, y, z cuda.Buffer }

// Rows of reductions, and of tensors that are sliced, broadcast and joined: a hidden
// size, and vocabularies for the softmax.
const row, vocabularySmall, vocabulary = 4096, 32000, 128256

var accesses = []access{
	{kind: "copy", dtype: "bf16", bytes: 4, prepare: vectors("copy_any", 8, "xz", 4)},
	{kind: "add", dtype: "bf16", bytes: 6, prepare: vectors("add_bf16", 8, "xyz", 6)},
	{kind: "add", dtype: "fp32", bytes: 12, prepare: vectors("add_fp32", 4, "xyz", 12)},
	{kind: "rmw", dtype: "bf16", bytes: 4, prepare: vectors("rmw_bf16", 8, "z", 4, float32(1))},
	{kind: "rmw", dtype: "fp32", bytes: 8, prepare: vectors("rmw_fp32", 4, "z", 8, float32(1))},
	{kind: "cast", dtype: "bf16", bytes: 6, prepare: vectors("cast_down", 4, "xz", 6)},
	{kind: "memcpy", dtype: "bf16", bytes: 4, prepare: func(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
		return b.GPU.Copy(s, m.z, m.x, 2*n)
	}},
	{kind: "fill", dtype: "bf16", bytes: 2, prepare: func(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
		return b.GPU.Fill(s, m.z, 2*n)
	}},
	{kind: "upcast", dtype: "bf16", bytes: 6, prepare: upcast},
	{kind: "broadcast", dtype: "bf16", bytes: 4, width: row, prepare: strided("strided_bf16", broadcastOffsets(2))},
	{kind: "broadcast", dtype: "fp32", bytes: 8, width: row, prepare: strided("strided_fp32", broadcastOffsets(4))},
	{kind: "strided", dtype: "bf16", bytes: 4, width: row, prepare: strided("strided_bf16", rotaryOffsets(2))},
	{kind: "strided", dtype: "fp32", bytes: 8, width: row, prepare: strided("strided_fp32", rotaryOffsets(4))},
	{kind: "slice", dtype: "bf16", bytes: 4, width: row, prepare: slice},
	{kind: "concat", dtype: "bf16", bytes: 4, width: row, prepare: concat},
	{kind: "reduce_row", dtype: "fp32", bytes: 4, width: row, prepare: rows("reduce_row", row, 512, "xz")},
	{kind: "reduce_col", dtype: "bf16", bytes: 2, width: row, prepare: columns},
	{kind: "softmax_fp32", dtype: "fp32", bytes: 8, width: vocabularySmall, prepare: rows("softmax_forward", vocabularySmall, 1024, "xz")},
	{kind: "softmax_fp32", dtype: "fp32", bytes: 8, width: vocabulary, prepare: rows("softmax_forward", vocabulary, 1024, "xz")},
	{kind: "softmax_fp32_backward", dtype: "fp32", bytes: 12, width: vocabularySmall, prepare: rows("softmax_backward", vocabularySmall, 1024, "xyz")},
	{kind: "softmax_fp32_backward", dtype: "fp32", bytes: 12, width: vocabulary, prepare: rows("softmax_backward", vocabulary, 1024, "xyz")},
}

// shapes are the dimensions and operands over which offsets are computed.
var shapes = map[string][2]int64{"broadcast": {2, 3}, "strided": {3, 3}, "slice": {2, 2}}

func memoryCases(w *World, e Effort) []Case {
	step, from, to := int64(4), int64(4<<10), int64(4<<30)
	if e == Quick {
		step, from, to = 16, 64<<10, 1<<30
	}
	to = min(to, Room(w.device())/4)
	var out []Case
	for _, a := range accesses {
		unit := max(a.width, 64) // whole rows, whole vectors
		seen := int64(0)
		for size := from; size <= to; size *= step {
			n := max(size/a.bytes/unit, 1) * unit
			if n == seen || n > math.MaxInt32 {
				continue // 32-bit offsets, as PyTorch has them
			}
			seen = n
			c := Case{"kind": a.kind, "dtype": a.dtype, "bytes": itoa(n * a.bytes), "elements": itoa(n)}
			if s, ok := shapes[a.kind]; ok {
				c["dims"], c["operands"] = itoa(s[0]), itoa(s[1])
			}
			if a.width > 0 {
				c["width"] = itoa(a.width)
			}
			out = append(out, c)
		}
	}
	return out
}

// accessOf finds the kind of a case.
func accessOf(c Case) *access {
	for i, a := range accesses {
		if a.kind == c["kind"] && a.dtype == c["dtype"] && (a.width == 0 || a.width == c.num("width")) {
			return &accesses[i]
		}
	}
	return nil
}

// memorySetup allocates operands that are large enough for any case: an element is
// read with at most 4 bytes by each operand.
func memorySetup(_ *World, b *Bench, cases []Case) error {
	var most int64
	for _, c := range cases {
		most = max(most, c.num("bytes")) // no kind reads or writes more by one operand
	}
	for seed, purpose := range []string{"x", "y", "z"} {
		m, err := b.Shared(purpose, (most+4095)/4096*4096)
		if err != nil {
			return err
		}
		if err := b.Randomize(m, "bf16", uint64(seed)<<40); err != nil {
			return err
		}
	}
	return nil
}

func memoryPrepare(_ *World, b *Bench, c Case) (Trial, error) {
	a := accessOf(c)
	op, err := a.prepare(b, b.Stream, &operands{b.shared["x"], b.shared["y"], b.shared["z"]}, c.num("elements"))
	if err != nil {
		return Trial{}, err
	}
	return b.Trial(op)
}

// pick lists operands by letter.
func (m *operands) pick(letters string) []any {
	var out []any
	for _, l := range letters {
		out = append(out, map[rune]cuda.Buffer{'x': m.x, 'y': m.y, 'z': m.z}[l])
	}
	return out
}

// kernel fills in what our kernels have in common.
func kernel(name string, grid [3]int, block [3]int, work cuda.Work, args ...any) cuda.Kernel {
	return cuda.Kernel{Source: source, Name: name, Grid: grid, Block: block, Args: args, Work: work}
}

// vectors is a contiguous elementwise kernel over vectors of so many elements, which
// moves so many bytes for each.
func vectors(name string, elements int64, letters string, bytes float64, more ...any) func(*Bench, cuda.Stream, *operands, int64) (cuda.Op, error) {
	return func(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
		v := n / elements
		args := append(append(m.pick(letters), v), more...)
		return b.GPU.Kernel(s, kernel(name, [3]int{ceil(v, 256), 1, 1}, [3]int{128, 1, 1}, cuda.Work{Bytes: bytes * float64(n)}, args...))
	}
}

// typeBF16 is kernels.cu's number of the type.
const typeBF16 = 7

func upcast(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
	return b.GPU.Kernel(s, kernel("cast_up", [3]int{ceil(n, 512), 1, 1}, [3]int{128, 1, 1}, cuda.Work{Bytes: 6 * float64(n), Elements: float64(n)},
		m.x, m.z, uint32(n), int32(typeBF16)))
}

// offsets is kernels.cu's struct of that name: sizes of dimensions, the fastest
// first, and each operand's stride in bytes.
type offsets struct {
	size   []int64
	stride [][3]int64
}

// encode lays the struct out, with the numbers that make a division by a size a
// multiplication: shift = ⌈log₂ d⌉, magic = ⌊2³²(2^shift − d)/d⌋ + 1 (Granlund and
// Montgomery 1994, figure 4.1).
func (o offsets) encode() []byte {
	const dims = 12
	le := binary.LittleEndian
	out := le.AppendUint32(nil, uint32(len(o.size)))
	for d := range dims {
		size := int64(1)
		if d < len(o.size) {
			size = o.size[d]
		}
		shift := bits.Len64(uint64(size - 1))
		magic := (uint64(1)<<32)*(uint64(1)<<shift-uint64(size))/uint64(size) + 1
		out = le.AppendUint32(out, uint32(size))
		out = le.AppendUint32(out, uint32(magic))
		out = le.AppendUint32(out, uint32(shift))
	}
	for d := range dims {
		var s [3]int64
		if d < len(o.stride) {
			s = o.stride[d]
		}
		for _, v := range s {
			out = le.AppendUint32(out, uint32(v))
		}
	}
	return out
}

// broadcastOffsets: a [rows, row] tensor times a [row] vector.
func broadcastOffsets(w int64) func(n int64) offsets {
	return func(n int64) offsets {
		return offsets{[]int64{row, n / row}, [][3]int64{{w, w, w}, {row * w, row * w, 0}}}
	}
}

// rotaryOffsets: queries seen as [heads, tokens, head] lying as [tokens, heads,
// head], times a table [tokens, head] that all heads share; the result lies as seen.
func rotaryOffsets(w int64) func(n int64) offsets {
	const head = 128
	return func(n int64) offsets {
		tokens, heads := n/row, int64(row/head)
		return offsets{[]int64{head, tokens, heads}, [][3]int64{{w, w, w}, {head * w, row * w, head * w}, {tokens * head * w, head * w, 0}}}
	}
}

// strided is an elementwise product with computed offsets.
func strided(name string, of func(n int64) offsets) func(*Bench, cuda.Stream, *operands, int64) (cuda.Op, error) {
	return func(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
		return b.GPU.Kernel(s, kernel(name, [3]int{ceil(n, 512), 1, 1}, [3]int{128, 1, 1}, cuda.Work{Elements: float64(n)},
			of(n).encode(), uint32(n), m.z, m.x, m.y))
	}
}

// slice copies the first half of the rows of a tensor twice as wide.
func slice(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
	const half = row / 2
	o := offsets{[]int64{half, n / half}, [][3]int64{{2, 2, 0}, {half * 2, row * 2, 0}}}
	return b.GPU.Kernel(s, kernel("slice_bf16", [3]int{ceil(n, 512), 1, 1}, [3]int{128, 1, 1}, cuda.Work{Elements: float64(n)}, o.encode(), uint32(n), m.z, m.x))
}

// concat joins two halves of heads, as rotary embeddings do. The grid is PyTorch's:
// two blocks for each multiprocessor and input.
func concat(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
	const half, heads = 64, row / 128
	grid := [3]int{2 * b.GPU.Device().SMs, 2, 1}
	return b.GPU.Kernel(s, kernel("concat_bf16", grid, [3]int{512, 1, 1}, cuda.Work{Elements: float64(n)},
		m.x, m.y, m.z, uint32(n/row), uint32(half), uint32(heads)))
}

// rows is a kernel with a block for each row of fp32.
func rows(name string, width int64, threads int, letters string) func(*Bench, cuda.Stream, *operands, int64) (cuda.Op, error) {
	return func(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
		bytes := 4 * float64(n)
		if name != "reduce_row" {
			bytes *= float64(len(letters))
		}
		args := append(m.pick(letters), int32(width/4))
		return b.GPU.Kernel(s, kernel(name, [3]int{int(n / width), 1, 1}, [3]int{threads, 1, 1}, cuda.Work{Bytes: bytes}, args...))
	}
}

// columns sums the columns of bf16, the rows split over enough blocks to fill the GPU.
func columns(b *Bench, s cuda.Stream, m *operands, n int64) (cuda.Op, error) {
	count, blocks := n/row, row/4/32
	split := min(max(4*b.GPU.Device().SMs/blocks, 1), ceil(count, 16))
	return b.GPU.Kernel(s, kernel("reduce_col", [3]int{blocks, split, 1}, [3]int{32, 16, 1}, cuda.Work{Bytes: 2 * float64(n)},
		m.x, m.z, int32(row/4), int32(count)))
}

// verifyMemory holds the kernels' results for small operands against sums done here.
func verifyMemory(_ *World, b *Bench) error {
	const n = 8 * row
	var buffers [3]cuda.Buffer
	for i := range buffers {
		m, err := b.Alloc(4 * n)
		if err != nil {
			return err
		}
		buffers[i] = m
	}
	m := &operands{buffers[0], buffers[1], buffers[2]}
	x, y := ramp(n, 7), ramp(n, 5)
	for _, check := range memoryChecks {
		a := accessOf(check.of)
		write := bf16Bytes
		if a.dtype == "fp32" {
			write = fp32Bytes
		}
		for i, v := range [][]byte{write(x), write(y), make([]byte, 4*n)} {
			if err := b.GPU.Write(buffers[i], v); err != nil {
				return err
			}
		}
		op, err := a.prepare(b, b.Stream, m, n)
		if err != nil {
			return err
		}
		if err := op.Enqueue(1); err != nil {
			return err
		}
		if err := b.Stream.Sync(); err != nil {
			return err
		}
		op.Close()
		raw, err := b.GPU.Read(m.z, 4*n)
		if err != nil {
			return err
		}
		got := bf16Floats(raw)
		if check.wide {
			got = fp32Floats(raw)
		}
		for _, i := range []int{0, 1, row/2 - 1, row + 1, n/2 - 1, n - 1} {
			want, ok := check.want(x, y, i)
			if ok && math.Abs(float64(got[i]-want)) > 1e-2*math.Max(1, math.Abs(float64(want))) {
				return fmt.Errorf("kernel %s of %s: element %d is %g, not %g", a.kind, a.dtype, i, got[i], want)
			}
		}
	}
	return nil
}

// memoryChecks are the kinds whose results are checked: what element i of the result
// must be, where it has one.
var memoryChecks = []struct {
	of   Case
	wide bool // the result is fp32
	want func(x, y []float32, i int) (float32, bool)
}{
	{Case{"kind": "copy", "dtype": "bf16"}, false, func(x, _ []float32, i int) (float32, bool) { return x[i], true }},
	{Case{"kind": "add", "dtype": "bf16"}, false, func(x, y []float32, i int) (float32, bool) { return x[i] + y[i], true }},
	{Case{"kind": "add", "dtype": "fp32"}, true, func(x, y []float32, i int) (float32, bool) { return x[i] + y[i], true }},
	{Case{"kind": "upcast", "dtype": "bf16"}, true, func(x, _ []float32, i int) (float32, bool) { return x[i], true }},
	{Case{"kind": "broadcast", "dtype": "bf16", "width": itoa(row)}, false, func(x, y []float32, i int) (float32, bool) { return x[i] * y[i%row], true }},
	{Case{"kind": "strided", "dtype": "fp32", "width": itoa(row)}, true, func(x, y []float32, i int) (float32, bool) {
		tokens := len(x) / row
		h, t, d := i/(tokens*128), i/128%tokens, i%128
		return x[t*row+h*128+d] * y[t*128+d], true
	}},
	{Case{"kind": "concat", "dtype": "bf16", "width": itoa(row)}, false, func(x, y []float32, i int) (float32, bool) {
		from := x
		if i%128 >= 64 {
			from = y
		}
		return from[i/128*64+i%64], true
	}},
	{Case{"kind": "reduce_row", "dtype": "fp32", "width": itoa(row)}, true, func(x, _ []float32, i int) (float32, bool) {
		if i >= len(x)/row {
			return 0, false
		}
		return total(x[i*row:(i+1)*row], 1) / row, true
	}},
	{Case{"kind": "reduce_col", "dtype": "bf16", "width": itoa(row)}, true, func(x, _ []float32, i int) (float32, bool) {
		if i >= row {
			return 0, false
		}
		return total(x[i:], row), true
	}},
}

// total sums every step-th value.
func total(x []float32, step int) float32 {
	var s float32
	for i := 0; i < len(x); i += step {
		s += x[i]
	}
	return s
}

func fp32Bytes(v []float32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func fp32Floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
