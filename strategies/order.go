package strategies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// Order is the order in which ranks are counted, the innermost kind of parallelism
// first: "tp-cp-ep-dp-pp" puts tensor ranks next to each other. Empty is that order,
// Megatron-Core's own (megatron/core/parallel_state.py, RankGenerator).
type Order string

// Orders of Megatron-LM: its own, and that of --use-tp-pp-dp-mapping.
const (
	DefaultOrder Order = "tp-cp-ep-dp-pp"
	TPPPDP       Order = "tp-cp-ep-pp-dp"
)

// UnmarshalText accepts a permutation of the kinds of parallelism, like --order of
// Megatron-LM's RankGenerator.
func (o *Order) UnmarshalText(b []byte) error {
	parts := strings.Split(string(b), "-")
	known := strings.Split(string(DefaultOrder), "-")
	sorted := slices.Sorted(slices.Values(parts))
	if slices.Sort(known); !slices.Equal(sorted, known) {
		return fmt.Errorf("%q is not an order of ranks; name tp, cp, ep, dp and pp once each, the innermost first, as in %s", b, DefaultOrder)
	}
	if *o = Order(b); *o == DefaultOrder {
		*o = ""
	}
	return nil
}

// Kinds are the kinds of parallelism, the innermost first.
func (o Order) Kinds() []string {
	if o == "" {
		o = DefaultOrder
	}
	return strings.Split(string(o), "-")
}

// Strides are how many ranks lie from one rank of a group to the next.
type Strides struct {
	TP, CP, DP, PP         int64
	ExpertTP, EP, ExpertDP int64 // of experts, whose ranks are counted on their own
}

// Strides lays the groups of a plan out in its order. Experts run over tensor, context
// and data ranks alike; those that share an expert's matrices stand where tensor ranks
// do, those with copies where data ranks do.
func (p *Plan) Strides() Strides {
	var s Strides
	ranks := max(p.TP, 1) * max(p.CP, 1) * max(p.DP, 1)
	etp, ep := max(p.ExpertTP, 1), max(p.EP, 1)
	edp := max(ranks/(etp*ep), 1)
	if p.Order == "" { // as below, without a list to go through
		s.TP, s.CP, s.DP, s.PP = 1, max(p.TP, 1), max(p.TP, 1)*max(p.CP, 1), ranks
		s.ExpertTP, s.EP, s.ExpertDP = 1, etp, etp*ep
		return s
	}
	dense, expert := int64(1), int64(1)
	for _, k := range p.Order.Kinds() {
		switch k {
		case "tp":
			s.TP, s.ExpertTP = dense, expert
			dense, expert = dense*max(p.TP, 1), expert*etp
		case "cp":
			s.CP = dense
			dense *= max(p.CP, 1)
		case "ep":
			s.EP = expert
			expert *= ep
		case "dp":
			s.DP, s.ExpertDP = dense, expert
			dense, expert = dense*max(p.DP, 1), expert*edp
		case "pp":
			s.PP = dense
			dense, expert = dense*max(p.PP, 1), expert*max(p.PP, 1)
		}
	}
	return s
}

// checkOrder returns the first rule that an order breaks.
func (p *Plan) checkOrder(s Shape) error {
	if p.Order == "" {
		return nil
	}
	// Megatron-Core (parallel_state.py) builds the pipelines of experts and of the rest
	// apart, and needs them to be the same.
	if !strings.HasSuffix(string(p.Order), "pp") && p.PP > 1 {
		experts := p.TP // that share a copy, where there are no experts
		if s.Model.MoE != nil {
			experts = p.EP * p.ExpertTP
		}
		if experts != p.TP*p.CP {
			return diag.Errorf("plan.order: %s does not count pp last, so that ep·expert_tp (%d) must be tp·cp (%d); use another order", p.Order, experts, p.TP*p.CP)
		}
	}
	if at := p.Strides(); p.ShardDegree > 0 && p.CP > 1 && p.DP > 1 && max(at.DP, at.CP) != min(at.DP*p.DP, at.CP*p.CP) {
		return diag.Errorf("plan.shard_degree: %d ranks of cp and dp, between which order %s puts others; leave shard_degree out, or use another order", p.ShardDegree, p.Order)
	}
	return nil
}
