package estimate

import (
	"math"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// Defaults of DeepSpeed's ZeRO-3 in 2021, in parameters
// (deepspeed/runtime/zero/constants.py: stage3_param_persistence_threshold,
// stage3_prefetch_bucket_size, stage3_max_live_parameters, stage3_max_reuse_distance).
const (
	persistent = 100_000       // every rank keeps those below it
	prefetched = 50_000_000    // are asked for ahead, at least
	live       = 1_000_000_000 // from here on none are asked for ahead
	reused     = 1_000_000_000 // what is used again after fewer stays
)

// listed gathers the parameters of ZeRO-3 as DeepSpeed did until January 2022
// (deepspeed/runtime/zero/stage3.py, PartitionedParameterCoordinator): each by itself
// when the module that uses it begins, and while it runs that of the next module. Before
// a gather, and before a module whose parameters were on their way, the host waits for
// all that the device does.
type listed struct {
	s       *step
	uses    uses // of one micro batch: modules in the order they run
	turn    int  // the first of the backward pass
	weights []weight
	live    int64 // gathered parameters, or on their way
	flying  []int // of weights
	tasks   []timeline.Task
	pending []int64 // gradients not yet reduced
	small   int     // parameters that every rank keeps
}

// weight is a parameter that is gathered.
type weight struct {
	size     int64 // elements
	group    group
	here, on bool // gathered, on its way
}

func (l *listed) begin(s *step) {
	*l = listed{s: s, uses: l.uses[:0], weights: l.weights[:0], flying: l.flying[:0], tasks: l.tasks[:0], pending: l.pending[:0]}
	at := make([]map[int]int, len(s.list)) // by unit and parameter: the weight
	tied := -1
	for i, u := range s.list {
		at[i] = map[int]int{}
		for k, p := range u.Params {
			g := shardGroup
			if p.Split == model.ExpertSplit {
				g = expertShardGroup
			}
			switch {
			case p.TiedCopy && tied >= 0:
				at[i][k] = tied
				continue
			case p.Local < persistent:
				l.small++
				continue
			}
			at[i][k] = len(l.weights)
			if u == s.chunk.embedding && k == 0 {
				tied = len(l.weights)
			}
			l.weights = append(l.weights, weight{size: p.Local, group: g})
		}
	}
	for i, u := range s.list {
		l.uses = l.uses.add(&u.forward, i, u, at[i])
	}
	l.turn = len(l.uses)
	for i := len(s.list) - 1; i >= 0; i-- {
		l.uses = l.uses.add(&s.list[i].backward, i, s.list[i], at[i])
	}
}

func (l *listed) forward() { l.run(0, l.turn) }

func (l *listed) backward() {
	l.run(l.turn, len(l.uses))
	l.reduce()
	l.settle()
	for i := range l.weights {
		l.weights[i].here = false
	}
	l.live = 0
}

// run runs modules of the step's order.
func (l *listed) run(from, to int) {
	s := l.s
	for k := from; k < to; k++ {
		u := &l.uses[k]
		if u.first {
			s.sim.Host += float64(s.p.host.FSDPUnit * s.p.python) // hooks
		}
		l.fetch(u)
		l.ahead(k)
		s.label(u.name, [2]string{" forward", " backward"}[min(k/max(l.turn, 1), 1)])
		seg := timeline.Compress(u.sec.launches[u.from:u.to], s.p.latency())
		s.sim.Run(&seg)
		if u.grads {
			l.add(u)
		}
		for _, w := range u.weights {
			if l.distance(k, w) >= reused {
				l.weights[w].here = false
				l.live -= l.weights[w].size
			}
		}
	}
}

// fetch has the parameters of a module gathered and waits for them.
func (l *listed) fetch(u *use) {
	wait := false
	for _, i := range u.weights {
		w := &l.weights[i]
		if !w.here && !w.on {
			l.gather(i)
		}
		wait = wait || w.on
	}
	if wait {
		l.settle()
	}
}

// ahead asks for parameters of what comes next, unless some are on their way or many
// are there.
func (l *listed) ahead(k int) {
	if len(l.flying) > 0 || l.live >= live {
		return
	}
	total := int64(0)
	for _, u := range l.uses[k:] {
		for _, i := range u.weights {
			if w := &l.weights[i]; !w.here && !w.on {
				l.gather(i)
				if total += w.size; total >= prefetched {
					return
				}
			}
		}
	}
}

// distance is how many parameters modules use between module k and the next use of
// weight w.
func (l *listed) distance(k, w int) int64 {
	n := int64(0)
	for _, u := range l.uses[k+1:] {
		for _, i := range u.weights {
			if i == w {
				return n
			}
			if n += l.weights[i].size; n >= reused {
				return n
			}
		}
	}
	return math.MaxInt64
}

// gather queues the all-gather of a weight. The host fills a buffer with zeros, waits for
// all that the device does and cuts the buffer into a view for each rank; behind the
// collective it queues a copy of each rank's part (partition_parameters.py,
// _allgather_param; ProcessGroupNCCL::allgather).
func (l *listed) gather(i int) {
	s, w := l.s, &l.weights[i]
	b := units.Bytes(w.size) * s.job.Precision.Gather.Size()
	l.wait()
	fill := s.p.kernelOf(tape.Op{Prim: "zero_fill", Class: tape.Fill, Count: 1, Elements: float64(w.size), Bytes: b})
	fill.Sync = true
	s.sim.Run(&fill)
	views, copies, device := l.list(w.group, b, 1)
	s.sim.Host += float64(views)
	t := s.p.comm(collective.AllGather, w.group, b) + device
	l.tasks = append(l.tasks, s.sim.Launch(dpStream, "all-gather", float64(t), s.sim.Issued(), s.p.slow(collective.AllGather)))
	s.sim.Host += float64(s.p.issue + copies)
	w.on = true
	l.flying = append(l.flying, i)
	l.live += w.size
}

// list is what a list of one tensor per rank costs: the host makes each by some views in
// Python, the process group one more in C++ and a copy, and the device copies all.
func (l *listed) list(g group, b units.Bytes, views units.Seconds) (python, copies, device units.Seconds) {
	p := l.s.p
	n := p.groups[g].Ranks
	prim := p.host.Primitives
	each := units.Seconds(n)
	device = p.run(&tape.Op{Prim: "list_copy", Class: tape.Memcpy, Count: int32(n), Elements: float64(b) / float64(n), Bytes: 2 * b / units.Bytes(n)}, true)
	return each * views * prim["list_view"] * p.python, each * (p.host.ViewBack + prim["list_copy"]) * p.speed, device
}

// wait lets the host wait for all that the device does.
func (l *listed) wait() {
	for _, t := range l.tasks {
		l.s.sim.Wait(t)
	}
	l.tasks = l.tasks[:0]
	l.s.sim.WaitHost()
}

// settle is the same where parameters are on their way.
func (l *listed) settle() {
	l.wait()
	for _, i := range l.flying {
		l.weights[i].on, l.weights[i].here = false, true
	}
	l.flying = l.flying[:0]
}

// add puts the gradients of a module into the bucket, after what is in it was reduced if
// they do not fit.
func (l *listed) add(u *use) {
	for _, i := range u.weights {
		n, have := l.weights[i].size, int64(0)
		for _, p := range l.pending {
			have += p
		}
		if have > 0 && have+n > l.s.job.Recipe.Structure.ReduceBucket {
			l.reduce()
		}
		l.pending = append(l.pending, n)
	}
}

// reduce reduces the gradients of the bucket: all of them joined, divided, summed over
// the ranks and copied back, of which each rank keeps its part (stage3.py,
// buffered_reduce_fallback).
func (l *listed) reduce() {
	s := l.s
	n := int64(0)
	for _, p := range l.pending {
		n += p
	}
	if n == 0 {
		return
	}
	b := units.Bytes(n) * s.job.Precision.Reduce.Size()
	passes := s.p.run(&tape.Op{Prim: "reduce_passes", Class: tape.Vectorized, Count: 3, Elements: float64(n), Bytes: 2 * b}, true)
	t := s.p.comm(collective.AllReduce, shardGroup, b) + passes
	s.sim.Host += float64(s.p.issue)
	l.tasks = append(l.tasks, s.sim.Launch(dpStream, "all-reduce", float64(t), s.sim.Issued(), s.p.slow(collective.AllReduce)))
	l.pending = l.pending[:0]
}

// finish gathers after the optimizer what every rank keeps: all in one collective, from
// which Python copies every parameter's part of every rank (partition_parameters.py,
// _allgather_params).
func (l *listed) finish() {
	s := l.s
	n := int32(l.small) * int32(s.p.groups[shardGroup].Ranks)
	prim := s.p.host.Primitives
	host := units.Seconds(n) * (3*prim["list_view"]*s.p.python + prim["list_copy"]*s.p.speed)
	device := s.p.run(&tape.Op{Prim: "list_copy", Class: tape.Memcpy, Count: n, Elements: 16, Bytes: 64}, false)
	s.sim.Run(&timeline.Segment{Host: host, Busy: device, Loaded: device, Lag: max(host, device) + s.p.latency()})
}
