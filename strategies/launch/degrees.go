package launch

// degrees are those of accelerate's parallelism_config.
func (h *hub) degrees() {
	for _, d := range []struct{ name, key string }{{"tp_size", "plan.tp"}, {"cp_size", "plan.cp"}} {
		if a := h.get("parallelism." + d.name); a.open != "" || a.number() > 1 {
			h.put(d.key, "parallelism."+d.name)
		}
	}
	if a := h.get("parallelism.cp_size"); a.number() > 1 && h.kind == byZeRO {
		h.note("%s %d: keys and values around a ring are not known under DeepSpeed; heads that ranks trade by all-to-all are taken", a.from, a.number())
	}
	if a := h.get("parallelism.sp_size"); a.number() > 1 && h.kind == byZeRO {
		h.put("plan.cp", "parallelism.sp_size")
		if h.speaks(swift) { // whose all-to-alls are a copy of DeepSpeed's (swift/sequence_parallel/ulysses.py)
			h.note("%s %d: gradients are taken to be reduced in fp32, as where DeepSpeed knows that ranks share a sequence", a.from, a.number())
		}
	} else if a.number() > 1 {
		h.note("%s %d: sequences cut by all-to-all; give plan.cp, plan.cp_comm_type", a.from, a.number())
	}
	if a := h.get("parallelism.cp_comm_strategy"); a.value != "" && h.get("parallelism.cp_size").number() > 1 && h.kind != byZeRO {
		h.note("%s %s: keys and values are taken to go around a ring", a.from, a.value)
	}
	replicas, shards := h.get("parallelism.dp_replicate_size"), h.get("parallelism.dp_shard_size")
	switch {
	case (replicas.number() > 1 || h.speaks(axolotl)) && shards.number() > 1 && h.kind == byFSDP: // of Axolotl's the ranks beyond are replicas (utils/distributed.py)
		h.set("plan.shard_degree", shards.number()*max(h.get("parallelism.cp_size").number(), 1), shards.from)
	case replicas.number() > 1 && h.kind == byFSDP:
		tp := max(h.get("parallelism.tp_size").number(), 1)
		gpus := h.count("gpus")
		if n := replicas.number() * tp; h.speaks(axolotl) && gpus > n && gpus%n == 0 { // the rest are shards (utils/distributed.py)
			h.set("plan.shard_degree", gpus/n, replicas.from)
		} else {
			h.note("%s %d: give plan.shard_degree, the GPUs over %s", replicas.from, replicas.number(), copies(replicas.number(), tp, 1))
		}
	}
}
