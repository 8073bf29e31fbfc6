package launch_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/launch"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRead: what each kind of file says, as a job file. Those that leave nothing open are
// jobs: of a configuration of DeepSpeed with a model.
func TestRead(t *testing.T) {
	for name, more := range map[string]string{"dense.sh": "model: {vocab_size: 50304}", "conditions.sh": "", "functions.sh": "", "heredoc.sh": "", "delta.sh": "", "dsa.sh": "", "dsv4.sh": "", "layout.sh": "", "hybrid.sh": "", "experts.yaml": "gpus: 64", "run.log": "", "zero3.json": "{model: llama3-8b, gpus: 8}", "zero2.json": "{model: llama3-8b, gpus: 8}", "titan.toml": "", "titan-pp.toml": "gpus: 64",
		"clm.sh": "", "sft.log": "", "trainer.json": "gpus: 4", "fsdp2.yaml": "model: llama3.2-1b", "zero3-accelerate.yaml": "model: llama3.2-1b", "lora.yaml": "gpus: 4", "qlora.yaml": "", "ring.yaml": "gpus: 8",
		"nemo.yaml": "", "nemo-llama.yaml": "", "nemo-old.yaml": "", "bridge.yaml": "", "bridge-experts.yaml": "gpus: 256", "bridge-sums.yaml": "gpus: 128",
		"nano.log": "", "nano-char.py": "gpus: 1", "swift.sh": "", "automodel.yaml": "", "automodel-experts.yaml": "gpus: 256"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name))
			require.NoError(t, err)
			j, err := launch.Read(name, text)
			require.NoError(t, err)
			got, err := j.YAML()
			require.NoError(t, err)
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
			if name == "dense.sh" {
				got = []byte(strings.Replace(string(got), "model:\n", "model:\n  vocab_size: 50304\n", 1))
				more = ""
			}
			d, err := yamlx.Parse(name, append(got, more...))
			if strings.HasPrefix(more, "{") {
				d, err = yamlx.Parse(name, append(got, strings.NewReplacer("{", "\n", ", ", "\n", "}", "\n").Replace(more)...))
			}
			require.NoError(t, err)
			if strings.Contains(string(got), "precision: mxfp8") { // no file names its machine
				require.NoError(t, d.Set("--set", "hardware", "b200-sxm", ""))
			}
			job, err := strategies.Decode(d, d.Root)
			require.NoError(t, err, string(got))
			require.False(t, job.Open)
			_, err = estimate.Estimate(job, estimate.Options{})
			require.NoError(t, err, string(got))
		})
	}
}

// TestJoin: files of one job say together what it is; two that differ are refused, but of two
// frameworks.
func TestJoin(t *testing.T) {
	read := func(text string) *launch.Job {
		j, err := launch.Read("a", []byte(text))
		require.NoError(t, err)
		return j
	}
	script := read("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 2 --bf16 --vocab-size 128")
	j, err := launch.Join([]*launch.Job{script, read(`{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}`)})
	require.NoError(t, err)
	text, err := j.YAML()
	require.NoError(t, err)
	require.Contains(t, string(text), "recipe: megatron-deepspeed")
	require.Contains(t, string(text), "read from a, a")
	open, err := launch.Join([]*launch.Job{read("--micro-batch-size $1 --num-layers 4"), read(`{"train_micro_batch_size_per_gpu": 4}`)})
	require.NoError(t, err)
	text, err = open.YAML()
	require.NoError(t, err)
	require.Contains(t, string(text), "micro_batch: 4 # train_micro_batch_size_per_gpu")
	_, err = launch.Join([]*launch.Job{script, read(`{"train_micro_batch_size_per_gpu": 4}`)})
	require.EqualError(t, err, "train.micro_batch: train_micro_batch_size_per_gpu says 4, but --micro-batch-size before it 2; leave one of them out")
}

// TestTogether: what files of one Trainer say of one job, and what one of them leaves to another.
func TestTogether(t *testing.T) {
	const (
		script   = "accelerate launch --config_file a.yaml run_clm.py --model_name_or_path Qwen/Qwen2.5-7B --block_size 1024 --bf16 --gradient_checkpointing --output_dir x --deepspeed ds.json"
		auto     = `{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}`
		launched = "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}"
	)
	plain := strings.TrimSuffix(script, " --deepspeed ds.json")
	for _, c := range []struct {
		files []string
		want  []string
		err   string
	}{
		{files: []string{script}, want: []string{"# plan.data_parallel: --deepspeed: ds.json has the stage of ZeRO: name it by --from, too", "recipe: deepspeed-hf"}},
		{files: []string{script, auto}, want: []string{"data_parallel: zero2", "micro_batch: 8 # default of --per_device", "precision: bf16 # --bf16", "bucket: 25.6901 MB"}},
		{files: []string{auto, script}, want: []string{"data_parallel: zero2", "micro_batch: 8", "precision: bf16 # --bf16"}},
		{files: []string{script, strings.Replace(auto, "{", `{"seq_parallel_communication_data_type": "bf16", `, 1), "distributed_type: DEEPSPEED\nnum_processes: 8\nparallelism_config: {parallelism_config_sp_size: 4, parallelism_config_sp_backend: deepspeed}"},
			want: []string{"cp: 4 # parallelism_config.parallelism_config_sp_size", "reduce: bf16 # seq_parallel_communication_data_type\n", "gpus: 8", "recipe: deepspeed-hf"}},
		{files: []string{script, auto, "distributed_type: DEEPSPEED\nnum_processes: 8\nparallelism_config: {parallelism_config_cp_size: 2, parallelism_config_cp_comm_strategy: alltoall}"},
			want: []string{"cp: 2 # parallelism_config.parallelism_config_cp_size", "# Not taken over: parallelism_config.parallelism_config_cp_size 2: keys and values around a ring are not known under DeepSpeed"}},
		{files: []string{plain, launched + "\nparallelism_config: {parallelism_config_sp_size: 2}"}, want: []string{"# Not taken over: parallelism_config.parallelism_config_sp_size 2: sequences cut by all-to-all; give plan.cp"}},
		{files: []string{script, `{"train_micro_batch_size_per_gpu": 4}`}, err: "train.micro_batch: train_micro_batch_size_per_gpu says 4, but default of --per_device_train_batch_size before it 8; leave one of them out"},
		{files: []string{"sft.py --model_name_or_path gpt2 --deepspeed d.json", `{"bf16": {"enabled": true}}`}, want: []string{"precision: bf16 # bf16.enabled"}},
		{files: []string{plain}, want: []string{"# plan.data_parallel: --config_file: a.yaml has it: name it by --from, too"}},
		{files: []string{plain, launched}, want: []string{"data_parallel: fsdp2 # fsdp_config.fsdp_version", "gpus: 4 # num_processes", "precision: bf16-mixed # --bf16, distributed_type", "reduce: bf16"}},
		{files: []string{launched, plain}, want: []string{"data_parallel: fsdp2", "micro_batch: 8 #", "recompute: full"}},
		{files: []string{plain + " --fsdp full_shard"}, want: []string{"data_parallel: fsdp1 # ", "units: model # without auto_wrap"}},
		{files: []string{plain + " --fsdp 'full_shard auto_wrap' --fsdp_config f.json", `{"min_num_params": 2000000}`}, want: []string{"units: size # min_num_params", "unit_params: 2000000 # min_num_params"}},
		{files: []string{plain, "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: NO_WRAP}"}, want: []string{"units: model # fsdp_config.fsdp_auto_wrap_policy"}},
		{files: []string{plain, "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 100000000}"}, want: []string{"units: size # fsdp_config.fsdp_auto_wrap_policy", "unit_params: 100000000 # fsdp_config.fsdp_min_num_params"}},
		{files: []string{plain + " --fsdp full_shard --fsdp_config f.json", `{"fsdp_version": 2, "reshard_after_forward": false}`}, want: []string{"data_parallel: fsdp2 # fsdp_version", "reshard_after_forward: false # reshard_after_forward"}},
		{files: []string{"[ $A = 1 ] && B=--gradient_checkpointing\n" + strings.Replace(plain, "--gradient_checkpointing", "$B", 1), launched}, want: []string{"# train.recompute: --gradient_checkpointing: full or none: line 1 asks [ $A = 1 ]", "gpus: 4"}},
		{files: []string{plain + " --use_liger_kernel", launched + "\nparallelism_config: {parallelism_config_tp_size: 2}"}, want: []string{"tp: 2 # ", "recipe: hf-eager # without --torch_compile\n  trainer: true # what reads these arguments\nplan:",
			"# Not taken over: --use_liger_kernel: Liger-Kernel's kernel of each operator is not known on tensor ranks (tp 2); the model's is taken", "# Not taken over: --use_liger_kernel: Liger-Kernel's output layer is not known on tensor ranks (tp 2)"}},
		{files: []string{"base_model: gpt2\ntensor_parallel_size: 2\ndp_shard_size: 4\nplugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]"}, want: []string{"tp: 2 # ", "recipe: hf-eager # without torch_compile\n  trainer: true # what reads these arguments\n  expandable_segments: true # Axolotl's PYTORCH_ALLOC_CONF\nplan:",
			"# Not taken over: plugins: Cut Cross-Entropy's output layer is not known on tensor ranks (tp 2); the model's is taken"}},
		{files: []string{script + " --use_liger_kernel", `{"tensor_parallel": {"autotp_size": 4}, "zero_optimization": {"stage": 1}}`}, want: []string{"recipe: deepspeed-hf\n  trainer: true # what reads these arguments\nplan:", "Liger-Kernel's kernel of each operator is not known on tensor ranks (tp 4)"}},
		{files: []string{strings.Replace(plain, "launch", "launch --num_processes 8 --mixed_precision fp16", 1), launched}, want: []string{"gpus: 8 # --num_processes\n",
			"# Not taken over: num_processes 4 of the file: accelerate launch takes its command line's --num_processes 8\n", "# Not taken over: mixed_precision bf16 of the file: accelerate launch takes its command line's --mixed_precision fp16\n"}},
		{files: []string{launched, strings.Replace(plain, "launch", "launch --num_processes 8 --multi_gpu", 1)}, want: []string{"gpus: 8 # --num_processes\n", "data_parallel: ddp # --multi_gpu\n", "# Not taken over: num_processes 4 of the file: accelerate launch takes its command line's --num_processes 8\n",
			"# Not taken over: distributed_type FSDP of the file: accelerate launch takes its command line's --multi_gpu"}},
		{files: []string{"model_name_or_path: gpt2\nuse_peft: false\nbf16: true", launched, "accelerate launch --config_file a.yaml --num_processes 8 sft.py --config b.yaml"}, want: []string{"gpus: 8 # --num_processes\n"}},
		{files: []string{strings.Replace(plain, "launch", "launch --fsdp_version 1", 1), launched}, want: []string{"data_parallel: fsdp1 # --fsdp_version\n", "# Not taken over: fsdp_config.fsdp_version 2 of the file"}},
		{files: []string{launched, strings.Replace(launched, "4", "8", 1)}, err: "num_processes says 8, but num_processes before it 4; leave one of them out"},
		{files: []string{plain, "output_dir: x\ngradient_accumulation_steps: 2\nblock_size: 2048"}, err: "block_size says 2048, but --block_size before it 1024; leave one of them out"},
		{files: []string{`{"output_dir": "x", "bf16": true, "deepspeed": {"zero_optimization": {"stage": 1}}}`}, want: []string{"data_parallel: zero1 # zero_optimization.stage", "precision: bf16 # bf16"}},
	} {
		var jobs []*launch.Job
		for _, f := range c.files {
			j, err := launch.Read("a", []byte(f))
			require.NoError(t, err, f)
			jobs = append(jobs, j)
		}
		j, err := launch.Join(jobs)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err, c.files)
		got, err := j.YAML()
		require.NoError(t, err)
		for _, w := range c.want {
			require.Contains(t, string(got), w)
		}
	}
}

