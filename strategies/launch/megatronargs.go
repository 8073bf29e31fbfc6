package launch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// direct are arguments that are keys of a job under another name
// (megatron/training/arguments.py, megatron/core/transformer/transformer_config.py).
var direct = []struct{ name, key string }{
	{"num_layers", "model.num_hidden_layers"}, {"hidden_size", "model.hidden_size"}, {"num_attention_heads", "model.num_attention_heads"},
	{"kv_channels", "model.head_dim"}, {"ffn_hidden_size", "model.intermediate_size"}, {"max_position_embeddings", "model.max_position_embeddings"},
	{"attention_dropout", "model.attention_dropout"},

	{"overlap_grad_reduce", "runtime.overlap_grad_reduce"}, {"overlap_param_gather", "runtime.overlap_param_gather"}, {"tp_comm_overlap", "runtime.tp_overlap"},
	{"cross_entropy_loss_fusion", "runtime.fused_cross_entropy"},

	{"tensor_model_parallel_size", "plan.tp"}, {"pipeline_model_parallel_size", "plan.pp"}, {"context_parallel_size", "plan.cp"},

	{"seq_length", "train.sequence_length"}, {"micro_batch_size", "train.micro_batch"}, {"global_batch_size", "train.global_batch"},
}

// only are those that mean something beside another argument alone, in the value given
// ("": any that is neither false nor none).
var only = []struct{ name, key, beside, value string }{
	{"q_lora_rank", "model.q_lora_rank", "multi_latent_attention", ""},
	{"dsa_indexer_n_heads", "model.index_n_heads", "experimental_attention_variant", sparseAttention}, {"dsa_indexer_n_heads", "model.index_n_heads", "experimental_attention_variant", summedAttention},
	{"dsa_indexer_head_dim", "model.index_head_dim", "experimental_attention_variant", sparseAttention}, {"dsa_indexer_head_dim", "model.index_head_dim", "experimental_attention_variant", summedAttention},
	{"dsa_indexer_topk", "model.index_topk", "experimental_attention_variant", sparseAttention}, {"dsa_indexer_topk", "model.index_topk", "experimental_attention_variant", summedAttention},
	{"dsa_indexer_topk_freq", "model.index_topk_freq", "experimental_attention_variant", sparseAttention}, {"dsa_indexer_skip_topk_offset", "model.index_skip_topk_offset", "experimental_attention_variant", sparseAttention},
	{"num_experts", "model.num_experts", "num_experts", ""}, {"moe_router_topk", "model.num_experts_per_tok", "num_experts", ""}, {"moe_ffn_hidden_size", "model.moe_intermediate_size", "num_experts", ""},
	{"moe_shared_expert_intermediate_size", "model.shared_expert_intermediate_size", "num_experts", ""}, {"moe_router_score_function", "model.router", "num_experts", ""},
	{"moe_latent_size", "model.moe_latent_size", "num_experts", ""}, {"moe_router_num_groups", "model.n_group", "num_experts", ""}, {"moe_router_group_topk", "model.topk_group", "num_experts", ""},

	{"cross_entropy_fusion_impl", "runtime.cross_entropy_impl", "cross_entropy_loss_fusion", ""},
	{"moe_permute_fusion", "runtime.permute_fusion", "num_experts", ""}, {"moe_router_fusion", "runtime.router_fusion", "num_experts", ""},
	{"overlap_moe_expert_parallel_comm", "runtime.ep_overlap", "num_experts", ""}, {"use_fused_weighted_squared_relu", "runtime.squared_relu_fusion", "use_fused_weighted_squared_relu", ""},

	{"expert_model_parallel_size", "plan.ep", "num_experts", ""}, {"expert_tensor_parallel_size", "plan.expert_tp", "num_experts", ""},
	{"optimizer_offload_fraction", "plan.offload_fraction", "optimizer_cpu_offload", ""}, {"overlap_cpu_optimizer_d2h_h2d", "plan.offload_overlap", "optimizer_cpu_offload", ""},

	{"recompute_granularity", "train.recompute", "recompute_granularity", ""}, {"recompute_method", "train.recompute_method", "recompute_granularity", "full"},
	{"recompute_num_layers", "train.recompute_num_layers", "recompute_granularity", "full"}, {"recompute_modules", "train.recompute_modules", "recompute_granularity", "selective"},
	{"offload_modules", "train.offload_modules", "fine_grained_activation_offloading", ""}, {"min_offloaded_tensor_size", "train.min_offloaded_tensor_size", "fine_grained_activation_offloading", ""},
	{"activation_offload_fraction", "train.activation_offload_fraction", "fine_grained_activation_offloading", ""},
	{"moe_expert_capacity_factor", "train.expert_capacity", "moe_expert_capacity_factor", ""}, {"mtp_num_layers", "train.mtp_layers", "mtp_num_layers", ""}, {"mtp_use_repeated_layer", "model.mtp_use_repeated_layer", "mtp_num_layers", ""},
}

