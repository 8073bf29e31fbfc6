package launch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies/launch/shell"
)

// swift is ms-swift, whose command passes arguments on to transformers' Trainer and has defaults
// of its own (swift/arguments and trainers/arguments.py of 2024 to 2026; train_type was sft_type
// until 3.0 and is tuner_type since 4.0).
var swift = &dialect{
	marks: []string{"tuner_type", "train_type", "sft_type", "attn_impl"},
	names: map[string]string{
		"model": "model_name_or_path", "tuner_type": "finetuning_type", "train_type": "finetuning_type", "sft_type": "finetuning_type", "lora_rank": "lora_r", "target_modules": "lora_target_modules",
		"attn_impl": "attn_implementation", "torch_dtype": "dtype", "quant_bits": "quantization_bit", "rlhf_type": "stage", "optim": "optim", "optimizer": "optim", "freeze_vit": "images.encoder", "freeze_aligner": "images.projector", "freeze_llm": "freeze_language_model", "sequence_parallel_size": "parallelism.sp_size",
	},
	defaults: map[string]string{"per_device_train_batch_size": "1", "use_peft": "true", "lora_r": "8", "lora_dropout": "0.05", "lora_target_modules": "all-linear", "gradient_checkpointing": "true",
		"optim": "adamw_torch_fused", "max_grad_norm": "1", "bnb_4bit_use_double_quant": "true", "images.encoder": "true", "images.projector": "true", "gradient_checkpointing_kwargs.use_reentrant": "true"},
}

// swiftFSDP is a file of its --fsdp.
var swiftFSDP = &dialect{marks: []string{"fsdp"}}

// swiftCommand is how it is started.
var swiftCommand = lazily(`(?:^|\s|/)swift (sft|pt|rlhf) `)

// swiftBatch is how many sequences a step has at least where nobody says how many passes.
const swiftBatch = 16

// swiftZeRO are the configurations of DeepSpeed that it has names for (swift/config).
var swiftZeRO = map[string]string{
	"zero0": `{"zero_optimization": {"stage": 0}}`, "zero1": `{"zero_optimization": {"stage": 1, "overlap_comm": false, "reduce_bucket_size": 2e8}}`,
	"zero2":         `{"zero_optimization": {"stage": 2, "overlap_comm": false, "reduce_bucket_size": 2e8}}`,
	"zero2_offload": `{"zero_optimization": {"stage": 2, "overlap_comm": false, "reduce_bucket_size": 2e8, "offload_optimizer": {"device": "cpu"}}}`,
	"zero3":         `{"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}`,
	"zero3_offload": `{"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}}`,
}

// environment is what a configuration sets beside its arguments, under such keys: ENV with ms-swift (swift/cli/main.py).
func environment(d *yamlx.Document, under ...string) map[string]string {
	env := map[string]string{}
	for _, name := range shell.Kept {
		if n := d.At(append(slices.Clip(under), name)...); n != nil {
			env[name] = n.Value
		}
	}
	return env
}

// spread notes that each process has several of the devices that it sees, over which it spreads one
// copy of the layers (swift/utils/env.py, is_mp): without NPROC_PER_NODE a node has one process.
func (t *trainer) spread(devices int64) {
	by, each := "CUDA_VISIBLE_DEVICES", t.given["per_node"]
	if devices < 2 || each.open != "" {
		return
	}
	processes := max(each.number(), 1)
	if devices > processes {
		t.notes = append(t.notes, fmt.Sprintf("%s: each of ms-swift's processes (%d) spreads the layers of its copy over %d GPUs, which work in turn; one GPU is taken to hold and to compute all of a copy", by, processes, devices/processes))
		t.given["per_node"] = argument{value: strconv.FormatInt(processes, 10), from: cmp.Or(each.from, "without NPROC_PER_NODE"), given: true}
	}
}

// swift takes over what ms-swift makes of names and of what is left out.
func (t *trainer) swift() error {
	set := func(name, value string, by argument) {
		if a := t.given[name]; !a.given {
			t.given[name] = argument{value: value, from: by.from, given: true, fail: by.fail}
		}
	}
	switch d := t.given["dtype"]; d.value { // _init_mixed_precision
	case "bfloat16":
		set("bf16", "true", d)
	case "float16", "float32":
		set("fp16", "true", d)
	}
	if f := t.given["fsdp"]; strings.HasSuffix(f.value, ".json") && f.open == "" {
		f.open = f.value + " has the kind of FSDP: name it by --from, too"
		t.given["fsdp"] = f
	} else if t.speaks(swiftFSDP) && f.given {
		set("fsdp.version", "2", f)
	} else if f.value == "fsdp2" {
		for name, value := range map[string]string{"fsdp.version": "2", "fsdp.reshard_after_forward": "true", "fsdp.activation_checkpointing": "true"} {
			set(name, value, f)
		}
		t.given["gradient_checkpointing"] = argument{value: "false", from: f.from, given: true}
		f.value = "full_shard auto_wrap"
		t.given["fsdp"] = f
	}
	ds := t.given["deepspeed"]
	if named := strings.HasPrefix(ds.value, "zero") && !strings.Contains(ds.value, "."); named && swiftZeRO[ds.value] == "" && ds.open == "" {
		return ds.fail("%s: there is no %q; give %s, or a file", ds.from, ds.value, diag.Or(slices.Sorted(maps.Keys(swiftZeRO))))
	}
	if swiftZeRO[ds.value] != "" {
		doc, err := parse(ds.from+" "+ds.value, []byte(swiftZeRO[ds.value]))
		if err != nil {
			return err
		}
		t.inline = &Job{}
		if err := t.inline.deepspeed(doc.Name, doc); err != nil {
			return err
		}
	}
	const passes = "gradient_accumulation_steps"
	if a := t.given[passes]; a.given {
		return nil
	}
	each, nodes := t.given["per_node"], t.get("num_machines")
	a := argument{from: "default of --" + passes}
	if each.number() > 0 && each.open == "" && nodes.open == "" {
		world := each.number() * max(nodes.number(), 1) * max(t.get("per_device_train_batch_size").number(), 1)
		a.value = strconv.FormatInt(max((swiftBatch+world-1)/world, 1), 10)
	} else {
		a.open = fmt.Sprintf("as many as make %d sequences of a step: give the key", swiftBatch)
	}
	t.given[passes] = a
	return nil
}
