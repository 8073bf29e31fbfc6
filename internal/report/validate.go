package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/calibrate/runs"
)

// WriteValidate prints a comparison with measured runs, as CSV always by run.
func WriteValidate(w io.Writer, r *runs.Report, rows bool, f Format, s Style) error {
	return write(w, f, s, func() *page { return validatePage(r, rows) }, func() any { return plainValidation(r) }, func() ([]string, [][]string) { return validateRecords(r) })
}

func validatePage(r *runs.Report, rows bool) *page {
	all := r.Summary[len(r.Summary)-1]
	noun := "runs"
	if all.N == 1 {
		noun = "run"
	}
	p := &page{title: fmt.Sprintf("%d measured %s, %d predicted", all.N, noun, all.N-all.Unsupported-all.Failed)}
	groups := r.Summary
	if len(groups) == 2 { // one group and all of it
		groups = groups[:1]
	}
	steps := stepGrid(groups)
	if s, ok := r.Overall["step_time"]; ok && s.N > 1 {
		cells := []string{"groups weighed alike", integer(int64(s.N)), percent(s.MeanAbs), percent(s.MedianAbs), percent(s.P90Abs), percent(s.MaxAbs), signed(s.MeanSigned), "-", "-"}
		steps.lines = append(steps.lines, line{cells: cells[:len(steps.columns)], sum: true})
	}
	if len(all.Stats) > 0 {
		notes := []piece{steps}
		if x := all.InRange; x != nil {
			notes = append(notes, paragraph(fmt.Sprintf("%s of the steps are off by more than %s and outside their range, which did not say so.", percent(x.Unsaid), percent(runs.FarOff))))
		}
		p.section("Error of the step time, |predicted − measured| / measured", notes...)
	}
	if g := stepGrid(r.Stated); len(g.lines) > 0 {
		g.columns[0].title = "source"
		p.section("The same by what a run's source leaves open: of a job of your own you know all", g)
	}
	if g := quantityGrid(&all); len(g.lines) > 0 {
		p.section("All quantities, over all runs", g)
	}
	if len(groups) > 1 && len(all.Stats) > 0 {
		p.section("Mean |error| by group", groupGrid(groups))
	}
	if len(r.Choices) > 0 {
		p.section("The layout predicted best, among those measured of one job", choiceTable(r.Choices),
			paragraph("chance: how probable it was, from the ranges of the predictions, that the chosen layout is the best; regret: how much longer the chosen layout took than the best; spread: how much longer the slowest took; Spearman: rank correlation of predicted and measured times."))
	}
	if len(r.Parts) > 0 {
		p.section("How long measured steps take for each part of their prediction", partGrid(r.Parts),
			paragraph(partsText(r.Parts)))
	}
	if rows {
		p.section("Runs, with errors in %", rowGrid(r.Rows))
	}
	if l := reasons(r.Rows, func(r *runs.Row) bool { return r.Status != runs.OK }); len(l) > 0 {
		p.section("Not predicted", l)
	}
	if l := reasons(r.Rows, func(r *runs.Row) bool { return r.Status == runs.OK && r.Reason != "" }); len(l) > 0 {
		p.section("Predicted, but not compared", l)
	}
	if l := leftToRecipes(r.Rows); len(l) > 0 && rows {
		p.section("Only assumed, and left to the recipe", l)
	}
	if o := r.Own; o != nil {
		p.section("For other jobs of yours", paragraph(fmt.Sprintf("%s on %s: expect %.2f times the prediction, give or take %s (one standard deviation). --runs with this file, on any command that takes a job, carries that over.",
			o.Recipe, o.GPU, o.Ratio, percent(o.Spread))))
	}
	return p
}

func stepGrid(groups []runs.Group) *grid {
	g := &grid{columns: []column{{title: "group", flex: 30}, {title: "runs", right: true}, {title: "mean", right: true}, {title: "median", right: true, drop: 2}, {title: "p90", right: true, drop: 3},
		{title: "max", right: true}, {title: "signed", right: true, drop: 1}, {title: "in range", right: true, drop: 5}, {title: "slower", right: true, drop: 4}}}
	for i := range groups {
		x := &groups[i]
		s, ok := x.Stats["step_time"]
		n := integer(int64(s.N))
		if s.N != x.N {
			n += " of " + integer(int64(x.N))
		}
		cells := []string{x.Name, n, "-", "-", "-", "-", "-", "-", "-"}
		if ok {
			cells = []string{x.Name, n, percent(s.MeanAbs), percent(s.MedianAbs), percent(s.P90Abs), percent(s.MaxAbs), signed(s.MeanSigned), "-", "-"}
		}
		if x.InRange != nil {
			cells[7], cells[8] = percent(x.InRange.Share), percent(x.InRange.Slower)
		}
		g.lines = append(g.lines, line{cells: cells, sum: x.Name == runs.All})
	}
	return g.withoutEmpty()
}

