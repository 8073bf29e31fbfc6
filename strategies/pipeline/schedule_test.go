package pipeline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/diag"
)

// write prints the actions of a rank.
func write(pl *Plan, rank int) string {
	words := []string{}
	for _, a := range pl.Actions(rank) {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// All lists for p <= 6, v <= 3, m <= 16 were compared once, by hand, with those
// of the schedule classes of PyTorch 2.11, and those of dualpipe for p <= 12 with
// deepseek-ai/DualPipe: equal, but that PyTorch prints the forwards of the last
// rank of 1F1B one too high (_get_pipeline_order). Some are kept here.
func TestSequences(t *testing.T) {
	for _, c := range []struct {
		name          string
		p, v, m, rank int
		want          string
	}{
		{"gpipe", 2, 1, 3, 1, "F0.0 F1.0 F2.0 B0.0 B1.0 B2.0"},
		// arXiv 2104.04473, figure 4 top: 1F1B, 4 ranks, 8 micro batches.
		{"1f1b", 4, 1, 8, 0, "F0.0 F1.0 F2.0 F3.0 B0.0 F4.0 B1.0 F5.0 B2.0 F6.0 B3.0 F7.0 B4.0 B5.0 B6.0 B7.0"},
		{"1f1b", 4, 1, 8, 3, "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0 F4.0 B4.0 F5.0 B5.0 F6.0 B6.0 F7.0 B7.0"},
		// The same, bottom: two chunks per rank.
		{"interleaved-1f1b", 4, 2, 8, 0, "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 B3.1 F6.1 B0.0 F7.1 B1.0 B2.0 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0"},
		{"interleaved-1f1b", 4, 2, 8, 3, "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 F5.0 B1.0 F6.0 B2.0 F7.0 B3.0 F4.1 B4.1 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 B4.0 B5.0 B6.0 B7.0"},
		// torch ScheduleInterleaved1F1B: m = 10 is two rounds of five.
		{"interleaved-1f1b-torch", 4, 2, 10, 3, "F0.0 F1.0 F2.0 F3.0 F4.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.1 B4.1 F5.0 B0.0 F6.0 B1.0 F7.0 B2.0 F8.0 B3.0 F9.0 B4.0 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 F8.1 B8.1 F9.1 B9.1 B5.0 B6.0 B7.0 B8.0 B9.0"},
		// The handcrafted schedules of arXiv 2401.10241.
		{"zb-h1", 4, 1, 8, 0, "F0.0 F1.0 F2.0 F3.0 I0.0 W0.0 F4.0 I1.0 W1.0 F5.0 I2.0 W2.0 F6.0 I3.0 W3.0 F7.0 I4.0 W4.0 I5.0 W5.0 I6.0 W6.0 I7.0 W7.0"},
		{"zb-h1", 4, 1, 8, 3, "F0.0 I0.0 F1.0 I1.0 F2.0 I2.0 F3.0 I3.0 W0.0 F4.0 I4.0 W1.0 F5.0 I5.0 W2.0 F6.0 I6.0 W3.0 F7.0 I7.0 W4.0 W5.0 W6.0 W7.0"},
		{"zb-h2", 4, 1, 8, 0, "F0.0 F1.0 F2.0 F3.0 F4.0 F5.0 F6.0 I0.0 W0.0 F7.0 I1.0 W1.0 I2.0 W2.0 I3.0 W3.0 I4.0 W4.0 I5.0 W5.0 I6.0 W6.0 I7.0 W7.0"},
		{"zb-h2", 4, 1, 8, 3, "F0.0 I0.0 F1.0 I1.0 F2.0 I2.0 F3.0 I3.0 F4.0 I4.0 F5.0 I5.0 F6.0 I6.0 W0.0 F7.0 I7.0 W1.0 W2.0 W3.0 W4.0 W5.0 W6.0 W7.0"},
		// torch.
		{"interleaved-zero-bubble", 2, 2, 4, 1, "F0.0 F1.0 F0.1 I0.1 F1.1 I1.1 W0.1 F2.0 I0.0 W1.1 F3.0 I1.0 W0.0 F2.1 I2.1 W1.0 F3.1 I3.1 W2.1 I2.0 W3.1 I3.0 W2.0 W3.0"},
		{"zb-v", 2, 2, 4, 1, "F0.0 F0.1 F1.0 F1.1 I0.1 W0.1 F2.0 I0.0 W0.0 F2.1 I1.1 W1.1 F3.0 I1.0 W1.0 F3.1 I2.1 W2.1 I2.0 I3.1 I3.0 W2.0 W3.1 W3.0"},
		{"dualpipe-v", 2, 2, 4, 0, "F0.0 F1.0 F2.0 F0.1 I0.1 W0.1 F1.1 F3.0+ B1.1 F2.1+ B0.0 B2.1 F3.1+ B1.0 B3.1 I2.0 W2.0 I3.0 W3.0"},
		{"looped-bfs", 2, 2, 2, 1, "F0.0 F1.0 F0.1 F1.1 B1.1 B0.1 B1.0 B0.0"},
		// deepseek-ai/DualPipe: rank 3 mirrors rank 0 with the directions swapped.
		{"dualpipe", 4, 2, 8, 0, "F0.0 F1.0 F2.0 F4.1 I4.1 W4.1 F5.1 F3.0+ B5.1 F6.1+ B0.0 B6.1 F7.1+ B1.0 B7.1 I2.0 W2.0 I3.0 W3.0"},
		{"dualpipe", 4, 2, 8, 3, "F4.1 F5.1 F6.1 F0.0 I0.0 W0.0 F1.0 F7.1+ B1.0 F2.0+ B4.1 B2.0 F3.0+ B5.1 B3.0 I6.1 W6.1 I7.1 W7.1"},
	} {
		pl, err := new(Cache).Get(c.name, c.p, c.v, c.m, Async)
		require.NoError(t, err)
		require.Equal(t, c.want, write(pl, c.rank), "%s rank %d", c.name, c.rank)
	}
}

func TestIllegal(t *testing.T) {
	for _, c := range []struct {
		name    string
		p, v, m int
		want    string
	}{
		{"1f1bb", 4, 1, 8, `unknown pipeline schedule "1f1bb"; did you mean "1f1b"?`},
		{"1f1b", 0, 1, 8, "1f1b: 0 pipeline ranks; use at least 1"},
		{"1f1b", 4, 1, 0, "1f1b: 0 micro batches per step; use at least 1"},
		{"1f1b", 4, 2, 8, "1f1b holds one stage per rank, not 2; use virtual_stages: 1, or a schedule such as interleaved-1f1b"},
		{"interleaved-1f1b", 4, 0, 8, "interleaved-1f1b: 0 virtual stages per rank; use at least 1"},
		{"interleaved-1f1b", 4, 2, 10, "interleaved-1f1b: 10 micro batches are not a multiple of 4 pipeline ranks; use 8 or 12"},
		{"interleaved-1f1b", 4, 2, 9, "interleaved-1f1b: 9 micro batches are not a multiple of 4 pipeline ranks; use 8 or 12"},
		{"interleaved-1f1b-torch", 4, 2, 9, "interleaved-1f1b-torch: 9 micro batches do not divide into 2 equal rounds (micro batches / 4 pipeline ranks, rounded down); use 8 or 10"},
		{"interleaved-zero-bubble", 4, 2, 11, "interleaved-zero-bubble: 11 micro batches do not divide into 2 equal rounds (micro batches / 4 pipeline ranks, rounded down); use 10 or 12"},
		{"zb-v", 4, 1, 8, "zb-v holds exactly 2 virtual stages per rank, not 1; use virtual_stages: 2"},
		{"dualpipe", 5, 2, 20, "dualpipe: 5 pipeline ranks are odd, but ranks mirror each other in pairs; use 4 or 6"},
		{"dualpipe", 4, 2, 11, "dualpipe: 11 micro batches; needs an even number, at least 8 (2 x 4 pipeline ranks); use 10 or 12"},
		{"dualpipe", 4, 2, 4, "dualpipe: 4 micro batches; needs an even number, at least 8 (2 x 4 pipeline ranks); use 8"},
		{"dualpipe-v", 4, 2, 7, "dualpipe-v: 7 micro batches are fewer than the 8 stages (2 x 4 pipeline ranks); use at least 8"},
		{"gpipe", 64, 1, 1 << 20, "gpipe: 64 ranks x 1 virtual stages x 1048576 micro batches are more than this program plans; use fewer"},
		{"1f1b", 2, 1, 1 << 40, "1f1b: 2 ranks x 1 virtual stages x 1099511627776 micro batches are more than this program plans; use fewer"},
		{"interleaved-1f1b", 1 << 40, 2, 5, "interleaved-1f1b: 1099511627776 ranks x 2 virtual stages x 5 micro batches are more than this program plans; use fewer"},
	} {
		_, err := new(Cache).Get(c.name, c.p, c.v, c.m, Async)
		require.EqualError(t, err, c.want)
		require.True(t, diag.IsInput(err))
	}
}

func TestTable(t *testing.T) {
	require.Equal(t, []string{"1f1b", "dualpipe", "dualpipe-v", "gpipe", "interleaved-1f1b", "interleaved-1f1b-torch", "interleaved-zero-bubble", "looped-bfs", "zb-h1", "zb-h2", "zb-v"}, Names())
	for _, n := range Names() {
		i, err := Lookup(n)
		require.NoError(t, err)
		for _, s := range []string{i.Doc, i.Source, i.Placement.String()} {
			require.NotEmpty(t, s, n)
		}
		require.Positive(t, i.Copies, n)
	}
}

// legal draws a schedule and sizes it accepts.
func legal(t *rapid.T, maxP, maxM int) *Plan {
	return sized(t, rapid.SampledFrom(Names()).Draw(t, "schedule"), maxP, maxM)
}

// sized draws sizes that a schedule accepts.
func sized(t *rapid.T, name string, maxP, maxM int) *Plan {
	i, err := Lookup(name)
	require.NoError(t, err)
	p, v := rapid.IntRange(1, maxP).Draw(t, "p"), i.virtual
	if v == 0 {
		v = rapid.IntRange(1, 4).Draw(t, "v")
	}
	if name == "dualpipe" {
		p += p % 2
	}
	m := rapid.IntRange(1, maxM).Draw(t, "m")
	for i.Check(p, v, m) != nil {
		m++
	}
	pl, err := new(Cache).Get(name, p, v, m, Async)
	require.NoError(t, err, "no legal schedule may be stuck")
	return pl
}

func TestEveryActionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pl := legal(t, 7, 60)
		seen := map[[3]int]int{} // kind, stage, micro batch
		for r := range pl.Ranks {
			for _, a := range pl.Actions(r) {
				s := pl.Stage(r, int(a.Chunk))
				if a.Kind == Backward {
					seen[[3]int{int(BackwardInput), s, int(a.MicroBatch)}]++
					seen[[3]int{int(BackwardWeight), s, int(a.MicroBatch)}]++
				} else {
					seen[[3]int{int(a.Kind), s, int(a.MicroBatch)}]++
				}
				require.True(t, pl.Splits || a.Kind == Forward || a.Kind == Backward)
			}
		}
		m := pl.MicroBatches / pl.Copies
		require.Len(t, seen, 3*pl.Stages()*m)
		for k, n := range seen {
			require.Equal(t, 1, n)
			require.Equal(t, k[1]/pl.ModelStages(), k[2]/m, "each copy of the model takes its share")
		}
	})
}

