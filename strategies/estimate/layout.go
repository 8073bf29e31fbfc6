package estimate

import (
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// terms are what the prices of a model's units follow from on one machine.
type terms struct {
	config        ops.Config
	pace, uneven  units.Seconds // of kernels, and of those of passes
	own           units.Seconds // of everything
	speed, python units.Seconds // of what hosts do
	link          units.Seconds // of collectives
	groups        inLayers      // that these are of
	graphs        string
	tiled         bool                    // tensor ranks exchange pieces beside GEMMs
	block         bool                    // the host waits after every kernel
	hides         units.Seconds           // share of experts' exchanges beside another micro batch
	streamed      strategies.DataParallel // what units leave to the host depends on it; "" where they leave nothing
	least         int64                   // elements of a parameter that ZeRO 3 shards, which hooks around units count; 0: none count them
}

// terms are those of the job.
func (p *pricer) terms() terms {
	t := terms{config: config(p.job), pace: p.pace, uneven: p.uneven, own: p.own, speed: p.speed, python: p.python, link: p.link(), groups: p.inLayers(),
		graphs: p.graphs, tiled: tensorOverlap(p.job), block: p.block, hides: p.hides}
	if p.job.Train.OffloadActivations {
		t.streamed = p.job.Plan.DataParallel
	}
	if p.host.Hooks.Any() && p.job.Plan.DataParallel.ShardsParameters() {
		t.least = p.leastShared()
	}
	return t
}

// priced are the units of a model, cut and run in one way, with their prices at one
// clock. All plans that cut layers alike share them.
type priced struct {
	terms
	units   []*unit // embedding, kinds of layers, the same without recomputation where there are both, head, loss where it is apart
	head    int     // of these
	kinds   int     // of layers
	layers  []int   // by layer, its kind
	encoder int     // of these, the first of an encoder
	encodes []int   // units from there on, in the order in which they run
	amax    *unit   // in which ranks agree on the scales of a chunk; nil: nobody does
	chunks  map[chunkKey]*chunk
	updates map[updateKey]*matrixUpdate
	layouts map[layoutKey]*layout
}

// chunk is the part of the model that a rank runs as one pipeline stage. Equal
// parts are one chunk.
type chunk struct {
	embedding, head *unit
	loss            *unit // where head and loss are apart
	layers          []*unit
	list            []*unit // all of them in forward order
	runs            []*unit // these, and amax as often as ranks agree on scales in each pass
	ops             []*ops.Unit
	// Parameters on this rank, before data-parallel sharding: dense ones and those
	// of experts that are trained, how many tensors either are, and those that are frozen,
	// again dense and of experts.
	dense, expert int64
	tensors       [2]int
	cut           int // of these, those that tensor or expert parallelism cuts
	frozen        [2]int64
	multiplied    int64 // of the layers' matrices, trained or not: what quantized GEMMs multiply
	of            *priced

	matrices matrices

	passes  passes
	memory  measured
	reduced gradients
	shapes  [][2]int64 // of the weights with a gradient made by GEMMs, once known
}

// layout says which chunk stands where in a pipeline.
type layout struct {
	units  []*unit
	counts []float64 // by unit: how often the model has it
	parts  [][]int   // by stage of the model: the kinds of its layers
	stages []*chunk  // by stage of the model
	ranks  []*chunk  // by pipeline rank: all that it holds; nil: not asked for yet
	chunks []*chunk  // each of either once
}

type layoutKey struct {
	recomputed       strategies.Recomputed
	given            strategies.StageLayers
	placement        pipeline.Placement
	copies, pp, each int
}

// priceModel prices the units of a job's model at the full clock.
func (p *pricer) priceModel(t terms, m *ops.Model) *priced {
	out := &priced{terms: t, kinds: len(m.Kinds), layers: m.Layers, chunks: map[chunkKey]*chunk{}, layouts: map[layoutKey]*layout{}}
	out.units = append(out.units, p.unit(&m.Embedding))
	for i := range m.Kinds {
		out.units = append(out.units, p.unit(&m.Kinds[i]))
	}
	for i := range m.Kept {
		out.units = append(out.units, p.unit(&m.Kept[i]))
	}
	out.head = len(out.units)
	out.units = append(out.units, p.unit(&m.Head))
	if t.config.LossApart {
		out.units = append(out.units, p.unit(&m.Loss))
	}
	out.encoder, out.encodes = len(out.units), m.Encodes
	for i := range m.Encoder {
		out.units = append(out.units, p.unit(&m.Encoder[i]))
	}
	if t.groups[amaxGroup].Ranks > 1 {
		out.amax = p.amax()
	}
	return out
}

// clock brings the prices to the pricer's clock.
func (u *unit) clock(p *pricer) {
	if u.ratio == p.ratio {
		return
	}
	u.ratio = p.ratio
	u.forward.clock(p)
	u.backward.clock(p)
	if p.hides > 0 {
		hideExchanges(p, &u.forward, &u.backward)
	}
	u.forward.compress(p)
	u.backward.compress(p)
}

// layout cuts the model for a job's plan; schedule is nil without pipeline.
func (m *priced) layout(j *strategies.Job, schedule *pipeline.Plan) *layout {
	l := m.staged(j, schedule)
	if l.ranks != nil {
		return l
	}
	for rank := range schedule.Ranks {
		var layers []int
		var e ends
		for c := range schedule.Chunks {
			i := schedule.ModelStage(schedule.Stage(rank, c))
			s := l.stages[i]
			layers = append(layers, l.parts[i]...)
			e = ends{e.embedding || s.embedding != nil, e.head || s.head != nil, e.loss || s.loss != nil, c}
		}
		l.ranks = append(l.ranks, m.chunk(layers, e))
	}
	for _, c := range slices.Concat(l.stages, l.ranks) {
		if !slices.Contains(l.chunks, c) {
			l.chunks = append(l.chunks, c)
		}
	}
	return l
}

// staged is layout without what each rank of a pipeline holds, which bounds do not ask for.
func (m *priced) staged(j *strategies.Job, schedule *pipeline.Plan) *layout {
	r := j.Train.Recomputed()
	key := layoutKey{recomputed: r, copies: 1, pp: 1, each: 1}
	if schedule != nil {
		key = layoutKey{r, j.Plan.StageLayers, schedule.Placement, schedule.Copies, schedule.Ranks, schedule.Chunks}
	}
	if l := m.layouts[key]; l != nil {
		return l
	}
	stages := key.pp * key.each / key.copies
	l := &layout{units: m.units, counts: make([]float64, len(m.units)), parts: make([][]int, stages), stages: make([]*chunk, 0, stages)}
	l.counts[0] = 1
	for k := m.head; k < m.encoder; k++ {
		l.counts[k] = 1
	}
	for _, k := range m.encodes {
		l.counts[m.encoder+k]++
	}
	loss := stages // none
	head := stages - 1
	if m.config.LossApart {
		loss, head = stages-1, stages-2
	}
	left := slices.Clone(m.layers)
	for i, n := range j.Plan.SplitLayers(m.config.Spec, m.config.Recipe, int64(len(left)), int64(stages)) {
		part := left[:n]
		for k := range part {
			if !r.Of(int64(k)) {
				part[k] += m.kinds
			}
			l.counts[part[k]+1]++
		}
		l.parts[i], left = part, left[n:]
	}
	for i, layers := range l.parts {
		l.stages = append(l.stages, m.chunk(layers, ends{embedding: i == 0, head: i == head, loss: i == loss}))
	}
	if schedule == nil {
		l.ranks = l.stages
	}
	m.layouts[key] = l
	return l
}

// ends says which of embedding, head and a loss apart a chunk has, and how many chunks of a pipeline
// rank it has beside one.
type ends struct {
	embedding, head, loss bool
	more                  int
}

// chunkKey names a chunk: the kinds of its layers are a byte each.
type chunkKey struct {
	ends
	layers string
}

// chunk returns the chunk of some layers and ends.
func (m *priced) chunk(layers []int, e ends) *chunk {
	var most [256]byte // on the stack: most chunks are known
	kinds := most[:0]
	for _, k := range layers {
		kinds = append(kinds, byte(k))
	}
	if m.amax == nil {
		e.more = 0 // nothing counts them
	}
	if c := m.chunks[chunkKey{e, string(kinds)}]; c != nil {
		return c
	}
	c := &chunk{of: m}
	if e.embedding {
		for _, k := range m.encodes {
			c.list = append(c.list, m.units[m.encoder+k])
		}
		c.embedding = m.units[0]
		c.list = append(c.list, c.embedding)
	}
	for _, k := range layers {
		c.list = append(c.list, m.units[k+1])
	}
	c.layers = c.list[len(c.list)-len(layers):]
	if e.head {
		c.head = m.units[m.head]
		c.list = append(c.list, c.head)
	}
	if e.loss {
		c.loss = m.units[m.head+1]
		c.list = append(c.list, c.loss)
	}
	if c.runs = c.list; m.amax != nil {
		c.runs = slices.Concat(c.list, slices.Repeat([]*unit{m.amax}, 1+e.more))
	}
	for _, u := range c.list {
		c.ops = append(c.ops, u.Unit)
		c.count(u)
	}
	m.chunks[chunkKey{e, string(kinds)}] = c
	return c
}

// count adds the parameters of a unit.
func (c *chunk) count(u *unit) {
	for _, p := range u.Params {
		if p.TiedCopy && c.embedding != nil {
			continue
		}
		if u != c.embedding && p.Split != model.VocabSplit && len(p.Dims) > 1 && !p.Adapter && !p.Wide {
			c.multiplied += p.Local
		}
		expert := p.Split == model.ExpertSplit
		switch {
		case p.Frozen && expert:
			c.frozen[1] += p.Local
			continue
		case p.Frozen:
			c.frozen[0] += p.Local
			continue
		case expert:
			n := int64(1)
			if c.of.config.Recipe.Structure.ExpertCalls { // GroupedLinear keeps a weight for each
				n = p.Dims[0] * p.Local / p.Size()
			}
			c.expert += p.Local
			c.tensors[1] += int(n)
		default:
			c.dense += p.Local
			c.tensors[0]++
		}
		if p.Local < p.Size() {
			c.cut++
		}
	}
}

// passes are a chunk's two passes, remembered for one clock and number of micro batches.
type passes struct {
	passesKey
	forward, backward passTime
}

type passesKey struct {
	ratio   float64 // of the clock
	batches int64   // micro batches
	wide    bool    // gradients are kept in a wider dtype
}
