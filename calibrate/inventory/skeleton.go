package inventory

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Rates of a PCIe lane by generation, B/s in one direction after line coding (PCI-SIG).
var lane = map[int]float64{1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}

// Rates of an NVLink by generation, B/s in one direction (NVIDIA's architecture
// papers of P100, V100, A100, H100, B200).
var nvlink = map[int]float64{1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}

// Skeleton writes the machine as a hardware/v1 profile that inherits the named entry
// of the catalog: the facts that were found, each with its source.
func (m *Machine) Skeleton(base string) ([]byte, error) {
	p, err := hardware.Load(base)
	if err != nil {
		return nil, err
	}
	w := &writer{root: &yaml.Node{Kind: yaml.MappingNode}}
	w.plain(w.root, "perfplan", "hardware/v1")
	title := p.GPU.Name.Value
	if n := m.count(); n > 0 {
		title = fmt.Sprintf("%d × %s, as detected", n, title)
	}
	w.plain(w.root, "title", title)
	w.plain(w.root, "inherits", base)
	w.root.HeadComment = m.remarks()

	const byNVML, byTopology, bySystem = "NVML", "nvidia-smi topo -m", "the operating system"
	gpu := w.section("gpu")
	if len(m.GPUs) > 0 {
		g := m.GPUs[0]
		w.datum(gpu, "name", g.Name, byNVML)
		w.quantity(gpu, "memory", float64(g.Memory)/(1<<20), "MiB", byNVML)
		w.quantity(gpu, "max_clock", g.MaxClock/1e6, "MHz", byNVML)
		w.quantity(gpu, "power", g.PowerLimit, "W", byNVML+", enforced limit")
		w.quantity(gpu, "nvlink", float64(g.NVLinks)*nvlink[g.NVLinkMajor]/1e9, "GB/s", fmt.Sprintf("%s: %d active links of generation %d", byNVML, g.NVLinks, g.NVLinkMajor))
		w.quantity(gpu, "pcie", float64(g.PCIeWidth)*lane[g.PCIeGen]/1e9, "GB/s", fmt.Sprintf("%s: generation %d, %d lanes", byNVML, g.PCIeGen, g.PCIeWidth))
	}
	node := w.section("node")
	if n := m.count(); n > 0 {
		source := byNVML
		if len(m.GPUs) == 0 {
			source = byTopology
		}
		w.datum(node, "gpus", n, source)
	}
	if t := m.Topology; t != nil {
		w.datum(node, "nvlink_domain", t.Domain(), byTopology)
		if s, known := t.Switched(); known {
			w.datum(node, "switched", s, byTopology)
		}
	}
	if m.CPU != "" {
		w.datum(node, "cpu", m.CPU, bySystem)
	}
	if m.Cores > 0 {
		w.datum(node, "cores", m.Cores, bySystem)
	}
	w.quantity(node, "host_memory", float64(m.HostMemory)/(1<<30), "GiB", bySystem)
	network := w.section("network")
	switch {
	case len(m.NICs) > 0:
		w.datum(network, "nics", len(m.NICs), bySystem)
		w.quantity(network, "nic_bandwidth", m.NICs[0].Rate*8/1e9, "Gbit/s", bySystem+", "+m.NICs[0].Name)
		if t := map[string]string{"InfiniBand": "infiniband", "Ethernet": "roce"}[m.NICs[0].Link]; t != "" {
			w.datum(network, "transport", t, bySystem)
		}
	case m.Topology != nil && m.Topology.Cards() > 0:
		w.datum(network, "nics", m.Topology.Cards(), byTopology)
	}
	software := w.section("software")
	if m.Driver != "" {
		w.datum(software, "driver", m.Driver, byNVML)
	}
	if m.CUDA != "" {
		w.datum(software, "cuda", m.CUDA, byNVML)
	}
	return w.bytes()
}

// count is the number of GPUs.
func (m *Machine) count() int {
	if len(m.GPUs) == 0 && m.Topology != nil {
		return m.Topology.GPUs()
	}
	return len(m.GPUs)
}

// remarks are facts that no key of hardware/v1 has.
func (m *Machine) remarks() string {
	var lines []string
	for _, g := range m.GPUs {
		s := fmt.Sprintf("GPU %d: %s at %s", g.Index, g.UUID, g.Bus)
		if g.ECC {
			s += ", ECC on"
		}
		if g.MultiInstance {
			s += ", MIG on"
		}
		if g.PowerDefault > 0 && g.PowerDefault != g.PowerLimit {
			s += fmt.Sprintf(", power limit set to %.0f W of %.0f W", g.PowerLimit, g.PowerDefault)
		}
		if g.SlowdownTemp > 0 {
			s += fmt.Sprintf(", slows down at %d °C", g.SlowdownTemp)
		}
		lines = append(lines, s)
	}
	for _, n := range m.NICs {
		lines = append(lines, fmt.Sprintf("NIC %s: %.0f Gbit/s %s", n.Name, n.Rate*8/1e9, n.Link))
	}
	if t := m.Topology; t != nil {
		for i, row := range t.Cells {
			lines = append(lines, fmt.Sprintf("%s: %s", t.Devices[i], strings.Join(row, " ")))
		}
	}
	return strings.Join(lines, "\n")
}

// writer builds YAML in order; empty sections are left out.
type writer struct{ root *yaml.Node }

func scalar(v any) *yaml.Node {
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil { // of strings, numbers and booleans
		panic(err)
	}
	return n
}

func (w *writer) plain(to *yaml.Node, key string, v any) {
	to.Content = append(to.Content, scalar(key), scalar(v))
}

func (w *writer) section(key string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	w.root.Content = append(w.root.Content, scalar(key), n)
	return n
}

func (w *writer) datum(to *yaml.Node, key string, v any, source string) {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	w.plain(n, "value", v)
	w.plain(n, "source", source)
	w.plain(n, "kind", "measured")
	to.Content = append(to.Content, scalar(key), n)
}

// quantity writes a number with its unit, where it is known.
func (w *writer) quantity(to *yaml.Node, key string, v float64, unit, source string) {
	if v > 0 {
		w.datum(to, key, fmt.Sprintf("%.6g %s", v, unit), source)
	}
}

func (w *writer) bytes() ([]byte, error) {
	var kept []*yaml.Node
	for i := 0; i < len(w.root.Content); i += 2 {
		if v := w.root.Content[i+1]; v.Kind != yaml.MappingNode || len(v.Content) > 0 {
			kept = append(kept, w.root.Content[i], v)
		}
	}
	w.root.Content = kept
	return yamlx.Encode(w.root)
}
