package launch

import (
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/yamlx"
)

// neoxFile tells a configuration of gpt-neox, or a part of one.
var neoxFile = lazily(`(?m)^[ \t{]*["']?(?:pipe[-_]parallel[-_]size|gpt[-_]j[-_]residual|output[-_]layer[-_]parallelism|pos[-_]emb|checkpoint[-_]factor|checkpoint_validation_with_forward_pass)["']?[ \t]*:`)

// neoxKeys are the keys of gpt-neox that are Megatron-LM's arguments, with what it takes where they
// are left out ("": nothing; megatron/neox_arguments/neox_args.py).
var neoxKeys = []struct{ key, name, fallback string }{
	{"num_gpus", "num_gpus", ""}, {"num_nodes", "num_nodes", ""},
	{"num_layers", "num_layers", ""}, {"hidden_size", "hidden_size", ""}, {"num_attention_heads", "num_attention_heads", ""}, {"num_kv_heads", "num_query_groups", ""},
	{"seq_length", "seq_length", ""}, {"max_position_embeddings", "max_position_embeddings", ""}, {"padded_vocab_size", "padded_vocab_size", ""}, {"tokenizer_type", "tokenizer_type", "GPT2BPETokenizer"}, {"make_vocab_size_divisible_by", vocabMultiple, ""},
	{"norm", "normalization", "layernorm"}, {"pos_emb", "position_embedding_type", "learned"}, {"rotary_pct", "rotary_percent", ""}, {"activation", "activation", "gelu"}, {"use_qk_layernorm", "qk_layernorm", ""},
	{"use_bias_in_mlp", "add_bias_linear", "true"}, {"use_bias_in_attn_linear", "add_qkv_bias", "true"}, {"no_weight_tying", "untie_embeddings_and_output_weights", "false"},
	{"hidden_dropout", "hidden_dropout", "0"}, {"attention_dropout", "attention_dropout", "0"},
	{"model_parallel_size", "tensor_model_parallel_size", "1"}, {"sequence_parallel", "sequence_parallel", "false"}, {"checkpoint_activations", "checkpoint_activations", ""},
}

// neoxRest are its other keys.
var neoxRest = keysOf("neox")

// neoxActivations are its activations that are known, and whether they gate.
var neoxActivations = map[string]struct {
	act   string
	gated bool
}{"gelu": {"gelu", false}, "relu": {"relu", false}, "silu": {"silu", false}, "swish": {"silu", false}, "geglu": {"gelu", true}, "reglu": {"relu", true}, "swiglu": {"silu", true}}

// ofNeox reads a configuration of gpt-neox, or a part of one; false: it is none.
func (j *Job) ofNeox(d *yamlx.Document) (bool, error) {
	marked := func(k string) bool { return d.At(k) != nil || d.At(strings.ReplaceAll(k, "_", "-")) != nil }
	if !slices.ContainsFunc(neoxMarks, marked) {
		return false, nil
	}
	plainKeys(d.Root)
	j.neox = d
	return true, j.neoxReads(d)
}

// neoxMarks are the keys that neoxFile finds.
var neoxMarks = []string{"pipe_parallel_size", "gpt_j_residual", "output_layer_parallelism", "pos_emb", "checkpoint_factor", "checkpoint_validation_with_forward_pass"}

// plainKeys writes keys of gpt-neox with underscores, as hyphens mean them, and switches in small
// letters, as JSON has them.
func plainKeys(n *yaml.Node) {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			c.Value = strings.ReplaceAll(c.Value, "-", "_")
		} else if c.Tag == "!!bool" {
			c.Value = strings.ToLower(c.Value)
		}
		plainKeys(c)
	}
}

