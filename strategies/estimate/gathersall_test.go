package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGathersAll: the optimizer of experts gathers what that of all else has gathered, too, where
// nothing runs beside: 118 collectives of 19.09 billion values in the traces of packed, which
// has 9.55 billion, and 59 in the forward pass.
func TestGathersAll(t *testing.T) {
	more := packed(t, "overlap_param_gather: false") - packed(t, "overlap_param_gather: true")
	require.InEpsilon(t, 1.31-0.12, more, 0.2)
	for _, c := range []struct {
		plan, runtime string
		want          int64
	}{
		{"ep: 8", "overlap_param_gather: false", 2},
		{"ep: 8", "overlap_param_gather: true", 1},
		{"ep: 1", "overlap_param_gather: false", 1},
		{"ep: 8", "overlap_param_gather: false, release: '24.09'", 1},
	} {
		r, err := Estimate(mustParse(t, fmt.Sprintf("{model: mixtral-8x7b, hardware: h100-sxm, gpus: 64, runtime: {recipe: megatron-script, %s}, plan: {%s, tp: 1, pp: 1, data_parallel: zero1}}", c.runtime, c.plan)), Options{Detail: true})
		require.NoError(t, err)
		for _, x := range r.Detail.Collectives {
			if x.Kind == "all-gather" && x.Group == "dp" {
				require.Equal(t, c.want, x.Count, "%v", c)
			}
		}
	}
}
