package collective

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

// Fabric is what the cost of a collective depends on: the links of a machine
// and the NCCL on it, as plain values, and what was measured there. Set its
// fields before the first call and leave them: laws are remembered. The methods
// may be called from several goroutines at once.
type Fabric struct {
	Capability int        // compute capability times ten: 80, 90, 100
	NVLink     units.Rate // all NVLinks of a GPU, one direction; 0 without
	PCIe       units.Rate // a GPU's x16 link, one direction
	Staged     bool       // GPUs do not reach each other's memory over PCIe: data go through the host's
	GPUs       int64      // of a node
	Domain     int64      // GPUs that reach each other over NVLink; 0 means those of a node
	Switched   bool       // NVSwitch: full NVLink rate between any pair
	Mesh       [][]int64  // NVLinks that join each two GPUs of a domain of that many without a switch; in others all are alike
	Multicast  bool       // the switch reduces and multicasts (NVLS)
	CPU        string     // intel, amd or arm

	NICs             int64         // of a node, for GPU traffic
	NICRate          units.Rate    // of one, one direction
	Transport        string        // infiniband, roce, efa, slingshot, omnipath, ethernet
	HopLatency       units.Seconds // beyond NCCL's tables, of one hop across nodes; 0 means the transport's usual
	LatencyScale     float64       // factor on the latency of every operation, measured or not; 0 means 1
	Communicator     units.Rate    // what one group reaches into a node, one direction; 0 means what its adapters do
	Efficiency       float64       // wire rate over line rate; 0 means the usual
	Oversubscription float64       // of the leaf switches' uplinks; 0 means 1
	InNetworkReduce  bool          // the network's switches reduce (SHARP) and NCCL uses them

	NCCL   Version // decides algorithm and protocol; zero means the newest known
	Curves []Curve // measured on this machine

	plans atomic.Pointer[map[planKey]*plan]
	grow  sync.Mutex
}

// FabricOf reads the facts and the curves of a hardware profile. Curves of other links
// change as much as the model's times of the same calls do. It fails on a
// version of NCCL, a compute capability or a curve that cannot be used.
func FabricOf(gpu hardware.GPU, node hardware.Node, net hardware.Network, sw hardware.Software, curves ...hardware.CollectiveCurve) (*Fabric, error) {
	f := &Fabric{
		NVLink: gpu.NVLink.Value, PCIe: gpu.PCIe.Value, Staged: !gpu.Peers(),
		GPUs: node.GPUs.Value, Domain: node.NVLinkDomain.Value,
		Switched: node.Switched.Value, Mesh: node.Mesh.Value, Multicast: node.Multicast.Value, CPU: strings.ToLower(node.CPU.Value),
		NICs: net.NICs.Value, NICRate: net.NICBandwidth.Value,
		Transport: strings.ToLower(net.Transport.Value), HopLatency: net.Latency.Value,
		LatencyScale: net.LatencyScale.Value,
		Communicator: net.Communicator.Value,
		Efficiency:   net.Efficiency.Value, Oversubscription: net.Oversubscription.Value,
		InNetworkReduce: net.InNetworkReduce.Value,
	}
	var err error
	if f.Capability, err = capability(gpu); err != nil {
		return nil, err
	}
	if v := sw.NCCL.Value; v != "" {
		if f.NCCL, err = ParseVersion(v); err != nil {
			return nil, err
		}
	}
	for _, c := range curves {
		mine := Curve{Ranks: c.Ranks, Nodes: c.Nodes, Bytes: c.Bytes, Time: c.Time, RelErr: c.RelErr, Source: c.Source}
		if err := mine.Op.UnmarshalText([]byte(c.Op)); err != nil {
			return nil, err
		}
		if err := mine.Check(); err != nil {
			return nil, err
		}
		f.Curves = append(f.Curves, mine)
	}
	return f, f.relink(gpu, node, net, sw, curves)
}

