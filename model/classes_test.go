package model_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/model"
)

// Every key of a configuration class is known, and its default is the family's: a file that
// spells all of them out is the model of one that names its type alone.
func TestClassKeys(t *testing.T) {
	data, err := os.ReadFile("testdata/classes.yaml")
	require.NoError(t, err)
	var classes []yaml.Node
	require.NoError(t, yaml.Unmarshal(data, &classes))
	require.NotEmpty(t, classes)
	for i := range classes {
		text, err := yaml.Marshal(&classes[i])
		require.NoError(t, err)
		name := classes[i].Content[1].Value
		t.Run(name, func(t *testing.T) {
			more := moreKeys[name]
			got := decode(t, string(text))
			want := decode(t, "{model_type: "+name+", "+more+"}")
			got.Defaulted, want.Defaulted = nil, nil
			require.Equal(t, want, got)
		})
	}
}

// A class has as many parameters as transformers counts of it.
func TestClassParameters(t *testing.T) {
	data, err := os.ReadFile("testdata/parameters.yaml")
	require.NoError(t, err)
	var rows [][]yaml.Node
	require.NoError(t, yaml.Unmarshal(data, &rows))
	require.NotEmpty(t, rows)
	for _, row := range rows {
		text, err := yaml.Marshal(&row[2])
		require.NoError(t, err)
		var want, left int64
		require.NoError(t, row[1].Decode(&want))
		if len(row) > 3 {
			require.NoError(t, row[3].Decode(&left))
		}
		require.Equal(t, want-left, decode(t, string(text)).Params().Total, row[0].Value)
	}
}

// Where heads do not divide the hidden size, GLM-4.5's class rounds their width down.
func TestHeadsRoundedDown(t *testing.T) {
	require.Equal(t, int64(42), decode(t, "{model_type: glm4_moe}").HeadDim)
	require.Equal(t, int64(128), decode(t, "{model_type: glm4_moe, num_attention_heads: 32}").HeadDim)
	_, err := decodeText("{model_type: llama, num_attention_heads: 96}")
	require.ErrorContains(t, err, "does not divide")
}

// Trinity Nano, whose card says 6B of which 1B are active, by its published keys.
func TestTrinityNano(t *testing.T) {
	s := decode(t, `{model_type: afmoe, vocab_size: 200192, hidden_size: 1024, intermediate_size: 3072, moe_intermediate_size: 256, num_hidden_layers: 56, num_dense_layers: 2, num_attention_heads: 8,
		num_key_value_heads: 2, head_dim: 128, num_experts: 128, num_experts_per_tok: 8, num_shared_experts: 1, n_group: 1, topk_group: 1, num_expert_groups: 1, num_limited_groups: 1, route_norm: true,
		route_scale: 2.826, score_func: sigmoid, mup_enabled: true, use_grouped_mm: true, global_attn_every_n_layers: 4, sliding_window: 2048, max_position_embeddings: 131072}`)
	p := s.Params()
	require.Equal(t, []int64{6_119_996_416, 1_023_917_056}, []int64{p.Total, p.Active})
	require.True(t, s.EmbedScale && s.Kind(3).NoRope && !s.Kind(3).Windowed && s.Kind(2).Windowed && s.Kind(2).MoE && !s.Kind(1).MoE)
}

// moreKeys are those without which a class has no model, and which its list has, too.
var moreKeys = map[string]string{"lfm2_moe": "num_hidden_layers: 2, layer_types: [conv, full_attention]", "dots1": "n_routed_experts: 128, num_experts_per_tok: 6, n_shared_experts: 2"}

