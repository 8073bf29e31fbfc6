package strategies

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

func decode(text string) (*Job, error) {
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return Decode(doc, doc.Root)
}

func mustDecode(t *testing.T, text string) *Job {
	t.Helper()
	j, err := decode(text)
	require.NoError(t, err, text)
	return j
}

// TestUnchosen: what a job with a plan leaves open is listed, and neither what it gives
// nor what is chosen where it has no plan.
func TestUnchosen(t *testing.T) {
	const free = " (default; chosen only where no plan is given)"
	dp, one := "plan.data_parallel = zero1 (default of recipe megatron-core)", "train.grad_accumulation = 1 (default)"
	for _, c := range []struct {
		job  string
		want []string
	}{
		{"{model: llama2-7b, gpus: 8, plan: {tp: 2}}", []string{dp, "train.micro_batch = 1" + free, one, "train.recompute = none" + free}},
		{"{model: llama2-7b, gpus: 8, plan: {pp: 2}}", []string{dp, "train.micro_batch = 1" + free, "train.grad_accumulation = 8 (default: 4 for each pipeline stage)", "train.recompute = none" + free}},
		{"{model: llama2-7b, gpus: 1, plan: {}}", []string{"train.micro_batch = 1" + free, one, "train.recompute = none" + free}},
		{"{model: llama2-7b, gpus: 8, plan: {data_parallel: zero1}, train: {micro_batch: 1, recompute: none, global_batch: 8}}", nil},
		{"{model: llama2-7b, gpus: 8, plan: {data_parallel: ddp}, train: {grad_accumulation: 2}}", []string{"train.micro_batch = 1" + free, "train.recompute = none" + free}},
		{"{model: llama2-7b, gpus: 8}", []string{"train.grad_accumulation = 1 (default; with a pipeline 4 for each stage)"}},
		{"{model: llama2-7b, gpus: 8, train: {global_batch: 8}}", nil},
		{"{model: llama2-7b, gpus: 8, plan: {schedule: 1f1b}, train: {global_batch: 8}}", nil},
	} {
		var got []string
		for _, d := range mustDecode(t, c.job).Defaults() {
			if key, _, _ := strings.Cut(d, " "); slices.Contains([]string{"plan.data_parallel", "train.micro_batch", "train.grad_accumulation", "train.recompute"}, key) {
				got = append(got, d)
			}
		}
		require.Equal(t, c.want, got, c.job)
	}
}

// TestOpen: a plan that gives no degree and no kind of data parallelism leaves both open,
// one that gives nothing at all takes the defaults.
func TestOpen(t *testing.T) {
	for plan, open := range map[string]bool{
		"schedule: 1f1b": true, "bucket: 25MiB": true, "sync_every_micro_batch: true": true, "reshard_after_forward: false": true, "sequence_parallel: false": true, "bucket_view: false": true,
		"order: tp-cp-ep-pp-dp": true, "cp_comm_type: a2a": true, "schedule: gpipe, bucket: 25MiB": true,
		"": false, "tp: 1": false, "pp: 2": false, "cp: 1": false, "ep: 1": false, "dp: 8": false, "expert_tp: 1": false, "virtual_stages: 1": false, "data_parallel: ddp": false,
		"data_parallel: fsdp2, shard_degree: 4": false, "pp: 2, stage_layers: '[16, 16]'": false, "tp: 2, sequence_parallel: false": false,
	} {
		j := mustDecode(t, "{model: llama2-7b, gpus: 8, plan: {"+plan+"}}")
		require.Equal(t, open, j.Open, plan)
		require.NotNil(t, j.GivenPlan, plan)
		if open && plan != "bucket_view: false" { // which the default kind of data parallelism refuses
			require.NoError(t, j.TakeGiven(), plan)
			require.False(t, j.Open)
			require.EqualValues(t, 8, j.Plan.DP, plan)
		}
	}
	_, err := decode("{model: llama2-7b, gpus: 8, plan: {schedule: 1f1c}}")
	require.ErrorContains(t, err, `unknown pipeline schedule "1f1c"`)
}

// TestNoGPUsOffered: more GPUs are no remedy where another rule is broken, or no job has them.
func TestNoGPUsOffered(t *testing.T) {
	for _, c := range []struct{ plan, want string }{
		{"tp: 3", "does not divide the 8 GPUs; use tp 1, 2, 4 or 8"},
		{"tp: 1000000007", "exceeds the 8 GPUs of the job; give 1 to 8"},
		{"tp: 8, cp: 8, pp: 8, dp: 1048576", "exceeds the 8 GPUs of the job; give 1 to 8"},
		{"pp: 33", "exceeds the 8 GPUs of the job; give 1 to 8"},
		{"ep: 9", "exceeds the 8 GPUs of the job; give 1 to 8"},
		{"tp: 4, ep: 16, dp: 1", "exceeds the 8 GPUs of the job; give 1 to 8"},
	} {
		_, err := decode("{model: mixtral-8x7b, gpus: 8, plan: {" + c.plan + "}}")
		require.Error(t, err)
		first, _, _ := strings.Cut(err.Error(), "\n")
		require.True(t, strings.HasSuffix(first, c.want), first)
	}
}

