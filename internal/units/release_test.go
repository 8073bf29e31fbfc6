package units

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRelease(t *testing.T) {
	var old, mid Release
	require.NoError(t, old.UnmarshalText([]byte("23.04")))
	require.NoError(t, mid.UnmarshalText([]byte("24.12")))
	require.Equal(t, "24.12", mid.String())
	require.True(t, old.Before(mid))
	require.False(t, mid.Before(old))
	require.False(t, Release(0).Before(old), "no release is the newest")
	for _, text := range []string{"", "24", "24.7", "24.13", "24.00", "2024.07", "July 2024", "-1.07"} {
		var r Release
		require.ErrorContains(t, r.UnmarshalText([]byte(text)), `as in "24.07"`, text)
	}
}
