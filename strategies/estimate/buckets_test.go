package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestMegatronBuckets: a bucket of Megatron-Core holds 40 million gradients, in groups of
// more than 40 ranks a million for each rank.
func TestMegatronBuckets(t *testing.T) {
	at := func(gpus int) (largest units.Bytes, calls int64) {
		r, err := Estimate(mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core}, plan: {data_parallel: zero1}, train: {precision: bf16}}", gpus)), Options{Detail: true})
		require.NoError(t, err)
		for _, c := range r.Detail.Collectives {
			if c.Kind == "reduce-scatter" {
				largest, calls = max(largest, c.Bytes), calls+c.Count
			}
		}
		return
	}
	const embedding = 32000 * 4096 // the largest parameter, which may come on top
	for _, x := range []struct {
		gpus   int
		values units.Bytes
	}{{8, 40e6}, {64, 64e6}, {512, 512e6}} {
		got, calls := at(x.gpus)
		require.GreaterOrEqual(t, got, 4*x.values, x.gpus)
		require.Less(t, got, 4*(x.values+embedding), x.gpus)
		require.InDelta(t, 6.74e9/float64(x.values), float64(calls), 0.6*6.74e9/float64(x.values), x.gpus)
	}
}
