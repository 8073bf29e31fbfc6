package collective

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
)

var machineNames = []string{"h200-nvls", "h200-ring", "h100-ib", "p5", "roce-4x400", "p6-b200", "b200-ring", "gb200", "a100-ib", "a100-4x200", "p4de"}

var versions = []Version{{2, 17, 1}, {2, 18, 5}, {2, 19, 4}, {2, 21, 5}, {2, 23, 4}, {2, 27, 7}, {2, 28, 9}, {2, 29, 3}, {2, 30, 7}, {3, 0, 0}, {}}

func drawFabric(t *rapid.T) *Fabric {
	return machine(rapid.SampledFrom(machineNames).Draw(t, "machine"), rapid.SampledFrom(versions).Draw(t, "nccl"))
}

// drawGroup draws a group of whole, half or single-rank nodes.
func drawGroup(t *rapid.T, f *Fabric) Group {
	perNode := rapid.Int64Range(1, f.domain()).Draw(t, "per node")
	nodes := rapid.Int64Range(1, 300).Draw(t, "nodes")
	return Group{Ranks: perNode * nodes, PerNode: perNode, Sharing: rapid.Int64Range(0, 4).Draw(t, "sharing")}
}

func drawBytes(t *rapid.T) units.Bytes {
	return units.Bytes(rapid.Float64Range(1, 1e11).Draw(t, "bytes"))
}

// A time is finite, not negative, never falls as bytes grow, and twice the bytes
// never cost more than twice the time, but for a worse choice of the tuner.
func TestTimeGrowsWithBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFabric(t)
		g, op := drawGroup(t, f), rapid.SampledFrom(Ops()).Draw(t, "op")
		b := drawBytes(t)
		more := b * units.Bytes(rapid.Float64Range(1, 100).Draw(t, "times"))
		low, high, twice := f.Time(op, b, g), f.Time(op, more, g), f.Time(op, 2*b, g)
		require.GreaterOrEqual(t, float64(low), 0.0)
		require.LessOrEqual(t, float64(low), 1e6)
		require.LessOrEqual(t, float64(low), float64(high))
		require.LessOrEqual(t, float64(twice), 2*1.05*fitted().Trust*float64(low))
		require.Equal(t, g.Ranks == 1, low == 0)
		c := f.Cost(op, b, g)
		require.Equal(t, low, c.Time)
		if g.Ranks > 1 {
			require.Positive(t, c.CTAs)
			require.LessOrEqual(t, c.CTAs, 64)
			require.True(t, c.RelErr > 0 && c.RelErr < 1)
		}
	})
}

// No bus bandwidth exceeds the links: NVLink inside a node (but for the switch
// that reduces), the adapters across.
func TestNoFasterThanTheLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFabric(t)
		f.Multicast = false
		g := drawGroup(t, f)
		op := rapid.SampledFrom([]Op{AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast, SendRecv, TokenExchange}).Draw(t, "op")
		c := f.Cost(op, drawBytes(t), g)
		if g.Nodes() == 1 {
			require.LessOrEqual(t, float64(c.BusBW), float64(f.NVLink))
			return
		}
		wire := f.wire(g.normal()) * 1e9
		switch { // a tree of two nodes sends every byte once, a ring nearly twice
		case op == AllReduce && g.Nodes() == 2:
			wire *= 2
		case op == AllToAll: // part of it stays inside the node
			wire *= float64(g.Ranks-1) / float64(g.Ranks-g.PerNode)
		}
		require.LessOrEqual(t, float64(c.BusBW), wire*1.001)
	})
}

// The same bytes over more nodes, or more ranks of one node, are never faster;
// nor are they where groups share adapters or leaf switches are oversubscribed.
func TestMoreRanksNeverFaster(t *testing.T) {
	equal := 0.999                 // below the first knot laws are straight
	slack := 0.98 / fitted().Trust // the tuner may choose less well for the smaller group
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(machineNames).Draw(t, "machine")
		v := rapid.SampledFrom(versions).Draw(t, "nccl")
		f := machine(name, v)
		op := rapid.SampledFrom([]Op{AllReduce, AllGather, ReduceScatter, AllToAll, TokenExchange}).Draw(t, "op")
		perNode := rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "per node")
		perNode = min(perNode, f.GPUs)
		nodes := int64(1) << rapid.Int64Range(1, 8).Draw(t, "log2 nodes")
		b := drawBytes(t)
		g := Group{Ranks: perNode * nodes, PerNode: perNode}
		time := float64(f.Time(op, b, g))
		require.GreaterOrEqual(t, float64(f.Time(op, b, Group{Ranks: 2 * g.Ranks, PerNode: perNode})), slack*time, "nodes")
		g.Sharing = 2
		require.GreaterOrEqual(t, float64(f.Time(op, b, g)), equal*time, "sharing")
		slow := machine(name, v)
		slow.Oversubscription = 2
		g.Sharing = 0
		require.GreaterOrEqual(t, float64(slow.Time(op, b, g)), equal*time, "oversubscription")
		if f = machine(name, v); op != AllToAll && f.domain() >= 8 {
			f.Multicast = false // where the switch reduces, eight may beat four
			b += 32 * units.MiB // below, the choice of protocol decides
			require.GreaterOrEqual(t, float64(f.Time(op, b, Group{Ranks: 8})), slack*float64(f.Time(op, b, Group{Ranks: 4})), "ranks")
		}
	})
}

