package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTensorHooks: transformers' tensor parallelism is of DTensors, between two releases of plain
// tensors with hooks that sum copies (huggingface/transformers pulls 43157 and 47579). Its plans cut
// the output layer, and each rank gathers all logits; one that is tied to the table stays whole.
func TestTensorHooks(t *testing.T) {
	t.Parallel()
	const text = `{model: %s, hardware: h100-sxm, gpus: 4, runtime: {recipe: hf-eager%s}, plan: {tp: 4}, train: {sequence_length: 128, micro_batch: 1, precision: bf16-pure, optimizer: adamw}}`
	run := func(model, release string) *Result {
		r, err := Estimate(mustParse(t, fmt.Sprintf(text, model, release)), Options{Detail: true})
		require.NoError(t, err)
		return r
	}
	const plain, before, after = `, release: "26.04"`, `, release: "26.01"`, `, release: "26.09"`
	hooks, dtensors, now := run("qwen2.5-7b", plain), run("qwen2.5-7b", before), run("qwen2.5-7b", "")
	require.Equal(t, now.StepTime, run("qwen2.5-7b", after).StepTime)
	require.Greater(t, float64(dtensors.StepTime-hooks.StepTime), 28*7*0.5e-3, "seven projections of 28 layers")
	logits := 0
	for _, c := range hooks.Detail.Collectives {
		if c.Kind == "all-gather" {
			logits++
			require.EqualValues(t, 128*152064*2, c.Bytes)
		}
	}
	require.Equal(t, 1, logits)
	require.Equal(t, calls(dtensors, "all-reduce"), calls(hooks, "all-reduce"), "one of each projection, either way")
	head := 152064. * 3584 * 2
	require.InEpsilon(t, 4*head*3/4, float64(now.Memory.PeakAllocated-hooks.Memory.PeakAllocated), 0.05, "weights, gradients and moments of three quarters of it")
	require.Zero(t, calls(run("llama3.2-1b", plain), "all-gather"), "the head is the table")
}
