package pipeline

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/units"
)

// closedForm is what the Source of a schedule states of it, for p ranks, v chunks on
// each and m micro batches.
type closedForm struct {
	// bubble is the idle time of a rank, for equal stages and free communication.
	// f, b and w are the times of one micro batch in all chunks of one rank (for
	// DualPipe: in one chunk): forward, backward by input, backward by weight. With
	// OpenEnds it counts from a rank's own first action to its own last, else the
	// whole step.
	bubble func(p, v, m int, f, b, w units.Seconds) units.Seconds
	// exact tells for which inputs Run gives the bubble exactly; nil: for all.
	exact func(p, v, m int, f, b, w units.Seconds) bool
	// peak is the most activations a rank holds, in micro batches of 1/p of the model.
	peak func(p, v, m int) float64
}

var closedFormOf = map[string]closedForm{
	"gpipe":                   {fillAndDrain, nil, everything},
	"1f1b":                    {fillAndDrain, nil, oneForEachRank},
	"interleaved-1f1b":        {fillAndDrain, nil, interleavedPeak},
	"interleaved-1f1b-torch":  {fillAndDrain, enoughToFill, rounds(func(p int) int { return 2*p - 1 })},
	"looped-bfs":              {fillAndDrain, enoughToFill, everything},
	"zb-h1":                   {weightsInBubble, weightsFit, oneForEachRank},
	"interleaved-zero-bubble": {weightsInBubble, weightsFit, rounds(func(p int) int { return p })},
	"zb-h2": {
		bubble: func(p, _, _ int, f, b, w units.Seconds) units.Seconds { return units.Seconds(p-1) * max(0, f+b-2*w) },
		exact:  func(p, v, m int, f, b, w units.Seconds) bool { return weightsFit(2*p-1, v, m, f, b, w) },
		peak:   func(p, _, m int) float64 { return float64(min(m, 2*p-1)) },
	},
	"zb-v": {
		bubble: func(_, _, _ int, _, _, _ units.Seconds) units.Seconds { return 0 },
		exact:  func(p, v, m int, f, b, w units.Seconds) bool { return m >= 2*p-1 && allEqual(p, v, m, f, b, w) },
		peak:   oneForEachRank,
	},
	"dualpipe": {
		bubble: func(p, _, _ int, f, b, w units.Seconds) units.Seconds { return dualBubble(p/2, f, b, w) },
		exact:  allEqual,
		peak:   func(p, _, _ int) float64 { return float64(p + 1) },
	},
	"dualpipe-v": {
		bubble: func(p, _, _ int, f, b, w units.Seconds) units.Seconds { return dualBubble(p, f/2, b/2, w/2) },
		exact:  allEqual,
		peak:   func(p, _, _ int) float64 { return float64(p) + 0.5 },
	},
}

// fillAndDrain is (p-1)(F+B+W)/v: p ranks are filled and drained once with 1/v of their
// work.
func fillAndDrain(p, v, _ int, f, b, w units.Seconds) units.Seconds {
	return units.Seconds(p-1) * (f + b + w) / units.Seconds(v)
}

// weightsInBubble is (p-1)(F+B-W)/v: weight halves fill what they can of it.
func weightsInBubble(p, v, _ int, f, b, w units.Seconds) units.Seconds {
	return units.Seconds(p-1) * (f + b - w) / units.Seconds(v)
}

// dualBubble is (d-1)(FB + Bf - 3W) of the DualPipe README with Bf = B+W, for d
// ranks from the end of the pipeline to its fold. FB, the overlapped pair, takes F+B+W
// where nothing is gained by overlap.
func dualBubble(d int, f, b, w units.Seconds) units.Seconds {
	return units.Seconds(d-1) * max(0, (f+b+w)+(b+w)-3*w)
}

// enoughToFill reports whether every rank has a micro batch at some moment.
func enoughToFill(p, _, m int, _, _, _ units.Seconds) bool { return m >= p }

// weightsFit reports whether a weight half fits wherever it is put and the
// pipeline fills.
func weightsFit(p, _, m int, f, b, w units.Seconds) bool { return w <= min(f, b) && m >= p }

func allEqual(_, _, _ int, f, b, w units.Seconds) bool { return f == b && b == w }

func everything(_, _, m int) float64 { return float64(m) }

func oneForEachRank(p, _, m int) float64 { return float64(min(m, p)) }

// interleavedPeak is min(mv, vp+p-1)/v; of one chunk, that of plain 1F1B.
func interleavedPeak(p, v, m int) float64 {
	if v == 1 {
		return oneForEachRank(p, v, m)
	}
	return float64(min(m*v, v*p+p-1)) / float64(v)
}

// rounds is min(mv, (v-1)g+n)/v with n chunks of warm-up beyond whole rounds of
// g = m/max(1, m/p) micro batches.
func rounds(beyond func(p int) int) func(p, v, m int) float64 {
	return func(p, v, m int) float64 {
		g := m / max(1, m/p)
		return float64(min(m*v, (v-1)*g+beyond(p))) / float64(v)
	}
}

// Where the closed form is exact, the run gives the published bubble to the last digit;
// the published peak holds always.
func TestClosedForms(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, closedFormOf, name)
			var buf Buffer
			exact := 0
			rapid.Check(t, func(t *rapid.T) {
				if closedForms(t, sized(t, name, 8, 40), &buf) {
					exact++
				}
			})
			require.NotZero(t, exact)
		})
	}
}

// closedForms reports whether the bubble could be compared.
func closedForms(t *rapid.T, pl *Plan, buf *Buffer) bool {
	closed := closedFormOf[pl.Name]
	p, v, m := pl.Ranks, pl.Chunks, pl.MicroBatches
	draw := func(label string) units.Seconds { return units.Seconds(rapid.IntRange(1, 6).Draw(t, label)) }
	f := draw("f")
	b, w := f, f
	if rapid.Bool().Draw(t, "unequal") {
		b, w = draw("b"), draw("w")
	}
	peak := units.Bytes(0)
	for rank := range pl.Ranks {
		peak = max(peak, pl.PeakInFlight(rank, nil, nil).Bytes)
	}
	require.Equal(t, closed.peak(p, v, m), float64(peak)*float64(pl.Copies)/float64(pl.Chunks))

	r := pl.Run(equal(pl, f, b, w), buf)
	n := units.Seconds(pl.Chunks / pl.Copies) // one micro batch is n chunks
	if closed.exact != nil && !closed.exact(p, v, m, n*f, n*b, n*w) {
		return false
	}
	got := slices.Max(r.Bubble)
	require.Equal(t, got, slices.Min(r.Bubble), "equal stages work equally")
	if pl.OpenEnds {
		r.Roll()
		require.Equal(t, r.Total, slices.Max(r.Finish))
		got = slices.Max(r.Bubble)
	}
	require.Equal(t, closed.bubble(p, v, m, n*f, n*b, n*w), got)
	return true
}