// Of types that are not modelled an error says what they have and what comes nearest, not the
// type whose name is most like theirs.
func TestNotModelled(t *testing.T) {
	for name, want := range map[string]string{
		"deberta-v2": "positions relative to each other", "longt5": "an encoder beside its decoder",
		"minimax": "lightning attention", "minimax_m1": "lightning attention",
		"kimi_linear":   "gated delta nets come near",
		"gemma3n":       "gemma4-e2b",
		"longcat_flash": "some of which do nothing",
		"jamba":         "hybrid_layer_pattern has Mamba-2",
		"mamba2":        "one M for each layer",
		"bitnet":        "model_type: llama (--set model.model_type=llama, and --set model.KEY=null for each key that it has not)",
		"gpt_neo":       "attention in fp32 by its own code", "megatron-bert": "model_type: roberta-prelayernorm (",
		"laguna": "whose outputs have gates", "step3p5": "layers of other numbers of heads", "nemotron-nas": "layers without attention", "granite_swa": "sinks as gpt_oss has them", "modernbert-decoder": "modernbert with is_causal",
		"zamba2": "hybrid_layer_pattern has both", "blenderbot": "an encoder beside its decoder", "nanochat": "recipe nanochat",
	} {
		_, err := decodeText("{model_type: " + name + ", hidden_size: 64}")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "did you mean")
	}
	// Their files, as published, are read as what is named.
	v32 := decode(t, `{model_type: deepseek_v3, index_topk: 2048, index_head_dim: 128, index_n_heads: 64, mlp_layer_types: null, layer_types: null, first_k_dense_replace: 3, qk_head_dim: 192}`)
	require.Equal(t, decode(t, "model_type: deepseek_v3").Params(), v32.Params())
	glm := decode(t, `{model_type: deepseek_v3, num_hidden_layers: 3, mlp_layer_types: [dense, sparse, sparse], indexer_types: [full, shared, full], layer_types: [deepseek_sparse_attention, deepseek_sparse_attention, deepseek_sparse_attention]}`)
	require.Equal(t, []bool{true, false, false}, glm.MoE.Dense)
	require.Equal(t, model.ReLU2, decode(t, `{model_type: llama, hidden_act: relu2, quantization_config: {quant_method: bitnet}}`).Activation)
	require.Equal(t, model.MambaMixer, decode(t, `{model_type: decoder, hybrid_layer_pattern: MM, hidden_size: 256, num_attention_heads: 4, intermediate_size: 512, vocab_size: 1000}`).Kind(1).Mixer)
	for text, want := range map[string]string{
		"{model_type: deepseek_v3, num_hidden_layers: 2, mlp_layer_types: [dense]}":       "mlp_layer_types has 1 entries for 2 layers",
		"{model_type: deepseek_v3, num_hidden_layers: 2, mlp_layer_types: [dense, hash]}": `mlp_layer_types: "hash" is not known; dense and sparse are`,
	} {
		_, err := decodeText(text)
		require.ErrorContains(t, err, want)
	}
}

// TestIndexers: which layers pick keys, as files say it by a list, by letters, or every so many
// from one on, and what an indexer has. GLM-5.2's checkpoint has 753,329,940,480 values, of which
// transformers loads 743,377,000,704 (Megatron-Bridge, model_verification_cards/glm5-2): the
// rest are multi-token prediction and the 256 corrections of each of 76 routers, which are no parameters.
func TestIndexers(t *testing.T) {
	glm := decode(t, "{model_type: glm_moe_dsa, index_topk_freq: 4, index_skip_topk_offset: 3}")
	count := glm.Params()
	require.Equal(t, int64(743_377_000_704), count.Total)
	require.Equal(t, int64(753_329_940_480), count.Total+count.MTP+76*256)
	picks := func(s *model.Spec) string {
		var b strings.Builder
		for i := range s.Layers {
			b.WriteByte("FS"[map[bool]int{true: 1}[s.Kind(i).Follows]])
		}
		return b.String()
	}
	require.Equal(t, "FFF"+strings.Repeat("SSSF", 18)+"SSS", picks(glm))
	require.Equal(t, strings.Repeat("F", 78), picks(decode(t, "model_type: glm_moe_dsa")))
	small := "{model_type: glm_moe_dsa, num_hidden_layers: 3, mlp_layer_types: [dense, sparse, sparse], "
	listed := decode(t, small+"indexer_types: [full, shared, full], layer_types: [deepseek_sparse_attention, deepseek_sparse_attention, deepseek_sparse_attention]}")
	require.Equal(t, "FSF", picks(listed))
	require.Equal(t, []bool{true, false, false}, listed.MoE.Dense)
	require.Equal(t, listed.Params(), decode(t, small+"index_topk_pattern: FSF}").Params())
	require.False(t, listed.MTPKind().Follows)

	v32 := decode(t, "model_type: deepseek_v32")
	v3 := decode(t, "model_type: deepseek_v3")
	const each = 1536*64*128 + 7168*128 + 2*128 + 7168*64
	require.Equal(t, int64(61*each), v32.Params().Total-v3.Params().Total)
	// Of 4096 tokens, half see all before them and half 2048 keys; scores are of all pairs.
	dense, sparse := v3.ForwardFLOPs(4096, 4096, true), v32.ForwardFLOPs(4096, 4096, true)
	require.InEpsilon(t, 0.75, float64(sparse.Attention/dense.Attention), 1e-9)
	require.InEpsilon(t, 61*2*64*128*4096.*4096/2, float64(sparse.Indexer), 1e-9)
	require.InEpsilon(t, float64(3*sparse.Trained()-2*sparse.Indexer), float64(v32.StepFLOPs(4096, 4096, true)), 1e-9)

	for text, want := range map[string]string{
		small + "indexer_types: [full, shared]}":                            "indexer_types has 2 entries for 3 layers",
		small + "indexer_types: [full, half, full]}":                        "indexer_types: layer 1 is neither full nor shared",
		small + "index_topk_pattern: SFF}":                                  "index_topk_pattern: the first layer has none before it whose keys it could share",
		small + "q_lora_rank: null}":                                        "an indexer reads the query latent",
		"{model_type: decoder, " + shape + ", index_topk: 8}":               "kv_lora_rank is missing",
		"{model_type: decoder, " + shape + latentShape + ", index_topk: 8}": "missing index_n_heads, index_head_dim",
	} {
		_, err := decodeText(text)
		require.ErrorContains(t, err, want, text)
	}
	generic := decode(t, "{model_type: decoder, "+shape+latentShape+", q_lora_rank: 16, index_topk: 8, index_n_heads: 2, index_head_dim: 16, index_topk_freq: 2}")
	require.Equal(t, "FSFS", picks(generic))
}

