package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/calibrate/sample"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// Options are what a profile says beyond its laws.
type Options struct {
	Name  string // of the samples, for messages and the source
	Title string // of the profile; "" for the base's
}

// Result is a fitted profile and how well it fits.
type Result struct {
	YAML   []byte            // hardware/v1
	Loaded *hardware.Profile // the same, as estimate reads it
	Probes []Probe           // in the order of Names
	Notes  []diag.Note
}

// Probe is how well the profile describes what one probe measured. Errors are
// |ln(measured/predicted)| of kernel times alone, each shape predicted from the others where the
// profile keeps shapes.
type Probe struct {
	Name             string
	Points           int     // cases used
	Failed, Dropped  int     // cases that gave no time; throttled and the like
	Mean, P95, Worst float64 // errors
	WorstCase        string
	Base             float64 // mean error of the profile that is refined, on the same cases
	Deviation        float64 // relative standard deviation that estimate's range uses
}

// Names are the probes, in the order of reports.
var Names = []string{"gemm", "attention", "memory", "adam", "launch", "host", "host-memory", "copy", "power", "collective", "overlap"}

// fitter holds what the sections share.
type fitter struct {
	header  *sample.Header
	base    *hardware.Profile
	ref     *reference       // nil for the reference itself
	before  *kernel.Timer    // of the base
	machine hardware.Profile // the base with the device's name and the laws found so far
	own     hardware.Laws    // found here; what the file will hold
	node    hardware.Node    // likewise
	cases   map[string][]point
	probes  map[string]*Probe
	notes   []diag.Note
	gap     float64 // seconds that the launch law puts between dependent kernels
}

// Run fits a samples file over a base profile.
func Run(f *sample.File, base *hardware.Profile, o Options) (*Result, error) {
	if err := check(f, o.Name); err != nil {
		return nil, err
	}
	if len(f.Samples) == 0 {
		return nil, &diag.Error{File: o.Name, Message: "holds no sample; run perfplan calibrate"}
	}
	x, err := newFitter(f, base)
	if err != nil {
		return nil, err
	}
	if x.ref, err = theReference(); err != nil {
		return nil, err
	}
	for _, section := range []func(){x.launch, x.power, x.kernels, x.attention, x.gemm, x.copies, x.hostMemory, x.collectives, x.overlap} {
		section()
	}
	x.leftOver()
	return x.result(o)
}

// Join puts the samples of several calibrations of one machine together: of one GPU
// and of all, quick and full. Names are for messages.
func Join(names []string, files []*sample.File) (*sample.File, error) {
	all := *files[0]
	all.Samples = nil
	for i, f := range files {
		if err := check(f, names[i]); err != nil {
			return nil, err
		}
		if f.Header.Device != all.Header.Device {
			return nil, &diag.Error{File: names[i], Line: 1, Col: 1, Message: fmt.Sprintf("samples of %s, those of %s are of %s; fit each machine by itself", f.Header.Device, names[0], all.Header.Device)}
		}
		all.Header.GPUs = max(all.Header.GPUs, f.Header.GPUs)
		all.Samples = append(all.Samples, f.Samples...)
	}
	return &all, nil
}

// newFitter begins with the base's laws.
func newFitter(f *sample.File, base *hardware.Profile) (*fitter, error) {
	x := &fitter{header: &f.Header, base: base, machine: *base, probes: map[string]*Probe{}}
	x.machine.GPU.Name = x.device()
	var err error
	if x.before, err = kernel.New(base); err != nil {
		return nil, err
	}
	bare := *base.Laws.GEMM // a timer works through the shapes, which only the multiplies need
	bare.Points = nil
	x.machine.Laws.GEMM = &bare
	x.cases = x.group(f.Samples)
	return x, nil
}

// device is the name of the GPU; another one than the base's is remarked.
func (x *fitter) device() hardware.Datum[string] {
	d, base := x.header.Device, x.base.GPU.Name
	if d == "" || d == base.Value {
		return base
	}
	x.note("fit.other-gpu", "choose a base of the same GPU (perfplan hardware list), or correct its facts in the profile",
		"the samples are of %s, the base %s describes %s: its datasheet figures are inherited as they are", d, x.base.Name, base.Value)
	out := hardware.Of(d)
	out.Source, out.Kind = "device name in the samples", hardware.Measured
	return out
}

