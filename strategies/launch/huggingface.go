package launch

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// dialect is how a program says the arguments of transformers' Trainer.
type dialect struct {
	marks    []string          // keys that tell it, of which no other has any
	names    map[string]string // what it calls otherwise than TrainingArguments
	defaults map[string]string // of arguments by their names there
	loops    bool              // its steps are of a loop of its own, not of transformers' Trainer
}

// Dialects, in the order in which marks tell them.
var (
	accelerateConfig = &dialect{marks: []string{"compute_environment", "distributed_type", "num_processes"}}
	axolotl          = &dialect{
		marks: []string{"base_model"},
		names: map[string]string{
			"base_model": "model_name_or_path", "micro_batch_size": "per_device_train_batch_size", "sequence_len": "max_length", "optimizer": "optim", "sample_packing": "packing",
			"context_parallel_size": "parallelism.cp_size", "sequence_parallel_degree": "parallelism.cp_size", "tensor_parallel_size": "parallelism.tp_size",
			"dp_shard_size": "parallelism.dp_shard_size", "dp_replicate_size": "parallelism.dp_replicate_size", "peft_use_dora": "use_dora", "world_size": "num_processes",
		},
		// src/axolotl/utils/schemas: config.py, training.py, peft.py
		defaults: map[string]string{"per_device_train_batch_size": "1", "gradient_accumulation_steps": "1", "max_length": "512", "optim": "adamw_torch_fused", "bf16": "auto", "gradient_checkpointing": "false", "max_grad_norm": "1",
			"gradient_checkpointing_kwargs.use_reentrant": "true"},
	}
	llamaFactory = &dialect{
		marks: []string{"finetuning_type", "cutoff_len", "lora_target"},
		names: map[string]string{"lora_rank": "lora_r", "lora_target": "lora_target_modules", "cutoff_len": "max_length", "enable_liger_kernel": "use_liger_kernel", "flash_attn": "attn_implementation", "additional_target": "lora_modules_to_save", "use_reentrant_gc": "gradient_checkpointing_kwargs.use_reentrant", "double_quantization": "bnb_4bit_use_double_quant", "freeze_vision_tower": "images.encoder", "freeze_multi_modal_projector": "images.projector"},
		// src/llamafactory/hparams: data_args.py, finetuning_args.py, model_args.py
		defaults: map[string]string{"per_device_train_batch_size": "8", "gradient_accumulation_steps": "1", "max_length": "2048", "use_peft": "true", "lora_r": "8", "lora_target_modules": "all", "gradient_checkpointing": "true",
			"optim": "adamw_torch_fused", "max_grad_norm": "1", "bnb_4bit_use_double_quant": "true", "images.encoder": "true", "images.projector": "true", "gradient_checkpointing_kwargs.use_reentrant": "true"},
	}
	trl = &dialect{
		marks: []string{"use_peft", "max_length", "max_seq_length", "lora_r", "lora_target_modules", "load_in_4bit", "dataset_text_field", "packing"},
		names: map[string]string{"use_bnb_nested_quant": "bnb_4bit_use_double_quant"},
		// trl/trainer: sft_config.py, model_config.py
		defaults: map[string]string{"per_device_train_batch_size": "8", "gradient_accumulation_steps": "1", "max_length": "1024", "optim": "adamw_torch_fused", "max_grad_norm": "1", "lora_r": "16", "lora_dropout": "0.05", "bnb_4bit_use_double_quant": "false"},
	}
	trainerArguments = &dialect{
		marks: []string{"per_device_train_batch_size", "model_name_or_path", "gradient_checkpointing", "output_dir", "num_train_epochs"},
		// src/transformers/training_args.py
		defaults: map[string]string{"per_device_train_batch_size": "8", "gradient_accumulation_steps": "1", "optim": "adamw_torch_fused", "gradient_checkpointing": "false", "max_grad_norm": "1"},
	}
	fsdpConfig = &dialect{marks: []string{"fsdp_version", "transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap", "min_num_params", "fsdp_min_num_params"}}

	dialects = []*dialect{axolotl, llamaFactoryOne, llamaFactory, swift, trl, trainerArguments, accelerateConfig, fsdpConfig, swiftFSDP}
)

