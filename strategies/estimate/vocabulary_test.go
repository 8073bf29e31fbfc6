package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/memory"
)

// TestVocabularyRows: tensor ranks hold the rows that the vocabulary is padded to: of GPT-2's 50,257
// words two ranks have 25,216 each by multiples of 128 times 2, and 25,130 by multiples of 2 times 2.
func TestVocabularyRows(t *testing.T) {
	parameters := func(runtime string) float64 {
		r := mustEstimate(t, mustParse(t, "{model: gpt2, hardware: h100-sxm, gpus: 2, runtime: {recipe: megatron-pretrain"+runtime+"}, plan: {tp: 2, data_parallel: ddp}, train: {sequence_length: 1024, micro_batch: 1}}"))
		return float64(r.Memory.By[memory.Parameters])
	}
	const width, bytes = 768, 2
	require.Equal(t, float64((25216-25130)*width*bytes), parameters("")-parameters(", vocab_multiple: 2"))
}
