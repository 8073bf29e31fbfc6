package report

import (
	"fmt"
	"math"
	"slices"

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
	p.remarks(simpleNotes(x.Choice != nil))
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

func (x *Sensitivity) plain() any {
	levers := listed(x.Found.Levers, func(l *whatif.Lever) ordered {
		var gains []ordered
		for i, g := range l.Gains {
			var fits any
			if g.Known {
				fits = g.Fits
			}
			gains = append(gains, ordered{{"raise", whatif.Raises[i]}, {"throughput_gain", gained(&g)}, {"fits", fits}})
		}
		return ordered{{"key", l.Key}, {"name", l.Name}, {"step_time_elasticity", l.Elasticity}, {"throughput_elasticity", l.Throughput}, {"gains", gains}}
	})
	notes := append(defaultNotes(defaultsOf(x.Result.Job)), simpleNotes(x.Choice != nil)...)
	return slices.Concat(x.head("sensitivity/v1"), stepOf(x.Result), ordered{{"memory", memoryOf(&x.Result.Memory)}, {"levers", levers}, {"notes", notes}})
}

// gained is what a raise adds to throughput, nil where that is not known.
func gained(g *whatif.Gain) *float64 {
	if !g.Known {
		return nil
	}
	return &g.Throughput
}

func (x *Sensitivity) records() ([]string, [][]string) {
	header := []string{"lever", "step_time_elasticity", "throughput_elasticity"}
	for _, f := range whatif.Raises {
		header = append(header, fmt.Sprintf("throughput_gain_%.0f", 100*f))
	}
	var rows [][]string
	for _, l := range x.Found.Levers {
		row := []string{l.Key, number(l.Elasticity), number(l.Throughput)}
		for i := range l.Gains {
			row = append(row, cell(gained(&l.Gains[i])))
		}
		rows = append(rows, row)
	}
	return header, rows
}
