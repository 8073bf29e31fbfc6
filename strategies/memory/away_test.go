package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAway: every layer that leaves what it saves is gone once, after its forward pass, and
// back once, before its backward pass; until the last backward pass begins no more than the
// others are there (Transformer Engine, OffloadSynchronizer: the peak is that of L - N layers).
func TestAway(t *testing.T) {
	for layers := 2; layers <= 12; layers++ {
		for away := 1; away < layers; away++ {
			here, gone := 0, map[int]bool{}
			for layer := range layers {
				if g, _ := Away(layers, away, layer); g >= 0 {
					require.Less(t, g, layer, "%d of %d: it has run", away, layers)
					require.False(t, gone[g])
					gone[g] = true
					here--
				}
				here++
			}
			require.Len(t, gone, away)
			require.Equal(t, layers-away, here)
			for layer := layers - 1; layer >= 0; layer-- {
				if _, b := Away(layers, away, layer); b >= 0 {
					require.True(t, gone[b])
					delete(gone, b)
					here++
				}
				require.False(t, gone[layer], "%d of %d: layer %d is there", away, layers, layer)
				require.LessOrEqual(t, here, layers-away)
				here--
			}
			require.Empty(t, gone)
		}
	}
}
