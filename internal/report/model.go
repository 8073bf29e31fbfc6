package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
)

// ListFormats are the formats of lists and of single models and machines.
var ListFormats = []Format{Text, JSON, YAML, CSV, Markdown}

// WriteModels prints the catalog of models.
func WriteModels(w io.Writer, list []model.Entry, f Format, s Style) error {
	g := &grid{columns: []column{{title: "model"}, {title: "parameters", right: true}, {title: "active", right: true, drop: 2}, {title: "description", flex: 60, drop: 1}}}
	type plain struct {
		Name        string `json:"name"`
		Parameters  int64  `json:"parameters"`
		Active      int64  `json:"active_parameters"`
		Description string `json:"description"`
		Source      string `json:"source"`
	}
	out := []plain{}
	var rows [][]string
	for _, e := range list {
		active := ""
		if e.Active != e.Parameters {
			active = units.Count(float64(e.Active))
		}
		g.row(e.Name, units.Count(float64(e.Parameters)), active, e.Description)
		out = append(out, plain{e.Name, e.Parameters, e.Active, e.Description, e.Source})
		rows = append(rows, []string{e.Name, integer(e.Parameters), integer(e.Active), e.Description, e.Source})
	}
	return write(w, f, s, func() *page { p := &page{}; p.add(g); return p }, func() any { return out },
		func() ([]string, [][]string) {
			return []string{"name", "parameters", "active_parameters", "description", "source"}, rows
		})
}

// Model is a model to show.
type Model struct {
	Spec     *model.Spec
	Sequence int64  // tokens, for the FLOPs of attention
	Source   string // where its values come from; may be empty
}

// WriteModel prints one model: its shape, its parameters by part, its arithmetic.
func WriteModel(w io.Writer, m *Model, f Format, s Style) error {
	return write(w, f, s, m.page, m.plain, m.records)
}

// records are the counts by part.
func (m *Model) records() ([]string, [][]string) {
	var rows [][]string
	for _, p := range m.parts() {
		rows = append(rows, []string{p.name, integer(p.count)})
	}
	return []string{"part", "parameters"}, rows
}

func (m *Model) page() *page {
	s := m.Spec
	count := s.Params()
	p := &page{title: s.Name}
	total := thousands(float64(count.Total)) + " (" + units.Count(float64(count.Total)) + ")"
	if count.Active != count.Total {
		total += ", " + units.Count(float64(count.Active)) + " active per token"
	}
	f := fields{{"Parameters", total}, {"Layers", layersText(s)}, {"Attention", attentionText(s)}, {"MLP", mlpText(s)}, {"Vocabulary", vocabText(s)}}
	if m.Source != "" {
		f = append(f, [2]string{"Source", m.Source})
	}
	p.add(f)
	p.section("Parameters by part", m.parameters())
	p.section(fmt.Sprintf("Model FLOPs per token of a training step, at %s tokens", thousands(float64(m.Sequence))), m.flops(),
		paragraph("Three times the forward pass, no recomputation; a multiply-add is two. Causal attention is counted half, in full in the last column."))
	p.section("Parameters of a layer", m.tensors())
	return p
}

func layersText(s *model.Spec) string {
	text := fmt.Sprintf("%d of width %s", s.Layers, thousands(float64(s.Hidden)))
	if dense, sparse := kindCounts(s); dense > 0 && sparse > 0 {
		text += fmt.Sprintf(", %d dense, %d with experts", dense, sparse)
	}
	if s.MTPLayers > 0 {
		text += fmt.Sprintf(", %d for multi-token prediction", s.MTPLayers)
	}
	return text
}

// kindCounts counts layers with the dense MLP and with experts.
func kindCounts(s *model.Spec) (dense, sparse int64) {
	for i := range s.Layers {
		if s.Kind(i).MoE {
			sparse++
		} else {
			dense++
		}
	}
	return dense, sparse
}

func attentionText(s *model.Spec) string {
	text := fmt.Sprintf("%d heads of %d", s.Heads, s.HeadDim)
	switch {
	case s.MLA != nil:
		text += fmt.Sprintf(", latent (MLA): keys and values of rank %d", s.MLA.KVLora)
	case s.KVHeads != s.Heads:
		text += fmt.Sprintf(", %d key/value heads", s.KVHeads)
	}
	if s.Window > 0 {
		n := 0
		for _, w := range s.Windows {
			if w {
				n++
			}
		}
		text += fmt.Sprintf(", window %d in %d layers", s.Window, n)
	}
	return text + ", position " + string(s.Position)
}

func mlpText(s *model.Spec) string {
	kind := "plain"
	if s.Gated {
		kind = "gated"
	}
	text := fmt.Sprintf("%s %s", kind, s.Activation)
	if dense, _ := kindCounts(s); dense > 0 {
		text += ", width " + thousands(float64(s.FFN))
	}
	if m := s.MoE; m != nil {
		text += fmt.Sprintf(", %d experts of width %s, %d per token", m.Experts, thousands(float64(m.FFN)), m.TopK)
		if m.Shared > 0 {
			text += fmt.Sprintf(", %d shared", m.Shared)
		}
	}
	return text
}

func vocabText(s *model.Spec) string {
	text := thousands(float64(s.Vocab))
	if s.Tied {
		text += ", embedding and head tied"
	}
	if s.MaxPositions > 0 {
		text += ", up to " + thousands(float64(s.MaxPositions)) + " positions"
	}
	return text
}

// modelPart is a share of the parameters.
type modelPart struct {
	name  string
	count int64
}

