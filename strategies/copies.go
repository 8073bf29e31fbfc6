package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/whole"
)

// Wraps reports whether units of parameters are gathered and their gradients reduced among so
// many data ranks. One does so where the host's memory has its shards, or where the plan says
// that FSDP2 wraps it: fully_shard takes a mesh of one rank as any other (_fsdp_param_group.py).
func (p *Plan) Wraps(ranks int64) bool {
	return p.DataParallel.ShardsParameters() && (ranks > 1 || p.OffloadsParameters() || p.WrapOneRank != nil && *p.WrapOneRank)
}

// StatesOverCopies reports whether copies share the optimizer's states.
func (p *Plan) StatesOverCopies() bool { return p.ShardOptimizer != nil && *p.ShardOptimizer }

// checkCopies returns the first rule that several copies of what is sharded break (HSDP).
func (p *Plan) checkCopies(s Shape) error {
	n, ranks, over := p.ShardDegree, p.DP*p.CP, p.StatesOverCopies()
	switch {
	case over && (n == 0 || n == ranks):
		return diag.Errorf("plan.shard_optimizer: there is one copy, in whose shards the optimizer's states are, too; leave it out, or give plan.shard_degree")
	case over && (p.DataParallel != FSDP1 || !s.Recipe.Structure.MainGradients):
		return diag.Errorf("plan.shard_optimizer: only Megatron-FSDP spreads states over copies, not %s under recipe %s; leave it out, or use fsdp1 under megatron-core", p.DataParallel, s.Recipe.Name)
	case over && p.Offloads():
		return diag.Errorf("plan.shard_optimizer: with plan.offload %s it is not known what the host updates; leave one out", p.Offload)
	case n == 0:
		return nil
	case p.DataParallel == ZeRO1 && !s.Recipe.Structure.StateCopies:
		return diag.Errorf("plan.shard_degree: recipe %s has one copy of zero1's states; leave it out, or use fsdp1, fsdp2, zero3 or recipe megatron-core", s.Recipe.Name)
	case !p.DataParallel.ShardsParameters() && p.DataParallel != ZeRO1:
		return diag.Errorf("plan.shard_degree: needs fsdp1, fsdp2 or zero3, or Megatron-Core's zero1; data_parallel is %s", p.DataParallel)
	case !p.DataParallel.ShardsParameters() && p.Offloads():
		return diag.Errorf("plan.shard_degree: with plan.offload %s it is not known what the host of a copy updates; leave one out", p.Offload)
	case ranks%n != 0:
		return diag.Errorf("plan.shard_degree: %d does not divide the %d data-parallel ranks (use %s%s)", n, ranks, list(whole.Divisors(ranks, 4096)), p.anyDP().orGPUs(s))
	}
	// A copy has all experts (Megatron-Core, parallel_state.py: num_distributed_optimizer_instances
	// divide expert_data_parallel_size; torchtitan, parallel_dims.py: efsdp).
	if holders, copies := p.expertHolders(s), ranks/n; holders%copies != 0 {
		whole := degrees(ranks, 1, 4096, func(n int64) bool { return holders%(ranks/n) == 0 })
		return diag.Errorf("plan.shard_degree: %d makes %d copies, but ep %d × expert_tp %d has %d of each expert (use %s)", n, copies, p.EP, p.ExpertTP, holders, list(whole))
	}
	return nil
}

// expertHolders is how many ranks of a stage have the same experts, or the same part of them.
func (p *Plan) expertHolders(s Shape) int64 {
	ranks := p.DP * p.CP
	if s.Model.MoE == nil || p.EP*p.ExpertTP <= 1 {
		return ranks
	}
	return p.TP * ranks / (p.EP * p.ExpertTP)
}
