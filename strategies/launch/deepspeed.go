package launch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

const deepspeedRecipe = "deepspeed-hf"

// defaultBucket is reduce_bucket_size where a configuration has none, in elements
// (runtime/zero/config.py). Trainers put a size of their own where it says auto.
const defaultBucket = 500_000_000

// stages are the kinds of data parallelism by zero_optimization.stage.
var stages = []string{"ddp", "zero1", "zero2", "zero3"}

// counts are the keys whose values are whole numbers, or auto, and the least that they may be.
var counts = []struct {
	keys  []string
	least float64
}{
	{[]string{"train_micro_batch_size_per_gpu"}, 1}, {[]string{"gradient_accumulation_steps"}, 1}, {[]string{"train_batch_size"}, 1}, {[]string{"tensor_parallel", "autotp_size"}, 0}, {[]string{"sequence_parallel_size"}, 1},
	{[]string{"zero_optimization", "stage"}, 0}, {[]string{"zero_optimization", "reduce_bucket_size"}, 1},
}

// zeroKeys are those of its configurations.
var zeroKeys = keysOf("deepspeed")

// deepspeed reads a configuration of DeepSpeed.
func (j *Job) deepspeed(name string, d *yamlx.Document) error {
	c := config{d.Root}
	if !slices.ContainsFunc([]string{"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "bf16", "fp16"}, func(k string) bool { return c.at(k) != nil }) {
		switch {
		case c.at("nbformat") != nil:
			return &diag.Error{File: name, Message: "is a notebook " + unrun}
		case c.at("model_type") != nil:
			return d.Errorf(c.at("model_type"), "is a model, not what trains one; give it to perfplan estimate, or the configuration of a framework")
		}
		return &diag.Error{File: name, Message: "is no configuration of DeepSpeed: it has none of zero_optimization, train_micro_batch_size_per_gpu, train_batch_size, bf16 and fp16; give a ds_config.json"}
	}
	return j.sharding(d, c)
}

// writes reads the configuration of DeepSpeed that a script writes, nil where it writes none.
// What the script does not give is left to the trainer.
func (s start) writes(name string) (*Job, error) {
	file := s.config()
	if file == "" {
		return nil, nil
	}
	d, err := parse(name+", "+file, []byte(s.Fill(s.Files[file], "auto")))
	if err != nil {
		return nil, err
	}
	j := &Job{}
	return j, j.deepspeed(d.Name, d)
}

// sharding reads the keys of a configuration of DeepSpeed.
func (j *Job) sharding(d *yamlx.Document, c config) error {
	if err := c.check(d); err != nil {
		return err
	}
	j.set("runtime.recipe", deepspeedRecipe, "")
	for _, k := range [][2]string{{"train_micro_batch_size_per_gpu", "train.micro_batch"}, {"gradient_accumulation_steps", "train.grad_accumulation"}, {"train_batch_size", "train.global_batch"}} {
		if v, ok := c.number(k[0]); ok && !(k[1] == "train.global_batch" && j.count("train.micro_batch") > 0 && j.count("train.grad_accumulation") > 0) { // which follows from both
			j.set(k[1], int64(v), k[0])
		}
	}
	stage := j.zero(c)
	narrow := false
	for _, p := range []string{"bf16", "fp16"} {
		if c.on(p, "enabled") {
			j.set("train.precision", p, p+".enabled")
		}
		narrow = narrow || c.on(p, "enabled") || c.text(p, "enabled") == "auto"
	}
	if cast := c.on("torch_autocast", "enabled") || c.on("amp", "enabled"); !narrow && !cast { // a Trainer's argument goes before it
		j.Settings = append(j.Settings, Setting{Key: "train.precision", Value: "fp32", From: "without bf16 and fp16", last: true})
	}
	if t := c.text("communication_data_type"); t != "" && t != "auto" {
		j.set("train.dtypes.reduce", t, "communication_data_type")
	}
	if t := c.text("seq_parallel_communication_data_type"); t != "auto" {
		j.contextReduce = t
	}
	if n, ok := c.number("sequence_parallel_size"); ok && n > 1 {
		j.set("plan.cp", int64(n), "sequence_parallel_size")
	}
	if t := c.text("data_types", "grad_accum_dtype"); t != "" {
		j.note("data_types.grad_accum_dtype %s: gradients of stage %d are taken to be added up in the dtype of the weights", t, stage)
	}
	if n, ok := c.number("tensor_parallel", "autotp_size"); ok && n > 1 {
		j.set("plan.tp", int64(n), "tensor_parallel.autotp_size")
	}
	j.shared()
	j.zeroOptimizer(c)
	j.left(c.root, "", strconv.Itoa(stage))
	return nil
}

// zeroOptimizer reads what a configuration has in the place of a Trainer's optimizer.
func (j *Job) zeroOptimizer(c config) {
	switch name := c.text("optimizer", "type"); {
	case name == "" || name == "auto":
	case !strings.EqualFold(name, "adam") && !strings.EqualFold(name, "adamw"):
		j.note("optimizer.type %s: AdamW with states in fp32 is taken", name)
	case c.on("optimizer", "params", "torch_adam"):
		j.set("train.optimizer", "adamw-foreach", "optimizer.params.torch_adam")
	default:
		j.set("train.optimizer", "adamw-fused", "optimizer.type")
	}
	if most, ok := c.number("gradient_clipping"); ok {
		j.set("train.clip_gradients", most > 0, "gradient_clipping")
	}
}

// left notes which keys cost something that no key of a job stands for, and lists those that
// nobody knows.
func (j *Job) left(n *yaml.Node, in, stage string) {
	keys := zeroKeys()
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := in+n.Content[i].Value, n.Content[i+1]
		switch {
		case keys.read[key] || keys.harmless.MatchString(key) || without(value):
		case j.costs(keys.costly, key, key, value.Value, stage):
		case value.Kind == yaml.MappingNode && slices.Contains(zeroTables, key):
			j.left(value, key+".", stage)
		default:
			given := func(near string) bool { of, ok := strings.CutPrefix(near, in); return ok && config{n}.at(of) != nil }
			j.ignore(key, key, slices.Concat(keys.known(), zeroTables), given, func(near string) string { return near })
		}
	}
}

