package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// wideNVLink is whether the expert-parallel ranks share an NVLink domain that spans
// nodes, as in an NVL72 rack.
func wideNVLink(j *strategies.Job) bool {
	n := &j.Hardware.Node
	return n.NVLinkDomain.Value > n.GPUs.Value && j.Plan.EP*j.Plan.ExpertTP <= n.NVLinkDomain.Value
}

// syncFree is whether a whole step is replayed from a CUDA graph although it has
// experts. The kernels that allow it exchange rows inside one NVLink domain, numbers of
// them as they come; experts of a capacity run the kernels of all others.
func syncFree(j *strategies.Job) bool {
	n := &j.Hardware.Node
	return j.Precision.SyncFree && j.Model.MoE != nil && j.Train.Capacity == 0 && j.Plan.EP > 1 && j.Plan.ExpertTP <= 1 && j.Plan.EP <= max(n.NVLinkDomain.Value, n.GPUs.Value)
}

// hiddenExchanges is the share of the exchanges between experts that run beside
// another micro batch, the forward pass of one beside the backward pass of the one
// before: all but those that fill and drain the pipeline, PP of the micro batches.
func hiddenExchanges(j *strategies.Job) units.Seconds {
	if !j.Recipe.Overlap.SyncFreeEP || !syncFree(j) {
		return 0
	}
	return units.Seconds(max(0, 1-float64(j.Plan.PP)/float64(j.Train.GradAccumulation)))
}

// hideExchanges leaves of a section's exchanges that another micro batch hides what
// they slow its kernels by.
func (s *section) hideExchanges(p *pricer) {
	var exchanges, alone, loaded units.Seconds
	var kind collective.Op
	for i := range s.base {
		switch b, l := &s.base[i], &s.launches[i]; {
		case b.role == commRole && b.group == epGroup:
			exchanges += l.Busy
			kind = kindOf(s.ops[i].Comm.Kind)
		case b.role != commRole && b.role != asyncRole:
			alone += l.Busy
			loaded += l.Loaded
		}
	}
	if exchanges == 0 {
		return
	}
	left := 1 - p.hides + p.hides*beside(exchanges, alone, loaded, units.Seconds(p.slow(kind)))/exchanges
	for i := range s.base {
		if b, l := &s.base[i], &s.launches[i]; b.role == commRole && b.group == epGroup {
			s.comm[epGroup] -= l.Busy * (1 - left)
			l.Busy *= left
			l.Loaded = l.Busy
		}
	}
}

// expertCost is the CPU time of one expert of a grouped GEMM.
func expertCost(h *recipe.Host, o *tape.Op) units.Seconds {
	c := h.Expert
	if o.DType.Narrow() && h.ScaledExpert > 0 {
		c = h.ScaledExpert
	}
	if o.Layout == tape.LayoutWgrad {
		c += h.ExpertGrad
	}
	return c
}
