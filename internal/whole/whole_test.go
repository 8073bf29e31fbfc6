package whole

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDivisors(t *testing.T) {
	require.Equal(t, []int64{1, 2, 3, 4, 6, 12}, Divisors(12, 64))
	require.Equal(t, []int64{1, 2, 3}, Divisors(12, 3))
	require.Empty(t, Divisors(0, 8))
}

// Divisor and multiple of two numbers share out their product.
func TestCommon(t *testing.T) {
	for a := int64(1); a < 40; a++ {
		require.Equal(t, a, GCD(a, 0))
		for b := int64(1); b < 40; b++ {
			g, l := GCD(a, b), LCM(a, b)
			require.Equal(t, a*b, g*l)
			require.Zero(t, a%g+b%g+l%a+l%b)
		}
	}
	require.EqualValues(t, 4, GCD(12, 8))
	require.EqualValues(t, 24, LCM(12, 8))
}
