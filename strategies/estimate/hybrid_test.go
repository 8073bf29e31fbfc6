package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

const hybrid = `{model: nemotron-3-nano-30b-a3b, hardware: b200-sxm, gpus: 8, runtime: {recipe: megatron-core%s}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 2, grad_accumulation: 4, precision: bf16}}`

// TestBlocksAlone: a layer of a hybrid model is one block with its norm and its sum, and
// layers of a kind are built once.
func TestBlocksAlone(t *testing.T) {
	m := ops.Build(config(mustParse(t, fmt.Sprintf(hybrid, "", "ep: 8"))))
	require.Len(t, m.Kinds, 3)
	modules := map[string]map[string]bool{}
	for i := range m.Kinds {
		u := &m.Kinds[i]
		modules[u.Name] = map[string]bool{}
		for _, s := range []*tape.Section{&u.Forward, &u.Backward} {
			for j := range s.Ops {
				modules[u.Name][s.Ops[j].Module] = true
			}
		}
	}
	for name, has := range map[string][3]bool{"mamba layer": {true, false, false}, "attention layer": {false, true, false}, "experts alone": {false, false, true}} {
		require.NotNil(t, modules[name], name)
		for i, module := range []string{"mamba", "attention", "experts"} {
			require.Equal(t, has[i], modules[name][module], "%s: %s", name, module)
		}
		require.True(t, modules[name]["residual"], name)
	}
	require.Equal(t, m.Layers[0], m.Layers[2])
	require.NotEqual(t, m.Layers[0], m.Layers[1])
}

// TestMixersCut: tensor and context ranks share a mixer's heads; what it keeps and computes
// falls with them, and context ranks exchange positions for heads before and after it.
func TestMixersCut(t *testing.T) {
	scan := func(plan string) (work, exchanged float64, kinds int) {
		m := ops.Build(config(mustParse(t, strings.Replace(fmt.Sprintf(hybrid, "", plan), "gpus: 8", "gpus: 16", 1))))
		for i := range m.Kinds {
			for _, s := range []*tape.Section{&m.Kinds[i].Forward, &m.Kinds[i].Backward} {
				for j := range s.Ops {
					switch o := &s.Ops[j]; {
					case o.Module == "mamba" && o.Class == tape.Scan:
						work += float64(o.Bytes)
					case o.Module == "mamba" && o.Comm != nil && o.Comm.Group == "cp":
						exchanged += float64(o.Comm.Bytes)
						kinds++
					}
				}
			}
		}
		return work, exchanged, kinds
	}
	one, none, _ := scan("ep: 8")
	require.Zero(t, none)
	half, _, _ := scan("tp: 2, sequence_parallel: true, ep: 4")
	require.InEpsilon(t, one/2, half, 0.01)
	quarter, exchanged, n := scan("cp: 4, ep: 8")
	require.InEpsilon(t, one/4, quarter, 0.01)
	require.Equal(t, 12, n, "gates, inputs, B, C and steps, and outputs, forward and backward")
	require.InEpsilon(t, 2*2*2*4096/4*float64(10304+4096), exchanged, 0.01, "what both projections have, of a quarter of the positions, both ways")
	_, copied, n := scan("cp: 8, ep: 8")
	require.Equal(t, 12, n)
	require.InEpsilon(t, exchanged/2, copied, 0.01, "eight groups of heads: one each")
	_, copied, _ = scan("cp: 16, ep: 8")
	require.InEpsilon(t, 2*2*2*4096/16*float64(10304+2*8*128+4096), copied, 0.01, "two ranks have heads of one group, and B and C of it")
}

// TestMixersPlaceDocuments: context ranks put positions of packed documents in order by lists
// of rows, one for each of them, and take them back by one (mamba_context_parallel.py,
// _undo_attention_load_balancing and _redo_attention_load_balancing).
func TestMixersPlaceDocuments(t *testing.T) {
	count := func(more string) map[string]int {
		packed := strings.Replace(fmt.Sprintf(hybrid, "", "cp: 4, ep: 8"), "micro_batch: 2", "micro_batch: 1"+more, 1)
		m := ops.Build(config(mustParse(t, packed)))
		n := map[string]int{}
		for i := range m.Kinds {
			for k, s := range []*tape.Section{&m.Kinds[i].Forward, &m.Kinds[i].Backward} {
				for j := range s.Ops {
					if o := &s.Ops[j]; o.Module == "mamba" {
						n[fmt.Sprintf("%s %d", o.Prim, k)]++
					}
				}
			}
		}
		return n
	}
	one, packed := count(""), count(", document_length: 512")
	for prim, want := range map[string][2]int{
		"index_put_ 0": {0, 4}, "index_put_ 1": {0, 3}, "gather 1": {0, 4}, "copy 1": {0, 3}, "fill_ 1": {0, 5}, "add_ 1": {0, 3},
		"index_select 0": {0, 1}, "index_add_ 1": {0, 1}, "reorder 0": {8, 6}, "cat 0": {1, 1}, "cat 1": {1, 1},
	} {
		require.Equal(t, want, [2]int{one[prim], packed[prim]}, prim)
	}
}

