package estimate

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// matrices are the weights of a chunk that an optimizer such as Muon updates one by one.
type matrices struct {
	known   bool
	kinds   []matrixKind
	params  [2]int64 // in them, dense and of experts
	tensors int      // that they lie in
	dealt   []dealt  // by ranks: what the busiest has, once known
}

// matrixKind is how many of them are alike.
type matrixKind struct {
	ops.Matrix
	expert bool
	count  int64
}

// cost is proportional to the products of an orthogonalization.
func (k *matrixKind) cost() float64 {
	m, n := float64(min(k.Rows, k.Cols)), float64(max(k.Rows, k.Cols))
	return m * m * (2*n + m)
}

// weights are the matrices of a chunk, which few optimizers ask for.
func (c *chunk) weights() *matrices {
	m := &c.matrices
	if m.known {
		return m
	}
	m.known = true
	for _, u := range c.list {
		for i := range u.Params {
			if p := &u.Params[i]; !p.TiedCopy || c.embedding == nil {
				m.add(&c.of.config, p)
			}
		}
	}
	return m
}

// add adds those of a parameter. Queries, keys and values that are stored as one are updated
// apart by Megatron (muon_split_qkv).
func (m *matrices) add(c *ops.Config, p *ops.Param) {
	if p.Matrices(c.Recipe.Structure.ExpertCalls) == 0 {
		return
	}
	of, count, rows := ops.MatrixOf(p), int64(1), []int64{p.Dims[len(p.Dims)-2]}
	if len(p.Dims) == 3 {
		count = p.Dims[0]
	}
	if p.Role == model.RoleQKV && c.Recipe.Structure.MainGradients {
		q, kv := c.Spec.Heads, c.Spec.KVHeads
		rows = []int64{of.Rows * q / (q + 2*kv), of.Rows * kv / (q + 2*kv), of.Rows * kv / (q + 2*kv)}
	}
	expert, side := p.Split == model.ExpertSplit, 0
	if expert {
		side = 1
	}
	m.tensors += int(count)
	m.params[side] += p.Local
	for _, n := range rows {
		of.Rows = n
		i := slices.IndexFunc(m.kinds, func(k matrixKind) bool { return k.Matrix == of && k.expert == expert })
		if i < 0 {
			i, m.kinds = len(m.kinds), append(m.kinds, matrixKind{of, expert, 0})
		}
		m.kinds[i].count += count
	}
}

// dealt are the matrices of the busiest of some ranks.
type dealt struct {
	ranks  [2]int64
	counts []int64 // by kind
}

// deal deals whole matrices out to ranks, dense ones to the first number of them and those of
// experts to the second, the costliest first and each to the rank with the least to do
// (Megatron-Core, layer_wise_optimizer.py, _compute_per_buffer_param_layout).
func (m *matrices) deal(ranks [2]int64) *dealt {
	for i := range m.dealt {
		if m.dealt[i].ranks == ranks {
			return &m.dealt[i]
		}
	}
	d := dealt{ranks: ranks, counts: make([]int64, len(m.kinds))}
	order := make([]int, len(m.kinds))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.kinds[b].cost(), m.kinds[a].cost()) })
	for k, n := range ranks {
		hands := make(hands, max(n, 1))
		for i := range hands {
			hands[i].counts = make([]int64, len(m.kinds))
		}
		for _, i := range order {
			if kind := &m.kinds[i]; kind.expert == (k == 1) {
				for range kind.count {
					hands[0].counts[i]++
					hands[0].cost += kind.cost()
					heap.Fix(&hands, 0)
				}
			}
		}
		busiest := slices.MaxFunc(hands, func(a, b hand) int { return cmp.Compare(a.cost, b.cost) })
		for i, c := range busiest.counts {
			d.counts[i] += c
		}
	}
	m.dealt = append(m.dealt, d)
	return &m.dealt[len(m.dealt)-1]
}

// hand is what one rank has been dealt; hands are a heap, the least costly first.
type hand struct {
	cost   float64
	counts []int64
}

type hands []hand

func (h hands) Len() int           { return len(h) }
func (h hands) Less(i, j int) bool { return h[i].cost < h[j].cost }
func (h hands) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *hands) Push(x any)        { *h = append(*h, x.(hand)) }
func (h *hands) Pop() any          { panic("hands keep their number") }

