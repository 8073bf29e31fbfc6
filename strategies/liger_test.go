package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/recipe"
)

// TestUnslothIs: what Unsloth's recipe is for, and whose loss it runs.
func TestUnslothIs(t *testing.T) {
	const job = "{model: %s, hardware: h100-sxm, gpus: 1, runtime: {recipe: unsloth%s}, plan: {dp: 1}, train: {micro_batch: 1, grad_accumulation: 1%s}}"
	for _, c := range []struct{ model, runtime, train, want, loss string }{
		{"llama3.2-1b", "", ", lora: {rank: 16}", "", "joined_cross_entropy"},
		{"llama3.2-1b", ", fused_linear_cross_entropy: false", ", lora: {rank: 16}", "", ""},
		{"llama3.2-1b", ", cross_entropy_impl: cut", ", lora: {rank: 16}", "", "cut_cross_entropy"},
		{"qwen3-0.6b", `, release: "25.05"`, ", lora: {rank: 16, targets: [attention]}", "", "cut_cross_entropy"},
		{"mistral-7b", `, release: "24.05"`, ", lora: {rank: 16}", "", ""},
		{"llama3.2-1b", "", "", "runtime.recipe: unsloth is for adapters beside frozen weights, and nothing says what adapters there are; give train.lora, as in {rank: 16}, or use hf-eager", ""},
		{"qwen3-30b-a3b", "", ", lora: {rank: 16}", "runtime.recipe: unsloth is known of layers as Llama has them, and qwen3-30b-a3b has experts; use hf-eager", ""},
		{"gemma2-2b", "", ", lora: {rank: 16}", "gemma2-2b has another activation; use hf-eager", ""},
		{"llama3.2-1b", ", liger_kernels: true", ", lora: {rank: 16}", "runtime.liger_kernels: recipe unsloth is not known to run them", ""},
	} {
		j, err := decode(fmt.Sprintf(job, c.model, c.runtime, c.train))
		if c.want != "" {
			require.ErrorContains(t, err, c.want, c)
			continue
		}
		require.NoError(t, err, c)
		require.Equal(t, c.loss, j.LinearLoss(), c)
	}
}

// TestVariedLayers: CS336's recipe runs models as its assignment has them varied, and no others.
func TestVariedLayers(t *testing.T) {
	const job = "{model: {model_type: decoder, hidden_size: 768, num_hidden_layers: 2, num_attention_heads: 12, intermediate_size: 3072, vocab_size: 10000, max_position_embeddings: 512, bias: false, %s}, hardware: h100-sxm, gpus: 1, runtime: {recipe: cs336}, plan: {dp: 1}, train: {micro_batch: 1, grad_accumulation: 1}}"
	for _, c := range []struct{ layers, want string }{
		{"norm: rmsnorm, position: none, gated_mlp: true, activation: silu", ""},
		{"norm: rmsnorm, position: rope, gated_mlp: false, activation: silu", ""},
		{"norm: layernorm, position: learned, gated_mlp: false, activation: gelu", ""},
		{"norm: rmsnorm, position: alibi, gated_mlp: true, activation: silu", "does not turn whole heads"},
		{"norm: rmsnorm, position: rope, gated_mlp: false, activation: relu", "has another activation"},
	} {
		_, err := decode(fmt.Sprintf(job, c.layers))
		if c.want != "" {
			require.ErrorContains(t, err, c.want, c)
			continue
		}
		require.NoError(t, err, c)
	}
}

