package search

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

func jobOf(t testing.TB, text string) *strategies.Job {
	d, err := yamlx.Parse("job", []byte(text))
	require.NoError(t, err)
	j, err := strategies.Decode(d, d.Root)
	require.NoError(t, err)
	return j
}

// small are jobs whose spaces can be exhausted in a test.
var small = []string{
	"{model: llama2-7b, hardware: h100-sxm, gpus: 8, train: {global_batch: 8}}",
	"{model: llama2-13b, hardware: a100-40g-sxm, gpus: 16, train: {global_batch: 16, sequence_length: 1024}}",
	"{model: mixtral-8x7b, hardware: h200-sxm, gpus: 16, train: {global_batch: 16, micro_batch: 1}}",
	"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: torchtitan}, train: {global_batch: 16, recompute: full}}",
	"{model: gpt2-medium, hardware: a100-40g-sxm, gpus: 4, runtime: {recipe: hf-eager}, train: {global_batch: 8}}",
}

// narrow fixes more of a space under the race detector, which takes fifteen times as
// long for each plan and finds as much in a few.
func narrow(o Options) Options {
	if testing.Short() {
		o.Space.Fix = Fix{"tp": "2", "recompute": "selective", "micro_batch": "1"}
	}
	return o
}

// shown is all of a ranking that must not depend on how it was found.
type shown struct {
	Plan  string
	Rank  int
	Value float64
	Best  float64
	Used  float64
}

func show(r *Ranking) []shown {
	var out []shown
	for i := range r.Plans {
		x := &r.Plans[i]
		out = append(out, shown{Describe(x.Job) + " " + x.Job.Plan.Bucket.String(), x.Rank, x.Value, x.Best, float64(x.Result.Memory.DeviceUsed)})
	}
	return out
}

// The chances to be the best are shared by the plans returned and the next ones, and do not depend on how
// many are asked for until these are more than all of them.
func TestRivals(t *testing.T) {
	t.Parallel()
	j := jobOf(t, small[0])
	all, err := Rank(t.Context(), j, Options{Objective: Tokens, Top: rivals})
	require.NoError(t, err)
	one, err := Rank(t.Context(), j, Options{Objective: Tokens, Top: 1})
	require.NoError(t, err)
	require.Len(t, one.Plans, 1)
	require.Equal(t, rivals, one.Rivals)
	require.Less(t, one.Plans[0].Best, 0.5)
	require.Equal(t, all.Rivals, one.Rivals)
	require.Equal(t, all.Plans[0].Best, one.Plans[0].Best)
	more, err := Rank(t.Context(), j, Options{Objective: Tokens, Top: rivals + 5})
	require.NoError(t, err)
	require.Equal(t, rivals+5, more.Rivals)
	require.Less(t, more.Plans[0].Best, one.Plans[0].Best)
}

// exhausted is a space of which every plan was estimated, to be ranked by any objective.
type exhausted struct {
	*searcher
	scores []scored
}

// exhaust estimates all of a space.
func exhaust(t *testing.T, j *strategies.Job, o Options) *exhausted {
	s, err := start(t.Context(), j, o, &Ranking{})
	require.NoError(t, err)
	x := &exhausted{searcher: s}
	s.each(func() (float64, bool) { return 0, false }, func(f *scored) { x.scores = append(x.scores, *f) })
	return x
}

// rank sorts the space by an objective.
func (x *exhausted) rank(t *testing.T, objective Objective, most int) *Ranking {
	x.o.Objective, x.o.Top = objective, most
	best := &top{most: max(most, rivals)}
	var job strategies.Job
	for _, f := range x.scores {
		x.apply(&job, f.found)
		f.value = objective.value(&f.score, job.Tokens())
		best.add(&f, objective)
	}
	require.NoError(t, x.finish(best))
	return x.out
}

// Bounds change nothing: the list is that of estimating every plan.
func TestBoundsAreExact(t *testing.T) {
	t.Parallel()
	for i, text := range small {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		j := jobOf(t, text)
		for k, fix := range []Fix{{"tp": "2", "recompute": strategies.RecomputesOf(j.Recipe)[1]}, {"micro_batch": "1"}} {
			o := Options{Headroom: 0.1 * float64((i+k)%3), Exhaustive: true, Dollars: 2, TrainTokens: 1e12}
			o.Space.MaxCP, o.Space.MaxPP, o.Space.Fix = 2, 4, fix
			o = narrow(o)
			every := exhaust(t, j, o)
			for n, name := range Objectives {
				objective, most := Objective(name), 1+3*n
				skip := n%2 != k // each in one of both
				if testing.Short() {
					skip = n != i%len(Objectives)
				}
				if skip {
					continue
				}
				all := every.rank(t, objective, most)
				o.Objective, o.Top, o.Exhaustive = objective, most, false
				bounded, err := Rank(t.Context(), j, o)
				require.NoError(t, err)
				require.Equal(t, show(all), show(bounded), "%s by %s", text, name)
				require.Equal(t, all.Considered, bounded.Considered)
				require.Equal(t, all.Legal, bounded.Legal)
				require.LessOrEqual(t, bounded.Evaluated, all.Evaluated)
				require.Zero(t, all.Pruned)
				require.Equal(t, all.Considered, total(all)+all.Fits, "every plan has its place")
				require.Equal(t, all.Legal-all.Evaluated, illegal(all, statesTooLarge, savedTooLarge, statesTight, savedTight))
			}
			if testing.Short() {
				break // narrow makes one of both
			}
		}
	}
}

