package tape

import "github.com/perfplan/perfplan/internal/units"

// LayerNorm normalises the last dimension with PyTorch's fused kernel. It saves
// its input, the weight and two fp32 per row. autocast runs it in fp32. What is not
// contiguous is copied for it, again in the backward pass.
func (t *Tape) LayerNorm(x, w, b *Tensor) *Tensor { return t.rowNorm(LayerRows, x, w, b) }

// RMSNorm is the same without means (torch.nn.functional.rms_norm since PyTorch 2.9).
func (t *Tape) RMSNorm(x, w *Tensor) *Tensor { return t.rowNorm(RMSRows, x, w, nil) }

func (t *Tape) rowNorm(class Class, x, w, b *Tensor) *Tensor {
	in := t.fp32(x)
	t.begin()
	rows := func(t *Tape, x *Tensor) {
		if !x.contiguous() {
			t.Release(t.copyContiguous(x))
		}
	}
	rows(t, in)
	d := in.dtype
	if w != nil {
		d = promote(in, w)
	}
	y := t.empty(d, in.dims[:in.nd]...)
	n := in.Size() / in.Dim(-1)
	mean, rstd := t.empty(F32, n), t.empty(F32, n)
	t.emit(Op{Prim: "layer_norm", Class: class, RowBlocks: true, DType: in.dtype, N: in.Dim(-1), Elements: float64(in.Size()), Bytes: in.bytes() + y.bytes()})
	t.attach([]*Tensor{in, w, b}, []*Tensor{y}, []*Tensor{in, mean, rstd}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		rows(t, in)
		gx := t.emptyLike(in)
		if in.grad {
			t.emit(Op{Prim: "layer_norm_backward", Class: NormBackward, RowBlocks: true, DType: in.dtype, N: in.Dim(-1), Elements: float64(in.Size()), Bytes: 2*in.bytes() + gx.bytes()})
			r = append(r, gx)
		} else {
			t.Release(gx)
		}
		if len(n.in) > len(r) { // weight and bias gradients come from one kernel
			t.emit(Op{Prim: "layer_norm_weight_backward", Class: NormWeight, DType: in.dtype, N: in.Dim(-1), Elements: float64(in.Size()), Bytes: 2 * in.bytes()})
			for len(r) < len(n.in) {
				r = append(r, t.empty(n.in[len(r)].meta.dtype, in.Dim(-1)))
			}
		}
		return r
	})
	t.Release(mean, rstd, in)
	return y
}

// Fused is a kernel that a framework wrote or a compiler generated for several
// operations at once: it reads its inputs and writes its outputs once.
type Fused struct {
	Prim     string
	DType    DType // of the outputs
	Outs     int   // outputs, all of the first input's shape
	Save     []int // inputs kept for the gradient; the first output too when SaveOut
	SaveOut  bool
	SaveRows int   // fp32 values kept per row (norm statistics)
	Mask     bool  // a mask of one byte per element is written and kept (dropout)
	Class    Class // of the kernel
	Back     Class // of the gradient's kernel; NoKernel: Class
	Width    int64 // last dimension of the outputs; 0: the input's
	Shrink   int64 // divides the last dimension; 0: it stays
	Grow     int64 // multiplies it; 0: it stays
	Heads    int64 // second dimension of the outputs; 0: the input's
	InPlace  bool  // the gradient overwrites the first saved tensor
	Low      bool  // the last output comes in autocast's dtype
	BackWait bool  // the host waits for the device before the gradient

	Read, Write         float64 // further passes over the first input's bytes, forward
	BackRead, BackWrite float64 // the same, backward
	Kernels             int     // that the forward work is spread over; 0: one
	BackKernels         int     // the same of the gradient
	Work, BackWork      float64 // elements each kernel counts, over those it has: of kernels slower or faster than their class; 0: 1
	Index               float64 // of strided kernels, Op.Index
	Sum                 Class   // what adds up the partial gradients of vectors; NoKernel: a column reduction for each
	SumWork             float64 // the elements it counts
}

