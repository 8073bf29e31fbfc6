package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// encodes is a step of an encoder-decoder model on H200s that are not bound by their hosts.
func encodes(t *testing.T, model string, gpus int, plan, train string) *Result {
	return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: %d, runtime: {recipe: hf-eager, host_speed: 20}, plan: {%s}, train: {micro_batch: 8, optimizer: adamw-fused, %s}}", model, gpus, plan, train)))
}

// TestEncoderDecoderLaws: longer sequences of either stack take longer and more memory, either stack about as long as
// layers that are alike, and what each kind of data parallelism keeps is ordered as with other models.
func TestEncoderDecoderLaws(t *testing.T) {
	for _, model := range []string{"flan-t5-base", "t5-small", "bart-base", "mt5-small"} {
		before := encodes(t, model, 1, "dp: 1", "sequence_length: 128, source_length: 256, precision: bf16-pure")
		source := encodes(t, model, 1, "dp: 1", "sequence_length: 128, source_length: 512, precision: bf16-pure")
		target := encodes(t, model, 1, "dp: 1", "sequence_length: 256, source_length: 256, precision: bf16-pure")
		for _, longer := range []*Result{source, target} {
			require.Greater(t, longer.StepTime, before.StepTime, model)
			require.Greater(t, longer.Memory.PeakAllocated, before.Memory.PeakAllocated, model)
			require.Greater(t, longer.ModelFLOPs, before.ModelFLOPs, model)
		}
		again := encodes(t, model, 1, "dp: 1", "sequence_length: 128, source_length: 512, precision: bf16-pure, recompute: full")
		require.Greater(t, again.StepTime, source.StepTime, model)
		require.Less(t, again.Memory.PeakAllocated, source.Memory.PeakAllocated, model)

		const train = "sequence_length: 128, source_length: 512, precision: bf16-mixed"
		ddp, sharded := encodes(t, model, 8, "dp: 8, data_parallel: ddp", train), encodes(t, model, 8, "dp: 8, data_parallel: fsdp2", train)
		require.Less(t, sharded.Memory.PeakAllocated, ddp.Memory.PeakAllocated, model)
	}
	// A stack of BART that is twice as deep takes what its layers take more.
	step := func(encoder, decoder int) units.Seconds {
		model := fmt.Sprintf("{model_type: bart, encoder_layers: %d, decoder_layers: %d}", encoder, decoder)
		return encodes(t, model, 1, "dp: 1", "sequence_length: 512, source_length: 512, precision: bf16-pure").StepTime
	}
	base := step(6, 6)
	both, one, other := step(12, 12)-base, step(12, 6)-base, step(6, 12)-base
	require.InEpsilon(t, float64(both), float64(one+other), 0.02)
	require.Greater(t, other, one) // with attention to the encoder in each layer
	require.Less(t, other, 2*one)
}

// TestMeasuredEncoderDecoders: peaks of steps of H200 (PyTorch 2.11, transformers 5.17, 2026-11-30; max_memory_allocated)
// that gave nothing to what predicts them.
func TestMeasuredEncoderDecoders(t *testing.T) {
	const (
		flan = "{model_type: t5, d_model: 1024, d_kv: 64, d_ff: 2816, num_layers: 24, num_heads: 16, vocab_size: 32128, feed_forward_proj: gated-gelu, scale_decoder_outputs: false}"
		mt5  = "{model_type: mt5, d_model: 768, d_kv: 64, d_ff: 2048, num_layers: 12, num_heads: 12, vocab_size: 250112, scale_decoder_outputs: false}"
		umt5 = "{model_type: umt5, d_model: 768, d_kv: 64, d_ff: 2048, num_layers: 12, num_heads: 12, vocab_size: 256384, scale_decoder_outputs: false}"
	)
	for _, c := range []struct {
		model, train string
		peak         float64 // GiB
	}{
		{flan, "sequence_length: 128, source_length: 512, micro_batch: 8, precision: bf16-pure", 21.75},
		{flan, "sequence_length: 128, source_length: 512, micro_batch: 8, precision: fp32", 32.13},
		{"t5-base", "sequence_length: 128, source_length: 512, micro_batch: 32, precision: bf16-autocast", 27.42},
		{mt5, "sequence_length: 128, source_length: 512, micro_batch: 16, precision: bf16-autocast", 25.47},
		{umt5, "sequence_length: 256, source_length: 512, micro_batch: 16, precision: bf16-pure", 23.53},
		{"{model_type: bart}", "sequence_length: 128, source_length: 1024, micro_batch: 16, precision: bf16-pure", 11.15},
		{"{model_type: bart}", "sequence_length: 512, source_length: 512, micro_batch: 16, precision: bf16-autocast", 19.73},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, tf32: true}, plan: {dp: 1}, train: {optimizer: adamw-fused, %s}}", c.model, c.train)))
		require.InEpsilon(t, c.peak, float64(r.Memory.PeakAllocated)/float64(units.GiB), 0.01, "%s, %s", c.model, c.train)
	}
}
