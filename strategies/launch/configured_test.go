package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// TestOwnArguments: what a command says itself goes before the file that it names, in whichever
// order the two are given, by the names of that file, and is said to wait where that is not there.
func TestOwnArguments(t *testing.T) {
	const (
		factory = "model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: lora\nbf16: true\ncutoff_len: 512\nper_device_train_batch_size: 1"
		one     = "model: Qwen/Qwen3-0.6B\nmodel_class: llm\nmicro_batch_size: 1\ndist_config: {name: fsdp2}"
		axo     = "base_model: gpt2\nmicro_batch_size: 1\ngradient_checkpointing: true"
		trained = "model_name_or_path: gpt2\nuse_peft: false\nbf16: true\ngradient_accumulation_steps: 2\nmax_length: 64"
		tuned   = "model: Qwen/Qwen2.5-7B\ntuner_type: full\ntorch_dtype: bfloat16\nmax_length: 512"
		zero    = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config: {zero_stage: 3}"
		hub     = "model: {pretrained_model_name_or_path: meta-llama/Llama-3.2-1B}\nstep_scheduler: {global_batch_size: 64, local_batch_size: 8}\n"
	)
	for _, c := range []struct {
		command string
		files   []string
		want    []string
	}{
		{"llamafactory-cli train a.yaml learning_rate=1e-5 per_device_train_batch_size=4 cutoff_len=8192 finetuning_type=full pure_bf16=true", []string{factory}, []string{"micro_batch: 4 # --per_device_train_batch_size\n", "sequence_length: 8192 # --cutoff_len\n", "precision: bf16-pure",
			"# Not taken over: cutoff_len 512 of the file: llamafactory-cli train takes its command line's --cutoff_len 8192"}},
		{"torchrun --nproc_per_node 4 src/train.py a.yaml cutoff_len=64", []string{factory}, []string{"gpus: 4 # --nproc_per_node\n", "sequence_length: 64 # --cutoff_len\n"}},
		{"llamafactory-cli sft a.yaml micro_batch_size=8", []string{one}, []string{"micro_batch: 8 # --micro_batch_size\n", "data_parallel: fsdp2"}},
		{"axolotl train a.yml --micro-batch-size 2 --no-gradient-checkpointing", []string{axo}, []string{"micro_batch: 2 # --micro_batch_size\n", "recompute: none # --no_gradient_checkpointing\n"}},
		{"accelerate launch --config_file z.yaml --num_processes 8 scripts/sft.py --config a.yaml --gradient_accumulation_steps 16 --packing", []string{zero, trained}, []string{"gpus: 8 # --num_processes\n", "data_parallel: zero3", "grad_accumulation: 16 # --gradient_accumulation_steps\n", "sequence_length: 64 # max_length\n"}},
		{"accelerate launch --config_file z.yaml scripts/dpo.py --config a.yaml", []string{trained, zero}, []string{"gpus: 4", "# Not taken over: TRL's dpo: a step is taken to train on next tokens"}},
		{"trl sft --bf16 false --config a.yaml --model_name_or_path Qwen/Qwen2.5-7B", []string{trained}, []string{"model: qwen2.5-7b", "precision: fp32", "grad_accumulation: 2"}},
		{"NPROC_PER_NODE=4 swift sft a.yaml --per_device_train_batch_size 2", []string{tuned}, []string{"gpus: 4 # NPROC_PER_NODE\n", "micro_batch: 2 # --per_device_train_batch_size\n", "grad_accumulation: 2 # default of --gradient_accumulation_steps\n"}},
		{"automodel finetune llm -c a.yaml --nproc-per-node 8 --step_scheduler.local_batch_size 16", []string{hub}, []string{"gpus: 8 # --nproc_per_node\n", "micro_batch: 16 # step_scheduler.local_batch_size\n", "local_batch_size 8 of the file: automodel -c takes its command line's --step_scheduler.local_batch_size 16\n"}},
		{"torchrun --nproc-per-node=8 examples/finetune.py --config a.yaml --distributed.tp_size=2", []string{hub}, []string{"gpus: 8 # --nproc_per_node\n", "tp: 2 # distributed.tp_size\n"}},
		{"torchrun --nproc-per-node=4 -m nemo_automodel.cli.app a.yaml --step_scheduler.local_batch_size 2", []string{hub}, []string{"gpus: 4 # --nproc_per_node\n", "micro_batch: 2 # step_scheduler.local_batch_size\n"}},
		{"NPROC_PER_NODE=2 lmf train a.yaml cutoff_len=32", []string{factory}, []string{"gpus: 2 # NPROC_PER_NODE\n", "sequence_length: 32 # --cutoff_len\n"}},
		{"axolotl train a.yml --adapter lora", []string{"base_model: gpt2\nadapter: qlora\nlora_r: 8"}, []string{"precision: bf16-frozen # default of bf16\n"}},
		{"axolotl train a.yml --adapter qlora", []string{"base_model: gpt2\nadapter: lora\nlora_r: 8"}, []string{"precision: nf4-frozen # --adapter\n"}},
		{"automodel a.yaml --nproc-per-node 2", []string{hub}, []string{"gpus: 2 # --nproc_per_node\n", "micro_batch: 8 #"}},
	} {
		for _, files := range [][]string{append([]string{c.command}, c.files...), append(c.files[:len(c.files):len(c.files)], c.command)} {
			got := initial(t, files...) + "\n"
			for _, w := range c.want {
				require.Contains(t, got, w, c.command)
			}
			require.NotContains(t, got, "name it by --from", c.command)
			require.NotContains(t, got, "they go before", c.command)
		}
	}
	require.Contains(t, initial(t, "llamafactory-cli train a.yaml learning_rate=1 cutoff_len=64"), "# Not taken over: --cutoff_len: they go before what a.yaml has")
	require.Contains(t, initial(t, "sft.py --config a.yaml --model_name_or_path gpt2 --bf16"), "# Not taken over: sft.py --config a.yaml, which may have more arguments: name it by --from, too")
	require.Contains(t, initial(t, trained+"\nbeta: 0.1"), "# Not taken over: beta 0.1: a step is taken to train on next tokens")

	command, err := launch.Read("a", []byte("automodel a.yaml --step_scheduler.local_batch_size x"))
	require.NoError(t, err)
	file, err := launch.Read("b", []byte(hub))
	require.NoError(t, err)
	_, err = launch.Join([]*launch.Job{command, file})
	require.EqualError(t, err, `--step_scheduler.local_batch_size: "x"; give a whole number from 1 on`)
}

// TestAccelerator: what a Trainer hands accelerate that changes what a step takes (transformers, trainer.py, sync_context).
func TestAccelerator(t *testing.T) {
	const file = "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\n"
	const each = "accelerator_config: {split_batches: true, gradient_accumulation_kwargs: {sync_each_batch: true}}\n"
	for _, kind := range []string{"", "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"} {
		text := initial(t, file+kind+each)
		require.Contains(t, text, "sync_every_micro_batch: true # accelerator_config.gradient_accumulation_kwargs.sync_each_batch\n")
		require.Contains(t, text, "# Not taken over: accelerator_config.split_batches true: a batch is cut over the processes\n")
		require.NotContains(t, initial(t, file+kind), "sync_every_micro_batch")
	}
	require.NotContains(t, initial(t, file+"deepspeed: zero2.json\n"+each), "sync_every_micro_batch", "which reduces as its stage does")
}
