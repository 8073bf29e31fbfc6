package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
)

const (
	megatronRecipe = "megatron-pretrain" // Megatron-LM's scripts as they come
	shardedRecipe  = "megatron-deepspeed"
	oldRecipe      = "megatron-lm"     // before Transformer Engine
	coreRecipe     = "megatron-core"   // as NeMo and Megatron-Bridge run it
	guidedRecipe   = "megatron-script" // Bridge without its performance scripts
)

// megatron reads the arguments of Megatron-LM.
func (j *Job) megatron(name string, s start) error {
	j.Notes = append(j.Notes, s.Notes...)
	m := &megatron{Job: j, start: s, names: map[string]string{}, recipe: megatronRecipe}
	d, err := s.writes(name)
	switch {
	case s.flags.count(bridgeArguments) > 0:
		return unwhole(name)
	case s.flags.count(telling) > 0:
		if other := s.program(name); other != nil {
			return other
		}
		m.fork()
		if wrong := m.check(name); wrong != nil {
			return wrong
		}
		m.read()
		if err != nil {
			m.note("%v", err)
		} else if d != nil {
			m.join(d)
		}
		return nil
	case err != nil:
		return err
	case d != nil:
		m.machine()
		m.Settings, m.Notes = append(m.Settings, d.Settings...), append(m.Notes, d.Notes...)
		m.Ignored, m.Unknown = append(m.Ignored, d.Ignored...), append(m.Unknown, d.Unknown...)
		return nil
	case bridgeParts().MatchString(s.text):
		return unwhole(name)
	}
	if python().MatchString(s.text) {
		return &diag.Error{File: name, Message: "is a program " + unrun}
	}
	return &diag.Error{File: name, Message: "has none of the arguments --num-layers, --micro-batch-size and --tensor-model-parallel-size of Megatron-LM, nor --per_device_train_batch_size and --model_name_or_path of a Trainer; " + remedy}
}

// read says what the arguments mean.
func (m *megatron) read() {
	m.rename()
	m.model()
	m.machine()
	m.besidePasses()
	m.runtime()
	m.plan()
	m.train()
	m.rest()
	m.elsewhere()
}

// elsewhere leaves open what follows from arguments that are not there, where the model's are not
// either, so that parts of the command that nothing sets have arguments.
func (m *megatron) elsewhere() {
	if len(m.holds) == 0 || m.has("num_layers") || m.has("hidden_size") {
		return
	}
	from := strings.Join(m.holds, ", ")
	const why = "which the file does not set, may have arguments for it: give the key"
	m.open("model", from, why)
	for i := range m.Settings {
		if s := &m.Settings[i]; strings.HasPrefix(s.From, "without ") || strings.HasPrefix(s.From, "default of ") {
			s.Value, s.From, s.Why = nil, s.From+": "+from, why
		}
	}
}

// join adds what a configuration of DeepSpeed says that the script writes. Arguments of
// Megatron-LM go before it.
func (m *megatron) join(d *Job) {
	m.Notes, m.Ignored, m.Unknown = append(m.Notes, d.Notes...), append(m.Ignored, d.Ignored...), append(m.Unknown, d.Unknown...)
	for _, s := range d.Settings {
		i := m.at(s.Key)
		switch {
		case s.last, s.Key == "runtime.recipe", s.Key == "train.grad_accumulation" && m.mentions("train.global_batch"):
		case i < 0:
			m.Settings = append(m.Settings, s)
		case m.Settings[i].Value == nil || strings.HasPrefix(m.Settings[i].From, "without "):
			m.Settings[i] = s
		case m.Settings[i].Value != s.Value:
			m.note("%s says %s %v, but %s %v, which is taken", s.From, s.Key, s.Value, m.Settings[i].From, m.Settings[i].Value)
		}
	}
}

type megatron struct {
	*Job
	start
	names  map[string]string // what the file calls them, where they have names of their own
	dashes *string           // before the names of ms-swift's arguments; nil: they are Megatron-LM's
	recipe string
}

// has reports whether an argument is given and neither false nor none.
func (m *megatron) has(name string) bool {
	f, ok := m.flags[name]
	return ok && !slices.Contains([]string{"False", "false", "None", "null", ""}, f.value)
}

