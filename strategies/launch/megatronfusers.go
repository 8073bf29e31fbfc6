package launch

// scaled is the precision of that kind, or of fp8 whose scales are known from steps before: the default of
// Megatron-LM's own trainer (core/transformer/transformer_config.py, fp8_recipe) and the one way of NeMo 1
// (whose Megatron-Core has no other: core/transformer/transformer_block.py up to v0.11), else where it is said.
func (m *megatron) scaled(kind string) string {
	how := m.word("fp8_recipe")
	if _, nemo := m.flags["reduce_amax"]; how == "" && (nemo || m.recipe == megatronRecipe) {
		how = "delayed"
	}
	if kind != "fp8" || how != "delayed" || m.recipe == oldRecipe || m.has("deepspeed") {
		return kind
	}
	return "fp8-delayed"
}

// amax says which ranks agree on the largest values of delayed scaling, where these are not all: a switch of
// configurations alone (core/transformer/transformer_config.py, tp_only_amax_red; NeMo 1's reduce_amax).
func (m *megatron) amax(kind string) {
	_, nemo := m.flags["reduce_amax"]
	switch {
	case m.scaled(kind) != "fp8-delayed":
	case nemo && !m.has("reduce_amax"):
		m.set("runtime.amax_reduction", "none", m.from("reduce_amax"))
	case m.has("tp_only_amax_red"):
		m.set("runtime.amax_reduction", "tensor", m.from("tp_only_amax_red"))
	}
}

// fusers says what runs in one kernel that others run in several: a projection's cut and turn
// (fused_single_qkv_rope, which needs the fused rotary kernel and no norms in between), and dense
// MLPs by Transformer Engine's op fuser. That of experts is a key of its own.
func (m *megatron) fusers() {
	if m.recipe == oldRecipe || m.has("deepspeed") {
		return
	}
	if off := m.word("position_embedding_type") != "rope" || m.has("no_rope_fusion") || m.has("multi_latent_attention") || m.has("qk_layernorm"); m.has("fused_single_qkv_rope") && !off {
		m.set("runtime.qkv_rope_fusion", true, m.from("fused_single_qkv_rope"))
	}
	if m.has("use_transformer_engine_op_fuser") && !m.has("num_experts") {
		m.set("runtime.op_fuser", true, m.from("use_transformer_engine_op_fuser"))
	}
}

// wideEnds are arguments that count layers whose products stay in 16 bits, with their keys.
var wideEnds = [2]struct{ name, key string }{
	{"num_layers_at_start_in_bf16", "train.num_layers_at_start_in_bf16"}, {"num_layers_at_end_in_bf16", "train.num_layers_at_end_in_bf16"},
}

// wide says which layers' products stay in 16 bits: those at either end, one of each unless
// more are asked for (core/transformer/transformer_config.py, first_last_layers_bf16).
func (m *megatron) wide() {
	const asked = "first_last_layers_bf16"
	if !m.has(asked) || m.recipe == oldRecipe || m.has("deepspeed") {
		return
	}
	for _, end := range wideEnds {
		switch f, given := m.flags[end.name]; {
		case !given:
			m.set(end.key, 1, m.from(asked))
		case f.open != "":
			m.open(end.key, m.from(end.name), f.takes()+": give the key")
		case f.value != "0":
			m.set(end.key, plain(f.value), m.from(end.name))
		}
	}
}

// checks says whether the host looks for NaNs, where it is told not to.
func (m *megatron) checks() {
	const off = "no_check_for_nan_in_loss_and_grad"
	if m.has(off) && m.recipe != oldRecipe && !m.has("deepspeed") {
		m.set("runtime.nan_checks", false, m.from(off))
	}
}
