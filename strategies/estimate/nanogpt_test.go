package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNanoGPT holds training files like nanoGPT's against what they took on one and two H100 (PyTorch 2.11,
// 2026-11-28): GPT-2 of 124 million parameters, 16 sequences. DDP wraps what is compiled, so that no
// bucket is reduced before the backward pass has ended (in traces of two ranks the first of 14 follows the
// last kernel), and the logits that the model returns have a gradient of zeros, beside which that
// of a vocabulary of 50,257 is padded.
func TestNanoGPT(t *testing.T) {
	const job = "{model: {model_type: gpt2, n_embd: 768, n_layer: 12, n_head: 12, n_positions: 1024, vocab_size: %d, embd_pdrop: 0, attn_pdrop: 0, resid_pdrop: 0, activation_function: gelu_pytorch_tanh}, " +
		"hardware: h100-sxm, gpus: %d, runtime: {recipe: nanogpt, attention: sdpa}, plan: {dp: %[2]d, data_parallel: ddp, bucket_view: false}, train: {sequence_length: 1024, micro_batch: 16, grad_accumulation: %d, optimizer: adamw-fused}}"
	for _, c := range []struct {
		vocab, gpus, accumulation int
		step, allocated           float64 // ms, GB
	}{
		{50304, 1, 1, 38.92, 12.364}, {50304, 1, 2, 75.58, 12.862}, {50257, 1, 1, 41.54, 13.957}, {50304, 2, 1, 43.85, 12.871},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(job, c.vocab, c.gpus, c.accumulation)))
		require.InEpsilon(t, c.step*1e-3, float64(r.StepTime), 0.08, c)
		require.InEpsilon(t, c.allocated*1e9, float64(r.Memory.PeakAllocated), 0.01, c)
	}
	// What litgpt reduces beside the backward pass shows here.
	exposed := func(recipe string) float64 {
		j := mustParse(t, fmt.Sprintf(strings.ReplaceAll(job, "recipe: nanogpt", "recipe: "+recipe+", host_speed: 20"), 50304, 16, 1))
		return float64(mustEstimate(t, j).Exposed["dp"])
	}
	require.Greater(t, exposed("nanogpt"), 4*exposed("litgpt"))
}
