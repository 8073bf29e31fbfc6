package model

import (
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// LoRA is low-rank adaptation (Hu et al., arXiv 2106.09685): all parameters of a model are
// frozen, and a targeted projection W of shape [out, in] gets two that are trained, A of
// shape [Rank, in] and B of shape [out, Rank], as W·x + B·(A·x) times a constant.
type LoRA struct {
	Rank    int64
	Targets []Role  // weights; what a model stores as one has one adapter
	Dropout float64 // probability, of what A reads
}

// Down and Up are the roles of the adapter of a weight of role r: A and B.
func (r Role) Down() Role { return r + "_lora_a" }
func (r Role) Up() Role   { return r + "_lora_b" }

// AttentionTargets and MLPTargets are the projections that adapters may have.
var (
	AttentionTargets = []Role{RoleQ, RoleK, RoleV, RoleOGate, RoleO, RoleQDown, RoleQUp, RoleKVDown, RoleKVUp, RoleCrossQ, RoleCrossK, RoleCrossV, RoleCrossO}
	MLPTargets       = []Role{RoleGate, RoleUp, RoleDown}
)

// crossed are the projections of attention to what an encoder made, whose modules have the names of those
// of attention to a decoder's own tokens (modeling_t5.py, modeling_bart.py), by which PEFT finds both.
var crossed = map[Role]Role{RoleQ: RoleCrossQ, RoleK: RoleCrossK, RoleV: RoleCrossV, RoleO: RoleCrossO}

// joined are the projections that a model or a framework may store as one.
var joined = map[Role][]Role{RoleQKV: {RoleQ, RoleK, RoleV}, RoleGateUp: {RoleGate, RoleUp}}

// Adapted is the model with adapters of a rank on targets by name: a role, or attention or
// mlp for all of these. None stands for all that the model has. Names that the model has no
// projection of are an error, as are those of some parts of a projection that it stores as
// one. Those of an encoder of text get the same.
func (s *Spec) Adapted(rank int64, targets []string, dropout float64) (*Spec, error) {
	all := s.adaptable()
	l := &LoRA{Rank: rank, Dropout: dropout}
	if len(targets) == 0 {
		l.Targets = all
	}
	for _, name := range targets {
		var found []Role
		switch group := Role(name); {
		case name == "attention":
			found = AttentionTargets
		case name == "mlp":
			found = MLPTargets
		case joined[group] != nil:
			found = joined[group]
		case slices.Contains(AttentionTargets, group) || slices.Contains(MLPTargets, group):
			found = []Role{group, crossed[group]}
		default:
			return nil, diag.Errorf("targets: %q is not a projection%s", name, diag.DidYouMean(name, targetNames()))
		}
		at := len(l.Targets)
		for _, r := range found {
			if slices.Contains(all, r) && !slices.Contains(l.Targets, r) {
				l.Targets = append(l.Targets, r)
			}
		}
		if len(l.Targets) == at && !slices.ContainsFunc(found, func(r Role) bool { return slices.Contains(l.Targets, r) }) {
			return nil, diag.Errorf("targets: %s has no projection %s; it has %s", s.Name, name, names(all))
		}
	}
	for _, whole := range []Role{RoleQKV, RoleGateUp} {
		if s.stores(whole) && l.Splits(whole) {
			return nil, diag.Errorf("targets: %s stores %s as one projection, which has one adapter; name %s", s.Name, names(joined[whole]), whole)
		}
	}
	adapted := *s
	adapted.LoRA = l
	if s.Encoder != nil {
		encoder := *s.Encoder
		encoder.LoRA = l
		adapted.Encoder = &encoder
	}
	return &adapted, nil
}

// Splits reports whether some parts, but not all, of what a framework stores as one
// projection have adapters.
func (l *LoRA) Splits(whole Role) bool {
	n := 0
	for _, part := range joined[whole] {
		if l.has(part) {
			n++
		}
	}
	return n > 0 && n < len(joined[whole])
}

func (l *LoRA) has(r Role) bool { return slices.Contains(l.Targets, r) }

// adaptable are the projections of the model's layers that an adapter may be beside, those
// stored as one by their parts.
func (s *Spec) adaptable() []Role {
	var out []Role
	for _, k := range s.Kinds() {
		for _, t := range s.unit(slices.Concat(layoutOf(s).layer...), s.layer(k.LayerKind)) {
			parts := joined[t.Role]
			if parts == nil && (slices.Contains(AttentionTargets, t.Role) || slices.Contains(MLPTargets, t.Role)) {
				parts = []Role{t.Role}
			}
			for _, r := range parts {
				if !slices.Contains(out, r) {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// stores reports whether some layer has a weight of that role.
func (s *Spec) stores(r Role) bool {
	for _, k := range s.Kinds() {
		if slices.ContainsFunc(s.unit(slices.Concat(layoutOf(s).layer...), s.layer(k.LayerKind)), func(t Tensor) bool { return t.Role == r }) {
			return true
		}
	}
	return false
}

// freeze marks the tensors of a module, the weight first, as frozen and appends the adapter
// of a targeted weight. What the weight's ranks hold of their outputs they hold of B's,
// what of their inputs, of A's; else A's rank is cut, which is gathered again (NeMo,
// collections/llm/peft, ParallelLinearAdapter).
func (s *Spec) freeze(tensors []Tensor) []Tensor {
	if s.LoRA == nil || len(tensors) == 0 {
		return tensors
	}
	for i := range tensors {
		tensors[i].Frozen = true
	}
	w := tensors[0]
	parts := joined[w.Role]
	if parts == nil {
		parts = []Role{w.Role}
	}
	if !s.LoRA.has(parts[0]) {
		return tensors
	}
	in, out := w.Shape[1], w.Shape[0]
	if s.TransposedWeights {
		in, out = out, in
	}
	down := Tensor{Role: w.Role.Down(), Name: strings.TrimSuffix(w.Name, ".weight") + ".lora_A.weight", Shape: []int64{s.LoRA.Rank, in}, Split: w.Split, Adapter: true}
	up := Tensor{Role: w.Role.Up(), Name: strings.TrimSuffix(w.Name, ".weight") + ".lora_B.weight", Shape: []int64{out, s.LoRA.Rank}, Split: w.Split, KVHead: w.KVHead, Adapter: true}
	if w.Split == RowSplit {
		up.Split = ColumnSplit
	}
	return append(tensors, down, up)
}

func targetNames() []string {
	out := []string{"attention", "mlp"}
	for _, r := range slices.Concat(AttentionTargets, MLPTargets, []Role{RoleQKV, RoleGateUp}) {
		out = append(out, string(r))
	}
	return out
}

func names(roles []Role) string {
	var out []string
	for _, r := range roles {
		out = append(out, string(r))
	}
	return strings.Join(out, ", ")
}