// A ring's all-reduce is its reduce-scatter and its all-gather, less what those lose in
// small groups: two H200 take 4.02 ms for both of 1 GiB and 3.24 for the all-reduce, four
// 4.95 and 4.53 (catalog).
func TestAllReduceIsReduceScatterAndAllGather(t *testing.T) {
	for n, c := range map[int64]struct {
		bytes     units.Bytes
		lost, off float64
	}{2: {units.GiB, 1.24, 0.04}, 4: {units.GiB, 1.09, 0.02}, 8: {16 * units.GiB, 1, 0.01}} {
		f, g := machine("h200-ring", Version{2, 28, 9}), Group{Ranks: n}
		sum := f.Time(AllGather, c.bytes, g) + f.Time(ReduceScatter, c.bytes, g)
		require.InEpsilon(t, c.lost, float64(sum/f.Time(AllReduce, c.bytes, g)), c.off, "%d ranks", n)
		small := f.Time(AllGather, units.MiB, g) + f.Time(ReduceScatter, units.MiB, g)
		require.Greater(t, small, f.Time(AllReduce, units.MiB, g))
	}
}

// A measured curve is met at its points, and a machine that is uniformly slower
// than the model is slower by as much in the groups that were not measured.
func TestCurves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := machine("h200-ring", Version{2, 28, 9})
		slower := rapid.Float64Range(0.5, 3).Draw(t, "slower")
		for _, n := range []int64{2, 4} {
			c := Curve{Op: AllReduce, Ranks: n}
			for b := units.KiB; b <= units.GiB; b *= 2 {
				c.Bytes = append(c.Bytes, b)
				c.Time = append(c.Time, machine("h200-ring", f.NCCL).Time(AllReduce, b, Group{Ranks: n})*units.Seconds(slower))
			}
			require.NoError(t, c.Check())
			f.Curves = append(f.Curves, c)
		}
		for _, c := range f.Curves {
			for i, b := range c.Bytes {
				got := f.Cost(AllReduce, b, Group{Ranks: c.Ranks})
				require.Equal(t, Measured, got.Source)
				require.InEpsilon(t, float64(c.Time[i]), float64(got.Time), 1e-9)
			}
		}
		b := drawBytes(t)
		got := f.Cost(AllReduce, b, Group{Ranks: 8})
		require.Equal(t, Scaled, got.Source)
		plain := machine("h200-ring", f.NCCL).Cost(AllReduce, b, Group{Ranks: 8})
		require.InEpsilon(t, slower*float64(plain.Time), float64(got.Time), 1e-6)
		require.Less(t, got.RelErr, plain.RelErr+0.03)
		require.Equal(t, Modelled, f.Cost(AllGather, b, Group{Ranks: 8}).Source)
		require.Equal(t, Modelled, f.Cost(AllReduce, b, Group{Ranks: 16, PerNode: 8}).Source)
	})
}

// catalog are the fabrics of all machines of the catalog, with their curves.
func catalog(t *testing.T) []*Fabric {
	var list []*Fabric
	for _, name := range hardware.Names() {
		h, err := hardware.Load(name)
		require.NoError(t, err)
		f, err := FabricOf(h.GPU, h.Node, h.Network, h.Software, h.Laws.Collectives...)
		require.NoError(t, err)
		list = append(list, f)
	}
	return list
}