// renamed are arguments under other names that any dialect may use.
var renamed = map[string]string{
	"torch_dtype": "dtype", "max_seq_length": "max_length", "cutoff_len": "max_length", "nproc_per_node": "per_node", "num_gpus": "per_node", "nnodes": "num_machines", "num_nodes": "num_machines", "nodes": "num_machines", "gpus_per_node": "per_node",
	"per_gpu_train_batch_size": "per_device_train_batch_size",

	"zero_stage": "deepspeed.zero_stage", "offload_optimizer_device": "deepspeed.offload_optimizer_device", "offload_param_device": "deepspeed.offload_param_device",
	"deepspeed_config_file": "deepspeed.file", "deepspeed.gradient_accumulation_steps": "gradient_accumulation_steps", "config_file": "accelerate.config_file",
}

// turn is a value of an argument that says what another does, too; "" is any that is on.
type turn struct{ name, value, says, as string }

func (s turn) turned(a argument) bool {
	return a.open == "" && (s.value == a.value || s.value == "" && a.on())
}

var switches = []turn{
	{"finetuning_type", "lora", "use_peft", "true"}, {"finetuning_type", "full", "use_peft", "false"}, {"finetuning_type", "freeze", "use_peft", "false"}, {"finetuning_type", "oft", "use_peft", "false"},
	{"adapter", "lora", "use_peft", "true"}, {"adapter", "qlora", "use_peft", "true"}, {"adapter", "qlora", "load_in_4bit", "true"},
	{"quantization_bit", "4", "load_in_4bit", "true"}, {"quantization_bit", "8", "load_in_8bit", "true"}, {"disable_gradient_checkpointing", "", "gradient_checkpointing", "false"}, {"pure_bf16", "", "dtype", "bfloat16"},
	{"lora_target_linear", "", "lora_target_modules", "all-linear"}, {"bfloat16", "", "bf16", "true"}, {"float16", "", "fp16", "true"},
	{"flash_attention", "", "attn_implementation", "flash_attention_2"}, {"sdp_attention", "", "attn_implementation", "sdpa"}, {"flex_attention", "", "attn_implementation", "flex_attention"}, {"eager_attention", "", "attn_implementation", "eager"},
	{"use_fsdp", "", "distributed_type", "FSDP"}, {"use_deepspeed", "", "distributed_type", "DEEPSPEED"}, {"multi_gpu", "", "distributed_type", "MULTI_GPU"}, {"use_megatron_lm", "", "distributed_type", "MEGATRON_LM"},
	{"distributed_type", "fsdp2", "fsdp.version", "2"}, {"distributed_type", "fsdpturbo", "fsdp.version", "2"}, {"use_muon", "", "optim", "muon"}, {"freeze_mm_modules", "", "images.encoder", "true"}, {"freeze_mm_modules", "", "images.projector", "true"}, {"kernel.name", "liger_kernel", "use_liger_kernel", "true"}, {"torch_compile_backend", "", "torch_compile", "true"}, {"torch_compile_mode", "", "torch_compile", "true"}, {"neat_packing", "", "packing", "true"},
}

