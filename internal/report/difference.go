package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/whatif"
)

// resultSchema names the JSON of an estimate.
const resultSchema = "result/v1"

// IsResult reports whether a document is the JSON (or YAML) of an estimate.
func IsResult(doc *yamlx.Document) bool {
	n := doc.At("schema")
	return n != nil && n.Value == resultSchema
}

// readResult is the part of the JSON of an estimate that a comparison reads.
type readResult struct {
	Schema  string             `yaml:"schema"`
	Step    float64            `yaml:"step_time_s"`
	Tokens  float64            `yaml:"tokens_per_s_per_gpu"`
	Parts   map[string]float64 `yaml:"parts_s"`
	Exposed map[string]float64 `yaml:"exposed_comm_s"`
	Memory  struct {
		Used    float64               `yaml:"device_used_bytes"`
		ByClass terms                 `yaml:"by_class"`
		Outside terms                 `yaml:"outside_bytes"`
		Rest    map[string]*yaml.Node `yaml:",rest"`
	} `yaml:"memory"`
	Rest map[string]*yaml.Node `yaml:",rest"`
}

// terms are the entries of an object of numbers in their order.
type terms []whatif.Term

// DecodeNode reads an object of numbers.
func (t *terms) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	values := map[string]float64{}
	errs := d.DecodeInto(n, &values)
	for i := 0; i+1 < len(n.Content) && len(errs) == 0; i += 2 {
		*t = append(*t, whatif.Term{Key: n.Content[i].Value, Value: values[n.Content[i].Value]})
	}
	return errs
}

// ReadResult reads the JSON of an estimate for a comparison.
func ReadResult(doc *yamlx.Document) (whatif.Side, error) {
	var r readResult
	if err := doc.Decode(&r); err != nil {
		return whatif.Side{}, err
	}
	if r.Schema != resultSchema {
		return whatif.Side{}, doc.Errorf(doc.Root, "is no result; write one with perfplan estimate JOB -o json")
	}
	if !(r.Step > 0) {
		return whatif.Side{}, doc.Errorf(doc.Root, "step_time_s: %g; a result has a step time", r.Step)
	}
	s := whatif.Side{Name: doc.Name, Step: r.Step, Tokens: r.Tokens, Used: r.Memory.Used, Memory: append(r.Memory.ByClass, r.Memory.Outside...)}
	for _, n := range timeNames {
		s.Time = append(s.Time, whatif.Term{Key: n[0], Value: r.Parts[n[0]]})
	}
	s.Time = whatif.SplitExposed(s.Time, r.Exposed)
	flatten(&s.Job, "", r.Rest["job"])
	return s, nil
}

// flatten lists the scalars of a tree by their paths.
func flatten(out *[]whatif.Setting, path string, n *yaml.Node) {
	switch {
	case n == nil:
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if path != "" {
				key = path + "." + key
			}
			flatten(out, key, n.Content[i+1])
		}
	case n.Kind == yaml.ScalarNode:
		path = strings.TrimSuffix(path, ".inherits") // of a machine that changes another, beside that one's name
		*out = append(*out, whatif.Setting{Path: path, Value: n.Value})
	default:
		text, err := yaml.Marshal(n)
		if err == nil {
			*out = append(*out, whatif.Setting{Path: path, Value: strings.TrimSpace(string(text))})
		}
	}
}

// SideOf is an estimate as a comparison sees it: through its JSON.
func SideOf(e *Estimate, name string) (whatif.Side, error) {
	var b bytes.Buffer
	if err := Write(&b, e, JSON, Style{}); err != nil {
		return whatif.Side{}, err
	}
	doc, err := yamlx.Parse(name, b.Bytes())
	if err != nil {
		return whatif.Side{}, err
	}
	return ReadResult(doc)
}

// Difference is what moved between two results.
type Difference whatif.Difference