// Without bounds a search evaluates all, and returns the same.
func TestExhaustive(t *testing.T) {
	j := jobOf(t, small[0])
	o := narrow(Options{Top: 5, Space: Space{MaxPP: 2, Fix: Fix{"micro_batch": "1"}}})
	bounded, err := Rank(t.Context(), j, o)
	require.NoError(t, err)
	o.Exhaustive = true
	all, err := Rank(t.Context(), j, o)
	require.NoError(t, err)
	require.Equal(t, show(all), show(bounded))
	require.Zero(t, all.Pruned)
	require.Equal(t, all.Legal-all.Evaluated, illegal(all, statesTooLarge, savedTooLarge, statesTight, savedTight))
}

func total(r *Ranking) int {
	n := 0
	for _, c := range r.Rejected {
		n += c.N
	}
	return n
}

func illegal(r *Ranking, reasons ...string) int {
	n := 0
	for _, c := range r.Rejected {
		if slices.Contains(reasons, c.Reason) {
			n += c.N
		}
	}
	return n
}

// A ranking is what Estimate says of each plan, sorted.
func TestRankingIsThatOfEstimate(t *testing.T) {
	t.Parallel()
	j := jobOf(t, small[0])
	r, err := Rank(t.Context(), j, Options{Objective: Time, Top: 60})
	require.NoError(t, err)
	require.Len(t, r.Plans, 60)
	require.True(t, slices.IsSortedFunc(r.Plans, func(a, b Ranked) int { return int(1e12 * (a.Value - b.Value)) }))
	for i := range r.Plans {
		x := &r.Plans[i]
		again := *j
		again.Given.MicroBatch, again.Given.Recompute = x.Job.Train.MicroBatch, x.Job.Train.Recompute
		again.Given.RecomputeMethod, again.Given.RecomputeNumLayers = x.Job.Train.RecomputeMethod, x.Job.Train.RecomputeNumLayers
		require.NoError(t, again.SetPlan(x.Job.Plan))
		want, err := estimate.Estimate(&again, estimate.Options{})
		require.NoError(t, err)
		require.Equal(t, want.StepTime, x.Result.StepTime)
		require.InDelta(t, float64(want.StepTime), x.Value, 1e-12)
		require.True(t, x.Result.Memory.Fits)
		require.EqualValues(t, 8, x.Job.Train.GlobalBatch)
	}
}

// The plans that a search scores are those that the rules have completed, with the dtypes that
// follow from a plan, and a score is what an estimate says. Scoring makes no garbage.
func TestScoresAreThoseOfEstimate(t *testing.T) {
	if testing.Short() {
		t.Skip("plans are scored one by one, which races with nothing")
	}
	for _, c := range []struct {
		text string
		fix  string
	}{
		{small[0], "tp=2,micro_batch=1"},
		{"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: hf-eager}, train: {global_batch: 64, sequence_length: 2048, lora: {rank: 16}}}", "tp=1,micro_batch=4"},
		{"{model: llama3-8b, hardware: h100-sxm, gpus: 8, train: {global_batch: 16, lora: {rank: 8, targets: [attention]}, dtypes: {adapters: fp32}}}", "tp=2,micro_batch=1"},
		{"{model: llama3-8b, hardware: h200-sxm, gpus: 16, runtime: {recipe: deepspeed-hf}, train: {global_batch: 32, sequence_length: 8192}}", "micro_batch=1"},
		{"{model: llama3-8b, hardware: h200-sxm, gpus: 16, runtime: {recipe: deepspeed-hf}, train: {global_batch: 32, sequence_length: 8192, reduce_dtype: bf16}}", "cp=4,micro_batch=2"},
	} {
		fix, err := ParseFix(c.fix)
		require.NoError(t, err)
		j := jobOf(t, c.text)
		s, err := start(t.Context(), j, Options{Space: Space{MaxPP: 2, Fix: fix}}, &Ranking{})
		require.NoError(t, err)
		var e, other estimate.Evaluator
		var scratch strategies.Job
		kinds := map[strategies.DataParallel]bool{}
		all := slices.Collect(every(s.plans))
		for k := 0; k < len(all); k += max(len(all)/60, 1) {
			s.apply(&scratch, all[k])
			again := *j
			again.Given.MicroBatch, again.Given.Recompute, again.Given.RecomputeModules = scratch.Train.MicroBatch, scratch.Train.Recompute, scratch.Train.RecomputeModules
			again.Given.RecomputeMethod, again.Given.RecomputeNumLayers = scratch.Train.RecomputeMethod, scratch.Train.RecomputeNumLayers
			require.NoError(t, again.SetPlan(scratch.Plan))
			about := c.text + ": " + Describe(&scratch)
			require.Equal(t, again.Precision, scratch.Precision, about)
			require.Equal(t, again.Train, scratch.Train, about)
			require.Equal(t, again.Plan, scratch.Plan, about)
			score, err := e.Score(&scratch, estimate.Limits{})
			require.NoError(t, err)
			want, err := other.Estimate(&again, estimate.Options{})
			require.NoError(t, err)
			require.Equal(t, want.StepTime, score.StepTime, about)
			require.Equal(t, want.Memory.DeviceUsed, score.DeviceUsed, about)
			kinds[scratch.Plan.DataParallel] = true
		}
		require.Greater(t, len(kinds), 1, c.text)
		require.Zero(t, testing.AllocsPerRun(20, func() { s.apply(&scratch, all[0]) }), c.text)
	}
}

