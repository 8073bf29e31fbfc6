package collective

import (
	"slices"
	"testing"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/stretchr/testify/require"
)

// The machines of the test vectors.
func hgxH200() *Fabric {
	return &Fabric{
		Capability: 90, NVLink: 450 * units.GBps, PCIe: 63 * units.GBps, GPUs: 8, Domain: 8,
		Switched: true, Multicast: true, CPU: "intel", NICs: 8, NICRate: 50 * units.GBps, NCCL: Version{2, 28, 9},
	}
}

func hgxA100() *Fabric {
	return &Fabric{
		Capability: 80, NVLink: 300 * units.GBps, PCIe: 31 * units.GBps, GPUs: 8, Domain: 8,
		Switched: true, CPU: "amd", NICs: 8, NICRate: 25 * units.GBps, NCCL: Version{2, 28, 9},
	}
}

// TestTuner replays knowledge/hardware-and-collectives.md B5a: latency in us
// and algorithm bandwidth in GB/s of every candidate, before the corrections at
// the call, and the choices for 64 KiB, 1 MiB, 16 MiB and 256 MiB. With SHARP on the
// switches the rest is as without, and ncclTopoTuneModel (src/graph/tuning.cc of NCCL
// 2.28.9) adds, for an all-reduce across nodes,
//
//	CollNetDirect: 2·(3.7 + 7·0.4) + 31 = 44 us, half of 8 channels of 45 GB/s, less 15 %
//	from Hopper on: 153 GB/s; of 24 GB/s on A100: 96
//	NVLS: 25 + 18 = 43 us, 8 channels of 48 GB/s · 16/30 of 16 ranks: 204.8 GB/s, and
//	64/126 of 64: 195.05
//
// An all-gather gets neither where the network's plug-in has no iallgather.
func TestTuner(t *testing.T) {
	noMulticast, sharpH200, sharpA100 := hgxH200(), hgxH200(), hgxA100()
	noMulticast.Multicast, sharpH200.InNetworkReduce, sharpA100.InNetworkReduce = false, true, true
	type row map[string][2]float64
	sizes := []float64{64 << 10, 1 << 20, 16 << 20, 256 << 20}
	type pick struct {
		who string
		us  float64
	}
	for _, c := range []struct {
		name   string
		fabric *Fabric
		group  Group
		op     Op
		want   row
		picks  []pick
	}{
		{"2xH200 without NVLS", noMulticast, Group{Ranks: 2}, AllReduce,
			row{"Tree LL": {8, 43.6}, "Tree LL128": {16.5, 128.8}, "Tree Simple": {16.4, 165.6}, "Ring LL": {7.8, 141}, "Ring LL128": {17.8, 331.2}, "Ring Simple": {15.2, 360}},
			[]pick{{"Ring LL", 8.3}, {"Ring LL", 15.2}, {"Ring Simple", 61.8}, {"Ring Simple", 761}}},
		{"2xH200 without NVLS", noMulticast, Group{Ranks: 2}, AllGather,
			row{"Ring LL": {7.2, 282}, "Ring LL128": {15.9, 662.4}, "Ring Simple": {11.8, 720}},
			[]pick{{"Ring LL", 7.4}, {"Ring LL", 10.9}, {"Ring Simple", 35.1}, {"Ring Simple", 385}}},
		{"4xH200", hgxH200(), Group{Ranks: 4}, AllReduce,
			row{"Tree LL": {10.4, 43.6}, "Tree LL128": {21.5, 128.8}, "Tree Simple": {32.4, 165.6}, "Ring LL": {10.2, 94}, "Ring LL128": {25.4, 220.8}, "Ring Simple": {28.8, 240}, "NVLS Simple": {25, 160}},
			[]pick{{"Ring LL", 10.9}, {"Ring LL", 21.4}, {"Ring Simple", 98.7}, {"Ring Simple", 1147}}},
		{"4xH200", hgxH200(), Group{Ranks: 4}, ReduceScatter,
			row{"Ring LL": {8.4, 188}, "Ring LL128": {19.7, 441.6}, "Ring Simple": {18.6, 480}},
			[]pick{{"Ring LL", 8.7}, {"Ring LL", 14.0}, {"Ring Simple", 53.6}, {"Ring Simple", 578}}},
		{"8xH200", hgxH200(), Group{Ranks: 8}, AllReduce,
			row{"Tree LL": {15.2, 43.6}, "Tree LL128": {31.5, 128.8}, "Tree Simple": {64.4, 165.6}, "Ring LL": {15, 80.6}, "Ring LL128": {40.6, 189.3}, "Ring Simple": {56, 205.7}, "NVLS Simple": {25, 272}},
			[]pick{{"Ring LL", 15.8}, {"Ring LL", 28.0}, {"NVLS Simple", 86.7}, {"NVLS Simple", 1012}}},
		{"8xH200", hgxH200(), Group{Ranks: 8}, AllGather,
			row{"Ring LL": {10.8, 161.1}, "Ring LL128": {27.3, 378.5}, "Ring Simple": {32.2, 411.4}, "NVLS Simple": {25, 208.2}},
			[]pick{{"Ring LL", 11.2}, {"Ring LL", 17.3}, {"Ring LL128", 71.6}, {"Ring Simple", 685}}},
		{"8xA100", hgxA100(), Group{Ranks: 8}, AllReduce,
			row{"Tree LL": {15.2, 29.1}, "Tree LL128": {31.5, 85.9}, "Tree Simple": {64.4, 110.4}, "Ring LL": {15, 50.1}, "Ring LL128": {40.6, 126.2}, "Ring Simple": {56, 137.1}},
			[]pick{{"Ring LL", 16.3}, {"Ring LL", 35.9}, {"Ring LL128", 173.6}, {"Ring Simple", 2013}}},
		{"8xA100", hgxA100(), Group{Ranks: 8}, AllGather,
			row{"Ring LL": {10.8, 100.2}, "Ring LL128": {27.3, 252.3}, "Ring Simple": {32.2, 274.3}},
			[]pick{{"Ring LL", 11.5}, {"Ring LL", 21.3}, {"Ring Simple", 93.4}, {"Ring Simple", 1011}}},
		{"2x8 H100, 8x400G", hgxH200(), Group{Ranks: 16, PerNode: 8}, AllReduce,
			row{"Tree LL": {25.2, 19.5}, "Tree LL128": {48.5, 146.8}, "Tree Simple": {92.4, 165.6}, "Ring LL": {40, 20.8}, "Ring LL128": {75.2, 156.6}, "Ring Simple": {184.2 / 1.4, 192}, "NVLSTree Simple": {66.8, 246.2}},
			[]pick{{"Tree LL", 30.8}, {"Tree LL128", 60.4}, {"NVLSTree Simple", 134.9}, {"NVLSTree Simple", 1157}}},
		{"2x8 H100, 8x400G", hgxH200(), Group{Ranks: 16, PerNode: 8}, AllGather,
			row{"Ring LL": {23.3, 41.6}, "Ring LL128": {44.6, 313.2}, "Ring Simple": {70, 384}},
			[]pick{{"Ring LL", 24.9}, {"Ring LL128", 47.9}, {"Ring LL128", 98.2}, {"Ring Simple", 769}}},
		{"8x8 H100, 8x400G", hgxH200(), Group{Ranks: 64, PerNode: 8}, AllReduce,
			row{"Tree LL": {45.2, 10.2}, "Tree LL128": {82.5, 116}, "Tree Simple": {148.4, 144}, "Ring LL": {156, 10.4}, "Ring LL128": {283, 149}, "Ring Simple": {819 / 1.4, 183}, "NVLSTree Simple": {150.4, 184.9}},
			[]pick{{"Tree LL", 55.9}, {"Tree LL128", 97.6}, {"NVLSTree Simple", 241}, {"NVLSTree Simple", 1602}}},
		{"8x8 H100, 8x400G", hgxH200(), Group{Ranks: 64, PerNode: 8}, AllGather,
			row{"Ring LL": {81.5, 20.7}, "Ring LL128": {148.4, 298.3}, "Ring Simple": {296.8, 365.7}},
			[]pick{{"Ring LL", 84.7}, {"Ring LL", 132}, {"Ring LL128", 205}, {"Ring Simple", 1031}}},
		{"16x8 A100, 8x200G, AMD", hgxA100(), Group{Ranks: 128, PerNode: 8}, AllReduce,
			row{"Tree LL": {55.2, 9.5}, "Tree LL128": {99.5, 66.8}, "Tree Simple": {176, 71.2}, "Ring LL": {536, 9.6}, "Ring LL128": {582, 80.6}, "Ring Simple": {2481 / 1.4, 96.8}},
			[]pick{{"Tree LL", 66.7}, {"Tree LL128", 125.7}, {"Tree LL128", 379}, {"Ring LL128", 3912}}},
		{"16x8 A100, 8x200G, AMD", hgxA100(), Group{Ranks: 128, PerNode: 8}, AllGather,
			row{"Ring LL": {271, 19.1}, "Ring LL128": {298, 161}, "Ring Simple": {890, 193.5}},
			[]pick{{"Ring LL", 275}, {"Ring LL128", 305}, {"Ring LL128", 402}, {"Ring LL128", 1963}}},
		{"2x8 H100, 8x400G, SHARP", sharpH200, Group{Ranks: 16, PerNode: 8}, AllReduce,
			row{"Tree LL": {25.2, 19.5}, "Tree LL128": {48.5, 146.8}, "Tree Simple": {92.4, 165.6}, "Ring LL": {40, 20.8}, "Ring LL128": {75.2, 156.6}, "Ring Simple": {184.2 / 1.4, 192}, "CollNetDirect Simple": {44, 153}, "NVLS Simple": {43, 204.8}, "NVLSTree Simple": {66.8, 246.2}},
			[]pick{{"Tree LL", 30.8}, {"NVLS Simple", 48.1}, {"NVLS Simple", 124.9}, {"NVLSTree Simple", 1157}}},
		{"2x8 H100, 8x400G, SHARP", sharpH200, Group{Ranks: 16, PerNode: 8}, AllGather,
			row{"Ring LL": {23.3, 41.6}, "Ring LL128": {44.6, 313.2}, "Ring Simple": {70, 384}},
			[]pick{{"Ring LL", 24.9}, {"Ring LL128", 47.9}, {"Ring LL128", 98.2}, {"Ring Simple", 769}}},
		{"8x8 H100, 8x400G, SHARP", sharpH200, Group{Ranks: 64, PerNode: 8}, AllReduce,
			row{"Tree LL": {45.2, 10.2}, "Tree LL128": {82.5, 116}, "Tree Simple": {148.4, 144}, "Ring LL": {156, 10.4}, "Ring LL128": {283, 149}, "Ring Simple": {819 / 1.4, 183}, "CollNetDirect Simple": {44, 153}, "NVLS Simple": {43, 195.05}, "NVLSTree Simple": {150.4, 184.9}},
			[]pick{{"NVLS Simple", 43.3}, {"NVLS Simple", 48.4}, {"NVLS Simple", 129}, {"NVLS Simple", 1419}}},
		{"16x8 A100, 8x200G, AMD, SHARP", sharpA100, Group{Ranks: 128, PerNode: 8}, AllReduce,
			row{"Tree LL": {55.2, 9.5}, "Tree LL128": {99.5, 66.8}, "Tree Simple": {176, 71.2}, "Ring LL": {536, 9.6}, "Ring LL128": {582, 80.6}, "Ring Simple": {2481 / 1.4, 96.8}, "CollNetDirect Simple": {44, 96}},
			[]pick{{"CollNetDirect Simple", 44.7}, {"CollNetDirect Simple", 54.9}, {"CollNetDirect Simple", 218.8}, {"CollNetDirect Simple", 2840}}},
		{"1x8 H100, SHARP beyond it", sharpH200, Group{Ranks: 8}, AllReduce,
			row{"Tree LL": {15.2, 43.6}, "Tree LL128": {31.5, 128.8}, "Tree Simple": {64.4, 165.6}, "Ring LL": {15, 80.6}, "Ring LL128": {40.6, 189.3}, "Ring Simple": {56, 205.7}, "NVLS Simple": {25, 272}},
			[]pick{{"Ring LL", 15.8}, {"Ring LL", 28.0}, {"NVLS Simple", 86.7}, {"NVLS Simple", 1012}}},
	} {
		t.Run(c.name+" "+c.op.String(), func(t *testing.T) {
			tn := c.fabric.tune(releaseOf(c.fabric.NCCL), c.op, c.group.normal())
			got := row{}
			for _, k := range tn.candidates {
				got[k.algorithm.String()+" "+k.protocol.String()] = [2]float64{k.latency, k.bandwidth}
			}
			for name, want := range c.want {
				require.InEpsilon(t, want[0], got[name][0], 0.006, "%s latency", name)
				require.InEpsilon(t, want[1], got[name][1], 0.006, "%s bandwidth", name)
			}
			for name := range got {
				require.Contains(t, append(keys(c.want), "NVLS Simple", "NVLSTree Simple"), name)
			}
			for i, want := range c.picks {
				k := tn.candidates[tn.choose(sizes[i])]
				require.Equal(t, want.who, k.algorithm.String()+" "+k.protocol.String(), "%v bytes", sizes[i])
				require.InEpsilon(t, want.us, tn.nominal(k, sizes[i]), 0.006, "%v bytes", sizes[i])
			}
		})
	}
}

