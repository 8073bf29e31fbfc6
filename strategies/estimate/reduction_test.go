package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/internal/units"
)

// TestTiedEnds: the first and the last stage add up the gradients of a weight that both
// have, in the dtype that these are kept in. On one stage there is nobody to add with.
func TestTiedEnds(t *testing.T) {
	const vocab, hidden = 51200, 4096
	at := func(recipe, plan string, tied bool) *Result {
		return predicted(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: %d, num_hidden_layers: 8, num_attention_heads: 32, intermediate_size: 16384, gated_mlp: false, vocab_size: %d, tie_word_embeddings: %t},
			hardware: a100-80g-sxm, gpus: 32, runtime: {recipe: %s}, plan: {%s}, train: {sequence_length: 2048, grad_accumulation: 8, precision: fp16}}`,
			hidden, vocab, tied, recipe, plan))
	}
	for _, c := range []struct {
		recipe, plan string
		bytes        units.Bytes // 0: none
	}{
		{"megatron-lm", "tp: 8, pp: 4, data_parallel: ddp", 2 * vocab * hidden / 8}, // fp16's gradients
		{"megatron-deepspeed", "tp: 8, pp: 4, data_parallel: zero1", 2 * vocab * hidden / 8},
		{"megatron-lm", "tp: 8, pp: 1, data_parallel: ddp", 0},
	} {
		r := at(c.recipe, c.plan, true)
		more := float64(r.StepTime - at(c.recipe, c.plan, false).StepTime)
		if c.bytes == 0 {
			require.Negative(t, more, "one table is less to reduce and update than two")
			continue
		}
		f, err := collective.FabricOf(r.Job.Hardware.GPU, r.Job.Hardware.Node, r.Job.Hardware.Network, r.Job.Hardware.Software)
		require.NoError(t, err)
		want := float64(f.Time(collective.AllReduce, c.bytes, f.Group(2, 24)))
		require.InDelta(t, want, more, 0.02*want, "%s, %s", c.recipe, c.plan)
	}
}

// TestReduceToOwners: DeepSpeed's ZeRO reduces 16-bit gradients to their owners, one after
// the other, of which each moves all its bytes over every link; a reduce-scatter over two
// nodes would move half of them.
func TestReduceToOwners(t *testing.T) {
	r := predicted(t, `{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 8, num_attention_heads: 32, intermediate_size: 16384, gated_mlp: false, vocab_size: 51200},
		hardware: a100-80g-sxm, gpus: 16, runtime: {recipe: megatron-deepspeed}, plan: {tp: 8, pp: 1, data_parallel: zero1}, train: {sequence_length: 2048, precision: fp16}}`)
	f, err := collective.FabricOf(r.Job.Hardware.GPU, r.Job.Hardware.Node, r.Job.Hardware.Network, r.Job.Hardware.Software)
	require.NoError(t, err)
	const layers = 8 * 12 * 4096 * 4096 / 8 // parameters of a rank, without its part of the vocabulary
	g := f.Group(2, 8)
	gather := f.Time(collective.AllGather, 2*layers, g)
	require.Greater(t, float64(r.Exposed["dp"]), float64(f.Time(collective.Reduce, 2*layers, g)))
	require.Greater(t, float64(f.Time(collective.Reduce, 2*layers, g)), 1.8*float64(gather))
}

// TestReplicasKeepWhatTheyReduce: what FSDP2 casts after replicas have reduced it stays until the
// end of the backward pass (h200-node-drawn-12, whose peak is its embedding's backward pass).
func TestReplicasKeepWhatTheyReduce(t *testing.T) {
	r := mustEstimate(t, mustParse(t, "{model: {model_type: qwen3, hidden_size: 5120, num_hidden_layers: 6, num_attention_heads: 80, num_key_value_heads: 80, intermediate_size: 12800, "+
		"vocab_size: 151936, tie_word_embeddings: false, head_dim: 64}, hardware: h200-sxm, gpus: 4, runtime: {recipe: hf-eager, attention: sdpa}, "+
		"plan: {dp: 4, data_parallel: fsdp2, reshard_after_forward: false, shard_degree: 2}, "+
		"train: {sequence_length: 512, micro_batch: 1, grad_accumulation: 1, precision: bf16-mixed, recompute: none, reduce_dtype: bf16}}"))
	require.InEpsilon(t, 35.0491e9, float64(r.Memory.PeakAllocated), 0.003)
}
