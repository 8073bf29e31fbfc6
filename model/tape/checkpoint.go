package tape

import "slices"

// Checkpoint runs f on activations without saving anything but these inputs; its
// gradient runs f again and then the gradients of that run. Parameters reach f
// by closure. With early, the second run ends after the last tensor it saves.
func (t *Tape) Checkpoint(early bool, f func(ins []*Tensor) *Tensor, ins ...*Tensor) *Tensor {
	return t.checkpoint(early, nil, f, ins)
}

// Keeps is what a checkpoint that keeps some outputs keeps of matrix multiplies.
type Keeps struct {
	Products bool // every other one without a bias
	Biased   bool // and all with one
}

// CheckpointSome is Checkpoint but for the outputs of attention, of collectives that are
// Kept and of matrix multiplies, which the second run finds kept (torch.utils.checkpoint with
// the policy that torchtitan calls selective activation checkpointing by op).
func (t *Tape) CheckpointSome(keeps Keeps, f func(ins []*Tensor) *Tensor, ins ...*Tensor) *Tensor {
	return t.checkpoint(false, &keeper{Keeps: keeps}, f, ins)
}

func (t *Tape) checkpoint(early bool, keep *keeper, f func(ins []*Tensor) *Tensor, ins []*Tensor) *Tensor {
	if !t.record {
		return f(ins)
	}
	t.note("checkpoint")
	t.record, t.keeper = false, keep
	y := f(ins)
	t.record, t.keeper = true, nil
	t.begin()
	t.attach(ins, []*Tensor{y}, ins, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		outer, lo := t.phase, len(t.nodes)
		again := t.inputs(ins)
		t.note("checkpoint_backward")
		t.phase, t.record = Recompute, true
		t.lastSave, t.lastSaveEvent = len(t.sec.Ops), len(t.sec.Events)
		if keep != nil {
			keep.again, keep.seen = true, 0
		}
		t.keeper = keep
		y := f(again)
		t.keeper = nil
		t.EndAutocast()
		t.Release(y)
		if early {
			t.stopEarly()
			t.host = HostWork{}
		}
		t.phase, t.record = outer, false
		out := t.run(lo, y, t.Hold(g[0]))
		t.nodes = t.nodes[:lo]
		return out
	})
	return y
}

// inputs are copies of tensors for a second run, with gradients that end there.
func (t *Tape) inputs(ins []*Tensor) []*Tensor {
	again := make([]*Tensor, len(ins))
	for i, x := range ins {
		c := *x
		if x.grad {
			c.node, c.outIdx = t.addNode(node{isInput: true}), 0
		}
		again[i] = &c
	}
	return again
}

// stopEarly cuts what was recorded after the last tensor that was saved, as
// non-reentrant checkpointing stops its recomputation there.
func (t *Tape) stopEarly() {
	t.sec.Ops = t.sec.Ops[:t.lastSave]
	kept, cut := t.sec.Events[:t.lastSaveEvent], slices.Clone(t.sec.Events[t.lastSaveEvent:])
	for _, e := range cut {
		// Keep releases of what was allocated before the cut.
		if e.Bytes < 0 && !slices.ContainsFunc(cut, func(o Event) bool { return o.Store == e.Store && o.Bytes > 0 }) {
			e.Op = min(e.Op, int32(t.lastSave))
			kept = append(kept, e)
		}
	}
	t.sec.Events = kept
}

// keeper holds outputs of a checkpoint's first run for the second.
type keeper struct {
	Keeps
	again  bool
	passed bool // what runs is made again
	unread bool // no gradient reads what runs
	seen   int  // matrix multiplies so far
	kept   []*Tensor
}

// Unread runs f, whose outputs no gradient reads, as a compiler sees: a checkpoint that
// keeps some outputs neither keeps these nor computes them again.
func (t *Tape) Unread(f func() *Tensor) *Tensor {
	if k := t.keeper; k != nil && !k.unread {
		k.unread = true
		defer func() { k.unread = false }()
	}
	return f()
}

