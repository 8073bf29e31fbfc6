package strategies

import (
	"fmt"
	"testing"
)

// TestCheckMatrices: where whole matrices, or the parts of them that DTensor has, are updated,
// and what is said where no update is known.
func TestCheckMatrices(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: %s}, plan: {%s}, train: {optimizer: muon, micro_batch: 1, grad_accumulation: 1%s}}"
	for _, c := range []struct{ recipe, plan, train, want string }{
		{"hf-eager", "dp: 8, data_parallel: ddp", "", ""},
		{"hf-eager", "dp: 8, data_parallel: fsdp2", "", ""},
		{"megatron-core", "dp: 8, data_parallel: zero1", "", ""},
		{"megatron-core", "tp: 2, dp: 4, data_parallel: zero1", "", ""},
		{"megatron-core", "dp: 8, data_parallel: fsdp2", "", "train.optimizer: muon beside data_parallel fsdp2, of which no update is known; use ddp or zero1"},
		{"megatron-core", "dp: 1, cp: 8, data_parallel: fsdp2", "", "train.optimizer: muon beside data_parallel fsdp2, of which no update is known; use ddp or zero1"},
		{"hf-eager", "dp: 8, data_parallel: fsdp1", "", "train.optimizer: muon beside data_parallel fsdp1, of which no update is known; use ddp or fsdp2"},
		{"hf-eager", "tp: 2, dp: 4, data_parallel: fsdp2", "", "train.optimizer: muon with tp 2 under recipe hf-eager"},
		{"hf-eager", "dp: 8, shard_degree: 4, data_parallel: fsdp2", "", "train.optimizer: muon with shard_degree 4"},
		{"hf-eager", "dp: 4, cp: 2, shard_degree: 4, data_parallel: fsdp2", "", "train.optimizer: muon with shard_degree 4"},
		{"megatron-core", "dp: 8, shard_degree: 4, data_parallel: zero1", "", "train.optimizer: muon with shard_degree 4"},
		{"megatron-core", "dp: 8, shard_degree: 8, data_parallel: zero1", "", ""},
		{"hf-eager", "dp: 8, data_parallel: fsdp2, offload: parameters", "", "train.optimizer: muon with plan.offload"},
		{"hf-eager", "dp: 8, data_parallel: ddp", ", lora: {rank: 16}", "train.optimizer: muon with train.lora"},
		{"deepspeed-hf", "dp: 8, data_parallel: zero1", "", "train.optimizer: recipe deepspeed-hf keeps its states in one tensor"},
		{"nanotron", "dp: 8, data_parallel: zero1", "", "recipe nanotron has no \"muon\""},
	} {
		refuses(t, fmt.Sprintf(job, c.recipe, c.plan, c.train), c.want)
	}
}
