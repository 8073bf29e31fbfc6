package launch

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

var (
	modelSection   = lazily(`(?m)^model:[ \t]*([{#].*)?$`)
	trainerSection = lazily(`(?m)^trainer:[ \t]*([{#].*)?$`)
	dumpedObject   = lazily(`(?m)^[ \t]*_target_:\s*['"]?(nemo|megatron\.bridge|megatron\.training)\.`)
)

// nemoFile tells a configuration of NeMo or Megatron-Bridge.
func nemoFile(text []byte) bool {
	return dumpedObject().Match(text) || modelSection().Match(text) && trainerSection().Match(text)
}

// nemo reads a configuration of NeMo 1 or of Megatron-Bridge (YAML), whose keys are
// Megatron-LM's arguments in part under other names.
func (j *Job) nemo(name string, text []byte) error {
	d, err := parse(name, text)
	if err != nil {
		return err
	}
	m := &megatron{Job: j, start: start{flags: flags{}, logged: true}, names: map[string]string{}}
	r := &reading{doc: d, megatron: m}
	if target := r.text("_target_"); strings.HasPrefix(target, "nemo.") {
		return d.Errorf(d.At("_target_"), "_target_: %s: recipes of NeMo 2.0 leave the sizes of a model to Python; give the run_config.yaml of Megatron-Bridge, or a job with the model's name or config.json (perfplan init without --from)", target)
	}
	if d.At("trainer") != nil {
		return r.nemo1()
	}
	return r.bridge()
}

// reading is a configuration on its way to Megatron-LM's arguments.
type reading struct {
	*megatron
	doc *yamlx.Document
}

// wholeFlags are the arguments that are whole numbers from 1 on, switchFlags those that are true or
// false.
var (
	wholeFlags = words(`num_layers hidden_size num_attention_heads num_query_groups ffn_hidden_size kv_channels seq_length vocab_size tensor_model_parallel_size pipeline_model_parallel_size
		virtual_pipeline_model_parallel_size context_parallel_size expert_model_parallel_size expert_tensor_parallel_size num_experts moe_router_topk moe_ffn_hidden_size micro_batch_size global_batch_size
		make_vocab_size_divisible_by nnodes`)
	switchFlags = words(`sequence_parallel swiglu multi_latent_attention tp_comm_overlap overlap_grad_reduce overlap_param_gather use_distributed_optimizer apply_rope_fusion bias_activation_fusion moe_permute_fusion moe_router_fusion
		overlap_moe_expert_parallel_comm bf16 fp16 fp8_param_gather fp8_dot_product_attention optimizer_cpu_offload cross_entropy_loss_fusion`)
)

// words is a set of words.
func words(s string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		out[w] = true
	}
	return out
}

// put takes a value for an argument.
func (r *reading) put(name, key string, n *yaml.Node) error {
	value, open := r.value(key, n)
	r.flags[name], r.names[name] = flag{value: value, line: n.Line, open: open}, key
	if open != "" || value == "None" {
		return nil
	}
	at := plain(value)
	if i, ok := at.(int64); wholeFlags[name] && (!ok || i < 1) {
		return r.doc.Errorf(n, "%s: %q; give a whole number from 1 on", key, value)
	}
	if _, ok := at.(bool); switchFlags[name] && !ok {
		return r.doc.Errorf(n, "%s: %q; give true or false", key, value)
	}
	return nil
}

// say gives an argument the value that others mean.
func (r *reading) say(name, value, key string) {
	r.flags[name], r.names[name] = flag{value: value}, key
}

// argument takes one from a key, or what its program has where that is left out ("": nothing).
func (r *reading) argument(name, key, fallback string) error {
	if n := r.node(key); n != nil && n.Tag != "!!null" {
		return r.put(name, key, n)
	}
	if fallback != "" {
		r.say(name, fallback, "default of "+key)
	}
	return nil
}

// opposite gives an argument the opposite of another that is a switch.
func (r *reading) opposite(name, of string) {
	if f, ok := r.flags[of]; ok {
		r.flags[name] = flag{value: strconv.FormatBool(!r.has(of)), line: f.line, open: f.open}
	}
	r.names[name] = r.names[of]
}