// TestTrainer: what arguments of a Trainer make of a step, and what they leave open.
func TestTrainer(t *testing.T) {
	const run = "run_clm.py --output_dir x --model_name_or_path gpt2 --block_size 512 "
	for text, want := range map[string]string{
		run + "--bf16":                           "precision: bf16-autocast # --bf16",
		run + "--bf16 --torch_dtype bfloat16":    "precision: bf16-pure # --bf16, --torch_dtype",
		run + "--torch_dtype bfloat16":           "precision: bf16-pure # --torch_dtype",
		run + "--torch_dtype auto --bf16":        "# train.precision: --torch_dtype: weights are loaded as they are stored",
		run:                                      "precision: fp32 # without --bf16 and fp16",
		run + "--fp16 false --tf32 false":        "tf32: false # --tf32",
		run + "--bf16 --fsdp=shard_grad_op":      "reshard_after_forward: false # --fsdp",
		run + "--deepspeed $DS":                  "# plan.data_parallel: --deepspeed: line 1 takes $DS, which the file does not set",
		run + "--per_device_train_batch_size $1": "# train.micro_batch: --per_device_train_batch_size: line 1 takes $1, which",
		run + "--optim adamw_torch":              "optimizer: adamw-foreach # --optim",
		run + "--optim adalomo":                  "# Not taken over: --optim adalomo: AdamW",
		run + "--max_grad_norm 0.5":              "clip_gradients: true # --max_grad_norm, 0.5",
		"compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\ndistributed_type: FSDP\nmax_grad_norm: 1.0\nfsdp_config: {fsdp_version: 2, fsdp_offload_params: true}": "# Not taken over: max_grad_norm, 1.0: the host clips the gradients that it has",
		run + "--torch_compile_mode reduce-overhead": "recipe: hf-compile # --torch_compile_mode",
		run + "--use_liger_kernel":                   "fused_linear_cross_entropy: true # --use_liger_kernel",
		"run_clm.py --output_dir x --model_name_or_path Qwen/Qwen2.5-7B --block_size 512 --use_liger_kernel": "liger_kernels: true # --use_liger_kernel",
		run + "--use_liger_kernel true": "# Not taken over: --use_liger_kernel, of norms, MLPs and rotary embedding: the model does not normalise by RMS, and what Liger-Kernel replaces of such a one is not known; its own operators are taken",
		"run_clm.py --output_dir x --model_name_or_path Qwen/Qwen3-30B-A3B --block_size 512 --use_liger_kernel":                                "--use_liger_kernel, of norms, MLPs and rotary embedding: the model has experts, and what",
		"run_clm.py --output_dir x --model_name_or_path Qwen/Qwen2.5-7B --block_size 512 --use_liger_kernel --torch_compile":                   "--use_liger_kernel, of norms, MLPs and rotary embedding: the model is compiled, and what",
		"base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\nliger_rms_norm: true\nliger_glu_activation: true\nliger_rope: true":                 "liger_kernels: true # liger_rms_norm",
		"base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\nliger_rms_norm: true\nliger_swiglu: true":                                           "liger_operators: [norm, gate] # liger_rms_norm, liger_swiglu",
		"run_summarization.py --output_dir x --model_name_or_path google/flan-t5-base --bf16 --max_source_length 1024 --max_target_length 128": "source_length: 1024 # --max_source_length",
		"run_summarization.py --output_dir x --model_name_or_path google-t5/t5-base --bf16 --max_target_length 128":                            "tf32: false # without --tf32",
		run + "--attn_implementation flash_attention_3":                                                                                        "attention: flash-attn-3 # --attn_implementation",
		run + "--attn_implementation flex_attention":                                                                                           "attention: flex # --attn_implementation",
		run + "--attn_implementation flash_attention_9":                                                                                        "# Not taken over: --attn_implementation flash_attention_9: give runtime.attention",
		run + "--unheard 3":                                                                                                                       "# Without a key: --unheard",
		"sft.py --model_name_or_path gpt2":                                                                                                        "# train.precision: without --bf16 and fp16: TRL turned bf16 on by default in 2025",
		"trl dpo --model_name_or_path gpt2 --bf16":                                                                                                "# Not taken over: TRL's dpo: a step is taken",
		"sft.py --model_name_or_path m/Own-7B --bf16":                                                                                             "# model: --model_name_or_path: m/Own-7B is not in the catalog",
		"sft.py --use_peft --output_dir x --bf16":                                                                                                 "# train.lora.targets: without --lora_target_modules: PEFT chooses",
		"sft.py --use_peft --lora_target_modules all-linear --fp16 --load_in_4bit":                                                                "precision: nf4-fp16",
		"sft.py --use_peft --lora_target_modules all-linear --bf16 --load_in_4bit":                                                                "# Not taken over: default of --use_bnb_nested_quant",
		"MBS=2\nARGS=(--per_device_train_batch_size $MBS)\n" + run + "\"${ARGS[@]}\"":                                                             "micro_batch: 2 # --per_device_train_batch_size",
		"if [ \"$1\" = big ]; then MBS=8; else MBS=4; fi\n" + run + "--per_device_train_batch_size $MBS":                                          "# train.micro_batch: --per_device_train_batch_size: 8 or 4: line 1 asks [ \"$1\" = big ], which the file does not decide: give the key",
		"[ $Z = 1 ] && MORE='--deepspeed d.json'\n" + run + "$MORE":                                                                               "# runtime.recipe: --deepspeed: deepspeed-hf or hf-eager: line 1 asks [ $Z = 1 ], which",
		"prepare.py --max_length 9 --output_dir y\ntorchrun --nproc_per_node=8 --nnodes 2 " + run:                                                 "gpus: 16 # --nproc_per_node, --nnodes",
		"deepspeed --num_gpus 4 " + run:                                                                                                           "gpus: 4 # --num_gpus",
		"accelerate launch --num_processes $((2 * 4)) --mixed_precision bf16 " + run:                                                              "precision: bf16-autocast # --mixed_precision",
		"#SBATCH --nodes=2 --gres=gpu:4\nsrun python " + run:                                                                                      "gpus: 8 # --gpus_per_node, --nodes",
		"cat <<E > d.json\n{\"zero_optimization\": {\"stage\": 2}}\nE\n" + run + "--deepspeed d.json":                                             "data_parallel: zero2 # zero_optimization.stage",
		"sft.py --use_peft --output_dir x --bf16 --lora_r 8 --lora_target_modules q_proj v_proj \\\n --optim adamw_torch":                         "targets: [q, v] # --lora_target_modules",
		"model_name_or_path: google/flan-t5-large\nfinetuning_type: lora\nlora_target: q,v\nbf16: true":                                           "targets: [cross_q, q, cross_v, v] # lora_target",
		"finetuning_type: lora\nlora_target: q,wi_0,wo\nbf16: true":                                                                               "targets: [q, gate, down] # lora_target",
		"finetuning_type: full\nbf16: true":                                                                                                       "precision: bf16-autocast # bf16",
		"finetuning_type: full\nbf16: true\npure_bf16: true":                                                                                      "precision: bf16-pure # bf16, pure_bf16",
		"finetuning_type: full\nbf16: true\npure_bf16: false":                                                                                     "precision: bf16-autocast # bf16",
		"finetuning_type: lora\nbf16: true\npure_bf16: true":                                                                                      "precision: bf16-frozen # bf16, pure_bf16",
		"finetuning_type: full\npure_bf16: true":                                                                                                  "precision: bf16-pure # pure_bf16",
		"finetuning_type: lora\nbf16: true\nquantization_bit: 4\ndeepspeed: ds_z2.json":                                                           "# Not taken over: quantization_bit: frozen weights of 4 bits are not known under DeepSpeed, and are taken to be as wide as those that are trained; recipe hf-eager with train.precision nf4-frozen and plan.data_parallel ddp is the nearest",
		"finetuning_type: lora\nbf16: true\nquantization_bit: 8\ndeepspeed: ds_z2.json":                                                           "# Not taken over: quantization_bit: frozen weights of 8 bits are not known, and",
		run + "--gradient_checkpointing --gradient_checkpointing_kwargs '{\"use_reentrant\": true}'":                                              "use_reentrant: true # --gradient_checkpointing_kwargs use_reentrant",
		"base_model: gpt2\nmicro_batch_size: 1\nbf16: true\ngradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n": "use_reentrant: true # gradient_checkpointing_kwargs.use_reentrant",
		"base_model: gpt2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 1\nbf16: true\n":                                 "lora_kernels: true # without lora_mlp_kernel Axolotl's own since 2025-04",
		"base_model: gpt2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 1\nbf16: true\nlora_mlp_kernel: true\nlora_qkv_kernel: true\nlora_o_kernel: true": "lora_kernels: true # lora_mlp_kernel",
		"base_model: gpt2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 1\nbf16: true\nlora_mlp_kernel: true":                                             "# Not taken over: lora_mlp_kernel alone: runtime.lora_kernels is all of lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel",
		"base_model: gpt2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 1\nbf16: true\nlora_dropout: 0.1":                                                 "# Not taken over: without lora_mlp_kernel Axolotl from 2026-03 on runs functions of its own for adapters with dropout, too",
		"base_model: gpt2\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\ndeepspeed: ds_z2.json":                                                                                   "# Not taken over: load_in_4bit: frozen weights of 4 bits are not known under DeepSpeed",
		"sft.py --use_peft --lora_target_modules all-linear --bf16 --load_in_4bit --deepspeed ds.json":                                                                             "# Not taken over: --load_in_4bit: frozen weights of 4 bits are not known under DeepSpeed",
		"finetuning_type: lora\nlora_target: lm_head":                                                        "# train.lora.targets: lora_target: none of them is known",
		"base_model: gpt2":                                                                                   "precision: bf16-pure # default of bf16",
		"base_model: gpt2\nadapter: lora\nlora_r: 8":                                                         "precision: bf16-frozen # default of bf16",
		"base_model: gpt2\nadapter:\nlora_r: 8\nlora_alpha: 16":                                              "# Not taken over: lora_r 8: without adapter Axolotl trains the whole model and heeds no lora_ keys; give adapter: lora",
		"base_model: gpt2\nadapter: ''\nlora_r: 8\n":                                                         "precision: bf16-pure # default of bf16",
		"base_model: gpt2\nlora_r: 8\n":                                                                      "precision: bf16-pure # default of bf16",
		"\ufeffbase_model: gpt2":                                                                             "precision: bf16-pure # default of bf16",
		"\ufeff{\"bf16\": {\"enabled\": true}}":                                                              "precision: bf16 # bf16.enabled",
		"\ufeff# café\r\nrun_clm.py --output_dir x --bf16 --model_name_or_path gpt2":                         "precision: bf16-autocast # --bf16",
		"\ufeff[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 8192":                          "model: llama3-8b # model.name",
		"base_model: gpt2\nrl: dpo":                                                                          "# Not taken over: rl dpo: a step is taken",
		"base_model: gpt2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}":                      "data_parallel: fsdp2 # fsdp_version",
		"base_model: gpt2\nfsdp_version: 2\nfsdp_config: {state_dict_type: FULL_STATE_DICT}":                 "# plan.reshard_after_forward: without reshard_after_forward",
		"base_model: gpt2\nfsdp_config: {version: 2, reshard_after_forward: true}":                           "precision: bf16-mixed # default of bf16, fsdp_config",
		"base_model: gpt2\nfsdp_version: 2":                                                                  "data_parallel: ddp # without fsdp and deepspeed",
		"base_model: gpt2\ndp_shard_size: 2\ncontext_parallel_size: 2\nfsdp_config: {offload_params: false}": "shard_degree: 4 # dp_shard_size",
		"base_model: gpt2\nworld_size: 16\ndp_replicate_size: 2\ntensor_parallel_size: 2\nfsdp_config: {offload_params: false}": "shard_degree: 4 # dp_replicate_size",
		"base_model: gpt2\ndp_replicate_size: 2\ntensor_parallel_size: 4\nfsdp_config: {offload_params: false}":                 "# Not taken over: dp_replicate_size 2: give plan.shard_degree, the GPUs over 2 replicas × tp 4 × pp 1 = 8",
		"output_dir: x\nfsdp_config: {version: 2}": "data_parallel: ddp # without fsdp and deepspeed",
		"trl sft --model_name_or_path gpt2 --bf16 --per_device_train_batch_size 2 --max_length 1000 --loss_type chunked_nll":                                                                                         "loss_chunks: 8 # --loss_type",
		"base_model: gpt2\nmicro_batch_size: 2\nsequence_len: 1024\nloss_type: chunked_nll":                                                                                                                          "# Not taken over: loss_type chunked_nll: the loss is taken to be of whole logits",
		"trl sft --model_name_or_path gpt2 --bf16 --per_device_train_batch_size 2 --max_length 1024":                                                                                                                 "give it, or runtime.loss_chunks: 8 with loss_chunks_keep: nothing",
		"trl sft --model_name_or_path gpt2 --bf16 --activation_offloading":                                                                                                                                           "offload_activations: true # --activation_offloading",
		"trl sft --model_name_or_path gpt2 --bf16 --torch_compile --activation_offloading":                                                                                                                           "# Not taken over: --activation_offloading true: activations are taken to stay",
		"base_model: gpt2\nactivation_offloading: true":                                                                                                                                                              "recompute: full # activation_offloading",
		"base_model: gpt2\nactivation_offloading: true\nadapter: lora\nlora_r: 8":                                                                                                                                    "offload_activations: true # activation_offloading\n  recompute: full # activation_offloading\n  use_reentrant: true # default of",
		"base_model: gpt2\ngradient_checkpointing: offload\nadapter: qlora\nlora_r: 8":                                                                                                                               "# Not taken over: gradient_checkpointing: Axolotl's guide has what is offloaded in the place of recomputation beside adapters",
		"base_model: gpt2\ngradient_checkpointing: offload\ndeepspeed: d.json":                                                                                                                                       "# Not taken over: gradient_checkpointing offload: activations are taken to stay on the GPU\n",
		"base_model: gpt2\ns2_attention: true":                                                                                                                                                                       "# Not taken over: s2_attention true: tokens are taken to see all before them",
		"base_model: gpt2\nload_in_4bit: true\nadapter: qlora\nlora_r: 8\nbnb_4bit_compute_dtype: float32":                                                                                                           "# Not taken over: bnb_4bit_compute_dtype float32: bitsandbytes from 0.47 on casts inputs and 4-bit weights to fp32, and autocast both to bf16",
		"base_model: gpt2\nload_in_4bit: true\nadapter: qlora\nlora_r: 8\nbf16: false\nbnb_4bit_compute_dtype: float32":                                                                                              "# Not taken over: bnb_4bit_compute_dtype float32: 4-bit weights are taken to be multiplied in 16 bits",
		"sft.py --use_peft --model_name_or_path gpt2 --lora_target_modules all-linear --bf16 --load_in_4bit":                                                                                                         "# Not taken over: without --dtype, float32 by TRL: bitsandbytes from 0.47 on casts",
		"distributed_type: 'NO'\ndynamo_config: {dynamo_backend: INDUCTOR, dynamo_mode: reduce-overhead}":                                                                                                            "# Not taken over: dynamo_config.dynamo_mode reduce-overhead: what it replays from CUDA graphs or tunes; give runtime.cuda_graphs",
		"distributed_type: 'NO'\ndynamo_config: {dynamo_backend: INDUCTOR, dynamo_mode: max-autotune}":                                                                                                               "# Not taken over: dynamo_config.dynamo_mode max-autotune: what",
		"base_model: gpt2\nactivation_offloading: disk":                                                                                                                                                              "# Not taken over: activation_offloading disk: activations are taken to stay",
		"model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\nfinetuning_type: full\nbf16: true\nenable_liger_kernel: true":                                                                                              "# Not taken over: enable_liger_kernel, of norms, MLPs and rotary embedding: the model has an encoder of images",
		"model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: full\nstage: dpo\nbf16: true\nenable_liger_kernel: true":                                                                                              "liger_kernels: true # enable_liger_kernel\n  trainer: true # what reads these arguments\nplan:",
		"model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: full\nbf16: true\nenable_liger_kernel: true":                                                                                                          "fused_linear_cross_entropy: true # enable_liger_kernel\n  trainer: true # what reads these arguments\nplan:",
		"base_model: gpt2\nactivation_offloading: legacy\nadapter: lora\nlora_r: 8":                                                                                                                                  "recompute: full # activation_offloading",
		"base_model: gpt2\nactivation_offloading: disk\nadapter: lora\nlora_r: 8":                                                                                                                                    "recompute: full # activation_offloading",
		"base_model: gpt2\nactivation_offloading: hidden_states\nadapter: lora\nlora_r: 8":                                                                                                                           "recompute: full # activation_offloading",
		"base_model: gpt2\nlora_r: 8\nadapter: lora\nchunked_cross_entropy: true":                                                                                                                                    "fused_cross_entropy: true # chunked_cross_entropy\n",
		"base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\nchunked_cross_entropy: true\nliger_rms_norm: true\nliger_glu_activation: true\nliger_rope: true":                                                          "# Not taken over: chunked_cross_entropy beside Liger-Kernel's operators",
		"base_model: gpt2\nplugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]":                                                                                                                  "cross_entropy_impl: cut # plugins",
		"base_model: gpt2\nliger_fused_linear_cross_entropy: true\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\ncut_cross_entropy: false": "fused_linear_cross_entropy: true # liger_fused_linear_cross_entropy\n  trainer: true # what reads these arguments\n  expandable_segments: true # Axolotl's PYTORCH_ALLOC_CONF\nplan:",
		"base_model: gpt2\nplugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin, axolotl.integrations.spectrum.SpectrumPlugin]":                                                                    "# Not taken over: plugins axolotl.integrations.spectrum.SpectrumPlugin\n",
		"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\nuse_unsloth: true\nquantization_bit: 4\nbf16: true\ntemplate: qwen3\ncutoff_len: 1024\nper_device_train_batch_size: 2": "recipe: unsloth # use_unsloth",
		"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\nuse_unsloth: true\nbf16: true\ntemplate: qwen3\ncutoff_len: 1024\nper_device_train_batch_size: 2":                                                      "# Not taken over: use_unsloth: what it runs is known of adapters alone, on one GPU or under DDP",
		"base_model: gpt2\ngradient_checkpointing: offload":                              "offload_activations: true # gradient_checkpointing",
		"distributed_type: MEGATRON_LM":                                                  "data_parallel: ddp # without use_distributed_optimizer",
		"distributed_type: MULTI_GPU\nnum_processes: 2":                                  "data_parallel: ddp # distributed_type",
		"distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: d.json}": "# plan.data_parallel: deepspeed_config.deepspeed_config_file: d.json has the stage",
	} {
		j, err := launch.Read("x", []byte(text))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want, text)
	}
}