// updateKey is what the update of one matrix depends on.
type updateKey struct {
	program string
	of      ops.Matrix
	ranks   int64
}

// matrixUpdate is the update of one matrix, priced.
type matrixUpdate struct {
	section
	ratio float64 // clock of the prices
}

// update prices the update of a matrix by a program of the recipe.
func (m *priced) update(p *pricer, key updateKey) *matrixUpdate {
	u := m.updates[key]
	if u == nil {
		prec := p.job.Precision.Trained()
		weight := prec.Weights
		if prec.Master.Set {
			weight = prec.Master
		}
		sec := ops.Update(p.job.Recipe, key.program, key.of, weight.DType, prec.Gradients.DType, prec.Moments.DType, key.ranks)
		u = &matrixUpdate{section: p.price(&sec, false)}
		if m.updates == nil {
			m.updates = map[updateKey]*matrixUpdate{}
		}
		m.updates[key] = u
	}
	if u.ratio != p.ratio {
		u.ratio = p.ratio
		u.clock(p)
		u.compress(p)
	}
	return u
}

// updatedMatrix is a kind of matrices that the rank has updated.
type updatedMatrix struct {
	*matrixUpdate
	count int64
}

// deals reports whether an update is dealt out to the ranks of DDP.
func deals(j *strategies.Job) bool {
	return j.Recipe.Optimizer[j.Train.Optimizer].Dealt && j.Plan.DataParallel == strategies.DDP
}

// dealt is what of whole matrices the busiest rank updates.
func (s *step) dealt() *dealt {
	ranks := [2]int64{1, 1}
	switch {
	case s.job.Plan.DataParallel == strategies.ZeRO1:
		ranks = [2]int64{s.p.groups[shardGroup].Ranks, s.p.groups[expertShardGroup].Ranks}
	case deals(s.job):
		ranks[0] = s.p.groups[dpGroup].Ranks
	}
	return s.chunk.weights().deal(ranks)
}

// updateMatrices updates the matrices of the rank one by one.
func (s *step) updateMatrices(o *update) {
	if o.Matrix == "" {
		return
	}
	ranks := s.p.groups[shardGroup].Ranks
	sharded := s.job.Plan.DataParallel == strategies.FSDP2 && ranks > 1
	kinds := s.chunk.weights().kinds
	for i, n := range s.dealt().counts {
		if n == 0 {
			continue
		}
		k := &kinds[i]
		key := updateKey{program: o.Matrix, of: k.Matrix, ranks: 1}
		switch {
		case sharded:
			key = updateKey{program: o.Shards, of: ops.Matrix{Rows: (k.Rows + ranks - 1) / ranks, Cols: k.Cols, Group: ops.Shards, ByRows: true}, ranks: ranks}
		case k.Group != "":
			key.ranks = s.p.groups[groupOf(k.Group)].Ranks
		}
		u := s.chunk.of.update(s.p, key)
		s.matrices = append(s.matrices, updatedMatrix{u, n})
		for range n {
			s.sim.Run(&u.whole)
		}
		s.p.count(&u.section, n)
	}
}

// count counts the kernels and collectives of a section that runs so often.
func (p *pricer) count(sec *section, n int64) {
	if p.counts == nil {
		return
	}
	for i := range sec.ops {
		switch o := &sec.ops[i]; {
		case o.Class == tape.NoKernel:
		case o.Class == tape.Collective:
			if p.groups[sec.base[i].group].Ranks > 1 {
				p.counts.calls[callOf(o, sec.base[i].group)] += n
			}
		default:
			p.counts.kernels[loose{op: *o}] += n
		}
	}
}

// gain adds the updates of matrices to a load that has them as work of the optimizer.
func (l *load) gain(updates []updatedMatrix) {
	for _, u := range updates {
		n := units.Seconds(u.count)
		for k, t := range u.time {
			if t -= u.latent[k]; work(k) != commWork && work(k) != engineWork {
				l.others -= t * n
				l.time[memoryWork] -= t * n
				l.effort[memoryWork] -= t * n
			}
			l.time[k] += t * n
			l.effort[k] += u.effort[k] * n
		}
		l.moved += u.moved * units.Bytes(u.count)
	}
}
