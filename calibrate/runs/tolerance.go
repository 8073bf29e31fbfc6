package runs

import (
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// Tolerance is the largest mean |error| of a quantity that a group may have, as a
// fraction.
type Tolerance struct {
	Quantity string
	Limit    float64
}

// ParseTolerances reads "5%" (of step_time) or "step_time=5%,peak_allocated=2%".
func ParseTolerances(text string) ([]Tolerance, error) {
	var out []Tolerance
	for part := range strings.SplitSeq(text, ",") {
		name, limit, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			name, limit = "step_time", name
		}
		name = strings.TrimSpace(name)
		if !slices.Contains(QuantityNames(), name) {
			return nil, diag.Errorf("%q is not a quantity%s", name, diag.DidYouMean(name, QuantityNames()))
		}
		v, err := units.ParsePercent(limit)
		if err != nil || v < 0 {
			return nil, diag.Errorf("%q is not a share of 0 or more, with a %% sign from 1 on; write it as in 5%% or step_time=5%%,peak_allocated=2%%", part)
		}
		out = append(out, Tolerance{name, v})
	}
	return out, nil
}

// Breach is a group whose mean |error| exceeds a tolerance.
type Breach struct {
	Group string
	Tolerance
	MeanAbs float64
}

// Exceeds lists where the report breaks the tolerances, group by group.
func (r *Report) Exceeds(limits []Tolerance) []Breach {
	var out []Breach
	for _, g := range r.Summary {
		for _, t := range limits {
			if s, ok := g.Stats[t.Quantity]; ok && s.MeanAbs > t.Limit {
				out = append(out, Breach{g.Name, t, s.MeanAbs})
			}
		}
	}
	return out
}

// Compared is the number of runs of which the quantity could be compared.
func (r *Report) Compared(quantity string) int {
	if len(r.Summary) == 0 {
		return 0
	}
	return r.Summary[len(r.Summary)-1].Stats[quantity].N
}
