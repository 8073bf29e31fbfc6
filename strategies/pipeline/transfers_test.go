package pipeline

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/units"
)

var allTransfers = []Transfers{Async, Blocking, Torch, InStep}

// legalAs draws a schedule, sizes that it accepts and a mode.
func legalAs(t *rapid.T, maxP, maxM int) *Plan {
	pl := legal(t, maxP, maxM)
	return as(t, pl, rapid.SampledFrom(allTransfers).Draw(t, "transfers"))
}

func as(t require.TestingT, pl *Plan, mode Transfers) *Plan {
	pl, err := new(Cache).Get(pl.Name, pl.Ranks, pl.Chunks, pl.MicroBatches, mode)
	require.NoError(t, err, "no legal schedule may be stuck")
	return pl
}

// words prints what a rank runs in the words of PyTorch's runtime: stage, kind and
// micro batch of passes, and of what calls move; more than one in a call are joined
// by a plus.
func words(p *program) string {
	var out []string
	for _, s := range p.steps {
		if s.call < 0 {
			a := p.actions[s.action]
			out = append(out, fmt.Sprintf("%d%v%d", p.pl.Stage(p.rank, int(a.Chunk)), a.Kind, a.MicroBatch))
			continue
		}
		var moved []string
		for _, m := range p.call(s.call) {
			mb, stage, direction := int(m)%p.m, int(m)/p.m%p.pl.Stages(), int(m)/p.m/p.pl.Stages()
			verb := "RECV"
			if p.receiver(m) != p.rank {
				verb = "SEND"
				stage += 2*direction - 1
			}
			moved = append(moved, fmt.Sprintf("%d%s_%c%d", stage, verb, "FB"[direction], mb))
		}
		out = append(out, strings.Join(moved, "+"))
	}
	return strings.Join(out, " ")
}

