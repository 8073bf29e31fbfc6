package launch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/yamlx"
)

// What a log of transformers' Trainer has of its steps: ended what training took in all
// (trainer_utils.py, speed_metrics; newer releases print four digits as text, trainer_callback.py),
// barred the progress bar by tqdm, without those that say what they count, counted and resumed what
// trainer.py has of steps at the beginning and in the end.
var (
	ended       = lazily(`['"]train_runtime['"]: *['"]?([0-9.]+(?:e[+-]?\d+)?)([^{}\n]*)`)
	sampled     = lazily(`['"]train_samples_per_second['"]: *['"]?([0-9.]+(?:e[+-]?\d+)?)`)
	stepped     = lazily(`['"]train_steps_per_second['"]: *['"]?([0-9.]+(?:e[+-]?\d+)?)`)
	barred      = lazily(`(\w ?: *)?\d+%\|[^|\n]*\| *(\d+)/(\d+) \[(?:(\d+):)?(\d+):(\d+)<[^\]\n]*?(?:s/it|it/s)[^\]\n]*\]`)
	countedEnd  = lazily(`global_step(?:=|/max_steps['"]: *['"]?)(\d+)`)
	countedMost = lazily(`Total optimization steps = ([\d,]+)`)
	batched     = lazily(`Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)`)
	resumed     = lazily(`Continuing training from global step (\d+)`)
)

// What a progress bar without an end must show of a run to time it: it has whole seconds.
const leastSteps, leastSeconds = 10, 10

// tick is a state of a progress bar: steps that are done, and seconds since it began.
type tick struct{ done, at float64 }

// bar is a progress bar from its first step on.
type bar struct {
	total float64
	ticks []tick
}

// first and last are the first state with a step and the last one.
func (b bar) first() tick { return b.ticks[0] }
func (b bar) last() tick  { return b.ticks[len(b.ticks)-1] }

// jumps reports whether the bar began with steps of an earlier run, whose checkpoint this one goes on from.
func (b bar) jumps() bool {
	from, to := b.first(), b.last()
	pace := (to.at - from.at) / max(to.done-from.done, 1)
	return from.done > 1 && to.done > from.done && from.at+1 < pace*(from.done-1)/2
}

// part is from where a bar is past the first steps, which compile, fill caches and wait for data, to its end.
func (b bar) part() (from, to tick) {
	start := b.first().done + max(2, (b.last().done-b.first().done)/10)
	i := slices.IndexFunc(b.ticks, func(t tick) bool { return t.done >= start })
	return b.ticks[max(i, 0)], b.last()
}

// bars are the progress bars of a log, by their ends. One goes forth alone: what begins again is the bar
// of an evaluation.
func bars(text string) []bar {
	var all []bar
	of := map[float64]int{} // by its end, 1 + where
	for _, at := range barred().FindAllStringSubmatch(text, -1) {
		now, total := tick{decimal(at[2]), 3600*decimal(at[4]) + 60*decimal(at[5]) + decimal(at[6])}, decimal(at[3])
		i := of[total] - 1
		switch {
		case at[1] != "" || now.done <= 0 || now.done > total:
		case i < 0:
			all = append(all, bar{total, []tick{now}})
			of[total] = len(all)
		case now.done > all[i].last().done && now.at >= all[i].last().at:
			all[i].ticks = append(all[i].ticks, now)
		}
	}
	return all
}

// trainerClock is what a log of a Trainer, or its state, has of the time of its steps.
type trainerClock struct {
	runtime, samples, rate float64 // s, and 1/s as they are printed; 0: not yet
	bars                   []bar
	end                    counted // that it says itself
	most, batch, before    float64 // steps that it is to make, sequences of one, and steps before it was resumed
}

// counted is a number of steps with what says so.
type counted struct {
	steps float64
	by    string
}

// ofTrainer reads what a log has of a Trainer's steps, nil where there is nothing.
func ofTrainer(text string) *trainerClock {
	t := &trainerClock{bars: bars(text)}
	if all := ended().FindAllStringSubmatch(text, -1); len(all) > 0 {
		last := all[len(all)-1]
		t.runtime, t.samples, t.rate = decimal(last[1]), said(last[2], sampled().FindStringSubmatch), said(last[2], stepped().FindStringSubmatch)
	}
	if t.runtime == 0 && len(t.bars) == 0 {
		return nil
	}
	t.end = counted{said(text, countedEnd().FindStringSubmatch), "global_step"}
	t.most, t.batch, t.before = said(text, countedMost().FindStringSubmatch), said(text, batched().FindStringSubmatch), said(text, resumed().FindStringSubmatch)
	return t
}

// said is the number that a pattern finds, 0 where it finds none.
func said(text string, find func(string) []string) float64 {
	if at := find(text); at != nil {
		return decimal(at[1])
	}
	return 0
}

// rounding is what a rate is off by at most for its digits: three after the point, or four in all.
func rounding(rate float64) float64 { return max(0.0005, rate*0.0005) }

// fits reports whether a number of steps is the one of which train_steps_per_second is, which counts all
// that were to be made.
func (t *trainerClock) fits(steps float64) bool {
	return t.rate == 0 || math.Abs(steps/t.runtime-t.rate) <= rounding(t.rate)*1.01
}

