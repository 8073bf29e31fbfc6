package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// A timer serves many jobs: what it says of an op does not depend on what it was
// asked before, such as the same shape with a result of another dtype.
func TestOrderDoesNotMatter(t *testing.T) {
	h, err := hardware.Load("h200-sxm")
	require.NoError(t, err)
	op := func(bytes units.Bytes) *tape.Op {
		return &tape.Op{Class: tape.GEMM, DType: tape.BF16, M: 512, N: 512, K: 64, Batch: 1, Count: 1, Bytes: bytes}
	}
	one, err := New(h)
	require.NoError(t, err)
	other, err := New(h)
	require.NoError(t, err)
	small, large := one.Time(op(16*units.MiB)), one.Time(op(64*units.MiB))
	require.Less(t, small, large)
	require.Equal(t, large, other.Time(op(64*units.MiB)))
	require.Equal(t, small, other.Time(op(16*units.MiB)))
}
