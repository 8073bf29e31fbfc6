package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func init() { program = "v0.0.0-test" } // golden files are the same whatever builds the tests

// golden compares with testdata/name, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run go test ./internal/report -update")
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs; if that is wanted, run go test ./internal/report -update\n%s", name, d)
	}
}

// TestGolden prints hand-made values with every printer in every format.
func TestGolden(t *testing.T) {
	wide, narrow := Style{Width: 100}, Style{Width: 60}
	type printer func(*bytes.Buffer, Format, Style) error
	for _, c := range []struct {
		name    string
		print   printer
		formats []Format
		narrow  bool // also at 60 columns
	}{
		{"estimate", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, oneGPU(t), f, s) }, Formats, true},
		{"pipeline", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, pipeline(t), f, s) }, Formats, true},
		{"plans", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, ranked(t), f, s) }, Formats, true},
		{"stopped", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, stopped(t), f, s) }, []Format{Text}, false},
		{"unfit", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, unfit(t), f, s) }, []Format{Text, JSON}, true},
		{"tree", func(b *bytes.Buffer, f Format, s Style) error { return WriteExplain(b, explained_(t, Tree), f, s) }, Formats, true},
		{"ops", func(b *bytes.Buffer, f Format, s Style) error { return WriteExplain(b, explained_(t, Ops), f, s) }, Formats, false},
		{"times", func(b *bytes.Buffer, f Format, s Style) error { return WriteExplain(b, explained_(t, Times), f, s) }, Formats, false},
		{"timeline", func(b *bytes.Buffer, f Format, s Style) error { return WriteExplain(b, explained_(t, Timeline), f, s) }, Formats, false},
		{"memory", func(b *bytes.Buffer, f Format, s Style) error { return WriteExplain(b, explained_(t, Memory), f, s) }, Formats, false},
		{"validate", func(b *bytes.Buffer, f Format, s Style) error { return WriteValidate(b, validation(), true, f, s) }, Formats, true},
		{"models", func(b *bytes.Buffer, f Format, s Style) error { return WriteModels(b, models(), f, s) }, Formats, false},
		{"types", func(b *bytes.Buffer, f Format, s Style) error { return WriteModelTypes(b, modelTypes(), f, s) }, Formats, false},
		{"model", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, shownModel(t), f, s) }, Formats, false},
		{"machines", func(b *bytes.Buffer, f Format, s Style) error { return WriteMachines(b, machines(t), f, s) }, Formats, false},
		{"machine", func(b *bytes.Buffer, f Format, s Style) error { return WriteMachine(b, machines(t)[0], f, s) }, Formats, true},
		{"collective", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, oneCollective(t), f, s) }, Formats, true},
		{"collectives", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, collectives(t), f, s) }, Formats, true},
		{"kernel", func(b *bytes.Buffer, f Format, s Style) error { return WriteKernels(b, prices(t)[:1], f, s) }, Formats, true},
		{"attention", func(b *bytes.Buffer, f Format, s Style) error { return WriteKernels(b, prices(t)[1:2], f, s) }, Formats, true},
		{"kernels", func(b *bytes.Buffer, f Format, s Style) error { return WriteKernels(b, prices(t)[2:], f, s) }, Formats, true},
		{"fit", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, fitted(t), f, s) }, Formats, true},
		{"diff", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, differences(t), f, s) }, Formats, true},
		{"curves", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, someCurves(t), f, s) }, Formats, true},
		{"calibration", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, calibration(), f, s) }, Formats, true},
		{"probes", func(b *bytes.Buffer, f Format, s Style) error {
			return WriteProbes(b, [][2]string{{"gemm", "matrix multiplies"}, {"copy", "copies between host and device"}}, f, s)
		}, Formats, false},
		{"waiting", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, waited(t), f, s) }, []Format{Text, JSON}, true},
		{"train", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, training(t), f, s) }, Formats, true},
		{"sweep", func(b *bytes.Buffer, f Format, s Style) error { return WriteSweep(b, swept(t), f, s) }, PlotFormats, true},
		{"halted", func(b *bytes.Buffer, f Format, s Style) error {
			x := swept(t)
			x.Points, x.Left = x.Points[:3], 1
			return WriteSweep(b, x, f, s)
		}, []Format{Text}, false},
		{"sharded", func(b *bytes.Buffer, f Format, s Style) error { return WriteSweep(b, sharded(t), f, s) }, []Format{Text, Markdown}, false},
		{"sensitivity", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, sensed(t), f, s) }, Formats, true},
		{"scale", func(b *bytes.Buffer, f Format, s Style) error { return WriteScale(b, scaled(t), f, s) }, PlotFormats, true},
		{"difference", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, (*Difference)(difference()), f, s) }, Formats, true},
		{"compare", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, compared(t), f, s) }, Formats, true},
		{"deadline", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, Deadline(clusters(t)), f, s) }, Formats, true},
		{"largest", func(b *bytes.Buffer, f Format, s Style) error { return Write(b, Largest(largests(t)), f, s) }, Formats, true},
		{"trace", func(b *bytes.Buffer, _ Format, _ Style) error { return WriteTrace(b, oneGPU(t).Result) }, []Format{JSON}, false},
	} {
		for _, f := range c.formats {
			t.Run(c.name+"/"+string(f), func(t *testing.T) {
				var b, again bytes.Buffer
				require.NoError(t, c.print(&b, f, wide))
				require.NoError(t, c.print(&again, f, wide))
				require.Equal(t, b.String(), again.String(), "two prints of one value differ")
				got := b.String()
				if f == HTML {
					wellFormed(t, got)
					require.Contains(t, got, style)
					got = strings.Replace(got, style, "", 1) // page.css is its own golden
				}
				if f != HTML || c.name == "estimate" { // whose elements are those of all
					golden(t, c.name+"."+extension[f], []byte(got))
				}
				for width := leastWidth; f == Text && width < narrow.Width; width += 5 { // no table breaks
					b.Reset()
					require.NoError(t, c.print(&b, f, Style{Width: width}))
					require.LessOrEqual(t, longest(b.String()), width)
				}
			})
		}
		if c.narrow {
			t.Run(c.name+"/narrow", func(t *testing.T) {
				var b bytes.Buffer
				require.NoError(t, c.print(&b, Text, narrow))
				require.LessOrEqual(t, longest(b.String()), narrow.Width)
				golden(t, c.name+".narrow.txt", b.Bytes())
			})
		}
	}
}

