package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/guptarohit/asciigraph"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/curves"
	"github.com/perfplan/perfplan/internal/units"
)

// Curves are the figures of a machine.
type Curves struct {
	Machine *hardware.Profile
	Figures []curves.Figure
}

func (c *Curves) page() *page {
	p := &page{title: c.Machine.Name + ": " + c.Machine.Title}
	for i := range c.Figures {
		if f := &c.Figures[i]; !f.Points {
			p.section(capital(f.Title)+", "+axisUnit(f), chart{f})
		}
	}
	return p
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// chart is a figure in characters.
type chart struct{ *curves.Figure }

// marks draw the series, one each.
var marks = []string{"●", "○", "▲", "△", "■", "□"}

// Size of the plots.
const (
	chartHeight = 12
	chartLabels = 12 // columns left of the axis and right of the last label
)

func (c chart) text(p *printer) { p.WriteString(c.plot(p.width())) }

func (c chart) markdown(b *strings.Builder) {
	b.WriteString("\n```text\n" + c.plot(defaultWidth) + "```\n")
}

func (c chart) plot(width int) string {
	y := make([][]float64, len(c.Series))
	var sets []asciigraph.CharSet
	var names []string
	for i, s := range c.Series {
		for _, v := range s.Y {
			y[i] = append(y[i], v/scaleOf(c.Y))
		}
		mark := marks[i%len(marks)]
		sets, names = append(sets, asciigraph.CreateCharSet(mark)), append(names, mark+" "+s.Name)
	}
	x := c.Series[0].X
	plot := asciigraph.PlotMany(y, asciigraph.Height(chartHeight), asciigraph.Width(width-chartLabels), asciigraph.LowerBound(0), asciigraph.SeriesChars(sets...), asciigraph.Precision(precision(y)),
		asciigraph.XAxisRange(0, float64(len(x)-1)), asciigraph.XAxisTickCount(5), asciigraph.XAxisValueFormatter(func(v float64) string {
			return axisValue(c.X, x[int(math.Round(v))])
		}))
	var b strings.Builder
	for line := range strings.Lines(plot + "\n") {
		b.WriteString("  " + strings.TrimRight(line, " \n") + "\n")
	}
	column := 0
	for i, name := range names {
		switch n := utf8.RuneCountInString(name); {
		case i > 0 && column+3+n > width-2:
			b.WriteString("\n  ")
			column = n
		case i > 0:
			b.WriteString("   ")
			column += 3 + n
		default:
			b.WriteString("  ")
			column = n
		}
		b.WriteString(name)
	}
	b.WriteString("\n")
	return b.String()
}

// precision is the decimals that tell the labels of the axis apart.
func precision(y [][]float64) uint {
	most := 0.0
	for _, s := range y {
		for _, v := range s {
			most = max(most, v)
		}
	}
	if most < chartHeight {
		return 2
	}
	return 0
}

// scaleOf is the size of the unit that a figure is labelled in.
func scaleOf(u curves.Unit) float64 {
	switch u {
	case curves.FLOPRate:
		return 1e12
	case curves.Rate:
		return 1e9
	}
	return 1
}

func axisUnit(f *curves.Figure) string {
	switch f.Y {
	case curves.FLOPRate:
		return "TFLOP/s"
	case curves.Rate:
		return "GB/s"
	}
	return string(f.Y)
}

// axisValue is a value of the horizontal axis.
func axisValue(u curves.Unit, v float64) string {
	if u != curves.Bytes {
		return fmt.Sprintf("%.0f", v)
	}
	for _, x := range []struct {
		name string
		unit units.Bytes
	}{{"GiB", units.GiB}, {"MiB", units.MiB}, {"KiB", units.KiB}} {
		if units.Bytes(v) >= x.unit {
			return fmt.Sprintf("%.3g %s", v/float64(x.unit), x.name)
		}
	}
	return fmt.Sprintf("%.0f B", v)
}

// key names an axis in JSON, with its unit.
func (c chart) key(u curves.Unit) string {
	switch u {
	case curves.FLOPRate:
		return "flops_per_s"
	case curves.Rate:
		return "bytes_per_s"
	case curves.Intensity:
		return "flops_per_byte"
	}
	return string(u)
}

func (c *Curves) plain() any {
	figures := []ordered{}
	for i := range c.Figures {
		f := chart{&c.Figures[i]}
		series := []ordered{}
		for _, s := range f.Series {
			series = append(series, ordered{{"name", s.Name}, {f.key(f.X), s.X}, {f.key(f.Y), s.Y}})
		}
		figures = append(figures, ordered{{"figure", f.Key}, {"title", f.Title}, {"series", series}})
	}
	return document("curves/v1", ordered{{"hardware", c.Machine.Name}, {"figures", figures}})
}

func (c *Curves) records() ([]string, [][]string) {
	var rows [][]string
	for i := range c.Figures {
		f := chart{&c.Figures[i]}
		for _, s := range f.Series {
			for k := range s.X {
				rows = append(rows, []string{f.Key, s.Name, f.key(f.X), number(s.X[k]), f.key(f.Y), number(s.Y[k])})
			}
		}
	}
	return []string{"figure", "series", "x_unit", "x", "y_unit", "y"}, rows
}
