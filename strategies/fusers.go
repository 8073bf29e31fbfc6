package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

// FusesOps reports whether Transformer Engine's op fuser runs dense MLPs and projections with
// adapters (Megatron-Core, extensions/transformer_engine.py, TEFusedMLP; Megatron-Bridge,
// peft/lora_layers.py, TEFusedLoRALinear).
func (j *Job) FusesOps() bool { return isOn(j.Runtime.OpFuser) }

// TurnsJoined reports whether one kernel cuts projections into queries, keys and values and
// turns them (Megatron-Core, transformer/attention.py, apply_fused_qkv_rotary_pos_emb).
func (j *Job) TurnsJoined() bool { return isOn(j.Runtime.QKVRopeFusion) }

// checkFusers holds the two against model and recipe.
func (j *Job) checkFusers() error {
	const fuser, rope = "runtime.op_fuser", "runtime.qkv_rope_fusion"
	s, known := j.Model, j.Recipe.Programs["qkv_rotary"] != nil
	switch {
	case !known && j.Runtime.OpFuser != nil:
		return diag.Errorf("%s: recipe %s has none; leave it out, or use megatron-core", fuser, j.Recipe.Name)
	case !known && j.Runtime.QKVRopeFusion != nil:
		return diag.Errorf("%s: recipe %s has no such kernel; leave it out, or use megatron-core", rope, j.Recipe.Name)
	case j.TurnsJoined() && (s.Position != model.Rotary || s.MLA != nil || s.GatedAttention || s.QKNorm != model.NoQKNorm):
		return diag.Errorf("%s: its kernel is for queries and keys that are turned as they are projected, not those of %s; leave it out", rope, j.ModelName)
	case j.TurnsJoined() && j.Runtime.RopeFusion != nil && !*j.Runtime.RopeFusion:
		return diag.Errorf("%s: runtime.rope_fusion is false; leave one of them out", rope)
	}
	return nil
}

// fusion is a choice between kernels that a job may make where the recipe has both.
type fusion struct {
	key   string
	on    *bool // what the job says; nil: as the recipe has it
	both  bool  // the recipe can do either
	ways  string
	use   string // the program of recipes that can; "": megatron-core does
	fits  bool   // the model has what it is about
	lacks string
	set   func(s *recipe.Structure, on bool)
}

// fusions are all of them.
func (j *Job) fusions() []fusion {
	r, own, s := &j.Runtime, &j.Recipe.Structure, j.Model
	experts, router, norm := s.MoE != nil, "", "rms_norm_unfused"
	if s.Norm.Layer() {
		norm = "layer_norm_unfused"
	}
	if experts {
		router = string(s.MoE.Router)
	}
	has := func(program string) bool { return j.Recipe.Programs[program] != nil }
	const core = ""
	return []fusion{
		{"gradient_fusion", r.GradientFusion, own.MainGradients && !own.GradientHook, "adds gradients up in one way", core, true, "", func(s *recipe.Structure, on bool) {
			if !on {
				s.GradientHook, s.DummyGradients = true, false
			}
		}},
		{"gate_fusion", r.GateFusion, has("glu_unfused"), "applies gates in one way", core, s.Gated, "no gated MLP", func(s *recipe.Structure, on bool) { s.UnfusedGate = !on }},
		{"squared_relu_fusion", r.SquaredReLUFusion, has("expert_relu2"), "weighs experts' rows in one way", core, experts && !s.Gated && s.Activation == model.ReLU2, "no experts that square a ReLU", func(s *recipe.Structure, on bool) { s.FusedReLU2 = on }},
		{"router_fusion", r.RouterFusion, !experts || has("router_"+router+"_unfused"), "chooses experts in one way", core, experts, "no experts", func(s *recipe.Structure, on bool) { s.UnfusedRouter = !on }},
		{"rope_fusion", r.RopeFusion, own.FusedRotary, "turns queries and keys in one way", core, s.Position == model.Rotary, "no rotary positions", func(s *recipe.Structure, on bool) {
			if !on {
				s.UnfusedRotary, s.FusedRotary = true, false
			}
		}},
		{"norm_fusion", r.NormFusion, has(norm), "has one kind of norms", norm, s.Norm == model.RMSNorm || s.Norm.Layer(), "neither RMS norms nor layer norms with weights", func(s *recipe.Structure, on bool) { s.UnfusedNorm, s.UnfusedLayerNorm = !on, !on }},
		{"permute_fusion", r.PermuteFusion, true, "", core, true, "", func(s *recipe.Structure, on bool) { s.UnfusedPermutation = !on }}, // checked with the experts
	}
}

// setFusions takes over which kernels of the recipe's own the job says it runs or does not.
func (j *Job) setFusions() error {
	own := *j.Recipe
	for _, f := range j.fusions() {
		switch {
		case f.on == nil:
			continue
		case !f.both:
			use := []string{"megatron-core"}
			if f.use != "" {
				use = recipe.Having(func(r *recipe.Recipe) bool { return r.Programs[f.use] != nil })
			}
			return diag.Errorf("runtime.%s: recipe %s %s; leave it out, or use %s", f.key, own.Name, f.ways, diag.Or(use))
		case !f.fits:
			return diag.Errorf("runtime.%s: %s has %s; leave it out", f.key, j.ModelName, f.lacks)
		}
		f.set(&own.Structure, *f.on)
		j.Recipe = &own
	}
	return nil
}
