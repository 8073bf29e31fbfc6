package hardware

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

//go:embed catalog/*.yaml laws/*.yaml
var files embed.FS

// Profile is one kind of machine: its facts and its laws. A Profile is a value
// that nothing changes after loading.
type Profile struct {
	Name     string // catalog name or file name
	Title    string
	Inherits string
	GPU      GPU
	Node     Node
	Network  Network
	Software Software
	Price    Price
	Laws     Laws
	// Own says which sections of the laws the profile or its ancestors measured
	// themselves; the others come from the architecture.
	Own map[string]bool
}

// Price is what a GPU costs.
type Price struct {
	GPUHour Datum[float64] `yaml:"gpu_hour"` // US dollars
}

// file is the form of a hardware/v1 file.
type file struct {
	Format   string   `yaml:"perfplan"`
	Title    string   `yaml:"title"`
	Inherits string   `yaml:"inherits"`
	GPU      GPU      `yaml:"gpu"`
	Node     Node     `yaml:"node"`
	Network  Network  `yaml:"network"`
	Software Software `yaml:"software"`
	Price    Price    `yaml:"price"`
	Measured Laws     `yaml:"measured"`
}

// lawsFile is the form of a laws/v1 file of an architecture.
type lawsFile struct {
	Format   string `yaml:"perfplan"`
	Title    string `yaml:"title"`
	Extends  string `yaml:"extends"`     // architecture whose sections fill the gaps
	On       string `yaml:"measured_on"` // catalog name of the GPU
	Measured Laws   `yaml:"measured"`
}

// Names lists the catalog.
func Names() []string {
	entries, _ := files.ReadDir("catalog")
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	sort.Strings(names)
	return names
}

// Known reports whether a name is in the catalog.
func Known(name string) bool { return slices.Contains(Names(), name) }

// ByDevice returns the catalog's plainest profile of a GPU, by the name that
// nvidia-smi prints: the one that the others of that GPU inherit.
func ByDevice(name string) (*Profile, bool) {
	for _, n := range Names() {
		p, err := fromCatalog(n)
		if err != nil || name == "" || p.GPU.Name.Value != name {
			continue
		}
		if parent, err := fromCatalog(p.Inherits); err == nil && parent.GPU.Name.Value == name {
			continue
		}
		return p, true
	}
	return nil, false
}

// Load returns a profile by catalog name or path of a hardware/v1 file.
func Load(name string) (*Profile, error) {
	if Known(name) {
		return fromCatalog(name)
	}
	if !strings.ContainsAny(name, "/.") {
		if _, err := os.Stat(name); err != nil {
			return nil, diag.Errorf("there is no hardware %q in the catalog%s", name, cmp.Or(diag.DidYouMean(name, Names()), "; perfplan hardware list prints those that there are"))
		}
	}
	doc, err := yamlx.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return FromDocument(doc, doc.Root, strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".yml"))
}

// FromDocument decodes a profile from a node of a document, for files and for
// profiles written inline in a job.
func FromDocument(doc *yamlx.Document, n *yaml.Node, name string) (*Profile, error) {
	p, err := decode(doc, n, name, map[string]bool{})
	if err != nil {
		return nil, err
	}
	if err := p.complete(); err != nil {
		return nil, doc.Errorf(yamlx.Place(n, err), "%v", err)
	}
	return p, nil
}

var cache sync.Map // name → *Profile

func fromCatalog(name string) (*Profile, error) {
	if p, ok := cache.Load(name); ok {
		return p.(*Profile), nil
	}
	p, err := catalogProfile(name, map[string]bool{})
	if err != nil {
		return nil, err
	}
	if err := p.complete(); err != nil {
		return nil, err
	}
	cache.Store(name, p)
	return p, nil
}

var documents sync.Map // name → *yamlx.Document

// catalogFile is a file of the catalog, which thousands of profiles may inherit: parsed once.
func catalogFile(name string) (*yamlx.Document, error) {
	if d, ok := documents.Load(name); ok {
		return d.(*yamlx.Document), nil
	}
	data, err := files.ReadFile("catalog/" + name + ".yaml")
	if err != nil {
		return nil, diag.Errorf("there is no hardware %q in the catalog%s", name, diag.DidYouMean(name, Names()))
	}
	doc, err := yamlx.Parse("hardware/catalog/"+name+".yaml", data)
	if err != nil {
		return nil, err
	}
	documents.Store(name, doc)
	return doc, nil
}

