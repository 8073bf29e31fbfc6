package search

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLooseFloors: a search whose floors are those of plans that recompute nothing finds what one with own
// floors finds, by time and by energy.
func TestLooseFloors(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		text      string
		objective Objective
	}{
		{"{model: llama3-8b, hardware: a100-80g-sxm, gpus: 16, train: {global_batch: 32, sequence_length: 8192}}", Energy},
		{"{model: deepseek-v2-lite, hardware: h100-sxm, gpus: 8, train: {global_batch: 64, sequence_length: 8192}}", Tokens},
	} {
		if testing.Short() && i > 0 { // all race alike
			break
		}
		j := jobOf(t, c.text)
		rank := func(cuts int) *Ranking {
			r, err := Rank(t.Context(), j, Options{Objective: c.objective, manyCuts: cuts})
			require.NoError(t, err)
			return r
		}
		own, loose := rank(1<<30), rank(1)
		require.Equal(t, own.Legal, loose.Legal)
		require.Equal(t, own.Considered, loose.Considered)
		require.Len(t, loose.Plans, len(own.Plans))
		for i := range own.Plans {
			require.Equal(t, Describe(own.Plans[i].Job), Describe(loose.Plans[i].Job), c.text)
			require.Equal(t, own.Plans[i].Value, loose.Plans[i].Value, c.text)
		}
	}
}
