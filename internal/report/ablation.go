package report

import (
	"cmp"
	"fmt"

	"github.com/perfplan/perfplan/calibrate/runs"
)

// Ablation is what each effect is worth: the error of the step time without it.
type Ablation []runs.Ablation

// ablationName is how a row is called.
func ablationName(a *runs.Ablation) string { return cmp.Or(a.Effect, "nothing") }

func (list Ablation) page() *page {
	base := all(list[0].Groups)
	p := &page{title: fmt.Sprintf("What each effect is worth: %d measured steps without it", base.N)}
	g := &grid{columns: []column{{title: "without"}, {title: "mean", right: true}, {title: "change", right: true}, {title: "max", right: true, drop: 2}, {title: "signed", right: true}, {title: "then", flex: 40, drop: 1}}}
	for i := range list {
		x := all(list[i].Groups)
		change := "-"
		if i > 0 {
			change = signed(x.MeanAbs - base.MeanAbs)
		}
		g.lines = append(g.lines, line{cells: []string{ablationName(&list[i]), percent(x.MeanAbs), change, percent(x.MaxAbs), signed(x.MeanSigned), list[i].What}, sum: i == 0})
	}
	p.section("Error of the step time, |predicted − measured| / measured", g)
	if len(list[0].Groups) > 2 {
		by := &grid{columns: []column{{title: "without"}}}
		for k, group := range list[0].Groups {
			by.columns = append(by.columns, column{title: group.Name, right: true, drop: len(list[0].Groups) - k})
		}
		for i := range list {
			cells := []string{ablationName(&list[i])}
			for _, group := range list[i].Groups {
				cells = append(cells, percent(group.Stats["step_time"].MeanAbs))
			}
			by.lines = append(by.lines, line{cells: cells, sum: i == 0})
		}
		p.section("Mean |error| by group", by)
	}
	return p
}

// all is the step time over all runs.
func all(groups []runs.Group) runs.Stats { return groups[len(groups)-1].Stats["step_time"] }

func (list Ablation) plain() any {
	out := make([]map[string]any, len(list))
	for i := range list {
		groups := map[string]any{}
		for _, g := range list[i].Groups {
			groups[g.Name] = g.Stats["step_time"]
		}
		out[i] = map[string]any{"without": list[i].Effect, "then": list[i].What, "step_time": groups}
	}
	return document("ablation/v1", ordered{{"effects", out}})
}

func (list Ablation) records() ([]string, [][]string) {
	var rows [][]string
	for i := range list {
		for _, g := range list[i].Groups {
			s := g.Stats["step_time"]
			rows = append(rows, []string{list[i].Effect, g.Name, integer(int64(s.N)), number(s.MeanAbs), number(s.MaxAbs), number(s.MeanSigned)})
		}
	}
	return []string{"without", "group", "runs", "mean_abs", "max_abs", "mean_signed"}, rows
}
