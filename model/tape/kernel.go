package tape

import "github.com/perfplan/perfplan/internal/units"

// kernel emits the elementwise kernel that TensorIterator would launch to
// write out from ins: flat and vectorized when all operands walk memory alike,
// "unrolled" when a dtype is converted on the way, strided otherwise.
func (t *Tape) kernel(prim string, out *Tensor, ins ...*Tensor) {
	flat, convert, turned := true, false, false
	var again units.Bytes
	bytes := out.bytes()
	for _, x := range ins {
		if x.nd == 0 { // a host scalar travels as a kernel argument
			continue
		}
		bytes += x.reads()
		if x.turnedAgainst(out) {
			turned, again = true, max(again, x.again())
		}
		flat = flat && x.sameLayout(out)
		convert = convert || x.dtype != out.dtype && x.dtype.floating() && out.dtype.floating()
	}
	if flat && !out.dense() {
		flat = false
	}
	// A plain copy from fp32 to a 16-bit type has a vectorized kernel of its own.
	if convert && len(ins) == 1 && prim == "to" && ins[0].dtype == F32 && out.dtype.lowPrecision() && flat {
		convert = false
	}
	class := Vectorized
	switch {
	case t.Compiled: // whose kernels walk any layout and convert on the way
		class = FusedPointwise
	case flat && convert && len(ins) > 1:
		class = UnrolledMix
	case flat && convert:
		class = Unrolled
	case turned && again > 0:
		class = TransposedAgain
	case turned:
		class = Transposed
	case convert:
		class = StridedCast
	case !flat && out.dtype.Size() <= 2:
		class = Strided2
	case !flat:
		class = Strided4
	}
	o := Op{Prim: prim, Class: class, DType: out.dtype, Elements: float64(out.Size()), Bytes: bytes}
	if class == TransposedAgain {
		o.N = int64(again)
	}
	if !flat {
		o.Index = float64(coalesced(out, ins) * (1 + len(ins)))
	}
	t.emit(o)
}

// coalesced is the number of dimensions that are left when neighbours are merged
// wherever every operand walks them as one (TensorIterator, coalesce_dimensions).
func coalesced(out *Tensor, ins []*Tensor) int {
	order := out.order()
	n := 0
	last := int8(-1) // the inner neighbour, as a dimension of out
	for i := int(out.nd) - 1; i >= 0; i-- {
		d := order[i]
		if out.dims[d] == 1 {
			continue
		}
		if last < 0 || !mergeable(out, ins, d, last) {
			n++
		}
		last = d
	}
	return max(n, 1)
}

func mergeable(out *Tensor, ins []*Tensor, outer, inner int8) bool {
	ok := func(x *Tensor) bool {
		if x.nd == 0 {
			return true
		}
		lead := out.nd - x.nd
		stride := func(d int8) (int64, int64) {
			if d < lead || x.dims[d-lead] == 1 && out.dims[d] != 1 {
				return 0, out.dims[d]
			}
			return x.strides[d-lead], out.dims[d]
		}
		so, _ := stride(outer)
		si, ni := stride(inner)
		return so == si*ni
	}
	if !ok(out) {
		return false
	}
	for _, x := range ins {
		if !ok(x) {
			return false
		}
	}
	return true
}

// like allocates the result of an elementwise op on ins: broadcast shape,
// promoted dtype, and the memory order of the first operand of full size.
func (t *Tape) like(ins ...*Tensor) *Tensor { return t.alloc(t.shape(promote(ins...), ins...)) }

// apply is the result of an elementwise op on ins, and emits the kernel that makes it.
func (t *Tape) apply(prim string, ins ...*Tensor) *Tensor {
	y := t.like(ins...)
	t.kernel(prim, y, ins...)
	return y
}

// shape is what like allocates, of any dtype.
func (t *Tape) shape(dtype DType, ins ...*Tensor) *Tensor {
	var nd int8
	for _, x := range ins {
		nd = max(nd, x.nd)
	}
	y := t.tensor()
	*y = Tensor{nd: nd, dtype: dtype, node: -1, store: -1}
	for i := range nd {
		y.dims[i] = 1
		for _, x := range ins {
			if j := i - (nd - x.nd); j >= 0 && x.dims[j] != 1 {
				y.dims[i] = x.dims[j]
			}
		}
	}
	y.setContiguous()
	for _, x := range ins {
		if x.nd == nd && x.Size() == y.Size() {
			y.permuteLike(x)
			break
		}
	}
	return y
}

// permuteLike lays y out densely in the memory order of x.
func (y *Tensor) permuteLike(x *Tensor) {
	o := x.order()
	s := int64(1)
	for i := int(x.nd) - 1; i >= 0; i-- {
		y.strides[o[i]] = s
		s *= y.dims[o[i]]
	}
}

// promote is PyTorch's result type of tensors with at least one dimension:
// fp32 wins over 16-bit floats, floats win over integers.
func promote(ins ...*Tensor) DType {
	r, have := F32, false
	for _, x := range ins {
		if x.nd == 0 {
			continue
		}
		switch {
		case !have:
			r, have = x.dtype, true
		case x.dtype == r:
		case !r.floating():
			r = x.dtype
		case !x.dtype.floating():
		default:
			r = F32
		}
	}
	return r
}
