package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// The model of profiler traces (transformers 5.17, PyTorch 2.11, H100 and H200, 2026-11-27).
const sparse = "hidden_size: 2048, num_attention_heads: 16, num_key_value_heads: 16, vocab_size: 32000, intermediate_size: 4096, moe_intermediate_size: 1024, n_routed_experts: 8, " +
	"num_experts_per_tok: 2, first_k_dense_replace: 1, n_group: 1, topk_group: 1, q_lora_rank: 768, index_topk: 512, index_n_heads: 16, max_position_embeddings: 16384"

func indexed(t testing.TB, recipeName, text string) Config {
	doc, err := yamlx.Parse("model.yaml", []byte("{"+sparse+", "+text+"}"))
	require.NoError(t, err)
	s, errs := model.Decode(doc, doc.Root)
	require.NoError(t, errs.Err())
	c := config(t, "deepseek-v2-lite", recipeName)
	s.MTPLayers = 0
	c.Spec, c.MicroBatch, c.Sequence = s, 4, 2048
	if recipeName == "hf-eager" {
		x := *s.Indexer
		x.Frozen = true
		s.Indexer, c.Precision = &x, c.Recipe.Precision["bf16-pure"]
	}
	return c
}

// find is the first op of a primitive, with its place.
func find(s *tape.Section, prim string) (*tape.Op, int) {
	for i := range s.Ops {
		if s.Ops[i].Prim == prim {
			return &s.Ops[i], i
		}
	}
	return nil, -1
}

// TestMaskedIndexer: what transformers runs. A layer of those traces had 177 kernels forward
// beside fills and copies, three of them parts of the largest copy. Autocast rounds the
// scores' operands; one sequence alone needs no copy of its keys for each query.
func TestMaskedIndexer(t *testing.T) {
	const v32 = "model_type: deepseek_v32, num_hidden_layers: 4"
	m := built(t, indexed(t, "hf-eager", v32))
	layer := at(m, 2)
	sound(t, "hf-eager", layer)
	require.InDelta(t, 177, launches(&layer.Forward), 3)
	copied, i := find(&layer.Forward, "clone")
	for ; copied.Class != tape.TransposedAgain; i++ {
		copied = &layer.Forward.Ops[i+1]
	}
	require.Equal(t, 4.*2048*2048*128, copied.Elements, "each query's keys")
	require.EqualValues(t, 2048*128*4, copied.N, "keys of a sequence, read again and again")
	scores := layer.Forward.Ops[i+1]
	require.Equal(t, "matmul", scores.Prim)
	require.Equal(t, [4]int64{16, 2048, 128, 4 * 2048}, [4]int64{scores.M, scores.N, scores.K, scores.Batch})
	require.Equal(t, tape.F32, scores.DType)
	core, _ := find(&layer.Forward, "attention")
	require.True(t, core.Attn.Masked, "all keys are read")
	require.Zero(t, in(&layer.Backward, "indexer"))
	for _, g := range layer.Backward.Grads {
		require.NotContains(t, layer.Params[g.Param].Role, "index", "it is not trained")
	}

	low := indexed(t, "hf-eager", v32)
	low.Precision = low.Recipe.Precision["bf16-autocast"]
	turned := func(c Config) (o *tape.Op) {
		l := at(built(t, c), 2)
		for i := range l.Forward.Ops {
			if l.Forward.Ops[i].Class == tape.TransposedAgain {
				o = &l.Forward.Ops[i]
			}
		}
		return o
	}
	require.Equal(t, tape.BF16, turned(low).DType)
	one := indexed(t, "hf-eager", v32)
	one.MicroBatch = 1
	require.Nil(t, turned(one))

	shared := built(t, indexed(t, "hf-eager", "model_type: glm_moe_dsa, num_hidden_layers: 8, index_topk_freq: 4, index_skip_topk_offset: 3"))
	own, follows := at(shared, 2), at(shared, 4)
	require.Greater(t, in(&own.Forward, "indexer"), in(&follows.Forward, "indexer")+50)
	require.Equal(t, 1, number(&follows.Forward, "scatter_"), "it makes its mask again")
	core, _ = find(&follows.Forward, "attention")
	require.True(t, core.Attn.Masked)
}

