package launch_test

import "testing"

// TestOneConnection: what scripts and configurations say of connections to a device. Megatron-LM's scripts export 1
// (examples/gpt3/train_gpt3_175b_distributed.sh), one of its tests has 32 beside tensor ranks
// (tests/functional_tests, gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading, ENV_VARS), Megatron-FSDP's unset it (examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh).
func TestOneConnection(t *testing.T) {
	const (
		key     = "one_connection: "
		said    = " # CUDA_DEVICE_MAX_CONNECTIONS"
		gpt     = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 8 --bf16"
		tensor  = gpt + " --tensor-model-parallel-size 2\n"
		context = gpt + " --context-parallel-size 2\n"
		swift   = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --max_length 512 --tensor_model_parallel_size 2\n"
	)
	for text, want := range map[string]string{
		gpt: "",
		"export CUDA_DEVICE_MAX_CONNECTIONS=1\n" + gpt:                                       "true" + said,
		"export CUDA_DEVICE_MAX_CONNECTIONS=8\n" + gpt:                                       "", // as without it
		"CUDA_DEVICE_MAX_CONNECTIONS=1 " + tensor:                                            "true" + said,
		"CUDA_DEVICE_MAX_CONNECTIONS=32 " + tensor:                                           "false" + said,
		"export CUDA_DEVICE_MAX_CONNECTIONS=32\n" + context:                                  "false" + said,
		"export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}\n" + tensor:    "true" + said,
		"export CUDA_DEVICE_MAX_CONNECTIONS=1\nunset CUDA_DEVICE_MAX_CONNECTIONS\n" + tensor: "",
		"export CUDA_DEVICE_MAX_CONNECTIONS=$(connections)\n" + tensor:                       "",
		"export CUDA_DEVICE_MAX_CONNECTIONS=$1\n" + tensor:                                   "",
		"export CUDA_DEVICE_MAX_CONNECTIONS=1\n" + gpt + " --use-megatron-fsdp\n":            "", // predicted as with several
		"CUDA_DEVICE_MAX_CONNECTIONS=1 " + swift:                                             "true" + said,
		"CUDA_DEVICE_MAX_CONNECTIONS=1 NGPU=8 CONFIG_FILE=./llama3_8b.toml ./run_train.sh\n": "", // not Megatron-Core
		"ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 32\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --micro-batch-size: 4\n  --seq-length: 1024\n  --tensor-model-parallel-size: 2\n": "false" + said,
	} {
		writes(t, text, key, want)
	}
}
