package estimate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLongestBatch: the longest batch over the mean, as drawing lengths gives it.
func TestLongestBatch(t *testing.T) {
	const spread, steps = 0.5, 4000
	for _, c := range []struct {
		ranks, batch, accumulation int64
		parallel                   string
		packed                     bool
	}{
		{1, 4, 1, "ddp", false}, {2, 1, 1, "ddp", false}, {8, 1, 1, "ddp", false}, {8, 4, 1, "ddp", false}, {64, 8, 1, "ddp", false},
		{8, 4, 1, "fsdp2", true}, {8, 4, 4, "fsdp2", true}, {8, 4, 4, "ddp", true}, {64, 2, 8, "zero1", false},
	} {
		settings, documents := fmt.Sprintf("sequence_length: 512, micro_batch: %d", c.batch), int64(1)
		if c.packed {
			settings, documents = fmt.Sprintf("sequence_length: %d, document_length: 512, micro_batch: 1", 512*c.batch), c.batch
		}
		j := mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h100-sxm, gpus: %d, runtime: {recipe: hf-eager, attention: flash-attn}, plan: {data_parallel: %s}, train: {%s, grad_accumulation: %d, length_spread: %g}}",
			c.ranks, c.parallel, settings, c.accumulation, spread))
		random, s := rand.New(rand.NewPCG(1, 2)), math.Sqrt(variance(spread))
		batch := func() (tokens float64) {
			for range c.batch {
				if x := math.Exp(s * random.NormFloat64()); documents > 1 {
					tokens += x
				} else {
					tokens = max(tokens, x)
				}
			}
			return tokens
		}
		meet := 1 // micro batches until ranks wait for each other
		if !j.Plan.DataParallel.ShardsParameters() {
			meet = int(c.accumulation)
		}
		var all, longest float64
		for range steps {
			most := 0.0
			for range c.ranks {
				mine := 0.0
				for range meet {
					mine += batch()
				}
				all, most = all+mine/float64(c.ranks), max(most, mine)
			}
			longest += most
		}
		require.InEpsilon(t, longest/all, longestBatch(j), 0.05, "%+v", c)
		sum, once := 0.0, 40 // the longest of some steps' batches, over the mean batch
		for range 50 {
			most := 0.0
			for range once * int(c.ranks*c.accumulation) {
				most = max(most, batch())
			}
			sum += most / 50
		}
		mean := all / steps / float64(meet)
		require.InEpsilon(t, sum/mean, float64(longestSequence(j, float64(once)))/float64(j.Train.SequenceLength), 0.1, "%+v", c)
		_, noted := unevenNote(j)
		require.Equal(t, c.ranks > 1, noted, "%+v", c)
	}
}

// TestUnevenStep: a step of uneven batches takes longer, its update does not.
func TestUnevenStep(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: ddp}, train: {sequence_length: 2048, micro_batch: 4, grad_accumulation: 1, length_spread: %g}}"
	even, uneven := predicted(t, fmt.Sprintf(job, 0.0)), predicted(t, fmt.Sprintf(job, 0.5))
	require.InEpsilon(t, longestBatch(uneven.Job), float64(uneven.Forward/even.Forward), 0.02)
	require.InEpsilon(t, float64(even.Optimizer), float64(uneven.Optimizer), 0.02)
	require.Equal(t, even.Memory.PeakAllocated, uneven.Memory.PeakAllocated)
}

// TestLargest: the mean and the deviation of the largest of n standard normal values, by integrals of its density.
func TestLargest(t *testing.T) {
	for _, n := range []float64{2, 4, 8, 64, 1000, 4096} {
		const dx = 1e-3
		var mean, square float64
		for x := -8.0; x < 8; x += dx {
			p := n * math.Pow(math.Erfc(-x/math.Sqrt2)/2, n-1) * math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) * dx
			mean, square = mean+x*p, square+x*x*p
		}
		gotMean, gotDeviation := largest(n)
		require.InEpsilon(t, mean, gotMean, 0.05, n)
		if n >= 4 {
			require.InEpsilon(t, mean, gotMean, 0.02, n)
		}
		require.InEpsilon(t, math.Sqrt(square-mean*mean), gotDeviation, 0.05, n)
	}
}
