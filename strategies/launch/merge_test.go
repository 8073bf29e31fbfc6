package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// TestMerge: keys that a mapping takes over from another, in each program's YAML.
func TestMerge(t *testing.T) {
	const base = "base: &base\n  micro_batch_size: 4\n  sequence_len: 2048\n  bf16: true\n  gradient_accumulation_steps: 8\nmore: &more {per_device_train_batch_size: 2, gradient_accumulation_steps: 16, max_length: 4096}\n"
	for text, want := range map[string][]string{
		"base_model: gpt2\n<<: *base":                                                 {"micro_batch: 4 # micro_batch_size", "sequence_length: 2048 # sequence_len", "precision: bf16"},
		"base_model: gpt2\nmicro_batch_size: 1\n<<: *base":                            {"micro_batch: 1 # micro_batch_size", "grad_accumulation: 8"},
		"model_name_or_path: gpt2\nuse_peft: false\n<<: [*more, *base]":               {"micro_batch: 2 # per_device", "grad_accumulation: 16", "sequence_length: 4096 # max_length"},
		"model_name_or_path: gpt2\nfinetuning_type: full\n<<: *base\n<<: *more":       {"grad_accumulation: 8", "sequence_length: 4096 # max_length"},
		"distributed_type: FSDP\nfsdp_config:\n  <<: &two {fsdp_version: 2}\na: *two": {"data_parallel: fsdp2 # fsdp_config.fsdp_version"},
	} {
		got := initial(t, base+text)
		for _, w := range want {
			require.Contains(t, got, w, text)
		}
	}
	_, err := launch.Read("x", []byte("a: &a {micro_batch_size: 0}\nbase_model: gpt2\n<<: *a"))
	require.ErrorContains(t, err, `x:1:26: micro_batch_size: "0"; give a whole number`)
}
