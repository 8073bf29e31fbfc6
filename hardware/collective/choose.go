package collective

import "math"

// candidate is one algorithm and protocol that NCCL weighs for a group: the
// latency of a call in us and the algorithm bandwidth in GB/s, as its tuner
// computes them (NCCL_DEBUG_SUBSYS=TUNING prints the same table).
type candidate struct {
	algorithm Algorithm
	protocol  Protocol
	latency   float64
	crossing  float64 // of that, of hops between nodes
	bandwidth float64
}

// tuning is all that NCCL decides at start-up for one operation on one group.
type tuning struct {
	op         Op
	view       view
	generation generation
	corrected  bool    // Blackwell's NVLSTree follows the tree's correction
	carried    float64 // times the rates of the graph that the links carry: 1 but where NCCL found no path
	channels   float64 // runtime channels of rings and trees
	nvls       float64 // of NVLS
	candidates []candidate
}

// directRanks is the most ranks of a node that CollNetDirect takes (NCCL_MAX_DIRECT_ARITY + 1,
// src/include/device.h and enqueue.cc).
const directRanks = 8

// tune replays NCCL's tuner for an operation it knows. Sources: B, latencies
// and enabling in ncclTopoTuneModel, src/graph/tuning.cc; channel counts in
// ncclTopoPostset, src/graph/connect.cc, and src/transport/nvls.cc.
func (f *Fabric) tune(r *release, op Op, g Group) *tuning {
	gen := generationOf(f.Capability)
	v := f.view(r, g)
	ring := ringGraph(r, gen, v)
	t := &tuning{op: op, view: v, generation: gen, carried: 1}
	if ring.intra == slowest && v.nodes == 1 {
		t.carried = max(v.total/slowest, 1)
	}
	t.corrected = r.NVLSTreeCorrected && gen == blackwell && f.CPU != "arm"

	t.channels = min(2*ring.channels, float64(r.MaxChannels))
	if gen >= hopper && v.nodes > 1 && ring.intra > 45 && t.channels < 16 {
		t.channels *= 2
	}
	t.nvls = 16
	if gen == blackwell {
		t.nvls = 32
		if v.nodes == 1 {
			t.nvls = 24
		}
	}

	add := func(a Algorithm, p Protocol, bandwidth float64) {
		if bandwidth > 0 {
			latency, crossing := f.latency(r, op, a, p, v)
			t.candidates = append(t.candidates, candidate{a, p, latency, crossing, bandwidth})
		}
	}
	ll128 := f.Capability >= 70 && (v.nvlink || v.perNode == 1)
	gather := op == AllGather || op == ReduceScatter

	if op == AllReduce {
		tree := treeGraph(r, gen, v, ring)
		for p := range protocolCount {
			if p != LL128 || ll128 {
				add(Tree, p, f.treeBandwidth(r, gen, p, v, tree))
			}
		}
	}
	for p := range protocolCount {
		if p != LL128 || ll128 {
			add(Ring, p, f.ringBandwidth(r, gen, p, v, ring)*v.n/op.ringSteps(v.n))
		}
	}
	sharp := f.InNetworkReduce && v.nodes > 1
	if sharp && op == AllReduce && f.Switched && v.perNode <= directRanks {
		add(CollNetDirect, Simple, directBandwidth(gen, v, ring))
	}
	if (op == AllReduce || gather) && f.Multicast && f.Switched && v.nvlink && gen >= hopper && v.perNode > 1 {
		nvls := nvlsGraph(r, gen, v)
		if v.nodes == 1 && (op == AllReduce || r.NVLSGather && v.perNode <= 32) || sharp && op == AllReduce {
			add(NVLS, Simple, nvlsBandwidth(r, gen, op, NVLS, v, nvls))
		}
		if v.nodes > 1 && op == AllReduce {
			add(NVLSTree, Simple, nvlsBandwidth(r, gen, op, NVLSTree, v, nvls))
		}
	}
	if gather && v.nodes == v.n && v.nodes > 1 {
		add(PAT, Simple, ring.channels*rate(ring, v)*r.PATShare)
	}
	return t
}

