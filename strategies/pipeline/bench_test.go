package pipeline

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		name    string
		p, v, m int
		whole   bool
		mode    Transfers
	}{
		{"1f1b", 8, 1, 32, false, Async}, {"1f1b", 8, 1, 4096, true, Async}, {"1f1b", 8, 1, 4096, false, Async},
		{"interleaved-1f1b", 8, 4, 64, false, Async}, {"interleaved-1f1b", 8, 4, 4096, false, Async},
		{"zb-v", 8, 2, 4096, false, Async}, {"dualpipe", 16, 2, 4096, false, Async}, {"1f1b", 64, 1, 256, false, Async},
		{"1f1b", 8, 1, 32, false, Blocking}, {"1f1b", 8, 1, 4096, false, Blocking}, {"interleaved-1f1b", 8, 4, 64, false, Blocking},
		{"interleaved-1f1b", 8, 4, 4096, false, Blocking},
		{"1f1b", 8, 1, 32, false, Torch}, {"interleaved-1f1b-torch", 8, 4, 64, false, Torch},
		{"interleaved-1f1b-torch", 8, 4, 4096, false, Torch}, {"zb-v", 8, 2, 4096, false, Torch},
	} {
		name := fmt.Sprintf("%s/p=%d/v=%d/m=%d/whole=%v", c.name, c.p, c.v, c.m, c.whole)
		if c.mode != Async {
			name += "/" + c.mode.String()
		}
		b.Run(name, func(b *testing.B) {
			pl, err := new(Cache).Get(c.name, c.p, c.v, c.m, c.mode)
			require.NoError(b, err)
			t := uneven(pl)
			if c.mode == Torch {
				beside := slower(t, t)
				t.Beside = &beside
			}
			buf := Buffer{whole: c.whole}
			pl.Run(t, &buf)
			b.ReportAllocs()
			for b.Loop() {
				pl.Run(t, &buf)
			}
			n := 0
			for r := range pl.Ranks {
				n += len(pl.Actions(r))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/action")
		})
	}
}

func BenchmarkSchedule(b *testing.B) {
	for _, c := range []struct {
		name    string
		p, v, m int
		mode    Transfers
	}{
		{"1f1b", 8, 1, 32, Async}, {"1f1b", 8, 1, 4096, Async}, {"interleaved-1f1b", 8, 4, 64, Async}, {"zb-v", 16, 2, 4096, Async},
		{"1f1b", 8, 1, 32, Blocking}, {"interleaved-1f1b", 8, 4, 64, Blocking},
		{"1f1b", 8, 1, 32, Torch}, {"interleaved-1f1b-torch", 8, 4, 64, Torch}, {"zb-v", 16, 2, 4096, Torch},
	} {
		name := fmt.Sprintf("%s/p=%d/v=%d/m=%d", c.name, c.p, c.v, c.m)
		if c.mode != Async {
			name += "/" + c.mode.String()
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := new(Cache).Get(c.name, c.p, c.v, c.m, c.mode)
				require.NoError(b, err)
			}
		})
	}
}