// The whole ranking, counts and all, is the same on any number of processors.
func TestProcessorsDoNotMatter(t *testing.T) {
	j := jobOf(t, small[1])
	run := func(n int) *Ranking {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
		r, err := Rank(t.Context(), j, narrow(Options{Top: 5}))
		require.NoError(t, err)
		return r
	}
	one := run(1)
	for _, n := range []int{2, 3, 8} {
		many := run(n)
		require.Equal(t, show(one), show(many))
		require.Equal(t, one.Rejected, many.Rejected)
		require.Equal(t, [4]int{one.Considered, one.Legal, one.Fits, one.Evaluated}, [4]int{many.Considered, many.Legal, many.Fits, many.Evaluated})
	}
}

// A search that is stopped returns the best so far and says that it is partial.
func TestStop(t *testing.T) {
	j := jobOf(t, small[1])
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	o := narrow(Options{Exhaustive: true, Space: Space{MaxPP: 4, Fix: Fix{"micro_batch": "1"}}})
	stopped := o
	stopped.Progress = func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Best != "" {
			stop()
		}
	}
	r, err := Rank(ctx, j, stopped)
	require.NoError(t, err)
	require.True(t, r.Partial)
	require.NotEmpty(t, r.Plans)
	whole, err := Rank(t.Context(), j, o)
	require.NoError(t, err)
	require.False(t, whole.Partial)
	require.Less(t, r.Evaluated, whole.Evaluated)

	stop()
	r, err = Rank(ctx, j, Options{})
	require.NoError(t, err)
	require.True(t, r.Partial)
	require.Empty(t, r.Plans)
}

// The chances are those of the results' deviations, where the objective is a time.
func TestLikely(t *testing.T) {
	plans := func() (out []Ranked) {
		for _, value := range []float64{1, 1.01, 1.02, 3} {
			out = append(out, Ranked{Value: value, Candidate: Candidate{Result: &estimate.Result{}}})
			out[len(out)-1].Result.Off[estimate.LeftOut].Share = 0.05
		}
		return
	}
	p := plans()
	likely(p, Time)
	sum := p[0].Best
	for i := 1; i < len(p); i++ {
		require.Less(t, p[i].Best, p[i-1].Best)
		sum += p[i].Best
	}
	require.InDelta(t, 1, sum, 1e-9)
	require.Less(t, p[3].Best, 1e-6, "far behind")
	p = plans()
	likely(p, Memory)
	require.Zero(t, p[0].Best, "no range of it is known")
}

// TestWhyNotAlike: of plans with batches of their own, the parts of the best are those of
// as many tokens as the plan asked for has, so that losses add up to what it is slower by.
func TestWhyNotAlike(t *testing.T) {
	r, err := Rank(t.Context(), jobOf(t, "{model: llama2-7b, gpus: 8, train: {micro_batch: 1, recompute: none}}"), Options{})
	require.NoError(t, err)
	require.Less(t, r.Batches[0], r.Batches[1])
	w, err := Explain(t.Context(), r, Fix{"pp": "1"})
	require.NoError(t, err)
	own, best := w.Best, &r.Plans[0]
	require.NotEqual(t, own.Job.Train.GlobalBatch, best.Job.Train.GlobalBatch)
	var lost units.Seconds
	for _, x := range w.Lost {
		lost += x.Lost()
	}
	require.InEpsilon(t, w.Behind, float64(lost/(own.Result.StepTime-lost)), 1e-6)

	r, err = Rank(t.Context(), jobOf(t, "{model: llama2-7b, gpus: 8, train: {global_batch: 32, recompute: none}}"), Options{})
	require.NoError(t, err)
	require.Equal(t, [2]int64{32, 32}, r.Batches)
}

