package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestOlderLibrary: the twelve products of a layer by cuBLAS 12.4.5 over those by 13.1.0 on
// one H100, bursts at the full clock (2026-11-24); in loops at the power limit 1.012, 1.033,
// 1.042 and 1.052, so that both draw as much while they run.
func TestOlderLibrary(t *testing.T) {
	fresh, p := timer(t, "h100-sxm")
	var old units.Release
	require.NoError(t, old.UnmarshalText([]byte("24.04")))
	older, err := New(p.At(old))
	require.NoError(t, err)
	for _, c := range []struct {
		model  string
		tokens int64
		shapes [4][2]int64 // outputs, inputs
		want   float64
	}{
		{"MPT 7B", 16384, [4][2]int64{{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}}, 1.015},
		{"MPT 1B", 28672, [4][2]int64{{6144, 2048}, {2048, 2048}, {8192, 2048}, {2048, 8192}}, 1.033},
		{"Llama-3 8B", 8192, [4][2]int64{{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}, 1.044},
		{"Llama 70B, 8 tensor ranks", 8192, [4][2]int64{{1280, 8192}, {8192, 1024}, {7168, 8192}, {8192, 3584}}, 1.048},
	} {
		var times [2]float64
		for _, s := range c.shapes {
			for _, l := range []tape.Layout{tape.LayoutForward, tape.LayoutDgrad, tape.LayoutWgrad} {
				o := GEMM(l, tape.BF16, c.tokens, s[0], s[1])
				times[0] += float64(fresh.Time(&o))
				times[1] += float64(older.Time(&o))
				require.InDelta(t, fresh.Utilization(&o), older.Utilization(&o), 0.1, "it draws as much while it runs")
			}
		}
		require.InEpsilon(t, c.want, times[1]/times[0], 0.035, c.model)
	}
	require.Same(t, p, p.At(0), "no release: the newest")
	require.NotEqual(t, p.Laws.GEMM.Rate, p.At(old).Laws.GEMM.Rate, "the profile itself is left as it was")
	require.Equal(t, p.Laws.GEMM.Rate["fp8"], p.At(old + 5).Laws.GEMM.Rate["fp8"], "8 bits went faster before 16 did")
}
