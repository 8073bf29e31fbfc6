package strategies

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
)

// OffloadModules are the parts of a layer that leave to the host what they save for their
// gradients (Megatron's --offload-modules).
type OffloadModules = Parts[leftToHost]

type leftToHost struct{}

func (leftToHost) known() []string { return ops.AwayNames }
func (leftToHost) done() string    { return "left to the host" }

// leaves reports whether any of some parts is among them.
func leaves(m OffloadModules, some ops.Away) bool { return ops.Away(m)&some != 0 }

// leastOffloaded is how many elements a tensor has that goes (Megatron-Core,
// transformer_config.py, min_offloaded_tensor_size).
const leastOffloaded = 1 << 20

// OffloadLeast is how many elements a tensor has at least that modules leave to the host.
func (t *Train) OffloadLeast() int64 {
	switch {
	case t.OffloadModules == 0:
		return 0
	case t.MinOffloadedTensorSize == nil:
		return leastOffloaded
	}
	return *t.MinOffloadedTensorSize
}

// OffloadShare is the share of the modules that leave something there.
func (t *Train) OffloadShare() float64 {
	if t.OffloadedShare == nil {
		return 1
	}
	return *t.OffloadedShare
}

// checkOffloadModules returns the first rule that leaving activations to the host module by
// module breaks (Megatron-Core, transformer_config.py, __post_init__).
func (p *Plan) checkOffloadModules(s Shape) error {
	const key = "train.offload_modules"
	t := s.Train
	m := t.OffloadModules
	if m == 0 {
		if t.MinOffloadedTensorSize != nil || t.OffloadedShare != nil {
			return diag.Errorf("train.min_offloaded_tensor_size, train.activation_offload_fraction: say what of train.offload_modules goes; give these, or leave them out")
		}
		return nil
	}
	again := func(part ops.Modules) bool {
		given := cmp.Or(ops.Modules(t.RecomputeModules), ops.CoreAttention)
		return t.Recompute == ops.SelectiveRecompute && given&part != 0
	}
	known := s.Recipe.Offload.Modules
	for _, name := range m.names() {
		switch {
		case len(known) == 0:
			return diag.Errorf("%s: recipe %s leaves no modules' activations to the host; leave it out, or use megatron-core", key, s.Recipe.Name)
		case !slices.Contains(known, name):
			return diag.Errorf("%s: recipe %s has no %q; it has %s", key, s.Recipe.Name, name, strings.Join(known, ", "))
		}
	}
	switch n, share := t.OffloadLeast(), t.OffloadShare(); {
	case n < 0:
		return diag.Errorf("train.min_offloaded_tensor_size: %d is negative; give a number of elements from 0 on", n)
	case !(share >= 0 && share <= 1):
		return diag.Errorf("train.activation_offload_fraction: %g is outside 0 to 1; give the share of the modules, as in 0.5, or leave it out", share)
	case t.OffloadLayers > 0 || t.OffloadActivations:
		return diag.Errorf("%s: %s beside train.offload_layers or train.offload_activations, another way to leave activations to the host; leave one of them out", key, m)
	case t.Recompute == ops.FullRecompute:
		return diag.Errorf("%s: %s with recompute full, beside which layers keep nothing but their inputs; use selective or none, or leave it out", key, m)
	case leaves(m, ops.OutputProjection) && !leaves(m, ops.Core):
		return diag.Errorf("%s: attn_proj without core_attn, whose gradient reads the same tensor; add core_attn, or leave attn_proj out", key)
	case leaves(m, ops.ExpertsMLP) && leaves(m, ops.ExpertsFirst|ops.ExpertsGate):
		return diag.Errorf("%s: fused_group_mlp beside expert_fc1 or moe_act, which are parts of it; leave these out", key)
	case leaves(m, ops.Core) && again(ops.CoreAttention):
		return diag.Errorf("%s: core_attn, which recompute selective computes again and keeps nothing of; leave it out here, or name other train.recompute_modules", key)
	case leaves(m, ops.OfExperts) && again(ops.Experts):
		return diag.Errorf("%s: %s inside moe, which train.recompute_modules computes again and keeps nothing of; leave moe out there, or these here", key, OffloadModules(ops.Away(m)&ops.OfExperts))
	}
	for i, name := range ops.AwayNames {
		if part := ops.Away(1 << i); leaves(m, part) {
			if lacks := lackingAway(s.Model, part); lacks != "" {
				return diag.Errorf("%s: %s, but the model has no %s; leave it out", key, name, lacks)
			}
		}
	}
	return nil
}

// checkOffloadRuntime returns the first rule that it breaks beside switches of the software.
func (j *Job) checkOffloadRuntime() error {
	const key = "train.offload_modules"
	m := j.Train.OffloadModules
	joint, graphs := j.Runtime.GroupedMLPFusion != nil && *j.Runtime.GroupedMLPFusion, j.Runtime.CUDAGraphs
	switch {
	case leaves(m, ops.ExpertsMLP) && !joint:
		return diag.Errorf("%s: fused_group_mlp needs experts whose MLPs are one module; set runtime.grouped_mlp_fusion: true, or name expert_fc1 and moe_act", key)
	case leaves(m, ops.ExpertsFirst|ops.ExpertsGate) && joint:
		return diag.Errorf("%s: %s with runtime.grouped_mlp_fusion, which makes one module of experts' MLPs; use fused_group_mlp", key, OffloadModules(ops.Away(m)&(ops.ExpertsFirst|ops.ExpertsGate)))
	case leaves(m, ops.OfExperts) && graphs == FullGraphs:
		return diag.Errorf("%s: %s with runtime.cuda_graphs: full, under which experts keep their activations; use layers, or leave it out", key, OffloadModules(ops.Away(m)&ops.OfExperts))
	case leaves(m, ops.AttentionNorm) && (graphs == LayerGraphs || graphs == MixerGraphs), leaves(m, ops.ExpertsNorm) && (graphs == LayerGraphs || graphs == MixerGraphs || graphs == RouterGraphs):
		return diag.Errorf("%s: %s with runtime.cuda_graphs: %s, which begin or end at that norm; leave it or the graphs out", key, OffloadModules(ops.Away(m)&(ops.AttentionNorm|ops.ExpertsNorm)), graphs)
	}
	return nil
}

// lackingAway is what a model would need to have for a module, or nothing.
func lackingAway(s *model.Spec, m ops.Away) string {
	switch {
	case m == ops.AttentionNorm && s.MLA == nil:
		return "norm in front of attention that its projection does not take in"
	case m&(ops.OfExperts|ops.ExpertsNorm) != 0 && s.MoE == nil:
		return "experts"
	}
	return ""
}
