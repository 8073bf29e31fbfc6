package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMaskedDocuments: transformers finds packed documents by positions since 4.53 of 2025-06 and has PyTorch's attention
// mask pairs of two (masking_utils.py, find_packed_sequence_indices); compiled layers and others with a mask were not measured.
func TestMaskedDocuments(t *testing.T) {
	for runtime, masked := range map[string]bool{
		"recipe: hf-eager": true, "recipe: hf-compile": true, "recipe: deepspeed-hf": true,
		`recipe: hf-eager, release: "25.06"`: false, "recipe: hf-compile-layer": false, "recipe: litgpt": false,
	} {
		_, err := decode("{model: llama3-8b, runtime: {attention: sdpa, " + runtime + "}, train: {document_length: 500}}")
		if masked {
			require.NoError(t, err, runtime)
		} else {
			require.ErrorContains(t, err, "sdpa attention computes whole sequences", runtime)
		}
	}
}

// TestPadding: who is told of padded tokens, and what is said where nobody is.
func TestPadding(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: %s%s}, plan: {%s}, train: {micro_batch: 1, grad_accumulation: 1, sequence_length: 4096, %s}}"
	for _, c := range []struct{ recipe, runtime, plan, train, want string }{
		{"hf-eager", "", "dp: 8", "padding: 0", ""},
		{"hf-eager", "", "dp: 8", "padding: 0.4", ""},
		{"hf-compile", "", "dp: 8", "padding: 0.4", ""},
		{"deepspeed-hf", ", attention: flash-attn", "dp: 8", "padding: 0.4", ""},
		{"hf-eager", "", "dp: 8", "padding: 1", "train.padding: 1; give the share of a batch's tokens that are padding, below 1, as in 0.3, or leave it out"},
		{"hf-eager", "", "dp: 8", "padding: -0.1", "train.padding: -0.1; give the share"},
		{"megatron-core", "", "dp: 8", "padding: 0.4", "train.padding: 0.4, but attention of recipe megatron-core is not told of padded tokens and computes them as any others; leave it out, or use recipe hf-eager"},
		{"torchtitan", "", "dp: 8", "padding: 0.4", "recipe torchtitan is not told"},
		{"nanogpt", "", "dp: 8", "padding: 0.4", "recipe nanogpt is not told"},
		{"automodel", "", "dp: 8", "padding: 0.4", "recipe automodel is not told"},
		{"hf-eager", ", attention: flash-attn", "dp: 8", "padding: 0.4, document_length: 500", "train.padding: 0.4, but sequences that are packed of documents (train.document_length: 500) have none; leave one out"},
		{"hf-eager", "", "cp: 2, dp: 4", "padding: 0.4", "train.padding: 0.4, but attention over context ranks (cp 2) takes no mask of padded tokens; leave it out, or set plan.cp to 1"},
	} {
		j, err := decode(fmt.Sprintf(job, c.recipe, c.runtime, c.plan, c.train))
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, j.Train.Padding > 0, len(j.padded()) == 1, "%+v: estimates say that it is computed", c)
	}
}

// TestLengthSpread: what it may be, and when lengths have attention planned anew: 118 and 165 ms the first time that a batch of four
// has a length on an H200 by cuDNN's kernels, 4 by FlashAttention's, 1 by PyTorch's memory-efficient ones (2026-11-30, eight layers of 2,048).
func TestLengthSpread(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: %s, gpus: 8, runtime: {recipe: hf-eager, attention: sdpa%s}, train: {sequence_length: 1024, micro_batch: 4, %s}}"
	for _, c := range []struct {
		gpu, runtime, train string
		planned             bool
	}{
		{"h200-sxm", "", "length_spread: 0.5", true}, {"h200-sxm", "", "padding: 0.3", true}, {"h200-sxm", "", "length_spread: 0", false},
		{"h200-sxm", ", sdpa_kernel: flash", "length_spread: 0.5", false}, {"a100-80g-sxm", "", "length_spread: 0.5", false},
	} {
		j, err := decode(fmt.Sprintf(job, c.gpu, c.runtime, c.train))
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.planned, len(j.planned()) == 1, "%+v", c)
	}
	alone, err := decode("{model: llama3.2-1b, hardware: h200-sxm, gpus: 1, plan: {dp: 1}, train: {length_spread: 0.5}}")
	require.NoError(t, err)
	require.Contains(t, alone.Idle()[0].Text, "train.length_spread: 0.5 has no effect without data ranks (dp 1)")
	for _, bad := range []string{"-0.1", "6"} {
		_, err := decode(fmt.Sprintf(job, "h200-sxm", "", "length_spread: "+bad))
		require.ErrorContains(t, err, "is outside 0 to 5; give the standard deviation of the tokens of your sequences over their mean")
	}
}