// asks reports whether a checkpoint's policy sees the calls of the dispatcher: a compiler
// has asked it once for all.
func (t *Tape) asks() bool { return t.keeper != nil && !t.Compiled }

// Passed runs f, whose matrix multiplies a checkpoint that keeps some outputs neither keeps
// nor counts.
func (t *Tape) Passed(f func() *Tensor) *Tensor {
	if k := t.keeper; k != nil && !k.passed {
		k.passed = true
		defer func() { k.passed = false }()
	}
	return f()
}

// product reports whether a checkpoint keeps the matrix multiply that comes next, which adds a bias
// or does not.
func (t *Tape) product(biased bool) bool {
	k := t.keeper
	switch {
	case k == nil || k.passed && !biased:
		return false
	case biased: // addmm, of which PyTorch keeps no count
		return k.Biased
	case !k.Products:
		return false
	}
	k.seen++
	return k.seen%2 == 1
}

// produce allocates y and runs the kernels that compute it: in a checkpoint's second
// run neither, when y was kept or nothing reads it.
func (t *Tape) produce(keep bool, y *Tensor, kernels func(*Tensor)) *Tensor {
	k := t.keeper
	keep = keep && k != nil && !k.unread
	switch {
	case keep && k.again:
		y := k.kept[0]
		k.kept = k.kept[1:]
		if t.asks() { // and hands it out
			t.host.Views++
		}
		return y
	case k != nil && k.again && k.unread:
		return y
	}
	t.alloc(y)
	kernels(y)
	if keep {
		k.kept = append(k.kept, t.Hold(y))
	}
	return y
}

// Discard runs f on activations without saving anything but these inputs, as Checkpoint
// does, and lets go of its outputs too: after takes what their readers made of them and
// frees what these saved. Before the readers' gradients f runs again and fills it anew
// (Megatron-Core, tensor_parallel/random.py, CheckpointWithoutOutput).
func (t *Tape) Discard(f func(ins []*Tensor) []*Tensor, ins ...*Tensor) (outs []*Tensor, after func(made *Tensor) *Tensor) {
	if !t.record {
		return f(ins), func(made *Tensor) *Tensor { return made }
	}
	t.note("discard")
	t.record = false
	outs = f(ins)
	t.record = true
	stores := make([]int32, len(outs))
	for i, y := range outs {
		stores[i] = y.store
	}
	slices.Sort(stores)
	stores = slices.Compact(stores)
	var again []*Tensor // the outputs of the second run
	lo := 0             // its first node
	t.begin()
	t.attach(ins, outs, ins, func(t *Tape, n *node, g []*Tensor) []*Tensor {
		first := -1
		for i, y := range again {
			switch {
			case y.node < 0 || g[i] == nil:
			case first < 0:
				first = i
			default:
				t.nodes[y.node].grads[y.outIdx] = t.Hold(g[i])
			}
		}
		out := t.run(lo, again[first], t.Hold(g[first]))
		t.nodes = t.nodes[:lo]
		return out
	})
	return outs, func(made *Tensor) *Tensor {
		var dropped []int32 // of the outputs that readers saved
		for _, id := range stores {
			if s := &t.stores[id]; s.owned && s.refs > 0 {
				t.event(id, -s.bytes)
				s.owned = false
				dropped = append(dropped, id)
			}
		}
		y := *made
		y.node, y.grad = -1, false
		t.begin()
		t.attach([]*Tensor{made}, []*Tensor{&y}, nil, func(t *Tape, n *node, g []*Tensor) []*Tensor {
			outer := t.phase
			lo = len(t.nodes)
			t.note("discard_backward")
			t.phase, t.record = Recompute, true
			again = f(t.inputs(ins))
			t.EndAutocast()
			t.Release(again...)
			t.phase, t.record = outer, false
			for _, id := range dropped {
				t.stores[id].owned = true
				t.event(id, t.stores[id].bytes)
			}
			return []*Tensor{t.Hold(g[0])}
		})
		return &y
	}
}
