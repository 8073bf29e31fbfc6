package launch

// llamaFactoryOne is LLaMA-Factory from 1 on, which trains in a loop of its own
// (src/llamafactory/v1: config, core/base_trainer.py, plugins/trainer_plugins/distributed).
var llamaFactoryOne = &dialect{
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