// TestDirectRanks: CollNetDirect takes up to eight ranks of a node.
func TestDirectRanks(t *testing.T) {
	f := *hgxH200()
	f.InNetworkReduce, f.GPUs, f.Domain = true, 16, 16
	for perNode, want := range map[int64]bool{8: true, 9: false, 16: false} {
		tn := f.tune(releaseOf(f.NCCL), AllReduce, Group{Ranks: 2 * perNode, PerNode: perNode}.normal())
		require.Equal(t, want, slices.ContainsFunc(tn.candidates, func(c candidate) bool { return c.algorithm == CollNetDirect }), "%d", perNode)
	}
}

func keys(m map[string][2]float64) (k []string) {
	for name := range m {
		k = append(k, name)
	}
	return k
}

// TestKnownChoices holds what NCCL was seen to choose.
func TestKnownChoices(t *testing.T) {
	h200 := func(v string) *Fabric {
		f := hgxH200()
		f.NCCL, _ = ParseVersion(v)
		return f
	}
	b200 := machine("p6-b200", Version{2, 27, 7})
	for _, c := range []struct {
		source string
		fabric *Fabric
		op     Op
		ranks  int64
		bytes  units.Bytes
		want   string
	}{
		{"B7: 8 H200, 2.27.7: Ring LL at 1 MiB, NVLS from 2 MiB", h200("2.27.7"), AllReduce, 8, units.MiB, "Ring LL"},
		{"B7", h200("2.27.7"), AllReduce, 8, 2 * units.MiB, "NVLS Simple"},
		{"ml-engineering: 4 H200 ring, 5 to 8 NVLS", h200("2.27.7"), AllReduce, 4, 8 * units.GiB, "Ring Simple"},
		{"ml-engineering", h200("2.27.7"), AllReduce, 5, 8 * units.GiB, "NVLS Simple"},
		{"ml-engineering: 5 B200 ring, 6 to 8 NVLS", b200, AllReduce, 5, 8 * units.GiB, "Ring Simple"},
		{"ml-engineering", b200, AllReduce, 6, 8 * units.GiB, "NVLS Simple"},
		{"B7, 2.28: 4 GPUs LL below 2.4 MiB, LL128 below 9 MiB, then Simple", h200("2.28.9"), AllReduce, 4, 2.3 * units.MiB, "Ring LL"},
		{"B7", h200("2.28.9"), AllReduce, 4, 8.5 * units.MiB, "Ring LL128"},
		{"B7", h200("2.28.9"), AllReduce, 4, 9.5 * units.MiB, "Ring Simple"},
		{"B7: 2 GPUs LL below 1.6 MiB, then Simple", h200("2.28.9"), AllReduce, 2, 1.5 * units.MiB, "Ring LL"},
		{"B7", h200("2.28.9"), AllReduce, 2, 1.7 * units.MiB, "Ring Simple"},
		{"B7: all-gather of 8 GPUs LL below 4.6 MB, LL128 below 23 MB", h200("2.28.9"), AllGather, 8, 4.5 * units.MB, "Ring LL"},
		{"B7", h200("2.28.9"), AllGather, 8, 22 * units.MB, "Ring LL128"},
		{"B7", h200("2.28.9"), AllGather, 8, 24 * units.MB, "Ring Simple"},
	} {
		got := c.fabric.Cost(c.op, c.bytes, Group{Ranks: c.ranks})
		require.Equal(t, c.want, got.Algorithm+" "+got.Protocol, "%s: %d ranks, %s", c.source, c.ranks, c.bytes)
		require.Equal(t, c.want, got.Alternatives[0].Algorithm+" "+got.Alternatives[0].Protocol)
	}

	// Issue #1453: three nodes of 8 H100, "128 Bytes -> Algo 0 proto 0 time 25.2".
	f := hgxH200()
	tn := f.tune(releaseOf(Version{2, 21, 5}), AllReduce, Group{Ranks: 24, PerNode: 8}.normal())
	best := tn.candidates[tn.choose(128)]
	require.Equal(t, Tree, best.algorithm)
	require.Equal(t, LL, best.protocol)
	require.InDelta(t, 25.2, tn.nominal(best, 128), 0.05)
}

