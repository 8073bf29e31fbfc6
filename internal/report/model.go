package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
)

// WriteModels prints the catalog of models.
func WriteModels(w io.Writer, list []model.Entry, f Format, s Style) error {
	g := &grid{columns: []column{{title: "model"}, {title: "parameters", right: true}, {title: "active", right: true, drop: 2}, {title: "description", flex: 60, drop: 1}}}
	rows := []ordered{}
	for _, e := range list {
		active := ""
		if e.Sparse {
			active = units.Count(float64(e.Active))
		}
		g.row(e.Name, units.Count(float64(e.Parameters)), active, e.Description)
		rows = append(rows, ordered{{"name", e.Name}, {"parameters", e.Parameters}, {"active_parameters", e.Active}, {"description", e.Description}, {"source", e.Source}})
	}
	return writeList(w, f, s, g, rows, "name", "parameters", "active_parameters", "description", "source")
}

// WriteModelTypes lists the model_types that are read.
func WriteModelTypes(w io.Writer, list []model.Type, f Format, s Style) error {
	g := &grid{columns: []column{{title: "model_type"}, {title: "models of the catalog", flex: 60}}}
	rows := []ordered{}
	for _, t := range list {
		names := strings.Join(t.Models, ", ")
		g.row(t.Name, names)
		rows = append(rows, ordered{{"model_type", t.Name}, {"models", append([]string{}, t.Models...)}})
	}
	return writeList(w, f, s, g, rows, "model_type", "models")
}

// Model is a model to show.
type Model struct {
	Spec     *model.Spec
	Sequence int64  // tokens, for the FLOPs of attention
	Source   string // where its values come from; may be empty
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
	if count.Sparse() {
		total += ", " + units.Count(float64(count.Active)) + " active per token"
	}
	f := fields{{"Parameters", total}, {"Layers", layersText(s)}, {"Attention", attentionText(s)}, {"MLP", mlpText(s)}, {"Vocabulary", vocabText(s)}}
	if s.Encoder != nil {
		f = append(f, [2]string{"Encoder", encoderText(s.Encoder)})
	}
	if s.Vision != nil {
		f = append(f, [2]string{"Images", visionText(s.Vision)})
	}
	if s.TextOnly {
		f = append(f, [2]string{"Left out", "what the file has beside text_config: encoders of images"})
	}
	if s.Headless != "" {
		f = append(f, [2]string{"Taken as", "a language model, with its output layer, though it is a " + s.Headless + " (architectures)"})
	}
	if m.Source != "" {
		f = append(f, [2]string{"Source", m.Source})
	}
	p.add(f)
	note := "Three times the forward pass, no recomputation; a multiply-add is two. Causal attention is counted half, in full in the last column."
	if s.Indexer != nil {
		note += " An indexer's scores are counted once."
	}
	if s.Vision != nil {
		note += " What makes tokens of images is not in it."
	}
	if s.Encoder != nil {
		note += " The encoder reads as many tokens as the decoder; a token is one of either."
	}
	p.section("Parameters by part", m.parameters())
	p.section(fmt.Sprintf("Model FLOPs per token of a training step, at %s tokens", thousands(float64(m.Sequence))), m.flops(),
		paragraph(note))
	p.section("Parameters of a layer", m.tensors())
	return p
}

func layersText(s *model.Spec) string {
	text := fmt.Sprintf("%d of width %s", s.Layers, thousands(float64(s.Hidden)))
	if s.Streams > 1 {
		text += fmt.Sprintf(" in %d residual streams", s.Streams)
	}
	if kinds := s.Kinds(); len(kinds) > 1 {
		for _, k := range kinds {
			kind, _ := kindNames(s, k.LayerKind)
			text += fmt.Sprintf(", %d %s", k.Layers, kind)
		}
	}
	if s.MTPLayers > 0 {
		text += fmt.Sprintf(", %d for multi-token prediction", s.MTPLayers)
	}
	return text
}

