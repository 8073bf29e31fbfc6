package probe

import (
	"math"
	"slices"
)

// Median returns the median of sorted values and its 95 % confidence interval, the
// order statistics whose binomial tails are below 2.5 % each; of fewer than six
// values it is their whole range. It returns zeros for none.
func Median(sorted []float64) (median, low, high float64) {
	n := len(sorted)
	if n == 0 {
		return 0, 0, 0
	}
	median = (sorted[(n-1)/2] + sorted[n/2]) / 2
	// The largest k with P(Binomial(n, 1/2) < k) ≤ 2.5 %.
	k, tail := 0, 0.0
	for k < n/2 {
		lg, _ := math.Lgamma(float64(n + 1))
		lk, _ := math.Lgamma(float64(k + 1))
		lr, _ := math.Lgamma(float64(n - k + 1))
		tail += math.Exp(lg - lk - lr - float64(n)*math.Ln2)
		if tail > 0.025 {
			break
		}
		k++
	}
	k = max(k, 1)
	return median, sorted[k-1], sorted[n-k]
}

// Outliers counts values farther from the median than three times the scaled median
// deviation, and than 2 %, below which no clock of a GPU tells anything.
func Outliers(sorted []float64) int {
	if len(sorted) == 0 {
		return 0
	}
	median, _, _ := Median(sorted)
	dev := make([]float64, len(sorted))
	for i, v := range sorted {
		dev[i] = math.Abs(v - median)
	}
	spread := slices.Clone(dev)
	slices.Sort(spread)
	mad, _, _ := Median(spread)
	n := 0
	for _, d := range dev {
		if d > max(3*1.4826*mad, 0.02*median) {
			n++
		}
	}
	return n
}
