package model

import "slices"

// withWeights are types whose classes are in no release of transformers, and not among those that
// Liger-Kernel patches (transformers/monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN).
var withWeights = []string{"baichuan", "exaone", "internlm", "internlm2", "internlm3", "mimo", "orion", "qwen"}

// unpatched are types of transformers' own classes that it does not patch either, though each of its
// operators would fit them.
var unpatched = []string{"cwm", "eurobert", "hyperclovax", "vaultgemma"}

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
	case slices.Contains(withWeights, s.ModelType):
		return "has a class that comes with its weights"
	case slices.Contains(unpatched, s.ModelType):
		return "has a class that Liger-Kernel does not patch"
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
	}
	return ""
}
