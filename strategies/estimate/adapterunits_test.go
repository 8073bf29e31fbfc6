package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestAdapterUnits: FSDP1 has the two matrices of each adapter as units of their own, around which
// hosts run hooks and behind which they wait for the device, in either pass and where layers are
// computed again. FSDP2 and a job that says so have them with their layer, which then is sooner done.
func TestAdapterUnits(t *testing.T) {
	const text = "{model: llama3-8b, hardware: h200-sxm, gpus: 2, runtime: {recipe: hf-eager}, plan: {data_parallel: %s}, train: {sequence_length: 512, micro_batch: 1, precision: bf16-frozen, recompute: %s, lora: {rank: 16, targets: %s}}}"
	step := map[string]float64{}
	for _, c := range []struct {
		plan, recompute, targets   string
		forward, backward, repeats int // pairs of matrices in a layer
	}{
		{"fsdp1", "none", "[attention, mlp]", 7, 7, 0},
		{"fsdp1", "full", "[attention, mlp]", 7, 7, 7},
		{"fsdp1", "none", "[q, v]", 2, 2, 0},
		{"fsdp1, adapter_units: false", "none", "[attention, mlp]", 0, 0, 0},
		{"fsdp2", "none", "[attention, mlp]", 0, 0, 0},
	} {
		j := mustParse(t, fmt.Sprintf(text, c.plan, c.recompute, c.targets))
		layer := ops.Build(config(j)).Kinds[0]
		units, waits := map[string]int{}, 0
		for _, s := range []*tape.Section{&layer.Forward, &layer.Backward} {
			for i := range s.Ops {
				units[s.Ops[i].Prim]++
				if s.Ops[i].Sync {
					waits++
				}
			}
		}
		require.Equal(t, [3]int{c.forward, c.backward, c.repeats}, [3]int{units["adapter_units"], units["adapter_units_backward"], units["adapter_units_again"]}, c)
		require.Equal(t, c.forward+c.backward+max(c.repeats-1, 0), waits, "%v: the last one has nothing behind it that is computed again", c)
		r, err := Estimate(j, Options{})
		require.NoError(t, err)
		step[c.plan+c.recompute+c.targets] = float64(r.StepTime)
	}
	megatron := mustParse(t, "{model: llama3-8b, hardware: h200-sxm, gpus: 2, runtime: {recipe: megatron-core}, plan: {data_parallel: fsdp1}, train: {sequence_length: 512, micro_batch: 1, precision: bf16, lora: {rank: 16}}}")
	require.False(t, megatron.AdapterUnits(), "Megatron-FSDP's units are layers")
	require.Greater(t, step["fsdp1none[attention, mlp]"], 3*step["fsdp1, adapter_units: falsenone[attention, mlp]"])
}

// TestAdapterUnitsCopies: what is saved of a layer that is not recomputed has, under FSDP1, a copy of what each adapter
// reads from the first step, when shards of adapters in fp32 were not yet gathered in bf16: 1.07 of the 18.8 GB of
// h200x2-au-p1. Adapters in bf16 have none.
func TestAdapterUnitsCopies(t *testing.T) {
	const tokens, hidden, ffn, layers = 2 * 512, 4096, 14336, 32
	of := func(precision string) float64 {
		j := mustParse(t, "{model: llama3-8b, hardware: h200-sxm, gpus: 2, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp1}, train: {sequence_length: 512, micro_batch: 2, precision: "+precision+", lora: {rank: 16}}}")
		return float64(mustEstimate(t, j).Memory.By[memory.Activations])
	}
	// Six inputs of hidden and one of ffn elements, in place of the outputs of two norms and of the gated product; attention's output is saved in any case.
	copies := float64(2 * tokens * layers * (6*hidden + ffn - 2*hidden - ffn))
	require.InEpsilon(t, copies, of("bf16-frozen")-of("bf16-pure"), 0.02)
	require.InEpsilon(t, of("bf16-pure"), of("bf16-frozen, dtypes: {adapters: bf16}"), 0.01)
}