// TestSums: which layers see sums of tokens, as files say it by ratios or by kinds of layers,
// what these hold and what they compute. Parameters of small models are those that
// transformers 5.17 makes (2026-11-27).
func TestSums(t *testing.T) {
	const small = "{model_type: deepseek_v4, hidden_size: 2048, num_attention_heads: 16, head_dim: 256, q_lora_rank: 768, qk_rope_head_dim: 64, o_groups: 4, o_lora_rank: 512, vocab_size: 32000, moe_intermediate_size: 1024, " +
		"n_routed_experts: 8, num_experts_per_tok: 2, index_topk: 256, index_n_heads: 16, "
	const sums, all, window = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"
	for layers, want := range map[string]int64{
		"num_hidden_layers: 4, layer_types: [" + window + ", " + sums + ", " + all + ", " + sums + "]":                                       415986973,
		"num_hidden_layers: 4, compress_ratios: [0, 4, 128, 4]":                                                                              415986973,
		"num_hidden_layers: 2, compress_ratios: [4, 4, 0]":                                                                                   277760913,
		"num_hidden_layers: 2, compress_ratios: [128, 128]":                                                                                  270414481,
		"num_hidden_layers: 2, layer_types: [" + window + ", " + window + "]":                                                                268251281,
		"num_hidden_layers: 4, head_dim: 512, num_attention_heads: 8, index_n_heads: 32, compress_ratios: [4, 128, 4, 128]":                  428740093,
		"num_hidden_layers: 4, hidden_size: 1024, hc_mult: 2, n_routed_experts: 16, num_experts_per_tok: 4, compress_ratios: [0, 4, 128, 4]": 320102555,
	} {
		text := small + layers + "}"
		for _, key := range []string{"head_dim: 256, ", "num_attention_heads: 16, ", "index_n_heads: 16, ", "hidden_size: 2048, ", "n_routed_experts: 8, ", "num_experts_per_tok: 2, "} {
			if name, _, _ := strings.Cut(key, " "); strings.Count(text, " "+name)+strings.Count(text, "{"+name) > 1 {
				text = strings.Replace(text, key, "", 1)
			}
		}
		require.Equal(t, want, decode(t, text).Params().Total, layers)
	}
	flash := decode(t, "{model_type: deepseek_v4, compress_ratios: [0, 0, 4, 128, 4], num_hidden_layers: 5}")
	require.Equal(t, []int64{0, 0, 4, 128, 4}, flash.Compress.Ratios)
	require.Equal(t, int64(4*4096), flash.Handed())
	require.EqualValues(t, 0, flash.MTPKind().Ratio)
	require.EqualValues(t, 128, decode(t, "{model_type: deepseek_v4, compress_ratios: [0, 128], num_hidden_layers: 1}").MTPKind().Ratio)
	require.Equal(t, []int64{128, 128, 128, 4, 128}, decode(t, "{model_type: deepseek_v4, num_hidden_layers: 5}").Compress.Ratios, "as transformers has them")
	require.Equal(t, []int64{8, 32}, decode(t, "{model_type: deepseek_v4, num_hidden_layers: 2, compress_rates: {"+sums+": 8, "+all+": 32}, layer_types: ["+sums+", "+all+"]}").Compress.Ratios)

	// A query sees its window, and of 4096 tokens' 1024 sums at most 512; all 32 of 128 tokens.
	pairs := func(seen float64) float64 { return 4096*seen - seen*seen/2 }
	attention := 5*pairs(128) + 2*pairs(2048)/4 + pairs(4096)/128
	f := flash.ForwardFLOPs(4096, 4096, true)
	require.InEpsilon(t, attention*2*64*1024, float64(f.Attention), 1e-9)
	require.InEpsilon(t, 2*pairs(4096)/4*2*64*128, float64(f.Indexer), 1e-9)
	// Multi-token prediction projects each of four streams and the embedding.
	last := decode(t, "{model_type: deepseek_v4, compress_ratios: [0], num_hidden_layers: 1, num_nextn_predict_layers: 0}").ForwardFLOPs(4096, 4096, true)
	require.InEpsilon(t, float64(last.Total())+2*4096*5*4096*4096, float64(f.MTP), 1e-9)
	for text, want := range map[string]string{
		"num_hidden_layers: 3, compress_ratios: [0, 4]":              "compress_ratios has 2 entries for 3 layers",
		"num_hidden_layers: 1, layer_types: [full_attention]":        `layer_types: "full_attention" is not known; sliding_attention, ` + sums + " and " + all + " are",
		"num_hidden_layers: 1, compress_ratios: [-4]":                "compress_ratios: layer 0 has -4",
		"num_key_value_heads: 2":                                     "all heads of model_type deepseek_v4 share one key; use 1",
		"o_groups: 7":                                                "o_groups 7 does not divide num_attention_heads 64; use 1, 2, 4, 8, 16, 32 or 64",
		"qk_rope_head_dim: 512":                                      "qk_rope_head_dim 512 leaves nothing of a head of 512",
		"num_hidden_layers: 1, compress_ratios: [4], q_lora_rank: 0": "q_lora_rank is missing",
		"compress_rates: 4":                                          "compress_rates: expected a mapping",
		"compress_rates: {" + sums + ": -3}":                         "compress_rates: " + sums + " -3 is out of range; use 2 to ",
		"compress_rates: {" + sums + ": x}":                          "expected a whole number",
		"compress_rates: {sliding_attention: 4}":                     `compress_rates: "sliding_attention" is not known; ` + sums + " and " + all + " are",
	} {
		_, err := decodeText("{model_type: deepseek_v4, " + text + "}")
		require.ErrorContains(t, err, want, text)
	}
	_, err := decodeText("{model_type: decoder, " + shape + ", compress_ratios: [0, 0, 4, 4]}")
	require.ErrorContains(t, err, "needs o_groups, which is missing")
	_, err = decodeText("{model_type: decoder, " + shape + ", hc_mult: 4, norm_placement: post}")
	require.ErrorContains(t, err, "hc_mult 4: residual streams are modelled around attention and an MLP with a norm before each; use 1")
	generic := decode(t, "{model_type: decoder, "+shape+", head_dim: 32, qk_rope_head_dim: 8, q_lora_rank: 16, o_groups: 2, o_lora_rank: 16, sliding_window: 8, compress_ratios: [0, 4, 128, 4], index_topk: 8, index_n_heads: 2, index_head_dim: 16, hc_mult: 2, router: sqrtsoftplus, num_experts: 4, num_experts_per_tok: 2}")
	require.Equal(t, model.SigmoidRouter, generic.MoE.Router)
	require.EqualValues(t, 1, generic.KVHeads)
}

