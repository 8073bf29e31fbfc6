package search

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Remedy is a change that makes a job fit.
type Remedy struct {
	Set       []string // "train.recompute=full", as --set takes it
	Candidate Candidate
	Slowdown  float64 // tokens/s/GPU before over after, minus one; negative when it is faster
}

const (
	mostRemedies = 3
	mostTimes    = 1024    // the GPUs of a job, in search of enough
	mostGPUs     = 1 << 20 // of any job
)

// Remedies returns up to three ways to make a job fit, those on the fewest GPUs first and
// of these the fastest, and the most GPUs that it tried. On the job's own GPUs it tries
// one change and, unless there are enough, two. As long as no way leaves DefaultHeadroom
// free without the hosts, which are slower, it doubles the GPUs and tries that alone and with one change.
//
// with makes the job again with such settings. What a remedy promises is what that job
// gives, with the best simple plan where it leaves the plan open: setting them shows the
// same.
func Remedies(j *strategies.Job, before *estimate.Result, with func(set []string) (*strategies.Job, error)) (list []Remedy, most int64) {
	most = j.GPUs
	single := changes(j)
	list, short := try(before, single, with)
	if len(list) < mostRemedies {
		two, _ := try(before, pairs(short), with)
		list = append(list, two...)
	}
	slices.SortStableFunc(list, cheaper)
	for !enough(list) && 2*most <= min(mostTimes*j.GPUs, mostGPUs) {
		most *= 2
		found, _ := try(before, onGPUs(j, most, single), with)
		slices.SortStableFunc(found, cheaper)
		list = append(list, found...)
	}
	return few(list), most
}

// few are the first remedies, one of which leaves nothing to the hosts if any does.
func few(list []Remedy) []Remedy {
	n := min(mostRemedies, len(list))
	alone := slices.IndexFunc(list, func(r Remedy) bool { return !r.hosted() })
	if alone >= n {
		return append(slices.Clone(list[:n-1]), list[alone])
	}
	return list[:n]
}

// enough reports whether nobody needs to look further.
func enough(list []Remedy) bool {
	return len(list) >= mostRemedies && slices.ContainsFunc(list, func(r Remedy) bool { return !r.hosted() }) || slices.ContainsFunc(list, func(r Remedy) bool {
		m := &r.Candidate.Result.Memory
		return !r.hosted() && float64(m.Capacity-m.DeviceUsed) >= DefaultHeadroom*float64(m.Capacity)
	})
}

// hosted reports whether a remedy leaves something to the hosts.
func (r *Remedy) hosted() bool {
	return slices.ContainsFunc(r.Set, func(set string) bool { return strings.Contains(set, "offload") })
}

// onGPUs is another number of GPUs, alone and with each of some changes.
func onGPUs(j *strategies.Job, n int64, single []change) []change {
	gpus := growth(j, "gpus", n)
	out := []change{gpus}
	for _, c := range single {
		out = append(out, gpus.and(c))
	}
	return out
}

// cheaper orders remedies on as many GPUs.
func cheaper(a, b Remedy) int { return cmp.Compare(a.Slowdown, b.Slowdown) }

// change is an edit of a job: settings, of which the first names it.
type change []string

// key is the setting that a change is about.
func (c change) key() string {
	key, _, _ := strings.Cut(c[0], "=")
	return key
}

// plans reports whether a change is about a key of the plan.
func (c change) plans() bool { return strings.HasPrefix(c[0], "plan.") }

// and is both changes, each setting once. Where the second drops the plan, the first
// need not change it.
func (c change) and(d change) change {
	out := slices.Clone(c)
	if d[0] == noPlan {
		out = slices.DeleteFunc(out, func(set string) bool { return strings.HasPrefix(set, "plan.") })
	}
	for _, set := range d {
		if !slices.Contains(out, set) {
			out = append(out, set)
		}
	}
	return out
}

// noPlan gives the choice of the plan back.
const noPlan = "plan=null"

// pairs are any two changes that do not undo each other.
func pairs(list []change) []change {
	var out []change
	for i, a := range list {
		for _, b := range list[i+1:] {
			if a.key() != b.key() && !(a[0] == noPlan && b.plans()) && !(b[0] == noPlan && a.plans()) {
				out = append(out, a.and(b))
			}
		}
	}
	return out
}

// changes lists what could be done to a job on its GPUs, one at a time: to what it gives,
// and where it has a plan, to that and to what was taken by default.
func changes(j *strategies.Job) []change {
	t := &j.Given
	var out []change
	if !j.Open {
		t = &j.Train
		if key := sparing(j); key != "" {
			out = append(out, change{key + "=true"})
		}
		out = append(out, regrown(j, noPlan))
	}
	out = append(out, recomputeMore(j, t)...)
	out = append(out, batchLess(j, t)...)
	out = append(out, hosted(j)...)
	if j.Open {
		return out
	}
	for _, k := range kinds(j, j.Plan.Offload) {
		if k != j.Plan.DataParallel {
			out = append(out, change{"plan.data_parallel=" + string(k)})
		}
	}
	for _, times := range []int64{2, 4, 8} {
		if tp := times * j.Plan.TP; tp <= island(j) {
			out = append(out, growth(j, "plan.tp", tp))
		}
		out = append(out, growth(j, "plan.pp", times*j.Plan.PP))
	}
	return out
}

