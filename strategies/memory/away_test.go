package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrips: every layer that leaves what it saves is gone once, after its forward pass, and
// back once, before its backward pass; until the last backward pass begins no more than the
// others are there (Transformer Engine, OffloadSynchronizer: the peak is that of L - N layers).
// Units that are no layers have no part in it.
func TestTrips(t *testing.T) {
	for n := 2; n <= 12; n++ {
		var layers []int
		for k := range n {
			layers = append(layers, k+1) // between the two ends
		}
		for away := 1; away < n; away++ {
			layer := make([]bool, n+2)
			for _, unit := range layers {
				layer[unit] = true
			}
			trips := Away{Layers: away}.Trips(nil, layer)
			require.Len(t, trips, n+2)
			require.Equal(t, Trip{Gone: -1, Back: -1}, trips[0])
			require.Equal(t, Trip{Gone: -1, Back: -1}, trips[n+1])
			here, gone := 0, map[int]bool{}
			for k, unit := range layers {
				require.Equal(t, k < away, trips[unit].Leaves)
				if g := trips[unit].Gone; g >= 0 {
					require.Less(t, g, unit, "%d of %d: it has run", away, n)
					require.False(t, gone[g])
					require.True(t, trips[g].Leaves)
					gone[g] = true
					here--
				}
				here++
			}
			require.Len(t, gone, away)
			require.Equal(t, n-away, here)
			for k := n - 1; k >= 0; k-- {
				if b := trips[layers[k]].Back; b >= 0 {
					require.True(t, gone[b])
					delete(gone, b)
					here++
				}
				require.False(t, gone[layers[k]], "%d of %d: layer %d is there", away, n, k)
				require.LessOrEqual(t, here, n-away)
				here--
			}
			require.Empty(t, gone)
		}
	}
}

// TestTripsOfAll: what every unit saves is gone as the next begins, and back for its own
// backward pass; the last unit's, which comes back at once, is never gone.
func TestTripsOfAll(t *testing.T) {
	trips := Away{All: true}.Trips(nil, make([]bool, 5))
	require.Len(t, trips, 5)
	for i, trip := range trips {
		require.Equal(t, Trip{Leaves: true, Gone: i - 1, Back: i}, trip)
	}
	require.False(t, Away{}.Any())
}