// relink takes curves that were measured over other links to these.
func (f *Fabric) relink(gpu hardware.GPU, node hardware.Node, net hardware.Network, sw hardware.Software, curves []hardware.CollectiveCurve) error {
	var after, before *Fabric
	at := hardware.LinksOf(&gpu, &net)
	for i, links := 0, at; i < len(curves); i++ {
		on := curves[i].On
		if on == nil || *on == at {
			continue
		}
		var err error
		if after == nil {
			if after, err = FabricOf(gpu, node, net, sw); err != nil {
				return err
			}
		}
		if links != *on {
			links = *on
			gpu.NVLink.Value, gpu.PCIe.Value, net.NICBandwidth.Value, net.Communicator.Value = on.NVLink, on.PCIe, on.NIC, on.Communicator
			if before, err = FabricOf(gpu, node, net, sw); err != nil {
				return err
			}
		}
		c := &f.Curves[i]
		g := Group{Ranks: c.Ranks, PerNode: c.Ranks / max(c.Nodes, 1)}
		c.Time = slices.Clone(c.Time)
		for k, b := range c.Bytes {
			if old := before.Time(c.Op, b, g); old > 0 {
				c.Time[k] *= after.Time(c.Op, b, g) / old
			}
		}
	}
	return nil
}

// capability reads "9.0" as 90, or takes it from the architecture.
func capability(gpu hardware.GPU) (int, error) {
	if text := gpu.Capability.Value; text != "" {
		major, minor, _ := strings.Cut(text, ".")
		a, err := strconv.Atoi(major)
		b := 0
		if err == nil && minor != "" {
			b, err = strconv.Atoi(minor)
		}
		if err != nil || a < 1 || a > 99 || b < 0 || b > 9 {
			return 0, fmt.Errorf("compute_capability %q cannot be read; write it as in 9.0", text)
		}
		return 10*a + b, nil
	}
	switch a := strings.ToLower(gpu.Architecture.Value); a {
	case "volta":
		return 70, nil
	case "turing":
		return 75, nil
	case "ampere":
		return 80, nil
	case "ada":
		return 89, nil
	case "hopper":
		return 90, nil
	case "blackwell":
		return 100, nil
	case "blackwell-ultra":
		return 103, nil
	case "rubin":
		return 107, nil
	default:
		return 0, fmt.Errorf("architecture %q is not known; give compute_capability, as in 9.0", a)
	}
}

func (f *Fabric) gpus() int64 { return max(f.GPUs, 1) }

func (f *Fabric) domain() int64 {
	if f.Domain > 0 {
		return f.Domain
	}
	return f.gpus()
}

// Release is the NCCL that decides algorithm and protocol.
func (f *Fabric) Release() Version {
	if f.NCCL == (Version{}) {
		return Newest
	}
	return f.NCCL
}

// Island is the number of GPUs that no network cuts: those of a node, or of the
// NVLink domain where that spans nodes.
func (f *Fabric) Island() int64 { return max(f.gpus(), f.domain()) }

// NetworkRemedy says how to give what AssumedNetwork misses.
const NetworkRemedy = "give network.nics and network.nic_bandwidth in the hardware file"

// AssumedNetwork says what is taken of a network between nodes that nobody gave, "" where
// there is nothing to say.
func AssumedNetwork(h *hardware.Profile) string {
	n := &h.Network
	switch {
	case n.NICBandwidth.Value <= 0:
		return fmt.Sprintf("the network between nodes of %s is not known: %s into each node is assumed, which NCCL takes where it finds no path", h.Name, hardware.NoPath)
	case n.NICs.Value <= 0:
		return fmt.Sprintf("the network adapters of %s are not known: one of %s in each node is assumed", h.Name, n.NICBandwidth.Value)
	case n.NICBandwidth.Kind == hardware.Assumed:
		return fmt.Sprintf("the network of %s is assumed: %d adapters of %s in each node (%s)", h.Name, n.NICs.Value, n.NICBandwidth.Value, n.NICBandwidth.Source)
	}
	return ""
}