// TestLoRAKernels: which recipes have functions of adapters with gradients by hand, and for which.
func TestLoRAKernels(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 1, runtime: {recipe: %s, lora_kernels: %v}, plan: {dp: 1}, train: {micro_batch: 1, grad_accumulation: 1%s}}"
	_, err := decode("{model: llama3.2-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: hf-eager, lora_kernels: true}, plan: {dp: 8, data_parallel: fsdp1}, train: {micro_batch: 1, grad_accumulation: 1, lora: {rank: 8}}}")
	require.ErrorContains(t, err, "runtime.lora_kernels: true, but these functions do not run under FSDP1")
	for _, c := range []struct {
		recipe string
		on     bool
		train  string
		want   string
	}{
		{"hf-eager", true, ", lora: {rank: 8}", ""},
		{"hf-eager", false, ", lora: {rank: 8, dropout: 0.1}", ""},
		{"hf-eager", true, ", lora: {rank: 8, dropout: 0.1}", "runtime.lora_kernels: true, but with dropout (train.lora.dropout: 0.1) what they run is not known; leave it out, or set that to 0"},
		{"hf-eager", true, "", "runtime.lora_kernels: nothing says what adapters there are; give train.lora, or leave it out"},
		{"hf-compile", true, ", lora: {rank: 8}", "runtime.lora_kernels: recipe hf-compile has no such switch; leave it out, or use hf-eager"},
		{"unsloth", false, ", lora: {rank: 8}", "runtime.lora_kernels: recipe unsloth has no such switch"},
	} {
		j, err := decode(fmt.Sprintf(job, c.recipe, c.on, c.train))
		if c.want != "" {
			require.ErrorContains(t, err, c.want, c)
			continue
		}
		require.NoError(t, err, c)
		require.Equal(t, c.on, j.Recipe.Structure.ByHand, c)
	}
}

// TestLiger: where Liger-Kernel's operators take the place of a model's own, asked for or not, and
// what is said where they are not known.
func TestLiger(t *testing.T) {
	const job = "{model: %s, hardware: h100-sxm, gpus: 8, runtime: {recipe: %s%s}, plan: {%s}, train: {micro_batch: 1, grad_accumulation: 1}}"
	for _, c := range []struct {
		model, recipe, runtime, plan string
		on                           bool
		want                         string
	}{
		{"llama3.2-1b", "hf-eager", "", "dp: 8", false, ""},
		{"llama3.2-1b", "hf-eager", ", liger_kernels: true", "dp: 8", true, ""},
		{"llama3.2-1b", "deepspeed-hf", ", liger_kernels: true", "dp: 8", true, ""},
		{"mistral-7b", "automodel", "", "dp: 8", true, ""},
		{"mistral-7b", "automodel", ", liger_kernels: false", "dp: 8", false, ""},
		{"mistral-7b", "automodel", "", "tp: 2, dp: 4", false, ""},
		{"mistral-7b", "automodel", "", "cp: 2, dp: 4", false, ""},
		{"llama3.2-1b", "automodel", "", "dp: 8", false, ""},
		{"llama3.2-1b", "automodel", `, release: "25.10"`, "dp: 8", true, ""},
		{"qwen3-0.6b", "automodel", `, release: "26.05"`, "dp: 8", true, ""},
		{"gpt2", "automodel", "", "dp: 8", false, ""},
		{"gpt2", "hf-eager", ", liger_kernels: true", "dp: 8", false, "runtime.liger_kernels: gpt2 does not normalise by RMS, and what Liger-Kernel replaces of such a one is not known; leave it out"},
		{"gemma4-31b", "hf-eager", ", liger_kernels: true", "dp: 8", false, "runtime.liger_kernels: gemma4-31b casts its norms' weights to fp32"},
		{"{model_type: qwen}", "automodel", "", "dp: 8", false, ""},
		{"{model_type: qwen}", "hf-eager", ", liger_kernels: true", "dp: 8", false, "runtime.liger_kernels: qwen has a class that Liger-Kernel does not patch, and what Liger-Kernel replaces of such a one is not known; leave it out"},
		{"{model_type: cwm, num_hidden_layers: 8}", "hf-eager", ", liger_kernels: true", "dp: 8", false, "runtime.liger_kernels: cwm has a class that Liger-Kernel does not patch"},
		{"{model_type: seed_oss, num_hidden_layers: 8}", "hf-eager", ", liger_kernels: true", "dp: 8", false, "runtime.liger_kernels: seed_oss has a class that Liger-Kernel does not patch"},
		{"{model_type: baichuan, max_position_embeddings: 4096}", "hf-eager", ", liger_kernels: true", "dp: 8", false, "baichuan has a class that Liger-Kernel does not patch"},
		{"qwen3-30b-a3b", "hf-eager", ", liger_kernels: true", "dp: 8", false, "runtime.liger_kernels: qwen3-30b-a3b has experts"},
		{"gpt-oss-20b", "hf-eager", ", liger_kernels: true", "dp: 8", true, ""},
		{"gpt-oss-20b", "automodel-moe", "", "dp: 8", false, ""},
		{"llama3.2-1b", "hf-eager", ", liger_kernels: true, fused_cross_entropy: true", "dp: 8", true, ""},
		{"llama3.2-1b", "hf-eager", ", fused_cross_entropy: true", "dp: 8", false, ""},
		{"llama3.2-1b", "megatron-core", ", liger_kernels: true", "dp: 8", false, "runtime.liger_kernels: recipe megatron-core is not known to run them; leave it out, or use hf-eager, automodel or deepspeed-hf"},
		{"llama3.2-1b", "hf-compile", ", liger_kernels: true", "dp: 8", false, "recipe hf-compile is not known to run them"},
		{"llama3.2-1b", "hf-eager", ", liger_kernels: true", "tp: 2, dp: 4", false, "runtime.liger_kernels: how these run on tensor ranks (tp 2) is not known; leave it out, or set plan.tp to 1"},
		{"llama3.2-1b", "hf-eager", ", triton_adapters: true", "dp: 8", false, "runtime.triton_adapters: nothing says what adapters there are; give train.lora, or leave it out"},
	} {
		j, err := decode(fmt.Sprintf(job, c.model, c.recipe, c.runtime, c.plan))
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.on, j.Liger(), "%+v", c)
		require.Equal(t, c.on, j.Recipe.Programs["rotary_pair"] != nil)
	}
	const adapters = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: %s, triton_adapters: true}, plan: {dp: 8}, train: {micro_batch: 1, lora: {rank: 8}}}"
	_, err := decode(fmt.Sprintf(adapters, "hf-eager"))
	require.ErrorContains(t, err, "runtime.triton_adapters: recipe hf-eager has none; leave it out, or use automodel")
	_, err = decode(fmt.Sprintf(adapters, "automodel"))
	require.NoError(t, err)
}

