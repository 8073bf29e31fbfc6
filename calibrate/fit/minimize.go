package fit

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"
	"gonum.org/v1/gonum/stat"

	"github.com/perfplan/perfplan/hardware"
)

// usual is the size of an error, as a logarithm, up to which it counts
// quadratically, beyond only linearly, so that outliers pull little.
const usual = 0.05

// robust is Huber's loss of an error.
func robust(e float64) float64 {
	a := math.Abs(e) / usual
	if a <= 1 {
		return a * a
	}
	return 2*a - 1
}

// refine finds the factors on n positive constants that make the errors least. Each
// factor weighs as one error of its own size, so constants that nothing measures stay.
func refine(n int, errors func(factors []float64) []float64) []float64 {
	factors := func(x []float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = math.Exp(min(max(x[i], -5), 5))
		}
		return out
	}
	loss := func(x []float64) float64 {
		var sum float64
		for _, e := range errors(factors(x)) {
			if math.IsNaN(e) || math.IsInf(e, 0) {
				return 1e12
			}
			sum += robust(e)
		}
		for _, v := range x {
			sum += v * v
		}
		return sum
	}
	best := make([]float64, n)
	least := loss(best)
	for range 3 { // a simplex that has collapsed is opened again
		settings := &optimize.Settings{FuncEvaluations: 400 * n, Converger: &optimize.FunctionConverge{Relative: 1e-7, Iterations: 40 * n}}
		r, err := optimize.Minimize(optimize.Problem{Func: loss}, best, settings, &optimize.NelderMead{SimplexSize: 0.1})
		if r == nil || err != nil || !(r.F < least*(1-1e-6)) {
			break
		}
		best, least = slices.Clone(r.X), r.F
	}
	return factors(best)
}

// quantile is a sample quantile; 0 of nothing.
func quantile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return stat.Quantile(p, stat.LinInterp, sorted, nil)
}

// median is the middle value, or the mean of the two in the middle; 0 of nothing.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// surest is the least deviation that a law may claim: one configuration measured on
// two days differs by as much (0.2 to 1.2 %, H200).
const surest = 0.01

// holding is the relative standard deviation whose 80 % range (hardware.Eighty of
// them either way) holds 80 % of the errors.
func holding(errors []float64) float64 {
	abs := make([]float64, len(errors))
	for i, e := range errors {
		abs[i] = math.Abs(e)
	}
	return quantile(abs, 0.8) / hardware.Eighty
}

// deviation is holding, but never surer than a repetition is.
func deviation(errors []float64) float64 { return max(holding(errors), surest) }
