package collective

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// TestReleases checks that every entry of nccl.yaml is complete and in order.
func TestReleases(t *testing.T) {
	all := releases()
	for i := range all {
		r := &all[i]
		require.NotEmpty(t, r.Source, r.Since)
		if i > 0 {
			require.True(t, all[i-1].Since.less(r.Since), r.Since)
		}
		for a := Tree; a < PointToPoint; a++ {
			for _, row := range [][]float64{r.hops(a).Base, r.hops(a).NVLink, r.hops(a).PCI, r.hops(a).Net} {
				require.Len(t, row, int(protocolCount), "%v %v", r.Since, a)
			}
		}
		for gen := volta; gen <= blackwell; gen++ {
			for _, table := range []*byGeneration{&r.LLMax, &r.RingLL128Max, &r.TreeLL128Max, &r.TreeMax} {
				require.Len(t, table.of(gen), 3, r.Since)
			}
			require.Len(t, r.PerLink.of(gen), 1)
			if r.NVLSEfficient {
				require.Len(t, r.NVLSEfficiency.of(gen), 1)
				require.Len(t, r.NVLSTreeMax.of(gen), 3)
			}
			for _, speeds := range [][]float64{r.IntraSpeeds.of(gen), r.InterSpeeds.of(gen)} {
				require.NotEmpty(t, speeds)
				for j := 1; j < len(speeds); j++ {
					require.Less(t, speeds[j], speeds[j-1], "%v: candidates fall", r.Since)
				}
			}
		}
	}
	last := all[len(all)-1].Since
	require.False(t, Newest.less(last))
	require.Equal(t, last, releaseOf(Version{}).Since)
	require.Equal(t, last, releaseOf(Version{9, 0, 0}).Since)
	require.Equal(t, all[0].Since, releaseOf(Version{2, 10, 3}).Since)
	require.Equal(t, Version{2, 28, 7}, releaseOf(Version{2, 28, 8}).Since)
}

func TestShapes(t *testing.T) {
	c := fitted()
	var transports []string
	for _, x := range c.Transports {
		transports = append(transports, x.Name)
	}
	require.Equal(t, hardware.Transports, transports, "what a machine file may name")
	for _, s := range c.Shapes {
		require.NotEmpty(t, s.Source)
		require.Positive(t, s.Latency)
		require.Positive(t, s.Bandwidth)
		require.Positive(t, s.Error)
		require.True(t, s.Points > 0 || s.Error >= 0.2, "an assumed row is not sure: %+v", s)
	}
	last := c.Shapes[len(c.Shapes)-1]
	require.Empty(t, last.Algorithm+last.Protocol+last.Generation, "the last row matches all")
	require.Nil(t, last.Across)
	require.True(t, 0 < c.Host.Rate && c.Host.Rate < 1)
	require.Positive(t, c.Host.Error)
	require.NotEmpty(t, c.Host.Source)
	require.Len(t, c.Spread.Inside, len(c.Spread.Bytes))
	require.Len(t, c.Spread.Across, len(c.Spread.Bytes))
	require.InDelta(t, 0.30, c.spreadAt(units.KiB, false), 1e-9)
	require.InDelta(t, 0.06, c.spreadAt(units.TiB, false), 1e-9)
	require.InDelta(t, 0.135, c.spreadAt(32*units.MiB, false), 1e-9)
	require.InDelta(t, 0.18, c.spreadAt(32*units.MiB, true), 1e-9)
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"2.28.9": {2, 28, 9}, "2.28.9-1": {2, 28, 9}, "2.27.7+cuda12.8": {2, 27, 7}, "2.30": {2, 30, 0},
	} {
		got, err := ParseVersion(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "2", "two.3", "2.-1.0", "2.1.2.3", "2.99999"} {
		_, err := ParseVersion(text)
		require.ErrorContains(t, err, "is not a version of NCCL", text)
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("2.28.9-1")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseVersion(s); err == nil {
			again, err := ParseVersion(v.String())
			require.NoError(t, err)
			require.Equal(t, v, again)
		}
	})
}

func TestOps(t *testing.T) {
	for _, op := range Ops() {
		text, err := op.MarshalText()
		require.NoError(t, err)
		var back Op
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, op, back)
	}
	var op Op
	require.ErrorContains(t, op.UnmarshalText([]byte("all-reduc")), `did you mean "all-reduce"?`)
	// nccl-tests doc/PERFORMANCE.md
	require.InDelta(t, 1.75, AllReduce.BusFactor(8), 1e-9)
	require.InDelta(t, 0.875, AllGather.BusFactor(8), 1e-9)
	require.InDelta(t, 0.875, ReduceScatter.BusFactor(8), 1e-9)
	require.InDelta(t, 0.875, AllToAll.BusFactor(8), 1e-9)
	require.InDelta(t, 1, Broadcast.BusFactor(8), 1e-9)
	require.InDelta(t, 1, Reduce.BusFactor(8), 1e-9)
	require.InDelta(t, 1, SendRecv.BusFactor(8), 1e-9)
}

