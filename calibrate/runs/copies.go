package runs

import (
	"fmt"
	"reflect"
	"strings"
)

// copies are the runs of which another one before them is the same: the same job with the
// same measurements, as of a log that was copied. They say nothing that it has not said. By
// the place of each, the place of the first.
func copies(list []Run) map[int]int {
	of := map[int]int{}
	for i := range list {
		for k := range i {
			if _, copied := of[k]; !copied && list[i].same(&list[k]) {
				of[i] = k
				break
			}
		}
	}
	return of
}

// same reports whether two runs have the same job and the same measurements.
func (r *Run) same(s *Run) bool {
	if r.Job == nil || s.Job == nil || r.Measured.StepTime != s.Measured.StepTime || !reflect.DeepEqual(r.Measured, s.Measured) {
		return false
	}
	a, b := r.Job, s.Job
	return a.GPUs == b.GPUs && reflect.DeepEqual(a.Plan, b.Plan) && reflect.DeepEqual(a.Train, b.Train) && reflect.DeepEqual(a.Runtime, b.Runtime) &&
		reflect.DeepEqual(a.Model, b.Model) && reflect.DeepEqual(a.Hardware, b.Hardware)
}

// Copies says which of the runs Own counts once, a sentence for each that has copies.
func Copies(list []Run) []string {
	of, ids := copies(list), map[int][]string{}
	for i := range list {
		if k, copied := of[i]; copied {
			ids[k] = append(ids[k], list[i].ID)
		}
	}
	var out []string
	for k := range list {
		switch l := ids[k]; len(l) {
		case 0:
		case 1:
			out = append(out, fmt.Sprintf("run %s has the job and the measurements of run %s: for --runs they count once", l[0], list[k].ID))
		default:
			out = append(out, fmt.Sprintf("runs %s have the job and the measurements of run %s: for --runs they count once", strings.Join(l, ", "), list[k].ID))
		}
	}
	return out
}
