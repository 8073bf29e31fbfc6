package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/recipe"
)

// resolveSource gives an encoder-decoder model the length of the sequences that its encoder reads, and
// holds the job against what is known of such models.
func (j *Job) resolveSource() error {
	t, e := &j.Train, j.Model.Encoder
	if e == nil {
		if t.SourceLength != 0 {
			return diag.Errorf("train.source_length: %d, but %s has no encoder beside its decoder; leave it out, or use a model that has one, such as flan-t5-base", t.SourceLength, j.ModelName)
		}
		return nil
	}
	if t.SourceLength == 0 {
		t.SourceLength = t.SequenceLength
		j.note("train.source_length", t.SourceLength, "as long as the decoder's sequence")
	}
	switch m := e.MaxPositions; {
	case t.SourceLength < 1 || t.SourceLength > 1<<24:
		return diag.Errorf("train.source_length: %d; give 1 to %d tokens", t.SourceLength, 1<<24)
	case e.Position == model.LearnedPosition && m > 0 && t.SourceLength > m:
		return diag.Errorf("train.source_length: %d exceeds the %d learned positions of the encoder; give 1 to %d", t.SourceLength, m, m)
	}
	if err := j.checkEncoding(); err != nil {
		return err
	}
	own := *j.Model
	own.Source = t.SourceLength
	j.Model = &own
	return nil
}

// encoding are the recipes that run encoder-decoder models.
func encoding() []string {
	return recipe.Having(func(r *recipe.Recipe) bool { return encodes(r) })
}

func encodes(r *recipe.Recipe) bool {
	s := &r.Structure
	return s.EncodesText && s.Transformers && !s.Compiled && !s.HandLayers && !s.OwnFile
}

// checkEncoding refuses what is not known of encoder-decoder models.
func (j *Job) checkEncoding() error {
	t, r := &j.Train, &j.Runtime
	const with = "is not known of models with an encoder beside their decoder"
	switch {
	case !encodes(j.Recipe) || j.Layers != nil:
		return diag.Errorf("runtime.recipe: what %s runs of %s, which has an encoder beside its decoder, is not known; use %s", r.Recipe, j.ModelName, diag.Or(encoding()))
	case r.Attention != "sdpa" && r.Attention != "unfused":
		return diag.Errorf("runtime.attention: %s %s; use sdpa or unfused", r.Attention, with)
	case j.Recipe.Precision[t.Precision].Frozen.Set:
		return diag.Errorf("train.precision: %s, but weights in few bits are not known of models with an encoder beside their decoder, of which some stay in fp32; use bf16-frozen", t.Precision)
	case t.DocumentLength > 0:
		return diag.Errorf("train.document_length: %d, but packing %s; leave it out", t.DocumentLength, with)
	case t.Images != nil:
		return diag.Errorf("train.images: %s has no encoder of images; leave it out", j.ModelName)
	case t.Recompute == ops.SelectiveRecompute:
		return diag.Errorf("train.recompute: selective %s; use none or full", with)
	case t.RecomputeNumLayers != nil || t.RecomputeMethod != "":
		return diag.Errorf("train.recompute_num_layers: recomputing some layers alone %s; leave it and train.recompute_method out", with)
	case t.AwayActivations():
		return diag.Errorf("train.offload_activations: activations on the host are not known of models with an encoder beside their decoder; leave out train.offload_activations, train.offload_layers and train.offload_modules")
	case j.Recipe.Optimizer[t.Optimizer].Matrix != "":
		return diag.Errorf("train.optimizer: %s %s; use another one", t.Optimizer, with)
	case r.LossChunks > 1:
		return diag.Errorf("runtime.loss_chunks: %d, but a loss by chunks %s; leave it out", r.LossChunks, with)
	case j.Liger() || isOn(r.FusedLinearCrossEntropy) || isOn(r.FusedCrossEntropy):
		return diag.Errorf("runtime.liger_kernels: kernels of Liger-Kernel and fused losses are not known of models with an encoder beside their decoder; leave out runtime.liger_kernels, runtime.fused_cross_entropy and runtime.fused_linear_cross_entropy")
	case isOn(r.Upcast), r.Upcast != nil:
		return diag.Errorf("runtime.upcast: %s takes the loss of logits as they are; leave it out", j.ModelName)
	}
	return nil
}

// checkEncodes refuses plans that cut an encoder-decoder model.
func (j *Job) checkEncodes(p *Plan) error {
	if j.Model.Encoder == nil {
		return nil
	}
	for _, c := range []struct {
		key string
		n   int64
	}{{"tp", p.TP}, {"pp", p.PP}, {"cp", p.CP}, {"ep", p.EP}} {
		if c.n > 1 {
			return diag.Errorf("plan.%s: %d, but how ranks cut a model with an encoder beside its decoder is not known; set it to 1, and use ddp, ZeRO or FSDP", c.key, c.n)
		}
	}
	if p.UnitPolicy().Nests() {
		return diag.Errorf("plan.units: units other than layers are not known of models with an encoder beside their decoder; leave plan.units and plan.unit_params out")
	}
	return nil
}
