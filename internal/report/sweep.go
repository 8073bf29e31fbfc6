package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// Plot is a curve in characters.
const Plot Format = "plot"

// WriteSweep prints a sweep.
func WriteSweep(w io.Writer, t *whatif.Table, f Format, s Style) error {
	if f == Plot {
		return writeTrend(w, sweepTrend(t), s)
	}
	return write(w, f, s, func() *page { return sweepPage(t) }, func() any { return sweepPlain(t) }, func() ([]string, [][]string) { return sweepRecords(t) })
}

func sweepPage(t *whatif.Table) *page {
	p := &page{title: fmt.Sprintf("%s, %s: %s", firstResult(t).Job.ModelName, plural(len(t.Points), "point"), axisNames(t.Axes))}
	f := fields{{"Best", bestText(t)}}
	if r := firstResult(t); picked(t) && !plansDiffer(t) {
		f = append(f, [2]string{"Plan", settings(r.Job) + "; the fastest simple plan at every point"})
	}
	if t.Left > 0 {
		f = append(f, [2]string{"Stopped", fmt.Sprintf("STOPPED EARLY: %s left out", plural(t.Left, "point"))})
	}
	p.add(f)
	p.section("By "+t.By.Title, sweepGrid(t))
	if slices.ContainsFunc(t.Axes, func(a whatif.Axis) bool {
		return strings.HasSuffix("."+a.Path, ".data_parallel") || a.Path == "data-parallel"
	}) {
		p.section("Memory of one GPU, in GiB: what each kind of data parallelism shards", shardGrid(t))
	}
	var refused bullets
	for _, x := range t.Points {
		if x.Err == nil {
			continue
		}
		refused = append(refused, [2]string{pointName(t.Axes, x.Values) + ": " + ruleOf(t.Axes, x), ""})
	}
	if len(refused) > 0 {
		p.section("Not legal", refused)
	}
	taken(p, sweptDefaults(t))
	p.remarks(sweepNotes(t))
	return p
}

// sweepNotes warn of points that do not train alike, and of those whose objective is not
// known.
func sweepNotes(t *whatif.Table) []diag.Note {
	var out []diag.Note
	least, most := batches(t)
	switch mixed := slices.ContainsFunc(t.Points, func(x whatif.Point) bool {
		return x.Result != nil && x.Result.Job.Tokens() != firstResult(t).Job.Tokens()
	}); {
	case mixed && t.By.Name == "step":
		out = append(out, diag.Note{Code: openBatchCode, Text: "the points train on batches of different sizes, and the step of the smallest wins", Remedy: "compare tokens/s (--by tokens), or give --global-batch in sequences"})
	case least != most && firstResult(t).Job.Given.GlobalBatch == 0:
		out = append(out, diag.Note{Code: openBatchCode, Text: fmt.Sprintf("the job names no global batch, so points have their own, of %d to %d sequences: their steps do not compare, and tokens/s favours large ones", least, most), Remedy: giveBatch})
	}
	if t.By.Name == "cost" {
		var names []string
		for _, x := range t.Points {
			if r := x.Result; r != nil && whatif.Price(r.Job) == 0 && !slices.Contains(names, r.Job.Hardware.Name) {
				names = append(names, r.Job.Hardware.Name)
			}
		}
		if len(names) > 0 {
			out = append(out, diag.Note{Code: noPriceCode, Text: "no cost is known on " + strings.Join(names, ", ") + ", which has no price", Remedy: "give --price in US dollars per GPU-hour, or a machine of a cloud, such as aws-p5"})
		}
	}
	return out
}

// batches are the smallest and the largest global batch of the legal points.
func batches(t *whatif.Table) (least, most int64) {
	for _, x := range t.Points {
		if x.Result == nil {
			continue
		}
		b := x.Result.Job.Train.GlobalBatch
		if most = max(most, b); least == 0 || b < least {
			least = b
		}
	}
	return least, most
}

// firstResult is that of the first legal point; a sweep has one.
func firstResult(t *whatif.Table) *estimate.Result {
	return t.Points[slices.IndexFunc(t.Points, func(p whatif.Point) bool { return p.Err == nil })].Result
}

