package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Amount is what one side has of a class or family in a step.
type Amount struct {
	Count float64       // kernels
	Time  units.Seconds // the sum of theirs
	Bytes units.Bytes   // moved in device memory, or sent; only of a prediction
}

func (a *Amount) add(b Amount) {
	a.Count += b.Count
	a.Time += b.Time
	a.Bytes += b.Bytes
}

// Line is one class or family on both sides.
type Line struct {
	Name              string
	Predicted, Traced Amount
	Longest           string // the traced kernel that takes most of the time
	Classes           []Line // of a family, the longest first
}

// Error is (predicted − traced) / traced in time: −1 where only the trace has any, +Inf
// where only the prediction has, 0 where neither has.
func (l *Line) Error() float64 { return errorOf(l.Predicted.Time, l.Traced.Time) }

func errorOf(predicted, traced units.Seconds) float64 {
	if predicted == traced {
		return 0 // also of nothing and nothing
	}
	return float64(predicted/traced) - 1
}

// Term is a part of the step that is no class of kernels.
type Term struct {
	Key               string
	Predicted, Traced units.Seconds
}

// Error is as that of a Line.
func (t Term) Error() float64 { return errorOf(t.Predicted, t.Traced) }

// Keys of the terms of a Comparison.
const (
	StepTime = "step_time"
	Compute  = "compute" // kernels other than communication, each counted, slowed by what runs beside
	Idle     = "idle"    // nothing runs on the device: the host is late, a gap between kernels, other stages
	NCCL     = "nccl"    // communication kernels, each counted
	Exposed  = "exposed_nccl"
)

// Comparison is a predicted step beside a traced one.
type Comparison struct {
	Result   *estimate.Result
	Traces   []*Summary // what was averaged
	Terms    []Term
	Families []Line // in the order of the table
	Largest  []Difference
	Notes    []diag.Note
}

// Difference is one of the largest, in plain words.
type Difference struct {
	Of                string
	Predicted, Traced units.Seconds
	Text              string
}

// mostDifferences are named in plain words.
const mostDifferences = 3

// Compare sets an estimate with Detail beside the traces of one or several ranks of
// the job, which it averages. Of a pipeline it takes those ranks that hold the stages
// the estimate is of, when they are there.
func Compare(r *estimate.Result, traces []*Summary) (*Comparison, error) {
	if r.Detail == nil {
		return nil, fmt.Errorf("the estimate was made without detail")
	}
	c := &Comparison{Result: r, Traces: traces}
	c.choose()
	lines := map[string]*Line{}
	line := func(class string) *Line {
		if lines[class] == nil {
			lines[class] = &Line{Name: class}
		}
		return lines[class]
	}
	beside := predicted(r, func(class string, a Amount) { line(class).Predicted.add(a) })
	share := 1 / float64(len(c.Traces))
	for _, t := range c.Traces {
		for _, k := range t.Kernels {
			l := line(k.Class)
			l.Traced.add(Amount{Count: k.Count * share, Time: units.Seconds(k.Time) * units.Seconds(share)})
			l.Longest = cmp.Or(l.Longest, k.Longest)
		}
	}
	c.group(lines)
	c.terms(beside)
	c.name()
	c.remark()
	return c, nil
}