// TestEveryRuleNamesARemedy: each rule that a plan can break, with the complaint's
// place, value, rule and way out.
func TestEveryRuleNamesARemedy(t *testing.T) {
	for _, c := range []struct{ job, want string }{
		{"{model: llama2-7b, gpus: 8, plan: {tp: -1}}", "plan.tp: -1 is negative; give 1 or more"},
		{"{model: llama2-7b, gpus: 8, plan: {tp: 16}}", "plan.tp: 16 exceeds the 8 GPUs of the job; give 1 to 8, or 16 GPUs"},
		{"{model: llama2-7b, gpus: 8, plan: {shard_degree: 16, data_parallel: fsdp2}}", "plan.shard_degree: 16 exceeds the 8 GPUs of the job; give 1 to 8, or 16 GPUs"},
		{"{model: llama3-8b, gpus: 8, plan: {tp: 4, pp: 16}}", "plan.pp: 16 exceeds the 8 GPUs of the job; give 1 to 8, or 64 GPUs"},
		{"{model: llama3-8b, gpus: 8, plan: {tp: 8, dp: 16}}", "plan.dp: 16 exceeds the 8 GPUs of the job; give 1 to 8, or 128 GPUs"},
		{"{model: mixtral-8x7b, gpus: 4, plan: {tp: 2, ep: 8, dp: 2}}", "plan.ep: 8 exceeds the 4 GPUs of the job; give 1 to 4"},
		{"{model: llama3-8b, gpus: 8, plan: {tp: 4, cp: 2, pp: 4}}", "plan.pp: tp 4 × cp 2 × pp 4 = 32 does not divide the 8 GPUs; use 32 GPUs, or tp 1, or pp 1"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {pp: 4, ep: 8}}", "plan.ep: ep 8 × expert_tp 1 does not divide tp·cp·dp = 2 (use ep 1, 2, or 32 GPUs)"},
		{"{model: llama2-7b, gpus: 12, plan: {tp: 8}}", "plan.tp: tp 8 × cp 1 × pp 1 = 8 does not divide the 12 GPUs; use tp 1, 2 or 4, or 16 GPUs"},
		{"{model: llama3-8b, gpus: 6, plan: {tp: 4}}", "plan.tp: tp 4 × cp 1 × pp 1 = 4 does not divide the 6 GPUs; use tp 1 or 2, or 8 GPUs"},
		{"{model: llama3-8b, gpus: 6, plan: {tp: 3}}", "plan.tp: 3 does not divide num_attention_heads 32 (use 1, 2)"},
		{"{model: llama3-8b, gpus: 6, plan: {tp: 2, pp: 2}}", "plan.pp: tp 2 × cp 1 × pp 2 = 4 does not divide the 6 GPUs; use tp 1, or pp 1 or 3, or 8 GPUs"},
		{"{model: llama3-8b, gpus: 7, plan: {tp: 2, pp: 2}}", "plan.tp: tp 2 × cp 1 × pp 2 = 4 does not divide the 7 GPUs; use degrees whose product divides 7, or 8 GPUs"},
		{"{model: llama2-7b, gpus: 8, plan: {tp: 2, dp: 3}}", "plan.dp: 3 × tp 2 × cp 1 × pp 1 = 6 is not the 8 GPUs of the job; leave dp out or use 4, or 6 GPUs"},
		{"{model: llama2-7b, gpus: 6, plan: {tp: 6}}", "plan.tp: 6 does not divide num_attention_heads 32 (use 1, 2)"},
		{"{model: qwen2.5-7b, gpus: 7, plan: {tp: 7}}", "plan.tp: 7 neither divides num_key_value_heads 4 nor is a multiple of it (use 1)"},
		{"{model: llama2-70b, gpus: 16, runtime: {recipe: hf-eager}, plan: {tp: 16}}", "plan.tp: 16 does not divide num_key_value_heads 8, which recipe hf-eager needs (use 1, 2, 4, 8)"},
		{"{model: gpt2, gpus: 8, plan: {cp: 8}, train: {sequence_length: 1000}}", "plan.cp: sequence_length 1000 is not divisible by 2·cp = 16, which balances causal work (use cp 1, 2, 4)"},
		{"{model: llama2-7b, gpus: 8, plan: {tp: 8}, train: {sequence_length: 1001}}", "plan.tp: 8 does not divide the 1001 tokens of a sequence over cp 1, which sequence parallelism cuts; use sequences of 1000 or 1008 tokens, tp 1, or plan.sequence_parallel: false"},
		{"{model: gpt2, gpus: 3, plan: {tp: 3}, train: {sequence_length: 1024}}", "use sequences of 1023 tokens, tp 1, or plan.sequence_parallel: false"},
		{"{model: gpt2, gpus: 6, plan: {tp: 3, cp: 2}, train: {sequence_length: 1000}}", "plan.tp: 3 does not divide the 1000 tokens of a sequence over cp 2, which sequence parallelism cuts; use sequences of 996 or 1008 tokens"},
		{"{model: llama2-7b, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {pp: 2}}", "plan.pp: recipe deepspeed-hf has no pipeline parallelism; use 1 or a recipe that has it"},
		{"{model: llama2-7b, gpus: 8, runtime: {recipe: nanotron}, plan: {cp: 2}}", "plan.cp: recipe nanotron has no context parallelism; use 1 or a recipe that has it"},
		{"{model: llama3-8b, gpus: 8, plan: {cp: 2, cp_comm_type: ulysses}}", `"ulysses" is not a kind of context parallelism; use p2p (keys and values in a ring), a2a (heads by all-to-all) or allgather (of keys that an indexer picks)`},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan}, plan: {cp: 2, cp_comm_type: a2a}}", "plan.cp_comm_type: recipe torchtitan has no a2a; use p2p, or a recipe that has it"},
		{"{model: deepseek-v3, gpus: 8, plan: {cp: 2, cp_comm_type: a2a}}", "plan.cp_comm_type: a2a takes keys and values of one width, which latent attention has not; use p2p"},
		{"{model: llama2-7b, gpus: 3, plan: {cp: 3, cp_comm_type: a2a}, train: {sequence_length: 3072}}", "plan.cp_comm_type: a2a needs heads for every rank, but cp 3 does not divide the 32 of tp 1 (use cp 1, or p2p)"},
		{"{model: llama3-8b, gpus: 16, plan: {tp: 2, cp: 8, cp_comm_type: a2a}}", "plan.cp_comm_type: a2a needs key/value heads for every rank, but cp 8 does not divide the 4 of tp 2 (use cp 1, 2, 4, or p2p)"},
		{"{model: llama2-7b, gpus: 8, plan: {ep: 2}}", "plan.ep: 2, but the model has no experts; leave ep out"},
		{"{model: mixtral-8x7b, gpus: 12, plan: {ep: 3}}", "plan.ep: 3 does not divide the 8 experts (use 1, 2, 4)"},
		{"{model: mixtral-8x7b, gpus: 4, plan: {ep: 4, expert_tp: 2}}", "plan.ep: ep 4 × expert_tp 2 does not divide tp·cp·dp = 4 (use ep 1, 2, or 8 GPUs)"},
		{"{model: mixtral-8x7b, gpus: 12, plan: {expert_tp: 8}}", "plan.expert_tp: 8 does not divide tp·cp·dp = 12 (use 1, 2, 4, or 16 GPUs)"},
		{"{model: llama2-7b, gpus: 8, plan: {expert_tp: 2}}", "plan.expert_tp: 2, but the model has no experts; leave expert_tp out"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: hf-eager}, plan: {expert_tp: 2}}", "plan.expert_tp: recipe hf-eager has no expert parallelism; use 1 or a recipe that has it"},
		{"{model: mixtral-8x7b, gpus: 12, plan: {expert_tp: 3}}", "plan.expert_tp: 3 does not divide moe_intermediate_size 14336 (use 1, 2, 4)"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: torchtitan, release: 25.12}, plan: {tp: 4, ep: 2, expert_tp: 2}}", "plan.expert_tp: 2, but with tp 4 and ep 2 tensor ranks of recipe torchtitan cut experts otherwise (use 1, 4)"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: torchtitan, release: 26.06}, plan: {tp: 4, ep: 2, expert_tp: 4}}", "plan.expert_tp: 4, but with tp 4 and ep 2 tensor ranks of recipe torchtitan cut experts otherwise (use 1)"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: torchtitan}, plan: {tp: 4, expert_tp: 1}}", "plan.expert_tp: 1, but with tp 4 and ep 1 tensor ranks of recipe torchtitan cut experts otherwise (use 4)"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {tp: 2, sequence_parallel: false, expert_tp: 2}}", "plan.expert_tp: 2 with tp 2 needs each tensor rank to hold its own tokens; set sequence_parallel: true or expert_tp 1"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: hf-eager}, plan: {ep: 2}}", "plan.ep: recipe hf-eager has no expert parallelism; use 1 or a recipe that has it"},
		{"{model: mixtral-8x7b, gpus: 12, runtime: {recipe: hf-eager}, plan: {ep: 3}}", "plan.ep: recipe hf-eager has no expert parallelism; use 1 or a recipe that has it"},
		{"{model: gpt2, gpus: 16, plan: {pp: 16}}", "plan.pp: 16 stages (pp 16 × virtual_stages 1) are more than the 12 layers with embedding and head; use pp 1, 2, 4 or 8"},
		{"{model: gpt2, gpus: 8, plan: {pp: 4, virtual_stages: 4}}", "plan.pp: 16 stages (pp 4 × virtual_stages 4) are more than the 12 layers with embedding and head; use pp 2, or virtual_stages of at most 3"},
		{"{model: gpt2, gpus: 1, plan: {virtual_stages: 40}}", "plan.virtual_stages: 40 needs pipeline parallelism; set pp above 1 or leave it out"},
		{"{model: gpt2, gpus: 8, plan: {virtual_stages: 2}}", "plan.virtual_stages: 2 needs pipeline parallelism; set pp above 1 or leave it out"},
		{"{model: llama2-7b, gpus: 4, runtime: {recipe: megatron-lm}, plan: {pp: 4, virtual_stages: 3}}", "plan.virtual_stages: pp 4 × virtual_stages 3 does not divide the 32 layers"},
		{"{model: gpt2, gpus: 4, plan: {pp: 4, schedule: 1fb1}}", `plan.schedule: unknown pipeline schedule "1fb1"; did you mean "1f1b"?`},
		{"{model: gpt2, gpus: 2, plan: {pp: 2, virtual_stages: 2, schedule: dualpipe}, train: {grad_accumulation: 2}}", "plan.schedule: dualpipe: 2 micro batches; needs an even number, at least 4"},
		{"{model: gpt2, gpus: 4, plan: {pp: 2, data_parallel: fsdp1}}", "plan.data_parallel: fsdp1 does not compose with pipeline parallelism; use zero1, ddp or pp 1"},
		{"{model: gpt2, gpus: 4, plan: {pp: 2, data_parallel: zero3}}", "plan.data_parallel: zero3 does not compose with pipeline parallelism"},
		{"{model: gpt2, gpus: 4, plan: {shard_degree: 2, data_parallel: ddp}}", "plan.shard_degree: needs fsdp1, fsdp2 or zero3, or Megatron-Core's zero1; data_parallel is ddp"},
		{"{model: gpt2, gpus: 4, runtime: {recipe: hf-eager}, plan: {shard_degree: 2, data_parallel: zero1}}", "plan.shard_degree: recipe hf-eager has one copy of zero1's states"},
		{"{model: gpt2, gpus: 4, plan: {shard_degree: 2, data_parallel: zero1, offload: optimizer}}", "plan.shard_degree: with plan.offload optimizer it is not known what the host of a copy updates"},
		{"{model: gpt2, gpus: 8, plan: {shard_degree: 3, data_parallel: fsdp2}}", "plan.shard_degree: 3 does not divide the 8 data-parallel ranks (use 1, 2, 4, 8, or 9 GPUs)"},
		{"{model: mixtral-8x7b, gpus: 16, runtime: {recipe: torchtitan}, plan: {ep: 8, shard_degree: 4, data_parallel: fsdp2}}", "plan.shard_degree: 4 makes 4 copies, but ep 8 × expert_tp 1 has 2 of each expert (use 8, 16)"},
		{"{model: llama2-7b, gpus: 16, plan: {data_parallel: fsdp1, shard_optimizer: true}}", "plan.shard_optimizer: there is one copy, in whose shards the optimizer's states are, too; leave it out, or give plan.shard_degree"},
		{"{model: llama2-7b, gpus: 16, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2, shard_degree: 8, shard_optimizer: true}}", "plan.shard_optimizer: only Megatron-FSDP spreads states over copies, not fsdp2 under recipe torchtitan"},
		{"{model: gpt2, plan: {data_parallel: zero4}}", `"zero4" is not a kind of data parallelism; did you mean "zero1"?`},
		{"{model: gpt2, plan: {data_parallel: FSDP2}}", `"FSDP2" is not a kind of data parallelism; did you mean "fsdp2"?`},
		{"{model: gpt2, plan: {data_parallel: zero-3}}", `"zero-3" is not a kind of data parallelism; did you mean "zero3"?`},
		{"{model: gpt2, plan: {data_parallel: ring}}", `"ring" is not a kind of data parallelism; known: ddp, zero1`},
		{"{model: gpt2, plan: {offload: cpu}}", `"cpu" is not what can be left to the host; known: none, optimizer, parameters`},
		{"{model: gpt2, train: {optimizer: AdamW}}", `recipe megatron-core has no "AdamW"; did you mean "adamw"? it has adamw, `},

		{"{model: llama2-7b, plan: {}, train: {recompute: selective, recompute_num_layers: 2}}", "train.recompute_num_layers: 2 needs recompute: full; with selective leave it out"},
		{"{model: llama2-7b, plan: {}, train: {recompute: full, recompute_method: block}}", "train.recompute_method: block needs recompute_num_layers"},
		{"{model: llama2-7b, plan: {}, train: {recompute: full, recompute_method: blocks}}", `"blocks" is not a method of recomputation; use block, uniform, every`},
		{"{model: llama2-7b, plan: {}, train: {recompute: full, recompute_method: every, recompute_num_layers: 2}}", `recipe megatron-core has no "every"; use block or uniform`},
		{"{model: llama2-7b, runtime: {recipe: unsloth}, train: {recompute: selective, lora: {rank: 8}}}", "recipe unsloth has no selective recomputation; use none or full"},
		{"{model: llama2-7b, runtime: {recipe: hf-eager}, train: {recompute: selective}}", "recipe hf-eager has no selective recomputation; use none or full"},
		{"{model: llama2-7b, runtime: {recipe: litgpt}, train: {recompute: selective}}", "recipe litgpt has no selective recomputation; use none or full"},
		{"{model: gpt2, runtime: {recipe: nanogpt}, train: {recompute: selective}}", "recipe nanogpt has no selective recomputation; use none or full"},
		{"{model: gpt2, runtime: {recipe: nanochat}, train: {recompute: full}}", "recipe nanochat has no full recomputation; use none"},
		{"{model: llama2-7b, runtime: {recipe: llm-foundry}, train: {recompute: selective}}", "recipe llm-foundry has no selective recomputation; use none or full"},
		{"{model: llama2-7b, runtime: {recipe: nanotron}, train: {recompute: selective}}", "recipe nanotron has no selective recomputation; use none or full"},
		{"{model: llama2-7b, runtime: {recipe: automodel, release: '26.06'}, train: {recompute: selective}}", "recipe automodel has selective recomputation from 26.07 on; use none or full, or a later runtime.release"},
		{"{model: llama2-7b, plan: {}, runtime: {recipe: nanotron}, train: {recompute: full, recompute_num_layers: 2}}", "recipe nanotron recomputes all layers or none"},
		{"{model: llama2-7b, plan: {pp: 4}, train: {recompute: full, recompute_num_layers: 9, recompute_method: uniform}}", "train.recompute_num_layers: 9; a pipeline stage has up to 8 layers: give 1 to 8"},
		{"{model: llama2-7b, plan: {pp: 4}, train: {recompute: full, recompute_num_layers: -1}}", "train.recompute_num_layers: -1; a pipeline stage has up to 8 layers: give 0 to 8"},
		{"{model: llama2-7b, plan: {pp: 4}, train: {recompute: full, recompute_method: uniform, recompute_num_layers: 3}}", "3 at a time does not divide the layers of each of 4 stages of 32 (use 1, 2, 4, 8)"},
		{"{model: llama2-7b, plan: {data_parallel: fsdp2}, train: {recompute: full, recompute_method: uniform, recompute_num_layers: 4}}", "4 layers at a time need the parameters of all of them, which fsdp2 gathers layer by layer"},
		{"{model: llama2-7b, plan: {pp: 4, stage_layers: [7, 9, 9, 7]}, train: {recompute: full, recompute_method: uniform, recompute_num_layers: 2}}", "2 at a time does not divide the layers of each of 4 stages of 32"},
		{"{model: llama2-7b, plan: {pp: 4, stage_layers: [7, 9, 8, 7]}}", "plan.stage_layers: 7,9,8,7 add up to 31 of the model's 32 layers; give numbers that add up to all"},
		{"{model: llama2-7b, gpus: 3, plan: {pp: 3, stage_layers: [9223372036854775807, 9223372036854775807, 34]}}", "plan.stage_layers: stage 0 has 9223372036854775807 layers, the model 32"},
		{"{model: llama2-7b, gpus: 2, plan: {pp: 2, virtual_stages: 1, schedule: dualpipe, stage_layers: [32]}, train: {grad_accumulation: 8}}", "plan.schedule: dualpipe"},
		{"{model: llama2-7b, plan: {pp: 4, stage_layers: '16,16'}}", "plan.stage_layers: 2 numbers for 4 stages (pp 4 × virtual_stages 1); give one for each in the order of the model"},
		{"{model: llama2-7b, plan: {pp: 4, stage_layers: [16, 0, 8, 8]}}", "plan.stage_layers: stage 1 has no layer, which only the first and the last may"},
		{"{model: llama2-7b, plan: {stage_layers: [32]}}", "plan.stage_layers: needs pipeline parallelism; set pp above 1 or leave it out"},
		{"{model: llama2-7b, plan: {pp: 2, stage_layers: [16, x]}}", `"x" is not a number of layers; give one for each stage, as in [7, 8, 8, 7]`},
		{"{model: llama2-7b, plan: {order: tp-dp-pp}}", `"tp-dp-pp" is not an order of ranks; name tp, cp, ep, dp and pp once each, the innermost first, as in tp-cp-ep-dp-pp`},
		{"{model: llama2-7b, gpus: 16, plan: {cp: 2, pp: 2, order: tp-cp-ep-pp-dp}}", "plan.order: tp-cp-ep-pp-dp does not count pp last, so that ep·expert_tp (1) must be tp·cp (2)"},
		{"{model: llama2-7b, gpus: 16, plan: {cp: 2, tp: 2, data_parallel: fsdp2, shard_degree: 2, order: cp-tp-ep-dp-pp}}", "plan.shard_degree: 2 ranks of cp and dp, between which order cp-tp-ep-dp-pp puts others"},
		{"{model: {model_type: decoder, hidden_size: 2048, num_hidden_layers: 24, num_attention_heads: 32, intermediate_size: 4096, gated_mlp: true, vocab_size: 128256}, gpus: 24, runtime: {recipe: nanotron}, plan: {pp: 24}, train: {grad_accumulation: 24}}",
			"plan.pp: recipe nanotron splits by cost, which leaves the last 3 of 24 stages without work; use a smaller pp"},
		{"{model: gpt2, runtime: {recipe: hf-eager, cross_entropy_impl: native}}", "runtime.cross_entropy_impl: recipe hf-eager has one fused loss; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: hf-eager, cross_entropy_impl: writen}}", `runtime.cross_entropy_impl: "writen" is no loss; use te, native, liger, cut, cut-unfiltered or written`},
		{"{model: gpt2, runtime: {recipe: megatron-core, cross_entropy_impl: written}}", "runtime.cross_entropy_impl: written, but recipe megatron-core has its own loss; leave it out, or use"},
		{"{model: gpt2, runtime: {recipe: nanogpt, fused_cross_entropy: true, cross_entropy_impl: written}}", "runtime.cross_entropy_impl: written, but the loss is fused; set runtime.fused_cross_entropy and runtime.fused_linear_cross_entropy to false"},
		{"{model: gpt2, runtime: {recipe: megatron-core, cross_entropy_impl: liger}}", `runtime.cross_entropy_impl: "liger" is no fused loss; use te or native`},
		{"{model: gpt2, runtime: {recipe: megatron-core}, train: {recompute: full, use_reentrant: true}}", "train.use_reentrant: true, but recipe megatron-core has no other way than its own; leave it out"},
		{"{model: gpt2, runtime: {recipe: torchtitan}, train: {precision: fp8, num_layers_at_end_in_bf16: 1}}", "train.num_layers_at_end_in_bf16: recipe torchtitan has no such layers; leave it out, or use megatron-core, megatron-pretrain or megatron-script"},
		{"{model: gpt2, runtime: {recipe: megatron-core}, train: {precision: fp8, num_layers_at_start_in_bf16: 13}}", "train.num_layers_at_start_in_bf16: 13; give 0 to the 12 layers of the model"},
		{"{model: gpt2, runtime: {recipe: megatron-core}, train: {precision: fp8, num_layers_at_end_in_bf16: -1}}", "train.num_layers_at_end_in_bf16: -1; give 0 to the 12 layers of the model"},
		{"{model: gpt2, runtime: {recipe: megatron-core}, train: {num_layers_at_start_in_bf16: 1}}", "train.num_layers_at_start_in_bf16: 1, but products of bf16 are in 16 bits in all layers; leave it out, or take a train.precision of fewer, as fp8"},
		{"{model: gpt2, hardware: h100-sxm, runtime: {recipe: megatron-core}, train: {precision: fp8-delayed, num_layers_at_start_in_bf16: 1}}", "train.num_layers_at_start_in_bf16: 1, but with delayed scaling the framework refuses such layers; leave it out, or set train.precision to fp8"},
		{"{model: gpt2, runtime: {recipe: megatron-pretrain, cross_entropy_impl: native}}", "runtime.cross_entropy_impl: native, but the loss is not fused; set runtime.fused_cross_entropy to true"},
		{"{gpus: 8}", "model: is missing; give a catalog name"},
		{"{model: gpt2, assumed: [release, \" \"]}", `assumed: " " names nothing; give the keys`},
		{"{model: gpt2, gpus: 2000000}", "gpus: 2000000; give 1 to 1048576"},
		{"{model: gpt2, gpus: 0}", "gpus: 0; give 1 or more, or leave it out"},
		{"{model: gpt2, plan: {tp: 0}, train: {micro_batch: 0}}", "train.micro_batch: 0; give 1 or more"},
		{"{model: gpt2, network: {bandwidth_per_gpu: 0GB/s}}", "network.bandwidth_per_gpu: 0GB/s; give a rate above 0, as in 50GB/s, or leave it out"},
		{"{model: gpt2, runtime: {host_speed: 0}}", "runtime.host_speed: 0; give the speed of the CPUs over that of the machine's own, as in 0.7, or leave it out"},
		{"{model: llama3-8b, gpus: 1, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp1, wrap_one_rank: true}}", "plan.wrap_one_rank: FSDP2 alone wraps one rank, which FSDP1 leaves whole, and it is not known of pipelines; leave it out, or use fsdp2 and no pp"},
		{"{model: llama3-8b, gpus: 2, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp1, adapter_units: false}}", "plan.adapter_units: only PyTorch's FSDP1 has units, and adapters need train.lora; leave it out, or use fsdp1 under hf-eager with train.lora"},
		{"{model: gpt2, plan: {data_parallel: zero1, bucket_view: false}}", "plan.bucket_view: only PyTorch's DDP has it, not zero1 under recipe megatron-core; leave it out"},
		{"{model: gpt2, runtime: {recipe: deepspeed-hf}, plan: {data_parallel: zero1, bucket_view: false}}", "plan.bucket_view: only PyTorch's DDP has it, not zero1 under recipe deepspeed-hf; leave it out"},
		{"{model: gpt2, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2, bucket_view: false}}", "plan.bucket_view: only PyTorch's DDP has it, not fsdp2 under recipe hf-eager; leave it out"},
		{"{model: gpt2, plan: {bucket: 0 MiB}}", "plan.bucket: 0 MiB; give a size above 0, as in 25MiB, or leave it out"},
		{"{model: mixtral-8x7b, train: {expert_imbalance: 0}}", "train.expert_imbalance: 0; give tokens of the busiest expert rank over the mean, 1 or more, or leave it out"},
		{"{model: mixtral-8x7b, train: {expert_capacity: 0.0}}", "train.expert_capacity: 0.0; give rows of every expert over the mean, as in 1 or 1.25, or leave it out"},
		{"{model: gpt2, runtime: {attention: flsh}}", `did you mean "flash"`},
		{"{model: gpt2, gpu: 8}", `unknown key "gpu"; did you mean "gpus" or "runtime.own_runs.gpu"?`},
		{"{model: gpt2, runtime: {compile_scope: layers}}", `runtime.compile_scope: "layers"; use model or layer`},
		{"{model: gpt2, runtime: {compile_scope: layer}}", "runtime.compile_scope: recipe megatron-core is not compiled"},
		{"{model: gpt2, train: {sequence_length: 2048}}", "train.sequence_length: 2048 exceeds the 1024 learned positions of the model; give 1 to 1024"},
		{"{model: opt-1.3b, train: {sequence_length: 2050}}", "train.sequence_length: 2050 exceeds the 2048 learned positions of the model; give 1 to 2048"},
		{"{model: gpt2, train: {precision: bf61}}", `recipe megatron-core has no "bf61"; did you mean "bf16"? it has bf16`},
		{"{model: gpt2, train: {optimizer: adam}}", `train.optimizer: recipe megatron-core has no "adam"; did you mean "adamw"? it has`},
		{"{model: gpt2, train: {recompute: all}}", `train.recompute: "all" is not known`},
		{"{model: gpt2, train: {expert_imbalance: 1.1}}", "train.expert_imbalance: 1.1, but the model has no experts; leave it out"},
		{"{model: mixtral-8x7b, train: {expert_imbalance: 0.5}}", "train.expert_imbalance: 0.5; give tokens of the busiest expert rank over the mean, 1 to 4 where each goes to 2 of 8 experts"},
		{"{model: deepseek-v2-lite, train: {expert_imbalance: 100}}", "train.expert_imbalance: 100; give tokens of the busiest expert rank over the mean, 1 to 10.666 where each goes to 6 of 64 experts"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {ep: 2}, train: {expert_imbalance: 3}}", "train.expert_imbalance: 3, but one of 2 expert ranks has at most 2 times the mean, all tokens; give 1 to 2"},
		{"{model: mixtral-8x7b, train: {expert_capacity: -1}}", "train.expert_capacity: -1; rows of every expert over the mean, as in 1 or 1.25"},
		{"{model: llama2-7b, runtime: {recipe: hf-eager}, train: {precision: bf16-pure, dtypes: {embedding: bf16}}}", "train.dtypes.embedding: bf16, but without autocast everything is in bf16; leave it out, or use bf16-autocast"},
		{"{model: llama2-7b, runtime: {recipe: hf-eager}, train: {precision: bf16-autocast, dtypes: {embedding: fp16}}}", "train.dtypes.embedding: fp16; use bf16, as autocast computes, or fp32, as weights are stored"},
		{"{model: gpt2, runtime: {recipe: nanogpt}, train: {precision: bf16-autocast, dtypes: {embedding: bf16}}}", "train.dtypes.embedding: bf16, but the output layer has the table, too; leave one of dtypes.embedding and tie_word_embeddings out"},
		{"{model: gpt2, runtime: {recipe: megatron-core}, train: {precision: bf16, dtypes: {head: fp8}}}", "train.dtypes.head: fp8, but layers multiply in bf16; the output layer multiplies as they do, or in bf16 where it is left out"},
		{"{model: gpt2, hardware: b200-sxm, runtime: {recipe: megatron-core}, train: {precision: mxfp8, dtypes: {head: fp8}}}", "train.dtypes.head: fp8, but layers multiply in mxfp8; the output layer multiplies as they do, or in bf16 where it is left out"},
		{"{model: gpt2, hardware: h100-sxm, runtime: {recipe: megatron-core}, train: {precision: mxfp8}}", "train.precision: mxfp8 multiplies in mxfp8, which NVIDIA H100 80GB HBM3 has no tensor cores for; use"},
		{"{model: gpt2, hardware: b200-sxm, runtime: {recipe: megatron-core}, train: {precision: fp8-block}}", "train.precision: fp8-block multiplies in fp8-block, which NVIDIA B200 has no tensor cores for; use"},
		{"{model: gpt2, hardware: h100-sxm, runtime: {recipe: megatron-core}, train: {dtypes: {scan: fp32}}}", "train.dtypes.scan: fp32, but gpt2 has no Mamba mixers; leave it out"},
		{"{model: nemotron-3-nano-30b-a3b, hardware: h100-sxm, gpus: 8, runtime: {recipe: automodel-moe}, train: {dtypes: {scan: fp32}}}", "train.dtypes.scan: fp32, but mixers of recipe automodel-moe scan in what they compute in; leave it out, or use megatron-core"},
		{"{model: nemotron-3-nano-30b-a3b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core}, train: {precision: bf16, dtypes: {scan: fp16}}}", "train.dtypes.scan: fp16; states are kept from overflowing in fp32 alone; use fp32, or leave it out"},
		{"{model: gpt2, hardware: b200-sxm, runtime: {recipe: megatron-core}, train: {precision: bf16, dtypes: {attention: mxfp8}}}", "train.dtypes.attention: mxfp8, but layers multiply in bf16; attention multiplies in 8 bits as they do, in fp8 beside fp4, or in bf16 where it is left out"},
		{"{model: gpt2, hardware: b200-sxm, runtime: {recipe: megatron-core, attention: unfused}, train: {precision: mxfp8, dtypes: {attention: mxfp8}}}", "train.dtypes.attention: mxfp8, which unfused attention of recipe megatron-core does not read; leave it out, or use megatron-core with flash"},
		{"{model: gpt2, hardware: h100-sxm, runtime: {recipe: megatron-core}, train: {precision: fp8-block, dtypes: {attention: fp8-block}}}", "train.dtypes.attention: fp8-block, whose kernels have no law on NVIDIA H100 80GB HBM3; leave it out"},
		{"{model: llama3-8b, hardware: b200-sxm, gpus: 2, runtime: {recipe: megatron-core}, train: {precision: mxfp8, dtypes: {attention: mxfp8}}, plan: {cp: 2}}", "train.dtypes.attention: what context ranks (cp 2) exchange of mxfp8 is not known, of fp8 it is; leave it out, or set plan.cp to 1"},
		{"{model: gpt2, train: {lora: {}}}", "train.lora.rank: is missing; give 1 to 16384, as in 16"},
		{"{model: gpt2, train: {lora: {rank: 99999}}}", "train.lora.rank: 99999; give 1 to 16384, as in 16"},
		{"{model: gpt2, train: {lora: {rank: 8, dropout: 1}}}", "train.lora.dropout: 1; give a probability from 0 to below 1, as in 0.05"},
		{"{model: qwen3-30b-a3b, runtime: {recipe: automodel-moe}, train: {lora: {rank: 8}}}", "train.lora: what recipe automodel-moe does with adapters is not known; leave it out, or use deepspeed-hf, hf-compile, hf-compile-layer, hf-eager, megatron-core or megatron-script"},
		{"{model: gpt2, runtime: {recipe: nanotron}, train: {lora: {rank: 8}}}", "train.lora: what recipe nanotron does with adapters is not known; leave it out, or use automodel, deepspeed-hf, hf-compile, hf-compile-layer, hf-eager, megatron-core or megatron-script"},
		{"{model: llama3-8b, train: {lora: {rank: 8, targets: [query]}}}", `train.lora.targets: "query" is not a projection`},
		{"{model: gpt2, runtime: {recipe: hf-eager}, train: {lora: {rank: 8, targets: [gate]}}}", "train.lora.targets: gpt2 has no projection gate; it has q, k, v, o, up, down"},
		{"{model: gpt2, runtime: {recipe: hf-eager}, train: {lora: {rank: 8, targets: [q, v]}}}", "train.lora.targets: gpt2 stores q, k, v as one projection, which has one adapter; name qkv"},
		{"{model: llama3-8b, runtime: {recipe: megatron-core}, train: {lora: {rank: 8, targets: [q, v]}}}", "train.lora.targets: recipe megatron-core stores the parts of qkv as one projection, which has one adapter; name qkv"},
		{"{model: nemotron-h-8b, train: {lora: {rank: 8, targets: [mamba_in]}}}", "targets: \"mamba_in\" is not a projection"},
		{"{model: llama3-8b, gpus: 2, runtime: {recipe: hf-eager}, plan: {tp: 2}, train: {lora: {rank: 8}}}", "plan.tp: 2, but how recipe hf-eager cuts adapters over tensor ranks is not known; set it to 1, or use megatron-core"},
		{"{model: llama3-8b, gpus: 2, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp1}, train: {precision: bf16-pure, dtypes: {adapters: fp32}, lora: {rank: 8}}}", "train.dtypes.adapters: fp32, but fsdp1 shards parameters of one dtype, here bf16; leave it out, or use ddp"},
		{"{model: llama3-8b, train: {dtypes: {adapters: fp32}}}", "train.dtypes.adapters: fp32, but nothing says what adapters there are; give train.lora, or leave it out"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager}, train: {precision: bf16-frozen}}", "train.precision: bf16-frozen is that of adapters beside frozen weights; give train.lora, or use bf16-mixed"},
		{"{model: llama3-8b, gpus: 2, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp1}, train: {precision: nf4-prepared, lora: {rank: 8}}}", "train.precision: nf4-prepared, but fsdp1 shards parameters of one dtype, and these are of fp32 and bf16; take nf4-frozen, or plan.data_parallel ddp"},
		{"{model: llama3-8b, train: {document_length: 5000, sequence_length: 4096}}", "train.document_length: 5000; give the mean tokens of the documents that a sequence of 4096 is packed of, or leave it out"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, release: \"25.06\"}, train: {document_length: 500}}", "train.document_length: 500, but sdpa attention computes whole sequences; leave it out, or use --attention flash"},
		{"{model: llama3-8b, gpus: 2, runtime: {recipe: torchtitan, attention: flash}, plan: {cp: 2}, train: {document_length: 500}}", "train.document_length: 500, but how recipe torchtitan cuts documents over context ranks (cp 2) is not known; leave it out, set plan.cp to 1, or use megatron-core"},
		{"{model: glm-5.2, gpus: 64, runtime: {recipe: torchtitan}}", "runtime.recipe: torchtitan has no attention to the keys that an indexer picks; use deepspeed-hf, hf-eager, megatron-core, megatron-pretrain or megatron-script, or model_type deepseek_v3, whose attention is to all keys"},
		{"{model: glm-5.2, hardware: a100-80g-sxm, gpus: 64, runtime: {recipe: megatron-core}}", "hardware: NVIDIA A100-SXM4-80GB has no kernels for attention to the keys that an indexer picks, which take Hopper or later; use recipe hf-eager, or another machine"},
		{"{model: glm-5.2, gpus: 64, runtime: {recipe: megatron-core}, plan: {tp: 2, sequence_parallel: false}}", "plan.sequence_parallel: attention to the keys that an indexer picks needs it where tp is 2"},
		{"{model: glm-5.2, gpus: 64, runtime: {recipe: megatron-core}, plan: {cp: 2, cp_comm_type: a2a}}", "plan.cp_comm_type: a2a, but attention to the keys that an indexer picks gathers them; use allgather"},
		{"{model: deepseek-v3, gpus: 64, runtime: {recipe: megatron-core}, plan: {cp: 2, cp_comm_type: allgather}}", "plan.cp_comm_type: allgather is for attention to the keys that an indexer picks; use p2p or a2a"},
		{"{model: glm-5.2, gpus: 64, runtime: {recipe: megatron-core}, plan: {pp: 2, stage_layers: [40, 38]}}", "plan.stage_layers: stage 1 begins with layer 40, which sees the keys that a layer before it picks, and stages hand none on; begin stages with layers that pick, as in [38, 40]"},
		{"{model: glm-5.2, gpus: 26, runtime: {recipe: megatron-core}, plan: {pp: 26}}", "plan.pp: 26 stages (pp 26 × virtual_stages 1), which begin with layers that pick keys: there are too few; use fewer"},
		{"{model: glm-5.2, gpus: 64, runtime: {recipe: hf-eager}, train: {indexer_loss: true}}", "train.indexer_loss: recipe hf-eager does not train the indexer; leave it out, or use megatron-core"},
		{"{model: deepseek-v3, gpus: 64, runtime: {recipe: megatron-core}, train: {indexer_loss: false}}", "train.indexer_loss: deepseek-v3 has no indexer; leave it out"},
		{"{model: deepseek-v3, runtime: {recipe: megatron-core}, train: {mtp_layers: 17}}", "train.mtp_layers: 17; give 0 to 16"},
		{"{model: deepseek-v3, runtime: {recipe: torchtitan}, train: {mtp_layers: 1}}", "train.mtp_layers: recipe torchtitan trains no multi-token prediction; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {loss_parallel: false}}", "runtime.loss_parallel: recipe megatron-core has no such switch; leave it out, or use torchtitan or torchtitan-eager"},
		{"{model: gpt2, runtime: {shared_tp_input: false}}", "runtime.shared_tp_input: recipe megatron-core has no such switch; leave it out, or use torchtitan or torchtitan-eager"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, vocab_parallel: false}}", "runtime.vocab_parallel: recipe hf-eager has no such switch; leave it out, or use torchtitan or torchtitan-eager"},
		{"{model: gpt2, runtime: {loss_chunks: 8}}", "runtime.loss_chunks: recipe megatron-core has no loss by chunks; leave it out, or use hf-compile, hf-compile-layer, hf-eager, litgpt, nanochat, nanogpt, pytorch, torchtitan or torchtitan-eager"},
		{"{model: llama3-8b, runtime: {recipe: deepspeed-hf, loss_chunks: 8}}", "runtime.loss_chunks: recipe deepspeed-hf has no loss by chunks"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, loss_chunks: 8, fused_linear_cross_entropy: true}}", "runtime.loss_chunks: 8, but a loss that is fused with the output layer has pieces of its own; leave it out, or runtime.fused_linear_cross_entropy"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, loss_chunks_keep: logits}}", "runtime.loss_chunks_keep: logits, but there are no chunks; give runtime.loss_chunks, or leave it out"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, loss_chunks: 8, loss_chunks_keep: logit}}", `runtime.loss_chunks_keep: "logit" is not known; did you mean "logits"?`},
		{"{model: llama3-8b, runtime: {recipe: torchtitan, loss_chunks: 8, loss_chunks_keep: nothing}}", `runtime.loss_chunks_keep: "nothing" is not known`},
		{"{model: gpt2, runtime: {recipe: torchtitan, loss_chunks: -1}}", "runtime.loss_chunks: -1; give 1 to 256"},
		{"{model: gpt2, runtime: {fused_linear_cross_entropy: true}}", "runtime.fused_linear_cross_entropy: recipe megatron-core has no loss in pieces; leave it out, or use hf-eager"},
		{"{model: {model_type: decoder, hidden_size: 256, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 1024, gated_mlp: false, position: none, vocab_size: 512, separate_heads: true}, gpus: 2, runtime: {recipe: pytorch}, plan: {tp: 2}}", "plan.tp: 2, but how such ranks cut heads that are modules of their own (separate_heads) is not known; set it to 1"},
		{"{model: llama3-8b, runtime: {recipe: torchtitan, fused_linear_cross_entropy: true}}", "runtime.fused_linear_cross_entropy: recipe torchtitan has no loss in pieces; leave it out, or use hf-eager"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, fused_linear_cross_entropy: true, cross_entropy_impl: te}}", `runtime.cross_entropy_impl: "te" is no loss that is fused with the output layer; use liger, cut or cut-unfiltered`},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, cross_entropy_impl: cut}}", "runtime.cross_entropy_impl: cut, but the loss is not fused with the output layer; set runtime.fused_linear_cross_entropy to true, or leave it out"},
		{"{model: llama3-8b, gpus: 2, runtime: {recipe: hf-eager, fused_linear_cross_entropy: true}, plan: {tp: 2}}", "runtime.fused_linear_cross_entropy: an output layer that is fused with the loss is neither cut over tensor ranks (tp 2) nor outside a pipeline's loss (pp 1); leave it out, or set both to 1"},
		{"{model: gpt2, runtime: {permute_fusion: false}}", "runtime.permute_fusion: gpt2 has no experts; leave it out"},
		{"{model: llama2-7b, runtime: {recipe: megatron-lm, rope_fusion: true}}", "runtime.rope_fusion: recipe megatron-lm turns queries and keys in one way; leave it out, or use megatron-core"},
		{"{model: llama2-7b, runtime: {recipe: megatron-deepspeed, rope_fusion: false}}", "runtime.rope_fusion: recipe megatron-deepspeed turns queries and keys in one way; leave it out, or use megatron-core"},
		{"{model: llama2-7b, runtime: {recipe: torchtitan, rope_fusion: false}}", "runtime.rope_fusion: recipe torchtitan turns queries and keys in one way; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: megatron-core, router_fusion: false}}", "runtime.router_fusion: gpt2 has no experts; leave it out"},
		{"{model: gpt2, runtime: {recipe: torchtitan, overlap_grad_reduce: false}}", "runtime.overlap_grad_reduce: recipe torchtitan reduces gradients in one way; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: deepspeed-hf, overlap_param_gather: true}}", "runtime.overlap_param_gather: recipe deepspeed-hf gathers parameters in one way; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: megatron-pretrain, overlap_param_gather: true}}", "runtime.overlap_param_gather: true, but gradients are not reduced beside the backward pass, without which the framework refuses it; set runtime.overlap_grad_reduce to true, or leave it out"},
		{"{model: gpt2, gpus: 8, runtime: {recipe: deepspeed-hf, overlap_grad_reduce: false}, plan: {data_parallel: zero3}}", "runtime.overlap_grad_reduce: false, but with zero3 gradients are taken to be reduced beside the backward pass; leave it out, or set plan.data_parallel to zero1"},
		{"{model: mixtral-8x7b, runtime: {recipe: torchtitan, router_fusion: false}}", "runtime.router_fusion: recipe torchtitan chooses experts in one way; leave it out, or use megatron-core"},
		{"{model: llama2-7b, runtime: {recipe: megatron-lm, op_fuser: true}}", "runtime.op_fuser: recipe megatron-lm has none; leave it out, or use megatron-core"},
		{"{model: llama2-7b, runtime: {recipe: torchtitan, qkv_rope_fusion: true}}", "runtime.qkv_rope_fusion: recipe torchtitan has no such kernel; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: megatron-core, qkv_rope_fusion: true}}", "runtime.qkv_rope_fusion: its kernel is for queries and keys that are turned as they are projected, not those of gpt2; leave it out"},
		{"{model: qwen3-8b, runtime: {recipe: megatron-core, qkv_rope_fusion: true}}", "runtime.qkv_rope_fusion: its kernel is for queries and keys that are turned as they are projected, not those of qwen3-8b; leave it out"},
		{"{model: llama2-7b, runtime: {recipe: megatron-core, rope_fusion: false, qkv_rope_fusion: true}}", "runtime.qkv_rope_fusion: runtime.rope_fusion is false; leave one of them out"},
		{"{model: llama2-7b, runtime: {recipe: hf-eager, rotary: complex}}", "runtime.rotary: recipe hf-eager turns queries and keys in one way; leave it out, or use litgpt, nanogpt or pytorch"},
		{"{model: gpt2, runtime: {recipe: pytorch, rotary: complex}}", "runtime.rotary: gpt2 has no rotary positions; leave it out"},
		{"{model: llama2-7b, runtime: {recipe: pytorch, rotary: pairs}}", "runtime.rotary: \"pairs\" is not known; known: halves, interleaved, complex"},
		{"{model: llama2-7b, runtime: {recipe: pytorch, rotary: complex, cast_rotary: true}}", "runtime.cast_rotary: true, but heads that are turned as complex are so in fp32; leave it out, or set runtime.rotary to halves"},
		{"{model: llama2-7b, runtime: {recipe: hf-eager, zero_init: false}}", "runtime.zero_init: recipe hf-eager makes models in one way; leave it out, or use deepspeed-hf"},
		{"{model: llama2-7b, runtime: {recipe: nanogpt, cast_rotary: true}}", "runtime.cast_rotary: a compiler casts tables in the kernels that read them; leave it out"},
		{"{model: llama2-7b, runtime: {recipe: litgpt, compile_scope: layer, cast_rotary: false}}", "runtime.cast_rotary: a compiler casts tables in the kernels that read them; leave it out"},
		{"{model: llama3-8b, runtime: {recipe: nanochat, enable_gqa: false}}", "runtime.enable_gqa: recipe nanochat hands keys to attention in one way; leave it out, or use litgpt, nanogpt or pytorch"},
		{"{model: gpt2, runtime: {recipe: pytorch, cast_rotary: true}}", "runtime.cast_rotary: gpt2 has no rotary positions; leave it out"},
		{"{model: llama3-8b, runtime: {recipe: torchtitan, enable_gqa: false}}", "runtime.enable_gqa: recipe torchtitan hands keys to attention in one way; leave it out, or use litgpt, nanogpt or pytorch"},
		{"{model: llama2-7b, runtime: {recipe: pytorch, enable_gqa: true}}", "runtime.enable_gqa: llama2-7b has keys for each query head; leave it out"},
		{"{model: llama3-8b, runtime: {recipe: pytorch, attention: unfused, enable_gqa: true}}", "runtime.enable_gqa: true, but unfused attention repeats keys that heads share; leave it out, or use sdpa"},
		{"{model: llama2-7b, runtime: {recipe: hf-eager, norm_fusion: true}}", "runtime.norm_fusion: recipe hf-eager has one kind of norms; leave it out, or use cs336, pytorch or torchtitan-eager"},
		{"{model: gpt2, runtime: {recipe: torchtitan-eager, norm_fusion: false}}", "runtime.norm_fusion: recipe torchtitan-eager has one kind of norms; leave it out, or use cs336 or pytorch"},
		{"{model: olmo-7b, runtime: {recipe: pytorch, norm_fusion: false}}", "runtime.norm_fusion: olmo-7b has neither RMS norms nor layer norms with weights; leave it out"},
		{"{model: mixtral-8x7b, runtime: {recipe: pytorch}}", "use hf-eager"},
		{"{model: gpt2, runtime: {recipe: megatron-core, rope_fusion: false}}", "runtime.rope_fusion: gpt2 has no rotary positions; leave it out"},
		{"{model: mixtral-8x7b, runtime: {recipe: torchtitan, permute_fusion: false}}", "runtime.permute_fusion: recipe torchtitan moves rows of experts in one way; leave it out, or use megatron-core"},
		{"{model: mixtral-8x7b, runtime: {recipe: megatron-core, permute_fusion: false, token_dispatcher: flex}}", "runtime.permute_fusion: false, but the flex dispatcher permutes rows itself; leave it out, or take token_dispatcher: alltoall"},
		{"{model: gpt2, runtime: {recipe: megatron-core, cuda_graphs: router}}", "runtime.cuda_graphs: router, but gpt2 has no experts; give one of none, mixers, layers, full"},
		{"{model: gpt2, train: {expert_capacity: 1}}", "train.expert_capacity: 1, but the model has no experts; leave it out"},
		{"{model: mixtral-8x7b, runtime: {recipe: hf-eager}, train: {expert_capacity: 1}}", "train.expert_capacity: recipe hf-eager pads no experts to a capacity; leave it out, or use megatron-core"},
		{"{model: mixtral-8x7b, gpus: 8, plan: {ep: 8}, runtime: {recipe: megatron-core, token_dispatcher: deepep}, train: {expert_capacity: 1}}", "train.expert_capacity: DeepEP, which token_dispatcher deepep is here, pads no experts to a capacity; leave it out, or use alltoall or hybridep"},
		{"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 8, plan: {ep: 8}, runtime: {recipe: megatron-core, token_dispatcher: flex}, train: {expert_capacity: 1}}", "train.expert_capacity: DeepEP, which token_dispatcher flex is here, pads no experts"},
		{"{model: llama2-7b, runtime: {recipe: torchtitan, gate_fusion: false}}", "runtime.gate_fusion: recipe torchtitan applies gates in one way; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: megatron-core, expert_gemm: torch}}", "runtime.expert_gemm: gpt2 has no experts; leave it out"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: megatron-core, expert_gemm: triton}}", "runtime.expert_gemm: \"triton\" is not known; known: cublas, cutlass, torch"},
		{"{model: mixtral-8x7b, gpus: 8, runtime: {recipe: torchtitan, expert_gemm: cublas}}", "runtime.expert_gemm: recipe torchtitan multiplies for experts in one way; leave it out, or use megatron-core"},
		{"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, expert_gemm: cutlass}, train: {precision: fp8}}", "runtime.expert_gemm: cutlass multiplies in 16 bits, but train.precision is fp8; use bf16, or leave it out"},
		{"{model: mixtral-8x7b, hardware: b200-sxm, gpus: 8, runtime: {recipe: megatron-core, expert_gemm: cutlass}}", "runtime.expert_gemm: cutlass runs on Hopper GPUs alone, and b200-sxm is none; leave it out"},
		{"{model: mixtral-8x7b, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: megatron-core, expert_gemm: torch}}", "runtime.expert_gemm: torch has kernels for Hopper and Blackwell GPUs, and a100-80g-sxm is none; leave it out"},
		{"{model: gpt-oss-20b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, expert_gemm: cutlass}}", "runtime.expert_gemm: cutlass adds no biases, which the experts of gpt-oss-20b have; leave it out"},
		{"{model: gpt2, hardware: h100-sxm, runtime: {recipe: megatron-core, amax_reduction: data}, train: {precision: fp8-delayed}}", "runtime.amax_reduction: \"data\" is not known; known: all, tensor, none"},
		{"{model: gpt2, hardware: h100-sxm, runtime: {recipe: megatron-core, amax_reduction: tensor}, train: {precision: fp8}}", "runtime.amax_reduction: tensor, but recipe megatron-core takes no scales of precision fp8 from the passes before; leave it out, or set train.precision to fp8-delayed"},
		{"{model: gpt2, runtime: {recipe: torchtitan}, train: {token_metrics: true}}", "train.token_metrics: recipe torchtitan takes none; leave it out, or use deepspeed-hf, hf-compile, hf-compile-layer or hf-eager"},
		{"{model: gpt2, runtime: {recipe: nanogpt}, train: {token_metrics: true}}", "train.token_metrics: recipe nanogpt takes none"},
		{"{model: gpt2, runtime: {recipe: pytorch}, train: {token_metrics: true}}", "train.token_metrics: recipe pytorch takes none"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, fused_linear_cross_entropy: true, liger_kernels: true}, train: {token_metrics: true}}", "train.token_metrics: the loss makes no whole logits to take them from; leave it out, or runtime.fused_linear_cross_entropy and runtime.loss_chunks"},
		{"{model: gpt2, runtime: {recipe: hf-eager, one_connection: true}}", "runtime.one_connection: recipe hf-eager is predicted with several connections alone; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: hf-eager, nan_checks: true}}", "runtime.nan_checks: recipe hf-eager has no such checks; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: megatron-core, nan_checks: true, cuda_graphs: full}}", "runtime.nan_checks: whole steps are replayed from CUDA graphs, in which the host reads nothing; leave it out"},
		{"{model: gpt2, runtime: {recipe: hf-eager, gradient_fusion: false}}", "runtime.gradient_fusion: recipe hf-eager adds gradients up in one way; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: megatron-lm, release: '22.01', gradient_fusion: false}}", "runtime.gradient_fusion: recipe megatron-lm adds gradients up in one way; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {recipe: megatron-core, gate_fusion: false}}", "runtime.gate_fusion: gpt2 has no gated MLP; leave it out"},
		{"{model: llama3-8b, gpus: 8, plan: {pp: 1, drain_every: 4}, runtime: {recipe: torchtitan}, train: {grad_accumulation: 8}}", "plan.drain_every: 4, but there is no pipeline; leave it out, or set pp"},
		{"{model: llama3-8b, gpus: 8, plan: {pp: 4, drain_every: 4}, train: {grad_accumulation: 8}}", "plan.drain_every: 4, but pipelines of recipe megatron-core take in all micro batches of a step; leave it out"},
		{"{model: llama3-8b, gpus: 8, plan: {pp: 4, drain_every: 3}, runtime: {recipe: torchtitan}, train: {grad_accumulation: 8}}", "plan.drain_every: 3 does not divide the 8 micro batches of a step (use 1, 2, 4, 8)"},
		{"{model: llama3-8b, runtime: {recipe: automodel-moe}}", "runtime.recipe: automodel-moe is for models with experts, of which llama3-8b has none; use automodel"},
		{"{model: qwen3-30b-a3b, runtime: {recipe: automodel}}", "runtime.recipe: automodel is not how its framework runs models with experts, as qwen3-30b-a3b is; use automodel-moe"},
		{"{model: qwen3-30b-a3b, gpus: 8, plan: {tp: 2, ep: 4}, runtime: {recipe: automodel-moe}}", "plan.tp: 2, but recipe automodel-moe cuts no matrices over ranks; use tp 1 and expert_tp 1, and ep or more of dp"},
		{"{model: gpt2, gpus: 8, plan: {tp: 2}, runtime: {recipe: nanogpt}}", "plan.tp: 2, but recipe nanogpt cuts no matrices over ranks; use 1, and more of dp"},
		{"{model: qwen3-30b-a3b, gpus: 8, plan: {ep: 8}, runtime: {recipe: automodel-moe, token_dispatcher: alltoall}}", "runtime.token_dispatcher: alltoall, but recipe automodel-moe exchanges rows by kernels of their own; leave it out, or use deepep or hybridep"},
		{"{model: qwen3-30b-a3b, gpus: 8, plan: {ep: 8}, runtime: {recipe: automodel-moe, ep_overlap: true}}", "runtime.ep_overlap: recipe automodel-moe does not exchange rows beside another micro batch; leave it out, or use megatron-core"},
		{"{model: qwen3-30b-a3b, gpus: 8, plan: {ep: 8}, train: {routing: in-turn}}", "train.routing: in-turn, but recipe megatron-core has no such gate; use even, or recipe automodel-moe"},
		{"{model: gpt2, train: {routing: learned}}", "train.routing: learned, but the model has no experts; leave it out"},
		{"{model: mixtral-8x7b, train: {routing: learnd}}", "train.routing: \"learnd\""},
		{"{model: mixtral-8x7b, train: {routing: learned, expert_imbalance: 1.1}}", "train.routing: learned, but train.expert_imbalance: 1.1 says how even it is; leave one out"},
		{"{model: mixtral-8x7b, train: {routing: learned, expert_capacity: 1}}", "train.routing: learned, but experts of equal capacity are balanced; leave it or train.expert_capacity out"},
		{"{model: mixtral-8x7b, train: {expert_capacity: 1, expert_imbalance: 1.1}}", "train.expert_capacity: experts of equal capacity are balanced; leave train.expert_imbalance: 1.1 out"},
		{"{model: mixtral-8x7b, runtime: {token_dispatcher: all-to-all}}", `runtime.token_dispatcher: "all-to-all" is not known; did you mean "alltoall"`},
		{"{model: mixtral-8x7b, runtime: {recipe: hf-eager, token_dispatcher: deepep}}", "runtime.token_dispatcher: recipe hf-eager has no deepep dispatcher; leave it out, or use megatron-core"},
		{"{model: mixtral-8x7b, runtime: {recipe: megatron-core, permute_fusion: false, token_dispatcher: hybridep}}", "runtime.permute_fusion: false, but the hybridep dispatcher permutes rows itself"},
		{"{model: mixtral-8x7b, runtime: {recipe: megatron-lm, token_dispatcher: flex}}", "runtime.token_dispatcher: recipe megatron-lm has no flex dispatcher; leave it out, or use megatron-core"},
		{"{model: mixtral-8x7b, runtime: {recipe: megatron-core, token_dispatcher: flex, release: \"24.12\"}}", "runtime.token_dispatcher: release 24.12 of recipe megatron-core has no flex dispatcher; leave it out, or name a later release"},
		{"{model: gpt2, runtime: {cuda_graphs: layer}}", `runtime.cuda_graphs: "layer" is not known; did you mean "layers"`},
		{"{model: gpt2, train: {recompute: selective, recompute_modules: [atention]}}", `"atention" is not a part of a layer that can be recomputed; use core_attn, mlp,`},
		{"{model: gpt2, train: {recompute_modules: [mlp]}}", "train.recompute_modules: mlp needs recompute: selective; set it, or leave the modules out"},
		{"{model: mixtral-8x7b, train: {recompute: selective, recompute_modules: mlp}}", "train.recompute_modules: mlp, but mixtral-8x7b has no layer without experts; leave it out"},
		{"{model: gpt2, train: {recompute: selective, recompute_modules: {mlp: true}}}", "expected a list, found a mapping"},
		{"{model: gpt2, train: {recompute: selective, recompute_modules: [mlp, moe_act]}}", "train.recompute_modules: moe_act, but gpt2 has no experts; leave it out"},
		{"{model: mixtral-8x7b, train: {recompute: selective, recompute_modules: mla_up_proj}}", "train.recompute_modules: mla_up_proj, but mixtral-8x7b has no latent attention; leave it out"},
		{"{model: mixtral-8x7b, train: {recompute: selective, recompute_modules: shared_experts}}", "train.recompute_modules: shared_experts, but mixtral-8x7b has no shared experts"},
		{"{model: gpt2, runtime: {recipe: automodel}, train: {recompute: selective, recompute_modules: [mlp]}}", "train.recompute_modules: recipe automodel has none to choose from; leave it out"},
		{"{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 8, intermediate_size: 4096, vocab_size: 1000, gated_mlp: false, num_experts: 8, num_experts_per_tok: 2}, runtime: {recipe: torchtitan}}",
			"runtime.recipe: experts without a gate (gated_mlp: false) are known of hf-eager, of megatron-deepspeed and of megatron-core, there from release 25.07 on or with fused permutation, not so of torchtitan; take one of these, or give experts a gate"},
		{"{model: nemotron-h-8b, plan: {}, runtime: {recipe: torchtitan}}", "runtime.recipe: torchtitan has no Mamba layers; use megatron-core or hf-eager"},
		{"{model: nemotron-h-8b, plan: {}, runtime: {recipe: hf-compile}}", "runtime.recipe: hf-compile has no Mamba layers; use megatron-core or hf-eager"},
		{"{model: nemotron-h-8b, gpus: 2, runtime: {recipe: hf-eager}, plan: {tp: 2}}", "plan.tp: 2, but recipe hf-eager does not cut Mamba layers; use 1, or recipe megatron-core"},
		{"{model: nemotron-h-8b, gpus: 2, runtime: {recipe: hf-eager}, plan: {cp: 2}}", "plan.cp: 2, but recipe hf-eager does not cut Mamba layers; use 1, or recipe megatron-core"},
		{"{model: nemotron-h-8b, gpus: 16, runtime: {recipe: megatron-core}, plan: {tp: 16}}", "plan.tp: 16 does not divide the 8 groups of Mamba heads (use 1, 2, 4, 8)"},
		{"{model: lfm2-350m, plan: {}, runtime: {recipe: megatron-core}}", "runtime.recipe: megatron-core has no short convolution layers; use hf-eager"},
		{"{model: lfm2-350m, gpus: 2, runtime: {recipe: hf-eager}, plan: {tp: 2}}", "plan.tp: 2, but recipe hf-eager does not cut short convolution layers; use 1"},
		{"{model: {model_type: falcon_h1}, plan: {}, runtime: {recipe: megatron-core}}", "runtime.recipe: megatron-core has no paired Mamba layers; use hf-eager"},
		{"{model: qwen3-next-80b-a3b, plan: {}, runtime: {recipe: torchtitan}}", "runtime.recipe: torchtitan has no gated delta layers; use megatron-core or hf-eager"},
		{"{model: qwen3-next-80b-a3b, gpus: 2, runtime: {recipe: hf-eager}, plan: {tp: 2}}", "plan.tp: 2, but recipe hf-eager does not cut gated delta layers; use 1, or recipe megatron-core"},
		{"{model: qwen3-next-80b-a3b, gpus: 32, runtime: {recipe: megatron-core}, plan: {tp: 2, cp: 16}}", "plan.cp: tp 2 × cp 16 does not divide the 16 gated delta heads"},
		{"{model: nemotron-3-nano-30b-a3b, runtime: {recipe: hf-eager, squared_relu_fusion: true}}", "runtime.squared_relu_fusion: recipe hf-eager weighs experts' rows in one way; leave it out, or use megatron-core"},
		{"{model: qwen3-30b-a3b, runtime: {recipe: megatron-core, squared_relu_fusion: true}}", "runtime.squared_relu_fusion: qwen3-30b-a3b has no experts that square a ReLU; leave it out"},
		{"{model: llama3-8b, runtime: {grouped_mlp_fusion: true}}", "runtime.grouped_mlp_fusion: llama3-8b has no experts; leave it out"},
		{"{model: qwen3-30b-a3b, runtime: {recipe: torchtitan, grouped_mlp_fusion: true}}", "runtime.grouped_mlp_fusion: recipe torchtitan has no such kernels; leave it out, or use megatron-core"},
		{"{model: qwen3-30b-a3b, hardware: b200-sxm, runtime: {recipe: megatron-core, grouped_mlp_fusion: true}, train: {precision: bf16}}", "runtime.grouped_mlp_fusion: its kernels are known for experts that multiply in mxfp8; leave it out, or set train.precision: mxfp8"},
		{"{model: nemotron-3-nano-30b-a3b, hardware: b200-sxm, runtime: {recipe: megatron-core, grouped_mlp_fusion: true}, train: {precision: mxfp8}}", "runtime.grouped_mlp_fusion: of experts without a gate it squares a ReLU; set runtime.squared_relu_fusion, or leave it out"},
		{"{model: gpt-oss-20b, hardware: b200-sxm, runtime: {recipe: megatron-core, release: \"26.04\", grouped_mlp_fusion: true}, train: {precision: mxfp8}}", "runtime.grouped_mlp_fusion: its kernels add no biases of experts before release 26.06; set runtime.release to that or a later one, or leave it out"},
		{"{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 8, intermediate_size: 4096, vocab_size: 1000, gated_mlp: false, num_experts: 8, num_experts_per_tok: 2}, runtime: {recipe: megatron-core, permute_fusion: false, release: '25.04'}}",
			"runtime.recipe: experts without a gate (gated_mlp: false) are known of hf-eager, of megatron-deepspeed and of megatron-core, there from release 25.07 on or with fused permutation, not so of megatron-core; take one of these, or give experts a gate"},
		{"{model: gpt2, runtime: {token_dispatcher: flex}}", "runtime.token_dispatcher: gpt2 has no experts; leave it out"},
		{"{model: mixtral-8x7b, runtime: {recipe: nanotron, ep_overlap: true}}", "runtime.ep_overlap: recipe nanotron does not exchange rows beside another micro batch; leave it out, or use megatron-core"},
		{"{model: gpt2, runtime: {own_runs: {ratio: 1.1}}}", "runtime.own_runs: is given without spread, runs, recipe, gpu; give all of what perfplan validate FILE prints of a file of runs, or use --runs FILE"},
		{"{model: gpt2, runtime: {own_runs: {ratio: 1.2, spread: 1.5, runs: 1, recipe: megatron-core, gpu: NVIDIA H100 80GB HBM3}}}", "runtime.own_runs: spread 1.5; give a standard deviation as a share, as in 0.07"},
		{"{model: gpt2, runtime: {own_runs: {ratio: 1.2, spread: 0.1, runs: -1, recipe: megatron-core, gpu: NVIDIA H100 80GB HBM3}}}", "runtime.own_runs: runs -1; give the number of measured runs, 1 or more"},
		{"{model: gpt2, runtime: {own_runs: {ratio: 11, spread: 0.1, runs: 1, recipe: megatron-core, gpu: NVIDIA H100 80GB HBM3}}}", "runtime.own_runs: ratio 11; give measured over predicted step time, 0.1 to 10"},
		{"{model: gpt2, runtime: {own_runs: {ratio: 1.2, spread: 0.1, runs: 1, recipe: hf-eager, gpu: NVIDIA H100 80GB HBM3}}}", `runtime.own_runs: the runs are of recipe "hf-eager", but the job runs megatron-core; measure that, or leave the runs out`},
		{"{model: gpt2, runtime: {own_runs: {ratio: 1.2, spread: 0.1, runs: 1, recipe: megatron-core, gpu: NVIDIA H200}}}", `runtime.own_runs: the runs are of "NVIDIA H200", but the job runs on NVIDIA H100 80GB HBM3; measure there, or leave the runs out`},
		{"{model: gpt2, runtime: {jitter: 1.5}}", "runtime.jitter: 1.5 is outside 0 to 1; give the standard deviation between ranks as a share, as in 0.01"},
		{"{model: gpt2, runtime: {jitter: -0.1}}", "runtime.jitter: -0.1 is outside 0 to 1"},
		{"{model: gpt2, runtime: {host_speed: 21}}", "runtime.host_speed: 21 is outside 0.05 to 20; give the speed of the CPUs over that of the machine's own, as in 0.7"},
		{"{model: gpt2, hardware: v100-32g-sxm, runtime: {recipe: hf-eager, tf32: true}}", "runtime.tf32: Tesla V100-SXM2-32GB has no tensor cores for TF32; leave it out, or use a GPU of the Ampere generation or later"},
		{"{model: gpt2, hardware: v100-32g-sxm, runtime: {attention: flash}}", "runtime.attention: flash, whose kernels Tesla V100-SXM2-32GB does not run; use unfused or a GPU of the Ampere generation or later"},
		{"{model: llama2-7b, train: {sequence_length: -5}}", "train.sequence_length: -5; give 1 to 16777216 tokens"},
		{"{model: gpt2, gpus: 1, plan: {}, train: {global_batch: 131072, micro_batch: 1}}", "train.global_batch: 131072 sequences are 131072 micro batches of 1 on each of 1 replicas; use at most 65536 of them, or larger ones"},
		{"{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 8, num_attention_heads: 8, intermediate_size: 2731, vocab_size: 32000}, gpus: 8, plan: {tp: 2}}", "plan.tp: 2 does not divide intermediate_size 2731 (use 1)"},
		{"{model: deepseek-v3, runtime: {recipe: torchtitan}, train: {recompute: selective, recompute_modules: [mlp]}}", "train.recompute_modules: recipe torchtitan has none to choose from; leave it out"},
		{"{model: gpt2, train: {micro_batch: 1000000000000}}", "train.micro_batch: 1000000000000; give 1 to 65536"},
		{"{model: gpt2, train: {micro_batch: 65537}}", "train.micro_batch: 65537; give 1 to 65536"},
		{"{model: gpt2, plan: {bucket: 1e30B}}", "plan.bucket: 1e+30 bytes; give a size up to 1TiB, as in 25MiB"},
		{"{model: gpt2, gpus: 8, plan: {dp: 8, bucket: 1.01TiB}}", "give a size up to 1TiB, as in 25MiB"},
		{"{model: gpt2, train: {global_batch: -1}}", "train.global_batch: -1; give 1 to 1073741824"},
		{"{model: gpt2, train: {grad_accumulation: 65537}}", "train.grad_accumulation: 65537; give 1 to 65536"},
		{"{model: gpt2, gpus: 8, plan: {}, train: {global_batch: 12}}", "train.global_batch: 12 sequences do not divide into micro batches of 1 on 8 replicas; use a multiple of 8, as in 8"},
		{"{model: gpt2, gpus: 8, plan: {}, train: {global_batch: 16, grad_accumulation: 3}}", "train.grad_accumulation: 3 × micro_batch 1 × dp 8 is 24, not the global_batch 16; leave one of them out"},
		{"{model: gpt2, hardware: a100-80g-sxm, train: {precision: fp8}}", "train.precision: fp8 multiplies in fp8, which NVIDIA A100-SXM4-80GB has no tensor cores for"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {}, train: {lora: {rank: 16}, precision: nf4-frozen}}", "train.precision: nf4-frozen, but how recipe deepspeed-hf holds weights of nf4 is not known; take recipe hf-eager with plan.data_parallel ddp, or precision bf16"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, loss_chunks: 0}}", "runtime.loss_chunks: 0; give 1 for the whole loss at once, or more, or leave it out"},
		{"{model: llama3-8b, gpus: 8, plan: {offload: optimizer, offload_fraction: 0}}", "plan.offload_fraction: 0; give a share above 0, up to 1, or leave it out"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan}, plan: {pp: 2, data_parallel: fsdp2, sync_every_micro_batch: true}}", "plan.sync_every_micro_batch: true, but PyTorch's pipelines reduce sharded gradients once, at the end of a step; leave it out, or set plan.pp to 1"},
		{"{model: gpt2, train: {document_length: 0}}", "train.document_length: 0; give mean tokens of a document, 1 or more, or leave it out"},
		{"{model: gpt2, runtime: {stragglers: [{slowdown: 2}]}}", "rank: is missing; say which rank is slow, as in {rank: 3, slowdown: 1.3}"},
		{"{model: llama3-8b, runtime: {recipe: torchtitan, compile_scope: model}}", "runtime.compile_scope: model, but recipe torchtitan compiles by layer; leave it out, or use recipe hf-compile"},
		{"{model: llama3-8b, runtime: {recipe: aa-scaling, fused_cross_entropy: true}}", "runtime.fused_cross_entropy: recipe aa-scaling has no loss in one kernel; leave it out, or use automodel"},
		{"{model: llama3-8b, runtime: {recipe: nanotron, fused_cross_entropy: true}}", "runtime.fused_cross_entropy: recipe nanotron has no loss in one kernel; leave it out, or use automodel"},
		{"{model: llama3-8b, runtime: {recipe: megatron-core, attention: math}}", "runtime.attention: math is not known in recipe megatron-core; use unfused, or recipe hf-eager"},
		{"{model: bert-large, runtime: {recipe: hf-compile}}", "runtime.attention: sdpa, of which recipe hf-compile makes plain products of fp32 where attention goes both ways"},
		{"{model: llama3-8b, runtime: {recipe: megatron-core, attention: flex}}", "runtime.attention: flex is not known in recipe megatron-core; use flash, or recipe torchtitan or hf-eager"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, attention: flex}, plan: {cp: 2}}", "runtime.attention: flex, whose exchanges among context ranks (plan.cp 2) are not modelled; use sdpa"},
		{"{model: llama3-8b, hardware: v100-32g-sxm, runtime: {recipe: hf-eager, attention: flex}, train: {precision: fp16-autocast}}", "runtime.attention: flex, whose kernels Tesla V100-SXM2-32GB does not run; use sdpa, unfused or a GPU of the Ampere to Blackwell generations"},
		{"{model: llama3-8b, runtime: {recipe: hf-compile, attention: math}}", "runtime.attention: math is not known in recipe hf-compile; use unfused, or recipe hf-eager"},
		{"{model: llama3-8b, runtime: {recipe: hf-compile, upcast: false}}", "runtime.upcast: recipe hf-compile has no other loss; leave it out, or use hf-eager, or hf-compile with runtime.fused_cross_entropy: false"},
		{"{model: llama3-8b, runtime: {recipe: torchtitan, upcast: true}}", "runtime.upcast: recipe torchtitan has no other loss"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, upcast: false, fused_linear_cross_entropy: true}}", "runtime.upcast: a fused loss casts by itself"},
		{"{model: llama3-8b, runtime: {recipe: megatron-core, keeps_logits: true}}", "runtime.keeps_logits: recipe megatron-core has a loop of its own; leave it out, or use"},
		{"{model: llama3-8b, runtime: {recipe: hf-eager, returns_logits: false}}", "runtime.returns_logits: no loss is in a compiled graph of recipe hf-eager here; leave it out, or use"},
		{"{model: llama3-8b, runtime: {recipe: hf-compile, returns_logits: false, fused_cross_entropy: false}}", "runtime.returns_logits: no loss is in a compiled graph"},
		{"{perfplan: job/v2, model: gpt2}", `perfplan: "job/v2" is not a job; expected job/v1`},
	} {
		_, err := decode(c.job)
		require.ErrorContains(t, err, c.want, c.job)
		require.True(t, diag.IsInput(err), c.job)
		require.ErrorContains(t, err, "job.yaml:1:", "%s: the place", c.job)
	}
}

