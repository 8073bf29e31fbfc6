package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/calibrate/runs"
	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/hardware/kernel"
	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies"
	"github.com/perfplan/perfplan/strategies/estimate"
	"github.com/perfplan/perfplan/strategies/memory"
	"github.com/perfplan/perfplan/strategies/search"
	"github.com/perfplan/perfplan/strategies/timeline"
)

// The values of this file are made up: goldens of printers must not move when a
// prediction does.

func job(t *testing.T, text string) (*strategies.Job, *yamlx.Document) {
	t.Helper()
	doc, err := yamlx.Parse("job.yaml", []byte(text))
	require.NoError(t, err)
	j, err := strategies.Decode(doc, doc.Root)
	require.NoError(t, err)
	return j, doc
}

const (
	ms = units.Millisecond
	us = units.Microsecond
)

// oneGPU is a result without data parallelism, with detail and spans.
func oneGPU(t *testing.T) *Estimate {
	j, doc := job(t, `{model: tinyllama-1.1b, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: sdpa}, plan: {}, train: {sequence_length: 2048, micro_batch: 4, precision: bf16-pure, reduce_dtype: fp32}}`)
	r := &estimate.Result{
		Job: j, StepTime: 160 * ms, Forward: 50 * ms, Backward: 104 * ms, Optimizer: 6 * ms,
		TokensPerSecond: 51200, ModelFLOPs: 6.4e13, MFU: 0.4043, HFU: 0.4043, Peak: 989.4e12,
		Parts:    estimate.Parts{GEMM: 80 * ms, Attention: 10 * ms, Memory: 60 * ms, Gaps: 8 * ms, Host: 2 * ms},
		HostIdle: 2 * ms, Bound: "compute", Exposed: map[string]units.Seconds{},
		Memory: estimate.Memory{PeakAllocated: 20 * units.GiB, PeakReserved: 22 * units.GiB, DeviceUsed: 22.75 * units.GiB, Capacity: 139.8 * units.GiB, Moment: "head backward", Fits: true,
			By:      memory.Bytes{memory.Parameters: 2 * units.GiB, memory.Gradients: 2 * units.GiB, memory.OptimizerStates: 4 * units.GiB, memory.Activations: 11 * units.GiB, memory.LogitsLoss: units.GiB},
			Outside: []estimate.Outside{{Name: "cuda_context", Bytes: 0.75 * units.GiB}, {Name: "allocator_slack", Bytes: 2 * units.GiB}}},
		Clock: 1815e6, Power: 680, Energy: 108.8,
		Notes: []diag.Note{{Code: "job.default", Text: "train.optimizer = adamw-fused (default)"}, {Code: "example", Text: "a remark that makes the number less certain", Remedy: "what to do about it"}},
		Spans: []timeline.Span{{Stream: "compute", Label: "embedding forward", Start: 0, End: 0.001}, {Stream: "compute", Label: "layer forward", Start: 0.001, End: 0.02},
			{Stream: "compute", Label: "layer forward", Start: 0.02, End: 0.05}, {Stream: "dp", Label: "all-gather", Start: 0.01, End: 0.012}},
	}
	gemm := &tape.Op{Module: "mlp", Prim: "linear", Class: tape.GEMM, DType: tape.BF16, M: 8192, N: 5632, K: 2048, Batch: 1, FLOPs: 2 * 8192 * 5632 * 2048, Bytes: 150e6, Count: 1}
	dgrad := *gemm
	dgrad.Prim, dgrad.Phase, dgrad.Layout = "linear_dgrad", tape.Backward, tape.LayoutDgrad
	mul := &tape.Op{Module: "norm", Prim: "mul", Class: tape.Vectorized, DType: tape.F32, Elements: 16777216, Bytes: 192e6, Count: 1}
	attention := &tape.Op{Module: "attention", Prim: "attention", Class: tape.Attention, DType: tape.BF16, FLOPs: 1e11, Bytes: 1e8, Count: 1,
		Attn: &tape.AttentionShape{Batch: 4, Heads: 32, KVHeads: 4, Queries: 2048, Keys: 2048, QKDim: 64, VDim: 64, Causal: true}}
	reduce := &tape.Op{Module: "mlp", Prim: "all-reduce", Class: tape.Collective, DType: tape.BF16, Comm: &tape.Comm{Kind: "all-reduce", Group: "tp", Bytes: 32 * units.MiB}}
	call := estimate.CommDetail{Kind: "all-reduce", Group: "tp", Ranks: 2, Nodes: 1, Bytes: 32 * units.MiB, Count: 88,
		Cost: collective.Cost{Time: 110 * us, Algorithm: "Ring", Protocol: "Simple", AlgBW: 305e9, BusBW: 305e9, Source: collective.Measured, RelErr: 0.05}}
	law := func(bound kernel.Bound, formula string) kernel.Explain {
		return kernel.Explain{Bound: bound, Formula: formula, Source: "one H200", RelErr: 0.03}
	}
	r.Detail = &estimate.Detail{
		Passes: j.Train.GradAccumulation,
		Units: []estimate.UnitDetail{{Name: "layer", Count: 22, Params: 44_044_288,
			Forward: []estimate.OpDetail{{Op: mul, Time: 60 * ms / 22, Host: 12 * us, Why: law(kernel.Memory, "vectorized law")}, {Op: attention, Time: 10 * ms / 22, Host: 20 * us, Why: law(kernel.Compute, "setup + FLOPs / rate")},
				{Op: gemm, Time: 30 * ms / 22, Host: 15 * us, Why: law(kernel.Compute, "8192×5632×2048 bf16 forward")}, {Op: reduce, Time: 110 * us, Host: 30 * us, Comm: &call}},
			Backward: []estimate.OpDetail{{Op: &dgrad, Time: 50 * ms / 22, Host: 9 * us, Why: law(kernel.Compute, "8192×5632×2048 bf16 dgrad")}},
		}},
		Collectives: []estimate.CommDetail{call},
		Kernels: []estimate.KernelDetail{{Op: &tape.Op{Prim: "optimizer", Class: tape.Optimizer, Elements: 1.1e9, Bytes: 15.4e9, Phase: tape.Optimize}, Time: 5 * ms, Count: 1, Why: law(kernel.Memory, "optimizer law")},
			{Op: &tape.Op{Prim: "ddp_copy", Class: tape.Memcpy, Bytes: 25 * units.MiB}, Time: ms, Count: 1, Beside: true}},
		Memory: []memory.Point{{Label: "layer 1 forward", Allocated: 9 * units.GiB, By: memory.Bytes{memory.Parameters: 8 * units.GiB, memory.Activations: units.GiB}},
			{Label: "head backward", Allocated: 20 * units.GiB, By: r.Memory.By}},
	}
	return &Estimate{Result: r, Given: doc.Root}
}

