package launch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/launch"
)

// TestSwift: what ms-swift makes of names and of what is left out.
func TestSwift(t *testing.T) {
	const sft = "swift sft --model Qwen/Qwen2.5-7B --dataset x --max_length 2048 "
	for text, want := range map[string][]string{
		sft: {"rank: 8 # default of --lora_rank", "dropout: 0.05", "micro_batch: 1 # default of", "# train.grad_accumulation: default of --gradient_accumulation_steps: as many as make 16 sequences of a step",
			"recompute: full # default of --gradient_checkpointing", "# train.precision: without --torch_dtype: the dtype that the model is stored in"},
		sft + "--external_plugins plugin.py --target_modules q_proj v_proj":                                          {"model: qwen2.5-7b", "targets: [q, v]"},
		sft + "--target_modules all-linear lm_head":                                                                  {"# Not taken over: --target_modules lm_head: it has no adapter here"},
		sft + "--tuner_type adalora":                                                                                 {"--tuner_type adalora: which is taken for what the other arguments say"},
		"swift sft --tuner_type full --max_length 512":                                                               {"# model: without --model: give the key"},
		"NPROC_PER_NODE=8 " + sft + "--torch_dtype bfloat16":                                                         {"gpus: 8 # NPROC_PER_NODE", "precision: bf16-frozen # --torch_dtype", "grad_accumulation: 2 # default of"},
		"NNODES=2 NPROC_PER_NODE=8 " + sft + "--torch_dtype bfloat16 --tuner_type full":                              {"gpus: 16", "precision: bf16-pure", "grad_accumulation: 1 # default of"},
		"NPROC_PER_NODE=$N " + sft:                                                                                   {"# gpus: NPROC_PER_NODE: "},
		"export NPROC_PER_NODE=2\n" + sft + "--gradient_accumulation_steps 4":                                        {"gpus: 2 # NPROC_PER_NODE", "grad_accumulation: 4 # --gradient_accumulation_steps"},
		sft + "--deepspeed zero3":                                                                                    {"data_parallel: zero3 # zero_optimization.stage", "recipe: deepspeed-hf"},
		sft + "--torch_dtype bfloat16 --train_type full --deepspeed zero3_offload":                                   {"offload: parameters", "precision: bf16"},
		"swift rlhf --rlhf_type kto --model Qwen/Qwen2.5-7B --max_length 2048":                                       {"# Not taken over: --rlhf_type kto: a step is taken to train on next tokens"},
		"swift rlhf --model Qwen/Qwen2.5-7B --max_length 2048":                                                       {"# Not taken over: default of --rlhf_type dpo: a step is taken to train on next tokens"},
		sft + "--deepspeed ds.json":                                                                                  {"# plan.data_parallel: --deepspeed: ds.json has the stage of ZeRO"},
		sft + "--torch_dtype bfloat16 --fsdp fsdp2 --tuner_type full":                                                {"data_parallel: fsdp2 # --fsdp", "reshard_after_forward: true # --fsdp", "recompute: full # --fsdp"},
		sft + "--torch_dtype bfloat16 --quant_bits 4 --quant_method bnb":                                             {"precision: nf4-frozen # --quant_bits"},
		sft + "--torch_dtype float16 --quant_bits 4 --quant_method bnb":                                              {"# Not taken over: --torch_dtype float16, float32 by ms-swift: bitsandbytes from 0.47 on casts"},
		sft + "--torch_dtype bfloat16 --quant_bits 4 --quant_method bnb --deepspeed zero2":                           {"precision: bf16 # --torch_dtype", "# Not taken over: --quant_bits: frozen weights of 4 bits are not known under DeepSpeed"},
		sft + "--gradient_checkpointing false --attn_impl flash_attn --sequence_parallel_size 4":                     {"recompute: none", "attention: flash-attn", "--sequence_parallel_size 4: sequences cut by all-to-all"},
		sft + "--deepspeed zero3 --sequence_parallel_size 4":                                                         {"cp: 4 # --sequence_parallel_size\n", "# Not taken over: --sequence_parallel_size 4: gradients are taken to be reduced in fp32"},
		"NNODES=$NODES " + sft:                                                                                       {"# gpus: NNODES: \"$NODES\" is no number that the file has: give the key"},
		"CUDA_VISIBLE_DEVICES=0,1 " + sft:                                                                            {"gpus: 1 # without NPROC_PER_NODE", "grad_accumulation: 16 # default of", "# Not taken over: CUDA_VISIBLE_DEVICES: each of ms-swift's processes (1) spreads the layers of its copy over 2 GPUs, which work in turn; one GPU is taken"},
		"CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=2 swift sft --model gpt2 --tuner_type full":                     {"gpus: 2 # NPROC_PER_NODE", "(2) spreads the layers of its copy over 2 GPUs"},
		"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 " + sft:                                                           {"gpus: 2 # NPROC_PER_NODE\nruntime"},
		"CUDA_VISIBLE_DEVICES=3 " + sft:                                                                              {"gpus: 1 # CUDA_VISIBLE_DEVICES\n"},
		"tuner_type: full\nENV: {CUDA_VISIBLE_DEVICES: '0,1'}":                                                       {"gpus: 1 # without NPROC_PER_NODE", "over 2 GPUs"},
		"model: Qwen/Qwen2.5-7B\ntuner_type: full\ntorch_dtype: bfloat16\nmax_length: 512\nENV: {NPROC_PER_NODE: 4}": {"gpus: 4 # NPROC_PER_NODE", "precision: bf16-pure # torch_dtype"},
	} {
		got := joined(t, text)
		for _, w := range want {
			require.Contains(t, got, w, text)
		}
	}
}

