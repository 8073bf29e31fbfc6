package tape

// AdapterUnits is x as the two matrices of an adapter read it that are units of FSDP1 each: hooks
// gather either before and shard it again behind, and reduce its gradient (torch/distributed/fsdp,
// _runtime_utils.py). Before it gathers the next but one, the host waits for what the device has done
// with a unit (limit_all_gathers), so that it is never further ahead than the product that
// an adapter stands beside: behind both forward, which is for the caller to say, and backward here.
//
// copied: x has another dtype than parameters before they were first gathered, to which PEFT casts it
// (tuners_utils.py, _cast_input_dtype) and FSDP back: the first step keeps a copy, which is memory and,
// in steps to come, no time.
func (t *Tape) AdapterUnits(x *Tensor, copied bool) *Tensor {
	t.begin()
	prim := "adapter_units"
	if t.phase == Recompute {
		prim = "adapter_units_again"
	}
	t.Tiny(prim, 1)
	y := t.view(x)
	if copied {
		t.Release(y)
		y = t.shape(x.dtype, x)
		t.alloc(y)
	}
	t.attachOne(x, y, nil, func(t *Tape, n *node, g *Tensor) *Tensor {
		t.emit(Op{Prim: "adapter_units_backward", Class: Memcpy, Elements: 1, Bytes: 1, Sync: true})
		return t.Hold(g)
	})
	return y
}
