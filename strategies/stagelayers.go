package strategies

import (
	"encoding/json"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// StageLayers are the numbers of layers of a pipeline's stages in the order of the model,
// virtual stages apart: a list, or a text with commas between them. Megatron has them by
// --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers and
// --pipeline-model-parallel-layout. Empty: as the recipe's framework splits them.
type StageLayers string

// DecodeNode reads either form.
func (g *StageLayers) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	var parts []string
	if n.Kind == yaml.ScalarNode {
		parts = strings.Split(strings.Trim(n.Value, "[]"), ",")
	} else if errs := d.DecodeInto(n, &parts); len(errs) > 0 {
		return errs
	}
	for i, s := range parts {
		k, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil || k < 0 {
			return diag.List{d.Errorf(n, "%q is not a number of layers; give one for each stage, as in [7, 8, 8, 7]", strings.TrimSpace(s))}
		}
		parts[i] = strconv.FormatInt(k, 10)
	}
	*g = StageLayers(strings.Join(parts, ","))
	return nil
}

// List returns the numbers.
func (g StageLayers) List() (out []int64) {
	for s := range strings.SplitSeq(string(g), ",") {
		k, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			panic(err) // DecodeNode has read it
		}
		out = append(out, k)
	}
	return out
}

// MarshalJSON writes the list.
func (g StageLayers) MarshalJSON() ([]byte, error) { return json.Marshal(g.List()) }

// SplitLayers returns the number of layers of each of n stages.
func (p *Plan) SplitLayers(m *model.Spec, r *recipe.Recipe, layers, n int64) []int64 {
	if p.StageLayers != "" {
		return p.StageLayers.List()
	}
	return splitLayers(m, r, layers, n)
}

// splitLayers returns the number of layers of each of n stages: as a recipe's framework splits
// them, or as near to that as layers that share picked keys let it be.
func splitLayers(m *model.Spec, r *recipe.Recipe, layers, n int64) []int64 {
	return startOnPicks(m, frameworkSplit(m, r, layers, n))
}

// frameworkSplit is what a recipe's framework does by itself.
func frameworkSplit(m *model.Spec, r *recipe.Recipe, layers, n int64) []int64 {
	switch {
	case r.Structure.CostStages:
		out, _ := splitByCost(m, layers, n)
		return out
	case r.Structure.WeighedEnds && n > 1:
		return splitWeighed(layers, n)
	case r.Structure.EvenModules && layers+3 >= 3*n: // embedding, norm and head among them, and a layer for the last
		out := largerFirst(layers+3, n)
		out[0]--
		out[n-1] -= 2
		return out
	case r.Structure.LargerFirst, r.Structure.EvenModules:
		return largerFirst(layers, n)
	}
	return Split(layers, n, r.Structure.FullStages)
}

// largerFirst splits so many modules over n stages, of which the first have one more each where
// they do not divide.
func largerFirst(modules, n int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = modules / n
		if int64(i) < modules%n {
			out[i]++
		}
	}
	return out
}

// startOnPicks moves the ends of stages so that each begins with a layer that picks its keys
// itself, the nearest that leaves one for every later stage: the others see those of the layer
// before, which no stage hands on (Megatron-Core, experimental_attention_variant/dsa.py,
// index_share). What no such layer is left for stays as it is.
func startOnPicks(m *model.Spec, stages []int64) []int64 {
	if !m.Indexer.Shared() {
		return stages
	}
	var starts []int64
	for i, follows := range m.Indexer.Follow {
		if i > 0 && !follows {
			starts = append(starts, int64(i))
		}
	}
	if len(starts) < len(stages)-1 {
		return stages
	}
	begin, even, next := int64(0), int64(0), 0
	for i := range len(stages) - 1 {
		even += stages[i]
		best := next
		for k := next; k <= len(starts)-(len(stages)-1-i); k++ {
			if max(starts[k]-even, even-starts[k]) < max(starts[best]-even, even-starts[best]) {
				best = k
			}
		}
		stages[i], begin, next = starts[best]-begin, starts[best], best+1
	}
	stages[len(stages)-1] = m.Layers - begin
	return stages
}

// checkPicks returns an error where a stage begins with a layer that sees the keys of the one
// before.
func (p *Plan) checkPicks(s Shape) error {
	x := s.Model.Indexer
	if !x.Shared() || p.PP == 1 {
		return nil
	}
	n := p.modelStages(s.Recipe)
	at := int64(0)
	for i, k := range p.SplitLayers(s.Model, s.Recipe, s.Model.Layers, n) {
		if k > 0 && x.Follow[at] {
			if fits := splitLayers(s.Model, s.Recipe, s.Model.Layers, n); p.StageLayers != "" {
				return diag.Errorf("plan.stage_layers: stage %d begins with layer %d, which sees the keys that a layer before it picks, and stages hand none on; begin stages with layers that pick, as in [%s]", i, at, list(fits))
			}
			return diag.Errorf("plan.pp: %d stages (pp %d × virtual_stages %d), which begin with layers that pick keys: there are too few; use fewer", n, p.PP, p.VirtualStages)
		}
		at += k
	}
	return nil
}

// modelStages is into how many stages the model is cut.
func (p *Plan) modelStages(r *recipe.Recipe) int64 {
	stages := p.PP * p.VirtualStages
	if p.PP > 1 {
		if info, err := pipeline.Lookup(p.PipelineSchedule(r)); err == nil {
			stages /= int64(max(info.Copies, 1))
		}
	}
	return stages
}

// checkLayers returns the first rule that given layers break.
func (p *Plan) checkLayers(s Shape) error {
	if p.StageLayers == "" {
		return nil
	}
	list, stages := p.StageLayers.List(), p.modelStages(s.Recipe)
	if p.PP == 1 {
		return diag.Errorf("plan.stage_layers: needs pipeline parallelism; set pp above 1 or leave it out")
	}
	if n := int64(len(list)); n != stages {
		return diag.Errorf("plan.stage_layers: %d numbers for %d stages (pp %d × virtual_stages %d); give one for each in the order of the model", n, stages, p.PP, p.VirtualStages)
	}
	var sum int64
	for i, k := range list {
		if k > s.Model.Layers {
			return diag.Errorf("plan.stage_layers: stage %d has %d layers, the model %d; give numbers that add up to these", i, k, s.Model.Layers)
		}
		if k == 0 && i > 0 && i < len(list)-1 {
			return diag.Errorf("plan.stage_layers: stage %d has no layer, which only the first and the last may, with embedding and head; give it one", i)
		}
		sum += k
	}
	if sum != s.Model.Layers {
		return diag.Errorf("plan.stage_layers: %s add up to %d of the model's %d layers; give numbers that add up to all", p.StageLayers, sum, s.Model.Layers)
	}
	return nil
}
