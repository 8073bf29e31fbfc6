package tape

import "github.com/perfplan/perfplan/internal/units"

// LayerNorm normalises the last dimension with PyTorch's fused kernel. It saves
// its input, the weight and two fp32 per row. autocast runs it in fp32. What is not
// contiguous is copied for it, again in the backward pass.
func (t *Tape) LayerNorm(x, w, b *Tensor) *Tensor {
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
	t.emit(Op{Prim: "layer_norm", Class: NormForward, RowBlocks: true, DType: in.dtype, N: in.Dim(-1), Elements: float64(in.Size()), Bytes: in.bytes() + y.bytes()})
	t.attach("layer_norm", []*Tensor{in, w, b}, []*Tensor{y}, []*Tensor{in, mean, rstd}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
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

// pick is a kernel that reads or writes one value of each row, by its target.
func pick(prim string, d DType, rows int64) Op {
	return Op{Prim: prim, Class: Index, DType: d, Elements: float64(rows), Bytes: units.Bytes(rows) * 8}
}

// NLLLoss picks the log-probability of each target; its gradient is a tensor of
// zeros as large as the logits with one value per row.
func (t *Tape) NLLLoss(logp *Tensor) *Tensor {
	t.begin()
	y := t.empty(logp.dtype)
	t.emit(pick("nll_loss", logp.dtype, logp.Size()/logp.Dim(-1)))
	t.attach("nll_loss", []*Tensor{logp}, []*Tensor{y}, []*Tensor{logp}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		r := t.zerosLike(logp)
		t.emit(pick("nll_loss_backward", logp.dtype, logp.Size()/logp.Dim(-1)))
		return []*Tensor{r}
	})
	return y
}

// ParallelLoss is the cross entropy over logits whose classes are cut over ranks, as
// PyTorch's loss_parallel computes it, kernel by kernel (distributed/tensor/parallel/loss.py):
// log_softmax by hand, and one gradient of both steps from its result, (0 or -1) plus
// exp, times the gradient of the loss. Three times one value per row is reduced over
// the ranks.
func (t *Tape) ParallelLoss(x *Tensor, reduce func(rows *Tensor)) *Tensor {
	t.begin()
	row := func() *Tensor { return t.empty(x.dtype, x.Size()/x.Dim(-1), 1) }
	most, sum := row(), row()
	t.reduce("amax", RowReduce, x, most)
	reduce(most)
	shifted := t.apply("sub", x, most)
	e := t.apply("exp", shifted)
	t.reduce("sum", RowReduce, e, sum)
	t.Release(e)
	reduce(sum)
	logp := t.apply("sub", shifted, sum)
	t.Release(shifted, sum)
	t.emit(Op{Prim: "gather", Class: Index, DType: x.dtype, Elements: float64(most.Size()), Bytes: 3 * most.bytes()})
	reduce(most)
	t.Release(most)
	y := t.empty(x.dtype)
	t.attach("loss_parallel", []*Tensor{x}, []*Tensor{y}, []*Tensor{logp}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		logp := n.saved[0]
		target, e, sum := t.like(logp), t.like(logp), t.like(logp)
		t.fill(target)
		t.kernel("exp", e, logp)
		t.kernel("add", sum, target, e)
		t.Release(e)
		r := t.like(logp)
		t.kernel("mul", r, sum, g[0])
		t.Release(target, sum)
		return []*Tensor{r}
	})
	t.Release(logp)
	return y
}

