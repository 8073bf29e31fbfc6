package report

import (
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

// plainExplain is the explanation for scripts: the prediction's frame and one of
// the stages.
type plainExplain struct {
	Schema   string   `json:"schema"`
	Versions versions `json:"versions"`
	Stage    Stage    `json:"stage"`
	Job      plainJob `json:"job"`
	StepTime float64  `json:"step_time_s"`
	Parts    ordered  `json:"parts_s"`

	Tree        *plainNode  `json:"tree,omitempty"`
	Units       []plainUnit `json:"units,omitempty"`
	Collectives []plainComm `json:"collectives,omitempty"`
	Spans       []plainSpan `json:"spans,omitempty"`

	Memory *plainMemory `json:"memory,omitempty"`
	Points []plainPoint `json:"points,omitempty"`

	Notes []diag.Note `json:"notes"`
}

type plainNode struct {
	Name  string       `json:"name"`
	Time  float64      `json:"time_s"`
	Calls int64        `json:"calls,omitempty"`
	Bound string       `json:"bound,omitempty"`
	Inner []*plainNode `json:"inner,omitempty"`
}

type plainUnit struct {
	Name       string    `json:"name"`
	Count      int       `json:"count"`
	Parameters int64     `json:"parameters"`
	Forward    []plainOp `json:"forward"`
	Backward   []plainOp `json:"backward"`
}

type plainOp struct {
	Module   string    `json:"module,omitempty"`
	Op       string    `json:"op"`
	Phase    string    `json:"phase"`
	Class    string    `json:"class"`
	DType    string    `json:"dtype"`
	M        int64     `json:"m,omitempty"`
	N        int64     `json:"n,omitempty"`
	K        int64     `json:"k,omitempty"`
	Batch    int64     `json:"batch,omitempty"`
	Layout   string    `json:"layout,omitempty"`
	Attn     *attnJSON `json:"attention,omitempty"`
	Elements float64   `json:"elements,omitempty"`
	Bytes    float64   `json:"bytes"`
	FLOPs    float64   `json:"flops"`
	Kernels  int64     `json:"kernels"`

	*plainTime
	Comm *plainComm `json:"collective,omitempty"`
}

// plainTime is what the stage times adds to an op.
type plainTime struct {
	Time    float64 `json:"time_s"`
	Host    float64 `json:"host_s"`
	Bound   string  `json:"bound,omitempty"`
	Formula string  `json:"formula,omitempty"`
	Source  string  `json:"source,omitempty"`
	RelErr  float64 `json:"relative_error,omitempty"`
}

type attnJSON struct {
	Batch    int64 `json:"batch"`
	Heads    int64 `json:"heads"`
	KVHeads  int64 `json:"kv_heads"`
	Queries  int64 `json:"queries"`
	Keys     int64 `json:"keys"`
	HeadDim  int64 `json:"head_dim"`
	ValueDim int64 `json:"value_dim"`
	Causal   bool  `json:"causal"`
	Window   int64 `json:"window,omitempty"`
}

type plainComm struct {
	Op        string  `json:"op"`
	Group     string  `json:"group"`
	Ranks     int64   `json:"ranks"`
	Nodes     int64   `json:"nodes"`
	Bytes     float64 `json:"bytes"`
	Calls     int64   `json:"calls"`
	Time      float64 `json:"time_s"`
	Algorithm string  `json:"algorithm,omitempty"`
	Protocol  string  `json:"protocol,omitempty"`
	AlgBW     float64 `json:"algbw_bytes_per_s"`
	BusBW     float64 `json:"busbw_bytes_per_s"`
	Source    string  `json:"source"`
	RelErr    float64 `json:"relative_error"`
}

type plainSpan struct {
	Stream string  `json:"stream"`
	Label  string  `json:"label"`
	Start  float64 `json:"start_s"`
	End    float64 `json:"end_s"`
}

type plainPoint struct {
	Label     string  `json:"label"`
	Allocated float64 `json:"allocated_bytes"`
	ByClass   ordered `json:"by_class"`
}

func (x *Explain) plain() any {
	r := x.Result
	out := plainExplain{Schema: "explain/v1", Versions: versions{x.Version}, Stage: x.Stage, Job: x.job(), StepTime: float64(r.StepTime), Parts: partsOf(r), Notes: append([]diag.Note{}, r.Notes...)}
	switch x.Stage {
	case Ops, Times:
		for _, u := range x.units() {
			out.Units = append(out.Units, plainUnitOf(&u, x.Stage == Times))
		}
		if x.Stage == Times {
			out.Collectives = commsOf(r.Detail.Collectives)
		}
	case Timeline:
		for _, s := range spans(r) {
			out.Spans = append(out.Spans, plainSpan(s))
		}
	case Memory:
		m := memoryOf(&r.Memory)
		out.Memory = &m
		for _, p := range r.Detail.Memory {
			q := plainPoint{Label: p.Label, Allocated: float64(p.Allocated), ByClass: ordered{}}
			for c, b := range p.By {
				q.ByClass = append(q.ByClass, entry{className(c), float64(b)})
			}
			out.Points = append(out.Points, q)
		}
	default:
		out.Tree = plainTree(x.tree(), x.Depth)
		out.Collectives = commsOf(r.Detail.Collectives)
	}
	return out
}

func plainTree(n *treeNode, depth int) *plainNode {
	out := &plainNode{Name: n.name, Time: float64(n.time), Calls: n.calls, Bound: n.bound}
	if depth > 0 {
		for _, c := range n.inner {
			out.Inner = append(out.Inner, plainTree(c, depth-1))
		}
	}
	return out
}

func plainUnitOf(u *estimate.UnitDetail, times bool) plainUnit {
	out := plainUnit{Name: u.Name, Count: u.Count, Parameters: u.Params, Forward: []plainOp{}, Backward: []plainOp{}}
	for i := range u.Forward {
		out.Forward = append(out.Forward, plainOpOf(&u.Forward[i], times))
	}
	for i := range u.Backward {
		out.Backward = append(out.Backward, plainOpOf(&u.Backward[i], times))
	}
	return out
}

func plainOpOf(d *estimate.OpDetail, times bool) plainOp {
	o := d.Op
	out := plainOp{Module: o.Module, Op: o.Prim, Phase: o.Phase.String(), Class: o.Class.String(), DType: o.DType.String(),
		M: o.M, N: o.N, K: o.K, Batch: o.Batch, Elements: o.Elements, Bytes: float64(o.Bytes), FLOPs: float64(o.FLOPs)}
	if o.Class == tape.GEMM || o.Class == tape.GroupedGEMM {
		out.Layout = o.Layout.String()
	}
	out.Kernels = kernels(o)
	if a := o.Attn; a != nil {
		out.Attn = &attnJSON{a.Batch, a.Heads, a.KVHeads, a.Queries, a.Keys, a.QKDim, a.VDim, a.Causal, a.Window}
	}
	if !times {
		return out
	}
	e := explained(d)
	out.plainTime = &plainTime{float64(d.Time), float64(d.Host), e.bound, e.formula, e.source, e.relErr}
	if d.Comm != nil {
		out.Comm = &commsOf([]estimate.CommDetail{*d.Comm})[0]
	}
	return out
}

func commsOf(list []estimate.CommDetail) []plainComm {
	var out []plainComm
	for i := range list {
		c := &list[i]
		out = append(out, plainComm{c.Kind, c.Group, c.Ranks, c.Nodes, float64(c.Bytes), c.Count, float64(c.Cost.Time), c.Cost.Algorithm, c.Cost.Protocol,
			float64(c.Cost.AlgBW), float64(c.Cost.BusBW), string(c.Cost.Source), c.Cost.RelErr})
	}
	return out
}

// spans are those of a result in the order of time, neighbours of one label on one
// stream joined.
func spans(r *estimate.Result) []timeline.Span {
	list := slices.Clone(r.Spans)
	slices.SortStableFunc(list, func(a, b timeline.Span) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	})
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
