package search

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// found is a legal plan on its way through a search: a layout with switches and a
// bucket.
type found struct {
	layout int32
	way    uint8
}

// scored is a plan that was evaluated.
type scored struct {
	found
	group uint8 // plans of a layout that differ in their bucket only
	score estimate.Score
	value float64
	done  bool

	pruned bool // by its own floor
}

// line are the plans of a search that still wait to be evaluated, from the lowest floor up.
type line struct {
	plans []layout
	order []int32 // of these
	way   uint8   // of the first
	left  int     // plans
}

func (s *searcher) line() line {
	q := line{plans: s.plans, order: make([]int32, len(s.plans))}
	for i := range q.order {
		q.order[i] = int32(i)
		q.left += int(s.plans[i].ways)
	}
	slices.SortFunc(q.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.plans[a].floor, s.plans[b].floor), cmp.Compare(a, b))
	})
	return q
}

// floor is that of all that wait.
func (q *line) floor() float64 { return q.plans[q.order[0]].floor }

// take returns the next n, in the order of the space: plans that share most stand together.
func (q *line) take(n int) []found {
	n = min(n, q.left)
	out := make([]found, n)
	for i := range out {
		at := q.order[0]
		out[i] = found{at, q.way}
		if q.way++; q.way == q.plans[at].ways {
			q.order, q.way = q.order[1:], 0
		}
	}
	q.left -= n
	slices.SortFunc(out, found.compare)
	return out
}

// every lists the plans of some layouts.
func every(plans []layout) iter.Seq[found] {
	return func(yield func(found) bool) {
		for i := range plans {
			for way := range plans[i].ways {
				if !yield(found{int32(i), way}) {
					return
				}
			}
		}
	}
}

// compare orders plans as listed.
func (f found) compare(o found) int {
	return cmp.Or(cmp.Compare(f.layout, o.layout), cmp.Compare(f.way, o.way))
}

// batchSizes: small at first, so that bounds start to work early. Every plan of a
// batch is evaluated; the bound moves between batches, so that how many plans are
// evaluated does not depend on the processors.
const (
	firstBatch = 32
	mostBatch  = 1024
)

// each evaluates plans from the lowest floor up, until no floor is within the bar
// that plans must not exceed, where there is one, and calls f with those that fit.
func (s *searcher) each(bar func() (float64, bool), f func(*scored)) {
	q := s.line()
	large := reasons{}
	var best *scored
	s.shown = Progress{Phase: "evaluating", Total: q.left}
	for size := firstBatch; q.left > 0 && s.ctx.Err() == nil; size = min(2*size, mostBatch) {
		most, bounded := bar()
		if bounded && q.floor() > most {
			s.out.Pruned += q.left
			break
		}
		limits := estimate.Limits{Memory: s.limit, Time: s.o.Objective.slowest(most, bounded, s.job)}
		if n := s.o.Objective.largest(most, bounded); n > 0 {
			limits.Memory = min(limits.Memory, n)
		}
		results := s.evaluate(q.take(size), limits, most, bounded)
		for i := range results {
			x := &results[i]
			switch {
			case x.pruned:
				s.out.Pruned++
				continue
			case !x.done:
				continue
			case x.score.DeviceUsed > s.limit:
				large.add(s.over(x.score.DeviceUsed, peakTooLarge, peakTight), 1)
			case x.score.DeviceUsed == 0 || x.score.DeviceUsed > limits.Memory: // too slow or too large to matter
			default:
				s.out.Fits++
				f(x)
				if best == nil || s.o.Objective.less(x, best) {
					best = x
				}
			}
			s.out.Evaluated++
		}
		if s.shown.Done = s.shown.Total - q.left; best != nil && s.o.Progress != nil {
			s.shown.Best, s.shown.Value = s.describe(best.found), s.o.Objective.text(&best.score)
		}
		s.progress(s.shown)
	}
	s.reject(large)
	s.sortRejected()
	s.out.Partial = s.out.Partial || s.ctx.Err() != nil
}

