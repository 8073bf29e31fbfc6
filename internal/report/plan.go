package report

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/search"
)

// Plans is a ranking of plans with what was asked about it.
type Plans struct {
	Ranking *search.Ranking
	Own     *search.Candidate // the plan that the job came with
	WhyNot  []*search.WhyNot
	Front   *search.Front
	Near    *search.Nearest // when nothing fits
	Stopped bool            // before all that was asked about the ranking had its answer, or all of it
	Tight   bool            // no plan leaves search.DefaultHeadroom free, so the ranking does not ask for it
	Dollars float64         // of a GPU hour; 0: not known
	Given   *yaml.Node      // the job as the user wrote it, flags applied; may be nil
}

// Partial reports whether any search for these plans was stopped before it was over.
func (p *Plans) Partial() bool { return p.Ranking.Partial || p.Stopped }

// stoppedEarly marks what is of such a search.
const stoppedEarly = "STOPPED EARLY: better ones may be left"

// objectiveNames say by what plans are ranked.
var objectiveNames = map[search.Objective]string{
	search.Time: "step time", search.Tokens: "tokens per second", search.Memory: "memory", search.Cost: "cost of a token", search.Energy: "energy of a token",
	search.Train: "time to train",
}

func (p *Plans) page() *page {
	r := p.Ranking
	j := r.Job
	out := &page{title: fmt.Sprintf("%s on %d × %s, %s: plans by %s", j.ModelName, j.GPUs, j.Hardware.Name, recipeName(j), objectiveNames[r.Options.Objective])}
	out.add(p.summary())
	if len(r.Plans) > 0 {
		out.section(fmt.Sprintf("The best %s", plural(len(r.Plans), "plan")), p.planGrid())
		if r.Plans[0].Best > 0 {
			out.add(paragraph(fmt.Sprintf("best: the chance that the plan is the best of the first %d, from the ranges of the predictions; = marks a tie.", r.Rivals)))
		}
		out.section("Where their time goes, in %", p.shareGrid())
	}
	for _, w := range p.WhyNot {
		out.section("Why not "+w.Fix.String(), p.whyNot(w)...)
	}
	if p.Front != nil {
		out.section("Not beaten in time, GPUs, memory, cost and energy at once", p.frontGrid(), paragraph(frontText(p.Front)))
	}
	if n := p.Near; n != nil {
		out.section("What comes nearest", nearest(n))
	}
	if len(r.Rejected) > 0 {
		out.section("Left out, by reason", rejectedGrid(r.Rejected))
		if slices.ContainsFunc(r.Rejected, search.Count.Tight) {
			out.add(paragraph("A lower --min-headroom lets in what leaves too little free, as far as it fits."))
		}
	}
	defaults(out, j)
	out.remarks(p.notes())
	return out
}

// notes are what holds of the job under any plan, and a warning of plans that do not train
// alike, also where those that are listed do.
func (p *Plans) notes() []diag.Note {
	out := append([]diag.Note{}, p.Ranking.Job.Remarks()...)
	b := p.Ranking.Batches
	if b[0] == b[1] || len(p.Ranking.Plans) == 0 {
		return out
	}
	return append(out, diag.Note{Code: openBatchCode, Text: fmt.Sprintf("the job names no global batch, so each plan has its own, of %d to %d sequences: their steps do not compare, and tokens/s favours large ones", b[0], b[1]), Remedy: giveBatch})
}

