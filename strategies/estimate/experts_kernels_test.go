package estimate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
)

// atFullClock is the time of a kernel that does not multiply matrices at the highest clock, where profiles of single
// modules are taken.
func atFullClock(r *Result, o OpDetail) units.Seconds {
	m := &machine{hardware: r.Job.Hardware}
	at := m.at(float64(r.Clock / r.Job.Hardware.GPU.TopClock()))
	return o.Time / units.Seconds(at.slower[workOf(o.Op.Class)])
}

// Megatron-Core's experts add the bias behind their second GEMM in 2079 us and pass back
// through it in 2867 us on an H200: 8 experts, 65536 rows of 2880 (profile of
// TEGroupedMLP._apply_bias of core_v0.15, PyTorch 2.11).
func TestExpertBias(t *testing.T) {
	r, err := Estimate(mustParse(t, `{model: gpt-oss-20b, hardware: h200-sxm, gpus: 4, runtime: {recipe: megatron-core},
		plan: {ep: 4}, train: {sequence_length: 4096, micro_batch: 4, grad_accumulation: 1, expert_imbalance: 1, precision: bf16, recompute: none}}`), Options{Detail: true})
	require.NoError(t, err)
	for _, u := range r.Detail.Units {
		if u.Name != "moe layer" {
			continue
		}
		sum := func(ops []OpDetail) (total units.Seconds) {
			for _, o := range ops {
				// what TestScaledRotaryAndClamps holds
				clamps := slices.Contains([]string{"clamp", "compare", "logical_and", "where", "fill_"}, o.Op.Prim) || o.Op.Prim == "cat" && o.Op.Elements > 65536*2880
				if o.Op.Module != "experts" || clamps {
					continue
				}
				switch o.Op.Class {
				case tape.StridedCast, tape.UnrolledMix, tape.Strided4, tape.Unrolled, tape.Vectorized, tape.RowReduce, tape.ColReduce:
					total += atFullClock(r, o)
				}
			}
			return
		}
		require.InEpsilon(t, 2079e-6, float64(sum(u.Forward)), 0.05)
		require.InEpsilon(t, 2867e-6, float64(sum(u.Backward)), 0.05)
		return
	}
	t.Fatal("no layer of experts")
}

// TestExpertKernels: 16 experts of Qwen3 235B on one H100, 4096 tokens, both passes of a layer
// (Megatron-Core core_v0.15 and Transformer Engine 2.9 in 8 bits with one scale, and 128 of
// Qwen3 30B in bf16; profiles of 2026-11-23), in us: casts of rows without their scales, the
// permutation, padding and order of chunks, the activation and the gradient of probabilities.
func TestExpertKernels(t *testing.T) {
	for _, c := range []struct {
		text                             string
		casts, permuted, activation, sum float64
	}{
		{`{hidden_size: 4096, num_hidden_layers: 3, num_attention_heads: 64, num_key_value_heads: 4, intermediate_size: 12288, num_experts: 16, num_experts_per_tok: 8, moe_intermediate_size: 1536, %s}, train: {precision: fp8, `, 1283, 421 + 795 + 721, 321, 105},
		{`{hidden_size: 2048, num_hidden_layers: 4, num_attention_heads: 32, num_key_value_heads: 4, intermediate_size: 6144, num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: 768, %s}, train: {`, 0, 219 + 356, 0, 0},
	} {
		r, err := Estimate(mustParse(t, "{model: "+fmt.Sprintf(c.text, "model_type: decoder, gated_mlp: true, vocab_size: 32768, tie_word_embeddings: false, head_dim: 128, qk_norm: head")+
			`sequence_length: 4096, micro_batch: 1, grad_accumulation: 2, dtypes: {gradients: bf16, reduce: bf16}}, hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core, release: 25.11}, plan: {dp: 1, data_parallel: zero1}}`), Options{Detail: true})
		require.NoError(t, err)
		var casts, permuted, activation, sum float64
		for _, u := range r.Detail.Units {
			for _, o := range append(u.Forward, u.Backward...) {
				us := float64(o.Time / units.Seconds(1e-6))
				switch o.Op.Prim {
				case "grouped_quantize":
					casts += us
				case "permute", "permute_backward", "unpermute", "unpermute_backward":
					permuted += us
				case "glu", "glu_backward":
					activation += us
				case "glu_row_sum":
					sum += us
				}
			}
		}
		require.InEpsilon(t, c.permuted, permuted, 0.15)
		if c.casts > 0 { // the compiler's activation of 768 values takes twice as long as that of 1536
			require.InEpsilon(t, c.casts, casts, 0.15)
			require.InEpsilon(t, c.activation, activation, 0.2)
			require.InEpsilon(t, c.sum, sum, 0.15)
		}
	}
}