// latent are those of latent attention.
var latent = []struct {
	name, key string
	standard  int64
}{{"kv_lora_rank", "kv_lora_rank", 32}, {"qk_head_dim", "qk_nope_head_dim", 128}, {"qk_pos_emb_head_dim", "qk_rope_head_dim", 64}, {"v_head_dim", "v_head_dim", 128}}

// megatronKeys are those that stand for no key of their own, those of experts, and Megatron-DeepSpeed's further ones.
var megatronKeys, megatronExpertsKeys, forkKeys = keysOf("megatron"), keysOf("megatron-experts"), keysOf("megatron-deepspeed")

// least are the arguments of scripts that are whole numbers, by the least that they may be,
// beside those of configurations (wholeFlags), which are from 1 on.
var least = []map[string]bool{
	words("num_experts mtp_num_layers q_lora_rank moe_shared_expert_intermediate_size recompute_num_layers min_offloaded_tensor_size decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers num_layers_at_start_in_bf16 num_layers_at_end_in_bf16"),
	words(`max_position_embeddings padded_vocab_size num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank moe_latent_size kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim
		linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim mamba_num_heads mamba_head_dim mamba_num_groups mamba_state_dim
		csa_window_size o_groups o_lora_rank num_residual_streams mhc_num_residual_streams`),
}

// others are arguments of other releases, or of their logs, and those that mean the same.
var others = [][2]string{{"cuda_graph_modules", "cuda_graph_scope"}, {"cuda_graph_scope_deprecated", "cuda_graph_scope"}}

// negated are arguments that turn something off, by what logs call it (megatron/training/arguments.py, dest).
var negated = [][2]string{
	{"bias_swiglu_fusion", "no_bias_swiglu_fusion"}, {"bias_gelu_fusion", "no_bias_gelu_fusion"}, {"gradient_accumulation_fusion", "no_gradient_accumulation_fusion"},
	{"check_for_nan_in_loss_and_grad", "no_check_for_nan_in_loss_and_grad"},
}

// rename brings arguments of other releases, and of logs, into those that are read.
func (m *megatron) rename() {
	for _, o := range negated {
		if f, ok := m.flags[o[0]]; ok && f.value != "None" {
			m.flags[o[1]], m.names[o[1]] = flag{value: strconv.FormatBool(!m.has(o[0])), line: f.line, open: f.open}, m.from(o[0])
		}
	}
	for _, o := range others {
		if m.has(o[0]) && !m.has(o[1]) {
			m.flags[o[1]], m.names[o[1]] = m.flags[o[0]], m.from(o[0])
		}
	}
	if rotary := "use_rotary_position_embeddings"; m.has(rotary) {
		m.follows("position_embedding_type", "rope", rotary)
	}
	if moe := "moe_layer_recompute"; m.has(moe) { // core/transformer/transformer_config.py
		modules := "core_attn"
		if m.has("recompute_modules") {
			modules = m.word("recompute_modules")
		}
		m.follows("recompute_modules", "["+modules+", moe]", moe)
		m.follows("recompute_granularity", "selective", moe)
	}
}

// follows gives an argument the value that follows from another.
func (m *megatron) follows(name, value, from string) {
	m.names[name] = m.from(from)
	m.flags[name] = flag{value: value, line: m.flags[from].line}
}

