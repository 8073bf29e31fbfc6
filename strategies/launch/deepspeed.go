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
	{[]string{"train_micro_batch_size_per_gpu"}, 1}, {[]string{"gradient_accumulation_steps"}, 1}, {[]string{"train_batch_size"}, 1}, {[]string{"tensor_parallel", "autotp_size"}, 0},
	{[]string{"zero_optimization", "stage"}, 0}, {[]string{"zero_optimization", "reduce_bucket_size"}, 1},
}

// zeroCostly are keys of zero_optimization that no key of a job stands for, unless they have
// the value that is DeepSpeed's own.
var zeroCostly = map[string]string{
	"zero_hpz_partition_size": "1", "zero_quantized_weights": "false", "zero_quantized_gradients": "false", "mics_shard_size": "-1", "stage3_max_live_parameters": "1e9",
	"stage3_max_reuse_distance": "1e9", "sub_group_size": "1e9", "stage3_prefetch_bucket_size": "5e7", "round_robin_gradients": "false", "zenflow": "",
}

// deepspeed reads a configuration of DeepSpeed.
func (j *Job) deepspeed(name string, d *yamlx.Document) error {
	c := config{d.Root}
	if !slices.ContainsFunc([]string{"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "bf16", "fp16"}, func(k string) bool { return c.at(k) != nil }) {
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
	d, err := yamlx.Parse(name+", "+file, []byte(s.Fill(s.Files[file], "auto")))
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
		if v, ok := c.number(k[0]); ok && !(k[1] == "train.global_batch" && c.at("gradient_accumulation_steps") != nil && c.at("train_micro_batch_size_per_gpu") != nil) {
			j.set(k[1], int64(v), k[0])
		}
	}
	stage := j.zero(c)
	for _, p := range []string{"bf16", "fp16"} {
		if c.on(p, "enabled") {
			j.set("train.precision", p, p+".enabled")
		}
	}
	if t := c.text("communication_data_type"); t != "" && t != "auto" {
		j.set("train.dtypes.reduce", t, "communication_data_type")
	}
	if t := c.text("data_types", "grad_accum_dtype"); t != "" {
		j.note("data_types.grad_accum_dtype %s: gradients of stage %d are taken to be added up in the dtype of the weights", t, stage)
	}
	if n, ok := c.number("tensor_parallel", "autotp_size"); ok && n > 1 {
		j.set("plan.tp", int64(n), "tensor_parallel.autotp_size")
	}
	return nil
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
	j.offloaded(c.text("zero_optimization", "offload_optimizer", "device"), c.text("zero_optimization", "offload_param", "device"), "zero_optimization.offload_optimizer", "zero_optimization.offload_param")
	var keys []string
	for k := range zeroCostly {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		at := c.at("zero_optimization", k)
		if at == nil || at.Value == "auto" || at.Value == zeroCostly[k] {
			continue
		}
		if own, err := number(zeroCostly[k]); err == nil {
			if v, ok := c.number("zero_optimization", k); ok && v == own {
				continue
			}
		}
		j.note("zero_optimization.%s %s", k, at.Value)
	}
	return int(stage)
}

// offloaded says what is on which device of the host, and what says so.
func (j *Job) offloaded(states, weights, statesFrom, weightsFrom string) {
	switch {
	case weights == "nvme" || states == "nvme":
		j.note("offload to nvme: to the host's memory is known alone")
	case weights == "cpu" && states != "cpu":
		j.note("offload_param without offload_optimizer: both are known alone")
	case weights == "cpu":
		j.set("plan.offload", "parameters", weightsFrom)
	case states == "cpu":
		j.set("plan.offload", "optimizer", statesFrom)
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
