package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/strategies"
)

// Own runs stretch every time of a prediction alike, and change nothing else.
func TestOwnRunsStretchTimes(t *testing.T) {
	t.Parallel()
	for _, text := range tried() {
		base := mustParse(t, text)
		var e Evaluator
		rapid.Check(t, func(t *rapid.T) {
			j := drawPlan(t, base)
			own := *j
			c := rapid.Float64Range(0.5, 2).Draw(t, "ratio")
			own.Runtime.OwnRuns = &strategies.OwnRuns{Ratio: c, Spread: 0.07, Runs: 3}
			plain, err := e.Estimate(j, Options{})
			require.NoError(t, err)
			got, err := e.Estimate(&own, Options{})
			require.NoError(t, err)
			near := func(want, got float64, what string) {
				require.InDelta(t, c*want, got, 1e-9*c*float64(plain.StepTime), what)
			}
			near(float64(plain.StepTime), float64(got.StepTime), "step")
			near(float64(plain.Parts.Exposed), float64(got.Parts.Exposed), "exposed")
			near(float64(plain.Parts.Host), float64(got.Parts.Host), "host")
			near(float64(plain.Parts.Bubble), float64(got.Parts.Bubble), "bubble")
			require.Equal(t, plain.Memory, got.Memory)
			require.InEpsilon(t, float64(plain.Power), float64(got.Power), 1e-9)
			floor, err := e.FloorTime(j)
			require.NoError(t, err)
			stretched, err := e.FloorTime(&own)
			require.NoError(t, err)
			near(float64(floor), float64(stretched), "floor")
		})
	}
}
