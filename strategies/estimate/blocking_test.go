package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLaunchBlocking holds the price of a host that waits for every kernel against
// the one pair of runs that tells it: 200B parameters on 80 A100, 512 micro batches
// at 97.20 and 91.04 TFLOP/s, where 2048 at 98.87 TFLOP/s took 844.81 s
// (bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md). That is
// 3.5 ms a layer and micro batch. The recipe knows when it must be.
func TestLaunchBlocking(t *testing.T) {
	at := func(gpus, gbits int, runtime string) *Result {
		return predicted(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 14400, num_hidden_layers: 80, num_attention_heads: 96, intermediate_size: 57600, gated_mlp: false, vocab_size: 250880},
			hardware: a100-80g-sxm, gpus: %d, network: {bandwidth_per_gpu: %d Gbit/s}, runtime: {recipe: megatron-deepspeed, attention: unfused%s},
			plan: {tp: 8, sequence_parallel: false, pp: 10, data_parallel: zero1}, train: {sequence_length: 2048, grad_accumulation: 512, precision: fp16, recompute: full}}`, gpus, gbits, runtime))
	}
	free := at(80, 50, "")
	const layers = 8 * (512 + 10 - 1) // one after the other
	measured := 844.81 / 4 * (98.87/91.04 - 98.87/97.20) / layers
	require.InDelta(t, measured, float64(at(80, 50, ", launch_blocking: true").StepTime-free.StepTime)/layers, 1e-3)
	require.Equal(t, free.StepTime, at(80, 50, ", launch_blocking: false").StepTime)

	big := at(160, 50, "")
	require.Equal(t, at(160, 50, ", launch_blocking: true").StepTime, big.StepTime)
	require.Greater(t, big.StepTime, at(160, 50, ", launch_blocking: false").StepTime)
	require.Equal(t, at(160, 100, ", launch_blocking: false").StepTime, at(160, 100, "").StepTime)
}