// bar is that of the training among those of evaluations and of what is prepared: of as many steps as there
// are to be, and the one that ran the longest, of a run without an end one without, too.
func (t *trainerClock) bar(most float64) (bar, bool) {
	other := func(b bar) bool {
		if t.runtime > 0 {
			return !t.fits(b.total)
		}
		return most > 0 && b.total != most
	}
	goes := func(b bar) int {
		if t.runtime <= 0 && b.last().done < b.total && b.last().at >= leastSeconds {
			return 1
		}
		return 0
	}
	all := slices.DeleteFunc(slices.Clone(t.bars), other)
	if len(all) == 0 {
		return bar{}, false
	}
	return slices.MaxFunc(all, func(a, b bar) int {
		return cmp.Or(cmp.Compare(goes(a), goes(b)), cmp.Compare(a.last().at, b.last().at))
	}), true
}

const whatCame = ", with the first and with what came between them"

// step is what all steps took over their number, or else what the printed rates or the progress bar say.
func (t *trainerClock) step(j *Job) (timing, string) {
	most := max(t.most, float64(j.mostSteps), 0)
	b, shown := t.bar(most)
	if t.runtime <= 0 || shown && t.before == 0 && b.jumps() {
		return t.going(b, shown)
	}
	counts := []counted{}
	if shown {
		counts = append(counts, counted{b.last().done, "the progress bar"})
	}
	counts = append(counts, t.end)
	if most > 0 && t.fits(most) {
		counts = append(counts, counted{most, "max_steps"})
	}
	for _, c := range counts {
		if n := c.steps - t.before; n > 0 && c.steps > 0 {
			return timing{seconds: t.runtime / n, how: fmt.Sprintf("mean of all %.0f steps, train_runtime over those of %s%s", n, c.by, whatCame)}, ""
		}
	}
	switch batch := t.sequences(j); {
	case t.before > 0:
		return timing{}, fmt.Sprintf("went on from step %.0f, and its rates count the steps before, too; give a log with its progress bar", t.before)
	case t.samples > 0 && batch > 0 && t.fits(t.samples/batch*t.runtime):
		return timing{seconds: batch / t.samples, how: fmt.Sprintf("mean of all steps by train_samples_per_second %.6g of batches of %.0f%s", t.samples, batch, whatCame)}, ""
	case t.rate > 0:
		return timing{seconds: 1 / t.rate, how: fmt.Sprintf("mean of all steps by train_steps_per_second %.6g, whose rounding is up to %.2g %%%s", t.rate, 100*rounding(t.rate)/t.rate, whatCame)}, ""
	}
	return timing{}, "has train_runtime, but not how many steps took that long; give a log with its progress bar, or max_steps"
}

// going is what steps take of a run that has no end yet, or that went on from a checkpoint.
func (t *trainerClock) going(b bar, shown bool) (timing, string) {
	if !shown {
		return timing{}, "has no line that says what a step took; give a log with the progress bar of a Trainer, or with what it prints in the end (train_runtime)"
	}
	from, to := b.part()
	steps, took := to.done-from.done, to.at-from.at
	if steps < leastSteps || took < leastSeconds {
		why := "has no train_runtime, which a Trainer prints in the end"
		if t.runtime > 0 {
			why = "went on from a checkpoint, so that train_runtime is of fewer steps than are counted"
		}
		return timing{}, fmt.Sprintf("%s, and its progress bar shows %.0f steps in %.0f s after the first ones; give a log with %d steps and %d s or more, as the bar has whole seconds", why, steps, took, leastSteps, leastSeconds)
	}
	return timing{seconds: took / steps, how: fmt.Sprintf("mean of %.0f steps, %.0f to %.0f, by the progress bar's whole seconds, with what came between them", steps, from.done, to.done)}, ""
}

// sequences are those of a step: what the log says, or the job; 0 where neither does.
func (t *trainerClock) sequences(j *Job) float64 {
	if t.batch > 0 {
		return t.batch
	}
	if all := j.count("train.global_batch"); all > 0 {
		return float64(all)
	}
	ranks := float64(j.count("gpus"))
	for _, key := range []string{"plan.tp", "plan.pp", "plan.cp"} {
		ranks /= float64(max(j.count(key), 1))
	}
	return ranks * float64(j.count("train.micro_batch")*j.count("train.grad_accumulation"))
}

// State reports whether a document is the state of a Trainer (transformers/trainer_callback.py,
// TrainerState), which is no configuration though it has keys of one.
func State(d *yamlx.Document) bool { return d.At("log_history") != nil && d.At("global_step") != nil }

// ofState reads the state of a Trainer; false: it is none.
func (j *Job) ofState(name string, text []byte) (bool, error) {
	if !strings.Contains(string(text), `"log_history"`) {
		return false, nil
	}
	d, err := parse(name, text)
	if err != nil || !State(d) {
		return false, nil // which what reads configurations says
	}
	t := &trainerClock{end: counted{decimal(d.At("global_step").Value), "global_step"}}
	for _, entry := range d.At("log_history").Content {
		if v := decimal((config{entry}).text("train_runtime")); v > 0 {
			t.runtime, t.samples, t.rate = v, decimal((config{entry}).text("train_samples_per_second")), decimal((config{entry}).text("train_steps_per_second"))
		}
	}
	if t.runtime == 0 {
		return true, d.Errorf(d.At("log_history"), "log_history: no entry has train_runtime, which a Trainer writes when training ends; give the trainer_state.json of the output folder itself, not that of a checkpoint, or the log with its progress bar")
	}
	j.clock, j.bare = t, true
	return true, nil
}