// TestExpertScales: with one scale for all, the rows of each expert are cast after three tiny
// kernels, for two products in either pass (the profile of TestExpertKernels); of blocks or
// with scales of the steps before there are none.
func TestExpertScales(t *testing.T) {
	tiny := func(precision, release string) (n int32) {
		built, err := build(new(ops.Cache), mustParse(t, fmt.Sprintf("{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, release: %q}, plan: {ep: 8}, train: {sequence_length: 4096, micro_batch: 1, precision: %s, recompute: none}}", release, precision)))
		require.NoError(t, err)
		for _, o := range append(built.Kinds[0].Forward.Ops, built.Kinds[0].Backward.Ops...) {
			if o.Prim == "grouped_scales" {
				n += o.Count
			}
		}
		return
	}
	require.EqualValues(t, 3*16*4, tiny("fp8", "26.02"))
	require.Zero(t, tiny("fp8", "25.06"), "delayed scaling")
	require.Zero(t, tiny("fp8-block", "26.02"))
}

// TestScanMap: Hybrid-EP gathers the routing map of all ranks, a byte for each pair of token
// and expert, once a layer, and scans it; DeepEP counts rows. The scan
// of 34 and 67 MB takes 106 and 143 us on an H100.
func TestScanMap(t *testing.T) {
	mapped := func(gpus int, dispatcher string) (gathered units.Bytes) {
		built, err := build(new(ops.Cache), mustParse(t, fmt.Sprintf("{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core, token_dispatcher: %s}, plan: {ep: %d}, train: {sequence_length: 4096, micro_batch: 1, precision: bf16, recompute: none}}", gpus, dispatcher, gpus)))
		require.NoError(t, err)
		for _, o := range append(built.Kinds[0].Forward.Ops, built.Kinds[0].Backward.Ops...) {
			if o.Class == tape.Collective && o.Comm.Kind == "all-gather" {
				gathered += o.Comm.Bytes
			}
		}
		return
	}
	require.Equal(t, units.Bytes(8*4096*128), mapped(8, strategies.HybridEPDispatcher))
	require.Equal(t, units.Bytes(16*4096*128), mapped(16, strategies.HybridEPDispatcher))
	require.Zero(t, mapped(16, strategies.DeepEPDispatcher))
	require.Zero(t, mapped(16, strategies.FlexDispatcher), "DeepEP but in a rack")

	p, err := hardware.Load("h100-sxm")
	require.NoError(t, err)
	timer, err := kernel.New(p)
	require.NoError(t, err)
	for experts, want := range map[int64]float64{128: 106e-6, 256: 143e-6} {
		scan := tape.New()
		scan.ScanMap(64, 4096, experts)
		ops := scan.Cut(tape.Backward).Ops
		require.InEpsilon(t, want, float64(timer.Time(&ops[1])), 0.3)
	}
}

