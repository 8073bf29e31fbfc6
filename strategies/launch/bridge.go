package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// bridgeSections are the parts of a run_config.yaml whose keys are arguments, first those
// that count where two have one. What mixed_precision says is put over them when training
// begins (training/mixed_precision.py).
var bridgeSections = []string{"mixed_precision", "ddp", "model", "model.transformer", "train", "optimizer", "tokenizer", "dist"}

// bridgeNames are its keys that Megatron-LM's arguments call otherwise.
var bridgeNames = map[string]string{
	"num_moe_experts": "num_experts", "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers", "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers", "cuda_graph_modules": "cuda_graph_scope",
	"gated_linear_unit": "swiglu", "activation_func": "activation", "share_embeddings_and_output_weights": "share", "fp8_param": "fp8_param_gather",
}

// bridgeNeeds are keys that a file has that Bridge wrote, and whose defaults are not guessed.
var bridgeNeeds = []string{
	"num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size", "seq_length", "gated_linear_unit", "normalization", "position_embedding_type", "add_bias_linear", "share_embeddings_and_output_weights",
	"hidden_dropout", "attention_dropout", "tensor_model_parallel_size", "pipeline_model_parallel_size", "recompute_granularity",
}

// bridgeActivations are functions by what they are called here; quick_gelu costs what SiLU does.
var bridgeActivations = map[string]string{"silu": "silu", "swish": "silu", "quick_gelu": "silu", "gelu": "gelu", "relu": "relu", "squared_relu": "relu2"}

// bridgeKeys are those that no key of a job stands for, beside those that are arguments, and those of experts.
var bridgeKeys, bridgeExpertsKeys = keysOf("megatron-bridge"), keysOf("megatron-bridge-experts")

// bridgePrecisions are what the names of mixed_precision mean, in Megatron-LM's arguments
// (training/mixed_precision.py), after bf16_ or fp16_, which adds up gradients in 16 bits.
var bridgePrecisions = map[string]map[string]string{
	"mixed":                             {},
	"with_fp8_delayed_scaling_mixed":    {"fp8": "hybrid", "fp8_recipe": "delayed", "fp8_param_gather": "true"},
	"with_fp8_current_scaling_mixed":    {"fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": "true", "first_last_layers_bf16": "true", "num_layers_at_start_in_bf16": "1", "num_layers_at_end_in_bf16": "1"},
	"with_fp8_subchannel_scaling_mixed": {"fp8": "hybrid", "fp8_recipe": "blockwise", "fp8_param_gather": "false"},
	"with_mxfp8_mixed":                  {"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_param_gather": "true"},
	"with_nvfp4_mixed":                  {"fp4": "e2m1"},
	"nemotron_h":                        {"fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": "true", "first_last_layers_bf16": "true", "num_layers_at_start_in_bf16": "2", "num_layers_at_end_in_bf16": "2"},
	"nanov2":                            {"fp8": "hybrid", "fp8_recipe": "blockwise", "fp8_param_gather": "true", "first_last_layers_bf16": "true", "num_layers_at_start_in_bf16": "2", "num_layers_at_end_in_bf16": "2"},
	"nemotron_3_super":                  {"fp4": "e2m1", "first_last_layers_bf16": "true", "num_layers_at_end_in_bf16": "14"},
}

// bridgeModels are names of single models' precisions, by what they are above.
var bridgeModels = map[string]string{
	"nemotron_h_bf16_with_fp8_current_scaling_mixed": "bf16_nemotron_h", "nanov2_bf16_with_fp8_current_scaling_mixed": "bf16_nanov2", "nemotron_3_super_bf16_with_nvfp4_mixed": "bf16_nemotron_3_super",
}

// bridgeFile is what has all of a training of Megatron-Bridge.
const bridgeFile = "the run_config.yaml that Megatron-Bridge writes beside a checkpoint, or a ConfigContainer's to_yaml"

// bridgeParts tells what a recipe is to have instead, in YAML or on the command line of a script.
var bridgeParts = lazily(`(?s)(?:\A|\n)train:\s.*\n[ \t]+(?:train_iters|global_batch_size):|\brun_recipe\.py\b|\btrain\.(?:global|micro)_batch_size=`)

// bridgeArguments tell its scripts that measure a recipe (scripts/performance/argument_parser.py), beside arguments that
// Megatron-LM has, too.
var bridgeArguments = []string{"compute_dtype", "model_family_name", "model_recipe_name"}

