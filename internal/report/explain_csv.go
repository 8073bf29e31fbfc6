package report

import (
	"github.com/perfplan/perfplan/strategies/estimate"
)

// records are the rows of the stage with bare numbers in SI base units.
func (x *Explain) records() (header []string, rows [][]string) {
	row := func(cells ...string) { rows = append(rows, cells) }
	switch x.Stage {
	case Ops, Times:
		header = []string{"unit", "phase", "module", "op", "class", "dtype", "shape", "flops", "bytes", "kernels", "time_s", "host_s", "bound", "formula", "source"}
		if x.Stage == Ops {
			header = header[:10]
		}
		eachOp(x.units(), func(unit string, d *estimate.OpDetail) {
			o, e := d.Op, explained(d)
			cells := []string{unit, o.Phase.String(), o.Module, o.Prim, o.Class.String(), o.DType.String(), shape(o), number(float64(o.FLOPs)), number(float64(moved(o))), integer(kernels(o)),
				number(float64(d.Time)), number(float64(d.Host)), e.bound, e.formula, e.source}
			row(cells[:len(header)]...)
		})
	case Timeline:
		return tabled(plainSpans(x.Result), "stream", "label", "start_s", "end_s")
	case Memory:
		header = []string{"pass", "allocated_bytes"}
		for c := range x.Result.Memory.By {
			header = append(header, className(c)+"_bytes")
		}
		for _, p := range x.Result.Detail.Memory {
			cells := []string{p.Label, number(float64(p.Allocated))}
			for _, b := range p.By {
				cells = append(cells, number(float64(b)))
			}
			row(cells...)
		}
	default:
		header = []string{"path", "time_s", "calls", "bound"}
		var walk func(n *treeNode, path string, depth int)
		walk = func(n *treeNode, path string, depth int) {
			row(path+n.name, number(float64(n.time)), integer(n.calls), n.bound)
			if depth > 0 {
				for _, c := range n.inner {
					walk(c, path+n.name+"/", depth-1)
				}
			}
		}
		walk(x.tree(), "", x.Depth)
	}
	return header, rows
}
