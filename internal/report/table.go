package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// column is one column of a grid.
type column struct {
	title string
	right bool // numbers
	drop  int  // when the page is too narrow, columns with the highest drop go first; 0 stays
	flex  int  // most characters of text that may be cut with an ellipsis; 0: never cut
	least int  // characters that are left of a text that is cut; 0: leastText
}

// line is one row: its cells, and how it is shown.
type line struct {
	cells []string
	level int     // indentation of the first cell
	sum   bool    // a total
	share float64 // length of the bar, of 1; used when the grid has bars
}

// grid is a table, with a bar at the end of each row when bars is set.
type grid struct {
	columns []column
	lines   []line
	bars    bool
	barDrop bool // the bars go before any column does, not after all
}

func (g *grid) row(cells ...string) { g.lines = append(g.lines, line{cells: cells}) }

// withoutEmpty drops the columns that say nothing.
func (g *grid) withoutEmpty() *grid {
	for i := len(g.columns) - 1; i > 0; i-- {
		if slices.ContainsFunc(g.lines, func(l line) bool { return l.cells[i] != "-" && l.cells[i] != "" }) {
			continue
		}
		g.columns = slices.Delete(g.columns, i, i+1)
		for k := range g.lines {
			g.lines[k].cells = slices.Delete(g.lines[k].cells, i, i+1)
		}
	}
	return g
}

// joined replaces runs of equal rows by one, with their number n in a column in front.
func (g *grid) joined() *grid {
	var lines []line
	var counts []int64
	for _, l := range g.lines {
		if n := len(lines); n > 0 && slices.Equal(lines[n-1].cells, l.cells) {
			counts[n-1]++
			continue
		}
		lines, counts = append(lines, l), append(counts, 1)
	}
	for i := range lines {
		lines[i].cells = append([]string{integer(counts[i])}, lines[i].cells...)
	}
	g.lines = lines
	g.columns = append([]column{{title: "n", right: true}}, g.columns...)
	return g
}

// Widths of the bar column.
const (
	leastBar = 8
	mostBar  = 30
)

// fit is what a grid gives up to fit a width.
type fit struct {
	hidden map[int]bool
	bar    int // width of the bars; 0: none
	cut    int // characters taken off the texts that may be cut
}

// leastText is what is left of a text that is cut.
const leastText = 24

func (c column) cutTo(cut int) int { return min(max(c.flex-cut, cmp.Or(c.least, leastText)), c.flex) }

func (g *grid) text(p *printer) {
	full := 0
	if g.bars {
		full = mostBar
	}
	f := fit{map[int]bool{}, full, 0}
	for {
		out := g.render(p, f)
		over := longest(out) - p.width()
		switch next := g.nextToDrop(f.hidden); {
		case over <= 0:
		case f.bar > leastBar:
			f.bar = max(f.bar-over, leastBar)
			continue
		case p.Whole:
		case g.cuttable(f):
			f.cut++
			continue
		case g.barDrop && f.bar > 0:
			f.bar, f.cut, full = 0, 0, 0
			continue
		case next >= 0:
			f.hidden[next] = true
			f.bar, f.cut = full, 0
			continue
		case f.bar > 0:
			f.bar, f.cut = 0, 0
			continue
		default:
			g.stacked(p, f.hidden)
			g.hiddenLine(p, f.hidden)
			return
		}
		p.WriteString(out)
		g.hiddenLine(p, f.hidden)
		return
	}
}

// hiddenLine names the columns that did not fit; those without a title go unsaid.
func (g *grid) hiddenLine(p *printer, hidden map[int]bool) {
	var titles []string
	for i, c := range g.columns {
		if hidden[i] && c.title != "" {
			titles = append(titles, c.title)
		}
	}
	if len(titles) > 0 {
		p.wrapped("  ", "not shown for want of width: "+strings.Join(titles, ", ")+"; a wider terminal, COLUMNS=160 or -o json shows them.")
	}
}

