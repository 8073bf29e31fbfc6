package hardware

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perfplan/perfplan/internal/units"
)

// Laws are what was measured or fitted on a machine, in the form that prices an
// op. A section that is absent comes from the GPU's architecture (hardware/laws),
// scaled from the GPU it was measured on.
type Laws struct {
	Source     string               `yaml:"source"`     // machine, software, date
	Conditions string               `yaml:"conditions"` // clocks, power, what was excluded
	GEMM       *GEMMLaw             `yaml:"gemm"`
	SGEMM      *SGEMMLaw            `yaml:"sgemm"`
	Attention  *AttentionLaw        `yaml:"attention"`
	Kernels    map[string]KernelLaw `yaml:"kernels"` // by kernel class
	Launch     *LaunchLaw           `yaml:"launch"`
	Overlap    *OverlapLaw          `yaml:"overlap"`
	Power      *PowerLaw            `yaml:"power"`
	Memory     *MemoryLaw           `yaml:"memory"`
	Step       *StepLaw             `yaml:"step"`

	Offload *OffloadLaw `yaml:"offload"`

	Collectives []CollectiveCurve `yaml:"collectives"`
	Copies      []CopyCurve       `yaml:"copies"`
}

// Spread is how far single measurements lie from a law: the standard deviation of
// measured/predicted − 1, and of cases outside the measured range.
type Spread struct {
	Residual    float64 `yaml:"residual"`
	Extrapolate float64 `yaml:"extrapolate"`
}

// GEMMLaw is the time of a matrix multiply
//
//	t = setup + ((waves · tile(K) )^p + (α·bytes/bandwidth)^p)^(1/p)
//	tile(K) = 2·tm·tn·(K + k0) / (rate · peak / SMs · e(tm,tn))
//
// over the best of the library's tiles, waves whole (one wave computes a tile on
// every SM), e < 1 for tiles smaller than 256×128; times the measured correction
// of nearby shapes. Fitted to kernel times at full clock.
type GEMMLaw struct {
	Tiles     []string            `yaml:"tiles"`        // "256x128"
	Rate      map[string]float64  `yaml:"rate"`         // of the dense peak, by dtype, with full waves
	Scaled    map[string]float64  `yaml:"scaled"`       // rate of formats whose blocks have scales over that of fp8, which has one; absent: the GPU has no kernels for it
	ScaledW   map[string]float64  `yaml:"scaled_wgrad"` // the same of weight gradients; absent: as Scaled
	KOverhead float64             `yaml:"k_overhead"`   // K elements a tile spends on its prologue and epilogue
	Setup     units.Seconds       `yaml:"setup"`
	SmallTile float64             `yaml:"small_tile"` // e = 1/(1 + small·100·(1/tm + 1/tn − 1/256 − 1/128))
	Memory    float64             `yaml:"memory"`     // α: share of the bytes that compute does not hide
	Exponent  float64             `yaml:"exponent"`   // p
	Vector    *VectorGEMM         `yaml:"vector"`     // batched products of fp32, on vector units; absent: as the others
	TF32      *TF32GEMM           `yaml:"tf32"`       // products of fp32 that is rounded; absent: as the others
	Unaligned map[int64][]float64 `yaml:"unaligned"`  // rate factors, by layout, when all extents share only an alignment of 8, 4, 2 bytes
	// UnalignedBatched is the same of batched products, of any layout; absent: Unaligned.
	UnalignedBatched map[int64]float64 `yaml:"unaligned_batched"`
	AnyLayout        bool              `yaml:"any_layout"`    // 8-bit operands of one scale are read along rows and columns alike, from one copy
	Reset            units.Seconds     `yaml:"reset"`         // clearing of the tile counter in front of GEMMs of more than two waves
	Added            *AddedGEMM        `yaml:"added"`         // weight gradients that are added to what is there; absent: as the others
	Grouped          float64           `yaml:"grouped"`       // rate factor of a kernel that multiplies for all experts
	GroupedAdded     *AddedGEMM        `yaml:"grouped_added"` // weight gradients of experts, added; absent: as those of others
	Releases         []GEMMRelease     `yaml:"releases"`      // older libraries, the oldest last
	Points           GEMMPoints        `yaml:"points"`        // measured, for the correction
	PointsAdded      bool              `yaml:"points_added"`  // their weight gradients are added to fp32 ones
	Width            float64           `yaml:"width"`         // octaves over which a point corrects its neighbours
	Source           string            `yaml:"source"`        // "": that of all laws of its file
	Spread           `yaml:",inline"`

	On    *GPU // the GPU it was measured on
	tiles [][2]float64
}

