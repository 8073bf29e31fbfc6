package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestNoClassBelowZero: shards may be no whole bytes, whose sums miss the last digit; what is
// gone is gone all the same.
func TestNoClassBelowZero(t *testing.T) {
	for name, away := range map[string]func(*tracker, int){"free": (*tracker).free, "a gradient now": (*tracker).made} {
		x := &tracker{blocks: make([]slot, 2)}
		for id, b := range []units.Bytes{2. / 3, 3. / 7} {
			x.take(id, b, Activations)
		}
		away(x, 0)
		away(x, 1)
		require.InDelta(t, 0, float64(x.by[Activations]), 1e-15, name)
		require.GreaterOrEqual(t, float64(x.by[Activations]), 0.0, name)
	}
}
