package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// Calibration is what a calibration did.
type Calibration struct {
	File        *sample.File
	Samples     string // name of the samples file
	Profile     string // name of the profile; "" when none was written
	New, Failed int
	Verified    []string
	Wrong       []string
	Interrupted bool
	Seconds     float64
	Notes       []diag.Note
}

func (c *Calibration) page() *page {
	h := c.File.Header
	p := &page{title: fmt.Sprintf("%s, %s", h.Device, plural(h.GPUs, "GPU"))}
	about := fields{{"Measured", fmt.Sprintf("%s in %s, %d of them now", plural(len(c.File.Samples), "case"), units.Seconds(c.Seconds), c.New)}}
	for _, v := range [][2]string{{"Driver", h.Driver}, {"CUDA", h.CUDA}, {"cuBLASLt", h.CuBLASLt}, {"NCCL", h.NCCL}, {"cuDNN", h.CuDNN}} {
		if v[1] != "" {
			about = append(about, v)
		}
	}
	if len(c.Verified) > 0 {
		about = append(about, [2]string{"Results right", strings.Join(c.Verified, ", ")})
	}
	about = append(about, [2]string{"Samples", c.Samples})
	if c.Profile != "" {
		about = append(about, [2]string{"Profile", c.Profile})
	}
	p.add(about)
	g := &grid{columns: []column{{title: "probe"}, {title: "cases", right: true}, {title: "failed", right: true}, {title: "repeats", right: true, drop: 3}, {title: "outliers", right: true, drop: 2},
		{title: "± time", right: true}, {title: "SM clock, MHz", right: true}, {title: "most W", right: true}, {title: "throttled", right: true, drop: 1}}}
	for _, x := range c.File.Summarize() {
		clock := "-"
		if x.ClockHigh > 0 {
			clock = fmt.Sprintf("%.0f to %.0f", x.ClockLow/1e6, x.ClockHigh/1e6)
		}
		g.row(x.Probe, integer(int64(x.Cases)), integer(int64(x.Failed)), integer(int64(x.Repeats)), integer(int64(x.Outliers)), percent(x.Spread), clock, fmt.Sprintf("%.0f", x.PowerHigh), integer(int64(x.Throttled)))
	}
	p.section("Probes", g)
	best := &grid{columns: []column{{title: "best of"}, {title: "rate or time", right: true}, {title: "at", flex: 60, drop: 1}}}
	for _, b := range c.File.BestRates() {
		best.row(b.What, rateText(b), b.At)
	}
	if len(best.lines) > 0 {
		p.section("Reached", best)
	}
	var notes bullets
	for _, w := range c.Wrong {
		notes = append(notes, [2]string{"wrong result, not measured: " + w, ""})
	}
	for _, n := range c.Notes {
		notes = append(notes, [2]string{n.Text, n.Remedy})
	}
	if c.Interrupted {
		notes = append(notes, [2]string{"interrupted; what was measured is kept", "go on with --resume"})
	}
	if len(notes) > 0 {
		p.section("Notes", notes)
	}
	return p
}

func rateText(b sample.Best) string {
	switch b.Unit {
	case "FLOP/s":
		return units.FLOPRate(b.Rate).String()
	case "B/s":
		return units.Rate(b.Rate).String()
	}
	return units.Seconds(b.Rate).String()
}

func (c *Calibration) plain() any {
	return document("calibration/v1", ordered{{"header", c.File.Header}, {"samples_file", c.Samples}, {"profile", c.Profile}, {"new", c.New}, {"failed", c.Failed}, {"verified", c.Verified}, {"wrong", c.Wrong},
		{"interrupted", c.Interrupted}, {"elapsed_s", c.Seconds}, {"probes", c.File.Summarize()}, {"best", c.File.BestRates()}, {"notes", append([]diag.Note{}, c.Notes...)}})
}

// records has every sample.
func (c *Calibration) records() ([]string, [][]string) {
	var rows [][]string
	for _, s := range c.File.Samples {
		rows = append(rows, []string{s.Key(), number(s.Seconds), number(s.Low), number(s.High), integer(int64(s.Repeats)), integer(int64(s.Outliers)), number(s.ClockHz), number(s.PowerW), number(s.TempC), s.Throttled, s.Mode, s.Error})
	}
	return []string{"case", "seconds", "low_s", "high_s", "repeats", "outliers", "clock_hz", "power_w", "temp_c", "throttled", "mode", "error"}, rows
}

// WriteProbes prints the probes of calibration: name and what it measures.
func WriteProbes(w io.Writer, probes [][2]string, f Format, s Style) error {
	list := []ordered{}
	g := &grid{columns: []column{{title: "probe"}, {title: "measures", flex: 60}}}
	for _, p := range probes {
		list = append(list, ordered{{"probe", p[0]}, {"measures", p[1]}})
		g.row(p[0], p[1])
	}
	return writeList(w, f, s, g, list, "probe", "measures")
}
