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