func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		name          string
		mode          Transfers
		p, v, m, rank int
		want          string
	}{
		// The annotations of a profiler trace of ScheduleInterleaved1F1B (torch
		// 2.11) on 4 GPUs; all four ranks were compared.
		{"interleaved-1f1b-torch", Torch, 4, 2, 8, 0, "0F0 0SEND_F0 4RECV_F0 0F1 0SEND_F1 4RECV_F1 0F2 0SEND_F2 4RECV_F2 0F3 0SEND_F3 4RECV_F3 4F0 4SEND_F0 4F1 4SEND_F1 4F2 4SEND_F2 4F3 4SEND_F3 0F4 0SEND_F4 0F5 0SEND_F5 4RECV_B0 0F6 0SEND_F6 4B0 4SEND_B0 4RECV_B1 0F7 0SEND_F7 4RECV_F4 4B1 4SEND_B1 4RECV_B2 4F4 4SEND_F4 4RECV_F5 4B2 4SEND_B2 4RECV_B3 4F5 4SEND_F5 4RECV_F6 4B3 4SEND_B3 0RECV_B0 4F6 4SEND_F6 4RECV_F7 0B0 0RECV_B1 4F7 4SEND_F7 0B1 0RECV_B2 0B2 0RECV_B3 0B3 4RECV_B4 4B4 4SEND_B4 4RECV_B5 4B5 4SEND_B5 4RECV_B6 4B6 4SEND_B6 4RECV_B7 4B7 4SEND_B7 0RECV_B4 0B4 0RECV_B5 0B5 0RECV_B6 0B6 0RECV_B7 0B7"},
		{"interleaved-1f1b-torch", Torch, 4, 2, 8, 3, "3RECV_F0 3F0 3SEND_F0 3RECV_F1 3F1 3SEND_F1 3RECV_F2 3F2 3SEND_F2 3RECV_F3 3F3 3SEND_F3 7RECV_F0 7F0 7RECV_F1 7B0 7SEND_B0 7RECV_F2 7F1 7B1 7SEND_B1 7RECV_F3 7F2 7B2 7SEND_B2 3RECV_F4 7F3 3RECV_B0 7B3 7SEND_B3 3RECV_F5 3F4 3SEND_F4 3RECV_B1 3B0 3SEND_B0 3RECV_F6 3F5 3SEND_F5 3RECV_B2 3B1 3SEND_B1 3RECV_F7 3F6 3SEND_F6 3RECV_B3 3B2 3SEND_B2 7RECV_F4 3F7 3SEND_F7 3B3 3SEND_B3 7RECV_F5 7F4 7B4 7SEND_B4 7RECV_F6 7F5 7B5 7SEND_B5 7RECV_F7 7F6 3RECV_B4 7B6 7SEND_B6 7F7 3RECV_B5 7B7 7SEND_B7 3RECV_B6 3RECV_B7 3B4 3SEND_B4 3B5 3SEND_B5 3B6 3SEND_B6 3B7 3SEND_B7"},
		// PipelineScheduleMulti of torch 2.8, whose _get_1f1b_rank_ops and _step_microbatches
		// were followed on paper: one call a time step.
		{"interleaved-1f1b-torch", InStep, 2, 2, 4, 0, "0F0 0SEND_F0 0F1 0SEND_F1+2RECV_F0 2F0 2SEND_F0+2RECV_F1 2F1 2SEND_F1 2RECV_B0 0F2 0SEND_F2 2B0 2SEND_B0+2RECV_B1 0F3 0SEND_F3+2RECV_F2 2B1 2SEND_B1+0RECV_B0 2F2 2SEND_F2+2RECV_F3 0B0 0RECV_B1 2F3 2SEND_F3 0B1 2RECV_B2 2B2 2SEND_B2+2RECV_B3 2B3 2SEND_B3+0RECV_B2 0B2 0RECV_B3 0B3"},
		{"interleaved-1f1b-torch", InStep, 3, 2, 3, 1, "1RECV_F0 1F0 1RECV_F1+1SEND_F0 1F1 1RECV_F2+1SEND_F1 1F2 4RECV_F0+1SEND_F2 4F0 4RECV_F1+4SEND_F0 4F1 4RECV_F2+4SEND_F1 4RECV_B0 4F2 4SEND_F2 4B0 4SEND_B0+4RECV_B1 4B1 4SEND_B1+4RECV_B2 4B2 4SEND_B2+1RECV_B0 1B0 1SEND_B0+1RECV_B1 1B1 1SEND_B1+1RECV_B2 1B2 1SEND_B2"},
		// torch Schedule1F1B: two forwards of warm-up on the first of two ranks.
		{"1f1b", Torch, 2, 1, 3, 0, "0F0 0SEND_F0 0F1 0SEND_F1+0RECV_B0 0B0 0F2 0SEND_F2+0RECV_B1 0B1 0RECV_B2 0B2"},
		{"1f1b", Torch, 3, 1, 3, 1, "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1+1RECV_B0 1B0 1SEND_B0+1RECV_F2 1F2 1SEND_F2+1RECV_B1 1B1 1SEND_B1 1RECV_B2 1B2 1SEND_B2"},
		{"1f1b", Torch, 2, 1, 3, 1, "1RECV_F0 1F0 1B0 1SEND_B0+1RECV_F1 1F1 1B1 1SEND_B1+1RECV_F2 1F2 1B2 1SEND_B2"},
		{"gpipe", Torch, 3, 1, 2, 1, "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1 1SEND_B1"},
		// A V: what stays on a rank is not sent.
		{"zb-v", Torch, 2, 2, 3, 1, "1RECV_F0 1F0 1RECV_F1 2F0 2SEND_F0 1RECV_F2 1F1 2F1 2SEND_F1 2RECV_B0 2I0 2W0 1F2 2RECV_B1 1I0 1SEND_B0 1W0 2F2 2SEND_F2 2I1 2W1 2RECV_B2 1I1 1SEND_B1 2I2 1I2 1SEND_B2 1W1 2W2 1W2"},
		// Megatron: the warm-up of 1F1B receives, computes, sends.
		{"1f1b", Blocking, 3, 1, 3, 1, "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1+1RECV_B0 1B0 1SEND_B0+1RECV_F2 1F2 1SEND_F2+1RECV_B1 1B1 1SEND_B1 1RECV_B2 1B2 1SEND_B2"},
		{"1f1b", Blocking, 3, 1, 3, 0, "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2+0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2"},
		// Interleaved: one call after each forward and backward.
		{"interleaved-1f1b", Blocking, 2, 2, 4, 0, "0F0 0SEND_F0 0F1 0SEND_F1+2RECV_F0 2F0 2SEND_F0+2RECV_F1 2F1 2SEND_F1+2RECV_B0 0F2 2B0 0SEND_F2+2SEND_B0+2RECV_B1 0F3 2B1 0SEND_F3+2SEND_B1+2RECV_F2+0RECV_B0 2F2 0B0 2SEND_F2+2RECV_F3+0RECV_B1 2F3 0B1 2SEND_F3+2RECV_B2 2B2 2SEND_B2+2RECV_B3 2B3 2SEND_B3+0RECV_B2 0B2 0RECV_B3 0B3"},
		{"interleaved-1f1b", Blocking, 2, 2, 2, 1, "1RECV_F0 1F0 1SEND_F0+1RECV_F1 1F1 1SEND_F1+3RECV_F0 3F0 3B0 3SEND_B0+3RECV_F1 3F1 3B1 3SEND_B1+1RECV_B0 1B0 1SEND_B0+1RECV_B1 1B1 1SEND_B1"},
		{"gpipe", Blocking, 2, 1, 2, 1, "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1"},
	} {
		pl, err := new(Cache).Get(c.name, c.p, c.v, c.m, c.mode)
		require.NoError(t, err)
		require.Equal(t, c.mode, pl.Transfers)
		ps := pl.programs(pl.lists, c.m)
		require.Equal(t, c.want, words(&ps[c.rank]), "%s %v rank %d", c.name, c.mode, c.rank)
	}
}

