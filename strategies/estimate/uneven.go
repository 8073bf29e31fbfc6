package estimate

import (
	"fmt"
	"math"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/strategies"
)

// longestBatch is the work of the data-parallel rank that gets the longest batch over the
// mean of all: sequences' lengths are taken to be log-normal, with the deviation that
// train.length_spread says. A batch is as long as its documents together where sequences are packed
// of them, else as its longest sequence, to which the others are padded. Ranks that meet in
// every micro batch, for shards or experts, wait in each; others by the end of the step, until
// when micro batches even out. It is 1 where all are alike.
func longestBatch(j *strategies.Job) float64 {
	t, ranks := &j.Train, j.Plan.DP
	if t.LengthSpread == 0 || ranks < 2 {
		return 1
	}
	n, spread, many := float64(t.MicroBatch), t.LengthSpread, float64(ranks)
	even := 1.0 // micro batches until ranks wait
	if !inEvery(j) {
		even = float64(t.GradAccumulation)
	}
	switch {
	case t.DocumentLength > 0:
		spread /= math.Sqrt(n * float64(t.SequenceLength) / float64(t.DocumentLength))
	case even == 1: // the longest of all ranks' sequences
		return longest(spread, n*many) / longest(spread, n)
	default:
		_, deviation := largest(n)
		spread = math.Sqrt(math.Expm1(variance(spread) * deviation * deviation))
	}
	return longest(spread/math.Sqrt(even), many)
}

// longestSequence is how long sequences of the longest batch of all ranks are expected to be in so many steps: that of
// the length at which a batch of the mean number of sequences has its tokens.
func longestSequence(j *strategies.Job, steps float64) int64 {
	t := &j.Train
	n, batches, more := float64(t.MicroBatch), float64(j.Plan.DP*t.GradAccumulation)*steps, 0.
	if t.DocumentLength > 0 {
		more = longest(t.LengthSpread/math.Sqrt(n*float64(t.SequenceLength)/float64(t.DocumentLength)), batches)
	} else {
		more = longest(t.LengthSpread, n*batches) / longest(t.LengthSpread, n)
	}
	return int64(math.Ceil(float64(t.SequenceLength) * more))
}

// inEvery reports whether ranks meet in every micro batch.
func inEvery(j *strategies.Job) bool { return j.Plan.DataParallel.ShardsParameters() || j.Plan.EP > 1 }

// longest is the mean of the largest of n log-normal values with a standard deviation of so many means, over their mean.
func longest(spread, n float64) float64 {
	v := variance(spread)
	mean, deviation := largest(n)
	return math.Exp(math.Sqrt(v)*mean + v*(deviation*deviation-1)/2)
}

// variance is that of the logarithm of such values.
func variance(spread float64) float64 { return math.Log1p(spread * spread) }

// largest returns the mean and the standard deviation of the largest of n standard normal values; the
// deviation by the quantiles that lie one from the mean of a normal value, within 5 % to n = 4096.
func largest(n float64) (mean, deviation float64) {
	one := func(sign float64) float64 { return quantile(math.Pow(math.Erfc(-sign/math.Sqrt2)/2, 1/n)) }
	return expectedMaximum(int64(n)), (one(1) - one(-1)) / 2
}

// someSteps is of how many steps the longest batch is told.
const someSteps = 1000

// unevenNote says what waiting for the longest batch takes.
func unevenNote(j *strategies.Job) (diag.Note, bool) {
	more := longestBatch(j) - 1
	if more == 0 {
		return diag.Note{}, false
	}
	what := "sequence, to which the rest of its batch is padded,"
	if j.Train.DocumentLength > 0 {
		what = "documents together"
	}
	when := "step"
	if inEvery(j) {
		when = "micro batch"
	}
	return diag.Note{Code: "train.uneven", Text: fmt.Sprintf("train.length_spread: of %d data-parallel ranks the one with the longest %s is expected to have %.3g %% more tokens than the mean, for which the others wait in every %s; memory is that of the mean, and of %d steps' batches the longest is expected to have sequences of %d tokens", j.Plan.DP, what, 100*more, when, someSteps, longestSequence(j, someSteps)),
		Remedy: "deal sequences to ranks by their lengths, or pack them to one length (leave train.length_spread out); for the memory of the longest set train.sequence_length to its tokens without a spread"}, true
}
