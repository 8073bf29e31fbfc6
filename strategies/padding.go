package strategies

import (
	"fmt"

	"github.com/perfplan/perfplan/internal/diag"
)

// checkPadding holds train.padding against what is told of padded tokens.
func (j *Job) checkPadding() error {
	p, t := j.Train.Padding, &j.Train
	switch {
	case p == 0:
		return nil
	case !(p > 0 && p < 1):
		return diag.Errorf("train.padding: %g; give the share of a batch's tokens that are padding, below 1, as in 0.3, or leave it out", p)
	case !j.Recipe.Structure.PaddingMask:
		return diag.Errorf("train.padding: %g, but attention of recipe %s is not told of padded tokens and computes them as any others; leave it out, or use recipe hf-eager", p, j.Recipe.Name)
	case t.DocumentLength > 0:
		return diag.Errorf("train.padding: %g, but sequences that are packed of documents (train.document_length: %d) have none; leave one out", p, t.DocumentLength)
	}
	return nil
}

// mostSpread bounds train.length_spread: few data sets are at 2.
const mostSpread = 5

// checkLengths holds train.length_spread against what it can be.
func (j *Job) checkLengths() error {
	if v := j.Train.LengthSpread; !(v >= 0 && v <= mostSpread) {
		return diag.Errorf("train.length_spread: %g is outside 0 to %d; give the standard deviation of the tokens of your sequences over their mean, as in 0.5, or leave it out", v, mostSpread)
	}
	return nil
}

// planned remarks on what lengths that differ from batch to batch take of a host: 0.12 to 0.16 s each on an H200's Xeon, by FlashAttention's kernels 4 ms (2026-11-30).
func (j *Job) planned() []diag.Note {
	if t := &j.Train; t.LengthSpread == 0 && t.Padding == 0 || !j.plansAttention() {
		return nil
	}
	return []diag.Note{{Code: "attention.plans", Text: "runtime.attention: cuDNN plans attention for each new length of a batch, which took the Xeon of an H200 0.12 to 0.16 s; FlashAttention needs no plan. The step time is without it",
		Remedy: "pad to a multiple of 64 or more (pad_to_multiple_of), so that there are few lengths, or set runtime.sdpa_kernel=flash"}}
}

// checkPaddedContexts holds train.padding against context ranks, whose attention takes no mask: the ring of
// torch.distributed.tensor.experimental is causal, and DeepSpeed's Ulysses has positions instead.
func (j *Job) checkPaddedContexts(p *Plan) error {
	if s := j.Train.Padding; s > 0 && p.CP > 1 {
		return diag.Errorf("train.padding: %g, but attention over context ranks (cp %d) takes no mask of padded tokens; leave it out, or set plan.cp to 1", s, p.CP)
	}
	return nil
}

// padded remarks on what of a step padding takes.
func (j *Job) padded() []diag.Note {
	p := j.Train.Padding
	if p == 0 {
		return nil
	}
	what := "attention as well, which reads a mask"
	if flash(j.Runtime.Attention) {
		what = "but attention, which leaves it out"
	}
	return []diag.Note{{Code: "train.padded", Text: fmt.Sprintf("train.padding: %.3g %% of the tokens are padding, which all kernels compute, %s; throughput and MFU count it", 100*p, what),
		Remedy: "pack sequences (train.document_length), or sort them by length"}}
}
