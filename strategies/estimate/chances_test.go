package estimate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// off are deviations of a few causes, of which a step may spare all.
func off(shares map[Cause]float64) *Deviations {
	var d Deviations
	for c, s := range shares {
		d[c] = Deviation{s, 1}
	}
	return &d
}

func TestChances(t *testing.T) {
	idle := off(map[Cause]float64{HostSpeed: 0.3, LeftOut: 0.05})
	idle[HostSpeed].Spare = 0
	for _, c := range []struct {
		name  string
		times []float64
		off   []*Deviations
		want  []float64
		delta float64
	}{
		{"one", []float64{2}, []*Deviations{{}}, []float64{1}, 1e-12},
		{"nothing is uncertain", []float64{1, 1.001}, []*Deviations{{}, {}}, []float64{1, 0}, 1e-12},
		{"alike share the chance", []float64{1, 1, 3}, []*Deviations{off(map[Cause]float64{LeftOut: 0.1}), off(map[Cause]float64{LeftOut: 0.1}), off(map[Cause]float64{LeftOut: 0.1})}, []float64{0.5, 0.5, 0}, 1e-6},
		{"both wait for the host, however fast it is", []float64{1, 1.02}, []*Deviations{off(map[Cause]float64{HostSpeed: 0.4}), off(map[Cause]float64{HostSpeed: 0.4})}, []float64{1, 0}, 1e-12},
		{"one waits for the host, which is common to both but not alike", []float64{1, 1.1}, []*Deviations{off(map[Cause]float64{HostSpeed: 0.2}), {}},
			[]float64{normal(math.Log(1.1) / 0.2), normal(-math.Log(1.1) / 0.2)}, 0.004},
		{"two causes", []float64{1, 1.1}, []*Deviations{off(map[Cause]float64{HostSpeed: 0.2}), off(map[Cause]float64{NetworkSpeed: 0.1})},
			[]float64{normal(math.Log(1.1) / math.Hypot(0.2, 0.1)), normal(-math.Log(1.1) / math.Hypot(0.2, 0.1))}, 0.008},
		{"their own errors: the difference of two Gumbels is logistic", []float64{1, 1.05}, []*Deviations{off(map[Cause]float64{LeftOut: 0.1}), off(map[Cause]float64{LeftOut: 0.1})},
			[]float64{1 / (1 + math.Exp(-math.Log(1.05)/(0.1*math.Sqrt(ownShare*6)/math.Pi))), 1 / (1 + math.Exp(math.Log(1.05)/(0.1*math.Sqrt(ownShare*6)/math.Pi)))}, 1e-4},
		{"a fast host gains nothing for a plan that does not wait for it", []float64{1, 1.2}, []*Deviations{off(map[Cause]float64{LeftOut: 0.05}), idle}, []float64{1, 0}, 0.002},
	} {
		got := Chances(c.times, c.off)
		for i := range got {
			require.InDelta(t, c.want[i], got[i], c.delta, "%s: %v", c.name, got)
		}
	}
	require.Empty(t, Chances(nil, nil))
}

// normal is the standard normal distribution.
func normal(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

func TestChancesLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "n")
		share := rapid.Float64Range(0, 0.3)
		times, of := make([]float64, n), make([]*Deviations, n)
		for i := range n {
			times[i] = rapid.Float64Range(1, 1.5).Draw(t, "time")
			of[i] = &Deviations{}
			for c := range NumCauses {
				of[i][c] = Deviation{share.Draw(t, "share"), rapid.Float64Range(0, 1).Draw(t, "spare")}
			}
		}
		p := Chances(times, of)
		sum := 0.0
		for _, x := range p {
			require.GreaterOrEqual(t, x, 0.0)
			sum += x
		}
		require.InDelta(t, 1, sum, 1e-9)
		require.Equal(t, p, Chances(times, of), "the same each time")

		// A faster plan has a better chance.
		i := rapid.IntRange(0, n-1).Draw(t, "i")
		times[i] *= 0.95
		require.GreaterOrEqual(t, Chances(times, of)[i], p[i]-1e-12)
		times[i] /= 0.95

		// What the host does to all plans alike says nothing of any.
		alike := Deviation{share.Draw(t, "host"), rapid.Float64Range(0, 1).Draw(t, "spare")}
		for i := range of {
			of[i][HostSpeed] = Deviation{}
		}
		without := Chances(times, of)
		for i := range of {
			of[i][HostSpeed] = alike
		}
		require.Equal(t, without, Chances(times, of))
	})
}