func (d *Difference) page() *page {
	p := &page{title: d.A.Name + " → " + d.B.Name}
	from, to := units.Seconds(d.A.Step), units.Seconds(d.B.Step)
	p.add(fields{
		{"Step time", fmt.Sprintf("%s → %s (%s)", from, to, ratioText(d.A.Step, d.B.Step))},
		{"Throughput", fmt.Sprintf("%s → %s tokens/s per GPU (%s)", thousands(d.A.Tokens), thousands(d.B.Tokens), ratioText(d.A.Tokens, d.B.Tokens))},
		{"Memory", fmt.Sprintf("%s → %s GiB per GPU (%s)", gibibytes(units.Bytes(d.A.Used)), gibibytes(units.Bytes(d.B.Used)), ratioText(d.A.Used, d.B.Used))},
	})
	if len(d.Settings) > 0 {
		g := &grid{columns: []column{{title: "setting"}, {title: "from", flex: 30}, {title: "to", flex: 30}}}
		for _, c := range d.Settings {
			g.row(c.Path, orDash(c.From), orDash(c.To))
		}
		p.section("What differs", g)
	}
	if slices.ContainsFunc(d.Settings, func(c whatif.Changed) bool {
		return c.Path == "train.global_batch" || c.Path == "train.sequence_length"
	}) {
		p.add(paragraph("The steps are of different work; compare the throughput."))
	}
	seconds := func(v float64) string { return units.Seconds(v).String() }
	gib := func(v float64) string { return gibibytes(units.Bytes(v)) }
	p.section("Step time: what moved, largest first", moveGrid(d.Time, d.A.Step, d.B.Step, "step", seconds))
	p.section("Device memory in GiB: what moved, largest first", moveGrid(d.Memory, d.A.Used, d.B.Used, "used on the device", gib))
	return p
}

func ratioText(from, to float64) string {
	if from == 0 {
		return "-"
	}
	if s := signed(to/from - 1); s != "0.0 %" {
		return s
	}
	return "unchanged"
}

// moveGrid is a waterfall: every change, and the sum so far from one whole to the
// other.
func moveGrid(moves []whatif.Move, from, to float64, whole string, show func(float64) string) *grid {
	g := &grid{bars: true, columns: []column{{title: "term"}, {title: "from", right: true, drop: 1}, {title: "to", right: true, drop: 1}, {title: "change", right: true}, {title: "running", right: true}, {title: "of the whole", right: true, drop: 2}}}
	plus := func(v float64) string {
		if s := show(v); v > 0 {
			return "+" + s
		}
		return show(v)
	}
	g.lines = append(g.lines, line{cells: []string{whole + " before", "", "", "", show(from), ""}, sum: true})
	most := 0.0
	for _, m := range moves {
		most = max(most, math.Abs(m.Change()))
	}
	running := from
	for _, m := range moves {
		c := m.Change()
		if math.Abs(c) < 1e-6*math.Max(from, to) {
			continue // of no account
		}
		running += c
		g.lines = append(g.lines, line{cells: []string{termName(m.Key), show(m.From), show(m.To), plus(c), show(running), signed(c / from)}, share: math.Abs(c) / most})
	}
	g.lines = append(g.lines, line{cells: []string{whole + " after", "", "", plus(to - from), show(to), ratioText(from, to)}, sum: true})
	return g
}

func (d *Difference) plain() any {
	settings := listed(d.Settings, func(c *whatif.Changed) ordered { return ordered{{"path", c.Path}, {"from", c.From}, {"to", c.To}} })
	whole := func(from, to float64) ordered { return plainMove(&whatif.Move{From: from, To: to}) }
	return document("diff/v1", ordered{{"a", d.A.Name}, {"b", d.B.Name}, {"step_time_s", whole(d.A.Step, d.B.Step)}, {"tokens_per_s_per_gpu", whole(d.A.Tokens, d.B.Tokens)}, {"device_used_bytes", whole(d.A.Used, d.B.Used)},
		{"settings", settings}, {"time_s", listed(d.Time, plainMove)}, {"memory_bytes", listed(d.Memory, plainMove)}})
}

func plainMove(m *whatif.Move) ordered {
	return ordered{{"key", unlessNone(m.Key)}, {"from", m.From}, {"to", m.To}, {"change", m.Change()}}
}

func (d *Difference) records() ([]string, [][]string) {
	var rows []ordered
	add := func(of string, from, to float64, moves []whatif.Move) {
		for _, m := range append([]whatif.Move{{Key: "total", From: from, To: to}}, moves...) {
			rows = append(rows, ordered{{"of", of}, {"term", m.Key}, {"from", m.From}, {"to", m.To}, {"change", m.Change()}})
		}
	}
	add("step_time_s", d.A.Step, d.B.Step, d.Time)
	add("device_used_bytes", d.A.Used, d.B.Used, d.Memory)
	return tabled(rows, "of", "term", "from", "to", "change")
}
