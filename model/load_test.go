package model_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// decode reads a model written in place.
func decode(t testing.TB, text string) *model.Spec {
	t.Helper()
	s, err := decodeText(text)
	require.NoError(t, err, text)
	return s
}

func decodeText(text string) (*model.Spec, error) {
	doc, err := yamlx.Parse("model.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	s, errs := model.Decode(doc, doc.Root)
	return s, errs.Err()
}

// A config.json as the hub has it and the catalog's file describe the same
// model. The files in testdata/configs are in the vocabulary of the real ones,
// with the keys that change nothing left in.
func TestConfigJSON(t *testing.T) {
	files, err := filepath.Glob("testdata/configs/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 20)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			got, err := model.Load(file)
			require.NoError(t, err)
			want, err := model.Load(name)
			require.NoError(t, err)
			got.Defaulted = want.Defaulted // a published file may leave to its model_type what the catalog spells out
			got.Quantized = want.Quantized // DeepSeek-V3 and gpt-oss are published packed
			require.Equal(t, want, got)
		})
	}
}

// What a file says of its class and its weights and is not modelled is kept for remarks.
func TestHeadlessAndQuantized(t *testing.T) {
	const llama = "model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, vocab_size: 64"
	for text, want := range map[string][2]string{
		"":                                                {},
		"architectures: [LlamaForCausalLM]":               {},
		"architectures: [GPT2LMHeadModel]":                {},
		"architectures: LlamaModel":                       {},
		"architectures: null":                             {},
		"architectures: [LlamaModel]":                     {"LlamaModel", ""},
		"architectures: [InternLM2ForReward]":             {"InternLM2ForReward", ""},
		"architectures: [LlamaForSequenceClassification]": {"LlamaForSequenceClassification", ""},
		"architectures: [LlamaForTokenClassification]":    {"LlamaForTokenClassification", ""},
		"architectures: [LlamaForRewardModel]":            {"LlamaForRewardModel", ""},
		"quantization_config: null":                       {},
		"quantization_config: {}":                         {},
		"quantization_config: {bits: 4}":                  {"", "of an unknown quant_method"},
		"quantization_config: {quant_method: bitsandbytes, load_in_4bit: true}": {"", "bitsandbytes"},
		"architectures: [LlamaModel], quantization_config: {quant_method: awq}": {"LlamaModel", "awq"},
	} {
		s := decode(t, "{"+llama+", "+text+"}")
		require.Equal(t, want, [2]string{s.Headless, s.Quantized}, text)
	}
	nested := decode(t, "{model_type: kimi_k25, text_config: {num_hidden_layers: 2, quantization_config: {quant_method: compressed-tensors}}}")
	require.Equal(t, "compressed-tensors", nested.Quantized, "of the language model alone")
}

// YAML and JSON are two spellings of one file, nested or flat, with an encoder of images or
// without.
func TestYAMLAndJSONAgree(t *testing.T) {
	for _, name := range []string{"deepseek-v3", "qwen2-vl-7b", "qwen3-vl-4b", "llava-1.5-7b"} {
		data, err := os.ReadFile("testdata/configs/" + name + ".json")
		require.NoError(t, err)
		var values map[string]any
		require.NoError(t, yaml.Unmarshal(data, &values))
		asYAML, err := yaml.Marshal(values)
		require.NoError(t, err)
		require.Equal(t, decode(t, string(data)), decode(t, string(asYAML)), name)
	}
}

func TestLoadFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "my-llama")
	require.NoError(t, os.Mkdir(folder, 0o755))
	data, err := os.ReadFile("testdata/configs/llama2-7b.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), data, 0o644))

	for _, path := range []string{folder, filepath.Join(folder, "config.json")} {
		s, err := model.Load(path)
		require.NoError(t, err)
		require.Equal(t, "my-llama", s.Name)
		require.Equal(t, int64(6_738_415_616), s.Params().Total)
	}
}

func TestLoadNames(t *testing.T) {
	for _, name := range []string{"llama2-7b", "llama-2-7b", "meta-llama/Llama-2-7b-hf"} {
		s, err := model.Load(name)
		require.NoError(t, err)
		require.Equal(t, "llama2-7b", s.Name)
	}
	for name, want := range map[string]string{
		"testdata":      `testdata: is a folder without a config.json; name a file in it, or the folder of a model`,
		"lama2-7b":      `unknown model "lama2-7b"; did you mean "llama2-7b"?`,
		"gemma2":        `unknown model "gemma2"; did you mean "gemma2-27b", "gemma2-2b" or "gemma2-9b"?`,
		"something":     `unknown model "something"; give a name of the catalog (perfplan model list), a YAML or JSON file, or a folder with a config.json`,
		"models/x.yaml": `models/x.yaml: no such file; give one that is there`,
		"missing.json":  `missing.json: no such file; give one that is there`,
	} {
		_, err := model.Load(name)
		require.EqualError(t, err, want)
		require.True(t, diag.IsInput(err))
	}
}

