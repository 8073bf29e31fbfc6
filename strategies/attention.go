package strategies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// resolveAttention takes the recipe's attention where none is given, and holds it against
// the GPU.
func (j *Job) resolveAttention() error {
	if j.Runtime.Attention == "" {
		j.Runtime.Attention = j.Recipe.Attention
		why := ""
		switch {
		case !j.Runs(j.Runtime.Attention):
			why = fmt.Sprintf("%s does not run the %s attention of recipe %s", gpuName(j.Hardware), j.Runtime.Attention, j.Recipe.Name)
		case !j.fits():
			why = fmt.Sprintf("heads of %d are wider than the %s attention of recipe %s takes", j.Model.WidestHead(), j.Runtime.Attention, j.Recipe.Name)
		}
		if why != "" {
			j.note("runtime.attention", "unfused", why)
			j.Runtime.Attention = "unfused"
		}
	}
	if err := oneOf("runtime.attention", j.Runtime.Attention, Attentions); err != nil {
		return err
	}
	if j.Runtime.Attention == "math" && (j.Recipe.Structure.Compiled || j.Recipe.Attention != "sdpa") { // others call no attention of PyTorch's
		return diag.Errorf("runtime.attention: math is not known in recipe %s; use unfused, or recipe hf-eager", j.Recipe.Name)
	}
	if j.Runtime.Attention == "flex" && j.Recipe.Attention != "sdpa" {
		return diag.Errorf("runtime.attention: flex is not known in recipe %s; use %s, or recipe torchtitan or hf-eager", j.Recipe.Name, j.Recipe.Attention)
	}
	if j.Model.Bidirectional && j.Recipe.Structure.ExplicitMask && j.Runtime.Attention == "sdpa" {
		return diag.Errorf("runtime.attention: sdpa, of which recipe %s makes plain products of fp32 where attention goes both ways (1.7 to 3 times the step, measured), which is not modelled; use flash-attn, or recipe hf-eager", j.Recipe.Name)
	}
	if !j.Runs(j.Runtime.Attention) {
		others := []string{"unfused", flashNeeds[j.Runtime.Attention]}
		if j.Recipe.Attention == "sdpa" { // whose memory-efficient kernel runs on all of them
			others = slices.Insert(others, 0, "sdpa")
		}
		if j.Runs("flash-attn") {
			others = slices.Insert(others, 0, "flash-attn")
		}
		return diag.Errorf("runtime.attention: %s, whose kernels %s does not run; use %s", j.Runtime.Attention, gpuName(j.Hardware), diag.Or(others))
	}
	if !j.fits() {
		key := "head_dim"
		if j.Model.Global != nil {
			key = "global_head_dim"
		}
		return diag.Errorf("runtime.attention: %s, whose heads have at most %d elements, but %s is %d; use sdpa or unfused", j.Runtime.Attention, ops.FlashHead, key, j.Model.WidestHead())
	}
	return nil
}

// checkFlexContexts holds FlexAttention against context ranks.
func (j *Job) checkFlexContexts(p *Plan) error {
	if j.Runtime.Attention == "flex" && p.CP > 1 {
		return diag.Errorf("runtime.attention: flex, whose exchanges among context ranks (plan.cp %d) are not modelled; use sdpa", p.CP)
	}
	return nil
}

// checkHeads refuses plans that cut heads, or their sequences, where each head is a module of its own.
func (j *Job) checkHeads(p *Plan) error {
	if !j.Model.SeparateHeads {
		return nil
	}
	for _, c := range []struct {
		key string
		n   int64
	}{{"tp", p.TP}, {"cp", p.CP}} {
		if c.n > 1 {
			return diag.Errorf("plan.%s: %d, but how such ranks cut heads that are modules of their own (separate_heads) is not known; set it to 1", c.key, c.n)
		}
	}
	return nil
}

// fits reports whether the job's attention takes heads as wide as the model's.
func (j *Job) fits() bool {
	return !flash(j.Runtime.Attention) || j.Model.Compress != nil || j.Model.WidestHead() <= ops.FlashHead
}

// flash reports whether the attention is FlashAttention of any version, or what stands for it.
func flash(attention string) bool { return strings.HasPrefix(attention, "flash") }

// flashNeeds is what GPUs run such attention, in words.
var flashNeeds = map[string]string{
	"flash": "a GPU of the Ampere generation or later", "flash-attn": "a GPU of the Ampere generation or later",
	"flash-attn-3": "a Hopper GPU", "flash-attn-4": "a Hopper GPU or later", "flex": "a GPU of the Ampere to Blackwell generations",
}

// Runs reports whether the GPU runs such attention. FlashAttention 2
// (csrc/flash_attn/flash_api.cpp) and Transformer Engine's fused attention
// (pytorch/attention/dot_product_attention/utils.py, get_attention_backend) need compute
// capability 8.0, FlashAttention 1 runs on Turing too (its README), 3 on Hopper and 4 on
// Hopper and Blackwell of data centers (hopper and flash_attn/cute there).
func (j *Job) Runs(attention string) bool {
	gpu := j.Hardware.GPU.Architecture.Value
	switch attention {
	case "flash", "flash-attn":
		return gpu != "volta" && (gpu != "turing" || j.Recipe.Flavour(attention) == "flash1")
	case "flash-attn-3":
		return gpu == "hopper"
	case "flex": // whose kernels in Triton need it, too
		_, known := j.Hardware.Laws.Attention.Flavour[attention]
		return known && gpu != "volta" && gpu != "turing"
	case "flash-attn-4":
		return gpu == "hopper" || strings.HasPrefix(gpu, "blackwell") || gpu == "rubin"
	}
	return true
}

// checkAttention holds train.dtypes.attention against what can multiply it.
func (j *Job) checkAttention() error {
	a, layers := j.Precision.Attention, j.Precision.Operands()
	if j.Precision.AttentionCopies() == 0 {
		return nil
	}
	where := "train.dtypes.attention: " + a.String()
	switch {
	case (a.DType != layers.DType || a.Size() != tape.FP8.Size()) && (a.DType != tape.FP8 || layers.DType != tape.FP4):
		return diag.Errorf("%s, but layers multiply in %s; attention multiplies in 8 bits as they do, in fp8 beside fp4, or in %s where it is left out", where, layers, j.Precision.Compute)
	case !j.Recipe.Structure.NarrowAttn || j.Runtime.Attention != "flash":
		return diag.Errorf("%s, which %s attention of recipe %s does not read; leave it out, or use megatron-core with flash", where, j.Runtime.Attention, j.Recipe.Name)
	}
	if _, ok := j.Hardware.Laws.Attention.Flavour[a.String()]; !ok {
		return diag.Errorf("%s, whose kernels have no law on %s; leave it out", where, gpuName(j.Hardware))
	}
	return nil
}
