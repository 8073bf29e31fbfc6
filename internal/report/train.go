package report

import (
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/capacity"
	"github.com/perfplan/perfplan/strategies/goodput"
)

// Train is a training run with the step that it repeats.
type Train struct {
	Estimate
	Training *capacity.Training
}

func (t *Train) page() *page {
	x := t.Training
	g := x.Plan
	p := &page{title: fmt.Sprintf("%s tokens, %s", units.Count(x.Tokens), t.title())}
	p.add(fields{
		{"Time", fmt.Sprintf("%s (%s to %s): %s of %s tokens", lasting(x.Time), lasting(x.Low), lasting(x.High), plural(int(x.Steps), "step"), units.Count(x.Result.Job.Tokens()))},
		{"GPU-hours", fmt.Sprintf("%s on %s GPUs%s", digits(x.GPUHours), thousands(float64(x.GPUs)), spareText(x))},
		{"Cost", costText(x)},
		{"Energy", fmt.Sprintf("%s in the GPUs, %s at the meter", powerBill(x.GPUEnergy), powerBill(x.SiteEnergy))},
		{"MFU", mfuText(x.Result)},
		{"Goodput", goodputText(g.Goodput)},
		{"Failures", fmt.Sprintf("one every %s%s, %s in all; each costs %s until training goes on", g.Failures, idleText(g), fewText(g.Count(x.Time)), g.Downtime)},
		{"Checkpoint", fmt.Sprintf("%s in %s, every %s (%s); Young says every %s, Daly %s", x.Checkpoint, g.Checkpoint, g.Interval, plural(int(g.IntervalSteps), "step"), g.Young, g.Daly)},
		{"Data", fmt.Sprintf("the loaders must keep up %s in all", g.DataRate)},
		{"Step", fmt.Sprintf("%s, %s; %s", x.Result.StepTime, t.planText(), fitText(&x.Result.Memory))},
	})
	p.section("Where the wall time goes", lossGrid(x))
	p.section("Assumptions, set by flags or the section run: of the job", assumptionList(x.Assumed))
	defaults(p, x.Result.Job)
	p.remarks(t.notes())
	return p
}

// fewText is a number that is expected, which need not be a whole one.
func fewText(n float64) string {
	if n < 0.01 {
		return "less than 0.01"
	}
	return digits(n)
}

// idleText says of when failures are counted, where a run often waits for a node.
func idleText(g *goodput.Plan) string {
	if g.Loss("spares") <= 0.01 {
		return ""
	}
	return " outside of waits for a node"
}

// notes are those of the run, and what holds of the job whatever its plan.
func (t *Train) notes() []diag.Note {
	return slices.Concat(simpleNotes(t.Choice != nil), t.Training.Notes, t.Result.Job.Remarks())
}

func goodputText(share float64) string {
	s := percent(share) + " of the time makes progress"
	if share < capacity.LeastGoodput {
		s += ": HARDLY ANY, see the notes"
	}
	return s
}

func spareText(x *capacity.Training) string {
	switch n := x.Plan.Spares; n {
	case 0:
		return ", no spare node"
	default:
		return ", with " + plural(int(n), "spare node")
	}
}

func costText(x *capacity.Training) string {
	if x.Price == 0 {
		return "not known: no price"
	}
	s := fmt.Sprintf("%s at $%.2f per GPU-hour", dollars(x.Cost), x.Price)
	if x.PriceSource != "" {
		s += " (" + x.PriceSource + ")"
	}
	return s
}

func lossGrid(x *capacity.Training) *grid {
	g := &grid{bars: true, columns: []column{{}, {right: true}, {right: true}}}
	add := func(name string, share float64, sum bool) {
		l := line{cells: []string{name, lasting(x.Time * units.Seconds(share)), percent(share)}, sum: sum}
		if !sum {
			l.share = share
		}
		g.lines = append(g.lines, l)
	}
	add("useful steps", x.Plan.Goodput, false)
	for _, l := range x.Plan.Losses {
		if l.Share > 0 {
			add(l.Name, l.Share, false)
		}
	}
	add("wall time", 1, true)
	return g
}

func assumptionList(list []goodput.Assumption) bullets {
	var out bullets
	for _, a := range list {
		from := a.Source
		if a.Kind != "" {
			from = string(a.Kind) + ": " + from
		}
		out = append(out, [2]string{fmt.Sprintf("%s = %s (%s)", a.Key, a.Value, from), ""})
	}
	return out
}

func (t *Train) plain() any {
	x := t.Training
	g := x.Plan
	assumed := listed(x.Assumed, func(a *goodput.Assumption) ordered {
		return ordered{{"key", a.Key}, {"value", a.Value}, {"source", a.Source}, {"kind", unlessNone(a.Kind)}}
	})
	return slices.Concat(t.head("train/v1"), t.run(), ordered{
		{"losses", t.losses()}, {"mtbf_of_job_s", g.Failures}, {"failures", g.Count(x.Time)}, {"downtime_per_failure_s", g.Downtime},
		{"checkpoint_bytes", x.Checkpoint}, {"checkpoint_time_s", g.Checkpoint}, {"checkpoint_interval_s", g.Interval}, {"checkpoint_interval_steps", g.IntervalSteps},
		{"young_interval_s", g.Young}, {"daly_interval_s", g.Daly}, {"spare_nodes", g.Spares}, {"data_rate_bytes_per_s", g.DataRate}, {"fits", x.Result.Memory.Fits},
		{"assumptions", assumed}, {"notes", append(defaultNotes(defaultsOf(x.Result.Job)), t.notes()...)},
	})
}

// run is what a run takes.
func (t *Train) run() ordered {
	x := t.Training
	return ordered{{"tokens", x.Tokens}, {"steps", x.Steps}, {"step_time_s", x.Result.StepTime}, {"step_time_low_s", known(x.Result.Low)}, {"step_time_high_s", known(x.Result.High)}, {"mfu", x.Result.MFU}, {"time_s", x.Time}, {"time_low_s", x.Low}, {"time_high_s", x.High},
		{"gpus_with_spares", x.GPUs}, {"gpu_hours", x.GPUHours}, {"price_usd_per_gpu_hour", known(x.Price)}, {"cost_usd", known(x.Cost)}, {"gpu_energy_j", x.GPUEnergy}, {"site_energy_j", x.SiteEnergy},
		{"goodput", x.Plan.Goodput}}
}

// losses are the shares of the time that make no progress.
func (t *Train) losses() (out ordered) {
	for _, l := range t.Training.Plan.Losses {
		out = append(out, entry{l.Key, l.Share})
	}
	return out
}

// records is the run as one row: the columns of an estimate of its step, then its own.
func (t *Train) records() ([]string, [][]string) {
	header, rows := t.Estimate.records()
	own, of := tabled([]ordered{t.run()}, "tokens", "steps", "time_s", "time_low_s", "time_high_s", "gpus_with_spares", "gpu_hours", "price_usd_per_gpu_hour", "cost_usd", "gpu_energy_j", "site_energy_j", "goodput")
	header, row := append(header, own...), append(rows[0], of[0]...)
	for _, l := range t.losses() {
		header, row = append(header, "losses."+l.key), append(row, cell(l.value))
	}
	return header, [][]string{row}
}