// A job names its model, a path beside it, or writes it in place.
func TestDecodeReference(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte("model_type: gpt2\nn_layer: 2\n"), 0o644))
	for _, test := range []struct {
		model, name, err string
	}{
		{model: "llama3-8b", name: "llama3-8b"},
		{model: "meta-llama/Llama-3.1-8B", name: "llama3.1-8b"},
		{model: "./mine.yaml", name: "mine"},
		{model: "{model_type: llama, num_hidden_layers: 2}", name: "llama"},
		{model: "{name: my own, model_type: llama, num_hidden_layers: 2}", name: "my own"},
		{model: "lama3-8b", err: "unknown model \"lama3-8b\"; did you mean \"llama3-8b\"?"},
		{model: "[1]", err: "a model is a mapping"},
	} {
		doc, err := yamlx.Parse(filepath.Join(dir, "job.yaml"), []byte("model: "+test.model))
		require.NoError(t, err)
		s, errs := model.Decode(doc, doc.At("model"))
		if test.err != "" {
			require.ErrorContains(t, errs.Err(), test.err)
			require.ErrorContains(t, errs.Err(), "job.yaml:1:8:")
			continue
		}
		require.NoError(t, errs.Err())
		require.Equal(t, test.name, s.Name)
	}
}

// Every bad file has its complaints in a golden file beside it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.bad.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := model.Load(file)
			require.Error(t, err)
			require.True(t, diag.IsInput(err))
			got := strings.ReplaceAll(err.Error(), file, filepath.Base(file)) + "\n"
			golden := strings.TrimSuffix(file, ".bad.yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "run go test ./model -update and read what it wrote")
			require.Equal(t, string(want), got)
		})
	}
}

// Missing keys take the default of the transformers class, so a file that only
// names its type is the class's default model.
func TestClassDefaults(t *testing.T) {
	for _, test := range []struct {
		text string
		want int64 // parameters of SomethingForCausalLM(SomethingConfig()), transformers 5.17
	}{
		{"model_type: llama", 6_738_415_616},
		{"model_type: gpt2", 124_439_808},
		{"model_type: gpt_neox", 20_554_567_680},
		{"model_type: gptj", 6_050_882_784},
		{"model_type: falcon", 6_921_720_704},
		{"model_type: gemma", 8_537_680_896},
		{"model_type: phi3", 3_821_079_552},
		{"model_type: mixtral", 46_702_792_704},
		{"model_type: gpt_oss", 116_829_156_672},
		{"model_type: deepseek_v3", 671_026_404_352},
		{"model_type: qwen2_moe", 14_315_784_192},
	} {
		require.Equal(t, test.want, decode(t, test.text).Params().Total, test.text)
	}
}

