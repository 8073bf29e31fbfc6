package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Format is a form of output.
type Format string

const (
	Text     Format = "text"
	JSON     Format = "json"
	YAML     Format = "yaml"
	CSV      Format = "csv"
	Markdown Format = "markdown"
	HTML     Format = "html" // a page in one file, for a browser
)

// Formats are those of what every command prints, PlotFormats those of curves.
var (
	Formats     = []Format{Text, JSON, YAML, CSV, Markdown, HTML}
	PlotFormats = append(slices.Clone(Formats), Plot)
)

// ParseFormat reads the name of one of the formats that a command has.
func ParseFormat(name string, known ...Format) (Format, error) {
	if slices.Contains(known, Format(name)) {
		return Format(name), nil
	}
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = string(f)
	}
	if near := diag.Nearest(name, names); near != "" {
		return "", diag.Errorf("%q is not a format; did you mean %q?", name, near)
	}
	return "", diag.Errorf("%q is not a format of this command; use %s", name, strings.Join(names, ", "))
}

// Style is what the reader's terminal can show.
type Style struct {
	Width int  // columns; 0 means 80
	Whole bool // tables are as wide as what is in them: nobody set the width
	Color bool // escape codes for emphasis
}

const (
	defaultWidth = 80
	leastWidth   = 40
)

func (s Style) width() int {
	if s.Width <= 0 {
		return defaultWidth
	}
	return max(s.Width, leastWidth)
}

// writeJSON writes v indented, ending in a newline.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// writeYAML writes the same keys and values as writeJSON, in the same order.
func writeYAML(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := writeJSON(&b, v); err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &n); err != nil {
		return fmt.Errorf("JSON as YAML: %w", err)
	}
	block(&n)
	text, err := yamlx.Encode(&n)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// block undoes the flow style and the quotes that YAML does not need.
func block(n *yaml.Node) {
	if n.Style &^= yaml.FlowStyle; n.Kind == yaml.ScalarNode {
		n.Style = 0
		if n.Tag == "!!float" && !strings.Contains(n.Value, ".") { // YAML 1.1 reads 1e-07 as text
			n.Value = strings.Replace(n.Value, "e", ".0e", 1)
		}
	}
	for _, c := range n.Content {
		block(c)
	}
}

// writeCSV writes a header and records.
func writeCSV(w io.Writer, header []string, records [][]string) error {
	c := csv.NewWriter(w)
	if err := c.Write(header); err != nil {
		return err
	}
	return c.WriteAll(records)
}

// Printable is what commands print: a page as text, Markdown or HTML, a plain form
// as JSON or YAML, records as CSV.
type Printable interface {
	page() *page
	plain() any
	records() (header []string, rows [][]string)
}

// Write prints x in a format.
func Write(w io.Writer, x Printable, f Format, s Style) error {
	return write(w, f, s, x.page, x.plain, x.records)
}

// write is Write of what need not be built for the format.
func write(w io.Writer, f Format, s Style, page func() *page, plain func() any, records func() (header []string, rows [][]string)) error {
	switch f {
	case JSON:
		return writeJSON(w, plain())
	case YAML:
		return writeYAML(w, plain())
	case CSV:
		header, rows := records()
		return writeCSV(w, header, rows)
	case Markdown:
		_, err := io.WriteString(w, page().markdown())
		return err
	case HTML:
		_, err := io.WriteString(w, page().html())
		return err
	}
	_, err := io.WriteString(w, page().text(s))
	return err
}

// writeList prints a table whose rows are objects, of these keys as CSV.
func writeList(w io.Writer, f Format, s Style, g *grid, rows []ordered, keys ...string) error {
	return write(w, f, s, func() *page { return &page{blocks: []piece{g}} }, func() any { return rows }, func() ([]string, [][]string) { return tabled(rows, keys...) })
}
