package memory

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// Sharding are the sizes of unit-wise sharding, per parameter.
type Sharding struct {
	Ranks, ExpertRanks int64       // that share one copy of dense parameters, of experts
	Gather, Reduce     units.Bytes // element sizes: gathered weights, reduction
	Kept               units.Bytes // element size of what is kept of the gradients
	Narrow             units.Bytes // element size of the matrices of layers, gathered as 8-bit GEMMs read them; 0: Gather
	NarrowExperts      bool        // those of experts, too
	Packed             units.Bytes // element size of frozen matrices that are stored in few bits; 0: Gather
	Cast               bool        // shards are cast for the gather
	Ahead              bool        // a unit is gathered before the one before it runs forward
	OuterLoss          bool        // the loss is outside what is sharded: the head's unit begins its backward pass after the loss
	Reshard            bool
	Views              bool        // products of layers keep views of what is gathered, which outlive it, for their gradients
	Stays              bool        // what is gathered stays until the last micro batch: pipelines without Reshard (PyTorch: stage.py, backward_maybe_with_nosync)
	Root               bool        // all but layers is one unit, the first
	Held               int         // so many units, the last, stay gathered between their passes
	Parts              bool        // a rank's part of all gradients lives between steps
	Bucket             units.Bytes // that gradients are copied into and reduced from (DeepSpeed's ZeRO); 0: none
	Buffers            int         // of that size, there from the first gradient of a backward pass until all are reduced; 0: one lives between steps
	Joined             units.Bytes // element size of what a bucket is joined into while it is reduced, if several ranks have parts of it; 0: of none
	Flush              units.Bytes // and of what any bucket is cast or divided into; 0: it is reduced as it is
	Alone              bool        // a gradient that is larger than a bucket takes no Flush
	Beside             bool        // buckets are reduced on a stream of its own
	OnHost             bool        // shards come from the host's memory and go there
	Replicas           bool        // shards are reduced over replicas, too
	Recasts            bool        // PyTorch's FSDP: what comes out of a reduction is cast to Kept
	Flat               bool        // of the parameters of a unit a rank has one tensor, and of each of the optimizer's states (FSDP1's FlatParameter)
	Copies             bool        // flat buffers beside the parameters, which are copied out one by one (FSDP2)
}

// part is what a rank has of a unit of sharding.
type part struct {
	params  units.Bytes // parameters, whole
	grads   units.Bytes // those that are trained
	shard   units.Bytes // what it keeps of these
	alone   units.Bytes // those that no other rank has a part of, as experts may be
	flat    units.Bytes // bytes of the gather
	viewed  units.Bytes // and of its matrices, where products keep views
	cast    units.Bytes // and of the shard, cast for it
	largest units.Bytes // its largest tensor, as it comes from the host
	from    int         // its first of walker.full
}

// spanning is the part of what is gathered for several units at once: Step.Spans.
func (w *walker) spanning() int { return len(w.Units) }

// partOf is the part that a parameter of a unit belongs to.
func (w *walker) partOf(unit, param int) int {
	switch {
	case w.Spans != nil && w.Spans[unit][param]:
		return w.spanning()
	case w.rooted(unit):
		return 0
	}
	return unit
}

// within are the units, from one up to another, that may have parameters of a part.
func (w *walker) within(part int) (from, to int) {
	switch n := len(w.Units); {
	case part > n, part == n && w.Spans == nil:
		return 0, 0
	case part == n, part == 0 && w.Sharding.Root:
		return 0, n
	}
	return part, part + 1
}

// shard adds the parameters of a unit of ops to those of a part that are of it.
func (w *walker) shard(from, part int) {
	s, to := &w.Sharding, &w.parts[part]
	for k := range w.Units[from].Params {
		p := &w.Units[from].Params[k]
		if w.partOf(from, k) != part || !w.own(p) {
			continue
		}
		n, ranks, size := units.Bytes(p.Local), s.Ranks, s.Gather
		if p.Split == model.ExpertSplit {
			ranks = s.ExpertRanks
		}
		switch {
		case s.Narrow > 0 && w.Units[from].Narrowed(p, s.NarrowExperts):
			size = s.Narrow
		case s.Packed > 0 && p.Packs():
			size = s.Packed
		}
		mine := n / units.Bytes(max(ranks, 1))
		if s.OnHost {
			to.largest = max(to.largest, mine*s.Kept)
		}
		to.params += n
		if !p.Frozen {
			to.grads += n
			to.shard += mine
		}
		if s.Copies {
			w.full = append(w.full, n*size)
		}
		if s.Copies && ranks <= 1 {
			if !p.Frozen {
				to.alone += n
			}
			continue
		}
		to.flat += n * size
		if s.Views && w.Units[from].Layers > 0 && len(p.Dims) > 1 {
			to.viewed += n * size
		}
		to.cast += mine * size
	}
}

