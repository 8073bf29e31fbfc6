package strategies

import (
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
)

// checkMixers checks how state-space mixers and gated delta nets are cut: over tensor ranks
// by heads and by groups, over context ranks by heads (megatron/core/ssm/mamba_mixer.py,
// gated_delta_net/gdn.py).
func (p *Plan) checkMixers(s Shape) error {
	for _, m := range mixersOf(s.Model) {
		whole := s.Recipe.Structure.Mixers == ops.WholeMixer
		switch {
		case s.Recipe.Structure.Mixers == "" || m.whole && !whole:
			return diag.Errorf("runtime.recipe: %s has no %s layers; use %s", s.Recipe.Name, m.name, m.recipes())
		case whole && p.TP > 1:
			return diag.Errorf("plan.tp: %d, but recipe %s does not cut %s layers; use %s", p.TP, s.Recipe.Name, m.name, m.uncut())
		case whole && p.CP > 1:
			return diag.Errorf("plan.cp: %d, but recipe %s does not cut %s layers; use %s", p.CP, s.Recipe.Name, m.name, m.uncut())
		case m.heads%p.TP != 0:
			return diag.Errorf("plan.tp: %d does not divide the %d %s heads (use %s)", p.TP, m.heads, m.name, list(p.legalTP(s)))
		case m.groups%p.TP != 0:
			return diag.Errorf("plan.tp: %d does not divide the %d %s (use %s)", p.TP, m.groups, m.shared, list(p.legalTP(s)))
		case m.heads%(p.TP*p.CP) != 0 || m.each && m.groups%(p.TP*p.CP) != 0:
			return diag.Errorf("plan.cp: tp %d × cp %d does not divide the %d %s heads (use cp %s)", p.TP, p.CP, m.least(), m.name, list(p.legalCP(s)))
		}
	}
	return nil
}

// mixer is what of a mixer other than attention is cut over ranks.
type mixer struct {
	name, shared  string // what groups are called
	heads, groups int64
	each          bool // groups are cut over context ranks too
	whole         bool // nothing cuts it, and transformers alone has it
}

// recipes are those that have it.
func (m *mixer) recipes() string {
	if m.whole {
		return "hf-eager"
	}
	return "megatron-core or hf-eager"
}

// uncut is what to do where a recipe does not cut it.
func (m *mixer) uncut() string {
	if m.whole {
		return "1"
	}
	return "1, or recipe megatron-core"
}

// least is the number of heads that context ranks share.
func (m *mixer) least() int64 {
	if m.each {
		return m.groups
	}
	return m.heads
}

// mixersOf are those that layers of a model have.
func mixersOf(s *model.Spec) (out []mixer) {
	if m := s.Mamba; m != nil {
		x := mixer{name: "Mamba", shared: "groups of Mamba heads", heads: m.Heads, groups: m.Groups}
		if slices.Contains(s.Mixers, model.PairedMixer) {
			x.name, x.whole = "paired Mamba", true
		}
		out = append(out, x)
	}
	if d := s.Delta; d != nil {
		out = append(out, mixer{name: "gated delta", shared: "key heads of gated delta nets", heads: d.ValueHeads, groups: d.KeyHeads, each: true})
	}
	if s.Short != nil {
		out = append(out, mixer{name: "short convolution", heads: s.Hidden, groups: s.Hidden, whole: true})
	}
	return out
}
