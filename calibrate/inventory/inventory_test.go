package inventory

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// hgx is a saved text of a machine with four GPUs behind switches (layout as of
// nvidia-smi 550 and later).
func hgx(t *testing.T) *Topology {
	f, err := os.Open("testdata/hgx-h200.txt")
	require.NoError(t, err)
	defer f.Close()
	top, err := ParseTopology(f, "hgx-h200.txt")
	require.NoError(t, err)
	return top
}

func TestParseTopology(t *testing.T) {
	top := hgx(t)
	require.Equal(t, []string{"GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1"}, top.Devices)
	require.Equal(t, []string{"NODE", "NV18"}, []string{top.Cells[1][4], top.Cells[3][0]})
	require.Equal(t, []string{"mlx5_0", "mlx5_3"}, top.NICs)
	require.Equal(t, 4, top.GPUs())
	require.Equal(t, 2, top.Cards())
	require.Equal(t, 4, top.Domain())
	s, known := top.Switched()
	require.True(t, s && known)
}

// Underlined headers of terminals, cards named in the header, pairs joined by bridges,
// direct links.
func TestTopologies(t *testing.T) {
	for name, c := range map[string]struct {
		text                string
		gpus, cards, domain int
		switched, known     bool
	}{
		"one":       {"\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", 1, 0, 1, false, false},
		"bridges":   {"warning: x\n\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\x1b[0m\nGPU0\tX\tNV12\tSYS\tSYS\tPHB\nGPU1\tNV12\tX\tSYS\tSYS\tPXB\nGPU2\tSYS\tSYS\tX\tNV12\tSYS\nGPU3\tSYS\tSYS\tNV12\tX\tSYS\nmlx5_0\tPHB\tPXB\tSYS\tSYS\tX\n", 4, 1, 2, false, true},
		"direct":    {"GPU0 GPU1 GPU2 GPU3\nGPU0 X NV4 NV4 NV4\nGPU1 NV4 X NV4 NV4\nGPU2 NV4 NV4 X NV4\nGPU3 NV4 NV4 NV4 X\n", 4, 0, 4, false, true},
		"two, NV18": {"GPU0 GPU1\nGPU0 X NV18\nGPU1 NV18 X\n", 2, 0, 2, false, false},
		"over PCIe": {"GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n", 2, 0, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := ParseTopology(strings.NewReader(c.text), "topo.txt")
			require.NoError(t, err)
			s, known := top.Switched()
			require.Equal(t, []any{c.gpus, c.cards, c.domain, c.switched, c.known}, []any{top.GPUs(), top.Cards(), top.Domain(), s, known})
		})
	}
}

func TestBadTopology(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "topo.txt: no table of GPUs; save it by: nvidia-smi topo -m > topo.txt",
		"hello\nworld\n":           "topo.txt: no table of GPUs",
		"GPU0 GPU1\nGPU0 X NV4\n":  "topo.txt:2:1: the table ends after 1 of 2 rows",
		"GPU0 GPU1\nGPU1 X NV4\n":  `topo.txt:2:1: the row begins with "GPU1"; it should be that of GPU0`,
		"GPU0 GPU1\nGPU0 X\n":      "topo.txt:2:1: the row of GPU0 has 1 cells; the header has 2 devices",
		"GPU0 GPU1\nGPU0 X FAST\n": `topo.txt:2:1: GPU0 to GPU1: "FAST" is no kind of link here`,
		"GPU0 GPU1\nGPU0 NV4 X\n":  `topo.txt:2:1: GPU0 to GPU0: "NV4" is no kind of link here`,
	} {
		_, err := ParseTopology(strings.NewReader(text), "topo.txt")
		require.ErrorContains(t, err, want)
		require.True(t, diag.IsInput(err))
	}
}

