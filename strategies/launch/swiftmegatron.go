package launch

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
)

// swiftMegatron is how ms-swift starts Megatron-Core (swift/cli/_megatron).
var swiftMegatron = lazily(`(?:^|\s|/)megatron (sft|pt|rlhf) `)

// swiftMegatronMarks are keys of its files that tell them from those for transformers' Trainer.
var swiftMegatronMarks = []string{"micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "context_parallel_size", "recompute_granularity"}

// notSwiftMegatron are keys of other programs' files that have some of those marks, too.
var notSwiftMegatron = slices.Concat([]string{"per_device_train_batch_size"}, axolotl.marks, llamaFactoryOne.marks, llamaFactory.marks)

// swiftMegatronDefaults are its own (swift/megatron/arguments/megatron_args.py of 4.0 on).
var swiftMegatronDefaults = map[string]string{
	"micro_batch_size": "1", "global_batch_size": "16", "recompute_granularity": "selective", "attention_backend": "flash", "cross_entropy_loss_fusion": "true", "cross_entropy_fusion_impl": "native", "apply_rope_fusion": "false",
	"use_distributed_optimizer": "true", "overlap_grad_reduce": "false", "overlap_param_gather": "false", "expert_tensor_parallel_size": "1", "moe_token_dispatcher_type": "alltoall", "moe_permute_fusion": "false", "moe_router_fusion": "false",
	"moe_grouped_gemm": "true", "cuda_graph_impl": "none", "tensor_model_parallel_size": "1", "pipeline_model_parallel_size": "1",
}

// swiftMegatronKeys are its arguments beside Megatron-LM's.
var swiftMegatronKeys = keysOf("swift-megatron")

// megatronProjections are modules of Megatron-Core's layers by what they are in the catalog's.
var megatronProjections = map[string][]any{"linear_qkv": {"qkv"}, "linear_proj": {"o"}, "linear_fc1": {"gate_up"}, "linear_fc2": {"down"}, "q_proj": {"q"}, "k_proj": {"k"}, "v_proj": {"v"}, "o_proj": {"o"}}

// ofSwift are the arguments in a file for ms-swift's Megatron-Core; false: it is none.
func (j *Job) ofSwift(d *yamlx.Document) (bool, error) {
	has := func(k string) bool { return d.At(k) != nil }
	if !slices.ContainsFunc(swiftMegatronMarks, has) || slices.ContainsFunc(notSwiftMegatron, has) || !has("model") && !has("mcore_model") && !has("load") {
		return false, nil
	}
	env := environment(d, "ENV")
	err := j.swiftMegatron(d.Name, start{flags: keysAsFlags(d), env: env}, "")
	j.allocates(env)
	j.connects(env)
	return true, err
}

// keysAsFlags are the keys of a file as arguments.
func keysAsFlags(d *yamlx.Document) flags {
	out := flags{}
	for i := 0; i+1 < len(d.Root.Content); i += 2 {
		key, value := d.Root.Content[i].Value, d.Root.Content[i+1]
		var words []string
		for _, w := range value.Content {
			words = append(words, w.Value)
		}
		switch {
		case key == "ENV" || value.Tag == "!!null":
		case len(words) > 0:
			out[key] = flag{value: "[" + strings.Join(words, ", ") + "]", words: words, line: value.Line}
		default:
			out[key] = flag{value: value.Value, line: value.Line}
		}
	}
	return out
}

// swiftMegatron reads ms-swift's arguments for Megatron-Core: names and defaults are its own, the
// model is one of Hugging Face's. dashes stand before arguments.
func (j *Job) swiftMegatron(name string, s start, dashes string) error {
	return j.hosted(name, s, dashes, map[string]string{"recipe": "megatron of ms-swift"}, swiftMegatronDefaults)
}

// hosted reads arguments for Megatron-Core of a program of another's models, by ms-swift's names for
// them; names are what the file calls those that it has other names for.
func (j *Job) hosted(name string, s start, dashes string, names, defaults map[string]string) error {
	j.Notes = append(j.Notes, s.Notes...)
	m := &megatron{Job: j, start: s, names: names, recipe: guidedRecipe, dashes: &dashes}
	m.flags = maps.Clone(s.flags)
	for variable, as := range map[string]string{"NPROC_PER_NODE": "nproc_per_node", "NNODES": "nnodes"} {
		if v, ok := s.env[variable]; ok {
			text, open := s.Show(v)
			m.flags[as], m.names[as] = flag{value: text, open: open, line: 1}, variable
		}
	}
	if wrong := m.check(name); wrong != nil {
		return wrong
	}
	for name, value := range defaults {
		if _, given := m.flags[name]; !given {
			m.flags[name] = flag{value: value}
			m.names[name] = "default of " + dashes + name
		}
	}
	m.swiftModel()
	m.machine()
	m.rename()
	m.besidePasses()
	m.runtime()
	m.plan()
	m.swiftTrain()
	m.train()
	m.rest()
	return nil
}

// swiftModel is the catalog's, where that has it, and what of it the plan follows from.
func (m *megatron) swiftModel() {
	f, given := m.flags["model"]
	name := model.Named(f.value)
	switch {
	case f.open != "":
		m.take("model", "model")
	case name != "":
		m.set("model", name, m.from("model")+" "+f.value)
	case given:
		m.open("model", m.from("model"), f.value+" is not in the catalog: give the key, which may be the folder of the model or its config.json")
	default:
		from := "without " + m.from("model")
		for _, of := range []string{"mcore_model", "load"} {
			if m.has(of) {
				from = m.from(of) + " " + m.flags[of].value
			}
		}
		m.open("model", from, "the checkpoint has it: give the key")
	}
	if spec := specOf(name); spec != nil {
		m.flags["num_layers"] = flag{value: strconv.FormatInt(spec.Layers, 10)}
		m.catalogued(spec.MoE != nil)
	} else {
		m.catalogued(m.has("expert_model_parallel_size"))
	}
	m.flags["position_embedding_type"] = flag{value: "rope"}
}

// catalogued says whether the layers of a model that arguments do not describe have experts.
func (m *megatron) catalogued(experts bool) {
	if experts {
		m.flags["num_experts"] = flag{value: "true"}
	}
}

// swiftTrain is the batch, the precision and what is trained.
func (m *megatron) swiftTrain() {
	if !m.take("train.sequence_length", "max_length") {
		m.open("train.sequence_length", "without "+m.from("max_length"), "the model has the length: give the key")
	}
	if m.has("packing") {
		m.apart(m.from("packing"))
	} else if m.has("max_length") {
		m.note("%s is the most: without packing a batch is as long as its longest sequence", m.from("max_length"))
	}
	if by := swiftMegatron().FindStringSubmatch(m.text); by != nil && by[1] == "rlhf" || m.has("rlhf_type") {
		m.note("megatron rlhf: a step is taken to train on next tokens")
	}
	switch t := m.word("torch_dtype"); {
	case m.has("bf16") || m.has("fp16") || m.has("fp8_format") || m.has("fp4_format"):
	case t == "bfloat16":
		m.flags["bf16"], m.names["bf16"] = flag{value: "true"}, m.from("torch_dtype")
	case t != "": // _init_mixed_precision
		m.flags["fp16"], m.names["fp16"] = flag{value: "true"}, m.from("torch_dtype")
	default:
		m.open("train.precision", "without "+m.from("torch_dtype"), "the dtype that the model is stored in, most often bf16: give the key")
	}
	m.take("train.grad_accumulation", "gradient_accumulation_steps")
	kind := m.word("tuner_type") + m.word("train_type")
	if kind == "lora_llm" {
		m.note("%s lora_llm: adapters alone are taken to be trained", m.from("tuner_type"))
	}
	if !strings.HasPrefix(kind, "lora") {
		return
	}
	m.takeOr("train.lora.rank", "lora_rank", int64(8))
	if d, err := strconv.ParseFloat(m.word("lora_dropout"), 64); err == nil && d > 0 {
		m.set("train.lora.dropout", d, m.from("lora_dropout"))
	} else if !m.has("lora_dropout") {
		m.set("train.lora.dropout", 0.05, "default of "+m.from("lora_dropout"))
	}
	var targets []any
	f := m.flags["target_modules"]
	for name := range strings.FieldsSeq(cmp.Or(strings.Join(f.words, " "), f.value)) {
		p, known := megatronProjections[name]
		switch {
		case everyLinear(name):
			return
		case !known:
			m.note("%s %s: which projections that is; give train.lora.targets", m.from("target_modules"), name)
		}
		targets = append(targets, p...)
	}
	if len(targets) > 0 {
		m.set("train.lora.targets", targets, m.from("target_modules"))
	}
}

// swiftRest reports whether an argument of ms-swift's is read, harmless, or noted.
func (m *megatron) swiftRest(name string) bool {
	value := m.flags[name].value
	keys := swiftMegatronKeys()
	return keys.read[name] || m.Job.costs(keys.costly, name, m.from(name), value) || keys.harmless.MatchString(name)
}