// pipeline is a result of several stages that does not fit and has a range.
func pipeline(t *testing.T) *Estimate {
	j, doc := job(t, `{model: mixtral-8x7b, hardware: h100-sxm, gpus: 32, runtime: {recipe: hf-eager}, plan: {tp: 2, pp: 4, data_parallel: ddp}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 16, recompute: full}}`)
	r := &estimate.Result{
		Job: j, StepTime: 2, Low: 1.9, High: 2.15, Forward: 0.5, Backward: 1, Optimizer: 0.1,
		TokensPerSecond: 4096, ModelFLOPs: 2.2e16, MFU: 0.347, HFU: 0.46, Peak: 989.4e12,
		Parts:  estimate.Parts{GEMM: 0.8, Attention: 0.2, Memory: 0.2, Gaps: 0.1, Contention: 0.05, Exposed: 0.25, Bubble: 0.4},
		Bubble: 0.19, Exposed: map[string]units.Seconds{"tp": 0.2, "dp": 0.03, "ep": 0.02}, Overlap: new(0.8), Bound: "communication",
		Memory: estimate.Memory{PeakAllocated: 90 * units.GiB, PeakReserved: 90 * units.GiB, DeviceUsed: 92 * units.GiB, Capacity: 79 * units.GiB, Moment: "layer backward",
			By:      memory.Bytes{memory.Parameters: 20 * units.GiB, memory.Gradients: 20 * units.GiB, memory.OptimizerStates: 40 * units.GiB, memory.Activations: 10 * units.GiB},
			Outside: []estimate.Outside{{Name: "cuda_context", Bytes: units.GiB}, {Name: "nccl", Bytes: units.GiB}}},
		Notes: []diag.Note{{Code: "memory.overflow", Text: "the job does not fit"}},
	}
	for rank := range 4 {
		peak := units.Bytes(90-5*rank) * units.GiB
		r.Memory.ByStage = append(r.Memory.ByStage, peak)
		r.Stages = append(r.Stages, estimate.Stage{Rank: rank, Layers: 8, Params: 5_900_000_000, Forward: 31 * ms, Backward: 62 * ms, Busy: 1.5, Bubble: 0.4, Clock: 1.6e9, PeakAllocated: peak})
	}
	zero := *j
	require.NoError(t, zero.SetPlan(strategies.Plan{TP: 2, PP: 4, DataParallel: strategies.ZeRO1}))
	better := &estimate.Result{Job: &zero, StepTime: 2.1, TokensPerSecond: 3900, MFU: 0.33, Memory: estimate.Memory{DeviceUsed: 60 * units.GiB, Capacity: 79 * units.GiB, Fits: true}}
	return &Estimate{Result: r, Given: doc.Root,
		Choice:   &search.Choice{Candidate: search.Candidate{Job: j, Result: r}, Legal: 12, Others: []search.Candidate{{Job: &zero, Result: better}}},
		Remedies: []search.Remedy{{Set: []string{"plan.data_parallel=zero1"}, Candidate: search.Candidate{Job: &zero, Result: better}, Slowdown: 4096.0/3900 - 1}, {Set: []string{"plan.pp=8", "train.recompute=full"}, Candidate: search.Candidate{Job: &zero, Result: better}, Slowdown: 0.1}}}
}