// first is the first of some arguments that is given so, "" where none is.
func (m *megatron) first(names ...string) string {
	if i := slices.IndexFunc(names, m.has); i >= 0 {
		return names[i]
	}
	return ""
}

// from is how messages name an argument.
func (m *megatron) from(name string) string {
	if n, ok := m.names[name]; ok {
		return n
	}
	if m.dashes != nil {
		return *m.dashes + name
	}
	if m.logged {
		return name
	}
	return "--" + strings.ReplaceAll(name, "_", "-")
}

// take sets a key to the value of an argument, where it is given.
func (m *megatron) take(key, name string) bool {
	f := m.flags[name]
	switch {
	case !m.has(name):
		if f.value == "False" || f.value == "false" {
			m.set(key, false, m.from(name))
			return true
		}
		return false
	case f.open != "":
		m.open(key, m.from(name), f.takes()+": give the key")
	default:
		m.set(key, plain(f.value), m.from(name))
	}
	return true
}

// takeOr is take, or else the default of the argument.
func (m *megatron) takeOr(key, name string, standard any) {
	if !m.take(key, name) {
		m.set(key, standard, "default of "+m.from(name))
	}
}

// plain is a value as YAML has it.
func plain(s string) any {
	s = strings.Trim(s, `"'`)
	if n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64); err == nil {
		return n
	}
	if x, err := strconv.ParseFloat(s, 64); err == nil {
		return x
	}
	switch s {
	case "true", "True":
		return true
	case "false", "False":
		return false
	}
	if inner, ok := strings.CutPrefix(s, "["); ok { // a list, as a log prints it
		var list []any
		for _, w := range strings.FieldsFunc(strings.TrimSuffix(inner, "]"), func(r rune) bool { return strings.ContainsRune(`,'" `, r) }) {
			list = append(list, w)
		}
		return list
	}
	return s
}

// number is the value of an argument, 0 where it is none.
func (m *megatron) number(name string) int64 {
	n, _ := plain(m.flags[name].value).(int64)
	return n
}

func (m *megatron) group(section string) {
	for _, d := range direct {
		if d.name == "kv_channels" && m.word("experimental_attention_variant") == summedAttention { // whose heads are as wide as values
			continue
		}
		if strings.HasPrefix(d.key, section) {
			m.take(d.key, d.name)
		}
	}
	for _, o := range only {
		if strings.HasPrefix(o.key, section) && m.has(o.beside) && (o.value == "" || m.word(o.beside) == o.value) {
			m.take(o.key, o.name)
		}
	}
}

// word is the value of an argument that is one word.
func (m *megatron) word(name string) string { return strings.Trim(m.flags[name].value, `"'[]`) }

// given is how comments name an argument, or that it is not there.
func (m *megatron) given(name string) string {
	if _, ok := m.flags[name]; ok {
		return m.from(name)
	}
	return "without " + m.from(name)
}

// model says what the layers are; Megatron's defaults are those of GPT-2.
func (m *megatron) model() {
	if !m.has("num_layers") && !m.has("hidden_size") {
		return
	}
	blocks, known := m.blocks()
	if !known {
		return
	}
	m.set("model.model_type", "decoder", "")
	m.hybrid(blocks)
	m.group("model.")
	m.mlp()
	switch {
	case m.word("experimental_attention_variant") == summedAttention: // one for all
		m.set("model.num_key_value_heads", int64(1), m.from("experimental_attention_variant"))
	case m.has("group_query_attention") && m.has("num_query_groups"):
		m.take("model.num_key_value_heads", "num_query_groups")
	default:
		m.take("model.num_key_value_heads", "num_attention_heads")
	}
	norm := "layernorm"
	if strings.EqualFold(m.word("normalization"), "rmsnorm") {
		norm = "rmsnorm"
	}
	m.set("model.norm", norm, m.given("normalization"))
	m.position()
	m.biases()
	m.set("model.tie_word_embeddings", !m.has("untie_embeddings_and_output_weights"), m.given("untie_embeddings_and_output_weights"))
	m.takeOr("model.residual_dropout", "hidden_dropout", 0.1)
	m.takeOr("model.embedding_dropout", "hidden_dropout", 0.1)
	if _, ok := m.flags["attention_dropout"]; !ok {
		m.set("model.attention_dropout", 0.1, "default of "+m.from("attention_dropout"))
	}
	m.vocabulary()
	switch {
	case m.word("experimental_attention_variant") == summedAttention:
		m.sums()
	case m.has("multi_latent_attention"):
		for _, l := range latent {
			m.takeOr("model."+l.key, l.name, l.standard)
		}
	}
	if m.has("qk_layernorm") && !m.has("multi_latent_attention") { // which has norms of its own
		m.set("model.qk_norm", "head", m.from("qk_layernorm"))
	}
	if m.has("attention_output_gate") {
		m.take("model.attention_output_gate", "attention_output_gate")
	}
	m.deltas()
	m.picks()
	m.streams()
	m.experts()
}

