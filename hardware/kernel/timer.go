package kernel

import (
	"cmp"
	"fmt"
	"math"
	"sync"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// Timer prices ops on one GPU. It may be used from several goroutines.
type Timer struct {
	gpu     *hardware.GPU
	overlap *hardware.OverlapLaw
	classes [tape.NumClasses]classLaw
	gemm    gemmModel
	attn    attentionModel
	floor   units.Seconds
}

// classLaw is a hardware.KernelLaw with its scale to this GPU.
type classLaw struct {
	law     *hardware.KernelLaw
	scale   float64
	element float64    // the same of what a law takes for each element
	memory  float64    // the same were it memory that limits it
	issue   float64    // and instruction issue
	clock   float64    // and what one SM does by itself
	cache   float64    // what this GPU's second-level cache holds over that of the law's
	served  float64    // how much longer it takes to read what it holds; 0: not known
	bytes   [2]float64 // of a curve's law, seconds a byte beyond its start: the least, where the cache holds all, and the last
	known   bool
}

// New returns the timer of a profile.
func New(p *hardware.Profile) (*Timer, error) {
	t := &Timer{gpu: &p.GPU, overlap: p.Laws.Overlap, floor: p.Laws.Launch.Floor}
	for i := range t.classes {
		c := tape.Class(i)
		law, ok := p.Laws.Kernels[c.String()]
		if !ok {
			continue
		}
		l := classLaw{law: &law, scale: scale(law.On, &p.GPU, law.Limit), memory: scale(law.On, &p.GPU, "memory"), issue: scale(law.On, &p.GPU, "issue"), clock: clockScale(law.On, &p.GPU), cache: cacheScale(law.On, &p.GPU), served: servedScale(law.On, &p.GPU), bytes: perByte(&law), known: true}
		l.element = l.scale
		switch law.Limit {
		case "both", "either", "longer":
			l.element = l.issue
		case "chain":
			l.element = l.clock
		case "partials":
			l.element = partialsScale(law.On, &p.GPU)
		}
		t.classes[i] = l
	}
	if !t.classes[tape.Vectorized].known {
		return nil, fmt.Errorf("hardware %s: no law for kernel class vectorized; calibrate or inherit a profile that has it", p.Name)
	}
	t.gemm.init(p)
	t.attn.init(p)
	return t, nil
}

// scale is how much longer work takes on gpu than on the one it was measured on,
// when memory or instruction issue limits it.
func scale(on, gpu *hardware.GPU, limit string) float64 {
	if on == nil {
		return 1
	}
	if limit == "issue" {
		return IssueScale(on, gpu)
	}
	return float64(on.Streams() / gpu.Streams())
}

// clockScale is how much longer what one program does takes on gpu.
func clockScale(on, gpu *hardware.GPU) float64 {
	if on == nil {
		return 1
	}
	return float64(on.TopClock()) / float64(gpu.TopClock())
}

// partialsScale is how much longer it takes on gpu to go through what each SM left, one after the other.
func partialsScale(on, gpu *hardware.GPU) float64 {
	if on == nil {
		return 1
	}
	return clockScale(on, gpu) * float64(gpu.SMs.Value) / float64(on.SMs.Value)
}

// IssueScale is how much longer instructions take to issue on gpu than on another.
func IssueScale(on, gpu *hardware.GPU) float64 { return issueRate(on) / issueRate(gpu) }

func issueRate(g *hardware.GPU) float64 { return float64(g.SMs.Value) * float64(g.TopClock()) }

// Time returns the device time of all kernels of an op, without gaps between them.
func (t *Timer) Time(o *tape.Op) units.Seconds {
	if o.Class == tape.NoKernel || o.Class == tape.Collective {
		return 0
	}
	var s units.Seconds
	switch o.Class {
	case tape.GEMM, tape.GroupedGEMM:
		s = t.gemm.time(o)
	case tape.Attention:
		s = t.attn.time(o)
	default:
		s = t.kernel(o)
	}
	return max(s, t.floor) * units.Seconds(o.Count)
}

// Beside is how much longer an op takes while a collective runs: it takes SMs and
// memory bandwidth.
func (t *Timer) Beside(o *tape.Op) float64 {
	l := t.overlap
	switch o.Class {
	case tape.GEMM, tape.GroupedGEMM:
		return t.gemm.price(o).beside
	case tape.Attention:
		return l.Attention
	}
	if c := &t.classes[o.Class]; c.known && c.law.Issues() {
		return l.Issue
	}
	return l.Memory
}

// Utilization is the share of the tensor cores' best rate that an op reaches, which
// its power follows: 1 for all but matrix multiplies and attention, and 0 for kernels
// that keep next to nothing of the GPU busy.
func (t *Timer) Utilization(o *tape.Op) float64 {
	switch o.Class {
	case tape.GEMM, tape.GroupedGEMM:
		rate := float64(o.FLOPs) / float64(max(o.Count, 1)) / float64(t.gemm.time(o))
		return min(rate/t.gemm.peaks[o.DType], 1)
	case tape.LossBlocks, tape.LossAdds, tape.LossKept:
		return min(float64(o.FLOPs)/float64(t.kernel(o))/t.gemm.peaks[o.DType], 1)
	case tape.Attention:
		rate, peak := float64(o.FLOPs)/float64(max(o.Count, 1))/float64(t.attn.time(o)), t.gemm.peaks[o.DType]
		if o.DType == tape.F32 {
			peak = float64(t.attn.fp32)
		}
		return min(rate/peak, 1)
	case tape.SerialAdd:
		return 0
	}
	if t.kernel(o) <= 1.5*t.floor { // all of it is launch and drain
		return 0
	}
	return 1
}

// Spread is how far the time of an op may be off, as relative standard
// deviations: of this op alone, and of all ops under the same law when the law
// was measured on another GPU, or a flavour of attention was taken from one.
func (t *Timer) Spread(o *tape.Op) (own, other float64) {
	var s *hardware.Spread
	switch o.Class {
	case tape.GEMM, tape.GroupedGEMM:
		s = &t.gemm.law.Spread
	case tape.Attention:
		s = &t.attn.law.Spread
	default:
		c := &t.classes[o.Class]
		if !c.known {
			return unknownClass, 0
		}
		s = &c.law.Spread
	}
	own = s.Residual
	if s == &t.gemm.law.Spread {
		own = t.gemm.residual(o)
	}
	if own == 0 {
		own = unknownClass
	}
	if on := t.on(o); on != nil && on.Name.Value != t.gpu.Name.Value {
		other = max(s.Extrapolate, scaledClass)
	}
	if o.Attn != nil {
		other = math.Hypot(other, t.attn.law.Flavour[o.Attn.Flavour].Extrapolate)
	}
	return own, other
}

// Deviations of laws that name none: a kernel class that was never measured, one
// that is scaled from another GPU by bandwidth or issue rate.
const (
	unknownClass = 0.15
	scaledClass  = 0.08
)

// kernel prices a kernel by the law of its class. What the second-level cache cannot
// hold crosses the memory at its rate at most, whatever a law of another GPU says.
func (t *Timer) kernel(o *tape.Op) units.Seconds {
	if t.scatters(o) {
		o = scattered(o)
	}
	return max(t.law(o), max(o.Bytes-t.gpu.L2.Value, 0).At(t.gpu.Bandwidth.Value))
}

// law is the law of an op's class; a class without one moves its bytes like a
// contiguous one.
func (t *Timer) law(o *tape.Op) units.Seconds {
	c := &t.classes[o.Class]
	if !c.known {
		c = &t.classes[tape.Vectorized]
	}
	l := c.law
	if len(l.Bytes) > 0 {
		lo := l.Time[0]
		long := l.Long.Element * units.Seconds(max(float64(o.N)-l.Long.Width, 0))
		parts := l.Parts.Time * units.Seconds(l.Parts.Of(o.Elements, float64(o.N), float64(t.gpu.SMs.Value))*c.issue)
		moved := (curve(l.Bytes, l.Time, o.Bytes) - lo) * units.Seconds(c.cached(o.Bytes))
		return lo + moved*units.Seconds(c.moves(o.Bytes)) + long*units.Seconds(c.scale) + parts
	}
	computed, moved := o.Elements*float64(l.Element)*c.element, float64(o.Bytes)*float64(l.Byte)*c.scale
	work := computed + o.Elements*o.Index*float64(l.Index)*c.element + moved
	switch l.Limit {
	case "either": // the squares of their times add up
		work = math.Hypot(computed, moved)
	case "longer", "chain": // programs that compute, or wait for their own last result, and share the memory
		work = max(computed, moved)
	}
	switch turns, shared := l.Strips.Turns(o.Elements/float64(max(o.N, 1)), float64(o.N), float64(t.gpu.SMs.Value)); {
	case shared:
		work = float64(l.Strips.Setup) + float64(o.Bytes)*float64(l.Strips.Byte)*c.scale
	case turns > 0:
		work += o.Elements / float64(o.N) * float64(l.Strips.Row) * turns * c.clock
	}
	if l.Beyond > 0 {
		work = math.Hypot(work, float64(max(o.Bytes-t.gpu.L2.Value, 0))*float64(l.Beyond)*c.scale)
	}
	if o.RowBlocks && o.N > 0 {
		work = math.Hypot(work, o.Elements/float64(o.N)*float64(l.Row)*c.element)
	}
	if len(l.Wide) > 0 {
		f := 1.0
		for i := range l.Wide {
			if w := &l.Wide[i]; float64(o.N) >= w.Width {
				f = w.Of(o.DType.Size())
			}
		}
		work *= f
	}
	if l.Limit == "issue" && (c.scale != 1 || c.memory != 1) {
		bytes := float64(t.copy(o.Bytes)) / c.memory
		v := &t.classes[tape.Vectorized]
		work = elsewhere(work/c.scale, bytes, c.scale, c.memory/v.scale*v.moves(o.Bytes)*v.cached(o.Bytes))
	}
	return l.Setup + units.Seconds(work)
}

// elsewhere is what a kernel that instruction issue limits takes on another GPU, on
// which issue and memory take so many times as long, from its work on the first one and
// what its bytes alone take there. Issue and memory hide each other in part: the squares
// of their times add up. PyTorch's strided, casting and joining kernels take 1.03 to 1.3
// times as long on an H100, which issues as fast as an H200 and has 0.70 of its bandwidth
// (TestElsewhere).
func elsewhere(work, bytes, issue, memory float64) float64 {
	bytes = min(bytes, work)
	alone := work*work - bytes*bytes
	return math.Sqrt(alone*issue*issue + bytes*bytes*memory*memory)
}

// copy is the time in which a contiguous kernel moves so many bytes, beyond its start, out
// of a cache as large as that of the GPU that the law was measured on.
func (t *Timer) copy(b units.Bytes) units.Seconds {
	c := &t.classes[tape.Vectorized]
	return (curve(c.law.Bytes, c.law.Time, b) - c.law.Time[0]) * units.Seconds(c.scale)
}

// Bound is what limits an op.
type Bound string

const (
	Compute Bound = "compute" // tensor cores
	Memory  Bound = "memory"  // device memory
	Issue   Bound = "issue"   // instruction issue: index arithmetic, conversions
	Latency Bound = "latency" // fixed cost of a small kernel
)

// Explain is the price of an op with its reasons.
type Explain struct {
	Time    units.Seconds
	Bound   Bound
	Formula string
	Source  string
	RelErr  float64       // one standard deviation, as a fraction
	Resets  int64         // memsets in front of matrix multiplies
	Reset   units.Seconds // what they take of Time
}

// Explain prices an op and says why.
func (t *Timer) Explain(o *tape.Op) Explain {
	e := Explain{Time: t.Time(o)}
	switch o.Class {
	case tape.NoKernel, tape.Collective:
		return e
	case tape.GEMM, tape.GroupedGEMM:
		e.Bound, e.Formula, e.RelErr = t.gemm.explain(o)
		e.Source = t.gemm.law.Source
		if reset := t.gemm.reset(o, t.gemm.sms); reset > 0 {
			e.Resets = int64(o.Count)
			if o.Calls {
				e.Resets *= o.Batch
			}
			e.Reset = reset * units.Seconds(e.Resets)
		}
	case tape.Attention:
		e.Bound = Compute
		if e.Time < 2*t.attn.least(o)*units.Seconds(o.Count) {
			e.Bound = Latency
		}
		e.Formula = fmt.Sprintf("%s + FLOPs / (%.3f of peak)", t.attn.fixed(o.Attn), t.attn.rate(o.Attn))
		e.RelErr = t.attn.law.Residual
		e.Source = t.attn.law.Source
	default:
		c := &t.classes[o.Class]
		if !c.known {
			e.Source, e.RelErr = "no law for this class: bytes at the contiguous rate", 0.3
			c = &t.classes[tape.Vectorized]
		} else {
			e.Source, e.RelErr = c.law.Source, c.law.Residual
		}
		e.Bound = Memory
		if c.law.Issues() {
			e.Bound = Issue
		}
		if e.Time < 2*(c.law.Setup+t.floor) {
			e.Bound = Latency
		}
		e.Formula = fmt.Sprintf("%s law: %.3g elements, %s, %.3g TB/s", o.Class, o.Elements, o.Bytes, float64(o.Bytes)*float64(o.Count)/float64(e.Time)/1e12)
	}
	if o.Count > 0 && e.Time <= t.floor*units.Seconds(o.Count)*1.001 {
		e.Bound = Latency
	}
	return e
}

// --- matrix multiply ---

type gemmModel struct {
	law    *hardware.GEMMLaw
	single *hardware.SGEMMLaw
	beside *hardware.OverlapLaw
	peaks  [tape.NumDTypes]float64 // achievable FLOP/s by dtype, all SMs
	sms    float64
	memory float64 // seconds per byte
	adding float64 // the same of what is added: a tile waits for its sum, which more bandwidth alone shortens by half of what it gains
	points [3][]point
	mu     sync.RWMutex
	cached float64 // bytes of L2
	cache  map[gemmKey]gemmPrice
}

// gemmPrice is what one matrix multiply takes, and how much longer beside a collective.
type gemmPrice struct{ time, beside float64 }

type point struct{ m, n, k, residual float64 } // log2 of the shape; log of measured over law

type gemmKey struct {
	m, n, k, batch int64
	layout         tape.Layout
	dtype          tape.DType
	grouped        bool
	adds, calls    bool
	bytes          units.Bytes // results of equal shapes may be stored in other dtypes
}

func (g *gemmModel) init(p *hardware.Profile) {
	g.law, g.single, g.beside = p.Laws.GEMM, p.Laws.SGEMM, p.Laws.Overlap
	g.sms = float64(p.GPU.SMs.Value)
	g.memory = 1 / float64(p.GPU.Operands())
	g.adding = g.memory
	if on := g.law.On; on != nil {
		g.adding = math.Sqrt(g.memory / float64(on.Operands()) * IssueScale(on, &p.GPU))
	}
	g.cached = float64(p.GPU.L2.Value)
	g.cache = map[gemmKey]gemmPrice{}
	for d := range tape.NumDTypes {
		g.peaks[d] = achievable(p, d, g.law)
	}
	for layout := range g.points {
		for _, q := range g.law.Points {
			if q.Time[layout] == 0 {
				continue
			}
			m, n, k := q.M, q.N, q.K
			switch tape.Layout(layout) {
			case tape.LayoutDgrad:
				n, k = k, n
			case tape.LayoutWgrad:
				m, n, k = n, k, m
			}
			o := tape.Op{Class: tape.GEMM, DType: tape.BF16, M: int64(m), N: int64(n), K: int64(k), Batch: 1, Bytes: units.Bytes(2 * (m*k + k*n + m*n))}
			if g.law.PointsAdded && tape.Layout(layout) == tape.LayoutWgrad {
				o.Adds = true
				o.Bytes += units.Bytes(m * n * (2*4 - 2))
			}
			law := g.on(&o)
			g.points[layout] = append(g.points[layout], point{math.Log2(m), math.Log2(n), math.Log2(k), math.Log(float64(q.Time[layout]) / law)})
		}
	}
}

// achievable is the rate with full waves, by dtype. A format without tensor cores
// runs on the next wider one the GPU has.
func achievable(p *hardware.Profile, d tape.DType, law *hardware.GEMMLaw) float64 {
	if f, ok := law.Scaled[d.String()]; ok && p.GPU.Peak.FP8.Value > 0 {
		if peak := float64(p.GPU.Peak.Of(d.String())); peak > 0 {
			return min(f*achievable(p, tape.FP8, law), peak)
		}
	}
	if d == tape.MXFP8 {
		d = tape.FP8
	}
	names := Formats(d)
	for _, try := range names {
		if peak := p.GPU.Peak.Of(try); peak > 0 {
			rate, ok := law.Rate[names[0]]
			if !ok {
				rate = law.Rate["bf16"]
			}
			return rate * float64(peak)
		}
	}
	return law.Rate["bf16"] * vectorRate(&p.GPU)
}

// vectorRate is the peak of fp32 multiply-adds of a GPU that does not give it: 64 on
// every SM, the fewest of any GPU with tensor cores (CUDA C++ Programming Guide,
// arithmetic instructions).
func vectorRate(g *hardware.GPU) float64 { return 2 * 64 * issueRate(g) }

// Formats are the formats that multiplies of a dtype may run in, the best first. fp32
// runs on the vector units; whoever rounds its operands asks for tf32.
func Formats(d tape.DType) []string {
	if d == tape.F32 {
		return []string{"fp32"}
	}
	return []string{d.String(), "bf16", "fp16", "fp32"}
}

// on is the law alone for the GPU that it was measured on; the residuals of the
// points are relative to it.
func (g *gemmModel) on(o *tape.Op) float64 {
	on := g.law.On
	if on == nil {
		return g.base(o, g.peaks[tape.BF16], g.sms, 0, g.memory, g.memory)
	}
	rate := g.law.Rate["bf16"] * float64(on.Peak.Of("bf16"))
	memory := 1 / float64(on.Operands())
	return g.base(o, rate, float64(on.SMs.Value), 0, memory, memory)
}

// base is the law of hardware.GEMMLaw in seconds, with so many SMs taken by others:
// the tile is chosen as if none were, its waves are counted over the rest.
func (g *gemmModel) base(o *tape.Op, peak, sms, taken, memory, adding float64) float64 {
	l := g.law
	rate := peak / sms
	m, n, k, batch, calls := float64(o.M), float64(o.N), float64(o.K), float64(max(o.Batch, 1)), 1.0
	if o.Calls { // each fills the SMs by itself
		batch, calls = 1, batch
	}
	if o.Class == tape.GEMM && o.DType == tape.F32 && batch == 1 {
		return calls * g.sgemm(m, n, k, rate, sms-taken, float64(o.Bytes)*memory/calls)
	}
	rows := func(m, tm float64) float64 { return math.Ceil(m / tm) }
	if o.Class == tape.GroupedGEMM && o.Layout != tape.LayoutWgrad {
		// Routing gives every expert another number of rows: half a tile is empty on average.
		rows = func(m, tm float64) float64 { return m/tm + 0.5 }
	}
	tiles, overhead, edge, small, setup := l.TileSizes(), l.KOverhead, 0.0, l.SmallTile, float64(l.Setup)
	p, slow, shared := l.Exponent, l.Memory, 0.0
	switch v, f := l.Vector, l.TF32; {
	case v != nil && o.DType == tape.F32 && batch > 1:
		tiles, overhead, edge, small = v.TileSizes(), 0, v.Edge, v.SmallTile
	case f != nil && o.DType == tape.TF32:
		tiles, overhead, small, setup, p, slow = f.TileSizes(), f.KOverhead[o.Layout], f.SmallTile, float64(f.Setup), f.Exponent, f.Memory
		rate *= f.Rate[o.Layout]
		if o.Layout == tape.LayoutWgrad && o.Class == tape.GEMM && batch == 1 {
			shared = f.Shared
		}
	}
	best, most := math.Inf(1), 0.0
	for _, t := range tiles {
		tm, tn := t[0], t[1]
		count := rows(m, tm) * math.Ceil(n/tn) * batch
		waves := math.Ceil(count / sms)
		e := 1 / (1 + small*100*(1/tm+1/tn-1/256.-1/128.))
		if c := waves * tm * tn / e * (k + overhead + edge*math.Sqrt(tm*tn)); c < best {
			best, most = c, math.Ceil(count/(sms-taken))/waves
		}
		if shared > 0 {
			whole, part := math.Modf(count / sms)
			if c := (whole + 2*part/(1+part)) * tm * tn / e * (k + shared); c < best {
				best, most = c, sms/(sms-taken)
			}
		}
	}
	best *= most
	setup += float64(g.reset(o, sms))
	c := best * 2 / (rate * g.alignment(o))
	if w := g.added(o); w != nil {
		p, slow, memory = w.Exponent, w.Memory, adding
	}
	b := slow * float64(o.Bytes) * memory / calls
	return calls * (setup + math.Pow(math.Pow(c, p)+math.Pow(b, p), 1/p))
}

// reset is the clearing of the counter of tiles in front of a GEMM of more than two waves of the largest.
func (g *gemmModel) reset(o *tape.Op, sms float64) units.Seconds {
	outputs := float64(o.M) * float64(o.N)
	if !o.Calls {
		outputs *= float64(max(o.Batch, 1))
	}
	if outputs <= 2*sms*256*128 || o.Class == tape.GEMM && o.DType == tape.F32 && (o.Batch <= 1 || o.Calls) {
		return 0
	}
	return g.law.Reset
}

// added are the constants of a GEMM that adds its result; nil: those of the others.
func (g *gemmModel) added(o *tape.Op) *hardware.AddedGEMM {
	switch {
	case !o.Adds:
		return nil
	case o.Class == tape.GroupedGEMM && g.law.GroupedAdded != nil:
		return g.law.GroupedAdded
	}
	return g.law.Added
}

// alignment is the rate factor of dimensions that do not fill 16-byte accesses:
// the contiguous extents of the operands decide.
func (g *gemmModel) alignment(o *tape.Op) float64 {
	if o.DType == tape.F32 { // vector units take elements one by one
		return 1
	}
	extents := [3]int64{o.N, o.K, o.K}
	switch o.Layout {
	case tape.LayoutDgrad: // g [M, K], W [K, N], result [M, N]
		extents = [3]int64{o.N, o.K, o.N}
	case tape.LayoutWgrad: // gᵀ from [K, M], x [K, N]
		extents = [3]int64{o.M, o.N, o.N}
	}
	const access = 16
	size := max(int64(o.DType.Size()), 2) // narrower ones multiply aligned extents only
	align := int64(access)
	for _, e := range extents {
		for align > size && e*size%align != 0 {
			align /= 2
		}
	}
	if align == access {
		return 1
	}
	if f := g.law.TF32; f != nil && o.DType == tape.TF32 && o.Batch <= 1 && len(f.Unaligned) > int(o.Layout) {
		return f.Unaligned[o.Layout]
	}
	if f := g.law.UnalignedBatched[align]; f > 0 && o.Batch > 1 {
		return f
	}
	if f := g.law.Unaligned[align]; len(f) > int(o.Layout) {
		return f[o.Layout]
	}
	return 1
}

func (g *gemmModel) time(o *tape.Op) units.Seconds { return units.Seconds(g.price(o).time) }

// price prices an op once. On a small GPU a collective shares its SMs instead of driving out
// all else: half of them at most are lost.
func (g *gemmModel) price(o *tape.Op) gemmPrice {
	key := gemmKey{o.M, o.N, o.K, o.Batch, o.Layout, o.DType, o.Class == tape.GroupedGEMM, o.Adds, o.Calls, o.Bytes}
	g.mu.RLock()
	x, ok := g.cache[key]
	g.mu.RUnlock()
	if ok {
		return x
	}
	bare := g.bare(o, 0, 1)
	x.time = bare
	if o.Batch <= 1 && !key.grouped {
		x.time *= g.correction(o, nil)
	}
	x.time = max(x.time, (float64(o.Bytes)-g.cached)*g.memory) // what L2 cannot hold is moved at the copy rate, as in any kernel
	x.beside = g.bare(o, min(float64(g.beside.SMs), g.sms/2), g.beside.Memory) / bare
	g.mu.Lock()
	g.cache[key] = x
	g.mu.Unlock()
	return x
}

// bare is the law for an op on this GPU with so many SMs taken and memory so much
// slower.
func (g *gemmModel) bare(o *tape.Op, taken, slower float64) float64 {
	with := *o
	if with.Bytes == 0 {
		with.Bytes = units.Bytes(float64(max(o.Batch, 1))*float64(o.M*o.K+o.K*o.N+o.M*o.N)) * o.DType.Size()
	}
	peak := g.peaks[o.DType]
	if w, ok := g.law.ScaledW[o.DType.String()]; ok && o.Layout == tape.LayoutWgrad {
		peak *= w / g.law.Scaled[o.DType.String()]
	}
	if o.Class == tape.GroupedGEMM && !o.Calls {
		peak *= g.law.Grouped
	}
	return g.base(&with, peak, g.sms, taken, g.memory*slower, g.adding*slower)
}

// correction is that of nearby points, of which one may be left out.
func (g *gemmModel) correction(o *tape.Op, without *point) float64 {
	pts := g.points[o.Layout]
	if len(pts) == 0 || o.DType == tape.F32 || o.DType == tape.TF32 && g.law.TF32 != nil || g.alignment(o) < 1 { // they are of 16 bits on tensor cores
		return 1
	}
	m, n, k := math.Log2(float64(o.M)), math.Log2(float64(o.N)), math.Log2(float64(o.K))
	return nearby(len(pts), cmp.Or(g.law.Width, nearbyWidth), func(i int) float64 {
		p := &pts[i]
		if p == without {
			return math.Inf(1)
		}
		return (p.m-m)*(p.m-m) + (p.n-n)*(p.n-n) + (p.k-k)*(p.k-k)
	}, func(i int) float64 { return pts[i].residual })
}

// nearbyWidth is w of nearby where a law names none.
const nearbyWidth = 0.5

// nearby is the mean of measured over law of n points, weighted by exp(−d²/2w²) of the distance
// d in octaves, with a prior of weight 0.3 at 1, from the squares of their distances and the
// logarithms of their own.
func nearby(n int, w float64, square, residual func(i int) float64) float64 {
	sum, weight := 0.0, 0.3
	for i := range n {
		d := square(i)
		if d > 9*w*w {
			continue
		}
		r := residual(i)
		if d < 1e-12 { // measured itself
			return math.Exp(r)
		}
		e := math.Exp(-d / (2 * w * w))
		sum += e * r
		weight += e
	}
	return math.Exp(sum / weight)
}

func (g *gemmModel) explain(o *tape.Op) (Bound, string, float64) {
	s := float64(g.time(o))
	rate := float64(o.FLOPs) / float64(max(o.Count, 1)) / s
	bound := Compute
	if b := float64(o.Bytes) * g.memory; b > 0.7*s {
		bound = Memory
	} else if s < 3*float64(g.law.Setup) {
		bound = Latency
	}
	f := fmt.Sprintf("%d×%d×%d", o.M, o.N, o.K)
	if o.Batch > 1 {
		f = fmt.Sprintf("%d × %s", o.Batch, f)
	}
	return bound, fmt.Sprintf("%s %s %s: %.0f TFLOP/s", f, o.DType, o.Layout, rate/1e12), g.residual(o)
}

// residual is the standard deviation of an op's time over the law.
func (g *gemmModel) residual(o *tape.Op) float64 {
	if w := g.law.TF32; w != nil && o.DType == tape.TF32 && w.Residual > 0 {
		return w.Residual
	}
	return g.law.Residual
}
