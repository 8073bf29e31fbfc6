package curves

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
)

// Every machine has figures; no kernel beats its peak at the highest clock and no
// collective its peak by more than a cache or a switch that reduces can give, and rates
// of products grow to near the peak.
func TestOf(t *testing.T) {
	for _, name := range hardware.Names() {
		h, err := hardware.Load(name)
		require.NoError(t, err)
		figures, err := Of(h)
		require.NoError(t, err)
		keys := []string{}
		for _, f := range figures {
			keys = append(keys, f.Key)
			for _, s := range f.Series {
				require.Len(t, s.Y, len(s.X))
				for i, y := range s.Y {
					require.Positive(t, y, "%s %s %s", name, f.Key, s.Name)
					switch f.Key {
					case "gemm", "roofline":
						peak := float64(max(h.GPU.Peak.BF16.Value, h.GPU.Peak.FP16.Value)) * float64(h.GPU.TopClock()) / float64(h.GPU.Clock.Value)
						require.LessOrEqual(t, y, peak, "%s %s %s", name, f.Key, s.Name)
					case "memory":
						if cache := float64(h.GPU.L2.Value); s.X[i] > 2*cache { // what it cannot hold crosses the memory
							require.LessOrEqual(t, (s.X[i]-cache)/s.X[i]*y, 1.01*float64(h.GPU.Bandwidth.Value), "%s %s at %g", name, s.Name, s.X[i])
						}
					}
				}
			}
		}
		want := []string{"gemm", "memory", "collective", "roofline"}
		if h.Node.GPUs.Value == 1 {
			want = []string{"gemm", "memory", "roofline"}
		}
		require.Equal(t, want, keys, name)
		widest := figures[0].Series[0].Y
		require.Greater(t, widest[len(widest)-1], widest[0], name)
	}
}
