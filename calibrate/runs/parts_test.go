package runs

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// partRows are so many steps in some groups, whose kernels, communication and waits for the host
// take so many times as long as predicted, but for noise and a few that nothing explains.
func partRows(n, groups int, ratios [3]float64) []Row {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	rows := make([]Row, n)
	for i := range rows {
		var p estimate.Parts
		p.Exposed, p.Host = units.Seconds(0.4*random.Float64()), units.Seconds(0.3*random.Float64())
		p.GEMM = 1 - p.Exposed - p.Host
		measured := ratios[0]*float64(p.GEMM) + ratios[1]*float64(p.Exposed) + ratios[2]*float64(p.Host) + 0.01*random.NormFloat64()
		if i%20 == 7 {
			measured *= 2
		}
		r := &rows[i]
		r.Group, r.Status = fmt.Sprint(i%groups), OK
		r.Predicted.StepTime, r.Predicted.Parts, r.Measured.StepTime = 1, p, units.Seconds(measured)
	}
	return rows
}

// TestParts: the ratios that steps were made of are found again, whatever a few of them do.
func TestParts(t *testing.T) {
	truth := [3]float64{1.02, 1.3, 0.8}
	for _, groups := range []int{1, 3, 40} {
		parts, err := Parts(partRows(400, groups, truth))
		require.NoError(t, err)
		require.Len(t, parts, 3, "there are no bubbles")
		sum := 0.0
		for k, p := range parts {
			require.InDelta(t, truth[k], p.Ratio, 0.03, p.Name)
			require.InDelta(t, truth[k], p.Ratio, 4*p.Deviation, p.Name)
			require.Less(t, p.Deviation, 0.02, p.Name)
			sum += p.Share
		}
		require.InDelta(t, 1, sum, 1e-9)
	}

	rows := partRows(100, 5, truth)
	rows[3].Status, rows[4].Measured.StepTime = Unsupported, 0 // which say nothing
	few, err := Parts(rows)
	require.NoError(t, err)
	many, err := Parts(partRows(1000, 5, truth))
	require.NoError(t, err)
	require.Greater(t, few[1].Deviation, many[1].Deviation)
}

// TestPartsBelowNothing: no part takes less than nothing. One that would is taken as predicted, and said to be untold.
func TestPartsBelowNothing(t *testing.T) {
	parts, err := Parts(partRows(400, 3, [3]float64{1.0, -0.1, 1.0}))
	require.NoError(t, err)
	require.Equal(t, Part{Name: parts[1].Name, Share: parts[1].Share, Ratio: 1, Untold: true}, parts[1])
	for _, k := range []int{0, 2} {
		require.False(t, parts[k].Untold)
		require.Positive(t, parts[k].Ratio)
		require.Positive(t, parts[k].Deviation)
	}
}

// TestPartsThatNothingTells: too few runs, or runs that are all alike, say nothing of parts.
func TestPartsThatNothingTells(t *testing.T) {
	_, err := Parts(partRows(14, 3, [3]float64{1, 1, 1}))
	require.ErrorContains(t, err, "--parts: 14 runs have a step time, too few to tell 3 parts from each other; give 15 or more")
	_, err = Parts(nil)
	require.ErrorContains(t, err, "0 runs have a step time")
	rows := partRows(30, 3, [3]float64{1, 1, 1})
	for i := range rows {
		rows[i].Predicted.Parts = rows[0].Predicted.Parts
	}
	_, err = Parts(rows)
	require.ErrorContains(t, err, "add runs of other plans or batches")
}