// TestDefaults: what a job leaves out, and that it says so.
func TestDefaults(t *testing.T) {
	j := mustDecode(t, "{model: gpt2-xl}")
	require.True(t, j.Open)
	require.Equal(t, "h100-sxm", j.Hardware.Name)
	require.Equal(t, int64(8), j.GPUs)
	require.Equal(t, int64(1024), j.Train.SequenceLength, "no more than the model has positions")
	require.Len(t, j.Defaulted, 7)

	j = mustDecode(t, "{model: llama2-7b, gpus: 32, plan: {tp: 4, pp: 2}}")
	require.False(t, j.Open)
	require.Equal(t, int64(4), j.Plan.DP)
	require.True(t, j.Plan.SP(), "Megatron's tensor parallelism shares its input along the sequence")
	require.Equal(t, "1f1b", j.Plan.Schedule)
	require.Equal(t, int64(8), j.Train.GradAccumulation, "enough to fill the pipeline")
	require.Equal(t, int64(32), j.Train.GlobalBatch)
	require.Equal(t, "tp 4+sp, pp 2 (1f1b), dp 4, zero1", j.Plan.String())
	require.Equal(t, float64(32*4096), j.Tokens())

	j = mustDecode(t, "{model: gpt2, gpus: 8, plan: {}, train: {global_batch: 64, grad_accumulation: 4}}")
	require.Equal(t, int64(2), j.Train.MicroBatch, "what the two leave")
	require.Contains(t, j.Defaults(), "train.micro_batch = 2 (global_batch over grad_accumulation and dp)")

	const reentrant = "train.use_reentrant = true (default of transformers before 5)"
	for train, want := range map[string]bool{"recompute: full": true, "recompute: none": false, "recompute: full, use_reentrant: true": false} {
		j = mustDecode(t, "{model: gpt2, hardware: h100-sxm, gpus: 2, runtime: {recipe: hf-eager, release: '25.06'}, plan: {data_parallel: ddp}, train: {micro_batch: 1, "+train+"}}")
		require.Equal(t, want, slices.Contains(j.Defaults(), reentrant), train)
	}

	require.Equal(t, "one GPU", func() string { p := mustDecode(t, "{model: gpt2, gpus: 1, plan: {}}").Plan; return p.String() }())
}