// TestErrors: what is no such file is said to be none.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "x: is empty; give a script, a log or a configuration of Megatron-LM, DeepSpeed, torchtitan (TOML), NeMo, ",
		"\xff\xfea\x00:\x00":          "x: is text in UTF-16, as > of older PowerShells writes it; save it in UTF-8",
		"a\x00:\x00":                  "x: is not a text file; a script, a log or a configuration in UTF-8 is expected",
		"# caf\xe9\nbase_model: gpt2": "x: is text in another encoding than UTF-8, in line 1 the byte 0xe9; save it in UTF-8",
		"\ufeff":                      "x: is empty; give a script",
		"echo hello --world":          "x: has none of the arguments --num-layers, --micro-batch-size and --tensor-model-parallel-size of Megatron-LM, nor --per_device_train_batch_size and --model_name_or_path of a Trainer; give a script, a log or ",
		"#!/usr/bin/env python\nimport torch\nfrom trl import SFTTrainer\nargs = SFTConfig(per_device_train_batch_size=2)\n": "x: is a program in Python, which is not run; give the command that starts one",
		`{"cells": [], "nbformat": 4}`:             "x: is a notebook in Python, which is not run; give the command that starts one",
		`{"model_type": "llama"}`:                  "x:1:16: is a model, not what trains one; give it to perfplan estimate",
		"# mine\nperfplan: runs/v1\nruns: []":      "x: is a file of perfplan's measured runs; give it to perfplan validate, or a file that another program reads",
		"perfplan: job/v1\nmodel: gpt2":            "x: is a job of perfplan already; give it to perfplan estimate, or a file that another program reads",
		`{"lr": 1}`:                                "x: is no configuration of DeepSpeed: it has none of zero_optimization, train_micro_batch_size_per_gpu, train_batch_size, bf16 and fp16",
		`{"bf16": {"enabled"`:                      "x:1:",
		`{"zero_optimization": 3}`:                 `x:1:23: zero_optimization: 3 has no keys; give them in braces, as {"stage": 2}`,
		`{"zero_optimization": {"stage": 4}}`:      "x:1:33: zero_optimization.stage: there is no stage 4; give 0, 1, 2 or 3",
		`{"zero_optimization": {"stage": "auto"}}`: "x:1:33: zero_optimization.stage: there is no stage auto; give 0, 1, 2 or 3",
		`{"zero_optimization": {"stage": 1e300}}`:  `x:1:33: zero_optimization.stage: "1e300"; give a whole number from 0 on, or auto`,
		`{"train_batch_size": .inf}`:               "x:1:22: train_batch_size: ",
		`{"zero_optimization": {"stage": "two"}}`:  `x:1:33: zero_optimization.stage: "two"; give a whole number from 0 on, or auto`,
		`{"train_batch_size": 65, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}`: "x:1:22: train_batch_size: 65 is no multiple of train_micro_batch_size_per_gpu 2 times gradient_accumulation_steps 4, which DeepSpeed refuses; give ",
		`{"train_micro_batch_size_per_gpu": 0}`:                                                           `x:1:36: train_micro_batch_size_per_gpu: "0"; give a whole number from 1 on, or auto`,
		`{"train_batch_size": 1.5}`:                                                                       `x:1:22: train_batch_size: "1.5"; give a whole number from 1 on, or auto`,
		"[model]\nname = 'llama3'\n[training]\nseq_len = '8192'":                                          `x:4:1: training.seq_len: "8192"; give a whole number`,
		"[training]\nseq_len = ":                                                                          "x:2:10: is no TOML",
		"model_name_or_path: gpt2\nper_device_train_batch_size: -1":                                       `x:2:30: per_device_train_batch_size: "-1"; give a whole number from 1 to 65536`,
		"model:\n  _target_: megatron.bridge.models.GPTModelProvider\n  num_layers: 4":                    "x: has no key model.hidden_size; give the run_config.yaml",
		"base_model: gpt2\nmicro_batch_size: 0":                                                           `x:2:19: micro_batch_size: "0"; give a whole number from 1 to 65536`,
		"base_model: gpt2\nbf16: true\nfp16: true":                                                        "x:3:7: fp16 beside bf16: a Trainer refuses both; leave one of them out",
		"base_model: gpt2\nsequence_len: [":                                                               "x:2:",
		"run.sh --output_dir x \\\n --lora_r 1.5":                                                         `x:2:1: --lora_r: "1.5"; give a whole number from 1 to 16384`,
		"--output_dir x --fsdp wide_shard":                                                                `x:1:1: --fsdp: there is no strategy "wide_shard"; give full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 or no_shard`,
		"distributed_type: FSDP\nfsdp_config: {fsdp_version: 3}":                                          `x:2:29: fsdp_config.fsdp_version: "3"; give a whole number from 1 to 2`,
		"distributed_type: 'NO'\nmixed_precision: int8":                                                   `x:2:18: mixed_precision: there is no "int8"; give no, fp16, bf16 or fp8`,
		`{"output_dir": "x", "deepspeed": {"zero_optimization": {"stage": 7}}}`:                           "x:1:66: zero_optimization.stage: there is no stage 7",
		"p.py --num-layers 4 \\\n --seq-length abc":                                                       `x:2:1: --seq-length: "abc"; give a whole number from 1 on`,
		"p.py --num-layers 4 --tensor-model-parallel-size -2":                                             `x:1:1: --tensor-model-parallel-size: "-2"; give a whole number from 1 on`,
		"p.py --num-layers 4 --micro-batch-size 1.5":                                                      `x:1:1: --micro-batch-size: "1.5"; give a whole number from 1 on`,
		"p.py --num-layers 4 --mtp-num-layers -1":                                                         `x:1:1: --mtp-num-layers: "-1"; give a whole number from 0 on`,
		"p.py --num-layers 4 --recompute-granularity ful":                                                 `x:1:1: --recompute-granularity: there is no "ful"; give full, selective or none`,
		"p.py --num-layers 4 --bf16 \\\n --fp16":                                                          "x:2:1: --fp16 beside --bf16: Megatron-LM refuses both; leave one of them out",
		"p.py --num-layers --bf16":                                                                        `x:1:1: --num-layers: "true"; give a whole number from 1 on`,
		"[training]\nsteps = 1":                                                                           "x: is no configuration of torchtitan: it has no tables [model] and [training]",
	} {
		_, err := launch.Read("x", []byte(text))
		require.Error(t, err, text)
		require.True(t, diag.IsInput(err), text)
		require.True(t, strings.HasPrefix(err.Error(), want), err.Error())
	}
}

