package estimate

import (
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// replayed is what CUDA graphs replay, so that the host launches none of it: as the job
// says, else as the recipe has it where an NVLink domain spans nodes.
func replayed(j *strategies.Job) string {
	s, n := &j.Recipe.Structure, &j.Hardware.Node
	rack := n.NVLinkDomain.Value > n.GPUs.Value
	switch {
	case j.Runtime.CUDAGraphs != "":
		return j.Runtime.CUDAGraphs
	case j.Recipe.Host.Graphed || syncFree(j) || rack && s.GraphedDense && j.Model.MoE == nil:
		return strategies.FullGraphs
	case s.GraphedLayers && j.Model.MoE != nil && wideNVLink(j):
		return strategies.LayerGraphs
	}
	return strategies.NoGraphs
}

// replayedOp is whether an op belongs to what is replayed of a layer: all but the
// experts, whose numbers of rows the host has to know, but the preparation of their
// exchange too.
func replayedOp(o *tape.Op) bool {
	switch o.Module {
	case "embedding", "head", "loss":
		return false
	case "experts":
		return o.Prim == "preprocess"
	}
	return true
}
