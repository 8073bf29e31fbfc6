package pipeline

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/units"
)

// drawTimes draws times that are small multiples of 1/8, so that sums are exact
// and results can be compared digit by digit.
func drawTimes(t *rapid.T, pl *Plan) Times {
	eighths := func(n, low int, label string) []units.Seconds {
		s := make([]units.Seconds, n)
		for i := range s {
			s[i] = units.Seconds(rapid.IntRange(low, 40).Draw(t, label)) / 8
		}
		return s
	}
	n := pl.Stages()
	x := Times{F: eighths(n, 0, "F"), BI: eighths(n, 0, "BI"), BW: eighths(n, 0, "BW"), Hop: eighths(1, 0, "hop")[0]}
	if rapid.Bool().Draw(t, "own B") {
		x.B = eighths(n, 0, "B")
	}
	x.Overlap = float64(rapid.IntRange(0, 4).Draw(t, "overlap")) / 4
	if rapid.Bool().Draw(t, "own hops") {
		x.Hops = eighths(pl.Ranks*pl.Ranks, 0, "hops")
		for a := range pl.Ranks { // a link is as slow one way as the other
			for b := range a {
				x.Hops[a*pl.Ranks+b] = x.Hops[b*pl.Ranks+a]
			}
		}
	}
	return x
}

// between is the time of a transfer of two ranks.
func (t *Times) between(pl *Plan, a, b int) units.Seconds {
	if len(t.Hops) > 0 {
		return t.Hops[a*pl.Ranks+b]
	}
	return t.Hop
}

// ends computes the end of every action by recursion from the definition; it
// shares nothing with unitOrder, graph and Run.
type ends struct {
	pl    *Plan
	t     Times
	where map[[3]int][2]int // kind (backward halves as one), stage, micro batch -> rank, position
	memo  map[[2]int]units.Seconds
}

func slowly(pl *Plan, t Times) []units.Seconds {
	e := ends{pl, t, map[[3]int][2]int{}, map[[2]int]units.Seconds{}}
	for r := range pl.Ranks {
		for i, a := range pl.Actions(r) {
			e.where[[3]int{int(min(a.Kind, 1) + a.Kind/3), pl.Stage(r, int(a.Chunk)), int(a.MicroBatch)}] = [2]int{r, i}
		}
	}
	finish := make([]units.Seconds, pl.Ranks)
	for r := range finish {
		finish[r] = e.end(r, len(pl.Actions(r))-1)
	}
	return finish
}

// ready is when the message an action waits for is there.
func (e ends) ready(r, i int) units.Seconds {
	a := e.pl.Actions(r)[i]
	kind, stage, next, ok := 0, e.pl.Stage(r, int(a.Chunk)), 0, false
	switch a.Kind {
	case Forward:
		next, ok = e.pl.Before(stage)
	case Backward, BackwardInput:
		kind = 1
		next, ok = e.pl.After(stage)
	}
	if !ok {
		return 0
	}
	at := e.where[[3]int{kind, next, int(a.MicroBatch)}]
	if at[0] == r {
		return 0 // earlier in the same list
	}
	return e.end(at[0], at[1]) + e.t.between(e.pl, at[0], r)
}

func (e ends) end(r, i int) units.Seconds {
	if i < 0 {
		return 0
	}
	key := [2]int{r, i}
	if t, ok := e.memo[key]; ok {
		return t
	}
	list := e.pl.Actions(r)
	cost := func(a Action) units.Seconds {
		s := e.pl.Stage(r, int(a.Chunk))
		switch {
		case a.Kind == Forward:
			return e.t.F[s]
		case a.Kind == BackwardInput:
			return e.t.BI[s]
		case a.Kind == BackwardWeight:
			return e.t.BW[s]
		case e.t.B == nil:
			return e.t.BI[s] + e.t.BW[s]
		}
		return e.t.B[s]
	}
	var t units.Seconds
	switch {
	case list[i].Overlap:
		return e.end(r, i+1)
	case i > 0 && list[i-1].Overlap:
		f, b := cost(list[i-1]), cost(list[i])
		t = max(e.end(r, i-2), e.ready(r, i-1), e.ready(r, i)) + f + b - units.Seconds(e.t.Overlap)*min(f, b)
	default:
		t = max(e.end(r, i-1), e.ready(r, i)) + cost(list[i])
	}
	e.memo[key] = t
	return t
}

