package strategies

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/yamlx"
)

func TestParseStragglers(t *testing.T) {
	got, err := ParseStragglers("rank=3,slowdown=1.3; rank = 7 , link=2")
	require.NoError(t, err)
	require.Equal(t, Stragglers{{3, 1.3, 0}, {7, 0, 2}}, got)
	for text, want := range map[string]string{
		"rnk=3":                `"rnk" is not known of a straggler; write it as in rank=3,slowdown=1.3; did you mean "rank"?`,
		"slowdown=2":           `"slowdown=2" names no rank`,
		"rank=x":               `rank: "x" is not a number`,
		"rank=1.5":             "is not a whole number",
		"":                     "is not known of a straggler",
		"rank=1;":              "is not known of a straggler",
		"rank=1,slowdown=fast": `slowdown: "fast" is not a number`,
	} {
		_, err := ParseStragglers(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestStragglerRules(t *testing.T) {
	read := func(stragglers string) (*Job, error) {
		doc, err := yamlx.Parse("job.yaml", []byte("{model: gpt2, gpus: 8, runtime: {stragglers: "+stragglers+"}}"))
		require.NoError(t, err)
		return Decode(doc, doc.Root)
	}
	for _, text := range []string{`"rank=3,slowdown=1.3"`, "[{rank: 3, slowdown: 1.3}]"} {
		j, err := read(text)
		require.NoError(t, err)
		require.Equal(t, &Stragglers{{3, 1.3, 0}}, j.Runtime.Stragglers, "two spellings of one job")
	}
	for text, want := range map[string]string{
		"[{rank: 8, slowdown: 2}]":                         "rank 8; the 8 GPUs are ranks 0 to 7",
		"[{rank: -1, slowdown: 2}]":                        "rank -1",
		"[{rank: 1}]":                                      "rank 1 is not slow",
		"[{rank: 1, slowdown: 0.5}]":                       "runtime.stragglers: slowdown 0.5 of rank 1; give a factor of 1 to 1000, or leave it out",
		"[{rank: 1, link: 0.5}]":                           "runtime.stragglers: link 0.5 of rank 1; give a factor of 1 to 1000, or leave it out",
		"[{rank: 1, slowdown: 0, link: 2}]":                "slowdown: 0; give a factor of 1 to 1000, or leave it out",
		`"rank=1,slowdown=2,link=0"`:                       "link: 0; give a factor of 1 to 1000, or leave it out",
		"[{rank: 1, slowdown: .nan}]":                      "slowdown",
		"[{rank: 1, link: 2}, {rank: 1, link: 3}]":         "rank 1 is given twice",
		"[{rank: 1, slow: 2}]":                             `unknown key "slow"`,
		`"rank=9,slowdown=2"`:                              "rank 9",
		"[{rank: 1, slowdown: 2}, {rank: 9, slowdown: 2}]": "rank 9",
	} {
		_, err := read(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseStragglers(f *testing.F) {
	for _, seed := range []string{"rank=3,slowdown=1.3", "rank=1;rank=2,link=9", "rank=1e99", "=,;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseStragglers(text)
		require.Equal(t, err == nil, len(list) > 0)
		require.True(t, err == nil || diag.IsInput(err))
	})
}
