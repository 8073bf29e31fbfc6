package estimate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// Relative standard deviations of what no law carries one for.
const (
	// CPU cost of launches where the user says how fast the hosts are: what the recipes'
	// costs themselves are off, up to 0.06 on the machine that they were taken on
	// (h200-hostbound). Of hosts that nobody measured a recipe says it (host.spread), of
	// its own a calibration (hardware laws, launch.host_spread).
	hostSpreadGiven = 0.1
	commSpread      = 0.10 // exposed communication, where the collective's cost names none
	// each fact that a job only assumes: what published runs with one, two or more such facts are
	// off beyond those whose sources state all, 0.03, 0.08 and 0.12, all tables alike (the least
	// interval score of 64 to 140 of them)
	assumedSpread = 0.05
	// what nobody knew of jobs like it before they had run: of 2451 published steps in 559 tables, as the
	// program predicted them before anybody had looked at them, 0.70 (all tables alike) lie in ranges
	// without this and 0.79 with it, which has the least interval score; A100, H100 and B200 need
	// the same, and so do recipes that were known on their GPU and others (docs/unseen.md,
	// TestRangesOfFirstPredictions)
	unforeseenSpread = 0.12
)

// The 80 % range of a step reaches so far below and above the prediction, over what it
// would on both sides if deviations were normal (hardware.Eighty). Measured steps take longer than
// predicted oftener than they take less: what a model leaves out costs time, and so does what a published run
// leaves untuned. A tenth of the steps of 336 measured tables, all tables alike, lie 0.4 of
// that below and 1.15 above; of single rows of tables and of wide ranges as of narrow ones 0.35
// to 0.45 and 1.05 to 1.4. Ranges so set have the least interval score (T. Gneiting and A.
// Raftery, Strictly proper scoring rules, 2007), with some room for tables that nobody has
// looked at yet (TestRanges of cmd/perfplan holds it).
const faster, slower = 0.5, 1.25

// Cause is what makes a prediction of a step uncertain.
type Cause int

// What uncertainty comes from. Plans of one job on one machine share each, by as much as
// they depend on it.
const (
	MatrixTimes Cause = iota // of GEMMs and attention
	KernelTimes              // of all other kernels
	HostSpeed
	CollectiveTimes // what of communication is exposed
	NetworkSpeed    // between nodes
	HostUpdates     // of parameters
	ExpertExchanges // loads and messages of experts
	LeftOut         // what the model leaves out on whole steps
	Unforeseen      // and what only runs like the job would show
	AssumedFacts    // what the job only assumes
	NumCauses
)

// causeNames say what a range is wide because of.
var causeNames = [NumCauses]string{"kernel times", "kernel times", theHost, "communication", "the network between nodes", "the update by the host", leftOut, leftOut, leftOut, assumed}

// Names of causes for which no calibration helps.
const leftOut, theHost, assumed = "what the model leaves out", "the host", "what the job only assumes"

// Deviation is how far a step may be off by one cause.
type Deviation struct {
	Share float64 // relative standard deviation of the step time
	Spare float64 // of the step, what goes at most where the cause is better than predicted
}

// Deviations are those of a step by cause. They are independent of each other.
type Deviations [NumCauses]Deviation

// Total is the relative standard deviation of all.
func (d *Deviations) Total() float64 {
	sum := 0.0
	for _, x := range d {
		sum += x.Share * x.Share
	}
	return math.Sqrt(sum)
}

// worst names the causes that most of it comes from.
func (d *Deviations) worst() string {
	sums := map[string]float64{}
	why := leftOut
	for c, x := range d {
		name := causeNames[c]
		if sums[name] += x.Share * x.Share; sums[name] > sums[why] {
			why = name
		}
	}
	return why
}

// spread sets the 80 % range of the step time and what it comes from. Where runs of the
// user's own were compared, it is theirs. Deviations of distinct ops from
// their laws are independent; a law taken over from another GPU is off as a
// whole, and what is left over on whole steps (hardware laws, step) adds to that.
func (e *Evaluator) spread(r *Result) {
	p := &e.p
	if own := p.job.Runtime.OwnRuns; own != nil {
		r.Low, r.High = hardware.Range(r.StepTime, own.Spread)
		r.Off[LeftOut] = Deviation{own.Spread, 1}
		r.Notes = append(r.Notes, diag.Note{Code: "runs.own", Text: fmt.Sprintf("every time is %.2f times the prediction, as %s showed", own.Ratio, counted(own.Runs))})
		return
	}
	t := e.kernelSpread()
	total := float64(r.StepTime)
	set := func(c Cause, seconds, spare float64) { r.Off[c] = Deviation{seconds / total, spare / total} }
	if t.busy > 0 { // bubbles stretch with the kernels
		stretch := (t.busy + float64(r.Parts.Bubble)) / t.busy
		set(MatrixTimes, t.matrices*stretch, total)
		set(KernelTimes, t.others*stretch, total)
	}
	set(HostSpeed, e.slowerHost(r, t.host), float64(r.Parts.Host))
	set(CollectiveTimes, commSpread*float64(r.Parts.Exposed), float64(r.Parts.Exposed))
	set(NetworkSpeed, e.slowerNetwork(r), float64(r.Parts.Exposed))
	set(HostUpdates, p.updateSpread(r), float64(r.Parts.Update))
	set(ExpertExchanges, p.expertsSpread()*total, total)
	set(LeftOut, p.stepSpread()*total, total)
	if !p.measured() {
		set(Unforeseen, unforeseenSpread*total, total)
	}
	set(AssumedFacts, assumedSpread*math.Sqrt(float64(len(p.job.Assumed)))*total, total)
	rel := r.Off.Total()
	r.Low, _ = hardware.Range(r.StepTime, faster*rel)
	_, r.High = hardware.Range(r.StepTime, slower*rel)
	special := r.Off
	special[Unforeseen] = Deviation{} // which nearly every job has
	if special.Total() > 0.10 {
		r.Notes = append(r.Notes, p.wideRange(rel, special.worst()))
	}
}

