package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// How replicas share what they keep, by the program that does it.
const (
	plainDDP   = "ddp"
	byFSDP     = "fsdp"
	byZeRO     = "deepspeed"
	byMegatron = "megatron"
)

// fsdpTypes are the kinds of accelerate and of LLaMA-Factory 1 that shard by FSDP.
var fsdpTypes = []string{"FSDP", "FSDP2", "FSDPTURBO"}

// choose says who shards: DeepSpeed, FSDP, or nobody.
func (h *hub) choose(sharded bool) error {
	ds, fsdp, kind := h.get("deepspeed"), h.get("fsdp"), h.get("distributed_type")
	file := h.get("accelerate.config_file")
	switch name := strings.ToUpper(kind.value); {
	case ds.on() || ds.open != "":
		h.kind, h.plain = byZeRO, ds
	case sharded:
		h.kind, h.plain = byZeRO, argument{from: "deepspeed"}
	case fsdp.on() || fsdp.open != "":
		h.kind, h.plain = byFSDP, fsdp
	case h.speaks(axolotl) && h.within("fsdp_config"): // which turns it on (core/builders/base.py)
		h.kind, h.plain = byFSDP, argument{from: "fsdp_config"}
	case name == "DEEPSPEED":
		h.kind, h.plain = byZeRO, kind
	case slices.Contains(fsdpTypes, name):
		h.kind, h.plain = byFSDP, kind
	case name == "MEGATRON_LM":
		h.kind, h.plain = byMegatron, kind
	case kind.value == "" && file.value != "" && !h.speaks(accelerateConfig):
		h.open("plan.data_parallel", file.from, file.value+" has it: name it by --from, too")
	case slices.Contains([]string{"", "NO", "MULTI_GPU"}, name):
		h.kind, h.plain = plainDDP, kind
	default:
		h.note("%s %s: give plan", kind.from, kind.value)
	}
	if h.kindFrom = h.plain.from; h.kindFrom == "" {
		h.kindFrom = h.without("fsdp") + " and deepspeed"
	}
	if a, b := h.get("bf16"), h.get("fp16"); a.on() && a.given && b.on() && a.value != "auto" {
		return b.fail("%s beside %s: a Trainer refuses both; leave one of them out", b.from, a.from)
	}
	return nil
}

// plan says how replicas share what they keep.
func (h *hub) plan(sharded bool) error {
	h.degrees()
	switch h.kind {
	case byZeRO:
		h.zeroPlan(sharded)
	case byFSDP:
		h.synced()
		return h.fsdp()
	case plainDDP:
		h.ddp()
	}
	return nil
}

// eachBatch is the argument that has gradients reduced with each micro batch.
const eachBatch = accelerator + ".gradient_accumulation_kwargs.sync_each_batch"

// synced says where gradients are reduced with each micro batch (transformers, trainer.py, sync_context).
func (h *hub) synced() {
	if each := h.get(eachBatch); each.on() {
		h.set("plan.sync_every_micro_batch", true, each.from)
	}
}

// zeroPlan reads what accelerate says of DeepSpeed, or which file says it.
func (h *hub) zeroPlan(sharded bool) {
	stage := h.get("deepspeed.zero_stage")
	switch file := h.get("deepspeed.file"); {
	case stage.open != "":
		h.open("plan.data_parallel", stage.from, stage.open)
	case stage.value != "":
		h.set("plan.data_parallel", stages[stage.number()], stage.from)
		states, weights := h.get("deepspeed.offload_optimizer_device"), h.get("deepspeed.offload_param_device")
		h.offloaded(int(stage.number()), offload{states.value, states.from}, offload{weights.value, weights.from})
	case sharded:
	case file.value != "":
		h.open("plan.data_parallel", file.from, file.value+" has the stage of ZeRO: name it by --from, too")
	case h.plain.open != "":
		h.open("plan.data_parallel", h.plain.from, h.plain.open)
	case h.get("deepspeed").on():
		h.open("plan.data_parallel", h.plain.from, h.plain.value+" has the stage of ZeRO: name it by --from, too")
	default:
		h.open("plan.data_parallel", h.plain.from, "a configuration of DeepSpeed has the stage of ZeRO: name it by --from, too")
	}
}

// sharding are the strategies of FSDP, by name and by number.
var shardings = map[string]struct{ kept, hybrid bool }{
	"full_shard": {}, "shard_grad_op": {kept: true}, "hybrid_shard": {hybrid: true}, "hybrid_shard_zero2": {kept: true, hybrid: true}, "_hybrid_shard_zero2": {kept: true, hybrid: true},
	"1": {}, "2": {kept: true}, "4": {hybrid: true}, "5": {kept: true, hybrid: true},
}

