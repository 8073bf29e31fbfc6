package search

import (
	"math"

	"github.com/perfplan/perfplan/hardware"
)

// robust is how many plans beyond those asked for compete for being the best.
const robust = 10

// common is the share of the variance of two predictions' errors that they have in
// common, assumed to be half: plans of one job run the same kernels on the same
// machine under the same laws, and differ in what they communicate, overlap and
// wait for. What is common moves all of them alike and changes no order.
const common = 0.5

// likely sets the probability of each plan to be the best of all: predictions are
// log-normal with their ranges as the middle 80 %, and what they do not have in
// common is independent. The probability that i is least is the integral over x of
// its density times the chance that all others exceed x.
func likely(plans []Ranked, o Objective) {
	if o == Memory || o == Energy { // no range is known
		return
	}
	mean, dev := make([]float64, len(plans)), make([]float64, len(plans))
	for i := range plans {
		r := plans[i].Result
		mean[i] = math.Log(plans[i].Value)
		if r.High > r.Low && r.Low > 0 {
			dev[i] = hardware.Deviation(r.Low, r.High) * math.Sqrt(1-common)
		}
		dev[i] = max(dev[i], 1e-6)
	}
	const reach, steps = 6.0, 600 // in standard deviations; Simpson's rule needs an even number
	sum := 0.0
	for i := range plans {
		p := 0.0
		for k := range steps + 1 {
			z := -reach + 2*reach*float64(k)/steps
			x := mean[i] + z*dev[i]
			f := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
			for j := range plans {
				if j != i {
					f *= 0.5 * math.Erfc((x-mean[j])/dev[j]/math.Sqrt2)
				}
			}
			w := 2.0
			switch {
			case k == 0 || k == steps:
				w = 1
			case k%2 == 1:
				w = 4
			}
			p += w * f
		}
		plans[i].Best = p * 2 * reach / steps / 3
		sum += plans[i].Best
	}
	for i := range plans { // what the rule leaves out
		plans[i].Best /= sum
	}
}