func TestWhyNot(t *testing.T) {
	j := jobOf(t, small[1])
	r, err := Rank(t.Context(), j, Options{})
	require.NoError(t, err)
	ask := func(text string) *WhyNot {
		fix, err := ParseFix(text)
		require.NoError(t, err)
		w, err := Explain(t.Context(), r, fix)
		require.NoError(t, err)
		return w
	}
	w := ask("tp=3")
	require.NotEmpty(t, w.Rejected)
	require.Nil(t, w.Best)
	require.Contains(t, w.Rejected[0].Example, "tp 3")

	w = ask("recompute_num_layers=99,recompute_method=uniform") // of full recomputation, without being told
	require.NotEmpty(t, w.Rejected)
	require.Contains(t, w.Rejected[0].Example, "a pipeline stage has up to")

	w = ask("tp=1,pp=1,data_parallel=ddp")
	require.NotNil(t, w.Misfit)
	require.False(t, w.Misfit.Result.Memory.Fits)

	w = ask("pp=4")
	require.NotNil(t, w.Best)
	require.EqualValues(t, 4, w.Best.Job.Plan.PP)
	require.GreaterOrEqual(t, w.Behind, 0.0)
	lost := 0.0
	for _, term := range w.Lost {
		lost += float64(term.Lost())
	}
	require.InDelta(t, float64(w.Best.Result.StepTime-r.Plans[0].Result.StepTime), lost, 1e-9, "the terms add up to the difference")
}

// Nothing fits: the answer names what lacks least, and the GPUs that would do, with the
// plan that a search on so many GPUs finds when it keeps as much memory free.
func TestNear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text     string
		headroom float64
		gpus     int64
	}{
		{"{model: llama3-70b, hardware: h100-sxm, gpus: 8, train: {global_batch: 64}}", 0, 24},
		{"{model: llama3-70b, hardware: h100-sxm, gpus: 8, train: {global_batch: 64}}", DefaultHeadroom, 24},
		{"{model: llama3-70b, hardware: l40s, gpus: 32, train: {global_batch: 64}}", DefaultHeadroom, 40},
	} {
		if testing.Short() && c.headroom > 0 { // all race alike
			continue
		}
		j := jobOf(t, c.text)
		r, err := Rank(t.Context(), j, narrow(Options{}))
		require.NoError(t, err)
		require.Empty(t, r.Plans, c.text)
		n, err := Near(t.Context(), r, c.headroom)
		require.NoError(t, err)
		require.NotNil(t, n.Least)
		require.Greater(t, n.Least.Result.Memory.DeviceUsed, n.Least.Result.Memory.Capacity)
		if !testing.Short() {
			require.Equal(t, c.gpus, n.GPUs, c.text)
		}
		m := &n.Plan.Result.Memory
		require.LessOrEqual(t, float64(m.DeviceUsed), (1-c.headroom)*float64(m.Capacity), c.text)
		j.GPUs = n.GPUs
		there, err := Rank(t.Context(), j, narrow(Options{Headroom: c.headroom}))
		require.NoError(t, err)
		require.Equal(t, there.Plans[0].Job.Plan, n.Plan.Job.Plan, c.text)
	}
}

// What is left out for the memory that must stay free is not said not to fit, and what
// does not fit is not helped by less of it.
func TestHeadroomIsNotCapacity(t *testing.T) {
	j := jobOf(t, small[0])
	counts := func(headroom float64) map[bool]int {
		r, err := Rank(t.Context(), j, narrow(Options{Headroom: headroom, Exhaustive: true, Space: Space{Fix: Fix{"micro_batch": "1"}}}))
		require.NoError(t, err)
		out := map[bool]int{}
		for _, c := range r.Rejected {
			if strings.HasPrefix(c.Reason, "headroom.") {
				require.Contains(t, c.String(), fmt.Sprintf("under %.1f %% free", 100*headroom))
				require.NotContains(t, c.String(), "fit")
				require.True(t, c.Tight())
			}
			if strings.HasPrefix(c.Reason, "memory.") {
				require.Contains(t, c.String(), "fit")
			}
			if strings.HasPrefix(c.Reason, "headroom.") || strings.HasPrefix(c.Reason, "memory.") {
				out[c.Tight()] += c.N
			}
		}
		return out
	}
	none, much := counts(0), counts(0.7)
	require.Zero(t, none[true])
	require.Positive(t, much[true])
	require.LessOrEqual(t, much[false], none[false])
	all := counts(0.99)
	require.GreaterOrEqual(t, all[true]+all[false], much[true]+much[false])
}

