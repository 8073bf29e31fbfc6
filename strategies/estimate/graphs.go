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
	case syncFree(j) || rack && s.GraphedDense && j.Model.MoE == nil:
		return strategies.FullGraphs
	case s.GraphedLayers && j.Model.MoE != nil && wideNVLink(j):
		return strategies.LayerGraphs
	}
	return strategies.NoGraphs
}

// replays is whether an op belongs to what such graphs replay of a layer: all but the
// experts, whose numbers of rows the host has to know, but the preparation of their
// exchange too; or that, the router and the shared expert alone
// (Megatron-Core's cuda_graph_scope moe_router and moe_preprocess); or what mixes tokens
// alone (attn and mamba).
func replays(graphs string, o *tape.Op) bool {
	if graphs == strategies.NoGraphs {
		return false
	}
	mixers := graphs == strategies.MixerGraphs
	switch o.Module {
	case "embedding", "head", "loss":
		return false
	case "experts":
		return o.Prim == "preprocess" && !mixers
	case "router", "shared expert":
		return !mixers
	case "mlp":
		return graphs == strategies.LayerGraphs
	}
	return mixers || graphs == strategies.LayerGraphs
}