func quantityGrid(x *runs.Group) *grid {
	g := &grid{columns: []column{{title: "quantity"}, {title: "runs", right: true}, {title: "mean", right: true}, {title: "median", right: true}, {title: "p90", right: true, drop: 2}, {title: "max", right: true},
		{title: "signed", right: true, drop: 1}}}
	for _, q := range runs.QuantityNames() {
		if s, ok := x.Stats[q]; ok {
			g.row(strings.ReplaceAll(q, "_", " "), integer(int64(s.N)), percent(s.MeanAbs), percent(s.MedianAbs), percent(s.P90Abs), percent(s.MaxAbs), signed(s.MeanSigned))
		}
	}
	return g
}

// groupColumns are the quantities of the table by group, with short titles.
var groupColumns = []struct{ quantity, title string }{
	{"step_time", "step"}, {"forward_time", "forward"}, {"backward_time", "backward"}, {"optimizer_time", "optimizer"},
	{"peak_allocated", "allocated"}, {"peak_reserved", "reserved"}, {"device_used", "device"}, {"energy_per_step_per_gpu", "energy"},
}

func groupGrid(groups []runs.Group) *grid {
	g := &grid{columns: []column{{title: "group", flex: 30}}}
	drops := []int{0, 5, 5, 7, 0, 3, 2, 6}
	for i, c := range groupColumns {
		g.columns = append(g.columns, column{title: c.title, right: true, drop: drops[i]})
	}
	for i := range groups {
		x := &groups[i]
		if len(x.Stats) == 0 {
			continue
		}
		cells := []string{x.Name}
		for _, c := range groupColumns {
			cell := "-"
			if s, ok := x.Stats[c.quantity]; ok {
				cell = percent(s.MeanAbs)
			}
			cells = append(cells, cell)
		}
		g.lines = append(g.lines, line{cells: cells, sum: x.Name == runs.All})
	}
	return g.withoutEmpty()
}

func choiceTable(list []runs.Choice) *grid {
	g := &grid{columns: []column{{title: "job", flex: 44, least: 16}, {title: "layouts", right: true}, {title: "chance", right: true, drop: 4}, {title: "regret", right: true}, {title: "spread", right: true}, {title: "Spearman", right: true, drop: 1}, {title: "chosen", flex: 70, drop: 3}, {title: "best", flex: 70, drop: 2}}}
	for _, c := range list {
		g.row(c.Name, integer(int64(c.Layouts)), percent(c.Chance), percent(c.Regret), percent(c.Range), fmt.Sprintf("%.2f", c.Spearman), c.Chosen, c.Best)
	}
	return g
}

func partGrid(list []runs.Part) *grid {
	g := &grid{columns: []column{{title: "part"}, {title: "share", right: true}, {title: "ratio", right: true}, {title: "±", right: true}}}
	for _, x := range list {
		if x.Untold {
			g.row(x.Name, percent(x.Share), "-", "-")
			continue
		}
		g.row(x.Name, percent(x.Share), fmt.Sprintf("%.2f", x.Ratio), fmt.Sprintf("%.2f", x.Deviation))
	}
	return g
}

// partsText says what partGrid shows.
func partsText(list []runs.Part) string {
	s := "share: of the predicted steps, all groups alike; ratio: measured over predicted, by least squares over all runs; ±: one standard deviation, from leaving out groups in turn."
	if slices.ContainsFunc(list, func(x runs.Part) bool { return x.Untold }) {
		s += " -: these runs cannot tell it from the others: add runs in which it is a larger part of the step."
	}
	return s
}