// TestStages: what ZeRO leaves to the host, and what of overlap_comm a stage has a key for.
func TestStages(t *testing.T) {
	for text, want := range map[string]string{
		`"stage": 3, "offload_optimizer": {"device": "cpu"}`:                                      "offload: optimizer # zero_optimization.offload_optimizer\n",
		`"stage": 3, "overlap_comm": false`:                                                       "# Not taken over: zero_optimization.overlap_comm false",
		`"stage": 1, "overlap_comm": false`:                                                       "overlap_grad_reduce: false # zero_optimization.overlap_comm\n",
		`"stage": 0, "overlap_comm": false`:                                                       "data_parallel: ddp # zero_optimization.stage\n",
		`"stage": 2, "reduce_bucket_size": "auto"`:                                                "data_parallel: zero2 # zero_optimization.stage\n",
		`"stage": 2, "cpu_offload": true`:                                                         "offload: optimizer # zero_optimization.cpu_offload\n",
		`"stage": 3, "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"}`: "# Not taken over: zero_optimization.offload_optimizer nvme: all is taken to stay on the GPU, as what a disk adds is not known; give plan.offload: parameters",
		`"stage": 3, "offload_param": {"device": "cpu"}`:                                          "# Not taken over: zero_optimization.offload_param without offload_optimizer: all is taken to stay on the GPU",
		`"stage": 2, "offload_param": {"device": "cpu"}`:                                          "# Not taken over: zero_optimization.offload_param cpu: stage 3 alone leaves parameters to the host",
		`"stage": 0, "offload_optimizer": {"device": "cpu"}`:                                      "# Not taken over: zero_optimization.offload_optimizer cpu: stages from 1 on alone",
	} {
		j, err := launch.Read("x", []byte(`{"zero_optimization": {`+text+"}}"))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want, text)
		require.Equal(t, strings.HasPrefix(want, "#"), len(j.Notes) > 0, text)
	}
}