// TestSwiftFSDP: a file of FSDP that ms-swift is given, before it is there and beside it.
func TestSwiftFSDP(t *testing.T) {
	const (
		sft  = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --max_length 512 --tuner_type full --torch_dtype bfloat16 --fsdp a/f.json"
		file = `{"_note": "x", "fsdp": "full_shard auto_wrap offload", "fsdp_config": {"reshard_after_forward": false, "activation_checkpointing": true}}`
	)
	got := initial(t, sft)
	require.Contains(t, got, "# plan.data_parallel: --fsdp: a/f.json has the kind of FSDP: name it by --from, too\n")
	require.NotContains(t, got, "ddp")
	for _, files := range [][]string{{sft, file}, {file, sft}} {
		got := initial(t, files...)
		for _, w := range []string{"data_parallel: fsdp2 # fsdp\n", "reshard_after_forward: false # fsdp_config.reshard_after_forward\n", "recompute: full # fsdp_config.activation_checkpointing\n", "offload: parameters # fsdp\n", "precision: bf16-mixed"} {
			require.Contains(t, got, w)
		}
		require.NotContains(t, got, "Without a key")
		require.NotContains(t, got, "name it")
	}
}

// TestUnitsOfAdapters: PEFT says what units are of a model with adapters, whatever the arguments do.
func TestUnitsOfAdapters(t *testing.T) {
	const sft = "torchrun --nproc_per_node 8 sft.py --model_name_or_path gpt2 --max_length 512 --bf16 --fsdp full_shard "
	require.Contains(t, initial(t, sft), "units: model # without auto_wrap\n")
	require.NotContains(t, initial(t, sft+"--use_peft --lora_r 8"), "units:")
}

