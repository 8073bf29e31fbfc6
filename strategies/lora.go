package strategies

import (
	"cmp"
	"strings"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/recipe"
)

// Attended is how many tokens attention sees at once.
func (t *Train) Attended() int64 { return cmp.Or(t.DocumentLength, t.SequenceLength) }

// PerSequence are the tokens of a sequence, with those that an encoder of text reads beside it.
func (t *Train) PerSequence() int64 { return t.SequenceLength + t.SourceLength }

// checkDocuments holds train.document_length against what keeps documents apart.
func (j *Job) checkDocuments() error {
	n, t := j.Train.DocumentLength, &j.Train
	switch a := j.Runtime.Attention; {
	case n == 0:
		return nil
	case n < 1 || n > t.SequenceLength:
		return diag.Errorf("train.document_length: %d; give the mean tokens of the documents that a sequence of %d is packed of, or leave it out", n, t.SequenceLength)
	case a == "sdpa" && j.masksDocuments():
		return nil
	case !flash(a) && a != "flex":
		return diag.Errorf("train.document_length: %d, but %s attention computes whole sequences; leave it out, or use --attention flash or flex", n, a)
	}
	return nil
}

// masksDocuments reports whether PyTorch's attention is told of documents, which transformers finds by the positions of
// tokens since 4.53 (masking_utils.py, find_packed_sequence_indices).
func (j *Job) masksDocuments() bool {
	s := &j.Recipe.Structure
	return s.PaddingMask && !s.AdditiveMask && j.Layers == nil
}

// LoRA are the adapters of a fine-tuning (arXiv 2106.09685).
type LoRA struct {
	Rank    int64    `yaml:"rank" json:"rank"`
	Alpha   float64  `yaml:"alpha" json:"alpha,omitempty"` // scales what adapters add, over the rank; changes no time
	Targets []string `yaml:"targets" json:"targets"`       // projections by name, or attention and mlp; left out: all of both
	Dropout float64  `yaml:"dropout" json:"dropout,omitempty"`
}

// mostRank bounds the rank of adapters: that of a matrix that is trained whole.
const mostRank = 1 << 14

// resolveLoRA puts a job's adapters into its model.
func (j *Job) resolveLoRA() error {
	l, s := j.Train.LoRA, &j.Recipe.Structure
	triton := j.Runtime.TritonAdapters
	if err := j.checkHandLayers(); err != nil {
		return err
	}
	if l == nil {
		if triton != nil {
			return diag.Errorf("runtime.triton_adapters: nothing says what adapters there are; give train.lora, or leave it out")
		}
		if j.Runtime.LoRAKernels != nil {
			return diag.Errorf("runtime.lora_kernels: nothing says what adapters there are; give train.lora, or leave it out")
		}
		if a := j.Train.DTypes.Adapters; a.Set {
			return diag.Errorf("train.dtypes.adapters: %s, but nothing says what adapters there are; give train.lora, or leave it out", a)
		}
		return nil
	}
	switch {
	case l.Rank == 0:
		return diag.Errorf("train.lora.rank: is missing; give 1 to %d, as in 16", mostRank)
	case l.Rank < 1 || l.Rank > mostRank:
		return diag.Errorf("train.lora.rank: %d; give 1 to %d, as in 16", l.Rank, mostRank)
	case !(l.Dropout >= 0 && l.Dropout < 1):
		return diag.Errorf("train.lora.dropout: %g; give a probability from 0 to below 1, as in 0.05", l.Dropout)
	case triton != nil && !s.InnerScale:
		return diag.Errorf("runtime.triton_adapters: recipe %s has none; leave it out, or use automodel", j.Recipe.Name)
	case j.Runtime.LoRAKernels != nil && !s.HandKernels:
		return diag.Errorf("runtime.lora_kernels: recipe %s has no such switch; leave it out, or use hf-eager", j.Recipe.Name)
	case isOn(j.Runtime.LoRAKernels) && l.Dropout > 0:
		return diag.Errorf("runtime.lora_kernels: true, but with dropout (train.lora.dropout: %g) what they run is not known; leave it out, or set that to 0", l.Dropout)
	case !s.Adapters:
		return diag.Errorf("train.lora: what recipe %s does with adapters is not known; leave it out, or use %s", j.Recipe.Name, diag.Or(j.adapting()))
	}
	adapted, err := j.Model.Adapted(l.Rank, l.Targets, l.Dropout)
	if err != nil {
		return diag.Errorf("train.lora.%v", err)
	}
	for _, x := range []struct {
		whole model.Role
		fused bool
	}{{model.RoleQKV, s.FusedQKV}, {model.RoleGateUp, s.FusedGateUp}} {
		if x.fused && adapted.LoRA.Splits(x.whole) {
			return diag.Errorf("train.lora.targets: recipe %s stores the parts of %s as one projection, which has one adapter; name %s", j.Recipe.Name, x.whole, x.whole)
		}
	}
	if triton != nil && *triton {
		r := *j.Recipe
		r.Structure.TritonAdapters = true
		j.Recipe = &r
	}
	if isOn(j.Runtime.LoRAKernels) {
		r := *j.Recipe
		r.Structure.ByHand, r.Structure.KeptAdapters = true, true
		j.Recipe = &r
	}
	own := *l
	own.Targets = nil
	for _, r := range adapted.LoRA.Targets {
		own.Targets = append(own.Targets, string(r))
	}
	if len(l.Targets) == 0 {
		j.note("train.lora.targets", strings.Join(own.Targets, ", "), "all projections of attention and MLP")
	}
	j.Model, j.Train.LoRA = adapted, &own
	return nil
}

