package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// TestExpandableSegments: what scripts and configurations have PyTorch's allocator do. PyTorch reads PYTORCH_ALLOC_CONF
// before PYTORCH_CUDA_ALLOC_CONF (c10/core/AllocatorConfig.cpp); Axolotl's command sets it where nobody has
// (axolotl/utils/__init__.py).
func TestExpandableSegments(t *testing.T) {
	const (
		key  = "expandable_segments: "
		sft  = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --max_length 512 --tuner_type full --torch_dtype bfloat16\n"
		gpt  = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 8 --bf16\n"
		hf   = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 --bf16 true --output_dir x\n"
		axo  = "base_model: Qwen/Qwen2.5-7B\nsequence_len: 2048\nmicro_batch_size: 1\n"
		tune = "NGPU=8 CONFIG_FILE=./llama3_8b.toml ./run_train.sh --training.local_batch_size=2\n"
	)
	for text, want := range map[string]string{
		sft: "",
		"PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' " + sft:                                                                                    "true # PYTORCH_CUDA_ALLOC_CONF",
		"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n" + sft:                                                                             "false # PYTORCH_CUDA_ALLOC_CONF",
		"export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512\n" + sft:                                                                                 "",
		"export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}\n" + sft:                                                  "true # PYTORCH_CUDA_ALLOC_CONF",
		"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " + gpt:                                                                                      "true # PYTORCH_CUDA_ALLOC_CONF",
		"export PYTORCH_ALLOC_CONF=max_split_size_mb:512,expandable_segments:True\n" + hf:                                                              "true # PYTORCH_ALLOC_CONF",
		"export PYTORCH_ALLOC_CONF=max_split_size_mb:512\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + hf:                              "",
		"export PYTORCH_ALLOC_CONF=expandable_segments:False\n" + tune:                                                                                 "false # PYTORCH_ALLOC_CONF",
		"model: Qwen/Qwen2.5-7B\ntuner_type: full\ntorch_dtype: bfloat16\nmax_length: 512\nENV: {PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}": "true # PYTORCH_CUDA_ALLOC_CONF",
		axo: "true # Axolotl's PYTORCH_ALLOC_CONF",
	} {
		writes(t, text, key, want)
	}
}

// writes holds what a text comes to against a line of a job that has the key so, "" for none that has it.
func writes(t *testing.T, text, key, want string) {
	t.Helper()
	got := joined(t, text)
	if want == "" {
		require.NotContains(t, got, key, text)
		return
	}
	require.Contains(t, got, key+want+"\n", text)
}

// joined is the job that a text comes to.
func joined(t *testing.T, text string) string {
	t.Helper()
	j, err := launch.Read("a", []byte(text))
	require.NoError(t, err, text)
	j, err = launch.Join([]*launch.Job{j})
	require.NoError(t, err, text)
	got, err := j.YAML()
	require.NoError(t, err)
	return string(got)
}
