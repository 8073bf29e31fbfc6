package collective

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
)

// sample is one row of testdata: a published time of a collective.
type sample struct {
	machine string
	nccl    Version
	op      Op
	group   Group
	bytes   units.Bytes
	time    units.Seconds
	source  string
}

// samples reads testdata. fit.csv holds the points that shapes.yaml was fitted
// to, beside the catalog's curves, check.csv other tables, which set no constant but
// spread. Both are drawn from published-components.csv of the measured facts, from
// table B8 of knowledge/hardware-and-collectives.md and from the project's own runs;
// the source column names the publication or the run. clusters.csv are nccl-tests' tables of
// other people's machines from 1 MiB up, on machines of the catalog, found and predicted on 2026-11-26: what
// is fitted to them since, shapes.yaml says. host.csv are tables of GPUs without peer access, to which the
// rate through the host's memory is fitted, on servers that are set up for it.
func samples(t *testing.T, file string) []sample {
	f, err := os.Open("testdata/" + file)
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	var all []sample
	for _, r := range rows[1:] {
		s := sample{machine: r[0], source: r[7]}
		if r[1] != "" {
			require.NoError(t, s.nccl.UnmarshalText([]byte(r[1])))
		}
		require.NoError(t, s.op.UnmarshalText([]byte(r[4])))
		number := func(i int) float64 {
			x, err := strconv.ParseFloat(r[i], 64)
			require.NoError(t, err)
			return x
		}
		s.group = Group{Ranks: int64(number(2)), PerNode: int64(number(2) / number(3))}
		if len(r) > 8 {
			s.group.Stride = int64(number(8))
		}
		s.bytes, s.time = units.Bytes(number(5)), units.Seconds(number(6)*1e-6)
		all = append(all, s)
	}
	return all
}

// machineOf is a machine of machines_test.go or of the catalog, there with so many adapters.
func machineOf(t *testing.T, name string, v Version) *Fabric {
	catalog, adapters, _ := strings.Cut(name, ", ")
	h, err := hardware.Load(catalog)
	if err != nil {
		return machine(name, v)
	}
	f, err := FabricOf(h.GPU, h.Node, h.Network, h.Software)
	require.NoError(t, err)
	f.NCCL = v
	if adapters != "" {
		_, err := fmt.Sscanf(adapters, "%d adapters", &f.NICs)
		require.NoError(t, err)
	}
	return f
}

// catalogSamples are the curves of two and four H200 without multicast in the catalog,
// where kernels and not launches take the time.
func catalogSamples(t *testing.T) []sample {
	const ringAndSimple = 16 * units.MiB
	h, err := hardware.Load("h200-sxm")
	require.NoError(t, err)
	f, err := FabricOf(h.GPU, h.Node, h.Network, h.Software, h.Laws.Collectives...)
	require.NoError(t, err)
	var all []sample
	for _, c := range f.Curves {
		for i, b := range c.Bytes {
			if c.Op != AllToAll && b >= ringAndSimple {
				all = append(all, sample{"h200-ring", Version{2, 28, 9}, c.Op, Group{Ranks: c.Ranks}, b, c.Time[i], "catalog"})
			}
		}
	}
	return all
}

// errors are fractions: (predicted - measured) / measured.
type errors []float64

func (e errors) quantile(q float64) float64 {
	a := make([]float64, len(e))
	for i := range e {
		a[i] = math.Abs(e[i])
	}
	sort.Float64s(a)
	return a[int(q*float64(len(a)-1))]
}

func (e errors) mean() (abs, signed float64) {
	for _, x := range e {
		abs, signed = abs+math.Abs(x), signed+x
	}
	n := float64(len(e))
	return abs / n, signed / n
}

func (e errors) String() string {
	abs, signed := e.mean()
	return fmt.Sprintf("n %3d  median %4.1f %%  mean %4.1f %%  signed %+5.1f %%  p90 %4.1f %%  max %5.1f %%",
		len(e), 100*e.quantile(.5), 100*abs, 100*signed, 100*e.quantile(.9), 100*e.quantile(1))
}