// TestReleases: the software of a job is that which its recipe describes, unless it says
// otherwise, and so are the libraries beneath it.
func TestReleases(t *testing.T) {
	newest := mustDecode(t, "{model: gpt2, gpus: 8, runtime: {recipe: hf-eager}}").Hardware.Laws.GEMM.Rate["bf16"]
	for _, c := range []struct {
		runtime   string
		release   string
		noted     bool // that it was taken by default
		older     bool // cuBLAS before 12.6 Update 2
		earlyStop bool // PyTorch 2.1 and later
	}{
		{"recipe: hf-eager", "", false, false, true},
		{"recipe: hf-eager, release: \"24.07\"", "24.07", false, true, true},
		{"recipe: llm-foundry", "23.06", true, true, false},
		{"recipe: llm-foundry, release: \"23.10\"", "23.10", false, true, true},
		{"recipe: llm-foundry, release: \"25.01\"", "25.01", false, false, true},
		{"recipe: llm-foundry, libraries: \"25.11\"", "23.06", true, false, false},
		{"recipe: hf-eager, libraries: \"24.09\"", "", false, true, true},
	} {
		j := mustDecode(t, fmt.Sprintf("{model: gpt2, gpus: 8, runtime: {%s}}", c.runtime))
		require.Equal(t, c.release, j.Runtime.Release.String(), c.runtime)
		require.Equal(t, c.noted, slices.ContainsFunc(j.Defaulted, func(d string) bool { return strings.HasPrefix(d, "runtime.release = 23.06") }), c.runtime)
		require.Equal(t, c.older, j.Hardware.Laws.GEMM.Rate["bf16"] < newest, c.runtime)
		require.Equal(t, c.earlyStop, j.Recipe.Structure.EarlyStop, c.runtime)
	}
}