// Progress names the best plan so far with what it is best at.
func TestProgressNamesTheObjective(t *testing.T) {
	j := jobOf(t, small[0])
	for objective, unit := range map[Objective]string{Time: "s$", Tokens: "s$", Memory: "GiB$", Energy: "J per step and GPU$"} {
		var last Progress
		o := Options{Objective: objective, Headroom: unlimited, Top: 1, Space: Space{Fix: Fix{"tp": "2", "recompute": "none", "micro_batch": "1", "pp": "1"}}}
		var mu sync.Mutex
		o.Progress = func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			last = p
		}
		_, err := Rank(t.Context(), j, o)
		require.NoError(t, err)
		require.NotEmpty(t, last.Best)
		require.Regexp(t, unit, last.Value, objective)
	}
}

// What nothing is known of ranks nothing.
func TestUnknownObjectives(t *testing.T) {
	noPower := jobOf(t, small[0])
	machine := *noPower.Hardware
	machine.Laws.Power = nil
	noPower.Hardware = &machine
	for _, c := range []struct {
		job  *strategies.Job
		o    Options
		want string // of the error; none where it ranks
	}{
		{jobOf(t, small[0]), Options{Objective: Cost}, "give --price"},
		{jobOf(t, small[0]), Options{Objective: Cost, Dollars: 2}, ""},
		{jobOf(t, "{model: llama2-7b, hardware: aws-p5, gpus: 8, train: {global_batch: 8}}"), Options{Objective: Cost}, ""},
		{jobOf(t, small[0]), Options{Objective: Train}, "as in --tokens 2T"},
		{jobOf(t, small[0]), Options{Objective: Train, TrainTokens: 1e12}, ""},
		{jobOf(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 8}"), Options{Objective: Time}, "train.global_batch: is missing"},
		{jobOf(t, small[0]), Options{Objective: Energy}, ""},
		{noPower, Options{Objective: Energy}, "has no power law"},
	} {
		c.o.Space.Fix = Fix{"tp": "2", "recompute": "selective", "micro_batch": "1", "pp": "1"}
		r, err := Rank(t.Context(), c.job, c.o)
		if c.want == "" {
			require.NoError(t, err, c.o.Objective)
			require.NotEmpty(t, r.Plans)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.True(t, diag.IsInput(err))
	}
}

// No plan of any of the spaces beats a point of the front, each is hardly better than
// one of them, and no two stand for each other. The fastest plan is on it.
func TestPareto(t *testing.T) {
	j := jobOf(t, small[0])
	o := narrow(Options{Dollars: 2, TrainTokens: 1e12, Space: Space{Fix: Fix{"micro_batch": "1"}}})
	f, err := Pareto(t.Context(), j, o)
	require.NoError(t, err)
	require.Equal(t, []int64{8, 4, 2}, f.GPUs)
	o.Objective, o.Top = Time, 1
	r, err := Rank(t.Context(), j, o)
	require.NoError(t, err)
	require.Equal(t, r.Plans[0].Result.StepTime, f.Points[0].Result.StepTime)

	var points []goals
	for i := range f.Points {
		p := &f.Points[i]
		require.Positive(t, p.Dollars)
		points = append(points, goals{float64(p.Result.StepTime) / p.Job.Tokens(), p.Job.GPUs, p.Result.Memory.DeviceUsed, float64(p.Result.Energy) * float64(p.Job.GPUs) / p.Job.Tokens()})
	}
	for i := range points {
		for k := range points {
			require.False(t, i != k && points[i].standsFor(&points[k], f.Memory) && points[k].standsFor(&points[i], f.Memory), "%v and %v", f.Points[i].Job.Plan, f.Points[k].Job.Plan)
		}
	}
	for _, gpus := range f.GPUs {
		next := *j
		next.GPUs = gpus
		every := exhaust(t, &next, o)
		var plan strategies.Job
		for _, x := range every.scores {
			every.apply(&plan, x.found)
			g := goalsOf(&plan, &x.score)
			require.True(t, slices.ContainsFunc(points, func(p goals) bool { return p.standsFor(&g, f.Memory) }), "%v has no like", plan.Plan)
			for i := range points {
				require.False(t, g.beats(&points[i]), "%v beats %v", plan.Plan, f.Points[i].Job.Plan)
			}
		}
	}
}

// TestUnbeaten: what is left of a space is what is left when every plan is predicted in full,
// of equal plans the first.
func TestUnbeaten(t *testing.T) {
	t.Parallel()
	for i, text := range []string{small[0], small[3], small[2]} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		j := jobOf(t, text)
		o := narrow(Options{Headroom: 0.05 * float64(i%2)})
		if !testing.Short() {
			o.Space.MaxPP, o.Space.MaxCP, o.Space.Fix = 4, 2, []Fix{{"micro_batch": "1", "tp": "2"}, {"tp": "2", "pp": "2"}}[i%2]
		}
		every := exhaust(t, j, o)
		slices.SortFunc(every.scores, func(a, b scored) int { return a.compare(b.found) })
		var all []*member
		for _, x := range every.scores {
			m := &member{}
			every.apply(&m.job, x.found)
			m.goals = goalsOf(&m.job, &x.score)
			all = append(all, m)
		}
		var want []*member
		for k, m := range all {
			if !slices.ContainsFunc(all, func(x *member) bool { return x.beats(&m.goals) }) && !slices.ContainsFunc(all[:k], func(x *member) bool { return x.goals == m.goals }) {
				want = append(want, m)
			}
		}
		got, err := unbeaten(t.Context(), j, o)
		require.NoError(t, err)
		require.Len(t, got, len(want), text)
		require.Greater(t, len(all), 2*len(got), text)
		for k := range got {
			require.Equal(t, want[k].goals, got[k].goals, text)
			require.Equal(t, want[k].job.Plan, got[k].job.Plan, text)
			require.Equal(t, want[k].job.Train, got[k].job.Train, text)
		}
	}
}

// TestImpossibleFix: keys that no plan can have are refused by the rule that they break,
// larger degrees than there are GPUs like those that do not divide them.
func TestImpossibleFix(t *testing.T) {
	for _, c := range []struct{ recipe, fix, want string }{
		{"megatron-core", "tp=3", "plan.tp: tp 3 × cp 1 × pp 1 = 3 does not divide the 8 GPUs; use tp 1, 2, 4 or 8"},
		{"megatron-core", "tp=16", "plan.tp: 16 exceeds the 8 GPUs of the job; give 1 to 8"},
		{"megatron-core", "cp=16", "plan.cp: 16 exceeds the 8 GPUs"},
		{"hf-eager", "tp=16", "plan.tp: 16 exceeds the 8 GPUs"},
		{"megatron-core", "pp=16", "plan.pp: 16 exceeds the 8 GPUs"},
		{"megatron-core", "tp=4,pp=4", "plan.pp: tp 4 × cp 1 × pp 4 = 16 does not divide the 8 GPUs"},
		{"megatron-core", "offload_fraction=0.5", "plan.offload_fraction, plan.offload_overlap: say how the host has the optimizer"},
		{"hf-eager", "offload=optimizer,offload_fraction=0.5", "plan.offload"},
		{"megatron-core", "recompute=none,recompute_method=block", "no plan within the bounds has recompute=none,recompute_method=block; leave one of these keys out"},
		{"nanotron", "recompute_method=block", "no plan within the bounds has recompute_method=block"},
	} {
		j := jobOf(t, "{model: llama3-8b, gpus: 8, runtime: {recipe: "+c.recipe+"}, train: {global_batch: 8, micro_batch: 1}}")
		fix, err := ParseFix(c.fix)
		require.NoError(t, err)
		for _, most := range []int64{0, 16} {
			_, err = Rank(t.Context(), j, Options{Space: Space{MaxTP: most, Fix: fix}})
			require.ErrorContains(t, err, c.want, c.fix)
			require.True(t, diag.IsInput(err))
		}
	}
	r := &Ranking{Job: jobOf(t, "{model: llama3-8b, gpus: 8, train: {global_batch: 8, micro_batch: 1}}")}
	w, err := Explain(t.Context(), r, Fix{"tp": "16"})
	require.NoError(t, err)
	require.NotEmpty(t, w.Rejected)
	require.Contains(t, w.Rejected[0].Example, "plan.tp: 16 exceeds the 8 GPUs")
}

func TestParseFix(t *testing.T) {
	f, err := ParseFix("plan.tp=8, micro-batch=2,data_parallel=zero1,bucket=25MiB")
	require.NoError(t, err)
	require.Equal(t, "tp=8,data_parallel=zero1,bucket=25MiB,micro_batch=2", f.String())
	for text, want := range map[string]string{
		"tp": "write it as in", "tq=8": `did you mean "tp"`, "tp=0": "from 1 on", "schedule=1f2b": "unknown pipeline schedule", "data_parallel=zero4": "not a kind", "bucket=25": "no unit", "bucket=0MiB": "bucket: 0MiB is no size of a bucket; give one above 0, as in 25MiB",
		"recompute=some": "none, selective or full", "reshard_after_forward=maybe": "reshard_after_forward",
		"offload_fraction=1.5": "not a share of the optimizer", "offload_fraction=0": "above 0", "offload_fraction=NaN": "not a share", "offload_overlap=some": "offload_overlap",
	} {
		_, err := ParseFix(text)
		require.ErrorContains(t, err, want, text)
	}
}

// No text makes ParseFix panic, and what it reads it writes again.
func FuzzParseFix(f *testing.F) {
	for _, text := range []string{"tp=8,pp=4", "plan.schedule=1f1b", "bucket=25MiB,recompute=full", "=", "tp=1,,", "reshard_after_forward=true", "offload=optimizer,offload_fraction=0.5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fix, err := ParseFix(text)
		if err != nil {
			return
		}
		again, err := ParseFix(fix.String())
		require.NoError(t, err)
		require.Equal(t, fix, again)
	})
}

