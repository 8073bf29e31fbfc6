package estimate

import (
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// domains is how many NVLink domains, or nodes where these are larger, the ranks of an
// expert-parallel group span.
func domains(j *strategies.Job) int64 {
	n := &j.Hardware.Node
	each := max(max(n.NVLinkDomain.Value, n.GPUs.Value)/max(j.Plan.Strides().EP, 1), 1)
	return max((j.Plan.EP+each-1)/each, 1)
}

// wideNVLink is whether the expert-parallel ranks share an NVLink domain that spans
// nodes, as in an NVL72 rack.
func wideNVLink(j *strategies.Job) bool {
	n := &j.Hardware.Node
	return n.NVLinkDomain.Value > n.GPUs.Value && domains(j) == 1
}

// flexDispatch is whether a kernel of its own sends rows to the experts' ranks (Megatron's
// flex dispatcher), not NCCL's all-to-all: as the job says, else inside a rack, and
// across NVLink domains for the models for which the recipe has it.
func flexDispatch(j *strategies.Job) bool {
	if d := j.Runtime.TokenDispatcher; d != "" {
		return d == strategies.FlexDispatcher
	}
	return wideNVLink(j) || domains(j) > 1 && j.Recipe.Structure.FlexDispatcher == recipe.LatentModels && j.Model.MLA != nil
}

// exchangesOverlap is whether experts' exchanges run beside another micro batch, the
// forward pass of one beside the backward pass of the one before: as the job says, else
// where a whole step is replayed, and across NVLink domains under a pipeline. Pipelines
// have to be interleaved, and layers kept (Megatron-LM, transformer_config.py,
// overlap_moe_expert_parallel_comm).
func exchangesOverlap(j *strategies.Job) bool {
	o, pipe := &j.Recipe.Overlap, j.Plan.PP > 1
	allowed := (!pipe || j.Plan.VirtualStages > 1) && j.Train.Recompute != ops.FullRecompute
	switch on := j.Runtime.EPOverlap; {
	case j.Plan.EP <= 1 || j.Model.MoE == nil:
		return false
	case on != nil:
		return *on && allowed
	case syncFree(j):
		return o.SyncFreeEP
	}
	return o.RemoteEP && allowed && pipe && domains(j) > 1
}

// syncFree is whether a whole step is replayed from a CUDA graph although it has
// experts. The kernels that allow it exchange rows inside one NVLink domain, numbers of
// them as they come; experts of a capacity run the kernels of all others.
func syncFree(j *strategies.Job) bool {
	n := &j.Hardware.Node
	graphs := j.Runtime.CUDAGraphs == "" || j.Runtime.CUDAGraphs == strategies.FullGraphs
	return graphs && j.Precision.SyncFree && j.Model.MoE != nil && j.Train.Capacity == 0 && j.Runtime.TokenDispatcher != strategies.AllToAllDispatcher && j.Plan.EP > 1 && j.Plan.ExpertTP <= 1 && j.Plan.EP <= max(n.NVLinkDomain.Value, n.GPUs.Value)
}

// hiddenExchanges is the share of the exchanges between experts that run beside
// another micro batch: all but those that fill and drain the pipeline, PP of the micro
// batches.
func hiddenExchanges(j *strategies.Job) units.Seconds {
	if !exchangesOverlap(j) {
		return 0
	}
	return units.Seconds(max(0, 1-float64(j.Plan.PP)/float64(j.Train.GradAccumulation)))
}

// hideExchanges leaves of the exchanges of a unit's passes what another micro batch,
// which is in the other pass, cannot hide, and what they slow its kernels by.
func hideExchanges(p *pricer, passes ...*section) {
	var exchanges, alone, loaded units.Seconds
	var kind collective.Op
	for _, s := range passes {
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
	}
	if exchanges == 0 {
		return
	}
	left := 1 - p.hides + p.hides*beside(exchanges, alone, loaded, units.Seconds(p.slow(kind)))/exchanges
	for _, s := range passes {
		for i := range s.base {
			if b, l := &s.base[i], &s.launches[i]; b.role == commRole && b.group == epGroup {
				s.comm[epGroup] -= l.Busy * (1 - left)
				l.Busy *= left
				l.Loaded = l.Busy
			}
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
