package strategies

import (
	"encoding/json"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
)

// RecomputeModules are the parts of a layer that train.recompute: selective computes
// again, a list of names (Megatron's --recompute-modules), or a text with commas
// between them.
type RecomputeModules ops.Modules

// DecodeNode reads either form.
func (m *RecomputeModules) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	var names []string
	if n.Kind == yaml.ScalarNode {
		names = strings.Split(n.Value, ",")
	} else if errs := d.DecodeInto(n, &names); len(errs) > 0 {
		return errs
	}
	*m = 0
	for _, name := range names {
		i := slices.Index(ops.ModuleNames, strings.TrimSpace(name))
		if i < 0 {
			return diag.List{d.Errorf(n, "%q is not a part of a layer that can be recomputed; use %s", strings.TrimSpace(name), diag.Or(ops.ModuleNames))}
		}
		*m |= 1 << i
	}
	return nil
}

// names are those of the parts, in the order of ops.ModuleNames.
func (m RecomputeModules) names() []string {
	var names []string
	for i, name := range ops.ModuleNames {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (m RecomputeModules) String() string { return strings.Join(m.names(), ", ") }

// MarshalJSON writes the list of names.
func (m RecomputeModules) MarshalJSON() ([]byte, error) {
	return json.Marshal(m.names())
}

// checkModules returns the first rule that a choice of modules breaks.
func (j *Job) checkModules() error {
	t := &j.Given
	if t.RecomputeModules == 0 {
		return nil
	}
	if t.Recompute != ops.SelectiveRecompute {
		return diag.Errorf("train.recompute_modules: %s needs recompute: selective; set it, or leave the modules out", t.RecomputeModules)
	}
	for i, name := range ops.ModuleNames {
		if t.RecomputeModules&(1<<i) == 0 {
			continue
		}
		if known := j.Recipe.RecomputeModules; !slices.Contains(known, name) {
			if len(known) == 0 {
				return diag.Errorf("train.recompute_modules: recipe %s has none to choose from; leave it out", j.Recipe.Name)
			}
			return diag.Errorf("train.recompute_modules: recipe %s has no %q; it has %s", j.Recipe.Name, name, strings.Join(known, ", "))
		}
		if lacks := lacking(j.Model, 1<<i); lacks != "" {
			return diag.Errorf("train.recompute_modules: %s, but %s has no %s; leave it out", name, j.ModelName, lacks)
		}
	}
	return nil
}

// lacking is what a model would need to have for a module, or nothing.
func lacking(s *model.Spec, m ops.Modules) string {
	switch m {
	case ops.DenseMLP:
		if s.MoE != nil && !slices.Contains(s.MoE.Dense, true) {
			return "layer without experts"
		}
	case ops.Experts, ops.ExpertActivation:
		if s.MoE == nil {
			return "experts"
		}
	case ops.SharedExperts:
		if s.MoE == nil || s.MoE.SharedFFN == 0 {
			return "shared experts"
		}
	case ops.LayerNorms:
		if s.MoE == nil && s.MLA == nil {
			return "norm that its projection does not take in"
		}
	case ops.LatentProjection:
		if s.MLA == nil {
			return "latent attention"
		}
	}
	return ""
}
