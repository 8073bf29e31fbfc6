package launch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/perfplan/perfplan/internal/diag"
)

// titanModels are torchtitan's models in this program's catalog (torchtitan/models, flavors).
var titanModels = map[string]string{
	"llama3 8B": "llama3-8b", "llama3 70B": "llama3-70b", "llama3 405B": "llama3.1-405b", "llama4 17bx16e": "llama4-scout", "llama4 17bx128e": "llama4-maverick",
	"deepseek_v3 16B": "deepseek-v2-lite", "deepseek_v3 671B": "deepseek-v3", "qwen3 0.6B": "qwen3-0.6b", "qwen3 1.7B": "qwen3-1.7b", "qwen3 4B": "qwen3-4b", "qwen3 8B": "qwen3-8b",
	"qwen3 14B": "qwen3-14b", "qwen3 32B": "qwen3-32b", "qwen3 30B-A3B": "qwen3-30b-a3b", "qwen3 235B-A22B": "qwen3-235b-a22b", "gpt_oss 20b": "gpt-oss-20b", "gpt_oss 120b": "gpt-oss-120b",
}

// titanSchedules are PyTorch's schedules by the names that they have here.
var titanSchedules = map[string]string{"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved-1f1b", "interleavedzerobubble": "interleaved-zero-bubble", "zbvzerobubble": "zb-v"}

// torchtitan reads a configuration of torchtitan, as it was until 2026-02 (TOML).
func (j *Job) torchtitan(name string, text []byte) error {
	var root map[string]any
	if err := toml.Unmarshal(text, &root); err != nil {
		e := &diag.Error{File: name, Message: fmt.Sprintf("is no TOML: %v; correct it", err)}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			e.Line, e.Col = at.Position()
		}
		return e
	}
	c := &table{root: root}
	if c.at("training") == nil || c.at("model") == nil {
		return &diag.Error{File: name, Message: "is no configuration of torchtitan: it has no tables [model] and [training]; give one of its train_configs"}
	}
	if id, ok := titanModels[c.text("model.name")+" "+c.text("model.flavor")]; ok {
		j.set("model", id, "model.name, model.flavor")
	} else {
		j.open("model", "model.flavor", fmt.Sprintf("%s of %s is not known: give the key", c.text("model.flavor"), c.text("model.name")))
	}
	j.titanRuntime(c)
	j.titanPlan(c)
	j.titanTrain(c)
	if c.wrong != "" {
		return &diag.Error{File: name, Message: c.wrong + "; give a whole number"}
	}
	return nil
}

func (j *Job) titanRuntime(c *table) {
	compiled := c.on("compile.enable") || c.on("training.compile")
	recipe, from := "torchtitan-eager", "without compile.enable"
	if compiled {
		recipe, from = "torchtitan", "compile.enable"
	}
	j.set("runtime.recipe", recipe, from)
	for _, k := range []string{"parallelism.enable_async_tensor_parallel", "experimental.enable_async_tensor_parallel"} {
		if c.on(k) {
			j.set("runtime.tp_overlap", true, k)
		}
	}
}

// titanPlan reads degrees, which older versions had in other tables.
func (j *Job) titanPlan(c *table) {
	for _, d := range []struct{ name, key string }{{"tensor_parallel_degree", "tp"}, {"pipeline_parallel_degree", "pp"}, {"context_parallel_degree", "cp"}, {"expert_parallel_degree", "ep"}, {"expert_tensor_parallel_degree", "expert_tp"}} {
		if v, at := c.first(d.name); at != "" && (v > 1 || d.key == "tp" || d.key == "pp") {
			j.set("plan."+d.key, v, at)
		}
	}
	j.set("plan.data_parallel", "fsdp2", "")
	replicas, at := c.first("data_parallel_replicate_degree")
	shard, by := c.first("data_parallel_shard_degree")
	switch {
	case replicas > 1 && shard == 1:
		j.note("%s %d without shards: replicas under DDP; give plan.data_parallel", at, replicas)
	case replicas > 1 && shard > 1:
		j.set("plan.shard_degree", shard, by)
	case replicas > 1:
		j.note("%s %d: give plan.shard_degree, the GPUs over it", at, replicas)
	}
	for _, in := range titanTables {
		switch c.text(in + "fsdp_reshard_after_forward") {
		case "always":
			j.set("plan.reshard_after_forward", true, in+"fsdp_reshard_after_forward")
		case "never":
			j.set("plan.reshard_after_forward", false, in+"fsdp_reshard_after_forward")
		}
		if s := c.text(in + "pipeline_parallel_schedule"); s != "" {
			if pp, _ := c.first("pipeline_parallel_degree"); pp > 1 {
				if known, ok := titanSchedules[strings.ToLower(s)]; ok {
					j.set("plan.schedule", known, in+"pipeline_parallel_schedule")
				} else {
					j.note("%spipeline_parallel_schedule %s", in, s)
				}
			}
		}
	}
}