// whole are arguments that are whole numbers, and from where to where.
var whole = map[string][2]int64{
	"per_device_train_batch_size": {1, 1 << 16}, "global_batch_size": {1, 1 << 24}, "gradient_accumulation_steps": {1, 1 << 16}, "max_length": {1, 1 << 24}, "max_source_length": {1, 1 << 24}, "max_target_length": {1, 1 << 24}, "block_size": {1, 1 << 24}, "lora_r": {1, 1 << 14},
	"num_processes": {1, 1 << 20}, "fsdp.version": {1, 2}, "deepspeed.zero_stage": {0, 3}, "ddp_bucket_cap_mb": {1, 1 << 20}, "num_cpu_threads_per_process": {1, 1024},
	"megatron_lm.tp_degree": {1, 1 << 20}, "megatron_lm.pp_degree": {1, 1 << 20}, "megatron_lm.num_micro_batches": {1, 1 << 16}, "megatron_lm.context_parallel_size": {1, 1 << 20}, "megatron_lm.expert_model_parallel_size": {1, 1 << 20},
	"parallelism.tp_size": {1, 1 << 20}, "parallelism.cp_size": {1, 1 << 20}, "parallelism.sp_size": {1, 1 << 20}, "parallelism.dp_replicate_size": {1, 1 << 20}, "parallelism.dp_shard_size": {1, 1 << 20},
}

// truths are arguments that are true or false, with what else some programs take; truthWords are
// how these are written.
var (
	truths = map[string][]string{
		"bf16": {"auto", "full"}, "fp16": {"auto"}, "use_liger_kernel": nil, "liger_rms_norm": nil, "liger_glu_activation": nil, "liger_swiglu": nil, "liger_rope": nil,
		"liger_fused_linear_cross_entropy": nil, "cut_cross_entropy": nil, "chunked_cross_entropy": nil, "torch_compile": {"auto"},
	}
	truthWords = []string{"", "true", "false", "yes", "no", "1", "0", "t", "f", "y", "n", "none", "null", "on", "off"}
)

// argument is one that a file gives.
type argument struct {
	value string
	words []string // of a list
	from  string   // what the file calls it
	open  string   // why the value is not known
	given bool     // not a default
	over  string   // the command whose own it is, which names a file and goes before that
	fail  func(format string, args ...any) error
}

// on reports whether it is given and neither false nor none.
func (a argument) on() bool {
	return a.open == "" && (len(a.words) > 0 || !slices.Contains([]string{"", "false", "no", "none", "null", "n", "f", "0", "0.0"}, strings.ToLower(a.value)))
}

func (a argument) number() int64 {
	n, _ := strconv.ParseInt(strings.ReplaceAll(a.value, "_", ""), 10, 64)
	return n
}

// all are the words of a list, or of a value that is several.
func (a argument) all() []string {
	if len(a.words) > 0 {
		return a.words
	}
	return strings.FieldsFunc(a.value, func(r rune) bool { return r == ' ' || r == ',' })
}

// trainer are arguments of transformers' Trainer, of whatever files they are.
type trainer struct {
	given    map[string]argument
	dialects []*dialect
	line     bool        // there is a command line
	flags    bool        // it has the arguments
	inline   *Job        // a configuration of DeepSpeed among them
	file     *configured // that has the arguments
	ignored  []string
	notes    []string
	ways     []way // that conditions of a script give it
}

// way is what a script comes to by a condition that goes another way.
type way struct {
	by string
	*trainer
}

// keyed finds keys of a configuration in YAML.
var keyed = func() *regexp.Regexp {
	var marks []string
	for _, d := range dialects {
		marks = append(marks, d.marks...)
	}
	return regexp.MustCompile(`(?m)^(?:` + strings.Join(marks, "|") + `):(?:\s|$)`)
}()

// dialectOf tells who reads some keys, nil where nobody does.
func dialectOf(has func(string) bool) *dialect {
	for _, d := range dialects {
		if slices.ContainsFunc(d.marks, has) {
			return d
		}
	}
	return nil
}

// keys reads arguments as YAML or JSON; false: they are none of a Trainer's.
func (j *Job) keys(d *yamlx.Document) (bool, error) {
	of := dialectOf(func(k string) bool { return config{d.Root}.at(k) != nil })
	if of == nil {
		return false, nil
	}
	t := &trainer{given: map[string]argument{}, dialects: []*dialect{of}}
	in := ""
	if of == fsdpConfig {
		in = "fsdp"
	}
	if err := t.mapping(d, d.Root, in, ""); err != nil {
		return true, err
	}
	if of == swift {
		env := environment(d, "ENV")
		t.launched(start{env: env})
		t.allocates(env)
		t.spread(visible(env["CUDA_VISIBLE_DEVICES"]))
		if err := t.swift(); err != nil {
			return true, err
		}
	}
	return true, j.take(t, false)
}