// Up to torch 2.8 more stages on a rank leave less of a bubble, as Megatron's do; the
// runtime since then holds a rank up by receives that it has posted ahead
// (pytorch/pytorch#188833), and they leave as much as one.
func TestStepsInLine(t *testing.T) {
	var buf Buffer
	total := func(v int, mode Transfers) float64 {
		pl, err := new(Cache).Get("interleaved-1f1b-torch", 4, v, 8, mode)
		require.NoError(t, err)
		x := Times{}
		for range 4 * v {
			x.F, x.B = append(x.F, units.Seconds(1/float64(v))), append(x.B, units.Seconds(3/float64(v)))
		}
		return float64(pl.Run(x, &buf).Total)
	}
	for v, want := range map[int]float64{1: 47, 2: 38.5, 4: 35.25, 8: 33.625} { // 32 of passes; followed step by step
		require.InDelta(t, want, total(v, InStep), 1e-9, "%d stages a rank", v)
	}
	require.Greater(t, total(8, Torch), 40.0)
	pl, err := new(Cache).Get("zb-v", 2, 2, 8, InStep)
	require.NoError(t, err)
	require.Equal(t, Torch, pl.Transfers, "no order in time steps is known of it")
}

// Nobody runs these blocking.
func TestStaysAsync(t *testing.T) {
	for _, name := range []string{"zb-h1", "zb-v", "dualpipe", "looped-bfs", "interleaved-1f1b-torch"} {
		pl, err := new(Cache).Get(name, 2, max(1, registry[name].virtual), 8, Blocking)
		require.NoError(t, err)
		require.Equal(t, Async, pl.Transfers)
	}
	require.Equal(t, "async blocking torch in-step transfers(7)", fmt.Sprint(Async, Blocking, Torch, InStep, Transfers(7)))
}