// node is the value of a key with dots, nil where it is not there.
func (r *reading) node(key string) *yaml.Node { return r.doc.At(strings.Split(key, ".")...) }

// text is the value of a key as one word, "" where it is none or not there.
func (r *reading) text(key string) string {
	n := r.node(key)
	if n == nil || n.Tag == "!!null" {
		return ""
	}
	value, _ := r.value(key, n)
	return value
}

// on reports whether a key is true.
func (r *reading) on(key string) bool { return plain(r.text(key)) == true }

// value is what a node says in one word, and what of it is not in the file. An object that
// Python named is the end of its name (megatron/training/config/yaml_utils.py).
func (r *reading) value(key string, n *yaml.Node) (value, open string) {
	switch n.Kind {
	case yaml.SequenceNode:
		var parts []string
		for _, c := range n.Content {
			p, o := r.value(key, c)
			parts, open = append(parts, p), open+o
		}
		return "[" + strings.Join(parts, ", ") + "]", open
	case yaml.MappingNode:
		_, target := yamlx.Key(n, "_target_")
		_, of := yamlx.Key(n, "_name_")
		_, args := yamlx.Key(n, "_args_")
		switch {
		case of != nil:
			return of.Value, ""
		case args != nil && len(args.Content) == 1:
			return args.Content[0].Value, ""
		case target != nil:
			return target.Value[strings.LastIndex(target.Value, ".")+1:], ""
		}
		var parts []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			p, o := r.value(key, n.Content[i+1])
			parts, open = append(parts, n.Content[i].Value+": "+p), open+o
		}
		return "{" + strings.Join(parts, ", ") + "}", open
	}
	if n.Tag == "!!null" {
		return "None", ""
	}
	return r.expand(key, n.Value)
}

var (
	interpolated = lazily(`\$\{([^${}]+)\}`)
	multiplied   = lazily(`^multiply:\s*(\d+)\s*,\s*(\d+)$`)
)

// expand puts in what OmegaConf refers to: other keys, and products of them.
func (r *reading) expand(key, s string) (value, open string) {
	for range 10 {
		at := interpolated().FindStringSubmatchIndex(s)
		if at == nil {
			return s, ""
		}
		inner, put := s[at[2]:at[3]], ""
		if m := multiplied().FindStringSubmatch(inner); m != nil {
			a, _ := strconv.ParseInt(m[1], 10, 64)
			b, _ := strconv.ParseInt(m[2], 10, 64)
			put = strconv.FormatInt(a*b, 10)
		} else if n := r.refers(key, inner); n != nil && n.Kind == yaml.ScalarNode {
			put = n.Value
		}
		if put == "" {
			return s, s[at[0]:at[1]]
		}
		s = s[:at[0]] + put + s[at[1]:]
	}
	return s, s
}

// refers is what a reference means: a key beside, of the file, or of a file that this one
// was a section of.
func (r *reading) refers(key, to string) *yaml.Node {
	if beside, ok := strings.CutPrefix(to, "."); ok {
		return r.node(key[:strings.LastIndex(key, ".")+1] + beside)
	}
	if n := r.node(to); n != nil {
		return n
	}
	_, rest, _ := strings.Cut(to, ".")
	return r.node(rest)
}

// needs refuses a file without keys that nothing else says.
func (r *reading) needs(what string, keys ...string) error {
	for _, k := range keys {
		if r.node(k) == nil {
			return &diag.Error{File: r.doc.Name, Message: "has no key " + k + "; give " + what}
		}
	}
	return nil
}

