package strategies

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// refuses checks that a job is refused for what is wanted, or taken where that is "".
func refuses(t *testing.T, job, want string) {
	t.Helper()
	_, err := decode(job)
	if want == "" {
		require.NoError(t, err, job)
		return
	}
	require.ErrorContains(t, err, want, job)
}
