package strategies

import (
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
)

// CPCommType is how context-parallel ranks come by each other's keys and values, in
// Megatron's words (--cp-comm-type). The empty one is p2p.
type CPCommType string

// Ways of context parallelism: keys and values pass by in a ring, or each rank trades
// positions for heads by all-to-all before attention and back after it, as DeepSpeed's
// Ulysses does.
const (
	P2P CPCommType = "p2p"
	A2A CPCommType = "a2a"
)

// UnmarshalText accepts one of the ways.
func (c *CPCommType) UnmarshalText(b []byte) error {
	switch *c = CPCommType(b); *c {
	case P2P, A2A:
		return nil
	}
	return fmt.Errorf("%q is not a kind of context parallelism; use %s (keys and values in a ring) or %s (heads by all-to-all)", b, P2P, A2A)
}

// ByHeads reports whether context ranks trade positions for heads around attention.
func (p *Plan) ByHeads() bool { return p.CP > 1 && p.CPCommType == A2A }

// checkContexts returns the first rule that splitting sequences breaks.
func (p *Plan) checkContexts(s Shape) error {
	m, seq := s.Model, s.Train.SequenceLength
	heads, kv := m.Heads/p.TP, max(m.KVHeads/p.TP, 1) // of a tensor rank
	use := func() string { return list(p.legalCP(s)) }
	switch {
	case p.CP <= 1:
		return nil
	case s.Recipe.Structure.WholeSequences:
		return diag.Errorf("plan.cp: recipe %s has no context parallelism; use 1 or a recipe that has it", s.Recipe.Name)
	case seq%(2*p.CP) != 0:
		return diag.Errorf("plan.cp: sequence_length %d is not divisible by 2·cp = %d, which balances causal work (use cp %s)", seq, 2*p.CP, use())
	case !p.ByHeads():
		return nil
	case !slices.Contains(s.Recipe.CPCommTypes, string(p.CPCommType)):
		return diag.Errorf("plan.cp_comm_type: recipe %s has no %s; use p2p, or a recipe that has it", s.Recipe.Name, p.CPCommType)
	case m.MLA != nil:
		return diag.Errorf("plan.cp_comm_type: %s takes keys and values of one width, which latent attention has not; use p2p", p.CPCommType)
	case heads%p.CP != 0:
		return diag.Errorf("plan.cp_comm_type: %s needs heads for every rank, but cp %d does not divide the %d of tp %d (use cp %s, or p2p)", p.CPCommType, p.CP, heads, p.TP, use())
	case kv%p.CP != 0:
		return diag.Errorf("plan.cp_comm_type: %s needs key/value heads for every rank, but cp %d does not divide the %d of tp %d (use cp %s, or p2p)", p.CPCommType, p.CP, kv, p.TP, use())
	}
	return nil
}