// positions are what a job calls kinds of position embedding.
var positions = map[string]string{
	"rope": "rope", "yarn": "rope", "mrope": "rope", "rotary": "rope", "alibi": "alibi", "none": "none", "learned_absolute": "learned", "absolute": "learned",
}

// position says how layers know the places of tokens: left out, by a table.
func (m *megatron) position() {
	position := cmp.Or(positions[strings.TrimPrefix(m.word("position_embedding_type"), "PositionEmbeddingType.")], "learned")
	m.set("model.position", position, m.given("position_embedding_type"))
	if r, ok := plain(m.word("rotary_percent")).(float64); ok && position == "rope" && r < 1 {
		m.take("model.partial_rotary_factor", "rotary_percent")
	}
	if position == "rope" && m.has("no_rope_freq") {
		m.unturned()
	}
}

// biases says which projections have some.
func (m *megatron) biases() {
	bias, from := !m.has("disable_bias_linear"), m.given("disable_bias_linear")
	if _, ok := m.flags["add_bias_linear"]; ok { // as logs have it, since 2023
		bias, from = m.has("add_bias_linear"), m.from("add_bias_linear")
	}
	m.set("model.bias", bias, from)
	if m.has("add_qkv_bias") && !bias {
		m.set("model.qkv_bias", true, m.from("add_qkv_bias"))
	}
}

// unturning is a list of layers with the rotary embedding but every so many.
var unturning = lazily(`^\(?\[0\]\*(\d+)\+\[1\](?:\*1)?\)?(?:\*\d+)?$`)

// unturned says which layers leave the rotary embedding out.
func (m *megatron) unturned() {
	const name, key = "no_rope_freq", "model.no_rope_layer_interval"
	f := m.flags[name]
	if _, ok := plain(f.value).(int64); ok || f.open != "" {
		m.take(key, name)
	} else if p := unturning().FindStringSubmatch(strings.ReplaceAll(strings.Trim(f.value, `"'`), " ", "")); p != nil {
		with, _ := strconv.ParseInt(p[1], 10, 64)
		m.set(key, with+1, m.from(name))
	} else {
		m.note("%s %s: all layers are taken to turn queries and keys", m.from(name), f.value)
	}
}

// sparseAttention is what experimental_attention_variant calls attention to the keys that an
// indexer picks.
const sparseAttention = "dsa"

// picks says how an indexer learns, and what of its kernels is not known.
func (m *megatron) picks() {
	switch m.word("experimental_attention_variant") {
	case sparseAttention:
	case summedAttention:
		if !m.has("apply_dsa_kernel_fusion") && m.word("dsa_kernel_backend") != "cudnn" {
			m.note("%s: estimated with the kernels of cuDNN and FlashMLA; without them steps take longer", m.from("apply_dsa_kernel_fusion"))
		}
		m.learns()
		return
	default:
		return
	}
	if backend := m.word("dsa_kernel_backend"); backend != "cudnn" {
		m.note("%s %s: estimated with the kernels of cuDNN and FlashMLA (dsa_kernel_backend cudnn); others take longer", m.from("dsa_kernel_backend"), cmp.Or(backend, "none"))
	}
	m.learns()
}

// learns says whether an indexer does.
func (m *megatron) learns() {
	loss, err := strconv.ParseFloat(m.word("dsa_indexer_loss_coeff"), 64)
	switch {
	case err != nil || loss <= 0:
		m.set("train.indexer_loss", false, m.given("dsa_indexer_loss_coeff"))
	case !m.has("dsa_indexer_use_sparse_loss"):
		m.note("%s false: estimated with the loss of the keys that are picked; that of all keys takes longer", m.from("dsa_indexer_use_sparse_loss"))
	}
}