// F = 1, B = 2, Hop = 1/2, on two ranks; drawn by hand.
func TestTransfersByHand(t *testing.T) {
	half := units.Seconds(0.5)
	for _, c := range []struct {
		name   string
		mode   Transfers
		v, m   int
		slow   units.Seconds // of passes beside a call
		finish [2]units.Seconds
	}{
		// 0: F0 0-1, F1 1-2, B0 5-7, B1 8-10. 1: F0 1.5-2.5, B0 -4.5, F1 -5.5, B1 -7.5.
		{"1f1b", Async, 1, 2, 1, [2]units.Seconds{10, 7.5}},
		// 0: F0 0-1, sends to 1.5, F1 -2.5, sends and waits for B0 until 5, B0 -7,
		// waits for B1 until 8.5, B1 -10.5.
		// 1: F0 1.5-2.5, B0 -4.5, sends B0 and receives F1 until 5, F1 -6, B1 -8,
		// sends to 8.5.
		{"1f1b", Blocking, 1, 2, 1, [2]units.Seconds{10.5, 8.5}},
		// F1 of rank 0 runs at once, and waits longer.
		{"1f1b", Torch, 1, 2, 1, [2]units.Seconds{10.5, 8.5}},
		// The send of F0 holds rank 0 from 1 to 1.5, as F1 begins: it loses a
		// quarter, and waits less.
		{"1f1b", Torch, 1, 2, 2, [2]units.Seconds{10.5, 8.5}},
		// 1 receives F1 only after F0: F0 1.5-2.5, F1 3-4, B0 -6, B1 -8, and sends
		// B1 when 0 has done B0, 8.5-9. 0: B0 6.5-8.5, B1 9-11.
		{"gpipe", Torch, 1, 2, 1, [2]units.Seconds{11, 9}},
		// 0: F0, sends to 1.5, F1 -2.5, sends to 3. 1: F0 1.5-2.5, receives to 3, F1
		// 3-4, B0 -6, sends to 6.5, B1 -8.5. 0: B0 6.5-8.5, B1 9-11.
		{"gpipe", Blocking, 1, 2, 1, [2]units.Seconds{11, 9}},
	} {
		pl, err := new(Cache).Get(c.name, 2, c.v, c.m, c.mode)
		require.NoError(t, err)
		var buf Buffer
		x := Times{F: []units.Seconds{1, 1}, B: []units.Seconds{2, 2}, Hop: half}
		if c.slow > 1 {
			x.Beside = &Times{F: []units.Seconds{c.slow, c.slow}, B: []units.Seconds{2 * c.slow, 2 * c.slow}}
		}
		r := pl.Run(x, &buf)
		require.Equal(t, c.finish[:], r.Finish, "%s %v", c.name, c.mode)
		if c.slow > 1 {
			require.Equal(t, units.Seconds(0.25), r.Slowed[0])
			require.Equal(t, units.Seconds(6.25), r.Busy[0])
			require.Zero(t, r.Slowed[1])
		}
	}
}

// slowCalls computes every call and pass by recursion from the definition of a
// program; it shares nothing with flow, graph and Run.
type slowCalls struct {
	pl    *Plan
	ps    []program
	t     Times
	steps map[[2]int32]int // rank, call -> step
	sides map[message][][2]int32
	memo  map[[3]int]float64
}

func slowlyCalled(pl *Plan, t Times) []units.Seconds {
	lists := make([][]Action, pl.Ranks)
	for r := range lists {
		lists[r] = pl.Actions(r)
	}
	ps := pl.programs(lists, pl.MicroBatches)
	s := &slowCalls{pl, ps, t, map[[2]int32]int{}, map[message][][2]int32{}, map[[3]int]float64{}}
	for r := range ps {
		for i, st := range ps[r].steps {
			if st.call >= 0 {
				s.steps[[2]int32{int32(r), st.call}] = i
				for _, m := range ps[r].call(st.call) {
					s.sides[m] = append(s.sides[m], [2]int32{int32(r), st.call})
				}
			}
		}
	}
	finish := make([]units.Seconds, pl.Ranks)
	for r := range ps {
		for i := range ps[r].steps {
			finish[r] = max(finish[r], units.Seconds(s.end(r, i)))
		}
	}
	return finish
}