// TestSyncsEveryMicroBatch: as the plan says, else as kind and framework do.
func TestSyncsEveryMicroBatch(t *testing.T) {
	for _, c := range []struct {
		plan string
		want bool
	}{
		{"data_parallel: ddp", false}, {"data_parallel: zero1", false}, {"data_parallel: fsdp2", false}, {"data_parallel: zero2", true}, {"data_parallel: zero3", true},
		{"data_parallel: zero3, sync_every_micro_batch: false", false}, {"data_parallel: ddp, sync_every_micro_batch: true", true},
	} {
		j := mustDecode(t, fmt.Sprintf("{model: gpt2, gpus: 8, runtime: {recipe: hf-eager}, plan: {%s}, train: {grad_accumulation: 4}}", c.plan))
		require.Equal(t, c.want, j.SyncsEveryMicroBatch(), c.plan)
	}
	for _, c := range []struct {
		recipe, plan string
		want         bool
	}{
		{"torchtitan", "data_parallel: fsdp2", true}, {"torchtitan-eager", "data_parallel: fsdp2", true}, {"torchtitan", "data_parallel: fsdp2, pp: 2", false},
		{"torchtitan", "data_parallel: fsdp2, sync_every_micro_batch: false", false}, {"llm-foundry", "data_parallel: fsdp1", true},
	} {
		j := mustDecode(t, fmt.Sprintf("{model: llama3.2-1b, gpus: 8, runtime: {recipe: %s}, plan: {%s}, train: {grad_accumulation: 4}}", c.recipe, c.plan))
		require.Equal(t, c.want, j.SyncsEveryMicroBatch(), "%s: %s", c.recipe, c.plan)
	}
}

