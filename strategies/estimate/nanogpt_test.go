package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNanoGPT holds training files like nanoGPT's against what they took on one H100 and two H200 (PyTorch
// 2.11, 2026-11-28): GPT-2 of 124 and 350 million parameters, 16 sequences. The logits that the model
// returns have a gradient of zeros, beside which that of a vocabulary of 50,257 is padded. Buckets of DDP
// cut what is compiled under it, however it was wrapped (torch/_dynamo, CatchErrorsWrapper), so that 38
// of 350 million parameters are reduced among 38 pieces of the backward pass (trace of two H200).
func TestNanoGPT(t *testing.T) {
	const job = "{model: {model_type: gpt2, n_embd: %d, n_layer: %d, n_head: %d, n_positions: 1024, vocab_size: %d, embd_pdrop: 0, attn_pdrop: 0, resid_pdrop: 0, activation_function: gelu_pytorch_tanh}, " +
		"hardware: %s, gpus: %d, runtime: {recipe: nanogpt, attention: sdpa}, plan: {dp: %[6]d, data_parallel: ddp, bucket_view: false}, train: {sequence_length: 1024, micro_batch: 16, grad_accumulation: %d, optimizer: adamw-fused}}"
	for _, c := range []struct {
		width, layers, vocab int
		hardware             string
		gpus, accumulation   int
		step, allocated      float64 // ms, GB
	}{
		{768, 12, 50304, "h100-sxm", 1, 1, 38.92, 12.364}, {768, 12, 50304, "h100-sxm", 1, 2, 75.58, 12.862}, {768, 12, 50257, "h100-sxm", 1, 1, 41.54, 13.957}, {1024, 24, 50304, "h200-sxm", 2, 1, 97.09, 0},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(job, c.width, c.layers, c.width/64, c.vocab, c.hardware, c.gpus, c.accumulation)))
		require.InEpsilon(t, c.step*1e-3, float64(r.StepTime), 0.08, c)
		if c.allocated > 0 {
			require.InEpsilon(t, c.allocated*1e9, float64(r.Memory.PeakAllocated), 0.01, c)
		}
	}
	r := mustEstimate(t, mustParse(t, fmt.Sprintf(job, 1024, 24, 16, 50304, "h200-sxm", 2, 1)))
	require.Less(t, float64(r.Exposed["dp"]), 2e-3, "of 5.9 ms that reductions take")
}
