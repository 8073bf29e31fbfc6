package strategies

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/strategies/pipeline"
)

// keysOf are the keys of a type below a path: true where they have none of their own.
func keysOf(t reflect.Type, path string, out map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	last := true
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			if name := t.Field(i).Tag.Get("yaml"); name != "" {
				keysOf(t.Field(i).Type, strings.TrimPrefix(path+"."+name, "."), out)
				last = false
			}
		}
	}
	if path != "" {
		out[path] = last
	}
}

// TestKeysOfDocs: docs/job.md has a row for every key of a job, and none for another; it
// names every recipe with its kinds of data parallelism, and every schedule of pipelines.
func TestKeysOfDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/job.md")
	require.NoError(t, err)
	keys, rows := map[string]bool{}, map[string]int{}
	keysOf(reflect.TypeFor[jobFile](), "", keys)
	for table := range strings.SplitSeq(string(page), "\n\n") {
		if !strings.HasPrefix(table, "| key |") {
			continue
		}
		for _, row := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
			m := regexp.MustCompile("^\\| `([a-z0-9_.]+)`").FindStringSubmatch(row)
			require.NotNil(t, m, "begins with no key: %s", row)
			rows[m[1]]++
			require.Equal(t, 5, strings.Count(row, "|"), "has not four cells: %s", row)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		require.False(t, keys[key] && rows[key] != 1, "docs/job.md has %d rows for %s, not one", rows[key], key)
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		require.Contains(t, keys, key, "a row of docs/job.md is for no key")
	}
	for _, name := range pipeline.Names() {
		require.Contains(t, string(page), "\n| `"+name+"` |", "docs/job.md has no row for a schedule")
	}
	for _, name := range recipe.Names() {
		require.Contains(t, string(page), "\n| `"+name+"` |", "docs/job.md has no row for a recipe")
		r, err := recipe.Load(name)
		require.NoError(t, err)
		require.Regexp(t, "\n\\| `"+name+"` \\|.*\\| "+strings.Join(r.Sharing(), ", ")+" \\|\n", string(page), "docs/job.md has other kinds of data parallelism of a recipe")
	}
}
