package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/ops"
)

// looping is a job of a model whose experts run one after another, or, in the newest release, together.
func looping(t *testing.T, model, recipe, release, kind string) *Result {
	t.Helper()
	if release != "" {
		release = fmt.Sprintf(", release: %q", release)
	}
	return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: h200-sxm, gpus: 8, runtime: {recipe: %s%s}, plan: {data_parallel: %s}, train: {sequence_length: 2048, micro_batch: 1, precision: %s, recompute: full}}",
		model, recipe, release, kind, map[string]string{"hf-eager": "bf16-mixed", "deepspeed-hf": "bf16"}[recipe])))
}

// TestLoopedExpertsWait: a host that waits for the rows of each expert is not ahead of the device when it
// comes to the next layer, whose parameters are then gathered with little beside. Of many small experts it
// is behind in every one: 16 A800 take 91.2 s for a step of Qwen3-30B-A3B under ZeRO-3 and transformers 4,
// 8192 tokens on each (modelscope/ms-swift docs, Megatron-SWIFT/Quick-start.md, Benchmark).
func TestLoopedExpertsWait(t *testing.T) {
	together, looped := looping(t, "mixtral-8x7b", "hf-eager", "", "fsdp1"), looping(t, "mixtral-8x7b", "hf-eager", "24.12", "fsdp1")
	gathers := float64(looped.Parts.Exposed - together.Parts.Exposed)
	forward := 46.7e9 * 2 * 7 / 8 / 400e9 // of all parameters in 16 bits at some 400 GB/s
	require.InEpsilon(t, forward, gathers, 0.35)
	require.Greater(t, float64(looped.Parts.Host), 20*float64(together.Parts.Host))

	swift := "{model: qwen3-30b-a3b, hardware: a800-80g-sxm, gpus: 16, runtime: {recipe: deepspeed-hf, attention: flash-attn, release: %q}, plan: {data_parallel: zero3}, train: {sequence_length: 8192, micro_batch: 1, precision: bf16, recompute: full}}"
	before, after := mustEstimate(t, mustParse(t, fmt.Sprintf(swift, "25.05"))), mustEstimate(t, mustParse(t, fmt.Sprintf(swift, "26.08")))
	require.Greater(t, float64(before.StepTime), 5*float64(after.StepTime))
	require.Greater(t, float64(before.Parts.Host), 0.5*float64(before.StepTime))
	require.Less(t, float64(before.StepTime), 91.2)
}

// TestLeafModules: hooks of ZeRO-3 run for a block with experts as for one module (DeepSpeed's
// leaf_module_config.py; LLaMA-Factory, model_utils/moe.py, add_z3_leaf_module), beside the layer, two norms, attention and
// its four projections, and for each of its parameters all the same. Before DeepSpeed 0.13 they ran for the router, each
// expert, its three products and its activation.
func TestLeafModules(t *testing.T) {
	const outside, inside = 1 + 2 + 1 + 4 + 1, 1 + 8*5
	for _, c := range []struct {
		release           string
		modules, matrices int
	}{{"24.01", outside + inside, 4 + 1 + 3*8}, {"24.12", outside, 4 + 1 + 3*8}, {"25.12", outside, 4 + 1 + 3*8}, {"26.08", outside, 4 + 1 + 2}} {
		j := mustParse(t, fmt.Sprintf("{model: mixtral-8x7b, hardware: h200-sxm, gpus: 8, runtime: {recipe: deepspeed-hf, release: %q}, plan: {data_parallel: zero3}, train: {sequence_length: 512, micro_batch: 1}}", c.release))
		var h hooked
		h.count(&ops.Build(config(j)).Kinds[0], 1)
		require.EqualValues(t, []int{c.modules, c.matrices, c.matrices + 2}, []int{int(h.modules), int(h.matrices), int(h.gradients)}, c.release)
	}
}

// TestFlatParameters: of a unit of FSDP1 a rank has one tensor, and of each of the optimizer's states,
// whatever it is a part of: experts of their own leave the allocator no more gaps than one tensor of all, as they do
// under FSDP2, whose parts of 0.75 MiB lie two by two in blocks of 2 MiB. The host goes through an eighth
// of them at most (torch/distributed/fsdp/_flat_param.py).
func TestFlatParameters(t *testing.T) {
	gaps := func(kind, release string) float64 {
		m := looping(t, "qwen3-30b-a3b", "hf-eager", release, kind).Memory
		return float64(m.PeakReserved - m.PeakAllocated)
	}
	require.Less(t, gaps("fsdp1", "25.09"), 1.3*gaps("fsdp1", ""))
	require.Greater(t, gaps("fsdp2", "25.09"), 2*gaps("fsdp2", ""))

	update := func(release string) float64 {
		return float64(looping(t, "qwen3-30b-a3b", "hf-eager", release, "fsdp1").Optimizer)
	}
	const tensors, each = 48 * 3 * 128, 4.3e-6
	require.Less(t, update("25.09")-update(""), 1.5*tensors/8*each)
}

// TestSharedAdapters: ZeRO 3 leaves matrices of adapters whole on every rank unless a Trainer's buckets, of one square matrix, come with a threshold of ten
// times the width, and puts no gradient of a frozen weight into a bucket (stage3.py, parameter_offload.py).
func TestSharedAdapters(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h200-sxm, gpus: 2, runtime: {recipe: deepspeed-hf}, plan: {data_parallel: zero3%s}, train: {sequence_length: 512, micro_batch: 1, lora: {rank: 16}}}"
	for _, c := range []struct {
		bucket   string
		matrices int
	}{{", bucket: 1 GB", 7 + 3}, {"", 7 + 12}} {
		j := mustParse(t, fmt.Sprintf(job, c.bucket))
		r, e := sees(t, fmt.Sprintf(job, c.bucket))
		require.Positive(t, r.StepTime)
		var h hooked
		h.count(&ops.Build(config(j)).Kinds[0], e.p.leastShared())
		require.EqualValues(t, []int{c.matrices, 14}, []int{int(h.matrices), int(h.gradients)}, c.bucket)
	}
}
