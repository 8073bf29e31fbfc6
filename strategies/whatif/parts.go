package whatif

import (
	"math"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/strategies/estimate"
)

// Term is one named part of a whole.
type Term struct {
	Key   string // as in the JSON of a result
	Value float64
}

// TimeTerms are the parts of a step in seconds; they add up to it.
func TimeTerms(r *estimate.Result) []Term {
	p := &r.Parts
	exposed := map[string]float64{}
	for g, t := range r.Exposed {
		exposed[g] = float64(t)
	}
	return SplitExposed([]Term{{"gemm", float64(p.GEMM)}, {"attention", float64(p.Attention)}, {"memory_bound", float64(p.Memory)}, {"gaps", float64(p.Gaps)},
		{"contention", float64(p.Contention)}, {exposedKey, float64(p.Exposed)}, {"host", float64(p.Host)}, {"host_update", float64(p.Update)}, {"bubble", float64(p.Bubble)}}, exposed)
}

const exposedKey = "exposed_comm"

// SplitExposed replaces the term of exposed communication by one per group, in the
// order of their names, and one for what no group accounts for.
func SplitExposed(terms []Term, groups map[string]float64) []Term {
	at := slices.IndexFunc(terms, func(t Term) bool { return t.Key == exposedKey })
	if at < 0 {
		return terms
	}
	rest := terms[at].Value
	var split []Term
	for g, t := range groups {
		split = append(split, Term{exposedKey + "." + g, t})
	}
	slices.SortFunc(split, func(a, b Term) int { return strings.Compare(a.Key, b.Key) })
	for _, t := range split {
		rest -= t.Value
	}
	if math.Abs(rest) > 1e-9*math.Abs(terms[at].Value) {
		split = append(split, Term{exposedKey, rest})
	}
	return slices.Concat(terms[:at], split, terms[at+1:])
}

// value returns the value of a term, 0 when there is none.
func value(terms []Term, key string) float64 {
	for _, t := range terms {
		if t.Key == key {
			return t.Value
		}
	}
	return 0
}
