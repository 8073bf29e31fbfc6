package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies/memory/allocator"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// stages cuts a step into the chunks of a pipeline's ranks, by stage.
func stages(t testing.TB, again ops.Recompute, mode Mode, n int) []*Step {
	var out []*Step
	whole := llama(t, again)
	for i := range n {
		s := *whole
		s.Static, s.Mode, s.Sum = Bytes{Parameters: 1 * units.GiB}, mode, 4
		s.Units = whole.Units[i*len(whole.Units)/n : (i+1)*len(whole.Units)/n]
		s.Receives, s.HoldsOutput = i > 0, mode == Plain
		out = append(out, &s)
	}
	return out
}

// The walk of a rank's whole list allocates what Rank puts together from its chunks,
// and the allocator reserves at least that.
func TestReplayAllocatesWhatRankSays(t *testing.T) {
	for _, mode := range []Mode{Plain, MainBuffers, Lingering, Swept} {
		for _, again := range []ops.Recompute{ops.NoRecompute, ops.FullRecompute} {
			for _, c := range []struct {
				schedule string
				chunks   int
			}{{"1f1b", 1}, {"gpipe", 1}, {"interleaved-1f1b", 2}, {"interleaved-1f1b", 3}, {"zb-h1", 1}, {"zb-h2", 1}, {"zb-v", 2}, {"interleaved-zero-bubble", 2}} {
				const ranks = 4
				pl, err := new(pipeline.Cache).Get(c.schedule, ranks, c.chunks, 8, pipeline.Async)
				require.NoError(t, err)
				all := stages(t, again, mode, ranks*c.chunks)
				for rank := range ranks {
					var steps []*Step
					var chunks []*Chunk
					for k := range c.chunks {
						s := all[pl.Stage(rank, k)]
						s.Splits, s.Traced = pl.Splits, mode == Plain
						m := MeasureChunk(s)
						steps, chunks = append(steps, s), append(chunks, &m)
					}
					want := Rank(steps[0].Static, pl.Moments(rank, false), chunks).Allocated
					allocated, reserved := Replay(steps, pl.Actions(rank), allocator.New(allocator.Options{Expandable: true})) // whose blocks are no larger than what is in them
					name := fmt.Sprintf("%s, %d chunks, rank %d, mode %d, %s", c.schedule, c.chunks, rank, mode, again)
					if mode == Lingering && c.chunks > 1 { // each chunk's next backward pass is taken to release its own
						require.LessOrEqual(t, float64(allocated), float64(want)*(1+1e-9), name)
					} else {
						require.InEpsilon(t, float64(want), float64(allocated), 1e-6, name)
					}
					require.GreaterOrEqual(t, reserved, allocated, name)
					rounded, reserved := Replay(steps, pl.Actions(rank), allocator.New(allocator.Options{}))
					require.GreaterOrEqual(t, rounded, allocated, name)
					require.GreaterOrEqual(t, reserved, rounded, name)
				}
			}
		}
	}
}

// A backward pass without its weights' part keeps what that needs.
func TestReplaySplitsBackwardPasses(t *testing.T) {
	run := func(schedule string) units.Bytes {
		pl, err := new(pipeline.Cache).Get(schedule, 4, 1, 8, pipeline.Async)
		require.NoError(t, err)
		s := stages(t, ops.NoRecompute, MainBuffers, 4)[1]
		allocated, reserved := Replay([]*Step{s}, pl.Actions(1), allocator.New(allocator.Options{}))
		require.GreaterOrEqual(t, reserved, allocated)
		return allocated
	}
	require.Greater(t, run("zb-h2"), run("zb-h1"), "with twice as many micro batches in flight")
	require.Greater(t, run("zb-h1"), run("1f1b"))

	// What autograd traces holds gradients beside it, but where the stage is the first, and
	// lets go of the loss.
	split := func(stage int, traced bool) units.Bytes {
		s := *stages(t, ops.NoRecompute, Plain, 4)[stage]
		s.Splits, s.Traced = true, traced
		c := MeasureChunk(&s)
		return c.Parked
	}
	require.Equal(t, split(0, false), split(0, true))
	require.Greater(t, split(1, true), split(1, false))
	require.Less(t, split(3, true)-split(3, false), split(2, true)-split(2, false)-400*units.MiB, "1000 MiB of scores for 500 of their gradient, and a weight's")
}