// TestDeepSpeedKeys: what a configuration says beside its stage, by what becomes of it: a key, a
// note, a word without a key, or nothing.
func TestDeepSpeedKeys(t *testing.T) {
	for text, want := range map[string]string{
		`"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}`:        "optimizer: adamw-fused # optimizer.type\n",
		`"optimizer": {"type": "Adam", "params": {"torch_adam": true}}`: "optimizer: adamw-foreach # optimizer.params.torch_adam\n",
		`"optimizer": {"type": "Lion"}`:                                 "# Not taken over: optimizer.type Lion: AdamW with states in fp32 is taken",
		`"gradient_clipping": 1.0`:                                      "clip_gradients: true # gradient_clipping\n",
		`"gradient_clipping": 0`:                                        "clip_gradients: false # gradient_clipping\n",
		`"gradient_clipping": "auto"`:                                   "",
		`"sequence_parallel_size": 2`:                                   "cp: 2 # sequence_parallel_size\n",
		`"sequence_parallel_size": 2, "seq_parallel_communication_data_type": "bf16", "communication_data_type": "fp32"`: "reduce: bf16 # seq_parallel_communication_data_type\n",
		`"sequence_parallel_size": 2, "seq_parallel_communication_data_type": "auto"`:                                    "cp: 2 # sequence_parallel_size\ntrain:\n  precision: ",
		`"seq_parallel_communication_data_type": "fp32"`:                                                                 "",
		`"sequence_parallel_size": 1`:                                                                                            "",
		`"torch_autocast": {"enabled": true, "dtype": "bfloat16"}`:                                                               "# Not taken over: torch_autocast: weights are taken",
		`"train_batch_size": 64, "gradient_accumulation_steps": "auto"`:                                                          "global_batch: 64 # train_batch_size\n",
		`"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto"`:                     "micro_batch: 2 # train_micro_batch_size_per_gpu\n  global_batch: 64 # train_batch_size\n",
		`"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4`:                     "grad_accumulation: 4 # gradient_accumulation_steps\n  global_batch: 64 # train_batch_size\n",
		`"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4`:                          "grad_accumulation: 4 # gradient_accumulation_steps\n  precision: bf16",
		`"comms_logger": {"enabled": true, "prof_all": false, "debug": true}`:                                                    "# Not taken over: comms_logger.enabled true: the host waits for the GPU after each",
		`"comms_logger": {"enabled": false, "verbose": true}`:                                                                    "",
		`"torch_autocast": {"enabled": false}`:                                                                                   "",
		`"compile": {"deepcompile": true}`:                                                                                       "# Not taken over: compile: layers are taken to run eagerly",
		`"curriculum_learning": {"enabled": true}`:                                                                               "# Not taken over: curriculum_learning: sequences",
		`"activation_checkpointing": {"cpu_checkpointing": true, "profile": true}`:                                               "# Not taken over: activation_checkpointing.cpu_checkpointing true: DeepSpeed's own",
		`"activation_checkpointing": {"cpu_checkpointing": false}`:                                                               "",
		`"zero_optimization": {"stage": 2, "allgather_bucket_size": 2e8}`:                                                        "# Not taken over: zero_optimization.allgather_bucket_size 2e8: 5e8",
		`"zero_optimization": {"stage": 2, "allgather_bucket_size": 500000000, "sub_group_size": 1}`:                             "",
		`"zero_optimization": {"stage": 3, "allgather_bucket_size": 2e8, "stage3_gather_16bit_weights_on_model_save": true}`:     "",
		`"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e6}`:                                           "# Not taken over: zero_optimization.stage3_param_persistence_threshold 1e6: ",
		`"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.4, "nvme_path": "/x"}}`:             "# Not taken over: zero_optimization.offload_optimizer.ratio 0.4: the host",
		`"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}`:                                                      "# Not taken over: zero_optimization.zenflow\n",
		`"steps_per_print": 9, "fp16": {"enabled": false, "loss_scale": 0}, "wandb": {"team": "a"}, "flops_profiler": {}`:        "",
		`"unheard": 1, "zero_optimization": {"stage": 1, "of": {"it": 2}}, "tensor_parallel": {"autotp_size": 1, "preset": "x"}`: "# Without a key: unheard zero_optimization.of tensor_parallel.preset\n",
	} {
		j, err := launch.Read("x", []byte(`{"bf16": {"enabled": true}, `+text+"}"))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got)+"\n", want, text)
		require.Equal(t, strings.HasPrefix(want, "# Not"), len(j.Notes) > 0, text)
		require.Equal(t, strings.HasPrefix(want, "# Without"), len(j.Ignored) > 0, text)
	}
	j, err := launch.Read("x", []byte("output_dir: x\ndeepspeed: {unheard: 1, zero_optimization: {stage: 1}}"))
	require.NoError(t, err)
	require.Equal(t, []string{"unheard"}, j.Ignored)
}