func rowGrid(rows []runs.Row) *grid {
	g := &grid{columns: []column{{title: "run", flex: 28}, {title: "group", flex: 22, drop: 7}, {title: "predicted", right: true, drop: 4}, {title: "measured", right: true}, {title: "step", right: true},
		{title: "fwd", right: true, drop: 5}, {title: "bwd", right: true, drop: 5}, {title: "opt", right: true, drop: 6}, {title: "alloc", right: true}, {title: "resv", right: true, drop: 2},
		{title: "device", right: true, drop: 1}, {title: "energy", right: true, drop: 8}, {title: "clock", right: true, drop: 9}, {title: "stage", right: true, drop: 10}}}
	for i := range rows {
		r := &rows[i]
		if r.Status != runs.OK {
			continue
		}
		e := func(q string) string {
			if v, ok := r.Errors[q]; ok {
				return strings.TrimSuffix(signed(v), " %")
			}
			return "-"
		}
		measured := "-"
		if r.Measured.StepTime > 0 {
			measured = r.Measured.StepTime.String()
		}
		g.row(r.ID, r.Group, r.Predicted.StepTime.String(), measured, e("step_time"), e("forward_time"), e("backward_time"), e("optimizer_time"),
			e("peak_allocated"), e("peak_reserved"), e("device_used"), e("energy_per_step_per_gpu"), e("sm_clock_after"), e(runs.PerStage))
	}
	return g.withoutEmpty()
}

// reasons groups the runs that are meant by the reason that they have, most frequent
// first.
func reasons(rows []runs.Row, meant func(*runs.Row) bool) bullets {
	type reason struct {
		text  string
		count int
		first string
		where string // the first stands
	}
	var list []*reason
	for i := range rows {
		r := &rows[i]
		if !meant(r) {
			continue
		}
		text := r.Reason
		if r.Status == runs.Failed {
			text = "FAILED: " + text
		}
		at := slices.IndexFunc(list, func(x *reason) bool { return x.text == text })
		if at < 0 {
			at = len(list)
			list = append(list, &reason{text: text, first: r.ID, where: r.Where})
		}
		list[at].count++
	}
	slices.SortStableFunc(list, func(a, b *reason) int { return cmp.Compare(b.count, a.count) })
	var out bullets
	for _, r := range list {
		n := r.first
		if r.count > 1 {
			n = fmt.Sprintf("%d runs, first %s", r.count, r.first)
		}
		if r.where != "" {
			n = r.where + ": " + n
		}
		out = append(out, [2]string{n + ": " + r.text, ""})
	}
	return out
}

// leftToRecipes lists what runs only assume of keys that their recipes decide, with the number of
// runs, in the order of the runs.
func leftToRecipes(rows []runs.Row) (out bullets) {
	count, first := map[string]int{}, map[string]string{}
	var order []string
	for i := range rows {
		for _, text := range rows[i].Left {
			if count[text]++; count[text] == 1 {
				first[text], order = rows[i].ID, append(order, text)
			}
		}
	}
	for _, text := range order {
		n := first[text]
		if count[text] > 1 {
			n = fmt.Sprintf("%d runs, first %s", count[text], n)
		}
		out = append(out, [2]string{text + ": " + n, ""})
	}
	return out
}

// plainValidation leaves out what was not asked for.
func plainValidation(r *runs.Report) ordered {
	return document("validate/v1", ordered{{"runs", r.Rows}, {"summary", r.Summary}, {"stated", unlessNone(r.Stated)}, {"overall", unlessNone(r.Overall)},
		{"choices", unlessNone(r.Choices)}, {"parts", unlessNone(r.Parts)}, {"own_runs", unlessNone(r.Own)}})
}

// validateRecords is one row per run.
func validateRecords(r *runs.Report) ([]string, [][]string) {
	header := []string{"id", "group", "status", "step_time_predicted_s", "step_time_measured_s"}
	for _, q := range runs.QuantityNames() {
		header = append(header, q+"_error")
	}
	header = append(header, "reason", "where")
	var rows [][]string
	for i := range r.Rows {
		x := &r.Rows[i]
		cells := []string{x.ID, x.Group, string(x.Status), "", ""}
		if x.Status == runs.OK {
			cells[3] = number(float64(x.Predicted.StepTime))
		}
		if t := x.Measured.StepTime; t > 0 {
			cells[4] = number(float64(t))
		}
		for _, q := range runs.QuantityNames() {
			cell := ""
			if v, ok := x.Errors[q]; ok {
				cell = number(v)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, append(cells, x.Reason, x.Where))
	}
	return header, rows
}

// BreachText says in one line which groups break a tolerance.
func BreachText(list []runs.Breach) string {
	parts := make([]string, len(list))
	for i, b := range list {
		parts[i] = fmt.Sprintf("%s of %s is off by %s on average (limit %s)", b.Quantity, b.Group, percent(b.MeanAbs), percent(b.Limit))
	}
	return "tolerance exceeded: " + strings.Join(parts, "; ")
}
