package ops

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// TestLossOfContextRanks: those of Megatron-DeepSpeed make the softmax of their logits and its
// logarithm, each a tensor of its own, and multiply the former in its place
// (core/sequence_parallel/cross_entropy.py). Others change their logits in their place
// (core/tensor_parallel/cross_entropy.py).
func TestLossOfContextRanks(t *testing.T) {
	for cp, want := range map[int64]map[string]int{
		1: {"max": 1, "exp": 1, "softmax": 0, "log": 0, "mul_": 1},
		4: {"max": 0, "exp": 0, "softmax": 1, "log": 1, "mul_": 1},
	} {
		c := config(t, "llama2-7b", "megatron-deepspeed")
		c.Sequence, c.Shard.CP, c.Shard.CPHeads = 4096*cp, cp, cp > 1
		head := &Build(c).Head
		wide := units.Bytes(4 * 4096 * c.MicroBatch * 32000)
		for prim, n := range want {
			require.Equal(t, n, number(&head.Forward, prim)+number(&head.Backward, prim), "cp %d: %s", cp, prim)
		}
		var live, most units.Bytes
		sizes := map[int32]units.Bytes{}
		for _, e := range head.Forward.Events {
			if e.Bytes > 0 {
				sizes[e.Store] = e.Bytes
				live += e.Bytes
			} else {
				live -= sizes[e.Store]
			}
			most = max(most, live)
		}
		require.Equal(t, map[int64]int{1: 1, 4: 3}[cp], int(most/wide), "cp %d: copies in fp32 at once", cp)
	}
}

// TestDropouts: --hidden-dropout and --attention-dropout of Megatron-LM are 0.1 by default
// (megatron/arguments.py), and what a model names holds, be it 0: as Pythia does
// (models/*/pythia-*.yml, hidden-dropout: 0) and the classes of transformers do (GPTNeoXConfig,
// hidden_dropout=0.0; GPT2Config, resid_pdrop=0.1).
func TestDropouts(t *testing.T) {
	const plain = "hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 16, vocab_size: 50304"
	for _, c := range []struct {
		model, recipe string
		want          [3]float64
	}{
		{"model_type: decoder, gated_mlp: false", "megatron-lm", [3]float64{0.1, 0.1, 0.1}},
		{"model_type: decoder, gated_mlp: false", "megatron-deepspeed", [3]float64{0.1, 0.1, 0.1}},
		{"model_type: decoder, gated_mlp: false", "megatron-core", [3]float64{}},
		{"model_type: decoder, gated_mlp: true, intermediate_size: 4096", "megatron-lm", [3]float64{}},
		{"model_type: decoder, gated_mlp: false, residual_dropout: 0, embedding_dropout: 0", "megatron-lm", [3]float64{}},
		{"model_type: decoder, gated_mlp: false, attention_dropout: 0", "megatron-lm", [3]float64{}},
		{"model_type: decoder, gated_mlp: false, attention_dropout: 0.2", "megatron-lm", [3]float64{0, 0.2, 0}},
		{"model_type: gpt_neox, hidden_dropout: 0.0, attention_dropout: 0.0", "megatron-deepspeed", [3]float64{}},
		{"model_type: gpt_neox", "megatron-deepspeed", [3]float64{}},
		{"model_type: gpt2, embd_pdrop: 0, attn_pdrop: 0, resid_pdrop: 0", "megatron-lm", [3]float64{}},
		{"model_type: gpt2", "megatron-lm", [3]float64{0.1, 0.1, 0.1}},
	} {
		doc, err := yamlx.Parse("model.yaml", []byte("{"+c.model+", "+plain+"}"))
		require.NoError(t, err)
		spec, errs := model.Decode(doc, doc.Root)
		require.NoError(t, errs.Err(), c.model)
		job := config(t, "llama2-7b", c.recipe)
		job.Spec = spec
		embed, attention, resid := job.Dropouts()
		require.Equal(t, c.want, [3]float64{embed, attention, resid}, "%s: %s", c.recipe, c.model)
	}
}

// expertsOf is a layer with 16 experts of DeepSpeed's, of which a token gets so many, over 4 ranks.
func expertsOf(t *testing.T, topK, tp, tokens int64, release string) *Unit {
	doc, err := yamlx.Parse("model.yaml", []byte("{model_type: decoder, hidden_size: 4096, num_hidden_layers: 2, num_attention_heads: 32, vocab_size: 32000, gated_mlp: false, hidden_act: gelu, norm: layernorm, intermediate_size: 8192, num_experts: 16, "+
		fmt.Sprintf("num_experts_per_tok: %d, moe_intermediate_size: 8192}", topK)))
	require.NoError(t, err)
	spec, errs := model.Decode(doc, doc.Root)
	require.NoError(t, errs.Err())
	c := config(t, "llama2-7b", "megatron-deepspeed")
	var at units.Release
	require.NoError(t, at.UnmarshalText([]byte(release)))
	c.Spec, c.Recipe, c.Precision = spec.AtSequence(tokens), c.Recipe.At(at), c.Recipe.Precision["fp16"]
	c.Attention, c.Capacity, c.MicroBatch, c.Sequence, c.Shard.EP, c.Shard.TP = "flash", 1, 1, tokens, 4, tp
	return &Build(c).Kinds[0]
}

