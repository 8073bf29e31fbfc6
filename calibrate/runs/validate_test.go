package runs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestComplete: what stages allocate that nobody measured is all that Validate leaves out.
func TestComplete(t *testing.T) {
	if testing.Short() {
		t.Skip("TestValidateIsDeterministic predicts runs beside each other, too")
	}
	list, err := embedded()
	require.NoError(t, err)
	list, err = Filter(list, []string{"h200-single", "h200-pp"})
	require.NoError(t, err)
	for _, measured := range []bool{true, false} {
		if !measured {
			for i := range list {
				list[i].Measured.PerStage = nil
			}
		}
		want, got := Complete(list), Validate(list)
		left := 0
		for i := range want.Rows {
			if x := &want.Rows[i]; !measured && len(x.Predicted.PerStage) > 0 {
				require.Empty(t, got.Rows[i].Predicted.PerStage)
				x.Predicted.PerStage = nil
				left++
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, !measured, left > 0)
	}
}

// TestEmbeddedOf: the runs of some groups, in their order, are those among all.
func TestEmbeddedOf(t *testing.T) {
	if testing.Short() {
		t.Skip("TestEmbedded reads files beside each other, too")
	}
	all, err := embedded()
	require.NoError(t, err)
	ids := func(list []Run) (out []string) {
		for _, r := range list {
			out = append(out, r.ID)
		}
		return out
	}
	groups := []string{"vtrain_single_a100", "h200-host-turns", "h200-pp"}
	want, err := Filter(all, groups)
	require.NoError(t, err)
	some, err := Embedded(groups)
	require.NoError(t, err)
	require.Less(t, len(some), len(all))
	got, err := Filter(some, groups)
	require.NoError(t, err)
	require.Equal(t, ids(want), ids(got))

	files, err := data.ReadDir("data")
	require.NoError(t, err)
	for _, groups := range [][]string{nil, {"h200-pp", "foo"}} { // of all of which like names can be told
		with, err := filesWith(groups)
		require.NoError(t, err)
		require.Equal(t, files, with)
	}
	texts := map[string]string{}
	var named []string
	for _, r := range all {
		named = append(named, r.Group)
		name := filepath.Base(r.doc.Name)
		if texts[name] == "" {
			text, err := data.ReadFile("data/" + name)
			require.NoError(t, err)
			texts[name] = string(text)
		}
		require.True(t, strings.Contains(texts[name], "group: "+r.Group+"\n"), "%s: the group of %s is not written as it is looked for", name, r.ID)
	}
	require.NoError(t, CheckGroups(named))
	for _, groups := range [][]string{{"h200-pp", "foo"}, {"h200-singel"}} { // told as of all runs
		_, want := Filter(all, groups)
		require.EqualError(t, CheckGroups(groups), want.Error())
	}
}