// shape and latentShape are of a model with latent attention in the generic form.
const (
	shape       = "hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 128, vocab_size: 100"
	latentShape = ", kv_lora_rank: 16, qk_rope_head_dim: 8, qk_nope_head_dim: 8, v_head_dim: 16"
)

func TestXIELU(t *testing.T) {
	_, err := decodeText("{model_type: llama, hidden_act: xielu}")
	require.ErrorContains(t, err, "hidden_act: xielu has parameters, which model_type apertus alone is known to have")
}

func TestSingleHeadNorms(t *testing.T) {
	_, err := decodeText("{model_type: stablelm, qk_layernorm: true}") // StableLM 2 12B
	require.ErrorContains(t, err, "qk_layernorm: a norm of its own for each head is not modelled; only false is")
}

func TestAlike(t *testing.T) {
	_, err := decodeText("{model_type: hunyuan_v1_moe, num_experts: 8, num_hidden_layers: 2, moe_topk: [1, 2]}")
	require.ErrorContains(t, err, "moe_topk: layers that differ are not modelled; give all the same")
}

func TestWindowLetters(t *testing.T) {
	for text, want := range map[string]string{
		"LLGL": `sliding_window_pattern: "LLGL" is no pattern; L for each layer with a window, then G, as in LLLG`,
		"-1":   "sliding_window_pattern: -1 is out of range; use 0 to 10000",
		"[4]":  "is no pattern",
	} {
		_, err := decodeText("{model_type: exaone4, sliding_window_pattern: " + text + "}")
		require.ErrorContains(t, err, want)
	}
}

