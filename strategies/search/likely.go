package search

import "github.com/perfplan/perfplan/strategies/estimate"

// rivals is how many plans at least compete for being the best, however few are asked for.
const rivals = 20

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
