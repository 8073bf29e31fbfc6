package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlainPyTorch: the bytes that a training file in plain PyTorch allocated at most on an H200, by its norms, precision
// and loss, and its kernels, in ms (PyTorch 2.11, 2026-11-29; calibrate/runs/data/plain.yaml): 12 layers 2048 wide, 8 sequences of 2048 tokens.
func TestPlainPyTorch(t *testing.T) {
	const text = `{model: {model_type: decoder, hidden_size: 2048, num_hidden_layers: 12, num_attention_heads: 16, num_key_value_heads: %d, intermediate_size: 5632, gated_mlp: true, hidden_act: silu, norm: rmsnorm, vocab_size: 32000, tie_word_embeddings: false},
hardware: h200-sxm, gpus: 1, runtime: {recipe: pytorch, release: "%s"%s}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: 2048, micro_batch: 8, precision: %s, clip_gradients: true, recompute: none}}`
	for _, c := range []struct {
		kv                          int
		release, runtime, precision string
		peak, step                  float64
	}{
		{16, "26.04", "", "bf16-autocast", 35191748096, 195.3},
		{16, "26.04", "", "bf16-pure", 23153787392, 158.4},
		{16, "26.04", ", norm_fusion: false", "bf16-autocast", 38547191296, 215.2},
		{16, "26.04", ", norm_fusion: false", "bf16-pure", 26509230592, 191.1},
		{16, "26.04", ", rotary: complex", "bf16-pure", 23151690240, 146.3},
		{4, "26.04", "", "bf16-autocast", 34134783488, 176.2},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(text, c.kv, c.release, c.runtime, c.precision)))
		require.InEpsilon(t, c.peak, float64(r.Memory.PeakAllocated), 0.001, "%+v", c)
		require.InEpsilon(t, c.step, 1e3*float64(r.StepTime), 0.03, "%+v", c)
	}
	// Before PyTorch 2.8 nn.RMSNorm is written out in PyTorch itself.
	older := mustEstimate(t, mustParse(t, fmt.Sprintf(text, 16, "25.07", "", "bf16-pure")))
	written := mustEstimate(t, mustParse(t, fmt.Sprintf(text, 16, "25.07", ", norm_fusion: false", "bf16-pure")))
	require.Equal(t, written.StepTime, older.StepTime)
}
