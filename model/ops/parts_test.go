package ops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestRecomputedParts: NeMo AutoModel checkpoints norms, attention and MLP of a layer each by
// itself (components/distributed/activation_checkpointing.py, apply_submodule_checkpointing), of
// classes of its own and, before ff639d1a5 of 2026-07-08, of transformers', too: their four inputs
// stay instead of the layer's one, and as each run ends with the last tensor it saves, neither the
// projection behind attention nor that of the MLP is computed again, where of a whole layer the
// latter alone is not.
func TestRecomputedParts(t *testing.T) {
	for _, p := range []struct {
		model, recipe, release string
		left                   float64 // hidden states
		gemms                  int     // of seven forward, fourteen backward and those again
	}{
		{"llama3-8b", "automodel", "26.08", 4, 26},
		{"llama3-8b", "automodel", "25.10", 4, 26},
		{"mistral-7b", "automodel", "26.08", 1, 27},
		{"mistral-7b", "automodel", "26.01", 4, 26},
		{"llama3-8b", "hf-eager", "26.08", 1, 27},
	} {
		c := config(t, p.model, p.recipe)
		c.Recipe = c.Recipe.At(released(t, p.release))
		c.MicroBatch, c.Sequence, c.Recompute = 1, 4096, FullRecompute
		layer := &Build(c).Kinds[0]
		gemms := 0
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				if s.Ops[i].Class == tape.GEMM {
					gemms++
				}
			}
		}
		require.InDelta(t, p.left, float64(left(&layer.Forward)/units.Bytes(2*c.Sequence*c.Spec.Hidden)), 0.01, "%+v", p)
		require.Equal(t, p.gemms, gemms, "%+v", p)
	}
}
