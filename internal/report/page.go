package report

import (
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/perfplan/perfplan/internal/diag"
)

// page is what a person reads: blocks from top to bottom.
type page struct {
	title  string
	blocks []piece
}

// piece is a part of a page that can print itself.
type piece interface {
	text(p *printer)
	markdown(b *strings.Builder)
	html(b *strings.Builder)
}

// section is a heading; a blank line goes before it.
type section struct{ name string }

// fields is a list of labels with values, which wrap under each other.
type fields [][2]string

// paragraph is running text.
type paragraph string

// bullets are remarks, each with an optional remedy below.
type bullets [][2]string

func (p *page) add(b ...piece)               { p.blocks = append(p.blocks, b...) }
func (p *page) section(n string, b ...piece) { p.add(append([]piece{section{n}}, b...)...) }

// remarks is a section of notes, if there are any.
func (p *page) remarks(notes []diag.Note) {
	var out bullets
	for _, n := range notes {
		out = append(out, [2]string{n.Text, n.Remedy})
	}
	if len(out) > 0 {
		p.section("Notes", out)
	}
}

// printer collects text of a width.
type printer struct {
	strings.Builder
	Style
	label int // width of the labels of all fields on the page
}

func (p *page) text(s Style) string {
	out := &printer{Style: s}
	for _, b := range p.blocks {
		if f, ok := b.(fields); ok {
			for _, l := range f {
				out.label = max(out.label, utf8.RuneCountInString(l[0]))
			}
		}
	}
	if p.title != "" {
		out.wrapped("", out.bold(p.title))
	}
	for _, b := range p.blocks {
		b.text(out)
	}
	return out.String()
}

func (p *page) markdown() string {
	var b strings.Builder
	if p.title != "" {
		b.WriteString("# " + p.title + "\n")
	}
	for _, x := range p.blocks {
		x.markdown(&b)
	}
	return b.String()
}

func (p *printer) bold(s string) string {
	if !p.Color {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

func (p *printer) faint(s string) string {
	if !p.Color {
		return s
	}
	return "\x1b[2m" + s + "\x1b[0m"
}

// wrapped writes text after a prefix, wrapped to the width and indented below it.
func (p *printer) wrapped(prefix, s string) {
	indent := text.StringWidthWithoutEscSequences(prefix)
	p.WriteString(strings.TrimRight(prefix+Beside(s, indent, p.width()), " ") + "\n")
}

// Beside breaks text that begins after an indent at a width, with its other lines below its first.
func Beside(s string, indent, width int) string {
	lines := strings.Split(text.WrapSoft(s, width-indent), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
		if i > 0 && lines[i] != "" {
			lines[i] = strings.Repeat(" ", indent) + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

func (s section) text(p *printer) {
	p.WriteByte('\n')
	p.wrapped("", p.bold(s.name))
}

func (s section) markdown(b *strings.Builder) { b.WriteString("\n## " + s.name + "\n") }

func (f fields) text(p *printer) {
	for _, l := range f {
		pad := strings.Repeat(" ", p.label-utf8.RuneCountInString(l[0])+2)
		p.wrapped("  "+l[0]+pad, l[1])
	}
}

func (f fields) markdown(b *strings.Builder) {
	b.WriteByte('\n')
	for _, l := range f {
		b.WriteString("- **" + l[0] + "**: " + l[1] + "\n")
	}
}

func (t paragraph) text(p *printer) { p.wrapped("  ", string(t)) }

func (t paragraph) markdown(b *strings.Builder) { b.WriteString("\n" + string(t) + "\n") }

func (l bullets) text(p *printer) {
	for _, x := range l {
		p.wrapped("  - ", x[0])
		if x[1] != "" {
			p.wrapped("    → ", x[1])
		}
	}
}

func (l bullets) markdown(b *strings.Builder) {
	b.WriteByte('\n')
	for _, x := range l {
		b.WriteString("- " + x[0])
		if x[1] != "" {
			b.WriteString(": " + x[1])
		}
		b.WriteByte('\n')
	}
}
