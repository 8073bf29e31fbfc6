package search

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
)

// TestLayoutsAreSmall: a search keeps all that fit, of DeepSeek-V3 on 2048 GPUs 280,000.
func TestLayoutsAreSmall(t *testing.T) { require.LessOrEqual(t, unsafe.Sizeof(layout{}), uintptr(32)) }

// The spaces of issue 6. What counts is the time of each.
func BenchmarkRank(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"gpt3-175b-1024", "{model: gpt3-175b, hardware: a100-80g-sxm, gpus: 1024, train: {global_batch: 1536, sequence_length: 2048}}"},
		{"llama3.1-405b-4096", "{model: llama3.1-405b, hardware: h100-sxm, gpus: 4096, train: {global_batch: 2048, sequence_length: 8192}}"},
		{"deepseek-v3-2048", "{model: deepseek-v3, hardware: h100-sxm, gpus: 2048, train: {global_batch: 15360, sequence_length: 4096}}"},
	} {
		j := jobOf(b, c.text)
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				r, err := Rank(b.Context(), j, Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Legal), "plans")
			}
		})
	}
}

// The fast path alone: every legal plan of a space, those that do not fit too.
func BenchmarkScore(b *testing.B) {
	j := jobOf(b, "{model: gpt3-175b, hardware: a100-80g-sxm, gpus: 1024, train: {global_batch: 1536, sequence_length: 2048}}")
	s, err := start(b.Context(), j, Options{Headroom: unlimited}, &Ranking{})
	require.NoError(b, err)
	for b.Loop() {
		var e estimate.Evaluator
		var scratch strategies.Job
		var times []time.Duration
		for f := range every(s.plans) {
			s.apply(&scratch, f)
			begin := time.Now()
			if _, err := e.Score(&scratch, estimate.Limits{}); err != nil {
				b.Fatal(err)
			}
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		b.ReportMetric(float64(len(times)), "plans")
		b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "ns-median")
		b.ReportMetric(float64(times[len(times)*9/10].Nanoseconds()), "ns-p90")
	}
}
