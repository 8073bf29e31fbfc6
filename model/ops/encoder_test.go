package ops

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
)

// TestEncoderKin: encoders after BERT by what their classes change of it: which block's output is added
// without dropout, where norms are, which tables embeddings have (transformers 5.17, modeling_distilbert.py,
// modular_xlm_roberta_xl.py, modeling_roberta_prelayernorm.py). BioGPT's layers are OPT's.
func TestEncoderKin(t *testing.T) {
	for _, c := range []struct {
		kind                        string
		drops, norms, tables, final int
	}{
		{"bert", 2, 2, 3, 1},
		{"ernie", 2, 2, 3, 1},
		{"data2vec-text", 2, 2, 3, 1},
		{"distilbert", 1, 2, 2, 1},
		{"roberta-prelayernorm", 2, 2, 3, 2},
		{"xlm-roberta-xl", 1, 2, 3, 2},
		{"biogpt", 2, 2, 2, 1},
		{"opt", 2, 2, 2, 1},
	} {
		doc, err := yamlx.Parse("model.yaml", []byte("{model_type: "+c.kind+"}"))
		require.NoError(t, err)
		s, errs := model.Decode(doc, doc.Root)
		require.NoError(t, errs.Err())
		of := config(t, "bert-large", "hf-eager")
		of.Spec, of.Sequence = s, 512
		m := Build(of)
		layer := &m.Kinds[0].Forward
		require.Equal(t, []int{c.drops, c.norms, c.tables, c.final},
			[]int{number(layer, "dropout"), number(layer, "layer_norm"), number(&m.Embedding.Forward, "embedding"), number(&m.Head.Forward, "layer_norm")}, c.kind)
	}
}

// TestOpenMask: where nothing is padded the scores of an encoder get no mask since transformers 5 (masking_utils.py, create_bidirectional_mask; traces of
// BERT, ERNIE and data2vec on an H200), one of zeros before, and one of causal models always.
func TestOpenMask(t *testing.T) {
	for _, c := range []struct {
		model, release string
		padding        float64
		adds           int // beside those of the stream
	}{
		{"bert-large", "26.10", 0, 0},
		{"bert-large", "26.10", 0.2, 1},
		{"bert-large", "26.01", 0, 1},
		{"gpt2", "26.10", 0, 2}, // and one of its GELU
	} {
		x := config(t, c.model, "hf-eager")
		var r units.Release
		require.NoError(t, r.UnmarshalText([]byte(c.release)))
		x.Recipe, x.Attention, x.Padding = x.Recipe.At(r), "unfused", c.padding
		require.Equal(t, 2+c.adds, number(&Build(x).Kinds[0].Forward, "add"), "%+v", c)
	}
}

// TestEncoders: BERT normalises each sum, which the MLP and the next layer read, and adds a table of token
// types to its embeddings; before its output layer come a projection, GELU and a norm, and its loss reads
// logits as they are (transformers 5.17, models/bert/modeling_bert.py; kernels of a step on an H200:
// 50 layer norms of bert-large, 25 GELUs, no cast). ModernBERT's first layer has one norm, and queries
// and keys become fp32 twice each (modeling_modernbert.py, apply_rotary_pos_emb: 88 casts of 22 layers).
func TestEncoders(t *testing.T) {
	bert := Build(config(t, "bert-large", "hf-eager"))
	layer := &bert.Kinds[0]
	require.Equal(t, 2, number(&layer.Forward, "layer_norm"))
	require.Equal(t, 2, number(&layer.Forward, "add"))
	require.Equal(t, 1, number(&layer.Forward, "gelu"))
	require.Equal(t, 3, number(&bert.Embedding.Forward, "embedding"))
	require.Equal(t, 1, number(&bert.Embedding.Forward, "layer_norm"))
	head := &bert.Head.Forward
	require.Equal(t, []int{2, 1, 1, 0}, []int{number(head, "linear"), number(head, "gelu"), number(head, "layer_norm"), number(head, "to")})
	for _, o := range layer.Forward.Ops {
		if o.Class == tape.Attention {
			require.False(t, o.Attn.Causal)
		}
	}

	modern := Build(config(t, "modernbert-base", "hf-eager"))
	require.Equal(t, []int{1, 2}, []int{number(&modern.Kinds[0].Forward, "layer_norm"), number(&modern.Kinds[1].Forward, "layer_norm")})
	require.Equal(t, 4+2, number(&modern.Kinds[0].Forward, "to"), "two casts each of queries and keys, and one of each back")
	require.Equal(t, 1, number(&modern.Head.Forward, "to"), "its loss is of fp32")
	require.Equal(t, 2, number(&modern.Head.Forward, "layer_norm"), "of layers, and of the head")
}

