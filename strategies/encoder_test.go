package strategies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const encoderJob = "{model: %s, gpus: %d, runtime: {recipe: %s}, plan: {%s}, train: {sequence_length: 128, micro_batch: 1, grad_accumulation: 1%s}}"

// TestEncoderRules: each rule that a model with an encoder beside its decoder can break, with the complaint's place,
// value, rule and way out.
func TestEncoderRules(t *testing.T) {
	const with = "is not known of models with an encoder beside their decoder"
	for _, c := range []struct {
		model, recipe string
		gpus          int
		plan, train   string
		want          string
	}{
		{"llama2-7b", "hf-eager", 1, "", ", source_length: 512", "train.source_length: 512, but llama2-7b has no encoder beside its decoder; leave it out, or use a model that has one, such as flan-t5-base"},
		{"flan-t5-base", "hf-eager", 1, "", ", source_length: -1", "train.source_length: -1; give 1 to 16777216 tokens"},
		{"bart-base", "hf-eager", 1, "", ", source_length: 2048", "train.source_length: 2048 exceeds the 1024 learned positions of the encoder; give 1 to 1024"},
		{"flan-t5-base", "megatron-core", 1, "", "", "runtime.recipe: what megatron-core runs of flan-t5-base, which has an encoder beside its decoder, is not known; use deepspeed-hf or hf-eager"},
		{"bart-base", "hf-compile", 1, "", "", "runtime.recipe: what hf-compile runs of bart-base, which has an encoder beside its decoder, is not known; use deepspeed-hf or hf-eager"},
		{"bart-base", "automodel", 1, "", "", "use deepspeed-hf or hf-eager"},
		{"flan-t5-base", "hf-eager, attention: flash", 1, "", "", "runtime.attention: flash " + with + "; use sdpa or unfused"},
		{"flan-t5-base", "hf-eager", 1, "", ", lora: {rank: 8}, precision: nf4-frozen", "train.precision: nf4-frozen, but weights in few bits are not known of models with an encoder beside their decoder, of which some stay in fp32; use bf16-frozen"},
		{"flan-t5-base", "hf-eager", 1, "", ", document_length: 32", "train.document_length: 32, but packing " + with + "; leave it out"},
		{"flan-t5-base", "hf-eager", 1, "", ", images: {per_sequence: 1}", "train.images: flan-t5-base has no encoder of images; leave it out"},
		{"flan-t5-base", "hf-eager", 1, "", ", recompute: selective", "train.recompute: selective " + with + "; use none or full"},
		{"flan-t5-base", "hf-eager", 1, "", ", recompute: full, recompute_num_layers: 2", "train.recompute_num_layers: recomputing some layers alone " + with + "; leave it and train.recompute_method out"},
		{"flan-t5-base", "hf-eager", 1, "", ", recompute: full, offload_activations: true", "train.offload_activations: activations on the host are not known"},
		{"flan-t5-base", "hf-eager", 1, "", ", optimizer: muon", "train.optimizer: muon " + with + "; use another one"},
		{"bart-base", "hf-eager, loss_chunks: 4", 1, "", "", "runtime.loss_chunks: 4, but a loss by chunks " + with + "; leave it out"},
		{"bart-base", "hf-eager, fused_linear_cross_entropy: true", 1, "", "", "fused losses are not known of models with an encoder beside their decoder; leave out"},
		{"bart-base", "hf-eager, upcast: false", 1, "", "", "runtime.upcast: bart-base takes the loss of logits as they are; leave it out"},
		{"flan-t5-base", "hf-eager", 2, "tp: 2", "", "plan.tp: 2, but how ranks cut a model with an encoder beside its decoder is not known; set it to 1, and use ddp, ZeRO or FSDP"},
		{"flan-t5-base", "hf-eager", 2, "pp: 2", "", "plan.pp: 2, but how ranks cut"},
		{"flan-t5-base", "hf-eager", 2, "cp: 2", "", "plan.cp: 2, but how ranks cut"},
		{"flan-t5-base", "hf-eager", 2, "dp: 2, data_parallel: fsdp2, units: model", "", "plan.units: units other than layers are not known of models with an encoder beside their decoder; leave plan.units and plan.unit_params out"},
	} {
		plan := c.plan
		if plan == "" {
			plan = "dp: 1"
		}
		_, err := decode(fmt.Sprintf(encoderJob, c.model, c.gpus, c.recipe, plan, c.train))
		require.ErrorContains(t, err, c.want)
	}
}

// TestSourceLength: left out it is the decoder's, which is said; tokens and FLOPs are of both sequences.
func TestSourceLength(t *testing.T) {
	job := func(train string) *Job {
		j, err := decode(fmt.Sprintf(encoderJob, "flan-t5-base", 1, "hf-eager", "dp: 1", train))
		require.NoError(t, err)
		return j
	}
	j := job("")
	require.EqualValues(t, 128, j.Train.SourceLength)
	require.Contains(t, j.Defaulted, "train.source_length = 128 (as long as the decoder's sequence)")
	long := job(", source_length: 512")
	require.Equal(t, 128.+512., long.Tokens())
	require.Greater(t, float64(long.StepFLOPs(true)), float64(j.StepFLOPs(true)))
	// T5's layers by hand: h = 768, f = 2048, 12 heads of 64, 12 layers of each stack.
	const h, f, layers = 768., 2048., 12.
	perPair := 4. * 12 * 64
	forward := layers*(512*2*(4*h*h+3*h*f)+512*512*perPair) + // encoder
		layers*(128*2*(4*h*h+2*h*h+3*h*f)+512*2*2*h*h+128*128/2*perPair+128*512*perPair) + 128*2*h*32128
	require.InEpsilon(t, 3*forward, float64(long.StepFLOPs(true)), 1e-12)
}