// joinNeox makes one job of the files of a run of gpt-neox, which may not have a key twice.
func joinNeox(jobs []*Job) ([]*Job, error) {
	var parts, rest []*Job
	for _, j := range jobs {
		if j.neox != nil {
			parts = append(parts, j)
		} else {
			rest = append(rest, j)
		}
	}
	if len(parts) < 2 {
		return jobs, nil
	}
	one := &Job{}
	all := &yamlx.Document{Root: &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}}
	for _, j := range parts {
		for i := 0; i+1 < len(j.neox.Root.Content); i += 2 {
			key := j.neox.Root.Content[i]
			if known, _ := yamlx.Key(all.Root, key.Value); known != nil {
				return nil, j.neox.Errorf(key, "%s: another file of the run has it, too, which gpt-neox refuses; leave one of them out", key.Value)
			}
			all.Root.Content = append(all.Root.Content, key, j.neox.Root.Content[i+1])
		}
		one.source = strings.TrimPrefix(one.source+", "+j.source, ", ")
	}
	all.Name = one.source
	return append([]*Job{one}, rest...), one.neoxReads(all)
}

// neoxReads says what the keys of gpt-neox mean: those of DeepSpeed's, and those that are
// Megatron-LM's arguments, whose fork it is.
func (j *Job) neoxReads(d *yamlx.Document) error {
	r := &reading{doc: d, megatron: &megatron{Job: j, start: start{flags: flags{}, logged: true}, names: map[string]string{}}}
	if err := r.neoxKnown(); err != nil {
		return err
	}
	for _, k := range neoxKeys {
		r.names[k.name] = k.key
		if err := r.argument(k.name, k.key, k.fallback); err != nil {
			return err
		}
	}
	r.say("deepspeed", "true", "gpt-neox")
	r.names["recompute_granularity"] = "checkpoint_activations"
	r.neoxModel()
	if stages := r.text("pipe_parallel_size"); stages != "" && stages != "0" { // which is without a pipeline's engine
		if err := r.put("pipeline_model_parallel_size", "pipe_parallel_size", r.node("pipe_parallel_size")); err != nil {
			return err
		}
	}
	switch r.text("precision") {
	case "bfloat16":
		r.say("bf16", "true", "precision")
	case "fp16":
		r.say("fp16", "true", "precision")
	}
	r.read()
	if !r.has("num_layers") {
		r.open("model", "num_layers", "another file of the run has it: name it by --from, too")
	}
	if r.on("gpt_j_residual") {
		r.set("model.parallel", map[bool]string{true: "one_norm", false: "two_norms"}[r.on("gpt_j_tied")], "gpt_j_residual")
	}
	return r.neoxShares()
}

// neoxKnown refuses layers that are none that are known.
func (r *reading) neoxKnown() error {
	if n := r.node("moe_num_experts"); n != nil && r.text("moe_num_experts") != "1" {
		return r.doc.Errorf(n, "moe_num_experts: experts of gpt-neox are not read; give a job that has model.num_experts (perfplan init without --from)")
	}
	for _, kind := range leaves(r.node("attention_config")) {
		if !slices.Contains([]string{"global", "flash", "all"}, kind.Value) && kind.Tag != "!!int" {
			return r.doc.Errorf(kind, "attention_config: layers of %s are not modelled; global and flash are", kind.Value)
		}
	}
	return nil
}

// leaves are the scalars in a node.
func leaves(n *yaml.Node) (out []*yaml.Node) {
	if n == nil {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		return []*yaml.Node{n}
	}
	for _, c := range n.Content {
		out = append(out, leaves(c)...)
	}
	return out
}