// summary is the answer and how it was found.
func (p *Plans) summary() fields {
	r := p.Ranking
	var f fields
	if len(r.Plans) > 0 {
		b := &r.Plans[0]
		f = append(f, [2]string{"Best", planText(b.Job, r)}, [2]string{"Step time", b.Result.StepTime.String() + rangeText(b.Result)}, [2]string{"Bound by", boundText(b.Result.Bound)},
			[2]string{"Throughput", fmt.Sprintf("%s tokens/s per GPU, MFU %s", thousands(b.Result.TokensPerSecond), percent(b.Result.MFU))},
			[2]string{"Batch", batchText(b.Job)}, [2]string{"Memory", fitText(&b.Result.Memory)})
		c := search.CostsOf(b.Job, b.Result, p.Dollars, r.Options.TrainTokens)
		if c.Dollars > 0 {
			f = append(f, [2]string{"Cost", fmt.Sprintf("%.3g US dollars per million tokens", c.Dollars)})
		}
		if r.Options.Objective == search.Energy {
			f = append(f, [2]string{"Energy", fmt.Sprintf("%.4g kJ per million tokens", float64(c.Joules)/1e3)})
		}
		if c.Days > 0 {
			f = append(f, [2]string{"Training", fmt.Sprintf("%s for %s tokens, without stops", lasting(units.Seconds(c.Days*86400)), units.Count(r.Options.TrainTokens))})
		}
	} else if r.Partial {
		f = append(f, [2]string{"Best", "none yet"})
	} else {
		f = append(f, [2]string{"Best", "none: " + p.noneText()})
	}
	if h := r.Options.Headroom; h > 0 {
		f = append(f, [2]string{"Kept free", fmt.Sprintf("%s of the memory, for what predictions are off by; --min-headroom 0 takes all", percent(h))})
	} else if p.Tight && len(r.Plans) > 0 {
		f = append(f, [2]string{"Kept free", fmt.Sprintf("nothing: no plan leaves %s of the memory free, so what fits here may not", percent(search.DefaultHeadroom))})
	}
	if o := p.Own; o != nil {
		s := fmt.Sprintf("%s: %s", settings(o.Job), o.Result.StepTime)
		if len(r.Plans) > 0 {
			s += fmt.Sprintf(", %s tokens/s against the best", signed(o.Result.TokensPerSecond/r.Plans[0].Result.TokensPerSecond-1))
		}
		if !o.Result.Memory.Fits {
			s += "; does not fit"
		}
		f = append(f, [2]string{"The job's own", s})
	}
	s := fmt.Sprintf("%s in the space, %s legal, %s evaluated", plural(r.Considered, "plan"), thousands(float64(r.Legal)), thousands(float64(r.Evaluated)))
	if r.Pruned > 0 {
		s += fmt.Sprintf("; %s cannot be among these", thousands(float64(r.Pruned)))
	}
	if r.Partial {
		s += "; " + stoppedEarly
	}
	return append(f, [2]string{"Searched", s})
}

// mixed says that plans train on batches of different sizes.
func (p *Plans) mixed() bool {
	list := p.Ranking.Plans
	return slices.ContainsFunc(list, func(x search.Ranked) bool { return x.Job.Train.GlobalBatch != list[0].Job.Train.GlobalBatch })
}

// planText is a plan with all in which it may differ from its neighbours.
func planText(j *strategies.Job, r *search.Ranking) string {
	s := planOf(j)
	for _, x := range extras(&j.Plan) {
		s += ", " + x
	}
	if r != nil && len(r.Options.Space.Precisions) > 1 {
		s = j.Train.Precision + ", " + s
	}
	return s
}

func placeText(r *search.Ranked) string {
	if r.Tie {
		return "=" + integer(int64(r.Rank))
	}
	return integer(int64(r.Rank))
}

func (p *Plans) planGrid() *grid {
	r := p.Ranking
	g := &grid{columns: []column{{title: "", right: true}, {title: "precision"}, {title: "tp", right: true}, {title: "cp", right: true}, {title: "ep", right: true}, {title: "etp", right: true, drop: 7}, {title: "pp", right: true},
		{title: "v", right: true}, {title: "schedule", drop: 10}, {title: "dp", right: true, drop: 8}, {title: "data", drop: 5}, {title: "shard", right: true}, {title: "order", drop: 6}, {title: "extra", drop: 11}, {title: "mb", right: true}, {title: "batch", right: true}, {title: "recompute", drop: 3},
		{title: "step", right: true}, {title: "tokens/s/GPU", right: true, drop: 4}, {title: "MFU", right: true, drop: 9}, {title: "GiB", right: true, drop: 1}, {title: "best", right: true, drop: 2}}}
	many := func(n int64) string {
		if n > 1 {
			return integer(n)
		}
		return "-"
	}
	for i := range r.Plans {
		x := &r.Plans[i]
		q, t := &x.Job.Plan, &x.Job.Train
		precision, tp, recompute, shard, best, batch := "-", integer(q.TP), t.RecomputeText(), "-", "-", "-"
		if p.mixed() {
			batch = integer(t.GlobalBatch)
		}
		if len(r.Options.Space.Precisions) > 1 {
			precision = t.Precision
		}
		if q.SP() {
			tp += "+sp"
		}
		if recompute == "none" {
			recompute = "-"
		}
		if q.ShardDegree > 0 {
			shard = integer(q.ShardDegree)
		}
		if x.Best > 0 {
			best = percent(x.Best)
		}
		g.row(placeText(x), precision, tp, many(q.CP), many(q.EP), many(q.ExpertTP), many(q.PP), many(q.VirtualStages), q.Schedule, integer(q.DP), string(q.DataParallel), shard, string(q.Order), uncolumned(q), integer(t.MicroBatch), batch, recompute,
			x.Result.StepTime.String(), thousands(x.Result.TokensPerSecond), percent(x.Result.MFU), gibibytes(x.Result.Memory.DeviceUsed), best)
	}
	return g.withoutEmpty()
}

