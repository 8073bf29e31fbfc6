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

// TestMathAttention: peaks of a decoder of 88M by PyTorch's math attention on an RTX 4090, in MB (kleon1024/agi-playground,
// 01-language-model/02-pretrain/throughput/runs/2026-07-28-throughput-ladder.md @82c2668), whose model repeats heads itself.
func TestMathAttention(t *testing.T) {
	const text = `{model: {model_type: decoder, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, num_key_value_heads: 4, head_dim: 64, intermediate_size: 2048, gated_mlp: true, vocab_size: 16512, tie_word_embeddings: true},
hardware: rtx-4090, gpus: 1, runtime: {recipe: hf-eager, attention: math, upcast: false, tf32: false, release: "26.07"}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: 1024, micro_batch: 4, grad_accumulation: 1, precision: %s, optimizer: adamw-foreach, clip_gradients: false, recompute: none}}`
	for precision, peak := range map[string]float64{"fp32": 7739.4, "bf16-autocast": 6849.3} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(text, precision)))
		require.InEpsilon(t, peak, float64(r.Memory.PeakAllocated)/1e6, 0.04, precision)
	}
}

// TestUpcastUnderAutocast: the peak, in GiB, of a Qwen3 of 98M in 16 bits under autocast, with cross_entropy outside the
// model, on an RTX 4090 (a public tutorial of tiny-qwen35-110m, docs/03_model_from_scratch.md, section 6; llm_tutorial/sanity.py):
// 16-bit logarithms stay beside the fp32 ones that nll_loss reads, and its gradient.
func TestUpcastUnderAutocast(t *testing.T) {
	const text = `{model: {model_type: qwen3, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, num_key_value_heads: 2, head_dim: 64, intermediate_size: 2048, vocab_size: 32000, tie_word_embeddings: true, max_position_embeddings: 2048},
hardware: rtx-4090, gpus: 1, runtime: {recipe: hf-eager, attention: sdpa, upcast: false, tf32: false, release: "26.07"}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: 2048, micro_batch: 8, grad_accumulation: 1, precision: bf16-pure-autocast, optimizer: adamw-foreach, clip_gradients: false, recompute: none}}`
	r := mustEstimate(t, mustParse(t, text))
	require.InEpsilon(t, 12.46, float64(r.Memory.PeakAllocated)/float64(units.GiB), 0.002)
}
