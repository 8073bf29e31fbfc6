package collective

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/perfplan/perfplan/internal/yamlx"
)

// Algorithm is how NCCL moves the data of a collective.
type Algorithm uint8

// The algorithms that the tuner may pick, in NCCL's order (ties go to the
// first), then PointToPoint for what the tuner does not see. CollNetChain is
// left out: the direct form beats it wherever a switch reduces.
const (
	Tree Algorithm = iota
	Ring
	CollNetDirect
	NVLS
	NVLSTree
	PAT
	PointToPoint
	algorithmCount
)

var algorithmNames = [algorithmCount]string{"Tree", "Ring", "CollNetDirect", "NVLS", "NVLSTree", "PAT", "P2P"}

func (a Algorithm) String() string { return algorithmNames[a] }

// Protocol is how NCCL signals that data has arrived: LL with a flag beside
// every 4 bytes (half the bandwidth, the least latency), LL128 with one flag in
// 128 bytes, Simple with memory fences around large chunks.
type Protocol uint8

// The protocols, in NCCL's order.
const (
	LL Protocol = iota
	LL128
	Simple
	protocolCount
)

var protocolNames = [protocolCount]string{"LL", "LL128", "Simple"}

func (p Protocol) String() string { return protocolNames[p] }

// Version is a release of NCCL: major, minor, patch.
type Version [3]int

// Newest is the last release whose constants are known.
var Newest = Version{2, 30, 7}

// ParseVersion reads a release such as "2.28.9", "2.28.9-1" or
// "2.28.9+cuda13.0". The patch may be left out.
func ParseVersion(s string) (Version, error) {
	var v Version
	text, _, _ := strings.Cut(s, "+")
	text, _, _ = strings.Cut(text, "-")
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return v, fmt.Errorf("%q is not a version of NCCL; write one such as 2.28.9", s)
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 9999 {
			return Version{}, fmt.Errorf("%q is not a version of NCCL; write one such as 2.28.9", s)
		}
		v[i] = n
	}
	return v, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// UnmarshalText reads what ParseVersion reads.
func (v *Version) UnmarshalText(t []byte) (err error) { *v, err = ParseVersion(string(t)); return }

func (v Version) less(w Version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// generation is the row of NCCL's tables that a compute capability selects.
type generation int

const (
	volta generation = iota
	ampere
	hopper
	blackwell
)

func generationOf(capability int) generation {
	switch {
	case capability >= 100:
		return blackwell
	case capability >= 90:
		return hopper
	case capability >= 80:
		return ampere
	}
	return volta
}

// hops are the latencies of one algorithm in us, each by protocol: what every
// call costs, and what a step over NVLink, PCIe and the network costs.
type hops struct {
	Base   []float64 `yaml:"base"`
	NVLink []float64 `yaml:"nvlink"`
	PCI    []float64 `yaml:"pci"`
	Net    []float64 `yaml:"net"`
}

// byGeneration is a table with one row per architecture.
type byGeneration struct {
	Volta     []float64 `yaml:"volta"`
	Ampere    []float64 `yaml:"ampere"`
	Hopper    []float64 `yaml:"hopper"`
	Blackwell []float64 `yaml:"blackwell"`
}

// of returns the row of an architecture, or that of the nearest older one.
func (t *byGeneration) of(g generation) []float64 {
	for _, row := range [][]float64{t.Blackwell, t.Hopper, t.Ampere, t.Volta}[blackwell-g:] {
		if row != nil {
			return row
		}
	}
	return nil
}

// release is one entry of nccl.yaml, with what it inherits filled in.
type release struct {
	Since         Version `yaml:"since"`
	Source        string  `yaml:"source"`
	MaxChannels   int     `yaml:"max_channels"`
	Tree          hops    `yaml:"tree"`
	Ring          hops    `yaml:"ring"`
	CollNetDirect hops    `yaml:"collnet_direct"`
	NVLS          hops    `yaml:"nvls"`
	NVLSTree      hops    `yaml:"nvls_tree"`
	PAT           hops    `yaml:"pat"`

	LLMax               byGeneration `yaml:"ll_max"`
	RingLL128Max        byGeneration `yaml:"ring_ll128_max"`
	TreeLL128Max        byGeneration `yaml:"tree_ll128_max"`
	TreeMax             byGeneration `yaml:"tree_max"`
	NVLSTreeMax         byGeneration `yaml:"nvls_tree_max"`
	NVLSEfficiency      byGeneration `yaml:"nvls_efficiency"`
	RingLLShare         float64      `yaml:"ring_ll_share"`
	RingLL128OnePerNode float64      `yaml:"ring_ll128_one_per_node"`
	PATShare            float64      `yaml:"pat_share"`
	NVLSGather          bool         `yaml:"nvls_gather"`
	NVLSEfficient       bool         `yaml:"nvls_efficient"`
	NVLSTreeCorrected   bool         `yaml:"nvls_tree_corrected"`
	PerLink             byGeneration `yaml:"per_link"`
	IntraSpeeds         byGeneration `yaml:"intra_speeds"`
	InterSpeeds         byGeneration `yaml:"inter_speeds"`
}

// hops returns the latencies of an algorithm.
func (r *release) hops(a Algorithm) *hops {
	switch a {
	case Tree:
		return &r.Tree
	case CollNetDirect:
		return &r.CollNetDirect
	case NVLS:
		return &r.NVLS
	case NVLSTree:
		return &r.NVLSTree
	case PAT:
		return &r.PAT
	}
	return &r.Ring
}

//go:embed nccl.yaml
var ncclYAML []byte

// releases are the entries of nccl.yaml, oldest first. The file is part of the
// program and covered by a test, so that a mistake in it never reaches a user.
var releases = sync.OnceValue(func() []release {
	doc, err := yamlx.Parse("nccl.yaml", ncclYAML)
	if err != nil {
		panic(err)
	}
	all := make([]release, len(doc.Root.Content))
	for i, n := range doc.Root.Content {
		if i > 0 {
			all[i] = all[i-1]
		}
		if err := doc.DecodeInto(n, &all[i]).Err(); err != nil {
			panic(err)
		}
	}
	return all
})

// releaseOf returns the constants in force at a version; one older than the
// table gets its first entry. The zero Version means the newest.
func releaseOf(v Version) *release {
	all := releases()
	if v == (Version{}) {
		return &all[len(all)-1]
	}
	i := len(all) - 1
	for i > 0 && v.less(all[i].Since) {
		i--
	}
	return &all[i]
}
