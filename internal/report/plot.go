package report

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/perfplan/perfplan/hardware/curves"
)

// Size of a figure in an SVG file, and of the margin around it.
const (
	figureWidth  = 6 * vg.Inch
	figureHeight = 4 * vg.Inch
	margin       = vg.Inch / 4
)

// WriteSVG draws the figures of a machine, two beside each other.
func WriteSVG(w io.Writer, c *Curves) error {
	rows := (len(c.Figures) + 1) / 2
	canvas := vgsvg.New(2*figureWidth, vg.Length(rows)*figureHeight)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	tiles := draw.Tiles{Rows: rows, Cols: 2, PadX: margin, PadY: margin, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin}
	for i := range c.Figures {
		p, err := picture(&c.Figures[i], c.Machine.Name+": "+c.Figures[i].Title)
		if err != nil {
			return err
		}
		p.Draw(tiles.At(whole, i%2, i/2))
	}
	_, err := canvas.WriteTo(w)
	return err
}

// picture is one figure; the horizontal axis is logarithmic, that of rates over
// intensity both.
func picture(f *curves.Figure, title string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = font.Points(11)
	p.X.Label.Text, p.Y.Label.Text = string(f.X), axisUnit(f)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, doubling{f.X}
	if f.Points {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min, p.Y.Tick.Marker = 0, plainTicks{}
	}
	p.Add(plotter.NewGrid())
	free := !f.Points && f.X == curves.Bytes // what costs time at any size leaves the upper left free
	p.Legend.Top, p.Legend.Left = free, free
	for i, s := range f.Series {
		xy := make(plotter.XYs, len(s.X))
		for k := range s.X {
			xy[k].X, xy[k].Y = s.X[k], s.Y[k]/scaleOf(f.Y)
		}
		if f.Points && i > 0 {
			points, err := plotter.NewScatter(xy)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			points.Color, points.Shape = plotutil.Color(i), plotutil.Shape(i)
			p.Add(points)
			p.Legend.Add(s.Name, points)
			continue
		}
		line, err := plotter.NewLine(xy)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		line.Color, line.Dashes, line.Width = plotutil.Color(i), plotutil.Dashes(i/len(plotutil.DefaultColors)), vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(s.Name, line)
	}
	return p, nil
}

// plainTicks are the usual marks without decimals that say nothing.
type plainTicks struct{ plot.DefaultTicks }

func (t plainTicks) Ticks(least, most float64) []plot.Tick {
	ticks := t.DefaultTicks.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = fmt.Sprintf("%g", ticks[i].Value)
		}
	}
	return ticks
}

// doubling marks powers of two of an axis, at most eight of them with labels.
type doubling struct{ unit curves.Unit }

func (d doubling) Ticks(least, most float64) []plot.Tick {
	first, last := math.Ceil(math.Log2(least)), math.Floor(math.Log2(most))
	step := math.Ceil((last - first + 1) / 8)
	var out []plot.Tick
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Exp2(e)}
		if math.Mod(e-first, step) == 0 {
			t.Label = axisValue(d.unit, t.Value)
		}
		out = append(out, t)
	}
	return out
}
