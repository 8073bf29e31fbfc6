package tape

// cast is autocast's copy of a parameter.
type cast struct {
	param int32
	copy  *Tensor
}

// low is autocast's copy of what lies in a storage.
type low struct {
	of    int32
	graph byte // that reads it
	copy  *Tensor
}

// fp32 is autocast's cast for ops that run in fp32 (pow, softmax, layer_norm, …).
func (t *Tape) fp32(x *Tensor) *Tensor {
	if t.Autocast != F32 && x != nil && x.dtype.lowPrecision() {
		return t.To(x, F32)
	}
	return t.Hold(x)
}

// low is autocast's cast for ops that run in low precision (linear, matmul,
// attention). Casts of parameters are cached until the autocast context ends, but not those
// of frozen ones (aten/src/ATen/autocast_mode.cpp, cached_cast).
func (t *Tape) low(x *Tensor) *Tensor {
	if t.Autocast == F32 || x == nil || x.dtype != F32 {
		return t.Hold(x)
	}
	if x.param == 0 {
		return t.lowOnce(x)
	}
	if !x.grad {
		defer t.Kind(t.Kind(WeightCopy))
		return t.To(x, t.Autocast)
	}
	for _, c := range t.casts {
		if c.param == x.param {
			return t.Hold(c.copy)
		}
	}
	old := t.Kind(WeightCopy)
	y := t.To(x, t.Autocast)
	t.Kind(old)
	t.casts = append(t.casts, cast{x.param, t.Hold(y)})
	return y
}

// lowOnce is the cast of an activation. A compiler that sees all that read it makes one for
// them, while one of them keeps it (a memory snapshot of Llama under autocast, PyTorch 2.11); of
// several graphs each makes its own.
func (t *Tape) lowOnce(x *Tensor) *Tensor {
	if !t.OneGraph && !t.Graphs {
		return t.To(x, t.Autocast)
	}
	whole := roundUp(x.bytes()) == t.stores[x.store].bytes // parts have casts of their own
	for _, c := range t.lows {
		if whole && c.of == x.store && c.graph == t.Graph && t.stores[c.copy.store].refs > 0 {
			return t.Hold(c.copy)
		}
	}
	y := t.To(x, t.Autocast)
	if whole {
		t.lows = append(t.lows, low{x.store, t.Graph, y})
	}
	return y
}

// EndAutocast drops the cached weight copies, as leaving the autocast context
// does. Copies that no node saved are released when the whole forward pass ends.
func (t *Tape) EndAutocast() {
	for _, c := range t.casts {
		s := &t.stores[c.copy.store]
		if s.refs == 1 && t.phase == Forward {
			s.refs = 0
			t.sec.Deferred = append(t.sec.Deferred, Event{Store: c.copy.store, Bytes: -s.bytes, Kind: s.kind})
			continue
		}
		t.Release(c.copy)
	}
	t.casts = t.casts[:0]
}

// Lowered runs f as autocast runs an operation of its lower precision: it casts what that reads, and nothing
// inside (aten/src/ATen/autocast_mode.h, WrapFunction_, which excludes its own dispatch key).
func (t *Tape) Lowered(f func(x []*Tensor) *Tensor, x ...*Tensor) *Tensor {
	low := make([]*Tensor, len(x))
	for i := range x {
		low[i] = t.low(x[i])
	}
	defer func(cast DType) { t.Autocast = cast }(t.Autocast)
	t.Autocast = F32
	y := f(low)
	t.Release(low...)
	return y
}