// accelerator is what accelerator_config has, in which there are mappings again.
const accelerator = "accelerator"

// mapping takes keys and those within them, which have the name of the outer one before them.
func (t *trainer) mapping(d *yamlx.Document, n *yaml.Node, in, label string) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		a := argument{from: label + key, given: true, fail: func(format string, args ...any) error { return d.Errorf(value, format, args...) }}
		name := key
		if in != "" {
			name = in + "." + strings.TrimPrefix(strings.TrimPrefix(key, in+"_"), "config_")
		}
		switch {
		case value.Kind == yaml.MappingNode && key == "deepspeed" && in == "":
			t.inline = &Job{}
			if err := t.inline.sharding(d, config{value}); err != nil {
				return err
			}
			continue
		case value.Kind == yaml.MappingNode && in == accelerator:
			if err := t.mapping(d, value, name, label+key+"."); err != nil {
				return err
			}
			continue
		case value.Kind == yaml.MappingNode && in == "":
			if err := t.mapping(d, value, strings.TrimSuffix(key, "_config"), key+"."); err != nil {
				return err
			}
			continue
		case value.Kind == yaml.SequenceNode:
			for _, w := range value.Content {
				if w.Kind == yaml.ScalarNode {
					a.words = append(a.words, w.Value)
				}
			}
		case value.Kind == yaml.ScalarNode && value.Tag != "!!null":
			a.value = value.Value
		}
		if a.value == "" && len(a.words) == 0 {
			continue
		}
		if err := t.take(name, a); err != nil {
			return err
		}
	}
	return nil
}

// method is how TRL trains, where a command line names its script or command.
var method = lazily(`\b(?:trl +|)(sft|dpo|kto|orpo|cpo|grpo|rloo|ppo|reward)(?:\.py\b| +--)`)

// arguments reads those of a command line; false: they are none of a Trainer's.
func (j *Job) arguments(name string, s start) (bool, error) {
	f := maps.Clone(s.flags)
	if s.file != nil {
		delete(f, "config") // which is its name
	}
	has := func(k string) bool { _, ok := f[k]; return ok }
	of := dialectOf(has)
	elsewhere := s.file != nil && !has("model_name_or_path")
	if elsewhere {
		of = &dialect{}
	}
	if of == nil || has("num_layers") || has("tensor_model_parallel_size") && !elsewhere {
		return false, nil
	}
	counted := f.count([]string{"num_processes", "nproc_per_node", "num_gpus"}) > 0
	for _, name := range launchers {
		if slurm := name == "nodes" || name == "gpus_per_node"; slurm && counted || !slurm && renamed[name] == "" { // which counts where nothing else does
			delete(f, name)
		}
	}
	by := method().FindStringSubmatch(s.text)
	if by != nil && of == trainerArguments {
		of = trl
	}
	if script := f.callsDeepSpeed(); script != nil && (of == trainerArguments || of == trl) {
		of = script
	}
	command := swiftCommand().FindStringSubmatch(s.text)
	if command != nil && !elsewhere {
		of = swift
	}
	t := &trainer{given: map[string]argument{}, dialects: []*dialect{of}, line: true, flags: !elsewhere, notes: s.Notes, file: s.file}
	if n, from, why := s.ranks(); from != "" {
		t.given["ranks"] = argument{value: strconv.FormatInt(n, 10), from: from, open: why, given: true}
		if n > 1 && s.alonePython() {
			t.notes = append(t.notes, fmt.Sprintf("%s: a Trainer in one process runs copies on %d GPUs by DataParallel; as many processes are taken", from, n))
		}
	}
	if by != nil && (of == trl || elsewhere) {
		t.given["stage"] = argument{value: by[1], from: "TRL's", given: true}
	}
	if command != nil && command[1] == "rlhf" {
		t.given["stage"] = argument{value: "dpo", from: "default of --rlhf_type", given: true}
	}
	if err := t.readFlags(name, f); err != nil {
		return true, err
	}
	var err error
	if t.inline, err = s.writes(name); err != nil {
		return true, err
	}
	if of == deepspeedChat && t.inline == nil {
		if err := t.chat(); err != nil {
			return true, err
		}
	}
	if of == swift || launchedBy().MatchString(s.text) {
		t.launched(s)
	}
	t.allocates(s.env)
	if command != nil {
		devices, _ := s.devices()
		t.spread(devices)
	}
	if of == swift {
		if err := t.swift(); err != nil {
			return true, err
		}
	}
	return true, j.take(t, false)
}