// Fuse runs a fused kernel. Its gradient reads the output gradients and the saved
// tensors, and writes a gradient for each input that needs one; the gradient
// of a vector (a norm's weight) adds a column reduction of partial sums, that of a column
// (experts' probabilities) a kernel that sums rows.
func (t *Tape) Fuse(f Fused, ins ...*Tensor) []*Tensor {
	t.begin()
	outs := make([]*Tensor, max(f.Outs, 1))
	var bytes units.Bytes
	for i := range outs {
		outs[i] = t.fusedShape(&f, ins[0])
		if f.Low && i == len(outs)-1 && t.Autocast != F32 {
			outs[i].dtype = t.Autocast
		}
		t.alloc(outs[i])
		bytes += outs[i].bytes()
	}
	y := outs[0]
	for _, x := range ins {
		bytes += x.reads()
	}
	bytes += units.Bytes(f.Read+f.Write) * ins[0].bytes()
	var saved []*Tensor
	var mask *Tensor
	if f.Mask {
		mask = t.alloc(t.shape(Bool, y))
		bytes += mask.bytes()
		saved = append(saved, mask)
	}
	elements := float64(max(y.Size(), ins[0].Size()))
	t.fusedKernels(&f, f.Kernels, f.Work, Op{Prim: f.Prim, Class: f.Class, Elements: elements, N: ins[0].Dim(-1), Bytes: bytes})
	for _, i := range f.Save {
		saved = append(saved, ins[i])
	}
	if f.SaveOut {
		saved = append(saved, y)
	}
	var rows *Tensor
	if f.SaveRows > 0 {
		rows = t.empty(F32, y.Size()/y.Dim(-1)*int64(f.SaveRows))
		saved = append(saved, rows)
	}
	x := ins[0]
	t.attach(ins, outs, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		return t.fusedGradient(&f, n, g, x, elements)
	})
	t.Release(rows, mask)
	return outs
}

// fusedShape is an output of a fused kernel whose first input is x.
func (t *Tape) fusedShape(f *Fused, x *Tensor) *Tensor {
	y := t.shape(f.DType, x)
	if f.Width > 0 {
		y.dims[y.nd-1] = f.Width
		y.setContiguous()
	}
	if f.Shrink > 1 {
		y.dims[y.nd-1] /= f.Shrink
		y.setContiguous()
	}
	if f.Grow > 1 {
		y.dims[y.nd-1] *= f.Grow
		y.permuteLike(x)
	}
	if f.Heads > 0 {
		y.dims[1] = f.Heads
		y.permuteLike(x)
	}
	return y
}

// fusedKernels emits the work o of a fused kernel, spread over so many.
func (t *Tape) fusedKernels(f *Fused, kernels int, work float64, o Op) {
	n := max(kernels, 1)
	o.DType, o.Index, o.Bytes = f.DType, f.Index, o.Bytes/units.Bytes(n)
	if work > 0 {
		o.Elements *= work
	}
	for range n {
		t.emit(o)
	}
}

// fusedGradient runs the gradient of a fused kernel of so many elements whose first input was x.
func (t *Tape) fusedGradient(f *Fused, n *node, g []*Tensor, x *Tensor, elements float64) []*Tensor {
	bytes := units.Bytes(f.BackRead+f.BackWrite) * x.bytes()
	for _, y := range g {
		if y != nil {
			bytes += y.reads()
		}
	}
	for _, s := range n.saved {
		bytes += s.bytes()
	}
	width := x.Dim(-1)
	vectors := 0
	var columns units.Bytes
	r := make([]*Tensor, len(n.in))
	for i, e := range n.in {
		if f.InPlace && i == 0 {
			r[i] = t.view(n.saved[0])
			t.host.Views--
		} else {
			r[i] = t.alloc(t.shape(e.meta.dtype, &e.meta))
		}
		switch {
		case e.meta.nd == 1:
			vectors++
		case i > 0 && r[i].Dim(-1) == 1 && width > 1:
			columns += r[i].bytes() + n.saved[0].bytes() + g[0].bytes()
		case t.WholeModel && i > 0 && r[i].dtype.lowPrecision() && r[0].dtype == F32:
			t.emit(Op{Prim: "to", Class: Vectorized, DType: r[i].dtype, Elements: float64(r[i].Size()), Bytes: r[0].bytes() + r[i].bytes()})
		default:
			bytes += r[i].bytes()
		}
	}
	if f.BackWait {
		t.Wait()
	}
	class := f.Back
	if class == NoKernel {
		class = f.Class
	}
	t.fusedKernels(f, f.BackKernels, f.BackWork, Op{Prim: f.Prim + "_backward", Class: class, Elements: elements, N: width, Bytes: bytes})
	if columns > 0 { // a value for each row: summed by a kernel of its own, which reads all again
		t.emit(Op{Prim: f.Prim + "_row_sum", Class: FusedReduce, DType: f.DType, Elements: elements, N: width, Bytes: columns})
	}
	switch { // partial sums of the fused kernel are added up
	case vectors == 0:
	case f.Sum != NoKernel: // of all vectors at once
		t.emit(Op{Prim: f.Prim + "_sum", Class: f.Sum, DType: F32, Elements: f.SumWork, N: width})
	default:
		for range vectors {
			t.emit(Op{Prim: f.Prim + "_sum", Class: ColReduce, DType: F32, Elements: float64(width) * fusedPartials, N: width, Bytes: units.Bytes(width * fusedPartials * 4)})
		}
	}
	return r
}

// fusedPartials is the number of partial rows a fused reduction leaves for the
// column sum that follows it: one or two per SM.
const fusedPartials = 256
