package estimate

import (
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// onDTensors reports whether an op between the products of a layer, which is not compiled, runs on
// distributed tensors, so that Python or PyTorch dispatches it twice: norms along the sequence
// (SequenceParallel), and what follows projections that leave their outputs so (use_local_output=False).
func onDTensors(j *strategies.Job, o *tape.Op) bool {
	s, m := &j.Recipe.Structure, j.Model
	if !s.FunctionalTP || s.Compiled || j.Plan.TP <= 1 || o.Phase == tape.Optimize || o.Comm != nil || o.Prim == "join" {
		return false
	}
	switch o.Class {
	case tape.GEMM, tape.GroupedGEMM:
		return false
	}
	all := s.DTensorOps == "all"
	switch o.Module {
	case "norm":
		return j.Plan.SP()
	case "attention", "flex_attention", "rotary":
		return all || s.DTensorOps == "attention" && (m.QKNorm != model.NoQKNorm || m.MLA != nil || m.Sinks)
	case "mlp", "residual":
		return all
	}
	return false
}

// dtensorCost is what distributed tensors take on the host beside the kernels and exchanges of an op.
func (p *pricer) dtensorCost(o *tape.Op) units.Seconds {
	j, h := p.job, p.host
	if onDTensors(j, o) {
		return units.Seconds(int32(o.Host.Calls+o.Host.Views)+max(o.Count-1, 0)) * h.DTensorOp
	}
	s := &j.Recipe.Structure
	switch back := o.Phase == tape.Backward; {
	case (!s.DTensor && !s.FunctionalTP) || j.Plan.TP <= 1 || o.Module == "head":
	case o.Class == tape.GEMM && !back:
		return h.DTensor
	case o.Class == tape.GEMM && o.Layout == tape.LayoutDgrad:
		return h.DTensorBack
	case o.Comm == nil || !s.FunctionalTP || s.Compiled || o.Comm.Group != "tp":
	case o.Prim == "all-gather" && !back:
		return h.DTensorGather
	case o.Prim == "reduce-scatter" && back:
		return h.DTensorGatherBack
	}
	return 0
}
