package strategies

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// TestBeyond: sequences beyond a model's positions are remarked on where these are rotary
// and known; learned ones are an error.
func TestBeyond(t *testing.T) {
	for model, want := range map[string]string{
		"{model: llama2-7b, gpus: 8, train: {sequence_length: 4096}}":   "",
		"{model: llama2-7b, gpus: 8, train: {sequence_length: 32768}}":  "train.sequence_length: 32768 exceeds the 4096 positions (max_position_embeddings) that llama2-7b was made for",
		"{model: bloom-176b, gpus: 8, train: {sequence_length: 32768}}": "",
		"{model: {model_type: decoder, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, vocab_size: 64}, train: {sequence_length: 32768}}": "",
	} {
		text := ""
		for _, n := range mustDecode(t, model).Remarks() {
			require.Contains(t, n.Remedy, "set model.max_position_embeddings, or take a model of longer context")
			text += n.Text
		}
		require.Equal(t, want, text, model)
	}
}

// TestFused: what Megatron-Bridge runs without fused kernels before Blackwell is said to take longer
// there: sums of tokens and residual streams, either alone, too.
func TestFused(t *testing.T) {
	const small = "model_type: decoder, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, vocab_size: 64"
	const sums = ", head_dim: 32, q_lora_rank: 16, qk_rope_head_dim: 8, o_groups: 2, o_lora_rank: 16, sliding_window: 8, compress_ratios: [0, 128]"
	for _, c := range []struct {
		model, hardware string
		said            bool
	}{
		{"{" + small + ", hc_mult: 4}", "h100-sxm", true}, {"{" + small + sums + "}", "h100-sxm", true}, {"{" + small + "}", "h100-sxm", false},
		{"{" + small + ", hc_mult: 4}", "gb200-nvl72", false}, {"deepseek-v4-flash", "h100-sxm", true}, {"deepseek-v4-flash", "b200-sxm", false},
	} {
		j := mustDecode(t, "{model: "+c.model+", hardware: "+c.hardware+", gpus: 8, runtime: {recipe: megatron-core}}")
		said := slices.ContainsFunc(j.Remarks(), func(n diag.Note) bool { return n.Code == "model.fused" })
		require.Equal(t, c.said, said, "%s on %s", c.model, c.hardware)
	}
}

// TestTowers: a multimodal file is predicted as its language model, and that is said.
func TestTowers(t *testing.T) {
	const text = "model_type: qwen3, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2, intermediate_size: 64, vocab_size: 64"
	require.Empty(t, mustDecode(t, "{model: {"+text+"}, gpus: 8}").Remarks())
	notes := mustDecode(t, "{model: {model_type: qwen3_vl, text_config: {"+text+"}, vision_config: {depth: 27}}, gpus: 8}").Remarks()
	require.Len(t, notes, 1)
	require.Equal(t, "model.towers", notes[0].Code)
	require.Contains(t, notes[0].Text, "steps on images take longer")
	require.Contains(t, notes[0].Remedy, "give train.images")
	notes = mustDecode(t, "{model: {model_type: mistral3, text_config: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2, intermediate_size: 64}, vision_config: {model_type: pixtral}}, gpus: 8}").Remarks()
	require.Len(t, notes, 1)
	require.Contains(t, notes[0].Remedy, "add its time and memory", "of an encoder that is not modelled")
}

// TestHeadAndPacked: what a file's class and packing would change is said.
func TestHeadAndPacked(t *testing.T) {
	const text = "{model: {model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, vocab_size: 96, architectures: [%s], quantization_config: {quant_method: %s}}, gpus: 1, runtime: {recipe: hf-eager}, train: {%s}}"
	notes := mustDecode(t, fmt.Sprintf(text, "LlamaForSequenceClassification", "gptq", "precision: bf16-mixed")).Remarks()
	require.Len(t, notes, 2)
	require.Equal(t, "model.head", notes[0].Code)
	require.Contains(t, notes[0].Text, "is a LlamaForSequenceClassification (architectures), and is predicted as a language model: with an output layer of 96 and its loss")
	require.Equal(t, "model.packed", notes[1].Code)
	require.Contains(t, notes[1].Text, "are packed, gptq (quantization_config), and are predicted in fp32, as train.precision bf16-mixed has them")
	require.Empty(t, notes[1].Remedy)
	notes = mustDecode(t, fmt.Sprintf(text, "LlamaForCausalLM", "bitsandbytes", "precision: bf16-mixed")).Remarks()
	require.Len(t, notes, 1)
	require.Contains(t, notes[0].Remedy, "nf4-frozen")
	require.Empty(t, mustDecode(t, fmt.Sprintf(text, "LlamaForCausalLM", "bitsandbytes", "precision: nf4-frozen, lora: {rank: 8}")).Remarks(), "frozen in 4 bits")
}

