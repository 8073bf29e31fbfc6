package hardware

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/yamlx"
)

// TestInherited: an error of an inherited catalog file is its own; a name that the catalog
// does not have is what is wrong where it is written.
func TestInherited(t *testing.T) {
	read := func(base string, seen map[string]bool) error {
		doc, err := yamlx.Parse("mine.yaml", []byte("perfplan: hardware/v1\ninherits: "+base+"\n"))
		require.NoError(t, err)
		_, err = decode(doc, doc.Root, "mine", seen)
		return err
	}
	require.NoError(t, read("h100-sxm", map[string]bool{}))
	require.ErrorContains(t, read("h100-smx", map[string]bool{}), `there is no hardware "h100-smx" in the catalog; did you mean "h100-sxm"?`)
	require.ErrorContains(t, read("h100-sxm", map[string]bool{"h100-sxm": true}), "inherits itself")
	// dgx-a100 inherits a100-80g-sxm, which is in the way already.
	err := read("dgx-a100", map[string]bool{"a100-80g-sxm": true})
	require.ErrorContains(t, err, "inherits itself")
	require.NotContains(t, err.Error(), "there is no hardware")
}