func (x *fitter) note(code, remedy, format string, args ...any) {
	x.notes = append(x.notes, diag.Note{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// probe is the record of a probe.
func (x *fitter) probe(name string) *Probe {
	if x.probes[name] == nil {
		x.probes[name] = &Probe{Name: name}
	}
	return x.probes[name]
}

// missing remarks a section that has too few cases, and reports whether it has.
func (x *fitter) missing(name, what string, have, need int) bool {
	if have >= need {
		return false
	}
	if have == 0 && x.probe(name).Failed == 0 {
		x.note("fit.not-measured", "run perfplan calibrate --only "+name, "no sample of probe %s: %s inherited from %s", name, what, x.base.Name)
	} else {
		x.note("fit.too-few", "run perfplan calibrate --only "+name, "probe %s has %d usable cases, fewer than the %d needed: %s inherited from %s", name, have, need, what, x.base.Name)
	}
	return true
}

// leftOver remarks failed cases and probes that nobody knows.
func (x *fitter) leftOver() {
	for _, name := range Names {
		if p := x.probe(name); p.Failed > 0 {
			x.note("fit.failed", "see the error in the samples; run perfplan calibrate --resume", "%d cases of probe %s failed and are left out", p.Failed, name)
		}
	}
	var unknown []string
	for name := range x.cases {
		if !slices.Contains(Names, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		x.note("fit.unknown-probe", "", "probe %q is not known and left out%s", name, diag.DidYouMean(name, Names))
	}
}

// source describes the machine and the day.
func (x *fitter) source() string {
	h := x.header
	parts := []string{cmp.Or(h.Device, "a GPU")}
	for _, s := range [][2]string{{"driver ", h.Driver}, {"CUDA ", h.CUDA}, {"cuBLASLt ", h.CuBLASLt}, {"cuDNN ", h.CuDNN}, {"NCCL ", h.NCCL}} {
		if s[1] != "" {
			parts = append(parts, s[0]+s[1])
		}
	}
	return "perfplan calibrate on " + strings.Join(append(parts, cmp.Or(h.Date, "no date")), ", ")
}

// conditions are those of the header in one line.
func (x *fitter) conditions() string {
	keys := slices.Sorted(maps.Keys(x.header.Conditions))
	for i, k := range keys {
		keys[i] = k + " " + x.header.Conditions[k]
	}
	return strings.Join(keys, "; ")
}

// result writes the profile and reads it back.
func (x *fitter) result(o Options) (*Result, error) {
	p := &hardware.Profile{Title: cmp.Or(o.Title, x.base.Title), Laws: x.own, Node: x.node}
	if hardware.Known(x.base.Name) {
		p.Inherits = x.base.Name
		if x.machine.GPU.Name.Value != x.base.GPU.Name.Value {
			p.GPU.Name = x.machine.GPU.Name
		}
		if x.machine.GPU.Draw != x.base.GPU.Draw {
			p.GPU.Draw = x.machine.GPU.Draw
		}
	} else { // a file cannot be inherited: the profile holds all of it
		p.GPU, p.Node, p.Network, p.Software, p.Price = x.machine.GPU, x.base.Node, x.base.Network, x.base.Software, x.base.Price
		p.Node.Cores, p.Node.HostRate = cmp.Or(x.node.Cores, p.Node.Cores), cmp.Or(x.node.HostRate, p.Node.HostRate)
		inherit(&p.Laws, x.base)
	}
	for _, s := range []struct {
		datum *hardware.Datum[string]
		value string
	}{{&p.Software.Driver, x.header.Driver}, {&p.Software.CUDA, x.header.CUDA}, {&p.Software.NCCL, x.header.NCCL}} {
		if s.value != "" {
			*s.datum = hardware.Of(s.value)
			s.datum.Source, s.datum.Kind = "header of the samples", hardware.Measured
		}
	}
	p.Laws.Source, p.Laws.Conditions = x.source(), x.conditions()
	text, err := hardware.Encode(p)
	if err != nil {
		return nil, err
	}
	doc, err := yamlx.Parse("profile.yaml", text)
	if err != nil {
		return nil, fmt.Errorf("the fitted profile cannot be read back: %w", err)
	}
	loaded, err := hardware.FromDocument(doc, doc.Root, "profile")
	if err != nil {
		return nil, fmt.Errorf("the fitted profile cannot be read back: %w", err)
	}
	r := &Result{YAML: text, Loaded: loaded, Notes: x.notes}
	for _, name := range Names {
		r.Probes = append(r.Probes, *x.probe(name))
	}
	return r, nil
}

// inherit copies the sections that a base measured itself and the samples lack.
func inherit(l *hardware.Laws, base *hardware.Profile) {
	b, own := &base.Laws, base.Own
	if l.GEMM == nil && own["gemm"] {
		l.GEMM = b.GEMM
	}
	if l.Attention == nil && own["attention"] {
		l.Attention = b.Attention
	}
	if own["kernels"] {
		kernels := map[string]hardware.KernelLaw{}
		for _, m := range []map[string]hardware.KernelLaw{b.Kernels, l.Kernels} {
			maps.Copy(kernels, m)
		}
		l.Kernels = kernels
	}
	if l.Launch == nil && own["launch"] {
		l.Launch = b.Launch
	}
	if l.Overlap == nil && own["overlap"] {
		l.Overlap = b.Overlap
	}
	if l.Power == nil && own["power"] {
		l.Power = b.Power
	}
	if own["memory"] {
		l.Memory = b.Memory
	}
	if own["step"] {
		l.Step = b.Step
	}
	if l.Collectives == nil && own["collectives"] {
		l.Collectives = b.Collectives
	}
	if l.Offload == nil && own["offload"] {
		l.Offload = b.Offload
	}
	if l.Copies == nil && own["copies"] {
		l.Copies = b.Copies
	}
}

// judge fills the record of a probe: errors are ln(measured/predicted), of the fitted
// law and of the base's.
func (p *Probe) judge(names []string, fitted, base []float64, deviation float64) {
	p.Points, p.Deviation = len(fitted), deviation
	abs := make([]float64, len(fitted))
	for i, e := range fitted {
		abs[i] = math.Abs(e)
		p.Mean += abs[i] / float64(len(fitted))
		if abs[i] >= p.Worst {
			p.Worst, p.WorstCase = abs[i], names[i]
		}
	}
	p.P95 = quantile(abs, 0.95)
	for _, e := range base {
		p.Base += math.Abs(e) / float64(len(base))
	}
}
