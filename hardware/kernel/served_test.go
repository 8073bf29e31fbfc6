package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestServedByCache: what the second-level cache holds is read at its own rate, which is no smaller where memory is slow: 9.8 TB/s on an
// H200 and 5.2 on an L40, whose memory moves a sixth as much (te42kyfo/gpu-benches, gpu-l2-cache). Where that rate is not known, and far
// beyond the cache, memory's alone counts.
func TestServedByCache(t *testing.T) {
	for _, c := range []struct {
		gpu    string
		bytes  units.Bytes
		faster bool
	}{
		{"l40s", 24 << 20, true},
		{"l40s", 80 << 20, true},
		{"l40s", 2 << 30, false},
		{"rtx-4090", 24 << 20, true},
		{"rtx-4090", 2 << 30, false},
		{"h100-sxm", 24 << 20, false},
		{"rtx-5090", 24 << 20, false},
	} {
		p, err := hardware.Load(c.gpu)
		require.NoError(t, err)
		unknown := *p
		unknown.GPU.L2Rate = hardware.Datum[units.Rate]{}
		with, err := New(p)
		require.NoError(t, err)
		without, err := New(&unknown)
		require.NoError(t, err)
		o := &tape.Op{Class: tape.Vectorized, Bytes: c.bytes, Elements: float64(c.bytes) / 8, Count: 1}
		got, was := with.Time(o), without.Time(o)
		if !c.faster {
			require.InEpsilon(t, float64(was), float64(got), 0.02, "%+v", c)
			continue
		}
		require.Less(t, float64(got), 0.75*float64(was), "%+v", c)
		require.Greater(t, float64(got), float64(c.bytes.At(p.GPU.L2Rate.Value)), "%+v", c)
	}
}

// TestServedGrows: more bytes take no less time, and none more than without the rate of the cache.
func TestServedGrows(t *testing.T) {
	for _, gpu := range []string{"rtx-4090", "l40s", "a100-80g-sxm"} {
		p, err := hardware.Load(gpu)
		require.NoError(t, err)
		unknown := *p
		unknown.GPU.L2Rate = hardware.Datum[units.Rate]{}
		with, err := New(p)
		require.NoError(t, err)
		without, err := New(&unknown)
		require.NoError(t, err)
		for i := range with.classes {
			c, was := &with.classes[i], &without.classes[i]
			if !c.known || len(c.law.Bytes) == 0 {
				continue
			}
			last := 0.0
			for b := units.Bytes(1 << 19); b < 4e9; b *= 1.05 {
				o := &tape.Op{Class: tape.Class(i), Bytes: b, Elements: float64(b) / 8, N: 1024}
				s := float64(with.law(o))
				require.GreaterOrEqual(t, s, last*0.999, "%s: %s, %.0f bytes", gpu, o.Class, float64(b))
				require.LessOrEqual(t, s, float64(without.law(o))*(1+1e-9), "%s: %s, %.0f bytes", gpu, o.Class, float64(b))
				require.LessOrEqual(t, c.moves(b), was.moves(b))
				last = s
			}
		}
	}
}
