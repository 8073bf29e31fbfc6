package strategies

import (
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
)

// cutsExperts reports whether tensor ranks have to cut the experts, which no ranks share out.
func (p *Plan) cutsExperts(s Shape) bool {
	return s.Recipe.Structure.GatherTokens != "" && s.Model.MoE != nil && p.TP > 1 && p.EP <= 1
}

// checkCutting returns the rule of recipes that gather tokens which cutting experts breaks:
// their tensor ranks alone cut them, which since they route their own tokens goes with no
// expert parallelism.
func (p *Plan) checkCutting(s Shape) error {
	legal := []int64{1}
	switch who := s.Recipe.Structure.GatherTokens; {
	case who == "" || s.Model.MoE == nil || p.TP <= 1:
		return nil
	case p.cutsExperts(s):
		legal = []int64{p.TP}
	case who == recipe.AllRanks:
		legal = append(legal, p.TP)
	}
	if slices.Contains(legal, p.ExpertTP) {
		return nil
	}
	return diag.Errorf("plan.expert_tp: %d, but with tp %d and ep %d tensor ranks of recipe %s cut experts otherwise (use %s)", p.ExpertTP, p.TP, p.EP, s.Recipe.Name, list(legal))
}

// checkExpertTP returns the first rule that cutting experts along their width breaks.
func (p *Plan) checkExpertTP(s Shape) error {
	m, ranks := s.Model, p.TP*p.CP*p.DP
	switch {
	case m.MoE == nil:
		return diag.Errorf("plan.expert_tp: %d, but the model has no experts; leave expert_tp out", p.ExpertTP)
	case !s.Recipe.Structure.ExpertParallel:
		return diag.Errorf("plan.expert_tp: recipe %s has no expert parallelism; use 1 or a recipe that has it", s.Recipe.Name)
	case m.MoE.FFN%p.ExpertTP != 0:
		return diag.Errorf("plan.expert_tp: %d does not divide moe_intermediate_size %d (use %s)", p.ExpertTP, m.MoE.FFN, list(p.legalExpertTP(s)))
	case ranks%p.ExpertTP != 0:
		return diag.Errorf("plan.expert_tp: %d does not divide tp·cp·dp = %d (use %s%s)", p.ExpertTP, ranks, list(p.legalExpertTP(s)), p.anyDP().orGPUs(s))
	case p.TP > 1 && !p.SP(): // they would gather the same rows from every tensor rank
		return diag.Errorf("plan.expert_tp: %d with tp %d needs each tensor rank to hold its own tokens; set sequence_parallel: true or expert_tp 1", p.ExpertTP, p.TP)
	}
	return nil
}