// TestLossInGraph: a compiled model's loss scales and caps its logits and keeps capped ones for whoever asks; the gradient of logits that are
// returned begins with zeros, but of GPT-2's, whose loss is a graph of its own. Odd vocabularies take longer (drawn-graphs.yaml).
func TestLossInGraph(t *testing.T) {
	loss := func(name string, change func(*model.Spec)) (fwd, back tape.Op, alone int) {
		x := config(t, name, "hf-compile")
		change(x.Spec)
		x.FusedLoss = true
		head := &Build(x).Head
		of := func(s *tape.Section, prim string) tape.Op {
			return s.Ops[slices.IndexFunc(s.Ops, func(o tape.Op) bool { return o.Prim == prim })]
		}
		return of(&head.Forward, "fused_loss"), of(&head.Backward, "fused_loss_backward"), number(&head.Forward, "mul_scalar") + number(&head.Forward, "tanh")
	}
	words := func(n int64) func(*model.Spec) { return func(s *model.Spec) { s.Vocab = n } }
	plain, back, _ := loss("llama3-8b", words(50304))
	require.Equal(t, 3*plain.Bytes, back.Bytes, "logits, their gradient and zeros")
	capped, _, alone := loss("gemma2-2b", words(50304))
	require.Zero(t, alone)
	require.InEpsilon(t, 1.4, capped.Elements/plain.Elements, 1e-9)
	odd, back, _ := loss("llama3-8b", words(50257))
	require.InEpsilon(t, 1.3, odd.Elements/float64(50257*2048), 1e-9)
	require.Equal(t, 3*odd.Bytes, back.Bytes)
	own, back, _ := loss("gpt2", words(50304))
	require.Equal(t, 2*own.Bytes, back.Bytes, "no zeros")
}

// TestSoftmaxWork: of written-out attention that is compiled: rows of over 1024 are read twice, masks of another dtype are made in the kernel, and
// dropout costs it more than the softmax (drawn-graphs.yaml).
func TestSoftmaxWork(t *testing.T) {
	work := func(name, precision string, tokens int64) float64 {
		x := config(t, name, "hf-compile")
		x.Spec, x.Sequence, x.Attention, x.Precision = x.Spec.AtSequence(tokens), tokens, "unfused", x.Recipe.Precision[precision]
		ops := Build(x).Kinds[0].Forward.Ops
		o := ops[slices.IndexFunc(ops, func(o tape.Op) bool { return o.Prim == "softmax" })]
		return o.Elements / float64(x.MicroBatch*int64(x.Spec.Heads)*tokens*tokens)
	}
	require.InEpsilon(t, 1, work("llama3-8b", "bf16-pure", 1024), 1e-9)
	require.InEpsilon(t, 1.8, work("llama3-8b", "bf16-pure", 2048), 1e-9)
	require.InEpsilon(t, 2.7, work("llama3-8b", "bf16-autocast", 1024), 1e-9)
	require.InEpsilon(t, 2.7+2.1, work("gpt2", "bf16-autocast", 1024), 1e-9)
	require.InEpsilon(t, 1+2.1, work("bert-large", "bf16-autocast", 512), 1e-9)
}
