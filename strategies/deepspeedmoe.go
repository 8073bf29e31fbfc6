package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
)

// deepSpeedMoE reports whether a model's experts are those of DeepSpeed's layer.
func (s *Shape) deepSpeedMoE() bool { return s.Recipe.Structure.DeepSpeedMoE && s.Model.MoE != nil }

// checkDeepSpeedMoE returns the first rule that a plan breaks where experts are those of DeepSpeed's
// layer (deepspeed/moe/sharded_moe.py, MOELayer.forward; runtime/engine.py, _configure_zero_optimizer).
func (p *Plan) checkDeepSpeedMoE(s Shape) error {
	switch {
	case p.DataParallel.ShardsParameters():
		return diag.Errorf("plan.data_parallel: %s, but DeepSpeed shards no parameters of models with experts; use ddp, zero1 or zero2", p.DataParallel)
	case p.SP():
		return diag.Errorf("plan.sequence_parallel: true, but DeepSpeed's experts take tokens that all tensor ranks have; set it to false")
	case p.ExpertTP > 1:
		return diag.Errorf("plan.expert_tp: %d, but what tensor ranks exchange around experts of recipe %s that they cut is not known; use 1", p.ExpertTP, s.Recipe.Name)
	case p.PP > 1 && !s.Recipe.Structure.PipedExperts:
		return diag.Errorf("plan.pp: %d, but pipelines of recipe %s have experts from release 24.04 on; set runtime.release to that or a later one, or use pp 1", p.PP, s.Recipe.Name)
	}
	return nil
}

// resolveDeepSpeedMoE checks a model against DeepSpeed's layer of experts, and fills their capacity.
func (j *Job) resolveDeepSpeedMoE() error {
	t, m := &j.Train, j.Model.MoE
	if shape := j.shape(); !shape.deepSpeedMoE() {
		return nil
	}
	switch {
	case m.TopK > 2:
		return diag.Errorf("runtime.recipe: %s gives a token to one or two experts, not to %d; give model.num_experts_per_tok, or use another recipe", j.Recipe.Name, m.TopK)
	case m.Router != model.SoftmaxRouter || m.Groups > 1 || m.SharedFFN > 0 || m.ExpertBias || m.RouterBias || m.Latent > 0 || m.Beside || m.Clamped:
		return diag.Errorf("runtime.recipe: %s has experts of DeepSpeed's layer, alike ones that a softmax picks, which those of %s are not; use another recipe", j.Recipe.Name, j.ModelName)
	case t.Routing != "" && t.Routing != EvenRouting:
		return diag.Errorf("train.routing: %s, but experts of recipe %s have as many rows each; leave it out, and give train.expert_capacity, over the mean", t.Routing, j.Recipe.Name)
	case t.Capacity == 0:
		t.Capacity = 1
		j.note("train.expert_capacity", t.Capacity, "default of recipe "+j.Recipe.Name)
	}
	return nil
}