// readFlags takes those of a command line. Where a file has the arguments, those of the command that
// go before the file's own are kept apart.
func (t *trainer) readFlags(name string, f flags) error {
	for _, k := range slices.Sorted(maps.Keys(f)) {
		one := f[k]
		a := argument{value: strings.Trim(one.value, `"'`), from: "--" + k, given: true, fail: func(format string, args ...any) error {
			return &diag.Error{File: name, Line: one.line, Col: 1, Message: fmt.Sprintf(format, args...)}
		}}
		if one.open != "" {
			a.open = one.takes() + ": give the key"
		} else if len(one.words) > 1 {
			a.words = one.words
		}
		if t.file != nil && !ofStarter().MatchString(t.canonical(k)) {
			a.over = t.file.by
		}
		if !t.flags && a.over != "" {
			t.file.owns(k, a)
		} else if err := t.take(k, a); err != nil {
			return err
		}
	}
	return nil
}

// launchedBy are commands that start processes by what the environment says.
var launchedBy = lazily(`(?:^|[\s/])(?:(?:llamafactory-cli|lmf) (?:train|sft|dpo|rm)|(?:swift|megatron) (?:sft|pt|rlhf))\s`)

// launched takes the numbers of processes and nodes of the environment.
func (t *trainer) launched(s start) {
	for name, as := range map[string]string{"NPROC_PER_NODE": "per_node", "NNODES": "num_machines"} {
		if v, ok := s.env[name]; ok {
			text, _ := s.Show(v)
			a := argument{value: text, from: name, given: true}
			if n, err := strconv.Atoi(text); err != nil || n < 1 {
				a.open = fmt.Sprintf("%q is no number that the file has: give the key", text)
			}
			t.given[as] = a
		}
	}
}

// canonical is the name that TrainingArguments, or else this package, has for an argument.
func (t *trainer) canonical(name string) string {
	for _, prefix := range []string{"fsdp_", "dynamo_", "parallelism_config_", "megatron_lm_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "config" {
			name = strings.TrimSuffix(strings.TrimSuffix(prefix, "_"), "_config") + "." + rest
		}
	}
	for _, names := range []map[string]string{t.dialects[0].names, renamed} {
		if to, ok := names[name]; ok {
			name = to
		}
	}
	return name
}

