package runs

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
)

func TestStats(t *testing.T) {
	s := StatsOf([]float64{0.1, -0.3, 0.2, -0.1, 0})
	require.Equal(t, 5, s.N)
	require.InDelta(t, 0.14, s.MeanAbs, 1e-12)
	require.InDelta(t, 0.1, s.MedianAbs, 1e-12)
	require.InDelta(t, 0.3, s.MaxAbs, 1e-12)
	require.InDelta(t, -0.02, s.MeanSigned, 1e-12)
	require.InDelta(t, 0.26, s.P90Abs, 1e-12, "0.6 of the way from 0.2 to 0.3")
}

// TestStatsLaws: order does not matter, and each figure lies where it must.
func TestStatsLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		errs := rapid.SliceOfN(rapid.Float64Range(-2, 2), 1, 30).Draw(t, "errors")
		s := StatsOf(errs)
		const e = 1e-12
		require.LessOrEqual(t, s.MeanAbs, s.MaxAbs+e)
		require.LessOrEqual(t, s.MedianAbs, s.P90Abs+e)
		require.LessOrEqual(t, s.P90Abs, s.MaxAbs+e)
		require.LessOrEqual(t, math.Abs(s.MeanSigned), s.MeanAbs+e)
		turned := append([]float64{errs[len(errs)-1]}, errs[:len(errs)-1]...)
		again := StatsOf(turned)
		require.Equal(t, s.MedianAbs, again.MedianAbs)
		require.InDelta(t, s.MeanAbs, again.MeanAbs, e)
	})
}

// TestErrors: the sign says too high or too low; what was not measured has no error.
func TestErrors(t *testing.T) {
	predicted := &Figures{StepTime: 1.1, OptimizerTime: 0, PeakAllocated: 90, PerStage: nil}
	measured := &Figures{StepTime: 1, OptimizerTime: 1, PeakAllocated: 100, Energy: 5}
	errs, stages := errorsOf(predicted, measured)
	require.InDelta(t, 0.1, errs["step_time"], 1e-12)
	require.InDelta(t, -0.1, errs["peak_allocated"], 1e-12)
	require.InDelta(t, -1, errs["optimizer_time"], 1e-12, "a predicted time of zero is a prediction")
	require.NotContains(t, errs, "energy_per_step_per_gpu", "without a model of power there is none")
	require.NotContains(t, errs, "forward_time")
	require.Empty(t, stages)

	errs, stages = errorsOf(&Figures{PerStage: []units.Bytes{11, 19}}, &Figures{PerStage: []units.Bytes{10, 20}})
	require.Len(t, stages, 2)
	require.InDelta(t, 0.1, errs[PerStage], 1e-12, "the worst stage")
}

func TestSummaryCounts(t *testing.T) {
	in := true
	rows := []Row{{Group: "b", Status: OK, Errors: map[string]float64{"step_time": 0.5}, InRange: &in}, {Group: "a", Status: Unsupported}, {Group: "b", Status: Failed}}
	s := summarize(rows)
	require.Len(t, s, 3)
	require.Equal(t, []string{"a", "b", "all"}, []string{s[0].Name, s[1].Name, s[2].Name})
	require.Equal(t, 1, s[0].Unsupported)
	require.Equal(t, Group{Name: "b", N: 2, Failed: 1, Stats: map[string]Stats{"step_time": {1, 0.5, 0.5, 0.5, 0.5, 0.5}}, InRange: &Ranges{1, 1, 0, 0}}, s[1])
	require.Equal(t, 3, s[2].N)
}

// TestUnsaid: what counts is far off and outside.
func TestUnsaid(t *testing.T) {
	in, out := true, false
	far, near := map[string]float64{"step_time": -0.3}, map[string]float64{"step_time": 0.19}
	rows := []Row{{Status: OK, Errors: far, InRange: &out}, {Status: OK, Errors: far, InRange: &in}, {Status: OK, Errors: near, InRange: &out}, {Status: OK, Errors: near, InRange: &in}, {Status: OK, Errors: far}}
	s := summarize(rows)
	require.Equal(t, &Ranges{N: 4, Share: 0.5, Unsaid: 0.25}, s[len(s)-1].InRange)
}

// TestByAssumed: runs count by the facts that were assumed, if these differ.
func TestByAssumed(t *testing.T) {
	rows := []Row{{}, {Assumed: 1}, {Assumed: 2}, {Assumed: 5}}
	var n []int
	for _, g := range byAssumed(rows) {
		n = append(n, g.N)
	}
	require.Equal(t, []int{1, 1, 2}, n)
	require.Nil(t, byAssumed(rows[2:]))
}

func TestTolerances(t *testing.T) {
	got, err := ParseTolerances("5%")
	require.NoError(t, err)
	require.Equal(t, []Tolerance{{"step_time", 0.05}}, got)
	got, err = ParseTolerances("step_time=5%, peak_allocated=0.02")
	require.NoError(t, err)
	require.Equal(t, []Tolerance{{"step_time", 0.05}, {"peak_allocated", 0.02}}, got)
	got, err = ParseTolerances("500 %")
	require.NoError(t, err)
	require.Equal(t, []Tolerance{{"step_time", 5}}, got, "with the sign a user knows")
	for text, want := range map[string]string{
		"x": "not a share", "-5%": "not a share", "NaN": "not a share", "": "not a share", "5%,": "not a share", "step_tim=5%": `did you mean "step_time"?`,
		"5": `"5" is not a share of 0 or more, with a % sign from 1 on; write it as in 5%`, "1": "not a share", "step_time=5": `"step_time=5" is not a share`,
	} {
		_, err := ParseTolerances(text)
		require.ErrorContains(t, err, want, text)
	}
	r := &Report{Summary: []Group{{Name: "g", Stats: map[string]Stats{"step_time": {N: 2, MeanAbs: 0.06}}}, {Name: All, Stats: map[string]Stats{"step_time": {N: 2, MeanAbs: 0.06}}}}}
	require.Len(t, r.Exceeds([]Tolerance{{"step_time", 0.05}}), 2)
	require.Empty(t, r.Exceeds([]Tolerance{{"step_time", 0.06}}))
	require.Equal(t, 2, r.Compared("step_time"))
	require.Zero(t, r.Compared("device_used"))
}