// CompiledParallelLoss is ParallelLoss of 16-bit logits as a compiler generates it (a
// profile of torchtitan on two tensor ranks): the maximum and the sum of exponentials
// read them, the gradient of both steps is made in the forward pass, in fp32 and beside
// a tensor of zeros that takes the targets, and scaled and cast in the backward pass.
func (t *Tape) CompiledParallelLoss(x *Tensor, reduce func(rows *Tensor)) *Tensor {
	t.begin()
	rows := t.empty(F32, x.Size()/x.Dim(-1), 1)
	n := float64(x.Size())
	kernel := func(prim string, b units.Bytes) {
		t.emit(Op{Prim: prim, Class: FusedPointwise, DType: x.dtype, Elements: n, Bytes: b})
	}
	wide := func() *Tensor { return t.empty(F32, x.dims[:x.nd]...) }
	kernel("amax", x.bytes())
	reduce(rows)
	kernel("sum_exp", x.bytes())
	reduce(rows)
	target := wide()
	t.fill(target)
	r := wide()
	kernel("loss_gradient", x.bytes()+target.bytes()+r.bytes())
	reduce(rows)
	t.Release(target, rows)
	y := t.empty(F32)
	t.attach("loss_parallel", []*Tensor{x}, []*Tensor{y}, []*Tensor{r}, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		z := t.emptyLike(x)
		t.emit(Op{Prim: "loss_gradient_backward", Class: FusedPointwise, DType: x.dtype, Elements: n, Bytes: nd.saved[0].bytes() + z.bytes()})
		return []*Tensor{z}
	})
	t.Release(r)
	return y
}

// embedSortRows is the number of tokens above which PyTorch sorts the tokens
// before it adds their gradients (aten/native/cuda/Embedding.cu).
const embedSortRows = 3072

// Embedding gathers rows of w by token. Its gradient fills a table of zeros and
// adds the rows: directly for few tokens, after a radix sort for many.
func (t *Tape) Embedding(ids, w *Tensor) *Tensor {
	t.begin()
	h := w.Dim(-1)
	dims := ids.dims
	dims[ids.nd] = h
	y := t.empty(w.dtype, dims[:ids.nd+1]...)
	t.emit(Op{Prim: "embedding", Class: Gather, DType: w.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()})
	rows := ids.Size()
	t.attach("embedding", []*Tensor{w}, []*Tensor{y}, []*Tensor{ids}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		if t.WideTables {
			return []*Tensor{t.wideTable(w, rows)}
		}
		r := t.zerosLike(w)
		if rows <= embedSortRows {
			t.emit(Op{Prim: "embedding_backward", Class: EmbedDirect, DType: w.dtype, Elements: float64(rows), Bytes: 2 * units.Bytes(rows*h) * w.dtype.Size()})
			return []*Tensor{r}
		}
		// Sorted: the tokens are ordered, cut into segments of equal token and
		// summed in fp32, then scattered.
		t.scratch(units.Bytes(rows*8*4) + units.Bytes(rows*h)*4)
		t.sort(rows)
		t.emit(Op{Prim: "embedding_backward", Class: EmbedSort, DType: w.dtype, Elements: segmented(rows, w.dims[0]) * float64(h), Bytes: 2 * units.Bytes(rows*h) * w.dtype.Size()})
		return []*Tensor{r}
	})
	return y
}

// wideTable is the gradient of a table as a compiler makes it: rows are added to zeros in fp32,
// one by one, and their sums cast (TorchInductor's decomposition of embedding_dense_backward; traces
// of TinyLlama with 128,256 rows on an H200: 228, 42 and 359 us).
func (t *Tape) wideTable(table *Tensor, rows int64) *Tensor {
	h := table.dims[1]
	wide := t.empty(F32, table.dims[:2]...)
	t.emit(Op{Prim: "fill_", Class: FusedPointwise, DType: F32, Elements: float64(wide.Size()), Bytes: wide.bytes()})
	t.emit(Op{Prim: "embedding_backward", Class: AtomicAdd, DType: F32, Elements: float64(rows * h), Bytes: units.Bytes(rows*h) * (table.dtype.Size() + 2*F32.Size())})
	if table.dtype == F32 {
		return wide
	}
	r := t.emptyLike(table)
	t.Release(wide) // before autograd adds what it makes to another gradient
	t.emit(Op{Prim: "to", Class: Vectorized, DType: r.dtype, Elements: float64(r.Size()), Bytes: wide.bytes() + r.bytes()})
	return r
}

// segmented is the number of rows that the sum of so many into a table takes as long as:
// segments of at most ten equal ones are summed, and their sums added and scattered. A row
// of many takes 0.8 ps an element, a segment 10 more: 36,864 rows into 2304 take 2.5 ps for
// each, rows that differ 10 to 13 (Qwen3-VL's positions, four embeddings; an H100, 2026-11-26).
func segmented(rows, table int64) float64 {
	const perRow = 0.07
	segments := min(rows, rows/10+table)
	return perRow*float64(rows) + (1-perRow)*float64(segments)
}

