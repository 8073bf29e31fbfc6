package estimate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// tally counts what a step runs outside the units of the model.
type tally struct {
	calls   map[call]int64  // collectives of data parallelism
	kernels map[loose]int64 // its copies and sums, the optimizer
}

// loose is a kernel that is no part of a unit.
type loose struct {
	op     tape.Op
	beside bool // on a communication stream
}

func newTally() *tally { return &tally{map[call]int64{}, map[loose]int64{}} }

func (t *tally) clone() *tally { return &tally{maps.Clone(t.calls), maps.Clone(t.kernels)} }

// repeat counts n times more what came since an earlier state.
func (t *tally) repeat(since *tally, n int64) {
	for c, k := range t.calls {
		t.calls[c] += n * (k - since.calls[c])
	}
	for c, k := range t.kernels {
		t.kernels[c] += n * (k - since.kernels[c])
	}
}

// loose lists the counted kernels, the longest in all first.
func (p *pricer) loose() []KernelDetail {
	var out []KernelDetail
	for k, n := range p.counts.kernels {
		t := p.device(&k.op)
		d := KernelDetail{Op: &k.op, Time: t, Loaded: t, Count: n, Beside: k.beside, Why: p.timer.Explain(&k.op)}
		if !k.beside {
			d.Loaded = t * units.Seconds(p.timer.Beside(&k.op))
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b KernelDetail) int {
		return cmp.Or(cmp.Compare(float64(b.Count)*float64(b.Time), float64(a.Count)*float64(a.Time)), cmp.Compare(a.Op.Prim, b.Op.Prim), cmp.Compare(a.Op.Bytes, b.Op.Bytes), cmp.Compare(a.Count, b.Count))
	})
	return out
}

// sums counts what the passes of a rank's chunks add and divide in place, which
// their durations hold: all micro batches of a chunk but the first add their gradients to
// those that are there, and PyTorch divides the sums at the end.
func (r *pipelineRun) sums(rank int) {
	job, counts := r.s.p.job, r.s.p.counts
	n := int64(r.s.passesOf())
	if job.Recipe.Structure.AddsGradients(&job.Precision) || n == 1 {
		return
	}
	kernels := map[loose]int64{}
	if o, ok := r.merge(rank); ok {
		kernels[loose{op: o}]++
	}
	for _, u := range r.s.layout.ranks[rank].list {
		for _, g := range u.backward.grads {
			if r.s.p.keepsWide() {
				kernels[loose{op: r.s.p.kept(g.Bytes, true)}]++
				kernels[loose{op: r.s.p.kept(g.Bytes, false)}] += n - 1
			} else {
				kernels[loose{op: sum("accumulate", g.Bytes)}] += n - 1
			}
			if job.Recipe.Structure.ScaledSums {
				kernels[loose{op: r.s.p.scaling(g.Bytes)}]++
			}
		}
	}
	maps.Copy(counts.kernels, kernels)
}
