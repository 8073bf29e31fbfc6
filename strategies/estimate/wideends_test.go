package estimate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestWideEnds: layers at either end of the model multiply in 16 bits, quantize nothing, keep no
// quantized weights and are gathered in 16 bits; others are as they were. A step of layers that all
// do is one in bf16, but for its gradients.
func TestWideEnds(t *testing.T) {
	const text = "{model: llama3-8b, hardware: b200-sxm, gpus: 8, runtime: {recipe: megatron-core, release: '25.11'}, plan: {tp: 1, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, global_batch: 32, "
	of := func(train string) *Result { return mustEstimate(t, mustParse(t, text+train+"}}")) }
	narrow, ends, all := of("precision: mxfp8"), of("precision: mxfp8, num_layers_at_start_in_bf16: 2, num_layers_at_end_in_bf16: 6"), of("precision: mxfp8, num_layers_at_end_in_bf16: 32")
	wide := of("precision: bf16, dtypes: {gradients: bf16, reduce: bf16}")
	require.InEpsilon(t, float64(wide.StepTime), float64(all.StepTime), 0.005)
	require.InEpsilon(t, float64(narrow.StepTime)+(float64(all.StepTime)-float64(narrow.StepTime))*8/32, float64(ends.StepTime), 0.02)

	copies := func(r *Result) float64 { return float64(r.Memory.By[memory.WeightCopies]) }
	require.InEpsilon(t, copies(narrow)*24/32, copies(ends), 0.001)
	require.Zero(t, copies(all))

	m := ops.Build(config(mustParse(t, text+"precision: nvfp4, num_layers_at_end_in_bf16: 4}}")))
	require.Equal(t, []string{"layer", "16-bit layer"}, []string{m.Kinds[0].Name, m.Kinds[1].Name})
	require.Equal(t, []int{0, 0, 1, 1, 1, 1}, m.Layers[26:])
	for k, narrow := range []bool{true, false} {
		products := 0
		for _, s := range []*tape.Section{&m.Kinds[k].Forward, &m.Kinds[k].Backward} {
			for i := range s.Ops {
				if s.Ops[i].Class == tape.GEMM {
					require.Equal(t, narrow, s.Ops[i].DType.Narrow(), "%v", s.Ops[i])
					products++
				}
			}
		}
		require.GreaterOrEqual(t, products, 12)
	}
	both := ops.Build(config(mustParse(t, text+"precision: mxfp8, num_layers_at_end_in_bf16: 1, recompute: full, recompute_method: uniform, recompute_num_layers: 2}}")))
	dtypes := map[tape.DType]bool{}
	for i := range both.Kinds[1].Forward.Ops {
		if o := &both.Kinds[1].Forward.Ops[i]; o.Class == tape.GEMM {
			dtypes[o.DType] = true
		}
	}
	require.Equal(t, map[tape.DType]bool{tape.MXFP8: true, tape.BF16: true}, dtypes, "of two layers that are recomputed together the last is wide")
}