// VectorGEMM are the constants of kernels on vector units, as in GEMMLaw, but for k0, which
// grows with the tile: edge·√(tm·tn).
type VectorGEMM struct {
	Tiles     []string `yaml:"tiles"`
	Edge      float64  `yaml:"edge"`
	SmallTile float64  `yaml:"small_tile"`

	tiles [][2]float64
}

// TileSizes are the parsed tiles, rows by columns.
func (v *VectorGEMM) TileSizes() [][2]float64 { return v.tiles }

// TF32GEMM are the constants of products of fp32 operands that are rounded to tf32, as in
// GEMMLaw, for kernels that read either operand along K: those of 32 bits that lie otherwise
// are turned on the way. Lists are by layout: forward, input gradient, weight gradient.
type TF32GEMM struct {
	Tiles     []string      `yaml:"tiles"`
	Rate      []float64     `yaml:"rate"` // over GEMMLaw's
	KOverhead []float64     `yaml:"k_overhead"`
	Setup     units.Seconds `yaml:"setup"`
	SmallTile float64       `yaml:"small_tile"`
	Memory    float64       `yaml:"memory"`
	Exponent  float64       `yaml:"exponent"`
	// Weight gradients: K elements that a tile takes longer where several SMs share the K of those that fill no wave. A part p of a wave then
	// takes 2p/(1+p) of one. 0: a part takes a wave.
	Shared    float64   `yaml:"shared"`
	Residual  float64   `yaml:"residual"`  // in the place of GEMMLaw's; 0: that
	Unaligned []float64 `yaml:"unaligned"` // in the place of GEMMLaw's, of any alignment; absent: GEMMLaw's

	tiles [][2]float64
}

// TileSizes are the parsed tiles, rows by columns.
func (f *TF32GEMM) TileSizes() [][2]float64 { return f.tiles }

func (f *TF32GEMM) parse() (err error) {
	if len(f.Tiles) == 0 || len(f.Rate) != 3 || len(f.KOverhead) != 3 || !(f.SmallTile >= 0 && f.Memory > 0 && f.Exponent >= 1 && f.SmallTile+f.Memory+f.Exponent < math.Inf(1)) {
		return fmt.Errorf("gemm.tf32: tiles %v, rate %v, k_overhead %v, small_tile %g, memory %g, exponent %g; it needs tiles, rates and overheads of three layouts, a memory above 0 and an exponent of 1 or more", f.Tiles, f.Rate, f.KOverhead, f.SmallTile, f.Memory, f.Exponent)
	}
	for i, r := range f.Rate {
		if !(r > 0 && f.KOverhead[i] >= 0 && r+f.KOverhead[i] < math.Inf(1)) {
			return fmt.Errorf("gemm.tf32: rate %g, k_overhead %g; the first must be above 0, the second not below", r, f.KOverhead[i])
		}
	}
	if !(f.Shared >= 0 && f.Residual >= 0 && f.Shared+f.Residual < math.Inf(1)) {
		return fmt.Errorf("gemm.tf32: shared %g, residual %g; give K elements and a share, 0 or more", f.Shared, f.Residual)
	}
	if n := len(f.Unaligned); n != 0 && n != 3 || slices.ContainsFunc(f.Unaligned, func(x float64) bool { return !(x > 0 && x <= 1) }) {
		return fmt.Errorf("gemm.tf32.unaligned: %v; give a share from 0 to 1 for each of three layouts, or leave it out", f.Unaligned)
	}
	f.tiles, err = parseTiles("gemm.tf32.tiles", f.Tiles)
	return err
}

// GEMMRelease is what a library did otherwise before a release. Constants that are
// absent are those of the law; a table of points replaces the law's.
type GEMMRelease struct {
	Before           units.Release      `yaml:"before"`
	Rate             map[string]float64 `yaml:"rate"`
	KOverhead        float64            `yaml:"k_overhead"`
	Setup            units.Seconds      `yaml:"setup"`
	Points           GEMMPoints         `yaml:"points"`
	Source           string             `yaml:"source"`
	UnalignedBatched map[int64]float64  `yaml:"unaligned_batched"`
}

