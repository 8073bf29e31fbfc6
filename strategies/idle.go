package strategies

import (
	"fmt"

	"github.com/perfplan/perfplan/internal/diag"
)

// Idle says which settings of a job have no effect under its plan. They are remarks and
// no errors: a sweep or a search of degrees begins at 1.
func (j *Job) Idle() []diag.Note {
	p, r := &j.Plan, &j.Runtime
	var out []diag.Note
	for _, x := range []struct {
		idle       bool
		key, value string
		degree     string // that is 1
		lacks      string
	}{
		{p.PP == 1 && p.Schedule != "" && p.Schedule != "1f1b", "plan.schedule", p.Schedule, "pp", "pipeline stages"},
		{p.CP == 1 && p.CPCommType != "" && p.CPCommType != P2P, "plan.cp_comm_type", string(p.CPCommType), "cp", "context ranks"},
		{p.TP == 1 && isOn(r.TPOverlap), "runtime.tp_overlap", "true", "tp", "tensor ranks"},
		{p.EP == 1 && isOn(r.EPOverlap), "runtime.ep_overlap", "true", "ep", "expert ranks"},
		{p.EP == 1 && r.TokenDispatcher != "" && r.TokenDispatcher != AllToAllDispatcher, "runtime.token_dispatcher", r.TokenDispatcher, "ep", "expert ranks"},
		{p.EP == 1 && j.Train.Imbalance > 1, "train.expert_imbalance", fmt.Sprint(j.Train.Imbalance), "ep", "expert ranks"},
	} {
		if x.idle {
			out = append(out, diag.Note{Code: "setting.idle", Text: fmt.Sprintf("%s: %s has no effect without %s (%s 1)", x.key, x.value, x.lacks, x.degree),
				Remedy: fmt.Sprintf("set plan.%s above 1, or leave it out", x.degree)})
		}
	}
	return out
}

// isOn reports whether a switch is set to true.
func isOn(s *bool) bool { return s != nil && *s }
