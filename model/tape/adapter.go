package tape

// TritonAdapter is B(A(x)) by NeMo AutoModel's Triton kernels (components/_peft/lora_kernel.py): one
// kernel forward; backward one for the gradient of the input, a product for A's, and for B's a
// kernel that makes A(x) anew, and a product. Each reads or writes the input and the output once.
func (t *Tape) TritonAdapter(x, a, b *Tensor) *Tensor {
	t.begin()
	in, rank, out := a.Dim(1), a.Dim(0), b.Dim(0)
	rows := x.Size() / in
	y := t.alloc(t.ofWidth(x.dtype, x, out))
	kernel := func(prim string, xs ...*Tensor) {
		o := Op{Prim: prim, Class: FusedReduce, DType: x.dtype, Elements: float64(rows), N: in}
		for _, x := range xs {
			o.Bytes += x.bytes()
		}
		t.emit(o)
	}
	kernel("triton_adapter", x, y)
	t.attach([]*Tensor{x, a, b}, []*Tensor{y}, []*Tensor{x, a, b}, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		gy := t.packed(g[0])
		gx := t.emptyLike(x)
		low := t.empty(x.dtype, rows, rank)
		kernel("triton_adapter_dgrad", gy, gx)
		ga := t.empty(x.dtype, rank, in)
		t.gemm("triton_adapter_a", LayoutWgrad, x.dtype, in, rank, rows, 1)
		t.Release(low)
		low = t.empty(x.dtype, rank, rows)
		kernel("triton_adapter_down", x)
		gb := t.empty(x.dtype, out, rank)
		t.gemm("triton_adapter_b", LayoutWgrad, x.dtype, rank, out, rows, 1)
		t.Release(low, gy)
		r := []*Tensor{gx, ga, gb}
		if !x.grad {
			t.Release(gx)
			r = r[1:]
		}
		return r
	})
	return y
}