// predicted passes on the kernels of a step by class, each with its share of the
// contention, and returns the time of those that run beside the compute stream and are
// no communication.
func predicted(r *estimate.Result, add func(class string, a Amount)) (beside units.Seconds) {
	d := r.Detail
	var slowed units.Seconds // that all kernels would be by communication beside all of them
	each := func(f func(o *tape.Op, why *kernel.Explain, alone, loaded units.Seconds, times float64)) {
		for _, u := range d.Units {
			for _, pass := range [][]estimate.OpDetail{u.Forward, u.Backward} {
				for _, o := range pass {
					if o.Op.Class != tape.NoKernel && o.Op.Class != tape.Collective {
						f(o.Op, &o.Why, o.Time, o.Loaded, float64(u.Count)*float64(d.Passes))
					}
				}
			}
		}
		for _, k := range d.Kernels {
			f(k.Op, &k.Why, k.Time, k.Loaded, float64(k.Count))
		}
	}
	each(func(_ *tape.Op, _ *kernel.Explain, alone, loaded units.Seconds, times float64) {
		slowed += (loaded - alone) * units.Seconds(times)
	})
	share := units.Seconds(0)
	if slowed > 0 {
		share = r.Parts.Contention / slowed
	}
	each(func(o *tape.Op, why *kernel.Explain, alone, loaded units.Seconds, times float64) {
		time := alone + (loaded-alone)*share - why.Reset
		if why.Resets > 0 { // traces list them by themselves
			add(tape.Fill.String(), Amount{Count: float64(why.Resets) * times, Time: why.Reset * units.Seconds(times)})
		}
		add(classOfOp(o), Amount{Count: float64(max(o.Count, 1)) * times, Time: time * units.Seconds(times), Bytes: o.Bytes * units.Bytes(times)})
	})
	for _, k := range d.Kernels {
		if k.Beside {
			beside += k.Time * units.Seconds(k.Count)
		}
	}
	for _, m := range d.Collectives {
		add(classOfCall(m.Kind), Amount{Count: float64(m.Count), Time: m.Cost.Time * units.Seconds(m.Count), Bytes: m.Bytes * units.Bytes(m.Count)})
	}
	return beside
}

// choose keeps the traces of the ranks that hold the stages of the estimate.
func (c *Comparison) choose() {
	plan := &c.Result.Job.Plan
	if plan.PP <= 1 {
		return
	}
	at := int64(c.Result.Detail.Rank)
	stride := plan.Strides().PP
	var same []*Summary
	for _, t := range c.Traces {
		apart := stride
		if stride*plan.PP == c.Result.Job.GPUs { // pipeline ranks are counted last, as among another number of replicas
			apart = int64(t.World) / plan.PP
		}
		if t.World > 0 && t.Rank >= 0 && apart > 0 && int64(t.Rank)/apart%plan.PP == at {
			same = append(same, t)
		}
	}
	if len(same) > 0 {
		c.Traces = same
		return
	}
	c.Notes = append(c.Notes, diag.Note{Code: "compare.stage", Text: fmt.Sprintf("the prediction is of pipeline rank %d, the slowest; the traces are of others, whose stages differ", at),
		Remedy: fmt.Sprintf("give the trace of rank %d", at*stride)})
}

// group makes families of classes.
func (c *Comparison) group(lines map[string]*Line) {
	compiled := false
	for class := range lines {
		compiled = compiled || FamilyOf(class) == "fused"
	}
	families := map[string]*Line{}
	for class, l := range lines {
		f := FamilyOf(class)
		if compiled && f != Other {
			f = table().compiled[class]
		}
		if families[f] == nil {
			families[f] = &Line{Name: f}
		}
		families[f].Classes = append(families[f].Classes, *l)
	}
	for _, name := range append(familyNames(), Other) {
		f := families[name]
		if f == nil {
			continue
		}
		longest := func(l *Line) float64 { return float64(max(l.Predicted.Time, l.Traced.Time)) }
		slices.SortFunc(f.Classes, func(a, b Line) int { return cmp.Or(cmp.Compare(longest(&b), longest(&a)), cmp.Compare(a.Name, b.Name)) })
		most := units.Seconds(-1)
		for _, l := range f.Classes { // in a fixed order, for the last digit
			f.Predicted.add(l.Predicted)
			f.Traced.add(l.Traced)
			if l.Traced.Time > most {
				most, f.Longest = l.Traced.Time, l.Longest
			}
		}
		c.Families = append(c.Families, *f)
	}
}

func familyNames() []string {
	var out []string
	for _, f := range table().Families {
		out = append(out, f.Name)
	}
	return out
}

