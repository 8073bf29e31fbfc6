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

// zeroRead are keys that a job is read from.
var zeroRead = words(`train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping optimizer.type optimizer.params.torch_adam bf16.enabled fp16.enabled
	communication_data_type seq_parallel_communication_data_type sequence_parallel_size data_types.grad_accum_dtype tensor_parallel.autotp_size zero_optimization.stage zero_optimization.reduce_bucket_size zero_optimization.overlap_comm
	zero_optimization.offload_optimizer.device zero_optimization.offload_param.device zero_optimization.cpu_offload zero_optimization.cpu_offload_param`)

// zeroCostly are keys that no key of a job stands for though they change time or memory, unless
// they have the value that is DeepSpeed's own, in the stages that heed them (all where none is
// named), and what is taken instead (runtime/config.py, runtime/zero/config.py and offload_config.py).
var zeroCostly = []costly{
	{key: "tensor_parallel.tp_overlap_comm", free: "false"}, {key: "expert_parallel"}, {key: "torch_autocast", why: "weights are taken in the dtype that bf16 or fp16 names; give train.precision"},
	{key: "amp", why: "its dtypes; give train.precision"}, {key: "compile", why: "layers are taken to run eagerly"}, {key: "graph_harvesting", free: "false"}, {key: "wall_clock_breakdown", free: "false", why: "its timers wait for the GPU"}, {key: "comms_logger.enabled", free: "false", why: "the host waits for the GPU after each of its collectives (comm/comm.py, timed_op)"},
	{key: "activation_checkpointing.partition_activations", free: "false", why: ownCheckpoints}, {key: "activation_checkpointing.cpu_checkpointing", free: "false", why: ownCheckpoints},
	{key: "activation_checkpointing.contiguous_memory_optimization", free: "false", why: ownCheckpoints}, {key: "activation_checkpointing.number_checkpoints", why: ownCheckpoints},
	{key: "curriculum_learning", why: "sequences are taken to be whole"}, {key: "data_efficiency", why: "all tokens of a batch are taken"}, {key: "progressive_layer_drop", why: "all layers are taken to run"},
	{key: "sparse_attention"}, {key: "sparse_gradients", free: "false"}, {key: "compression_training"}, {key: "eigenvalue"}, {key: "elasticity", why: "it chooses the batch; give train.micro_batch and train.global_batch"},
	{key: "bf16.bf16_master_weights_and_grads", free: "false", why: "both are taken in fp32"}, {key: "bf16.bf16_optimizer_states", free: "false", why: "they are taken in fp32"}, {key: "bf16.immediate_grad_update", free: "false"},
	{key: "fp16.fp16_master_weights_and_grads", free: "false", why: "both are taken in fp32"}, {key: "zero_force_ds_cpu_optimizer", free: "true"},
	{key: "zero_optimization.allgather_bucket_size", of: "12", free: "5e8", why: "5e8 elements are taken"}, {key: "zero_optimization.allgather_partitions", of: "12", free: "true"},
	{key: "zero_optimization.reduce_scatter", of: "12", free: "true"}, {key: "zero_optimization.contiguous_gradients", of: "12", free: "true"}, {key: "zero_optimization.use_multi_rank_bucket_allreduce", of: "12", free: "true"},
	{key: "zero_optimization.round_robin_gradients", of: "12", free: "false"}, {key: "zero_optimization.offload_optimizer.ratio", of: "3", free: "1", why: "the host is taken to update all or nothing"},
	{key: "zero_optimization.offload_optimizer.super_offload", of: "3", free: "false"}, {key: "zero_optimization.offload_optimizer.pin_memory", free: "true", why: pinned}, {key: "zero_optimization.offload_param.pin_memory", of: "3", free: "true", why: pinned},
	{key: "zero_optimization.stage3_param_persistence_threshold", of: "3", free: "1e5", why: "smaller parameters, which stay whole, are taken to be in shards"}, {key: "zero_optimization.stage3_model_persistence_threshold", of: "3"},
	{key: "zero_optimization.stage3_max_live_parameters", of: "3", free: "1e9"}, {key: "zero_optimization.stage3_max_reuse_distance", of: "3", free: "1e9"}, {key: "zero_optimization.stage3_prefetch_bucket_size", of: "3", free: "5e7"},
	{key: "zero_optimization.stage3_module_granularity_threshold", of: "3", free: "0"}, {key: "zero_optimization.stage3_use_all_reduce_for_fetch_params", of: "3", free: "false"}, {key: "zero_optimization.stage3_allgather_sequential", of: "3", free: "false"},
	{key: "zero_optimization.sub_group_size", of: "3", free: "1e9"}, {key: "zero_optimization.memory_efficient_linear", of: "3", free: "true"}, {key: "zero_optimization.leaf_module", of: "3"},
	{key: "zero_optimization.zero_hpz_partition_size", of: "3", free: "1"}, {key: "zero_optimization.zero_quantized_weights", of: "3", free: "false"}, {key: "zero_optimization.zero_quantized_nontrainable_weights", of: "3", free: "false"},
	{key: "zero_optimization.zero_quantized_gradients", of: "3", free: "false"}, {key: "zero_optimization.mics_shard_size", of: "3", free: "-1"}, {key: "zero_optimization.mics_hierarchical_params_gather", of: "3", free: "false"}, {key: "zero_optimization.zenflow"},
}

const (
	ownCheckpoints = "DeepSpeed's own checkpoints alone heed it; layers are taken to be recomputed by torch's"
	pinned         = "memory is taken to be pinned"
)

// harmlessZeRO are beginnings of keys that cost nothing worth a word, or nothing without another
// one that is told.
var harmlessZeRO = lazily(`^(steps_per_print|dump_state|memory_breakdown|tensorboard|wandb|comet|csv_monitor|monitor_config|flops_profiler|comms_logger\.(verbose|prof_|debug)|timers|autotuning|checkpoint|aio|nebula|scheduler|optimizer\.(params|legacy_fusion)|dataloader_drop_last|gradient_predivide_factor|prescale_gradients|zero_allow_untested_optimizer|seed|activation_checkpointing\.(profile|synchronize)|bf16\.(loss_scale|check_grad_overflow)|fp16\.(loss_scale|initial_scale|hysteresis|consecutive|min_loss|auto_cast|opt_level)|zero_optimization\.(stage3_gather_|load_from|elastic_checkpoint|ignore_unused|legacy_stage1|pipeline_loading|override_module|log_trace|enable_sanity|cpu_offload_use_pin|offload_(optimizer|param)\.(nvme_path|buffer_|max_in_cpu|pipeline|fast_init|cpuadam)))`)

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
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := in+n.Content[i].Value, n.Content[i+1]
		switch {
		case zeroRead[key] || harmlessZeRO().MatchString(key) || without(value):
		case j.costs(zeroCostly, key, key, value.Value, stage):
		case value.Kind == yaml.MappingNode && slices.Contains(zeroTables, key):
			j.left(value, key+".", stage)
		default:
			given := func(near string) bool { of, ok := strings.CutPrefix(near, in); return ok && config{n}.at(of) != nil }
			j.ignore(key, key, slices.Concat(keysOf(zeroRead), zeroTables, costlyKeys(zeroCostly)), given, func(near string) string { return near })
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
