package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/report"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/search"
)

// planFlags are the flags of plan as given.
type planFlags struct {
	fix, whyNot         []string
	objective, headroom string
	pareto              bool
	options             search.Options
}

func newPlan(e *env) *cobra.Command {
	job := jobFlags{own: []setting{tokens, price}}
	var out output
	var f planFlags
	cmd := &cobra.Command{
		Use:        "plan [FILE | NAME | -]",
		SuggestFor: []string{"optimize", "rank", "search", "tune"},
		Short:      "Rank every legal way to split a job",
		Long: `Rank every legal plan of a job: tensor, sequence, context, expert and pipeline
parallelism, virtual stages and schedules, kinds of data parallelism with shard degrees,
buckets and resharding, micro batch, recomputation, also of some layers only or of parts
of a layer, and the order of ranks where it decides which of them share a node.

Bounds leave out what cannot be among the best; the others are predicted as estimate
does it, so that the list is that of --exhaustive. Flags that set a key of the plan, and
--fix, keep plans to it, as do keys of a plan in the file that leaves others open; a whole
one is ranked beside. Ctrl-C prints the best so far, with exit code 130. When nothing fits, it is 3 and the nearest that does is named.`,
		Example: `  perfplan plan llama3-70b --gpus 64 --global-batch 512
  perfplan plan gpt3-175b --gpus 1024 --hardware a100-80g-sxm --global-batch 1536 --max-tp 8 --why-not tp=8,pp=8
  perfplan plan job.yaml --fix tp=8 --min-headroom 5% --top 3 -o json`,
		Args: atMost(1),
		RunE: out.run(func(cmd *cobra.Command, args []string, format report.Format) error {
			if err := f.read(cmd, &job); err != nil {
				return err
			}
			j, given, err := job.load(e, args)
			if err != nil {
				return err
			}
			f.keep(e, j, given)
			ctx, stop := e.interrupt(cmd.Context())
			defer stop()
			p := &progress{out: e.err, last: time.Now()}
			f.options.Progress = p.show
			r, err := f.rank(ctx, j)
			p.end()
			if err != nil {
				return err
			}
			r.Given = given
			if err := report.Write(e.out, r, format, e.style); err != nil {
				return err
			}
			if r.Partial() {
				return stopped{"stopped before the search was over; better plans may be left"}
			}
			if len(r.Ranking.Plans) == 0 {
				return broken{r.Unfit()}
			}
			return nil
		}),
	}
	out.addFlag(cmd, report.Formats...)
	job.add(cmd)
	f.add(cmd)
	return cmd
}

func (f *planFlags) add(cmd *cobra.Command) {
	o := &f.options
	cmd.Flags().StringArrayVar(&f.fix, "fix", nil, "keep `KEY=VALUE,...` of plan and train, as in tp=8,recompute=full (repeatable)")
	cmd.Flags().StringVar(&f.objective, "by", string(search.Tokens), "what the best plan has: `OBJECTIVE` "+strings.Join(search.Objectives, ", "))
	cmd.Flags().IntVar(&o.Top, "top", 10, "`N` best plans to print")
	cmd.Flags().Int64Var(&o.Space.MaxTP, "max-tp", 0, "largest tensor-parallel degree, `N`; default: as far as NVLink reaches")
	cmd.Flags().Int64Var(&o.Space.MaxPP, "max-pp", 0, "largest pipeline-parallel degree, `N`; default: the layers")
	cmd.Flags().Int64Var(&o.Space.MaxCP, "max-cp", 0, "largest context-parallel degree, `N`; default: 512 tokens of a sequence per rank")
	cmd.Flags().Int64Var(&o.Space.MaxEP, "max-ep", 0, "largest expert-parallel degree, `N`; default: the experts")
	cmd.Flags().StringSliceVar(&o.Space.Precisions, "precisions", nil, "`NAMES` of precisions to choose from, as in bf16,fp8; default: the job's")
	cmd.Flags().BoolVar(&o.Space.AnySchedule, "any-schedule", false, "also pipeline schedules that the framework does not have")
	cmd.Flags().StringVar(&f.headroom, "min-headroom", "", fmt.Sprintf("`SHARE` of the memory that must stay free; default: %.0f%%, and 0 when no plan leaves that", 100*search.DefaultHeadroom))
	cmd.Flags().StringArrayVar(&f.whyNot, "why-not", nil, "say why plans with `KEY=VALUE,...` are not the best (repeatable)")
	cmd.Flags().BoolVar(&f.pareto, "pareto", false, fmt.Sprintf("also the plans that none beats in time, GPUs, memory, cost and energy at once, down to fewer GPUs; one stands for those that are at most %.0f %% better, or a sixteenth of the memory", 100*search.Alike))
	cmd.Flags().BoolVar(&o.Exhaustive, "exhaustive", false, "predict every legal plan; the list is the same")
	complete(cmd, "by", search.Objectives)
}