// TestSplit: every layer is on one stage, and stages are alike, or differ by one with
// embedding and head counted as a layer each.
func TestSplit(t *testing.T) {
	require.Equal(t, []int64{8, 8, 8, 8}, Split(32, 4, false))
	require.Equal(t, []int64{15, 16, 16, 15}, Split(62, 4, true), "64 with embedding and head")
	require.Equal(t, []int64{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1}, Split(78, 12, true), "bigscience, chronicles-prequel.md, Re-do")
	auto := mustDecode(t, "{model: gemma-2b, gpus: 4, runtime: {recipe: automodel}, plan: {pp: 4}, train: {grad_accumulation: 4}}")
	require.Equal(t, []int64{5, 5, 4, 4}, auto.Plan.SplitLayers(auto.Model, auto.Recipe, auto.Model.Layers, 4), "AutoModel, generate_hf_model_fqn_per_model_part")
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 32).Draw(t, "stages")
		layers := rapid.Int64Range(n, 200).Draw(t, "layers")
		full := Split(layers, n, true)
		require.Equal(t, (layers+n-1)/n, slices.Max(full), "no stage is fuller than it must be")
		split := Split(layers, n, false)
		var sum int64
		for _, s := range split {
			require.GreaterOrEqual(t, s, int64(0))
			sum += s
		}
		require.Equal(t, layers, sum)
		if layers%n != 0 {
			split[0]++
			split[n-1]++
		}
		require.LessOrEqual(t, slices.Max(split)-slices.Min(split), int64(1))
		require.Len(t, split, int(n))
	})
}

