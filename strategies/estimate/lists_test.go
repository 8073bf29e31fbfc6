package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
)

// TestReusedParameters: of a layer of GPT-3 only the last projection is used again
// within 1e9 parameters; biases and norms are below the threshold.
func TestReusedParameters(t *testing.T) {
	const h = 12288
	l := listsOf([]ops.Param{{Local: h}, {Local: 3 * h * h}, {Local: h * h}, {Local: 4 * h * h}, {Local: 4 * h}, {Local: 4 * h * h}})
	require.Equal(t, []int64{3 * h * h, h * h, 4 * h * h, 4 * h * h}, l.sizes)
	require.InDelta(t, 8.0/12, l.again, 1e-12)
}

// TestListGather: a list of one tensor per rank costs the host more with every rank, so
// that twice the GPUs with half the micro batch gained nothing: 174.6B parameters ran
// at 88 TFLOP/s on 768 GPUs and at 44 on 1536 (arXiv 2104.04473, table 2).
func TestListGather(t *testing.T) {
	at := func(gpus, batch int, release string) float64 {
		return float64(predicted(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 12288, num_hidden_layers: 96, num_attention_heads: 96, intermediate_size: 49152, gated_mlp: false, vocab_size: 51200},
			hardware: a100-80g-sxm, gpus: %d, network: {bandwidth_per_gpu: 200 Gbit/s}, runtime: {recipe: megatron-deepspeed, attention: unfused, release: "%s"},
			plan: {data_parallel: zero3}, train: {sequence_length: 2048, micro_batch: %d, precision: fp16, recompute: full}}`, gpus, release, batch)).StepTime)
	}
	require.InDelta(t, 1, at(1536, 1, "21.04")/at(768, 2, "21.04"), 0.25)
	require.Greater(t, at(768, 2, "21.12"), 1.3*at(768, 2, "22.01")) // then by one call for all
}
