package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestModuleHooks: DeepSpeed's ZeRO-3 has the host work around every module, for every matrix
// and every gradient: 13 modules, 7 matrices and 9 gradients of a Llama layer, each of which
// fills a bucket. One rank gathers and reduces nothing, layers that stay gathered nothing for their
// backward pass, recomputation calls modules once more, and what the device needs longer for
// hides it. Eight ranks, which cut each gradient, wait for the slowest of their hosts. Since 2026-05 modules take longer forward.
func TestModuleHooks(t *testing.T) {
	release := ""
	run := func(layers, gpus, sequence int, kind, recompute string) *Result {
		return predicted(t, fmt.Sprintf("{model: {model_type: llama, hidden_size: 1024, num_hidden_layers: %d, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, vocab_size: 8192}, hardware: h100-sxm, gpus: %d, runtime: {recipe: deepspeed-hf%s}, plan: {dp: %d, data_parallel: %s}, train: {sequence_length: %d, micro_batch: 1, recompute: %s}}", layers, gpus, release, gpus, kind, sequence, recompute))
	}
	layer := func(gpus int, kind, recompute string) float64 {
		return float64(run(16, gpus, 256, kind, recompute).StepTime-run(8, gpus, 256, kind, recompute).StepTime) / 8
	}
	const module, back, matrix, gradient, reduce, step = 210e-6, 110e-6, 127e-6, 220e-6 + 170e-6, 112e-6 + 150e-6, 30e-6
	one, eight := layer(1, "zero3", "none"), layer(8, "zero3", "none")/(1+run(8, 8, 256, "zero3", "none").Job.Recipe.Host.Skew*expectedMaximum(8))
	require.InEpsilon(t, 13*(module+back)+9*(gradient+step), one-layer(1, "ddp", "none"), 0.1)
	require.InEpsilon(t, 7*matrix+9*reduce, eight-one, 0.3, "and what of the collectives shows")
	require.InEpsilon(t, 11*module, layer(1, "zero3", "full")-layer(1, "ddp", "full")-(one-layer(1, "ddp", "none")), 0.1)

	long, ddp := run(8, 1, 32768, "zero3", "none"), run(8, 1, 32768, "ddp", "none")
	require.InEpsilon(t, float64(ddp.StepTime), float64(long.StepTime), 0.02)

	release = ", release: 26.08"
	require.InEpsilon(t, 13*60e-6, layer(1, "zero3", "none")-one, 0.1)
}