// before returns the end of the last pass, or call, before step i.
func (s *slowCalls) before(r, i int, call bool) float64 {
	for i--; i >= 0; i-- {
		if (s.ps[r].steps[i].call >= 0) == call {
			return s.end(r, i)
		}
	}
	return 0
}

func (s *slowCalls) start(r, i int) float64 {
	st := s.ps[r].steps[i]
	t := s.before(r, i, false)
	switch {
	case st.call >= 0:
		t = max(t, s.before(r, i, true))
	case st.wait >= 0:
		t = max(t, s.end(r, s.steps[[2]int32{int32(r), st.wait}]))
	}
	return t
}

func (s *slowCalls) end(r, i int) float64 {
	key := [3]int{r, i}
	if t, ok := s.memo[key]; ok {
		return t
	}
	p := &s.ps[r]
	st := p.steps[i]
	t := s.start(r, i)
	if st.call >= 0 {
		var hop units.Seconds
		for _, m := range p.call(st.call) {
			for _, side := range s.sides[m] {
				t = max(t, s.start(int(side[0]), s.steps[side]))
				if other := int(side[0]); other != r {
					hop = max(hop, s.t.between(s.pl, r, other))
				}
			}
		}
		t += float64(hop)
	} else {
		t = s.beside(r, i, t)
	}
	s.memo[key] = t
	return t
}

// beside walks through a pass from one change of its speed to the next.
func (s *slowCalls) beside(r, i int, t float64) float64 {
	cost := s.cost(s.t, r, i)
	if s.t.Beside == nil || cost == 0 {
		return t + cost
	}
	slow := s.cost(*s.t.Beside, r, i) / cost
	for left := cost; ; {
		next, speed := math.Inf(1), 1.0
		for k := range i {
			if s.ps[r].steps[k].call < 0 {
				continue
			}
			a, b := s.start(r, k), s.end(r, k)
			if a <= t && t < b {
				next, speed = min(next, b), 1/slow
			} else if a > t && b > a {
				next = min(next, a)
			}
		}
		if t+left/speed <= next {
			return t + left/speed
		}
		left -= (next - t) * speed
		t = next
	}
}

func (s *slowCalls) cost(x Times, r, i int) float64 {
	p := &s.ps[r]
	at := int(p.steps[i].action)
	of := func(a Action) units.Seconds {
		stage := s.pl.Stage(r, int(a.Chunk))
		switch {
		case a.Kind == Forward:
			return x.F[stage]
		case a.Kind == BackwardInput:
			return x.BI[stage]
		case a.Kind == BackwardWeight:
			return x.BW[stage]
		case x.B == nil:
			return x.BI[stage] + x.BW[stage]
		}
		return x.B[stage]
	}
	a := p.actions[at]
	if !a.Overlap {
		return float64(of(a))
	}
	f, b := of(a), of(p.actions[at+1])
	return float64(f + b - units.Seconds(x.Overlap)*min(f, b))
}

func TestTransfersAgainstDefinition(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := legalAs(t, 5, 30)
		if pl.Transfers == Async {
			t.Skip()
		}
		x := drawTimes(t, pl)
		r := pl.Run(x, &buf)
		require.Equal(t, slowlyCalled(pl, x), r.Finish)
		for rank := range pl.Ranks {
			require.GreaterOrEqual(t, r.Finish[rank]-r.Start[rank], r.Busy[rank])
			require.Equal(t, r.Total, r.Busy[rank]+r.Bubble[rank])
			require.Zero(t, r.Slowed[rank])
		}

		// Slower beside calls, in sums that are not exact.
		y := drawTimes(t, pl)
		beside := slower(x, y)
		x.Beside = &beside
		before := r.Total
		r = pl.Run(x, &buf)
		for rank, want := range slowlyCalled(pl, x) {
			require.InDelta(t, float64(want), float64(r.Finish[rank]), 1e-9)
			require.GreaterOrEqual(t, r.Slowed[rank], units.Seconds(-1e-9))
		}
		require.GreaterOrEqual(t, r.Total+1e-9, before)
	})
}

