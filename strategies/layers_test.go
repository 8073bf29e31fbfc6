package strategies

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLayersThatDiffer: what Gemma 4's layers have beside those of other models, heads of two
// widths, keys and values of a layer before and embeddings of their own, is refused where it is
// not known what software does with it.
func TestLayersThatDiffer(t *testing.T) {
	for _, c := range []struct{ job, want string }{
		{"{model: gemma4-31b, gpus: 8, runtime: {recipe: hf-eager, attention: flash}}", "runtime.attention: flash, whose heads have at most 256 elements, but global_head_dim is 512; use sdpa"},
		{"{model: gemma4-31b, gpus: 8, runtime: {recipe: hf-eager}, plan: {tp: 8}}", "plan.tp: 8 does not divide num_global_key_value_heads 4 (use 1, 2, 4)"},
		{"{model: gemma4-e2b, gpus: 8, runtime: {recipe: hf-eager}, plan: {tp: 2}}", "plan.tp: 2, but how recipe hf-eager cuts keys and values that layers share, or embeddings of each layer, over such ranks is not known; set it to 1"},
		{"{model: gemma4-e2b, gpus: 8, runtime: {recipe: hf-eager}, plan: {pp: 2}}", "plan.pp: 2, but how recipe hf-eager cuts keys"},
		{"{model: gemma4-e2b, gpus: 8, runtime: {recipe: hf-eager}, plan: {cp: 2}}", "plan.cp: 2, but how recipe hf-eager cuts keys"},
	} {
		_, err := decode(c.job)
		require.ErrorContains(t, err, c.want, c.job)
	}
	for _, job := range []string{
		"{model: gemma4-31b, gpus: 8, runtime: {recipe: hf-eager}, plan: {tp: 4, dp: 2}}",
		"{model: gemma4-e2b, gpus: 8, runtime: {recipe: hf-eager}, plan: {dp: 8, data_parallel: fsdp2}}",
		"{model: gemma3-27b, gpus: 8, runtime: {recipe: hf-eager, attention: flash}}",
	} {
		_, err := decode(job)
		require.NoError(t, err, job)
	}
}

// TestWideHeads: heads wider than flash attention takes, of any model, run without it where it is
// no more than the recipe's own choice, and are refused where it is asked for.
func TestWideHeads(t *testing.T) {
	for model, key := range map[string]string{
		"gemma4-31b": "global_head_dim is 512",
		"{model_type: decoder, hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 4, head_dim: 320, intermediate_size: 64, vocab_size: 64}": "head_dim is 320",
	} {
		j := mustDecode(t, "{model: "+model+", gpus: 8}")
		require.Equal(t, "unfused", j.Runtime.Attention, model)
		require.Contains(t, strings.Join(j.Defaulted, "\n"), "are wider than the flash attention of recipe megatron-core takes")
		_, err := decode("{model: " + model + ", gpus: 8, runtime: {attention: flash}}")
		require.ErrorContains(t, err, "runtime.attention: flash, whose heads have at most 256 elements, but "+key+"; use sdpa or unfused")
	}
	require.Equal(t, "flash", mustDecode(t, "{model: gemma3-27b, gpus: 8}").Runtime.Attention)
}

// TestOpenPlansOfLayersThatDiffer: where no plan is given, none is looked at that is refused.
func TestOpenPlansOfLayersThatDiffer(t *testing.T) {
	j := mustDecode(t, "{model: gemma4-e2b, gpus: 8, runtime: {recipe: hf-eager}}")
	p := Plan{TP: 1, CP: 1, PP: 1, VirtualStages: 1}
	require.Equal(t, []int64{1}, p.legalTP(j.shape()))
	require.Equal(t, []int64{1}, p.legalPP(j.shape()))
	require.Equal(t, []int64{1}, p.legalCP(j.shape()))
	j = mustDecode(t, "{model: gemma4-31b, gpus: 8, runtime: {recipe: hf-eager}}")
	require.Equal(t, []int64{1, 2, 4}, p.legalTP(j.shape()))
}
