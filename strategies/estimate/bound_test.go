package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBound: a step is bound by the class of work that most of it goes to, however much goes
// to others.
func TestBound(t *testing.T) {
	for want, p := range map[string]Parts{
		"compute":       {GEMM: 3, Attention: 2, Memory: 4, Exposed: 4, Bubble: 4, Host: 4, Update: 4},
		"memory":        {GEMM: 3, Attention: 2, Memory: 6, Exposed: 5},
		"communication": {GEMM: 3, Exposed: 4, Host: 3},
		"bubble":        {GEMM: 3, Exposed: 3, Bubble: 4},
		"host":          {GEMM: 3, Memory: 3, Host: 4},
		"host_update":   {GEMM: 3, Host: 3, Update: 4},
	} {
		require.Equal(t, want, bound(&Result{Parts: p}))
	}
}