// indexSortPasses is the number of radix passes over the bits that an index into
// a few thousand rows occupies (traces of Mixtral and Qwen3-MoE).
const indexSortPasses = 2

// sort emits a radix sort of n keys with values: a histogram, then a pass per
// eight bits of a 64-bit key, each with a memset.
func (t *Tape) sort(n int64) {
	t.Tiny("memset", 3)
	t.emit(Op{Prim: "sort", Class: Sort, DType: I64, Elements: float64(n), Bytes: units.Bytes(n) * 8})
	for range 8 {
		t.Tiny("memset", 1)
		t.emit(Op{Prim: "sort", Class: Sort, DType: I64, Elements: float64(n), Bytes: units.Bytes(n) * 32})
	}
}

// Sort orders n keys and returns nothing: only its kernels and host work count.
func (t *Tape) Sort(n int64) { t.sort(n) }

// serialRows is how many rows must add up to one for the chain of additions, which one
// warp does one after the other, to take longer than reading the rows.
const serialRows = 32

// warp is the number of threads that run together.
const warp = 32

// Rows gathers rows of x by an index of n entries (x[index]). In the gradient the
// index is sorted and the rows are added into zeros (index_put_ with accumulate,
// indexing_backward_kernel in aten/native/cuda/Indexing.cu): the rows that belong to
// one row of x one after the other. busiest is the share of the row of x that is
// picked most often over the mean share.
func (t *Tape) Rows(x *Tensor, n int64, busiest float64) *Tensor {
	t.begin()
	h := x.Dim(-1)
	y := t.empty(x.dtype, n, h)
	t.emit(Op{Prim: "index", Class: Gather, DType: x.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()})
	index := []*Tensor{nil} // autograd saves it, of which a tape knows no tensor: recomputation goes on to here
	t.attach("index", []*Tensor{x}, []*Tensor{y}, index, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		return []*Tensor{t.addSorted(g[0], x.dtype, x.dims[:x.nd], busiest)}
	})
	return y
}

// addSorted adds rows into those of a tensor of zeros that an index names, which is sorted first
// (index_put_ with accumulate).
func (t *Tape) addSorted(x *Tensor, d DType, dims []int64, busiest float64) *Tensor {
	r := t.Zeros(d, dims...)
	t.Tiny("index_put_setup", 6)
	rows := x.Size() / x.Dim(-1)
	for range indexSortPasses {
		t.Tiny("memset", 1)
		t.emit(Op{Prim: "sort", Class: Sort, DType: I64, Elements: float64(rows), Bytes: units.Bytes(rows) * 32})
	}
	put := Op{Prim: "index_put_", Class: ScatterAdd, DType: d, Elements: float64(x.Size()), Bytes: 2*x.bytes() + r.bytes()}
	chain := rows / max(r.Dim(0), 1)
	if r.Dim(-1) == 1 { // a warp adds as many at once (indexing_backward_kernel_stride_1)
		chain /= warp
	}
	if chain >= serialRows {
		put.Class, put.Elements = SerialAdd, float64(chain)*max(busiest, 1)
	}
	t.emit(put)
	return r
}

// AddRows adds up the rows of x in n rows of zeros in the order of their index (scatter_add of one
// index for whole rows with deterministic algorithms, which is index_put_ with accumulate:
// _scatter_via_index_put in aten/native/TensorAdvancedIndexing.cpp). The gradient gathers them.
func (t *Tape) AddRows(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.addSorted(x, x.dtype, []int64{n, x.Dim(-1)}, 1)
	t.attach("index_put_", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		r := t.emptyLike(x)
		t.permutation("gather", r, r)
		return []*Tensor{r}
	})
	return y
}

// indexPut is how much longer index_put_ takes for an element of whole rows than
// scatter_add_ does, and outerProduct the products of a column with a row in fp32: 4.55 and 6.86
// ps on an H200 (torchtitan v0.2.2, 131,072 rows of 2048, 2026-11-22), where that takes 3.8.
// innerProduct is what a row of products takes for an element: as much as a sum of two rows.
const (
	indexPut     = 1.2
	outerProduct = 1.8
	innerProduct = 1 + midOutput/2
)

