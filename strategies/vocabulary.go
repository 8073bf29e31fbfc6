package strategies

import (
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/model/recipe"
)

// mostMultiple bounds runtime.vocab_multiple: scripts that keep a vocabulary as it is on one rank
// give numbers in the thousands.
const mostMultiple = 1 << 20

// setVocabulary takes over what the vocabulary is padded to, in the place of the recipe's own
// (Megatron-LM, megatron/core/tokenizers/utils/build_tokenizer.py, vocab_size_with_padding).
func (j *Job) setVocabulary() error {
	const key = "runtime.vocab_multiple"
	switch n := j.Runtime.VocabMultiple; {
	case n == 0:
		return nil
	case n < 1 || n > mostMultiple:
		return diag.Errorf("%s: %d; give 1 to %d", key, n, mostMultiple)
	case j.Recipe.Structure.VocabMultiple == 0:
		return diag.Errorf("%s: recipe %s pads no vocabulary; leave it out, or use %s", key, j.Recipe.Name, diag.Or(recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.VocabMultiple > 0 })))
	}
	own := *j.Recipe
	own.Structure.VocabMultiple = j.Runtime.VocabMultiple
	j.Recipe = &own
	return nil
}