// nemoKeys are the keys of NeMo 1 that are arguments, with what NeMo takes where they are
// left out ("": nothing; nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py and
// megatron_base_model.py of v2.0.0, with TransformerConfig).
var nemoKeys = []struct{ key, name, fallback string }{
	{"trainer.num_nodes", "nnodes", ""}, {"trainer.devices", "nproc_per_node", ""},
	{"model.num_layers", "num_layers", ""}, {"model.hidden_size", "hidden_size", ""}, {"model.ffn_hidden_size", "ffn_hidden_size", ""}, {"model.num_attention_heads", "num_attention_heads", ""},
	{"model.num_query_groups", "num_query_groups", ""}, {"model.kv_channels", "kv_channels", ""}, {"model.encoder_seq_length", "seq_length", ""}, {"model.max_position_embeddings", "max_position_embeddings", ""},
	{"model.override_vocab_size", "vocab_size", ""}, {"model.tokenizer.type", "tokenizer_type", ""}, {"model.make_vocab_size_divisible_by", vocabMultiple, ""},
	{"model.normalization", "normalization", "layernorm"}, {"model.position_embedding_type", "position_embedding_type", "learned_absolute"}, {"model.rotary_percentage", "rotary_percent", ""},
	{"model.bias", "add_bias_linear", "true"}, {"model.qkv_bias", "add_qkv_bias", ""}, {"model.qk_layernorm", "qk_layernorm", ""}, {"model.activation", "activation", "gelu"},
	{"model.hidden_dropout", "hidden_dropout", ""}, {"model.attention_dropout", "attention_dropout", ""}, {"model.share_embeddings_and_output_weights", "share", "true"},
	{"model.num_moe_experts", "num_experts", ""}, {"model.moe_router_topk", "moe_router_topk", ""}, {"model.moe_ffn_hidden_size", "moe_ffn_hidden_size", ""}, {"model.moe_token_dispatcher_type", "moe_token_dispatcher_type", ""},
	{"model.moe_layer_freq", "moe_layer_freq", ""}, {"model.moe_expert_capacity_factor", "moe_expert_capacity_factor", ""}, {"model.moe_permute_fusion", "moe_permute_fusion", ""},
	{"model.tensor_model_parallel_size", "tensor_model_parallel_size", "1"}, {"model.pipeline_model_parallel_size", "pipeline_model_parallel_size", "1"}, {"model.context_parallel_size", "context_parallel_size", ""},
	{"model.virtual_pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", ""}, {"model.expert_model_parallel_size", "expert_model_parallel_size", ""}, {"model.sequence_parallel", "sequence_parallel", "false"},
	{"model.ub_tp_comm_overlap", "tp_comm_overlap", "false"}, {"model.apply_rope_fusion", "apply_rope_fusion", "false"}, {"model.bias_activation_fusion", "bias_activation_fusion", "true"}, {"model.cp_comm_type", "cp_comm_type", ""},
	{"model.gradient_accumulation_fusion", "gradient_accumulation_fusion", ""},
	{"model.micro_batch_size", "micro_batch_size", ""}, {"model.global_batch_size", "global_batch_size", ""},
	{"model.activations_checkpoint_granularity", "recompute_granularity", ""}, {"model.activations_checkpoint_method", "recompute_method", ""}, {"model.activations_checkpoint_num_layers", "recompute_num_layers", ""},
	{"model.fp8", "fp8", "false"}, {"model.fp8_params", "fp8_param_gather", "false"}, {"model.reduce_amax", "reduce_amax", "true"}, {"model.tp_only_amax_red", "tp_only_amax_red", "false"}, {"model.enable_cuda_graph", "enable_cuda_graph", ""}, {"model.sharp", "use_sharp", ""}, {"model.deterministic_mode", "deterministic_mode", ""},
	{"optim.name", "optimizer", ""}, {"optim.grad_sync_dtype", "grad_sync_dtype", "fp32"}, {"optim.overlap_grad_sync", "overlap_grad_reduce", ""}, {"optim.overlap_param_sync", "overlap_param_gather", ""},
}

// nemoRest are keys of NeMo 1 that no key of a job stands for.
var nemoRest = keysOf("nemo")

// nemoAdams are its optimizers that are Adam, by whether they shard their states.
var nemoAdams = map[string]bool{"distributed_fused_adam": true, "mcore_distributed_optim": true, "fused_adam": false, "megatron_fused_adam": false, "adam": false, "adamw": false}