// PutRows writes the rows of x where an index says, element by element, into n rows: of
// zeros, or as they come, of which the last is left out (torchtitan models/moe/utils.py,
// _unpermute). The gradient gathers them; of what was left out it makes zeros, into which
// the gradient of the rest is copied.
func (t *Tape) PutRows(x *Tensor, n int64, zeros bool) *Tensor {
	t.begin()
	y := t.empty(x.dtype, n, x.Dim(-1))
	if zeros {
		t.fill(y)
	}
	t.emit(Op{Prim: "index_put_", Class: AtomicAdd, DType: x.dtype, Elements: indexPut * float64(x.Size()), Bytes: 2 * x.bytes()})
	t.attach("index_put_", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		from := t.Hold(g[0])
		if !zeros {
			t.Release(from)
			from = t.like(g[0])
			t.fill(from)
			t.copied(from)
		}
		r := t.emptyLike(x)
		t.permutation("index", from, r)
		t.Release(from)
		return []*Tensor{r}
	})
	return y
}

// Scatter writes the rows of x where an index says into as many (empty[index] = x): element by
// element, or as fast as they are read where a compiler makes the kernel. The gradient gathers them.
func (t *Tape) Scatter(x *Tensor) *Tensor {
	t.begin()
	y := t.emptyLike(x)
	put := Op{Prim: "index_put_", Class: AtomicAdd, DType: x.dtype, Elements: indexPut * float64(x.Size()), Bytes: 2 * x.bytes()}
	if t.Compiled {
		put.Class, put.Elements = Gather, float64(x.Size())
	}
	t.emit(put)
	t.attach("index_put_", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		r := t.like(g[0])
		t.permutation("index", g[0], r)
		return []*Tensor{r}
	})
	return y
}

// Stacked copies x with a row of zeros after it (torch.vstack); the gradient is a view.
func (t *Tape) Stacked(x *Tensor) *Tensor {
	t.begin()
	y := t.emptyLike(x)
	t.Tiny("zeros", 1)
	t.emit(Op{Prim: "cat", Class: Memcpy, DType: x.dtype, Elements: float64(y.Size()), Bytes: 2 * y.bytes()}) // of whole rows, as fast
	t.attach("cat", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		return []*Tensor{t.view(g[0])}
	})
	return y
}

// WeighRows sums k rows of 16-bit x each, times their fp32 weights w, [rows/k, k], as a
// batch of products of one row with a matrix of k in fp32, which memory limits (torch.bmm
// of x.float(), kernel by kernel whatever is compiled around it). Its gradients are a
// product with a column and an outer product for each.
func (t *Tape) WeighRows(x, w *Tensor, k int64) *Tensor {
	t.begin()
	rows, h, size := x.Dim(0)/k, x.Dim(1), float64(x.Size())
	cast := func(prim string, class Class, from *Tensor, d DType) *Tensor {
		y := t.empty(d, from.dims[:from.nd]...)
		t.emit(Op{Prim: prim, Class: class, DType: d, Elements: float64(y.Size()), Bytes: from.bytes() + y.bytes()})
		return y
	}
	wide := cast("to", Unrolled, x, F32)
	sum := t.empty(F32, rows, h)
	t.emit(Op{Prim: "bmm", Class: MidReduce, DType: F32, Elements: innerProduct * size, Bytes: wide.bytes() + sum.bytes()})
	y := cast("to", Vectorized, sum, x.dtype)
	t.Release(sum)
	d := x.dtype
	t.attach("bmm", []*Tensor{x, w}, []*Tensor{y}, []*Tensor{wide, w}, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		up := cast("to_backward", Unrolled, g[0], F32)
		gw := t.emptyLike(w)
		t.emit(Op{Prim: "bmm_backward", Class: RowReduce, DType: F32, Elements: size, Bytes: nd.saved[0].bytes() + up.bytes()})
		gx := t.empty(F32, rows*k, h)
		t.emit(Op{Prim: "bmm_backward", Class: AtomicAdd, DType: F32, Elements: outerProduct * size, Bytes: gx.bytes() + up.bytes()})
		r := cast("to_backward", Vectorized, gx, d)
		t.Release(up, gx)
		return []*Tensor{r, gw}
	})
	t.Release(wide)
	return y
}