// TestAbsorbedIndexer: what Megatron-Core runs with cuDNN's kernels. Queries of the latent see
// index_topk keys each; the indexer's gradients are made on the way forward, from scores of
// attention; without its loss there are none.
func TestAbsorbedIndexer(t *testing.T) {
	const v32 = "model_type: deepseek_v32, num_hidden_layers: 4"
	c := indexed(t, "megatron-core", v32)
	layer := at(built(t, c), 2)
	sound(t, "megatron-core", layer)
	core, _ := find(&layer.Forward, "sparse")
	require.Equal(t, tape.AttentionShape{Batch: 4, Heads: 64, KVHeads: 1, Queries: 2048, Keys: 2048, QKDim: 576, VDim: 512, Causal: true, Picked: 512, Flavour: "sparse"}, *core.Attn, "heads padded to 64")
	require.Equal(t, 512.*513/2+(2048-512)*512, core.Attn.Pairs())
	for _, prim := range []string{"index_scores", "index_topk", "sparse_scores", "index_backward"} {
		require.Equal(t, 1, number(&layer.Forward, prim), prim)
	}
	require.Equal(t, 1, number(&layer.Backward, "sparse_backward"))

	idle := indexed(t, "megatron-core", v32)
	x := *idle.Spec.Indexer
	x.Idle = true
	idle.Spec.Indexer = &x
	untaught := at(built(t, idle), 2)
	require.Equal(t, 1, number(&untaught.Forward, "index_scores"))
	require.Zero(t, number(&untaught.Forward, "index_backward"))
	require.Zero(t, number(&untaught.Forward, "sparse_scores"))

	packed := indexed(t, "megatron-core", v32)
	packed.Document = 512
	layer = at(built(t, packed), 2)
	scores, _ := find(&layer.Forward, "index_scores")
	require.Equal(t, tape.F32, scores.DType, "head by head in fp32")
	require.Equal(t, 16, number(&layer.Forward, "index_scores"))

	ranks := indexed(t, "megatron-core", v32)
	ranks.Shard.TP, ranks.Shard.SequenceParallel = 2, true
	gathers := func(s *tape.Section, group string) (n int) {
		for _, o := range s.Ops {
			if o.Comm != nil && o.Comm.Kind == "all-gather" && o.Comm.Group == group {
				n++
			}
		}
		return n
	}
	two := at(built(t, ranks), 2)
	sound(t, "megatron-core", two)
	require.Equal(t, 64, int(mustFind(t, &two.Forward, "sparse").Attn.Heads), "8 of 16 heads, padded")
	require.Greater(t, gathers(&two.Forward, "tp"), gathers(&layer.Forward, "tp")+2, "keys, and what the indexer reads")
	parts := indexed(t, "megatron-core", v32)
	parts.Shard.CP = 2
	require.Equal(t, 2, gathers(&at(built(t, parts), 2).Forward, "cp"), "keys of both")

	shared := built(t, indexed(t, "megatron-core", "model_type: glm_moe_dsa, num_hidden_layers: 8, index_topk_freq: 4, index_skip_topk_offset: 3"))
	require.Zero(t, number(&at(shared, 4).Forward, "index_scores"))
	require.Equal(t, 1, number(&at(shared, 4).Forward, "sparse"))
}

// TestIndexerOfTensorRanks: tensor ranks score and read the keys of a sequence once, however many
// they are, of documents as of one, and project down what they have of it (Megatron-Core,
// absorbed_mla.py, get_query_key_value_tensors; dsa.py, gather_from_sequence_parallel_region).
func TestIndexerOfTensorRanks(t *testing.T) {
	of := func(tp, document int64) *Unit {
		c := indexed(t, "megatron-core", "model_type: deepseek_v32, num_hidden_layers: 4")
		c.MicroBatch, c.Document = 1, document
		c.Shard.TP, c.Shard.SequenceParallel = tp, tp > 1
		return at(built(t, c), 2)
	}
	for _, document := range []int64{0, 512, 2048} {
		one := of(1, document)
		for _, tp := range []int64{2, 4, 8} {
			layer := of(tp, document)
			require.Equal(t, mustFind(t, &one.Forward, "sparse").Attn.Keys, mustFind(t, &layer.Forward, "sparse").Attn.Keys, "tp %d, documents of %d", tp, document)
			for _, prim := range []string{"index_scores", "sparse_scores", "index_backward", "index_topk"} {
				want, got := mustFind(t, &one.Forward, prim), mustFind(t, &layer.Forward, prim)
				require.Equal(t, want.FLOPs, got.FLOPs, "tp %d, documents of %d: %s", tp, document, prim)
				require.Equal(t, want.Elements, got.Elements, "tp %d, documents of %d: %s", tp, document, prim)
			}
			down := slices.IndexFunc(layer.Forward.Ops, func(o tape.Op) bool { return o.Prim == "linear" && o.N == 768 })
			require.Equal(t, 2048/tp, layer.Forward.Ops[down].M, "positions that a rank projects down")
		}
	}
}

// TestIndexersAreSound: the same with recomputation, documents, and tensor and context ranks.
func TestIndexersAreSound(t *testing.T) {
	for _, text := range []string{"model_type: deepseek_v32, num_hidden_layers: 4", "model_type: glm_moe_dsa, num_hidden_layers: 8, index_topk_freq: 4, index_skip_topk_offset: 3"} {
		for _, name := range []string{"hf-eager", "megatron-core"} {
			for _, change := range []func(*Config){
				func(c *Config) {}, func(c *Config) { c.Recompute = SelectiveRecompute }, func(c *Config) { c.Recompute = FullRecompute },
				func(c *Config) { c.Document = 512 }, func(c *Config) { c.Shard.TP, c.Shard.SequenceParallel = 2, true }, func(c *Config) { c.Shard.CP = 2 },
			} {
				c := indexed(t, name, text)
				change(&c)
				if name == "hf-eager" && (c.Shard.CP > 1 || c.Shard.SequenceParallel || c.Document > 0) {
					continue
				}
				m := built(t, c)
				for i := range m.Kinds {
					sound(t, name, &m.Kinds[i])
				}
			}
		}
	}
}

func mustFind(t *testing.T, s *tape.Section, prim string) *tape.Op {
	o, _ := find(s, prim)
	require.NotNil(t, o, prim)
	return o
}
