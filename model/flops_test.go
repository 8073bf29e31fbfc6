package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/model"
	"strconv"
)

// Published FLOPs per token, converted to one forward pass.
func TestForwardFLOPs(t *testing.T) {
	for _, test := range []struct {
		name     string
		seq      int64
		causal   bool
		perToken float64
		within   float64
		source   string
	}{
		// 24·B·s·l·h²·(1 + s/6h) for the layers, 2·B·s·h·V for the logits.
		{"gpt3-175b", 2048, false, 24*96*12288.*12288*(1+2048./(6*12288)) + 2*12288*50257, 1e-12, "arXiv 2104.04473, appendix"},
		// 6N + 12·L·H·Q·T per token and step, a third of it forward; N without the
		// embedding table, which multiplies nothing.
		{"llama2-7b", 4096, false, 2*(6_738_415_616-32000*4096) + 4*32*32*128*4096, 1e-4, "arXiv 2204.02311, appendix B"},
		{"llama3-8b", 8192, true, 2*(8_030_261_248-128256*4096) + 2*32*32*128*8192, 1e-4, "the same, half of it under the mask"},
		// 37.6B active parameters less the embedding table; heads of 192 and 128.
		{"deepseek-v3", 4096, true, 2*(37_552_282_624-129280*7168) + 61*128*(192+128)*4096, 1e-4, "counted by hand"},
	} {
		s, err := model.Load(test.name)
		require.NoError(t, err)
		got := float64(s.ForwardFLOPs(4*test.seq, test.seq, test.causal).Total()) / float64(4*test.seq)
		require.InEpsilon(t, test.perToken, got, test.within, "%s: %s", test.name, test.source)
	}
}

// With its module of multi-token prediction: a sparse layer, a projection of twice the hidden
// size and another head. NVIDIA's tables divide alike by tokens (Megatron-Bridge,
// docs/performance-summary-archive.md: 1640 TFLOP/s at 6304 tokens/s with it in 26.06, 961 at 3848
// without in 25.11).
func TestMultiTokenPredictionFLOPs(t *testing.T) {
	s, err := model.Load("deepseek-v3")
	require.NoError(t, err)
	f := s.ForwardFLOPs(4096, 4096, true)
	less := *s
	less.Layers--
	require.InEpsilon(t, float64(f.Total()-less.ForwardFLOPs(4096, 4096, true).Total()+f.Head)+4096*4*7168*7168, float64(f.MTP), 1e-9)
	require.InEpsilon(t, 1640e12/6304, 3*float64(f.Trained())/4096, 0.01)
	require.InEpsilon(t, 961e12/3848, 3*float64(f.Total())/4096, 0.01)
}

// Hybrid models: NVIDIA's tables divide alike by tokens, where an inner width of twice the
// hidden size is counted for the scan and its projections, whatever the mixer's own
// (Megatron-Core, megatron/training/training.py, hybrid_flops; Megatron-Bridge,
// docs/performance-summary-archive.md: 905 TFLOP/s at 40960 tokens/s of Nemotron 3 Nano, full attention).
func TestHybridFLOPs(t *testing.T) {
	s, err := model.Load("nemotron-3-nano-30b-a3b")
	require.NoError(t, err)
	f := s.ForwardFLOPs(8192, 8192, false)
	require.Equal(t, 23*7*4096*128*8192., float64(f.Scan))
	require.Equal(t, 6*4*32*128*8192.*8192, float64(f.Attention), "of six layers")
	require.InEpsilon(t, 905e12/40960, 3*float64(f.Total())/8192, 0.01)
}

// A gated delta net's by its own count: Megatron's, without its convolution, which is no
// product (megatron/training/training.py, gdn_layer_flops).
func TestDeltaFLOPs(t *testing.T) {
	s, err := model.Load("qwen3.5-27b")
	require.NoError(t, err)
	f := s.ForwardFLOPs(4096, 4096, true)
	require.Equal(t, 48*2*4096*48*128*128*4., float64(f.Scan))
	require.Equal(t, 16*2*24*(256+256)*4096*4096/2., float64(f.Attention), "of every fourth layer")
	const net, attention = 5120*(2*16*128+2*48*128+2*48) + 48*128*5120, 5120*(2*24+2*4)*256 + 24*256*5120
	require.Equal(t, 2*4096*(48*net+16*attention)*1., float64(f.Projections))
}

// Windows by brute force: pairs of query and key that are within reach.
func TestWindows(t *testing.T) {
	attention := func(text string, seq int64, causal bool) float64 {
		s := decode(t, text)
		// One layer, one head of one element: four FLOPs per pair.
		return float64(s.ForwardFLOPs(seq, seq, causal).Attention) / 4
	}
	const tiny = "model_type: decoder, hidden_size: 1, num_hidden_layers: 1, num_attention_heads: 1, intermediate_size: 1, vocab_size: 2, num_key_value_heads: 1"
	for _, test := range []struct{ seq, window int64 }{{10, 1}, {10, 3}, {10, 9}, {10, 10}, {10, 40}, {128, 64}} {
		text := "{" + tiny + ", sliding_window: " + strconv.FormatInt(test.window, 10) + "}"
		var exact float64 // the pair of a token with itself counts half, as in s²/2
		for q := range test.seq {
			for k := range q + 1 {
				switch d := q - k; {
				case d == 0 || d == test.window: // half of each edge of the band
					exact += 0.5
				case d < test.window:
					exact++
				}
			}
		}
		require.Equal(t, exact, attention(text, test.seq, true), "window %d of %d", test.window, test.seq)
	}
	require.Equal(t, 50., attention("{"+tiny+"}", 10, true))
	require.Equal(t, 100., attention("{"+tiny+"}", 10, false))
	require.Equal(t, 30., attention("{"+tiny+", sliding_window: 3}", 10, false))
	// Chunks of 4 in 10 tokens: two of 4 and one of 2.
	chunked := "{model_type: llama4_text, hidden_size: 1, num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1, head_dim: 1, attention_chunk_size: 4}"
	require.Equal(t, 36., attention(chunked, 10, false))
	require.Equal(t, 18., attention(chunked, 10, true))
}

func TestFLOPLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyDecoder(t)
		seq := rapid.Int64Range(1, 512).Draw(t, "seq")
		one := s.ForwardFLOPs(seq, seq, true)
		full := s.ForwardFLOPs(seq, seq, false)
		three := s.ForwardFLOPs(3*seq, seq, true)

		require.InEpsilon(t, 3*float64(one.Total()), float64(three.Total()), 1e-12, "linear in tokens")
		require.LessOrEqual(t, float64(one.Attention), float64(full.Attention))
		if s.Windows == nil {
			require.InEpsilon(t, float64(full.Attention), 2*float64(one.Attention), 1e-12, "causal is half")
		} else {
			open := *s
			open.Window, open.Windows = 0, nil
			require.LessOrEqual(t, float64(one.Attention), float64(open.ForwardFLOPs(seq, seq, true).Attention))
		}

		// Two FLOPs per token and element of every matrix it passes through.
		matrices := int64(0)
		p := s.Tensors()
		count := func(tensors []model.Tensor) {
			for _, x := range tensors {
				switch {
				case x.NoDecay: // norms and biases
				case x.Split == model.ExpertSplit:
					matrices += x.Size() / s.MoE.Experts * s.MoE.TopK
				default:
					matrices += x.Size()
				}
			}
		}
		for i := range s.Layers {
			count(p.Layer(s.Kind(i)))
		}
		count(p.Head)
		products := float64(one.Total() - one.Attention)
		require.InEpsilon(t, 2*float64(matrices)*float64(seq), products, 1e-9)
	})
}