// TestDeepSpeedExperts: rows go to places of experts and come back weighed by products with matrices of
// all tokens and places; each of a rank's experts multiplies by itself; the exchanges carry all places
// (deepspeed/moe/sharded_moe.py, MOELayer.forward, and experts.py).
func TestDeepSpeedExperts(t *testing.T) {
	const tokens, hidden, width, here = 4096, 4096, 8192, 4
	type shape [3]int64
	for k := int64(1); k <= 2; k++ {
		layer := expertsOf(t, k, 1, tokens, "22.09")
		places := tokens * k
		products := map[string]map[shape]int{}
		var sent []units.Bytes
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				switch o := &s.Ops[i]; {
				case o.Class == tape.GEMM && o.Module == "experts":
					if products[o.Prim] == nil {
						products[o.Prim] = map[shape]int{}
					}
					products[o.Prim][shape{o.M, o.N, o.K}] += int(max(o.Count, 1))
				case o.Prim == "all-to-all":
					sent = append(sent, o.Comm.Bytes)
				}
			}
		}
		rows := places / here
		for prim, want := range map[string][]shape{
			"matmul":           {{places, hidden, tokens}, {tokens, hidden, places}}, // there and back
			"matmul_dgrad":     {{tokens, places, hidden}},                           // of the weights of rows
			"matmul_wgrad":     {{places, hidden, tokens}, {tokens, hidden, places}}, // of the experts' rows, of the tokens
			"grouped_mm":       {{rows, width, hidden}, {rows, hidden, width}},
			"grouped_mm_dgrad": {{rows, hidden, width}, {rows, width, hidden}},
			"grouped_mm_wgrad": {{width, hidden, rows}, {hidden, width, rows}},
		} {
			counts, each := map[shape]int{}, 1
			if strings.HasPrefix(prim, "grouped") {
				each = here
			}
			for _, w := range want {
				counts[w] += each
			}
			require.Equal(t, counts, products[prim], "%s, %d experts of a token", prim, k)
		}
		whole := units.Bytes(2 * places * hidden)
		require.Equal(t, []units.Bytes{whole, whole, whole, whole}, sent)
		require.Equal(t, int(k), number(&layer.Forward, "argmax"))
	}
}

// TestOneHotMemory: of every token and place the forward pass holds 4 + 1 bytes until its experts are done
// and keeps 2 + 2, in the dtype of the layers; with two experts of a token it has weights of each and their
// sum at once.
func TestOneHotMemory(t *testing.T) {
	peak := func(k, tokens int64) (most, kept float64) {
		live := 0.
		sizes := map[int32]float64{}
		for _, e := range expertsOf(t, k, 1, tokens, "22.09").Forward.Events {
			if e.Bytes > 0 {
				sizes[e.Store] = float64(e.Bytes)
				live += float64(e.Bytes)
			} else {
				live -= sizes[e.Store]
			}
			most = max(most, live)
		}
		return most, live
	}
	// what grows with the square of the tokens
	square := func(k int64) (most, kept float64) {
		const n = 65536
		m1, k1 := peak(k, n)
		m2, k2 := peak(k, 2*n)
		m4, k4 := peak(k, 4*n)
		return ((m4 - m2) - 2*(m2-m1)) / (6 * n * n), ((k4 - k2) - 2*(k2-k1)) / (6 * n * n)
	}
	for k := 1.; k <= 2; k++ {
		most, kept := square(int64(k))
		hot := 4 * k * k / 16 // fp32 of each token and place of an expert, of which there are 16
		require.InDelta(t, 4*k+hot, kept, 1e-3, "%g experts of a token: kept", k)
		require.InDelta(t, map[float64]float64{1: 9, 2: 3*4*2 + 2}[k]+hot, most, 1e-3, "%g experts of a token: at once", k)
	}
}

// TestTensorRanksOfDeepSpeedExperts: tensor ranks have the same tokens, of which each sends its part and
// gathers what comes back (deepspeed/moe/mappings.py); until August 2022 each sent all.
func TestTensorRanksOfDeepSpeedExperts(t *testing.T) {
	for release, want := range map[string]struct {
		sent    units.Bytes
		gathers int
	}{"22.07": {2 * 4096 * 4096, 0}, "22.08": {4096 * 4096, 2}} {
		layer := expertsOf(t, 1, 2, 4096, release)
		var sent units.Bytes
		for i := range layer.Forward.Ops {
			if o := &layer.Forward.Ops[i]; o.Prim == "all-to-all" {
				sent = max(sent, o.Comm.Bytes)
			}
		}
		require.Equal(t, want.sent, sent, release)
		require.Equal(t, want.gathers, number(&layer.Forward, "all-gather")+number(&layer.Backward, "all-gather"), release)
	}
}

// TestLeastRows: experts have at least four rows each (--moe-min-capacity).
func TestLeastRows(t *testing.T) {
	for tokens, rows := range map[int64]units.Bytes{16: 4, 128: 8} {
		o, _ := find(&expertsOf(t, 1, 1, tokens, "22.09").Forward, "all-to-all")
		require.Equal(t, 2*4096*16*rows, o.Comm.Bytes)
	}
}
