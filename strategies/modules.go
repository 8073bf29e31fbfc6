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
	bits, errs := decodeParts(d, n, ops.ModuleNames, "recomputed")
	*m = RecomputeModules(bits)
	return errs
}

// decodeParts reads names of parts of a layer, to each of which something can be done, as bits.
func decodeParts(d *yamlx.Document, n *yaml.Node, known []string, done string) (bits uint8, errs diag.List) {
	var names []string
	if n.Kind == yaml.ScalarNode {
		names = strings.Split(n.Value, ",")
	} else if errs := d.DecodeInto(n, &names); len(errs) > 0 {
		return 0, errs
	}
	for _, name := range names {
		i := slices.Index(known, strings.TrimSpace(name))
		if i < 0 {
			return 0, diag.List{d.Errorf(n, "%q is not a part of a layer that can be %s; use %s", strings.TrimSpace(name), done, diag.Or(known))}
		}
		bits |= 1 << i
	}
	return bits, nil
}

// partsOf are the names of the bits that are set, the lowest first.
func partsOf(bits uint8, known []string) []string {
	var names []string
	for i, name := range known {
		if bits&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// names are those of the parts, in the order of ops.ModuleNames.
func (m RecomputeModules) names() []string { return partsOf(uint8(m), ops.ModuleNames) }

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
