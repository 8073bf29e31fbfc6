package tape

import "github.com/perfplan/perfplan/internal/units"

// quantizedRows is quantized for the rows of several experts: one kernel for each.
func (t *Tape) quantizedRows(x *Tensor, experts int64, wgrad bool) *Tensor {
	if t.Quantize == F32 || !x.dtype.lowPrecision() {
		return t.Hold(x)
	}
	q := t.empty(t.Quantize, x.dims[:x.nd]...)
	n, copies := units.Bytes(experts), t.Copies
	if !wgrad {
		copies = 1
	}
	if t.ScaleKernels > 0 {
		t.emit(Op{Prim: "grouped_scales", Class: Vectorized, Count: int32(experts) * int32(t.ScaleKernels), Elements: 1})
	}
	t.emit(Op{Prim: "grouped_quantize", Class: FusedPointwise, DType: t.Quantize, Count: int32(experts), Elements: float64(x.Size()) / float64(experts),
		Bytes: (units.Bytes(t.RaggedRead*float64(x.bytes())) + units.Bytes(copies)*q.bytes()) / n})
	return q
}

// expertProduct multiplies rows, sorted by expert, with a weight [out, in] for each of the experts.
type expertProduct struct{ rows, experts, out, in int64 }

// extents are those of the GEMM of one expert that has so many of the rows.
func (p *expertProduct) extents(layout Layout, rows int64) (m, n, k int64) {
	switch layout {
	case LayoutDgrad:
		return rows, p.in, p.out
	case LayoutWgrad:
		return p.out, p.in, rows
	}
	return rows, p.out, p.in
}

// groupedGEMM emits the GEMMs of all experts as one kernel, which moves some bytes beside
// their operands and results. It returns the op for what is left to say.
func (t *Tape) groupedGEMM(prim string, layout Layout, operands, result DType, p expertProduct, more units.Bytes) *Op {
	t.Tiny("grouped_mm_setup", 1)
	m, n, k := p.extents(layout, max(p.rows/p.experts, 1))
	adds := layout == LayoutWgrad && t.HasMain && !t.MainHook
	x, y, weight := units.Bytes(p.rows*p.in), units.Bytes(p.rows*p.out), units.Bytes(p.experts*p.in*p.out)
	read, written, size := x+weight, y, result.Size() // results are wider than quantized operands
	switch layout {
	case LayoutDgrad:
		read, written = y+weight, x
	case LayoutWgrad:
		read, written = x+y, weight
		if adds {
			size = 2 * t.MainGrad.Size()
		}
	}
	t.emit(Op{Prim: prim, Class: GroupedGEMM, DType: operands, Layout: layout, Adds: adds, M: m, N: n, K: k, Batch: p.experts,
		Elements: float64(p.rows) * float64(p.out), Bytes: read*operands.Size() + written*size + more,
		FLOPs: units.FLOPs(2 * float64(p.rows) * float64(p.out) * float64(p.in))})
	return &t.sec.Ops[len(t.sec.Ops)-1]
}

// GroupedLinear multiplies rows sorted by expert with the weight of their
// expert: x [rows, in], w [experts, out, in] (or [experts, in, out] when
// transposed). It does not take part in autocast; x is cast to the weight's dtype.
func (t *Tape) GroupedLinear(x, w *Tensor, transposed bool) *Tensor {
	xl := t.To(x, w.dtype)
	experts, out, in := w.Dim(0), w.Dim(1), w.Dim(2)
	if transposed {
		out, in = in, out
	}
	rows := xl.Size() / in
	xg, wg := xl.grad, w.grad
	kept := t.quantizedRows(xl, experts, wg)
	t.begin()
	y := t.empty(w.dtype, rows, out)
	dtype := w.dtype
	switch {
	case kept.dtype != xl.dtype:
		dtype = kept.dtype
	case dtype == F32 && t.TF32:
		dtype = TF32
	}
	product := expertProduct{rows, experts, out, in}
	zeros, apart := t.HalfZero, t.ExpertModules || t.StackedExperts
	grouped := func(prim string, layout Layout) {
		if !apart && (t.ExpertCalls || w.dtype == BF16 || w.dtype == FP8) {
			o := t.groupedGEMM(prim, layout, dtype, w.dtype, product, 0)
			o.Wraps = t.JointProducts && layout != LayoutWgrad && o.K%128 == 0 // nvte_multi_tensor_gemm of Transformer Engine (common/gemm/cublaslt_gemm.cu)
			o.Calls, o.Zeros = t.ExpertCalls && !o.Wraps, zeros.in(layout)
			return
		}
		if !apart { // torch._grouped_mm has no kernel: one GEMM per expert, sizes read on the host
			t.Wait()
		}
		for i := range experts {
			m, n, k := product.extents(layout, max((rows+i)/experts, 1)) // adds up to all rows
			t.gemm(prim, layout, w.dtype, m, n, k, 1)
		}
	}
	grouped("grouped_mm", LayoutForward)
	if t.StackedExperts {
		parts := t.emptyLike(y)
		t.concat(false, y)
		t.Release(parts)
	}
	var saved []*Tensor
	if wg {
		saved = append(saved, kept)
	}
	t.attach([]*Tensor{xl, w}, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		var r []*Tensor
		t.Release(t.quantizedRows(g[0], experts, wg))
		if xg {
			gx := t.empty(w.dtype, rows, in)
			grouped("grouped_mm_dgrad", LayoutDgrad)
			r = append(r, gx)
		}
		if wg {
			gw := t.emptyLike(w)
			gw.summed = t.HasMain && !t.MainHook
			grouped("grouped_mm_wgrad", LayoutWgrad)
			if t.StackedExperts {
				t.selected(gw)
			}
			r = append(r, gw)
		}
		return r
	})
	t.Release(kept, xl)
	return y
}