func catalogProfile(name string, seen map[string]bool) (*Profile, error) {
	doc, err := catalogFile(name)
	if err != nil {
		return nil, err
	}
	return decode(doc, doc.Root, name, seen)
}

// decode reads a file over what it inherits.
func decode(doc *yamlx.Document, n *yaml.Node, name string, seen map[string]bool) (*Profile, error) {
	p := &Profile{Own: map[string]bool{}}
	for _, other := range [][2]string{{"model", "a job"}, {"model_type", "a model"}} {
		if at, value := yamlx.Key(n, other[0]); value != nil {
			return nil, doc.Errorf(at, "%s: is a key of %s, not of a machine; give a name that perfplan hardware list prints, or a file of perfplan hardware detect or fit", other[0], other[1])
		}
	}
	if _, base := yamlx.Key(n, "inherits"); base != nil && base.Value != "" {
		if seen[base.Value] {
			return nil, doc.Errorf(base, "inherits: %q inherits itself; break the circle", base.Value)
		}
		seen[base.Value] = true
		parent, err := catalogProfile(base.Value, seen)
		if err != nil {
			if known := Names(); !slices.Contains(known, base.Value) {
				return nil, doc.Errorf(base, "inherits: there is no hardware %q in the catalog%s", base.Value, diag.DidYouMean(base.Value, known))
			}
			return nil, err // its own, with its own place
		}
		*p = *parent
	}
	f := file{GPU: p.GPU, Node: p.Node, Network: p.Network, Software: p.Software, Price: p.Price}
	if errs := doc.DecodeInto(n, &f); len(errs) > 0 {
		return nil, errs.Err()
	}
	if f.Format != "" && f.Format != "hardware/v1" {
		key, _ := yamlx.Key(n, "perfplan")
		return nil, doc.Errorf(key, "perfplan: %q is not a hardware file; expected hardware/v1", f.Format)
	}
	p.Name, p.Title, p.Inherits = name, f.Title, f.Inherits
	_, node := yamlx.Key(n, "node")
	_, domain := yamlx.Key(node, "nvlink_domain")
	if domain == nil && p.Node.NVLinkDomain.Value == p.Node.GPUs.Value {
		f.Node.NVLinkDomain.Value = f.Node.GPUs.Value // NVLink that ends at the node does so in one of other size
	}
	p.GPU, p.Node, p.Network, p.Software, p.Price = f.GPU, f.Node, f.Network, f.Software, f.Price
	if err := cmp.Or(p.check(), p.Node.checkDomain(domain != nil), p.Node.checkMesh()); err != nil {
		return nil, doc.Errorf(yamlx.Place(n, err), "%v", err)
	}
	if err := f.Measured.check(); err != nil {
		err = fmt.Errorf("measured.%w", err)
		return nil, doc.Errorf(yamlx.Place(n, err), "%v", err)
	}
	links := LinksOf(&p.GPU, &p.Network)
	for i := range f.Measured.Collectives {
		f.Measured.Collectives[i].On = &links
	}
	gpu := p.GPU
	p.Laws.merge(&f.Measured, &gpu, p.Own)
	return p, nil
}

// CPUs and Transports are those that NCCL and its laws tell apart.
var (
	CPUs       = []string{"intel", "amd", "arm"}
	Transports = []string{"infiniband", "roce", "slingshot", "omnipath", "efa", "ethernet"}
)

// The most that a GPU computes and that a link carries, some hundred times what there is.
const (
	mostFLOPRate units.FLOPRate = 1e18
	MostRate     units.Rate     = 1e14
)

// NoPath is the rate that NCCL assumes where it finds no path (ncclTopoCompute of src/graph/search.cc,
// "falling back to simple order"). What is slower it takes for that.
const NoPath units.Rate = 0.1 * units.GBps

