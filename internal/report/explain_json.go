package report

import (
	"cmp"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/timeline"
)

type point = memory.Point

func className(c int) string { return memory.Class(c).String() }

// plain is the explanation for scripts: the prediction's frame and one of the stages.
func (x *Explain) plain() any {
	r := x.Result
	out := slices.Concat(x.head("explain/v1"), ordered{{"stage", x.Stage}}, stepOf(r), ordered{{"parts_s", partsOf(r)}, {"memory", memoryOf(&r.Memory)}})
	collectives := entry{"collectives", unlessNone(listed(r.Detail.Collectives, plainComm))}
	switch x.Stage {
	case Ops:
		out = append(out, x.plainUnits(plainOp))
	case Times:
		out = append(out, x.plainUnits(timedOp), collectives)
	case Timeline:
		out = append(out, entry{"spans", unlessNone(plainSpans(r))})
	case Memory:
		points := listed(r.Detail.Memory, func(p *point) ordered {
			return ordered{{"label", p.Label}, {"allocated_bytes", p.Allocated}, {"by_class", byClass(p.By[:])}}
		})
		out = append(out, entry{"points", unlessNone(points)})
	default:
		out = append(out, entry{"tree", plainTree(x.tree(), x.Depth)}, collectives)
	}
	return append(out, entry{"notes", append([]diag.Note{}, r.Notes...)})
}

func (x *Explain) plainUnits(op func(*estimate.OpDetail) ordered) entry {
	return entry{"units", unlessNone(listed(x.units(), func(u *estimate.UnitDetail) ordered {
		return ordered{{"name", u.Name}, {"count", u.Count}, {"parameters", u.Params}, {"forward", listed(u.Forward, op)}, {"backward", listed(u.Backward, op)}}
	}))}
}

func plainTree(n *treeNode, depth int) ordered {
	var inner []ordered
	for _, c := range n.inner {
		if depth > 0 {
			inner = append(inner, plainTree(c, depth-1))
		}
	}
	return ordered{{"name", n.name}, {"time_s", n.time}, {"calls", unlessNone(n.calls)}, {"bound", unlessNone(n.bound)}, {"inner", unlessNone(inner)}}
}

// plainOp is an op with its shape.
func plainOp(d *estimate.OpDetail) ordered {
	o := d.Op
	layout := ""
	if o.Class == tape.GEMM || o.Class == tape.GroupedGEMM {
		layout = o.Layout.String()
	}
	var attention ordered
	if a := o.Attn; a != nil {
		attention = ordered{{"batch", a.Batch}, {"heads", a.Heads}, {"kv_heads", a.KVHeads}, {"queries", a.Queries}, {"keys", a.Keys}, {"head_dim", a.QKDim}, {"value_dim", a.VDim}, {"causal", a.Causal}, {"window", unlessNone(a.Window)}}
	}
	return ordered{{"module", unlessNone(o.Module)}, {"op", o.Prim}, {"phase", o.Phase.String()}, {"class", o.Class.String()}, {"dtype", o.DType.String()},
		{"m", unlessNone(o.M)}, {"n", unlessNone(o.N)}, {"k", unlessNone(o.K)}, {"batch", unlessNone(o.Batch)}, {"layout", unlessNone(layout)}, {"attention", unlessNone(attention)},
		{"elements", unlessNone(o.Elements)}, {"bytes", o.Bytes}, {"flops", o.FLOPs}, {"kernels", kernels(o)}}
}

// timedOp is an op with its times, too.
func timedOp(d *estimate.OpDetail) ordered {
	e := explained(d)
	out := append(plainOp(d), ordered{{"time_s", d.Time}, {"host_s", d.Host}, {"bound", unlessNone(e.bound)}, {"formula", unlessNone(e.formula)}, {"source", unlessNone(e.source)}, {"relative_error", unlessNone(e.relErr)}}...)
	if d.Comm != nil {
		out = append(out, entry{"collective", plainComm(d.Comm)})
	}
	return out
}

func plainComm(c *estimate.CommDetail) ordered {
	return ordered{{"op", c.Kind}, {"group", c.Group}, {"ranks", c.Ranks}, {"nodes", c.Nodes}, {"bytes", c.Bytes}, {"calls", c.Count}, {"time_s", c.Cost.Time}, {"algorithm", unlessNone(c.Cost.Algorithm)}, {"protocol", unlessNone(c.Cost.Protocol)},
		{"algbw_bytes_per_s", c.Cost.AlgBW}, {"busbw_bytes_per_s", c.Cost.BusBW}, {"source", c.Cost.Source}, {"relative_error", c.Cost.RelErr}}
}

func plainSpans(r *estimate.Result) []ordered {
	return listed(spans(r), func(s *timeline.Span) ordered {
		return ordered{{"stream", s.Stream}, {"label", s.Label}, {"start_s", s.Start}, {"end_s", s.End}}
	})
}

// spans are those of a result in the order of time, neighbours of one label on one
// stream joined.
func spans(r *estimate.Result) []timeline.Span {
	list := slices.Clone(r.Spans)
	slices.SortStableFunc(list, func(a, b timeline.Span) int { return cmp.Compare(a.Start, b.Start) })
	var out []timeline.Span
	last := map[string]int{} // index of a stream's last span
	for _, s := range list {
		i, ok := last[s.Stream]
		if ok && out[i].Label == s.Label && s.Start-out[i].End < float64(units.Nanosecond) {
			out[i].End = s.End
			continue
		}
		last[s.Stream] = len(out)
		out = append(out, s)
	}
	return out
}