// gather allocates the flat output of an all-gather, and what it takes beside it for a
// moment (torch.distributed.fsdp, _fsdp_collectives.py, foreach_all_gather).
func (w *walker) gather(i int) {
	if w.parts[i].params == 0 || w.t.blocks[w.at(i, gatherID)].live || w.opened(i) {
		return
	}
	w.t.takeOn(gatherStream, w.at(i, hostID), w.parts[i].largest, Gathered) // tensor by tensor
	if w.Sharding.Cast {
		w.t.takeOn(gatherStream, w.at(i, castID), w.parts[i].cast, Gathered)
	}
	w.t.free(w.at(i, hostID))
	w.t.takeOn(gatherStream, w.at(i, gatherID), w.parts[i].flat, Gathered)
	w.t.free(w.at(i, castID))
}

// open makes the parameters of a unit available in a forward pass. What they were copied
// out from goes once those of the next unit have been too (wait_for_unshard, so that
// copies and the next gather run side by side).
func (w *walker) open(i int) {
	if w.parts[i].params == 0 || w.opened(i) {
		return
	}
	w.copyOut(i)
	if w.Sharding.Copies {
		w.release()
		w.held = i
	}
}

// reopen does so in a backward pass, and gathers the next unit. With the last one it opens
// the root, if that is one with it.
func (w *walker) reopen(i int) {
	if w.Sharding.Root && i > 0 && i == len(w.Units)-1 {
		w.reopen(0)
	}
	if i == len(w.Units)-1 {
		w.reopen(w.spanning())
	}
	if w.parts[i].params > 0 && !w.opened(i) {
		w.copyOut(i)
		w.t.free(w.at(i, gatherID))
	}
	if i > 0 && i < len(w.Units) {
		w.gather(i - 1)
	}
}

func (w *walker) copyOut(i int) {
	w.gather(i)
	if !w.Sharding.Copies {
		w.t.move(w.at(i, gatherID), w.fullID(w.parts[i].from))
		return
	}
	for k := w.parts[i].from; k < w.parts[i+1].from; k++ {
		w.t.take(w.fullID(k), w.full[k], Gathered)
	}
}

// release frees what waits.
func (w *walker) release() {
	if w.held >= 0 {
		w.t.free(w.at(w.held, gatherID))
		w.held = -1
	}
}

// fullID is the id of one of full.
func (w *walker) fullID(k int) int { return w.extra + perUnit*len(w.parts) + k }

// opened is whether the parameters of a unit are there.
func (w *walker) opened(i int) bool { return w.t.blocks[w.fullID(w.parts[i].from)].live }

// rooted is whether a unit is part of the root of sharding.
func (w *walker) rooted(i int) bool {
	return w.Sharding.Root && len(w.Units) > 1 && w.Units[i].Layers == 0
}

func (w *walker) close(i int) {
	if w.rooted(i) {
		return // the root stays until the pass ends
	}
	w.discard(i)
}

// view keeps what products of a unit read until its backward pass.
func (w *walker) view(i int) { w.t.takeOn(gatherStream, w.at(i, viewID), w.parts[i].viewed, Gathered) }

// discard frees the parameters of a unit.
func (w *walker) discard(i int) {
	w.t.free(w.at(i, viewID))
	for k := w.parts[i].from; k < w.parts[i+1].from; k++ {
		w.t.free(w.fullID(k))
	}
}

// afterLoss is whether a unit of ops has the loss too, which is not in that of sharding.
func (w *walker) afterLoss(i int) bool {
	u := w.Units[i]
	return w.Sharding.OuterLoss && i == len(w.Units)-1 && len(u.Params) > 0 && slices.ContainsFunc(u.Forward.Ops, ofLoss)
}

func ofLoss(o tape.Op) bool { return o.Module == ops.Loss }
func ofHead(o tape.Op) bool { return o.Module == ops.Head || ofLoss(o) }

// before is how many events come before those of an op.
func before(events []tape.Event, op int) int {
	if n := slices.IndexFunc(events, func(e tape.Event) bool { return int(e.Op) >= op }); n >= 0 {
		return n
	}
	return len(events)
}