// deltaNets are what experimental_attention_variant calls a gated delta net.
var deltaNets = []string{"gated_delta_net", "gdn"}

// deltas says which layers are gated delta nets.
func (m *megatron) deltas() {
	const variant, freq = "experimental_attention_variant", "linear_attention_freq"
	switch v := m.word(variant); {
	case !m.has(variant) || v == sparseAttention || v == summedAttention:
		return
	case !slices.Contains(deltaNets, v):
		m.note("%s %s: attention that is not known; estimated as softmax attention in every layer", m.from(variant), v)
		return
	}
	for _, d := range []struct {
		name     string
		standard int64
	}{{"linear_num_key_heads", 16}, {"linear_num_value_heads", 32}, {"linear_key_head_dim", 128}, {"linear_value_head_dim", 128}, {"linear_conv_kernel_dim", 4}} {
		m.takeOr("model."+d.name, d.name, d.standard)
	}
	if n, ok := plain(m.word(freq)).(int64); ok {
		m.set("model.full_attention_interval", n, m.from(freq))
	} else {
		m.open("model.layer_types", m.from(freq), "which layers are gated delta nets: give the key, a list of linear_attention and full_attention")
	}
}

// vocabMultiple is what the number of tokens is padded to a multiple of, times the tensor ranks.
const vocabMultiple = "make_vocab_size_divisible_by"

