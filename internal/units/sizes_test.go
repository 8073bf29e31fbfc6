package units

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSizes(t *testing.T) {
	for text, want := range map[string][]Bytes{
		"25 MiB":            {25 * MiB},
		"1KiB..4KiB":        {KiB, 2 * KiB, 4 * KiB},
		"1MiB..3MiB":        {MiB, 2 * MiB, 3 * MiB}, // the end belongs to it
		"4MiB..4MiB":        {4 * MiB},
		"8MiB, 1MiB..4MiB":  {MiB, 2 * MiB, 4 * MiB, 8 * MiB},
		"2MiB,1MiB..4MiB":   {MiB, 2 * MiB, 4 * MiB},
		"1 GB,1000 MB,1 GB": {GB},
	} {
		got, err := ParseSizes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":           "is not a data size",
		"25":         "has no unit",
		"1GiB..1MiB": "runs downwards",
		"1MiB..":     "is not a data size",
		"0 B":        "less than one byte",
		"1 MiB,,":    "is not a data size",
		"1MiB..4 s":  "is not a unit of data size",
	} {
		_, err := ParseSizes(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseSizes(f *testing.F) {
	for _, seed := range []string{"1KiB..1GiB", "25 MiB", "1B,2B..1PiB", "..", "1e300 PB..1 B"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sizes, err := ParseSizes(s)
		if err != nil {
			return
		}
		require.NotEmpty(t, sizes)
		require.True(t, slices.IsSorted(sizes))
		require.GreaterOrEqual(t, sizes[0], Bytes(1))
	})
}