// The switches that tell families apart, from modeling_*.py of transformers
// 5.17 (4.57 for mpt and opt).
func TestSwitches(t *testing.T) {
	windows := func(s *model.Spec) string {
		var b strings.Builder
		for _, w := range s.Windows {
			b.WriteByte("-w"[map[bool]int{true: 1}[w]])
		}
		return b.String()
	}
	for _, test := range []struct {
		text  string
		check func(*testing.T, *model.Spec)
	}{
		{"{model_type: mistral, num_hidden_layers: 3}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "www", windows(s))
		}},
		{"{model_type: mistral, sliding_window: null, num_key_value_heads: null}", func(t *testing.T, s *model.Spec) {
			require.Zero(t, s.Window)
			require.Nil(t, s.Windows)
			require.Equal(t, s.Heads, s.KVHeads)
		}},
		{"{model_type: qwen2, num_hidden_layers: 4, use_sliding_window: true, max_window_layers: 2}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "--ww", windows(s))
			require.True(t, s.QKVBias)
			require.False(t, s.OutBias)
		}},
		{"{model_type: gemma2, num_hidden_layers: 4}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "w-w-", windows(s))
			require.True(t, s.AttnSoftcap && s.LogitSoftcap && s.EmbedScale && s.Tied)
			require.Equal(t, model.Sandwich, s.Place)
		}},
		{"{model_type: gemma2, attn_logit_softcapping: null}", func(t *testing.T, s *model.Spec) {
			require.False(t, s.AttnSoftcap)
			require.True(t, s.LogitSoftcap)
		}},
		{"{model_type: gemma3_text, num_hidden_layers: 7}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "wwwww-w", windows(s))
			require.Equal(t, model.HeadQKNorm, s.QKNorm)
		}},
		{"{model_type: gpt_oss, num_hidden_layers: 2}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "w-", windows(s))
			require.True(t, s.Sinks && s.MoE.ExpertBias && s.MoE.RouterBias && s.TurnScaled)
			require.Equal(t, s.MoE.FFN, s.FFN)
		}},
		{"{model_type: gpt_oss, rope_scaling: {rope_type: yarn, factor: 32.0}}", func(t *testing.T, s *model.Spec) { require.True(t, s.TurnScaled) }},
		{"{model_type: gpt_oss, rope_scaling: null}", func(t *testing.T, s *model.Spec) { require.False(t, s.TurnScaled) }},
		{"{model_type: gpt_oss, rope_parameters: {rope_type: default}}", func(t *testing.T, s *model.Spec) { require.False(t, s.TurnScaled) }},
		{"{model_type: qwen3, num_hidden_layers: 3, use_sliding_window: true, layer_types: [full_attention, sliding_attention, full_attention]}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "-w-", windows(s))
		}},
		{"{model_type: llama4, text_config: {num_hidden_layers: 5, interleave_moe_layer_step: 2}}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "www-w", windows(s))
			require.True(t, s.Chunked)
			require.Equal(t, []bool{true, false, true, false, true}, s.MoE.Dense)
		}},
		{"{model_type: olmo3, num_hidden_layers: 5}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "www-w", windows(s))
			require.Equal(t, model.PostNorm, s.Place)
			require.Equal(t, model.FullQKNorm, s.QKNorm)
		}},
		{"{model_type: smollm3, num_hidden_layers: 5}", func(t *testing.T, s *model.Spec) {
			require.Zero(t, s.Window)
			require.True(t, s.Tied)
			require.Equal(t, []bool{false, false, false, true, false}, s.NoRope)
		}},
		{"{model_type: smollm3, num_hidden_layers: 3, no_rope_layers: [1, 0, 1]}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{false, true, false}, s.NoRope)
			require.Equal(t, "no-rope layer", s.Kind(1).String())
			require.Equal(t, s.Params().Total, decode(t, "{model_type: smollm3, num_hidden_layers: 3, no_rope_layer_interval: 0}").Params().Total)
		}},
		{"{model_type: granite, residual_multiplier: 0.22, logits_scaling: 16}", func(t *testing.T, s *model.Spec) {
			require.True(t, s.EmbedScale && s.ResidScale && s.LogitScale)
		}},
		{"{model_type: seed_oss}", func(t *testing.T, s *model.Spec) {
			require.True(t, s.QKVBias)
			require.False(t, s.OutBias)
			require.Equal(t, 0.1, s.ResidDropout)
		}},
		{"{model_type: starcoder2, use_bias: false}", func(t *testing.T, s *model.Spec) {
			require.False(t, s.QKVBias || s.OutBias || s.MLPBias || s.Gated)
			require.Zero(t, s.Window)
		}},
		{"{model_type: nemotron}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.ReLU2, s.Activation)
			require.False(t, s.Gated)
			require.Equal(t, s.HeadDim/2, s.RotaryDim)
		}},
		{"{model_type: glm4_moe, num_hidden_layers: 3, attention_bias: true, head_dim: 128}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{true, false, false}, s.MoE.Dense)
			require.Equal(t, int64(64), s.RotaryDim)
			require.Equal(t, s.MoE.FFN, s.MoE.SharedFFN)
			require.True(t, s.QKVBias)
			require.False(t, s.OutBias)
			require.Zero(t, s.MTPLayers)
			require.Equal(t, model.NoQKNorm, s.QKNorm)
		}},
		{"{model_type: glm4_moe, use_qk_norm: true, num_nextn_predict_layers: 1}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.HeadQKNorm, s.QKNorm)
			require.Equal(t, int64(1), s.MTPLayers)
		}},
		{"{model_type: minimax_m2}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.SigmoidRouter, s.MoE.Router)
			require.Equal(t, int64(64), s.RotaryDim)
			require.Equal(t, model.FullQKNorm, s.QKNorm)
		}},
		{"{model_type: qwen3_vl_moe, vision_config: {depth: 27}, text_config: {model_type: qwen3_vl_moe_text, num_hidden_layers: 2}}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.HeadQKNorm, s.QKNorm)
			require.Equal(t, int64(128), s.MoE.Experts)
		}},
		{"{model_type: qwen2_5_vl, text_config: {hidden_size: 2048, num_attention_heads: 16, num_key_value_heads: 2}, vision_config: {model_type: qwen2_5_vl, hidden_size: 1280, out_hidden_size: 2048, depth: 4, fullatt_block_indexes: [1]}}", func(t *testing.T, s *model.Spec) { // which its class called itself until transformers 5
			require.Equal(t, "w-ww", windows(s.Vision.Encoder))
			require.Equal(t, int64(8*8), s.Vision.Encoder.Window, "112 pixels are eight patches")
			require.Equal(t, model.RMSNorm, s.Vision.Encoder.Norm)
			require.True(t, s.Vision.Encoder.Gated && s.Vision.Packed && s.Vision.Encoder.Bidirectional)
			require.False(t, s.Bidirectional || s.Vision.PatchBias)
		}},
		{"{model_type: qwen2_vl, text_config: {hidden_size: 3584, num_attention_heads: 28, num_key_value_heads: 4}, vision_config: {model_type: qwen2_vl, embed_dim: 1280, hidden_size: 3584, mlp_ratio: 4}}", func(t *testing.T, s *model.Spec) { // hidden_size is the language model's
			require.Equal(t, []int64{1280, 5120, 16, 32}, []int64{s.Vision.Encoder.Hidden, s.Vision.Encoder.FFN, s.Vision.Encoder.Heads, s.Vision.Encoder.Layers})
			require.Zero(t, s.Vision.Encoder.Window)
			require.Equal(t, model.QuickGELU, s.Vision.Encoder.Activation)
		}},
		{"{model_type: qwen2_vl, hidden_size: 3584, num_attention_heads: 28, num_key_value_heads: 4, vision_config: {embed_dim: 1280, hidden_size: 3584}}", func(t *testing.T, s *model.Spec) { // flat, as the first files were
			require.Equal(t, []int64{3584, 1280}, []int64{s.Hidden, s.Vision.Encoder.Hidden})
		}},
		{"{model_type: qwen3_5_moe, text_config: {hidden_size: 2048, num_hidden_layers: 4}, vision_config: {model_type: qwen3_5_moe, out_hidden_size: 2048, deepstack_visual_indexes: []}}", func(t *testing.T, s *model.Spec) {
			require.Empty(t, s.Vision.Deep)
			require.Equal(t, int64(48*48), s.Vision.Rows)
			require.True(t, s.Vision.Grid && s.Vision.PatchBias)
			require.False(t, s.Kind(0).Deep)
		}},
		{"{model_type: qwen3_vl, text_config: {num_hidden_layers: 5}, vision_config: {out_hidden_size: 4096, depth: 6, deepstack_visual_indexes: [1, 3]}}", func(t *testing.T, s *model.Spec) { // the first layers of the language model take what layers 1 and 3 make
			var deep []bool
			for i := range s.Layers {
				deep = append(deep, s.Kind(i).Deep)
			}
			require.Equal(t, []bool{true, true, false, false, false}, deep)
		}},
		{"{model_type: gemma3, text_config: {}, vision_config: {image_size: 896, patch_size: 14}}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, []int64{64 * 64, 4, 0}, []int64{s.Vision.Rows, s.Vision.Merge, s.Vision.Idle})
			require.Equal(t, model.PoolProjector, s.Vision.Projector)
			require.True(t, s.Vision.Mutual() && s.Vision.PatchBias)
			require.Equal(t, model.NoPosition, s.Vision.Encoder.Position)
		}},
		{"{model_type: llava, text_config: {}, vision_config: {image_size: 336, patch_size: 14, num_hidden_layers: 24}}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, []int64{24*24 + 1, 1, 23}, []int64{s.Vision.Rows, s.Vision.Idle, s.Vision.Used()}, "a row for the class token; what the last layer but one puts out is read")
			require.True(t, s.Vision.Class && !s.Vision.Mutual() && !s.Vision.PatchBias)
		}},
		{"{model_type: llava, vision_feature_layer: 5, text_config: {}, vision_config: {image_size: 336, patch_size: 14, num_hidden_layers: 24}}", func(t *testing.T, s *model.Spec) { // hidden_states, whose first is the embedding
			require.Equal(t, int64(5), s.Vision.Used())
		}},
		{"{model_type: mistral3, text_config: {model_type: mistral, head_dim: 128, sliding_window: null}}", func(t *testing.T, s *model.Spec) {
			require.Zero(t, s.Window)
			require.Equal(t, int64(128), s.HeadDim)
		}},
		{"{model_type: qwen3_moe, num_hidden_layers: 4, decoder_sparse_step: 2, mlp_only_layers: [3]}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{true, false, true, true}, s.MoE.Dense)
			require.True(t, s.Kind(1).MoE)
			require.False(t, s.Kind(0).MoE)
		}},
		{"{model_type: deepseek_v3, num_hidden_layers: 4}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, []bool{true, true, true, false}, s.MoE.Dense)
			require.Equal(t, int64(192), s.HeadDim)
			require.Equal(t, int64(128), s.VDim)
			require.Equal(t, int64(64), s.RotaryDim)
			require.Equal(t, int64(1), s.MTPLayers)
		}},
		{"{model_type: deepseek_v2, q_lora_rank: null, num_experts_per_tok: 6, n_shared_experts: null}", func(t *testing.T, s *model.Spec) {
			require.Zero(t, s.MLA.QLora)
			require.Zero(t, s.MoE.SharedFFN)
		}},
		{"{model_type: falcon, new_decoder_architecture: true, num_kv_heads: 71}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.ParallelTwoNorm, s.Parallel)
			require.Equal(t, int64(71), s.KVHeads)
		}},
		{"{model_type: falcon, new_decoder_architecture: true, num_ln_in_parallel_attn: 1}", func(t *testing.T, s *model.Spec) { // Falcon 2 11B
			require.Equal(t, model.ParallelOneNorm, s.Parallel)
		}},
		{"{model_type: falcon, parallel_attn: false, multi_query: false, alibi: true, bias: true}", func(t *testing.T, s *model.Spec) { // Falcon-RW
			require.Equal(t, model.Serial, s.Parallel)
			require.Equal(t, model.ALiBi, s.Position)
			require.Equal(t, int64(71), s.KVHeads)
			require.True(t, s.QKVBias && s.OutBias && s.MLPBias)
		}},
		{"{model_type: gpt_neox, use_parallel_residual: false, rope_parameters: {partial_rotary_factor: 1.0}}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.Serial, s.Parallel)
			require.Equal(t, s.HeadDim, s.RotaryDim)
		}},
		{"{model_type: mpt, attn_config: {alibi: false, attn_pdrop: 0.1}}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.LearnedPosition, s.Position)
			require.Equal(t, 0.1, s.AttnDropout)
		}},
		{"{model_type: opt}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, int64(2048), s.MaxPositions)
			require.Equal(t, int64(2), s.IdlePositions)
		}},
		{"{model_type: phi, hidden_size: 2560, partial_rotary_factor: 0.4, qk_layernorm: true}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, int64(32), s.RotaryDim)
			require.Equal(t, model.HeadQKNorm, s.QKNorm)
			require.True(t, s.HeadBias)
		}},
		{"{model_type: llama, attention_bias: true, hidden_act: gelu_fast}", func(t *testing.T, s *model.Spec) {
			require.True(t, s.QKVBias && s.OutBias)
			require.Equal(t, model.GELUNew, s.Activation)
		}},
		{"{model_type: kimi_k2}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, "deepseek_v3", s.ModelType)
		}},
		{"{model_type: decoder, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 100, gated_mlp: false}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.LayerNorm, s.Norm)
			require.Equal(t, model.LearnedPosition, s.Position)
			require.True(t, s.QKVBias && s.OutBias && s.MLPBias && s.Tied)
			require.Equal(t, int64(256), s.FFN)
			require.Zero(t, s.MaxPositions)
			require.Equal(t, int64(512), s.AtSequence(512).MaxPositions)
			require.Zero(t, s.MaxPositions)
		}},
		{"{model_type: decoder, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 100, gated_mlp: false, intermediate_size: 256, norm: layernorm_no_bias, position: alibi, bias: false}", func(t *testing.T, s *model.Spec) { // MPT in the generic form
			require.Equal(t, model.LayerNormNoB, s.Norm)
			require.Equal(t, model.ALiBi, s.Position)
			require.False(t, s.QKVBias || s.OutBias || s.MLPBias)
		}},
		{"{model_type: decoder, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 100, intermediate_size: 128, qkv_bias: true, qk_norm: full, norm_placement: post, activation: relu2, fused_gate_up: true}", func(t *testing.T, s *model.Spec) {
			require.Equal(t, model.ReLU2, s.Activation)
			require.Equal(t, model.PostNorm, s.Place)
			require.True(t, s.QKVBias && s.FusedGateUp && !s.OutBias)
			require.Same(t, s, s.AtSequence(512))
		}},
	} {
		t.Run(test.text, func(t *testing.T) {
			test.check(t, decode(t, test.text))
		})
	}
}

