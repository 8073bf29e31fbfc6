package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// Sensitivity is what a prediction depends on.
type Sensitivity struct {
	Estimate
	Found *whatif.Sensitivity
}

// raiseTitle heads the column of a raise: "+50 %".
func raiseTitle(f float64) string { return fmt.Sprintf("+%.0f %%", 100*f) }

func (x *Sensitivity) page() *page {
	p := &page{title: x.title()}
	p.add(fields{{"Plan", x.planText()}, {"Step time", x.Result.StepTime.String() + rangeText(x.Result)}, {"Bound by", boundText(x.Result.Bound)}, {"Memory", fitText(&x.Result.Memory)}})
	g := &grid{columns: []column{{title: "lever", flex: 29, least: 16}, {title: "now", right: true, drop: 2}, {title: "elasticity", right: true}}}
	for i, f := range whatif.Raises {
		g.columns = append(g.columns, column{title: raiseTitle(f), right: true, drop: i % 2})
	}
	misfit := false
	for _, l := range x.Found.Levers {
		cells := []string{l.Name, l.Now, fmt.Sprintf("%+.2f", rounded(l.Elasticity))}
		for _, gain := range l.Gains {
			cell := "-"
			if gain.Known {
				if cell = signed(gain.Throughput); !gain.Fits {
					cell, misfit = cell+"*", true
				}
			}
			cells = append(cells, cell)
		}
		g.row(cells...)
	}
	p.section("What is worth buying", paragraph("Elasticity is d ln step / d ln x, of more and less together; the rest is what more of one thing adds to tokens/s, most first."), g)
	if x.Result.Parts.Exposed > x.Result.StepTime/20 {
		p.add(paragraph("NCCL runs its channels at rates of a fixed list, so links pay in steps."))
	}
	if slices.ContainsFunc(x.Found.Levers, func(l whatif.Lever) bool { return l.Key == "micro_batch" }) {
		p.add(paragraph(heldText(x.Result.Job)))
	}
	if misfit {
		p.add(paragraph("* does not fit in memory"))
	}
	defaults(p, x.Result.Job)
	if n := simpleNotes(x.Choice != nil); len(n) > 0 {
		p.section("Notes", noteList(n))
	}
	return p
}

// heldText says what a step is made of where micro batches are larger or smaller.
func heldText(j *strategies.Job) string {
	if whatif.HoldsBatch(j) {
		return fmt.Sprintf("Micro batch: a step has the %s of the job whatever it is.", plural(int(j.Train.GlobalBatch), "sequence"))
	}
	return "Micro batch: a step has as many of them, and as many more sequences."
}

// rounded has two decimals and no negative zero.
func rounded(v float64) float64 { return math.Round(v*100)/100 + 0 }

type plainSensitivity struct {
	Schema   string       `json:"schema"`
	Job      plainJob     `json:"job"`
	StepTime float64      `json:"step_time_s"`
	Levers   []plainLever `json:"levers"`
	Notes    []diag.Note  `json:"notes"`
}

type plainLever struct {
	Key        string      `json:"key"`
	Name       string      `json:"name"`
	Elasticity float64     `json:"step_time_elasticity"`
	Throughput float64     `json:"throughput_elasticity"`
	Gains      []plainGain `json:"gains"`
}

type plainGain struct {
	Raise      float64  `json:"raise"`
	Throughput *float64 `json:"throughput_gain"`
	Fits       bool     `json:"fits"`
}

func (x *Sensitivity) plain() any {
	out := plainSensitivity{Schema: "sensitivity/v1", Job: x.job(), StepTime: float64(x.Result.StepTime), Levers: []plainLever{}, Notes: append(defaultNotes(defaultsOf(x.Result.Job)), simpleNotes(x.Choice != nil)...)}
	for _, l := range x.Found.Levers {
		p := plainLever{Key: l.Key, Name: l.Name, Elasticity: l.Elasticity, Throughput: l.Throughput}
		for i, g := range l.Gains {
			q := plainGain{Raise: whatif.Raises[i], Fits: g.Fits}
			if g.Known {
				q.Throughput = &g.Throughput
			}
			p.Gains = append(p.Gains, q)
		}
		out.Levers = append(out.Levers, p)
	}
	return out
}

func (x *Sensitivity) records() ([]string, [][]string) {
	header := []string{"lever", "step_time_elasticity", "throughput_elasticity"}
	for _, f := range whatif.Raises {
		header = append(header, fmt.Sprintf("throughput_gain_%.0f", 100*f))
	}
	var rows [][]string
	for _, l := range x.Found.Levers {
		row := []string{l.Key, number(l.Elasticity), number(l.Throughput)}
		for _, g := range l.Gains {
			cell := ""
			if g.Known {
				cell = number(g.Throughput)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return header, rows
}