// Links is how many times faster a rank sends to all others of a group at once than to one of
// them: GPUs that no switch joins have links of their own to each (four GH200 have six of the 18
// for each pair, 150 GB/s). 1: with a switch, in other nodes, or over PCIe.
func (f *Fabric) Links(g Group) units.Seconds {
	if f.Switched || f.NVLink <= 0 || g.Nodes() > 1 || (g.PerNode-1)*g.Stride >= f.domain() {
		return 1
	}
	return units.Seconds(max(g.PerNode-1, 1))
}

// Group is the group of so many ranks, each a stride of GPUs from the one
// before, in a cluster where every GPU belongs to a group like it: tensor
// parallelism has stride 1, data parallelism the ranks of one replica. Where the
// stride does not divide the islands, some of these groups span more of them than
// others; it is one of those that span most, for which a step waits.
func (f *Fabric) Group(ranks, stride int64) Group {
	return f.group(ranks, stride, f.spanned(ranks, stride))
}

// Straddling is Group in a cluster whose nodes such groups fill one after another: where they
// do not divide a node, as six ranks the eight GPUs of one, some lie across two. NVLink domains
// of several nodes are taken to be left in part instead (evened).
func (f *Fabric) Straddling(ranks, stride int64) Group {
	span, node := ranks*max(stride, 1), f.gpus()
	if f.domain() > node || span >= node || node%span == 0 {
		return f.Group(ranks, stride)
	}
	g := f.Group(ranks, stride)
	g.PerNode = (ranks + 1) / 2
	g = g.over(2)
	g.Sharing = f.siblings(g)
	return g
}

// FirstGroup is the one of these groups that begins with the first GPU of an island,
// with how many ranks it has on each island.
func (f *Fabric) FirstGroup(ranks, stride int64) (g Group, onEach []int64) {
	apart := min(max(stride, 1), f.Island())
	for rank, last := int64(0), int64(-1); rank < ranks; rank++ {
		if at := rank * apart / f.Island(); at != last {
			onEach, last = append(onEach, 0), at
		}
		onEach[len(onEach)-1]++
	}
	g = f.group(ranks, stride, int64(len(onEach)))
	if f.evened() {
		for i := range onEach {
			onEach[i] = (ranks + int64(len(onEach)-i) - 1) / int64(len(onEach)-i)
			ranks -= onEach[i]
		}
	}
	return g, onEach
}

// group is a group of Group over so many islands.
func (f *Fabric) group(ranks, stride, islands int64) Group {
	stride = max(stride, 1)
	g := Group{Ranks: ranks, PerNode: f.filled(ranks, stride, islands), Stride: stride}.over(islands)
	g.Sharing = f.siblings(g)
	return g
}

// evened reports whether islands are taken to give as many GPUs each, as schedulers do that
// leave 8 of an NVLink domain of 72: where 512 are asked for, 8 domains give 64. Nodes are
// filled one after another.
func (f *Fabric) evened() bool { return f.domain() > f.gpus() }

// filled is how many ranks a group has on each of so many islands, but for the last one, or for
// those that have one more.
func (f *Fabric) filled(ranks, stride, islands int64) int64 {
	if f.evened() {
		return max(ranks/islands, 1)
	}
	return max(min(f.Island()/stride, ranks), 1)
}

// spanned is how many islands so many places span that are a stride of GPUs apart,
// with the GPUs between them.
func (f *Fabric) spanned(places, stride int64) int64 {
	island := f.Island()
	return max((places*min(max(stride, 1), island)+island-1)/island, 1)
}