// TestAccuracy compares the model, without curves of the machine, with published
// measurements, and prints the errors of every table (go test -v).
func TestAccuracy(t *testing.T) {
	for _, c := range []struct {
		file         string
		median, mean float64 // allowed from 1 MiB up
	}{
		{"fit.csv", 0.045, 0.095},
		{"check.csv", 0.07, 0.11},
		{"clusters.csv", 0.095, 0.19},
		{"host.csv", 0.05, 0.05},
	} {
		t.Run(c.file, func(t *testing.T) {
			fabrics := map[string]*Fabric{}
			tables := map[string]errors{}
			sizes := map[string]errors{}
			var order []string
			var large errors
			all := samples(t, c.file)
			if c.file == "fit.csv" {
				all = append(all, catalogSamples(t)...)
			}
			for _, s := range all {
				f := fabrics[s.machine+s.nccl.String()]
				if f == nil {
					f = machineOf(t, s.machine, s.nccl)
					fabrics[s.machine+s.nccl.String()] = f
				}
				e := float64(f.Time(s.op, s.bytes, s.group)/s.time) - 1
				name := fmt.Sprintf("%4d ranks %4d nodes %-14s %-12s %s", s.group.Ranks, s.group.Nodes(), s.op, s.machine, s.source)
				if tables[name] == nil {
					order = append(order, name)
				}
				tables[name] = append(tables[name], e)
				switch mib := s.bytes / units.MiB; {
				case mib < 1:
					sizes["a below 1 MiB"] = append(sizes["a below 1 MiB"], e)
				case mib < 8:
					sizes["b 1-4 MiB"] = append(sizes["b 1-4 MiB"], e)
				case mib < 64:
					sizes["c 8-32 MiB"] = append(sizes["c 8-32 MiB"], e)
				case mib < 512:
					sizes["d 64-256 MiB"] = append(sizes["d 64-256 MiB"], e)
				default:
					sizes["e 512 MiB and more"] = append(sizes["e 512 MiB and more"], e)
				}
				if s.bytes >= units.MiB {
					large = append(large, e)
				}
			}
			for _, name := range order {
				t.Logf("%-100s %v", name, tables[name])
			}
			for _, name := range []string{"a below 1 MiB", "b 1-4 MiB", "c 8-32 MiB", "d 64-256 MiB", "e 512 MiB and more"} {
				if e := sizes[name]; len(e) > 0 {
					t.Logf("%-100s %v  68th percentile %.1f %%", name[2:], e, 100*e.quantile(.68))
				}
			}
			t.Logf("%-100s %v", "1 MiB and more", large)
			abs, _ := large.mean()
			require.LessOrEqual(t, large.quantile(.5), c.median, "median")
			require.LessOrEqual(t, abs, c.mean, "mean")
		})
	}
}

// TestHalfSaturation: the size at which all-reduce on nodes of 8 H100 reaches
// half of its bandwidth (knowledge/hardware-and-collectives.md B8, read off the
// plots of arXiv:2411.13055, from which 45*(N/4)^0.27 MiB was drawn).
func TestHalfSaturation(t *testing.T) {
	for nodes, want := range map[int64]float64{4: 36, 8: 60, 16: 75, 64: 100, 128: 125, 512: 145} {
		f, g := machine("h100-ib", Version{2, 20, 5}), Group{Ranks: 8 * nodes, PerNode: 8}
		full := float64(f.Cost(AllReduce, 64*units.GiB, g).AlgBW)
		b := units.MiB
		for float64(b.Per(f.Time(AllReduce, b, g))) < full/2 {
			b *= 1.01
		}
		t.Logf("%3d nodes: %5.1f MiB, measured %3.0f", nodes, float64(b/units.MiB), want)
		require.InEpsilon(t, want, float64(b/units.MiB), 0.2)
	}
}

// TestAllGatherAcross: 32 nodes of 8 H100, 2 GiB: 200 to 340 GB/s depending on
// settings (NVIDIA/nccl issue 1218).
func TestAllGatherAcross(t *testing.T) {
	c := machine("h100-ib", Version{2, 20, 5}).Cost(AllGather, 2*units.GiB, Group{Ranks: 256, PerNode: 8})
	require.Equal(t, "Ring", c.Algorithm)
	require.Greater(t, float64(c.BusBW), 200e9)
	require.Less(t, float64(c.BusBW), 340e9)
}