// vocabulary is the number of tokens, which a script may leave to its tokenizer.
func (m *megatron) vocabulary() {
	const key = "model.vocab_size"
	known := map[string]int64{"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}[m.word("tokenizer_type")]
	switch {
	case m.take(key, "padded_vocab_size"), m.take(key, "vocab_size"):
	case known > 0:
		m.set(key, known, m.from("tokenizer_type"))
	case !m.has("tokenizer_type") && m.has("merge_file"): // of GPT-2's byte pairs
		m.set(key, int64(50257), m.from("merge_file"))
	default:
		m.open(key, m.from("tokenizer_type"), "the tokenizer has the size of the vocabulary: give the key")
	}
}

// experts says which layers have them.
func (m *megatron) experts() {
	if !m.has("num_experts") {
		return
	}
	if !m.has("moe_ffn_hidden_size") {
		m.take("model.moe_intermediate_size", "ffn_hidden_size")
	}
	if m.has("moe_shared_expert_gate") {
		m.take("model.shared_expert_gate", "moe_shared_expert_gate")
	}
	if !m.has("moe_router_topk") {
		m.set("model.num_experts_per_tok", int64(2), "default of "+m.from("moe_router_topk"))
	}
	if m.has("deepspeed") {
		m.forkInterval()
	}
	m.sparse()
}

// machines are the arguments of launchers by which there are so many GPUs on so many nodes;
// without the second there is one node.
var machines = []struct {
	each, nodes string
	one         bool
}{
	{"num_gpus", "num_nodes", true},                                        // deepspeed
	{"nproc_per_node", "nnodes", true},                                     // torchrun
	{"gpus_per_node", "nodes", false}, {"ntasks_per_node", "nodes", false}, // Slurm
}

// machine is the number of GPUs.
func (m *megatron) machine() {
	if m.take("gpus", "world_size") {
		return
	}
	for _, l := range machines {
		nodes := m.number(l.nodes)
		from := m.from(l.each)
		if m.has(l.nodes) {
			from += ", " + m.from(l.nodes)
		} else if l.one && !m.logged {
			nodes = 1
		}
		switch each := m.number(l.each); {
		case !m.has(l.each):
		case each > 0 && nodes > 0:
			m.set("gpus", each*nodes, from)
			return
		case m.flags[l.each].open != "" && m.take("gpus", l.each), m.flags[l.nodes].open != "" && m.take("gpus", l.nodes):
			return
		}
	}
	switch n, from, why := m.ranks(); {
	case n > 1 && m.alonePython():
		m.open("gpus", from, fmt.Sprintf("one process alone sees %d: give the key", n))
	case why != "":
		m.open("gpus", from, why)
	case from != "":
		m.set("gpus", n, from)
	}
	for _, l := range machines { // of which nobody says how many GPUs each has
		if !m.mentions("gpus") && m.flags[l.nodes].open != "" {
			m.take("gpus", l.nodes)
		}
	}
}

// backends are what a job calls kernels of attention, by the backends that are not left to the recipe.
var backends = map[string]string{"flash": "flash-attn", "unfused": "unfused", "local": "unfused"}

func (m *megatron) runtime() {
	if m.has("deepspeed") { // whose fork has none of the switches
		m.set("runtime.recipe", shardedRecipe, m.from("deepspeed"))
		m.forkRelease()
	} else {
		m.set("runtime.recipe", m.recipe, m.names["recipe"])
		if m.recipe != oldRecipe { // which has none either
			m.group("runtime.")
			if _, given := m.flags["cross_entropy_fusion_impl"]; !given && m.has("cross_entropy_loss_fusion") {
				m.set("runtime.cross_entropy_impl", "native", "default of "+m.from("cross_entropy_fusion_impl"))
			}
		}
	}
	m.take("runtime.vocab_multiple", vocabMultiple)
	if kernel, ok := backends[strings.TrimPrefix(m.word("attention_backend"), "AttnBackend.")]; ok {
		m.set("runtime.attention", kernel, m.from("attention_backend"))
	}
	for _, off := range []string{"no_rope_freq", "no_rope_fusion", "apply_rope_fusion"} {
		if f, ok := m.flags[off]; ok && m.has(off) == (off == "no_rope_fusion") && f.value != "None" && m.word("position_embedding_type") == "rope" {
			m.set("runtime.rope_fusion", false, m.from(off))
		}
	}
	m.fusers()
	m.checks()
	if m.has("no_gradient_accumulation_fusion") && !m.has("deepspeed") { // which never does
		m.set("runtime.gradient_fusion", false, m.from("no_gradient_accumulation_fusion"))
	}
	m.activations()
	m.dispatcher()
	m.graphs()
	if m.flags["transformer_impl"].value == "local" {
		m.note("%s local: the layers are taken to be Transformer Engine's", m.from("transformer_impl"))
	}
}

// activations says where a kernel does not apply biases and gates together.
func (m *megatron) activations() {
	for _, off := range []string{"no_bias_swiglu_fusion", "no_bias_gelu_fusion", "bias_activation_fusion"} {
		f, ok := m.flags[off]
		switch {
		case !ok || m.has(off) != strings.HasPrefix(off, "no_") || f.value == "None" || m.recipe == oldRecipe:
		case m.has("swiglu") && off != "no_bias_gelu_fusion", m.has("quick_geglu") && off != "no_bias_swiglu_fusion":
			m.set("runtime.gate_fusion", false, m.from(off))
		case !m.has("swiglu") && !m.has("squared_relu") && off != "no_bias_swiglu_fusion":
			m.note("%s: biases and activations are taken to be one kernel's", m.from(off))
		}
	}
}

// dispatcher says how rows travel to experts and back.
func (m *megatron) dispatcher() {
	if !m.has("num_experts") || m.has("deepspeed") {
		return
	}
	const key, kind, backend = "runtime.token_dispatcher", "moe_token_dispatcher_type", "moe_flex_dispatcher_backend"
	switch m.word(kind) {
	case "flex":
		switch m.word(backend) {
		case "ncclep":
			m.note("%s ncclep: rows of experts are taken to travel as by Hybrid-EP, whose place NCCL's kernels take", m.from(backend))
			fallthrough
		case "hybridep":
			m.set(key, "hybridep", m.from(backend))
		default:
			m.set(key, "deepep", m.from(kind))
		}
	case "alltoall":
		m.set(key, "alltoall", m.from(kind))
	case "allgather", "":
		m.note("%s allgather: rows of experts are exchanged by all-to-all here", m.from(kind))
	}
	if grouped := "moe_grouped_gemm"; m.recipe == megatronRecipe && !m.has(grouped) {
		m.note("%s: experts run one after another; grouped GEMMs of all are taken", m.given(grouped))
	}
}

// weakLoss is the largest weight of a loss under which routing is weak: as far, by factors,
// from 0.001 as from 0.01, under which it was measured (strategies/estimate, spreads).
const weakLoss = 0.003

// routing says what balances the tokens of experts.
func (m *megatron) routing() {
	kind, weight := m.flags["moe_router_load_balancing_type"], m.flags["moe_aux_loss_coeff"]
	loss, err := strconv.ParseFloat(weight.value, 64)
	switch {
	case m.has("moe_expert_capacity_factor"): // which is as many tokens for each
	case m.has("moe_router_force_load_balancing"):
		m.set("train.routing", "random", m.from("moe_router_force_load_balancing"))
	case !m.has("num_experts"):
	case m.has("deepspeed"):
		m.forkRouting()
	case m.has("moe_router_enable_expert_bias"):
		m.set("train.routing", "learned", m.from("moe_router_enable_expert_bias"))
	case kind.value == "none":
		m.set("train.routing", "unbalanced", m.from("moe_router_load_balancing_type"))
	case err != nil || strings.Contains(kind.value, "sinkhorn"):
	case loss == 0:
		m.set("train.routing", "unbalanced", m.from("moe_aux_loss_coeff"))
	case loss <= weakLoss:
		m.set("train.routing", "weak", m.from("moe_aux_loss_coeff"))
	default:
		m.set("train.routing", "learned", m.from("moe_aux_loss_coeff"))
	}
}

// graphs says what is replayed without the host's launches.
func (m *megatron) graphs() {
	impl := m.word("cuda_graph_impl")
	on := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool {
			return slices.Contains(strings.FieldsFunc(m.word("cuda_graph_scope"), func(r rune) bool { return strings.ContainsRune(`, '"`, r) }), p)
		})
	}
	kind := ""
	switch {
	case on("full_iteration") || impl == "full_iteration":
		kind = "full"
	case impl == "none" && m.recipe != megatronRecipe: // others replay some where nothing is said
		kind = "none"
	case !m.has("enable_cuda_graph") && !m.has("external_cuda_graph") && (!m.has("cuda_graph_impl") || impl == "none"):
		return
	case on("attn") && on("mlp", "moe_router"):
		kind = "layers"
	case on("moe_router"):
		kind = "router"
	case on("attn", "mamba"):
		kind = "mixers"
	default:
		m.note("%s: which parts of a layer are replayed; give runtime.cuda_graphs", m.from(m.first("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")))
		return
	}
	from := "cuda_graph_scope"
	if kind == "none" || impl == "full_iteration" || !m.has(from) {
		from = "cuda_graph_impl"
	}
	m.set("runtime.cuda_graphs", kind, m.from(from))
}