// kernelSums are what kernels of a step add up to.
type kernelSums struct {
	busy             float64       // s, all of them
	matrices, others float64       // standard deviations of the times of either, s
	host             units.Seconds // of their launches
}

// kernelSpread adds up the units of the rank that the others wait for.
func (e *Evaluator) kernelSpread() kernelSums {
	p, s := &e.p, &e.sim
	n := float64(s.passesOf())
	out := kernelSums{host: 2 * (p.host.Pass + p.host.Pipeline) * p.python * units.Seconds(n)} // passes and units
	rank := 0
	if s.pipe != nil {
		rank = s.pipe.worst
	}
	counts := map[*unit]float64{}
	var list []*unit
	for _, u := range s.layout.ranks[rank].runs {
		if counts[u] == 0 {
			list = append(list, u)
		}
		counts[u] += n
	}
	var ops, off [numWork]float64 // by kind of work: variance of its time; time under a law of another GPU, times its deviation
	for _, u := range list {
		out.host += (u.forward.whole.Host + u.backward.whole.Host) * units.Seconds(counts[u])
		for _, sec := range []*section{&u.forward, &u.backward} {
			for i := range sec.ops {
				o := &sec.ops[i]
				if o.Class == tape.NoKernel || o.Class == tape.Collective {
					continue
				}
				t := float64(sec.launches[i].Busy) * counts[u]
				own, other := p.timer.Spread(o)
				k := workOf(o.Class)
				out.busy += t
				ops[k] += t * own * t * own
				off[k] += t * other
			}
		}
	}
	var matrices, others float64
	for k, d := range off {
		if v := ops[k] + d*d; work(k) == gemmWork || work(k) == attentionWork {
			matrices += v
		} else {
			others += v
		}
	}
	out.matrices, out.others = math.Sqrt(matrices), math.Sqrt(others)
	return out
}

// wideRange is the note on a range that is wide for a cause, and what would make it narrower.
func (p *pricer) wideRange(rel float64, why string) diag.Note {
	remedy := "run perfplan calibrate on the machine, or give runs of your own with --runs"
	switch why { // of what no calibration takes away
	case leftOut:
		if cause := p.cause(); cause != "" {
			why, remedy = cause, "give runs of your own with --runs"
		}
	case theHost:
		if p.job.Hardware.Laws.Launch.HostSpread > 0 {
			remedy = "give runs of your own with --runs, or set runtime.host_speed to what they show"
		}
	case assumed:
		why += ": " + strings.Join(p.job.Assumed, ", ")
		remedy = "find out, set them, and take them from assumed"
	}
	return diag.Note{Code: "range.wide", Text: fmt.Sprintf("the step time is uncertain by %.0f %% (one standard deviation), most of all because of %s", 100*rel, why), Remedy: remedy}
}

// updateSpread is the standard deviation of an update by the host.
func (p *pricer) updateSpread(r *Result) float64 {
	if r.Parts.Update <= 0 {
		return 0
	}
	return p.job.Hardware.Laws.Offload.Spread * float64(r.Parts.Update)
}

// slowerHost is the standard deviation of the step time that hosts of unknown speed
// make: how much longer it would take with those at the end of the 80 % range, over
// that end. A step that waits for nothing may wait for them, but not one whose passes
// would take such a host less than half of it: to time that again takes as long as the estimate.
func (e *Evaluator) slowerHost(r *Result, passes units.Seconds) float64 {
	p := &e.p
	if p.speed == 0 { // replayed whole
		return 0
	}
	j := *r.Job
	by := cmp.Or(j.Hardware.Laws.Launch.HostSpread, j.Recipe.Host.Spread)
	if j.Runtime.HostSpeed > 0 {
		by = hostSpreadGiven
	}
	if p.host.Hooks.Any() && j.Plan.DataParallel.ShardsParameters() {
		by = math.Hypot(by, p.host.Hooks.Spread)
	}
	_, slow := hardware.Range(1, by)
	more := p.block || p.host.Transfer > 0 || j.Plan.DataParallel.ShardsParameters() // than passes
	if !more && float64(r.Parts.Host) < 0.002*float64(r.StepTime) && 2*passes*slow < r.StepTime-r.Parts.Bubble {
		return 0
	}
	j.Runtime.HostSpeed = cmp.Or(j.Runtime.HostSpeed, 1) / float64(slow)
	again := Evaluator{p: pricer{machine: p.machine}, cache: e.cache}
	return again.longer(&j, r) * by / float64(slow-1)
}