// TestCTAs holds the grids of NCCL kernels in the project's own traces (4 H200,
// 2.28.9) and what the release's source gives for NVLS.
func TestCTAs(t *testing.T) {
	ring := machine("h200-ring", Version{2, 28, 9})
	for _, c := range []struct {
		source string
		fabric *Fabric
		op     Op
		bytes  units.Bytes
		group  Group
		want   int
	}{
		{"trace t4-00", ring, AllReduce, 33554432, Group{Ranks: 4}, 24},
		{"trace tr-01", ring, AllGather, 436224000, Group{Ranks: 4}, 24},
		{"trace tr-01", ring, ReduceScatter, 872448000, Group{Ranks: 4}, 24},
		{"trace u4-00", ring, Broadcast, 256, Group{Ranks: 4}, 1},
		{"trace t5-00: one message among 4 ranks", ring, SendRecv, 16777216, Group{Ranks: 4}, 8},
		{"B6: all peers at once", ring, AllToAll, units.GiB, Group{Ranks: 8}, 32},
		{"nvls.cc: Hopper", hgxH200(), AllReduce, units.GiB, Group{Ranks: 8}, 16},
		{"nvls.cc: Blackwell, one node", machine("b200-nvls", Version{}), AllReduce, units.GiB, Group{Ranks: 8}, 24},
		{"nvls.cc: Blackwell, several", machine("b200-nvls", Version{}), AllReduce, 100 * units.MiB, Group{Ranks: 64, PerNode: 8}, 32},
		{"B2: 8 adapters", hgxH200(), AllGather, units.GiB, Group{Ranks: 64, PerNode: 8}, 16},
	} {
		require.Equal(t, c.want, c.fabric.Cost(c.op, c.bytes, c.group).CTAs, c.source)
	}
}

