package launch

import (
	"fmt"
	"strings"
)

// What a log of torchtitan has, between colours: titanStepped what it says of steps since the line before
// (torchtitan/components/metrics.py, log; wps until 2024-11), of training or of a validation, titanMesh and
// titanDims how many ranks there are (torchtitan/distributed/parallel_dims.py, until 2025-11 and since),
// traced the commands that run_train.sh shows.
var (
	titanStepped = lazily(`(validate )?step: +(\d+)\b[^\n]*?memory: +([0-9.]+)GiB[^\n]*?(?:tps|wps): +([0-9,]+)`)
	titanMesh    = lazily(`Building \d+-D device mesh with [^\n]*?[\[(](\d+(?:, ?\d+)*),?[\])]`)
	titanDims    = lazily(`Building device mesh with parallelism: ([^\n]*)`)
	titanDim     = lazily(`\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d+)`)
	traced       = lazily(`(?m)^\++ (.*)$`)
)

// titanRates are tokens per second, of one GPU, by the lines that have them.
type titanRates []struct {
	step int64
	rate float64
}

// titanLog reads a log of torchtitan: what steps took, how many GPUs there were, and the command that
// run_train.sh shows, where it does; false: it is none.
func (j *Job) titanLog(name, text string) bool {
	var all titanRates
	for _, at := range titanStepped().FindAllStringSubmatch(text, -1) {
		if rate := decimal(at[4]); at[1] == "" && rate > 0 {
			j.peaks.reserved = max(j.peaks.reserved, decimal(at[3])*(1<<30))
			all = append(all, titanRates{{wholeNumber(at[2]), rate}}...)
		}
	}
	if len(all) == 0 {
		return false
	}
	j.clock, j.bare = all, true
	var shown []string
	for _, at := range traced().FindAllStringSubmatch(text, -1) {
		shown = append(shown, at[1])
	}
	if s := starts(strings.Join(shown, "\n")); s[0].titan {
		if j.bare = false; j.started(name, s[0]) != nil {
			j.bareLog()
		}
	}
	if n := titanRanks(text); n > 0 && !j.mentions("gpus") {
		j.set("gpus", n, "device mesh of the log")
	}
	return true
}

// titanRanks is how many GPUs the mesh of a log has, 0 where it has none.
func titanRanks(text string) int64 {
	ranks := int64(1)
	if at := titanMesh().FindStringSubmatch(text); at != nil {
		for n := range strings.SplitSeq(at[1], ",") {
			ranks *= wholeNumber(strings.TrimSpace(n))
		}
		return bounded(ranks)
	}
	at := titanDims().FindStringSubmatch(text)
	if at == nil {
		return 0
	}
	for _, d := range titanDim().FindAllStringSubmatch(at[1], -1) {
		ranks *= wholeNumber(d[1])
	}
	return bounded(ranks)
}

// bounded is a number of GPUs that may be, else 0.
func bounded(n int64) int64 {
	if n < 1 || n > whole["num_processes"][1] {
		return 0
	}
	return n
}

// step is what the tokens of a step take at the median rate. A rate is of one data rank's tokens over the
// ranks that share them: tokens / (seconds * non_data_parallel_size), which is tp * cp * pp. The first
// third is left out, and the first step always: it compiles.
func (all titanRates) step(j *Job) (timing, string) {
	var rates []float64
	for i, r := range all {
		if i >= len(all)/3 && r.step > 1 {
			rates = append(rates, r.rate)
		}
	}
	if len(rates) == 0 {
		return timing{}, "has no step but the first, which compiles and waits for data; give a log of more steps, as metrics.log_freq has them"
	}
	length, gpus := j.count("train.sequence_length"), j.count("gpus")
	of, why := float64(length*j.count("train.global_batch")), ""
	ranks := max(j.count("plan.tp"), 1) * max(j.count("plan.pp"), 1) * max(j.count("plan.cp"), 1)
	switch {
	case gpus <= 0:
		why = "gpus is not known: neither the log's device mesh nor a degree says it; give the command that started it by another --from, as in NGPU=8 CONFIG_FILE=tt.toml ./run_train.sh"
	case of > 0:
		of /= float64(gpus)
	default:
		of = float64(length*j.count("train.micro_batch")*j.count("train.grad_accumulation")) / float64(ranks)
	}
	if why == "" && of <= 0 {
		why = "what a step trains on is not known; give the configuration by another --from"
	}
	if why != "" {
		return timing{}, why
	}
	rate := median(rates)
	return timing{seconds: of / rate, how: fmt.Sprintf("%.6g tokens of a GPU and step over tps %.6g, the median of %d lines after the first third", of, rate, len(rates))}, ""
}
