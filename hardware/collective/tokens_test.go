package collective

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestTokenExchanges: 4096 tokens of 7168 in bf16 that go to 8 of 8 experts a rank at random:
// GB/s of the rows that a rank sends to each node once, or to each rank of a node, those that
// stay included, over adapters of 400 Gb/s.
func TestTokenExchanges(t *testing.T) {
	for _, c := range []struct {
		op                Op
		hardware          string
		nodes             int64
		dispatch, combine float64
	}{
		// Kernels with 16 SMs (deepseek-ai/DeepEP, branch hybrid-ep, docs/README_Hybrid-EP.md).
		{TokenExchange, "h100-ib", 2, 71.71, 62.95},
		{TokenExchange, "h100-ib", 4, 57.69, 57.46},
		{TokenExchange, "h100-ib", 8, 49.97, 49.77},
		// With 20 SMs, a call (tile-ai/tilescale pull 40); with 24, H200 (deepseek-ai/DeepEP issue 493) and H800 (docs/legacy.md).
		{DeepEPExchange, "h100-ib", 1, 328.97, 287.14},
		{DeepEPExchange, "h100-ib", 2, 40.89, 44.37},
		{DeepEPExchange, "h100-ib", 4, 58, 57},
		{DeepEPExchange, "h100-ib", 8, 51, 50},
		// Over EFA (awslabs/awsome-distributed-ai micro-benchmarks/expert-parallelism/ep-backend-comparison, NVSHMEM).
		{DeepEPExchange, "p5", 4, 43.7, 46.1},
		{DeepEPExchange, "p5", 8, 39.6, 39.2},
		{DeepEPExchange, "p6-b300", 2, 126.6, 106.4},
		{DeepEPExchange, "p6-b300", 4, 97.1, 95.4},
		{DeepEPExchange, "p6-b300", 8, 84.2, 73.1},
	} {
		reached := func(parts int64) float64 { return float64(parts) * (1 - math.Pow(1-1/float64(parts), 8)) }
		copies := reached(c.nodes)
		if c.nodes == 1 {
			copies = 5.64 // of ranks with 4 experts
		}
		bytes := units.Bytes(4096 * 7168 * 2 * copies)
		g := Group{Ranks: 8 * c.nodes, PerNode: 8, Spread: reached(8*c.nodes) / reached(c.nodes)}
		got := float64(bytes) / float64(machine(c.hardware, Version{}).Time(c.op, bytes, g)) / 1e9
		require.InEpsilon(t, (c.dispatch+c.combine)/2, got, 0.08, "%s among %d nodes", c.op, c.nodes)
	}
}

// TestTokensHandedOn: a row that reached a node goes to its ranks over the node's own links, so
// that no exchange is faster across nodes than inside one, on PCIe neither.
func TestTokensHandedOn(t *testing.T) {
	for _, f := range catalog(t) {
		for _, op := range []Op{TokenExchange, DeepEPExchange} {
			inside := f.Time(op, 64*units.MiB, f.Group(f.Island(), 1))
			require.GreaterOrEqual(t, float64(f.Time(op, 64*units.MiB, f.Group(2*f.Island(), 1))), 0.999*float64(inside), "%s by GPUs with %s of NVLink", op, f.NVLink)
		}
	}
}
