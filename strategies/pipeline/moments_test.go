package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
)

// drawSchedule draws a legal schedule.
func drawSchedule(t *rapid.T) (name string, p, v, m int) {
	name = rapid.SampledFrom(Names()).Draw(t, "name")
	p, v, m = rapid.IntRange(1, 8).Draw(t, "p"), rapid.IntRange(1, 3).Draw(t, "v"), rapid.IntRange(1, 96).Draw(t, "m")
	info, err := Lookup(name)
	require.NoError(t, err)
	if err := info.Check(p, v, m); err != nil {
		t.Skip(err)
	}
	return
}

// The highest of a rank's moments is the peak of its whole list, whatever the
// chunks weigh.
func TestMomentsHoldThePeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, p, v, m := drawSchedule(t)
		pl, err := new(Cache).Get(name, p, v, m, Async)
		require.NoError(t, err)
		rank := rapid.IntRange(0, p-1).Draw(t, "rank")
		counting := rapid.Bool().Draw(t, "counting")
		weigh := func(what string) []int64 {
			return rapid.SliceOfN(rapid.Int64Range(0, 50), v, v).Draw(t, what)
		}
		alive, parked, kept, gradients, reduced := weigh("alive"), weigh("parked"), weigh("kept"), weigh("gradients"), weigh("reduced")
		for c := range reduced {
			reduced[c] = min(reduced[c], gradients[c])
		}
		var reach [Passes][]int64
		for i := range reach {
			reach[i] = weigh("reach")
		}
		if !counting {
			clear(kept)
		}
		now, want := int64(0), int64(0)
		started := make([]bool, v)
		last := make([]int, v)
		for i, a := range pl.Actions(rank) {
			if a.Kind != Forward {
				last[a.Chunk] = i
			}
		}
		for i, a := range pl.Actions(rank) {
			c := a.Chunk
			switch {
			case a.Kind == BackwardWeight:
				if now -= parked[c]; i == last[c] {
					now -= gradients[c] - reduced[c]
				}
				continue
			case a.Kind == Forward:
				want = max(want, now+reach[ForwardPass][c])
				now += alive[c] + kept[c]
				continue
			case a.Kind == Backward && started[c]:
				want = max(want, now+reach[LaterBackward][c])
			case a.Kind == Backward:
				want = max(want, now+reach[FirstBackward][c])
			case started[c]:
				want = max(want, now+reach[LaterInput][c])
			default:
				want = max(want, now+reach[FirstInput][c])
			}
			if !started[c] {
				now += gradients[c]
				started[c] = true
			}
			if now -= alive[c]; a.Kind == BackwardInput {
				now += parked[c]
			}
			if i == last[c] {
				now -= gradients[c] - reduced[c]
			}
		}
		got := int64(0)
		for _, x := range pl.Moments(rank, counting) {
			at := reach[x.Pass][x.Chunk]
			for c, h := range x.Held {
				at += int64(h.Alive-h.Parked)*alive[c] + int64(h.Parked)*parked[c] + int64(h.Forward)*kept[c]
				switch {
				case h.Ended:
					at += reduced[c]
				case h.Started:
					at += gradients[c]
				}
			}
			got = max(got, at)
		}
		require.Equal(t, want, got)
	})
}

// A plan from a cache runs like one made for itself.
func TestCacheChangesNothing(t *testing.T) {
	var cache Cache
	var one, other Buffer
	rapid.Check(t, func(t *rapid.T) {
		name, p, v, m := drawSchedule(t)
		mode := Transfers(rapid.IntRange(0, 3).Draw(t, "transfers"))
		times := Times{Hop: units.Seconds(rapid.Float64Range(0, 1).Draw(t, "hop"))}
		for range p * v {
			f := rapid.Float64Range(0.5, 2).Draw(t, "f")
			times.F, times.BI, times.BW = append(times.F, units.Seconds(f)), append(times.BI, units.Seconds(f)), append(times.BW, units.Seconds(f*0.9))
		}
		fresh, err := new(Cache).Get(name, p, v, m, mode)
		require.NoError(t, err)
		for range 2 { // drawn up, then remembered
			kept, err := cache.Get(name, p, v, m, mode)
			require.NoError(t, err)
			require.Equal(t, fresh.MicroBatches, kept.MicroBatches)
			a, b := fresh.Run(times, &one), kept.Run(times, &other)
			require.Equal(t, a, b)
			require.Equal(t, fresh.Actions(p-1), kept.Actions(p-1))
		}
	})
}

func TestCacheRefusesWhatNoRuleAllows(t *testing.T) {
	var cache Cache
	_, err := cache.Get("interleaved-1f1b", 4, 2, 6, Async)
	require.ErrorContains(t, err, "not a multiple")
	_, err = cache.Get("1f1f1", 4, 1, 6, Async)
	require.ErrorContains(t, err, "unknown pipeline schedule")
}
