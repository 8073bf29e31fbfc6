package probe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/cuda/fake"
)

// TestHostMemory: the pieces of all threads are copied whole, and none is left when the trial is over.
func TestHostMemory(t *testing.T) {
	require.NoError(t, hostMemory.Verify(nil, nil))
	for _, n := range []int{1, 2, 7} {
		m := newHostCopy(n, 7*page)
		m.run()
		total := 0
		for i := range m.from {
			require.Equal(t, m.from[i], m.to[i])
			total += len(m.from[i])
		}
		require.InDelta(t, 7*page, total, float64(n))
	}
	_, err := hostMemory.Prepare(nil, &Bench{Driver: &fake.Driver{}}, Case{"threads": "none"})
	require.ErrorContains(t, err, "threads")
}