// TestSplitByCost: nanotron's stages of bench_cluster's model (huggingface/bench_cluster,
// create_configs.py; nanotron models/base.py, build_model, by hand) and, of four layers,
// what four ranks said they hold.
func TestSplitByCost(t *testing.T) {
	const layer, head = 4*2048*2048 + 3*4096*2048, 50257 * 2048
	for _, c := range []struct {
		layers int64
		each   []int64
		at     int64
	}{
		{24, []int64{24}, 0},
		{24, []int64{14, 10}, 1},
		{24, []int64{7, 7, 6, 4}, 3},
		{24, []int64{4, 3, 3, 4, 3, 3, 4, 0}, 7},
		{24, []int64{2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 0, 0}, 14}, // the loss alone on the last
		{4, []int64{2, 2, 0, 0}, 2},
	} {
		each, at := SplitByCost(c.layers, int64(len(c.each)), layer, head)
		require.Equal(t, c.each, each)
		require.Equal(t, c.at, at)
	}
}

// TestSplitWeighed: the stages of torchtitan v0.2.2, as its own function names them.
func TestSplitWeighed(t *testing.T) {
	require.Equal(t, []int64{4, 5, 4, 3}, splitWeighed(16, 4))
	require.Equal(t, []int64{2, 3, 2, 2, 2, 2, 2, 1}, splitWeighed(16, 8))
	require.Equal(t, []int64{8, 8}, splitWeighed(16, 2))
}