// sweptDefaults are what the points leave to this program; what only some of them do is
// marked.
func sweptDefaults(t *whatif.Table) []string {
	var out []string
	points, count := 0, map[string]int{}
	for _, x := range t.Points {
		if x.Result == nil {
			continue
		}
		points++
		for _, d := range x.Result.Job.Defaults() {
			if count[d]++; count[d] == 1 {
				out = append(out, d)
			}
		}
	}
	for i, d := range out {
		if count[d] < points {
			out[i] += ", at some points"
		}
	}
	return out
}

func axisNames(axes []whatif.Axis) string {
	names := make([]string, len(axes))
	for i, a := range axes {
		names[i] = a.Path
	}
	return strings.Join(names, " × ")
}

func pointName(axes []whatif.Axis, values []string) string {
	parts := make([]string, len(axes))
	for i, a := range axes {
		parts[i] = a.Path + "=" + values[i]
	}
	return strings.Join(parts, " ")
}

// ruleOf is the rule that refuses a point, without the setting or the flag that it
// begins with and the excerpt of the file that it points at.
func ruleOf(axes []whatif.Axis, p whatif.Point) string {
	text, _, _ := strings.Cut(p.Err.Error(), "\n")
	for i, a := range axes {
		text = strings.TrimPrefix(text, a.Path+"="+p.Values[i]+": ")
	}
	if origin, rule, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(origin, "--") {
		return rule
	}
	return text
}

func bestText(t *whatif.Table) string {
	if t.Best < 0 {
		return "none of the points fits in memory"
	}
	s := pointName(t.Axes, t.Points[t.Best].Values)
	if len(t.Ties) > 0 {
		names := make([]string, len(t.Ties))
		for i, k := range t.Ties {
			names[i] = pointName(t.Axes, t.Points[k].Values)
		}
		s += "; within 0.1 %: " + strings.Join(names, ", ")
	}
	return s
}

// shownAxes are the axes with more than one value, and their columns.
func shownAxes(t *whatif.Table) (shown []int, columns []column) {
	for i, a := range t.Axes {
		if len(a.Values) > 1 || len(t.Axes) == 1 {
			shown = append(shown, i)
			columns = append(columns, column{title: a.Path[strings.LastIndexByte(a.Path, '.')+1:], right: a.Numbers() != nil})
		}
	}
	return shown, columns
}