// explained_ is oneGPU explained at a stage.
func explained_(t *testing.T, s Stage) *Explain {
	return &Explain{Estimate: *oneGPU(t), Stage: s, Depth: 3}
}

// validation is a report with a run of every status.
func validation() *runs.Report {
	in, out := true, false
	stats := func(mean float64, n int) runs.Stats {
		return runs.Stats{N: n, MeanAbs: mean, MedianAbs: mean, P90Abs: 2 * mean, MaxAbs: 2 * mean, MeanSigned: -mean}
	}
	group := func(name string, n, unsupported, failed int, mean float64, ranged *runs.Ranges) runs.Group {
		g := runs.Group{Name: name, N: n, Unsupported: unsupported, Failed: failed, Stats: map[string]runs.Stats{}, InRange: ranged}
		if ok := n - unsupported - failed; ok > 0 {
			g.Stats["step_time"], g.Stats["peak_allocated"] = stats(mean, ok), stats(mean/2, ok)
		}
		return g
	}
	figures := func(step units.Seconds) runs.Figures {
		return runs.Figures{StepTime: step, ForwardTime: step / 3, PeakAllocated: 20e9, Energy: 100}
	}
	return &runs.Report{
		Parts: []runs.Part{{Name: "kernels", Share: 0.835, Ratio: 1.017, Deviation: 0.006}, {Name: "exposed communication", Share: 0.074, Ratio: 1.241, Deviation: 0.037}},
		Choices: []runs.Choice{{Group: "a100", Name: "GPT-175B on 512 GPUs", Layouts: 10, Chance: 0.4, Chosen: "tp 8, pp 8 (1f1b), dp 8, zero1, micro batch 2, recompute full", Best: "tp 4, pp 16 (1f1b), dp 8, zero1, micro batch 2, recompute full",
			Regret: 0.031, Spearman: 0.83, Range: 0.19}},
		Rows: []runs.Row{
			{ID: "a-1", Group: "h200", Name: "small", Status: runs.OK, Predicted: runs.Prediction{Figures: figures(0.102), Low: 0.09, High: 0.11}, Measured: figures(0.1),
				Errors: map[string]float64{"step_time": 0.02, "forward_time": 0.02, "peak_allocated": -0.01}, InRange: &in, Left: []string{"runtime.attention: flash"}},
			{ID: "a-2", Group: "h200", Status: runs.OK, Predicted: runs.Prediction{Figures: figures(0.9), Low: 0.8, High: 0.95}, Measured: figures(1), Errors: map[string]float64{"step_time": -0.1, "peak_allocated_per_stage": 0.03},
				Stages: []float64{0.01, 0.03}, InRange: &out},
			{ID: "b-1", Group: "published", Status: runs.Unsupported, Reason: "plan.ep: 64 does not divide the 8 experts", Where: "mine/runs.yaml:14:12", Measured: figures(3)},
			{ID: "b-2", Group: "published", Status: runs.Unsupported, Reason: "plan.ep: 64 does not divide the 8 experts", Where: "mine/runs.yaml:25:12", Measured: figures(4)},
			{ID: "b-3", Group: "published", Status: runs.Failed, Reason: "internal error: index out of range", Measured: figures(5)},
		},
		Stated:  []runs.Group{group("all facts stated", 1, 0, 0, 0.02, &runs.Ranges{N: 1, Share: 1}), group("one assumed", 1, 0, 0, 0.1, &runs.Ranges{N: 1})},
		Summary: []runs.Group{group("h200", 2, 0, 0, 0.06, &runs.Ranges{N: 2, Share: 0.5}), group("published", 3, 2, 1, 0, nil), group(runs.All, 5, 2, 1, 0.06, &runs.Ranges{N: 2, Share: 0.5})},
	}
}

