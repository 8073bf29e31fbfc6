package memory

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// Update is what an optimizer of flat buffers makes (DeepSpeed's ZeRO: runtime/zero/stage_1_and_2.py,
// stage3.py; memory snapshots of two H200, 2026-11-26), in bytes per value. At first it casts master
// weights from a copy of its part of the weights, then makes gradients of zeros and drops them. Every
// update takes the norm of the gradients one by one, joins those of a buffer and casts what it joined;
// the first one makes the moments.
type Update struct {
	Copied units.Bytes // of the parameters, each a tensor, that the flat weights are made of
	Clone  units.Bytes // of the copy that master weights are cast from
	Master units.Bytes // they live from the start; 0: in Static, as one tensor with the moments
	Norm   units.Bytes // of the largest gradient, while its norm is taken
	Joined units.Bytes // gradients
	Cast   units.Bytes // the same in the optimizer's dtype
	Moment units.Bytes // one of the moments

	Moments int
	Bucket  units.Bytes // gradients, in all, that are reduced at once before any of this, after which the rank's part of them stays
}

// masters makes the master weights, and gradients of zeros beside them.
func (w *walker) masters() {
	u := &w.Update
	for _, n := range w.Flat {
		clone := w.next
		w.next++
		w.t.take(clone, n*u.Clone, OptimizerStates)
		w.keep(n*u.Master, OptimizerStates)
		w.t.free(clone)
	}
	for _, n := range w.Flat {
		w.passing(n * u.Cast)
	}
}

// flat is the update of an optimizer of flat buffers.
func (w *walker) flat() {
	u, own, joined, cast, id := &w.Update, w.next, w.next+1, w.next+2, w.next+3
	w.t.take(joined, u.Bucket, Gathered)
	w.t.free(joined)
	if u.Norm > 0 && len(w.Flat) > 0 { // a stage may have nothing that is trained
		w.t.take(joined, w.largest()*u.Norm, Workspaces)
		w.t.free(joined)
	}
	if u.Bucket > 0 {
		w.clearGradients()
		var all units.Bytes
		for _, n := range w.Flat {
			all += n
		}
		w.t.take(own, all*u.Joined, Gradients)
	}
	for _, n := range w.Flat {
		w.t.take(joined, n*u.Joined, Gradients)
		w.t.take(cast, n*u.Cast, Gradients)
		w.t.free(joined)
		w.clearGradients()
		for range u.Moments {
			if w.warm {
				w.t.take(id, n*u.Moment, OptimizerStates)
			}
			id++
		}
		w.t.free(cast)
	}
	w.t.free(own)
	if w.warm {
		w.next = id
	}
}

// largest is how many values the rank's part of a gradient has at most.
func (w *walker) largest() (most units.Bytes) {
	each([]*walker{w}, func(w *walker, p *ops.Param) {
		if !p.Frozen {
			most = max(most, units.Bytes(p.Local))
		}
	})
	if w.Sharding.Parts {
		most /= units.Bytes(w.Sharding.Ranks)
	}
	return min(most, w.Flat[0])
}

// reduce reduces the gradients of all units at once, when the backward passes are over
// (DeepSpeed's ZeRO 1, which overlaps nothing).
func (w *walker) reduce() {
	for i, u := range w.Units {
		for k := range u.Backward.Grads {
			w.fill(i, &u.Backward.Grads[k])
		}
	}
	w.flush()
	w.t.free(w.at(len(w.Units)-1, scatterID))
}

// buckets allocates the buffers that gradients are copied into.
func (w *walker) buckets() {
	if id := w.at(len(w.Units)-1, scatterID); w.Sharding.Buffers > 0 && !w.t.blocks[id].live {
		w.t.take(id, w.Sharding.Bucket*units.Bytes(w.Sharding.Buffers), Gathered)
	}
}

// fill copies a gradient of a unit into a bucket, which is reduced before it overflows
// (DeepSpeed, stage_1_and_2.py, setup_buckets, reduce_independent_p_g_buckets_and_remove_grads;
// stage3.py, __add_grad_to_ipg_bucket; memory snapshots of two H100). One that is larger than
// a bucket is reduced where it is.
func (w *walker) fill(i int, g *tape.ParamGrad) {
	if w.waits(i, g) {
		return
	}
	s := &w.Sharding
	n := units.Bytes(w.Units[i].Params[g.Param].Local) * s.Reduce
	w.buckets()
	if w.filled+n > s.Bucket {
		w.flush()
	}
	if w.filled += n; n > s.Bucket {
		w.flush()
	}
	w.t.free(w.id(i, g.Store))
}

// flush reduces what is in a bucket into the rank's part of all gradients, which is there as a
// whole with the first (stage_1_and_2.py, allreduce_bucket, copy_grads_in_partition;
// coalesced_collectives.py, reduce_scatter_coalesced).
func (w *walker) flush() {
	s, last, b := &w.Sharding, len(w.Units)-1, w.filled
	if b == 0 {
		return
	}
	w.filled = 0
	stream := compute
	if s.Beside {
		stream = scatterStream
	}
	all := w.reduces
	joined, cast, part := w.at(last, keepID), w.at(last, castID), w.at(last, shardID)
	each := all / units.Bytes(s.Ranks)
	if int((w.passed+b-1)/each) > int(w.passed/each) {
		w.t.takeOn(stream, joined, b/s.Reduce*s.Joined, Gathered)
	}
	if w.passed += b; w.passed >= all {
		w.passed = 0
	}
	if !s.Alone || b <= s.Bucket {
		w.t.takeOn(stream, cast, b/s.Reduce*s.Flush, Gathered)
	}
	w.t.free(cast)
	w.t.free(joined)
	if !s.Parts && !w.t.blocks[part].live {
		w.t.take(part, w.whole(each/s.Reduce)*s.Reduce, Gradients)
	}
}

// whole is how many values the gradients have that the first so many are of.
func (w *walker) whole(n units.Bytes) (all units.Bytes) {
	each([]*walker{w}, func(_ *walker, p *ops.Param) {
		if !p.Frozen && all < n {
			all += units.Bytes(p.Local)
		}
	})
	return all
}
