package strategies

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/model"
)

// TestStartOnPicks: stages begin with layers that pick their keys. On 192 GB200 Megatron-Bridge
// gives GLM-5.2 stages of 14, 12, 12, 12, 12 and 16 layers, which even ones of 13 come near.
func TestStartOnPicks(t *testing.T) {
	j := mustDecode(t, "{model: glm-5.2, gpus: 192, runtime: {recipe: megatron-core}, plan: {pp: 6, ep: 32}, train: {sequence_length: 4096}}")
	require.Equal(t, []int64{14, 12, 12, 12, 16, 12}, j.Plan.SplitLayers(j.Model, j.Recipe, j.Model.Layers, 6))
	require.Contains(t, strings.Join(j.Defaulted, "\n"), "plan.stage_layers = [14, 12, 12, 12, 16, 12]")
}

// TestEveryStageStartsOnPicks: so they do wherever there are enough such layers.
func TestEveryStageStartsOnPicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		follow := rapid.SliceOfN(rapid.Bool(), 2, 100).Draw(t, "follow")
		follow[0] = false
		picks := 0
		for _, f := range follow {
			if !f {
				picks++
			}
		}
		n := rapid.IntRange(1, picks).Draw(t, "stages")
		m := &model.Spec{Layers: int64(len(follow)), Indexer: &model.Indexer{Follow: follow}}
		at := int64(0)
		for i, k := range startOnPicks(m, Split(m.Layers, int64(n), false)) {
			require.Positive(t, k, "stage %d", i)
			require.False(t, follow[at], "stage %d", i)
			at += k
		}
		require.Equal(t, m.Layers, at)
	})
}
