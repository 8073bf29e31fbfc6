package launch

import (
	"slices"

	"github.com/perfplan/perfplan/internal/yamlx"
)

// llamaFactoryOne is LLaMA-Factory from 1 on, which trains in a loop of its own
// (src/llamafactory/v1: config, core/base_trainer.py, plugins/trainer_plugins/distributed).
var llamaFactoryOne = &dialect{
	loops: true,
	marks: []string{"model_class", "dist_config", "train_dataset"},
	names: map[string]string{
		"model": "model_name_or_path", "micro_batch_size": "per_device_train_batch_size", "cutoff_len": "max_length", "enable_activation_checkpointing": "gradient_checkpointing", "flash_attn": "attn_implementation",
		"cp_size": "parallelism.sp_size", "mp_replicate_size": "parallelism.dp_replicate_size", "mp_shard_size": "parallelism.dp_shard_size",
		"dist.name": "distributed_type", "dist.file": "deepspeed.file", "dist.reshard_after_forward": "fsdp.reshard_after_forward", "dist.offload_params": "fsdp.offload_params",
		"peft.name": "finetuning_type", "peft.r": "lora_r", "peft.lora_alpha": "lora_alpha", "peft.lora_dropout": "lora_dropout", "peft.target_modules": "lora_target_modules", "peft.use_dora": "use_dora", "peft.modules_to_save": "lora_modules_to_save",
		"optim.name": "optim", "quant.quantization_bit": "quantization_bit", "quant.double_quantization": "bnb_4bit_use_double_quant",
	},
	defaults: map[string]string{"per_device_train_batch_size": "1", "gradient_accumulation_steps": "1", "max_length": "2048", "bf16": "true", "gradient_checkpointing": "true", "max_grad_norm": "1", "optim": "adamw_torch", "attn_implementation": "sdpa",
		"lora_r": "8", "lora_dropout": "0.05", "lora_target_modules": "all", "fsdp.reshard_after_forward": "true", "bnb_4bit_use_double_quant": "true"},
}

// ownMixed is the dtype that LLaMA-Factory 1 computes in: FSDP2 alone heeds bf16, DeepSpeed has it
// in its own configuration, bf16 where that leaves it open, and nothing else computes in 16 bits.
func (h *hub) ownMixed() (dtype string, by argument) {
	switch bf16 := h.get("bf16"); {
	case h.kind == byZeRO:
		return "bf16", argument{from: "LLaMA-Factory's under DeepSpeed"}
	case h.kind == byFSDP && bf16.on():
		return "bf16", bf16
	case h.kind == byFSDP:
		return "", bf16
	}
	return "", argument{from: h.without("distributed_type") + " fsdp2 or deepspeed, nothing heeds bf16"}
}

// ownLoaded is the dtype that it keeps weights in: fp32, but beside adapters as they are stored.
func (h *hub) ownLoaded() (dtype string, by argument) {
	if h.adapted() {
		return "bf16", argument{from: "weights are taken to be stored in 16 bits"}
	}
	return "fp32", argument{from: "LLaMA-Factory's fp32"}
}

// What tells a file of LLaMA-Factory for Megatron-Core, which USE_MCA and USE_MEGATRON_BRIDGE turn on,
// what of it is Megatron-Bridge's alone, and what of its names the reader of ms-swift's has others for.
var (
	factoryMegatron = []string{"tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "virtual_pipeline_model_parallel_size"}
	factoryBridge   = []string{"use_packed_sequences", "export_hf_on_finish", "megatron_pretrained_checkpoint", "extra_config"}
	factoryNames    = map[string]string{
		"model_name_or_path": "model", "cutoff_len": "max_length", "per_device_train_batch_size": "micro_batch_size", "finetuning_type": "tuner_type", "lora_target": "target_modules", "max_grad_norm": "clip_grad",
		"neat_packing": "packing", "sequence_packing": "packing", "use_packed_sequences": "packing",
	}
)

// Their defaults (mcore_adapter/training_args.py, llamafactory/hparams/megatron_bridge_args.py).
var (
	adapterDefaults = map[string]string{
		"micro_batch_size": "8", "gradient_accumulation_steps": "1", "max_length": "2048", "tuner_type": "lora", "lora_dropout": "0", "use_distributed_optimizer": "false", "overlap_grad_reduce": "false", "overlap_param_gather": "false",
		"apply_rope_fusion": "false", "bias_activation_fusion": "false", "cross_entropy_loss_fusion": "false", "moe_token_dispatcher_type": "allgather", "cuda_graph_impl": "none",
	}
	factoryBridgeDefaults = map[string]string{
		"micro_batch_size": "8", "gradient_accumulation_steps": "1", "max_length": "2048", "tuner_type": "lora", "lora_dropout": "0", "use_distributed_optimizer": "true", "overlap_grad_reduce": "true", "overlap_param_gather": "true",
		"moe_token_dispatcher_type": "alltoall",
	}
)

// ofFactory are the arguments in a file of LLaMA-Factory for Megatron-Core; false: it is none.
func (j *Job) ofFactory(d *yamlx.Document) (bool, error) {
	has := func(k string) bool { return d.At(k) != nil }
	if !slices.ContainsFunc(factoryMegatron, has) || !slices.ContainsFunc(llamaFactory.marks, has) {
		return false, nil
	}
	s := start{flags: flags{}}
	names, defaults := map[string]string{"recipe": "Megatron-Core of LLaMA-Factory"}, adapterDefaults
	if slices.ContainsFunc(factoryBridge, has) {
		names["recipe"], defaults = "Megatron-Bridge of LLaMA-Factory", factoryBridgeDefaults
	}
	for key, f := range keysAsFlags(d) {
		name, own := factoryNames[key]
		switch {
		case own:
			s.flags[name], names[name] = f, key
		case key == "stage" && f.value != "sft" && f.value != "pt":
			j.note("stage %s: a step is taken to train on next tokens", f.value)
		case key != "stage" && !trainerKeys().harmless.MatchString(key):
			s.flags[key] = f
		}
	}
	return true, j.hosted(d.Name, s, "", names, defaults)
}