// slowerNetwork is how much longer the step would take with a network between nodes
// that is slower by a standard deviation: what is exposed, and what then would be.
func (e *Evaluator) slowerNetwork(r *Result) float64 {
	if r.Job.GPUs <= e.p.fabric.Island() {
		return 0
	}
	slow := Evaluator{p: pricer{machine: e.p.machine, across: units.Seconds(collective.SlowerNetwork())}, cache: e.cache}
	return slow.longer(r.Job, r)
}

// longer is how much longer than r a job takes.
func (e *Evaluator) longer(j *strategies.Job, r *Result) float64 {
	again, err := e.step(j)
	if err != nil { // as little as the job itself
		return 0
	}
	return max(float64(again.StepTime-r.StepTime), 0)
}

// counted are so many runs, in words.
func counted(n int64) string {
	if n == 1 {
		return "one run of yours"
	}
	return fmt.Sprintf("%d runs of yours", n)
}

// cause names the part of the job that most of leftOut comes from, "" when it comes
// from the machine.
func (p *pricer) cause() string {
	j := p.job
	machine, experts := unknownStep, p.expertsSpread()
	if l := j.Hardware.Laws.Step; l != nil {
		machine = math.Hypot(l.Residual, l.Extrapolate)
	}
	switch software := j.Recipe.Spread; {
	case p.indexerSpread() > max(machine, experts, software):
		return "attention to the keys that an indexer picks, for which recipe " + j.Recipe.Name + " has new kernels every month"
	case software > max(machine, experts):
		return "recipe " + j.Recipe.Name + ", whose published steps are as far from predictions"
	case experts > machine && experts > j.Hardware.Laws.Step.Experts:
		return "experts' exchanges over " + p.fabric.Transport + ", which take longer in training than alone"
	case experts > machine:
		return "experts, whose load and messages vary"
	}
	return ""
}

// stepSpread is what is left over on whole steps, whatever becomes of experts.
func (p *pricer) stepSpread() float64 {
	l, j := p.job.Hardware.Laws.Step, p.job
	software := math.Hypot(j.Recipe.Spread, p.indexerSpread())
	if l == nil {
		return math.Hypot(unknownStep, software)
	}
	dev := math.Hypot(l.Residual, software)
	if !covers(l, j) {
		dev = math.Hypot(dev, l.Extrapolate)
	}
	return dev
}

// covers says whether the steps that l is of hold for a job: its GPU, its software, no more nodes.
func covers(l *hardware.StepLaw, j *strategies.Job) bool {
	return (l.On == nil || l.On.Name.Value == j.Hardware.GPU.Name.Value) &&
		(len(l.Recipes) == 0 || slices.Contains(l.Recipes, j.Recipe.Name)) &&
		(l.Nodes == 0 || j.GPUs <= l.Nodes*j.Hardware.Node.GPUs.Value)
}

// measured says whether we ourselves measured steps of that kind, not tables of steps of all kinds. Functions of
// adapters ran on two machines alone, beside PEFT's modules, which were 5 to 8 % too fast there, and a Trainer's
// loop on one, where steps drawn at random were 9.5 % off when they were first predicted.
func (p *pricer) measured() bool {
	l := p.job.Hardware.Laws.Step
	return l != nil && len(l.Recipes) > 0 && covers(l, p.job) && !p.job.Recipe.Structure.ByHand && !p.job.Trainer()
}

// indexerSpread is what of it comes from attention to picked keys.
func (p *pricer) indexerSpread() float64 {
	if p.job.Model.Indexer == nil {
		return 0
	}
	return p.job.Recipe.IndexerSpread
}

// expertsSpread is what of it comes from experts.
func (p *pricer) expertsSpread() float64 {
	j := p.job
	if j.Model.MoE == nil || j.Hardware.Laws.Step == nil {
		return 0
	}
	if j.Plan.EP <= 1 {
		return j.Hardware.Laws.Step.AllHeld
	}
	dev := j.Hardware.Laws.Step.Experts
	if domains(j) > 1 {
		dev = math.Hypot(dev, p.fabric.ExpertsSpread())
	}
	if j.Train.Routing == strategies.UnbalancedRouting || j.Train.Routing == strategies.UntrainedRouting {
		dev = math.Hypot(dev, unbalancedStep)
	}
	return dev
}

// unknownStep stands in for a machine on which no whole step was ever compared.
const unknownStep = 0.08