// check refuses facts that no machine has. The error begins with the key.
func (p *Profile) check() error {
	switch {
	case p.GPU.SMs.Value < 1 || p.GPU.SMs.Value > 1024:
		return diag.Errorf("gpu.sms: %d; a GPU has 1 to 1024 streaming multiprocessors (or inherit them)", p.GPU.SMs.Value)
	case p.GPU.Bandwidth.Value < units.GBps || p.GPU.Bandwidth.Value > MostRate:
		return diag.Errorf("gpu.bandwidth: %v; give the memory bandwidth, as in 3.35 TB/s (or inherit it)", p.GPU.Bandwidth.Value)
	case p.GPU.Memory.Value <= 0:
		return diag.Errorf("gpu.memory: give the memory, as in 80 GiB (or inherit it)")
	case p.Node.GPUs.Value < 1 || p.Node.GPUs.Value > 4096:
		return diag.Errorf("node.gpus: %d; a node has 1 to 4096 GPUs (or inherit it)", p.Node.GPUs.Value)
	case p.GPU.Peak.Of("bf16") <= 0 && p.GPU.Peak.Of("fp16") <= 0:
		return diag.Errorf("gpu.peak: give the dense fp16 or bf16 rate, as in 989.4 TFLOP/s (or inherit it)")
	case p.Node.Cores.Value < 0:
		return diag.Errorf("node.cores: %d; give the cores of its CPUs, 1 or more (or inherit them)", p.Node.Cores.Value)
	case p.Network.NICs.Value < 0:
		return diag.Errorf("network.nics: %d; give those of a node, 0 or more (or inherit them)", p.Network.NICs.Value)
	}
	for _, f := range []struct {
		key   string
		datum Datum[float64]
		in    func(v float64) bool
		what  string
	}{
		{"gpu.draw", p.GPU.Draw, func(v float64) bool { return v > 0 && v <= 10 }, "its power at the same work over that of the chip the power law was measured on, above 0, at most 10"},
		{"gpu.copied", p.GPU.Copied, func(v float64) bool { return v > 0 && v <= 1 }, "the share of the memory's bandwidth that contiguous kernels move, above 0, at most 1"},
		{"network.efficiency", p.Network.Efficiency, func(v float64) bool { return v > 0 && v <= 1 }, "the share of the wire rate that large messages reach, above 0, at most 1"},
		{"network.oversubscription", p.Network.Oversubscription, func(v float64) bool { return v >= 1 && v <= 1000 }, "1 for full bandwidth between leaf switches, 2 for half of it, at most 1000"},
		{"network.latency_scale", p.Network.LatencyScale, func(v float64) bool { return v > 0 && v <= 1000 }, "a factor above 0, at most 1000"},
		{"price.gpu_hour", p.Price.GPUHour, IsPrice, Prices},
	} {
		if v := f.datum.Value; f.datum.IsSet() && !f.in(v) {
			return diag.Errorf("%s: %g; give %s", f.key, v, f.what)
		}
	}
	peak := &p.GPU.Peak
	for _, f := range []struct {
		key  string
		rate units.FLOPRate
	}{{"fp32", peak.FP32.Value}, {"tf32", peak.TF32.Value}, {"bf16", peak.BF16.Value}, {"fp16", peak.FP16.Value}, {"fp8", peak.FP8.Value}, {"fp4", peak.FP4.Value}} {
		if f.rate < 0 || f.rate > mostFLOPRate {
			return diag.Errorf("gpu.peak.%s: %v; give the dense rate of the datasheet, at most %v", f.key, f.rate, mostFLOPRate)
		}
	}
	for _, f := range []struct {
		key  string
		rate units.Rate
	}{{"gpu.nvlink", p.GPU.NVLink.Value}, {"gpu.pcie", p.GPU.PCIe.Value}, {"network.nic_bandwidth", p.Network.NICBandwidth.Value}} {
		if f.rate < 0 || f.rate > MostRate {
			return diag.Errorf("%s: %v; give what goes one way, at most %v", f.key, f.rate, MostRate)
		}
	}
	if v := p.Network.NICBandwidth.Value; v > 0 && v < NoPath {
		return diag.Errorf("network.nic_bandwidth: %v; NCCL takes no network for slower than %v: give that or more, or leave it out", v, NoPath)
	}
	for _, f := range []struct {
		key   string
		datum Datum[string]
		known []string
	}{{"node.cpu", p.Node.CPU, CPUs}, {"network.transport", p.Network.Transport, Transports}} {
		if v := f.datum.Value; v != "" && !slices.Contains(f.known, strings.ToLower(v)) {
			return diag.Errorf("%s: %q, of which no law is known; give %s, or leave it out", f.key, v, diag.Or(f.known))
		}
	}
	return nil
}