// read parses the flags. Flags of the job that set a key of the plan become keys to
// keep.
func (f *planFlags) read(cmd *cobra.Command, job *jobFlags) error {
	o := &f.options
	if err := o.Objective.UnmarshalText([]byte(f.objective)); err != nil {
		return usage("--by: %v", err)
	}
	if o.Top < 1 {
		return usage("--top: %d; give 1 or more", o.Top)
	}
	for _, flag := range []string{"max-tp", "max-pp", "max-cp", "max-ep"} {
		if x := cmd.Flags().Lookup(flag); x.Changed && (strings.HasPrefix(x.Value.String(), "-") || x.Value.String() == "0") {
			return usage("--%s: %s; give 1 or more, or leave it out", flag, x.Value)
		}
	}
	var err error
	if o.Headroom = search.DefaultHeadroom; f.headroom != "" {
		if o.Headroom, err = units.ParsePercent(f.headroom); err != nil || o.Headroom < 0 || o.Headroom >= 1 {
			return usage("--min-headroom: %q is not a share of 0 to less than 100 %%; write it as in 5%%", f.headroom)
		}
	}
	o.Space.Fix = search.Fix{}
	kept := job.edits[:0:0]
	for _, x := range job.edits {
		if key, ok := strings.CutPrefix(x.path, "plan."); ok {
			fix, err := search.ParseFix(key + "=" + x.value)
			if err != nil {
				return usage("%s: %v", x.origin, err)
			}
			o.Space.Fix = o.Space.Fix.And(fix)
			continue
		}
		kept = append(kept, x)
	}
	job.edits = kept
	for _, text := range f.fix {
		fix, err := search.ParseFix(text)
		if err != nil {
			return usage("--fix: %v", err)
		}
		for key, value := range fix {
			if before, ok := o.Space.Fix[key]; ok && before != value {
				return usage("--fix: %s=%s, but %s=%s was given, too; leave one of them out", key, value, key, before)
			}
		}
		o.Space.Fix = o.Space.Fix.And(fix)
	}
	for _, key := range []string{"tp", "pp", "cp", "ep"} {
		most := cmd.Flags().Lookup("max-" + key)
		if n, err := strconv.ParseInt(o.Space.Fix[key], 10, 64); most.Changed && err == nil && strconv.FormatInt(n, 10) != most.Value.String() {
			return usage("--%s: %s, but %s=%d was given, too; leave one of them out", most.Name, most.Value, key, n)
		}
	}
	return nil
}

// keep keeps plans to what a job says of a plan that it leaves open, where flags don't say otherwise.
func (f *planFlags) keep(e *env, j *strategies.Job, given *yaml.Node) {
	if !j.Open {
		return
	}
	_, plan := yamlx.Key(given, "plan")
	if plan == nil || plan.Kind != yaml.MappingNode {
		return
	}
	var left []string
	for i := 0; i+1 < len(plan.Content); i += 2 {
		key, value := "plan."+plan.Content[i].Value, plan.Content[i+1]
		fix, err := search.ParseFix(key + "=" + value.Value)
		switch {
		case value.Kind != yaml.ScalarNode || err != nil:
			left = append(left, key)
		case value.Tag != "!!null":
			f.options.Space.Fix = fix.And(f.options.Space.Fix)
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(e.err, "perfplan: %s: not a key that plans can be kept to, so that each is ranked without it; perfplan estimate keeps it\n", strings.Join(left, ", "))
	}
}

// rank searches and answers what was asked beside.
func (f *planFlags) rank(ctx context.Context, j *strategies.Job) (*report.Plans, error) {
	var questions []search.Fix
	for _, text := range f.whyNot {
		fix, err := search.ParseFix(text)
		if err != nil {
			return nil, usage("--why-not: %v", err)
		}
		questions = append(questions, fix)
	}
	for _, name := range f.options.Space.Precisions {
		if _, err := j.With(name, 0, strategies.Recomputation{}); err != nil {
			return nil, usage("--precisions: %v", err)
		}
	}
	f.options.TrainTokens, f.options.Dollars = float64(j.Run.Tokens.Value), j.Run.Price.Value
	out := &report.Plans{Dollars: f.options.Price(j)}
	if !j.Open {
		r, err := estimate.Estimate(j, estimate.Options{})
		if err != nil {
			return nil, err
		}
		out.Own = &search.Candidate{Job: j, Result: r}
	}
	free := f.options.Headroom
	var err error
	if out.Ranking, err = search.Rank(ctx, search.Reopen(j), f.options); err != nil {
		return nil, err
	}
	if len(out.Ranking.Plans) == 0 && !out.Ranking.Partial && f.headroom == "" { // rather a tight plan than none
		f.options.Headroom, out.Tight = 0, true
		if out.Ranking, err = search.Rank(ctx, search.Reopen(j), f.options); err != nil {
			return nil, err
		}
	}
	err = f.answer(ctx, out, questions, free)
	if out.Stopped = ctx.Err() != nil; out.Stopped { // the ranking stands
		return out, nil
	}
	return out, err
}

// answer says what was asked about a ranking. Half an answer, of a search that was stopped, is
// none, but for a front, which says so.
func (f *planFlags) answer(ctx context.Context, out *report.Plans, questions []search.Fix, free float64) error {
	for i, fix := range questions {
		w, err := search.Explain(ctx, out.Ranking, fix)
		if diag.IsInput(err) {
			return usage("--why-not %s: %v", f.whyNot[i], err)
		}
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		out.WhyNot = append(out.WhyNot, w)
	}
	if f.pareto {
		var err error
		if out.Front, err = search.Pareto(ctx, out.Ranking.Job, f.options); err != nil {
			return err
		}
	}
	if len(out.Ranking.Plans) == 0 && !out.Ranking.Partial {
		near, err := search.Near(ctx, out.Ranking, free)
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		out.Near = near
	}
	return nil
}

// progress tells how far a search is: once a second in one line of a terminal, else
// line by line, less often.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	last  time.Time
	shown bool
}

func (p *progress) show(s search.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := time.Second
	if !isTerminal(p.out) {
		wait *= 5
	}
	if time.Since(p.last) < wait {
		return
	}
	p.last = time.Now()
	text := fmt.Sprintf("%s: %d of %d", s.Phase, s.Done, s.Total)
	if s.Best != "" {
		text += fmt.Sprintf("; best so far %s: %s", s.Value, s.Best)
	}
	if isTerminal(p.out) {
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		p.shown = true
		return
	}
	fmt.Fprintln(p.out, text)
}

func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}