// at is the law of the library of a release.
func (g *GEMMLaw) at(r units.Release) *GEMMLaw {
	out := *g
	for _, o := range g.Releases {
		if !r.Before(o.Before) {
			continue
		}
		out.Rate = maps.Clone(out.Rate)
		maps.Copy(out.Rate, o.Rate)
		out.KOverhead = cmp.Or(o.KOverhead, out.KOverhead)
		out.Setup = cmp.Or(o.Setup, out.Setup)
		if o.Points != nil {
			out.Points = o.Points
		}
		if o.UnalignedBatched != nil {
			out.UnalignedBatched = o.UnalignedBatched
		}
	}
	return &out
}

// GEMMPoint is one measured shape: times of the forward, input-gradient and
// weight-gradient layouts of a layer with M tokens, N outputs, K inputs.
type GEMMPoint struct {
	M, N, K float64
	Time    [3]units.Seconds // by tape.Layout; 0: not measured
}

// GEMMPoints is a table in text form, one shape per line: M N K and three times in
// microseconds ("-" for none), which keeps a surface of hundreds of points short.
type GEMMPoints []GEMMPoint

// UnmarshalText reads the table.
func (p *GEMMPoints) UnmarshalText(text []byte) error {
	rows, err := table(string(text), 6)
	for _, r := range rows {
		q := GEMMPoint{M: r[0], N: r[1], K: r[2]}
		for i := range q.Time {
			q.Time[i] = units.Seconds(r[3+i] * 1e-6)
		}
		*p = append(*p, q)
	}
	return err
}

// AddedGEMM replaces two constants of GEMMLaw for weight gradients that their GEMM adds
// to the main gradients: a tile reads the sum when its product is done and writes it
// back, which hides badly behind the multiplication, and is longer than that where an
// expert has few tokens. From GPU to GPU its bytes take as long as the geometric mean of
// what memory and issue make of them: 43 % more bandwidth (H200 over H100) gains a fifth.
type AddedGEMM struct {
	Memory   float64 `yaml:"memory"`
	Exponent float64 `yaml:"exponent"`
}

