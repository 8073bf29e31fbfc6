package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestReplicasOverlap: exchanges of replicas that run beside compute take less of a step
// than those that wait for it, each of the two by itself. Stages of one chunk gather their
// parameters in turn where that runs beside compute, else all at once.
func TestReplicasOverlap(t *testing.T) {
	for _, plan := range []string{"dp: 16", "tp: 4, dp: 4", "pp: 4, dp: 4", "pp: 4, dp: 4, virtual_stages: 2"} {
		of := func(reduce, gather bool) units.Seconds {
			return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3-8b, hardware: h100-sxm, gpus: 16, runtime: {overlap_grad_reduce: %v, overlap_param_gather: %v}, plan: {%s}, train: {micro_batch: 1, grad_accumulation: 4}}", reduce, gather, plan))).StepTime
		}
		late, reduced, both := of(false, false), of(true, false), of(true, true)
		require.Less(t, reduced, late, plan)
		if plan == "pp: 4, dp: 4" {
			require.Less(t, reduced, both, plan)
			continue
		}
		require.Less(t, both, reduced, plan)
	}
}