// TestValues: arguments as scripts write them.
func TestValues(t *testing.T) {
	const rest = " --num-layers 4 --hidden-size 64 --num-attention-heads 4 --bf16 --vocab-size 128"
	for text, want := range map[string]string{
		"--micro-batch-size 3":                             "micro_batch: 3 # --micro-batch-size",
		"--micro-batch-size=3":                             "micro_batch: 3 #",
		"MBS=3\n--micro-batch-size $MBS":                   "micro_batch: 3 #",
		"export MBS=\"3\"\n--micro-batch-size ${MBS}":      "micro_batch: 3 #",
		"A=3\nB=2\n--micro-batch-size $(($A*$B))":          "micro_batch: 6 #",
		"--micro-batch-size ${MBS:-5}":                     "micro_batch: 5 #",
		"--micro-batch-size $1":                            "# train.micro_batch: --micro-batch-size: line 1 takes $1, which the file does not set: give the key",
		"X=\"--micro-batch-size 3 --tp-comm-overlap\"":     "micro_batch: 3 #",
		"# --micro-batch-size 9\n--micro-batch-size 3":     "micro_batch: 3 #",
		"--micro-batch-size 3 \\\n --tp-comm-overlap":      "tp_overlap: true # --tp-comm-overlap",
		"ARGS=(--micro-batch-size 3)\n":                    "micro_batch: 3 #",
		"--clip-grad 0.0":                                  "clip_gradients: false # --clip-grad",
		"--deepspeed --zero-stage 1":                       "data_parallel: zero1 # --zero-stage",
		"--deepspeed --overlap-grad-reduce":                "recipe: megatron-deepspeed # --deepspeed",
		"--checkpoint-activations":                         "recompute: full # --checkpoint-activations",
		"['--micro-batch-size', '3', '--seq-length',8]":    "sequence_length: 8",
		"['--micro-batch-size', str(n), '--seq-length',8]": "# train.micro_batch: --micro-batch-size: line 1 takes str(n), which the file does not set: give the key",

		"MBS=3\r\n--micro-batch-size $MBS \\\r\n --tp-comm-overlap":                  "micro_batch: 3 #",
		"A=1\nA+=2\n--micro-batch-size $((A / 4 ? A : 0)) ":                          "micro_batch: 12 #",
		"A=(1 2 3)\nA+=(4)\n--micro-batch-size ${#A[@]}":                             "micro_batch: 4 #",
		"--micro-batch-size $((MBS * 2))":                                            "# train.micro_batch: --micro-batch-size: line 1 takes $MBS, which the file does not set: give the key",
		"\n--micro-batch-size $(nproc)":                                              "# train.micro_batch: --micro-batch-size: line 2 takes $(nproc), which",
		"X=$1\nMBS=${X:-4}\n--micro-batch-size $MBS":                                 "micro_batch: 4 #",
		"X=$1\n--micro-batch-size ${#X}":                                             "line 2 takes $1, which",
		"if [ \"$1\" = 8 ]; then MBS=8; else MBS=4; fi\n--micro-batch-size $MBS":     "# train.micro_batch: --micro-batch-size: 8 or 4: line 1 asks [ \"$1\" = 8 ], which the file does not decide: give the key",
		"MBS=4\nif [ -n \"$M\" ]; then MBS=$M; fi\n--micro-batch-size $MBS":          "micro_batch: 4 #",
		"case $1 in a) MBS=8 ;; *) MBS=8 ;; esac\n--micro-batch-size $MBS":           "micro_batch: 8 #",
		"if [[ $1 == a ]]; then exit 1; fi\nMBS=2\npython x.py --micro-batch-size 2": "micro_batch: 2 #",
		"false && MBS=9 || MBS=3\n--micro-batch-size $MBS":                           "micro_batch: 3 #",
		"P=<where the data is>\n--micro-batch-size 3":                                "# Not taken over: line 1, which is no shell: > must be followed by a word",
		"--recompute-granularity selective --recompute-modules mlp moe_act":          "recompute_modules: [mlp, moe_act] # --recompute-modules",
		"A:\n  --micro-batch-size: ${MBS}\n  --num-layers: 4 # ":                     "# train.micro_batch: --micro-batch-size: line 2 takes $MBS, which",
		"sbatch -N 2 <<E\n#SBATCH --nodes=2 --gpus-per-node=4\n#SBATCH --ntasks-per-node=8\nsrun bash -x -c 'python x.py --micro-batch-size 3 --num-layers 4'\nE\ntrue": "gpus: 8 # --gpus-per-node, --nodes",
		"A=(--moe-layer-freq [0]*1+[1]*3 --micro-batch-size 3 --num-experts 8)\ntorchrun x.py ${A[@]}":                                                                  "first_k_dense_replace: 1 # --moe-layer-freq",
		"python x.py --micro-batch-size 3 --num-layers 4\npython y.py --micro-batch-size 4":                                                                             "micro_batch: 3 #",
		"python x.py --micro-batch-size 3 --num-layers 4 $MORE_ARGS\ntrue":                                                                                              "# Not taken over: $MORE_ARGS in the command of line 1, which the file does not set, may hold more arguments",
		"run: |\n  torchrun --nproc_per_node 8 x.py --micro-batch-size 3":                                                                                               "gpus: 8 # --nproc-per-node",
	} {
		j, err := launch.Read("x", []byte(text+rest))
		require.NoError(t, err, text)
		got, err := j.YAML()
		require.NoError(t, err)
		require.Contains(t, string(got), want, text)
	}
}