// terms fills the parts of the step.
func (c *Comparison) terms(beside units.Seconds) {
	var compute, nccl Term
	for _, f := range c.Families {
		t := &compute
		if f.Name == Collectives {
			t = &nccl
		}
		t.Predicted += f.Predicted.Time
		t.Traced += f.Traced.Time
	}
	r := c.Result
	exposed := r.Parts.Exposed
	idle := r.StepTime - (compute.Predicted - beside) - exposed
	mean := func(f func(*Summary) Seconds) (t units.Seconds) {
		for _, s := range c.Traces {
			t += units.Seconds(f(s)) / units.Seconds(len(c.Traces))
		}
		return t
	}
	c.Terms = []Term{
		{StepTime, r.StepTime, mean(func(s *Summary) Seconds { return s.Span })},
		{Compute, compute.Predicted, compute.Traced},
		{Idle, max(idle, 0), mean(func(s *Summary) Seconds { return s.Idle })},
		{NCCL, nccl.Predicted, nccl.Traced},
		{Exposed, exposed, mean(func(s *Summary) Seconds { return s.Exposed })},
	}
}

// Term returns the term with a key.
func (c *Comparison) Term(key string) Term {
	i := slices.IndexFunc(c.Terms, func(t Term) bool { return t.Key == key })
	return c.Terms[i]
}

// name puts the largest differences into words.
func (c *Comparison) name() {
	var all []Difference
	add := func(of string, p, t units.Seconds, text string) {
		all = append(all, Difference{of, p, t, fmt.Sprintf("%s: %s traced, %s predicted, a difference of %.1f %% of the step.", text, t, p, 100*math.Abs(float64(t-p))/float64(c.Term(StepTime).Traced))})
	}
	for i := range c.Families {
		f := &c.Families[i]
		if f.Name == Collectives {
			continue // only what nothing hides moves the step
		}
		add(f.Name, f.Predicted.Time, f.Traced.Time, words(f))
	}
	t, e := c.Term(Idle), c.Term(Exposed)
	if c.Result.Job.Plan.PP > 1 { // a stage that waits for another does so in a receive, or before one
		add("waiting", t.Predicted+e.Predicted, t.Traced+e.Traced, "Waiting of the stage for others and for its host")
		c.keep(all)
		return
	}
	text := "The device is idle longer than predicted: the host or other ranks keep it waiting"
	if t.Traced < t.Predicted {
		text = "The device is idle less than predicted"
	}
	add(Idle, t.Predicted, t.Traced, text)
	if t = e; t.Predicted+t.Traced > 0 {
		text = "More communication is exposed than predicted; its kernels also wait for ranks that come late"
		if t.Traced < t.Predicted {
			text = "Less communication is exposed than predicted"
		}
		add(Exposed, t.Predicted, t.Traced, text)
	}
	c.keep(all)
}

// keep keeps the largest.
func (c *Comparison) keep(all []Difference) {
	apart := func(d Difference) float64 { return math.Abs(float64(d.Traced - d.Predicted)) }
	slices.SortStableFunc(all, func(a, b Difference) int { return cmp.Compare(apart(b), apart(a)) })
	c.Largest = all[:min(len(all), mostDifferences)]
}

// words says how a family differs.
func words(f *Line) string {
	switch {
	case f.Predicted.Time == 0:
		return fmt.Sprintf("Kernels of the family %s run that the prediction does not have, such as %s", f.Name, f.Longest)
	case f.Traced.Time == 0:
		return fmt.Sprintf("The prediction has kernels of the family %s that do not run", f.Name)
	}
	way := "slower"
	if f.Traced.Time < f.Predicted.Time {
		way = "faster"
	}
	text := fmt.Sprintf("The family %s is %s than predicted, with %s instead of %.0f", f.Name, way, kernels(f.Traced.Count), f.Predicted.Count)
	if len(f.Classes) > 1 {
		worst := slices.MaxFunc(f.Classes, func(a, b Line) int {
			return cmp.Compare(math.Abs(float64(a.Traced.Time-a.Predicted.Time)), math.Abs(float64(b.Traced.Time-b.Predicted.Time)))
		})
		text += fmt.Sprintf(", most in class %s (%s traced, %s predicted)", worst.Name, worst.Traced.Time, worst.Predicted.Time)
	}
	return text
}

