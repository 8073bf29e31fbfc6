package ops

import (
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