// TestComments: characters that no comment may hold do not come into one by an escape.
func TestComments(t *testing.T) {
	j, err := launch.Read("x", []byte("[model]\nname = 'llama3'\n[training]\nsteps = 1\n[experimental]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = \"a\\u001bb\\nc\""))
	require.NoError(t, err)
	got, err := j.YAML()
	require.NoError(t, err)
	_, err = yamlx.Parse("x", got)
	require.NoError(t, err)
	require.Contains(t, string(got), "# Not taken over: experimental.pipeline_parallel_schedule a b c")
}

// TestRunsNothing: what a script says is neither done nor looked at, and ends.
func TestRunsNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("MBS", "9")
	kept := filepath.Join(dir, "kept.sh")
	require.NoError(t, os.WriteFile(kept, []byte("SEQ=7"), 0o644))
	text := strings.ReplaceAll(`cd DIR; source DIR/kept.sh; . DIR/kept.sh
touch DIR/a; echo x > DIR/b; cat <<E > DIR/c
x
E
curl http://127.0.0.1:1/ -o DIR/d; exec 3> DIR/e; : $(touch DIR/f) `+"`touch DIR/g`"+` <(touch DIR/h) >(touch DIR/i)
trap 'touch DIR/j' EXIT; eval "touch DIR/k"; bash -c 'touch DIR/l'; (touch DIR/m) & coproc touch DIR/n
X=$(< DIR/kept.sh); LIST=(DIR/*); N=${#LIST[@]}
[ -f DIR/kept.sh ] && HEADS=1 || HEADS=2
rm -rf DIR
f() { f; f; }; f
torchrun x.py --num-layers $N --hidden-size ~root --micro-batch-size $MBS --seq-length $SEQ --num-attention-heads $HEADS --kv-channels $X
while true; do rm -rf DIR; Y=$Y$Y$Y; done
for ((;;)); do sleep 1; done
`, "DIR", dir)
	j, err := launch.Read("x", []byte(text))
	require.NoError(t, err)
	got, err := j.YAML()
	require.NoError(t, err)
	for _, want := range []string{"num_hidden_layers: 1 ", "hidden_size: --hidden-size: line 11 takes ~root, which", "takes $MBS, which", "takes $SEQ, which", "num_attention_heads: --num-attention-heads: 1 or 2: line 8 asks [ -f", "takes $(<"} {
		require.Contains(t, strings.ReplaceAll(string(got), dir, ""), want)
	}
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// No text makes Read panic, and what it reads can be written.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"dense.sh", "conditions.sh", "functions.sh", "heredoc.sh", "layout.sh", "hybrid.sh", "experts.yaml", "run.log", "zero3.json", "zero2.json", "titan.toml", "titan-pp.toml", "clm.sh", "sft.log", "trainer.json", "fsdp2.yaml", "zero3-accelerate.yaml", "lora.yaml", "qlora.yaml", "ring.yaml", "nemo.yaml", "nemo-llama.yaml", "nemo-old.yaml", "bridge.yaml", "bridge-experts.yaml", "automodel.yaml", "automodel-experts.yaml", "swift.sh"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, text := range []string{trainerSum, trainerBar(1, 60), trainerState, titanSteps, neoxModel + neoxTraining, "MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.max_context_length 4096", "pretrain_gpt.py --num-layers 4 --micro-batch-size 1 --deepspeed --num-experts 8 16 --topk 2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		j, err := launch.Read("x", []byte(text))
		if err != nil {
			return
		}
		_, _ = launch.Runs([]*launch.Job{j})
		if j, err = launch.Join([]*launch.Job{j}); err != nil {
			require.ErrorContains(t, err, "has what steps took, but not what they ran")
			return
		}
		out, err := j.YAML()
		require.NoError(t, err)
		_, err = yamlx.Parse("x", out)
		require.NoError(t, err, string(out))
	})
}

// TestFramework: what is told from a job or a model, and what is not.
func TestFramework(t *testing.T) {
	const nemo = "NeMo or Megatron-Bridge"
	for text, want := range map[string]string{
		`{zero_optimization: {stage: 2}, bf16: {enabled: true}}`:                        "DeepSpeed",
		`{zero_optimization: {stage: 2}, pipe_parallel_size: 1}`:                        "gpt-neox",
		`{_target_: nemo.collections.llm.gpt.model.llama}`:                              nemo,
		`{model: {_target_: megatron.bridge.models}, train: {}}`:                        nemo,
		`{model: {hidden_size: 8}, trainer: {devices: 8}}`:                              nemo,
		`{model: {_target_: nemo_automodel.A}, step_scheduler: {global_batch_size: 8}}`: "NeMo AutoModel",
		`{per_device_train_batch_size: 2}`:                                              "a Trainer",
		`{compute_environment: LOCAL_MACHINE}`:                                          "a Trainer",
		`{base_model: x/y, model_type: LlamaForCausalLM}`:                               "a Trainer",
		`{model_type: llama, max_length: 20}`:                                           "", // a config.json that says how it generates
		`{model: llama3-8b, trainer: {}, gpus: 8}`:                                      "", // a job with a key misspelt
		`{hidden_size: 8}`: "",
	} {
		d, err := yamlx.Parse("a.yaml", []byte(text))
		require.NoError(t, err, text)
		got, says := launch.Framework(d)
		require.Equal(t, want, got, text)
		require.Equal(t, want != "", says != nil, text)
	}
}

// pretrain is the job that Megatron-LM's arguments make, beside those of a small model.
func pretrain(t *testing.T, more string) string {
	t.Helper()
	j, err := launch.Read("a", []byte("pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 2 --bf16 --vocab-size 128 "+more))
	require.NoError(t, err)
	text, err := j.YAML()
	require.NoError(t, err)
	return string(text)
}

// TestUnfusedKernels: kernels of their own that Megatron-LM can be told to leave out.
func TestUnfusedKernels(t *testing.T) {
	for more, want := range map[string]string{
		"--position-embedding-type rope --swiglu --no-rope-fusion": "rope_fusion: false # --no-rope-fusion",
		"--no-gradient-accumulation-fusion":                        "gradient_fusion: false # --no-gradient-accumulation-fusion",
		"--swiglu --no-bias-swiglu-fusion":                         "gate_fusion: false # --no-bias-swiglu-fusion",
		"--no-check-for-nan-in-loss-and-grad":                      "nan_checks: false # --no-check-for-nan-in-loss-and-grad",
		"--no-bias-gelu-fusion":                                    "--no-bias-gelu-fusion: biases and activations are taken to be one kernel's",
	} {
		text := pretrain(t, more)
		require.Contains(t, text, want, more)
		require.NotContains(t, text, "# Without a key", more)
	}
	// Logs have what is turned off by the names of what it turns off (megatron/training/arguments.py, dest).
	log := "  num_layers ... 4\n  hidden_size ... 64\n  num_attention_heads ... 4\n  bf16 ... True\n  vocab_size ... 128\n  swiglu ... True\n"
	for off, want := range map[string]string{
		"gradient_accumulation_fusion": "gradient_fusion: false", "bias_swiglu_fusion": "gate_fusion: false", "check_for_nan_in_loss_and_grad": "nan_checks: false",
	} {
		require.Contains(t, initial(t, log+"  "+off+" ... False\n"), want+" # "+off)
		require.NotContains(t, initial(t, log+"  "+off+" ... True\n"), want)
	}
}

// TestRouting: what balances the tokens of experts, where the arguments say it.
func TestRouting(t *testing.T) {
	for more, want := range map[string]string{
		"":                                      "",
		"--moe-router-load-balancing-type none": "unbalanced # --moe-router-load-balancing-type",
		"--moe-router-load-balancing-type none --moe-router-enable-expert-bias":                         "learned # --moe-router-enable-expert-bias",
		"--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2":                           "learned # --moe-aux-loss-coeff",
		"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-3":                       "weak # --moe-aux-loss-coeff",
		"--moe-aux-loss-coeff 1e-2 --moe-expert-capacity-factor 1.1 --moe-pad-expert-input-to-capacity": "",
		"--moe-aux-loss-coeff 0": "unbalanced # --moe-aux-loss-coeff",
		"--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0":        "",
		"--moe-router-load-balancing-type aux_loss":                               "",
		"--moe-router-load-balancing-type none --moe-router-force-load-balancing": "random # --moe-router-force-load-balancing",
	} {
		text := pretrain(t, "--num-experts 8 --expert-model-parallel-size 4 "+more)
		if want == "" {
			require.NotContains(t, text, "routing:", more)
			continue
		}
		require.Contains(t, text, "routing: "+want, more)
	}
}

