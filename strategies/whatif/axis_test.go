package whatif

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
)

func TestParseAxis(t *testing.T) {
	for text, want := range map[string]string{
		"gpus=8..1024":                        "8 16 32 64 128 256 512 1024",
		"gpus=8..100":                         "8 16 32 64",
		"tp=1..8:1":                           "1 2 3 4 5 6 7 8",
		"tp=0..4:2":                           "0 2 4",
		"x=0.5..2:0.5":                        "0.5 1 1.5 2",
		"plan.bucket=1MiB,25 MiB,1GiB":        "1MiB|25 MiB|1GiB",
		"plan.bucket=1MiB..8MiB":              "1 MiB|2 MiB|4 MiB|8 MiB",
		"hardware=h100-sxm,h200-sxm":          "h100-sxm h200-sxm",
		"gpus=1,2,8..16":                      "1 2 8 16",
		"runtime.stragglers=[{rank: 1}],null": "[{rank: 1}]|null",
		"model=../llama.yaml":                 "",
	} {
		a, err := ParseAxis(text)
		if want == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		sep := " "
		if strings.ContainsAny(want, "|") {
			sep = "|"
		}
		require.Equal(t, strings.Split(want, sep), a.Values, text)
	}
	for text, want := range map[string]string{
		"gpus":                  "is not an axis",
		"=3":                    "is not an axis",
		"gpus=":                 "a value is empty",
		"gpus=1,,2":             "a value is empty",
		"gpus=1,1":              "the value 1 is given twice",
		"gpus=0..8":             "doubles from 0",
		"gpus=8..1":             "runs backwards; write 1..8",
		"gpus=1..1000000:1":     "more than 10000 values",
		"gpus=1..8:0":           "give a number above 0",
		"gpus=a..8":             `begins with "a", which is no number or size; write it as in 8..64 or 1MiB..1GiB`,
		"gpus=8..":              `ends with "", which is no number or size; write it as in 8..64`,
		"gpus=1..8MiB":          "mixes a number with a size",
		"gpus=1..16:1,a..b":     `begins with "a"`,
		"gpus=1..9000:1,1..2:1": "", // 1 twice
	} {
		_, err := ParseAxis(text)
		require.ErrorContains(t, err, want, text)
		require.True(t, diag.IsInput(err), text)
	}
}

func TestProduct(t *testing.T) {
	got, err := Product([]Axis{{"a", []string{"1", "2"}}, {"b", []string{"x", "y", "z"}}})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"1", "x"}, {"1", "y"}, {"1", "z"}, {"2", "x"}, {"2", "y"}, {"2", "z"}}, got)
	_, err = Product([]Axis{{"a", []string{"1"}}, {"a", []string{"2"}}})
	require.ErrorContains(t, err, "a: is given twice")
	many := make([]string, 1000)
	_, err = Product([]Axis{{"a", many}, {"b", many}})
	require.ErrorContains(t, err, "more than 100000 points")
}

// FuzzParseAxis: no text panics, and what is read has distinct, non-empty values.
func FuzzParseAxis(f *testing.F) {
	for _, seed := range []string{"gpus=8..1024", "a=1MiB..1GiB", "a=1..8:1", "a=[1,2],{b: c}", "a=..", "a=1..1e308", "a=0..0:1", "a=1e9..1e18:1e-9", "train.images.size=448x672,896", "train.images={per_sequence: 2, size: 448x672},{per_sequence: 4, size: 448}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAxis(text)
		if err != nil {
			require.True(t, diag.IsInput(err))
			return
		}
		require.NotEmpty(t, a.Values)
		seen := map[string]bool{}
		for _, v := range a.Values {
			require.NotEmpty(t, v)
			require.False(t, seen[v])
			seen[v] = true
		}
		if n := a.Numbers(); n != nil {
			require.Len(t, n, len(a.Values))
		}
	})
}
