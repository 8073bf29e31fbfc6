package runs

import (
	"math"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies"
)

// Steps of one software on one machine deviate from their predictions by what they have
// in common and by what is each layout's own. Before any run says so, the second is this
// share of the variance that is predicted of both, with the weight of withinRuns runs: the
// median of the published tables with 8 runs and more has a quarter (TestOwnRunsOfTables of
// cmd/perfplan holds what three runs then say of the others of their table).
const (
	withinShare = 1. / 4
	withinRuns  = 2
)

// Own is what measured runs of one recipe and GPU took against their predictions. The
// more runs there are, and the more alike they are off, the more of that is expected of
// the next one; what their predicted ranges allow for beyond each layout's own is the weight
// of expecting none (the posterior mean and predictive deviation of normal logarithms).
func Own(list []Run, rows []Row) (*strategies.OwnRuns, error) {
	var off []float64 // logarithms of measured over predicted
	var before float64
	var own strategies.OwnRuns
	reason := "none has a measured step_time"
	for i := range rows {
		r := &rows[i]
		if r.Status != OK {
			reason = r.ID + ": " + r.Reason
			continue
		}
		measured, predicted := r.Measured.StepTime, r.Predicted.StepTime
		if measured <= 0 {
			continue
		}
		j := list[i].Job
		recipe, gpu := j.Runtime.Recipe, j.GPU()
		if len(off) == 0 {
			own.Recipe, own.GPU = recipe, gpu
		}
		if recipe != own.Recipe || gpu != own.GPU {
			return nil, diag.Errorf("run %s is of %s on %s, others of %s on %s; give runs of one recipe and one kind of GPU", r.ID, recipe, gpu, own.Recipe, own.GPU)
		}
		d := hardware.Deviation(r.Predicted.Low, r.Predicted.High)
		off, before = append(off, math.Log(float64(measured/predicted))), before+d*d
	}
	n := float64(len(off))
	if n == 0 {
		return nil, diag.Errorf("no run says how long a step takes against its prediction (%s)", reason)
	}
	before /= n
	mean, within := 0.0, withinRuns*withinShare*before
	for _, x := range off {
		mean += x / n
	}
	for _, x := range off {
		within += (x - mean) * (x - mean)
	}
	within /= withinRuns + n - 1
	common := max(before-within, 0)
	weight := n * common / (n*common + within)
	own.Ratio, own.Runs = math.Exp(weight*mean), int64(n)
	own.Spread = math.Sqrt(weight*within/n + within)
	return &own, nil
}
