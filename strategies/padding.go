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