// How the host has the optimizer can be fixed, and bounds know it: the less of it is there,
// the sooner it is updated and the more memory it takes.
func TestFixOffloadFraction(t *testing.T) {
	j := jobOf(t, "{model: llama2-7b, gpus: 8, train: {global_batch: 32, micro_batch: 1, recompute: none}}")
	var before *Ranked
	for _, share := range []string{"1", "0.5", "0.25"} {
		fix, err := ParseFix("tp=1,cp=1,pp=1,data_parallel=zero1,offload=optimizer,offload_overlap=true,offload_fraction=" + share)
		require.NoError(t, err)
		o := Options{Space: Space{Fix: fix}, Top: 1}
		r, err := Rank(t.Context(), j, o)
		require.NoError(t, err)
		o.Exhaustive = true
		all, err := Rank(t.Context(), j, o)
		require.NoError(t, err)
		best := &r.Plans[0]
		require.Equal(t, all.Plans[0].Job.Plan, best.Job.Plan)
		require.True(t, best.Job.Plan.OverlapsOffload())
		require.Equal(t, share, strconv.FormatFloat(best.Job.Plan.OffloadFraction, 'g', -1, 64))
		if before != nil {
			require.Less(t, best.Result.StepTime, before.Result.StepTime)
			require.Greater(t, best.Result.Memory.DeviceUsed, before.Result.Memory.DeviceUsed)
		}
		before = best
	}
}

