package runs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpearman(t *testing.T) {
	set := func(pairs ...float64) (out []measuredLayout) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, measuredLayout{predicted: pairs[i], measured: pairs[i+1]})
		}
		return
	}
	require.InDelta(t, 1, spearman(set(1, 10, 2, 20, 3, 25)), 1e-12)
	require.InDelta(t, -1, spearman(set(1, 3, 2, 2, 3, 1)), 1e-12)
	require.InDelta(t, 0.8, spearman(set(1, 1, 2, 3, 3, 2, 4, 4)), 1e-12) // 1 - 6·2/(4·15)
	require.Zero(t, spearman(set(1, 1, 1, 2, 1, 3)), "a constant ranks nothing")
}

// Among measured layouts of one job the predicted best is close to the measured
// best, and much closer than the worst: BLOOM's tuning, vTrain's grid, MLPerf.
func TestChoices(t *testing.T) {
	if testing.Short() {
		t.Skip("figures are the same under the race detector, which takes ten times as long for them")
	}
	t.Parallel()
	all, err := embedded()
	require.NoError(t, err)
	list, err := Filter(all, []string{"bloom_tuning_a100", "vtrain_multi_a100", "mlperf_gpt3_175b", "mlperf_llama31_405b"})
	require.NoError(t, err)
	choices := Choices(list, Validate(list).Rows, Fewest)
	require.NotEmpty(t, choices)
	sum, right := 0.0, 0
	for _, c := range choices {
		t.Logf("%-20s %-45s %2d layouts, regret %4.1f %%, Spearman %.2f, range %.0f %%\n   chosen %s\n   best   %s", c.Group, c.Name, c.Layouts, 100*c.Regret, c.Spearman, 100*c.Range, c.Chosen, c.Best)
		require.GreaterOrEqual(t, c.Regret, 0.0)
		require.LessOrEqual(t, c.Regret, c.Range)
		if sum += c.Regret; c.Regret == 0 {
			right++
		}
	}
	require.GreaterOrEqual(t, right, len(choices)/2, "the best layout is the one chosen")
	require.Less(t, sum/float64(len(choices)), 0.10, "mean regret")
}