// What is no encoder that is known is left out, and said to be: the language model alone is
// what loads.
func TestTextOnly(t *testing.T) {
	const text = "text_config: {num_hidden_layers: 2}"
	for _, test := range []struct {
		text  string
		alone bool
	}{
		{"{model_type: qwen2_5_vl, " + text + "}", true},
		{"{model_type: qwen2_5_vl, " + text + ", vision_config: null}", true},
		{"{model_type: qwen2_5_vl, " + text + ", vision_config: {model_type: eva_vision, bogus: 1}}", true},
		{"{model_type: mistral3, " + text + ", vision_config: {model_type: pixtral}}", true},
		{"{model_type: gemma4, " + text + ", vision_config: {model_type: gemma4_vision}, audio_config: {model_type: gemma4_audio}, boa_token_id: 256000, audio_token_id: 258881}", true},
		{"{model_type: llama4, " + text + ", vision_config: {model_type: llama4_vision_model}}", true},
		{"{model_type: qwen2_5_vl, text_config: {hidden_size: 3584, num_attention_heads: 28, num_key_value_heads: 4}, vision_config: {out_hidden_size: 3584}}", false},
		{"{model_type: llama, num_hidden_layers: 2}", false},
	} {
		s := decode(t, test.text)
		require.Equal(t, test.alone, s.TextOnly, test.text)
		if test.alone {
			require.Nil(t, s.Vision, test.text)
			require.Zero(t, s.Params().Vision, test.text)
		}
	}
}