// Grid is a group of so many rows of ranks: those of a row are a stride apart, and
// the rows start so many GPUs from each other.
func (f *Fabric) Grid(ranks, stride, rows, apart int64) Group {
	if rows == 1 {
		return f.Group(ranks, stride)
	}
	if ranks == 1 || apart == ranks*stride {
		return f.Group(ranks*rows, min(stride, apart))
	}
	g := f.Group(ranks, stride)
	islands := g.Nodes() * f.spanned(rows, apart)
	if g.PerNode == ranks {
		g.PerNode *= max(min(f.Island()/max(apart, 1), rows), 1)
	}
	g.Ranks *= rows
	g = g.over(islands)
	g.Sharing = f.siblings(g)
	return g
}

// siblings is how many groups like g use the same adapters when all GPUs of an
// island belong to one: 1 where there is an adapter for every GPU.
func (f *Fabric) siblings(g Group) int64 {
	if g.Nodes() == 1 {
		return 1
	}
	mine, _ := f.adapters(g)
	all := float64(min(max(f.NICs, 1), f.gpus())) * float64(f.Island()) / float64(f.gpus())
	groups := float64(f.Island()) / float64(g.PerNode)
	return int64(max(1, math.Round(groups*mine/all)))
}

// normal is the form of a group under which it is remembered: the stride counts
// only where it breaks NVLink.
func (f *Fabric) normal(g Group) Group {
	g = g.normal()
	if !(f.NVLink > 0) || g.PerNode > f.domain() || (g.PerNode-1)*g.Stride < f.domain() {
		g.Stride = 1
	} else {
		g.Stride = f.domain()
	}
	return g
}

// transport is what shapes.yaml says of the fabric's, nothing of one that it lacks.
func (f *Fabric) transport() *transport {
	list := fitted().Transports
	for i := range list {
		if list[i].Name == f.Transport {
			return &list[i]
		}
	}
	return &transport{}
}

// hopLatency is what the transport adds to one hop across nodes.
func (f *Fabric) hopLatency() units.Seconds { return cmp.Or(f.HopLatency, f.transport().Latency) }

// ExpertsSpread is what the transport adds to the relative standard deviation of a step
// whose experts exchange rows across nodes.
func (f *Fabric) ExpertsSpread() float64 { return f.transport().Experts }

// SlowerNetwork is how many times as long collectives across nodes take in training, one
// standard deviation from what a fabric says of those that nobody measured.
func SlowerNetwork() float64 { return fitted().SlowerNetwork }

// adapters returns how many network adapters serve a group in the node that holds
// fewest of it, which everything waits for, and the rate of one: those nearest its
// members, all for a whole node, one of eight for one rank of eight. Plug-ins join
// the adapters that share a GPU into one.
func (f *Fabric) adapters(g Group) (count float64, rate units.Rate) {
	count, rate = float64(f.NICs), f.NICRate
	gpus := float64(f.gpus())
	if count > gpus {
		count, rate = gpus, rate*units.Rate(count/gpus)
	}
	count = max(1, math.Round(count*float64(g.fewest())/gpus))
	if g.NICs > 0 {
		count = float64(g.NICs)
	}
	return count, rate
}

// host is the rate in GB/s, in each direction, at which a GPU of a group exchanges data with the
// others of its node where that goes through the host's memory; without bound where it does not.
func (f *Fabric) host(v view) float64 {
	if !v.staged {
		return math.Inf(1)
	}
	return fitted().Host.Rate * pcie(f.PCIe)
}

// wire is the rate in GB/s at which the group's members really reach the network
// from the node that holds fewest.
func (f *Fabric) wire(g Group) float64 {
	count, rate := f.adapters(g)
	e := f.Efficiency
	if e <= 0 {
		e = fitted().WireEfficiency
	}
	most := math.Inf(1)
	if f.Communicator > 0 {
		most = float64(f.Communicator) / 1e9
	}
	return max(min(count*float64(rate)/1e9*e/max(f.Oversubscription, 1)/float64(g.Sharing), most), slowest)
}