// reducedEvery is what a plan with sync_every_micro_batch does.
const reducedEvery = "reduced every micro batch"

// extras are settings of a plan that its short form leaves out.
func extras(p *strategies.Plan) []string {
	var parts []string
	if p.Bucket > 0 {
		parts = append(parts, "bucket "+p.Bucket.String())
	}
	if !p.BucketViews() {
		parts = append(parts, "gradients beside buckets")
	}
	if p.ReshardAfterForward != nil && !*p.ReshardAfterForward {
		parts = append(parts, "kept gathered")
	}
	if p.SyncEveryMicroBatch != nil && *p.SyncEveryMicroBatch {
		parts = append(parts, reducedEvery)
	}
	return parts
}

// uncolumned are settings of a plan that have no column of their own.
func uncolumned(p *strategies.Plan) string {
	var parts []string
	if p.ByHeads() {
		parts = append(parts, "cp "+string(p.CPCommType))
	}
	parts = append(parts, extras(p)...)
	if p.Offloads() {
		parts = append(parts, p.OffloadText())
	}
	return strings.Join(parts, ", ")
}

// shareGrid shows what bounds each plan.
func (p *Plans) shareGrid() *grid {
	g := &grid{columns: []column{{title: "", right: true}, {title: "bound by"}, {title: "GEMM", right: true}, {title: "attention", right: true, drop: 1}, {title: "memory", right: true}, {title: "comm", right: true},
		{title: "bubble", right: true}, {title: "host", right: true, drop: 2}, {title: "rest", right: true, drop: 3}}}
	for i := range p.Ranking.Plans {
		x := &p.Ranking.Plans[i]
		q, t := &x.Result.Parts, x.Result.StepTime
		share := func(v units.Seconds) string { return fmt.Sprintf("%.1f", 100*float64(v/t)) }
		g.row(placeText(x), x.Result.Bound, share(q.GEMM), share(q.Attention), share(q.Memory), share(q.Exposed), share(q.Bubble), share(q.Host+q.Update), share(q.Gaps+q.Contention))
	}
	return g
}

// whyNot explains a plan that was asked for.
func (p *Plans) whyNot(w *search.WhyNot) []piece {
	switch {
	case w.Misfit != nil:
		r := w.Misfit.Result
		return []piece{paragraph(fmt.Sprintf("No such plan fits%s. The one that needs least is %s: %s.", p.freeText(), planText(w.Misfit.Job, nil), fitText(&r.Memory))), memoryGrid(r)}
	case w.Best == nil:
		var reasons bullets
		for _, c := range w.Rejected {
			reasons = append(reasons, [2]string{fmt.Sprintf("%s: %s", plural(c.N, "plan"), c), ""})
		}
		return []piece{paragraph("No such plan is legal."), reasons}
	}
	step, head := w.Best.Result.StepTime.String(), "time of a step"
	if list := p.Ranking.Plans; len(list) > 0 && list[0].Job.Train.GlobalBatch != w.Best.Job.Train.GlobalBatch {
		own := plural(int(w.Best.Job.Train.GlobalBatch), "sequence")
		step += fmt.Sprintf(" for %s (of the best %s for %d)", own, list[0].Result.StepTime, list[0].Job.Train.GlobalBatch)
		head = "time of " + own
	}
	text := fmt.Sprintf("The best such plan is %s: %s, %s", planText(w.Best.Job, nil), step, fitText(&w.Best.Result.Memory))
	foreign := w.Best.Job.Foreign()
	for _, n := range foreign {
		text += ". " + n.Text
	}
	if kept := p.Ranking.Options.Space.Fix; w.Behind < 0 && len(kept)+len(foreign) > 0 {
		text += fmt.Sprintf(". By %s it is %s ahead of the best of those above", objectiveNames[p.Ranking.Options.Objective], percent(-w.Behind))
		if len(kept) > 0 {
			text += fmt.Sprintf(", which are kept to %s", kept)
		}
		return []piece{paragraph(text + ".")}
	}
	if w.Behind <= 0 {
		return []piece{paragraph(text + ". It is as good as the best.")}
	}
	g := &grid{columns: []column{{title: head}, {title: "asked for", right: true}, {title: "best", right: true}, {title: "lost", right: true}}}
	for _, t := range w.Lost {
		if l := t.Lost(); l < negligible && l > -negligible {
			continue
		}
		g.row(t.Name, t.Time.String(), t.Other.String(), t.Lost().String())
	}
	return []piece{paragraph(fmt.Sprintf("%s. By %s it is %s behind the best.", text, objectiveNames[p.Ranking.Options.Objective], percent(w.Behind))), g}
}

