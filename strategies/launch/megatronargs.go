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

// megatronCostly are arguments that no key of a job stands for though they change time or memory.
var megatronCostly = []costly{
	{key: "hierarchical_context_parallel_sizes"},
	{key: "deterministic_mode"}, {key: "delta_offload_bytes_across_pp_ranks", free: "0"}, {key: "window_size"}, {key: "fp8_multi_head_attention"},
	{key: "muon_nesterov"}, {key: "muon_num_ns_steps", free: "5"}, {key: "muon_tp_mode"}, {key: "muon_use_syrk"}, {key: "muon_fp32_matmul_prec"}, {key: "muon_no_split_qkv"}, {key: "muon_scalar_optimizer"},
	{key: "delay_wgrad_compute"}, {key: "reuse_grad_buf_for_mxfp8_param_ag"}, {key: "use_sharp"},
	{key: "distribute_saved_activations"}, {key: "no_bias_dropout_fusion"}, {key: "no_overlap_p2p_communication"}, {key: "empty_unused_memory_level", free: "0"}, {key: "train_sync_interval"}, {key: "timing_log_level", free: "0", why: "its timers wait for the GPU, at 1 around passes, reductions and update, at 2 around each micro batch too"}, {key: "dataloader_inter_document_masking"},
	{key: "ddp_average_in_collective"}, {key: "ddp_reduce_scatter_with_fp32_accumulation"}, {key: "ddp_param_name_patterns_for_fp32_local_accumulation"}, {key: "check_for_large_grads"},
	{key: "log_params_norm"}, {key: "log_num_zeros_in_grad"}, {key: "log_max_attention_logit"}, {key: "log_l2_norm_grad_to_tensorboard"},
	{key: "save_activations_interval"}, {key: "save_wgrads_interval"}, {key: "save_dgrads_interval"},
	{key: "softmax_type", free: "vanilla"}, {key: "activation_func_clamp_value"}, {key: "fp32_residual_connection"}, {key: "use_kitchen"}, {key: "te_precision_config_file"},
	{key: "heterogeneous_layers_config_path", why: "layers are taken to be alike"}, {key: "heterogeneous_layers_config_encoded_json", why: "layers are taken to be alike"},
	{key: "rampup_batch_size", why: "batches are taken not to grow"}, {key: "defer_embedding_wgrad_compute"}, {key: "overlap_p2p_communication_warmup_flush"}, {key: "overlap_p2p_comm_warmup_flush"}, {key: "microbatch_group_size_per_virtual_pipeline_stage"},
	{key: "nccl_ub"}, {key: "use_nccl_ub"}, {key: "fsdp_double_buffer"}, {key: "keep_fp8_transpose_cache"}, {key: "overlap_param_gather_with_optimizer_step"}, {key: "optimizer_cuda_graph"},
}

// megatronExpertsCostly are those of experts.
var megatronExpertsCostly = []costly{{key: "moe_router_dtype", free: "fp32"}, {key: "moe_shared_expert_overlap"}, {key: "moe_expert_rank_capacity_factor"}, {key: "moe_paged_stash"}}

// aside are arguments that are read, but stand for no key of their own.
var aside = []string{
	"cuda_graph_modules", "cuda_graph_scope_deprecated", "moe_layer_recompute", "use_rotary_position_embeddings", "use_torch_fsdp2", "torch_fsdp2_no_reshard_after_forward", "torch_fsdp2_reshard_after_forward", "use_megatron_fsdp", "use_custom_fsdp", "data_parallel_sharding_strategy", "outer_dp_sharding_strategy", "num_distributed_optimizer_instances",
	"group_query_attention", "num_query_groups", "vocab_size", "padded_vocab_size", vocabMultiple, "tokenizer_type", "swiglu", "quick_geglu", "glu_activation", "qk_layernorm", "squared_relu", "normalization", "position_embedding_type", "no_position_embedding",
	"experimental_attention_variant", "dsa_kernel_backend", "apply_dsa_kernel_fusion", "use_fused_mhc", "mhc_recompute_layer_num", "csa_window_size", "csa_compress_ratios", "csa_dense_mode", "o_groups", "o_lora_rank",
	"enable_hyper_connections", "num_residual_streams", "enable_mhc_connections", "mhc_num_residual_streams", "ddp_bucket_size", "ddp_num_buckets", "moe_grouped_gemm", "hybrid_layer_pattern", "hybrid_override_pattern", "mtp_hybrid_override_pattern", "is_hybrid_model", "linear_attention_freq", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "attention_output_gate", "moe_shared_expert_gate",
	"untie_embeddings_and_output_weights", "add_bias_linear", "disable_bias_linear", "add_qkv_bias", "hidden_dropout", "moe_layer_freq", "multi_latent_attention", "sequence_parallel",
	"num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size", "use_distributed_optimizer", "bf16", "fp16", "use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype", "main_params_dtype", "main_grads_dtype", "fp8", "fp8_format", "fp8_recipe", "fp4", "fp4_format", narrowGradients, wideGradients,
	"recompute_activations", "fine_grained_activation_offloading", "optimizer", "optimizer_cpu_offload", "attention_backend", "use_flash_attn", "moe_token_dispatcher_type", "moe_enable_deepep", "moe_flex_dispatcher_backend",
	"no_rope_freq", "no_rope_fusion", "fused_single_qkv_rope", "use_transformer_engine_op_fuser", "apply_rope_fusion", "bias_activation_fusion", "rotary_percent", "cp_comm_type", "pipeline_model_parallel_layout", "cpu_offloading_num_layers", "fp8_param_gather", "fp8_dot_product_attention", "fp8_output_proj", "first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16", "hidden_act", "merge_file", "cuda_graph_scope", "cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph", "world_size", "data_parallel_size", "moe_router_force_load_balancing", "transformer_impl", "use_mcore_models", "deepspeed", "deepspeed_config", "zero_stage", "checkpoint_activations", "activations_checkpoint_method",
}

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

