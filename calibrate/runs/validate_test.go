package runs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestComplete: what stages allocate that nobody measured is all that Validate leaves out.
func TestComplete(t *testing.T) {
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