// TestMuon: Megatron-LM's Muon by either name, and by the arguments that change its cost.
func TestMuon(t *testing.T) {
	for more, want := range map[string][]string{
		"--optimizer muon --muon-momentum 0.9":                  {"optimizer: muon # --optimizer", "data_parallel: ddp"},
		"--optimizer muon --use-distributed-optimizer":          {"optimizer: muon # --optimizer", "data_parallel: zero1 # --use-distributed-optimizer"},
		"--optimizer dist_muon":                                 {"optimizer: muon # --optimizer", "data_parallel: zero1 # --optimizer"},
		"--optimizer muon --muon-use-syrk --muon-nesterov":      {"optimizer: muon # --optimizer", "--muon-use-syrk", "--muon-nesterov"},
		"--optimizer soap":                                      {"--optimizer soap: Adam is taken"},
		"--optimizer adaptive_muon":                             {"--optimizer adaptive_muon: Adam is taken"},
		"--optimizer muon --transformer-impl local --deepspeed": {"--optimizer muon: Adam is taken"},
	} {
		text := pretrain(t, more)
		for _, w := range want {
			require.Contains(t, text, w, more)
		}
		require.NotContains(t, text, "muon-momentum")
	}
}

// TestMegatronFSDP: what Megatron-FSDP has in shards, of how many copies, and that it reduces
// and gathers beside the passes whatever the log of a run says of Megatron's own switches.
func TestMegatronFSDP(t *testing.T) {
	for more, want := range map[string][]string{
		"--use-megatron-fsdp": {"data_parallel: fsdp1 # default of --data-parallel-sharding-strategy of --use-megatron-fsdp"},
		"--use-custom-fsdp --data-parallel-sharding-strategy optim_grads":                                                            {"data_parallel: zero2 # --data-parallel-sharding-strategy of --use-custom-fsdp"},
		"--use-megatron-fsdp --data-parallel-sharding-strategy no_shard":                                                             {"data_parallel: ddp # "},
		"--use-megatron-fsdp --data-parallel-sharding-strategy most":                                                                 {"# plan.data_parallel: --data-parallel-sharding-strategy: most is none of Megatron-FSDP's strategies: give the key"},
		"--use-megatron-fsdp --num-distributed-optimizer-instances 2":                                                                {"shard_degree: 4 # --num-distributed-optimizer-instances"},
		"--use-megatron-fsdp --num-distributed-optimizer-instances 3":                                                                {"# plan.shard_degree: --num-distributed-optimizer-instances: 3 copies do not divide the 8 ranks"},
		"--use-distributed-optimizer --num-distributed-optimizer-instances 2":                                                        {"data_parallel: zero1 # --use-distributed-optimizer", "shard_degree: 4 # --num-distributed-optimizer-instances"},
		"--num-distributed-optimizer-instances 2":                                                                                    {"data_parallel: ddp # ", "Not taken over: --num-distributed-optimizer-instances 2"},
		"--use-megatron-fsdp --overlap-grad-reduce False --outer-dp-sharding-strategy optim --num-distributed-optimizer-instances 2": {"# Not taken over: --overlap-grad-reduce false: with shards", "shard_optimizer: true # --outer-dp-sharding-strategy"},
	} {
		text := pretrain(t, "--world-size 8 "+more)
		for _, w := range want {
			require.Contains(t, text, w, more)
		}
		require.NotContains(t, text, "overlap_grad_reduce", more)
	}
	require.NotContains(t, pretrain(t, "--data-parallel-sharding-strategy optim_grads_params"), "fsdp1", "without --use-megatron-fsdp")
}

// TestWide: what trains in fp32 where neither 16-bit type is turned on, and what goes before that.
func TestWide(t *testing.T) {
	const (
		zero   = `{"zero_optimization": {"stage": 2}}`
		script = "run_clm.py --output_dir x --model_name_or_path gpt2 --block_size 512 --deepspeed d.json"
		layers = "p.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 2 --vocab-size 128"
	)
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{zero}, "precision: fp32 # without bf16 and fp16\n"},
		{[]string{`{"zero_optimization": {"stage": 2}, "bf16": {"enabled": false}, "fp16": {"enabled": false}}`}, "precision: fp32 # without bf16 and fp16\n"},
		{[]string{zero, script + " --bf16"}, "precision: bf16 # --bf16\n"},
		{[]string{script + " --bf16", zero}, "precision: bf16 # --bf16\n"},
		{[]string{script, zero}, "precision: fp32 # without --bf16 and fp16\n"},
		{[]string{zero, "trl sft --model_name_or_path gpt2 --deepspeed d.json"}, "# train.precision: without --bf16 and fp16: TRL turned"},
		{[]string{layers}, "precision: fp32 # without --bf16 and --fp16\n"},
		{[]string{layers, `{"bf16": {"enabled": true}}`}, "precision: bf16 # bf16.enabled\n"},
		{[]string{layers + " --fp16"}, "precision: fp16 # --fp16\n"},
	} {
		require.Contains(t, initial(t, c.files...), c.want, c.files)
	}
	require.NotContains(t, initial(t, `{"zero_optimization": {"stage": 2}, "fp16": {"enabled": "auto"}}`), "precision")
	require.NotContains(t, initial(t, `{"zero_optimization": {"stage": 2}, "amp": {"enabled": true}}`), "precision: ")
	got := initial(t, layers+" --seq-length 128")
	predictable(t, []byte(got), 1)
}

// TestBatchOfPasses: a batch and the passes that it takes leave the micro batch to the number of GPUs.
func TestBatchOfPasses(t *testing.T) {
	got := initial(t, `{"train_batch_size": 64, "gradient_accumulation_steps": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}`) + "\nmodel: llama3.2-1b"
	require.NotContains(t, got, "micro_batch")
	for _, gpus := range []int{1, 2, 8, 16} {
		predictable(t, []byte(got), gpus)
	}
}

// TestStates: in what the optimizer that is taken keeps its states.
func TestStates(t *testing.T) {
	const axolotl = "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\noptimizer: adamw_bnb_8bit\nbf16: true"
	require.Contains(t, initial(t, axolotl), "optimizer: adamw-8bit")
	apollo := strings.Replace(axolotl, "adamw_bnb_8bit", "apollo_adamw", 1)
	require.Contains(t, initial(t, apollo), "# Not taken over: optimizer apollo_adamw: AdamW with states in bf16, as weights are, is taken\n")
	require.Contains(t, initial(t, apollo+"\nadapter: lora\nlora_r: 8\nlora_target_linear: true"), "# Not taken over: optimizer apollo_adamw: AdamW with states in fp32 is taken\n")
	require.Contains(t, initial(t, "sft.py --model_name_or_path Qwen/Qwen2.5-7B --deepspeed zero2.json --bf16 true --optim paged_adamw_8bit"), "# Not taken over: --optim paged_adamw_8bit")
}

// TestCutShort: a comment ends a command though its line seems to go on, and what is not read is said so.
func TestCutShort(t *testing.T) {
	got := initial(t, "p.py --num-layers 4 --bf16 \\\n --micro-batch-size $(nproc) \\\n # --seq-length 128 \\\n --seq-length 256 \\\n --lr 1")
	require.NotContains(t, got, "sequence_length")
	require.Contains(t, got, "# Not taken over: line 4 and what follows, --seq-length first: the comment above ends the command, so that it is not given these")
	require.Contains(t, got, "# train.micro_batch: --micro-batch-size: line 2 takes $(nproc), which is not read: give the key")
}

// TestTokenMetrics: TRL's SFTTrainer takes entropy and accuracy from whole logits.
func TestTokenMetrics(t *testing.T) {
	const script, metrics = "sft.py --model_name_or_path gpt2 --bf16 --max_length 1024 --per_device_train_batch_size 2", "token_metrics: true # TRL's SFTTrainer"
	require.Contains(t, initial(t, script), metrics)
	for _, more := range []string{"--use_liger_kernel", "--loss_type chunked_nll"} {
		require.NotContains(t, initial(t, script+" "+more), metrics, more)
	}
	require.NotContains(t, initial(t, strings.Replace(script, "sft.py", "dpo.py", 1)), metrics)
}