func TestRunAgainstDefinition(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := legal(t, 5, 50)
		x := drawTimes(t, pl)
		r := pl.Run(x, &buf)
		want := slowly(pl, x)
		require.Equal(t, want, r.Finish)
		require.Equal(t, slices.Max(want), r.Total)
		for rank := range pl.Ranks {
			require.GreaterOrEqual(t, r.Start[rank], units.Seconds(0))
			require.GreaterOrEqual(t, r.Finish[rank]-r.Start[rank], r.Busy[rank])
			require.Equal(t, r.Total, r.Busy[rank]+r.Bubble[rank])
		}
		require.GreaterOrEqual(t, r.Total, r.Period)
		require.GreaterOrEqual(t, r.BubbleFraction(), 0.0)
	})
}

// Leaving out periods of the steady state changes nothing: neither the order of
// nodes, nor the ends, nor the peak.
func TestSteadyState(t *testing.T) {
	var fast, slow Buffer
	slow.whole = true
	rapid.Check(t, func(t *rapid.T) {
		pl := legal(t, 5, 400)
		full, err := pl.plan(pl.Ranks, pl.Chunks, pl.MicroBatches, pl.MicroBatches, pl.Transfers)
		require.NoError(t, err)
		g := pl.graph
		nodes := slices.Clone(g.nodes[:g.tail])
		for range g.repeat {
			nodes = append(nodes, g.nodes[g.body:g.body+g.period]...)
		}
		nodes = append(nodes, g.nodes[g.tail:]...)
		require.True(t, slices.Equal(full.graph.nodes, nodes))
		require.Equal(t, full.graph.count, g.count)
		require.Equal(t, full.graph.first, g.first)
		weights := []units.Bytes{3, 5, 2, 7}[:pl.Chunks]
		for r := range pl.Ranks {
			require.True(t, slices.Equal(full.Actions(r), pl.Actions(r)))
			require.Equal(t, full.PeakInFlight(r, weights, nil), pl.PeakInFlight(r, weights, nil))
		}

		x := drawTimes(t, pl)
		want := full.Run(x, &slow)
		require.Equal(t, want, pl.Run(x, &fast), "exact sums")

		x = uneven(pl) // inexact sums
		want = full.Run(x, &slow)
		got := pl.Run(x, &fast)
		for r := range want.Finish {
			require.InEpsilon(t, float64(want.Finish[r]), float64(got.Finish[r]), 2e-12)
		}
	})
}

// Every schedule with a period folds at once when the step is long.
func TestLongStep(t *testing.T) {
	for _, n := range Names() {
		i, err := Lookup(n)
		require.NoError(t, err)
		if i.period == nil {
			continue
		}
		v := max(1, i.virtual)
		if i.virtual == 0 {
			v = 3
		}
		pl, err := new(Cache).Get(n, 16, v, 1<<20, Async)
		require.NoError(t, err)
		require.Positive(t, pl.graph.repeat, n)
		require.Less(t, len(pl.graph.nodes), 16*v*3*16*16, n)
		var buf Buffer
		r := pl.Run(equal(pl, 1, 1, 1), &buf)
		require.InEpsilon(t, float64(r.Busy[0]), float64(r.Total), 1e-3)
	}
}

func TestOneRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pl := legal(t, 1, 20)
		if pl.Ranks > 1 {
			t.Skip("dualpipe has at least two")
		}
		x := drawTimes(t, pl)
		var buf Buffer
		r := pl.Run(x, &buf)
		require.Equal(t, r.Busy[0], r.Total)
		require.Zero(t, r.BubbleFraction())
	})
}

// One micro batch goes through all stages and back, alone.
func TestOneMicroBatch(t *testing.T) {
	for _, name := range []string{"gpipe", "1f1b", "interleaved-1f1b-torch", "looped-bfs"} {
		v := 1
		if name[0] == 'i' || name[0] == 'l' {
			v = 3
		}
		pl, err := new(Cache).Get(name, 4, v, 1, Async)
		require.NoError(t, err)
		x := equal(pl, 2, 3, 1)
		x.Hop, x.Hops = 0.5, nil
		var buf Buffer
		n := units.Seconds(pl.Stages())
		require.Equal(t, n*6+2*(n-1)*0.5, pl.Run(x, &buf).Total, name)
	}
}

// A slower stage or link never makes the step shorter.
func TestSlowerIsNotFaster(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := legal(t, 5, 30)
		x := drawTimes(t, pl)
		before := pl.Run(x, &buf).Total
		stage := rapid.IntRange(0, pl.Stages()-1).Draw(t, "stage")
		for _, slower := range []func(){
			func() { x.F[stage]++ }, func() { x.BI[stage]++ }, func() { x.BW[stage]++ }, func() { x.Hop++ },
			func() {
				for i := range x.Hops {
					x.Hops[i]++
				}
			},
			func() {
				if x.B != nil {
					x.B[stage]++
				}
			},
		} {
			slower()
			after := pl.Run(x, &buf).Total
			require.GreaterOrEqual(t, after, before)
			before = after
		}
	})
}