// TestSchedule: every recipe says which schedules there are, and others are remarked on.
func TestSchedule(t *testing.T) {
	for recipe, own := range map[string]string{
		"megatron-core":      "1f1b or interleaved-1f1b",
		"megatron-pretrain":  "1f1b or interleaved-1f1b",
		"megatron-lm":        "1f1b, interleaved-1f1b, zb-h1, zb-h2 or zb-v",
		"megatron-deepspeed": "1f1b",
		"nanotron":           "1f1b or gpipe",
		"torchtitan":         "1f1b, gpipe, interleaved-1f1b, interleaved-zero-bubble, looped-bfs, zb-v or dualpipe-v",
	} {
		j := mustDecode(t, fmt.Sprintf("{model: llama2-7b, gpus: 8, runtime: {recipe: %s}, plan: {pp: 4, virtual_stages: 2, schedule: dualpipe}, train: {grad_accumulation: 16}}", recipe))
		require.Equal(t, []diag.Note{{Code: "schedule.foreign", Text: "plan.schedule: dualpipe is no schedule of recipe " + recipe + ", and is predicted as if it were", Remedy: "for what the framework runs use " + own}}, j.Remarks())
		for _, s := range j.Recipe.Schedules {
			_, err := pipeline.Lookup(s)
			require.NoError(t, err)
			j.Plan.Schedule = s
			require.Empty(t, j.Remarks(), s)
		}
		j.Plan.Schedule = torchInterleaved
		require.Equal(t, j.Recipe.Structure.TorchPipeline, len(j.Remarks()) == 0)
	}
	require.Empty(t, mustDecode(t, "{model: llama2-7b, gpus: 8, plan: {pp: 1, schedule: dualpipe}}").Remarks(), "which has no effect")
}

// TestSharing: kinds of data parallelism that a recipe does not have are remarked on, where
// there are replicas, and not offered beside a pipeline.
func TestSharing(t *testing.T) {
	for name, own := range map[string]string{
		"megatron-core": "zero1, ddp or fsdp1",
		"hf-compile":    "ddp, fsdp2 or fsdp1",
		"deepspeed-hf":  "zero1, zero2, zero3 or ddp",
		"torchtitan":    "fsdp2 or ddp",
		"automodel":     "fsdp2 or ddp",
		"llm-foundry":   "fsdp1",
	} {
		text := fmt.Sprintf("{model: llama2-7b, gpus: 8, runtime: {recipe: %s}, plan: {data_parallel: %%s}}", name)
		for _, kind := range dataParallels {
			j := mustDecode(t, fmt.Sprintf(text, kind))
			if slices.Contains(j.Recipe.Sharing(), kind) {
				require.Empty(t, j.Remarks(), kind)
				continue
			}
			require.Equal(t, []diag.Note{{Code: "data_parallel.foreign", Text: "plan.data_parallel: " + kind + " is not known of recipe " + name + ", and is predicted as if it were", Remedy: "for what the framework runs use " + own}}, j.Remarks())
		}
	}
	require.Empty(t, mustDecode(t, "{model: llama2-7b, gpus: 8, plan: {tp: 8, data_parallel: zero3}}").Remarks(), "which has no effect")
	for name, own := range map[string]string{"megatron-core": "zero1, ddp or pp 1", "torchtitan": "fsdp2, ddp or pp 1", "automodel-moe": "fsdp2 or pp 1"} {
		r, err := recipe.Load(name)
		require.NoError(t, err)
		require.Equal(t, own, piped(r))
	}
}

// TestRacks: GPUs that leave a rack in part are remarked on, with the part of each rack
// that they would fill.
func TestRacks(t *testing.T) {
	for _, c := range []struct {
		hardware string
		gpus     int64
		remedy   string
	}{
		{"gb200-nvl72", 4, ""},
		{"gb200-nvl72", 64, ""},
		{"gb200-nvl72", 72, ""},
		{"gb200-nvl72", 144, ""},
		{"gb200-nvl72", 1024, "if your job gets 64 GPUs of each, set hardware.node.nvlink_domain=64"},
		{"gb200-nvl72", 136, "if your job gets 68 GPUs of each, set hardware.node.nvlink_domain=68"},
		{"gb200-nvl72", 76, "use a multiple of 72 GPUs"},
		{"h100-sxm", 12, ""},
		{"h100-pcie", 12, ""},
	} {
		remedy := ""
		for _, n := range mustDecode(t, fmt.Sprintf("{model: llama3-8b, hardware: %s, gpus: %d}", c.hardware, c.gpus)).Remarks() {
			require.Equal(t, "hardware.domains", n.Code)
			require.Contains(t, n.Text, fmt.Sprintf("gpus: %d is no multiple of the NVLink domain of 72", c.gpus))
			remedy += n.Remedy
		}
		require.Equal(t, c.remedy, remedy, c)
	}
}