// unwhole refuses what a recipe of Megatron-Bridge is to have instead: all else is in Python.
func unwhole(name string) error {
	return &diag.Error{File: name, Message: "has what a recipe of Megatron-Bridge, in Python, is to have instead, but not the recipe; give " + bridgeFile}
}

// bridge reads a run_config.yaml of Megatron-Bridge.
func (r *reading) bridge() error {
	section := "model."
	if r.node("model.transformer") != nil { // GPTModelConfig
		section = "model.transformer."
	}
	var keys []string
	for _, k := range bridgeNeeds {
		if r.node("model."+k) == nil {
			k = section + k
		} else {
			k = "model." + k
		}
		keys = append(keys, k)
	}
	if err := r.needs(bridgeFile, append(keys, "train.micro_batch_size", "train.global_batch_size")...); err != nil {
		return err
	}
	for _, s := range bridgeSections {
		if err := r.section(s); err != nil {
			return err
		}
	}
	if err := r.bridgePrecision(); err != nil {
		return err
	}
	if err := r.bridgeOverlap(); err != nil {
		return err
	}
	r.bridgeModel(section)
	r.bridgeRecipe()
	aware := r.has("use_precision_aware_optimizer")
	for _, name := range []string{"use_precision_aware_optimizer", "reuse_grad_buf_for_mxfp8_param_ag"} { // what they mean follows, or is the recipe's
		delete(r.flags, name)
	}
	r.read()
	r.bridgeDTypes(aware)
	r.counts("run_config.yaml")
	r.lists(section, bridgeKeys().costly)
	if r.has("num_experts") {
		r.lists(section, bridgeExpertsKeys().costly)
	}
	return nil
}

// section takes the keys of one part, but those that another had.
func (r *reading) section(name string) error {
	n := r.node(name)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		as := key
		if other, ok := bridgeNames[key]; ok {
			as = other
		}
		if f, ok := r.flags[as]; ok && (f.value != "None" || value.Tag == "!!null" || strings.HasPrefix(r.names[as], bridgeSections[0])) {
			continue
		}
		if strings.HasPrefix(key, "_") || value.Kind == yaml.MappingNode && len(value.Content) > 0 && !objects(value) {
			continue
		}
		if err := r.put(as, name+"."+key, value); err != nil {
			return err
		}
	}
	return nil
}

// objects reports whether a mapping stands for a value that Python names.
func objects(n *yaml.Node) bool {
	_, called := yamlx.Key(n, "_call_")
	return called != nil
}

// bridgePrecision takes over what a name of mixed_precision means.
func (r *reading) bridgePrecision() error {
	const key = "mixed_precision"
	n := r.node(key)
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return nil
	}
	full := strings.ReplaceAll(n.Value, "-", "_")
	kind, name, _ := strings.Cut(cmp.Or(bridgeModels[full], full), "_")
	says, ok := bridgePrecisions[name]
	if !ok || kind != "bf16" && kind != "fp16" {
		return r.doc.Errorf(n, "mixed_precision: there is no %s; give one of Megatron-Bridge's names, as in bf16_mixed or bf16_with_mxfp8_mixed", n.Value)
	}
	for _, of := range []string{"bf16", "fp16"} {
		r.say(of, strconv.FormatBool(of == kind), key+": "+of)
	}
	for _, of := range []string{"fp8", "fp8_recipe", "fp4", "fp8_param_gather", "fp8_dot_product_attention", "first_last_layers_bf16"} {
		r.say(of, "false", key+": "+of)
	}
	for _, end := range wideEnds { // MixedPrecisionConfig's defaults, where Megatron-LM's are 1
		r.say(end.name, "0", key+": "+end.name)
	}
	for of, value := range says {
		r.say(of, value, key+": "+of)
	}
	r.say("grad_reduce_in_fp32", strconv.FormatBool(kind == "bf16"), key+": grad_reduce_in_fp32")
	return nil
}