// recomputeMore are the ways to recompute more than a job does, the least first.
func recomputeMore(j *strategies.Job, t *strategies.Train) []change {
	if t.Recomputed().Partly() {
		return []change{{"train.recompute_num_layers=null", "train.recompute_method=null"}}
	}
	var out []change
	for _, r := range j.Recomputations() {
		switch {
		case r.Kind == ops.NoRecompute || t.Recompute == ops.FullRecompute:
		case r.Kind == ops.FullRecompute && t.RecomputeModules > 0:
			out = append(out, change{"train.recompute=full", "train.recompute_modules=null"})
		case r.Modules > 0 && r.Modules != t.RecomputeModules:
			out = append(out, change{"train.recompute=" + string(r.Kind), "train.recompute_modules=" + strings.ReplaceAll(r.Modules.String(), " ", "")})
		case r.Modules == 0 && r.Kind != t.Recompute:
			out = append(out, change{"train.recompute=" + string(r.Kind)})
		}
	}
	return out
}

// hosted are the ways to leave something to the host.
func hosted(j *strategies.Job) []change {
	if p := j.GivenPlan; p != nil && p.Offload != "" {
		return nil
	}
	var out []change
	for _, o := range j.Offloading() {
		c := change{"plan.offload=" + string(o)}
		if able := j.Beside(o); !j.Open && !slices.Contains(able, string(j.Plan.DataParallel)) {
			c = append(c, "plan.data_parallel="+able[0])
		}
		out = append(out, c)
	}
	if n := j.Model.Layers; j.Recipe.Offload.Layers && n > 1 && j.Given.OffloadLayers == 0 && (j.Open || j.Plan.PP == 1 && j.Train.Recompute == ops.NoRecompute) {
		out = append(out, change{setting("train.offload_layers", (n+1)/2)}, change{setting("train.offload_layers", n-1)})
	}
	if j.Recipe.Offload.Activations && j.Plan.PP == 1 && !j.Train.OffloadActivations {
		out = append(out, change{"train.offload_activations=true"})
	}
	return out
}

// batchLess are smaller micro batches, of which a step has as many more.
func batchLess(j *strategies.Job, t *strategies.Train) []change {
	var out []change
	for b := t.MicroBatch / 2; b > 0; b /= 2 {
		c := change{setting("train.micro_batch", b)}
		switch {
		case t.MicroBatch%b != 0:
			continue
		case j.Given.GlobalBatch > 0:
			c = regrown(j, c...)
		case t.GradAccumulation > 0:
			c = append(c, setting("train.grad_accumulation", t.GradAccumulation*t.MicroBatch/b))
		}
		out = append(out, c)
	}
	return out
}

// growth raises a degree or the number of GPUs. Data parallelism takes the rest, and
// stages have as many layers as they get.
func growth(j *strategies.Job, key string, n int64) change {
	set := []string{setting(key, n)}
	if p := j.GivenPlan; p != nil && p.DP > 0 {
		set = append(set, "plan.dp=null")
	}
	if p := j.GivenPlan; p != nil && p.StageLayers != "" && key == "plan.pp" {
		set = append(set, "plan.stage_layers=null")
	}
	return regrown(j, set...)
}

// regrown is a change after which micro batches divide the global batch anew, where that
// is given.
func regrown(j *strategies.Job, set ...string) change {
	if j.Given.GlobalBatch > 0 && j.Given.GradAccumulation > 0 {
		set = append(set, "train.grad_accumulation=null")
	}
	return set
}

func setting(key string, n int64) string { return key + "=" + strconv.FormatInt(n, 10) }

// try returns the changes that make a job fit, estimated, and those that are too little.
// Changes that no rule admits are neither.
func try(before *estimate.Result, list []change, with func([]string) (*strategies.Job, error)) (found []Remedy, short []change) {
	type trial struct {
		change
		job *strategies.Job
		fit bool
	}
	var trials []trial
	for _, c := range list {
		if j, err := with(c); err == nil {
			trials = append(trials, trial{change: c, job: j})
		}
	}
	trials = each(trials, func(t trial) (trial, bool) { t.fit = roomy(t.job); return t, true })
	for _, t := range trials {
		if !t.fit {
			short = append(short, t.change)
		}
	}
	return each(trials, func(t trial) (Remedy, bool) {
		if !t.fit {
			return Remedy{}, false
		}
		c, err := chosen(t.job)
		if err != nil {
			return Remedy{}, false
		}
		return Remedy{t.change, c, before.TokensPerSecond/c.Result.TokensPerSecond - 1}, true
	}), short
}

// chosen estimates a job, with the best simple plan where it leaves that open.
func chosen(j *strategies.Job) (Candidate, error) {
	if j.Open {
		return Fastest(j)
	}
	r, err := predict(j)
	return Candidate{j, r}, err
}

// roomy reports whether a job fits, under one of the simple plans where it leaves its
// plan open. It predicts no time, since most of what is tried does not fit.
func roomy(j *strategies.Job) bool {
	if !j.Open {
		used, err := deviceUsed(j, estimate.Capacity(j))
		return err == nil && used <= estimate.Capacity(j)
	}
	plans, _ := legal(j) // none where no plan is legal
	var found atomic.Bool
	each(plans, func(p entrant) (none struct{}, ok bool) {
		if !found.Load() && p.fits() {
			found.Store(true)
		}
		return
	})
	return found.Load()
}
