package runs

import (
	"math"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Steps of one software on one machine deviate from their predictions by what they have
// in common and by what is each layout's own, by so much of the variance that is predicted
// of both. Before any run says otherwise the second is withinShare, with the weight of
// withinRuns runs; of the first, runs of one table say little. Medians of the published
// tables with 8 runs and more: 0.29 within, 0.40 in all; what is left for the first does the
// others of a table as well from 0.1 to 0.2 (TestOwnRunsOfTables of cmd/perfplan holds what
// three runs say of them).
const (
	commonShare = 0.15
	withinShare = 0.3
	withinRuns  = 2
)

// Own is what measured runs of one recipe and GPU took against their predictions. The
// more runs there are, and the more alike they are off, the more of that is expected of
// the next one; those predicted more closely count more (the posterior mean and predictive
// deviation of normal logarithms). A run that repeats another one counts once (Copies).
func Own(list []Run, rows []Row) (*strategies.OwnRuns, error) {
	var off, of []float64 // logarithms of measured over predicted, and the variances predicted of them
	var own strategies.OwnRuns
	reason := "none has a measured step_time"
	again := copies(list)
	for i := range rows {
		if _, copied := again[i]; copied {
			continue
		}
		r := &rows[i]
		if r.Status != OK {
			if reason = r.ID + ": " + r.Reason; r.Where != "" {
				reason = r.Where + ": " + reason
			}
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
		known := r.Predicted.Off
		for _, common := range []estimate.Cause{estimate.AssumedFacts, estimate.Unforeseen} { // to runs of one software and machine, which say what it is
			known[common] = estimate.Deviation{}
		}
		d := known.Total()
		off, of = append(off, math.Log(float64(measured/predicted))), append(of, d*d)
	}
	n := float64(len(off))
	if n == 0 {
		return nil, diag.Errorf("no run says how long a step takes against its prediction (%s)", reason)
	}
	var mean, sum, before float64
	for i, x := range off {
		mean, sum, before = mean+x/of[i], sum+1/of[i], before+of[i]/n
	}
	mean /= sum
	within := withinRuns * withinShare
	for i, x := range off {
		within += (x - mean) * (x - mean) / of[i]
	}
	within /= withinRuns + n - 1
	common := commonShare
	if n > 1 {
		// Runs that agree, beyond two deviations of what was expected of them, are of another
		// machine than was predicted, as one whose host is twice as slow: they say by how much.
		common = max(common, mean*mean*sum/n/4-within/n)
	}
	weight := n * common / (n*common + within)
	own.Ratio, own.Runs = math.Exp(weight*mean), int64(n)
	own.Spread = min(max(math.Sqrt((weight/n+1)*within*before), (1-weight)*math.Abs(mean)), 1) // which is not taken over is not ruled out
	if !own.Believable() {
		return nil, diag.Errorf("the runs take %.3g times what is predicted of them, where %s is believed; check the unit of step_time and what their jobs say", own.Ratio, strategies.Believed)
	}
	return &own, nil
}