// TestUnsharedExpertsAreCut: torchtitan's tensor ranks cut experts along their width where no
// ranks share them out, and leave them whole else, unless asked to cut them, too.
func TestUnsharedExpertsAreCut(t *testing.T) {
	for _, c := range []struct {
		recipe, model, plan string
		want                int64
	}{
		{"torchtitan", "mixtral-8x7b", "tp: 4", 4}, {"torchtitan-eager", "mixtral-8x7b", "tp: 2, ep: 4", 1}, {"torchtitan", "mixtral-8x7b", "ep: 2", 1},
		{"torchtitan", "llama3-8b", "tp: 4", 1}, {"megatron-core", "mixtral-8x7b", "tp: 4", 1},
	} {
		j := mustDecode(t, fmt.Sprintf("{model: %s, gpus: 8, runtime: {recipe: %s}, plan: {%s}}", c.model, c.recipe, c.plan))
		require.Equal(t, c.want, j.Plan.ExpertTP, c)
	}
}

// TestLossChunks: torchtitan's loss is by eight chunks from 786e26f of 2026-04-27 on, after which the head's
// unit is sharded again; until then, and without chunks, it stays gathered for its backward pass.
func TestLossChunks(t *testing.T) {
	for _, c := range []struct {
		runtime string
		chunks  int64
		held    bool
	}{
		{"recipe: torchtitan", 8, false}, {`recipe: torchtitan-eager, release: "26.05"`, 8, false}, {`recipe: torchtitan, release: "26.04"`, 0, true},
		{"recipe: torchtitan, loss_chunks: 1", 1, true}, {`recipe: torchtitan, release: "26.04", loss_chunks: 4`, 4, false}, {"recipe: hf-eager", 0, false}, {"recipe: hf-eager, loss_chunks: 4", 4, false},
	} {
		j := mustDecode(t, "{model: llama3-8b, gpus: 8, runtime: {"+c.runtime+"}, plan: {data_parallel: fsdp2}}")
		require.Equal(t, c.chunks, j.Runtime.LossChunks, c.runtime)
		require.Equal(t, c.chunks > 1, j.Runtime.LossChunksKeep == "gradients", c.runtime)
		require.Equal(t, c.held, j.HeldHead(), c.runtime)
	}
}

// TestCompiledLoss: a model compiled whole has its loss in the graph (forward of transformers' classes takes labels; nanoGPT's
// model.py) unless the job says that it is outside, where it may be of logits as they are (LLMs-from-scratch, ch05/10).
func TestCompiledLoss(t *testing.T) {
	for _, c := range []struct {
		runtime string
		fused   bool
	}{
		{"recipe: hf-compile", true}, {"recipe: litgpt", true}, {"recipe: nanogpt", true}, {"recipe: hf-eager", false}, {"recipe: hf-compile-layer", false},
		{"recipe: hf-compile, fused_cross_entropy: false", false}, {"recipe: litgpt, fused_cross_entropy: false, upcast: false", false},
	} {
		j := mustDecode(t, "{model: llama3-8b, runtime: {"+c.runtime+"}}")
		require.Equal(t, c.fused, isOn(j.Runtime.FusedCrossEntropy), c.runtime)
	}
}

// Schedules that hold two stages on a rank have them without being told.
func TestStagesOfSchedules(t *testing.T) {
	for schedule, want := range map[string]int64{"zb-v": 2, "dualpipe-v": 2, "1f1b": 1} {
		j := mustDecode(t, "{model: llama3-8b, gpus: 4, runtime: {recipe: torchtitan-eager}, plan: {pp: 4, schedule: "+schedule+"}, train: {global_batch: 16}}")
		require.Equal(t, want, j.Plan.VirtualStages, schedule)
	}
}

func TestSameButBucket(t *testing.T) {
	j := mustDecode(t, "{model: llama3-8b, gpus: 16, plan: {tp: 2, pp: 2}, train: {global_batch: 64}}")
	require.True(t, j.SameButBucket(j))
	for name, other := range map[string]func(*Job){
		"plan": func(o *Job) { o.Plan.Order = TPPPDP }, "train": func(o *Job) { o.Train.MicroBatch = 2 }, "runtime": func(o *Job) { o.Runtime.HostSpeed = 2 },
		"stragglers": func(o *Job) { o.Runtime.Stragglers = &Stragglers{{Rank: 1, Slowdown: 2}} }, "recipe": func(o *Job) { r := *o.Recipe; o.Recipe = &r },
		"hardware": func(o *Job) { h := *o.Hardware; o.Hardware = &h }, "precision": func(o *Job) { o.Precision.Autocast = true },
	} {
		o := *j
		o.Plan.Bucket = units.MiB
		require.True(t, o.SameButBucket(j))
		other(&o)
		require.False(t, o.SameButBucket(j), name)
	}
}
