package strategies

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// CPCommType is how context-parallel ranks come by each other's keys and values, in
// Megatron's words (--cp-comm-type). The empty one is the recipe's usual.
type CPCommType string

// Ways of context parallelism: keys and values pass by in a ring, or each rank trades
// positions for heads by all-to-all before attention and back after it, as DeepSpeed's
// Ulysses does.
const (
	P2P       CPCommType = "p2p"
	A2A       CPCommType = "a2a"
	AllGather CPCommType = "allgather" // of keys before attention: to those that an indexer picks alone
)

// UnmarshalText accepts one of the ways.
func (c *CPCommType) UnmarshalText(b []byte) error {
	switch *c = CPCommType(b); *c {
	case P2P, A2A, AllGather:
		return nil
	}
	return fmt.Errorf("%q is not a kind of context parallelism; use %s (keys and values in a ring), %s (heads by all-to-all) or %s (of keys that an indexer picks)", b, P2P, A2A, AllGather)
}

// ByHeads reports whether context ranks trade positions for heads around attention.
func (p *Plan) ByHeads() bool { return p.CP > 1 && p.CPCommType == A2A }

// contextsBy is how context ranks of a plan come by keys and values: as it says, or as its
// recipe does by itself, of which a ring needs no word.
func (s *Shape) contextsBy(p *Plan) CPCommType {
	if kinds := s.Recipe.CPCommTypes; p.CPCommType == "" && len(kinds) > 0 && kinds[0] != string(P2P) {
		return CPCommType(kinds[0])
	}
	return p.CPCommType
}

// chunks is the number of equal parts of a sequence of cp ranks. A ring balances causal
// work by giving each the n-th from either end, and Megatron cuts alike for all-to-all.
func (s *Shape) chunks(cp int64) int64 {
	if slices.Contains(s.Recipe.CPCommTypes, string(P2P)) {
		return 2 * cp
	}
	return cp
}

// checkContexts returns the first rule that splitting sequences breaks.
func (p *Plan) checkContexts(s Shape) error {
	m, seq := s.Model, s.Train.SequenceLength
	heads, kv := m.Heads/p.TP, max(m.KVHeads/p.TP, 1) // of a tensor rank
	use := func() string { return "use cp " + list(p.legalCP(s)) }
	rings, or := slices.Contains(s.Recipe.CPCommTypes, string(P2P)), ""
	if rings {
		or = ", or p2p"
	}
	kind := cmp.Or(p.CPCommType, P2P)
	switch {
	case s.gathersKeys() && p.TP > 1 && !p.SP():
		return diag.Errorf("plan.sequence_parallel: attention to the keys that an indexer picks needs it where tp is %d (megatron/core/transformer/experimental_attention_variant/absorbed_mla.py); use true, or tp 1", p.TP)
	case p.CP <= 1:
		return nil
	case m.Compress != nil:
		return diag.Errorf("plan.cp: %d, but attention to sums of tokens over context ranks is not modelled; use 1", p.CP)
	case len(s.Recipe.CPCommTypes) == 0 && s.Recipe.ContextsSince() > 0:
		return diag.Errorf("plan.cp: recipe %s has context parallelism from release %s on; set runtime.release to that or a later one, or use 1", s.Recipe.Name, s.Recipe.ContextsSince())
	case len(s.Recipe.CPCommTypes) == 0:
		return diag.Errorf("plan.cp: recipe %s has no context parallelism; use 1 or a recipe that has it", s.Recipe.Name)
	case m.Indexer != nil && p.CPCommType != "" && p.CPCommType != AllGather:
		return diag.Errorf("plan.cp_comm_type: %s, but attention to the keys that an indexer picks gathers them; use %s", p.CPCommType, AllGather)
	case s.masksKeys():
		return diag.Errorf("plan.cp: recipe %s runs an indexer on whole sequences; use 1, or recipe megatron-core", s.Recipe.Name)
	case m.Indexer == nil && kind == AllGather:
		return diag.Errorf("plan.cp_comm_type: %s is for attention to the keys that an indexer picks; use %s", AllGather, diag.Or(s.Recipe.CPCommTypes))
	case m.Indexer == nil && !slices.Contains(s.Recipe.CPCommTypes, string(kind)):
		return diag.Errorf("plan.cp_comm_type: recipe %s has no %s; use %s, or a recipe that has it", s.Recipe.Name, kind, diag.Or(s.Recipe.CPCommTypes))
	case seq%s.chunks(p.CP) != 0:
		why := fmt.Sprintf("cp %d", p.CP)
		if s.chunks(p.CP) > p.CP {
			why = fmt.Sprintf("2·cp = %d, which balances causal work", 2*p.CP)
		}
		return diag.Errorf("plan.cp: sequence_length %d is not divisible by %s (%s)", seq, why, use())
	case !p.ByHeads():
		return nil
	case m.MLA != nil && rings:
		return diag.Errorf("plan.cp_comm_type: %s takes keys and values of one width, which latent attention has not; use p2p", A2A)
	case m.MLA != nil:
		return diag.Errorf("plan.cp: %d trades heads by %s, which takes keys and values of one width, and latent attention has two; use cp 1", p.CP, A2A)
	case heads%p.CP != 0:
		return diag.Errorf("plan.cp_comm_type: %s needs heads for every rank, but cp %d does not divide the %d of tp %d (%s%s)", A2A, p.CP, heads, p.TP, use(), or)
	case s.Recipe.Structure.Distributed && p.TP*p.PP > 1:
		return diag.Errorf("plan.cp: %d beside tp %d and pp %d, but DeepSpeed's context ranks go with neither tensor nor pipeline ranks; use cp 1, or tp 1 and pp 1", p.CP, p.TP, p.PP)
	case s.Recipe.Structure.Distributed && s.Train.Recompute == ops.SelectiveRecompute:
		return diag.Errorf("train.recompute: %s, but the framework does not recompute the attention core of context ranks (cp %d); use none or full", s.Train.Recompute, p.CP)
	case s.Recipe.Structure.OwnKeys && m.KVHeads != m.Heads:
		return diag.Errorf("plan.cp: %d, but recipe %s trades keys and values of as many heads as queries have (%d, not %d) from release 24.12 on; use cp 1, an earlier release, or recipe deepspeed-hf", p.CP, s.Recipe.Name, m.Heads, m.KVHeads)
	case !s.leavesKV(kv, p.CP):
		return diag.Errorf("plan.cp_comm_type: %s needs key/value heads for every rank, but cp %d does not divide the %d of tp %d (%s%s)", A2A, p.CP, kv, p.TP, use(), or)
	}
	return nil
}

// leavesKV reports whether every one of cp ranks gets key and value heads: whole ones, or a
// copy where the framework makes copies.
func (s *Shape) leavesKV(kv, cp int64) bool {
	return kv%cp == 0 || s.Recipe.Structure.CopiedHeads && cp%kv == 0
}

// reduced is the dtype in which a plan reduces gradients: another than elsewhere where
// context ranks share sequences, which ZeRO 1 and 2 take whatever a job says (DeepSpeed,
// runtime/zero/stage_1_and_2.py, allreduce_bucket).
func (j *Job) reduced(p *Plan) recipe.DType {
	wide, given := j.Recipe.Structure.ContextReduce, j.Train.DTypes.Reduce.Set || j.Train.ReduceDType.Set
	switch {
	case p.CP > 1 && wide.Set && (!given || p.DataParallel == ZeRO1 || p.DataParallel == ZeRO2):
		return wide
	case !given && j.unsummed(p):
		return j.Precision.Compute
	}
	return j.reduceDType()
}