// neoxModel brings what layers are made of into Megatron-LM's words.
func (r *reading) neoxModel() {
	const activation, softmax, gelu = "activation", "scaled_upper_triang_masked_softmax_fusion", "bias_gelu_fusion"
	act, known := neoxActivations[r.word(activation)]
	if !known {
		r.note("%s %s: gelu is taken; give model.hidden_act", activation, r.word(activation))
		act = neoxActivations["gelu"]
	}
	r.say("swiglu", strconv.FormatBool(act.gated), r.names[activation])
	r.say("hidden_act", act.act, r.names[activation])
	r.neoxWidth(act.gated)
	r.grouped()
	switch norm := strings.TrimPrefix(r.word("normalization"), "te_"); norm {
	case "layernorm", "rmsnorm":
		r.say("normalization", norm, r.names["normalization"])
	default:
		r.note("norm %s: layernorm is taken", norm)
	}
	if pos := r.word("position_embedding_type"); pos == "sinusoidal" || pos == "rpe" {
		r.note("pos_emb %s: learned positions are taken", pos)
	}
	if r.has("add_bias_linear") && !r.has("add_qkv_bias") {
		r.note("use_bias_in_attn_linear false: biases are taken to be in attention, too, as in MLPs")
	}
	if slices.ContainsFunc(leaves(r.node("attention_config")), func(n *yaml.Node) bool { return n.Value == "flash" }) {
		r.say("attention_backend", "flash", "attention_config")
	} else if !r.on(softmax) {
		r.note("without %s: its kernel is taken", softmax)
	}
	if !act.gated && !r.on(gelu) {
		r.note("without %s: biases and activations are taken to be one kernel's", gelu)
	}
}

// neoxWidth says how wide an MLP is: with a gate two thirds as wide, to have as many weights
// (megatron/model/transformer.py, ParallelMLP).
func (r *reading) neoxWidth(gated bool) {
	const key, multiple = "intermediate_size", "mlp_multiple_of"
	hidden := r.number("hidden_size")
	width, from := 4*hidden, "of hidden_size"
	if n, ok := plain(r.text(key)).(int64); ok && n > 0 {
		width, from = n, key
	} else if x, err := number(r.text("expansion_factor")); err == nil && x > 0 {
		width, from = int64(x*float64(hidden)), "expansion_factor"
	}
	if gated {
		width, from = width*2/3/2, from+", a third with a gate"
	}
	if of, ok := plain(r.text(multiple)).(int64); ok && of > 1 {
		width = (width + of - 1) / of * of
	}
	if hidden > 0 {
		r.say("ffn_hidden_size", strconv.FormatInt(width, 10), from)
	}
}

// neoxShares adds what DeepSpeed's keys say, and lists the rest.
func (r *reading) neoxShares() error {
	zero := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	known := map[string]bool{}
	for _, k := range neoxKeys {
		known[k.key] = true
	}
	var with []string
	if r.number("tensor_model_parallel_size") > 1 {
		with = append(with, "tp")
	}
	rest := neoxRest()
	options := slices.Concat(namesOf(known), rest.known())
	for i := 0; i+1 < len(r.doc.Root.Content); i += 2 {
		key, value := r.doc.Root.Content[i], r.doc.Root.Content[i+1]
		switch name := key.Value; {
		case known[name] || rest.read[name] || value.Tag == "!!null":
		case r.Job.costs(rest.costly, name, name, value.Value, with...), rest.harmless.MatchString(name):
		case zeroKey(name):
			zero.Content = append(zero.Content, key, value)
		default:
			r.ignore(name, name, options, func(near string) bool { return r.node(near) != nil }, func(near string) string { return near })
		}
	}
	if more := r.node("deepspeed_extra_args"); more != nil && more.Kind == yaml.MappingNode {
		zero.Content = append(zero.Content, more.Content...)
	}
	d := &Job{}
	if err := d.sharding(r.doc, config{zero}); err != nil {
		return err
	}
	r.join(d)
	if !r.mentions("train.micro_batch") && !r.mentions("train.global_batch") {
		r.open("train.micro_batch", "train_micro_batch_size_per_gpu", "another file of the run has it: name it by --from, too")
	}
	if !r.mentions("train.global_batch") && !r.mentions("train.grad_accumulation") {
		r.set("train.grad_accumulation", int64(1), "default of gradient_accumulation_steps")
	}
	r.counts("hostfile")
	return nil
}

// zeroKey reports whether DeepSpeed knows a key, or one in it.
func zeroKey(name string) bool {
	keys := zeroKeys()
	return keys.harmless.MatchString(name) || slices.ContainsFunc(slices.Concat(keys.known(), zeroTables), func(k string) bool {
		top, _, _ := strings.Cut(k, ".")
		return top == name
	})
}
