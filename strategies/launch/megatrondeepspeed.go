package launch

import (
	"slices"
	"strconv"

	"github.com/perfplan/perfplan/model/recipe"
)

// forkNames are arguments of Megatron-DeepSpeed by what Megatron-LM calls them, those of experts
// with their defaults (megatron/arguments.py).
var forkNames = []struct{ name, as, standard string }{
	{"num_key_value_heads", "num_query_groups", ""}, {"ds_sequence_parallel_size", "context_parallel_size", ""},
	{"topk", "moe_router_topk", "1"}, {"moe_expert_parallel_size", "expert_model_parallel_size", ""}, {"moe_loss_coeff", "moe_aux_loss_coeff", "0.1"},
}

// forkFlash are those that turn on FlashAttention, forkWhole those that are whole numbers.
var (
	forkFlash = []string{"use_flash_attn", "use_flash_attn_v1", "use_flash_attn_v2", "use_flash_attn_triton", "use_flash_attn_builder"}
	forkWhole = words("num_key_value_heads ds_sequence_parallel_size topk moe_expert_parallel_size expert_interval")
)

// fork brings arguments of Megatron-DeepSpeed into Megatron-LM's.
func (m *megatron) fork() {
	if !m.has("deepspeed") {
		return
	}
	m.forkExperts()
	for _, n := range forkNames {
		f, ok := m.flags[n.name]
		switch {
		case n.standard != "" && !m.has("num_experts"):
		case ok:
			m.flags[n.as], m.names[n.as] = f, m.from(n.name)
		case n.standard != "":
			m.flags[n.as], m.names[n.as] = flag{value: n.standard}, "default of "+m.from(n.name)
		}
	}
	for _, name := range forkFlash {
		if m.has(name) {
			m.follows("attention_backend", "flash", name)
		}
	}
	if m.has("num_key_value_heads") {
		m.follows("group_query_attention", "true", "num_key_value_heads")
	}
	if m.word("moe_token_dropping") == "False" { // as logs have it
		m.follows("disable_moe_token_dropping", "true", "moe_token_dropping")
	}
	if m.has("num_experts") && !m.has("enable_expert_tensor_parallelism") {
		m.flags["expert_tensor_parallel_size"], m.names["expert_tensor_parallel_size"] = flag{value: "1"}, "without "+m.from("enable_expert_tensor_parallelism")
	}
}

// forkExperts says how many experts layers have: one is none, and of a list all have as many as the
// last, which has most.
func (m *megatron) forkExperts() {
	const name = "num_experts"
	f := m.flags[name]
	all, ok := numbers(m.word(name))
	switch {
	case f.open != "" || !ok:
		return
	case slices.Max(all) == 1:
		delete(m.flags, name)
		return
	case slices.Min(all) != slices.Max(all):
		m.note("%s %s: as many experts in all layers that have some are known; the most are taken", m.from(name), f.value)
	}
	f.value = strconv.FormatInt(slices.Max(all), 10)
	m.flags[name] = f
}

// forkRelease says which software has what is asked for, where that is later than what the recipe
// describes: context ranks.
func (m *megatron) forkRelease() {
	const ranks = "context_parallel_size"
	r, err := recipe.Load(shardedRecipe)
	if err == nil && m.number(ranks) > 1 {
		m.set("runtime.release", r.ContextsSince().String(), m.from(ranks)+", which came with it")
	}
}

// forkPlan says how Megatron-DeepSpeed shares a step.
func (m *megatron) forkPlan() {
	const stage, zeroBubble = "zero_stage", "enable_zbh1_pipeline"
	switch n := m.number(stage); {
	case n > 0 && n < int64(len(stages)):
		m.set("plan.data_parallel", stages[n], m.from(stage))
	case m.word(stage) == "0": // 1.0 is the default of a log, which no stage follows from
		m.set("plan.data_parallel", stages[0], m.from(stage))
	default:
		m.open("plan.data_parallel", m.given(stage), "the configuration of DeepSpeed has the stage of ZeRO: name it by --from, too")
	}
	if m.has(zeroBubble) && m.number("pipeline_model_parallel_size") > 1 {
		m.set("plan.schedule", "zb-h1", m.from(zeroBubble))
	}
	if m.has("cpu_optimizer") {
		m.set("plan.offload", "optimizer", m.from("cpu_optimizer"))
	}
}

// forkRouting says how many rows experts have: each takes as many, where more are dropped and fewer
// filled up, or, without dropping, as many as the busiest of all.
func (m *megatron) forkRouting() {
	const name, busiest, key = "moe_train_capacity_factor", "disable_moe_token_dropping", "train.expert_capacity"
	if m.has(busiest) {
		m.open(key, m.from(busiest), "experts are filled up to the rows of the busiest: give how many times the mean it has, as in 1.3")
	} else {
		m.takeOr(key, name, int64(1))
	}
}

// forkInterval says which layers have experts: the last of each so many.
func (m *megatron) forkInterval() {
	m.takeOr("model.decoder_sparse_step", "expert_interval", int64(2))
}