// raise finds the own floors of the cuts of a batch, of all their plans at once: each model is
// built but once for them.
func (s *searcher) raise(batch []found) {
	if s.owned == nil {
		s.owned = make([]float64, len(s.plans))
	}
	var cuts [][2]int // from the first layout to the last
	end := 0
	for _, f := range batch {
		if at := int(f.layout); at >= end && s.owned[at] == 0 {
			cut := s.plans[at].cut
			begin, _ := slices.BinarySearchFunc(s.plans, cut, func(p layout, c int32) int { return cmp.Compare(p.cut, c) })
			end, _ = slices.BinarySearchFunc(s.plans, cut+1, func(p layout, c int32) int { return cmp.Compare(p.cut, c) })
			cuts = append(cuts, [2]int{begin, end})
		}
	}
	parallel.Workers(len(cuts), func(w int, next func() (int, bool)) {
		var scratch strategies.Job
		for i, ok := next(); ok && s.ctx.Err() == nil; i, ok = next() {
			for at := cuts[i][0]; at < cuts[i][1]; at++ {
				s.set(&scratch, &s.plans[at], 0)
				s.owned[at] = s.own(&s.evaluators[w], &scratch)
			}
		}
	})
}

// evaluate scores a batch, a run of neighbours at a time. Plans beyond the limits do not
// matter.
func (s *searcher) evaluate(batch []found, limits estimate.Limits, bar float64, bounded bool) []scored {
	const run = 16
	hopeless := bounded && s.many()
	if hopeless {
		s.raise(batch)
	}
	out := make([]scored, len(batch))
	runs := (len(batch) + run - 1) / run
	var done atomic.Int64
	parallel.Workers(runs, func(w int, next func() (int, bool)) {
		var scratch strategies.Job
		for i, ok := next(); ok && s.ctx.Err() == nil; i, ok = next() {
			for k := i * run; k < min((i+1)*run, len(batch)); k++ {
				f := &out[k]
				f.found, f.group = batch[k], batch[k].way/s.plans[batch[k].layout].buckets
				if f.pruned = hopeless && s.owned[f.layout] > bar; f.pruned {
					continue
				}
				s.apply(&scratch, f.found)
				score, err := s.evaluators[w].Score(&scratch, limits)
				if err != nil {
					continue // enumerate has built this model
				}
				f.score, f.value, f.done = score, s.o.Objective.value(&score, scratch.Tokens()), true
			}
			p := s.shown
			p.Done += min(int(done.Add(1))*run, len(batch))
			s.progress(p)
		}
	})
	return out
}

// describe is the short form of a plan with its training settings.
func (s *searcher) describe(f found) string {
	var j strategies.Job
	s.apply(&j, f)
	return Describe(&j)
}

// Describe is the short form of a job's plan with the settings that go with it.
func Describe(j *strategies.Job) string {
	out := fmt.Sprintf("%s, micro batch %d", &j.Plan, j.Train.MicroBatch)
	if j.Train.Recompute != ops.NoRecompute {
		out += fmt.Sprintf(", %s recompute", j.Train.RecomputeText())
	}
	return out
}

// top keeps the best plans, one of each group.
type top struct {
	most int
	list []scored
}

// less orders plans by value, then by the objective's second thought, then as
// listed.
func (o Objective) less(a, b *scored) bool {
	if a.value != b.value {
		return a.value < b.value
	}
	if x, y := o.second(&a.score), o.second(&b.score); x != y {
		return x < y
	}
	return a.compare(b.found) < 0
}

func (t *top) add(f *scored, o Objective) {
	for i := range t.list {
		if x := &t.list[i]; x.layout == f.layout && x.group == f.group {
			if !o.less(f, x) {
				return
			}
			t.list = slices.Delete(t.list, i, i+1)
			break
		}
	}
	at := len(t.list)
	for at > 0 && o.less(f, &t.list[at-1]) {
		at--
	}
	if at < t.most {
		t.list = slices.Insert(t.list, at, *f)
		t.list = t.list[:min(len(t.list), t.most)]
	}
}

// bar is the value that a plan must not exceed to be among the best, and whether
// there are enough for it to count.
func (t *top) bar() (float64, bool) {
	if len(t.list) < t.most {
		return 0, false
	}
	return t.list[len(t.list)-1].value, true
}
