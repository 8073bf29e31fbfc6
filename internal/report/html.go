package report

import (
	_ "embed"
	"fmt"
	"html"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// style is the look of HTML pages: of a phone, of a desktop, in the dark and on paper. A page
// is one file that needs nothing else.
//
//go:embed page.css
var style string

func (p *page) html() string {
	var b strings.Builder
	title := html.EscapeString(p.title)
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", title, style)
	if p.title != "" {
		fmt.Fprintf(&b, "<h1>%s</h1>\n", title)
	}
	for _, x := range p.blocks {
		x.html(&b)
	}
	b.WriteString("</main>\n</body>\n</html>\n")
	return b.String()
}

func (s section) html(b *strings.Builder) {
	fmt.Fprintf(b, "<h2>%s</h2>\n", html.EscapeString(s.name))
}

func (f fields) html(b *strings.Builder) {
	b.WriteString("<dl>\n")
	for _, l := range f {
		fmt.Fprintf(b, "<dt>%s</dt><dd>%s</dd>\n", html.EscapeString(l[0]), html.EscapeString(l[1]))
	}
	b.WriteString("</dl>\n")
}

func (t paragraph) html(b *strings.Builder) {
	fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(string(t)))
}

func (l bullets) html(b *strings.Builder) {
	b.WriteString("<ul>\n")
	for _, x := range l {
		b.WriteString("<li>" + html.EscapeString(x[0]))
		if x[1] != "" {
			fmt.Fprintf(b, "<p class=\"remedy\">%s</p>", html.EscapeString(x[1]))
		}
		b.WriteString("</li>\n")
	}
	b.WriteString("</ul>\n")
}

func (sources) html(*strings.Builder) {} // the table holds all columns

func (g *grid) html(b *strings.Builder) {
	b.WriteString("<div class=\"scroll\"><table>\n")
	if g.titled() {
		b.WriteString("<thead><tr>")
		for _, c := range g.columns {
			fmt.Fprintf(b, "<th%s>%s</th>", c.class(), html.EscapeString(c.title))
		}
		if g.bars {
			b.WriteString("<th></th>")
		}
		b.WriteString("</tr></thead>\n")
	}
	b.WriteString("<tbody>\n")
	for _, l := range g.lines {
		if l.sum {
			b.WriteString("<tr class=\"sum\">")
		} else {
			b.WriteString("<tr>")
		}
		for i, c := range l.cells {
			indent := ""
			if n := l.level * first(i); n > 0 {
				indent = fmt.Sprintf(" style=\"padding-left:%gem\"", 1.2*float64(n))
			}
			fmt.Fprintf(b, "<td%s%s>%s</td>", g.columns[i].class(), indent, html.EscapeString(c))
		}
		if g.bars {
			b.WriteString("<td class=\"bars\">")
			if share := min(l.share, 1); share > 0 {
				fmt.Fprintf(b, "<div style=\"width:%.2f%%\"></div>", 100*share)
			}
			b.WriteString("</td>")
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>\n</table></div>\n")
}

// class is the attribute of a column of numbers.
func (c column) class() string {
	if c.right {
		return " class=\"number\""
	}
	return ""
}

// html draws the figure.
func (c chart) html(b *strings.Builder) {
	p, err := picture(c.Figure, "") // the heading says it
	if err != nil {                 // figures that are charts have lines alone, which never fail
		panic(err)
	}
	canvas := vgsvg.New(figureWidth, figureHeight)
	p.Draw(draw.Crop(draw.New(canvas), vg.Points(4), -vg.Points(12), vg.Points(4), -vg.Points(4)))
	var svg strings.Builder
	if _, err := canvas.WriteTo(&svg); err != nil {
		panic(err)
	}
	_, drawing, _ := strings.Cut(svg.String(), "<svg") // behind the XML prologue
	b.WriteString("<figure><svg" + drawing + "</figure>\n")
}
