package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestRowMaps: Hybrid-EP's permutations on an H200 (deepseek-ai/DeepEP hybrid-ep @7febc6e, two
// ranks, bf16, 2026-11-26), in us: rows that came are copied to the places of their local
// experts with probabilities and without, and summed back; the numbering before them; the
// scan of the map. At most so many rows may come.
func TestRowMaps(t *testing.T) {
	timer, _ := timer(t, "h200-sxm")
	time := func(ops []tape.Op, prim string) float64 {
		for i := range ops {
			if ops[i].Prim == prim {
				return float64(timer.Time(&ops[i]) / units.Seconds(1e-6))
			}
		}
		t.Fatalf("no %s", prim)
		return 0
	}
	permuted := func(from, to, width, experts int64) (there, back float64) {
		tp := tape.New()
		parts := sections(tp, tp.PermuteByMap(tp.Input(tape.BF16, true, from, width), to, experts), tape.BF16)
		return time(parts[0].Ops, "permute"), time(parts[1].Ops, "permute_backward")
	}
	at := func(prim string, emit func(*tape.Tape)) float64 {
		tp := tape.New()
		emit(tp)
		return time(tp.Cut(tape.Backward).Ops, prim)
	}
	var off, n float64
	for _, c := range []struct {
		experts, most, rows, places, width     int64
		there, bare, back, backToo, number, at float64
	}{
		{4, 16384, 12845, 16480, 2048, 49, 46, 44, 45, 22.4, 22.8},
		{8, 16384, 15759, 32832, 2048, 75, 67, 71, 73, 29, 21.6},
		{16, 16384, 16363, 65664, 2048, 112, 100, 111, 113, 46.4, 21.3},
		{32, 16384, 16337, 65952, 2048, 154, 116, 121, 125, 84.9, 21.7},
		{64, 16384, 16321, 66304, 2048, 237, 163, 141, 147, 139, 25.1},
		{128, 16384, 16328, 67392, 2048, 418, 277, 190, 200, 245, 28},
		{16, 16384, 12436, 16608, 2048, 70, 55, 48, 50, 46.1, 24},
		{16, 16384, 15539, 32992, 2048, 91, 74, 74, 77, 47, 22.4},
		{16, 8192, 8182, 32960, 2048, 60, 52, 63, 65, 45.4, 22.1},
		{16, 65536, 65446, 263008, 2048, 424, 384, 427, 437, 79, 23.4},
		{16, 16384, 16366, 65568, 1024, 89, 67, 64, 66, 45.5, 22.9},
		{16, 16384, 16368, 65696, 4096, 189, 183, 206, 208, 45.8, 22.8},
	} {
		there, back := permuted(c.rows, c.places, c.width, c.experts)
		backFirst, bare := permuted(c.places, c.rows, c.width, c.experts)
		require.Equal(t, back, backFirst, "sums draw alike in both passes")
		for _, p := range [][2]float64{{there, c.there}, {bare, c.bare}, {back, c.back}, {back, c.backToo},
			{at("permute_preprocessing", func(t *tape.Tape) { t.NumberRows(c.most, c.experts) }), c.number},
			{at("scan_map", func(t *tape.Tape) { t.ScanMap(2, c.most/2, 2*c.experts) }), c.at}} {
			e := math.Log(p[0] / p[1])
			require.InDelta(t, 0, e, 0.22, "%+v: %.0f us for %.0f", c, p[0], p[1])
			off, n = off+math.Abs(e), n+1
		}
	}
	require.Less(t, off/n, 0.07)
}
