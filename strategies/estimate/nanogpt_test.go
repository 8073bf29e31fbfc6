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

// TestNanochat holds nanochat of late 2025 against its peaks of memory on one and two H200 (PyTorch 2.11, 2026-11-28), 12 and 20
// layers of 64 times as many elements, sequences of 2,048 tokens: the model returns the loss alone, so that the gradient
// of its logits takes their place, and no DDP has buckets, nor reduces beside the backward pass.
func TestNanochat(t *testing.T) {
	const job = "{model: {model_type: decoder, hidden_size: %d, num_hidden_layers: %d, num_attention_heads: %d, head_dim: 128, intermediate_size: %d, gated_mlp: false, activation: relu2, norm: rmsnorm, position: rope, bias: false, fused_qkv: false, qk_norm: head, vocab_size: 65536, tie_word_embeddings: false}, " +
		"hardware: h200-sxm, gpus: %d, runtime: {recipe: %s, attention: sdpa}, plan: {dp: %[5]d, data_parallel: ddp}, train: {sequence_length: 2048, micro_batch: %[7]d, dtypes: {embedding: bf16}, clip_gradients: true, grad_accumulation: 1}}"
	for _, c := range []struct {
		layers, gpus, batch int
		allocated           float64 // GB
	}{{20, 1, 32, 75.343}, {12, 1, 32, 32.628}, {20, 2, 32, 74.951}, {12, 2, 16, 17.194}} {
		of := func(recipe string) *Result {
			width := 64 * c.layers
			return mustEstimate(t, mustParse(t, fmt.Sprintf(job, width, c.layers, width/128, 4*width, c.gpus, recipe, c.batch)))
		}
		r, returned := of("nanochat"), of("nanogpt")
		require.InEpsilon(t, c.allocated*1e9, float64(r.Memory.PeakAllocated), 0.015, c)
		require.Greater(t, float64(returned.Memory.PeakAllocated-r.Memory.PeakAllocated), 3*65536*2048*float64(c.batch), "logits that are returned")
		if c.gpus > 1 {
			require.Greater(t, r.Exposed["dp"], 2*returned.Exposed["dp"])
		}
	}
}
