package parallel

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMap(t *testing.T) {
	in := make([]int, 1000)
	for i := range in {
		in[i] = i
	}
	var calls atomic.Int64
	out := Map(in, func(x int) int { calls.Add(1); return 2 * x })
	require.EqualValues(t, len(in), calls.Load(), "every value once")
	for i, x := range out {
		require.Equal(t, 2*i, x, "in order")
	}
	require.Empty(t, Map([]int{}, func(x int) int { return x }))
}

func TestMapRaisesPanics(t *testing.T) {
	require.PanicsWithValue(t, "seven", func() {
		Map([]int{1, 7, 2}, func(x int) int {
			if x == 7 {
				panic("seven")
			}
			return x
		})
	})
}