// What is passed over of a list ends where as many micro batches are in flight as where it
// began, and of as many of them the weights' part is to come.
func TestRepeated(t *testing.T) {
	const f, b, i, w = pipeline.Forward, pipeline.Backward, pipeline.BackwardInput, pipeline.BackwardWeight
	for _, c := range []struct {
		list []pipeline.Kind
		want int
	}{
		{[]pipeline.Kind{f, b, f, b, f, b}, 4},
		{[]pipeline.Kind{f, b, b, b}, 0},
		{[]pipeline.Kind{f, i, w, f, i, w, f}, 6},
		{[]pipeline.Kind{f, i, i, f, i, i}, 0},
		{[]pipeline.Kind{f, i, i, f, w, w, f, i}, 6},
	} {
		var actions []pipeline.Action
		for _, k := range c.list {
			actions = append(actions, pipeline.Action{Kind: k})
		}
		r := rank{walkers: make([]*walker, 1)}
		require.Equal(t, c.want, r.repeated(actions), "%v", c.list)
	}
}

// More layers, or more micro batches in flight, never need less. What is reserved may
// be less by chance: other sizes fill other gaps.
func TestReplayGrows(t *testing.T) {
	whole := stages(t, ops.FullRecompute, MainBuffers, 2)[0]
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(2, 6).Draw(t, "ranks")
		n := rapid.IntRange(ranks, 3*ranks).Draw(t, "micro batches")
		reserve := func(layers, rank int) (units.Bytes, units.Bytes) {
			pl, err := new(pipeline.Cache).Get("1f1b", ranks, 1, n, pipeline.Async)
			require.NoError(t, err)
			s := *whole
			s.Units = whole.Units[:1+layers]
			return Replay([]*Step{&s}, pl.Actions(rank), allocator.New(allocator.Options{}))
		}
		layers, rank := rapid.IntRange(1, 8).Draw(t, "layers"), rapid.IntRange(1, ranks-1).Draw(t, "rank")
		allocated, reserved := reserve(layers, rank)
		require.GreaterOrEqual(t, reserved, allocated)
		more, _ := reserve(layers+1, rank)
		require.Greater(t, more, allocated)
		earlier, _ := reserve(layers, rank-1)
		require.GreaterOrEqual(t, earlier, allocated, "more are in flight")
	})
}

// What an update takes beside the step is reserved on top of what small tensors left:
// it does not fit between them.
func TestUpdateNeedsRoomOfItsOwn(t *testing.T) {
	reserved := func(u Update, flat ...units.Bytes) units.Bytes {
		s := llama(t, ops.FullRecompute)
		s.Update, s.Flat = u, flat
		p := Measure(s, allocator.New(allocator.Options{}))
		require.GreaterOrEqual(t, p.Reserved, p.Allocated)
		return p.Reserved
	}
	none := reserved(Update{})
	bucket := reserved(Update{Bucket: 3 * units.GiB})
	require.Greater(t, bucket, none+2*units.GiB, "the largest tensor of the step, the fp32 logits, is 1 GiB")
	require.Greater(t, reserved(Update{Bucket: 3 * units.GiB, Joined: 2, Cast: 4}, 1.5*units.GiB), bucket)
}

// TestFlatUpdateByHand: the first update of flat buffers is what takes most, where activations
// are small: beside weights, master weights and gradients those of a buffer are joined and cast,
// then there are the moments and what was cast. No tensor of a layer leaves room for these. In
// what was cast of a copy of the weights there is room for what is cast of the gradients.
func TestFlatUpdateByHand(t *testing.T) {
	s := llama(t, ops.FullRecompute)
	n := s.Static[Parameters] / 2 // values
	s.Static[OptimizerStates] = 12 * n
	for _, groups := range []units.Bytes{1, 3} {
		s.Flat = nil
		for range int(groups) {
			s.Flat = append(s.Flat, n/groups)
		}
		s.Update = Update{Clone: 4, Master: 4, Joined: 2, Cast: 4, Moment: 4, Moments: 2}
		none := Measure(s, nil)
		p := Measure(s, allocator.New(allocator.Options{}))
		require.GreaterOrEqual(t, p.Allocated, none.Allocated)
		require.Greater(t, p.Reserved, 2*n+12*n+2*n+4*n/groups)
		s.Update.Clone = 0
		require.LessOrEqual(t, Measure(s, allocator.New(allocator.Options{})).Reserved, p.Reserved)
		s.Update.Norm = 1000
		require.Greater(t, Measure(s, allocator.New(allocator.Options{})).Reserved, p.Reserved+32e9, "of 65 million values")
	}
}
