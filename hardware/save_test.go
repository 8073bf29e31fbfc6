package hardware

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
)

// What is written is read back the same: every profile of the catalog with all its
// facts and laws.
func TestEncode(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(name)
		require.NoError(t, err)
		whole := *p
		whole.Inherits = ""
		text, err := Encode(&whole)
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "again.yaml")
		require.NoError(t, os.WriteFile(file, text, 0o644))
		again, err := Load(file)
		require.NoError(t, err, "%s: %s", name, text)
		opts := []cmp.Option{cmpopts.IgnoreFields(Profile{}, "Name", "Inherits", "Own"), cmpopts.IgnoreFields(GEMMLaw{}, "On"), cmpopts.IgnoreFields(AttentionLaw{}, "On"),
			cmpopts.IgnoreFields(KernelLaw{}, "On"), cmpopts.IgnoreFields(PowerLaw{}, "On"), cmpopts.IgnoreFields(StepLaw{}, "On"), cmpopts.IgnoreFields(CollectiveCurve{}, "On"),
			cmpopts.EquateApprox(1e-4, 0), cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true })}
		require.Empty(t, cmp.Diff(p, again, opts...), name)
		twice, err := Encode(&whole)
		require.NoError(t, err)
		require.Equal(t, string(text), string(twice))
	}
}