func (j *Job) titanTrain(c *table) {
	if v, ok := c.number("training.seq_len"); ok {
		j.set("train.sequence_length", v, "training.seq_len")
	}
	batch, at := int64(0), ""
	for _, k := range []string{"training.local_batch_size", "training.batch_size"} {
		if v, ok := c.number(k); ok {
			batch, at = v, k
		}
	}
	if pp, _ := c.first("pipeline_parallel_degree"); pp > 1 && batch > 0 { // pieces of a local batch go through the stages
		piece, by := c.first("pipeline_parallel_microbatch_size")
		if piece == 0 {
			piece, by = 1, "default of pipeline_parallel_microbatch_size"
		}
		j.set("train.micro_batch", piece, by)
		if v, ok := c.number("training.global_batch_size"); ok && v > 0 { // local batches, after each of which the pipeline is empty
			j.set("plan.drain_every", batch/piece, at)
			j.set("train.global_batch", v, "training.global_batch_size")
		} else {
			j.set("train.grad_accumulation", batch/piece, at)
		}
	} else if batch > 0 {
		j.set("train.micro_batch", batch, at)
		if v, ok := c.number("training.global_batch_size"); ok && v > 0 {
			j.set("train.global_batch", v, "training.global_batch_size")
		} else {
			j.set("train.grad_accumulation", int64(1), "without training.global_batch_size")
		}
	}
	switch mode := c.text("activation_checkpoint.mode"); mode {
	case "none", "full":
		j.set("train.recompute", mode, "activation_checkpoint.mode")
	case "selective", "":
		option := c.text("activation_checkpoint.selective_ac_option")
		if n, err := number(option); err == nil { // every so many layers, whole
			j.set("train.recompute", "full", "activation_checkpoint.mode selective")
			j.set("train.recompute_method", "every", "activation_checkpoint.selective_ac_option")
			j.set("train.recompute_num_layers", int64(n), "activation_checkpoint.selective_ac_option")
			break
		}
		if option == "" {
			j.note("activation_checkpoint.selective_ac_option is left out, whose default differs between versions: what matrix multiplies make is taken to be kept (op)")
		}
		j.set("train.recompute", "selective", "activation_checkpoint.mode")
	default:
		j.note("activation_checkpoint.mode %s", mode)
	}
	for _, k := range []string{"float8.enable_float8_linear", "float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather"} {
		if c.on(k) {
			j.set("train.precision", "fp8", k)
			break
		}
	}
	if list, ok := c.at("model.converters").([]any); ok && len(list) > 0 && !c.on("float8.enable_fsdp_float8_all_gather") && !c.on("quantize.linear.float8.enable_fsdp_float8_all_gather") {
		j.note("model.converters %v: which dtypes these multiply and gather in; give train.precision, train.dtypes.gather", list)
	}
	for _, p := range []struct{ from, key string }{{"mixed_precision_param", "compute"}, {"mixed_precision_reduce", "reduce"}, {"dtype", "weights"}} {
		if v := map[string]string{"bfloat16": "bf16", "float32": "fp32"}[c.text("training."+p.from)]; v != "" && !(v == "bf16" && p.key == "compute") && !(v == "fp32" && p.key != "compute") {
			j.set("train.dtypes."+p.key, v, "training."+p.from)
		}
	}
	if c.on("optimizer.early_step_in_backward") {
		j.note("optimizer.early_step_in_backward true")
	}
	if c.on("training.enable_cpu_offload") {
		j.set("plan.offload", "parameters", "training.enable_cpu_offload")
	}
}

// titanTables are where torchtitan had its degrees, the newest first.
var titanTables = []string{"parallelism.", "training.", "experimental."}

// table is a configuration with its keys, which dots join.
type table struct {
	root  map[string]any
	wrong string // a key that is no whole number but should be, with its value
}

func (t *table) at(key string) any {
	var v any = t.root
	for _, k := range strings.Split(key, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func (t *table) text(key string) string {
	if v := t.at(key); v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

func (t *table) on(key string) bool { return t.at(key) == true }

func (t *table) number(key string) (int64, bool) {
	at := t.at(key)
	v, ok := at.(int64)
	if !ok && at != nil {
		t.wrong = fmt.Sprintf("%s: %#v", key, at)
	}
	return v, ok
}

// first is a number in the newest table that has it, and its key; "": none has.
func (t *table) first(name string) (int64, string) {
	for _, in := range titanTables {
		if v, ok := t.number(in + name); ok {
			return v, in + name
		}
	}
	return 0, ""
}
