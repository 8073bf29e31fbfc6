package report

import (
	"fmt"
	"strconv"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
)

// Fit is how well a profile describes the samples that it was fitted to.
type Fit struct {
	Samples string // file
	Written string // file of the profile; "" when it was not written
	Base    *hardware.Profile
	Profile *hardware.Profile
	Probes  []FitProbe
	Notes   []diag.Note
}

// FitProbe is one probe; errors are fractions.
type FitProbe struct {
	Name             string
	Points           int
	Failed, Dropped  int
	Mean, P95, Worst float64
	WorstCase        string
	Base             float64
	Deviation        float64
}

func (x *Fit) page() *page {
	p := &page{title: "Profile of " + x.Profile.GPU.Name.Value + " from " + x.Samples}
	f := fields{{"Base", x.Base.Name + ": what was not measured is inherited"}}
	if x.Written != "" {
		f = append(f, [2]string{"Written", x.Written})
	} else {
		f = append(f, [2]string{"Written", "nowhere; --out FILE writes the profile"})
	}
	p.add(append(f, [2]string{"Source", x.Profile.Laws.Source}))
	p.section("Error, each case predicted without itself", x.grid())
	if g := lineGrid(x.Profile); len(g.lines) > 0 {
		p.section("Collectives as straight lines, alpha + bytes/beta", g)
	}
	p.section("Worst cases", x.worst())
	p.remarks(x.Notes)
	return p
}

func (x *Fit) grid() *grid {
	g := &grid{columns: []column{{title: "probe"}, {title: "cases", right: true}, {title: "mean", right: true}, {title: "p95", right: true}, {title: "worst", right: true}, {title: "base", right: true, drop: 2},
		{title: "range ±", right: true, drop: 1}, {title: "left out", right: true, drop: 3}}}
	for _, p := range x.Probes {
		if p.Points == 0 {
			g.row(p.Name, "-", "-", "-", "-", "-", "-", count(p.Failed+p.Dropped))
			continue
		}
		cells := []string{p.Name, integer(int64(p.Points)), "-", "-", "-", "-", "-", count(p.Failed + p.Dropped)}
		if p.Deviation > 0 {
			cells[2], cells[3], cells[4], cells[6] = percent(p.Mean), percent(p.P95), percent(p.Worst), percent(p.Deviation)
		}
		if p.Base > 0 {
			cells[5] = percent(p.Base)
		}
		g.row(cells...)
	}
	return g.withoutEmpty()
}

// count prints nothing for none.
func count(n int) string {
	if n == 0 {
		return "-"
	}
	return integer(int64(n))
}

func (x *Fit) worst() piece {
	var out bullets
	for _, p := range x.Probes {
		if p.WorstCase != "" {
			out = append(out, [2]string{fmt.Sprintf("%s: %s, off by %s", p.Name, p.WorstCase, percent(p.Worst)), ""})
		}
	}
	return out
}

// lineGrid shows the straight lines through measured collectives.
func lineGrid(h *hardware.Profile) *grid {
	g := &grid{columns: []column{{title: "collective"}, {title: "GPUs", right: true}, {title: "alpha", right: true}, {title: "beta", right: true}, {title: "R²", right: true}, {title: "mean error", right: true}, {title: "max error", right: true, drop: 1}, {title: "range ±", right: true, drop: 2}}}
	for _, c := range h.Laws.Collectives {
		if l := c.Line; l != nil {
			g.row(c.Op, integer(c.Ranks), l.Alpha.String(), l.Beta.String(), strconv.FormatFloat(l.RSquared, 'f', 4, 64), percent(l.Mean), percent(l.Max), percent(c.RelErr))
		}
	}
	return g
}

func (x *Fit) plain() any {
	lines := []ordered{}
	for _, c := range x.Profile.Laws.Collectives {
		if l := c.Line; l != nil {
			lines = append(lines, ordered{{"op", c.Op}, {"gpus", c.Ranks}, {"alpha_s", l.Alpha}, {"beta_bytes_per_s", l.Beta}, {"r_squared", l.RSquared}, {"mean_error", l.Mean}, {"max_error", l.Max}, {"relative_error", c.RelErr}})
		}
	}
	return document("fit/v1", ordered{{"samples", x.Samples}, {"profile", x.Written}, {"base", x.Base.Name}, {"device", x.Profile.GPU.Name.Value}, {"source", x.Profile.Laws.Source}, {"probes", x.probes()}, {"collectives", lines}, {"notes", append([]diag.Note{}, x.Notes...)}})
}

func (x *Fit) probes() []ordered {
	return listed(x.Probes, func(p *FitProbe) ordered {
		return ordered{{"probe", p.Name}, {"cases", p.Points}, {"failed", p.Failed}, {"left_out", p.Dropped}, {"mean_error", p.Mean}, {"p95_error", p.P95}, {"worst_error", p.Worst}, {"worst_case", p.WorstCase},
			{"base_mean_error", p.Base}, {"deviation", p.Deviation}}
	})
}

func (x *Fit) records() ([]string, [][]string) {
	return tabled(x.probes(), "probe", "cases", "failed", "left_out", "mean_error", "p95_error", "worst_error", "worst_case", "base_mean_error", "deviation")
}
