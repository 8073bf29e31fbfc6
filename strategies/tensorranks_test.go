package strategies

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/recipe"
)

// TestTensorRanks: what a training file's own plan for parallelize_module changes of torchtitan's
// (KempnerForge @601aba9, distributed/tensor_parallel.py: input_layouts=Shard(1) of q_proj, k_proj, v_proj,
// gate_proj and up_proj; stages of a pipeline have no plan for token_embedding and output_head).
func TestTensorRanks(t *testing.T) {
	titan := recipe.Having(func(r *recipe.Recipe) bool { return r.Structure.FunctionalTP })
	require.Equal(t, []string{"torchtitan", "torchtitan-eager"}, titan)
	on, off := true, false
	for _, c := range []struct {
		shared, vocab *bool
		own, cut      bool
	}{
		{nil, nil, false, true},
		{&on, &on, false, true},
		{&off, nil, true, true},
		{nil, &off, false, false},
		{&off, &off, true, false},
	} {
		r, err := recipe.Load(titan[0])
		require.NoError(t, err)
		j := Job{Recipe: r, Runtime: Runtime{SharedTPInput: c.shared, VocabParallel: c.vocab}}
		require.NoError(t, j.setTensorRanks())
		require.Equal(t, []bool{c.own, c.cut}, []bool{j.Recipe.Structure.OwnTPInputs, j.Recipe.Structure.VocabParallel}, "%+v", c)
		require.Equal(t, []bool{false, true}, []bool{r.Structure.OwnTPInputs, r.Structure.VocabParallel}, "the catalog's own stays")
	}
}
