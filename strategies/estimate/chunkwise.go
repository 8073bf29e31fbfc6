package estimate

import (
	"slices"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/pipeline"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// byChunk reports whether chunks of a rank reduce their gradients one by one.
func (r *pipelineRun) byChunk() bool { return r.plan.Chunks > 1 && r.s.p.job.Recipe.Overlap.GradReduce }

// sharesTable reports whether a rank has embedding and head with one table, whose gradient
// is complete with the chunks of both only: such a rank reduces all at the end.
func (r *pipelineRun) sharesTable(whole *chunk) bool {
	return r.s.p.job.SharesTable() && whole.embedding != nil && whole.head != nil
}

// chunkwise is what stays exposed of the reductions of a rank's gradients where each of
// its chunks begins its own once its last micro batch is through, beside the passes of
// the others that are left (Megatron-Core, schedules.py: grad_sync_func; each chunk has
// buckets of its own, distributed_data_parallel.py).
func (r *pipelineRun) chunkwise(rank int) float64 {
	p, sim, st := r.s.p, &r.s.sim, &r.s.step
	actions, times := r.plan.Compact(rank), &r.path.times
	var alone units.Seconds
	var last timeline.Task
	reduces := false
	begin := sim.Now
	for i := r.closings(actions); i < len(actions); i++ {
		a := &actions[i]
		stage := r.plan.Stage(rank, int(a.Chunk))
		ch := r.s.layout.stage(r.plan, rank, int(a.Chunk))
		f, b := p.stagePasses(ch)
		t, pass := times.B[stage], &b.seg
		switch a.Kind {
		case pipeline.Forward:
			t, pass = times.F[stage], &f.seg
		case pipeline.BackwardInput:
			t = times.BI[stage]
		case pipeline.BackwardWeight:
			t = times.BW[stage]
		}
		closes := r.closes[a.Chunk] == i
		if closes {
			st.begin(p, ch, sim)
		}
		if closes && a.Kind == pipeline.Backward {
			t = b.duration(p) // at the pace of a healthy rank, as the units are
			st.reduce(p.job.Train.GradAccumulation == 1)
		} else if t > 0 {
			sim.Run(&timeline.Segment{Busy: t, Loaded: t * pass.Loaded / pass.Busy})
		}
		alone += t
		if closes {
			st.ddp.rest()
			if n := len(st.ddp.tasks); n > 0 {
				last, reduces = st.ddp.tasks[n-1], true
			}
		}
	}
	if reduces { // one after the other
		sim.Wait(last)
	}
	return max(sim.Now-begin-float64(alone), 0)
}

// closings notes the action that completes the gradients of each chunk and returns the
// first of them.
func (r *pipelineRun) closings(actions []pipeline.Action) int {
	r.closes = resize(r.closes, r.plan.Chunks)
	for c := range r.closes {
		r.closes[c] = -1
	}
	at := len(actions)
	for left := r.plan.Chunks; left > 0 && at > 0; {
		at--
		if a := &actions[at]; (a.Kind == pipeline.Backward || a.Kind == pipeline.BackwardWeight) && r.closes[a.Chunk] < 0 {
			r.closes[a.Chunk] = at
			left--
		}
	}
	return at
}

// closesLike reports whether two ranks run the same from their first closing action on.
func (r *pipelineRun) closesLike(a, b int) bool {
	x, y := r.plan.Compact(a), r.plan.Compact(b)
	return slices.EqualFunc(x[r.closings(x):], y[r.closings(y):], func(p, q pipeline.Action) bool { return p.Kind == q.Kind && p.Chunk == q.Chunk })
}

// opening is what stays exposed of the gathers of updated parameters where each chunk has
// its own: those of the first two chunks begin with the step, each later one as the first
// micro batch enters the chunk before it, on all ranks at once. The first pass of a chunk
// waits for its own (Megatron-Core, schedules.py: param_sync_func; NeMo's and Bridge's
// align_param_gather). With one chunk they begin in turn. Below 0: parameters are not gathered so.
func (r *pipelineRun) opening(rank int) float64 {
	p, sim := r.s.p, &r.s.sim
	if !p.job.Recipe.Overlap.ParamGather || p.job.Plan.DataParallel != strategies.ZeRO1 || p.groups[dpGroup].Ranks <= 1 {
		return -1
	}
	counts := p.counts
	p.counts = nil // the gathers are counted with the optimizer
	defer func() { p.counts = counts }()
	if r.plan.Chunks == 1 && p.job.Recipe.Structure.GathersInTurn {
		if rank > 0 { // after the first, which all wait for
			return r.opened[0]
		}
		return r.inTurn()
	}
	if !r.plan.GathersAhead || r.plan.Chunks < 2 {
		return -1
	}
	sim.Reset()
	r.opens = resize(r.opens, r.plan.Chunks)
	r.gather(rank, 0)
	r.gather(rank, 1)
	times := &r.path.times
	var alone units.Seconds
	for before := range rank { // until the first input is there
		alone += times.F[r.plan.Stage(before, 0)] + r.path.hop
	}
	sim.Run(&timeline.Segment{Lag: alone})
	opened := 0
	for _, a := range r.plan.Compact(rank) {
		stage := r.plan.Stage(rank, int(a.Chunk))
		f, b := p.stagePasses(r.s.layout.stage(r.plan, rank, int(a.Chunk)))
		t, pass := times.F[stage], &f.seg
		if a.Kind != pipeline.Forward {
			t, pass = times.B[stage], &b.seg
		}
		first := a.Kind == pipeline.Forward && int(a.Chunk) == opened
		if first {
			sim.Wait(r.opens[opened][0])
			if opened++; opened > 1 && opened < r.plan.Chunks {
				r.gather(rank, opened)
			}
		}
		if t > 0 {
			sim.Run(&timeline.Segment{Busy: t, Loaded: t * pass.Loaded / pass.Busy})
		}
		alone += t
		if first {
			sim.Wait(r.opens[a.Chunk][1])
		}
		if opened == r.plan.Chunks {
			break
		}
	}
	return max(sim.Now-float64(alone), 0)
}

// inTurn is for how long gathers of updated parameters hold up the first micro batch where each
// stage begins its own when that arrives, so that those of all stages add up: hooks before its
// modules launch those of a bucket, and of the next once that is there (Megatron-Core,
// param_and_grad_buffer.py, finish_param_sync). Stages but the first have one bucket.
func (r *pipelineRun) inTurn() (exposed float64) {
	st := &r.s.step
	for rank := range r.plan.Ranks {
		r.s.clock(rank)
		st.begin(r.s.p, r.s.layout.stage(r.plan, rank, 0), &r.s.sim)
		t, first := st.gathers()
		exposed += max(t-float64(r.path.times.F[r.plan.Stage(rank, 0)]), first)
	}
	r.s.clock(0)
	return exposed
}

// gather begins to gather the parameters of a chunk: first those of its first bucket.
func (r *pipelineRun) gather(rank, chunk int) {
	sim, st := &r.s.sim, &r.s.step
	st.begin(r.s.p, r.s.layout.stage(r.plan, rank, chunk), sim)
	t, first := st.gathers()
	slow := r.s.p.slow(collective.AllGather)
	r.opens[chunk] = [2]timeline.Task{
		sim.Launch(dpStream, "all-gather", first, sim.Now, slow),
		sim.Launch(dpStream, "all-gather", t-first, sim.Now, slow),
	}
}
