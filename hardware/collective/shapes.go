package collective

import (
	"cmp"
	_ "embed"
	"math"
	"sync"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// shape is one row of shapes.yaml: how time follows from NCCL's latency and
// bandwidth.
type shape struct {
	Op         string  `yaml:"op"`
	Algorithm  string  `yaml:"algorithm"`
	Protocol   string  `yaml:"protocol"`
	Across     *bool   `yaml:"across"` // more than one node
	Staged     bool    `yaml:"staged"` // only through the host's memory
	Generation string  `yaml:"generation"`
	Latency    float64 `yaml:"latency"`
	Hop        float64 `yaml:"hop"` // as latency, of hops between nodes; 0: as latency
	Bandwidth  float64 `yaml:"bandwidth"`
	PerRank    float64 `yaml:"per_rank"`
	Ramp       float64 `yaml:"ramp"`
	Points     int64   `yaml:"points"`
	Error      float64 `yaml:"error"`
	Source     string  `yaml:"source"`
}

// constants is shapes.yaml.
type constants struct {
	Shapes         []shape      `yaml:"shapes"`
	Trust          float64      `yaml:"trust"`
	NVLSLinks      byGeneration `yaml:"nvls_links"`
	Transports     []transport  `yaml:"transports"`
	SlowerNetwork  float64      `yaml:"slower_network"`
	WireEfficiency float64      `yaml:"wire_efficiency"`
	P2P            struct {
		Links        float64       `yaml:"links"`
		MessageRamp  float64       `yaml:"message_ramp"`
		Exchange     float64       `yaml:"exchange"`
		ExchangeRamp float64       `yaml:"exchange_ramp"`
		PerRank      float64       `yaml:"per_rank"`
		Setup        units.Seconds `yaml:"setup"`
		Peer         units.Seconds `yaml:"peer"`
		Network      units.Seconds `yaml:"network"`
		RemotePeer   units.Seconds `yaml:"remote_peer"`
		Congestion   float64       `yaml:"congestion"`
		Channel      struct {
			Inside float64 `yaml:"inside"`
			Across float64 `yaml:"across"`
		} `yaml:"channel"`
		HybridEP tokenKernels `yaml:"hybridep"`
		DeepEP   tokenKernels `yaml:"deepep"`
		Error    float64      `yaml:"error"`
	} `yaml:"p2p"`
	Host struct {
		Rate   float64 `yaml:"rate"`  // of a GPU through the host's memory in each direction, over that of its PCIe link as NCCL counts it
		Error  float64 `yaml:"error"` // one standard deviation, relative
		Source string  `yaml:"source"`
	} `yaml:"host"`
	Spread struct {
		Bytes  []units.Bytes `yaml:"bytes"`
		Inside []float64     `yaml:"inside"`
		Across []float64     `yaml:"across"`
	} `yaml:"spread"`
}

// transport is what the way between nodes adds.
type transport struct {
	Name    string        `yaml:"name"`
	Latency units.Seconds `yaml:"latency"` // to one hop
	Proxied float64       `yaml:"proxied"` // rate of kernels that send by themselves where a thread of the host does it for them, over that where none does; 0: none does
	Experts float64       `yaml:"experts"` // to the relative standard deviation of a step whose experts exchange rows over it
	Source  string        `yaml:"source"`
}

// sent is the rate of kernels that send by themselves, over that on InfiniBand.
func (t *transport) sent() float64 { return cmp.Or(t.Proxied, 1) }

// tokenKernels are kernels that write rows of tokens into the memory of the experts'
// ranks.
type tokenKernels struct {
	Setup     units.Seconds `yaml:"setup"`
	Inside    float64       `yaml:"inside"`    // rate inside a node over what NCCL counts
	Wider     float64       `yaml:"wider"`     // lost of it for each doubling of the ranks beyond 8
	Across    float64       `yaml:"across"`    // rate across nodes over that of the wire
	Received  byGeneration  `yaml:"received"`  // most that a rank receives inside a node, its own rows included, GB/s
	Forwarded byGeneration  `yaml:"forwarded"` // the same across nodes
}

// most is what a rank receives at most, GB/s.
func (k *tokenKernels) most(g generation, across bool) float64 {
	limit := &k.Received
	if across {
		limit = &k.Forwarded
	}
	if r := limit.of(g); r != nil {
		return r[0]
	}
	return math.Inf(1)
}

//go:embed shapes.yaml
var shapesYAML []byte

// Prepare reads the tables that collectives are priced by.
func Prepare() {
	releases()
	fitted()
}

// fitted is shapes.yaml; like releases, part of the program.
var fitted = sync.OnceValue(func() *constants {
	doc, err := yamlx.Parse("shapes.yaml", shapesYAML)
	if err != nil {
		panic(err)
	}
	c := new(constants)
	if err := doc.Decode(c); err != nil {
		panic(err)
	}
	return c
})

var generationNames = [...]string{volta: "volta", ampere: "ampere", hopper: "hopper", blackwell: "blackwell"}

// shapeOf returns the row for a candidate; the last row matches all.
func (c *constants) shapeOf(op Op, k candidate, v view, gen generation) *shape {
	for i := range c.Shapes {
		s := &c.Shapes[i]
		if (s.Op == "" || s.Op == op.String()) && (s.Algorithm == "" || s.Algorithm == k.algorithm.String()) &&
			(s.Protocol == "" || s.Protocol == k.protocol.String()) &&
			(s.Across == nil || *s.Across == (v.nodes > 1)) && (!s.Staged || v.staged) &&
			(s.Generation == "" || s.Generation == generationNames[gen]) {
			return s
		}
	}
	return &c.Shapes[len(c.Shapes)-1]
}

// pipeline is the time in us of a call whose first byte takes a and whose bytes
// at full rate take b: a + b + ramp*sqrt(a*b).
func pipeline(a, b, ramp float64) float64 { return a + b + ramp*math.Sqrt(a*b) }

// spreadAt is the standard deviation of an estimate at a size, inside a node or across nodes.
func (c *constants) spreadAt(b units.Bytes, across bool) float64 {
	at, err := c.Spread.Bytes, c.Spread.Inside
	if across {
		err = c.Spread.Across
	}
	for i, hi := range at {
		if b <= hi {
			if i == 0 {
				return err[0]
			}
			w := math.Log(float64(b/at[i-1])) / math.Log(float64(hi/at[i-1]))
			return err[i-1] + w*(err[i]-err[i-1])
		}
	}
	return err[len(err)-1]
}