// bridgeOverlap takes over what comm_overlap says, which counts when training begins
// (training/comm_overlap.py): what it leaves out is on of replicas under a distributed
// optimizer, and off of experts.
func (r *reading) bridgeOverlap() error {
	const section = "comm_overlap."
	n := r.node("comm_overlap")
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for _, o := range []struct {
		name, fallback string
		counts         bool
	}{
		{"tp_comm_overlap", "false", true}, {"overlap_moe_expert_parallel_comm", "false", true}, {"delay_wgrad_compute", "false", true},
		{"overlap_grad_reduce", "true", r.has("use_distributed_optimizer")}, {"overlap_param_gather", "true", r.has("use_distributed_optimizer")},
	} {
		if !o.counts {
			continue
		}
		if err := r.argument(o.name, section+o.name, o.fallback); err != nil {
			return err
		}
	}
	if r.has("tp_comm_overlap") && (r.number("tensor_model_parallel_size") < 2 || !r.has("sequence_parallel")) {
		r.say("tp_comm_overlap", "false", section+"tp_comm_overlap, not without sequence_parallel")
	}
	if gpus, ok := plain(r.text(section + "data_parallel_size")).(int64); ok && gpus > 0 {
		for _, degree := range []string{"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"} {
			gpus *= max(r.number(degree), 1)
		}
		r.say("world_size", strconv.FormatInt(gpus, 10), section+"data_parallel_size times tp, pp and cp")
	}
	return nil
}

// padsVocabulary is whether Bridge pads the number of tokens.
const padsVocabulary = "should_pad_vocab"

// bridgeModel brings what layers are made of into Megatron-LM's words.
func (r *reading) bridgeModel(section string) {
	if act := r.word("activation"); act != "" && act != "None" {
		if known, ok := bridgeActivations[act]; ok {
			r.say("hidden_act", known, r.names["activation"])
		} else {
			r.note("%s %s; give model.hidden_act", r.names["activation"], act)
		}
	}
	r.opposite("untie_embeddings_and_output_weights", "share")
	r.grouped()
	if r.word(padsVocabulary) == "false" { // models/gpt_provider.py: left to the tensor ranks, which have to divide it
		r.say(vocabMultiple, "1", r.names[padsVocabulary])
	}
	r.fusedLoss(section)
	if !r.has("cpu_offloading") {
		delete(r.flags, "cpu_offloading_num_layers")
	}
	if backend := r.word("attention_backend"); backend != "" { // AttnBackend by number, as older releases write it
		for i, name := range []string{"flash", "fused", "unfused", "local", "auto"} {
			if backend == strconv.Itoa(i+1) {
				r.say("attention_backend", name, r.names["attention_backend"])
			}
		}
	}
	r.uniform("cp_comm_type")
	r.stages("pipeline_model_parallel_layout")
}

// uniform makes one word of a list of the same.
func (r *reading) uniform(name string) {
	f := r.flags[name]
	if list, ok := plain(f.value).([]any); ok && len(list) > 0 && len(slices.Compact(slices.Clone(list))) == 1 {
		f.value = fmt.Sprint(list[0])
		r.flags[name] = f
	}
}

// stages writes a list of what is on each stage of a pipeline in the letters of the argument.
func (r *reading) stages(name string) {
	n := r.node(r.names[name])
	if n == nil || n.Kind != yaml.SequenceNode {
		return
	}
	var stages []string
	for _, stage := range n.Content {
		var letters strings.Builder
		for _, layer := range stage.Content {
			letters.WriteString(map[string]string{"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}[layer.Value])
		}
		stages = append(stages, letters.String())
	}
	r.flags[name] = flag{value: strings.Join(stages, "|"), line: n.Line}
}

// bridgeRecipe tells the switches of the performance scripts from others
// (scripts/performance/utils/overrides.py, _set_common_perf_overrides).
func (r *reading) bridgeRecipe() {
	switch checked := r.on("ddp.check_for_nan_in_grad"); {
	case r.on("train.manual_gc") && !checked:
		r.recipe, r.names["recipe"] = coreRecipe, "train.manual_gc, without ddp.check_for_nan_in_grad"
	case !checked:
		r.say("no_check_for_nan_in_loss_and_grad", "true", "ddp.check_for_nan_in_grad")
		fallthrough
	default:
		r.recipe, r.names["recipe"] = guidedRecipe, "ddp.check_for_nan_in_grad, which the performance scripts turn off"
	}
}

// bridgeDTypes says in what gradients are kept, and the states of an optimizer that is aware
// of precision.
func (r *reading) bridgeDTypes(aware bool) {
	kept := "fp32"
	if !r.has("grad_reduce_in_fp32") {
		kept = "bf16"
		if r.has("fp16") {
			kept = "fp16"
		}
	}
	r.keep(kept, r.from("grad_reduce_in_fp32"))
	if aware {
		r.states()
	}
}
