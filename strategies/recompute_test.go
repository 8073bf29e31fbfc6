package strategies

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a job can choose from: parts that its framework names and its model has, and the attention
// core alone only where that keeps scores.
func TestRecomputations(t *testing.T) {
	for text, want := range map[string]string{
		"{model: llama3-8b, hardware: h100-sxm, gpus: 8}":                                                         "none, selective mlp, full",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {attention: unfused}}":                          "none, selective, selective mlp, full",
		"{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 8}":                                                     "none, selective moe_act+layernorm, selective moe+layernorm, full",
		"{model: deepseek-v3, hardware: h100-sxm, gpus: 8}":                                                       "none, selective moe_act+layernorm+mla_up_proj, selective mlp+moe+layernorm+mla_up_proj, full",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: torchtitan}}":                          "none, selective, full",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-lm, attention: unfused}}":     "none, selective, full",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 8, runtime: {recipe: hf-eager}}":                            "none, full",
		"{model: llama3.2-1b, hardware: h100-sxm, gpus: 1, runtime: {recipe: unsloth}, train: {lora: {rank: 8}}}": "none, full",
	} {
		var got []string
		for _, r := range mustDecode(t, text).Recomputations() {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s", r.Kind, strings.Join(r.Modules.names(), "+"))))
		}
		require.Equal(t, want, strings.Join(got, ", "), text)
	}
}
