package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestOwnClasses: what norms of AutoModel's own Llama take by its release, and of transformers', in us of 4,096 rows of
// 8,192. rmsnorm_fwd_tuned_kernel and its gradient took 61 to 64 and 120 to 125 on H100, gradient and sum of weights'
// together 126 to 131 (Nsight traces of Llama 3.1 70B by NeMo AutoModel and Megatron-FSDP, 2026-04-10).
func TestOwnClasses(t *testing.T) {
	const text = `{model: llama3.1-70b, hardware: h100-sxm, gpus: 64, runtime: {recipe: automodel, attention: flash-attn, release: "%s"%s}, plan: {cp: 2, dp: 32, data_parallel: fsdp2},
train: {sequence_length: 8192, micro_batch: 1, grad_accumulation: 4, recompute: none}}`
	norms := func(release, runtime string) (forward, backward float64, kernels int) {
		r, err := Estimate(mustParse(t, fmt.Sprintf(text, release, runtime)), Options{Detail: true})
		require.NoError(t, err)
		for _, u := range r.Detail.Units {
			if u.Name != "layer" {
				continue
			}
			sum := func(ops []OpDetail) (total units.Seconds) {
				for _, o := range ops {
					if o.Op.Module == "norm" && strings.HasPrefix(o.Op.Prim, "norm") {
						total += o.Loaded // NCCL runs beside them in these traces
						kernels++
					}
				}
				return
			}
			return float64(sum(u.Forward)) * 1e6 / 2, float64(sum(u.Backward)) * 1e6 / 2, kernels
		}
		t.Fatal("no layer")
		return
	}
	forward, backward, _ := norms("26.03", "")
	require.InEpsilon(t, 62, forward, 0.15) // beside NCCL there
	require.InEpsilon(t, 128, backward, 0.15)
	compiled, _, kernels := norms("26.04", "")
	require.Less(t, compiled, forward)
	require.Positive(t, kernels)
	for _, c := range [][2]string{{"26.01", ""}, {"26.04", ", liger_kernels: false"}} { // transformers', a kernel for each operation
		_, _, kernels := norms(c[0], c[1])
		require.Zero(t, kernels, "%v", c)
	}
}