// TestChoiceTakesTheTime: NCCL's choice stands among the alternatives with the time of
// the call, whatever that rests on, and none is faster than the choice is trusted for.
func TestChoiceTakesTheTime(t *testing.T) {
	machines := catalog(t)
	for _, name := range machineNames {
		machines = append(machines, machine(name, Newest))
	}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(machines).Draw(t, "machine")
		g := f.Group(rapid.Int64Range(2, 64).Draw(t, "ranks"), rapid.SampledFrom([]int64{1, 2, 8}).Draw(t, "stride"))
		c := f.Cost(rapid.SampledFrom([]Op{AllReduce, AllGather, ReduceScatter, Broadcast, Reduce}).Draw(t, "op"), drawBytes(t), g)
		chosen := 0
		for _, a := range c.Alternatives {
			if a.Algorithm == c.Algorithm && a.Protocol == c.Protocol {
				chosen++
				require.Equal(t, c.Time, a.Time)
			}
			require.GreaterOrEqual(t, float64(a.Time), float64(c.Time)/fitted().Trust*0.999999)
		}
		require.Equal(t, 1, chosen)
	})
}

func TestPlansAreSharedSafely(t *testing.T) {
	f := hgxH200()
	want := hgxH200().Time(AllReduce, units.MiB, Group{Ranks: 8})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := int64(2); n <= 64; n++ {
				f.Time(AllGather, units.MiB, Group{Ranks: n, PerNode: 1})
				if f.Time(AllReduce, units.MiB, Group{Ranks: 8}) != want {
					t.Error("not the same law")
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, testing.AllocsPerRun(100, func() { f.Time(AllReduce, 25*units.MiB, Group{Ranks: 8}) }))
}

func TestNothingToSend(t *testing.T) {
	f := new(Fabric) // nothing known: slow, but finite
	for _, op := range Ops() {
		require.Zero(t, f.Time(op, 0, Group{Ranks: 8}))
		require.Zero(t, f.Time(op, -1, Group{Ranks: 8}))
		require.Zero(t, f.Time(op, units.GiB, Group{Ranks: 1}))
		require.Zero(t, f.Time(op, units.GiB, Group{}))
		require.Zero(t, f.Cost(op, units.GiB, Group{}).Time)
		require.Positive(t, float64(f.Time(op, units.GiB, Group{Ranks: 8})))
		require.Positive(t, float64(f.Time(op, units.GiB, Group{Ranks: 8, PerNode: 1})))
	}
	require.Zero(t, f.Time(opCount, units.GiB, Group{Ranks: 8}))
}

func BenchmarkTime(b *testing.B) {
	f, g := hgxH200(), Group{Ranks: 64, PerNode: 8}
	b.ReportAllocs()
	for i := range b.N {
		f.Time(AllReduce, units.Bytes(1+i%1000)*units.MiB, g)
	}
}

func BenchmarkLaw(b *testing.B) {
	l := &hgxH200().plan(AllReduce, Group{Ranks: 64, PerNode: 8}).law
	b.ReportAllocs()
	for i := range b.N {
		l.Time(units.Bytes(1+i%1000) * units.MiB)
	}
}

func BenchmarkCost(b *testing.B) {
	f, g := hgxH200(), Group{Ranks: 64, PerNode: 8}
	b.ReportAllocs()
	for range b.N {
		f.Cost(AllReduce, 25*units.MiB, g)
	}
}

// BenchmarkPlan draws the law of a group not seen before.
func BenchmarkPlan(b *testing.B) {
	f := hgxH200()
	b.ReportAllocs()
	for range b.N {
		f.draw(AllReduce, Group{Ranks: 64, PerNode: 8, Sharing: 1})
	}
}

// TestLatencyScale: every call takes the added latency longer, the shortest by the
// factor, measured groups included.
func TestLatencyScale(t *testing.T) {
	h, err := hardware.Load("h200-sxm")
	require.NoError(t, err)
	fabric := func(scale float64) *Fabric {
		net := h.Network
		net.LatencyScale = hardware.Of(scale)
		f, err := FabricOf(h.GPU, h.Node, net, h.Software, h.Laws.Collectives...)
		require.NoError(t, err)
		return f
	}
	one, three := fabric(1), fabric(3)
	for _, ranks := range []int64{2, 4, 8, 64} {
		g := one.Group(ranks, 1)
		for _, op := range Ops() {
			latency := one.plan(op, g).law.Latency()
			require.InEpsilon(t, 3*float64(latency), float64(three.plan(op, g).law.Latency()), 1e-9)
			for _, b := range []units.Bytes{units.KiB, units.MiB, units.GiB} {
				require.InEpsilon(t, float64(one.Time(op, b, g)+2*latency), float64(three.Time(op, b, g)), 0.02, "%s of %s", op, b)
			}
		}
	}
}

// TestLatencyOfSlowNetworks: the smallest call takes the latency of what NCCL chooses for it, also
// where it chooses otherwise between the first sizes at which a law is drawn, as over 100 MB/s.
func TestLatencyOfSlowNetworks(t *testing.T) {
	machines := catalog(t)
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(machines).Draw(t, "machine")
		g := f.Group(int64(1)<<rapid.Int64Range(1, 12).Draw(t, "log2 ranks"), rapid.SampledFrom([]int64{1, 2, 8}).Draw(t, "stride"))
		op := rapid.SampledFrom([]Op{AllReduce, AllGather, ReduceScatter, Broadcast, Reduce}).Draw(t, "op")
		p := f.model(op, f.normal(g))
		require.GreaterOrEqual(t, float64(p.law.Latency()), 0.95e-6*p.chosenTime(1))
	})
	a40, err := hardware.Load("a40")
	require.NoError(t, err)
	f, err := FabricOf(a40.GPU, a40.Node, a40.Network, a40.Software)
	require.NoError(t, err)
	require.Greater(t, f.Time(AllReduce, 1, f.Group(32, 1)), f.Time(AllReduce, 1, f.Group(8, 1)))
}

