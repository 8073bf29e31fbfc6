package units

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePercent(t *testing.T) {
	for text, want := range map[string]float64{"5%": 0.05, " 12.5 % ": 0.125, "0.05": 0.05, "0": 0, "-1%": -0.01, "500%": 5} {
		got, err := ParsePercent(text)
		require.NoError(t, err, text)
		require.InDelta(t, want, got, 1e-15, text)
	}
	for _, text := range []string{"", "%", "five", "5 GiB", "NaN", "inf%", "5", "1"} {
		_, err := ParsePercent(text)
		require.Error(t, err, text)
	}
}
