package launch

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVocabularies: each file of keys can be read, and no key of it both tells something and costs
// something, nor stands in it twice.
func TestVocabularies(t *testing.T) {
	files, err := fs.Glob(keyFiles, "keys/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		v := keysOf(strings.TrimSuffix(path.Base(file), ".yaml"))()
		known := slices.Sorted(slices.Values(v.known()))
		require.Equal(t, slices.Compact(slices.Clone(known)), known, file)
	}
}
