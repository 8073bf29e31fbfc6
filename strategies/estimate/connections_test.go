package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// packed is Nemotron 3 Nano as it was first trained on packed sequences on 64 GH200, with more
// of its runtime (GeodesicResearch/geodesic-megatron, docs/investigations/
// nano30b-sft-perf-campaign.md). Traces of E-006 say what is exposed of a step: 0.79 s of
// reductions, 1.31 of gathers, 0.12 where these run beside the forward pass.
func packed(t *testing.T, runtime string) float64 {
	r := predicted(t, fmt.Sprintf(`{model: nemotron-3-nano-30b-a3b, hardware: isambard-gh200, gpus: 64,
		runtime: {recipe: megatron-script, release: "26.04", expert_gemm: torch, fused_cross_entropy: false, cuda_graphs: none, %s},
		plan: {tp: 1, cp: 2, dp: 32, ep: 4, data_parallel: zero1, bucket: 488.3 MiB},
		train: {sequence_length: 32768, document_length: 5461, micro_batch: 1, grad_accumulation: 2, precision: bf16, dtypes: {scan: fp32, gradients: fp32, reduce: fp32, moments: bf16}, routing: learned, recompute: full}}`, runtime))
	return float64(r.Exposed["dp"])
}

// TestOneConnection: experts of a layer fill two buckets, of which the second holds up what is
// launched behind it.
func TestOneConnection(t *testing.T) {
	several, one := packed(t, "overlap_param_gather: true, one_connection: false"), packed(t, "overlap_param_gather: true, one_connection: true")
	require.InDelta(t, 0.79+0.12, one, 0.1)
	require.Less(t, several, 0.7*one)
}
