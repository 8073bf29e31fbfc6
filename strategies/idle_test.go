package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIdle: what a degree of one leaves without effect is said, but for what is the
// default anyway.
func TestIdle(t *testing.T) {
	for _, c := range []struct{ model, runtime, plan, want string }{
		{"llama3-8b", "", "pp: 1, schedule: zb-h2", "plan.schedule: zb-h2 has no effect without pipeline stages (pp 1)"},
		{"llama3-8b", "", "pp: 1, schedule: 1f1b", ""},
		{"llama3-8b", "", "pp: 4, schedule: zb-h2", ""},
		{"llama3-8b", "", "pp: 1, cp_comm_type: a2a", "plan.cp_comm_type: a2a has no effect without context ranks (cp 1)"},
		{"llama3-8b", "", "pp: 1, cp_comm_type: p2p", ""},
		{"llama3-8b", "", "cp: 2, cp_comm_type: a2a", ""},
		{"llama3-8b", "tp_overlap: true", "", "runtime.tp_overlap: true has no effect without tensor ranks (tp 1)"},
		{"llama3-8b", "tp_overlap: false", "", ""},
		{"llama3-8b", "recipe: torchtitan, loss_parallel: false", "", "runtime.loss_parallel: false has no effect without tensor ranks (tp 1)"},
		{"llama3-8b", "recipe: torchtitan, loss_parallel: false", "tp: 2", ""},
		{"llama3-8b", "recipe: torchtitan, shared_tp_input: false", "", "runtime.shared_tp_input: false has no effect without tensor ranks (tp 1)"},
		{"llama3-8b", "recipe: torchtitan, vocab_parallel: false", "", "runtime.vocab_parallel: false has no effect without tensor ranks (tp 1)"},
		{"llama3-8b", "tp_overlap: true", "tp: 2", ""},
		{"llama3-8b", "tp_overlap: true", "tp: 2, sequence_parallel: false", "runtime.tp_overlap: true has no effect without sequence parallelism, whose gathers and scatters it takes to pieces"},
		{"llama3-8b", "overlap_grad_reduce: true", "", ""},
		{"llama3-8b", "overlap_grad_reduce: true", "tp: 4, cp: 2", ""},
		{"llama3-8b", "overlap_grad_reduce: true", "tp: 8", "runtime.overlap_grad_reduce: true has no effect without data ranks (dp 1)"},
		{"llama3-8b", "overlap_param_gather: true", "tp: 8", "runtime.overlap_param_gather: true has no effect without data ranks (dp 1)"},
		{"mixtral-8x7b", "token_dispatcher: deepep", "", "runtime.token_dispatcher: deepep has no effect without expert ranks (ep 1)"},
		{"mixtral-8x7b", "token_dispatcher: alltoall", "", ""},
		{"mixtral-8x7b", "token_dispatcher: deepep", "ep: 8", ""},
		{"llama3-8b", "one_connection: true", "", ""},
		{"llama3-8b", "one_connection: true", "data_parallel: fsdp1", "runtime.one_connection: true has no effect under fsdp1, which is predicted as with several"},
		{"mixtral-8x7b", "ep_overlap: true", "", "runtime.ep_overlap: true has no effect without expert ranks (ep 1)"},
		{"mixtral-8x7b", "ep_overlap: false", "", ""},
		{"mixtral-8x7b", "ep_overlap: true", "ep: 2, pp: 2", "runtime.ep_overlap: true has no effect under a pipeline that is not interleaved (pp 2, virtual_stages 1), where the framework refuses it"},
		{"mixtral-8x7b", "ep_overlap: true", "ep: 2, pp: 2, virtual_stages: 2", ""},
		{"mixtral-8x7b", "ep_overlap: true", "ep: 2", ""},
		{"mixtral-8x7b", "ep_overlap: false", "ep: 2, pp: 2", ""},
	} {
		j := mustDecode(t, fmt.Sprintf("{model: %s, gpus: 8, runtime: {%s}, plan: {%s}}", c.model, c.runtime, c.plan))
		var got string
		for _, n := range j.Idle() {
			require.Equal(t, "setting.idle", n.Code)
			require.Contains(t, n.Remedy, "or leave it out")
			got += n.Text
		}
		require.Equal(t, c.want, got, "%s %s", c.runtime, c.plan)
	}
	whole := mustDecode(t, "{model: llama3-8b, gpus: 8, runtime: {overlap_param_gather: true}, plan: {data_parallel: ddp}}").Idle()
	require.Equal(t, "runtime.overlap_param_gather: true has no effect under ddp, which shards nothing that is to be gathered", whole[0].Text)
	require.Equal(t, "set plan.data_parallel to zero1, or leave it out", whole[0].Remedy)
	full := mustDecode(t, "{model: mixtral-8x7b, gpus: 8, runtime: {ep_overlap: true}, plan: {ep: 2}, train: {recompute: full}}").Idle()
	require.Equal(t, "runtime.ep_overlap: true has no effect with full recomputation, with which the framework refuses it", full[0].Text)
	require.Equal(t, "set train.recompute to selective or none, or leave it out", full[0].Remedy)
	j := mustDecode(t, "{model: mixtral-8x7b, gpus: 8, plan: {}, train: {expert_imbalance: 1.1}}")
	require.Equal(t, "train.expert_imbalance: 1.1 has no effect without expert ranks (ep 1)", j.Idle()[0].Text)
	require.Empty(t, mustDecode(t, "{model: gpt-oss-20b, gpus: 8, runtime: {recipe: hf-eager}, plan: {}, train: {expert_imbalance: 4}}").Idle(), "gradients of biases go by it")

	for _, runtime := range []string{"attention: unfused", "recipe: torchtitan"} { // scores are kept; other parts are computed again
		require.Empty(t, mustDecode(t, fmt.Sprintf("{model: llama3-8b, gpus: 8, runtime: {%s}, plan: {}, train: {recompute: selective}}", runtime)).Idle(), runtime)
	}

	for train, want := range map[string]string{
		"recompute: full, recompute_num_layers: 9":                            "train.recompute_num_layers: 9 has no more effect than 8, the layers of a pipeline stage",
		"recompute: full, recompute_num_layers: 8":                            "",
		"recompute: selective, recompute_modules: [mlp, layernorm]":           "train.recompute_modules: layernorm has no effect on llama3-8b, which has no norm that its projection does not take in",
		"recompute: selective, recompute_modules: mlp":                        "",
		"recompute: selective":                                                "train.recompute: selective saves no memory with flash attention, which keeps no scores that could be computed again",
		"recompute: selective, recompute_modules: core_attn":                  "train.recompute: selective saves no memory with flash attention, which keeps no scores that could be computed again",
		"recompute: selective, recompute_modules: [core_attn, mlp]":           "",
		"recompute: full, recompute_num_layers: 2, recompute_method: uniform": "",
	} {
		notes := mustDecode(t, fmt.Sprintf("{model: llama3-8b, gpus: 8, plan: {pp: 4}, train: {%s}}", train)).Idle()
		require.Equal(t, want != "", len(notes) > 0, train)
		if want != "" {
			require.Equal(t, want, notes[0].Text)
		}
	}
}
