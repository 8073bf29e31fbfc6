package strategies

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/recipe"
)

// TestVocabulary: what a vocabulary is padded to is the job's where it says so, of recipes that pad one.
func TestVocabulary(t *testing.T) {
	for _, c := range []struct {
		recipe string
		n      int64
		want   int64
		wrong  string
	}{
		{"megatron-core", 0, 128, ""},
		{"megatron-pretrain", 64, 64, ""},
		{"megatron-deepspeed", 1, 1, ""},
		{"nanotron", 0, 1, ""},
		{"megatron-core", -1, 0, "runtime.vocab_multiple: -1; give 1 to 1048576"},
		{"megatron-core", 1 << 21, 0, "runtime.vocab_multiple: 2097152; give 1 to 1048576"},
		{"hf-eager", 64, 0, "runtime.vocab_multiple: recipe hf-eager pads no vocabulary; leave it out, or use aa-scaling, megatron-core, megatron-deepspeed, megatron-lm, megatron-pretrain, megatron-script or nanotron"},
	} {
		r, err := recipe.Load(c.recipe)
		require.NoError(t, err)
		was := r.Structure.VocabMultiple
		j := Job{Recipe: r, Runtime: Runtime{VocabMultiple: c.n}}
		if err := j.setVocabulary(); c.wrong != "" {
			require.EqualError(t, err, c.wrong)
			continue
		}
		require.Equal(t, c.want, j.Recipe.Structure.VocabMultiple, "%+v", c)
		require.Equal(t, was, r.Structure.VocabMultiple, "the catalog's own stays")
	}
}
