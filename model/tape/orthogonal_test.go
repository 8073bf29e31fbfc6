package tape

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestNewtonSchulz: each step multiplies three times, the sums of two products read a copy of
// what they are added to, which of a turned matrix is the first step's alone a slow one (trace
// of torch.optim.Muon on an H100, 14336×4096 in bf16).
func TestNewtonSchulz(t *testing.T) {
	for _, c := range []struct {
		name       string
		rows, cols int64
		turned     int
	}{{"square", 4096, 4096, 0}, {"wide", 4096, 14336, 0}, {"tall", 14336, 4096, 1}} {
		t.Run(c.name, func(t *testing.T) {
			tp := New()
			x := tp.Outside(BF16, c.rows, c.cols)
			if c.rows > c.cols {
				x = tp.Transpose(x, 0, 1)
			}
			const steps = 5
			m, n := x.Dim(0), x.Dim(1)
			for range steps {
				y := tp.NewtonSchulz(x)
				tp.Release(x)
				x = y
			}
			tp.Release(x)
			gemms, copies, turned, live, peak := 0, 0, 0, units.Bytes(0), units.Bytes(0)
			var flops units.FLOPs
			sec := tp.Cut(Forward)
			for _, o := range sec.Ops {
				flops += o.FLOPs
				switch o.Class {
				case GEMM:
					gemms++
				case Memcpy:
					copies++
				case Transposed:
					turned++
				}
			}
			for _, e := range sec.Events {
				live += e.Bytes
				peak = max(peak, live)
			}
			require.Equal(t, []int{3 * steps, 2*steps - c.turned, c.turned}, []int{gemms, copies, turned})
			require.Equal(t, units.FLOPs(steps*(4*m*m*n+2*m*m*m)), flops)
			require.Zero(t, live, "all is released")
			require.Equal(t, units.Bytes(2*(2*m*n+2*m*m)), peak, "two of x and of its square at once")
		})
	}
}

// TestNewtonSchulzShards: of a wide matrix a rank has a part of the rows, gathers three times in
// each step and multiplies its own rows; of a tall one it sums twice (traces of two H100).
func TestNewtonSchulzShards(t *testing.T) {
	run := func(rows, cols int64, turned bool) (kinds map[string]int, flops units.FLOPs) {
		tp := New()
		x := tp.Outside(BF16, rows, cols)
		if turned {
			x = tp.Transpose(x, 0, 1)
		}
		for range 5 {
			tp.Release(tp.NewtonSchulzShards(x, 2, turned))
		}
		kinds = map[string]int{}
		for _, o := range tp.Cut(Forward).Ops {
			flops += o.FLOPs
			if o.Class == Collective {
				kinds[o.Prim]++
			}
		}
		return
	}
	kinds, flops := run(1024, 8192, false) // down: 2048 × 8192
	require.Equal(t, map[string]int{"all-gather": 15}, kinds)
	require.Equal(t, units.FLOPs(5*(4*2048*2048*8192+2*2048*2048*2048)/2), flops)
	kinds, flops = run(4096, 2048, true) // gate: 8192 × 2048
	require.Equal(t, map[string]int{"all-reduce": 10}, kinds)
	require.Equal(t, units.FLOPs(5*(4*2048*2048*8192/2+2*2048*2048*2048)), flops)
}
