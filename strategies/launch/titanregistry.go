package launch

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// titanPython tells a file of functions that make configurations (config_registry.py).
var titanPython = lazily(`(?m)^def \w+\([^)]*\) -> (?:\w+\.)*Config:`)

// titanRegistry are configurations that torchtitan comes with, by the functions that make them, in
// keys of its command line: what all releases from 2026-02, when they took the place of TOML, to
// 2026-08 have alike (torchtitan/models, config_registry.py). Those that differ are not here.
var titanRegistry = map[string]string{
	"llama3_8b":       "training.seq_len=8192 training.local_batch_size=1 activation_checkpoint.mode=selective",
	"llama3_70b":      "training.seq_len=8192 training.local_batch_size=8 activation_checkpoint.mode=full parallelism.tensor_parallel_degree=8",
	"deepseek_v3_16b": "training.seq_len=4096 training.local_batch_size=4 activation_checkpoint.mode=selective parallelism.expert_parallel_degree=8 parallelism.pipeline_parallel_schedule=Interleaved1F1B compile.enable=true compile.components=loss",
	"qwen3_0_6b":      "training.seq_len=4096 training.local_batch_size=4 activation_checkpoint.mode=selective",
	"qwen3_1_7b":      "training.seq_len=4096 training.local_batch_size=4 activation_checkpoint.mode=selective",
	"qwen3_14b":       "training.seq_len=4096 training.local_batch_size=4 activation_checkpoint.mode=full",
	"qwen3_32b":       "training.seq_len=4096 training.local_batch_size=2 activation_checkpoint.mode=full",
	"qwen3_30b_a3b":   "training.seq_len=4096 training.local_batch_size=2 activation_checkpoint.mode=full",
	"gpt_oss_20b":     "training.seq_len=8192 training.local_batch_size=1 activation_checkpoint.mode=full",
	"gpt_oss_120b":    "training.seq_len=8192 training.local_batch_size=1 activation_checkpoint.mode=full",
}

// registered is what is known of a configuration of torchtitan's registry: its model by its name,
// which may go on as that of a variant, and all of it where whole. What over has of a release that
// counts tokens makes it one of that.
func registered(module, function string, over map[string]string) (known map[string]string, whole bool) {
	known = map[string]string{}
	module = cmp.Or(strings.TrimPrefix(module, "torchtitan.models."), "llama3")
	longest := ""
	for of := range titanModels {
		name, flavor, _ := strings.Cut(of, " ")
		prefix := name + "_" + strings.ToLower(strings.NewReplacer(".", "_", "-", "_").Replace(flavor))
		if name == module && len(prefix) > len(longest) && strings.HasPrefix(function+"_", prefix+"_") {
			longest = prefix
			known["model.name"], known["model.flavor"] = name, flavor
		}
	}
	if longest != function {
		return known, false
	}
	pairs, whole := titanRegistry[function]
	for pair := range strings.FieldsSeq(pairs) {
		key, value, _ := strings.Cut(pair, "=")
		known[key] = value
	}
	counts := slices.ContainsFunc([]string{titanTokens, titanStep, titanContext, "parallelism.num_pp_microbatches"}, func(k string) bool { return over[k] != "" })
	if whole && counts {
		length, _ := strconv.Atoi(known["training.seq_len"])
		batch, _ := strconv.Atoi(known["training.local_batch_size"])
		known[titanContext], known[titanTokens] = known["training.seq_len"], strconv.Itoa(length*batch)
		delete(known, "training.seq_len")
		delete(known, "training.local_batch_size")
	}
	return known, whole
}

// parted notes the attention of releases from 2026-06-09 on, which sees documents apart by kernels of its own
// (torchtitan/models/common/config_utils.py, get_attention_config; gpt_oss has FlashAttention there, by variable lengths).
func (j *Job) parted(c *table) {
	kind := "flex"
	if c.text("model.name") == "gpt_oss" {
		kind = "flash-attn"
	}
	j.note("without attn_backend: releases from 2026-06 on attend within documents: give runtime.attention: %s and train.document_length", kind)
}

// replays leaves open whether CUDA graphs replay the passes, as releases of torchtitan from 2026-08
// on do where nothing else is said and they can (torchtitan/trainer.py, _validate_cuda_graphs).
func (j *Job) replays(c *table) {
	const switched = "training.disable_cuda_graphs"
	pp, _ := c.first("pipeline_parallel_degree")
	ep, _ := c.first("expert_parallel_degree")
	if pp <= 1 && ep <= 1 && !c.on(switched) {
		j.open("runtime.cuda_graphs", "without --"+switched, "releases from 2026-08 on replay the passes: give the key, full there")
	}
}