func FuzzParseTopology(f *testing.F) {
	data, err := os.ReadFile("testdata/hgx-h200.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add("GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n")
	f.Add("GPU0 NIC0 x\nGPU0 X")
	f.Fuzz(func(t *testing.T, text string) {
		top, err := ParseTopology(strings.NewReader(text), "topo.txt")
		if err != nil {
			require.True(t, diag.IsInput(err), "%v", err)
			return
		}
		require.Len(t, top.Cells, len(top.Devices))
		require.LessOrEqual(t, top.Domain(), top.GPUs())
		top.Switched()
	})
}

// files of a Linux system with two cards, one of them without a port.
var files = fstest.MapFS{
	"sys/class/infiniband/mlx5_0/ports/1/rate":       {Data: []byte("400 Gb/sec (4X NDR)\n")},
	"sys/class/infiniband/mlx5_0/ports/1/link_layer": {Data: []byte("InfiniBand\n")},
	"sys/class/infiniband/mlx5_1/node_desc":          {Data: []byte("x")},
	"proc/cpuinfo":                                   {Data: []byte("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: x\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 1\ncore id\t\t: 0\n\nprocessor\t: 2\nphysical id\t: 0\ncore id\t\t: 0\n")},
	"proc/meminfo":                                   {Data: []byte("MemTotal:       2113536000 kB\nMemFree: 1 kB\n")},
}

// The skeleton is a profile that loads, with what was found and the rest inherited.
func TestSkeleton(t *testing.T) {
	m := &Machine{Driver: "580.159.04", CUDA: "13.0", Topology: hgx(t)}
	for i := range 4 {
		m.GPUs = append(m.GPUs, GPU{Index: i, Name: "NVIDIA H200", UUID: "GPU-1", Bus: "00000000:18:00.0", Memory: 143771 << 20, MaxClock: 1980e6, PowerLimit: 600, PowerDefault: 700, SlowdownTemp: 87,
			ECC: true, PCIeGen: 5, PCIeWidth: 16, NVLinks: 18, NVLinkMajor: 4})
	}
	m.system(files)
	text, err := m.Skeleton("h200-sxm")
	require.NoError(t, err)
	require.Contains(t, string(text), "# GPU 0: GPU-1 at 00000000:18:00.0, ECC on, power limit set to 600 W of 700 W, slows down at 87 °C\n")
	require.Contains(t, string(text), "# NIC mlx5_0: 400 Gbit/s InfiniBand\n")
	p := load(t, text)
	require.Equal(t, "h200-sxm", p.Inherits)
	require.Equal(t, 600.0, float64(p.GPU.Power.Value))
	require.Equal(t, 450e9, float64(p.GPU.NVLink.Value))
	require.InDelta(t, 63e9, float64(p.GPU.PCIe.Value), 0.1e9)
	require.Equal(t, int64(4), p.Node.GPUs.Value)
	require.True(t, p.Node.Switched.Value)
	require.Equal(t, "intel", p.Node.CPU.Value)
	require.Equal(t, int64(2), p.Node.Cores.Value, "of three threads")
	require.Equal(t, int64(1), p.Network.NICs.Value)
	require.Equal(t, 50e9, float64(p.Network.NICBandwidth.Value))
	require.Equal(t, "infiniband", p.Network.Transport.Value)
	require.Equal(t, "580.159.04", p.Software.Driver.Value)
	require.Equal(t, hardware.Measured, p.GPU.Memory.Kind)
	require.Equal(t, int64(132), p.GPU.SMs.Value, "inherited")

	again, err := m.Skeleton("h200-sxm")
	require.NoError(t, err)
	require.Equal(t, text, again)
	_, err = m.Skeleton("h2000")
	require.ErrorContains(t, err, `there is no hardware "h2000"`)
}

// A topology alone tells numbers and links.
func TestSkeletonOfTopology(t *testing.T) {
	text, err := (&Machine{Topology: hgx(t)}).Skeleton("h200-sxm")
	require.NoError(t, err)
	p := load(t, text)
	require.Equal(t, int64(4), p.Node.GPUs.Value)
	require.Equal(t, int64(4), p.Node.NVLinkDomain.Value)
	require.Equal(t, int64(2), p.Network.NICs.Value)
	require.Equal(t, 400e9/8, float64(p.Network.NICBandwidth.Value), "inherited")
	require.NotContains(t, string(text), "software")
}

func load(t *testing.T, text []byte) *hardware.Profile {
	doc, err := yamlx.Parse("skeleton.yaml", text)
	require.NoError(t, err)
	p, err := hardware.FromDocument(doc, doc.Root, "skeleton")
	require.NoError(t, err, "%s", text)
	return p
}