// TestSwiftMegatron: what ms-swift's command for Megatron-Core says, in its own names and with its own defaults.
func TestSwiftMegatron(t *testing.T) {
	const sft = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --external_plugins p.py --max_length 4096 --torch_dtype bfloat16 --expert_model_parallel_size 8 "
	for text, want := range map[string][]string{
		sft: {"model: qwen3-30b-a3b # --model", "gpus: 8 # NPROC_PER_NODE", "recipe: megatron-script", "permute_fusion: false # default of --moe_permute_fusion", "rope_fusion: false", "attention: flash-attn # default of", "ep: 8", "expert_tp: 1 # default of",
			"data_parallel: zero1 # default of --use_distributed_optimizer", "micro_batch: 1 # default of --micro_batch_size", "global_batch: 16 # default of", "recompute: selective # default of", "precision: bf16 # --torch_dtype", "fused_cross_entropy: true # default of"},
		sft + "--micro_batch_size 2 --recompute_granularity none --packing true":                           {"micro_batch: 2 # --micro_batch_size", "recompute: none # --recompute_granularity", "# Not taken over: --packing: attention keeps documents apart"},
		sft + "--tuner_type lora --lora_rank 16 --target_modules linear_qkv linear_proj":                   {"rank: 16 # --lora_rank", "dropout: 0.05 # default of --lora_dropout", "targets: [qkv, o] # --target_modules"},
		sft + "--train_type lora --target_modules all-linear":                                              {"rank: 8 # default of --lora_rank\n    dropout: 0.05 # default of --lora_dropout\n  micro"},
		sft + "--pipeline_model_parallel_size 4 --decoder_first_pipeline_num_layers 9 --unheard 1":         {"stage_layers: [9, 13, 13, 13] # --decoder_first_pipeline_num_layers", "# Without a key: --unheard\n"},
		sft + "--gradient_accumulation_fusion false":                                                       {"gradient_fusion: false # --gradient_accumulation_fusion"},
		strings.Replace(sft, "NPROC_PER_NODE=8", "NNODES=$NODES", 1):                                       {"# gpus: NNODES: line 1 takes $NODES, which the file does not set: give the key"},
		sft + "--freeze_llm true --optimizer_cpu_offload true":                                             {"# Not taken over: --freeze_llm true: all parameters are taken to be trained", "offload: optimizer"},
		"megatron pt --load X-mcore --expert_model_parallel_size 8 --max_length 512":                       {"# model: --load X-mcore: the checkpoint has it: give the key", "ep: 8", "# train.precision: without --torch_dtype: the dtype that the model is stored in"},
		"megatron rlhf --rlhf_type dpo --model gpt2 --max_length 512 --tensor_model_parallel_size 2":       {"tp: 2", "# Not taken over: megatron rlhf: a step is taken to train on next tokens"},
		"model: Qwen/Qwen2.5-7B\nmax_length: 512\ntensor_model_parallel_size: 2\nENV: {NPROC_PER_NODE: 4}": {"gpus: 4 # NPROC_PER_NODE", "tp: 2 # tensor_model_parallel_size", "global_batch: 16 # default of global_batch_size"},
		"NPROC_PER_NODE=4 megatron sft x.yaml":                                                             {"# model: megatron sft: x.yaml has the arguments: name it by --from, too", "gpus: 4"},
	} {
		got := initial(t, text)
		for _, w := range want {
			require.Contains(t, got, w, text)
		}
		if strings.HasPrefix(text, sft) && !strings.Contains(text, "stage") && !strings.Contains(text, "pipeline") {
			d, err := yamlx.Parse("x", []byte(got))
			require.NoError(t, err)
			_, err = strategies.Decode(d, d.Root)
			require.NoError(t, err, got)
		}
	}
	_, err := launch.Read("a", []byte(sft+"--micro_batch_size x"))
	require.ErrorContains(t, err, `--micro_batch_size: "x"; give a whole number from 1 on`)
}

// TestSwiftErrors: values that ms-swift does not know.
func TestSwiftErrors(t *testing.T) {
	for text, want := range map[string]string{
		"swift sft --model gpt2 --tuner_type full --deepspeed zero9":           `a:1:1: --deepspeed: there is no "zero9"; give zero0, zero1, zero2, zero2_offload, zero3 or zero3_offload, or a file`,
		"swift sft --model gpt2 --tuner_type full --use_liger_kernel maybe":    `a:1:1: --use_liger_kernel: "maybe"; give true or false`,
		"base_model: gpt2\nliger_rms_norm: [true, false]\nmicro_batch_size: 1": `liger_rms_norm: "true false"; give true or false`,
		"base_model: gpt2\nmicro_batch_size: [2, 3]":                           "micro_batch_size: 2, 3; give one whole number from 1 to",
	} {
		_, err := launch.Read("a", []byte(text))
		require.ErrorContains(t, err, want)
	}
}
