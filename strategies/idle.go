package strategies

import (
	"fmt"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/ops"
)

// Idle says which settings of a job have no effect under its plan. They are remarks and
// no errors: a sweep or a search of degrees begins at 1, and frameworks take them.
func (j *Job) Idle() []diag.Note {
	p, r := &j.Plan, &j.Runtime
	var out []diag.Note
	idle := func(remedy, format string, values ...any) {
		out = append(out, diag.Note{Code: "setting.idle", Text: fmt.Sprintf(format, values...), Remedy: remedy + ", or leave it out"})
	}
	for _, x := range []struct {
		idle       bool
		key, value string
		degree     string // that is 1
		lacks      string
	}{
		{p.PP == 1 && p.Schedule != "" && p.Schedule != "1f1b", "plan.schedule", p.Schedule, "pp", "pipeline stages"},
		{p.CP == 1 && p.CPCommType != "" && p.CPCommType != P2P, "plan.cp_comm_type", string(p.CPCommType), "cp", "context ranks"},
		{p.TP == 1 && isOn(r.TPOverlap), "runtime.tp_overlap", "true", "tp", "tensor ranks"},
		{p.TP == 1 && isOff(r.LossParallel), "runtime.loss_parallel", "false", "tp", "tensor ranks"},
		{p.TP == 1 && isOff(r.SharedTPInput), "runtime.shared_tp_input", "false", "tp", "tensor ranks"},
		{p.TP == 1 && isOff(r.VocabParallel), "runtime.vocab_parallel", "false", "tp", "tensor ranks"},
		{p.DP*p.CP == 1 && isOn(r.OverlapGradReduce), "runtime.overlap_grad_reduce", "true", "dp", "data ranks"},
		{p.DP*p.CP == 1 && isOn(r.OverlapParamGather), "runtime.overlap_param_gather", "true", "dp", "data ranks"},
		{p.DP == 1 && j.Train.LengthSpread > 0, "train.length_spread", fmt.Sprint(j.Train.LengthSpread), "dp", "data ranks"},
		{p.EP == 1 && isOn(r.EPOverlap), "runtime.ep_overlap", "true", "ep", "expert ranks"},
		{p.EP == 1 && r.TokenDispatcher != "" && r.TokenDispatcher != AllToAllDispatcher, "runtime.token_dispatcher", r.TokenDispatcher, "ep", "expert ranks"},
		{p.EP == 1 && j.Train.Imbalance > 1 && !j.addsExpertBiases(), "train.expert_imbalance", fmt.Sprint(j.Train.Imbalance), "ep", "expert ranks"},
	} {
		if x.idle {
			idle("set plan."+x.degree+" above 1", "%s: %s has no effect without %s (%s 1)", x.key, x.value, x.lacks, x.degree)
		}
	}
	if isOn(j.Train.UseReentrant) && j.Train.Recompute != ops.FullRecompute {
		idle("set train.recompute to full", "train.use_reentrant: true has no effect on %s recomputation", j.Train.Recompute)
	}
	if r.ZeroInit != nil && p.DataParallel != ZeRO3 {
		idle("set plan.data_parallel to zero3", "runtime.zero_init: %v has no effect without ZeRO 3, which shards parameters", *r.ZeroInit)
	}
	if isOn(r.OneConnection) && p.DataParallel.ShardsParameters() {
		idle("set plan.data_parallel to zero1", "runtime.one_connection: true has no effect under %s, which is predicted as with several", p.DataParallel)
	}
	if p.TP > 1 && isOn(r.TPOverlap) && !p.SP() {
		idle("set plan.sequence_parallel to true", "runtime.tp_overlap: true has no effect without sequence parallelism, whose gathers and scatters it takes to pieces")
	}
	if p.DP*p.CP > 1 && p.DataParallel == DDP && isOn(r.OverlapParamGather) {
		idle("set plan.data_parallel to zero1", "runtime.overlap_param_gather: true has no effect under ddp, which shards nothing that is to be gathered")
	}
	if p.EP > 1 && isOn(r.EPOverlap) && j.RefusesEPOverlap() {
		if j.flatPipeline() {
			idle("set plan.virtual_stages above 1", "runtime.ep_overlap: true has no effect under a pipeline that is not interleaved (pp %d, virtual_stages 1), where the framework refuses it", p.PP)
		} else {
			idle("set train.recompute to selective or none", "runtime.ep_overlap: true has no effect with full recomputation, with which the framework refuses it")
		}
	}
	if t := &j.Train; t.RecomputeMethod == RecomputeBlock && t.RecomputeNumLayers != nil {
		if most := p.layersOfStage(j.shape()); *t.RecomputeNumLayers > most {
			idle(fmt.Sprintf("set it to 0 to %d", most), "train.recompute_num_layers: %d has no more effect than %d, the layers of a pipeline stage", *t.RecomputeNumLayers, most)
		}
	}
	if t := &j.Train; t.Recompute == ops.SelectiveRecompute && j.coreOnly(t.RecomputeModules) && j.keepsNoScores() {
		idle("set train.recompute to full", "train.recompute: selective saves no memory with %s attention, which keeps no scores that could be computed again", j.Runtime.Attention)
	}
	if j.Train.RecomputeModules&RecomputeModules(ops.LayerNorms) != 0 && normless(j.Model) {
		idle("give other modules", "train.recompute_modules: layernorm has no effect on %s, which has no norm that its projection does not take in", j.ModelName)
	}
	return out
}

// coreOnly reports whether selective recomputation with these modules is of the attention core and
// of nothing else.
func (j *Job) coreOnly(modules RecomputeModules) bool {
	return modules&^RecomputeModules(ops.CoreAttention) == 0 && !j.Recipe.Structure.SelectiveOps && j.Model.Compress == nil
}

// keepsNoScores reports whether attention keeps none that could be computed again.
func (j *Job) keepsNoScores() bool {
	return flash(j.Runtime.Attention) || j.Runtime.Attention == "sdpa" || j.Runtime.Attention == "flex"
}

// RefusesEPOverlap reports whether the framework refuses to run experts' exchanges beside
// another micro batch: pipelines have to be interleaved, and layers kept (Megatron-LM,
// transformer_config.py, overlap_moe_expert_parallel_comm; its schedules without virtual
// stages know no combined passes).
func (j *Job) RefusesEPOverlap() bool {
	return j.flatPipeline() || j.Train.Recompute == ops.FullRecompute
}

// flatPipeline reports whether stages are not cut into virtual ones.
func (j *Job) flatPipeline() bool { return j.Plan.PP > 1 && j.Plan.VirtualStages <= 1 }

// isOn reports whether a switch is set to true.
func isOn(s *bool) bool { return s != nil && *s }

func isOff(s *bool) bool { return s != nil && !*s }

// addsExpertBiases reports whether gradients of experts' biases are added up row by row, which the busiest expert decides.
func (j *Job) addsExpertBiases() bool {
	return j.Model.MoE != nil && j.Model.MoE.ExpertBias && j.Recipe.Structure.BusiestExpert > 0
}
