package model

import (
	"slices"
	"strings"
)

// patched are types whose classes Liger-Kernel patches (ead96b61 of 2026-08, transformers/monkey_patch.py,
// MODEL_TYPE_TO_APPLY_LIGER_FN), and the one that describes a model of no class.
var patched = strings.Fields(`decoder deepseek_v4 exaone4 falcon_h1 gemma gemma2 gemma3 gemma3_text gemma4 gemma4_text glm4 glm4v glm4v_moe
	gpt_oss granite hunyuan_v1_dense hunyuan_v1_moe internvl llama llama4 llama4_text llava ministral mistral mixtral mllama mllama_text_model
	nemotron olmo2 olmo3 paligemma phi3 pixtral qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text qwen3 qwen3_5 qwen3_5_moe
	qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text smollm3 smolvlm`)

// keepsExperts are types of models with experts of which Liger-Kernel replaces norms and rotary
// embedding alone (apply_liger_kernel_to_gpt_oss, there). Of others it runs the experts by grouped
// products of its own in Triton from transformers 5 on (LigerExperts in transformers/swiglu.py,
// ops/fused_moe.py), of which nothing was measured.
var keepsExperts = []string{"gpt_oss"}

// Ligerless is what the model has that none of Liger-Kernel's operators as they were measured
// stands for (model/tape/liger.go), as words that follow its name; "" where there is nothing.
func (s *Spec) Ligerless() string {
	experts := slices.Contains(keepsExperts, s.ModelType)
	switch {
	case s.MoE != nil && !experts:
		return "has experts"
	case s.MLA != nil || s.Mixers != nil:
		return "mixes tokens by other than plain attention"
	case s.Vision != nil:
		return "has an encoder of images"
	case s.Norm == CastRMSNorm:
		return "casts its norms' weights to fp32"
	case !slices.Contains([]Norm{RMSNorm, WideRMSNorm, GemmaRMSNorm}, s.Norm):
		return "does not normalise by RMS"
	case !s.Gated || s.Activation != SiLU && s.Activation != GELUTanh:
		return "has no MLP with a gate of SiLU or GELU (tanh)"
	case s.TurnsPairs():
		return "turns neighbours of a head"
	case s.Position != Rotary || s.RotaryDim != s.HeadDim:
		return "does not turn whole heads"
	case !slices.Contains(patched, s.ModelType):
		return "has a class that Liger-Kernel does not patch"
	}
	return ""
}
