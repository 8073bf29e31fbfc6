package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArchitecture: a compiler older than the GPU compiles for the last one of its major
// version that it knows.
func TestArchitecture(t *testing.T) {
	known := []int{75, 80, 86, 89, 90, 100, 103, 120, 121}
	for _, c := range []struct {
		capability [2]int
		supported  []int
		want       string
	}{
		{[2]int{9, 0}, known, "sm_90"},
		{[2]int{8, 6}, known, "sm_86"},
		{[2]int{8, 7}, known, "sm_86"},
		{[2]int{10, 7}, known, "sm_103"}, // Rubin under CUDA 13.0
		{[2]int{10, 7}, append(known, 107), "sm_107"},
		{[2]int{11, 0}, known, "sm_110"}, // whose code none of these is
		{[2]int{7, 0}, known, "sm_70"},
		{[2]int{9, 0}, nil, "sm_90"},
	} {
		require.Equal(t, c.want, Device{Capability: c.capability}.Architecture(c.supported), c)
	}
}
