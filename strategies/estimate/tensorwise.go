package estimate

import (
	"cmp"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// Optimizers that keep and update each tensor by itself, as those of bitsandbytes do.

// trained calls f with each parameter of a chunk that is trained there.
func (c *chunk) trained(f func(*ops.Param)) {
	for _, u := range c.list {
		for i := range u.Params {
			if p := &u.Params[i]; !p.Frozen && (!p.TiedCopy || c.embedding == nil) {
				f(p)
			}
		}
	}
}

// tables is the number of values in embeddings that are trained.
func (c *chunk) tables() (n int64) {
	c.trained(func(p *ops.Param) {
		if p.Role.Table() {
			n += p.Local
		}
	})
	return n
}

// tensorwise says which states of the job's optimizer lie elsewhere than in its precision's dtype in the
// allocator: those of embeddings, and those in managed memory.
func tensorwise(s memory.Stored, j *strategies.Job) memory.Stored {
	o, kept := j.Recipe.Optimizer[j.Train.Optimizer], units.Bytes(2-j.Precision.Without)
	s.Paged, s.Passing = o.Paged, units.Bytes(o.Held)
	if o.Held > 0 && j.Precision.Trained().Weights.Size() < tape.F32.Size() {
		s.Passing += 2 * tape.F32.Size() // copies of gradient and weight
	}
	if o.Embedding != "" {
		s.Embedding = kept * j.Recipe.Optimizer[o.Embedding].States.Size()
	}
	if o.States.DType == tape.Block8 {
		s.Scales = kept * (o.States.Size() - 1)
	}
	return s
}

// statesOf is the size of the states of a chunk, in the allocator and outside of it.
func (f *footprint) statesOf(c *chunk) (inside, outside units.Bytes) {
	c.trained(func(p *ops.Param) {
		s := &f.dense
		if p.Split == model.ExpertSplit {
			s = &f.expert
		}
		in, out := s.StatesOf(p)
		inside, outside = inside+in, outside+out
	})
	return inside, outside
}

// updateCasts are those of an update in fp32 of what is narrower: gradient and weight, and the weight back.
const updateCasts = 3

// widens reports whether there are such.
func (s *step) widens(u *update) bool {
	return u.Bytes > 0 && s.job.Precision.Trained().Weights.Size() < tape.F32.Size()
}

// tensorwise adds to an update that of the embeddings, which another optimizer of the list has, casts to
// fp32 and back, and the copies of managed memory, one for each moment of a tensor.
func (s *step) tensorwise(u *update, seg *timeline.Segment) {
	add := func(o tape.Op) {
		k := s.p.kernelOf(o)
		seg.Busy, seg.Loaded = seg.Busy+k.Busy, seg.Loaded+k.Loaded
	}
	if u.tables > 0 {
		o := s.job.Recipe.Optimizer[u.Embedding]
		class, _ := tape.ClassOf(o.Class)
		add(tape.Op{Prim: "optimizer", Class: class, Count: 1, Elements: cmp.Or(o.Work, 1) * u.tables, Phase: tape.Optimize})
	}
	prec := s.job.Precision.Trained()
	if s.widens(u) {
		add(tape.Op{Prim: "optimizer_casts", Class: tape.Unrolled, Count: updateCasts, Elements: u.local, Bytes: units.Bytes(u.local) * (prec.Weights.Size() + tape.F32.Size()), Phase: tape.Optimize})
	}
	if u.Paged == 0 {
		return
	}
	states, n := tensorwise(memory.Stored{States: prec.MomentBytes()}, s.job), 0
	var outside units.Bytes
	s.chunk.trained(func(p *ops.Param) {
		if _, b := states.StatesOf(p); b > 0 {
			n, outside = n+int(2-prec.Without), outside+b
		}
	})
	if n > 0 {
		add(tape.Op{Prim: "prefetch", Class: tape.Prefetch, Count: int32(n), Bytes: outside / units.Bytes(n), Phase: tape.Optimize})
	}
}
