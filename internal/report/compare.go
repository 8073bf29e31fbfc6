package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/perfplan/perfplan/calibrate/trace"
	"github.com/perfplan/perfplan/internal/diag"
)

// Compare is a prediction beside a trace.
type Compare struct {
	Estimate
	Found   *trace.Comparison
	Classes bool // also print the classes of each family, as text and Markdown
}

// traceTerms are the names of the terms of a comparison.
var traceTerms = map[string]string{
	trace.StepTime: "step", trace.Compute: "kernels", trace.Idle: "device idle", trace.NCCL: "NCCL kernels", trace.Exposed: "exposed NCCL",
}

func (x *Compare) page() *page {
	p := &page{title: x.title()}
	c := x.Found
	p.add(fields{{"Plan", x.planText()}, {"Traced", tracedText(c.Traces)}})
	g := &grid{columns: []column{{title: "per step"}, {title: "predicted", right: true}, {title: "traced", right: true}, {title: "error", right: true}}}
	for _, t := range c.Terms {
		if t.Predicted == 0 && t.Traced == 0 {
			continue
		}
		g.row(traceTerms[t.Key], t.Predicted.String(), t.Traced.String(), apartText(t.Error()))
	}
	p.section("The step", g)
	p.section("Kernels of one step", x.kernels())
	var said bullets
	for _, d := range c.Largest {
		said = append(said, [2]string{d.Text, ""})
	}
	p.section("The largest differences", said)
	notes(p, x.Result.Job, x.allNotes())
	return p
}

// allNotes are those of the comparison, then those of the prediction.
func (x *Compare) allNotes() []diag.Note { return slices.Concat(x.Found.Notes, x.notes()) }

// tracedText says what was averaged.
func tracedText(list []*trace.Summary) string {
	text := plural(list[0].Steps, "step") + " of " + list[0].Name
	if len(list) > 1 {
		text += fmt.Sprintf(" and %s, averaged", plural(len(list)-1, "more rank"))
	}
	return text
}

// mostError is the largest error that is printed as a number.
const mostError = 9.995

func apartText(e float64) string {
	switch {
	case math.IsInf(e, 1): // nothing was traced to compare with
		return "-"
	case e > mostError:
		return "> 10×"
	}
	return signed(e)
}

// apart is an error as a number, nil where nothing was traced to compare with.
func apart(e float64) *float64 {
	if math.IsInf(e, 1) {
		return nil
	}
	return &e
}

func (x *Compare) kernels() *grid {
	c := x.Found
	g := &grid{columns: []column{{title: "family", flex: 24, least: 12}, {title: "predicted", right: true}, {title: "traced", right: true}, {title: "error", right: true}, {title: "off, of step", right: true, drop: 1},
		{title: "kernels", right: true, drop: 3}, {title: "traced", right: true, drop: 2}}}
	step := float64(c.Term(trace.StepTime).Traced)
	add := func(l *trace.Line, level int, of string) {
		g.lines = append(g.lines, line{level: level, cells: []string{l.Name, l.Predicted.Time.String(), l.Traced.Time.String(), apartText(l.Error()), of,
			thousands(l.Predicted.Count), thousands(l.Traced.Count)}})
	}
	for i := range c.Families {
		f := &c.Families[i]
		of := func(l *trace.Line) string {
			if f.Name == trace.Collectives { // most of them are hidden
				return "-"
			}
			return signed(float64(l.Predicted.Time-l.Traced.Time) / step)
		}
		add(f, 0, of(f))
		if x.Classes {
			for k := range f.Classes {
				add(&f.Classes[k], 1, of(&f.Classes[k]))
			}
		}
	}
	return g
}

// sidesOf is a line of kernels as predicted and as traced; only a prediction knows bytes.
func sidesOf(l *trace.Line) ordered {
	return ordered{{"predicted", ordered{{"count", l.Predicted.Count}, {"time_s", l.Predicted.Time}, {"bytes", l.Predicted.Bytes}}}, {"traced", ordered{{"count", l.Traced.Count}, {"time_s", l.Traced.Time}}},
		{"error", apart(l.Error())}, {"longest", l.Longest}}
}

func (x *Compare) plain() any {
	c := x.Found
	terms := listed(c.Terms, func(t *trace.Term) ordered {
		return ordered{{"key", t.Key}, {"predicted_s", t.Predicted}, {"traced_s", t.Traced}, {"error", apart(t.Error())}}
	})
	var families, largest []ordered
	for i := range c.Families {
		l := &c.Families[i]
		var classes []ordered
		for k := range l.Classes {
			classes = append(classes, append(ordered{{"class", l.Classes[k].Name}}, sidesOf(&l.Classes[k])...))
		}
		families = append(families, append(append(ordered{{"family", l.Name}}, sidesOf(l)...), entry{"classes", classes}))
	}
	for _, d := range c.Largest {
		largest = append(largest, ordered{{"of", d.Of}, {"predicted_s", d.Predicted}, {"traced_s", d.Traced}, {"text", d.Text}})
	}
	return append(x.head("compare/v1"), ordered{{"terms", terms}, {"families", families}, {"largest", largest}, {"traces", c.Traces}, {"notes", x.allNotes()}}...)
}

func (x *Compare) records() ([]string, [][]string) {
	header := []string{"family", "class", "predicted_count", "predicted_bytes", "predicted_s", "traced_count", "traced_s", "error"}
	var rows [][]string
	row := func(family, class string, l *trace.Line) {
		rows = append(rows, []string{family, class, number(l.Predicted.Count), number(float64(l.Predicted.Bytes)), number(float64(l.Predicted.Time)),
			number(l.Traced.Count), number(float64(l.Traced.Time)), cell(apart(l.Error()))})
	}
	for _, t := range x.Found.Terms {
		rows = append(rows, []string{"", t.Key, "", "", number(float64(t.Predicted)), "", number(float64(t.Traced)), cell(apart(t.Error()))})
	}
	for i := range x.Found.Families {
		f := &x.Found.Families[i]
		row(f.Name, "", f)
		for k := range f.Classes {
			row(f.Name, f.Classes[k].Name, &f.Classes[k])
		}
	}
	return header, rows
}