// parts are the counts by part and their total, which they add up to.
func (m *Model) parts() []modelPart {
	s, c := m.Spec, m.Spec.Params()
	var out []modelPart
	add := func(name string, n int64) {
		if n > 0 {
			out = append(out, modelPart{name, n})
		}
	}
	dense, sparse := kindCounts(s)
	add("embedding", c.Embedding)
	if dense > 0 {
		add(fmt.Sprintf("%s of %s", plural(int(dense), "dense layer"), thousands(float64(c.DenseLayer))), dense*c.DenseLayer)
	}
	if sparse > 0 {
		add("routed experts", c.Experts)
		add(plural(int(sparse), "layer")+" without them", sparse*c.MoELayer-c.Experts)
	}
	add("head", c.Head)
	add("norms outside layers", c.Total-c.Embedding-c.Head-dense*c.DenseLayer-sparse*c.MoELayer)
	return append(out, modelPart{"total", c.Total})
}

func (m *Model) parameters() *grid {
	g := &grid{bars: true, columns: []column{{title: "part"}, {title: "parameters", right: true}, {title: "share", right: true, drop: 1}}}
	list := m.parts()
	total := float64(list[len(list)-1].count)
	for i, p := range list {
		share := float64(p.count) / total
		l := line{cells: []string{p.name, thousands(float64(p.count)), percent(share)}, share: share}
		if i == len(list)-1 {
			l.sum, l.share = true, 0
		}
		g.lines = append(g.lines, l)
	}
	return g
}

// flopParts are the classes of model FLOPs of one token of a step.
func (m *Model) flopParts() []struct {
	name         string
	causal, full units.FLOPs
} {
	h := m.Spec.ForwardFLOPs(m.Sequence, m.Sequence, true)
	w := m.Spec.ForwardFLOPs(m.Sequence, m.Sequence, false)
	per := func(f units.FLOPs) units.FLOPs { return 3 * f / units.FLOPs(m.Sequence) }
	return []struct {
		name         string
		causal, full units.FLOPs
	}{
		{"projections", per(h.Projections), per(w.Projections)}, {"attention", per(h.Attention), per(w.Attention)}, {"mlp", per(h.MLP), per(w.MLP)},
		{"router", per(h.Router), per(w.Router)}, {"head", per(h.Head), per(w.Head)}, {"total", per(h.Total()), per(w.Total())},
	}
}

func (m *Model) flops() *grid {
	g := &grid{columns: []column{{title: "part"}, {title: "FLOPs", right: true}, {title: "attention in full", right: true}}}
	for _, p := range m.flopParts() {
		if p.causal > 0 {
			g.lines = append(g.lines, line{cells: []string{p.name, p.causal.String(), p.full.String()}, sum: p.name == "total"})
		}
	}
	return g
}

// kindsOf are the distinct kinds of layer that differ in parameters.
func kindsOf(s *model.Spec) []model.LayerKind {
	var out []model.LayerKind
	dense, sparse := kindCounts(s)
	if dense > 0 {
		out = append(out, model.LayerKind{})
	}
	if sparse > 0 {
		out = append(out, model.LayerKind{MoE: true})
	}
	return out
}

func (m *Model) tensors() *grid {
	g := &grid{columns: []column{{title: "layer", drop: 1}, {title: "parameter", flex: 40}, {title: "shape", right: true}, {title: "elements", right: true}}}
	all := m.Spec.Tensors()
	for _, k := range kindsOf(m.Spec) {
		name := "dense"
		if k.MoE {
			name = "experts"
		}
		for _, t := range all.Layer(k) {
			g.row(name, t.Name, shapeText(t.Shape), thousands(float64(t.Size())))
		}
	}
	return g
}

func shapeText(dims []int64) string {
	parts := make([]string, len(dims))
	for i, d := range dims {
		parts[i] = integer(d)
	}
	return strings.Join(parts, " × ")
}

func (m *Model) plain() any {
	s, c := m.Spec, m.Spec.Params()
	type tensor struct {
		Name  string  `json:"name"`
		Shape []int64 `json:"shape"`
	}
	var flops ordered
	for _, p := range m.flopParts() {
		flops = append(flops, entry{p.name, float64(p.causal)})
	}
	full := m.flopParts()
	layers := ordered{}
	for _, k := range kindsOf(s) {
		name, list := "dense", []tensor{}
		if k.MoE {
			name = "experts"
		}
		for _, t := range s.Tensors().Layer(k) {
			list = append(list, tensor{t.Name, t.Shape})
		}
		layers = append(layers, entry{name, list})
	}
	return ordered{
		{"schema", "model-report/v1"}, {"name", s.Name}, {"model_type", s.ModelType}, {"source", m.Source},
		{"parameters", ordered{{"total", c.Total}, {"active", c.Active}, {"embedding", c.Embedding}, {"head", c.Head}, {"dense_layer", c.DenseLayer},
			{"moe_layer", c.MoELayer}, {"experts", c.Experts}, {"multi_token_prediction", c.MTP}}},
		{"hidden_size", s.Hidden}, {"num_hidden_layers", s.Layers}, {"num_attention_heads", s.Heads}, {"num_key_value_heads", s.KVHeads}, {"head_dim", s.HeadDim},
		{"intermediate_size", s.FFN}, {"vocab_size", s.Vocab},
		{"sequence_length", m.Sequence}, {"model_flops_per_token", flops}, {"model_flops_per_token_full_attention", float64(full[len(full)-1].full)},
		{"layers", layers},
	}
}