// zeroTables are the keys with keys within that are told apart.
var zeroTables = []string{"optimizer", "bf16", "fp16", "comms_logger", "data_types", "tensor_parallel", "activation_checkpointing", "zero_optimization", "zero_optimization.offload_optimizer", "zero_optimization.offload_param"}

// without reports whether a value leaves its key to others, or a table is not in use.
func without(n *yaml.Node) bool {
	enabled := config{n}.text("enabled")
	return n.Tag == "!!null" || n.Kind == yaml.ScalarNode && n.Value == "auto" || enabled == "false" && n.Kind == yaml.MappingNode || n.Kind != yaml.ScalarNode && len(n.Content) == 0
}

// zero reads how replicas share what they keep.
func (j *Job) zero(c config) int {
	stage, _ := c.number("zero_optimization", "stage")
	j.set("plan.data_parallel", stages[int(stage)], "zero_optimization.stage")
	bucket, given := c.number("zero_optimization", "reduce_bucket_size")
	switch {
	case given:
		j.set("plan.bucket", fmt.Sprintf("%.6g MB", 2*bucket/1e6), "zero_optimization.reduce_bucket_size, of 16 bits")
	case stage == 3 && c.text("zero_optimization", "reduce_bucket_size") == "":
		j.set("plan.bucket", fmt.Sprintf("%.6g MB", 2*defaultBucket/1e6), "default of reduce_bucket_size, of 16 bits")
	}
	j.squareBucket = stage > 0 && stage < 3 && c.text("zero_optimization", "reduce_bucket_size") == "auto"
	if at := c.at("zero_optimization", "overlap_comm"); at != nil && stage < 3 && at.Value != "null" && stage > 0 {
		j.set("runtime.overlap_grad_reduce", at.Value == "true", "zero_optimization.overlap_comm")
	} else if at != nil && stage == 3 && at.Value == "false" {
		j.note("zero_optimization.overlap_comm false: gradients of stage 3 are taken to be reduced beside the backward pass")
	}
	states, weights := offload{c.text("zero_optimization", "offload_optimizer", "device"), "zero_optimization.offload_optimizer"}, offload{c.text("zero_optimization", "offload_param", "device"), "zero_optimization.offload_param"}
	if c.on("zero_optimization", "cpu_offload") { // deprecated (runtime/zero/config.py)
		states = offload{"cpu", "zero_optimization.cpu_offload"}
	}
	if c.on("zero_optimization", "cpu_offload_param") {
		weights = offload{"cpu", "zero_optimization.cpu_offload_param"}
	}
	j.offloaded(int(stage), states, weights)
	return int(stage)
}