func models() []model.Entry {
	return []model.Entry{{Name: "llama2-7b", Description: "Llama 2 7B (Meta, 2023)", Source: "its config.json", Parameters: 6_738_415_616, Active: 6_738_415_616},
		{Name: "mixtral-8x7b", Description: "Mixtral 8x7B (Mistral AI, 2023), with a description that is longer than a narrow terminal has room for", Source: "its config.json", Parameters: 46_702_792_704, Active: 12_879_925_248}}
}

func modelTypes() []model.Type {
	return []model.Type{{Name: "arcee"}, {Name: "mpt", Models: []string{"mpt-30b", "mpt-7b"}}}
}

func shownModel(t *testing.T) *Model {
	doc, err := yamlx.Parse("moe.yaml", []byte(`{model_type: decoder, hidden_size: 1024, num_hidden_layers: 4, num_attention_heads: 16, num_key_value_heads: 4, intermediate_size: 4096, vocab_size: 32000, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 2048, first_k_dense_replace: 1}`))
	require.NoError(t, err)
	s, errs := model.Decode(doc, doc.Root)
	require.NoError(t, errs.Err())
	s.Name = "moe"
	return &Model{Spec: s, Sequence: 4096, Source: "made up"}
}

func machines(t *testing.T) []*hardware.Profile {
	doc, err := yamlx.Parse("box.yaml", []byte(`
title: A made-up machine
gpu:
  name: {value: Made-up GPU, source: "a datasheet that does not exist", kind: datasheet}
  architecture: hopper
  peak: {bf16: {value: 900 TFLOP/s, source: "a datasheet that does not exist", kind: datasheet}}
  memory: {value: 80 GiB, source: counted, kind: measured}
  bandwidth: 3 TB/s
  sms: 132
  clock: 1800 MHz
node: {gpus: 8, nvlink_domain: 8, switched: true}
network: {nics: 8, nic_bandwidth: {value: 400 Gbit/s, source: a guess, kind: assumed}}
`))
	require.NoError(t, err)
	h, err := hardware.FromDocument(doc, doc.Root, "box")
	require.NoError(t, err)
	// Where its laws come from may change with the project's own.
	h.Laws.Source, h.Laws.Conditions = "measured on something", "at full clock"
	return []*hardware.Profile{h}
}
