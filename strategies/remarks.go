package strategies

import (
	"fmt"
	"slices"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model"
)

// Remarks say what of a job is legal and may not be what was meant, under any plan.
func (j *Job) Remarks() []diag.Note {
	return slices.Concat(j.towers(), j.head(), j.packed(), j.padded(), j.planned(), j.untimed(), j.beyond(), j.fused(), j.racks(), j.Foreign())
}

// towers remarks on what of a multimodal model is not predicted.
func (j *Job) towers() []diag.Note {
	if !j.Model.TextOnly {
		return nil
	}
	remedy := "for such steps add its time and memory"
	if j.leavesEncoder {
		remedy = "for such steps give train.images"
	}
	return []diag.Note{{Code: "model.towers", Text: fmt.Sprintf("model: %s is predicted without what its file has beside text_config: steps on images take longer, by what their encoder takes", j.ModelName),
		Remedy: remedy}}
}

// head remarks on a model whose class has another head than the language model's.
func (j *Job) head() []diag.Note {
	if j.Model.Headless == "" {
		return nil
	}
	return []diag.Note{{Code: "model.head", Text: fmt.Sprintf("model: %s is a %s (architectures), and is predicted as a language model: with an output layer of %d and its loss, which it does not have", j.ModelName, j.Model.Headless, j.Model.Vocab),
		Remedy: "take off what perfplan explain --stage ops lists for these"}}
}

// packed remarks on weights that a file has in fewer bits than they are predicted in.
func (j *Job) packed() []diag.Note {
	if j.Model.Quantized == "" || j.Precision.Frozen.Set {
		return nil
	}
	remedy := ""
	if j.Model.Quantized == "bitsandbytes" {
		remedy = "for adapters beside weights in 4 bits (QLoRA) give train.lora and train.precision nf4-frozen or nf4-prepared, under recipe hf-eager"
	}
	return []diag.Note{{Code: "model.packed", Text: fmt.Sprintf("model: the weights of %s are packed, %s (quantization_config), and are predicted in %s, as train.precision %s has them", j.ModelName, j.Model.Quantized, j.Precision.Weights, j.Train.Precision),
		Remedy: remedy}}
}

// fused remarks on kernels that Megatron-Bridge's recipes use on Blackwell alone
// (recipes/deepseek/h100/deepseek_v4.py, apply_dsa_kernel_fusion and use_fused_mhc).
func (j *Job) fused() []diag.Note {
	if c := capability(j.Hardware); j.Model.Streams <= 1 && j.Model.Compress == nil || c == 0 || c >= blackwell {
		return nil
	}
	return []diag.Note{{Code: "model.fused", Text: fmt.Sprintf("model: residual streams and attention to sums of tokens are predicted with fused kernels, which Megatron-Bridge leaves out on %s: without them steps take longer and more memory", gpuName(j.Hardware)),
		Remedy: "give runs of your own with --runs"}}
}

// beyond remarks on sequences longer than those that a model with rotary embedding was made
// for. They run, so that it is no error as with learned positions, but hardly train.
func (j *Job) beyond() []diag.Note {
	seq, most := j.Train.Attended(), j.Model.MaxPositions
	if j.Model.Position != model.Rotary || most == 0 || seq <= most {
		return nil
	}
	key := "train.sequence_length"
	if j.Train.DocumentLength > 0 {
		key = "train.document_length"
	}
	return []diag.Note{{Code: "sequence.beyond", Text: fmt.Sprintf("%s: %d exceeds the %d positions (max_position_embeddings) that %s was made for", key, seq, most, j.ModelName),
		Remedy: "scale its rotary embedding (rope_scaling) and set model.max_position_embeddings, or take a model of longer context"}}
}

// racks remarks on NVLink domains over several nodes of which one is left in part: ranks
// are taken to be placed so that no group lies across two which fits into one
// (hardware/collective, Fabric.Straddling), as a scheduler does that gives 64 GPUs of each 72.
func (j *Job) racks() []diag.Note {
	node, domain := j.Hardware.Node.GPUs.Value, j.Hardware.Node.NVLinkDomain.Value
	if node < 1 || domain <= node || j.GPUs <= domain || j.GPUs%domain == 0 {
		return nil
	}
	remedy := fmt.Sprintf("use a multiple of %d GPUs", domain)
	for part := domain - node; part > domain/2; part -= node {
		if j.GPUs%part == 0 {
			remedy = fmt.Sprintf("if your job gets %d GPUs of each, set hardware.node.nvlink_domain=%d", part, part)
			break
		}
	}
	return []diag.Note{{Code: "hardware.domains", Text: fmt.Sprintf("gpus: %d is no multiple of the NVLink domain of %d: groups of ranks that fit into a domain are taken to lie in one, which they do where the job gets whole groups of each (Slurm's --segment)", j.GPUs, domain), Remedy: remedy}}
}

// Foreign remarks on what of a plan the job's framework is not known to have.
func (j *Job) Foreign() []diag.Note { return slices.Concat(j.schedule(), j.sharing()) }

// sharing remarks on a kind of data parallelism that the framework does not have.
func (j *Job) sharing() []diag.Note {
	p, own := &j.Plan, j.Recipe.Sharing()
	if p.DP*p.CP <= 1 || slices.Contains(own, string(p.DataParallel)) {
		return nil
	}
	return []diag.Note{{Code: "data_parallel.foreign", Text: fmt.Sprintf("plan.data_parallel: %s is not known of recipe %s, and is predicted as if it were", p.DataParallel, j.Recipe.Name),
		Remedy: "for what the framework runs use " + diag.Or(own)}}
}

// schedule remarks on an order of a pipeline's work that the framework does not have. It is
// no error: what a framework lacks may be worth having.
func (j *Job) schedule() []diag.Note {
	p, r := &j.Plan, j.Recipe
	if p.PP <= 1 || slices.Contains(r.Schedules, p.Schedule) || p.Schedule == torchInterleaved && r.Structure.TorchPipeline {
		return nil
	}
	return []diag.Note{{Code: "schedule.foreign", Text: fmt.Sprintf("plan.schedule: %s is no schedule of recipe %s, and is predicted as if it were", p.Schedule, r.Name),
		Remedy: "for what the framework runs use " + diag.Or(r.Schedules)}}
}
