package launch

import (
	"cmp"
	"strings"
)

// accelerateMegatron are arguments of accelerate for Megatron-LM that are keys of a job, unless
// they have the value that costs nothing (accelerate/utils/dataclasses.py, MegatronLMPlugin).
var accelerateMegatron = []struct{ name, key, free string }{
	{"tp_degree", "plan.tp", "1"}, {"pp_degree", "plan.pp", "1"}, {"context_parallel_size", "plan.cp", "1"}, {"expert_model_parallel_size", "plan.ep", "1"}, {"expert_tensor_parallel_size", "plan.expert_tp", ""},
	{"num_micro_batches", "train.grad_accumulation", ""}, {"recompute_num_layers", "train.recompute_num_layers", ""},
}

// accelerateMegatronKeys are its others.
var accelerateMegatronKeys = keysOf("accelerate-megatron")

// megatronKey reports whether an argument of accelerate's for Megatron-LM needs no word of its own.
func megatronKey(name string) bool {
	name, ok := strings.CutPrefix(name, megatronPrefix)
	if !ok {
		return false
	}
	for _, k := range accelerateMegatron {
		if k.name == name {
			return true
		}
	}
	keys := accelerateMegatronKeys()
	return keys.read[name] || keys.harmless.MatchString(name)
}

const megatronPrefix = "megatron_lm."

// megatron reads what accelerate says of Megatron-LM, which then trains in its place.
func (h *hub) megatron() {
	of := func(name string) argument { return h.get(megatronPrefix + name) }
	h.set("runtime.recipe", megatronRecipe, h.kindFrom)
	for _, k := range accelerateMegatron {
		if a := of(k.name); a.value != k.free && !(strings.HasPrefix(k.key, "train.recompute") && of("recompute_granularity").value != "full") {
			h.put(k.key, megatronPrefix+k.name)
		}
	}
	if s := of("sequence_parallelism"); of("tp_degree").number() > 1 {
		h.set("plan.sequence_parallel", s.on(), cmp.Or(s.from, "without sequence_parallelism"))
	}
	switch z := of("use_distributed_optimizer"); {
	case z.open != "":
		h.open("plan.data_parallel", z.from, z.open)
	case z.on():
		h.set("plan.data_parallel", "zero1", z.from)
	case z.given:
		h.set("plan.data_parallel", "ddp", z.from)
	default:
		h.set("plan.data_parallel", "ddp", "without use_distributed_optimizer")
	}
	if o := of("optimizer_cpu_offload"); o.on() {
		h.set("plan.offload", "optimizer", o.from)
		if over := of("overlap_cpu_optimizer_d2h_h2d"); over.given {
			h.set("plan.offload_overlap", over.on(), over.from)
		}
	}
	if c := of("gradient_clipping"); c.value != "" {
		h.set("train.clip_gradients", c.on(), c.from)
	}
	const key = "train.recompute"
	some, how, method := of("recompute_activations"), of("recompute_granularity"), of("recompute_method")
	switch {
	case how.value == "full" || how.value == "selective":
		h.set(key, how.value, how.from)
		if how.value == "full" && method.value != "" {
			h.set("train.recompute_method", method.value, method.from)
		}
	case some.on():
		h.set(key, "selective", some.from)
	default:
		h.open(key, "without recompute_granularity", "accelerate recomputes all layers by default since 2025, none before: give the key")
	}
	switch mixed, by, unsure := h.mixed(); {
	case unsure:
		h.open("train.precision", by.from, "TRL turned bf16 on by default in 2025: give the key, or bf16")
	case mixed == "fp16": // accelerate/utils/megatron_lm.py leaves accumulate_allreduce_grads_in_fp32 out
		h.keep("fp16", by.from)
		fallthrough
	case mixed != "":
		h.set("train.precision", mixed, by.from)
	case h.trains():
		h.set("train.precision", "fp32", by.from)
	}
}
