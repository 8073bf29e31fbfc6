package report

import (
	"fmt"
	"io"

	"github.com/perfplan/perfplan/hardware"
)

// Diff is what two machines differ in.
type Diff struct {
	A, B  *hardware.Profile
	Data  []hardware.Difference
	Limit int // rows of text; 0: all
}

// DiffFormats are the formats of WriteDiff.
var DiffFormats = []Format{Text, JSON, YAML, CSV, Markdown}

// WriteDiff prints every datum that differs, the largest change first.
func WriteDiff(w io.Writer, d *Diff, f Format, s Style) error {
	return write(w, f, s, d.page, d.plain, d.records)
}

func (d *Diff) page() *page {
	p := &page{title: fmt.Sprintf("%s against %s", d.B.Name, d.A.Name)}
	if len(d.Data) == 0 {
		p.add(paragraph("No datum differs."))
		return p
	}
	g := &grid{columns: []column{{title: "datum", flex: 60, least: 20}, {title: d.A.Name, right: true, flex: 30, least: 10}, {title: d.B.Name, right: true, flex: 30, least: 10}, {title: "change", right: true}}}
	for i, x := range d.Data {
		if i == d.Limit && d.Limit > 0 {
			break
		}
		g.row(x.Path, orDash(x.A), orDash(x.B), change(x))
	}
	title := fmt.Sprintf("%d data differ", len(d.Data))
	if len(d.Data) == 1 {
		title = "One datum differs"
	}
	p.section(title, g)
	if d.Limit > 0 && len(d.Data) > d.Limit {
		p.add(paragraph(fmt.Sprintf("and %d more; --all prints them.", len(d.Data)-d.Limit)))
	}
	return p
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func change(x hardware.Difference) string {
	if !x.Has {
		return "-"
	}
	return signed(x.Rel)
}

func (d *Diff) plain() any {
	data := []ordered{}
	for _, x := range d.Data {
		var rel any
		if x.Has {
			rel = x.Rel
		}
		data = append(data, ordered{{"datum", x.Path}, {"a", x.A}, {"b", x.B}, {"relative_change", rel}})
	}
	return ordered{{"schema", "hardware-diff/v1"}, {"a", d.A.Name}, {"b", d.B.Name}, {"differences", data}}
}

func (d *Diff) records() ([]string, [][]string) {
	var rows [][]string
	for _, x := range d.Data {
		rel := ""
		if x.Has {
			rel = number(x.Rel)
		}
		rows = append(rows, []string{x.Path, x.A, x.B, rel})
	}
	return []string{"datum", "a", "b", "relative_change"}, rows
}
