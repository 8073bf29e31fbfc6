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
// hides it. Eight ranks, which cut each gradient, wait for the slowest of their hosts.
func TestModuleHooks(t *testing.T) {
	run := func(layers, gpus, sequence int, kind, recompute string) *Result {
		return predicted(t, fmt.Sprintf("{model: {model_type: llama, hidden_size: 1024, num_hidden_layers: %d, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, vocab_size: 8192}, hardware: h100-sxm, gpus: %d, runtime: {recipe: deepspeed-hf}, plan: {dp: %d, data_parallel: %s}, train: {sequence_length: %d, micro_batch: 1, recompute: %s}}", layers, gpus, gpus, kind, sequence, recompute))
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
}

// TestBucketHooks: ZeRO 1 and 2 have the host put every gradient into a bucket and reduce every one
// that has no room for the next: nine gradients of a Llama layer, of buckets as large as one square matrix nine
// reductions, of one for all none; of ZeRO 1 after the last micro batch alone. One rank does the same.
func TestBucketHooks(t *testing.T) {
	backward := func(layers, gpus int, kind, bucket string, micro int) float64 {
		return float64(predicted(t, fmt.Sprintf("{model: {model_type: llama, hidden_size: 1024, num_hidden_layers: %d, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, vocab_size: 8192}, hardware: h100-sxm, gpus: %d, runtime: {recipe: deepspeed-hf, host_speed: 0.1}, plan: {dp: %d, data_parallel: %s, bucket: %s}, train: {sequence_length: 64, micro_batch: 1, grad_accumulation: %d}}", layers, gpus, gpus, kind, bucket, micro)).Backward)
	}
	layer := func(gpus int, kind, bucket string, micro int) float64 {
		return (backward(16, gpus, kind, bucket, micro) - backward(8, gpus, kind, bucket, micro)) / 8
	}
	const gradient, reduce, slow = 45e-6, 115e-6, 10
	for _, gpus := range []int{1, 2} {
		many, all := layer(gpus, "zero2", "2 MiB", 1), layer(gpus, "zero2", "10 GB", 1)
		require.InEpsilon(t, slow*9*reduce, many-all, 0.25, gpus)
		if gpus == 1 {
			require.InEpsilon(t, slow*9*gradient, all-layer(1, "ddp", "10 GB", 1), 0.25, "and the launches of copies")
		}
		require.InEpsilon(t, slow*9*(gradient+reduce), layer(gpus, "zero2", "2 MiB", 2)-layer(gpus, "zero1", "2 MiB", 2), 0.25, gpus)
	}
}
