package hardware

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
)

func TestDiff(t *testing.T) {
	h100, err := Load("h100-sxm")
	require.NoError(t, err)
	h200, err := Load("h200-sxm")
	require.NoError(t, err)
	require.Empty(t, Diff(h100, h100))
	d := Diff(h100, h200)
	require.Equal(t, "gpu.memory", d[0].Path)
	require.InEpsilon(t, 143771.0/81559-1, d[0].Rel, 1e-9)
	require.Equal(t, "gpu.bandwidth", d[1].Path)
	require.InEpsilon(t, 4800.0/3350-1, d[1].Rel, 1e-9)
	require.Contains(t, d, Difference{Path: "gpu.name", A: "NVIDIA H100 80GB HBM3", B: "NVIDIA H200"})
	require.Contains(t, d, Difference{Path: "measured.collectives.all-reduce 4/1.16.0 MiB", B: "97.70 us"}, "measured on one only")

	changed := *h200
	gemm := *h200.Laws.GEMM
	gemm.Setup *= 2
	gemm.Points = append(GEMMPoints{}, gemm.Points...)
	gemm.Points[0].Time[1] *= 3
	changed.Laws.GEMM = &gemm
	d = Diff(h200, &changed)
	require.Equal(t, "measured.gemm.points.256×512×2048.dgrad", d[0].Path)
	require.InEpsilon(t, 2, d[0].Rel, 1e-9)
	require.Equal(t, "measured.gemm.setup", d[1].Path)

	gemm.Setup = h200.Laws.GEMM.Setup / 4 // a quarter is further away than three times
	d = Diff(h200, &changed)
	require.Equal(t, "measured.gemm.setup", d[0].Path)
	require.InEpsilon(t, -0.75, d[0].Rel, 1e-9)
}

// The other way round the same data differ, by the inverse factor.
func TestDiffTurned(t *testing.T) {
	names := Names()
	rapid.Check(t, func(t *rapid.T) {
		a, err := Load(rapid.SampledFrom(names).Draw(t, "a"))
		require.NoError(t, err)
		b, err := Load(rapid.SampledFrom(names).Draw(t, "b"))
		require.NoError(t, err)
		there, back := Diff(a, b), map[string]Difference{}
		for _, d := range Diff(b, a) {
			back[d.Path] = d
		}
		require.Len(t, there, len(back))
		for i, d := range there {
			o := back[d.Path]
			require.Equal(t, [2]string{d.A, d.B}, [2]string{o.B, o.A})
			if d.Has && o.Has {
				require.InEpsilon(t, 1, (1+d.Rel)*(1+o.Rel), 1e-9)
			}
			if i > 0 && d.Has {
				require.True(t, there[i-1].Has)
			}
		}
	})
}
