package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// TestCompiledDropout: of a layer that is compiled whole, dropout keeps a mask of a byte for each value that
// it adds to the residual stream, which stays as wide as it is, and draws its numbers in kernels that
// arithmetic limits.
func TestCompiledDropout(t *testing.T) {
	const text = "{model: {model_type: gpt2, n_embd: 768, n_layer: 12, n_head: 12, vocab_size: 50304, embd_pdrop: 0, attn_pdrop: 0, resid_pdrop: %s, activation_function: gelu}, hardware: h200-sxm, gpus: 1, runtime: {recipe: %s, attention: sdpa}, plan: {}, train: {sequence_length: 1024, micro_batch: 16, precision: %s}}"
	for _, recipe := range []string{"nanogpt", "hf-compile"} {
		for _, precision := range []string{"bf16-autocast", "bf16-pure"} {
			layer := func(p string) ops.Unit {
				return ops.Build(config(mustParse(t, fmt.Sprintf(text, p, recipe, precision)))).Kinds[0]
			}
			without, with := layer("0"), layer("0.2")
			require.EqualValues(t, 2*16*1024*768, with.Saved()-without.Saved(), "%s %s", recipe, precision)
			heavy := 0
			for i := range with.Forward.Ops {
				if with.Forward.Ops[i].Class == tape.FusedHeavy {
					heavy++
				}
			}
			require.Equal(t, 2, heavy)
		}
	}
}