// rate is the rate of a channel that counts: the inner one up to two nodes.
func rate(g graph, v view) float64 {
	if v.nodes <= 2 {
		return g.intra
	}
	return g.inter
}

// column selects 1 node, 2 nodes, more.
func (v view) column() int { return int(min(v.nodes, 3)) - 1 }

// llMax is LL's ceiling: it depends on the GPU in one node, on the CPU across.
func (f *Fabric) llMax(r *release, gen generation, v view) float64 {
	if v.nodes > 1 {
		gen = volta
		if f.CPU == "amd" {
			gen = ampere
		}
	}
	return r.LLMax.of(gen)[v.column()]
}

// ringBandwidth is the bus bandwidth of a ring.
func (f *Fabric) ringBandwidth(r *release, gen generation, p Protocol, v view, g graph) float64 {
	bus := g.channels * rate(g, v)
	switch p {
	case LL:
		return min(f.llMax(r, gen, v), bus*r.RingLLShare)
	case LL128:
		share := 0.92
		if v.perNode < 2 {
			share = r.RingLL128OnePerNode
		}
		return min(bus*share, g.channels*r.RingLL128Max.of(gen)[v.column()])
	}
	return bus
}

// treeBandwidth is the algorithm bandwidth of a tree's all-reduce. The factor
// for graphs that fell back to the plain tree pattern is not applied.
func (f *Fabric) treeBandwidth(r *release, gen generation, p Protocol, v view, g graph) float64 {
	bus := min(0.92*g.channels*rate(g, v), g.channels*r.TreeMax.of(gen)[v.column()])
	switch p {
	case LL:
		bus = min(bus/3.8, f.llMax(r, gen, v))
	case LL128:
		share := 120.0 / 128
		if v.nodes == 1 {
			share = 7.0 / 9
		}
		bus = min(bus*share, g.channels*r.TreeLL128Max.of(gen)[v.column()])
	}
	return bus / 2
}

// nvlsBandwidth is the algorithm bandwidth of NVLS and NVLSTree.
func nvlsBandwidth(r *release, gen generation, op Op, a Algorithm, v view, g graph) float64 {
	c, inside, across := g.channels, g.intra, g.inter
	if c < 2 {
		return 0
	}
	if !r.NVLSEfficient {
		switch {
		case op != AllReduce:
			return c * min(inside*(v.perNode-1)/v.perNode, 0.9*across)
		case a == NVLSTree && v.nodes > 2:
			across /= 2
		}
		return c * min(inside, across) * 5 / 6
	}
	inside *= r.NVLSEfficiency.of(gen)[0] * (c - 1) / c
	if op != AllReduce {
		return c * min(inside*(v.perNode-1)/v.perNode, across)
	}
	inside *= 2
	if a == NVLSTree {
		if v.nodes <= 2 {
			across *= 2
		}
		across = min(across, r.NVLSTreeMax.of(gen)[v.column()])
	}
	return c * min(inside, across) * v.n / op.ringSteps(v.n)
}

// directBandwidth is the algorithm bandwidth of an all-reduce in the switches,
// one head per adapter.
func directBandwidth(gen generation, v view, g graph) float64 {
	heads := min(v.nics, v.perNode)
	factor := v.perNode / heads
	factor -= (factor - 1) / 2
	bus := heads * min(g.intra*g.channels/heads, v.netPath) / factor
	if gen >= hopper {
		bus *= 0.85
	}
	return bus / 2
}