// TestStraddling: of groups that do not divide a node some lie across two; those that do, and
// those of racks, which are left in part, do not.
func TestStraddling(t *testing.T) {
	node, rack := machine("h100-ib", Newest), machine("gb200", Newest)
	for _, c := range []struct {
		fabric         *Fabric
		ranks, stride  int64
		nodes, perNode int64
	}{
		{node, 6, 1, 2, 3}, {node, 3, 2, 2, 2}, {node, 4, 1, 1, 4}, {node, 8, 1, 1, 8}, {node, 16, 1, 2, 8}, {node, 2, 8, 2, 1},
		{rack, 64, 1, 1, 64}, {rack, 3, 1, 1, 3},
	} {
		g := c.fabric.Straddling(c.ranks, c.stride)
		require.Equal(t, c.nodes, g.Nodes(), "%d ranks %d apart", c.ranks, c.stride)
		require.Equal(t, c.perNode, g.PerNode)
	}
	const b = 64 * units.MiB
	require.Greater(t, node.Time(AllToAll, b, node.Straddling(6, 1)), 1.5*node.Time(AllToAll, b, node.Group(6, 1)))
}

// TestLeavingAnIsland: what crosses islands goes over the links of each, too, and so is no faster.
func TestLeavingAnIsland(t *testing.T) {
	f := machine("gb200", Newest)
	for _, op := range []Op{AllGather, ReduceScatter, AllReduce} {
		for b := units.Bytes(units.MiB); b <= 4*units.GiB; b *= 4 {
			require.GreaterOrEqual(t, float64(f.Time(op, b, f.Group(144, 1))), float64(f.Time(op, b, f.Group(72, 1)))*0.999, "%s of %s", op, b)
		}
	}
}

// TestFewestInANode: what the rank of the island with fewest ranks has to receive comes through
// the adapters that it reaches, whatever the others have.
func TestFewestInANode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFabric(t)
		f.NCCL, f.Multicast = Version{}, false
		g := f.Group(f.Island()*rapid.Int64Range(1, 3).Draw(t, "islands")+rapid.Int64Range(1, f.Island()).Draw(t, "rest"), 1)
		last := g.Ranks - (g.Nodes()-1)*g.PerNode
		gpus := float64(f.gpus())
		adapters := max(math.Round(min(float64(f.NICs), gpus)*float64(last)/gpus), 1)
		into := adapters * float64(f.NICRate) * max(float64(f.NICs)/gpus, 1) // of the last island
		b := 16 * units.GiB
		n := float64(g.Ranks)
		for _, c := range []struct {
			op   Op
			into float64 // bytes that the last island receives at least
		}{
			{AllGather, float64(b) * (n - float64(last)) / n},
			{AllToAll, float64(b) * float64(last) * (n - float64(last)) / n},
			{AllReduce, float64(b)},
		} {
			require.GreaterOrEqual(t, float64(f.Time(c.op, b, g)), c.into/into, "%v, %d on islands of %d", c.op, g.Ranks, f.Island())
		}
	})
}

// TestNoPathInside: eight GPUs on PCIe of two sockets, whose link is below every rate that NCCL
// tries from compute capability 10 on, move data as those of 8.9 do, whose rates go lower.
func TestNoPathInside(t *testing.T) {
	bus := func(capability int) float64 {
		f := &Fabric{Capability: capability, PCIe: 31.5 * units.GBps, GPUs: 8, Domain: 1, CPU: "amd"}
		return float64(f.Cost(AllReduce, units.GiB, Group{Ranks: 8}).BusBW)
	}
	require.InEpsilon(t, bus(89), bus(120), 0.1)
	require.Less(t, bus(120), 16e9)
}