// TestBusyWithinFinish: no rank is busy for longer than it takes to the end of its step, whatever
// its host and transfers beside its passes add, nor for longer than a step of many that roll on.
func TestBusyWithinFinish(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := legalAs(t, 5, 30)
		x := drawTimes(t, pl)
		beside := slower(x, drawTimes(t, pl))
		x.Beside = &beside
		launches := func(label string) []Launch {
			l := make([]Launch, pl.Stages())
			for i := range l {
				eighths := func(n int) units.Seconds { return units.Seconds(rapid.IntRange(0, n).Draw(t, label)) / 8 }
				l[i] = Launch{Host: eighths(40), Lag: eighths(40), Sync: rapid.Bool().Draw(t, label), Ahead: eighths(4)}
			}
			return l
		}
		x.Launches = &Launches{F: launches("F"), B: launches("B"), BI: launches("BI"), BW: launches("BW")}
		r := pl.Run(x, &buf)
		for rank, busy := range r.Busy {
			require.LessOrEqual(t, float64(busy), float64(r.Finish[rank])+1e-9, "%s %v", pl.Name, pl.Transfers)
		}
		r.Roll()
		for rank, busy := range r.Busy {
			require.LessOrEqual(t, float64(busy), float64(r.Finish[rank])+1e-9, "%s %v", pl.Name, pl.Transfers)
			require.LessOrEqual(t, float64(r.Finish[rank]), float64(r.Total))
			require.InDelta(t, float64(r.Total), float64(busy+r.Bubble[rank]), 1e-9)
		}
	})
}

// slower returns the sum of both durations.
func slower(x, y Times) Times {
	add := func(a, b []units.Seconds) []units.Seconds {
		if a == nil {
			return nil
		}
		s := slices.Clone(a)
		for i := range b {
			s[i] += b[i]
		}
		return s
	}
	return Times{F: add(x.F, y.F), B: add(x.B, y.B), BI: add(x.BI, y.BI), BW: add(x.BW, y.BW), Overlap: x.Overlap}
}

func TestTransfersSteadyState(t *testing.T) {
	var fast, slow Buffer
	slow.whole = true
	rapid.Check(t, func(t *rapid.T) {
		pl := legalAs(t, 5, 300)
		full, err := pl.plan(pl.Ranks, pl.Chunks, pl.MicroBatches, pl.MicroBatches, pl.Transfers)
		require.NoError(t, err)
		g := pl.graph
		if g.events != nil {
			events := slices.Clone(g.events[:g.tail])
			for range g.repeat {
				events = append(events, g.events[g.body:g.body+g.period]...)
			}
			events = append(events, g.events[g.tail:]...)
			require.True(t, slices.Equal(full.graph.events, events))
		}
		require.Equal(t, full.graph.count, g.count)
		require.Equal(t, full.graph.first, g.first)

		x := drawTimes(t, pl)
		want := full.Run(x, &slow)
		require.Equal(t, want, pl.Run(x, &fast), "exact sums")

		x = uneven(pl)
		if rapid.Bool().Draw(t, "beside") {
			beside := slower(x, x)
			x.Beside = &beside
		}
		want = full.Run(x, &slow)
		got := pl.Run(x, &fast)
		for r := range want.Finish {
			require.InEpsilon(t, float64(want.Finish[r]), float64(got.Finish[r]), 2e-12)
		}
	})
}

// Waiting for the other side never makes a step shorter.
func TestAsyncIsFastest(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := legal(t, 5, 40)
		x := drawTimes(t, pl)
		best := pl.Run(x, &buf).Total
		for _, mode := range allTransfers[1:] {
			require.GreaterOrEqual(t, as(t, pl, mode).Run(x, &buf).Total, best, mode)
		}
	})
}