// latency is the time of a call with no data, in us, and what of it is that of hops
// between nodes, one after the other.
func (f *Fabric) latency(r *release, op Op, a Algorithm, p Protocol, v view) (all, crossing float64) {
	h := r.hops(a)
	base, inside := h.Base[p], h.PCI[p]
	if v.nvlink {
		inside = h.NVLink[p]
	}
	across := h.Net[p]
	if v.perNode == 1 { // nothing inside a node hides it
		across = r.Tree.Net[p]
	}
	extra := float64(f.hopLatency()) * 1e6
	across += extra
	if p == Simple { // and the flush after the data
		across += extra
	}
	local := v.perNode - 1
	depth := math.Floor(math.Log2(v.nodes))
	switch a {
	case Tree:
		crossing = 2 * depth * across
		return base + 2*local*inside + crossing, crossing
	case CollNetDirect:
		return base + 2*(min(1, local)*inside+0.4*local) + across, across
	case NVLS:
		if v.nodes > 1 {
			return base + inside + across, across
		}
		return base + inside, 0
	case NVLSTree:
		crossing = 2 * depth * across
		return base + inside + crossing, crossing
	case PAT:
		crossing = depth * across / 3.5
		return base + crossing + 2.8*v.n, crossing
	}
	if op == Broadcast || op == Reduce {
		if v.nodes > 1 {
			return base + h.Net[p], h.Net[p]
		}
		return base + inside, 0
	}
	post := 0.0 // posting a network operation, even where the ring stays inside
	if v.nodes > 1 {
		post = 1
		if f.CPU == "amd" {
			post = 2
		}
		if p == Simple {
			post *= 3
		}
	}
	steps, crossings := op.ringSteps(v.n), v.nodes-1
	if op == AllReduce {
		crossings *= 2
	}
	crossing = crossings * across
	return base + (steps-crossings)*max(inside, post) + crossing, crossing
}

// correction is how far below its bandwidth a tree runs, by protocol and by
// powers of two from 64 B. Source: treeCorrectionFactor, src/graph/tuning.cc.
var correction = [protocolCount][24]float64{
	LL:     {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
	LL128:  {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
	Simple: {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}

// nominal is NCCL's own estimate in us of a call of so many bytes, from which
// it chooses. Source: ncclTopoGetAlgoTime, src/graph/tuning.cc.
func (t *tuning) nominal(c candidate, bytes float64) float64 {
	latency, bandwidth := t.adjust(c, bytes, math.Floor)
	return latency + bytes/(1000*bandwidth)
}

// adjust applies what NCCL corrects at the call: the tree's loss at middle
// sizes and the plateau of rings across nodes. whole maps the size in powers of
// two to a column of the correction.
func (t *tuning) adjust(c candidate, bytes float64, whole func(float64) float64) (latency, bandwidth float64) {
	latency, bandwidth = c.latency, c.bandwidth
	if c.algorithm == Tree || c.algorithm == NVLSTree && t.corrected {
		last := 22
		if c.algorithm == NVLSTree {
			last = 23
		}
		if at := whole(math.Log2(bytes / 64)); at >= 0 && at <= float64(last) {
			row := &correction[c.protocol]
			i := int(at)
			low, high := row[i], row[min(i+1, last)]
			bandwidth *= low + (at-float64(i))*(high-low)
		}
	}
	if c.algorithm == Ring && c.protocol == Simple && t.op == AllReduce && t.view.nodes > 1 && bytes/(t.channels*t.view.n) >= 64 {
		if t.generation >= ampere {
			latency *= 1.4
		} else {
			latency *= 1.9
		}
	}
	return latency, bandwidth
}

// choose returns the index of the candidate that NCCL picks for a size.
func (t *tuning) choose(bytes float64) int {
	best, least := 0, math.Inf(1)
	for i, c := range t.candidates {
		if time := t.nominal(c, bytes); time < least {
			best, least = i, time
		}
	}
	return best
}

// ctas is how many thread blocks, and so streaming multiprocessors, a call
// takes: rings and trees drop channels that would have too little to do.
// Source: topoGetAlgoInfo, src/enqueue.cc.
func (t *tuning) ctas(c candidate, bytes float64) int {
	if c.algorithm == NVLS || c.algorithm == NVLSTree {
		return int(t.nvls)
	}
	threads, threshold := 512.0, 64.0
	switch c.protocol {
	case LL:
		threshold = 8
		if c.algorithm == Ring {
			threshold *= t.view.n
		}
	case LL128:
		threads, threshold = 640, 8
	}
	if c.algorithm == CollNetDirect {
		threads, threshold = 640, 512
	}
	return int(min(max(math.Floor(bytes/(threads*threshold)), 1), t.channels))
}
