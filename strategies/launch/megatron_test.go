package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// holds requires of Megatron-LM's arguments what they say in the job that they make.
func holds(t *testing.T, says map[string][]string) {
	t.Helper()
	for more, want := range says {
		text := pretrain(t, more)
		for _, w := range want {
			require.Contains(t, text, w, more)
		}
	}
}

// TestStageLayers: the layers of stages are those of a layout, but that estimate takes
// multi-token prediction with the loss, and no stage inside a pipeline to be empty.
func TestStageLayers(t *testing.T) {
	const layout = "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
	holds(t, map[string][]string{
		layout + "'Ett|ttL'":               {"stage_layers: [2, 2] # --pipeline-model-parallel-layout"},
		layout + "'E|t*2|(t)*2,m|L'":       {"virtual_stages: 2 # --pipeline", "stage_layers: [0, 2, 2, 0]", "# Not taken over: --pipeline-model-parallel-layout: multi-token prediction of stage 2 is taken to be on the last, 3, with the loss"},
		layout + "'Ettt|t|m|L'":            {"stage_layers: [2, 1, 1, 0]", "stage 2, which has no layer, is taken to have one of stage 0"},
		layout + "'E||tttt|L'":             {"stage_layers: [0, 1, 3, 0]", "stage 1, which has no layer, is taken to have one of stage 2"},
		layout + "'Et|t||||||t|tL'":        {"# plan.stage_layers: --pipeline-model-parallel-layout: 9 is the number of stages, no multiple of the 2 ranks of the pipeline: give the key"},
		layout + "'Et|t|||||t|tL'":         {"# plan.stage_layers: --pipeline-model-parallel-layout: stages inside the pipeline without a layer, and none that has more than one: give the key"},
		layout + "'Ett|tmL'":               {"# plan.stage_layers: --pipeline-model-parallel-layout: 3 layers, but the model has 4: give the key"},
		layout + "'Etx|tt'":                {"# Not taken over: --pipeline-model-parallel-layout Etx|tt"},
		"--pipeline-model-parallel-size 2": {"pp: 2 # --pipeline-model-parallel-size"},
	})
}