// choices are the values of arguments that a job takes over as they are, and those of which a word
// that is none would be taken for another (megatron/training/arguments.py).
var choices = map[string][]string{
	"recompute_granularity": {"full", "selective", "none"}, "recompute_method": {"uniform", "block"}, "moe_router_score_function": {"softmax", "sigmoid", "sqrtsoftplus"},
	"moe_token_dispatcher_type": {"allgather", "alltoall", "alltoall_seq", "flex"},
}

// literal is a value that is no piece of a program, as str(n) or {n} is, which a script's number may be.
var literal = lazily(`^[-+]?[\w.]*$`)

// check refuses values of arguments that are no whole numbers but should be, and leaves open
// those that are pieces of a program.
func (m *megatron) check(file string) error {
	if m.has("bf16") && m.has("fp16") && m.flags["bf16"].open+m.flags["fp16"].open == "" {
		return &diag.Error{File: file, Line: m.flags["fp16"].line, Col: 1, Message: fmt.Sprintf("%s beside %s: Megatron-LM refuses both; leave one of them out", m.from("fp16"), m.from("bf16"))}
	}
	for _, name := range slices.Sorted(maps.Keys(m.flags)) {
		f, from := m.flags[name], int64(1)
		if known, ok := choices[name]; ok && m.has(name) && f.open == "" && !slices.Contains(known, m.word(name)) && literal().MatchString(m.word(name)) {
			return &diag.Error{File: file, Line: f.line, Col: 1, Message: fmt.Sprintf("%s: there is no %q; give %s", m.from(name), m.word(name), diag.Or(known))}
		}
		switch {
		case least[0][name]:
			from = 0
		case !least[1][name] && !forkWhole[name] && (!wholeFlags[name] || slices.Contains(launchers, name)): // which may be 1:4, or gpu
			continue
		}
		n, ok := plain(m.word(name)).(int64)
		switch {
		case f.open != "" || !m.has(name) || ok && n >= from:
		case literal().MatchString(m.word(name)):
			return &diag.Error{File: file, Line: f.line, Col: 1, Message: fmt.Sprintf("%s: %q; give a whole number from %d on", m.from(name), m.word(name), from)}
		default:
			f.open = f.value
			m.flags[name] = f
		}
	}
	return nil
}

// rest says what else there is.
func (m *megatron) rest() {
	keys, ofExperts, fork := megatronKeys(), megatronExpertsKeys(), forkKeys()
	known := map[string]bool{}
	for _, d := range direct {
		known[d.name] = true
	}
	for _, o := range only {
		known[o.name] = true
	}
	for _, l := range latent {
		known[l.name] = true
	}
	for _, n := range forkNames {
		known[n.name] = true
	}
	for _, t := range megatronFSDPTypes {
		known[t.name] = true
	}
	for _, o := range negated {
		known[o[0]], known[o[1]] = true, true
	}
	for _, n := range slices.Concat(namesOf(keys.read, fork.read), forkFlash, launchers, mixerSizes, ratios, ends[:], counting[:]) {
		known[n] = true
	}
	options := slices.Sorted(slices.Values(slices.Concat(namesOf(known), keys.known(), ofExperts.known(), fork.known())))
	const byDefault = "default of "
	given := func(name string) bool { return m.has(name) && !strings.HasPrefix(m.from(name), byDefault) }
	for _, n := range slices.Sorted(maps.Keys(m.flags)) {
		switch {
		case known[n], m.dashes != nil && m.swiftRest(n):
		case m.costs(n, keys.costly), m.has("deepspeed") && m.costs(n, fork.costly), m.has("num_experts") && m.costs(n, ofExperts.costly):
		case !m.logged && !keys.harmless.MatchString(n):
			m.ignore(m.from(n), n, options, given, func(near string) string { return strings.TrimPrefix(m.from(near), byDefault) })
		}
	}
}

// costs reports whether an argument is among those that no key stands for, and notes what it
// says unless that costs nothing. A log has one that turns something off by what that is.
func (m *megatron) costs(name string, table []costly) bool {
	c, ok := among(table, name)
	if _, off := among(table, "no_"+name); off && m.recipe == megatronRecipe && m.flags[name].value == "False" || ok && m.has(name) && m.word(name) != c.Free {
		m.charge(c, m.from(name), m.flags[name].value)
	}
	return ok
}