// TestCurveFile reads curves as they stand in a hardware/v1 file.
func TestCurveFile(t *testing.T) {
	doc, err := yamlx.Parse("my.yaml", []byte(`
- {op: all-reduce, ranks: 4, bytes: [1 MiB, 2 MiB], time: [20 us, 30 us], source: "nccl-tests, 2.28.9"}
- {op: all-gather, ranks: 16, nodes: 2, bytes: [1 GiB], time: [3 ms], relative_error: 0.05}
`))
	require.NoError(t, err)
	var curves []Curve
	require.NoError(t, doc.Decode(&curves))
	require.Len(t, curves, 2)
	require.InDelta(t, 30e-6, float64(curves[0].Time[1]), 1e-12)
	curves[0].Time = nil
	require.Equal(t, Curve{Op: AllReduce, Ranks: 4, Bytes: []units.Bytes{units.MiB, 2 * units.MiB}, Source: "nccl-tests, 2.28.9"}, curves[0])
	curves[0].Time = []units.Seconds{20e-6, 30e-6}
	require.Equal(t, Curve{Op: AllGather, Ranks: 16, Nodes: 2, Bytes: []units.Bytes{units.GiB}, Time: []units.Seconds{3e-3}, RelErr: 0.05}, curves[1])
	for i := range curves {
		require.NoError(t, curves[i].Check())
	}
	require.Equal(t, Group{Ranks: 16, PerNode: 8, Stride: 1, Sharing: 1}, curves[1].group())

	for want, c := range map[string]Curve{
		"ranks must be 2 or more": {Ranks: 1},
		"let nodes divide ranks":  {Ranks: 8, Nodes: 3},
		"bytes is empty":          {Ranks: 8},
		"1 sizes but 2 times":     {Ranks: 8, Bytes: []units.Bytes{1}, Time: []units.Seconds{1, 2}},
		"sizes must ascend":       {Ranks: 8, Bytes: []units.Bytes{2, 1}, Time: []units.Seconds{1, 2}},
		"is not positive":         {Ranks: 8, Bytes: []units.Bytes{2}, Time: []units.Seconds{0}},
		"must be a fraction":      {Ranks: 8, Bytes: []units.Bytes{2}, Time: []units.Seconds{1}, RelErr: 3},
		"no such operation":       {Op: 99, Ranks: 8},
	} {
		require.ErrorContains(t, c.Check(), want)
	}
}

func TestFabricOf(t *testing.T) {
	gpu := hardware.GPU{Architecture: hardware.Of("hopper"), NVLink: hardware.Of(450 * units.GBps), PCIe: hardware.Of(63 * units.GBps)}
	node := hardware.Node{GPUs: hardware.Of(int64(8)), Switched: hardware.Of(true), Multicast: hardware.Of(true), CPU: hardware.Of("Intel")}
	net := hardware.Network{NICs: hardware.Of(int64(8)), NICBandwidth: hardware.Of(50 * units.GBps), Transport: hardware.Of("infiniband")}
	curve := hardware.CollectiveCurve{Op: "all-reduce", Ranks: 8, Bytes: []units.Bytes{units.MiB}, Time: []units.Seconds{40e-6}}
	f, err := FabricOf(gpu, node, net, hardware.Software{NCCL: hardware.Of("2.28.9")}, curve)
	require.NoError(t, err)
	require.Equal(t, Measured, f.Cost(AllReduce, units.MiB, Group{Ranks: 8}).Source)
	require.InDelta(t, 40e-6, float64(f.Time(AllReduce, units.MiB, Group{Ranks: 8})), 1e-12)
	require.Equal(t, hgxH200().Time(AllGather, units.GiB, Group{Ranks: 64, PerNode: 8}), f.Time(AllGather, units.GiB, Group{Ranks: 64, PerNode: 8}))

	curve.Op = "gather"
	_, err = FabricOf(gpu, node, net, hardware.Software{}, curve)
	require.ErrorContains(t, err, "is not a collective")
	_, err = FabricOf(gpu, node, net, hardware.Software{NCCL: hardware.Of("new")})
	require.ErrorContains(t, err, "is not a version")
	gpu.Architecture = hardware.Of("feynman")
	_, err = FabricOf(gpu, node, net, hardware.Software{})
	require.ErrorContains(t, err, "give compute_capability")
	gpu.Capability = hardware.Of("12.0")
	f, err = FabricOf(gpu, node, net, hardware.Software{})
	require.NoError(t, err)
	require.Equal(t, 120, f.Capability)
}

