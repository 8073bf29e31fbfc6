package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wellFormed holds a page to what every browser shows alike: each element is closed, no script
// runs and nothing is loaded.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	_, body, ok := strings.Cut(page, "<!doctype html>")
	require.True(t, ok)
	d := xml.NewDecoder(strings.NewReader(body))
	titles := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			require.NotContains(t, []string{"script", "link", "img", "iframe"}, e.Name.Local)
			for _, a := range e.Attr {
				require.NotContains(t, []string{"href", "src"}, a.Name.Local)
			}
			if e.Name.Local == "h1" {
				titles++
			}
		}
	}
	require.LessOrEqual(t, titles, 1)
}

// TestHTMLEscapes: what a user called a thing is text, whatever it looks like.
func TestHTMLEscapes(t *testing.T) {
	const name = `<script>alert("x")</script> & <b>`
	p := page{title: name}
	g := &grid{columns: []column{{title: name}, {title: "n", right: true}}, bars: true}
	g.lines = []line{{cells: []string{name, "1"}, share: 0.5}, {cells: []string{name, "2"}, level: 1, sum: true, share: 7}}
	p.section(name, fields{{name, name}}, paragraph(name), bullets{{name, name}}, g)
	out := p.html()
	wellFormed(t, out)
	require.NotContains(t, out, "<script>")
	require.Equal(t, 11, strings.Count(out, "&lt;script&gt;"), "twice the title, and each of the others once")
	require.Contains(t, out, `<div style="width:50.00%">`)
	require.Contains(t, out, `<div style="width:100.00%">`)
	require.Contains(t, out, `<tr class="sum"><td style="padding-left:1.2em">`)
	require.Contains(t, out, `<td class="number">1</td>`)
}

// TestHTMLSaysWhatTextSays: every cell and remark of the text is on the page.
func TestHTMLSaysWhatTextSays(t *testing.T) {
	p := oneGPU(t).page()
	text := p.html()
	for _, b := range p.blocks {
		if f, ok := b.(fields); ok {
			for _, l := range f {
				require.Contains(t, text, "<dt>"+l[0]+"</dt>")
			}
		}
		if g, ok := b.(*grid); ok {
			for _, l := range g.lines {
				require.Contains(t, text, l.cells[0])
			}
		}
	}
}