// kindNames are a kind of layer in a sentence and at the head of a row.
func kindNames(s *model.Spec, k model.LayerKind) (text, row string) {
	switch {
	case k.Mixer == model.MambaMixer:
		return "Mamba", "mamba"
	case k.Mixer == model.PairedMixer:
		return "attention beside Mamba", "paired"
	case k.Mixer == model.DeltaMixer:
		return "gated delta", "delta"
	case k.Mixer == model.ShortMixer && k.MoE:
		return "short convolution with experts", "conv experts"
	case k.Mixer == model.ShortMixer:
		return "short convolution", "conv"
	case k.NoMLP || k.Mixer == model.AttentionMixer && s.Mixers != nil:
		return "attention", "attention"
	case s.Compress != nil && k.Ratio > 0:
		return fmt.Sprintf("with experts and sums of %d", k.Ratio), fmt.Sprintf("sums of %d", k.Ratio)
	case s.Compress != nil:
		return "with experts and a window alone", "window"
	case k.Global && k.Borrows:
		return "with global attention, keys and values borrowed", "borrowing global"
	case k.Borrows:
		return "with keys and values borrowed", "borrowing"
	case k.Follows && k.MoE:
		return "with experts and keys picked before", "following"
	case k.Follows:
		return "dense with keys picked before", "following dense"
	case k.MoE && k.Global:
		return "with experts and global attention", "global"
	case k.MoE:
		return "with experts", "experts"
	case k.Mixer == model.NoMixer:
		return "MLP", "mlp"
	case k.Global:
		return "with global attention", "global"
	case k.Bare:
		return "dense without a first norm", "bare"
	}
	return "dense", "dense"
}

func attentionText(s *model.Spec) string {
	text := fmt.Sprintf("%d heads of %d", s.Heads, s.HeadDim)
	switch c := s.Compress; {
	case c != nil:
		text += fmt.Sprintf(" in %d groups, one key and value for all, window %d", c.Groups, c.Window)
		if x := s.Indexer; x != nil {
			text += fmt.Sprintf(", of sums of %d tokens %s that an indexer of %d heads of %d picks", c.Picked, thousands(float64(x.TopK)), x.Heads, x.HeadDim)
		}
		return text + ", position " + string(s.Position)
	case s.MLA != nil:
		text += fmt.Sprintf(", latent (MLA): keys and values of rank %d", s.MLA.KVLora)
	case s.KVHeads != s.Heads:
		text += fmt.Sprintf(", %d key/value heads", s.KVHeads)
	}
	marked := func(layers []bool) (n int) {
		for _, is := range layers {
			if is {
				n++
			}
		}
		return
	}
	if g := s.Global; g != nil {
		text += fmt.Sprintf(", or %d of %d", g.KVHeads, g.HeadDim)
	}
	if x := s.Indexer; x != nil {
		text += fmt.Sprintf(", to %s keys that an indexer of %d heads of %d picks", thousands(float64(x.TopK)), x.Heads, x.HeadDim)
		if n := marked(x.Follow); n > 0 {
			text += fmt.Sprintf(" in %d layers", int(s.Layers)-n)
		}
	}
	if s.Bidirectional {
		text += ", of all tokens to all others"
	}
	if s.Window > 0 {
		text += fmt.Sprintf(", window %d in %d layers", s.Window, marked(s.Windows))
	}
	text += ", position " + string(s.Position)
	if n := marked(s.NoRope); n > 0 {
		text += fmt.Sprintf(", none in %d layers", n)
	}
	return text
}

