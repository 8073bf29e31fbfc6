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

// TestSerialRows: rows that one warp adds up after the others take as long on any number of SMs of a clock.
func TestSerialRows(t *testing.T) {
	on := func(gpu string) float64 {
		x, p := timer(t, gpu)
		return float64(x.Time(&tape.Op{Class: tape.SerialAdd, DType: tape.BF16, Elements: 4096, Count: 1})) * float64(p.GPU.TopClock())
	}
	require.InEpsilon(t, on("h200-sxm"), on("h20"), 0.01)
	require.InEpsilon(t, on("h200-sxm"), on("b200-sxm"), 0.01)
}