func (m *megatron) plan() {
	m.group("plan.")
	if tp := m.number("tensor_model_parallel_size"); tp > 1 {
		m.set("plan.sequence_parallel", m.has("sequence_parallel"), m.given("sequence_parallel"))
	}
	if m.has("deepspeed") {
		m.forkPlan()
	} else if m.flags["optimizer"].value == "dist_muon" {
		m.set("plan.data_parallel", "zero1", m.from("optimizer"))
	} else if m.sharding() != "" {
		m.fsdp()
	} else if m.has("use_torch_fsdp2") {
		m.torchFSDP()
	} else if m.has("use_distributed_optimizer") {
		m.set("plan.data_parallel", "zero1", m.from("use_distributed_optimizer"))
	} else {
		m.set("plan.data_parallel", "ddp", m.given("use_distributed_optimizer"))
	}
	m.copies()
	m.contexts()
	if tp := m.number("tensor_model_parallel_size"); tp > 1 && m.has("num_experts") && !m.has("expert_tensor_parallel_size") {
		m.set("plan.expert_tp", tp, "default of "+m.from("expert_tensor_parallel_size"))
	}
	if m.has("optimizer_cpu_offload") {
		m.set("plan.offload", "optimizer", m.from("optimizer_cpu_offload"))
	}
	m.stages()
}

