package estimate

import (
	"math"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/dataparallel"
)

// gradients are those of a chunk as they are reduced.
type gradients struct {
	at     []int            // by unit of the list: its first gradient, in the order they become ready
	bytes  [2][]units.Bytes // by gradient in that order: of dense parameters, and of experts
	all    [2]units.Bytes
	filled []filledBy
}

// filled are the buckets that gradients of one kind fill.
type filled struct {
	closes []bool        // by gradient: it is the last of its bucket
	sizes  []units.Bytes // by bucket
}

// filledBy is how gradients of a kind fill buckets of a size. Sizes between which no
// gradient ends fill the same.
type filledBy struct {
	kind         int
	first, limit units.Bytes
	*filled
}

// reduced are the gradients of a chunk.
func (p *pricer) reduced(c *chunk) *gradients {
	g := &c.reduced
	if g.at != nil {
		return g
	}
	g.at = make([]int, len(c.list))
	reduce := p.job.Precision.Reduce.Size() / p.gradSize()
	for j := len(c.list) - 1; j >= 0; j-- {
		u := c.list[j]
		g.at[j] = len(g.bytes[0])
		for i, x := range u.backward.grads {
			size := x.Bytes
			if c.embedding != nil && u.Params[x.Param].TiedCopy {
				size = 0 // complete only with the embedding's
			}
			if slices.ContainsFunc(u.backward.grads[i+1:], func(later tape.ParamGrad) bool { return later.Param == x.Param }) {
				size = 0 // or with what it is used for before
			}
			d, e := size*reduce, units.Bytes(0)
			if u.Params[x.Param].Split == model.ExpertSplit {
				d, e = 0, d
			}
			g.bytes[0], g.bytes[1] = append(g.bytes[0], d), append(g.bytes[1], e)
			g.all[0], g.all[1] = g.all[0]+d, g.all[1]+e
		}
	}
	return g
}

// fill fills the buckets of the job with gradients of a chunk, dense ones (0) or those of
// experts.
func (p *pricer) fill(c *chunk, kind int) *filled {
	g := p.reduced(c)
	first, limit := p.bucket(c)
	first, limit = min(first, g.all[kind]+1), min(limit, g.all[kind]+1) // what all together do not fill, however large
	for i := range g.filled {
		if f := &g.filled[i]; f.kind == kind && f.first == first && f.limit == limit {
			return f.filled
		}
	}
	now := &p.filling
	now.closes, now.sizes = dataparallel.AppendBuckets(now.closes[:0], now.sizes[:0], g.bytes[kind], first, limit)
	like := slices.IndexFunc(g.filled, func(f filledBy) bool {
		return f.kind == kind && slices.Equal(f.closes, now.closes) && slices.Equal(f.sizes, now.sizes)
	})
	by := filledBy{kind: kind, first: first, limit: limit}
	if like >= 0 {
		by.filled = g.filled[like].filled
	} else {
		by.filled = &filled{slices.Clone(now.closes), slices.Clone(now.sizes)}
	}
	g.filled = append(g.filled, by)
	return by.filled
}

// bucket is the size of the job's buckets of a chunk's gradients, and that of the first.
func (p *pricer) bucket(c *chunk) (first, limit units.Bytes) {
	if limit = p.job.Plan.Bucket; limit == 0 {
		first, limit = p.defaultBucket(c)
	} else {
		first = limit
	}
	wide := p.wideReduce()
	return first * wide, limit * wide
}

// defaultBucket is that of the framework.
func (p *pricer) defaultBucket(c *chunk) (first, limit units.Bytes) {
	o := &p.job.Recipe.Overlap
	switch {
	case o.Values > 0 && (c.embedding == nil || !o.GradReduce): // distributed_data_parallel.py: bucket_size
		return math.MaxInt64, math.MaxInt64
	case o.Values > 0:
		limit = units.Bytes(max(o.Values, o.RankValues*p.job.Plan.DP)) * p.job.Precision.Reduce.Size()
		return limit, limit
	case o.Bucket > 0:
		return o.Bucket, o.Bucket
	}
	return dataparallel.FirstBucket, dataparallel.DefaultBucket
}