// The specs of measured runs, copied from h200-steps.yaml with the parameters
// that PyTorch counted there.
func TestMeasuredParameters(t *testing.T) {
	for _, test := range []struct {
		id, text string
		want     int64
	}{
		{"h200x4-d1-00", "{model_type: llama, hidden_size: 2048, num_hidden_layers: 22, num_attention_heads: 32, num_key_value_heads: 4, intermediate_size: 5632, vocab_size: 32000, tie_word_embeddings: false}", 1_100_048_384},
		{"h200x4-d1-08", "{model_type: llama, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 14336, vocab_size: 128256, tie_word_embeddings: false}", 8_030_261_248},
		{"h200x4-d1-14", "{model_type: llama, hidden_size: 3072, num_hidden_layers: 28, num_attention_heads: 24, num_key_value_heads: 8, intermediate_size: 8192, vocab_size: 128256, tie_word_embeddings: true}", 3_212_749_824},
		{"h200x4-d2-09", "{model_type: llama, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, vocab_size: 32000, tie_word_embeddings: false}", 373_867_520},
		{"h200x1-n1-01", "{model_type: llama, hidden_size: 5120, num_hidden_layers: 6, num_attention_heads: 40, num_key_value_heads: 8, intermediate_size: 13824, vocab_size: 32000, tie_word_embeddings: false}", 1_979_253_760},
		{"h200x1-n2-02", "{model_type: llama, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, num_key_value_heads: 12, intermediate_size: 2048, vocab_size: 32000, tie_word_embeddings: false}", 134_105_856},
		{"h200x1-n3-00", "{model_type: llama, hidden_size: 2048, num_hidden_layers: 16, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 8192, vocab_size: 128256, tie_word_embeddings: true}", 1_235_814_400},
		// And of vision.yaml, with encoders of images.
		{"h100-q3vl-0", "{model_type: qwen3_vl, tie_word_embeddings: false, text_config: {hidden_size: 2048, num_hidden_layers: 4, num_attention_heads: 16, num_key_value_heads: 8, head_dim: 128, intermediate_size: 6144, vocab_size: 32000}, vision_config: {hidden_size: 1024, depth: 6, num_heads: 16, intermediate_size: 4096, out_hidden_size: 2048, deepstack_visual_indexes: [1, 2, 3], patch_size: 16}}", 512_643_072},
		{"h100-q25vl-1", "{model_type: qwen2_5_vl, tie_word_embeddings: false, text_config: {hidden_size: 3584, num_hidden_layers: 4, num_attention_heads: 28, num_key_value_heads: 4, intermediate_size: 18944, vocab_size: 32000}, vision_config: {hidden_size: 1280, depth: 8, num_heads: 16, intermediate_size: 3420, out_hidden_size: 3584, fullatt_block_indexes: [3, 7]}}", 1_365_308_096},
		{"h100-q2vl-0", "{model_type: qwen2_vl, tie_word_embeddings: false, text_config: {hidden_size: 1536, num_hidden_layers: 6, num_attention_heads: 12, num_key_value_heads: 2, intermediate_size: 8960, vocab_size: 32000}, vision_config: {embed_dim: 1280, depth: 8, num_heads: 16, hidden_size: 1536, mlp_ratio: 4}}", 572_105_216},
		{"h100-llava-1", "{model_type: llava, tie_word_embeddings: false, text_config: {model_type: llama, hidden_size: 5120, num_hidden_layers: 3, num_attention_heads: 40, intermediate_size: 13824, vocab_size: 32064}, vision_config: {model_type: clip_vision_model, hidden_size: 1024, num_hidden_layers: 12, num_attention_heads: 16, intermediate_size: 4096, image_size: 336, patch_size: 14}}", 1_463_774_208},
		{"h100-gemma3-1", "{model_type: gemma3, mm_tokens_per_image: 256, text_config: {hidden_size: 2560, num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256, intermediate_size: 10240, vocab_size: 32128, sliding_window: 1024}, vision_config: {hidden_size: 1152, num_hidden_layers: 9, num_attention_heads: 16, intermediate_size: 4304, image_size: 896, patch_size: 14, vision_use_head: false}}", 794_051_024},
	} {
		require.Equal(t, test.want, decode(t, test.text).Params().Total, test.id)
	}
}