// With equal stages and free transfers nobody waits for a rank to come to a
// transfer, where sends are not held back for later data.
func TestFreeTransfers(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := sized(t, rapid.SampledFrom([]string{"gpipe", "1f1b"}).Draw(t, "schedule"), 6, 40)
		draw := func(label string) units.Seconds {
			return units.Seconds(rapid.IntRange(1, 9).Draw(t, label))
		}
		x := equal(pl, draw("f"), draw("b"), draw("w"))
		want := slices.Clone(pl.Run(x, &buf).Finish)
		for _, mode := range allTransfers[1:] {
			require.Equal(t, slices.Max(want), as(t, pl, mode).Run(x, &buf).Total, mode)
		}
	})
}

// More micro batches never make a step shorter, in rounds of the same size.
func TestMoreMicroBatches(t *testing.T) {
	var buf Buffer
	rapid.Check(t, func(t *rapid.T) {
		pl := legalAs(t, 5, 30)
		more := pl.MicroBatches + 1
		for pl.Check(pl.Ranks, pl.Chunks, more) != nil {
			more++
		}
		if strings.Contains(pl.Name, "interleaved") && roundSize(pl.Ranks, more) != roundSize(pl.Ranks, pl.MicroBatches) {
			t.Skip("another order")
		}
		longer, err := new(Cache).Get(pl.Name, pl.Ranks, pl.Chunks, more, pl.Transfers)
		require.NoError(t, err)
		x := drawTimes(t, pl)
		before := pl.Run(x, &buf).Total
		require.GreaterOrEqual(t, longer.Run(x, &buf).Total, before)
	})
}

func TestTransfersAreDeterministic(t *testing.T) {
	for _, name := range Names() {
		for _, mode := range allTransfers {
			v := max(1, registry[name].virtual)
			a, err := new(Cache).Get(name, 4, v, 24, mode)
			require.NoError(t, err)
			b := as(t, a, mode)
			require.Equal(t, a.graph, b.graph)
			var x, y Buffer
			require.Equal(t, a.Run(uneven(a), &x), b.Run(uneven(b), &y))
			require.Equal(t, a.Run(uneven(a), &x), b.Run(uneven(b), &y))
		}
	}
}

// The usual schedules fold in every mode when the step is long.
func TestLongStepTransfers(t *testing.T) {
	for _, c := range []struct {
		name string
		v    int
		mode Transfers
	}{
		{"1f1b", 1, Blocking}, {"interleaved-1f1b", 3, Blocking}, {"1f1b", 1, Torch}, {"interleaved-1f1b-torch", 3, Torch}, {"interleaved-1f1b-torch", 3, InStep},
		{"zb-v", 2, Torch}, {"interleaved-zero-bubble", 2, Torch}, {"zb-h1", 1, Torch}, {"dualpipe-v", 2, Torch},
	} {
		pl, err := new(Cache).Get(c.name, 8, c.v, 1<<12, c.mode)
		require.NoError(t, err)
		require.Positive(t, pl.graph.repeat, "%s %v", c.name, c.mode)
	}
}

// TestHostsRunAhead: hosts that launch passes without waiting for their input take as long
// as their launches, not as the chain of passes; those that launch in no time change nothing.
func TestHostsRunAhead(t *testing.T) {
	const m, f, b, host = 8, 1 * units.Millisecond, 2 * units.Millisecond, 5 * units.Millisecond
	launch := func(pl *Plan, host units.Seconds) *Launches {
		one := make([]Launch, pl.Stages())
		for i := range one {
			one[i] = Launch{Host: host, Lag: host}
		}
		return &Launches{F: one, B: one, BI: one, BW: one}
	}
	var buf Buffer
	for _, c := range []struct {
		name   string
		v      int
		passes units.Seconds // that a host launches in a step
	}{{"gpipe", 1, 2 * m}, {"1f1b", 1, 2 * m}, {"looped-bfs", 2, 4 * m}, {"interleaved-1f1b-torch", 2, 4 * m}, {"interleaved-zero-bubble", 2, 6 * m}} {
		pl, err := new(Cache).Get(c.name, 4, c.v, m, Torch)
		require.NoError(t, err, c.name)
		times := equal(pl, f, b/2, b/2)
		plain := pl.Run(times, &buf).Total
		times.Launches = launch(pl, 0)
		none := pl.Run(times, &buf)
		require.Equal(t, plain, none.Total, c.name)
		require.Less(t, float64(slices.Max(none.Hosted)), resolution, c.name)

		times.Launches = launch(pl, host)
		bound := pl.Run(times, &buf)
		require.GreaterOrEqual(t, float64(bound.Total), float64(c.passes*host), c.name)
		require.LessOrEqual(t, float64(bound.Total), float64(c.passes*host+3*b)+resolution, c.name) // the last backward pass has three ranks to go
		require.Greater(t, float64(slices.Min(bound.Hosted)), 0.3*float64(bound.Total), c.name)
		chain := equal(pl, host, host, host)
		require.Greater(t, float64(pl.Run(chain, &buf).Total), 1.09*float64(bound.Total), c.name)
	}
}

