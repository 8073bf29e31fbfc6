package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeepSpeedScripts: what scripts say that call DeepSpeed themselves, and that what they leave out
// is none of a Trainer's defaults.
func TestDeepSpeedScripts(t *testing.T) {
	const (
		chat   = "deepspeed --num_gpus 8 main.py --model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_len 256 --output_dir x --deepspeed "
		script = "deepspeed --num_gpus=2 finetune.py --deepspeed_config=./d.json --model_name meta-llama/Llama-2-7b-hf --output_dir x"
		zero   = `{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 4}`
	)
	for _, c := range []struct {
		files []string
		want  []string
		not   string
	}{
		{[]string{chat}, []string{"data_parallel: ddp # default of --zero_stage\n", "precision: fp16 # default of --dtype\n", "micro_batch: 16 # default of --per_device_train_batch_size\n", "sequence_length: 256 # --max_seq_len\n", "clip_gradients: true # gradient_clipping\n", "recompute: none"}, "Not taken over"},
		{[]string{chat + "--zero_stage 2 --dtype bf16 --offload"}, []string{"data_parallel: zero2 # --zero_stage\n", "precision: bf16 # --dtype\n", "offload: optimizer"}, ""},
		{[]string{chat + "--zero_stage 3 --lora_dim 128 --lora_module_name layers. --only_optimize_lora"}, []string{"rank: 128 # --lora_dim\n"}, "targets"},
		{[]string{chat + "--zero_stage 3 --lora_dim 128"}, []string{"# Not taken over: --lora_dim 128 without --only_optimize_lora: adapters beside weights that are trained, too, are not known; these are taken alone"}, "rank:"},
		{[]string{chat + "--dtype $1"}, []string{"data_parallel: ddp # default of --zero_stage\n", "# train.precision: --dtype: line 1 takes $1"}, "precision: fp"},
		{[]string{"accelerate launch --mixed_precision $1 run_clm.py --output_dir x --model_name_or_path gpt2 --block_size 64"}, []string{"# train.precision: --mixed_precision: line 1 takes $1"}, "precision: fp"},
		{[]string{chat + "--zero_stage $1"}, []string{"# plan.data_parallel: --zero_stage: line 1 takes $1"}, "data_parallel: ddp"},
		{[]string{"deepspeed main.py --max_seq_len 256 --zero_stage 3 --vision_model_name_or_path a --output_dir x --deepspeed"}, []string{"data_parallel: zero3 # --zero_stage\n", "sequence_length: 256 # --max_seq_len\n"}, "precision: fp16"},
		{[]string{script}, []string{"model: llama2-7b # --model_name", "# plan.data_parallel: --deepspeed_config: ./d.json has the stage of ZeRO: name it by --from, too\n", "# train.precision: without --bf16 and fp16: the script, or the configuration of DeepSpeed, has it: give the key\n"}, "fp32"},
		{[]string{script, zero}, []string{"data_parallel: zero2", "precision: bf16 # bf16.enabled\n", "micro_batch: 4"}, "clip"},
		{[]string{"run_clm.py --output_dir x --model_name_or_path gpt2 --block_size 64 --per_device_train_batch_size 4 --deepspeed d.json", zero}, []string{"precision: bf16 # bf16.enabled\n"}, "fp32"},
		{[]string{zero, "run_clm.py --output_dir x --model_name_or_path gpt2 --block_size 64 --per_device_train_batch_size 4 --deepspeed d.json"}, []string{"precision: bf16 # bf16.enabled\n"}, "fp32"},
	} {
		got := initial(t, c.files...) + "\n"
		for _, w := range c.want {
			require.Contains(t, got, w, c.files)
		}
		if c.not != "" {
			require.NotContains(t, got, c.not, c.files)
		}
	}
	predictable(t, []byte(initial(t, chat)), 0)
}
