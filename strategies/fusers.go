package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
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