// DualPipe is DualPipeV unfolded: with free communication and mirrored times the
// same step on twice the ranks with twice the micro batches.
func TestDualPipeUnfolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 5).Draw(t, "p")
		m := 2*p + rapid.IntRange(0, 30).Draw(t, "m")
		folded, err := new(Cache).Get("dualpipe-v", p, 2, m, Async)
		require.NoError(t, err)
		open, err := new(Cache).Get("dualpipe", 2*p, 2, 2*m, Async)
		require.NoError(t, err)
		x := drawTimes(t, folded)
		x.Hop, x.Hops = 0, nil
		y := Times{F: slices.Concat(x.F, x.F), BI: slices.Concat(x.BI, x.BI), BW: slices.Concat(x.BW, x.BW), Overlap: x.Overlap}
		if x.B != nil {
			y.B = slices.Concat(x.B, x.B)
		}
		var a, b Buffer
		require.Equal(t, folded.Run(x, &a).Total, open.Run(y, &b).Total)
	})
}

func TestRunAllocatesNothing(t *testing.T) {
	for _, name := range []string{"interleaved-1f1b", "dualpipe", "zb-v"} {
		for _, mode := range allTransfers {
			pl, err := new(Cache).Get(name, 4, 2, 64, mode)
			require.NoError(t, err)
			x := uneven(pl)
			beside := slower(x, x)
			x.Beside = &beside
			var buf Buffer
			require.Zero(t, testing.AllocsPerRun(20, func() { pl.Run(x, &buf) }))
		}
	}
}

func TestPeakInFlight(t *testing.T) {
	pl, err := new(Cache).Get("zb-h1", 4, 1, 8, Async)
	require.NoError(t, err)
	// The last rank holds one whole micro batch at a time, but three more wait
	// for their weight half.
	require.Equal(t, InFlight{Whole: []int{1}, Weight: []int{3}, Bytes: 4}, pl.PeakInFlight(3, nil, nil))
	require.Equal(t, InFlight{Whole: []int{1}, Weight: []int{3}, Bytes: 13}, pl.PeakInFlight(3, []units.Bytes{10}, []units.Bytes{1}))
	require.Equal(t, InFlight{Whole: []int{4}, Weight: []int{0}, Bytes: 40}, pl.PeakInFlight(0, []units.Bytes{10}, nil))

	// What weighs most decides the moment.
	pl, err = new(Cache).Get("interleaved-1f1b", 4, 2, 8, Async)
	require.NoError(t, err)
	require.Equal(t, InFlight{Whole: []int{7, 4}, Weight: []int{0, 0}, Bytes: 11}, pl.PeakInFlight(0, nil, nil))
	require.Equal(t, InFlight{Whole: []int{8, 3}, Weight: []int{0, 0}, Bytes: 803}, pl.PeakInFlight(0, []units.Bytes{100, 1}, nil))
}

// Equal hops are one hop.
func TestEqualHops(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := legalAs(t, 5, 50)
		x := drawTimes(t, pl)
		x.Hops = nil
		want := slices.Clone(pl.Run(x, &buf).Finish)
		x.Hops = slices.Repeat([]units.Seconds{x.Hop}, pl.Ranks*pl.Ranks)
		require.Equal(t, want, pl.Run(x, &buf).Finish)
	})
}

// TestNoBubble: a rank that never waits has no bubble, and none below 0 by inexact sums.
func TestNoBubble(t *testing.T) {
	var buf Buffer
	pl, err := new(Cache).Get("zb-h2", 4, 1, 32, Async)
	require.NoError(t, err)
	x := equal(pl, 0.0234, 0.025, 0.0245)
	x.F[3], x.BI[3] = 0.0339, 0.045
	r := pl.Run(x, &buf)
	r.Roll()
	require.Zero(t, r.Bubble[3])
}

// TestRepeat: several runs one after another take so many times as long, with the bubble of
// each; a longer run has it once.
func TestRepeat(t *testing.T) {
	var buf Buffer
	run := func(m, times int) Result {
		pl, err := new(Cache).Get("1f1b", 4, 1, m, Torch)
		require.NoError(t, err)
		x := Times{Hop: 0.1}
		for range 4 {
			x.F, x.B = append(x.F, 1), append(x.B, 2)
		}
		r := pl.Run(x, &buf)
		r.Repeat(times)
		for rank := range r.Busy {
			require.InDelta(t, float64(r.Total), float64(r.Busy[rank]+r.Bubble[rank]), 1e-9)
			require.LessOrEqual(t, float64(r.Finish[rank]), float64(r.Total))
		}
		return r
	}
	once := run(8, 1).Total
	require.InDelta(t, 4*float64(once), float64(run(8, 4).Total), 1e-9)
	require.Less(t, float64(run(32, 1).Total), 3.5*float64(once))
}
