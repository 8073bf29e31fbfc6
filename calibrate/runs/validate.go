package runs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/parallel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// Status is what became of a run.
type Status string

const (
	OK          Status = "ok"
	Unsupported Status = "unsupported" // a rule refuses the job
	Failed      Status = "error"       // the estimate failed, which is a mistake of this program
)

// Row is one run, predicted and measured.
type Row struct {
	ID        string             `json:"id"`
	Group     string             `json:"group"`
	Name      string             `json:"name,omitempty"`
	Predicted Prediction         `json:"predicted"` // of a run that is OK
	Measured  Figures            `json:"measured"`
	Errors    map[string]float64 `json:"error"`                 // (predicted − measured) / measured, by quantity
	Stages    []float64          `json:"stage_error,omitempty"` // the same of peak_allocated_per_stage
	InRange   *bool              `json:"in_range,omitempty"`    // the measured step lies within the predicted range
	Status    Status             `json:"status"`
	Reason    string             `json:"reason"`                   // why it is not predicted, or that it has nothing to compare
	Where     string             `json:"where,omitempty"`          // file:line:column of that
	Assumed   int                `json:"assumed,omitempty"`        // facts that its source does not state
	Left      []string           `json:"left_to_recipe,omitempty"` // of these, what its recipe decides

	complaints diag.List // what Reason sums up
}

// Prediction is the predicted figures with the range of the step time.
type Prediction struct {
	Figures
	Low, High units.Seconds       // 80 % range of the step time; zero when not known
	Off       estimate.Deviations // what it comes from
	Parts     estimate.Parts      // of the step of the slowest rank
}

// Report is the outcome of Validate.
type Report struct {
	Rows    []Row
	Summary []Group             // by name; the last is of all runs
	Stated  []Group             // by how many facts their sources leave open: none, one, more; none when all alike
	Overall map[string]Stats    // over groups, which weigh alike: n is their number
	Choices []Choice            // where asked for
	Parts   []Part              // likewise
	Own     *strategies.OwnRuns // of a user's own runs, of one recipe and GPU
}

// Validate estimates every run and compares. Runs are estimated in parallel and
// reported in their order. What each stage of a pipeline allocates, which takes as long as
// all else, is predicted where it was measured.
func Validate(list []Run) *Report {
	return report(list, func(r Run) Row {
		return validate(&r, predictor(estimate.Options{Fullest: len(r.Measured.PerStage) == 0}))
	})
}

// Complete is Validate with what each stage of every pipeline allocates.
func Complete(list []Run) *Report {
	return report(list, func(r Run) Row { return validate(&r, predictor(estimate.Options{})) })
}

// report sums up the rows of runs.
func report(list []Run, row func(Run) Row) *Report {
	rep := &Report{Rows: parallel.Map(list, row)}
	rep.Summary = summarize(rep.Rows)
	rep.Stated = byAssumed(rep.Rows)
	rep.Overall = Overall(rep.Summary)
	return rep
}

// Refusal is why not a single run was predicted; nil when one was. It is a complaint
// about the input unless an estimate failed.
func (r *Report) Refusal() error {
	var list diag.List
	failed := false
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Status == OK {
			return nil
		}
		failed = failed || row.Status == Failed
		for _, c := range row.complaints {
			named := *c
			named.Message = "run " + row.ID + ": " + c.Message
			list = append(list, &named)
		}
	}
	if len(list) == 0 {
		return nil
	}
	list = append(list, &diag.Error{Message: "not one run can be predicted:"})
	if err := list.Err(); !failed {
		return err
	}
	return errors.New(list.Err().Error())
}

// Filter returns the runs of the named groups; all of them when none is named. A
// name that no run has is an error.
func Filter(list []Run, groups []string) ([]Run, error) {
	if len(groups) == 0 {
		return list, nil
	}
	var known []string
	for _, r := range list {
		if !slices.Contains(known, r.Group) {
			known = append(known, r.Group)
		}
	}
	if err := allAmong(groups, known); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(list), func(r Run) bool { return !slices.Contains(groups, r.Group) }), nil
}

// allAmong is an error that names the first group that is not known, and one like it.
func allAmong(groups, known []string) error {
	for _, g := range groups {
		if !slices.Contains(known, g) {
			return diag.Errorf("there is no group %q%s", g, cmp.Or(diag.DidYouMean(g, known), "; perfplan validate prints the groups that there are"))
		}
	}
	return nil
}

// validate predicts one run and compares.
func validate(r *Run, predict estimator) Row {
	row := Row{ID: r.ID, Group: r.Group, Name: r.Name, Measured: r.Measured, Errors: map[string]float64{}, Assumed: len(r.Assumed), Left: r.Left}
	err := r.Err
	var result *estimate.Result
	if err == nil {
		result, err = predict(r.Job)
	}
	if err != nil {
		row.complain(r.complaints(err))
		if row.Status = Failed; diag.IsInput(err) {
			row.Status = Unsupported
		}
		return row
	}
	row.Status = OK
	row.Predicted = Prediction{Figures: figuresOf(result), Low: result.Low, High: result.High, Off: result.Off, Parts: result.Parts}
	row.Errors, row.Stages = errorsOf(&row.Predicted.Figures, &r.Measured)
	if t := r.Measured.StepTime; result.Low > 0 && result.High > 0 && t > 0 {
		in := result.Low <= t && t <= result.High
		row.InRange = &in
	}
	if len(row.Errors) == 0 {
		row.complain(r.complaints(diag.Errorf("%s", r.Measured.incomparable())))
	}
	return row
}

// complain sums up complaints about the run.
func (row *Row) complain(list diag.List) {
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = c.Message
	}
	row.Reason, row.Where, row.complaints = strings.Join(parts, "; "), list[0].Place(), list
}

// estimator estimates one job.
type estimator func(*strategies.Job) (*estimate.Result, error)

// predictor is the estimator with options, guarded.
func predictor(o estimate.Options) estimator {
	return func(j *strategies.Job) (*estimate.Result, error) {
		return guard(j, func(j *strategies.Job) (*estimate.Result, error) { return estimate.Estimate(j, o) })
	}
}

// guard turns a panic and a nonsensical time into errors: they are mistakes of this
// program, but one run must not take the others down.
func guard(j *strategies.Job, f estimator) (result *estimate.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, fmt.Errorf("internal error: %v", p)
		}
	}()
	if result, err = f(j); err != nil {
		return nil, err
	}
	if t := float64(result.StepTime); !(t > 0) || math.IsInf(t, 0) {
		return nil, fmt.Errorf("internal error: predicted a step time of %v s", t)
	}
	return result, nil
}

// complaints are the parts of an error, each at its place in the file of the run: where
// the run stands if it has none, or one in another file, which the text then names.
func (r *Run) complaints(err error) diag.List {
	var list diag.List
	var one *diag.Error
	switch {
	case errors.As(err, &list):
	case errors.As(err, &one):
		list = diag.List{one}
	default:
		list = diag.List{{Message: err.Error()}}
	}
	if r.doc == nil {
		return list
	}
	out := make(diag.List, len(list))
	for i, c := range list {
		if out[i] = c; c.File == r.doc.Name && c.Line > 0 {
			continue
		}
		message := c.Message
		if place := c.Place(); place != "" && c.File != r.doc.Name {
			message = place + ": " + message
		}
		out[i] = r.doc.Errorf(r.id, "%s", message)
	}
	return out
}