// fsdp reads what TrainingArguments and accelerate say of FSDP.
func (h *hub) fsdp() error {
	words := h.get("fsdp")
	version := h.get("fsdp.version")
	two := version.number() == 2
	switch {
	case words.open != "":
		h.open("plan.data_parallel", words.from, words.open)
		return nil
	case two:
		h.set("plan.data_parallel", "fsdp2", version.from)
	case version.given:
		h.set("plan.data_parallel", "fsdp1", version.from)
	default:
		h.set("plan.data_parallel", "fsdp1", h.kindFrom+"; version 1 is the default")
	}
	strategy, reshard, offload := h.get("fsdp.sharding_strategy"), h.get("fsdp.reshard_after_forward"), h.get("fsdp.offload_params")
	wrapped := h.get("fsdp.auto_wrap_policy").on() && !strings.EqualFold(h.get("fsdp.auto_wrap_policy").value, "NO_WRAP")
	if _, named := shardings[strings.ToLower(reshard.value)]; named && !two && reshard.value != "" {
		strategy = reshard
	}
	for _, w := range words.all() {
		switch w {
		case "auto_wrap":
			wrapped = true
		case "offload":
			offload = argument{value: "true", from: words.from}
		case "true", "True":
		default:
			strategy = argument{value: w, from: words.from, fail: words.fail}
		}
	}
	s, ok := shardings[strings.ToLower(strategy.value)]
	switch {
	case strategy.value == "":
	case strings.EqualFold(strategy.value, "no_shard") || strategy.value == "3":
		h.note("%s %s: replicas keep all, as under plan.data_parallel: ddp", strategy.from, strategy.value)
	case !ok:
		return strategy.fail("%s: there is no strategy %q; give full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 or no_shard", strategy.from, strategy.value)
	}
	switch {
	case two && reshard.value != "":
		h.set("plan.reshard_after_forward", reshard.on(), reshard.from)
	case two && (words.on() || h.plain.from == "fsdp_config"):
		h.open("plan.reshard_after_forward", "without reshard_after_forward", "a Trainer's default is false, accelerate's true: give the key")
	case s.kept:
		h.set("plan.reshard_after_forward", false, strategy.from)
	}
	if n, from := h.perNode(); s.hybrid && n > 0 {
		h.set("plan.shard_degree", n, strategy.from+", "+from)
	} else if s.hybrid {
		h.note("%s %s: give plan.shard_degree, the GPUs of a node", strategy.from, strategy.value)
	}
	h.fsdpUnits(two, wrapped)
	switch {
	case offload.on() && two:
		h.set("plan.offload", "parameters", offload.from)
	case offload.on():
		h.note("%s: what FSDP leaves to the host is known of version 2 alone; give plan.offload: parameters with plan.data_parallel: fsdp2", offload.from)
	}
	return nil
}

// fsdpUnits says what units are where they are not layers, and notes where they are not gathered
// ahead. Of a model with adapters PEFT says what they are (transformers, trainer.py,
// _fsdp_qlora_plugin_updates).
func (h *hub) fsdpUnits(two, wrapped bool) {
	policy, n := h.get("fsdp.auto_wrap_policy"), h.get("fsdp.min_num_params")
	sized := wrapped && (n.number() > 0 || strings.EqualFold(policy.value, "SIZE_BASED_WRAP"))
	switch {
	case h.adapted():
	case sized && two:
		h.note("%s: units by size are known of FSDP1 alone; layers are taken", cmp.Or(n.from, policy.from))
	case sized:
		h.set("plan.units", "size", cmp.Or(policy.from, n.from))
		if n.number() > 0 {
			h.set("plan.unit_params", n.number(), n.from)
		}
	case wrapped:
	case policy.value != "":
		h.set("plan.units", "model", policy.from)
	case !two:
		h.set("plan.units", "model", "without auto_wrap")
	}
	if p := h.get("fsdp.backward_prefetch"); !two && !strings.EqualFold(p.value, "backward_pre") {
		h.note("backward_prefetch is %s: parameters are taken to be gathered ahead (backward_pre)", cmp.Or(p.value, "left out, which is none"))
	}
	if c := h.get("fsdp_config"); c.value != "" && !h.speaks(fsdpConfig) {
		h.note("%s %s: name it by --from, too", c.from, c.value)
	}
}

// ddp is that of PyTorch as a Trainer calls it.
func (h *hub) ddp() {
	if h.plain.value == "" && !h.trains() {
		return
	}
	h.set("plan.data_parallel", "ddp", h.kindFrom)
	if h.count("gpus") == 1 {
		return
	}
	by := "accelerate's DistributedDataParallelKwargs"
	if h.speaks(llamaFactoryOne) {
		by = "default of DistributedDataParallel"
	}
	h.set("plan.bucket_view", false, by)
	h.synced()
	if b := h.get("ddp_bucket_cap_mb"); b.number() > 0 {
		h.set("plan.bucket", fmt.Sprintf("%d MiB", b.number()), b.from)
	}
	unused := h.get("ddp_find_unused_parameters")
	switch {
	case unused.on():
		h.note("%s: the graph is searched after each forward pass", unused.from)
	case unused.value == "" && h.trains() && !h.get("gradient_checkpointing").on() && !h.speaks(llamaFactory) && !h.speaks(llamaFactoryOne):
		h.note("%s a Trainer searches the graph for unused parameters after each forward pass, unless it recomputes", h.without("ddp_find_unused_parameters"))
	}
}
