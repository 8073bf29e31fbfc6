package strategies

import (
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// Rule is the key whose rule an error of Complete, Check or SetPlan says is
// broken, such as plan.tp; "plan" for what concerns several.
func Rule(err error) string {
	var text string
	switch e := err.(type) {
	case *diag.Error: // of most of a search's nobody reads the rest
		text = e.Message
	default:
		text = err.Error()
	}
	key, _, ok := strings.Cut(text, ":")
	if !ok {
		return "plan"
	}
	return key
}

// With returns the job with a plan to be set under another precision, micro batch
// and recomputation. An empty precision, a micro batch of 0 and a recomputation
// without a kind leave what the job gives.
func (j *Job) With(precision string, microBatch int64, r Recomputation) (*Job, error) {
	next := *j
	if precision != "" && precision != j.Train.Precision {
		next.Train.Precision, next.Defaulted = precision, nil
		if err := next.resolveTrain(); err != nil {
			return nil, err
		}
		next.Defaulted = j.Defaulted // what a choice leaves open, the job does too
		next.Given.Precision = precision
	}
	if microBatch > 0 {
		next.Given.MicroBatch = microBatch
	}
	if r.Kind != "" {
		next.Given.Recompute, next.Given.RecomputeModules = r.Kind, r.Modules
	}
	return &next, nil
}

// Schedules are the pipeline schedules that the framework of a job runs; more than
// one virtual stage per rank is said by virtual.
func (j *Job) Schedules(virtual int64) []string {
	switch {
	case !j.Recipe.Structure.TorchPipeline && virtual > 1:
		return []string{"interleaved-1f1b"}
	case !j.Recipe.Structure.TorchPipeline:
		return []string{"1f1b"}
	case virtual == 1:
		return []string{"1f1b", "gpipe"}
	case virtual == 2:
		return []string{"interleaved-1f1b", "interleaved-zero-bubble", "zb-v", "dualpipe-v"}
	}
	return []string{"interleaved-1f1b", "interleaved-zero-bubble"}
}