// take notes an argument by the name that TrainingArguments has for it.
func (t *trainer) take(name string, a argument) error {
	name = t.canonical(name)
	for key, value := range nested(a.value) {
		if inner := t.canonical(name + "." + key); trainerKeys().read[inner] {
			if err := t.take(inner, argument{value: value, from: a.from + " " + key, given: true, over: a.over, fail: a.fail}); err != nil {
				return err
			}
		}
	}
	left := a.value == "auto" || a.value == "-1" && strings.HasPrefix(name, "parallelism.") // to DeepSpeed's trainer, and to the other degrees
	if bounds, ok := whole[name]; ok && a.open == "" && !left {
		v, err := number(a.value)
		if len(a.words) > 0 {
			return a.fail("%s: %s; give one whole number from %d to %d", a.from, strings.Join(a.words, ", "), bounds[0], bounds[1])
		}
		if err != nil || v != math.Trunc(v) || v < float64(bounds[0]) || v > float64(bounds[1]) {
			return a.fail("%s: %q; give a whole number from %d to %d", a.from, a.value, bounds[0], bounds[1])
		}
		a.value = strconv.FormatInt(int64(v), 10)
	} else if ok && a.open == "" {
		return nil // left to another file
	}
	if extra, ok := truths[name]; ok && a.open == "" && !slices.Contains(extra, strings.ToLower(a.value)) && (len(a.words) > 0 || !slices.Contains(truthWords, strings.ToLower(a.value))) {
		return a.fail("%s: %q; give true or false", a.from, strings.Join(a.all(), " "))
	}
	for _, s := range switches {
		if name == s.name && s.turned(a) {
			t.given[s.says] = argument{value: s.as, from: a.from, given: true, over: a.over, fail: a.fail}
		}
	}
	t.given[name] = a
	keys := trainerKeys()
	if _, charged := among(keys.costly, name); !keys.read[name] && !charged && !megatronKey(name) && !keys.harmless.MatchString(name) {
		t.ignored = append(t.ignored, a.from)
	}
	return nil
}

// nested are the keys of an object that a command line has as one word, in JSON, and a file key by key.
func nested(word string) map[string]string {
	var of map[string]string
	if !strings.HasPrefix(word, "{") || yaml.Unmarshal([]byte(word), &of) != nil {
		return nil
	}
	return of
}

// join takes over what another file gives, whichever way its conditions go.
func (t *trainer) join(o *trainer) (*trainer, error) {
	both, err := t.beside(o)
	if err != nil {
		return nil, err
	}
	for _, w := range t.ways {
		if other, err := w.beside(o); err == nil {
			both.ways = append(both.ways, way{w.by, other})
		}
	}
	for _, w := range o.ways {
		if other, err := t.beside(w.trainer); err == nil {
			both.ways = append(both.ways, way{w.by, other})
		}
	}
	return both, nil
}

// ofLaunch are arguments that accelerate launch takes from its command line before its file
// (accelerate/commands/launch.py, _validate_launch_command), ofStarter those of whatever starts the
// processes.
var (
	ofLaunch  = lazily(`^(num_processes|num_machines|mixed_precision|distributed_type|num_cpu_threads_per_process|(fsdp|deepspeed|dynamo|parallelism|megatron_lm)\..*)$`)
	ofStarter = lazily(`^(num_processes|num_machines|per_node|mixed_precision|num_cpu_threads_per_process|multi_gpu|use_fsdp|use_deepspeed|use_megatron_lm|(accelerate|fsdp|deepspeed|dynamo|parallelism|megatron_lm)\..*)$`)
)

// launches reports whether this has a command line, and the other accelerate's file and none.
func (t *trainer) launches(o *trainer) bool {
	return t.line && !o.line && o.speaks(accelerateConfig)
}

