package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// TestT4: squares on three T4 at best, in TFLOP/s (zzc0721/torch-performance-test-data database.md @9d82827), and sums of two
// tensors of 0.5 GB in GB/s (sitar-lab/NeuSight scripts/asplos/data/dataset/train/collect/add/p2.1.0).
func TestT4(t *testing.T) {
	x, _ := timer(t, "t4")
	for _, c := range []struct {
		dtype  tape.DType
		tflops float64
	}{{tape.F32, 4.32}, {tape.F16, 42.2}} {
		const n = 8192
		o := GEMM(tape.LayoutForward, c.dtype, n, n, n)
		require.InEpsilon(t, c.tflops, 2e-12*n*n*n/float64(x.Time(&o)), 0.05, "%v", c)
	}
	const values = 128 << 20
	sum := tape.Op{Prim: "add", Class: tape.Vectorized, DType: tape.F32, Elements: values, Bytes: 12 * values, Count: 1}
	require.InEpsilon(t, 241, 12e-9*values/float64(x.Time(&sum)), 0.03)
}