// checkHandLayers refuses what is not trained by layers that a framework writes out.
func (j *Job) checkHandLayers() error {
	switch why := j.unwritten(j.Recipe); {
	case !j.Recipe.Structure.HandLayers:
		return nil
	case j.Train.LoRA == nil && j.Recipe.Structure.AdaptersOnly:
		return diag.Errorf("runtime.recipe: %s is for adapters beside frozen weights, and nothing says what adapters there are; give train.lora, as in {rank: 16}, or use hf-eager", j.Recipe.Name)
	case why != "":
		return diag.Errorf("runtime.recipe: %s is known of layers as Llama has them, and %s %s; use hf-eager", j.Recipe.Name, j.ModelName, why)
	}
	return nil
}

// unwritten is what the model has that such layers of a recipe do not, as words that follow its name; "" where there is nothing.
func (j *Job) unwritten(r *recipe.Recipe) string {
	s := *j.Model
	if r.Structure.VariedLayers {
		if s.Norm.Layer() {
			s.Norm = model.RMSNorm
		}
		if s.Gated = true; s.Activation == model.GELU {
			s.Activation = model.SiLU
		}
		if s.Position == model.NoPosition || s.Position == model.LearnedPosition {
			s.Position, s.RotaryDim = model.Rotary, s.HeadDim
		}
	}
	if s.Gated && s.Activation != model.SiLU {
		return "has another activation"
	}
	return s.Ligerless()
}

// adapting are the recipes that know adapters of such a model.
func (j *Job) adapting() []string {
	return recipe.Having(func(r *recipe.Recipe) bool {
		return r.Structure.Adapters && r.Structure.Takes(j.Model.MoE != nil) && (!r.Structure.HandLayers || j.unwritten(r) == "")
	})
}

// checkAdapters checks that a plan splits adapters in a way that is known.
func (j *Job) checkAdapters(p *Plan) error {
	if j.Model.LoRA == nil {
		return nil
	}
	given, weights := j.Train.DTypes.Adapters, j.Precision.Weights
	sharded := p.DataParallel.ShardsParameters()
	switch {
	case p.TP > 1 && !j.Recipe.Structure.SharedTPInput:
		return diag.Errorf("plan.tp: %d, but how recipe %s cuts adapters over tensor ranks is not known; set it to 1, or use megatron-core", p.TP, j.Recipe.Name)
	case isOn(j.Runtime.LoRAKernels) && p.DataParallel == FSDP1:
		return diag.Errorf("runtime.lora_kernels: true, but these functions do not run under FSDP1 (Axolotl, check_multigpu_lora_kernels); leave it out, or set plan.data_parallel to fsdp2 or ddp")
	case j.Precision.Frozen.Set && j.Recipe.Structure.Partitions:
		return diag.Errorf("train.precision: %s, but how recipe %s holds weights of %s is not known; take recipe hf-eager with plan.data_parallel ddp, or precision bf16", j.Train.Precision, j.Recipe.Name, j.Precision.Frozen)
	case p.DataParallel == FSDP1 && j.Precision.Frozen.Set && j.Precision.Weights.DType != j.Precision.Gather.DType: // whose packed weights have the dtype that all are gathered in (bnb_4bit_quant_storage)
		return diag.Errorf("train.precision: %s, but %s shards parameters of one dtype, and these are of %s and %s; take nf4-frozen, or plan.data_parallel ddp", j.Train.Precision, p.DataParallel, j.Precision.Weights, j.Precision.Gather)
	case sharded && p.DataParallel != FSDP2 && given.Set && given.DType != weights.DType: // FSDP2 asks for one dtype of what is trained (PyTorch 2.8, _fsdp_param_group.py, _init_mp_dtypes)
		return diag.Errorf("train.dtypes.adapters: %s, but %s shards parameters of one dtype, here %s; leave it out, or use ddp", given, p.DataParallel, weights)
	}
	return nil
}

// adapted is the dtype of adapters under a plan: the recipe's, or that of the weights where
// these are sharded.
func (j *Job) adapted(p *Plan) recipe.DType {
	own := j.Recipe.Precision[j.Train.Precision].Adapters
	switch given := j.Train.DTypes.Adapters; {
	case given.Set:
		return given
	case own.Set && p.DataParallel.ShardsParameters():
		return j.Precision.Weights
	}
	return own
}