// Specs of published runs, copied from published.yaml, with the size their
// source gives the model.
func TestPublishedRuns(t *testing.T) {
	for _, test := range []struct {
		name, text string
		seq        int64
		billions   string
	}{
		{"GPT-174.6B", "{model_type: decoder, hidden_size: 12288, num_hidden_layers: 96, num_attention_heads: 96, num_key_value_heads: 96, head_dim: 128, intermediate_size: 49152, gated_mlp: false, vocab_size: 51200, tie_word_embeddings: true}", 2048, "174.6"},
		{"GPT-1008.0B", "{model_type: decoder, hidden_size: 25600, num_hidden_layers: 128, num_attention_heads: 160, num_key_value_heads: 160, head_dim: 160, intermediate_size: 102400, gated_mlp: false, vocab_size: 51200, tie_word_embeddings: true}", 2048, "1008.0"},
		{"GPT-3.6B", "{model_type: decoder, hidden_size: 3072, num_hidden_layers: 30, num_attention_heads: 32, num_key_value_heads: 32, head_dim: 96, intermediate_size: 12288, gated_mlp: false, vocab_size: 51200, tie_word_embeddings: true}", 2048, "3.6"},
		{"Llama-3.1 405B", "{model_type: decoder, hidden_size: 16384, num_hidden_layers: 126, num_attention_heads: 128, num_key_value_heads: 8, head_dim: 128, intermediate_size: 53248, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false}", 8192, "405.9"},
		{"DeepSeek-V3", "{model_type: decoder, hidden_size: 7168, num_hidden_layers: 61, num_attention_heads: 128, num_key_value_heads: 128, head_dim: 128, intermediate_size: 18432, gated_mlp: true, vocab_size: 129280, tie_word_embeddings: false, num_experts: 256, num_experts_per_tok: 8, moe_intermediate_size: 2048, n_shared_experts: 1, first_k_dense_replace: 3, q_lora_rank: 1536, kv_lora_rank: 512, qk_rope_head_dim: 64, qk_nope_head_dim: 128, v_head_dim: 128}", 4096, "671.0"},
		{"Qwen3-30B-A3B", "{model_type: decoder, hidden_size: 2048, num_hidden_layers: 48, num_attention_heads: 32, num_key_value_heads: 4, head_dim: 128, intermediate_size: 6144, gated_mlp: true, vocab_size: 151936, tie_word_embeddings: false, num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: 768}", 4096, "30.5"},
	} {
		s := decode(t, test.text).AtSequence(test.seq)
		require.Equal(t, test.billions, fmt.Sprintf("%.1f", float64(s.Params().Total)/1e9), test.name)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := model.Load("llama3.1-405b"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkForwardFLOPs(b *testing.B) {
	s, err := model.Load("deepseek-v3")
	require.NoError(b, err)
	for b.Loop() {
		s.ForwardFLOPs(4096, 4096, true)
	}
}

// FuzzDecode: no input panics, and what loads can be counted.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/configs/*.json", "testdata/bad/*.bad.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Add([]byte("model_type: decoder\nhidden_size: 8\nnum_hidden_layers: 2\nnum_attention_heads: 2\nvocab_size: 9\nintermediate_size: 4\nnum_experts: 4\nnum_experts_per_tok: 2\n"))
	f.Add([]byte("model_type: &a llama\nhidden_act: *a\n"))
	f.Add([]byte("model_type: gemma4\ntext_config: {hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, global_head_dim: 4, num_global_key_value_heads: 1, attention_k_eq_v: true, sliding_window: 3, num_kv_shared_layers: 2, layer_types: [sliding_attention, full_attention, sliding_attention, full_attention], hidden_size_per_layer_input: 4, use_double_wide_mlp: true, enable_moe_block: true, num_experts: 4, top_k_experts: 2, moe_intermediate_size: 4}\n"))
	f.Add([]byte("model_type: qwen2_5_vl\ntext_config: {hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1}\nvision_config: {hidden_size: 4, out_hidden_size: 8, depth: 2, num_heads: 2, patch_size: 7, spatial_merge_size: 2, window_size: 14, fullatt_block_indexes: [1]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := yamlx.Parse("fuzz.yaml", data)
		if err != nil {
			return
		}
		s, errs := model.Decode(doc, doc.Root)
		if len(errs) > 0 {
			require.NotEmpty(t, errs.Error())
			return
		}
		if s.Vision != nil {
			side := 2 * s.Vision.Patch * s.Vision.Merge
			s.Vision = s.Vision.Of(model.Images{Each: 1, Height: side, Width: side})
		}
		c := s.AtSequence(128).Params()
		require.Positive(t, c.Total)
		require.LessOrEqual(t, c.Active, c.Total)
		require.Positive(t, float64(s.ForwardFLOPs(128, 128, true).Total()))
	})
}

// TestDefaulted: sizes that a file leaves to its model_type are known by the file's words,
// those that follow from others are none of them.
func TestDefaulted(t *testing.T) {
	for text, want := range map[string][]model.Size{
		"{model_type: llama}": {{"hidden_size", 4096}, {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"intermediate_size", 11008}, {"vocab_size", 32000}},
		"{model_type: gpt2, n_embd: 1600, n_layer: 48, n_head: 25}":                                                                                                                                {{"vocab_size", 50257}},
		"{model_type: mixtral, hidden_size: 2048, num_hidden_layers: 2, num_attention_heads: 32, vocab_size: 32000}":                                                                               {{"num_key_value_heads", 8}, {"num_experts", 8}, {"num_experts_per_tok", 2}, {"intermediate_size", 14336}},
		"{model_type: lfm2, hidden_size: 2048, num_hidden_layers: 2, num_attention_heads: 32, num_key_value_heads: 8, block_ff_dim: 4352, vocab_size: 320}":                                        nil,
		"{model_type: granitemoehybrid, hidden_size: 2048, num_hidden_layers: 2, num_attention_heads: 32, num_local_experts: 0, vocab_size: 320}":                                                  {{"shared_intermediate_size", 1024}},
		"{model_type: qwen3_moe, hidden_size: 2048, num_hidden_layers: 2, num_attention_heads: 32, num_key_value_heads: 4, head_dim: 128, intermediate_size: 64, vocab_size: 320, num_experts: 0}": {},
	} {
		require.Equal(t, want, decode(t, text).Defaulted, text)
	}
	for _, name := range model.Names() {
		s, err := model.Load(name)
		require.NoError(t, err)
		require.Empty(t, s.Defaulted, name)
	}
}

// TestUnreadable: what may not be read is not said to be missing.
func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := filepath.Join(t.TempDir(), "locked")
	require.NoError(t, os.Mkdir(dir, 0))
	_, err := model.Load(filepath.Join(dir, "config.json"))
	require.ErrorContains(t, err, "config.json: may not be read: permission denied")
}

// TestNamed: ids of the hub and folders that end as one name what the catalog has, also where
// a model was tuned further; another model of a family is none of it.
func TestNamed(t *testing.T) {
	for id, want := range map[string]string{
		"meta-llama/Llama-3.1-8B": "llama3.1-8b", "/data/Llama-3.1-8B-Instruct/": "llama3.1-8b", "NousResearch/Meta-Llama-3-8B": "llama3-8b", "google/gemma-2-9b-it": "gemma2-9b",
		"Qwen/Qwen3-4B-Instruct-2507": "qwen3-4b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "qwen2.5-32b", "Qwen/QwQ-32B": "qwen2.5-32b", "moonshotai/Moonlight-16B-A3B-Instruct": "moonlight-16b-a3b", "Qwen/Qwen2.5-VL-72B-Instruct": "qwen2.5-vl-72b", "/data/Qwen3-VL-30B-A3B-Thinking": "qwen3-vl-30b-a3b", "Qwen/Qwen3-VL-8B": "qwen3-vl-8b",
		"google/gemma-3-27b-it": "gemma3-27b", "llava-hf/llava-1.5-13b-hf": "llava-1.5-13b",
		"meta-llama/Llama-2-7b-chat-hf": "llama2-7b", "gpt2": "gpt2", "Qwen/Qwen2.5-Coder-7B-Instruct": "qwen2.5-7b", "mistralai/Mistral-7B-Instruct-v0.2": "", "": "",
	} {
		require.Equal(t, want, model.Named(id), id)
	}
}