// TestTransfer: curves of 2 and 4 GPUs improve the prediction for 8 on the same
// machine (A100: vTrain, Galvatron).
func TestTransfer(t *testing.T) {
	bySource := map[string][]sample{}
	for _, file := range []string{"fit.csv", "check.csv"} {
		for _, s := range samples(t, file) {
			if s.machine == "a100-nvlink" && s.op == AllReduce {
				bySource[s.source] = append(bySource[s.source], s)
			}
		}
	}
	for _, source := range []string{"vTrain LUT", "Galvatron sp_time (A100 by its asymptote)"} {
		alone, helped := machine("a100-nvlink", Version{2, 18, 5}), machine("a100-nvlink", Version{2, 18, 5})
		for _, n := range []int64{2, 4} {
			c := Curve{Op: AllReduce, Ranks: n}
			for _, s := range bySource[source] {
				if s.group.Ranks == n {
					c.Bytes, c.Time = append(c.Bytes, s.bytes), append(c.Time, s.time)
				}
			}
			require.NoError(t, c.Check())
			helped.Curves = append(helped.Curves, c)
		}
		var before, after errors
		for _, s := range bySource[source] {
			if s.group.Ranks != 2 && s.group.Ranks != 4 {
				c := helped.Cost(s.op, s.bytes, s.group)
				require.Equal(t, Scaled, c.Source)
				before = append(before, float64(alone.Time(s.op, s.bytes, s.group)/s.time)-1)
				after = append(after, float64(c.Time/s.time)-1)
			}
		}
		t.Logf("%s\n  model  %v\n  scaled %v", source, before, after)
		b, _ := before.mean()
		a, _ := after.mean()
		require.Less(t, a, b+0.01)
	}
}

// TestCommunicator: what one group reaches into a node of Jean Zay's A100, whose adapters move
// 17 GB/s for several: 6.25 GB/s over all eight ranks and for each of two groups, of four a
// quarter of the adapters' (bigscience-workshop/bigscience, experiments/bandwidth).
func TestCommunicator(t *testing.T) {
	f := machineOf(t, "jean-zay-a100", Newest)
	for stride, want := range map[int64]float64{1: 6.25, 2: 6.25, 4: 17. / 4} {
		g := f.Group(64/stride, stride)
		moved := float64(1<<30) * float64(g.Ranks-1) / float64(g.Ranks)
		require.InEpsilon(t, want, moved/float64(f.Time(AllGather, 1<<30, g))/1e9, 0.02, "stride %d", stride)
	}
}

// TestAlps: all-reduces inside a node of Alps and among four, in GB/s on the bus
// (BrokenDuck/gipfelsturm, docs/infra-throughput.md @32a5adf2, NCCL 2.29.2).
func TestAlps(t *testing.T) {
	f := machineOf(t, "alps-gh200", Newest)
	for _, c := range []struct {
		ranks int64
		bytes units.Bytes
		bus   float64
	}{
		{4, 128 << 20, 315.5}, {4, 512 << 20, 333.6}, {4, 4 << 30, 341.1},
		{16, 128 << 20, 89}, {16, 512 << 20, 89.7}, {16, 4 << 30, 90.1},
	} {
		moved := float64(c.bytes) * 2 * float64(c.ranks-1) / float64(c.ranks)
		require.InEpsilon(t, c.bus, moved/float64(f.Time(AllReduce, c.bytes, f.Group(c.ranks, 1)))/1e9, 0.06, "%d ranks, %s", c.ranks, c.bytes)
	}
}

// TestOneRankANode: gathers among one GPU of each of 16 nodes of JUPITER, GB/s on the bus (nccl-tests,
// Simulon experiments/validate_simccl/results/nccl_allgather_16n1g_jupiter.json @62765d2b).
func TestOneRankANode(t *testing.T) {
	f := machineOf(t, "jupiter-gh200", Newest)
	for bytes, bus := range map[units.Bytes]float64{256 << 20: 23.8, 1 << 30: 24.6, 8 << 30: 24.5} {
		require.InEpsilon(t, bus, float64(bytes)*15/16/float64(f.Time(AllGather, bytes, f.Group(16, 4)))/1e9, 0.06, "%s", bytes)
	}
}

