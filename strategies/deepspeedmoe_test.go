package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeepSpeedMoE: what DeepSpeed's layer of experts takes, beside what, and the capacity that it has where
// nothing is said (deepspeed/moe/layer.py, sharded_moe.py; Megatron-DeepSpeed, megatron/arguments.py).
func TestDeepSpeedMoE(t *testing.T) {
	const job = "{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 4, num_attention_heads: 16, intermediate_size: 4096, vocab_size: 50304, norm: layernorm, num_experts: 8, decoder_sparse_step: 2, %s}, " +
		"hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: megatron-deepspeed%s}, plan: {%s}, train: {sequence_length: 2048, precision: fp16%s}}"
	const plain = "gated_mlp: false, num_experts_per_tok: 1"
	for _, c := range []struct{ model, runtime, plan, train, want string }{
		{plain, "", "ep: 8", "", ""},
		{plain, "", "tp: 2, ep: 8", "", ""},
		{plain, "", "ep: 8, data_parallel: zero2, offload: optimizer", "", ""},
		{plain, ", release: '24.04'", "pp: 2, ep: 4", "", ""},
		{plain, ", release: '23.08'", "cp: 2, ep: 4", "", ""},
		{"gated_mlp: true, hidden_act: silu, num_experts_per_tok: 1", "", "ep: 4", "", ""},
		{"gated_mlp: false, num_experts_per_tok: 2", "", "ep: 4", ", expert_capacity: 1.25, routing: even", ""},
		{"gated_mlp: false, num_experts_per_tok: 4", "", "ep: 4", "", "runtime.recipe: megatron-deepspeed gives a token to one or two experts, not to 4; give model.num_experts_per_tok, or use another recipe"},
		{plain + ", n_shared_experts: 1", "", "ep: 4", "", "runtime.recipe: megatron-deepspeed has experts of DeepSpeed's layer, alike ones that a softmax picks"},
		{plain + ", router: sigmoid", "", "ep: 4", "", "runtime.recipe: megatron-deepspeed has experts of DeepSpeed's layer"},
		{plain, "", "ep: 8, data_parallel: zero3", "", "plan.data_parallel: zero3, but DeepSpeed shards no parameters of models with experts; use ddp, zero1 or zero2"},
		{plain, "", "tp: 2, ep: 8, sequence_parallel: true", "", "plan.sequence_parallel: true, but DeepSpeed's experts take tokens that all tensor ranks have; set it to false"},
		{plain, "", "tp: 2, ep: 4, expert_tp: 2", "", "plan.expert_tp: 2, but what tensor ranks exchange around experts of recipe megatron-deepspeed that they cut is not known; use 1"},
		{plain, "", "pp: 2, ep: 4", "", "plan.pp: 2, but pipelines of recipe megatron-deepspeed have experts from release 24.04 on; set runtime.release to that or a later one, or use pp 1"},
		{plain, "", "ep: 8", ", routing: learned", "train.routing: learned, but experts of recipe megatron-deepspeed have as many rows each; leave it out, and give train.expert_capacity, over the mean"},
	} {
		j, err := decode(fmt.Sprintf(job, c.model, c.runtime, c.plan, c.train))
		if c.want != "" {
			require.ErrorContains(t, err, c.want, "%v", c)
			continue
		}
		require.NoError(t, err, "%v", c)
		require.False(t, j.Plan.SP())
		if c.train == "" {
			require.Equal(t, 1., j.Train.Capacity)
			require.Contains(t, j.Defaults(), "train.expert_capacity = 1 (default of recipe megatron-deepspeed)")
		} else {
			require.Equal(t, 1.25, j.Train.Capacity)
		}
	}
	for _, recipe := range []string{"megatron-core", "megatron-lm"} { // have layers of their own
		j, err := decode(fmt.Sprintf("{model: mixtral-8x7b, gpus: 8, runtime: {recipe: %s}, plan: {}}", recipe))
		require.NoError(t, err)
		require.Zero(t, j.Train.Capacity)
	}
}