// table parses lines of n numbers; "-" stands for 0 and # starts a comment.
func table(text string, n int) ([][]float64, error) {
	var rows [][]float64
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != n {
			return nil, fmt.Errorf("line %d of the table has %d values; it needs %d", i+1, len(f), n)
		}
		row := make([]float64, n)
		for j, w := range f {
			if w == "-" {
				continue
			}
			v, err := strconv.ParseFloat(w, 64)
			if err != nil || v < 0 || math.IsInf(v, 0) || math.IsNaN(v) {
				return nil, fmt.Errorf("line %d of the table: %q is no number from 0 on; give one, or - for none", i+1, w)
			}
			row[j] = v
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// KernelLaw is the time of a memory-bound kernel: either a curve over the bytes
// it moves, or
//
//	t = setup + elements·(element + index·operands·dimensions) + bytes·byte
//
// whichever its class follows. Strided kernels spend their time on index
// arithmetic; contiguous ones on bytes.
type KernelLaw struct {
	Setup   units.Seconds `yaml:"setup"`
	Element units.Seconds `yaml:"element"` // per element
	Index   units.Seconds `yaml:"index"`   // per element, operand and dimension of a strided kernel
	Byte    units.Seconds `yaml:"byte"`    // per byte
	Beyond  units.Seconds `yaml:"beyond"`  // per byte that the second-level cache does not hold; the squares of it and of the rest add up
	Row     units.Seconds `yaml:"row"`     // per row that a block of threads takes (tape.Op.RowBlocks); the squares of it and of the rest add up
	Wide    []WidthFactor `yaml:"wide"`    // time factor by row width, for row kernels
	Long    LongRows      `yaml:"long"`    // what rows longer than those of the curve add
	Parts   ColumnParts   `yaml:"parts"`   // what a sum of columns in parts adds
	Strips  ColumnStrips  `yaml:"strips"`  // what a sum of columns takes for each row

	Bytes []units.Bytes   `yaml:"bytes"` // curve: sizes, ascending
	Time  []units.Seconds `yaml:"time"`  // curve: times

	Limit  string `yaml:"limit"` // what scales it to another GPU: memory (default), issue, beside which its bytes take theirs, both, bytes by the one and elements by the other, either, as both, of which one hides the other in part, longer, as both, of which the longer hides the other, chain, the clock alone, or partials, it and the number of SMs, each of which leaves one
	Spread `yaml:",inline"`
	Source string `yaml:"source"`
	On     *GPU
}

// limits are what KernelLaw.Limit may be.
var limits = []string{"", "memory", "issue", "both", "either", "longer", "chain", "partials"}

// Issues reports whether the instructions of kernels limit them, not memory.
func (l *KernelLaw) Issues() bool { return l.Limit == "issue" || l.Limit == "partials" }

// WidthFactor multiplies the time of rows at least Width elements wide.
type WidthFactor struct {
	Width  float64 `yaml:"width"`
	Factor float64 `yaml:"factor"`
	Half   float64 `yaml:"half"` // of 16-bit elements; 0: Factor
}

// Of returns the factor for elements of so many bytes.
func (w *WidthFactor) Of(size units.Bytes) float64 {
	if size == 2 && w.Half > 0 {
		return w.Half
	}
	return w.Factor
}

// LongRows is what one warp per row adds for each element of a row beyond Width: its
// loads come after each other however many rows there are.
type LongRows struct {
	Width   float64       `yaml:"width"`
	Element units.Seconds `yaml:"element"`
}

// LaunchLaw is what launching kernels costs on the device.
type LaunchLaw struct {
	Gap          units.Seconds `yaml:"gap"`           // between dependent kernels of one stream
	Floor        units.Seconds `yaml:"floor"`         // shortest kernel
	Latency      units.Seconds `yaml:"latency"`       // from the host's call to the start of the kernel on an idle device
	Host         float64       `yaml:"host"`          // speed of the host relative to the one of the recipes' host costs; 1: equal
	Python       float64       `yaml:"python"`        // the same of its Python, where that differs; 0: as host
	HostSpread   float64       `yaml:"host_spread"`   // relative standard deviation of Host, where it was measured on this very machine; 0: it was not
	HostMeasured bool          `yaml:"host_measured"` // read and left alone: calibrations that timed the driver's calls wrote it
}

// Speeds of hosts that a profile may state: far beyond any.
const minHostSpeed, maxHostSpeed = 0.01, 100.0

func (l *LaunchLaw) check() error {
	for _, x := range []struct {
		name  string
		speed float64
	}{{"host", l.Host}, {"python", l.Python}} {
		if x.speed != 0 && !(x.speed >= minHostSpeed && x.speed <= maxHostSpeed) {
			return fmt.Errorf("%s: %g; give a speed of %g to %g over that of the recipes' host costs, as in 0.8, or leave it out", x.name, x.speed, minHostSpeed, maxHostSpeed)
		}
	}
	if !(l.HostSpread >= 0 && l.HostSpread <= 1) {
		return fmt.Errorf("host_spread: %g; give the relative standard deviation of host, of 0 to 1, or leave it out", l.HostSpread)
	}
	return nil
}

// OverlapLaw is how compute and communication slow each other down while both run.
type OverlapLaw struct {
	SMs         int64              `yaml:"sms"`         // that a collective takes: what is left runs a matrix multiply in more waves
	Attention   float64            `yaml:"attention"`   // time of a kernel beside a collective, over its time alone
	Memory      float64            `yaml:"memory"`      // the same of kernels that memory limits
	Issue       float64            `yaml:"issue"`       // and of those that instruction issue limits
	Collectives map[string]float64 `yaml:"collectives"` // time of a collective under compute, over its time alone
	Skew        float64            `yaml:"skew"`        // time of a step on several GPUs over one: the slowest sets the pace
}

// PowerLaw is the power of each kind of work and what the limit does with it. At
// SM clock f, of at most F, a kind of work draws
//
//	static + (full − static)·u·(f/F)^exponent
//
// where u is 1 for work that moves memory and base + (1 − base)·utilization of the
// tensor cores for matrix multiplies and attention,
//
// and at the limit the clock falls until the average over the step fits. The clock is
// what NVML reads. Matrix multiplies gain nothing above one of their own, where the
// current limit holds them; below it they and others slow less than it falls, what is
// bound by memory least.
type PowerLaw struct {
	Cap       units.Watts           `yaml:"cap"`                // average that the limit lets through; 0: unknown, no throttling
	Idle      units.Watts           `yaml:"idle"`               // clocks up, nothing running
	Exponent  float64               `yaml:"exponent"`           // of the clock
	GEMMClock units.Hertz           `yaml:"gemm_clock"`         // above it GEMMs gain nothing; other parts above the same share of their highest
	GEMMExp   float64               `yaml:"gemm_exponent"`      // below it their time ~ clock to minus this; 0: 1
	AttnExp   float64               `yaml:"attention_exponent"` // likewise of attention
	IssueExp  float64               `yaml:"issue_exponent"`     // of work bound by how fast instructions are issued
	MemoryExp float64               `yaml:"memory_exponent"`    // of memory-bound work; 0: no slower
	Window    units.Seconds         `yaml:"window"`             // a pause counts for the limit as long as this at most, approached exponentially
	Spread    float64               `yaml:"spread"`             // standard deviation between chips of the clock that the limit leaves them, as a share; the lowest of all sets the pace
	Class     map[string]ClassWatts `yaml:"class"`              // gemm, attention, memory, issue, collective, copy-engine
	On        *GPU
}

// GEMMShare is the clock above which matrix multiplies gain nothing on a GPU, over its highest: a part that is
// held to lower clocks than the one the law was read off has a lower current limit, too.
func (w *PowerLaw) GEMMShare(gpu *GPU) float64 {
	if w == nil || w.GEMMClock <= 0 {
		return 1
	}
	on := cmp.Or(w.On, gpu)
	return min(float64(w.GEMMClock/on.TopClock()), 1)
}

// ExponentOf is that of the clock to which the power of a class goes.
func (w *PowerLaw) ExponentOf(class string) float64 {
	return cmp.Or(w.Class[class].Exponent, w.Exponent)
}

// Slowdown is the time that a class of work takes at a clock, as a share of the highest, over that at the highest.
func (w *PowerLaw) Slowdown(class string, gpu *GPU, ratio float64) float64 {
	if w == nil {
		w = &PowerLaw{}
	}
	switch class {
	case "gemm":
		return math.Pow(max(w.GEMMShare(gpu)/ratio, 1), cmp.Or(w.GEMMExp, 1))
	case "attention":
		return math.Pow(ratio, -cmp.Or(w.AttnExp, 1))
	case "issue":
		return math.Pow(ratio, -cmp.Or(w.IssueExp, 1))
	case "memory":
		return math.Pow(ratio, -w.MemoryExp)
	}
	return 1
}

// ClassWatts is the power of one kind of work.
type ClassWatts struct {
	Full     units.Watts `yaml:"full"`     // at the highest clock, were there no limit
	Static   units.Watts `yaml:"static"`   // part that does not fall with the clock
	Exponent float64     `yaml:"exponent"` // gemm: of the clock; 0: the law's
	Base     float64     `yaml:"base"`     // of the rest, what is drawn at no utilization; 0 for work without one
	Narrow   *Narrow     `yaml:"narrow"`   // gemm: 8-bit operands
	Zeros    float64     `yaml:"zeros"`    // gemm: of one with an operand half of whose values are zeros, over others; 0: as others
	Vector   float64     `yaml:"vector"`   // gemm: of products on vector units, over others at the same share of the best rate; 0: the same
	Grouped  float64     `yaml:"grouped"`  // gemm: of one kernel for all experts in 16 bits or more, over cuBLAS at the same rate; 0: the same
}

// Narrow is the power of 8-bit GEMMs over that of 16-bit ones at the same share of the
// best rate.
type Narrow struct {
	Forward   float64 `yaml:"forward"`
	Gradients float64 `yaml:"gradients"` // without fast accumulation: their sums leave the tensor cores now and then
}

// MemoryLaw is device memory outside the framework's tensors.
type MemoryLaw struct {
	Context      units.Bytes `yaml:"context"`      // CUDA context with loaded kernels
	Workspace    units.Bytes `yaml:"workspace"`    // cuBLAS workspace, inside the allocator
	NCCL         units.Bytes `yaml:"nccl"`         // NCCL itself, once
	Communicator units.Bytes `yaml:"communicator"` // NCCL, per communicator
	Exchange     units.Bytes `yaml:"exchange"`     // and of ranks that exchange rows all to all
	Peer         units.Bytes `yaml:"peer"`         // for each other rank of those in the node
	Reserve      units.Bytes `yaml:"reserve"`      // driver's own, not available to anyone
}

// StepLaw is how far whole predicted steps were from measured ones on a machine
// whose kernels are known: what no other law accounts for. Residual holds on the GPU,
// with the software and inside the node that the steps were measured on; elsewhere
// Extrapolate adds to it.
type StepLaw struct {
	Spread  `yaml:",inline"`
	Recipes []string `yaml:"recipes"`  // whose steps were measured; none: of every kind
	Nodes   int64    `yaml:"nodes"`    // the most that steps were measured on; 0: many
	Experts float64  `yaml:"experts"`  // adds to both where experts are on several ranks
	AllHeld float64  `yaml:"all_held"` // or where each rank holds all of them, whose numbers of rows routing makes uneven
	Source  string   `yaml:"source"`
	On      *GPU
}

// OffloadLaw is what a host gives to what GPUs leave to it: copies between its memory and
// a GPU, and the update of parameters by its cores,
//
//	t = values/(threads · update) + bytes/(memory · host_bandwidth)
//
// over all GPUs of a node.
type OffloadLaw struct {
	ToDevice float64    `yaml:"to_device"` // of gpu.pcie, from page-locked memory
	ToHost   float64    `yaml:"to_host"`   // and into it
	Crowd    float64    `yaml:"crowd"`     // time of either while another goes the other way, over its time alone
	Fresh    units.Rate `yaml:"fresh"`     // into memory that is new and not page-locked
	Recast   units.Rate `yaml:"recast"`    // of 16-bit weights that the host casts into such memory and the GPU has from there
	Update   float64    `yaml:"update"`    // values that one thread updates in a second, by PyTorch's fused AdamW
	Memory   float64    `yaml:"memory"`    // of node.host_bandwidth, that many threads reach
	Spread   float64    `yaml:"spread"`    // relative standard deviation of what an update takes on a host that nobody measured
	Source   string     `yaml:"source"`
}

// CollectiveCurve is a measured collective: the time of one operation on one
// group at several sizes. hardware/collective gives its meaning.
type CollectiveCurve struct {
	Op     string          `yaml:"op"`
	Ranks  int64           `yaml:"ranks"`
	Nodes  int64           `yaml:"nodes"` // NVLink domains; 0 means 1
	Bytes  []units.Bytes   `yaml:"bytes"` // ascending
	Time   []units.Seconds `yaml:"time"`  // as many, in the same order
	RelErr float64         `yaml:"relative_error"`
	Line   *AlphaBeta      `yaml:"line"` // through the curve, for people; the curve prices
	Source string          `yaml:"source"`
	On     *Links          `yaml:"-"` // of the machine that it was measured on; nil: of the one that has it
}

// Links are the rates of what carries a collective.
type Links struct{ NVLink, PCIe, NIC, Communicator units.Rate }

// LinksOf are those of a machine.
func LinksOf(gpu *GPU, net *Network) Links {
	return Links{gpu.NVLink.Value, gpu.PCIe.Value, net.NICBandwidth.Value, net.Communicator.Value}
}

// AlphaBeta is the straight line t = alpha + bytes/beta of least relative error
// through a curve, and how far the curve is from it, as fractions of the time.
type AlphaBeta struct {
	Alpha    units.Seconds `yaml:"alpha"`
	Beta     units.Rate    `yaml:"beta"`
	RSquared float64       `yaml:"r_squared"`
	Mean     float64       `yaml:"mean_error"`
	Max      float64       `yaml:"max_error"`
}

// CopyCurve is a measured copy between host and device.
type CopyCurve struct {
	Direction string          `yaml:"direction"` // h2d or d2h
	Pinned    bool            `yaml:"pinned"`    // page-locked host memory
	Bytes     []units.Bytes   `yaml:"bytes"`
	Time      []units.Seconds `yaml:"time"`
	RelErr    float64         `yaml:"relative_error"`
}

// CopyRate is that of the largest copies measured in a direction, if there were any.
func (l *Laws) CopyRate(direction string, pinned bool) (units.Rate, bool) {
	for _, c := range l.Copies {
		if n := len(c.Bytes) - 1; c.Direction == direction && c.Pinned == pinned && n >= 0 && n < len(c.Time) && c.Time[n] > 0 {
			return units.Rate(float64(c.Bytes[n]) / float64(c.Time[n])), true
		}
	}
	return 0, false
}

// TileSizes are the parsed tiles, rows by columns.
func (g *GEMMLaw) TileSizes() [][2]float64 { return g.tiles }

func (g *GEMMLaw) parse() error {
	if len(g.Tiles) == 0 || len(g.Rate) == 0 || !(g.Exponent >= 1) {
		return fmt.Errorf("gemm: tiles %v, rate %v, exponent %g; a law of its own needs these, as in [256x128], {bf16: 0.65} and 2, the last 1 or more", g.Tiles, g.Rate, g.Exponent)
	}
	if err := g.checkAlignments(); err != nil {
		return err
	}
	for i, a := range []*AddedGEMM{g.Added, g.GroupedAdded} {
		if a != nil && !(a.Memory > 0 && a.Exponent >= 1 && a.Memory+a.Exponent < math.Inf(1)) {
			return fmt.Errorf("gemm.%s: memory %g, exponent %g; the first must be above 0, the second 1 or more", [...]string{"added", "grouped_added"}[i], a.Memory, a.Exponent)
		}
	}
	for i, rates := range []map[string]float64{g.Scaled, g.ScaledW} {
		for _, d := range slices.Sorted(maps.Keys(rates)) {
			key := fmt.Sprintf("gemm.%s.%s: %g", [...]string{"scaled", "scaled_wgrad"}[i], d, rates[d])
			switch r := rates[d]; {
			case !(r > 0) || math.IsInf(r, 0):
				return fmt.Errorf("%s; it must be above 0", key)
			case g.Scaled[d] == 0:
				return fmt.Errorf("%s, but gemm.scaled has no %s; give it there, too", key, d)
			}
		}
	}
	var err error
	if g.tiles, err = parseTiles("gemm.tiles", g.Tiles); err != nil {
		return err
	}
	if g.TF32 != nil {
		if err := g.TF32.parse(); err != nil {
			return err
		}
	}
	v := g.Vector
	switch {
	case v == nil:
	case len(v.Tiles) == 0 || !(v.Edge >= 0 && v.SmallTile >= 0 && v.Edge+v.SmallTile < math.Inf(1)):
		err = fmt.Errorf("gemm.vector: tiles %v, edge %g, small_tile %g; it needs tiles, and the others must not be below 0", v.Tiles, v.Edge, v.SmallTile)
	default:
		v.tiles, err = parseTiles("gemm.vector.tiles", v.Tiles)
	}
	return err
}

// checkAlignments refuses factors of alignments that are none. Files of before 2026-11-28 counted 16-bit
// elements.
func (g *GEMMLaw) checkAlignments() error {
	for i, keys := range [][]int64{slices.Sorted(maps.Keys(g.Unaligned)), slices.Sorted(maps.Keys(g.UnalignedBatched))} {
		for _, k := range keys {
			if k != 2 && k != 4 && k != 8 {
				return fmt.Errorf("gemm.%s.%d: an alignment is 2, 4 or 8 bytes; give it twice the elements of 16 bits that it said before", [...]string{"unaligned", "unaligned_batched"}[i], k)
			}
		}
	}
	return nil
}

// parseTiles reads tiles written as "256x128". The error begins with the key.
func parseTiles(key string, tiles []string) ([][2]float64, error) {
	var out [][2]float64
	for _, t := range tiles {
		a, b, _ := strings.Cut(t, "x")
		x, err1 := strconv.ParseFloat(a, 64)
		y, err2 := strconv.ParseFloat(b, 64)
		if err1 != nil || err2 != nil || x < 1 || y < 1 {
			return nil, fmt.Errorf("%s: %q; write rows x columns, as in 256x128", key, t)
		}
		out = append(out, [2]float64{x, y})
	}
	return out, nil
}