// TestExpertLayers: a layer of experts on 8 H100, 4096 tokens each, routed evenly, without a gate
// (Megatron-LM tests/functional_tests/test_cases/common/moe_perf, baseline.json: ms forward and
// backward, the mean of 20 runs, each behind a long kernel that lets the host run ahead).
func TestExpertLayers(t *testing.T) {
	models := map[string]string{
		"mixtral":  "hidden_size: 4096, intermediate_size: 14336, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 14336",
		"deepseek": "hidden_size: 7168, intermediate_size: 2048, num_experts: 32, num_experts_per_tok: 8, n_group: 8, topk_group: 4, moe_intermediate_size: 2048, n_shared_experts: 1",
	}
	for _, c := range []struct {
		model, dispatcher, precision string
		forward, backward            float64
	}{
		{"deepseek", "alltoall", "bf16", 7.12, 10.48},
		{"deepseek", "deepep", "bf16", 5.68, 9.06},
		{"deepseek", "hybridep", "bf16", 5.39, 8.80},
		{"mixtral", "alltoall", "bf16", 4.33, 7.68},
		{"mixtral", "deepep", "bf16", 4.64, 7.85},
		{"mixtral", "hybridep", "bf16", 4.34, 7.74},
		{"deepseek", "alltoall", "fp8-block", 7.61, 10.13},
		{"deepseek", "deepep", "fp8-block", 6.03, 8.60},
		{"deepseek", "hybridep", "fp8-block", 5.14, 7.69},
		{"mixtral", "alltoall", "fp8-block", 3.79, 6.62},
		{"mixtral", "deepep", "fp8-block", 4.10, 6.83},
		{"mixtral", "hybridep", "fp8-block", 3.70, 6.57},
	} {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, num_hidden_layers: 1, num_attention_heads: 8, num_key_value_heads: 8, head_dim: 128, gated_mlp: false, activation: gelu, vocab_size: 1024, %s},
			hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, token_dispatcher: %s, ep_overlap: false, cuda_graphs: none}, plan: {ep: 8, data_parallel: zero1},
			train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 1, precision: %s}}`, models[c.model], c.dispatcher, c.precision)), Options{Detail: true})
		require.NoError(t, err)
		of := func(ops []OpDetail) (ms float64) {
			for _, o := range ops {
				if slices.Contains([]string{"router", "experts", "shared expert"}, o.Op.Module) {
					ms += 1e3 * float64(o.Time)
				}
			}
			return
		}
		u := &r.Detail.Units[slices.IndexFunc(r.Detail.Units, func(u UnitDetail) bool { return u.Name == "moe layer" })]
		require.InEpsilon(t, c.forward, of(u.Forward), 0.1, "%s by %s in %s, forward", c.model, c.dispatcher, c.precision)
		require.InEpsilon(t, c.backward, of(u.Backward), 0.11, "%s by %s in %s, backward", c.model, c.dispatcher, c.precision)
	}
}

// Before core_v0.11 Megatron-Core adds up its experts' rows by scatter_add_, and their
// gradients by index_add_: 132 and 278 us for 8192 rows of 4096 on an H200 (profile of
// permute and unpermute, PyTorch 2.11). Later software has kernels of its own.
func TestUnfusedPermutation(t *testing.T) {
	added := func(release string) (sum units.Seconds) {
		r, err := Estimate(mustParse(t, `{model: mixtral-8x7b, hardware: h200-sxm, gpus: 8, runtime: {recipe: megatron-core, release: `+release+`},
			plan: {ep: 8}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 1, precision: bf16, recompute: none}}`), Options{Detail: true})
		require.NoError(t, err)
		for _, u := range r.Detail.Units {
			for _, o := range append(u.Forward, u.Backward...) {
				if o.Op.Class == tape.AtomicAdd {
					sum += atFullClock(r, o)
				}
			}
		}
		return
	}
	require.InEpsilon(t, 132e-6+278e-6, float64(added("24.12")), 0.05)
	require.Zero(t, added("25.04"))
	require.Zero(t, added("24.12, permute_fusion: true"))
	require.InEpsilon(t, 132e-6+278e-6, float64(added("26.04, permute_fusion: false")), 0.05)
}

// TestUnfusedPermutationWaits: without the fused kernels the host waits for the numbers of rows
// twice a layer, of rows and probabilities, since core_v0.13 before they are sent; before that
// once before and once after the experts, whose probabilities are then applied to what came back.
func TestUnfusedPermutationWaits(t *testing.T) {
	for release, want := range map[string][2]bool{"26.04": {false, true}, "25.04": {true, false}} { // probabilities applied after the experts, and sent with their rows
		built, err := build(new(ops.Cache), mustParse(t, `{model: mixtral-8x7b, hardware: h200-sxm, gpus: 8, runtime: {recipe: megatron-core, permute_fusion: false, release: "`+release+`"},
			plan: {ep: 8}, train: {sequence_length: 4096, micro_batch: 1, precision: bf16}}`))
		require.NoError(t, err)
		waits, sent, products, weighed := 0, 0, 0, false
		for _, o := range built.Kinds[0].Forward.Ops {
			switch {
			case o.Sync:
				waits++
			case o.Class == tape.Collective && o.Comm.Group == "ep":
				sent++
			case o.Class == tape.GroupedGEMM:
				products++
			case o.Module == "experts" && o.Prim == "mul" && products == 2:
				weighed = true
			}
		}
		require.Equal(t, 2, waits, release)
		require.Equal(t, want, [2]bool{weighed, sent == 3}, release)
	}
}

// TestUnfusedRotary: without Megatron's apply_rope_fusion torch turns queries and keys by
// kernels of its own (models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd):
// two products, a sign, a sum and two joins each, of the part that is turned.
func TestUnfusedRotary(t *testing.T) {
	layer := func(model, more string) map[string]int {
		built, err := build(new(ops.Cache), mustParse(t, "{model: "+model+", hardware: h200-sxm, gpus: 8, runtime: {recipe: megatron-core"+more+"}, plan: {tp: 8}}"))
		require.NoError(t, err)
		kernels := map[string]int{}
		for i := range built.Kinds[0].Forward.Ops {
			if o := &built.Kinds[0].Forward.Ops[i]; o.Module == "rotary" && o.Class != tape.NoKernel {
				kernels[o.Prim]++
			}
		}
		return kernels
	}
	require.Equal(t, map[string]int{"rotary": 2}, layer("llama2-7b", ""))
	require.Equal(t, layer("llama2-7b", ""), layer("llama2-7b", ", rope_fusion: true"))
	whole := layer("llama2-7b", ", rope_fusion: false")
	for prim, n := range map[string]int{"mul": 4, "neg": 2, "add": 2, "cat": 4, "rotary": 0} {
		require.Equal(t, n, whole[prim], prim)
	}
	const gpt = "{model_type: decoder, hidden_size: 6144, num_hidden_layers: 32, num_attention_heads: 48, num_key_value_heads: 8, intermediate_size: 24576, gated_mlp: false, position: rope, partial_rotary_factor: %g, vocab_size: 256000}"
	require.Equal(t, whole, layer(fmt.Sprintf(gpt, 0.5), ", rope_fusion: false"))
	step := func(part float64) units.Seconds {
		return mustEstimate(t, mustParse(t, "{model: "+fmt.Sprintf(gpt, part)+", hardware: h200-sxm, gpus: 8, runtime: {recipe: megatron-core, rope_fusion: false}, plan: {tp: 8}, train: {micro_batch: 4}}")).StepTime
	}
	require.Greater(t, float64(step(1)), float64(step(0.5)))
	// The even elements of each head come first, then the odd ones: 52 kernels more in a layer's two passes than with
	// Megatron's own (core_v0.15 on an H100, 2026-11-23), 34 of which a layer without latent attention has.
	kernels := func(model, fusion string) (n int) {
		built, err := build(new(ops.Cache), mustParse(t, "{model: "+model+", hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core"+fusion+"}, plan: {}}"))
		require.NoError(t, err)
		for _, s := range []tape.Section{built.Kinds[0].Forward, built.Kinds[0].Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Class != tape.NoKernel {
					n += int(max(o.Count, 1))
				}
			}
		}
		return
	}
	require.Equal(t, 34, kernels("llama2-7b", ", rope_fusion: false")-kernels("llama2-7b", ""))
	require.InDelta(t, 52, kernels("deepseek-v3", ", rope_fusion: false")-kernels("deepseek-v3", ""), 1)
}

// TestPackedRotary: five documents turned one after another take the kernels that torch runs
// them by (Megatron-LM's _apply_rotary_pos_emb_thd written out, a profiler's trace of an
// H100, PyTorch 2.11, 2026-11-25): 13 forward for each, 11 backward but for the first one,
// and lengths and ends for which the host waits twice.
func TestPackedRotary(t *testing.T) {
	count := func(runtime, train string) (forward, backward, waits int) {
		built, err := build(new(ops.Cache), mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core"+runtime+"}, train: {sequence_length: 2048"+train+"}}"))
		require.NoError(t, err)
		for pass, s := range []*tape.Section{&built.Kinds[0].Forward, &built.Kinds[0].Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Module == "rotary" && o.Class != tape.NoKernel {
					if o.Sync {
						waits++
					}
					if pass == 0 {
						forward++
					} else {
						backward++
					}
				}
			}
		}
		return
	}
	const packed = ", document_length: 400"
	forward, backward, waits := count(`, rope_fusion: false, release: "26.08"`, packed)
	require.Equal(t, []int{2 * (4 + 5*13), 2 * (5*11 - 2 + 1), 4}, []int{forward, backward, waits}, "queries and keys")
	plain, _, none := count(", rope_fusion: false", "")
	require.Zero(t, none)
	gathered, _, none := count(", rope_fusion: false", packed)
	require.Equal(t, []int{plain + 2*15, 0}, []int{gathered, none}, "by positions, since")
	before, _, waits := count(`, rope_fusion: false, release: "26.06"`, packed)
	require.Equal(t, []int{plain + 2*5, 4}, []int{before, waits}, "by tables that are joined")
	old := func(train string) int {
		built, err := build(new(ops.Cache), mustParse(t, "{model: llama2-7b, hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-lm, attention: flash-attn}, train: {sequence_length: 2048"+train+"}}"))
		require.NoError(t, err)
		return len(built.Kinds[0].Forward.Ops)
	}
	require.Equal(t, old(""), old(packed), "Megatron-LM before them turns them as one sequence")
	fused, _, waits := count("", packed)
	require.Equal(t, []int{2, 0}, []int{fused, waits}, "by Transformer Engine's kernel")
}

// TestUnfusedGate: without bias_activation_fusion a gate is applied by SiLU, a sum with an
// offset of 0 and a product, its gradient by two products, SiLU's and a join (transformer/mlp.py,
// glu); experts weigh their rows by casts and products in fp32 besides (moe/experts.py).
func TestUnfusedGate(t *testing.T) {
	kernels := func(model, runtime string) (forward, backward int) {
		built, err := build(new(ops.Cache), mustParse(t, "{model: "+model+", hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core"+runtime+"}}"))
		require.NoError(t, err)
		unit := built.Kinds[len(built.Kinds)-1]
		for i := range unit.Forward.Ops {
			if unit.Forward.Ops[i].Class != tape.NoKernel {
				forward++
			}
		}
		for i := range unit.Backward.Ops {
			if unit.Backward.Ops[i].Class != tape.NoKernel {
				backward++
			}
		}
		return
	}
	for model, want := range map[string][2]int{"llama2-7b": {2, 3}, "qwen3-30b-a3b": {5, 8}} {
		forward, backward := kernels(model, "")
		f, b := kernels(model, ", gate_fusion: false")
		require.Equal(t, want, [2]int{f - forward, b - backward}, model)
		older, same := kernels(model, ", gate_fusion: false, release: \"25.09\"")
		newer, back := kernels(model, ", release: \"25.09\"")
		require.Equal(t, [2]int{want[0] - 1, want[1]}, [2]int{older - newer, same - back}, "%s: no offset before core_v0.15", model)
	}
	for _, runtime := range []string{"", ", gate_fusion: false"} { // either way both halves are clamped where the model has it so
		built, err := build(new(ops.Cache), mustParse(t, "{model: gpt-oss-20b, hardware: h100-sxm, gpus: 1, runtime: {recipe: megatron-core"+runtime+"}, plan: {dp: 1}}"))
		require.NoError(t, err)
		clamps := 0
		for _, o := range built.Kinds[0].Forward.Ops {
			if o.Prim == "clamp" {
				clamps++
			}
		}
		require.Equal(t, 2, clamps, runtime)
	}
}

// TestExpertGEMM: Transformer Engine's CUTLASS kernel multiplies for all experts of a rank at
// once, but for gradients of weights and along the 1856 values of Nemotron's experts, which are no
// multiple of 128 (common/gemm/cublaslt_gemm.cu, nvte_multi_tensor_gemm); torch._grouped_mm
// for all.
func TestExpertGEMM(t *testing.T) {
	products := func(runtime string) (calls, all int) {
		j := mustParse(t, "{model: nemotron-3-nano-30b-a3b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, cuda_graphs: none"+runtime+"}, plan: {ep: 8}}")
		built, err := build(new(ops.Cache), j)
		require.NoError(t, err)
		for i := range built.Kinds {
			for _, s := range []tape.Section{built.Kinds[i].Forward, built.Kinds[i].Backward} {
				for k := range s.Ops {
					if o := &s.Ops[k]; o.Class == tape.GroupedGEMM {
						if all++; o.Calls {
							calls++
						}
					}
				}
			}
		}
		return
	}
	for runtime, want := range map[string]int{"": 6, ", expert_gemm: cublas": 6, ", expert_gemm: cutlass": 4, ", expert_gemm: torch": 0} {
		calls, all := products(runtime)
		require.Equal(t, [2]int{want, 6}, [2]int{calls, all}, runtime)
	}
	host := func(runtime string) float64 {
		return float64(mustEstimate(t, mustParse(t, "{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, cuda_graphs: none, token_dispatcher: alltoall"+runtime+"}, plan: {ep: 4}, train: {sequence_length: 1024, micro_batch: 1, recompute: none}}")).Parts.Host)
	}
	require.Less(t, host(", expert_gemm: cutlass"), 0.95*host(""))
	require.Less(t, host(", expert_gemm: torch"), 0.8*host(", expert_gemm: cutlass"))
}

// TestPaddedExchange: Hybrid-EP sends the rows that are left to their ranks and pads them
// there, so that a capacity costs rows to multiply, but neither exchanges nor waits.
func TestPaddedExchange(t *testing.T) {
	at := func(dispatcher, train string) *Result {
		return mustEstimate(t, mustParse(t, "{model: nemotron-3-super-120b-a12b, hardware: h100-sxm, gpus: 32, runtime: {recipe: megatron-core, release: \"26.08\", cuda_graphs: none, token_dispatcher: "+dispatcher+"}, plan: {ep: 32, pp: 1}, train: {sequence_length: 4096, micro_batch: 1, recompute: full"+train+"}}"))
	}
	free, padded := at("hybridep", ", routing: even"), at("hybridep", ", expert_capacity: 1.1")
	require.InEpsilon(t, float64(free.Exposed["ep"]), float64(padded.Exposed["ep"]), 0.01)
	require.Less(t, float64(free.Parts.GEMM), float64(padded.Parts.GEMM))
	require.Greater(t, float64(at("alltoall", ", expert_capacity: 1.1").Exposed["ep"]), 2*float64(padded.Exposed["ep"]))
}

// TestUnfusedRouter: without Megatron's moe_router_fusion torch chooses experts by kernels of
// its own, as before the release that brought the fused ones, and as pretrain_gpt.py does unless asked.
func TestUnfusedRouter(t *testing.T) {
	router := func(runtime string) (kernels int) {
		built, err := build(new(ops.Cache), mustParse(t, "{model: qwen3-30b-a3b, hardware: h100-sxm, gpus: 8, runtime: {"+runtime+"}, plan: {ep: 8}}"))
		require.NoError(t, err)
		for _, s := range []tape.Section{built.Kinds[0].Forward, built.Kinds[0].Backward} {
			for i := range s.Ops {
				if o := &s.Ops[i]; o.Module == "router" && o.Class != tape.NoKernel {
					kernels += int(max(o.Count, 1))
				}
			}
		}
		return
	}
	fused := router("recipe: megatron-core")
	require.Equal(t, fused, router("recipe: megatron-core, router_fusion: true"))
	require.Equal(t, fused, router("recipe: megatron-pretrain, router_fusion: true"))
	apart := router("recipe: megatron-core, router_fusion: false")
	require.Greater(t, apart, fused+10)
	require.Equal(t, apart, router("recipe: megatron-pretrain"))
	require.Equal(t, apart, router("recipe: megatron-core, release: 25.07"))
}

// TestScaledRotaryAndClamps: kernels of a gpt-oss layer in Megatron-Core that torch launches
// by itself, us on an H200 for 16384 tokens on 65536 rows of experts (PyTorch 2.11, profiles
// of the functions' arithmetic, 2026-11-22): queries out of their groups, their rotary
// embedding with scaled tables, and the clamps before the experts' activation.
func TestScaledRotaryAndClamps(t *testing.T) {
	var e Evaluator
	j := mustParse(t, "{model: gpt-oss-120b, hardware: h200-sxm, gpus: 64, plan: {ep: 64}, train: {sequence_length: 4096, micro_batch: 4}}")
	_, err := e.prepare(j)
	require.NoError(t, err)
	built, err := build(new(ops.Cache), j)
	require.NoError(t, err)
	layer := &built.Kinds[0]
	in := func(s *tape.Section, module, prim string) (us float64) {
		for i := range s.Ops {
			if o := &s.Ops[i]; o.Module == module && o.Prim == prim {
				us += 1e6 * float64(e.p.timer.Time(o))
			}
		}
		return
	}
	for _, c := range []struct {
		backward     bool
		module, prim string
		us           float64 // of queries and keys together
	}{
		{false, "attention", "clone", 159.5},
		{false, "rotary", "mul", 372.2 + 49.4}, {false, "rotary", "neg", 83.7 + 9.7}, {false, "rotary", "add", 91.8 + 11.3},
		{false, "rotary", "cat", 275 + 67.4 + 36.1 + 8.8},
		{true, "rotary", "mul", 372.4 + 51}, {true, "rotary", "cat", 274.4 + 35.2}, {true, "rotary", "add_", 184.4 + 18.7}, {true, "rotary", "fill_", 40.4 + 5.9},
		{false, "experts", "clamp", 1043.2},
		{true, "experts", "compare", 1374.5}, {true, "experts", "where", 1030}, {true, "experts", "logical_and", 139.8},
	} {
		s := &layer.Forward
		if c.backward {
			s = &layer.Backward
		}
		require.InEpsilon(t, c.us, in(s, c.module, c.prim), 0.25, "%s %s, backward %t", c.module, c.prim, c.backward)
	}
}