// harmless are arguments that cost nothing worth a word: by their whole names, so that one that
// costs something is not among them by how it begins.
var harmless = lazily(`^(` + strings.Join(strings.Fields(`
	adam_\w+ lr lr_\w+ min_lr decoupled_\w+ weight_decay\w* start_weight_decay end_weight_decay clip_grad loss_scale loss_scale_window initial_loss_scale min_loss_scale hysteresis muon_(momentum|scale_mode|extra_scale_factor|coefficient_type)
	train_iters train_samples train_data_path start_eval_at_iter eval_\w+ exit_\w+ iteration iterations_to_skip consumed_\w+ manual_gc\w* profile(_\w+)? timing_log_option no_barrier_with_level_1_timing
	log_(interval|progress|throughput|energy|memory_interval|device_memory_used|straggler) log_\w+_to_tensorboard logging_level tensorboard_\w+ wandb_\w+ disable_straggler_on_startup
	save save_(interval|retain_interval|params_interval|tokens_per_expert_interval|optim|rng|tokenizer_assets|config_filepath) load load_\w+ no_save_\w+ no_load_\w+ finetune async_\w+ (dist_)?ckpt_\w+ distrib_optim_\w+
	override_(ckpt_iteration|opt_param_scheduler) use_(persistent_ckpt_worker|checkpoint_args|checkpoint_opt_param_scheduler|cpu_initialization)
	data_(path|args_path|cache_path|per_class_fraction|parallel_random_init) per_split_data_args_path dataloader_(type|fast_cache_load|defer_npy_index_mmap) mock_data split num_workers no_create_attention_mask_in_dataloader no_mmap_bin_files
	vocab_file tokenizer_\w+ tiktoken_\w+ null_tokenizer_\w+ seed init_method\w* init_model_with_meta_device
	master_(addr|port) node_rank rank local_rank rdzv_\w+ distributed_\w+ lazy_mpu_init help encoder_(num_layers|seq_length) params_dtype calculate_per_token_loss
	norm_epsilon apply_layernorm_1p rotary_(base|seq_len_interpolation_factor|scaling_factor) rope_(type|scaling_factor) attention_softmax_in_fp32 no_masked_softmax_fusion
	csa_compress_rotary_base mhc_(sinkhorn_iterations|init_gating_factor) actual_vocab_size moe_n_hash_layers
	dsa_indexer_(loss_coeff|use_sparse_loss|rope_interleaved|rotate_activation|scoring_relu|k_norm_\w+)
	delay_offload_until_cuda_graph fine_grained_offloading_max_inflight_offloads
	data_impl train_tokens create_moe_param_group moe_(eval_capacity_factor|min_capacity) rotary_position_embeddings_theta ds_fused_adam
	moe_(aux_loss_coeff|z_loss_coeff) moe_router_(load_balancing_type|dtype|pre_softmax|bias_update_rate|enable_expert_bias|topk_scaling_factor) mtp_loss_scaling_factor fp8_amax_\w+ ddp_pad_buckets_for_high_nccl_busbw`), "|") + `)$`)

// rest says what else there is.
func (m *megatron) rest() {
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
	for _, n := range slices.Concat(aside, forkRead, forkFlash, launchers, mixerSizes, ratios, ends[:], counting[:]) {
		known[n] = true
	}
	options := slices.Sorted(slices.Values(slices.Concat(keysOf(known), costlyKeys(megatronCostly, megatronExpertsCostly, forkCostly))))
	const byDefault = "default of "
	given := func(name string) bool { return m.has(name) && !strings.HasPrefix(m.from(name), byDefault) }
	for _, n := range slices.Sorted(maps.Keys(m.flags)) {
		switch {
		case known[n], m.dashes != nil && m.swiftRest(n):
		case m.costs(n, megatronCostly), m.has("deepspeed") && m.costs(n, forkCostly), m.has("num_experts") && m.costs(n, megatronExpertsCostly):
		case !m.logged && !harmless().MatchString(n):
			m.ignore(m.from(n), n, options, given, func(near string) string { return strings.TrimPrefix(m.from(near), byDefault) })
		}
	}
}

// costs reports whether an argument is among those that no key stands for, and notes what it
// says unless that costs nothing. A log has one that turns something off by what that is.
func (m *megatron) costs(name string, table []costly) bool {
	c, ok := among(table, name)
	if _, off := among(table, "no_"+name); off && m.recipe == megatronRecipe && m.flags[name].value == "False" || ok && m.has(name) && m.word(name) != c.free {
		m.charge(c, m.from(name), m.flags[name].value)
	}
	return ok
}