// TestLigerOperators: those that are chosen take the place of the model's own, and no others (Axolotl's
// liger_rms_norm and its like).
func TestLigerOperators(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: hf-eager%s}, plan: {dp: 8}, train: {micro_batch: 1}}"
	for runtime, want := range map[string][3]bool{
		"":                      {},
		", liger_kernels: true": {true, true, true},
		", liger_kernels: true, liger_operators: [norm, rotary]":       {true, false, true},
		", liger_kernels: true, liger_operators: gate":                 {false, true, false},
		", liger_kernels: true, liger_operators: [norm, gate, rotary]": {true, true, true},
	} {
		j, err := decode(fmt.Sprintf(job, runtime))
		require.NoError(t, err, runtime)
		plain, err := recipe.Load("hf-eager")
		require.NoError(t, err)
		own := func(name string) bool { return j.Recipe.Programs[name] != plain.Programs[name] }
		require.Equal(t, want, [3]bool{own("rms_norm"), own("glu2"), own("rotary_pair")}, runtime)
	}
	_, err := decode(fmt.Sprintf(job, ", liger_operators: [norm]"))
	require.ErrorContains(t, err, "runtime.liger_operators: norm, but liger_kernels is not on; set it, or leave them out")
	_, err = decode(fmt.Sprintf(job, ", liger_kernels: true, liger_operators: [loss]"))
	require.ErrorContains(t, err, `"loss" is not a part of a layer that can be run by Liger-Kernel; use norm, gate or rotary`)
}