// TestUnswitchedNode: a node of four GH200 without a switch, whose pairs have six NVLinks of their
// own: NCCL's rings use those to all three peers (nccl-tests on a node of JUPITER, Simulon
// templates/node/jupiter-gh200-4g.yaml @070798b8, job 537473; GB/s on the bus), what goes to one
// peer a third of them.
func TestUnswitchedNode(t *testing.T) {
	f := machineOf(t, "jupiter-gh200", Newest)
	for _, c := range []struct {
		op    Op
		bytes units.Bytes
		bus   float64
	}{
		{AllReduce, 64 << 20, 298.8}, {AllReduce, 256 << 20, 329.2}, {AllReduce, 1 << 30, 338.8},
		{AllGather, 64 << 20, 261.3}, {AllGather, 256 << 20, 297.2}, {AllGather, 1 << 30, 310.6},
		{ReduceScatter, 64 << 20, 261.4}, {ReduceScatter, 256 << 20, 296.9}, {ReduceScatter, 1 << 30, 311.2},
	} {
		share := 3.0 / 4
		if c.op == AllReduce {
			share *= 2
		}
		require.InEpsilon(t, c.bus, float64(c.bytes)*share/float64(f.Time(c.op, c.bytes, f.Group(4, 1)))/1e9, 0.06, "%s of %s", c.op, c.bytes)
	}
	four := machineOf(t, "v100-32g-sxm", Newest) // four V100 with two NVLinks between each two of them, as a node of Jean Zay has
	four.GPUs, four.Domain = 4, 4
	// bigscience-workshop/bigscience experiments/bandwidth/n1_32gb_all_reduce_bench.txt @9e64edec2ad1: 4 GB in
	// 48.4 ms ("algo throughput: 1323.6244 Gbps", twice 4 GB over the time).
	require.InEpsilon(t, 0.0484, float64(four.Time(AllReduce, 4e9, four.Group(4, 1))), 0.06)
	for name, want := range map[string]units.Seconds{"jupiter-gh200": 3, "leonardo-a100": 3, "h100-sxm": 1, "gb200-nvl72": 1, "l40s": 1} {
		f := machineOf(t, name, Newest)
		require.Equal(t, want, f.Links(f.Group(4, 1)), name)
		require.EqualValues(t, 1, f.Links(f.Group(2, 1)), name)
		require.EqualValues(t, 1, f.Links(f.Group(4, 8)), "%s, across nodes", name)
	}
}

// TestCubeMesh: of the six NVLinks of a V100 in a DGX-1 one leads to the other GPU of some pairs and four
// to the other three of its half, so that all-reduces of two, four and eight GPUs move data at the rate of
// one, four and six; two in each other's halves, or every second GPU, share one and two.
func TestCubeMesh(t *testing.T) {
	f := machineOf(t, "v100-32g-sxm", Newest)
	for _, c := range []struct {
		ranks, stride int64
		links         float64
	}{{2, 1, 1}, {4, 1, 4}, {8, 1, 6}, {2, 2, 1}, {4, 2, 2}, {2, 4, 1}} {
		require.InDelta(t, c.links/6, f.joined(f.Group(c.ranks, c.stride)), 1e-12, "%d ranks, each %d apart", c.ranks, c.stride)
	}
	bus := func(ranks int64) float64 {
		return 1 << 30 / float64(f.Time(AllReduce, 1<<30, f.Group(ranks, 1))) * 2 * float64(ranks-1) / float64(ranks)
	}
	require.InEpsilon(t, 4*bus(2), bus(4), 0.02)
	require.InEpsilon(t, 6*bus(2), bus(8), 0.02)
	require.InDelta(t, 2.0/7, f.joined(Group{Ranks: 3, PerNode: 3, Stride: 1}), 1e-12, "3, 4 and 5: 3 has no link to them")

	half := machineOf(t, "v100-32g-sxm", Newest)
	half.GPUs, half.Domain = 4, 4
	require.InDelta(t, 1.0/3, half.joined(half.Group(2, 1)), 1e-12, "a mesh of eight says nothing of nodes of four")
	f.Switched = true
	require.EqualValues(t, 1, f.joined(f.Group(2, 1)))
}
