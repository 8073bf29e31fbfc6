package collective

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestTokensAcrossNodes: Hybrid-EP on H100 with an adapter of 400 Gb/s each, 4096 tokens of
// 7168 in bf16, 8 of 8 experts a rank at random: GB/s of the rows that go to each node
// once, those that stay included, of the kernels with 16 SMs
// (deepseek-ai/DeepEP, branch hybrid-ep, docs/README_Hybrid-EP.md).
func TestTokensAcrossNodes(t *testing.T) {
	for _, c := range []struct {
		nodes             int64
		dispatch, combine float64
		within            float64
	}{
		{2, 71.71, 62.95, 0.3}, // the wire is not full
		{4, 57.69, 57.46, 0.05},
		{8, 49.97, 49.77, 0.05},
	} {
		reached := float64(c.nodes) * (1 - math.Pow(1-1/float64(c.nodes), 8))
		bytes := units.Bytes(4096 * 7168 * 2 * reached)
		got := float64(bytes) / float64(machine("h100-ib", Version{}).Time(TokenExchange, bytes, Group{Ranks: 8 * c.nodes, PerNode: 8})) / 1e9
		require.InEpsilon(t, (c.dispatch+c.combine)/2, got, c.within, "%d nodes", c.nodes)
	}
}
