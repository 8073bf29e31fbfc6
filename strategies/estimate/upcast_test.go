package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestUpcast: what a GPT of 124M in 16 bits reserved on an A100, by a loop of plain PyTorch without a cast to fp32
// (rasbt/LLMs-from-scratch, ch05/10_llm-training-speed/README.md @0636158, steps 6 and 7).
func TestUpcast(t *testing.T) {
	const text = `{model: {model_type: gpt2, n_embd: 768, n_layer: 12, n_head: 12, n_positions: 1024, vocab_size: 50257, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1, activation_function: gelu_pytorch_tanh, tie_word_embeddings: false},
hardware: a100-40g-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: %s, upcast: %t, release: "25.02"}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: 1024, micro_batch: 8, grad_accumulation: 1, precision: bf16-pure, optimizer: adamw-fused, clip_gradients: false, recompute: none}}`
	for attention, reserved := range map[string]float64{"unfused": 11.5645, "sdpa": 5.9004} {
		peak := func(upcast bool) float64 {
			r := mustEstimate(t, mustParse(t, fmt.Sprintf(text, attention, upcast)))
			return float64(r.Memory.PeakReserved) / float64(units.GiB)
		}
		require.InEpsilon(t, reserved, peak(false), 0.01, attention)
		require.Greater(t, peak(true), 1.3*reserved, attention)
	}
}
