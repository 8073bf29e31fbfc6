package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware"
)

// Diff is what two machines differ in.
type Diff struct {
	A, B  *hardware.Profile
	Data  []hardware.Difference
	Limit int // rows of text; 0: all
}

// diffSections are the parts of a machine's file that a reader looks for one by one.
var diffSections = []struct{ title, prefix string }{
	{"Facts: GPU, node, network", ""}, {"Measured laws", "measured."},
}

func (d *Diff) page() *page {
	p := &page{title: fmt.Sprintf("%s against %s", d.B.Name, d.A.Name)}
	if len(d.Data) == 0 {
		p.add(paragraph("No datum differs."))
		return p
	}
	p.add(fields{{"Differing", plural(len(d.Data), "value")}, {"Change", fmt.Sprintf("of %s over %s, the largest factor first", d.B.Name, d.A.Name)}})
	for i, part := range diffSections {
		g := &grid{columns: []column{{title: "datum", flex: 60, least: 20}, {title: d.A.Name, right: true, flex: 30, least: 10}, {title: d.B.Name, right: true, flex: 30, least: 10}, {title: "change", right: true}}}
		more, single := 0, map[string]int{} // what only one has, by its table
		for _, x := range d.Data {
			if strings.HasPrefix(x.Path, diffSections[1].prefix) != (i == 1) {
				continue
			}
			name := strings.TrimPrefix(x.Path, part.prefix)
			switch table, _, _ := strings.Cut(name, "."); {
			case d.Limit > 0 && i == 1 && (x.A == "" || x.B == ""):
				single[table]++
			case d.Limit > 0 && len(g.lines) == d.Limit:
				more++
			default:
				g.row(name, orDash(x.A), orDash(x.B), change(x))
			}
		}
		if len(g.lines)+len(single) == 0 {
			continue
		}
		p.section(part.title)
		if len(g.lines) > 0 {
			p.add(g)
		}
		var left []string
		if more > 0 {
			left = append(left, fmt.Sprintf("and %d more", more))
		}
		for _, table := range slices.Sorted(maps.Keys(single)) {
			left = append(left, fmt.Sprintf("%s of %s in one only", plural(single[table], "value"), table))
		}
		if len(left) > 0 {
			p.add(paragraph(strings.Join(left, "; ") + "; --all prints them."))
		}
	}
	return p
}

func orDash(s string) string { return cmp.Or(s, "-") }

func change(x hardware.Difference) string {
	if !x.Has {
		return "-"
	}
	return signed(x.Rel)
}

func (d *Diff) plain() any {
	return document("hardware-diff/v1", ordered{{"a", d.A.Name}, {"b", d.B.Name}, {"differences", d.list()}})
}

func (d *Diff) list() []ordered {
	out := []ordered{}
	for _, x := range d.Data {
		var rel *float64
		if x.Has {
			rel = &x.Rel
		}
		out = append(out, ordered{{"datum", x.Path}, {"a", x.A}, {"b", x.B}, {"relative_change", rel}})
	}
	return out
}

func (d *Diff) records() ([]string, [][]string) {
	return tabled(d.list(), "datum", "a", "b", "relative_change")
}