// scatter frees a unit's gathered parameters and turns its gradients into a shard.
func (w *walker) scatter(i int, u *ops.Unit, first, sync bool) {
	s := &w.Sharding
	flat := s.Recasts && !s.Copies && w.parts[i].grads > 0 // the parameters are views of one
	if !flat && (sync || !s.Stays) {
		w.discard(i)
	}
	if w.parts[i].grads == 0 {
		for _, g := range u.Backward.Grads {
			w.t.made(w.id(i, g.Store))
		}
		return
	}
	if s.Bucket > 0 { // each has gone there
		return
	}
	n := w.parts[i].grads
	if w.adds(first) {
		w.freeGrads(i)
		defer func(here int) { w.base = here }(w.base)
		w.base = w.grads
	}
	if !sync { // kept whole, in the reduction's dtype
		if s.Copies {
			if first { // later ones are added to these
				w.accumulate(i)
			}
			return
		}
		if first {
			w.t.take(w.at(i, keepID), n*s.Reduce, Gradients)
		}
		w.freeGrads(i)
		if flat && !s.Stays {
			w.discard(i)
		}
		return
	}
	if j := i + 1; j < len(w.Units) { // the reduction before this one has ended
		w.t.free(w.at(j, scatterID))
	}
	if s.Root && i == 0 { // the cast shard of the root's second gather is still there (seen with 2 and 4 ranks), also when what is reduced is cast (two H200, bf16)
		w.t.takeOn(gatherStream, w.at(i, leftID), w.parts[i].cast, Gathered)
	}
	if flat {
		w.join(i)
	} else {
		w.t.take(w.at(i, scatterID), n*s.Reduce, Gathered)
	}
	// Autograd calls for the reduction when the gradient of a unit's input is there. That
	// of tokens, which have none, comes from the engine's last callback, when the gradients
	// are still held (seen in a memory snapshot of torchtitan).
	tokens := i == 0 && !s.Root && u.InGradStore < 0
	if tokens {
		w.reduced(i)
	}
	w.freeGrads(i)
	w.t.free(w.at(i, keepID))
	if !tokens {
		w.reduced(i)
	}
	w.t.free(w.at(i, leftID))
}

// join makes one gradient of those of the views of FSDP1's parameter, which is there until then
// (_runtime_utils.py, _post_backward_hook), and casts it for its reduction.
func (w *walker) join(i int) {
	s, n := &w.Sharding, w.parts[i].grads
	w.t.take(w.at(i, joinID), n*s.Gather, Gathered)
	w.freeGrads(i)
	w.discard(i)
	if s.Reduce == s.Gather {
		w.t.move(w.at(i, joinID), w.at(i, scatterID))
		return
	}
	w.t.take(w.at(i, scatterID), n*s.Reduce, Gathered)
	w.t.free(w.at(i, joinID))
}

// adds is whether the gradients of a micro batch are added to those that are kept of the
// parameters.
func (w *walker) adds(first bool) bool { return w.Sharding.Copies && !first && !w.SyncEvery }

// accumulate keeps the gradients of a unit, one by one and cast to the reduction's dtype
// (torch.distributed.fsdp, _fsdp_param.py, to_accumulated_grad_if_needed).
func (w *walker) accumulate(i int) {
	w.gradients(i, func(unit int, g *tape.ParamGrad) {
		id := w.id(unit, g.Store)
		if !w.t.blocks[id].live { // the sum with the table's has it
			return
		}
		if !w.recast(unit, g) {
			w.t.made(id)
			return
		}
		kept := w.at(i, keepID)
		w.t.take(kept, units.Bytes(w.Units[unit].Params[g.Param].Local)*w.Sharding.Reduce, Gradients)
		w.t.free(id)
		w.t.move(kept, id)
	})
}

// recast is whether a gradient is reduced in another dtype than it has.
func (w *walker) recast(unit int, g *tape.ParamGrad) bool {
	return g.Bytes != units.Bytes(w.Units[unit].Params[g.Param].Local)*w.Sharding.Reduce
}

// reduced keeps what comes out of a reduction, cast to the parameters' dtype or added to
// what is there; FSDP1 casts first (torch/distributed/fsdp/_runtime_utils.py, _accumulate_sharded_grad,
// _cast_grad_to_param_dtype). Gradients of a single rank are divided into a tensor of their own
// (torch.distributed.fsdp, _fsdp_collectives.py, foreach_reduce). What replicas then reduce
// stays until the end of the backward pass (_fsdp_param_group.py, AllReduceState).
func (w *walker) reduced(i int) {
	s := &w.Sharding
	kept, out := w.at(i, shardID), w.parts[i].shard*s.Reduce
	switch here := w.t.blocks[kept].live; {
	case s.Parts:
	case s.OnHost: // copied to the host by the stream that made it
		w.t.takeOn(scatterStream, w.at(i, castID), out, Gradients)
		w.t.free(w.at(i, castID))
	case here && !s.Recasts:
	case here || s.Recasts && s.Kept != s.Reduce:
		w.t.takeOn(scatterStream, w.at(i, outID), out, Gradients)
		if !here {
			w.t.takeOn(scatterStream, kept, w.parts[i].shard*s.Kept, Gradients)
		}
		if !s.Replicas {
			w.t.free(w.at(i, outID))
		}
	default:
		w.t.takeOn(scatterStream, kept, out, Gradients)
	}
	w.t.takeOn(scatterStream, w.at(i, castID), w.parts[i].alone*s.Reduce, Gradients)
	w.t.free(w.at(i, castID))
}
