package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
)

// Parameters of checkpoints by their pages of huggingface.co (safetensors metadata, where there is
// one) and by numel of transformers 5.17's classes.
func TestEncoderDecoderParameters(t *testing.T) {
	gelu := ", feed_forward_proj: gated-gelu, tie_word_embeddings: false"
	for _, c := range []struct {
		name, config string
		want         int64
	}{
		{"t5-small", "model_type: t5, d_model: 512, d_kv: 64, d_ff: 2048, num_layers: 6, num_heads: 8, vocab_size: 32128", 60_506_624},
		{"t5-base", "model_type: t5, d_model: 768, d_kv: 64, d_ff: 3072, num_layers: 12, num_heads: 12, vocab_size: 32128", 222_903_552},
		{"t5-large", "model_type: t5, d_model: 1024, d_kv: 64, d_ff: 4096, num_layers: 24, num_heads: 16, vocab_size: 32128", 737_668_096},
		{"t5-3b", "model_type: t5, d_model: 1024, d_kv: 128, d_ff: 16384, num_layers: 24, num_heads: 32, vocab_size: 32128", 2_851_598_336},
		{"flan-t5-base", "model_type: t5, d_model: 768, d_kv: 64, d_ff: 2048, num_layers: 12, num_decoder_layers: 12, num_heads: 12, vocab_size: 32128" + gelu, 247_577_856},
		{"flan-t5-large", "model_type: t5, d_model: 1024, d_kv: 64, d_ff: 2816, num_layers: 24, num_heads: 16, vocab_size: 32128" + gelu, 783_150_080},
		{"flan-t5-xl", "model_type: t5, d_model: 2048, d_kv: 64, d_ff: 5120, num_layers: 24, num_heads: 32, vocab_size: 32128" + gelu, 2_849_757_184},
		{"mt5-small", "model_type: mt5, d_model: 512, d_kv: 64, d_ff: 1024, num_layers: 8, num_heads: 6, vocab_size: 250112, tie_word_embeddings: false", 300_176_768},
		{"bart-base", "model_type: bart, d_model: 768, encoder_layers: 6, decoder_layers: 6, encoder_attention_heads: 12, decoder_attention_heads: 12, encoder_ffn_dim: 3072, decoder_ffn_dim: 3072, vocab_size: 50265, max_position_embeddings: 1024", 139_420_416},
		{"bart-large", "model_type: bart", 406_291_456},
		{"mbart-large-cc25", "model_type: mbart, vocab_size: 250027", 610_851_840},
		{"opus-mt-en-de", "model_type: marian, d_model: 512, encoder_layers: 6, decoder_layers: 6, encoder_attention_heads: 8, decoder_attention_heads: 8, encoder_ffn_dim: 2048, decoder_ffn_dim: 2048, vocab_size: 58101, max_position_embeddings: 512, activation_function: swish, share_encoder_decoder_embeddings: true", 74_410_496},
		{"pegasus-xsum", "model_type: pegasus, encoder_layers: 16, decoder_layers: 16, vocab_size: 96103, max_position_embeddings: 512, activation_function: relu", 569_748_480},
		{"nllb-200-distilled-600M", "model_type: m2m_100, vocab_size: 256206", 615_073_792},
		{"umt5-base from scratch", "model_type: umt5, d_model: 768, d_kv: 64, d_ff: 2048, num_layers: 12, num_heads: 12, vocab_size: 256384", 395_140_608},
	} {
		doc, err := yamlx.Parse("model.yaml", []byte("{"+c.config+"}"))
		if err != nil {
			t.Fatal(err)
		}
		s, errs := Decode(doc, doc.Root)
		if len(errs) > 0 {
			t.Errorf("%s: %v", c.name, errs.Err())
			continue
		}
		if got := s.Params().Total; got != c.want {
			t.Errorf("%s: %d parameters, want %d", c.name, got, c.want)
		}
	}
}

// Parameters of adapters by numel of PEFT's beside transformers 5.17's classes: what a module of attention to the
// decoder's own tokens has, that to the encoder's output has too, and both stacks have them.
func TestEncoderDecoderAdapters(t *testing.T) {
	xl := "model_type: t5, d_model: 2048, d_kv: 64, d_ff: 5120, num_layers: 24, num_heads: 32, vocab_size: 32128, feed_forward_proj: gated-gelu"
	for _, c := range []struct {
		config  string
		rank    int64
		targets []string
		want    int64
	}{
		{xl, 16, []string{"q", "v"}, 9_437_184},
		{xl, 64, []string{"q", "k", "v", "o", "gate", "up", "down"}, 141_557_760},
		{xl, 64, []string{"attention", "mlp"}, 141_557_760},
		{xl, 16, []string{"cross_q", "cross_v"}, 3_145_728}, // a third
		{"model_type: bart", 32, []string{"q", "k", "v", "o", "up", "down"}, 17_301_504},
		{"model_type: umt5, d_model: 768, d_kv: 64, d_ff: 2048, num_layers: 12, num_heads: 12, vocab_size: 256384", 16, []string{"q", "v"}, 1_769_472},
	} {
		doc, err := yamlx.Parse("model.yaml", []byte("{"+c.config+"}"))
		require.NoError(t, err)
		s, errs := Decode(doc, doc.Root)
		require.NoError(t, errs.Err())
		adapted, err := s.Adapted(c.rank, c.targets, 0)
		require.NoError(t, err)
		count := adapted.Params()
		require.Equal(t, c.want, count.Trained, "%s: %v", c.config, c.targets)
		require.Equal(t, s.Params().Total+c.want, count.Total)
		// Each adapter multiplies what its weight does: twice its parameters a token, forward.
		f := adapted.ForwardFLOPs(128, 128, true)
		require.InEpsilon(t, 2*128*float64(c.want), float64(f.Adapters+adapted.encoded(128, 128, true).Adapters), 1e-9)
		require.Greater(t, float64(adapted.StepFLOPs(128, 128, true)), 2*float64(s.ForwardFLOPs(128, 128, true).Total()))
	}
}