// Recomputing some layers is a choice like none and all: the best plan takes it where
// memory asks for some of it, and its keys can be fixed.
func TestRecomputeByLayers(t *testing.T) {
	j := jobOf(t, "{model: llama2-13b, hardware: a100-40g-sxm, gpus: 16, train: {global_batch: 64, micro_batch: 4}}")
	o := Options{Space: Space{Fix: Fix{"tp": "4", "pp": "4", "virtual_stages": "1"}}, Top: 1}
	best := func(fix Fix) *Ranked {
		o.Space.Fix = o.Space.Fix.And(fix)
		r, err := Rank(t.Context(), j, o)
		require.NoError(t, err)
		if len(r.Plans) == 0 {
			return nil
		}
		return &r.Plans[0]
	}
	some := best(nil)
	require.NotNil(t, some)
	require.True(t, some.Job.Train.Recomputed().Partly(), Describe(some.Job))
	for n := int64(1); n <= 10; n++ {
		r := best(Fix{"recompute": "full", "recompute_num_layers": strconv.FormatInt(n, 10)})
		if r == nil {
			require.Less(t, n, *some.Job.Train.RecomputeNumLayers, "more layers need less memory")
			continue
		}
		require.Equal(t, n, *r.Job.Train.RecomputeNumLayers)
		require.Contains(t, Describe(r.Job), fmt.Sprintf("block %d recompute", n))
		if n >= *some.Job.Train.RecomputeNumLayers {
			require.GreaterOrEqual(t, r.Result.StepTime, some.Result.StepTime)
		}
	}
	for _, text := range []string{"recompute=none,recompute_num_layers=4", "recompute=full,recompute_method=every,recompute_num_layers=2"} {
		fix, err := ParseFix(text)
		require.NoError(t, err)
		_, err = Rank(t.Context(), j, Options{Space: Space{Fix: fix}})
		require.ErrorContains(t, err, "no plan is legal: train.recompute", text)
	}
	uniform, err := Rank(t.Context(), j, Options{Space: Space{Fix: Fix{"recompute_method": "uniform", "tp": "4"}}, Top: 3})
	require.NoError(t, err)
	for _, x := range uniform.Plans {
		require.Equal(t, strategies.RecomputeUniform, x.Job.Train.RecomputeMethod)
	}
}

