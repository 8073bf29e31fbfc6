package strategies

import (
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
)

// OwnRuns says how long measured runs of the user's own software took against their
// predictions. Another job of that recipe and GPU is taken to be off alike: all its times
// are Ratio times what the laws give. Package calibrate/runs makes it of a file of runs.
type OwnRuns struct {
	Ratio  float64 `yaml:"ratio" json:"ratio"`   // measured over predicted step time, as expected of the next run
	Spread float64 `yaml:"spread" json:"spread"` // relative standard deviation of the next run from that
	Runs   int64   `yaml:"runs" json:"runs"`
	Recipe string  `yaml:"recipe" json:"recipe"` // what they ran
	GPU    string  `yaml:"gpu" json:"gpu"`       // and on what
}

// Believable reports whether software and machines explain the ratio, and Believed says
// which they do: beyond it a job or a unit is wrong.
func (o *OwnRuns) Believable() bool { return o.Ratio >= 0.1 && o.Ratio <= 10 }

const Believed = "0.1 to 10"

// left are the keys that were left out, though one alone says nothing.
func (o *OwnRuns) left() []string {
	var out []string
	for _, x := range []struct {
		key   string
		given bool
	}{{"ratio", o.Ratio != 0}, {"spread", o.Spread != 0}, {"runs", o.Runs != 0}, {"recipe", o.Recipe != ""}, {"gpu", o.GPU != ""}} {
		if !x.given {
			out = append(out, x.key)
		}
	}
	return out
}

// check refuses what cannot be carried over to the job.
func (o *OwnRuns) check(j *Job) error {
	switch gpu := gpuName(j.Hardware); {
	case o == nil:
		return nil
	case len(o.left()) > 0:
		return diag.Errorf("runtime.own_runs: is given without %s; give all of what perfplan validate FILE prints of a file of runs, or use --runs FILE", strings.Join(o.left(), ", "))
	case !o.Believable():
		return diag.Errorf("runtime.own_runs: ratio %g; give measured over predicted step time, %s", o.Ratio, Believed)
	case !(o.Spread > 0 && o.Spread <= 1):
		return diag.Errorf("runtime.own_runs: spread %g; give a standard deviation as a share, as in 0.07", o.Spread)
	case o.Runs < 1:
		return diag.Errorf("runtime.own_runs: runs %d; give the number of measured runs, 1 or more", o.Runs)
	case o.Recipe != j.Runtime.Recipe:
		return diag.Errorf("runtime.own_runs: the runs are of recipe %q, but the job runs %s; measure that, or leave the runs out", o.Recipe, j.Runtime.Recipe)
	case o.GPU != gpu:
		return diag.Errorf("runtime.own_runs: the runs are of %q, but the job runs on %s; measure there, or leave the runs out", o.GPU, gpu)
	}
	return nil
}
