package dataparallel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/perfplan/perfplan/internal/seed"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/recipe"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// TestBuckets: gradients close a bucket when it holds at least its cap, the first
// one at 1 MiB (torch/csrc/distributed/c10d/reducer.cpp,
// compute_bucket_assignment_by_size; torch/nn/parallel/distributed.py,
// bucket_cap_mb and dist._DEFAULT_FIRST_BUCKET_BYTES).
func TestBuckets(t *testing.T) {
	const m = units.MiB
	for _, c := range []struct {
		name   string
		grads  []units.Bytes
		closes []bool
		sizes  []units.Bytes
	}{
		{"none", nil, []bool{}, nil},
		{"first at 1 MiB", []units.Bytes{m / 2, m / 2, m}, []bool{false, true, true}, []units.Bytes{m, m}},
		{"one as large as the cap", []units.Bytes{30 * m, 24 * m, m}, []bool{true, false, true}, []units.Bytes{30 * m, 25 * m}},
		{"over the cap, never under", []units.Bytes{m, 24 * m, 24 * m}, []bool{true, false, true}, []units.Bytes{m, 48 * m}},
		{"the rest", []units.Bytes{m, 2 * m}, []bool{true, true}, []units.Bytes{m, 2 * m}},
		{"a tied gradient that comes later", []units.Bytes{0, m, 0}, []bool{false, true, false}, []units.Bytes{m}},
	} {
		closes, sizes := AppendBuckets([]bool{}, nil, c.grads, FirstBucket, DefaultBucket)
		require.Equal(t, c.closes, closes, c.name)
		require.Equal(t, c.sizes, sizes, c.name)
	}
}

// TestBucketLaws: every byte is sent once, only the last bucket is under its cap, and
// none holds a gradient more than it needs.
func TestBucketLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 60).Draw(t, "grads")
		limit := units.Bytes(rapid.IntRange(1, 50).Draw(t, "limit"))
		first := min(units.Bytes(rapid.IntRange(1, 50).Draw(t, "first")), limit)
		grads := make([]units.Bytes, len(n))
		var sum units.Bytes
		for i, g := range n {
			grads[i] = units.Bytes(g)
			sum += grads[i]
		}
		closes, sizes := AppendBuckets(nil, nil, grads, first, limit)
		var sent, held units.Bytes
		at := 0
		for i, g := range grads {
			held += g
			if !closes[i] {
				continue
			}
			require.Equal(t, sizes[at], held)
			bound := limit
			if at == 0 {
				bound = first
			}
			if at < len(sizes)-1 {
				require.GreaterOrEqual(t, held, bound)
			}
			require.True(t, g == 0 || held-g < bound, "closed late")
			sent, held = sent+held, 0
			at++
		}
		require.Equal(t, len(sizes), at)
		require.Equal(t, sum, sent)
	})
}

// TestStates: bytes per parameter with Adam in mixed precision, over n ranks (arXiv
// 1910.02054, section 3.1 and figure 1: 2 + 2 + 12, with 16-bit gradients).
func TestStates(t *testing.T) {
	dtype := func(d tape.DType) recipe.DType { return recipe.DType{DType: d, Set: true} }
	p := recipe.Precision{Weights: dtype(tape.F16), Gradients: dtype(tape.F16), Master: dtype(tape.F32), Moments: dtype(tape.F32)}
	const n = 64
	for _, c := range []struct {
		kind strategies.DataParallel
		want float64
	}{
		{strategies.DDP, 16}, {strategies.ZeRO1, 4 + 12.0/n}, {strategies.ZeRO2, 2 + 14.0/n}, {strategies.ZeRO3, 16.0 / n}, {strategies.FSDP1, 16.0 / n}, {strategies.FSDP2, 16.0 / n},
	} {
		w, o, g := StatesOf(c.kind, p, true).PerParam(n)
		require.InDelta(t, c.want, float64(w+o+g), 1e-12, string(c.kind))
	}
	w, o, g := StatesOf(strategies.DDP, p, false).PerParam(n)
	require.Equal(t, units.Bytes(14), w+o, "no buffer of gradients lives between steps")
	require.Zero(t, g)
}