var extension = map[Format]string{Text: "txt", JSON: "json", YAML: "yaml", CSV: "csv", Markdown: "md", HTML: "html", Plot: "plot.txt"}

// TestStacked: a table whose columns do not fit loses nothing but its form.
func TestStacked(t *testing.T) {
	g := &grid{columns: []column{{title: "lever"}, {title: "a rather long title", right: true}, {title: "another long title"}, {title: "detail", drop: 1}}}
	g.lines = []line{{cells: []string{"clock", "12", "", "x"}}, {cells: []string{"memory", "7 GB/s", "per GPU", "y"}, level: 1}, {cells: []string{"what is as long as the page is wide", "3", "", ""}}}
	p := page{}
	p.section("Levers that a reader may pull", g)
	require.Equal(t, `
Levers that a reader may pull
  clock
    a rather long title  12
    memory
      a rather long title  7 GB/s
      another long title   per GPU
  what is as long as the page is
      wide
    a rather long title  3
  not shown for want of width: detail; a
  wider terminal, COLUMNS=160 or -o json
  shows them.
`, p.text(Style{Width: 40}))
}

// TestRemedies: the settings of a remedy stand in one row, with its numbers.
func TestRemedies(t *testing.T) {
	for f, want := range map[Format]string{
		Text:     "  --set plan.pp=8 --set train.recompute=full         3,900  -4.8 %     60.00\n",
		Markdown: "| --set plan.pp=8 --set train.recompute=full | 3,900 | -4.8 % | 60.00 |\n",
		HTML:     "<tr><td>--set plan.pp=8 --set train.recompute=full</td><td class=\"number\">3,900</td>",
		JSON:     "      \"set\": [\n        \"plan.pp=8\",\n        \"train.recompute=full\"\n      ],\n",
	} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, pipeline(t), f, Style{Width: 80}))
		require.Contains(t, b.String(), want)
	}
	var b bytes.Buffer
	require.NoError(t, Write(&b, pipeline(t), Text, Style{Width: leastWidth}))
	require.Contains(t, b.String(), "  --set plan.pp=8 --set\n      train.recompute=full\n    tokens/s/GPU  3,900\n")
}

// TestWhole: where nobody set a width tables lose nothing, bars and running text are those
// of the usual page; narrow pages name what they lose.
func TestWhole(t *testing.T) {
	words := strings.Repeat("word ", 30)
	g := &grid{columns: []column{{title: "name"}, {title: "text", flex: 24}, {title: "more", drop: 1}}}
	g.row("a", words+"end", "b")
	var p page
	p.add(paragraph(words), g)
	whole, narrow := p.text(Style{Whole: true}), p.text(Style{Width: 40})
	require.Contains(t, whole, "  a     "+words+"end  b\n")
	require.Contains(t, whole, "\n  word ", "wrapped")
	require.NotContains(t, whole, "not shown")
	require.Contains(t, narrow, "…")
	g.columns[1].flex = 0
	require.Contains(t, p.text(Style{Width: 40}), "not shown for want of width: more;")
	g.columns[2].title = ""
	require.NotContains(t, p.text(Style{Width: 40}), "not shown")
}

// TestColour: escape codes only where asked for, and the same text between them.
func TestColour(t *testing.T) {
	var plain, colour bytes.Buffer
	require.NoError(t, Write(&plain, pipeline(t), Text, Style{}))
	require.NoError(t, Write(&colour, pipeline(t), Text, Style{Color: true}))
	require.NotContains(t, plain.String(), "\x1b")
	require.Contains(t, colour.String(), "\x1b[1m")
	stripped := bytes.NewBufferString("")
	for i, b := 0, colour.Bytes(); i < len(b); i++ {
		if b[i] == 0x1b {
			for b[i] != 'm' {
				i++
			}
			continue
		}
		stripped.WriteByte(b[i])
	}
	require.Equal(t, plain.String(), stripped.String())
}

func TestParseFormat(t *testing.T) {
	f, err := ParseFormat("json", Formats...)
	require.NoError(t, err)
	require.Equal(t, JSON, f)
	_, err = ParseFormat("jsn", Formats...)
	require.ErrorContains(t, err, `did you mean "json"?`)
	_, err = ParseFormat("pdf", Formats...)
	require.ErrorContains(t, err, "use text, json, yaml, csv, markdown, html")
}

func TestParseStage(t *testing.T) {
	_, err := ParseStage("time")
	require.ErrorContains(t, err, `did you mean "times"?`)
}
