package strategies

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a job is refused for, every name in it that does not exist is told with it.
func TestNamesAreToldTogether(t *testing.T) {
	for _, c := range []struct {
		job  string
		want []string
	}{
		{"{model: gpt2, gpuz: 8, runtime: {recipe: foo, attention: bar}, train: {recompute: half}}", []string{
			`unknown key "gpuz"`, `runtime.recipe: there is no recipe "foo"; there are aa-scaling, automodel,`, `runtime.attention: "bar" is not known`, `train.recompute: "half" is not known`}},
		{"{model: {hidden_size: 64}, plan: {schedule: 2f2b}, train: {precision: foo, optimizer: adamx}}", []string{
			"model_type is missing", `plan.schedule: unknown pipeline schedule "2f2b"`, `train.precision: recipe megatron-core has no "foo"`, `train.optimizer: recipe megatron-core has no "adamx"`}},
		{"{model: gpt2, gpus: -1, train: {optimizer: adamx}}", []string{"gpus: -1; give 1 to", "train.optimizer: recipe megatron-core has no"}},
	} {
		_, err := decode(c.job)
		for _, want := range c.want {
			require.ErrorContains(t, err, want, c.job)
		}
	}
}
