package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/guptarohit/asciigraph"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// trend is a few curves over one axis, which may have gaps and need not be of numbers.
type trend struct {
	title, x, y string
	names       []string  // of the places on the axis
	at          []float64 // their numbers; nil when they are none
	series      []series
}

type series struct {
	name string
	y    []float64 // by place; missing where there is none
}

var missing = math.NaN()

// add puts a value at a place of a series.
func (c *trend) add(name string, place int, y float64) {
	i := slices.IndexFunc(c.series, func(s series) bool { return s.name == name })
	if i < 0 {
		i = len(c.series)
		c.series = append(c.series, series{name, slices.Repeat([]float64{missing}, len(c.names))})
	}
	c.series[i].y[place] = y
}

// ErrNoCurve is the error of a picture in which nothing would be drawn.
var ErrNoCurve = errors.New("nothing to draw, no point fits in memory")

// shown are the series that have a value.
func (c *trend) shown() []series {
	return slices.DeleteFunc(slices.Clone(c.series), func(x series) bool {
		return !slices.ContainsFunc(x.y, func(v float64) bool { return !math.IsNaN(v) })
	})
}

// writeTrend draws a trend with characters.
func writeTrend(w io.Writer, c *trend, s Style) error {
	shown := c.shown()
	if len(shown) == 0 {
		_, err := fmt.Fprintf(w, "%s: %v\n", c.title, ErrNoCurve)
		return err
	}
	label := labels(shown)
	margin := 0
	for _, x := range shown {
		for _, v := range x.y {
			margin = max(margin, len(label(v)))
		}
	}
	width := max(s.width()-margin-6, 20)
	data := make([][]float64, len(shown))
	sets := make([]asciigraph.CharSet, len(shown))
	var legend []string
	for i, x := range shown {
		data[i] = stretched(x.y, width)
		sets[i] = asciigraph.DefaultCharSet
		if m := marks[i%len(marks)]; len(shown) > 1 {
			sets[i] = asciigraph.CreateCharSet(m)
			legend = append(legend, m+" "+x.name)
		}
	}
	text := asciigraph.PlotMany(data, asciigraph.Height(chartHeight), asciigraph.Offset(2), asciigraph.SeriesChars(sets...), asciigraph.YAxisValueFormatter(label))
	p := &printer{Style: s}
	p.wrapped("", p.bold(c.title))
	for l := range strings.Lines(text + "\n") {
		p.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
	p.WriteString(strings.Repeat(" ", max(longest(text)-width, 0)) + axisLine(c.names, width) + "\n")
	p.wrapped("  ", "over "+c.x)
	for _, l := range legend {
		p.wrapped("  ", l)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// stretched spreads the places of a series over a width, straight between them.
func stretched(y []float64, width int) []float64 {
	out := make([]float64, width)
	for i := range out {
		x := float64(i) / float64(width-1) * float64(len(y)-1)
		a := int(x)
		b := min(a+1, len(y)-1)
		switch f := x - float64(a); {
		case f == 0 || a == b:
			out[i] = y[a]
		default: // missing where an end is
			out[i] = y[a]*(1-f) + y[b]*f
		}
	}
	for k, v := range y { // a place whose neighbours are missing still shows
		if i := int(math.Round(float64(k) / float64(max(len(y)-1, 1)) * float64(width-1))); math.IsNaN(out[i]) {
			out[i] = v
		}
	}
	return out
}

// axisLine puts the names of places below a trend, as many as there is room for.
func axisLine(names []string, width int) string {
	line := []rune(strings.Repeat(" ", width))
	free := 0
	for i, n := range names {
		r := []rune(n)
		at := int(math.Round(float64(i) / float64(max(len(names)-1, 1)) * float64(width-1)))
		at = min(max(at-len(r)/2, 0), width-len(r))
		if at < free || at < 0 {
			continue
		}
		copy(line[at:], r)
		free = at + len(r) + 1
	}
	return strings.TrimRight(string(line), " ")
}

// labels returns how to print the numbers beside the lines of a trend: with as many
// decimals as tell them apart, where short ones do not.
func labels(shown []series) func(float64) string {
	least, most := math.Inf(1), math.Inf(-1)
	for _, x := range shown {
		for _, v := range x.y {
			if !math.IsNaN(v) {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	step := (most - least) / chartHeight
	if step <= 1e-9*math.Abs(most) { // a straight line
		return short
	}
	for i := range chartHeight {
		if v := least + float64(i)*step; short(v) == short(v+step) {
			decimals := max(int(math.Ceil(-math.Log10(step))), 0)
			return func(v float64) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
		}
	}
	return short
}

// short prints a number of an axis.
func short(v float64) string {
	if a := math.Abs(v); a >= 1000 {
		return units.Count(v)
	} else if a >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// writeTrendSVG draws a trend as an SVG. An axis of positive numbers that spans more than
// a factor of eight is logarithmic, and reaches from the first to the last of them, whatever
// has a value. It fails with ErrNoCurve where nothing has.
func writeTrendSVG(w io.Writer, c *trend) error {
	shown := c.shown()
	if len(shown) == 0 {
		return ErrNoCurve
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	switch {
	case c.at == nil:
		p.NominalX(c.names...)
	case slices.Min(c.at) > 0 && slices.Max(c.at) > 8*slices.Min(c.at):
		p.X.Scale, p.X.Min, p.X.Max = plot.LogScale{}, slices.Min(c.at), slices.Max(c.at)
		ticks := make(plot.ConstantTicks, len(c.at))
		for i, v := range c.at {
			ticks[i] = plot.Tick{Value: v, Label: c.names[i]}
		}
		p.X.Tick.Marker = ticks
	}
	for i, s := range shown {
		var points plotter.XYs
		for k, y := range s.y {
			x := float64(k)
			if c.at != nil {
				x = c.at[k]
			}
			if !math.IsNaN(y) {
				points = append(points, plotter.XY{X: x, Y: y})
			}
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(math.Copysign(1, a.X-b.X)) })
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("trend: %w", err)
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.5)
		dots.Color, dots.Shape = plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, dots)
		if s.name != "" {
			p.Legend.Add(s.name, line, dots)
		}
	}
	out, err := p.WriterTo(18*vg.Centimeter, 11*vg.Centimeter, "svg")
	if err != nil {
		return fmt.Errorf("trend: %w", err)
	}
	_, err = out.WriteTo(w)
	return err
}

// PlotSweep draws the objective of a sweep as an SVG.
func PlotSweep(w io.Writer, t *whatif.Table) error { return writeTrendSVG(w, sweepTrend(t)) }