// TestRecomputesOfTheFramework: a search looks only at recomputation that the framework has, and
// a Fix at no other.
func TestRecomputesOfTheFramework(t *testing.T) {
	j := jobOf(t, "{model: llama3.2-1b, hardware: h100-sxm, gpus: 1, runtime: {recipe: unsloth}, train: {global_batch: 8, micro_batch: 1, lora: {rank: 8}}}")
	r, err := Rank(t.Context(), j, Options{Top: 10})
	require.NoError(t, err)
	var kinds []string
	for _, p := range r.Plans {
		kinds = append(kinds, string(p.Job.Train.Recompute))
	}
	require.Equal(t, []string{"none", "full"}, kinds)
	_, err = Rank(t.Context(), j, Options{Space: Space{Fix: Fix{"recompute": "selective"}}})
	require.ErrorContains(t, err, "no plan is legal: train.recompute: recipe unsloth has no selective recomputation; use none or full")
}

// TestSchedulesOfTheFramework: a search looks only at schedules that the framework runs,
// unless it is told to look at others.
func TestSchedulesOfTheFramework(t *testing.T) {
	for recipe, most := range map[string]int64{"megatron-deepspeed": 1, "nanotron": 1, "megatron-core": 4, "torchtitan": 4} {
		j := jobOf(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 8, runtime: {recipe: "+recipe+"}}")
		s, deepest := Space{}, int64(0)
		for p := range s.pipelines(j, &cut{contexts: contexts{cp: 1}, tp: 1}) {
			deepest = max(deepest, p.VirtualStages)
			require.True(t, p.PP == 1 || slices.Contains(j.Recipe.Schedules, p.Schedule), "%s %s", recipe, p.Schedule)
		}
		require.GreaterOrEqual(t, deepest, most, recipe)
		require.Equal(t, most > 1, deepest > 1, recipe)

		for _, s := range []Space{{AnySchedule: true}, {Fix: Fix{"schedule": "interleaved-1f1b"}}} {
			require.True(t, slices.ContainsFunc(slices.Collect(s.pipelines(j, &cut{contexts: contexts{cp: 1}, tp: 1})), func(p strategies.Plan) bool { return p.VirtualStages > 1 }), recipe)
		}
	}
}

// Another order of ranks is ranked only where it changes which of them share a node,
// and a Fix may ask for any.
func TestOrders(t *testing.T) {
	for _, c := range []struct {
		job  string
		plan strategies.Plan
		want int
	}{
		{"{model: llama2-7b, hardware: h100-sxm, gpus: 16}", strategies.Plan{TP: 2, CP: 1, PP: 2}, 2},
		{"{model: llama2-7b, hardware: h100-sxm, gpus: 16}", strategies.Plan{TP: 8, CP: 1, PP: 2}, 1},
		{"{model: llama2-7b, hardware: h100-sxm, gpus: 16}", strategies.Plan{TP: 2, CP: 2, PP: 2}, 1},
		{"{model: llama2-7b, hardware: h100-sxm, gpus: 16}", strategies.Plan{TP: 2, CP: 1, PP: 1}, 1},
		{"{model: llama2-7b, hardware: h100-sxm, gpus: 8}", strategies.Plan{TP: 2, CP: 1, PP: 2}, 1},
		{"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 16}", strategies.Plan{TP: 2, CP: 1, PP: 2, EP: 4, ExpertTP: 1}, 1},
		{"{model: mixtral-8x7b, hardware: h100-sxm, gpus: 16}", strategies.Plan{TP: 2, CP: 1, PP: 2, EP: 2, ExpertTP: 1}, 2},
	} {
		j := jobOf(t, c.job)
		orders := new(Space).orders(j, &c.plan, j.GPUs/c.plan.TP/c.plan.CP/c.plan.PP)
		require.Len(t, orders, c.want, "%s %v", c.job, &c.plan)
		for _, o := range orders {
			p := c.plan
			p.Order = o
			require.NoError(t, j.SetPlan(p), "what is offered is legal")
		}
	}
	j := jobOf(t, "{model: llama2-13b, hardware: a100-80g-sxm, gpus: 16, train: {global_batch: 64}}")
	r, err := Rank(t.Context(), j, Options{Space: Space{Fix: Fix{"tp": "2", "pp": "2", "recompute": "none"}}, Top: 30})
	require.NoError(t, err)
	seen := map[strategies.Order]bool{}
	for _, x := range r.Plans {
		seen[x.Job.Plan.Order] = true
	}
	require.Len(t, seen, 2)
	fix, err := ParseFix("order=dp-tp-cp-ep-pp,tp=2,pp=1,cp=1")
	require.NoError(t, err)
	why, err := Explain(t.Context(), r, fix)
	require.NoError(t, err)
	require.EqualValues(t, "dp-tp-cp-ep-pp", why.Best.Job.Plan.Order)
	require.True(t, slices.ContainsFunc(why.Lost, func(x Term) bool { return x.Name == "exposed tp" && x.Lost() > 0 }), "tensor ranks in different nodes")
	_, err = ParseFix("order=dp-tp")
	require.ErrorContains(t, err, "is not an order of ranks")
}