// beside takes over what another file gives.
func (t *trainer) beside(o *trainer) (*trainer, error) {
	if o.file != nil && t.file == nil && t.trains() { // the file's names are those of the command
		return o.beside(t)
	}
	t, o, err := t.named(o)
	if err != nil {
		return nil, err
	}
	both := &trainer{given: maps.Clone(t.given), dialects: slices.Concat(t.dialects, o.dialects), inline: t.inline, ignored: slices.Concat(t.ignored, o.ignored), line: t.line || o.line, flags: t.flags || o.flags, notes: slices.Concat(t.notes, o.notes)}
	if both.inline == nil {
		both.inline = o.inline
	}
	both.file = cmp.Or(t.file, o.file)
	outdone := map[string]argument{}
	for _, name := range slices.Sorted(maps.Keys(o.given)) {
		a, b := t.given[name], o.given[name]
		differ := a.given && trainerKeys().read[name] && fmt.Sprint(a.all()) != fmt.Sprint(b.all()) && a.open == "" && b.open == ""
		switch launch := ofLaunch().MatchString(name); {
		case a.over != "" && b.given:
			both.outdo(a, b, a.over, differ)
			outdone[name] = b
		case b.over != "" && a.given:
			both.given[name] = b
			both.outdo(b, a, b.over, differ)
			outdone[name] = a
		case differ && launch && t.launches(o):
			both.outdo(a, b, "accelerate launch", true)
		case differ && launch && o.launches(t):
			both.given[name] = b
			both.outdo(b, a, "accelerate launch", true)
		case differ:
			return nil, diag.Errorf("%s says %s, but %s before it %s; leave one of them out", b.from, strings.Join(b.all(), " "), a.from, strings.Join(a.all(), " "))
		case !a.given || a.open != "":
			both.given[name] = b
		}
	}
	for _, s := range switches { // what followed from those
		if a, ok := outdone[s.name]; ok && s.turned(a) && both.given[s.says].from == a.from {
			delete(both.given, s.says)
		}
	}
	if both.speaks(swift) {
		return both, both.swift()
	}
	return both, nil
}

// named takes what the command of a file has of its own by the names of that file, where the other
// is that.
func (t *trainer) named(o *trainer) (command, file *trainer, err error) {
	if t.file == nil || !o.trains() {
		return t, o, nil
	}
	own := *t
	own.given, own.dialects, own.file = maps.Clone(t.given), slices.Concat(o.dialects, t.dialects), nil
	for _, name := range slices.Sorted(maps.Keys(t.file.own)) {
		a := t.file.own[name]
		if off, ok := strings.CutPrefix(name, "no_"); ok && a.value == "true" && trainerKeys().read[own.canonical(off)] {
			name, a.value = off, "false"
		}
		if err := own.take(name, a); err != nil {
			return nil, nil, err
		}
	}
	return &own, o, nil
}

// outdo notes which of two values a command takes, where they differ.
func (t *trainer) outdo(line, file argument, by string, differ bool) {
	if differ {
		t.notes = append(t.notes, fmt.Sprintf("%s %s of the file: %s takes its command line's %s %s", file.from, strings.Join(file.all(), " "), by, line.from, strings.Join(line.all(), " ")))
	}
}

// speaks reports whether a file of a dialect is among them.
func (t *trainer) speaks(d *dialect) bool { return slices.Contains(t.dialects, d) }

// within reports whether a file has keys within one of its own.
func (t *trainer) within(outer string) bool {
	for _, a := range t.given {
		if strings.HasPrefix(a.from, outer+".") {
			return true
		}
	}
	return false
}

// trains reports whether there is one that gives the arguments themselves.
func (t *trainer) trains() bool {
	return slices.ContainsFunc(t.dialects, func(d *dialect) bool { return d.defaults != nil })
}

// loops reports whether one of these steps by itself.
func (t *trainer) loops() bool {
	return slices.ContainsFunc(t.dialects, func(d *dialect) bool { return d.loops })
}

// get is an argument, or its default.
func (t *trainer) get(name string) argument {
	if a, ok := t.given[name]; ok {
		return a
	}
	for _, d := range t.dialects {
		if v, ok := d.defaults[name]; ok {
			return argument{value: v, from: "default of " + t.spell(d, name)}
		}
	}
	return argument{}
}

// spell is what a dialect calls an argument.
func (t *trainer) spell(d *dialect, name string) string {
	for _, own := range slices.Sorted(maps.Keys(d.names)) {
		if d.names[own] == name {
			name = own
			break
		}
	}
	if t.flags {
		return "--" + name
	}
	if strings.HasPrefix(name, checkpointArguments) {
		return name
	}
	return strings.Replace(name, ".", "_config.", 1) // as mapping takes it apart
}

// without is how comments say that an argument is not there.
func (t *trainer) without(name string) string { return "without " + t.spell(t.dialects[0], name) }
