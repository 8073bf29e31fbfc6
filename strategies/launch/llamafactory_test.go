package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLlamaFactoryOne: what LLaMA-Factory 1 makes of its own keys and of what is left out, which is
// no file of ms-swift's for all its micro_batch_size.
func TestLlamaFactoryOne(t *testing.T) {
	const file = "model: Qwen/Qwen3-0.6B\nmodel_class: llm\ntrain_dataset: d.yaml\nmicro_batch_size: 2\ncutoff_len: 512\n"
	for text, want := range map[string][]string{
		file: {"recipe: hf-eager", "data_parallel: ddp # without fsdp and deepspeed", "precision: fp32 # without dist_config.name fsdp2 or deepspeed, nothing heeds bf16", "micro_batch: 2 # micro_batch_size", "sequence_length: 512 # cutoff_len",
			"grad_accumulation: 1 # default of", "optimizer: adamw-foreach # default of optim_config.name", "recompute: full # default of enable_activation_checkpointing", "clip_gradients: true"},
		file + "dist_config: {name: fsdp2}":                                                            {"data_parallel: fsdp2 # dist_config.name", "reshard_after_forward: true # default of dist_config.reshard_after_forward", "precision: bf16-mixed # default of bf16", "reduce: fp32 # LLaMA-Factory's reduce_dtype"},
		file + "dist_config: {name: fsdpturbo, ep_size: 4}":                                            {"data_parallel: fsdp2 # dist_config.name", "# Not taken over: dist_config.ep_size 4: give plan.ep"},
		file + "dist_config: {name: fsdp2, reshard_after_forward: false}\nbf16: false":                 {"precision: fp32 # bf16\n", "reshard_after_forward: false"},
		file + "dist_config: {name: deepspeed, config_file: d.json}":                                   {"# plan.data_parallel: dist_config.config_file: d.json has the stage of ZeRO: name it by --from, too", "precision: bf16 # LLaMA-Factory's under DeepSpeed"},
		file + "dist_config: {name: fsdp2}\npeft_config: {name: lora, r: 4, target_modules: [q_proj]}": {"rank: 4 # peft_config.r", "targets: [q]", "precision: bf16-frozen # default of bf16, weights are taken to be stored in 16 bits"},
		file + "dist_config: {name: fsdp2}\npeft_config: {name: freeze}":                               {"# Not taken over: peft_config.name freeze: all parameters are taken to be trained"},
		file + "optim_config: {name: muon, momentum: 0.9}\nglobal_batch_size: 64":                      {"optimizer: muon # optim_config.name", "global_batch: 64 # global_batch_size\n"},
		file + "kernel_config: {name: liger_kernel}":                                                   {"liger_kernels: true # kernel_config.name\n  tf32"},
		file + "cp_size: 2\nbatching_strategy: padding_free":                                           {"# Not taken over: cp_size 2: sequences cut by all-to-all", "# Not taken over: batching_strategy padding_free"},
	} {
		got := initial(t, text)
		for _, w := range want {
			require.Contains(t, got, w, text)
		}
		require.NotContains(t, got, "ms-swift", text)
		require.NotContains(t, got, "Without a key", text)
	}
	predictable(t, []byte(initial(t, file+"dist_config: {name: fsdp2}\npeft_config: {name: lora}")), 4)
	got := initial(t, file+"dist_config: {name: deepspeed, config_file: d.json}", `{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}`)
	require.Contains(t, got, "data_parallel: zero3")
}

// TestLlamaFactoryMegatron: what LLaMA-Factory says to Megatron-Core, by its own names and by the
// defaults of either way to it, and what its command says instead.
func TestLlamaFactoryMegatron(t *testing.T) {
	const file = "model_name_or_path: Qwen/Qwen3-30B-A3B-Instruct-2507\nstage: sft\nfinetuning_type: full\ntemplate: qwen3\ncutoff_len: 1024\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\ntensor_model_parallel_size: 1\n"
	for _, c := range []struct {
		files []string
		want  []string
	}{
		{[]string{file + "pipeline_model_parallel_size: 4\nexpert_model_parallel_size: 2\nuse_distributed_optimizer: true\nmoe_token_dispatcher_type: alltoall\nrecompute_granularity: full"}, []string{"recipe: megatron-script # Megatron-Core of LLaMA-Factory\n", "pp: 4 # pipeline_model_parallel_size\n", "ep: 2 # expert_model_parallel_size\n",
			"data_parallel: zero1 # use_distributed_optimizer\n", "grad_accumulation: 4 # gradient_accumulation_steps\n", "micro_batch: 2 # per_device_train_batch_size\n", "sequence_length: 1024 # cutoff_len\n", "recompute: full # recompute_granularity\n", "precision: bf16 # bf16\n", "token_dispatcher: alltoall"}},
		{[]string{file}, []string{"data_parallel: ddp # default of use_distributed_optimizer\n", "overlap_grad_reduce: false # default of", "# Not taken over: default of moe_token_dispatcher_type allgather"}},
		{[]string{file + "use_packed_sequences: false"}, []string{"recipe: megatron-script # Megatron-Bridge of LLaMA-Factory\n", "data_parallel: zero1 # default of use_distributed_optimizer\n", "overlap_grad_reduce: true # default of"}},
		{[]string{"model_name_or_path: gpt2\nfinetuning_type: lora\nstage: dpo\nlora_rank: 4\nlora_target: all\nbf16: true\npipeline_model_parallel_size: 2"}, []string{"rank: 4 # lora_rank\n", "# Not taken over: stage dpo: a step is taken to train on next tokens"}},
		{[]string{"USE_MCA=1 NPROC_PER_NODE=8 llamafactory-cli train a.yaml tensor_model_parallel_size=2 learning_rate=1", file}, []string{"gpus: 8 # NPROC_PER_NODE\n", "tp: 2 # tensor_model_parallel_size\n", "# Not taken over: tensor_model_parallel_size 1 of the file: llamafactory-cli train takes its command line's --tensor_model_parallel_size 2"}},
	} {
		got := initial(t, c.files...) + "\n"
		for _, w := range c.want {
			require.Contains(t, got, w, c.files)
		}
		require.NotContains(t, got, "Without a key", c.files)
	}
	predictable(t, []byte(initial(t, file+"pipeline_model_parallel_size: 4\nuse_distributed_optimizer: true")), 8)
}