// selected makes the gradient of a stack of weights that were selected one by one: of each zeros as large as the stack, into
// which its own is copied (FunctionsManual.cpp, select_backward), and which are added up.
func (t *Tape) selected(w *Tensor) {
	experts := int32(w.Dim(0))
	one := t.emptyLike(w)
	each := func(prim string, count int32, elements int64, passes units.Bytes) {
		t.emit(Op{Prim: prim, Class: Vectorized, DType: w.dtype, Count: count, Elements: float64(elements), Bytes: passes * units.Bytes(elements) * w.dtype.Size()})
	}
	each("fill_", experts, w.Size(), 1)
	each("copy_", experts, w.Size()/w.Dim(0), 2)
	each("add_", experts-1, w.Size(), 3)
	t.Release(one)
}

// ExpertMLP says how GroupedMLP runs.
type ExpertMLP struct {
	Transposed bool // weights are [experts, in, out]
	Plain      bool // without a gate
	Stash      bool // what is kept moves between the kernels' buffers, as large as they might get, and a dense one
	Again      bool // what the second product read is not kept, but made again by the kernel of its gradient (use_dsrelu_reuse)
}

// GroupedMLP is an MLP of experts in kernels that take the numbers of rows from
// the device, x [rows, h] sorted by expert, a probability for each row: the first GEMM
// applies the activation and the probability and casts, the gradient of the second undoes
// them (Transformer Engine, pytorch/ops/fused/grouped_mlp.py). The input
// and the gradient are cast for all experts at once. The GEMMs add biases and sum the first
// one's gradient; that of the second, and of its probabilities, takes a kernel that reads the
// gradient (triton/grouped_dbias_dscales.py).
func (t *Tape) GroupedMLP(x, probs, gateUp, down *Tensor, how ExpertMLP, biases ...*Tensor) *Tensor {
	experts, wide, h := gateUp.Dim(0), gateUp.Dim(1), gateUp.Dim(2)
	if how.Transposed {
		wide, h = h, wide
	}
	f, prim := wide/2, "grouped_glu"
	if how.Plain {
		f, prim = wide, "grouped_act"
	}
	rows, dtype := x.Size()/h, x.dtype
	first, second := expertProduct{rows, experts, wide, h}, expertProduct{rows, experts, h, f}
	trained := gateUp.grad
	kept := t.quantized(x, trained)
	narrow := kept.dtype
	t.begin()
	before := t.empty(dtype, rows, wide)
	after := t.empty(narrow, rows, f)
	t.groupedGEMM(prim, LayoutForward, narrow, dtype, first, 2*after.bytes()) // written along both axes
	y := t.empty(dtype, rows, h)
	t.groupedGEMM("grouped_mm", LayoutForward, narrow, dtype, second, 0)
	saved := []*Tensor{kept, before, after, probs}
	if how.Again {
		saved = []*Tensor{kept, before, probs}
	}
	stash := func(prim string) {
		if !how.Stash {
			return
		}
		for _, b := range []units.Bytes{kept.bytes(), before.bytes(), after.bytes()} {
			t.emit(Op{Prim: prim, Class: Vectorized, DType: narrow, Elements: float64(b) / 4, Bytes: 2 * b})
		}
	}
	stash("stash")
	ins := append([]*Tensor{x, probs, gateUp, down}, biases...)
	t.attach(ins, []*Tensor{y}, saved, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		stash("unstash")
		t.Release(t.quantized(g[0], trained))
		if len(biases) > 0 {
			t.emit(Op{Prim: "grouped_bias_backward", Class: Vectorized, DType: dtype, Elements: float64(g[0].Size()), Bytes: g[0].bytes()})
		}
		// Beside what a GEMM moves, the gradient of the activation reads what went into it and is written as wide, along both axes.
		more := units.Bytes(rows*wide)*(dtype.Size()+2*narrow.Size()) - after.bytes()
		if how.Again {
			more += after.bytes()
		}
		t.groupedGEMM(prim+"_dgrad", LayoutDgrad, narrow, narrow, second, more)
		if trained {
			t.groupedGEMM("grouped_mm_wgrad", LayoutWgrad, narrow, dtype, second, 0)
		}
		t.groupedGEMM("grouped_mm_dgrad", LayoutDgrad, narrow, dtype, first, 0)
		if trained {
			t.groupedGEMM("grouped_mm_wgrad", LayoutWgrad, narrow, dtype, first, 0)
		}
		var r []*Tensor
		for _, e := range n.in {
			g := t.emptyLike(&e.meta)
			g.summed = t.HasMain
			r = append(r, g)
		}
		return r
	})
	t.Release(kept, before, after)
	return y
}