func kernels(n float64) string {
	if n == 1 {
		return "1 kernel"
	}
	return fmt.Sprintf("%.0f kernels", n)
}

// otherJob is the ratio of two steps from which on they are hardly of one job.
const otherJob = 3

// remark says what makes the comparison less certain.
func (c *Comparison) remark() {
	c.Notes = append(c.Notes, diag.Note{Code: "compare.clock", Text: "predicted kernels are at the average clock of the predicted step, each with its share of the contention; traced ones are as run, with the profiler on, which slows the host and adds to what is idle"})
	if t := c.Term(StepTime); t.Predicted > otherJob*t.Traced || t.Traced > otherJob*t.Predicted {
		c.Notes = append(c.Notes, diag.Note{Code: "compare.job", Text: fmt.Sprintf("the traced step takes %s, the predicted one %s: they are hardly of one job", t.Traced, t.Predicted),
			Remedy: "check the model, the batch and the GPU of the job against the run"})
	}
	c.foreign()
	if slices.ContainsFunc(c.Traces, func(s *Summary) bool { return s.Cut }) {
		c.Notes = append(c.Notes, diag.Note{Code: "compare.cut", Text: "a trace holds one step, which is taken to begin with its first kernel", Remedy: "profile two steps or more"})
	}
	for _, f := range c.Families {
		if f.Name == Other {
			c.Notes = append(c.Notes, diag.Note{Code: "compare.unknown", Text: fmt.Sprintf("%s (%s) of no known class, most of the time in %s", kernels(f.Traced.Count), f.Traced.Time, f.Longest)})
		}
	}
}

// foreign remarks on what the traces themselves say that the job does not: another GPU,
// another number of ranks, and one rank twice.
func (c *Comparison) foreign() {
	j := c.Result.Job
	note := func(code, remedy, format string, args ...any) {
		c.Notes = append(c.Notes, diag.Note{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	if own := j.Hardware.GPU.Name.Value; own != "" {
		if i := slices.IndexFunc(c.Traces, func(s *Summary) bool { return s.GPU != "" && !sameGPU(s.GPU, own) }); i >= 0 {
			s, remedy := c.Traces[i], "name the machine of the run with --hardware"
			if h, ok := hardware.ByDevice(s.GPU); ok {
				remedy += " " + h.Name
			}
			note("compare.gpu", remedy, "%s ran on %s (deviceProperties), the job is on %s (%s)", s.Name, s.GPU, own, j.Hardware.Name)
		}
	}
	if i := slices.IndexFunc(c.Traces, func(s *Summary) bool { return s.World > 0 && int64(s.World) != j.GPUs }); i >= 0 {
		s := c.Traces[i]
		note("compare.world", fmt.Sprintf("give the job of the run, or set --gpus %d and its plan", s.World), "%s is of a run on %d GPUs (world_size), the job is on %d", s.Name, s.World, j.GPUs)
	}
	first := map[int]*Summary{}
	for _, s := range c.Traces {
		if of := first[s.Rank]; of != nil && s.Rank >= 0 {
			note("compare.rank", "leave one of them out, unless both are of this run", "%s and %s are both of rank %d, which counts twice in the average", of.Name, s.Name, s.Rank)
			return
		}
		first[s.Rank] = s
	}
}

// sameGPU reports whether two names may be of one GPU: some software prints the first
// words alone (NVIDIA H100).
func sameGPU(a, b string) bool {
	return strings.HasPrefix(a+" ", b+" ") || strings.HasPrefix(b+" ", a+" ")
}
