package strategies

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

// TestStartOnPicks: stages begin with layers that pick their keys. On 192 GB200 Megatron-Bridge
// gives GLM-5.2 stages of 14, 12, 12, 12, 12 and 16 layers, which even ones of 13 come near.
func TestStartOnPicks(t *testing.T) {
	j := mustDecode(t, "{model: glm-5.2, gpus: 192, runtime: {recipe: megatron-core}, plan: {pp: 6, ep: 32}, train: {sequence_length: 4096}}")
	require.Equal(t, []int64{14, 12, 12, 12, 16, 12}, j.Plan.SplitLayers(j.Model, j.Recipe, j.Model.Layers, 6))
	require.Contains(t, strings.Join(j.Defaulted, "\n"), "plan.stage_layers = [14, 12, 12, 12, 16, 12]")
}

// TestEvenModules: Aleph Alpha's pipe_partition_uniform of embedding, layers, norm and head
// (scaling, core/nn/parallel_module/pipeline_partitioning.py, by hand).
func TestEvenModules(t *testing.T) {
	for _, c := range []struct {
		layers int64
		want   []int64
	}{
		{80, []int64{41, 39}}, {80, []int64{10, 11, 11, 10, 10, 10, 10, 8}}, {60, []int64{15, 16, 16, 13}},
		{60, []int64{3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1}}, {4, []int64{2, 1, 1}}, // too few for the last to have one
	} {
		r := &recipe.Recipe{Structure: recipe.Structure{PipelineStructure: recipe.PipelineStructure{EvenModules: true}}}
		require.Equal(t, c.want, frameworkSplit(&model.Spec{Layers: c.layers}, r, c.layers, int64(len(c.want))))
	}
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