func mlpText(s *model.Spec) string {
	kind := "plain"
	if s.Gated {
		kind = "gated"
	}
	text := fmt.Sprintf("%s %s", kind, s.Activation)
	if slices.ContainsFunc(s.Kinds(), func(k model.KindCount) bool { return !k.MoE && !k.NoMLP }) {
		text += ", width " + thousands(float64(s.FFN))
	}
	if m := s.MoE; m != nil {
		text += fmt.Sprintf(", %d experts of width %s, %d per token", m.Experts, thousands(float64(m.FFN)), m.TopK)
		if m.Latent > 0 {
			text += ", which read and write a width of " + thousands(float64(m.Latent))
		}
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

// encoderText describes an encoder of text.
func encoderText(s *model.Spec) string {
	return fmt.Sprintf("%d layers of width %s, %s; MLP %s; of one table of words with the decoder, whose layers have attention to what it makes", s.Layers, thousands(float64(s.Hidden)), attentionText(s), mlpText(s))
}

func visionText(v *model.Vision) string {
	text := fmt.Sprintf("encoder (%s) of %d layers of width %s, patches of %d pixels", v.Encoder.ModelType, v.Encoder.Layers, thousands(float64(v.Encoder.Hidden)), v.Patch)
	if v.Merge > 1 {
		text += fmt.Sprintf(", %d × %d of them a token", v.Merge, v.Merge)
	}
	if v.Size > 0 {
		text += fmt.Sprintf(", images of %d × %d", v.Size, v.Size)
	}
	return text
}

// modelPart is a share of the parameters.
type modelPart struct {
	name  string
	count int64
}

const routed = "routed experts"

// parts are the counts by part and their total, which they add up to.
func (m *Model) parts() []modelPart {
	c := m.Spec.Params()
	var out []modelPart
	add := func(name string, n int64) {
		if n > 0 {
			out = append(out, modelPart{name, n})
		}
	}
	add("embedding", c.Embedding)
	outside, sparse := c.Total-c.Embedding-c.Head-c.Vision-c.Encoder, int64(0)
	for _, k := range c.Layers {
		if k.MoE {
			sparse += k.Layers
		}
	}
	for _, k := range c.Layers {
		n := k.Layers * k.Params
		outside -= n
		kind, row := kindNames(m.Spec, k.LayerKind)
		if k.Global || k.Borrows || k.Follows || m.Spec.Compress != nil {
			kind = row
		}
		if !k.MoE {
			add(fmt.Sprintf("%s of %s", plural(int(k.Layers), kind+" layer"), thousands(float64(k.Params))), n)
			continue
		}
		experts := c.Experts / sparse * k.Layers // as many in each
		if k.Layers == sparse || m.Spec.Global != nil && !k.Global {
			kind = ""
		}
		if !slices.ContainsFunc(out, func(p modelPart) bool { return p.name == routed }) {
			add(routed, c.Experts)
		}
		add(plural(int(k.Layers), strings.TrimSpace(kind+" layer"))+" without them", n-experts)
	}
	add("encoder", c.Encoder)
	add("head", c.Head)
	label := "norms outside layers"
	if m.Spec.PerLayer != nil || m.Spec.HeadDense {
		label = "norms and projection outside layers"
	}
	add(label, outside)
	add("encoder of images and projector", c.Vision)
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
	tokens := units.FLOPs(m.Sequence + m.Spec.SourceOf(m.Sequence))
	per := func(f units.FLOPs) units.FLOPs { return 3 * f / tokens }
	once := func(f model.FLOPBreakdown) units.FLOPs { return f.Indexer / units.FLOPs(m.Sequence) } // whose gradient is not counted
	total := func(f model.FLOPBreakdown) units.FLOPs { return per(f.Total()-f.Indexer) + once(f) }
	return []struct {
		name         string
		causal, full units.FLOPs
	}{
		{"projections", per(h.Projections), per(w.Projections)}, {"attention", per(h.Attention), per(w.Attention)}, {"indexer", once(h), once(w)}, {"scan", per(h.Scan), per(w.Scan)}, {"mlp", per(h.MLP), per(w.MLP)},
		{"encoder", per(h.Encoder), per(w.Encoder)}, {"router", per(h.Router), per(w.Router)}, {"head", per(h.Head), per(w.Head)}, {"total", total(h), total(w)},
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

func (m *Model) tensors() *grid {
	g := &grid{columns: []column{{title: "layer", drop: 1}, {title: "parameter", flex: 40}, {title: "shape", right: true}, {title: "elements", right: true}}}
	all := m.Spec.Tensors()
	for _, k := range m.Spec.Kinds() {
		_, name := kindNames(m.Spec, k.LayerKind)
		for _, t := range all.Layer(k.LayerKind) {
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
	one := map[bool]int64{} // parameters of a layer, with experts or without
	for _, k := range c.Layers {
		list := []tensor{}
		for _, t := range s.Tensors().Layer(k.LayerKind) {
			list = append(list, tensor{t.Name, t.Shape})
		}
		_, name := kindNames(s, k.LayerKind)
		if layers = append(layers, entry{name, list}); k.Mixer.Attends() {
			one[k.MoE] = k.Params
		}
	}
	return document("model-report/v1", ordered{
		{"name", s.Name}, {"model_type", s.ModelType}, {"source", m.Source},
		{"parameters", ordered{{"total", c.Total}, {"active", c.Active}, {"embedding", c.Embedding}, {"head", c.Head}, {"dense_layer", one[false]},
			{"moe_layer", one[true]}, {"experts", c.Experts}, {"vision", c.Vision}, {"encoder", c.Encoder}, {"multi_token_prediction", c.MTP}}},
		{"hidden_size", s.Hidden}, {"num_hidden_layers", s.Layers}, {"num_attention_heads", s.Heads}, {"num_key_value_heads", s.KVHeads}, {"head_dim", s.HeadDim},
		{"intermediate_size", s.FFN}, {"vocab_size", s.Vocab},
		{"sequence_length", m.Sequence}, {"model_flops_per_token", flops}, {"model_flops_per_token_full_attention", float64(full[len(full)-1].full)},
		{"layers", layers},
	})
}