// TestGroups: which ranks share an island and its adapters.
func TestGroups(t *testing.T) {
	pcie := &Fabric{Capability: 80, NVLink: 300 * units.GBps, Domain: 2, GPUs: 8, NICs: 4, NICRate: 25 * units.GBps, PCIe: 31.5 * units.GBps, CPU: "amd"}
	for _, c := range []struct {
		name          string
		fabric        *Fabric
		ranks, stride int64
		want          Group
	}{
		{"tensor parallel 4", hgxH200(), 4, 1, Group{Ranks: 4, PerNode: 4, Stride: 1, Sharing: 1}},
		{"64 GPUs", hgxH200(), 64, 1, Group{Ranks: 64, PerNode: 8, Stride: 1, Sharing: 1}},
		{"data parallel over replicas of 8: one adapter each", hgxH200(), 16, 8, Group{Ranks: 16, PerNode: 1, Stride: 8, Sharing: 1}},
		{"eight GPUs on four adapters", machine("p4de", Newest), 16, 8, Group{Ranks: 16, PerNode: 1, Stride: 8, Sharing: 2}},
		{"half of them", machine("p4de", Newest), 16, 4, Group{Ranks: 16, PerNode: 2, Stride: 4, Sharing: 1}},
		{"an NVL72 rack is one island", machine("gb200", Newest), 72, 1, Group{Ranks: 72, PerNode: 72, Stride: 1, Sharing: 1}},
		{"two racks", machine("gb200", Newest), 144, 1, Group{Ranks: 144, PerNode: 72, Stride: 1, Sharing: 1}},
		{"tensor parallel 3 splits the nodes unevenly", hgxH200(), 16, 3, Group{Ranks: 16, PerNode: 2, Islands: 6, Stride: 3, Sharing: 1}},
		{"and tensor parallel 6", hgxH200(), 16, 6, Group{Ranks: 16, PerNode: 1, Islands: 12, Stride: 6, Sharing: 1}},
		{"a stage of 6 GPUs: most pairs lie in two nodes", hgxH200(), 2, 6, Group{Ranks: 2, PerNode: 1, Stride: 6, Sharing: 1}},
		{"bridged pairs: a node is the island", pcie, 8, 1, Group{Ranks: 8, PerNode: 8, Stride: 1, Sharing: 1}},
	} {
		require.Equal(t, c.want, c.fabric.Group(c.ranks, c.stride), c.name)
	}
	bridged := pcie.Cost(AllReduce, units.GiB, Group{Ranks: 2})
	across := pcie.Cost(AllReduce, units.GiB, Group{Ranks: 2, Stride: 4})
	require.Greater(t, float64(bridged.BusBW), 150e9)
	require.Less(t, float64(across.BusBW), 25e9)
	one, all := Group{Ranks: 16, PerNode: 1}, Group{Ranks: 128, PerNode: 8}
	ratio := hgxH200().plan(AllGather, one).law.high.slope / hgxH200().plan(AllGather, all).law.high.slope
	require.InDelta(t, 8, ratio, 1, "one rank of eight reaches one adapter of eight")
}

// TestIslandsOfStrides counts, rank by rank, the islands of groups of any stride: those
// of the first of them, and of that which spans most; where the stride divides the island
// they are what fits into it.
func TestIslandsOfStrides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := machine(rapid.SampledFrom(machineNames).Draw(t, "machine"), Newest)
		ranks, stride := rapid.Int64Range(1, 200).Draw(t, "ranks"), rapid.Int64Range(1, 150).Draw(t, "stride")
		on := func(first int64) []int64 {
			var list []int64
			last := int64(-1)
			for i := range ranks {
				if at := (first + i*stride) / f.Island(); at != last {
					list, last = append(list, 0), at
				}
				list[len(list)-1]++
			}
			return list
		}
		g, onEach := f.FirstGroup(ranks, stride)
		if first := on(0); f.evened() { // the same islands, each with as many or one more
			require.Len(t, onEach, len(first))
			var sum int64
			for _, n := range onEach {
				require.True(t, n == g.PerNode || n == g.PerNode+1)
				sum += n
			}
			require.Equal(t, ranks, sum)
			require.LessOrEqual(t, onEach[0], slices.Max(first))
		} else {
			require.Equal(t, first, onEach)
		}
		require.Equal(t, int64(len(onEach)), g.Nodes())
		most := 0
		for first := range stride {
			most = max(most, len(on(first)))
		}
		all := f.Group(ranks, stride)
		require.Equal(t, int64(most), all.Nodes())
		require.Equal(t, all.Nodes(), all.normal().Nodes())
		if f.Island()%stride == 0 || stride%f.Island() == 0 {
			require.Equal(t, all, g)
			require.Zero(t, g.Islands)
		}
	})
	f := hgxH200()
	require.Equal(t, int64(4), f.Grid(2, 3, 4, 12).Nodes(), "0 3, 12 15, 24 27, 36 39")
	require.Equal(t, int64(3), f.Grid(2, 1, 4, 6).Nodes(), "0 1, 6 7, 12 13, 18 19")
	require.Equal(t, int64(8), f.Grid(12, 1, 4, 24).Nodes(), "0 to 11, 24 to 35, ...")
	fewer, more := f.Group(16, 3), Group{Ranks: 16, PerNode: 2, Stride: 3}
	require.Less(t, f.Time(AllGather, units.KiB, fewer), f.Time(AllGather, units.KiB, more), "fewer hops between nodes")
	require.NotEqual(t, "PAT", f.Cost(AllGather, units.KiB, f.Group(16, 6)).Algorithm, "which NCCL takes for single ranks")
}
