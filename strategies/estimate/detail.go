package estimate

import (
	"sort"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/memory"
)

// Detail is what a result was computed from, of the slowest rank.
type Detail struct {
	Units       []UnitDetail   // in forward order, equal ones once
	Collectives []CommDetail   // everything the rank sends in a step
	Kernels     []KernelDetail // what runs outside the units: optimizer, copies and sums of data parallelism
	Rank        int            // the slowest: its place in the pipeline
	Passes      int64          // how often it runs its units forward and backward
	Memory      []memory.Point
}

// UnitDetail is one unit of the model: the embedding, a kind of layer, the head.
type UnitDetail struct {
	Name              string
	Count             int   // how many of them the rank runs
	Params            int64 // of one, on this rank
	Forward, Backward []OpDetail
}

// OpDetail is one op of one pass over a unit. Collectives have Comm, all others
// Why.
type OpDetail struct {
	Op     *tape.Op
	Time   units.Seconds // on the device, at the clock of the step
	Loaded units.Seconds // the same beside communication
	Host   units.Seconds
	Why    kernel.Explain
	Comm   *CommDetail
}

// CommDetail is one kind of collective call.
type CommDetail struct {
	Kind, Group  string
	Ranks, Nodes int64
	Bytes        units.Bytes
	Count        int64 // calls per step
	Cost         collective.Cost
}

// KernelDetail is one kind of kernel that is no part of a unit.
type KernelDetail struct {
	Op     *tape.Op
	Time   units.Seconds // of one, at the clock of the step
	Loaded units.Seconds // the same beside communication
	Count  int64         // per step
	Beside bool          // on a communication stream
	Why    kernel.Explain
}

// call is what identifies a CommDetail.
type call struct {
	op    collective.Op
	group group
	bytes units.Bytes
}

func callOf(o *tape.Op, g group) call { return call{kindOf(o.Comm.Kind), g, o.Comm.Bytes} }

// explain prices a call with its reasons.
func (p *pricer) explain(c call, count int64) CommDetail {
	g := p.groups[c.group]
	return CommDetail{Kind: c.op.String(), Group: c.group.String(), Ranks: g.Ranks, Nodes: g.Nodes(), Bytes: c.bytes, Count: count,
		Cost: p.fabric.Cost(c.op, c.bytes, g)}
}

// detail lists the units and calls of the slowest rank.
func (s *simulation) detail() *Detail {
	p := s.p
	rank := 0
	if s.pipe != nil {
		rank = s.pipe.worst
		p.counts = s.pipe.counts[rank]
		s.pipe.sums(rank)
	}
	n := int64(s.passesOf())
	d := &Detail{Rank: rank, Passes: n, Kernels: p.loose()}
	calls := map[call]int64{}
	if s.pipe != nil && s.pipe.path.sends[rank] > 0 {
		calls[call{collective.SendRecv, ppGroup, s.pipe.path.bytes}] = s.pipe.path.sends[rank] * n
	}
	for c, k := range p.counts.calls {
		calls[c] += k
	}
	seen := map[*unit]int{}
	for _, u := range s.layout.ranks[rank].runs {
		if i, ok := seen[u]; ok {
			d.Units[i].Count++
		} else {
			seen[u] = len(d.Units)
			d.Units = append(d.Units, UnitDetail{Name: u.Name, Count: 1, Params: u.LocalParams(),
				Forward: p.details(&u.forward), Backward: p.details(&u.backward)})
		}
		for _, sec := range []*section{&u.forward, &u.backward} {
			for i := range sec.ops {
				if o := &sec.ops[i]; o.Class == tape.Collective && p.groups[sec.base[i].group].Ranks > 1 {
					calls[callOf(o, sec.base[i].group)] += n
				}
			}
		}
	}
	for c, k := range calls {
		d.Collectives = append(d.Collectives, p.explain(c, k))
	}
	sort.Slice(d.Collectives, func(i, j int) bool {
		a, b := &d.Collectives[i], &d.Collectives[j]
		x, y := float64(a.Count)*float64(a.Cost.Time), float64(b.Count)*float64(b.Cost.Time)
		if x != y {
			return x > y
		}
		if a.Group+a.Kind != b.Group+b.Kind {
			return a.Group+a.Kind < b.Group+b.Kind
		}
		return a.Bytes < b.Bytes
	})
	return d
}

func (p *pricer) details(s *section) []OpDetail {
	out := make([]OpDetail, len(s.ops))
	for i := range s.ops {
		o := &s.ops[i]
		d := OpDetail{Op: o, Time: s.launches[i].Busy, Loaded: s.launches[i].Loaded, Host: s.launches[i].Host}
		switch o.Class {
		case tape.Collective:
			c := p.explain(callOf(o, s.base[i].group), 1)
			d.Comm = &c
		default:
			d.Why = p.timer.Explain(o)
		}
		out[i] = d
	}
	return out
}
