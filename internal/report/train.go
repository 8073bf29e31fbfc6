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
		{"Failures", fmt.Sprintf("one every %s%s, %s in all; each costs %s until training goes on", g.Failures, idleText(g), thousands(g.Count(x.Time)), g.Downtime)},
		{"Checkpoint", fmt.Sprintf("%s in %s, every %s (%s); Young says every %s, Daly %s", x.Checkpoint, g.Checkpoint, g.Interval, plural(int(g.IntervalSteps), "step"), g.Young, g.Daly)},
		{"Data", fmt.Sprintf("the loaders must keep up %s in all", g.DataRate)},
		{"Step", fmt.Sprintf("%s, %s; %s", x.Result.StepTime, t.planText(), fitText(&x.Result.Memory))},
	})
	p.section("Where the wall time goes", lossGrid(x))
	p.section("Assumptions, set by flags or the section run: of the job", assumptionList(x.Assumed))
	defaults(p, x.Result.Job)
	if n := t.notes(); len(n) > 0 {
		p.section("Notes", noteList(n))
	}
	return p
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

// plainTraining is the JSON form of a run.
type plainTraining struct {
	Schema string   `json:"schema"`
	Job    plainJob `json:"job"`

	Tokens     float64  `json:"tokens"`
	Steps      int64    `json:"steps"`
	StepTime   float64  `json:"step_time_s"`
	MFU        float64  `json:"mfu"`
	Time       float64  `json:"time_s"`
	Low        float64  `json:"time_low_s"`
	High       float64  `json:"time_high_s"`
	GPUs       int64    `json:"gpus_with_spares"`
	GPUHours   float64  `json:"gpu_hours"`
	Price      *float64 `json:"price_usd_per_gpu_hour"`
	Cost       *float64 `json:"cost_usd"`
	GPUEnergy  float64  `json:"gpu_energy_j"`
	SiteEnergy float64  `json:"site_energy_j"`

	Goodput       float64 `json:"goodput"`
	Losses        ordered `json:"losses"`
	Failures      float64 `json:"mtbf_of_job_s"`
	Count         float64 `json:"failures"`
	Downtime      float64 `json:"downtime_per_failure_s"`
	Bytes         float64 `json:"checkpoint_bytes"`
	Checkpoint    float64 `json:"checkpoint_time_s"`
	Interval      float64 `json:"checkpoint_interval_s"`
	IntervalSteps int64   `json:"checkpoint_interval_steps"`
	Young         float64 `json:"young_interval_s"`
	Daly          float64 `json:"daly_interval_s"`
	Spares        int64   `json:"spare_nodes"`
	DataRate      float64 `json:"data_rate_bytes_per_s"`
	Fits          bool    `json:"fits"`

	Assumptions []plainAssumption `json:"assumptions"`
	Notes       []diag.Note       `json:"notes"`
}

type plainAssumption struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
	Kind   string `json:"kind,omitempty"`
}

func (t *Train) plain() any {
	x := t.Training
	g := x.Plan
	out := plainTraining{
		Schema: "train/v1", Job: t.job(),
		Tokens: x.Tokens, Steps: x.Steps, StepTime: float64(x.Result.StepTime), MFU: x.Result.MFU, Time: float64(x.Time), Low: float64(x.Low), High: float64(x.High),
		GPUs: x.GPUs, GPUHours: x.GPUHours, Price: known(x.Price), Cost: known(x.Cost), GPUEnergy: float64(x.GPUEnergy), SiteEnergy: float64(x.SiteEnergy),
		Goodput: g.Goodput, Failures: float64(g.Failures), Count: g.Count(x.Time), Downtime: float64(g.Downtime), Bytes: float64(x.Checkpoint), Checkpoint: float64(g.Checkpoint),
		Interval: float64(g.Interval), IntervalSteps: g.IntervalSteps, Young: float64(g.Young), Daly: float64(g.Daly), Spares: g.Spares, DataRate: float64(g.DataRate),
		Fits: x.Result.Memory.Fits, Assumptions: []plainAssumption{}, Notes: append(defaultNotes(defaultsOf(x.Result.Job)), t.notes()...),
	}
	for _, l := range g.Losses {
		out.Losses = append(out.Losses, entry{l.Key, l.Share})
	}
	for _, a := range x.Assumed {
		out.Assumptions = append(out.Assumptions, plainAssumption{a.Key, a.Value, a.Source, string(a.Kind)})
	}
	return out
}

// records is the run as one row: the columns of an estimate of its step, then its own.
func (t *Train) records() ([]string, [][]string) {
	x := t.Training
	header, rows := t.Estimate.records()
	header = append(header, "tokens", "steps", "time_s", "time_low_s", "time_high_s", "gpus_with_spares", "gpu_hours", "price_usd_per_gpu_hour", "cost_usd", "gpu_energy_j", "site_energy_j", "goodput")
	row := append(rows[0], number(x.Tokens), integer(x.Steps), number(float64(x.Time)), number(float64(x.Low)), number(float64(x.High)), integer(x.GPUs),
		number(x.GPUHours), knownNumber(x.Price), knownNumber(x.Cost), number(float64(x.GPUEnergy)), number(float64(x.SiteEnergy)), number(x.Plan.Goodput))
	for _, l := range x.Plan.Losses {
		header, row = append(header, "losses."+l.Key), append(row, number(l.Share))
	}
	return header, [][]string{row}
}
