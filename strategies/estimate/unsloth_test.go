package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	unslothJob = "{model: {model_type: llama, hidden_size: %d, num_hidden_layers: %d, num_attention_heads: %d, num_key_value_heads: 8, head_dim: 128, intermediate_size: %d, vocab_size: 128256, tie_word_embeddings: false, max_position_embeddings: 400000}, " +
		"hardware: %s, gpus: 1, runtime: {recipe: %s}, plan: {}, train: {sequence_length: %d, micro_batch: %d, grad_accumulation: 1, precision: %s, optimizer: adamw-8bit, lora: {rank: %d}, recompute: %s, offload_activations: %v}}"
	width8B = 4096
)

// TestUnsloth holds Unsloth's kernels against what they took on one H200 (PyTorch 2.11, 2026-11-29), of layers as
// Llama 3.1 8B has them: GB allocated at the peak, and ms of kernels (traces) in steps that wait for a slow host.
func TestUnsloth(t *testing.T) {
	for _, c := range []struct {
		layers, batch   int
		precision       string
		again           string
		away            bool
		allocated, busy float64
	}{
		{16, 2, "nf4-frozen", "full", true, 6.558, 187.6}, {16, 2, "nf4-frozen", "none", false, 13.557, 135.1},
		{16, 4, "bf16-frozen", "none", false, 28.195, 0}, {32, 2, "nf4-frozen", "full", true, 8.483, 0},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(unslothJob, width8B, c.layers, 32, 14336, "h200-sxm", "unsloth", 2048, c.batch, c.precision, 16, c.again, c.away)))
		require.InEpsilon(t, c.allocated*1e9, float64(r.Memory.PeakAllocated), 0.015, c)
		if c.busy > 0 {
			require.InEpsilon(t, c.busy*1e-3, float64(r.Parts.GEMM+r.Parts.Attention+r.Parts.Memory), 0.05, c)
		}
	}
}

// TestUnslothContexts holds predicted memory against the longest sequences that Unsloth's README gave for GPUs of so many GB
// (unslothai/unsloth of 2025-01 to 2026-03, "Context length benchmarks": one sequence, rank 32 of all projections, 4 bits), by
// itself and by transformers with FlashAttention 2: these fill the GPU, give or take a tenth.
func TestUnslothContexts(t *testing.T) {
	const peft = "hf-eager, release: \"24.12\", attention: flash-attn"
	const own = "unsloth, release: \"25.01\", attention: flash-attn"
	for _, c := range []struct {
		recipe         string
		hidden, tokens int
		hardware       string
		gb             float64
	}{
		{own, width8B, 2972, "rtx-3090", 8}, {own, width8B, 21848, "rtx-3090", 12}, {own, width8B, 40724, "rtx-3090", 16}, {own, width8B, 78475, "rtx-3090", 24},
		{own, width8B, 153977, "a100-40g-sxm", 40}, {own, width8B, 191728, "rtx-a6000", 48}, {own, width8B, 342733, "a100-80g-sxm", 80},
		{own, 8192, 12106, "rtx-a6000", 48}, {own, 8192, 89389, "a100-80g-sxm", 80},
		{peft, width8B, 932, "rtx-3090", 12}, {peft, width8B, 2551, "rtx-3090", 16}, {peft, width8B, 5789, "rtx-3090", 24},
		{peft, width8B, 12264, "a100-40g-sxm", 40}, {peft, width8B, 15502, "rtx-a6000", 48}, {peft, width8B, 28454, "a100-80g-sxm", 80},
	} {
		layers, heads, wide, precision, away := 32, 32, 14336, "nf4-frozen", true
		if c.hidden > width8B {
			layers, heads, wide = 80, 64, 28672
		}
		if c.recipe == peft {
			precision, away = "nf4-prepared", false
		}
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(unslothJob, c.hidden, layers, heads, wide, c.hardware, c.recipe, c.tokens, 1, precision, 32, "full", away)))
		require.InEpsilon(t, c.gb, float64(r.Memory.DeviceUsed)/(1<<30), 0.1, c)
	}
}
