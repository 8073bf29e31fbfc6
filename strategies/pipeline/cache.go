package pipeline

import "sync"

// Cache keeps Plans for those that ask for many. Steps that differ only in how
// often their steady state repeats share one graph. The zero value is ready and
// safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	plans map[planKey]*Plan
	bases map[planKey]*Plan // by the compact number of micro batches
	order []planKey         // of bases, oldest first
	held  int               // nodes of all bases
}

type planKey struct {
	name    string
	p, v, m int
	repeats bool
	mode    Transfers
}

// Bounds of a Cache: nodes or events in all, about 40 bytes each with their
// actions, and plans, which are small beside their graphs.
const (
	mostNodes = 1 << 20
	mostPlans = 1 << 13
)

// Get plans m micro batches over p pipeline ranks with v virtual stages each, for a framework that
// moves data between ranks so: with Async, Run overlaps all communication with computation. The
// error of an illegal combination names the rule and the nearest legal values. Plans too large to
// keep are made anew each time.
func (c *Cache) Get(name string, p, v, m int, t Transfers) (*Plan, error) {
	key := planKey{name, p, v, m, false, t}
	c.mu.Lock()
	pl := c.plans[key]
	c.mu.Unlock()
	if pl != nil {
		return pl, nil
	}
	info, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	if err := info.Check(p, v, m); err != nil {
		return nil, err
	}
	compact := info.compact(p, v, m)
	base := planKey{name, p, v, compact, compact < m, t}
	c.mu.Lock()
	found := c.bases[base]
	c.mu.Unlock()
	if found != nil {
		if pl = found.repeated(m, compact); pl != nil {
			c.keep(key, pl)
			return pl, nil
		}
	}
	if pl, err = info.plan(p, v, m, compact, t); err != nil {
		return nil, err
	}
	if n := pl.graph.size; n <= mostNodes/8 {
		c.keep(key, pl)
		c.keepBase(base, pl, n)
	}
	return pl, nil
}

func (c *Cache) keep(key planKey, pl *Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans == nil || len(c.plans) >= mostPlans {
		c.plans = map[planKey]*Plan{}
	}
	c.plans[key] = pl
}

// keepBase makes room for a graph of n nodes, oldest out first. Plans that share
// a graph go with it.
func (c *Cache) keepBase(key planKey, pl *Plan, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bases == nil {
		c.bases = map[planKey]*Plan{}
	}
	if c.bases[key] != nil {
		return
	}
	for c.held+n > mostNodes && len(c.order) > 0 {
		old := c.order[0]
		gone := c.bases[old]
		c.held -= gone.graph.size
		delete(c.bases, old)
		c.order = append(c.order[:0], c.order[1:]...)
		for k, q := range c.plans {
			if k.name == old.name && k.p == old.p && k.v == old.v && k.mode == old.mode && q.shared == gone.shared {
				delete(c.plans, k)
			}
		}
	}
	c.bases[key] = pl
	c.order = append(c.order, key)
	c.held += n
}

// repeated is the same schedule with m micro batches, of which compact have the
// same order; nil where the graph does not carry over.
func (pl *Plan) repeated(m, compact int) *Plan {
	if m == pl.MicroBatches {
		return pl
	}
	if pl.graph.period == 0 { // its steady state was not found, or there is none
		return nil
	}
	per := pl.period(pl.Ranks, pl.Chunks, m)
	if per != pl.period(pl.Ranks, pl.Chunks, pl.MicroBatches) {
		return nil
	}
	next, g := *pl, *pl.graph
	next.MicroBatches = m
	g.repeat = (m - compact) / (per * pl.Copies)
	g.count = append([]int64(nil), g.count...)
	more := int64(g.repeat - pl.graph.repeat)
	g.eachOfPeriod(func(cost int32) { g.count[cost] += more })
	next.graph, next.own = &g, &moments{}
	return &next
}

// eachOfPeriod calls f with the duration of every pass of one period.
func (g *graph) eachOfPeriod(f func(cost int32)) {
	if g.events == nil {
		for _, x := range g.nodes[g.body : g.body+g.period] {
			f(x.cost)
		}
		return
	}
	for _, e := range g.events[g.body : g.body+g.period] {
		if e.cost >= 0 {
			f(e.cost)
		}
	}
}
