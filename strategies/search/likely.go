package search

import "github.com/perfplan/perfplan/strategies/estimate"

// robust is how many plans beyond those asked for compete for being the best.
const robust = 10

// likely sets the probability of each plan to be the best of all.
func likely(plans []Ranked, o Objective) {
	if o == Memory || o == Energy { // no range is known
		return
	}
	values, off := make([]float64, len(plans)), make([]*estimate.Deviations, len(plans))
	for i := range plans {
		values[i], off[i] = plans[i].Value, &plans[i].Result.Off
	}
	for i, p := range estimate.Chances(values, off) {
		plans[i].Best = p
	}
}
