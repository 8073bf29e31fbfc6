package collective

import (
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

// graph is what NCCL's topology search settles on for one algorithm: how many
// channels, and the rate of each inside a node and across nodes in GB/s.
type graph struct {
	channels     float64
	intra, inter float64
}

// pcie is NCCL's rate in GB/s of a PCIe link: it counts gen3 x16, 15.75 GB/s,
// as 12, and twice that for every generation after. Source: PCI_BW of
// src/graph/topo.h and ncclTopoAddPci of src/graph/topo.cc.
func pcie(line units.Rate) float64 {
	if line <= 0 {
		return 0
	}
	return 12 * math.Exp2(math.Round(math.Log2(float64(line)/15.75e9)))
}

// view is a group as NCCL's search sees it, in GB/s.
type view struct {
	n, nodes, perNode float64
	fewest            float64 // members in the node that holds fewest
	nvlink            bool
	staged            bool    // members of a node exchange data through its memory
	total             float64 // one GPU's links to the other members of its node
	nics, nic         float64 // adapters that serve the group in each node, and the rate of one
	netPath           float64 // best path from a GPU to an adapter
}

// view measures the fabric for a group with the link rates that a release of
// NCCL assumes. Sources: ncclTopoNVLinkBw, PCI_BW and the CPU links of
// src/graph/topo.h; getTotalBw of src/graph/search.cc.
func (f *Fabric) view(r *release, g Group) view {
	gen := generationOf(f.Capability)
	v := view{n: float64(g.Ranks), nodes: float64(g.Nodes()), perNode: float64(g.PerNode), fewest: float64(g.fewest())}
	pci := pcie(f.PCIe)
	v.nvlink = f.NVLink > 0 && (g.PerNode-1)*g.Stride < f.domain()
	v.staged = f.Staged && !v.nvlink && g.PerNode > 1
	switch {
	case !v.nvlink:
		v.total = pci
		if float64(g.PerNode) > float64(f.GPUs)/2 { // both sockets take part
			v.total = min(v.total, f.cpuLink())
		}
	default:
		line := 25e9 // of one link, one direction
		if gen == blackwell {
			line = 50e9
		}
		v.total = float64(f.NVLink) / line * r.PerLink.of(gen)[0]
		v.total *= f.joined(g)
	}
	if v.nodes > 1 {
		count, rate := f.adapters(g)
		v.nics, v.nic = count, float64(rate)/1e9
		v.netPath = min(v.nic, pcie(rate)) // the slot that an adapter of this rate needs
		if f.NVLink <= 0 {
			v.netPath = min(v.netPath, pci)
		}
	}
	return v
}

// cpuLink is the rate that NCCL gives the link between the two sockets of a
// server of the GPU's time. Source: src/graph/topo.h (SKL, SPR, AMD, ARM).
func (f *Fabric) cpuLink() float64 {
	switch {
	case f.CPU == "amd":
		return 16
	case f.CPU == "arm":
		return 6
	case f.Capability >= 89: // Ada came with Sapphire Rapids, too
		return 22
	}
	return 10
}

// slowest is hardware.NoPath in GB/s: across nodes, where no network is known, data are taken
// to move at it. Inside a node they move over the links all
// the same, such as those between sockets, which are below every candidate rate of compute
// capability 10 and up (ncclTopoCompute of src/graph/search.cc, "falling back to simple order").
const slowest = float64(hardware.NoPath / units.GBps)

// stop is how far below the best rate found the search still looks.
const stop = 0.49

// ringGraph finds the ring in closed form: of the candidate rates, the one
// whose channels carry most, within what the links of a GPU and the adapters of
// a node carry. Channels are doubled where they are fast and few. Sources:
// ncclTopoCompute and ncclTopoDupChannels of src/graph/search.cc.
func ringGraph(r *release, gen generation, v view) graph {
	speeds, fastest := r.IntraSpeeds.of(gen), v.total
	if v.nodes > 1 {
		speeds, fastest = r.InterSpeeds.of(gen), v.netPath
	}
	best := graph{}
	for i, s := range speeds {
		if s > fastest && i < len(speeds)-1 {
			continue
		}
		if best.channels > 0 && s/best.inter <= stop {
			break
		}
		c := float64(r.MaxChannels)
		if v.perNode > 1 {
			c = min(c, math.Floor(v.total/s))
		}
		if v.nodes > 1 {
			c = min(c, v.nics*math.Floor(v.nic/s))
		}
		if c*s > best.channels*best.inter {
			best = graph{c, s, s}
		}
		if c*s >= v.total {
			break
		}
	}
	if best.channels == 0 { // no path at any candidate rate
		best = graph{1, slowest, slowest}
	}
	many := gen >= hopper && best.intra < 50 && best.channels > 4
	if best.intra >= 25 && !many {
		c := min(2*best.channels, float64(r.MaxChannels))
		best.intra *= best.channels / c
		best.inter, best.channels = best.intra, c
	}
	return best
}

// treeGraph is the ring's with the rate inside a node raised as far as the
// links allow, up to about twice the rate across: with two nodes a tree sends
// each byte across only once. Source: pass 2 of ncclTopoCompute.
func treeGraph(r *release, gen generation, v view, ring graph) graph {
	t := ring
	if v.nodes != 2 {
		return t
	}
	room := math.Inf(1)
	if v.perNode > 1 {
		room = v.total * v.perNode / (v.perNode - 1) / t.channels
	}
	t.intra = raise(r.InterSpeeds.of(gen), t.intra, 2*t.inter, room)
	return t
}

// nvlsGraph gives every GPU of the node one head: a head's data crosses every
// GPU's links, so each carries one more share than there are heads. Across
// nodes each head needs an adapter. Source: pass 1 and 2 of ncclTopoCompute
// for NCCL_TOPO_PATTERN_NVLS.
func nvlsGraph(r *release, gen generation, v view) graph {
	const arity = 32 // NCCL_MAX_NVLS_ARITY
	heads := min(v.perNode, arity)
	speeds, room := r.IntraSpeeds.of(gen), math.Inf(1)
	if v.nodes > 1 {
		speeds, room = r.InterSpeeds.of(gen), v.netPath
	}
	best := graph{}
	for _, s := range speeds {
		c := heads
		if v.nodes > 1 {
			c = min(c, v.nics*math.Floor(v.nic/s))
		}
		if c == 0 || s > room || s*(c+1) > v.total {
			continue
		}
		if best.channels > 0 && s/best.inter <= stop {
			break
		}
		if c*s > best.channels*best.inter {
			best = graph{c, s, s}
		}
	}
	if best.channels > 0 {
		if v.nodes > 1 {
			room = min(room, v.nic/math.Ceil(best.channels/v.nics))
		}
		best.inter = raise(speeds, best.inter, 2*best.intra, room)
	}
	return best
}

// raise steps a rate up a table of candidates (fastest first) while it is below
// enough and the next fits in room.
func raise(speeds []float64, rate, enough, room float64) float64 {
	for i := len(speeds) - 1; i >= 0; i-- {
		if speeds[i] > rate && rate < enough && speeds[i] <= room {
			rate = speeds[i]
		}
	}
	return rate
}