// TestHostsThatWait: a host that waits for each of its passes is no faster than the chain of them.
func TestHostsThatWait(t *testing.T) {
	pl, err := new(Cache).Get("1f1b", 4, 1, 8, Torch)
	require.NoError(t, err)
	times := equal(pl, 1*units.Millisecond, 1*units.Millisecond, 1*units.Millisecond)
	waits := make([]Launch, pl.Stages())
	for i := range waits {
		waits[i] = Launch{Host: 1 * units.Millisecond, Lag: 1 * units.Millisecond, Sync: true}
	}
	var buf Buffer
	chain := pl.Run(times, &buf).Total
	times.Launches = &Launches{F: waits, B: waits}
	require.GreaterOrEqual(t, float64(pl.Run(times, &buf).Total), float64(chain))
	ahead := slices.Clone(waits)
	for i := range ahead {
		ahead[i].Sync = false
	}
	times.Launches = &Launches{F: ahead, B: ahead}
	require.InEpsilon(t, float64(chain), float64(pl.Run(times, &buf).Total), 0.1)
}

// TestHostsBesideTransfers: hosts of schedules that send beside their passes launch these as hosts of
// PyTorch do. Four ranks whose passes take 1 on the device and 3 on the host end their last
// after 2 * 8 * 3, and one after the other: each waits for the gradient of the next. Passes as
// long as their hosts would take (8 + 3) * 6.
func TestHostsBesideTransfers(t *testing.T) {
	times := func(l *Launches) Times {
		one := []units.Seconds{1, 1, 1, 1}
		return Times{F: one, B: one, Launches: l}
	}
	launches := func(l Launch) *Launches {
		all := []Launch{l, l, l, l}
		return &Launches{F: all, B: all}
	}
	for _, c := range []struct {
		launches *Launches
		total    units.Seconds
	}{
		{nil, 22}, {launches(Launch{}), 22}, {launches(Launch{Host: 0.5, Lag: 1}), 22},
		{launches(Launch{Host: 3, Lag: 3}), 51},
		{launches(Launch{Host: 0.5, Lag: 1, Sync: true, Ahead: 0.5}), 22}, // launched by the time that the one before it ends
	} {
		for _, hops := range [][]units.Seconds{nil, make([]units.Seconds, 16)} {
			plan, err := new(Cache).Get("1f1b", 4, 1, 8, Async)
			require.NoError(t, err)
			in := times(c.launches)
			in.Hops = hops
			r := plan.Run(in, &Buffer{})
			require.InDelta(t, float64(c.total), float64(r.Total), 1e-9, "%v", c.launches)
			for rank := range r.Busy {
				require.InDelta(t, float64(r.Total), float64(r.Busy[rank]+r.Bubble[rank]), 1e-9)
			}
		}
	}
	// A host that waits on the way, and is done with launching 2 before the pass ends.
	l, host := Launch{Host: 1, Lag: 4, Sync: true, Ahead: 2}, 0.0
	require.InDelta(t, 10, l.begin(&host, 10), 0)
	require.InDelta(t, 8, host, 0)
}