// TestWideScans: mixers that scan in fp32 cast and scan once more in the backward pass, and keep
// 1.4 GB less for it: of 64 GH200 champions of geodesic-megatron take 6.03 s without and 6.49 s
// with it, at 75.40 and 73.86 GB (nano30b-pretrain-perf-campaign.md, E-018 and E-022).
func TestWideScans(t *testing.T) {
	const champion = `{model: nemotron-3-nano-30b-a3b, hardware: isambard-gh200, gpus: 64,
		runtime: {recipe: megatron-script, release: "26.04", token_dispatcher: alltoall, router_fusion: false, expert_gemm: torch, fused_cross_entropy: false, cuda_graphs: none},
		plan: {ep: 4, data_parallel: zero1, bucket: 1907.3 MiB},
		train: {sequence_length: 8192, micro_batch: 1, grad_accumulation: 8, precision: bf16, dtypes: {gradients: bf16, reduce: bf16, moments: bf16%s}, recompute: selective, recompute_modules: [moe_act]}}`
	low, wide := mustParse(t, fmt.Sprintf(champion, "")), mustParse(t, fmt.Sprintf(champion, ", scan: fp32"))
	count := func(j *strategies.Job) (scans, casts, again int) {
		m := ops.Build(config(j))
		for i := range m.Kinds {
			for _, s := range []*tape.Section{&m.Kinds[i].Forward, &m.Kinds[i].Backward} {
				for k := range s.Ops {
					switch o := &s.Ops[k]; {
					case o.Module != "mamba":
					case o.Prim == "to":
						casts++
					case o.Prim == "scan" && o.Phase == tape.Recompute:
						again++
					case o.Prim == "scan":
						scans++
					}
				}
			}
		}
		return scans, casts, again
	}
	scans, casts, again := count(low)
	require.Zero(t, casts)
	require.Zero(t, again)
	wideScans, casts, again := count(wide)
	require.Equal(t, scans, wideScans)
	require.Equal(t, scans, again)
	require.Equal(t, 5, casts, "of what is scanned, made again, and its gradient; of what comes out, and its gradient")
	a, b := mustEstimate(t, low), mustEstimate(t, wide)
	require.InDelta(t, 6.494-6.028, float64(b.StepTime-a.StepTime), 0.1)
	require.InDelta(t, 75.40-73.86, float64(a.Memory.PeakAllocated-b.Memory.PeakAllocated)/1e9, 0.4)
}

// TestMixerGraphs: mixers that CUDA graphs replay cost the host nothing, routers still do.
func TestMixerGraphs(t *testing.T) {
	host := func(graphs string) float64 {
		short := strings.Replace(fmt.Sprintf(hybrid, ", token_dispatcher: alltoall, cuda_graphs: "+graphs, "ep: 8"), "4096", "512", 1)
		return float64(mustEstimate(t, mustParse(t, short)).Parts.Host)
	}
	none, mixers, layers := host("none"), host("mixers"), host("layers")
	require.Less(t, mixers, none)
	require.Less(t, layers, mixers)
}

// TestSquaredReLUFusion: one kernel in place of four that multiply in fp32.
func TestSquaredReLUFusion(t *testing.T) {
	step := func(more string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(hybrid, more, "ep: 8"))).StepTime)
	}
	apart := step("")
	require.Equal(t, apart, step(", squared_relu_fusion: false"))
	require.Less(t, step(", squared_relu_fusion: true"), 0.95*apart)
}

// TestLatentExperts: experts that read latents exchange rows of their width, not the hidden one.
func TestLatentExperts(t *testing.T) {
	rows := func(model string) (sent float64) {
		m := ops.Build(config(mustParse(t, `{model: `+model+`, hardware: gb200-nvl72, gpus: 64, runtime: {recipe: megatron-core, token_dispatcher: alltoall}, plan: {ep: 64, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, precision: bf16}}`)))
		for i := range m.Kinds {
			for j := range m.Kinds[i].Forward.Ops {
				if o := &m.Kinds[i].Forward.Ops[j]; o.Comm != nil && o.Comm.Kind == "all-to-all" {
					sent = max(sent, float64(o.Comm.Bytes))
				}
			}
		}
		return sent
	}
	require.InEpsilon(t, 4096*22*1024*2, rows("nemotron-3-super-120b-a12b"), 0.02)
}
