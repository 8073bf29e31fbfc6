package ops

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// away is the layer with experts of a model whose modules leave to the host what they save.
func away(t *testing.T, name string, m Away, least int64, change func(c *Config)) *Unit {
	t.Helper()
	c := config(t, name, "megatron-core")
	c.Away, c.Least = m, least
	if change != nil {
		change(&c)
	}
	built := Build(c)
	return &built.Kinds[built.Layers[len(built.Layers)-1]]
}

// TestAway: what the modules of a layer of Mixtral 8x7B leave to the host, in values of 2 bytes
// of 2048 tokens, each routed to two experts (Megatron-LM,
// docs/user-guide/features/fine_grained_activation_offloading.md: the input of each; Transformer
// Engine's attention also saves its output and the logarithms of its sums, 4 bytes a head). Of
// what another module saves too, nothing is freed.
func TestAway(t *testing.T) {
	const (
		tokens, hidden, kv, wide, heads = 2 * 1024, 4096, 1024, 14336, 32

		none = 1 << 20 // elements: more than the small tensors have
	)
	for _, c := range []struct {
		modules       Away
		least         int64
		copied, freed int64 // values, of 2 bytes
	}{
		{Projection, none, tokens * 2 * hidden, tokens * 2 * hidden},                            // what the norm in it reads, and what it makes
		{Core, none, tokens * (2*hidden + 2*kv), tokens * (hidden + 2*kv)},                      // the values are copied from what the projection made
		{Core | OutputProjection, none, tokens * (3*hidden + 2*kv), tokens * (2*hidden + 2*kv)}, // the output twice
		{Core | OutputProjection, 0, tokens*(3*hidden+2*kv) + 2*tokens*heads, tokens*(2*hidden+2*kv) + 2*tokens*heads},
		{ExpertsNorm, none, tokens * hidden, tokens * hidden},
		{ExpertsFirst, none, 2 * tokens * hidden, 2 * tokens * hidden},
		{ExpertsGate, none, 2 * tokens * 2 * wide, 2 * tokens * 2 * wide},
		{ExpertsGate, 2*tokens*2*wide + 1, 0, 0},
	} {
		u, plain := away(t, "mixtral-8x7b", c.modules, c.least, nil), away(t, "mixtral-8x7b", 0, 0, nil)
		var copied, freed units.Bytes
		sizes := map[int32]units.Bytes{u.InputStore: u.Input}
		for _, e := range u.Forward.Events {
			if e.Bytes > 0 {
				sizes[e.Store] = e.Bytes
			}
		}
		for _, trip := range u.Forward.Trips {
			require.Equal(t, 1, bits.OnesCount8(trip.Module))
			require.Less(t, trip.From, trip.To, "its gradient runs")
			copied += trip.Bytes
			for _, s := range trip.Stores {
				freed += sizes[s]
			}
		}
		require.InDelta(t, 2*c.copied, float64(copied), 0, "%b copied", c.modules)
		require.InDelta(t, 2*c.freed, float64(freed), 0, "%b freed", c.modules)
		require.Equal(t, plain.Forward.Ops, u.Forward.Ops, "the kernels stay")
		require.Equal(t, plain.Backward.Ops, u.Backward.Ops)
		require.Equal(t, plain.Forward.Events, u.Forward.Events)
	}
}

// TestAwayRecomputed: an activation that is computed again leaves what it reads, as it does
// without; what is let go of is not there to be freed.
func TestAwayRecomputed(t *testing.T) {
	again := func(m Modules) func(c *Config) {
		return func(c *Config) { c.Recompute, c.Modules = SelectiveRecompute, m }
	}
	kept, let := away(t, "mixtral-8x7b", ExpertsGate, 1<<20, nil), away(t, "mixtral-8x7b", ExpertsGate, 1<<20, again(ExpertActivation))
	require.Equal(t, kept.Forward.Trips[0].Bytes, let.Forward.Trips[0].Bytes)
	require.Len(t, let.Forward.Trips[0].Stores, 1)
	latent := away(t, "deepseek-v2-lite", Core, 1<<20, again(LatentProjection)).Forward.Trips[0]
	require.Greater(t, latent.Bytes, units.Bytes(0), "queries, keys and values are copied before they are let go of")
	require.Less(t, len(latent.Stores), len(away(t, "deepseek-v2-lite", Core, 1<<20, nil).Forward.Trips[0].Stores))
}
