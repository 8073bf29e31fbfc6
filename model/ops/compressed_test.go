package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// summed is a small DeepSeek-V4 under Megatron-Core: a window alone, picked sums, all sums.
func summed(t testing.TB, text string) Config {
	doc, err := yamlx.Parse("model.yaml", []byte("{model_type: deepseek_v4, hidden_size: 2048, num_hidden_layers: 4, num_attention_heads: 16, head_dim: 256, q_lora_rank: 768, o_groups: 4, o_lora_rank: 512, vocab_size: 32000, moe_intermediate_size: 1024, "+
		"n_routed_experts: 8, num_experts_per_tok: 2, index_topk: 256, index_n_heads: 16, compress_ratios: [0, 4, 128, 4]"+text+"}"))
	require.NoError(t, err)
	s, errs := model.Decode(doc, doc.Root)
	require.NoError(t, errs.Err())
	c := config(t, "deepseek-v2-lite", "megatron-core")
	c.Spec, c.MicroBatch, c.Sequence, c.Attention = s, 2, 4096, "flash"
	return c
}

// TestSums: what Megatron-Core's layers of DeepSeek-V4 run. Sums that overlap are made by 11
// kernels forward and 37 backward, others by 5 and 10 (traces of an H200, without autograd's own
// additions). Queries see a window of 128, and the picked sums that are there or a place for each of all.
func TestSums(t *testing.T) {
	m := built(t, summed(t, ""))
	pooled := func(s *tape.Section) (n int) {
		for _, o := range s.Ops {
			if o.Module == "sums" && o.Class != tape.GEMM && o.Prim != "norm_own" && o.Prim != "norm_own_backward" {
				n++
			}
		}
		return n
	}
	for i, want := range []struct {
		seen             int64
		forward, indexed int
	}{{128, 0, 0}, {128 + 32 - 2 + 256 - 32, 11, 1}, {160, 5, 0}} {
		layer := at(m, i)
		sound(t, "megatron-core", layer)
		core := mustFind(t, &layer.Forward, "sparse")
		require.InDelta(t, want.seen, core.Attn.Keys, 32, "layer %d", i)
		require.Equal(t, [3]int64{64, 256, 256}, [3]int64{core.Attn.Heads, core.Attn.QKDim, core.Attn.VDim})
		require.Equal(t, want.indexed, number(&layer.Forward, "index_scores"))
		require.Equal(t, want.indexed, number(&layer.Forward, "index_backward"))
		require.InDelta(t, want.forward*(1+want.indexed), pooled(&layer.Forward), 6, "layer %d", i)
		for _, p := range layer.Params {
			require.True(t, p.Used, "layer %d: %s", i, p.Name)
		}
		require.Len(t, layer.Backward.Grads, len(layer.Params), "all of them are trained")
	}
	window := mustFind(t, &at(m, 0).Forward, "sparse").Attn
	all := mustFind(t, &at(m, 2).Forward, "sparse").Attn
	require.EqualValues(t, 128, window.Keys)
	require.EqualValues(t, 192, all.Keys, "128 and 32 sums, in places of 64")
	scores := mustFind(t, &at(m, 1).Forward, "index_scores")
	require.Equal(t, [2]int64{4096, 1024}, [2]int64{scores.Attn.Queries, scores.Attn.Keys})

	packed := summed(t, "")
	packed.Document = 512
	docs := built(t, packed)
	require.EqualValues(t, 192, mustFind(t, &at(docs, 2).Forward, "sparse").Attn.Keys, "four sums of a document")
	require.Less(t, mustFind(t, &at(docs, 1).Forward, "sparse").Attn.Keys, mustFind(t, &at(m, 1).Forward, "sparse").Attn.Keys)
}

// TestStreams: what a layer hands on is all streams, of which each block reads a mixture; what
// is computed again of them is not kept, whatever else is.
func TestStreams(t *testing.T) {
	c := summed(t, "")
	m := built(t, c)
	layer := at(m, 1)
	require.EqualValues(t, 2*4096*4*2048*2, layer.Input)
	require.Equal(t, layer.Input, layer.Output)
	for _, prim := range []string{"stream_weights", "stream_mix", "stream_merge", "sinkhorn"} {
		require.Equal(t, 2, number(&layer.Forward, prim), prim)
	}
	require.Equal(t, 2, number(&layer.Backward, "branch_sum"), "three gradients of each are added by one kernel")

	plain := at(built(t, summed(t, ", hc_mult: 1")), 1)
	require.Zero(t, number(&plain.Forward, "stream_mix"))
	require.EqualValues(t, 2*4096*2048*2, plain.Input)

	again := summed(t, "")
	again.Recompute, again.Modules = SelectiveRecompute, StreamMixes
	fewer := at(built(t, again), 1)
	sound(t, "megatron-core", fewer)
	streams := float64(layer.Input)
	require.InDelta(t, saved(layer)-streams-streams/2, saved(fewer), streams/8, "all streams between the blocks, and one mixture in front of each")
	require.Equal(t, 3, number(&fewer.Forward, "stream_merge")+number(&fewer.Backward, "stream_merge"), "the first again")

	dense, err := yamlx.Parse("model.yaml", []byte("{model_type: decoder, hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 8, intermediate_size: 4096, gated_mlp: true, vocab_size: 32000, hc_mult: 4}"))
	require.NoError(t, err)
	s, errs := model.Decode(dense, dense.Root)
	require.NoError(t, errs.Err())
	c.Spec = s
	u := at(built(t, c), 0)
	sound(t, "megatron-core", u)
	require.Zero(t, number(&u.Forward, "norm_own"), "projections take the norms in")
}

// TestSumsAreSound: the same with recomputation, documents, multi-token prediction and parts away.
func TestSumsAreSound(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Recompute = FullRecompute },
		func(c *Config) {
			c.Recompute, c.Modules = SelectiveRecompute, StreamMixes|LatentProjection|LayerNorms|ExpertActivation
		},
		func(c *Config) { c.Document = 512 },
		func(c *Config) { s := *c.Spec; s.MTPLayers = 2; c.Spec = &s },
		func(c *Config) { c.Sequence = 160 }, // a sum and a rest
	} {
		c := summed(t, "")
		change(&c)
		m := built(t, c)
		for i := range m.Kinds {
			sound(t, "megatron-core", &m.Kinds[i])
		}
		for _, p := range m.Head.Params {
			require.True(t, p.Used || p.TiedCopy, p.Name)
		}
	}
	short := summed(t, "")
	short.Sequence = 96
	require.Zero(t, number(&at(built(t, short), 2).Forward, "pool_sum"), "fewer tokens than a sum is of")
}
