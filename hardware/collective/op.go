package collective

import (
	"fmt"

	"github.com/perfplan/perfplan/internal/diag"
)

// Op is a collective operation.
type Op uint8

// The operations. The bytes of each are what nccl-tests prints as size:
//
//	all-reduce, broadcast, reduce: the buffer of one rank
//	all-gather: the gathered result, n times one rank's part
//	reduce-scatter: the buffer before scattering, n times one rank's result
//	all-to-all: one rank's send buffer, n times what it sends each peer (itself included)
//	send-recv: the message, one direction
//	token-exchange, deepep-exchange: the rows one rank sends, once to each rank, across islands once to each island, those that stay included
const (
	AllReduce Op = iota
	AllGather
	ReduceScatter
	AllToAll
	Broadcast
	Reduce
	SendRecv
	TokenExchange  // of experts, by a kernel that writes into the peers' memory: Hybrid-EP's
	DeepEPExchange // the same by DeepEP's normal kernels
	opCount
)

var opNames = [opCount]string{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send-recv", "token-exchange", "deepep-exchange"}

// Ops are all operations, in the order of the constants.
func Ops() []Op {
	ops := make([]Op, opCount)
	for i := range ops {
		ops[i] = Op(i)
	}
	return ops
}

func (o Op) String() string {
	if o < opCount {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// MarshalText writes the name, such as all-reduce.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads a name written by String.
func (o *Op) UnmarshalText(t []byte) error {
	for i, name := range opNames {
		if name == string(t) {
			*o = Op(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a collective%s", t, diag.DidYouMean(string(t), opNames[:]))
}

// BusFactor is bus bandwidth over algorithm bandwidth among n ranks: the share
// of the bytes that the slowest link must carry. Source: nccl-tests
// doc/PERFORMANCE.md.
func (o Op) BusFactor(ranks int64) float64 {
	n := float64(max(ranks, 1))
	switch o {
	case AllReduce:
		return 2 * (n - 1) / n
	case AllGather, ReduceScatter, AllToAll, TokenExchange, DeepEPExchange:
		return (n - 1) / n
	}
	return 1
}

// ofTokens is whether an operation sends rows of tokens by a kernel that is not NCCL's.
func (o Op) ofTokens() bool { return o == TokenExchange || o == DeepEPExchange }

// ringSteps is how many times data moves to the next rank of a ring.
func (o Op) ringSteps(n float64) float64 {
	switch o {
	case AllReduce:
		return 2 * (n - 1)
	case AllGather, ReduceScatter:
		return n - 1
	}
	return n
}

// Group is the set of ranks that one collective runs over. An island is what no
// network cuts: a node, or the NVLink domain where that spans nodes (NVL72).
// Every island of a group holds as many of its members, but for the last one; and
// where a stride does not divide the islands, some hold one more than PerNode. Then
// the group is priced by the island that holds fewest: NCCL makes as many channels on
// every node as on that one, and no ring is faster than where it is narrowest.
type Group struct {
	Ranks   int64   // members
	PerNode int64   // members in one island; 0 means all of them
	Islands int64   // that it spans, where PerNode does not tell; 0 means as many as PerNode fills
	Stride  int64   // GPUs from one member to the next in an island; 0 and 1 mean neighbours
	NICs    int64   // network adapters of one island that serve the group; 0 means those nearest its members
	Sharing int64   // groups that use those adapters at once; 0 and 1 mean this one alone
	Spread  float64 // members of an island to which a token's row that reached it goes; below 1: one
}

// Nodes is the number of islands that the group spans.
func (g Group) Nodes() int64 {
	if g.Islands > 0 {
		return min(g.Islands, max(g.Ranks, 1))
	}
	if g.PerNode <= 0 || g.PerNode >= g.Ranks {
		return 1
	}
	return (g.Ranks + g.PerNode - 1) / g.PerNode
}

// fewest is how many members the island holds that has fewest of them.
func (g Group) fewest() int64 {
	if last := g.Ranks - (g.Nodes()-1)*g.PerNode; g.Islands == 0 && last > 0 {
		return min(g.PerNode, last)
	}
	return g.PerNode
}

// normal fills in the defaults, so that equal groups compare equal.
func (g Group) normal() Group {
	g.Ranks = max(g.Ranks, 1)
	g = g.over(g.Nodes())
	if g.PerNode <= 0 || g.PerNode > g.Ranks {
		g.PerNode = g.Ranks
	}
	g.Stride, g.NICs, g.Sharing = max(g.Stride, 1), max(g.NICs, 0), max(g.Sharing, 1)
	if g.Spread <= 1 || g.Nodes() == 1 {
		g.Spread = 0
	}
	return g
}

// over is the group on so many islands.
func (g Group) over(islands int64) Group {
	if g.Islands = 0; islands == 1 {
		g.PerNode = g.Ranks
	}
	if islands != g.Nodes() {
		g.Islands = islands
	}
	return g
}