// stacked is the form for pages that are too narrow for the columns that must stay:
// each row is its first cell, with the others below by their titles. What of a first cell
// goes on in another line stands further in than these.
func (g *grid) stacked(p *printer, hidden map[int]bool) {
	label := 0
	for i, c := range g.columns[1:] {
		if !hidden[i+1] {
			label = max(label, text.StringWidthWithoutEscSequences(c.title))
		}
	}
	for _, l := range g.lines {
		indent := strings.Repeat("  ", l.level+1)
		head := l.cells[0]
		if l.sum {
			head = p.bold(head)
		}
		lines := strings.Split(text.WrapSoft(head, p.width()-len(indent)-4), "\n")
		for i, line := range lines {
			p.wrapped(indent+strings.Repeat(" ", 4*min(i, 1)), strings.TrimRight(line, " "))
		}
		for i, c := range l.cells[1:] {
			if !hidden[i+1] && c != "" {
				p.wrapped(indent+"  "+text.Pad(g.columns[i+1].title, label, ' ')+"  ", c)
			}
		}
	}
}

// cuttable reports whether a visible text can be made shorter still.
func (g *grid) cuttable(f fit) bool {
	for i, c := range g.columns {
		if c.flex > 0 && !f.hidden[i] && c.cutTo(f.cut) > c.cutTo(math.MaxInt) {
			return true
		}
	}
	return false
}

// nextToDrop is the visible column to leave out next, -1 when all must stay.
func (g *grid) nextToDrop(hidden map[int]bool) int {
	best, at := 0, -1
	for i, c := range g.columns {
		if !hidden[i] && c.drop > best {
			best, at = c.drop, i
		}
	}
	return at
}

func longest(s string) int {
	n := 0
	for l := range strings.SplitSeq(s, "\n") {
		n = max(n, text.StringWidthWithoutEscSequences(l))
	}
	return n
}

// render lays the table out as f says.
func (g *grid) render(p *printer, f fit) string {
	t := table.NewWriter()
	t.SetStyle(table.Style{Box: table.BoxStyle{PaddingLeft: "  "}, Format: table.FormatOptions{Header: text.FormatDefault}})
	t.SuppressTrailingSpaces()
	configs := make([]table.ColumnConfig, len(g.columns))
	header := make(table.Row, 0, len(g.columns)+1)
	for i, c := range g.columns {
		configs[i] = table.ColumnConfig{Number: i + 1, Hidden: f.hidden[i], AlignHeader: text.AlignLeft}
		if c.right {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
		header = append(header, p.faint(c.title))
	}
	t.SetColumnConfigs(configs)
	if g.titled() {
		t.AppendHeader(header)
	}
	for _, l := range g.lines {
		row := make(table.Row, 0, len(g.columns)+1)
		for i, c := range l.cells {
			if g.columns[i].flex > 0 && !p.Whole {
				c = text.Snip(c, g.columns[i].cutTo(f.cut)-2*l.level*first(i), "…")
			}
			c = strings.Repeat("  ", l.level*first(i)) + c
			if l.sum && c != "" {
				c = p.bold(c)
			}
			row = append(row, c)
		}
		if f.bar > 0 {
			row = append(row, barOf(l.share, f.bar))
		}
		t.AppendRow(row)
	}
	return t.Render() + "\n"
}

// titled reports whether any column has a title.
func (g *grid) titled() bool {
	return slices.ContainsFunc(g.columns, func(c column) bool { return c.title != "" })
}

// first is 1 for the first column, which carries the indentation.
func first(i int) int {
	if i == 0 {
		return 1
	}
	return 0
}

// barOf draws a share of a width in eighths of a character.
func barOf(share float64, width int) string {
	if !(share > 0) {
		return ""
	}
	eighths := int(math.Round(min(share, 1) * float64(width) * 8))
	s := strings.Repeat("█", eighths/8)
	if r := eighths % 8; r > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[r-1])
	}
	return s
}

func (g *grid) markdown(b *strings.Builder) {
	t := table.NewWriter()
	header := make(table.Row, len(g.columns))
	configs := make([]table.ColumnConfig, len(g.columns))
	for i, c := range g.columns {
		header[i] = c.title
		if configs[i].Number = i + 1; c.right {
			configs[i].Align = text.AlignRight
		}
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(header)
	for _, l := range g.lines {
		row := make(table.Row, len(l.cells))
		for i, c := range l.cells {
			if i == 0 {
				c = strings.Repeat("&nbsp;&nbsp;", l.level) + c
			}
			if l.sum && c != "" {
				c = "**" + c + "**"
			}
			row[i] = c
		}
		t.AppendRow(row)
	}
	b.WriteString("\n" + t.RenderMarkdown() + "\n")
}