// checkDomain refuses NVLink domains that are neither parts of a node nor made of whole
// nodes. given says that the domain is what was given, not the node. The error begins with
// the key.
func (n *Node) checkDomain(given bool) error {
	gpus, domain := n.GPUs.Value, n.NVLinkDomain.Value
	switch {
	case domain == 0 || domain > 0 && (gpus%domain == 0 || domain%gpus == 0):
		return nil
	case given:
		return diag.Errorf("node.nvlink_domain: %d, in nodes of %d GPUs; give a divisor or a multiple of these", domain, gpus)
	}
	return diag.Errorf("node.gpus: %d, in NVLink domains of %d GPUs; give a divisor or a multiple of these, or give node.nvlink_domain, too", gpus, domain)
}

// checkMesh refuses tables of NVLinks that no node has: a link joins two GPUs, and each of the two
// counts it. The error begins with the key.
func (n *Node) checkMesh() error {
	mesh := n.Mesh.Value
	for i, row := range mesh {
		if len(row) != len(mesh) {
			return diag.Errorf("node.mesh: row %d has %d numbers; give %d, one for each GPU", i, len(row), len(mesh))
		}
		for k, links := range row {
			switch {
			case links < 0 || links > mostLinks || i == k && links != 0:
				return diag.Errorf("node.mesh: %d NVLinks from GPU %d to GPU %d; give 0 to %d, 0 from a GPU to itself", links, i, k, mostLinks)
			case k < i && links != mesh[k][i]:
				return diag.Errorf("node.mesh: %d NVLinks from GPU %d to GPU %d, %d back; give the same both ways", links, i, k, mesh[k][i])
			}
		}
	}
	return nil
}

// mostLinks is how many NVLinks a GPU has at most: 18 of Hopper and Blackwell, with room.
const mostLinks = 64

// IsPrice reports whether a GPU-hour can cost so many US dollars, and Prices says what can.
func IsPrice(v float64) bool { return v > 0 && v <= 1e6 }

const Prices = "US dollars above 0, at most 1,000,000, or leave it out where no price is known"

