package units

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseCount(t *testing.T) {
	for text, want := range map[string]float64{"2T": 2e12, "300B": 300e9, "15.6T": 15.6e12, "1.5e12": 1.5e12, "15_000": 15000, "7": 7, " 4 k": 4000, "500M": 5e8, "1e3B": 1e12} {
		v, err := ParseCount(text)
		require.NoError(t, err, text)
		require.Equal(t, want, v, text)
	}
	for text, want := range map[string]string{"": "is not a count", "T": "is not a count", "-3T": "more than 0", "0": "more than 0", "2X": `"X" is not a suffix of a count; use k, M, B or T`, "1e999": "finite", "2 TB": "is not a suffix", "NaN": "is not a count"} {
		_, err := ParseCount(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseCount(f *testing.F) {
	for _, seed := range []string{"2T", "1e12", "-1", "1e-400", "9999999999T", "0x10"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := ParseCount(text); err == nil && (!(v > 0) || math.IsInf(v, 0)) {
			t.Fatalf("%q is %v", text, v)
		}
	})
}
