package tape

import "github.com/perfplan/perfplan/internal/units"

// allocUnit is the caching allocator's smallest block: every allocation is
// rounded up to it (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize).
const allocUnit = 512

// storage is a block of device memory with the number of tensors, saved
// values and gradient slots that hold it.
type storage struct {
	bytes units.Bytes
	refs  int32
	kind  StoreKind
	owned bool // allocated by this tape; parameters and borrowed inputs are not
}

// Param returns parameter i of the unit. It lives outside the tape's memory.
func (t *Tape) Param(i int, dtype DType, grad bool, dims ...int64) *Tensor {
	x := t.outside(dtype, dims)
	x.param, x.grad = int32(i)+1, grad
	return x
}

// Packed says that a weight is stored in another dtype, of which each product makes a copy
// that it reads.
func (t *Tape) Packed(w *Tensor, d DType) *Tensor {
	w.packed = d
	return w
}

// Outside returns a tensor that others allocate and release: position tables,
// token ids.
func (t *Tape) Outside(dtype DType, dims ...int64) *Tensor { return t.outside(dtype, dims) }

func (t *Tape) outside(dtype DType, dims []int64) *Tensor {
	x := t.meta(dtype, dims)
	x.store = int32(len(t.stores))
	t.stores = append(t.stores, storage{bytes: roundUp(x.bytes()), refs: 1})
	return x
}

// Input returns a tensor that the unit takes over from the unit before it: the
// caller has allocated it, this tape releases it. Its storage is 0 when it is
// the first tensor of the tape.
func (t *Tape) Input(dtype DType, grad bool, dims ...int64) *Tensor {
	x := t.outside(dtype, dims)
	t.stores[x.store].owned = true
	t.stores[x.store].kind = t.kind
	if grad && t.record {
		x.grad = true
		x.node = t.addNode(node{isInput: true})
	}
	return x
}

// Lent returns a tensor that another tape made and keeps. Its gradient is added to that of
// others who read it, which this tape does not make, if it has one.
func (t *Tape) Lent(dtype DType, grad bool, dims ...int64) *Tensor {
	x := t.outside(dtype, dims)
	if !t.record || !grad {
		return x
	}
	x.grad = true
	x.node = t.addNode(node{nout: 1, run: func(t *Tape, n *node, g []*Tensor) []*Tensor {
		sum := t.outside(dtype, dims)
		t.kernel("add_", sum, sum, g[0])
		t.Release(sum)
		return nil
	}})
	return x
}

// meta is a contiguous tensor that is yet to be allocated.
func (t *Tape) meta(dtype DType, dims []int64) *Tensor {
	x := t.tensor()
	*x = Tensor{nd: int8(len(dims)), dtype: dtype, node: -1, store: -1}
	copy(x.dims[:], dims)
	x.setContiguous()
	return x
}

// ofWidth is a meta of the shape of x but for its last dimension.
func (t *Tape) ofWidth(dtype DType, x *Tensor, width int64) *Tensor {
	y := t.meta(dtype, x.dims[:x.nd])
	y.dims[y.nd-1] = width
	y.setContiguous()
	return y
}

// alloc allocates a fresh tensor with the layout already set in x.
func (t *Tape) alloc(x *Tensor) *Tensor {
	b := roundUp(x.bytes())
	x.store = int32(len(t.stores))
	t.stores = append(t.stores, storage{bytes: b, refs: 1, kind: t.kind, owned: true})
	t.event(x.store, b)
	return x
}

// Empty returns a fresh tensor that no op writes (its kernels are counted elsewhere).
func (t *Tape) Empty(dtype DType, dims ...int64) *Tensor { return t.empty(dtype, dims...) }

func (t *Tape) empty(dtype DType, dims ...int64) *Tensor { return t.alloc(t.meta(dtype, dims)) }

// emptyLike is an Empty of the shape and dtype of x.
func (t *Tape) emptyLike(x *Tensor) *Tensor { return t.empty(x.dtype, x.dims[:x.nd]...) }

func (t *Tape) event(store int32, bytes units.Bytes) {
	if bytes != 0 {
		t.sec.Events = append(t.sec.Events, Event{Store: store, Op: int32(len(t.sec.Ops)), Bytes: bytes, Kind: t.stores[store].kind})
	}
}

// scratch allocates and releases memory that one kernel needs while it runs.
func (t *Tape) scratch(b units.Bytes) {
	if b <= 0 {
		return
	}
	b = roundUp(b)
	id := int32(len(t.stores))
	t.stores = append(t.stores, storage{bytes: b, kind: Workspace, owned: true})
	t.event(id, b)
	t.event(id, -b)
}

// Bytes is the size of the block that holds x.
func (t *Tape) Bytes(x *Tensor) units.Bytes { return t.stores[x.store].bytes }

func roundUp(b units.Bytes) units.Bytes {
	n := (int64(b) + allocUnit - 1) / allocUnit * allocUnit
	return units.Bytes(n)
}

// Hold adds an owner and returns x.
func (t *Tape) Hold(x *Tensor) *Tensor {
	if x != nil && x.store >= 0 {
		t.stores[x.store].refs++
		for _, m := range x.more {
			t.Hold(m)
		}
	}
	return x
}

// Release gives up one ownership; the last one frees the storage.
func (t *Tape) Release(xs ...*Tensor) {
	for _, x := range xs {
		if x == nil || x.store < 0 {
			continue
		}
		t.Release(x.more...)
		s := &t.stores[x.store]
		if s.refs--; s.refs == 0 && s.owned {
			t.event(x.store, -s.bytes)
		}
	}
}

// view returns another tensor on x's storage.
func (t *Tape) view(x *Tensor) *Tensor {
	y := t.tensor()
	*y = *x
	y.node, y.grad, y.param = -1, false, 0
	t.Hold(x)
	t.host.Views++
	return y
}

// Keep holds tensors until the gradient of x has come back to this point.
func (t *Tape) Keep(x *Tensor, held ...*Tensor) *Tensor {
	z := t.view(x)
	t.attachOne(x, z, held, func(t *Tape, n *node, g *Tensor) *Tensor { return t.Hold(g) })
	return z
}