// check refuses laws that cannot be evaluated. The error begins with the key.
func (l *Laws) check() error {
	if l.Attention != nil {
		if err := l.Attention.check(); err != nil {
			return fmt.Errorf("attention.%w", err)
		}
	}
	if l.Launch != nil {
		if err := l.Launch.check(); err != nil {
			return fmt.Errorf("launch.%w", err)
		}
	}
	if l.Power != nil {
		for _, name := range slices.Sorted(maps.Keys(l.Power.Class)) {
			if z := l.Power.Class[name].Zeros; !(z >= 0 && z <= 1) {
				return fmt.Errorf("power.class.%s.zeros: %g; give the share of others' power, as in 0.944, or leave it out", name, z)
			}
			if v := l.Power.Class[name].Vector; !(v >= 0) || math.IsInf(v, 0) {
				return fmt.Errorf("power.class.%s.vector: %g; give the share of others' power, as in 0.62, or leave it out", name, v)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Kernels)) {
		law := l.Kernels[name]
		if err := cmp.Or(law.Parts.check(), law.Strips.check()); err != nil {
			return fmt.Errorf("kernels.%s.%w", name, err)
		}
		if !slices.Contains(limits, law.Limit) {
			return fmt.Errorf("kernels.%s.limit: %q is not known; known: %s", name, law.Limit, strings.Join(limits[1:], ", "))
		}
	}
	return nil
}

// section takes a section of laws over where there is one, and marks it.
func section[T any](to **T, own *T, name string, mark map[string]bool) bool {
	if own != nil {
		*to, mark[name] = own, true
	}
	return own != nil
}

// merge fills l with the sections of own, measured on gpu where they do not say.
func (l *Laws) merge(own *Laws, gpu *GPU, mark map[string]bool) {
	if own.Source != "" {
		l.Source, l.Conditions = own.Source, own.Conditions
	}
	if section(&l.GEMM, own.GEMM, "gemm", mark) {
		l.GEMM.On, l.GEMM.Source = cmp.Or(l.GEMM.On, gpu), cmp.Or(l.GEMM.Source, own.Source)
	}
	section(&l.SGEMM, own.SGEMM, "sgemm", mark)
	if section(&l.Attention, own.Attention, "attention", mark) {
		l.Attention.On, l.Attention.Source = cmp.Or(l.Attention.On, gpu), cmp.Or(l.Attention.Source, own.Source)
	}
	if len(own.Kernels) > 0 {
		kernels := make(map[string]KernelLaw, len(l.Kernels)+len(own.Kernels))
		maps.Copy(kernels, l.Kernels)
		for k, v := range own.Kernels {
			v.On, v.Source = cmp.Or(v.On, gpu), cmp.Or(v.Source, own.Source)
			kernels[k] = v
		}
		l.Kernels, mark["kernels"] = kernels, true
	}
	section(&l.Launch, own.Launch, "launch", mark)
	section(&l.Overlap, own.Overlap, "overlap", mark)
	if section(&l.Power, own.Power, "power", mark) {
		l.Power.On = cmp.Or(l.Power.On, gpu)
	}
	section(&l.Memory, own.Memory, "memory", mark)
	if section(&l.Step, own.Step, "step", mark) {
		l.Step.On = cmp.Or(l.Step.On, gpu)
	}
	section(&l.Offload, own.Offload, "offload", mark)
	if len(own.Collectives) > 0 {
		l.Collectives, mark["collectives"] = own.Collectives, true
	}
	if len(own.Copies) > 0 {
		l.Copies, mark["copies"] = own.Copies, true
	}
}

// complete fills the sections that were not measured from the architecture.
func (p *Profile) complete() error {
	own := p.Laws
	base, err := architecture(p.GPU.Architecture.Value, map[string]bool{})
	if err != nil {
		return err
	}
	p.Laws = *base
	p.Laws.merge(&own, &p.GPU, map[string]bool{})
	if len(p.Laws.GEMM.tiles) == 0 {
		if err := p.Laws.GEMM.parse(); err != nil {
			return fmt.Errorf("measured.%w", err)
		}
	}
	if len(p.Laws.SGEMM.tiles) == 0 {
		if err := p.Laws.SGEMM.parse(); err != nil {
			return fmt.Errorf("measured.%w", err)
		}
	}
	return nil
}

var lawCache sync.Map // architecture → *Laws

// architecture returns the laws of an architecture; those of the nearest known
// one when it is new.
func architecture(name string, seen map[string]bool) (*Laws, error) {
	if l, ok := lawCache.Load(name); ok {
		return l.(*Laws), nil
	}
	data, err := files.ReadFile("laws/" + name + ".yaml")
	if err != nil {
		var known []string
		entries, _ := files.ReadDir("laws")
		for _, e := range entries {
			known = append(known, strings.TrimSuffix(e.Name(), ".yaml"))
		}
		return nil, diag.Errorf("gpu.architecture: there are no laws for %q%s", name, diag.DidYouMean(name, known))
	}
	doc, err := yamlx.Parse("hardware/laws/"+name+".yaml", data)
	if err != nil {
		return nil, err
	}
	var f lawsFile
	if err := doc.Decode(&f); err != nil {
		return nil, err
	}
	l := &Laws{}
	if f.Extends != "" && !seen[f.Extends] {
		seen[name] = true
		base, err := architecture(f.Extends, seen)
		if err != nil {
			return nil, err
		}
		*l = *base
	}
	on, err := catalogProfile(f.On, map[string]bool{})
	if err != nil {
		return nil, err
	}
	l.merge(&f.Measured, &on.GPU, map[string]bool{})
	if f.Measured.GEMM != nil {
		if err := l.GEMM.parse(); err != nil {
			return nil, doc.Errorf(doc.At("measured", "gemm"), "%v", err)
		}
	}
	if f.Measured.SGEMM != nil {
		if err := l.SGEMM.parse(); err != nil {
			return nil, doc.Errorf(doc.At("measured", "sgemm"), "%v", err)
		}
	}
	lawCache.Store(name, l)
	return l, nil
}

// Of returns the dense peak of a format; 0 when the GPU lacks it. bf16 falls back
// on fp16 nowhere: a GPU without it runs it on its vector units.
func (p *Peaks) Of(dtype string) units.FLOPRate {
	switch dtype {
	case "fp32":
		return p.FP32.Value
	case "tf32":
		return p.TF32.Value
	case "bf16":
		return p.BF16.Value
	case "fp16":
		return p.FP16.Value
	case "fp8", "mxfp8", "fp8-block", "fp8-rowwise":
		return p.FP8.Value
	case "fp4":
		return p.FP4.Value
	}
	return 0
}