// indexAdd is how much longer index_add_ takes for an element than scatter_add_ does
// (hardware laws, atomic-add).
const indexAdd = 2.08

// IndexSelect copies the rows of x that a list names, n in all, without sorting it: the
// gradient adds them up by index_add_.
func (t *Tape) IndexSelect(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.empty(x.dtype, n, x.Dim(-1))
	t.permutation("index_select", y, y)
	t.attach("index_select", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		r := t.zerosLike(x)
		t.emit(Op{Prim: "index_add_", Class: AtomicAdd, DType: x.dtype, Elements: indexAdd * float64(g[0].Size()), Bytes: 2*g[0].bytes() + r.bytes()})
		return []*Tensor{r}
	})
	return y
}

// ScatterAdd adds up rows x in n rows of zeros (scatter_add_): the gradient gathers them.
func (t *Tape) ScatterAdd(x *Tensor, n int64) *Tensor {
	t.begin()
	y := t.Zeros(x.dtype, n, x.Dim(-1))
	t.emit(Op{Prim: "scatter_add_", Class: AtomicAdd, DType: x.dtype, Elements: float64(x.Size()), Bytes: 2*x.bytes() + y.bytes()})
	t.attach("scatter_add_", []*Tensor{x}, []*Tensor{y}, nil, func(t *Tape, nd *node, g []*Tensor) []*Tensor {
		r := t.emptyLike(x)
		t.permutation("gather", r, r)
		return []*Tensor{r}
	})
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
		outs[i] = t.alloc(t.fusedShape(&f, ins[0]))
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
	t.attach(f.Prim, ins, outs, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
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

// CommSpec is a collective on a tensor in the flow of the layer: the forward one and
// the one its gradient needs. Either name may be empty. The result has the tensor's
// shape with one dimension Ranks times as long after an all-gather, that part of it after a
// reduce-scatter.
type CommSpec struct {
	Forward, Backward string
	Group             string
	Ranks             int64
	Dim               int
	Grow, Shrink      bool    // the result is Ranks times larger, or smaller, along Dim
	Copy              bool    // an all-reduce sums a copy: torch's functional collectives leave their input as it is
	Join              bool    // and move whole blocks: what is cut along Dim is joined before, what is gathered after (torch/distributed/_functional_collectives.py)
	AsyncBackward     bool    // the gradient's collective overlaps with the GEMM after it
	Rows              float64 // the result has this many times the rows; 0: as many
	Sent              float64 // what is sent, over the larger side; 0: as much
	SentBack          float64 // the same of gradients; 0: as Sent
	Operand           bool    // GEMMs alone read what is gathered
	Wide              bool    // gradients are reduced in fp32
	Regather          bool    // layers keep the shard of a gathered input and gather it again
	Kept              bool    // a checkpoint that keeps some outputs keeps this one (CheckpointSome)
}

// Communicate emits the collective c on x; with one rank it returns x.
func (t *Tape) Communicate(c CommSpec, x *Tensor) *Tensor {
	if c.Ranks <= 1 {
		return t.Hold(x)
	}
	t.begin()
	z := t.meta(x.dtype, x.dims[:x.nd])
	dim := c.Dim
	if dim < 0 {
		dim += int(z.nd)
	}
	switch {
	case c.Grow:
		z.dims[dim] *= c.Ranks
	case c.Shrink:
		z.dims[dim] = (z.dims[dim] + c.Ranks - 1) / c.Ranks
	}
	if c.Rows > 0 {
		z.dims[0] = int64(float64(z.dims[0])*c.Rows + 0.5)
	}
	z.setContiguous()
	run := func(kind string, in, out *Tensor, back bool) {
		bytes := t.gathered(c, kind, max(in.bytes(), out.bytes()), in.dtype)
		if out.narrow = t.narrows(c, kind, in.dtype); out.narrow {
			if t.OwnScales { // else quantize does
				t.shareScale(in)
			}
			t.quantize(in, units.Bytes(t.NarrowGathers))
		}
		out.whole = c.Operand && kind == "all-gather"
		sent := c.Sent
		if back && c.SentBack > 0 {
			sent = c.SentBack
		}
		if sent > 0 {
			bytes *= units.Bytes(sent)
		}
		if c.Wide && kind == c.Backward {
			bytes *= F32.Size() / in.dtype.Size()
		}
		joined := c.Join && kind == "reduce-scatter"
		var piece *Tensor // in other order
		switch {
		case joined || len(in.more) > 0:
			piece = t.join(in, in.reads()+in.bytes())
		case c.Copy && kind == "all-reduce":
			t.emit(Op{Prim: "copy", Class: Memcpy, DType: in.dtype, Elements: float64(in.Size()), Bytes: in.bytes() + out.bytes()})
		}
		t.emit(Op{Prim: kind, Class: Collective, DType: in.dtype, Elements: float64(out.Size()), Bytes: 0,
			Comm: &Comm{Kind: kind, Group: c.Group, Bytes: bytes, Async: back && c.AsyncBackward}})
		if c.Join && kind == "all-gather" && !(t.Compiled && outer(out, dim) == 1) { // whose pieces lie as they should
			piece = t.join(out, 2*bytes)
		}
		t.Release(piece)
	}
	if c.Forward == "" { // as it is, or the rank's own part
		dims := z.dims
		z = t.view(x)
		if c.Shrink {
			z.dims = dims
			z.setContiguous()
		}
	} else {
		z = t.produce(c.Kept, z, func(z *Tensor) { run(c.Forward, x, z, false) })
	}
	if c.Regather && c.Grow && t.record {
		z.shard = &gathered{from: x, spec: c}
	}
	t.attach("comm", []*Tensor{x}, []*Tensor{z}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		if c.Backward == "" {
			if c.Grow { // each rank's own part of it
				part := t.Slice(g[0], dim, 0, x.dims[dim])
				own := t.Contiguous(part)
				t.Release(part)
				return []*Tensor{own}
			}
			return []*Tensor{t.Hold(g[0])}
		}
		r := t.emptyLike(x)
		run(c.Backward, g[0], r, true)
		return []*Tensor{r}
	})
	return z
}

// join emits the copy of x that puts the pieces of a collective in order and adds up
// the terms of a pending sum. It returns the one beside x.
func (t *Tape) join(x *Tensor, b units.Bytes) *Tensor {
	class := Concat
	piece := t.emptyLike(x)
	if t.Compiled {
		class = FusedPointwise
	}
	t.emit(Op{Prim: "join", Class: class, DType: x.dtype, Elements: float64(x.Size()), Bytes: b})
	return piece
}

// outer is the product of the dimensions before dim.
func outer(x *Tensor, dim int) int64 {
	n := int64(1)
	for _, d := range x.dims[:dim] {
		n *= d
	}
	return n
}

// gathered is the size of what a collective moves: with NarrowGathers an all-gather of a
// GEMM's operand moves it as it is multiplied, a gradient in that many copies, as two
// GEMMs read it, along rows and along columns.
func (t *Tape) gathered(c CommSpec, kind string, bytes units.Bytes, d DType) units.Bytes {
	if !t.narrows(c, kind, d) {
		return bytes
	}
	if kind == c.Backward {
		bytes *= units.Bytes(t.NarrowGathers)
	}
	return bytes * t.Quantize.Size() / d.Size()
}

// narrows is whether collective kind of c gathers in Quantize.
func (t *Tape) narrows(c CommSpec, kind string, d DType) bool {
	return t.NarrowGathers > 0 && c.Operand && kind == "all-gather" && t.Quantize != F32 && d.lowPrecision()
}

// regather repeats the all-gather of a tensor that was kept as a shard, beside
// the GEMM before it.
func (t *Tape) regather(g *gathered) *Tensor {
	x := g.from
	z := t.meta(x.dtype, x.dims[:x.nd])
	z.dims[g.spec.Dim] *= g.spec.Ranks
	z.setContiguous()
	t.alloc(z)
	bytes := t.gathered(g.spec, g.spec.Forward, z.bytes(), x.dtype)
	t.emit(Op{Prim: g.spec.Forward, Class: Collective, DType: x.dtype, Elements: float64(z.Size()),
		Comm: &Comm{Kind: g.spec.Forward, Group: g.spec.Group, Bytes: bytes, Async: g.spec.AsyncBackward}})
	return z
}
