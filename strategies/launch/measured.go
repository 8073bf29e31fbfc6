package launch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// timing is what a step took.
type timing struct {
	seconds float64
	how     string // it comes of the lines of a log
	batch   int64  // the global batch that it is of, where that is not the job's; 0: the job's
}

// clock is what a log has of the time of its steps. What they took may hang on what the job is; where
// the log does not say it, why does.
type clock interface {
	step(j *Job) (t timing, why string)
}

// peaks are the most that a rank has of the GPU's memory, in bytes; 0: the log does not say.
type peaks struct{ allocated, reserved float64 }

// most takes the greater of each.
func (p peaks) most(o peaks) peaks {
	return peaks{max(p.allocated, o.allocated), max(p.reserved, o.reserved)}
}

// listens takes what a log says of its steps and of memory; logged: it lists Megatron-LM's arguments.
func (j *Job) listens(text string, logged bool) {
	if ended := ofTrainer(text); ended != nil && !logged {
		j.clock = ended
	}
	if all := ofIterations(elapsed().FindAllStringSubmatch(text, -1)); len(all) > 0 {
		j.clock = all
	}
	for _, at := range reported().FindAllStringSubmatch(text, -1) {
		j.peaks = j.peaks.most(peaks{decimal(at[1]) * (1 << 20), decimal(at[2]) * (1 << 20)})
	}
}

// hears takes over what another file's log says, where this one has none before it.
func (j *Job) hears(o *Job) {
	if j.clock == nil {
		j.clock = o.clock
	}
	j.peaks, j.mostSteps = j.peaks.most(o.peaks), cmp.Or(j.mostSteps, o.mostSteps)
}

// bareLog leaves nothing of a log but what its steps took, where it does not say what they run.
func (j *Job) bareLog() { *j = Job{source: j.source, clock: j.clock, peaks: j.peaks, bare: true} }

// unstarted is said of logs without what they ran.
func (j *Job) unstarted() error {
	return &diag.Error{File: j.source, Message: "has what steps took, but not what they ran: give the configuration or the command that started them by another --from, as in --from train.sh --from " + j.source}
}

// decimal is a number of a log, which may have commas between thousands; 0: it is none.
func decimal(text string) float64 {
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	return v
}

// median is that of some numbers, of which there is one at least.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// elapsed is a line of an iteration (megatron/training/training.py, training_log), reported one of a
// rank's memory, whose MB are 1024 × 1024 bytes (megatron/training/utils, report_memory).
var (
	elapsed  = lazily(`elapsed time per iteration \(ms\): ([0-9.]+)(?:[^\n]*?global batch size: +(\d+))?`)
	reported = lazily(`memory \(MB\) \|[^\n]*?\| max allocated: ([0-9.]+)[^\n]*?\| max reserved: ([0-9.]+)`)
)

// iterations are lines of what one iteration took, or the mean of several, with the global batch of
// those that say it.
type iterations []struct {
	seconds float64
	batch   int64
}

// ofIterations reads lines with what iterations took in ms, and perhaps the batch.
func ofIterations(lines [][]string) iterations {
	all := make(iterations, 0, len(lines))
	for _, at := range lines {
		if t := decimal(at[1]); t > 0 {
			all = append(all, iterations{{seconds: t / 1e3}}...)
			if len(at) > 2 {
				all[len(all)-1].batch = wholeNumber(at[2])
			}
		}
	}
	return all
}

// of are those of a global batch.
func (all iterations) of(batch int64) (kept iterations) {
	for _, i := range all {
		if i.batch == batch {
			kept = append(kept, i)
		}
	}
	return kept
}

// step is the median of the iterations of the job's batch, which Megatron-LM's --rampup-batch-size
// comes to in the end, or where none has that of the last one's. The first ones compile, fill caches
// and wait for data.
func (all iterations) step(j *Job) (timing, string) {
	own := j.count("train.global_batch")
	t, kept, of, rest := timing{}, all.of(own), "", ""
	if len(kept) == 0 || own == 0 {
		kept = all.of(all[len(all)-1].batch)
	}
	batch, left := kept[0].batch, len(all)-len(kept)
	if batch > 0 && own > 0 && batch != own {
		t.batch, rest = batch, fmt.Sprintf(", as none has the job's %d", own)
	}
	if left > 0 {
		rest = fmt.Sprintf(", without %d of others", left) + rest
	}
	if rest != "" {
		of = fmt.Sprintf(" of global batch %d", batch)
	}
	var times []float64
	for _, i := range kept[len(kept)/3:] {
		times = append(times, i.seconds)
	}
	t.seconds, t.how = median(times), fmt.Sprintf("median of %d iterations%s after the first third%s", len(times), of, rest)
	return t, ""
}

