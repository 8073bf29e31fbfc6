package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

const forkJob = "{model: llama2-7b, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: %s}, plan: {dp: 8, data_parallel: %s}, train: {sequence_length: 2048, micro_batch: 1, precision: fp16}}"

// TestForkReductions: ZeRO 1 sums buckets of gradients over all ranks; ZeRO 2, and ZeRO 1 whose states
// the host has, reduce each rank's part to it until use_multi_rank_bucket_allreduce of November 2023
// (DeepSpeed, stage_1_and_2.py, reduce_ipg_grads and average_tensor).
func TestForkReductions(t *testing.T) {
	const all = 2 * 6738415616.
	for _, c := range []struct{ release, kind, op string }{
		{"", "zero1", "all-reduce"}, {"", "zero2", "reduce"}, {"", "zero1, offload: optimizer", "reduce"}, {"", "zero2, offload: optimizer", "reduce"},
		{", release: '23.12'", "zero2", "all-reduce"}, {", release: '23.12'", "zero1, offload: optimizer", "all-reduce"},
	} {
		_, exchanges := moved(t, fmt.Sprintf(forkJob, "megatron-deepspeed"+c.release, c.kind))
		require.InEpsilon(t, all, exchanges[c.op], 0.01, "%v", c)
	}
}

// TestForkOffload: states and update are the host's as deepspeed-hf's are, whose engine it is; of ZeRO 2
// the GPU has a rank's part of the gradients, of ZeRO 1 all of them.
func TestForkOffload(t *testing.T) {
	const parameters = 6738415616.
	of := func(recipe, kind string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf(forkJob, recipe, kind)))
	}
	for _, kind := range []string{"zero1", "zero2", "zero3"} {
		away, here := of("megatron-deepspeed", kind+", offload: optimizer"), of("megatron-deepspeed", kind)
		other := of("deepspeed-hf", kind+", offload: optimizer")
		require.InEpsilon(t, float64(other.Parts.Update), float64(away.Parts.Update), 0.05, kind)
		require.GreaterOrEqual(t, here.Memory.PeakAllocated-away.Memory.PeakAllocated, units.Bytes(12*parameters/8*0.95), kind)
	}
	peak := func(kind string) units.Bytes {
		job := strings.Replace(fmt.Sprintf(forkJob, "megatron-deepspeed", kind), "micro_batch: 1", "micro_batch: 1, grad_accumulation: 2", 1)
		return mustEstimate(t, mustParse(t, job)).Memory.PeakAllocated
	}
	require.InDelta(t, 2*parameters*7/8, float64(peak("zero1")-peak("zero2")), 2.5e9, "less two buckets and what a layer makes")
}

// TestDeepSpeedMoEThroughput against what DeepSpeed's team says of 128 A100: a GPT of 1.3 billion parameters
// with 128 experts in every other layer, 52 billion in all, trained on 372 sequences of 2,048 tokens a second
// (DeepSpeed docs/_posts/2021-12-09-deepspeed-moe-nlg.md, table 2; batch and layers of
// Megatron-DeepSpeed examples_deepspeed/MoE/ds_pretrain_gpt_1.3B_MoE128.sh, recomputation and stage 0 as
// there). Nothing was fitted to it.
func TestDeepSpeedMoEThroughput(t *testing.T) {
	r := mustEstimate(t, mustParse(t, `{model: {model_type: decoder, hidden_size: 2048, num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 8192, gated_mlp: false, hidden_act: gelu, norm: layernorm, position: learned, bias: true, vocab_size: 50257, max_position_embeddings: 2048,
		tie_word_embeddings: true, num_experts: 128, num_experts_per_tok: 1, decoder_sparse_step: 2}, hardware: a100-80g-sxm, gpus: 128, network: {bandwidth_per_gpu: 200 Gbit/s}, runtime: {recipe: megatron-deepspeed}, plan: {ep: 128, data_parallel: ddp},
		train: {sequence_length: 2048, micro_batch: 4, global_batch: 512, precision: fp16, recompute: full}}`))
	const measured = 512. / 372
	require.InDelta(t, 52e9, float64(r.Job.Model.Params().Total), 1e9)
	require.Less(t, float64(r.Low), measured)
	require.Greater(t, float64(r.High), measured)
}
