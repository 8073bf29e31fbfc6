package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContextsOfDeepSpeed: its context ranks trade heads for positions, of fewer key and value
// heads than ranks each has a copy, and gradients are reduced in fp32 unless ZeRO 3 is told
// otherwise (DeepSpeed 0.19.6, runtime/sequence_parallel/ulysses_sp.py, runtime/constants.py,
// runtime/zero/stage_1_and_2.py, allreduce_bucket).
func TestContextsOfDeepSpeed(t *testing.T) {
	const job = "{model: %s, hardware: h100-sxm, gpus: 16, runtime: {recipe: %s}, plan: {%s}, train: {micro_batch: 1, grad_accumulation: 1%s}}"
	for _, c := range []struct{ model, recipe, plan, train, want, reduce string }{
		{"llama3-8b", "deepspeed-hf", "dp: 16, data_parallel: zero3", "", "zero3", "bf16"},
		{"llama3-8b", "deepspeed-hf", "cp: 4, data_parallel: zero3", "", "cp 4 a2a, dp 4, zero3", "fp32"},
		{"llama3-8b", "deepspeed-hf", "cp: 4, data_parallel: zero3", ", dtypes: {reduce: bf16}", "cp 4 a2a", "bf16"},
		{"llama3-8b", "deepspeed-hf", "cp: 4, data_parallel: zero2", ", dtypes: {reduce: bf16}", "cp 4 a2a", "fp32"},
		{"llama3-8b", "deepspeed-hf", "cp: 4, data_parallel: ddp", ", dtypes: {reduce: bf16}", "cp 4 a2a", "bf16"},
		{"llama3-8b", "deepspeed-hf", "cp: 16, data_parallel: zero3", "", "cp 16 a2a", "fp32"},
		{"llama3-8b", "hf-eager", "cp: 4, data_parallel: fsdp2", ", precision: bf16-pure", "cp 4, dp 4, fsdp2", "bf16"},
		{"llama3-8b", "megatron-core", "cp: 4", "", "cp 4, dp 4, zero1", "fp32"},
		{"llama3-8b", "deepspeed-hf", "cp: 4", ", sequence_length: 4100", "cp 4 a2a", "fp32"},
		{"llama3-8b", "deepspeed-hf", "cp: 4", ", sequence_length: 4098", "plan.cp: sequence_length 4098 is not divisible by cp 4 (use cp 1, 2)", ""},
		{"llama3-8b", "hf-eager", "cp: 4", ", sequence_length: 4100", "plan.cp: sequence_length 4100 is not divisible by 2·cp = 8, which balances causal work (use cp 1, 2)", ""},
		{"llama3-8b", "deepspeed-hf", "cp: 4, cp_comm_type: p2p", "", "plan.cp_comm_type: recipe deepspeed-hf has no p2p; use a2a, or a recipe that has it", ""},
		{"llama3-8b", "torchtitan", "cp: 4, cp_comm_type: a2a", "", "plan.cp_comm_type: recipe torchtitan has no a2a; use p2p, or a recipe that has it", ""},
		{"llama3-8b", "megatron-core", "cp: 16, cp_comm_type: a2a", "", "plan.cp_comm_type: a2a needs key/value heads for every rank, but cp 16 does not divide the 8 of tp 1 (use cp 1, 2, 4, 8, or p2p)", ""},
		{"qwen2.5-7b", "deepspeed-hf", "cp: 8", "", "plan.cp_comm_type: a2a needs heads for every rank, but cp 8 does not divide the 28 of tp 1 (use cp 1, 2, 4)", ""},
		{"deepseek-v2-lite", "deepspeed-hf", "cp: 2", "", "plan.cp: 2 trades heads by a2a, which takes keys and values of one width, and latent attention has two; use cp 1", ""},
		{"llama2-7b", "megatron-deepspeed, release: '23.08'", "cp: 4, data_parallel: zero1", "", "cp 4 a2a, dp 4, zero1", "fp32"},
		{"llama2-7b", "megatron-deepspeed, release: '24.12'", "cp: 4, data_parallel: zero1", ", precision: fp16", "cp 4 a2a", "fp32"},
		{"llama2-7b", "megatron-deepspeed, release: '24.12'", "data_parallel: zero1", ", precision: fp16", "dp 16, zero1", "fp16"},
		{"llama3-8b", "megatron-deepspeed, release: '24.11'", "cp: 4, data_parallel: zero1", "", "cp 4 a2a", "fp32"},
		{"llama3-8b", "megatron-deepspeed, release: '24.12'", "cp: 4", "", "plan.cp: 4, but recipe megatron-deepspeed trades keys and values of as many heads as queries have (32, not 8) from release 24.12 on; use cp 1, an earlier release, or recipe deepspeed-hf", ""},
		{"llama2-7b", "megatron-deepspeed", "cp: 4", "", "plan.cp: recipe megatron-deepspeed has context parallelism from release 23.08 on; set runtime.release to that or a later one, or use 1", ""},
		{"llama2-7b", "megatron-deepspeed, release: '23.08'", "cp: 4, tp: 2", "", "plan.cp: 4 beside tp 2 and pp 1, but DeepSpeed's context ranks go with neither tensor nor pipeline ranks; use cp 1, or tp 1 and pp 1", ""},
		{"llama2-7b", "megatron-deepspeed, release: '23.08'", "cp: 4, pp: 2", "", "plan.cp: 4 beside tp 1 and pp 2", ""},
		{"llama2-7b", "megatron-deepspeed, release: '23.08'", "cp: 4", ", recompute: selective", "train.recompute: selective, but the framework does not recompute the attention core of context ranks (cp 4); use none or full", ""},
		{"llama3-8b", "llm-foundry", "cp: 2", "", "plan.cp: recipe llm-foundry has no context parallelism; use 1 or a recipe that has it", ""},
	} {
		j, err := decode(fmt.Sprintf(job, c.model, c.recipe, c.plan, c.train))
		if c.reduce == "" {
			require.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err, "%v", c)
		require.Contains(t, j.Plan.String(), c.want)
		require.Equal(t, c.reduce, j.Precision.Reduce.String(), "%v", c)
	}
}

// TestReduceFollowsThePlan: a search sets one plan after another.
func TestReduceFollowsThePlan(t *testing.T) {
	j, err := decode("{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {dp: 8, data_parallel: zero3}}")
	require.NoError(t, err)
	for _, c := range []struct {
		cp   int64
		want string
	}{{1, "bf16"}, {8, "fp32"}, {1, "bf16"}} {
		require.NoError(t, j.SetPlan(Plan{CP: c.cp, DataParallel: ZeRO3}))
		require.Equal(t, c.want, j.Precision.Reduce.String())
	}
}
