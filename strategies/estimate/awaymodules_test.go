package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory"
)

// modules is a job of Mixtral 8x7B's shape, of 8 layers, whose modules leave to the host what they save.
func modules(t *testing.T, link, plan, train string) *Result {
	t.Helper()
	const model = "{model_type: decoder, hidden_size: 4096, num_hidden_layers: 8, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 14336, gated_mlp: true, vocab_size: 32000, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 14336}"
	return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: {inherits: h100-sxm, gpu: {pcie: %s}}, gpus: 8, plan: {%s}, train: {sequence_length: 4096, micro_batch: 1, %s}}", model, link, plan, train)))
}

// TestModulesMemory: a GPU has so much less as all layers but the last keep of the modules, and
// the host has that of all ranks; no kernel is another.
func TestModulesMemory(t *testing.T) {
	const plan = "dp: 8, ep: 8, data_parallel: %s"
	for _, kind := range []string{"zero1", "fsdp1"} {
		for _, names := range []string{"moe_act", "core_attn, attn_proj", "qkv_linear", "expert_fc1, moe_act, mlp_norm"} {
			run := func(more string) *Result {
				return modules(t, "450 GB/s", fmt.Sprintf(plan, kind), "grad_accumulation: 2"+more)
			}
			here, away := run(""), run(", offload_modules: ["+names+"]")
			var e Evaluator
			m, err := e.prepare(away.Job)
			require.NoError(t, err)
			u := m.units[1]
			var copied, freed units.Bytes
			sizes := map[int32]units.Bytes{u.InputStore: u.Input}
			for _, ev := range u.Forward.Events {
				sizes[ev.Store] = max(ev.Bytes, sizes[ev.Store])
			}
			for _, trip := range u.Forward.Trips {
				copied += trip.Bytes
				for _, s := range trip.Stores {
					freed += sizes[s]
				}
			}
			require.InDelta(t, 7, float64((here.Memory.PeakAllocated-away.Memory.PeakAllocated)/freed), 0.1, "%s: %s", kind, names)
			require.Equal(t, 8*7*copied, away.Memory.Host, names)
			require.Less(t, float64(away.Memory.By[memory.Activations]), float64(here.Memory.By[memory.Activations]))
			require.InEpsilon(t, here.HFU*float64(here.StepTime), away.HFU*float64(away.StepTime), 1e-12, "%s: FLOPs", names)
			floor, err := new(Evaluator).FloorPeak(away.Job)
			require.NoError(t, err)
			require.LessOrEqual(t, floor, away.Memory.DeviceUsed)
			least := run(", offload_modules: [" + names + "], min_offloaded_tensor_size: 1000000000")
			require.Equal(t, here.Memory.PeakAllocated, least.Memory.PeakAllocated, "nothing is as large")
			require.Zero(t, least.Memory.Host)
			half := run(", offload_modules: [" + names + "], activation_offload_fraction: 0.5")
			require.InDelta(t, 4, float64((here.Memory.PeakAllocated-half.Memory.PeakAllocated)/freed), 0.1, names)
		}
	}
}

// TestModulesTime: copies cost nothing where the link carries them beside the kernels, and set the
// pace of both passes where it does not, when what is late to leave is still on the GPU as the
// backward pass begins.
func TestModulesTime(t *testing.T) {
	const plan, train, goes = "dp: 8, ep: 8, data_parallel: zero1", "grad_accumulation: 2", ", offload_modules: [moe_act, expert_fc1]"
	here, fast, slow := modules(t, "450 GB/s", plan, train), modules(t, "450 GB/s", plan, train+goes), modules(t, "8 GB/s", plan, train+goes)
	require.InEpsilon(t, float64(here.StepTime), float64(fast.StepTime), 0.01, "but for the power of copies, which the clock is lower by")
	require.Zero(t, fast.Exposed["host"])
	law := slow.Job.Hardware.Laws.Offload
	copies := 2 * float64(slow.Memory.Host) / 8 / 8e9 * (1/law.ToHost + 1/law.ToDevice)
	require.Greater(t, float64(slow.StepTime), copies)
	require.InEpsilon(t, copies, float64(slow.StepTime), 0.25)
	require.Greater(t, float64(slow.Exposed["host"]), 0.5*copies)
	require.InDelta(t, 1, float64(slow.Parts.Total()/slow.StepTime), 1e-9)
	require.Greater(t, slow.Memory.PeakAllocated, fast.Memory.PeakAllocated)
	require.LessOrEqual(t, slow.Memory.PeakAllocated, here.Memory.PeakAllocated)
	require.Equal(t, fast.Memory.Host, slow.Memory.Host)
}

// TestModulesLaws: to leave something to the host never takes more of a GPU's memory nor less time,
// under pipelines too, whose stages have several micro batches there.
func TestModulesLaws(t *testing.T) {
	for _, plan := range []string{"dp: 8, ep: 8, data_parallel: zero1", "tp: 2, dp: 2, pp: 2, ep: 4, data_parallel: zero1", "dp: 4, pp: 2, virtual_stages: 2, ep: 4, data_parallel: zero1", "dp: 8, ep: 4, data_parallel: fsdp1"} {
		for _, recompute := range []string{"none", "selective, recompute_modules: [moe_act, layernorm]"} {
			train := "grad_accumulation: 4, recompute: " + recompute
			here := modules(t, "63 GB/s", plan, train)
			before := here
			for _, names := range []string{"moe_act", "moe_act, core_attn", "moe_act, core_attn, attn_proj", "moe_act, core_attn, attn_proj, qkv_linear, mlp_norm, expert_fc1"} { // ever more
				for _, link := range []string{"450 GB/s", "63 GB/s", "10 GB/s"} { // ever slower
					r := modules(t, link, plan, train+", offload_modules: ["+names+"]")
					text := fmt.Sprintf("%s; %s; %s at %s", plan, recompute, names, link)
					require.LessOrEqual(t, r.Memory.PeakAllocated, here.Memory.PeakAllocated, text)
					require.GreaterOrEqual(t, float64(r.StepTime), float64(here.StepTime)*(1-1e-9), text)
					require.InDelta(t, 1, float64(r.Parts.Total()/r.StepTime), 1e-9, text)
					require.Greater(t, r.Memory.Host, units.Bytes(0), text)
					if link == "450 GB/s" {
						require.LessOrEqual(t, r.Memory.PeakAllocated, before.Memory.PeakAllocated, text)
						require.GreaterOrEqual(t, r.Memory.Host, before.Memory.Host, text)
						before = r
					}
				}
			}
		}
	}
}

// TestModulesOfPipelines: a stage in front of others has what the modules of all its layers save on
// the host, of each micro batch in flight.
func TestModulesOfPipelines(t *testing.T) {
	const plan = "dp: 2, pp: 4, ep: 2, data_parallel: zero1"
	r := modules(t, "450 GB/s", plan, "grad_accumulation: 8, offload_modules: [moe_act]")
	var e Evaluator
	m, err := e.prepare(r.Job)
	require.NoError(t, err)
	require.Len(t, m.units[1].Forward.Trips, 1)
	require.Equal(t, 8*4*2*m.units[1].Forward.Trips[0].Bytes, r.Memory.Host, "four micro batches of two layers")
}
