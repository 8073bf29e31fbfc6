package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
)

// TestEmbeddingDType: under autocast the residual stream has the dtype of the embedding's
// table, as what a layer adds to it is bf16 (nanochat/gpt.py, init_weights: "it saves memory:
// both in the model and the activations").
func TestEmbeddingDType(t *testing.T) {
	for _, name := range []string{"hf-eager", "nanogpt"} {
		c := config(t, "llama2-7b", name)
		c.Precision = c.Recipe.Precision["bf16-autocast"]
		wide := Build(c)
		c.Precision.Embedding = recipe.DType{DType: tape.BF16, Set: true}
		narrow := Build(c)
		for i, m := range []*Model{wide, narrow} {
			size := []units.Bytes{4, 2}[i]
			add := opOf(t, &m.Kinds[0], "residual", "add")
			require.Equal(t, units.Bytes(add.Elements)*(2+2*size), add.Bytes, "%s: a sum of the stream and what a layer made in 16 bits", name)
			require.Equal(t, 2*size*units.Bytes(2*1024*4096), opOf(t, &m.Embedding, "embedding", "embedding").Bytes, name)
		}
		require.Equal(t, opOf(t, &wide.Kinds[0], "mlp", "linear").Bytes, opOf(t, &narrow.Kinds[0], "mlp", "linear").Bytes, "products are the same")
	}
}

func opOf(t *testing.T, u *Unit, module, prim string) *tape.Op {
	t.Helper()
	for i := range u.Forward.Ops {
		if o := &u.Forward.Ops[i]; o.Module == module && o.Prim == prim {
			return o
		}
	}
	require.Failf(t, "no such op", "%s %s", module, prim)
	return nil
}
