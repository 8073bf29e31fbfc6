package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
)

// list is so many units, those between the two ends layers.
func list(n int) []*ops.Unit {
	var out []*ops.Unit
	for i := range n {
		u := &ops.Unit{}
		if i > 0 && i < n-1 {
			u.Layers = 1
		}
		out = append(out, u)
	}
	return out
}

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
			trips := Away{Layers: away}.Trips(nil, list(n+2))
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
	trips := Away{All: true}.Trips(nil, list(5))
	require.Len(t, trips, 5)
	for i, trip := range trips {
		require.Equal(t, Trip{Leaves: true, Gone: i - 1, Back: i}, trip)
	}
	require.False(t, Away{}.Any())
}

// TestTripsOfModules: what modules save goes from all layers but of each the last in front of the
// head, and of a stage without one from all; of a share of the modules the first ones go
// (Megatron-LM, fine_grained_activation_offload.py, post_warmup_callback and should_bulk_offload).
func TestTripsOfModules(t *testing.T) {
	const a, b = 1, 2
	units := func(modules ...[]uint8) []*ops.Unit {
		out := list(len(modules) + 2)
		for i, names := range modules {
			for _, m := range names {
				out[i+1].Forward.Trips = append(out[i+1].Forward.Trips, tape.Trip{Module: m, Bytes: 10})
			}
		}
		return out
	}
	layers := [][]uint8{{a, b}, {b}, {a, b}, {}, {b}}
	for _, c := range []struct {
		name  string
		list  []*ops.Unit
		share float64
		goes  []float64 // bytes by layer
	}{
		{"whole model", units(layers...), 1, []float64{20, 10, 10, 0, 0}},
		{"stage without head", units(layers...)[:6], 1, []float64{20, 10, 20, 0, 10}},
		{"half of seven, of which three stay", units(append(layers, []uint8{a})...), 0.5, []float64{20, 10, 10, 0, 0, 0}},
		{"none", units(layers...), 0, []float64{0, 0, 0, 0, 0}},
	} {
		trips := Away{Modules: true, Share: c.share}.Trips(nil, c.list)
		require.Len(t, trips, len(c.list), c.name)
		for i, want := range c.goes {
			require.InDelta(t, want, float64(trips[i+1].Bytes()), 0, "%s: layer %d", c.name, i)
			require.Equal(t, want > 0, trips[i+1].Leaves, "%s: layer %d", c.name, i)
			require.Equal(t, [2]int{i, i + 1}, [2]int{trips[i+1].Gone, trips[i+1].Back}, c.name)
		}
	}
}
