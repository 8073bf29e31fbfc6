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

// Parts are parts of a layer, a bit each: a list of their names, or a text with commas
// between them.
type Parts[K kindOfParts] uint8

// kindOfParts are parts to which one thing can be done.
type kindOfParts interface {
	known() []string // their names, the lowest bit first
	done() string    // what is done to them, as in "recomputed"
}

// RecomputeModules are the parts of a layer that train.recompute: selective computes
// again (Megatron's --recompute-modules).
type RecomputeModules = Parts[recomputed]

type recomputed struct{}

func (recomputed) known() []string { return ops.ModuleNames }
func (recomputed) done() string    { return "recomputed" }

// DecodeNode reads either form.
func (m *Parts[K]) DecodeNode(d *yamlx.Document, n *yaml.Node) diag.List {
	var kind K
	var names []string
	*m = 0
	if n.Kind == yaml.ScalarNode {
		names = strings.Split(n.Value, ",")
	} else if errs := d.DecodeInto(n, &names); len(errs) > 0 {
		return errs
	}
	var bits Parts[K]
	for _, name := range names {
		i := slices.Index(kind.known(), strings.TrimSpace(name))
		if i < 0 {
			return diag.List{d.Errorf(n, "%q is not a part of a layer that can be %s; use %s", strings.TrimSpace(name), kind.done(), diag.Or(kind.known()))}
		}
		bits |= 1 << i
	}
	*m = bits
	return nil
}

// names are those of the parts, the lowest bit first.
func (m Parts[K]) names() []string {
	var kind K
	var names []string
	for i, name := range kind.known() {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (m Parts[K]) String() string { return strings.Join(m.names(), ", ") }

// MarshalJSON writes the list of names.
func (m Parts[K]) MarshalJSON() ([]byte, error) { return json.Marshal(m.names()) }

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

// normless reports whether projections take in all norms of a model, so that none is left to be
// computed again: Megatron-Core then recomputes nothing (transformer_layer.py, whose norms are
// IdentityOp).
func normless(s *model.Spec) bool { return s.MoE == nil && s.MLA == nil }

// lacking is what a model would need to have for a module, or nothing.
func lacking(s *model.Spec, m ops.Modules) string {
	switch m {
	case ops.CoreAttention:
		if s.Compress != nil {
			return "attention core that can be computed again (deepseek_v4_hybrid_attention.py)"
		}
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
	case ops.StreamMixes:
		if s.Streams <= 1 {
			return "residual streams beside one another"
		}
	case ops.LatentProjection:
		if s.MLA == nil {
			return "latent attention"
		}
	}
	return ""
}