// nemoActivations are the activations whose names here are others.
var nemoActivations = map[string]string{"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "squared-relu": "relu2", "approx-gelu": "gelu"}

// nemo1 reads a configuration of NeMo 1, of NVIDIA's launcher or as Hydra writes it.
func (r *reading) nemo1() error {
	if err := r.decodes(); err != nil {
		return err
	}
	err := r.needs("a configuration of a GPT of NeMo 1, as Hydra writes it in whole", "model.num_layers", "model.hidden_size", "model.num_attention_heads", "model.encoder_seq_length", "model.micro_batch_size", "model.global_batch_size")
	if err != nil {
		return err
	}
	for _, k := range nemoKeys {
		key := k.key
		if strings.HasPrefix(key, "optim.") {
			key = "model." + key
		}
		r.names[k.name] = key
		if n := r.node(key); n != nil {
			if err := r.put(k.name, key, n); err != nil {
				return err
			}
		} else if k.fallback != "" {
			r.say(k.name, k.fallback, "default of "+key)
		}
	}
	r.nemoModel()
	if err := r.nemoMamba(); err != nil {
		return err
	}
	r.nemoRuntime()
	r.nemoPrecision()
	r.read()
	r.dtype("gradients", "grad_sync_dtype")
	r.dtype("reduce", "grad_sync_dtype")
	r.counts("trainer.devices")
	r.open("runtime.release", "model", `the file does not say which release of NeMo reads it, up to 24.12: give the key, as in "24.07"`)
	r.lists("model.", nemoRest().costly)
	return nil
}

// nemoModel brings what layers are made of into Megatron-LM's words.
func (r *reading) nemoModel() {
	act := strings.TrimPrefix(strings.ToLower(r.word("activation")), "fast-")
	r.say("swiglu", strconv.FormatBool(strings.HasSuffix(act, "glu")), r.names["activation"])
	if known, ok := nemoActivations[act]; ok {
		act = known
	}
	r.say("hidden_act", act, r.names["activation"])
	if r.node("model.activations_checkpoint_granularity") == nil && r.has("recompute_method") { // whole layers alone, until 2022
		r.say("recompute_granularity", "full", r.names["recompute_method"])
	}
	r.opposite("untie_embeddings_and_output_weights", "share")
	r.grouped()
	if r.has("num_experts") && !r.on("model.moe_grouped_gemm") {
		r.note("model.moe_grouped_gemm false: experts one by one; grouped GEMMs are taken")
	}
}

// nemoMambas are the keys of hybrids with Mamba mixers, with what is taken where they are left out
// (megatron_mamba_model.py).
var nemoMambas = []struct{ key, name, fallback string }{
	{"model.vocab_size", "vocab_size", "65536"}, {"model.add_bias_linear", "add_bias_linear", "false"}, {"model.gated_linear_unit", "swiglu", "false"},
	{"model.mamba_ssm_ngroups", "mamba_num_groups", ""}, {"model.hybrid_override_pattern", "hybrid_override_pattern", ""},
}

// nemoMamba reads what hybrids with Mamba mixers have otherwise. Without a pattern all layers are
// mixers; Megatron-Core's model has no positions, and its output layer weights of its own.
func (r *reading) nemoMamba() error {
	const pattern, groups = "hybrid_override_pattern", "mamba_ssm_ngroups"
	marks := slices.DeleteFunc([]string{"model." + groups, "model." + pattern}, func(k string) bool { return r.node(k) == nil })
	if len(marks) == 0 {
		return nil
	}
	for _, k := range nemoMambas {
		if err := r.argument(k.name, k.key, k.fallback); err != nil {
			return err
		}
	}
	r.say("is_hybrid_model", "true", marks[0])
	if layers := r.number("num_layers"); !r.has(pattern) && layers > 0 {
		r.say(pattern, strings.Repeat("M", int(min(layers, mostNumbers))), "without model."+pattern)
	}
	r.say("position_embedding_type", "none", marks[0])
	r.say("untie_embeddings_and_output_weights", "true", marks[0])
	return nil
}

// grouped says whether queries share keys.
func (r *reading) grouped() {
	r.say("group_query_attention", strconv.FormatBool(r.has("num_query_groups")), r.names["num_query_groups"])
}

// nemoRuntime chooses the recipe, and says what runs beside what.
func (r *reading) nemoRuntime() {
	r.recipe, r.names["recipe"] = coreRecipe, "model.mcore_gpt"
	if !r.on("model.mcore_gpt") {
		r.names["recipe"] = "model.transformer_engine"
	}
	if !r.on("model.mcore_gpt") && !r.on("model.transformer_engine") {
		r.recipe, r.names["recipe"] = oldRecipe, "without model.transformer_engine"
		delete(r.flags, "apply_rope_fusion")
		if r.on("model.use_flash_attention") {
			r.say("attention_backend", "flash", "model.use_flash_attention")
		}
	}
	r.fusedLoss("model.")
	optimizer := r.word("optimizer")
	sharded, known := nemoAdams[optimizer]
	if !known {
		return
	}
	r.say("optimizer", "adam", r.names["optimizer"])
	r.say("use_distributed_optimizer", strconv.FormatBool(sharded), r.names["optimizer"])
	if !sharded { // MainParamsOptimizerWrapper's async_grad_allreduce
		beside := r.number("pipeline_model_parallel_size") == 1 && !r.has("sequence_parallel") && !r.on("model.gradient_accumulation_fusion")
		r.say("overlap_grad_reduce", strconv.FormatBool(beside), r.names["optimizer"])
		return
	}
	for name, fallback := range map[string]bool{"overlap_grad_reduce": optimizer == "distributed_fused_adam", "overlap_param_gather": false} { // apex's, and Megatron-Core's DDP
		if _, given := r.flags[name]; !given {
			r.say(name, strconv.FormatBool(fallback), "default of "+r.names[name])
		}
	}
}

// nemoPrecision brings dtypes into Megatron-LM's words.
func (r *reading) nemoPrecision() {
	const key = "trainer.precision"
	kind := r.text(key)
	r.names["bf16"], r.names["fp16"] = key+" bf16", "16"
	switch strings.TrimSuffix(kind, "-mixed") {
	case "bf16":
		r.say("bf16", "true", key)
	case "16":
		r.say("fp16", "true", key)
	}
	if !r.on("model.megatron_amp_O2") && (r.has("bf16") || r.has("fp16")) {
		r.note("model.megatron_amp_O2 false: weights in fp32, cast for each use; those of 16 bits are taken")
	}
}

// fusedLoss says whether the loss is fused, and by whom: Megatron-Core itself unless the configuration says otherwise.
func (r *reading) fusedLoss(section string) {
	const on, impl = "cross_entropy_loss_fusion", "cross_entropy_fusion_impl"
	fused, key := r.on(section+on), section+on
	if r.node(key) == nil {
		key = "without " + key
	}
	if by := r.text(section + impl); fused && by != "" {
		key = section + impl
		r.say(impl, by, key)
	} else if fused {
		r.say(impl, "native", "default of "+section+impl)
	}
	r.say(on, strconv.FormatBool(fused), key)
}

// dtypes are dtypes by PyTorch's names, and NeMo's.
var dtypes = map[string]string{"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "16": "fp16", "float16": "fp16", "fp32": "fp32", "32": "fp32", "float32": "fp32"}

// dtype says what of training is kept in the dtype that an argument names.
func (m *megatron) dtype(of, name string) {
	if short, ok := dtypes[m.dtypeName(name)]; ok && m.has(name) {
		m.set("train.dtypes."+of, short, m.from(name))
	} else if m.has(name) {
		m.note("%s %s", m.from(name), m.word(name))
	}
}

// dtypeName is the dtype that an argument names; left out, fp32.
func (m *megatron) dtypeName(name string) string {
	return cmp.Or(strings.TrimPrefix(m.word(name), "torch."), "fp32")
}

// counts leaves the number of GPUs open where nothing says it.
func (r *reading) counts(from string) {
	if !r.mentions("gpus") {
		r.open("gpus", from, "the file does not say how many there are: give the key")
	}
}

// lists notes keys that cost something; those of a model are in a section.
func (r *reading) lists(section string, all []costly) {
	for _, c := range all {
		if of, ok := strings.CutPrefix(c.Key, "model."); ok {
			c.Key = section + of
		}
		n := r.node(c.Key)
		if n == nil || n.Tag == "!!null" || n.Kind != yaml.ScalarNode && len(n.Content) == 0 {
			continue
		}
		if value, _ := r.value(c.Key, n); !strings.EqualFold(value, c.Free) {
			r.charge(c, c.Key, value)
		}
	}
}