func sweepGrid(t *whatif.Table) *grid {
	shown, columns := shownAxes(t)
	g := &grid{columns: columns}
	plans := plansDiffer(t)
	plan := column{title: "plan", flex: 40, least: 16, drop: 7}
	if picked(t) { // no axis says it
		plan.drop = 0
	}
	// Where batches differ, steps do not compare: the batch stands beside them, and
	// tokens/s stay on pages where steps do not.
	least, most := batches(t)
	step, tokens, used := column{title: "step", right: true}, column{title: "tokens/s/GPU", right: true, drop: 4}, column{title: "used GiB", right: true}
	if least != most {
		step.drop, tokens.drop, used.drop = 5, 0, 1
	}
	g.columns = append(g.columns, column{title: "batch", right: true}, step, column{title: "vs best", right: true}, column{title: "$/Mtoken", right: true}, column{title: "kJ/Mtoken", right: true}, tokens,
		column{title: "MFU", right: true, drop: 6}, used, column{title: "exposed", right: true, drop: 3}, column{title: "sent GiB", right: true, drop: 2},
		column{title: "bound", drop: 8}, plan, column{})
	for i, p := range t.Points {
		var cells []string
		for _, k := range shown {
			cells = append(cells, p.Values[k])
		}
		if r := p.Result; r != nil {
			batch, cost, energy := "-", "-", "-"
			if least != most && !slices.ContainsFunc(t.Axes, axisOfBatch) {
				batch = thousands(float64(r.Job.Train.GlobalBatch))
			}
			if v := tokenCost(r); v > 0 && t.By.Name == "cost" {
				cost = fmt.Sprintf("%.4g", v)
			}
			if v := whatif.TokenEnergy(r); v > 0 && t.By.Name == "energy" {
				energy = fmt.Sprintf("%.4g", float64(v)/1e3)
			}
			cells = append(cells, batch, r.StepTime.String(), versus(t, r), cost, energy, thousands(r.TokensPerSecond), percent(r.MFU), gibibytes(r.Memory.DeviceUsed), r.Parts.Exposed.String(),
				gibibytes(p.Sent), r.Bound, planCell(plans, r), mark(t, i))
		} else {
			cells = append(cells, "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "not legal")
		}
		g.lines = append(g.lines, line{cells: cells, sum: i == t.Best})
	}
	return g.withoutEmpty()
}

// axisOfBatch says that an axis sets the batch itself.
func axisOfBatch(a whatif.Axis) bool {
	return a.Path == "global-batch" || strings.HasSuffix("."+a.Path, ".global_batch")
}

// tokenCost is what a million tokens cost in US dollars, 0 where no price is known.
func tokenCost(r *estimate.Result) float64 {
	return whatif.Price(r.Job) / 3600 / r.TokensPerSecond * 1e6
}

// picked says that the points got their plans from this program.
func picked(t *whatif.Table) bool {
	return slices.ContainsFunc(t.Points, func(p whatif.Point) bool { return p.Picked })
}

// plansDiffer says that the points do not share one plan.
func plansDiffer(t *whatif.Table) bool {
	first := settings(firstResult(t).Job)
	return slices.ContainsFunc(t.Points, func(p whatif.Point) bool { return p.Result != nil && settings(p.Result.Job) != first })
}

// shardGrid splits the memory of every point by what data parallelism shards.
func shardGrid(t *whatif.Table) *grid {
	shown, columns := shownAxes(t)
	g := &grid{columns: columns}
	classes := []memory.Class{memory.Parameters, memory.Gradients, memory.OptimizerStates, memory.Gathered, memory.Activations}
	for i, title := range []string{"parameters", "gradients", "optimizer", "gathered", "activations", "other"} {
		g.columns = append(g.columns, column{title: title, right: true, drop: max(i-2, 0)})
	}
	for i, p := range t.Points {
		if p.Err != nil {
			continue
		}
		m := &p.Result.Memory
		var cells []string
		for _, k := range shown {
			cells = append(cells, p.Values[k])
		}
		rest := m.DeviceUsed
		for _, c := range classes {
			b := m.By[c]
			if c == memory.Parameters && estimate.QuantizedAlone(p.Result.Job) {
				b += m.By[memory.WeightCopies] // the rest of the parameters
			}
			cells, rest = append(cells, gibibytes(b)), rest-b
		}
		g.lines = append(g.lines, line{cells: append(cells, gibibytes(rest)), sum: i == t.Best})
	}
	return g
}

func planCell(shown bool, r *estimate.Result) string {
	if !shown {
		return "-"
	}
	return settings(r.Job)
}

func mark(t *whatif.Table, i int) string {
	switch r := t.Points[i].Result; {
	case i == t.Best:
		return "◄ best"
	case slices.Contains(t.Ties, i):
		return "as good"
	case !r.Memory.Fits:
		return "does not fit"
	case t.By.Of(r) == 0 && t.By.Name == "cost":
		return "no price"
	case t.By.Of(r) == 0:
		return "not known"
	}
	return ""
}

// versus is how much worse a point is than the best, in the objective.
func versus(t *whatif.Table, r *estimate.Result) string {
	if t.Best < 0 {
		return "-"
	}
	a, b := t.By.Of(r), t.By.Of(t.Points[t.Best].Result)
	if a == 0 || b == 0 {
		return "-"
	}
	return signed(a/b - 1)
}

func sweepPlain(t *whatif.Table) any {
	axes := listed(t.Axes, func(a *whatif.Axis) ordered { return ordered{{"path", a.Path}, {"values", a.Values}} })
	points := listed(t.Points, func(p *whatif.Point) ordered { return plainPoint(t, p) })
	var best *int
	var plan *strategies.Plan
	if t.Best >= 0 {
		best, plan = &t.Best, &t.Points[t.Best].Result.Job.Plan
	}
	return document("sweep/v1", ordered{{"objective", t.By.Name}, {"objective_title", t.By.Title}, {"axes", axes}, {"points", points}, {"points_left_out", t.Left},
		{"best", best}, {"ties", append([]int{}, t.Ties...)}, {"best_plan", plan}, {"notes", append(defaultNotes(sweptDefaults(t)), sweepNotes(t)...)}})
}

// plainPoint is a point with what was predicted; null where a rule forbids it.
func plainPoint(t *whatif.Table, p *whatif.Point) ordered {
	var values ordered
	for i, a := range t.Axes {
		values = append(values, entry{a.Path, p.Values[i]})
	}
	if p.Err != nil {
		return ordered{{"values", values}, {"legal", false}, {"rule", unlessNone(ruleOf(t.Axes, *p))}, {"objective", nil}, {"cost_usd_per_million_tokens", nil}, {"step_time_s", nil}, {"step_time_low_s", nil}, {"step_time_high_s", nil}, {"tokens_per_s_per_gpu", nil}, {"mfu", nil},
			{"device_used_bytes", nil}, {"fits", false}, {"exposed_comm_total_s", nil}, {"sent_bytes_per_gpu", nil}, {"energy_j_per_step_per_gpu", nil}, {"energy_j_per_million_tokens", nil}}
	}
	r := p.Result
	return slices.Concat(ordered{{"values", values}, {"legal", true}, {"objective", known(t.By.Of(r))}, {"cost_usd_per_million_tokens", known(tokenCost(r))}, {"gpus", unlessNone(r.Job.GPUs)}, {"global_batch", unlessNone(r.Job.Train.GlobalBatch)}, {"plan", r.Job.Plan}}, stepOf(r), ordered{
		{"tokens_per_s_per_gpu", r.TokensPerSecond}, {"mfu", r.MFU}, {"device_used_bytes", r.Memory.DeviceUsed}, {"fits", r.Memory.Fits}, {"memory_by_class_bytes", unlessNone(byClass(r.Memory.By[:]))},
		{"exposed_comm_total_s", r.Parts.Exposed}, {"sent_bytes_per_gpu", p.Sent}, {"bound", unlessNone(r.Bound)}, {"energy_j_per_step_per_gpu", known(r.Energy)}, {"energy_j_per_million_tokens", known(whatif.TokenEnergy(r))}})
}

// sweepRecords is one row per point: its values, then the columns of an estimate.
func sweepRecords(t *whatif.Table) ([]string, [][]string) {
	var header, inner []string
	var rows [][]string
	for _, a := range t.Axes {
		header = append(header, "axis."+a.Path)
	}
	for _, p := range t.Points {
		if p.Result != nil {
			inner, _ = (&Estimate{Result: p.Result}).records()
			break
		}
	}
	header = append(append(header, inner...), "sent_bytes_per_gpu", "cost_usd_per_million_tokens", "objective", "objective_title", "best", "rule")
	for i, p := range t.Points {
		row := slices.Clone(p.Values)
		if p.Result == nil {
			row = append(append(row, make([]string, len(inner)+3)...), t.By.Title, "false", ruleOf(t.Axes, p))
		} else {
			_, cells := (&Estimate{Result: p.Result}).records()
			row = append(append(row, cells[0]...), number(float64(p.Sent)), cell(known(tokenCost(p.Result))), cell(known(t.By.Of(p.Result))), t.By.Title, fmt.Sprint(i == t.Best), "")
		}
		rows = append(rows, row)
	}
	return header, rows
}

// sweepTrend is the objective over the longest axis of numbers; other axes make a
// series each.
func sweepTrend(t *whatif.Table) *trend {
	at := 0
	for i, a := range t.Axes {
		if a.Numbers() != nil && (t.Axes[at].Numbers() == nil || len(a.Values) > len(t.Axes[at].Values)) {
			at = i
		}
	}
	a := &t.Axes[at]
	c := &trend{title: "By " + t.By.Title, x: a.Path, y: t.By.Title, at: a.Numbers(), names: a.Values}
	for _, p := range t.Points {
		others := make([]string, 0, len(t.Axes))
		for i, v := range p.Values {
			if i != at {
				others = append(others, t.Axes[i].Path+"="+v)
			}
		}
		y := missing
		if r := p.Result; r != nil && r.Memory.Fits && t.By.Of(r) != 0 {
			y = t.By.Of(r)
		}
		c.add(strings.Join(others, " "), slices.Index(a.Values, p.Values[at]), y)
	}
	return c
}
