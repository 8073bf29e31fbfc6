package hardware

import (
	"cmp"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// At is the profile with the libraries of a release; the profile itself where they do
// not differ from the newest.
func (p *Profile) At(r units.Release) *Profile {
	g, a := p.Laws.GEMM, p.Laws.Attention
	products := g != nil && slices.ContainsFunc(g.Releases, func(o GEMMRelease) bool { return r.Before(o.Before) })
	attention := a != nil && slices.ContainsFunc(a.Releases, func(o AttentionRelease) bool { return r.Before(o.Before) })
	if !products && !attention {
		return p
	}
	out := *p
	if products {
		out.Laws.GEMM = g.at(r)
	}
	if attention {
		out.Laws.Attention = a.at(r)
	}
	return &out
}

// Kind says how a datum is known.
type Kind string

const (
	Datasheet Kind = "datasheet" // published by the vendor
	Measured  Kind = "measured"  // read off a real machine
	Fitted    Kind = "fitted"    // a constant of a law fitted to measurements
	Assumed   Kind = "assumed"   // a stated guess
)

// UnmarshalText accepts one of the four kinds.
func (k *Kind) UnmarshalText(t []byte) error {
	switch v := Kind(t); v {
	case Datasheet, Measured, Fitted, Assumed:
		*k = v
		return nil
	}
	return fmt.Errorf("%q is not a kind of datum; use datasheet, measured, fitted or assumed", t)
}

// Datum is a value with its provenance. In YAML it is either the bare value or
// {value, source, kind}.
type Datum[T any] struct {
	Value  T
	Source string
	Kind   Kind
	set    bool
}

// Of wraps a value whose provenance is stated elsewhere.
func Of[T any](v T) Datum[T] { return Datum[T]{Value: v, set: true} }

// IsSet reports whether the datum was given.
func (d Datum[T]) IsSet() bool { return d.set }

// DecodeNode reads a bare value or a mapping with value, source and kind.
func (d *Datum[T]) DecodeNode(doc *yamlx.Document, n *yaml.Node) diag.List {
	if _, v := yamlx.Key(n, "value"); n.Kind == yaml.MappingNode && v != nil {
		var full struct {
			Value  T      `yaml:"value"`
			Source string `yaml:"source"`
			Kind   Kind   `yaml:"kind"`
		}
		errs := doc.DecodeInto(n, &full)
		*d = Datum[T]{full.Value, full.Source, full.Kind, true}
		return errs
	}
	*d = Datum[T]{Value: d.Value, set: true} // the source of an inherited value is not that of this one
	return doc.DecodeInto(n, &d.Value)
}

// GPU is one GPU's facts. Peaks are dense (without sparsity).
type GPU struct {
	Name         Datum[string]      `yaml:"name"`         // as nvidia-smi prints it
	Architecture Datum[string]      `yaml:"architecture"` // volta, turing, ampere, ada, hopper, blackwell, blackwell-ultra, rubin
	Peak         Peaks              `yaml:"peak"`
	Memory       Datum[units.Bytes] `yaml:"memory"`    // as nvidia-smi reports it
	Bandwidth    Datum[units.Rate]  `yaml:"bandwidth"` // HBM or GDDR, read plus write
	Copied       Datum[float64]     `yaml:"copied"`    // share of it that a contiguous kernel moves; not set: as on the GPUs whose kernel laws others take
	L2           Datum[units.Bytes] `yaml:"l2"`        // second-level cache
	L2Copies     Datum[float64]     `yaml:"l2_copies"` // parts of it that keep the same bytes, each for the SMs beside it; not set: 1
	L2Rate       Datum[units.Rate]  `yaml:"l2_rate"`   // that all SMs read what it holds at; not set: not known
	SMs          Datum[int64]       `yaml:"sms"`       // streaming multiprocessors
	Clock        Datum[units.Hertz] `yaml:"clock"`     // SM clock at which the tensor peak is rated
	MaxClock     Datum[units.Hertz] `yaml:"max_clock"` // highest SM clock
	Power        Datum[units.Watts] `yaml:"power"`     // board power limit
	Draw         Datum[float64]     `yaml:"draw"`      // power at the same work over that of the chip the power law was measured on; not set: 1
	NVLink       Datum[units.Rate]  `yaml:"nvlink"`    // all links, one direction; 0 without
	PCIe         Datum[units.Rate]  `yaml:"pcie"`      // x16 link or C2C, one direction
	Capability   Datum[string]      `yaml:"compute_capability"`
	PeerAccess   Datum[bool]        `yaml:"peer_access"` // whether it reaches other GPUs' memory over PCIe; not set: it does
	Unified      Datum[bool]        `yaml:"unified"`     // whether its memory is the host's, too
}

// Peers reports whether the GPU reads and writes other GPUs' memory over PCIe.
func (g *GPU) Peers() bool { return g.PeerAccess.Value || !g.PeerAccess.IsSet() }

// Cached is how many different bytes the second-level cache holds; 0: not known.
func (g *GPU) Cached() units.Bytes { return g.L2.Value / units.Bytes(max(g.L2Copies.Value, 1)) }

// TopClock is the highest SM clock, or the rated one where it is not known.
func (g *GPU) TopClock() units.Hertz { return max(g.MaxClock.Value, g.Clock.Value) }

// copied is the share of the memory's rate that a contiguous kernel moves on the GPUs whose
// kernel laws others take: 4.28 of an H200's 4.8 TB/s (hardware/laws/hopper.yaml, vectorized).
const copied = 0.892

// operands is the share of it at which matrix products read and write, by which their laws were
// fitted: copies move 87 to 92 % on all parts with HBM (hardware-and-collectives A2).
const operands = 0.9

// Streams is the rate at which kernels that memory limits move bytes.
func (g *GPU) Streams() units.Rate {
	return units.Rate(cmp.Or(g.Copied.Value, copied)) * g.Bandwidth.Value
}

// Operands is the rate at which matrix products that memory limits move theirs.
func (g *GPU) Operands() units.Rate {
	return units.Rate(cmp.Or(g.Copied.Value, operands)) * g.Bandwidth.Value
}

// Peaks are the dense arithmetic rates by format. A format that the GPU lacks
// is not set.
type Peaks struct {
	FP32 Datum[units.FLOPRate] `yaml:"fp32"` // vector units
	TF32 Datum[units.FLOPRate] `yaml:"tf32"`
	BF16 Datum[units.FLOPRate] `yaml:"bf16"`
	FP16 Datum[units.FLOPRate] `yaml:"fp16"`
	FP8  Datum[units.FLOPRate] `yaml:"fp8"`
	FP4  Datum[units.FLOPRate] `yaml:"fp4"`
}

// Node is the machine around the GPUs.
type Node struct {
	GPUs         Datum[int64]       `yaml:"gpus"`          // per node
	NVLinkDomain Datum[int64]       `yaml:"nvlink_domain"` // GPUs that reach each other over NVLink; may span nodes (NVL72), or 2 for a bridge pair
	Switched     Datum[bool]        `yaml:"switched"`      // NVSwitch: full rate between any pair
	Mesh         Datum[[][]int64]   `yaml:"mesh"`          // without a switch, how many NVLinks join each two GPUs, a row for each ("nvidia-smi topo -m"); not set: all alike, as in domains of another size
	Multicast    Datum[bool]        `yaml:"multicast"`     // NVLink SHARP usable (NCCL's NVLS)
	CPU          Datum[string]      `yaml:"cpu"`           // one of CPUs: NCCL's tables differ
	HostMemory   Datum[units.Bytes] `yaml:"host_memory"`
	Cores        Datum[int64]       `yaml:"cores"`          // of its CPUs
	HostRate     Datum[units.Rate]  `yaml:"host_bandwidth"` // of the memory of all CPUs, read plus write
}

// Network is what connects nodes.
type Network struct {
	NICs             Datum[int64]         `yaml:"nics"`                 // per node, for GPU traffic
	NICBandwidth     Datum[units.Rate]    `yaml:"nic_bandwidth"`        // of one NIC, one direction
	Transport        Datum[string]        `yaml:"transport"`            // one of Transports
	Latency          Datum[units.Seconds] `yaml:"latency"`              // what the transport adds to one hop beyond NCCL's own table
	LatencyScale     Datum[float64]       `yaml:"latency_scale"`        // factor on the latency of every collective, for what-ifs; not set: 1
	Communicator     Datum[units.Rate]    `yaml:"communicator"`         // what one communicator reaches into a node, however many adapters serve it; 0: what they do
	Efficiency       Datum[float64]       `yaml:"efficiency"`           // wire rate reached by large messages, of nic_bandwidth
	Oversubscription Datum[float64]       `yaml:"oversubscription"`     // 2 means half the bandwidth between leaf switches
	InNetworkReduce  Datum[bool]          `yaml:"in_network_reduction"` // SHARP on the switches
}

// Software is what ran where the measurements were taken.
type Software struct {
	Driver Datum[string] `yaml:"driver"`
	CUDA   Datum[string] `yaml:"cuda"`
	NCCL   Datum[string] `yaml:"nccl"`
	Torch  Datum[string] `yaml:"torch"`
}
