package estimate

import (
	"math"
	"sync"
)

// ownShare is the part of the variance of a cause that is each plan's own, where plans
// of one job are compared, and apart where it is all one for them. A host is as
// fast and a network as loaded for one plan as for the next, and what nobody foresaw of a job, or
// what is only assumed of it, is so for all its plans. Of the rest three tenths differ from plan to
// plan: of 360 measured jobs with two layouts and more, those predicted to be the fastest are then
// said to be so with 79 % on average, and 80 % were (TestChances of cmd/perfplan holds it). What
// runs of one's own say finds as much (calibrate/runs, withinShare).
const ownShare = 0.3

// own is the part of a cause's variance that is each plan's own.
func (c Cause) own() float64 {
	if c == HostSpeed || c == NetworkSpeed || c == Unforeseen || c == AssumedFacts {
		return 0
	}
	return ownShare
}

// gumbel is the scale of a Gumbel distribution with a standard deviation of one.
const gumbel = 0.7797 // √6/π

// Chances are the probabilities of several predictions of one job to be the least.
// What the causes of their deviations have in common is drawn once for all, so that two
// plans that wait for the host keep their order however fast that is; a plan that a slow
// host would delay gains by a fast one what it waits for and no more. Of what is left
// to each plan logarithms follow a Gumbel distribution, for which the chances have a
// closed form, with one scale for all plans.
func Chances(times []float64, off []*Deviations) []float64 {
	out := make([]float64, len(times))
	if len(times) == 0 {
		return out
	}
	own := 0.0
	var differ []Cause // what all have alike moves none before another
	for c := range NumCauses {
		same := true
		for _, d := range off {
			own += c.own() * d[c].Share * d[c].Share / float64(len(off))
			same = same && d[c] == off[0][c]
		}
		if !same {
			differ = append(differ, c)
		}
	}
	scale := max(gumbel*math.Sqrt(own), 1e-6)
	type effect struct{ dev, least float64 } // of a cause on a plan's logarithm
	effects := make([]effect, len(off)*len(differ))
	for i, d := range off {
		for k, c := range differ {
			effects[i*len(differ)+k] = effect{d[c].Share * math.Sqrt(1-c.own()), math.Log1p(-min(d[c].Spare, 1))}
		}
	}
	logs := make([]float64, len(times))
	for i, t := range times {
		logs[i] = math.Log(t)
	}
	now := make([]float64, len(times))
	for _, z := range draws() {
		least := math.Inf(1)
		for i := range now {
			x := logs[i]
			for k, e := range effects[i*len(differ) : (i+1)*len(differ)] {
				x += max(e.dev*z[differ[k]], e.least)
			}
			now[i], least = x, min(least, x)
		}
		sum := 0.0
		for i, x := range now {
			now[i] = math.Exp((least - x) / scale)
			sum += now[i]
		}
		for i, x := range now {
			out[i] += x / sum / numDraws
		}
	}
	return out
}

// numDraws is how many states of what plans have in common are looked at. Chances are then
// within 0.01 of what many more would give.
const numDraws = 1024

// draws are points of a standard normal distribution, evenly spread: the additive
// recurrence with the powers of the root of x^(n+1) = x + 1 (M. Roberts, The unreasonable
// effectiveness of quasirandom sequences, 2018), the same in each run.
var draws = sync.OnceValue(func() [][NumCauses]float64 {
	root := 2.0
	for range 64 {
		root = math.Pow(1+root, 1/float64(NumCauses+1))
	}
	out := make([][NumCauses]float64, numDraws)
	for i := range out {
		for c := range NumCauses {
			_, u := math.Modf(0.5 + float64(i+1)*math.Pow(root, -float64(c+1)))
			out[i][c] = math.Sqrt2 * math.Erfinv(2*u-1)
		}
	}
	return out
})
