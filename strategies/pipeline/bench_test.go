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
	}{
		{"1f1b", 8, 1, 32, false}, {"1f1b", 8, 1, 4096, true}, {"1f1b", 8, 1, 4096, false},
		{"interleaved-1f1b", 8, 4, 64, false}, {"interleaved-1f1b", 8, 4, 4096, false},
		{"zb-v", 8, 2, 4096, false}, {"dualpipe", 16, 2, 4096, false}, {"1f1b", 64, 1, 256, false},
	} {
		b.Run(fmt.Sprintf("%s/p=%d/v=%d/m=%d/whole=%v", c.name, c.p, c.v, c.m, c.whole), func(b *testing.B) {
			pl, err := Schedule(c.name, c.p, c.v, c.m)
			require.NoError(b, err)
			t := uneven(pl)
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
	}{{"1f1b", 8, 1, 32}, {"1f1b", 8, 1, 4096}, {"interleaved-1f1b", 8, 4, 64}, {"zb-v", 16, 2, 4096}} {
		b.Run(fmt.Sprintf("%s/p=%d/v=%d/m=%d", c.name, c.p, c.v, c.m), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := Schedule(c.name, c.p, c.v, c.m)
				require.NoError(b, err)
			}
		})
	}
}