// Runs writes measured runs, one of each log, for perfplan validate and for --runs. Files without
// steps say what the log beside them ran.
func Runs(jobs []*Job) ([]byte, error) {
	logs, beside, err := apartLogs(jobs)
	if err != nil {
		return nil, err
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	ids := map[string]int{}
	for _, log := range logs {
		j, err := Join(append([]*Job{log}, beside...))
		if err != nil {
			return nil, err
		}
		id := stem(log.source)
		if ids[id]++; ids[id] > 1 {
			id = fmt.Sprintf("%s-%d", id, ids[id])
		}
		run, err := j.run(id)
		if err != nil {
			return nil, err
		}
		list.Content = append(list.Content, run)
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	add(root, "perfplan", "runs/v1", "")
	add(root, "source", "logs of training", "")
	root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "runs", HeadComment: Unmeasured}, list)
	return yamlx.Encode(root)
}

// apartLogs parts logs from what is beside them. Of two files of which one is a log without what it
// ran, the other says that, be it a log, too.
func apartLogs(jobs []*Job) (logs, beside []*Job, err error) {
	for _, j := range jobs {
		if j.clock != nil {
			logs = append(logs, j)
		} else {
			beside = append(beside, j)
		}
	}
	if len(logs) == 0 {
		return nil, nil, &diag.Error{File: jobs[0].source, Message: "has no line that says what an iteration took; give logs of Megatron-LM, torchtitan, nanoGPT or a Trainer, or leave --measured out for a job"}
	}
	if len(logs) == 2 && len(jobs) == 2 && logs[0].bare != logs[1].bare {
		if logs[0].bare {
			slices.Reverse(logs)
		}
		return logs[1:], logs[:1], nil
	}
	if len(logs) > 1 && len(beside) > 0 {
		return nil, nil, &diag.Error{File: beside[0].source, Message: fmt.Sprintf("is beside %d logs, and which of them it is of is not said; make a file of runs of each log with what is beside it: perfplan validate and --runs take several", len(logs))}
	}
	return logs, beside, nil
}

// run is a job as a measured run.
func (j *Job) run(id string) (*yaml.Node, error) {
	for _, s := range j.Settings {
		if s.Value == nil {
			return nil, &diag.Error{File: j.source, Message: fmt.Sprintf("%s is not known: %s: %s; a log that begins with its arguments has it", s.Key, s.From, s.Why)}
		}
	}
	t, why := j.clock.step(j)
	if why != "" {
		return nil, &diag.Error{File: j.source, Message: why}
	}
	if i := j.at("train.global_batch"); t.batch > 0 && i >= 0 {
		own := *j
		own.Settings = slices.Clone(j.Settings)
		own.Settings[i].Value, own.Settings[i].From = t.batch, fmt.Sprintf("that of the log's last iterations; %s has %v", j.Settings[i].From, j.Settings[i].Value)
		j = &own
	}
	run := &yaml.Node{Kind: yaml.MappingNode, HeadComment: j.foot()}
	if !j.mentions("gpus") {
		run.HeadComment = strings.TrimPrefix(run.HeadComment+"\ngpus: no file says how many: give the key, or those of one node are taken", "\n")
	}
	add(run, "id", id, "")
	j.sections(run)
	add(run, "measured.step_time", fmt.Sprintf("%.6g s", t.seconds), t.how)
	for _, p := range []struct {
		key   string
		bytes float64
	}{{"peak_allocated", j.peaks.allocated}, {"peak_reserved", j.peaks.reserved}} {
		if p.bytes > 0 {
			add(run, "measured."+p.key, fmt.Sprintf("%.6g GiB", p.bytes/(1<<30)), "the most that a rank in the log has")
		}
	}
	return run, nil
}