func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pl := legal(t, 9, 40)
		for s := range pl.Stages() {
			r, c := pl.Where(s)
			require.Equal(t, s, pl.Stage(r, c))
			require.Less(t, pl.ModelStage(s), pl.ModelStages())
			if next, ok := pl.After(s); ok {
				back, ok := pl.Before(next)
				require.True(t, ok)
				require.Equal(t, s, back)
				other, _ := pl.Where(next)
				if pl.Placement == V { // neighbours, or the fold
					require.LessOrEqual(t, max(other-r, r-other), 1)
				} else {
					require.Equal(t, (r+1)%pl.Ranks, other)
				}
			}
		}
	})
}

func TestSameSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 8).Draw(t, "p")
		m := p * rapid.IntRange(1, 8).Draw(t, "rounds")
		same := func(a, b string) {
			x, err := new(Cache).Get(a, p, 1, m, Async)
			require.NoError(t, err)
			y, err := new(Cache).Get(b, p, 1, m, Async)
			require.NoError(t, err)
			for r := range p {
				require.Equal(t, write(x, r), write(y, r))
			}
		}
		same("interleaved-1f1b", "1f1b")
		same("interleaved-zero-bubble", "zb-h1")

		v := rapid.IntRange(2, 4).Draw(t, "v")
		x, err := new(Cache).Get("interleaved-1f1b", p, v, m, Async)
		require.NoError(t, err)
		y, err := new(Cache).Get("interleaved-1f1b-torch", p, v, m, Async)
		require.NoError(t, err)
		for r := range p {
			require.Equal(t, write(x, r), write(y, r), "Megatron and PyTorch agree where Megatron is legal")
		}
	})
}

// A rank that runs a backward before the forward it needs can never go on.
func TestStuck(t *testing.T) {
	i := &Info{Name: "backwards", Copies: 1, order: func(l *list) { l.backward(0); l.forward(0) }}
	_, err := i.plan(2, 1, 1, 1, Async)
	require.EqualError(t, err, "pipeline schedule backwards (p=2 v=1 m=1) is stuck: rank 0 waits forever at action 0, B0.0")
	// Two ranks that each wait for the other.
	i = &Info{Name: "crossed", Copies: 1, order: func(l *list) {
		if l.rank == 0 {
			l.forward(0)
			l.backward(0)
			l.forward(0)
			l.backward(0)
		} else {
			l.forward(0)
			l.forward(0)
			l.backward(0)
			l.backward(0)
		}
	}}
	_, err = i.plan(2, 1, 2, 2, Async)
	require.ErrorContains(t, err, "is stuck: rank 0 waits forever at action 1, B0.0")
}
