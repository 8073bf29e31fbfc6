package launch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// nanoFile reads files after nanoGPT's as one.
func nanoFile(t *testing.T, files ...string) *launch.Job {
	t.Helper()
	var jobs []*launch.Job
	for i, text := range files {
		j, err := launch.Read(string(rune('a'+i))+".py", []byte(text))
		require.NoError(t, err)
		jobs = append(jobs, j)
	}
	j, err := launch.Join(jobs)
	require.NoError(t, err)
	return j
}

// TestNanoFiles: what goes before what (configurator.py of nanoGPT), and what its words mean (train.py and model.py @3adf61e).
func TestNanoFiles(t *testing.T) {
	const (
		program = "\"\"\"\n$ python train.py config/x.py --n_layer=2\n$ torchrun --standalone --nproc_per_node=4 train.py\n\"\"\"\nimport os\nn_layer = 6\nn_head = 6\nn_embd = 384\nbatch_size = 8\ndtype = 'bfloat16' if torch.cuda.is_available() else 'float16'\nn_kv_head = 2\nconfig_keys = [k for k in globals()]\nlocal_iter_num = 0\n"
		divides = program + "    gradient_accumulation_steps //= ddp_world_size\n"
		config  = "# $ torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py\nblock_size = 512 # tokens\ngradient_accumulation_steps = 5 * 8\nbatch_size = 12\n"
		command = "torchrun --standalone --nnodes=2 --nproc_per_node=2 train.py config/train_gpt2.py --batch_size=16 --compile=False\n"
	)
	for _, c := range []struct {
		files []string
		key   string
		want  any
	}{
		{[]string{config}, "gpus", int64(8)},
		{[]string{config, command}, "gpus", int64(4)},
		{[]string{command, config}, "gpus", int64(4)},
		{[]string{divides}, "gpus", nil},
		{[]string{config, divides}, "model.num_hidden_layers", int64(6)},
		{[]string{config, divides}, "model.intermediate_size", int64(1536)},
		{[]string{config, divides}, "train.micro_batch", int64(12)},
		{[]string{config, divides, command}, "train.micro_batch", int64(16)},
		{[]string{config, divides}, "train.global_batch", int64(480)},
		{[]string{config, program}, "train.grad_accumulation", int64(40)}, // each rank's, before 2023-04
		{[]string{config, divides}, "train.sequence_length", int64(512)},
		{[]string{config, divides}, "train.precision", "bf16-autocast"},
		{[]string{config, divides}, "runtime.recipe", "nanogpt"},
		{[]string{command}, "runtime.recipe", "pytorch"},
		{[]string{"n_layer = 12\ndtype = 'float32'\ngrad_clip = 0.0\n"}, "train.precision", "fp32"},
		{[]string{"n_layer = 12\ndtype = 'float32'\ngrad_clip = 0.0\n"}, "train.clip_gradients", false},
		{[]string{"n_layer = 3 * depth\n"}, "model.num_hidden_layers", nil},
		{[]string{"init_from = 'gpt2-xl'\nbatch_size = 1\n"}, "model.num_hidden_layers", int64(48)},
		{[]string{"init_from = 'gpt2-xl'\nn_embd = 64\n"}, "model.intermediate_size", int64(6400)},
		{[]string{"init_from = 'gpt2'\nbias = False\n"}, "model.bias", true},
		{[]string{"init_from = 'gpt2'\nblock_size = 512\n"}, "model.vocab_size", int64(50257)},
		{[]string{"init_from = 'gpt2'\nblock_size = 512\n"}, "model.max_position_embeddings", int64(512)}, // crop_block_size
		{[]string{"init_from = 'gpt2'\ndropout = 0.1\n"}, "model.residual_dropout", 0.1},
		{[]string{"n_layer = 6\ndataset = 'my_char'\n"}, "model.vocab_size", nil},
		{[]string{"n_layer = 6\ndataset = 'my_char'\nvocab_size = 32 * 1000\n"}, "model.vocab_size", int64(32000)},
		{[]string{"n_layer = 6\nn_kv_head = 3\n"}, "model.num_key_value_heads", int64(3)},
		{[]string{divides}, "model.num_key_value_heads", int64(2)},
		{[]string{"n_embd = 512\nd_ff = 1536\n"}, "model.intermediate_size", int64(1536)},
		{[]string{"import time\ninit_from = 'gpt2'\nwandb_run_name = 'ft-' + str(time.time())\nbatch_size = 1\n"}, "train.micro_batch", int64(1)}, // config/finetune_shakespeare.py
		{[]string{"n_layer = 6\nuse_fsdp = True\n"}, "plan.data_parallel", nil},
		{[]string{"n_layer = 6\nuse_fsdp = False\n"}, "plan.data_parallel", "ddp"},
		{[]string{"deepspeed --num_gpus=4 train.py config/train_gpt2.py\n"}, "plan.data_parallel", nil},
		{[]string{"python train.py config/train_gpt2.py\n# torchrun --nproc_per_node=8 train.py config/train_gpt2.py\n"}, "gpus", int64(1)},
		{[]string{"LAUNCHER=python\nwidth=256\n$LAUNCHER ./train.py \\\n  --n_layer=2 --n_embd=$width --n_head=$((width / 64)) --block_size=1024\n"}, "model.num_attention_heads", int64(4)}, // cat-state/nanoGPT-mup
		{[]string{"python train.py --n_embd=$1 --n_layer=2 --max_iters=10\n"}, "model.hidden_size", nil},
		{[]string{"GPUS=2\ntorchrun --nproc_per_node=$GPUS train.py ./config/train_gpt2.py\n"}, "gpus", int64(2)},
		{[]string{"n_layer = 6\noptimizer_name = 'muon'\n"}, "train.optimizer", nil},
		{[]string{"n_layer = 6\noptimizer_type = 'AdamW'\n"}, "train.optimizer", "adamw-fused"},
		{[]string{"srun python train.py config/train_gpt2.py\n"}, "gpus", nil},
		{[]string{"torchrun --nproc_per_node=8 \\\n  train.py \\\n  config/train_gpt2.py \\\n  --batch_size=4\n"}, "train.micro_batch", int64(4)},
		{[]string{"# torchrun --nproc_per_node=8 train.py\n# torchrun --nproc_per_node=4 --nnodes=2 train.py\nn_layer = 6\n"}, "gpus", int64(8)},
	} {
		j, found := nanoFile(t, c.files...), false
		for _, s := range j.Settings {
			if s.Key == c.key {
				require.Equal(t, c.want, s.Value, "%+v", c)
				found = true
			}
		}
		require.True(t, found, "%+v", c)
	}
	require.Empty(t, nanoFile(t, divides).Ignored)
	for text, want := range map[string][]string{
		"n_layer = 6\ndevice = 'cuda:1'\n":    {},
		"n_layer = 6\ndevice = (\n":           {},
		"n_layer = 6\ndevice = 'mps'\n":       {"device mps: GPUs of NVIDIA are taken"},
		"n_layer = 6\neval_only = True\n":     {"eval_only: the run trains nothing; a training step is taken"},
		"n_layer = 6\ninit_from = 'resume'\n": {"init_from resume: the checkpoint has the model's shape, which goes before what the files say"},
		"n_layer = 6\nuse_moe = True\nuse_lora = False\nmodel_type = 'gpt'\nffn_type = 'standard'\n": {"use_moe true: nanoGPT's model.py has none; GPT-2's layers are taken"},
		"iter 0: loss 10.95, time 15880.66ms, mfu -100.00%\n":                                        {"the log's configuration: name it by --from, too; nanoGPT's own settings are taken"},
	} {
		require.ElementsMatch(t, want, nanoFile(t, text).Notes, text)
	}
	log := nanoFile(t, config, "tokens per iteration will be: 491,520\niter 0: loss 10.95, time 900.00ms, mfu -100.00%\niter 1: loss 10.0, time 250.00ms, mfu -100.00%\niter 2: loss 9.0, time 250.00ms, mfu -100.00%\n") // wandb's output.log
	require.Equal(t, "0.25 s a step, the median of 2 iterations after the first third", log.Measured())
	require.Empty(t, log.Notes)
	for _, s := range nanoFile(t, "init_from = 'gpt2'\nbatch_size = 1\n").Settings {
		require.NotContains(t, s.Key, "dropout") // which OpenAI's own configurations have
	}
	require.Contains(t, strings.Join(nanoFile(t, command).Notes, "\n"), "config/train_gpt2.py: name it by --from, too")
	require.Empty(t, nanoFile(t, command, config).Notes)
	require.Equal(t, []string{"n_layers; did you mean n_layer?"}, nanoFile(t, "block_size = 8\nn_layers = 2\n").Unknown)
	require.Equal(t, []string{"use_flash"}, nanoFile(t, "block_size = 8\nuse_flash = True\n").Ignored)
	for _, other := range []string{"import os\nblock_size = 128\nargs = TrainingArguments(per_device_train_batch_size=8)\n", "block_size=128\necho $block_size\n", "n_layer=12\npython3 src/train.py --batch_size_per_device=4 --seq_len=1024 --n_ctx=1024 --n_layer=$n_layer\n"} {
		_, err := launch.Read("other", []byte(other))
		require.Error(t, err, other)
	}
}