// offload says to which device of the host something goes, and what says so.
type offload struct{ device, from string }

func (o offload) away() bool { return o.device == "cpu" || o.device == "nvme" }

// offloaded says what of a stage lives on the host.
func (j *Job) offloaded(stage int, states, weights offload) {
	if weights.away() && stage < 3 {
		j.note("%s %s: stage 3 alone leaves parameters to the host", weights.from, weights.device)
		weights = offload{}
	}
	if states.away() && stage < 1 {
		j.note("%s %s: stages from 1 on alone leave an optimizer to the host", states.from, states.device)
		states = offload{}
	}
	nvme, to := states, "optimizer"
	if weights.away() {
		to = "parameters"
	}
	if nvme.device != "nvme" {
		nvme = weights
	}
	switch {
	case nvme.device == "nvme":
		j.note("%s nvme: all is taken to stay on the GPU, as what a disk adds is not known; give plan.offload: %s for the host's memory", nvme.from, to)
	case weights.away() && !states.away():
		j.note("%s without offload_optimizer: all is taken to stay on the GPU, as either is known with the other alone; give plan.offload: parameters for both", weights.from)
	case weights.away():
		j.set("plan.offload", "parameters", weights.from)
	case states.away():
		j.set("plan.offload", "optimizer", states.from)
	}
}

// config is a configuration with its keys.
type config struct{ root *yaml.Node }

// check refuses values that say nothing, which would be left out else.
func (c config) check(d *yamlx.Document) error {
	if z := c.at("zero_optimization"); z != nil && z.Tag != "!!null" && z.Kind != yaml.MappingNode {
		return d.Errorf(z, "zero_optimization: %s has no keys; give them in braces, as {\"stage\": 2}", z.Value)
	}
	for _, k := range counts {
		at := c.at(k.keys...)
		if at == nil || at.Value == "auto" || at.Tag == "!!null" {
			continue
		}
		if v, ok := c.number(k.keys...); !ok || v < k.least || v > 1e15 || v != math.Trunc(v) {
			return d.Errorf(at, "%s: %q; give a whole number from %g on, or auto", strings.Join(k.keys, "."), at.Value, k.least)
		}
	}
	if all, ok := c.number("train_batch_size"); ok {
		micro, ok := c.number("train_micro_batch_size_per_gpu")
		times, known := c.number("gradient_accumulation_steps")
		if ok && known && math.Mod(all, micro*times) != 0 {
			return d.Errorf(c.at("train_batch_size"), "train_batch_size: %g is no multiple of train_micro_batch_size_per_gpu %g times gradient_accumulation_steps %g, which DeepSpeed refuses; give that times the data ranks, or leave it out", all, micro, times)
		}
	}
	if at := c.at("zero_optimization", "stage"); at != nil {
		if v, ok := c.number("zero_optimization", "stage"); !ok || int(v) >= len(stages) {
			return d.Errorf(at, "zero_optimization.stage: there is no stage %s; give 0, 1, 2 or 3", at.Value)
		}
	}
	return nil
}

// at is the value under some keys, nil where there is none.
func (c config) at(keys ...string) *yaml.Node {
	n := c.root
	for _, k := range keys {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		_, n = yamlx.Key(n, k)
	}
	return n
}

func (c config) text(keys ...string) string {
	if n := c.at(keys...); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

func (c config) on(keys ...string) bool { return c.text(keys...) == "true" }

func (c config) number(keys ...string) (float64, bool) {
	v, err := number(c.text(keys...))
	return v, err == nil
}

// number reads 500000000, 5e8 and 5E8.
func number(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