// What classes have that are read since 2026-11-26, from modeling_*.py of transformers 5.17.
func TestMoreSwitches(t *testing.T) {
	for text, check := range map[string]func(*testing.T, *model.Spec){
		"{model_type: arcee, num_hidden_layers: 2, vocab_size: 100, hidden_size: 64, intermediate_size: 256, num_attention_heads: 4, num_key_value_heads: 2}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.ReLU2, s.Activation)
			require.Equal(t, int64(2*100*64+64+2*(2*64*64+2*64*32+2*64*256+2*64)), s.Params().Total, "no gate")
		},
		"{model_type: ministral, layer_types: [full_attention, sliding_attention], num_hidden_layers: 2}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{false, true}, s.Windows)
			require.False(t, s.QueryScale)
		},
		"{model_type: mistral3, text_config: {model_type: ministral3, rope_parameters: {rope_type: yarn, llama_4_scaling_beta: 0.1}}}": func(t *testing.T, s *model.Spec) {
			require.True(t, s.QueryScale && s.TextOnly)
			require.Nil(t, s.Windows)
		},
		"{model_type: glm4}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.Sandwich, s.Place)
			require.True(t, s.FusedGateUp && s.QKVBias && !s.OutBias)
			require.Equal(t, int64(64), s.RotaryDim)
			require.Equal(t, s.Params().Total-40*2*4096, decode(t, "{model_type: glm}").Params().Total, "two norms a layer")
		},
		"{model_type: ernie4_5, use_bias: true, num_hidden_layers: 1}": func(t *testing.T, s *model.Spec) {
			require.True(t, s.Tied && s.QKVBias && s.OutBias && s.MLPBias)
			require.Equal(t, model.TurnPairsMixed, s.Turn)
		},
		"{model_type: exaone4, num_hidden_layers: 5, sliding_window_pattern: LLLG}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{true, true, true, false, true}, s.Windows)
			require.Equal(t, []bool{false, false, false, true, false}, s.NoRope)
			require.Equal(t, model.PostNorm, s.Place)
			require.Equal(t, model.HeadQKNorm, s.QKNorm)
		},
		"{model_type: exaone4, sliding_window: null, sliding_window_pattern: null}": func(t *testing.T, s *model.Spec) {
			require.Nil(t, s.Windows)
			require.Nil(t, s.NoRope, "all turn")
		},
		"{model_type: exaone4, num_hidden_layers: 1, layer_types: [full_attention]}": func(t *testing.T, s *model.Spec) {
			require.Nil(t, s.Windows)
			require.Equal(t, []bool{true}, s.NoRope)
		},
		"{model_type: cohere2, num_hidden_layers: 4, use_parallel_block: true, position_embedding_type: rope_gptj}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{false, false, false, true}, s.NoRope)
			require.True(t, s.Tied && s.LogitScale)
			require.Equal(t, int64(256000*8192+8192+4*(4*8192*8192+3*8192*22528+8192)), s.Params().Total, "one norm, and none has a bias")
		},
		"{model_type: cohere, num_hidden_layers: 1, num_key_value_heads: 8, use_qk_norm: true}": func(t *testing.T, s *model.Spec) {
			require.Nil(t, s.NoRope)
			require.Equal(t, model.ParallelOneNorm, s.Parallel)
			require.Equal(t, s.Params().Total-72*128, decode(t, "{model_type: cohere, num_hidden_layers: 1, num_key_value_heads: 8}").Params().Total, "a weight for every head")
		},
		"{model_type: gemma4_text, per_layer_config: null}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, decode(t, "{model_type: gemma4_text}").Params(), s.Params())
		},
		"{model_type: hunyuan_v1_dense, num_experts: 1, moe_topk: [1, 1], use_qk_norm: true}": func(t *testing.T, s *model.Spec) {
			require.True(t, s.NormTurned && s.MoE == nil)
		},
		"{model_type: hunyuan_v1_moe, num_hidden_layers: 2, num_experts: 64, moe_topk: [8, 8], intermediate_size: 3072, moe_intermediate_size: [3072, 3072]}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.MoE{Experts: 64, TopK: 8, FFN: 3072, Shared: 1, SharedFFN: 3072, Router: model.SoftmaxRouter, NormTopK: true}, *s.MoE)
		},
		"{model_type: granitemoe, num_hidden_layers: 1}": func(t *testing.T, s *model.Spec) {
			require.True(t, s.EmbedScale && s.ResidScale && s.LogitScale && s.MoE.ChosenFirst)
			require.Equal(t, int64(11008), s.MoE.FFN)
		},
		"{model_type: dots1, num_hidden_layers: 3, n_routed_experts: 8, num_experts_per_tok: 2, n_shared_experts: 1, first_k_dense_replace: 1, max_window_layers: 2}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{true, false, false}, s.MoE.Dense)
			require.Equal(t, []bool{false, false, true}, s.Windows)
		},
		"{model_type: glm4_moe_lite, num_hidden_layers: 3, mlp_layer_types: [sparse, dense, sparse]}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{false, true, false}, s.MoE.Dense)
			require.Equal(t, []int64{256, 256}, []int64{s.HeadDim, s.VDim})
		},
		"{model_type: youtu}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, int64(1_961_560_064), s.Params().Total, "model card of Youtu-LLM-2B: 1.96B")
			require.True(t, s.Tied && s.MoE == nil)
		},
		"{model_type: solar_open}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.NoQKNorm, s.QKNorm)
			require.Equal(t, s.HeadDim, s.RotaryDim)
		},
		"{model_type: ernie4_5_moe, num_hidden_layers: 6, moe_layer_start_index: 1, moe_layer_end_index: 4, moe_layer_interval: 2}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{true, false, true, false, true, true}, s.MoE.Dense)
			require.True(t, s.MoE.Corrected)
			require.Equal(t, int64(2*1536), s.MoE.SharedFFN)
		},
		"{model_type: ernie4_5_moe, moe_layer_end_index: -1, num_hidden_layers: 3}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{true, false, false}, s.MoE.Dense)
		},
		"{model_type: stablelm, num_hidden_layers: 1}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.Serial, s.Parallel)
			require.Equal(t, int64(20), s.RotaryDim)
			require.Equal(t, s.Params().Total-2*2560, decode(t, "{model_type: stablelm, num_hidden_layers: 1, use_parallel_residual: true}").Params().Total, "one norm less")
		},
		"{model_type: jais2, num_hidden_layers: 1}": func(t *testing.T, s *model.Spec) {
			require.False(t, s.Gated)
			require.True(t, s.QKVBias && s.OutBias && s.MLPBias)
			require.Equal(t, model.Rotary, s.Position)
		},
		"{model_type: gpt_bigcode, num_hidden_layers: 1}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, int64(1), s.KVHeads)
			require.Equal(t, model.LearnedPosition, s.Position)
			require.False(t, s.TransposedWeights)
		},
		"{model_type: gpt_bigcode, multi_query: false}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, s.Heads, s.KVHeads)
			require.True(t, s.QKVHeads)
		},
		"{model_type: apertus, num_hidden_layers: 1, qk_norm: true, post_norm: false}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.XIELU, s.Activation)
			require.Equal(t, int64(2*131072*4096+4096+4*4096*4096+2*128+2*4096*14336+2+2*4096), s.Params().Total)
		},
		"{model_type: phimoe, num_hidden_layers: 2, input_jitter_noise: 0.01, lm_head_bias: true, sliding_window: 2047}": func(t *testing.T, s *model.Spec) {
			require.True(t, s.MoE.Jitter && s.MoE.Sampled && s.HeadBias && !s.QKVBias)
			require.Equal(t, []bool{true, true}, s.Windows)
		},
		"{model_type: helium}": func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.CastRMSNorm, s.Norm)
		},
	} {
		t.Run(text, func(t *testing.T) { check(t, decode(t, text)) })
	}
}
