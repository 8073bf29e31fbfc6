package launch

import "fmt"

// megatronFSDP are Megatron-FSDP's strategies by the kind of data parallelism that has as much
// of a step in shards (--data-parallel-sharding-strategy, megatron/training/arguments.py).
var megatronFSDP = map[string]string{"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "fsdp1"}

// sharding is the argument that turns on Megatron-FSDP, or an older name of it; "" where none does.
func (m *megatron) sharding() string { return m.first("use_megatron_fsdp", "use_custom_fsdp") }

// fsdp says how Megatron-FSDP shards a step, which it does with a distributed optimizer
// whatever is said of one.
func (m *megatron) fsdp() {
	kind, from := m.strategy()
	to, known := megatronFSDP[kind]
	if !known {
		m.open("plan.data_parallel", from, kind+" is none of Megatron-FSDP's strategies: give the key")
		return
	}
	m.set("plan.data_parallel", to, from+" of "+m.from(m.sharding()))
}

// torchFSDP says how PyTorch's FSDP2 shards a step, which has neither Megatron's buckets nor
// its distributed optimizer.
func (m *megatron) torchFSDP() {
	m.set("plan.data_parallel", "fsdp2", m.from("use_torch_fsdp2"))
	const no, log = "torch_fsdp2_no_reshard_after_forward", "torch_fsdp2_reshard_after_forward"
	if m.has(no) {
		m.set("plan.reshard_after_forward", false, m.from(no))
	} else {
		m.take("plan.reshard_after_forward", log)
	}
}

// strategy is Megatron-FSDP's, and what says so.
func (m *megatron) strategy() (kind, from string) {
	const name = "data_parallel_sharding_strategy"
	if m.has(name) {
		return m.word(name), m.from(name)
	}
	return "optim_grads_params", "default of " + m.from(name)
}

// copies says how many ranks share one copy of what is sharded: of the parameters, or of the
// optimizer's states.
func (m *megatron) copies() {
	const instances = "num_distributed_optimizer_instances"
	n := m.number(instances)
	switch {
	case n < 2:
		return
	case !m.shardsParameters() && (m.sharding() != "" || !m.has("use_distributed_optimizer")):
		m.note("%s %d", m.from(instances), n)
		return
	}
	gpus, _ := m.value("gpus").(int64)
	ranks := gpus / max(m.number("tensor_model_parallel_size"), 1) / max(m.number("pipeline_model_parallel_size"), 1)
	switch {
	case gpus == 0:
		m.open("plan.shard_degree", m.from(instances), "how many ranks a copy has depends on the number of GPUs: give the key")
		return
	case ranks%n != 0:
		m.open("plan.shard_degree", m.from(instances), fmt.Sprintf("%d copies do not divide the %d ranks beside tp and pp: give the key", n, ranks))
		return
	}
	m.set("plan.shard_degree", ranks/n, m.from(instances))
	if outer := "outer_dp_sharding_strategy"; m.word(outer) == "optim" {
		m.set("plan.shard_optimizer", true, m.from(outer))
	}
}

// shardsParameters is whether Megatron-FSDP has parameters in shards, too.
func (m *megatron) shardsParameters() bool {
	kind, _ := m.strategy()
	return m.sharding() != "" && megatronFSDP[kind] == "fsdp1"
}

// besidePasses drops switches that say that gradients are not reduced, or parameters not
// gathered, beside the passes, which is not known of shards of parameters.
func (m *megatron) besidePasses() {
	torch := m.has("use_torch_fsdp2") && m.sharding() == "" // for which the switches say nothing
	if !torch && !m.shardsParameters() {
		return
	}
	for _, name := range []string{"overlap_grad_reduce", "overlap_param_gather"} {
		if _, given := m.flags[name]; torch {
			delete(m.flags, name)
		} else if given && !m.has(name) {
			m.note("%s false: with shards of parameters that is taken to be beside the passes", m.from(name))
			delete(m.flags, name)
		}
	}
}

// megatronFSDPTypes are Megatron-FSDP's dtypes by what is in them, first what goes before another. auto is
// as where it is left out.
var megatronFSDPTypes = []struct{ of, name string }{
	{"gradients", "megatron_fsdp_main_grads_dtype"}, {"reduce", "megatron_fsdp_grad_comm_dtype"}, {"reduce", "megatron_fsdp_main_grads_dtype"}, {"master", "megatron_fsdp_main_params_dtype"},
}

// shardTypes says in what Megatron-FSDP keeps and reduces gradients, and keeps weights.
func (m *megatron) shardTypes() {
	for _, t := range megatronFSDPTypes {
		if m.word(t.name) != "auto" && !m.mentions("train.dtypes."+t.of) {
			m.dtype(t.of, t.name)
		}
	}
}