// ExpertBias adds to each of the rows x [rows, h], sorted by expert, the bias [experts, h]
// of its expert times the row's probability, probs [rows, 1]: expert by expert in fp32,
// joined and cast back (Megatron-Core moe/experts.py, TEGroupedMLP._apply_bias). Without
// probabilities all is in the dtype of the rows.
func (t *Tape) ExpertBias(x, bias, probs *Tensor) *Tensor {
	if probs == nil {
		return t.plainBias(x, bias)
	}
	experts, n := bias.Dim(0), x.Size()
	// each emits one kernel per expert over its rows, which moves so many bytes an element.
	each := func(o Op, bytes units.Bytes) {
		o.Count, o.Elements, o.Bytes = int32(experts), float64(n)/float64(experts), bytes*units.Bytes(n)/units.Bytes(experts)
		t.emit(o)
	}
	const broadcast = 6 // two dimensions that no operand walks as one, of three operands
	narrow := x.dtype.Size()
	t.begin()
	scaled := t.alloc(t.shape(F32, x))
	each(Op{Prim: "mul", Class: StridedCast, DType: F32, Index: broadcast}, 4)
	each(Op{Prim: "add", Class: UnrolledMix, DType: F32}, 8+narrow)
	joined := t.alloc(t.shape(F32, x))
	t.concat(false, joined)
	t.Release(scaled)
	y := t.emptyLike(x)
	t.kernel("to", y, joined)
	t.Release(joined)
	t.attach([]*Tensor{x, bias, probs}, []*Tensor{y}, []*Tensor{bias, probs}, func(t *Tape, _ *node, g []*Tensor) []*Tensor {
		wide := t.alloc(t.shape(F32, g[0]))
		t.kernel("to", wide, g[0])
		parts := t.alloc(t.shape(x.dtype, g[0]))
		each(Op{Prim: "to", Class: Vectorized, DType: x.dtype}, 4+narrow)
		products := t.alloc(t.shape(F32, g[0]))
		each(Op{Prim: "mul", Class: StridedCast, DType: F32, Index: broadcast}, 8)
		gp := t.emptyLike(probs)
		each(Op{Prim: "sum", Class: RowReduce, DType: F32, N: x.Dim(-1)}, 4)
		each(Op{Prim: "mul", Class: Strided4, DType: F32, Index: broadcast}, 8)
		var gb *Tensor
		if bias.grad {
			gb = t.emptyLike(bias)
			each(Op{Prim: "sum", Class: ColReduce, DType: F32, N: x.Dim(-1)}, 4)
		}
		t.Release(wide, products)
		gx := t.emptyLike(x)
		t.concat(false, gx)
		t.Release(parts)
		return present(gx, gb, gp)
	})
	return y
}

// plainBias is ExpertBias without probabilities: sums expert by expert, which are joined.
func (t *Tape) plainBias(x, bias *Tensor) *Tensor {
	experts := bias.Dim(0)
	each := func(o Op) {
		o.Count, o.Elements, o.DType = int32(experts), float64(x.Size())/float64(experts), x.dtype
		o.Bytes *= x.dtype.Size() * units.Bytes(x.Size()) / units.Bytes(experts)
		t.emit(o)
	}
	t.begin()
	sums := t.alloc(t.shape(x.dtype, x))
	each(Op{Prim: "add", Class: Strided2, Bytes: 2})
	y := t.emptyLike(x)
	t.concat(false, y)
	t.Release(sums)
	t.attach([]*Tensor{x, bias}, []*Tensor{y}, nil, func(t *Tape, _ *node, g []*Tensor) []*Tensor {
		var gb *Tensor
		if bias.grad {
			gb = t.emptyLike(bias)
			each(Op{Prim: "sum", Class: ColReduce, N: x.Dim(-1), Bytes: 1})
		}
		gx := t.emptyLike(x)
		t.concat(false, gx)
		return present(gx, gb)
	})
	return y
}