// frontText says what a front leaves out that nothing beats.
func frontText(f *search.Front) string {
	if f.Partial {
		return stoppedEarly + "."
	}
	return fmt.Sprintf("Of plans that are nearly alike one stands for all: what is left out is at most %.0f %% better in time, cost and energy, and by %s in memory, than a plan above on no more GPUs.", 100*search.Alike, f.Memory)
}

func (p *Plans) frontGrid() *grid {
	g := &grid{columns: []column{{title: "GPUs", right: true}, {title: "plan", flex: 80}, {title: "tokens/s", right: true}, {title: "GiB", right: true}, {title: "$/Mtoken", right: true, drop: 2}, {title: "kJ/Mtoken", right: true, drop: 1}}}
	for i := range p.Front.Points {
		x := &p.Front.Points[i]
		dollars := "-"
		if x.Dollars > 0 {
			dollars = fmt.Sprintf("%.4g", x.Dollars)
		}
		g.row(integer(x.Job.GPUs), planText(x.Job, p.Ranking), thousands(x.Result.TokensPerSecond*float64(x.Job.GPUs)), gibibytes(x.Result.Memory.DeviceUsed), dollars, fmt.Sprintf("%.0f", float64(x.Joules)/1e3))
	}
	return g.withoutEmpty()
}

func nearest(n *search.Nearest) bullets {
	var out bullets
	if n.Least != nil {
		out = append(out, [2]string{"least memory: " + planText(n.Least.Job, nil) + ": " + fitText(&n.Least.Result.Memory), ""})
	}
	if n.Plan != nil {
		free := ""
		if n.Headroom > 0 {
			free = fmt.Sprintf(" for %s of the memory free", percent(n.Headroom))
		}
		out = append(out, [2]string{fmt.Sprintf("fewest GPUs%s: %d, with %s: %s per step, %s", free, n.GPUs, planText(n.Plan.Job, nil), n.Plan.Result.StepTime, fitText(&n.Plan.Result.Memory)), ""})
	} else if n.Headroom > 0 {
		out = append(out, [2]string{fmt.Sprintf("on no larger number of GPUs that was tried does a plan leave %s of the memory free", percent(n.Headroom)), ""})
	} else {
		out = append(out, [2]string{"no larger number of GPUs that was tried fits it either", ""})
	}
	return out
}

func rejectedGrid(list []search.Count) *grid {
	g := &grid{columns: []column{{title: "plans", right: true}, {title: "reason", flex: 200}}}
	for _, c := range list {
		g.row(thousands(float64(c.N)), strings.ReplaceAll(c.String(), "\n", " "))
	}
	return g
}

// noneText says that nothing fits, and with what of the memory kept free.
func (p *Plans) noneText() string {
	return "no plan fits" + p.freeText()
}

// freeText is what a plan that fits must do, too.
func (p *Plans) freeText() string {
	if h := p.Ranking.Options.Headroom; h > 0 {
		return fmt.Sprintf(" and leaves %s of the memory free", percent(h))
	}
	return ""
}

// Unfit says in one line that nothing fits.
func (p *Plans) Unfit() string {
	s := p.noneText()
	if n := p.Near; n != nil && n.Least != nil {
		m := &n.Least.Result.Memory
		s += fmt.Sprintf(": the least needs %s of %s GiB per GPU", gibibytes(m.DeviceUsed), gibibytes(m.Capacity))
		if m.Fits {
			s += "; ask for less with --min-headroom"
		}
	}
	return s
}
