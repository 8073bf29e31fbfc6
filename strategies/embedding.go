package strategies

import "github.com/perfplan/perfplan/internal/diag"

// checkEmbedding holds train.dtypes.embedding against what makes the residual stream: the
// tables do under autocast alone, where they are parameters of their own.
func (j *Job) checkEmbedding() error {
	e := j.Precision.Embedding
	switch {
	case !e.Set:
		return nil
	case !j.Precision.Autocast:
		return diag.Errorf("train.dtypes.embedding: %s, but without autocast everything is in %s; leave it out, or use bf16-autocast", e, j.Precision.Compute)
	case e.DType != j.Precision.Compute.DType && e.DType != j.Precision.Weights.DType:
		return diag.Errorf("train.dtypes.embedding: %s; use %s, as autocast computes, or %s, as weights are stored", e, j.Precision.Compute, j.Precision.Weights)
	case j.Model.Tied:
		return diag.Errorf("train.dtypes.embedding: %s, but the output layer has the table, too; leave one of dtypes.embedding and tie_word_embeddings out", e)
	}
	return nil
}