// contexts says how context ranks come by each other's keys and values: a job has one way for
// all layers, and no two at once.
func (m *megatron) contexts() {
	const name = "cp_comm_type"
	if m.number("context_parallel_size") < 2 || !m.has(name) {
		return
	}
	kinds := slices.Compact(strings.FieldsFunc(m.word(name), func(r rune) bool { return strings.ContainsRune(`, '"`, r) }))
	taken := "p2p"
	switch {
	case m.word("experimental_attention_variant") == sparseAttention:
		taken = "allgather"
	case len(kinds) > 0 && kinds[0] == "a2a":
		taken = "a2a"
	}
	if slices.ContainsFunc(kinds, func(k string) bool { return k != taken }) {
		m.note("%s %s: %s is taken in all layers", m.from(name), strings.Join(kinds, " "), taken)
	}
	m.set("plan.cp_comm_type", taken, m.from(name))
}

func (m *megatron) train() {
	m.group("train.")
	if m.number("cpu_offloading_num_layers") > 0 {
		m.take("train.offload_layers", "cpu_offloading_num_layers")
	}
	if f := m.flags["clip_grad"]; m.has("clip_grad") && f.open == "" && strings.Trim(f.value, "0.") == "" {
		m.set("train.clip_gradients", false, m.from("clip_grad"))
	}
	if m.has("recompute_activations") && !m.has("recompute_granularity") {
		m.set("train.recompute", "selective", m.from("recompute_activations"))
	}
	if m.has("checkpoint_activations") || m.has("activations_checkpoint_method") { // until 2022
		m.set("train.recompute", "full", m.from("checkpoint_activations"))
	} else if !m.has("recompute_granularity") && !m.has("recompute_activations") {
		m.set("train.recompute", "none", m.given("recompute_granularity"))
	}
	four, eight := m.first("fp4", "fp4_format"), m.first("fp8", "fp8_format")
	switch {
	case m.mentions("train.precision"):
	case four != "":
		m.set("train.precision", "nvfp4", m.from(four))
		m.wide()
	case eight != "":
		kind, ok := map[string]string{"": "fp8", "delayed": "fp8", "tensorwise": "fp8", "mxfp8": "mxfp8", "blockwise": "fp8-block"}[m.word("fp8_recipe")]
		if !ok {
			m.note("%s %s: scales of this kind are not known; fp8 is taken", m.from("fp8_recipe"), m.flags["fp8_recipe"].value)
			kind = "fp8"
		}
		m.set("train.precision", m.scaled(kind), m.from(eight))
		m.amax(kind)
		m.narrow(kind)
		m.wide()
	case m.has("bf16"):
		m.set("train.precision", "bf16", m.from("bf16"))
	case m.has("fp16"):
		m.set("train.precision", "fp16", m.from("fp16"))
	default:
		m.Settings = append(m.Settings, Setting{Key: "train.precision", Value: "fp32", From: m.given("bf16") + " and " + m.from("fp16"), last: true})
	}
	m.kept()
	m.bucket()
	m.routing()
	switch o := m.flags["optimizer"].value; {
	case o == "" || o == "adam":
	case strings.HasSuffix(o, "muon") && !strings.HasPrefix(o, "adaptive") && m.recipe != oldRecipe && !m.has("deepspeed"):
		m.set("train.optimizer", "muon", m.from("optimizer"))
	default:
		m.note("%s %s: Adam is taken", m.from("optimizer"), o)
	}
}

// bucket is into what gradients are collected, where they are reduced beside the backward pass:
// a number of elements, else Megatron-LM has one bucket whatever is said (megatron/training/
// training.py, resolve_ddp_bucket_size).
func (m *megatron) bucket() {
	const size, number = "ddp_bucket_size", "ddp_num_buckets"
	r, err := recipe.Load(m.recipe)
	switch {
	case !m.has("overlap_grad_reduce") || m.has("deepspeed") || m.has("use_torch_fsdp2") || err != nil:
	case m.has(number):
		m.note("%s %s", m.from(number), m.flags[number].value)
	case m.has(size) && m.sharding() != "":
		m.note("%s %s", m.from(size), m.flags[size].value)
	case m.number(size) > 0:
		each := int64(r.Precision[cmp.Or(m.textOf("train.precision"), r.Default)].Reduce.Size())
		switch m.textOf("train.dtypes.reduce") {
		case "bf16", "fp16":
			each = 2
		case "fp32":
			each = 4
		}
		m.set("plan.bucket", fmt.Sprintf("%.6g MB", float64(each*m.number(size))/1e6), fmt.Sprintf("%s, of %d bits", m.from(size), 8*each))
	}
}