// TestGraphs holds the table of knowledge/hardware-and-collectives.md B2:
// channels and GB/s per channel.
func TestGraphs(t *testing.T) {
	h, a, b := hgxH200(), hgxA100(), machine("b200-nvls", Newest)
	one := func(n int64) Group { return Group{Ranks: n} }
	two := Group{Ranks: 16, PerNode: 8}
	for _, c := range []struct {
		fabric *Fabric
		group  Group
		ring   graph
		nvls   graph
	}{
		{a, one(8), graph{12, 20, 20}, graph{}},
		{h, one(2), graph{12, 30, 30}, graph{2, 60, 60}},
		{h, one(4), graph{12, 30, 30}, graph{4, 60, 60}},
		{h, one(5), graph{12, 30, 30}, graph{5, 60, 60}},
		{h, one(6), graph{12, 30, 30}, graph{6, 50, 60}},
		{h, one(7), graph{12, 30, 30}, graph{7, 40, 60}},
		{h, one(8), graph{12, 30, 30}, graph{8, 40, 60}},
		{b, one(8), graph{16, 45, 45}, graph{8, 80, 90}},
		{a, two, graph{8, 24, 24}, graph{}},
		{h, two, graph{8, 45, 45}, graph{8, 40, 48}},
		{b, two, graph{8, 48, 48}, graph{8, 48, 48}},
	} {
		r, gen := releaseOf(Newest), generationOf(c.fabric.Capability)
		v := c.fabric.view(r, c.group.normal())
		require.Equal(t, c.ring, ringGraph(r, gen, v), "ring, SM%d, %v", c.fabric.Capability, c.group)
		if c.nvls != (graph{}) {
			require.Equal(t, c.nvls, nvlsGraph(r, gen, v), "NVLS, SM%d, %v", c.fabric.Capability, c.group)
		}
	}
}

