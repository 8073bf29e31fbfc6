package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestVocabLoss: Megatron's cross entropy with its cast and its gradient, of so many fp16
// logits on an H200 (Megatron-LM v2.6, PyTorch 2.11, profiler traces, 2026-11-21).
func TestVocabLoss(t *testing.T) {
	for _, c := range []struct {
		vocabulary, tokens int
		want               units.Seconds
	}{
		{25216, 1024, 514e-6}, {25216, 4096, 1859.1e-6}, {50304, 4096, 3593.9e-6}, {51200, 1024, 970.3e-6}, {51200, 4096, 3658.6e-6},
	} {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 1, num_attention_heads: 16, intermediate_size: 4096, gated_mlp: false, vocab_size: %d},
			hardware: h200-sxm, gpus: 1, runtime: {recipe: megatron-lm}, plan: {}, train: {precision: fp16, sequence_length: %d, micro_batch: 1, grad_accumulation: 1}}`, c.vocabulary, c.tokens)), Options{Detail: true})
		require.NoError(t, err)
		var got units.Seconds
		head := r.Detail.Units[len(r.Detail.Units)-1]
		for _, list := range [][]OpDetail{head.Forward, head.Backward} {
			for _, o := range list {
				if o.Op.Module == "loss" {
					got += o.Time
				}
			}
		}
		require.InEpsilon(t, float64(c.want), float64(got), 0.06, "%d × %d", c.tokens, c.vocabulary)
	}
}
