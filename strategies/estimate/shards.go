package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// prepare is what FSDP1 does on the stream of the reduce-scatter: the cast of the whole
// gradient to the reduce dtype, its division by a part of the number of ranks before,
// that by the rest after, and the sum with the shard of earlier micro batches
// (torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook).
func (h *shards) prepare(u float64, grad, full units.Bytes) units.Seconds {
	p := h.s.p
	var t units.Seconds
	if grad != full {
		t += p.device(&tape.Op{Class: tape.Unrolled, Count: 1, Elements: u, Bytes: grad + full})
	}
	shard := full / units.Bytes(p.groups[shardGroup].Ranks)
	for _, b := range []units.Bytes{2 * full, 2 * shard, 3 * shard} {
		t += p.device(&tape.Op{Class: tape.Vectorized, Count: 1, Elements: float64(b) / 8, Bytes: b})
	}
	return t
}

// DeepSpeed of 2021 gathered each parameter of ZeRO-3 by itself. Small ones every rank
// keeps, and one that is needed again soon stays
// (deepspeed/runtime/zero/constants.py: stage3_param_persistence_threshold,
// stage3_max_reuse_distance).
const (
	persistent = 100_000       // parameters below it
	reused     = 1_000_000_000 // of parameters used meanwhile
)

// lists are the parameters of a unit that are gathered one by one.
type lists struct {
	sizes []int64 // elements
	again float64 // share of them that recomputation does not leave to the gradients
}

func listsOf(params []ops.Param) lists {
	var l lists
	var all, later, again int64
	for _, p := range params {
		if p.Local >= persistent && p.Split != model.ExpertSplit && !p.TiedCopy {
			l.sizes = append(l.sizes, p.Local)
			all += p.Local
		}
	}
	for i := len(l.sizes) - 1; i >= 0; i-- {
		n := l.sizes[i]
		if n+2*later >= reused {
			again += n
		}
		later += n
	}
	l.again = float64(again) / float64(max(all, 1))
	return l
}

// gathers is the time of the all-gather of a unit's parameters and when it starts,
// ready or later. Where they are gathered one by one, before them the host waits for all the device does; for each it cuts a zeroed buffer
// into a list of one view per rank, and all_gather copies into that what arrived, rank
// by rank (deepspeed/runtime/zero/partition_parameters.py, _allgather_param;
// stage3.py, _synchronize_communication; ProcessGroupNCCL::allgather).
func (h *shards) gathers(i int, ready float64) (units.Seconds, float64) {
	s := h.s
	if len(h.lists) == 0 {
		return s.p.comm(collective.AllGather, shardGroup, h.gatherBytes(i)), ready
	}
	var t units.Seconds
	l := h.lists[i]
	times := units.Seconds(1)
	if h.twice {
		times += units.Seconds(l.again)
	}
	if h.busy {
		s.sim.Wait(h.reduce)
		h.busy = false
	}
	s.sim.WaitHost()
	ready = s.sim.Issued()
	for _, n := range l.sizes {
		b := units.Bytes(n) * s.job.Precision.Gather.Size()
		host, copies := h.list(b, 1)
		fill := s.p.run(&tape.Op{Prim: "zero_fill", Class: tape.Vectorized, Count: 1, Elements: float64(n), Bytes: b}, true)
		t += times * (s.p.comm(collective.AllGather, shardGroup, b) + copies + fill)
		s.sim.Host += float64(times * host)
	}
	return t, ready
}

// scatters is the same of the reduce-scatter of its gradients; those that are reduced
// one by one are divided before (stage3.py, average_tensor; _reduce_scatter_gradient).
func (h *shards) scatters(i int) units.Seconds {
	s := h.s
	if len(h.lists) == 0 {
		return s.p.comm(collective.ReduceScatter, shardGroup, units.Bytes(h.params[i])*s.job.Precision.Reduce.Size())
	}
	var t units.Seconds
	for _, n := range h.lists[i].sizes {
		b := units.Bytes(n) * s.job.Precision.Reduce.Size()
		host, copies := h.list(b, 2)
		mean := s.p.run(&tape.Op{Prim: "div_", Class: tape.Vectorized, Count: 1, Elements: float64(n), Bytes: 2 * b}, true)
		t += s.p.comm(collective.ReduceScatter, shardGroup, b) + copies + mean
		s.sim.Host += float64(host)
	}
	return t
}

// list is what a list of one tensor per rank costs: the host makes each by some views
// and copies it, and the device copies all.
func (h *shards) list(b units.Bytes, views float64) (host, device units.Seconds) {
	p := h.s.p
	n := p.groups[shardGroup].Ranks
	host = units.Seconds(float64(n)) * (units.Seconds(views)*p.host.View + p.host.ViewBack + p.host.Backward) * p.speed
	device = p.run(&tape.Op{Prim: "list_copy", Class: tape.Vectorized, Count: int32(n), Elements: float64(b) / float64(n), Bytes: 2 * b / units.Bytes(n)}, true)
	return host, device
}