// TestLinkBetweenSockets: GPUs of PCIe alone share the link between the sockets, which is that
// of the servers of their time: NCCL takes 10 GB/s of Skylake, 22 of Sapphire Rapids, with which
// Ada's came too, and 16 of AMD (src/graph/topo.h). Four L40S, whose Llama-2 70B with adapters of
// MLPerf v4.0 exchanges 1.5 s of its 2.9 (2.9, too, at these rates; 4.9 at Skylake's).
func TestLinkBetweenSockets(t *testing.T) {
	for _, c := range []struct {
		capability int
		cpu        string
		total      float64
	}{{80, "intel", 10}, {86, "intel", 10}, {89, "intel", 22}, {90, "intel", 22}, {89, "amd", 16}} {
		f := Fabric{Capability: c.capability, PCIe: 31.5 * units.GBps, GPUs: 4, Domain: 1, CPU: c.cpu}
		require.Equal(t, c.total, f.view(releaseOf(Newest), Group{Ranks: 4}.normal()).total, "SM%d, %s", c.capability, c.cpu)
		require.Equal(t, 24., f.view(releaseOf(Newest), Group{Ranks: 2}.normal()).total, "two of four are on one socket")
	}
}

// TestPeersAtOnce: what all-to-all takes before its first byte does not grow with its
// peers: 8 H20 take 10.6 to 11.1 us for 128 B to 4 KiB (deepseek-ai/DeepEP issue 303), and
// 2, 4 and 8 B200, with what the host takes, 58, 41 and 51 us (MooreThreads/SimuMax
// configs/system/b200_bf16_ceperm.json).
func TestPeersAtOnce(t *testing.T) {
	hopper := machine("h200-ring", Version{2, 27, 7})
	for bytes, us := range map[units.Bytes]float64{128: 10.6, 1024: 10.8, 4096: 11.1} {
		require.InEpsilon(t, us, 1e6*float64(hopper.Time(AllToAll, bytes, Group{Ranks: 8})), 0.2, "%s", bytes)
	}
	for _, m := range []string{"b200-ring", "gb200"} {
		few := machine(m, Version{2, 27, 7}).Time(AllToAll, 4096, Group{Ranks: 2})
		for _, n := range []int64{4, 8} {
			require.InEpsilon(t, float64(few), float64(machine(m, Version{2, 27, 7}).Time(AllToAll, 4096, Group{Ranks: n})), 0.05, "%s, %d ranks", m, n)
		}
	}
}
