package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestMegatronBuckets: a bucket of Megatron-Core holds 40 million gradients, in groups of
// more than 40 ranks a million for each rank.
func TestMegatronBuckets(t *testing.T) {
	at := func(gpus int) (largest units.Bytes, calls int64) {
		r, err := Estimate(mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core}, plan: {data_parallel: zero1}, train: {precision: bf16}}", gpus)), Options{Detail: true})
		require.NoError(t, err)
		for _, c := range r.Detail.Collectives {
			if c.Kind == "reduce-scatter" {
				largest, calls = max(largest, c.Bytes), calls+c.Count
			}
		}
		return
	}
	const embedding = 32000 * 4096 // the largest parameter, which may come on top
	for _, x := range []struct {
		gpus   int
		values units.Bytes
	}{{8, 40e6}, {64, 64e6}, {512, 512e6}} {
		got, calls := at(x.gpus)
		require.GreaterOrEqual(t, got, 4*x.values, x.gpus)
		require.Less(t, got, 4*(x.values+embedding), x.gpus)
		require.InDelta(t, 6.74e9/float64(x.values), float64(calls), 0.6*6.74e9/float64(x.values), x.gpus)
	}
}

// TestBucketViews: where gradients are no views of DDP's buckets, they stay beside them
// to the end of the step, four bytes of each parameter more, and what was reduced is
// copied out; also where an optimizer behind DDP shares out its states.
func TestBucketViews(t *testing.T) {
	for _, kind := range []string{"ddp", "zero1"} {
		of := func(view string) *Result {
			return mustEstimate(t, mustParse(t, "{model: gpt2-xl, hardware: h200-sxm, gpus: 4, runtime: {recipe: hf-eager}, plan: {data_parallel: "+kind+view+"}, train: {micro_batch: 1, sequence_length: 128, precision: bf16-autocast}}"))
		}
		views, own := of(""), of(", bucket_view: false")
		require.Equal(t, views.Memory, of(", bucket_view: true").Memory)
		gradients := 4 * float64(views.Job.Model.Params().Total)
		require.InEpsilon(t, gradients, float64(own.Memory.By[memory.Gradients]), 1e-2, "the table's goes once it is added to the tied head's")
		require.Greater(t, own.Memory.PeakAllocated, views.Memory.PeakAllocated)
		require.Greater(t, float64(own.StepTime-views.StepTime), 2*gradients/4.8e12)
	}
}

// TestGateApart: DDP's buckets cut a model that is compiled whole, and layers that are by themselves. Where gate and up
// projection of an MLP are in two graphs, the one gives on what its activation makes: two bytes of each
// token and column more are kept. Four H200 allocated 24.1076 GB of such a Qwen2 (h200-node-drawn-33).
func TestGateApart(t *testing.T) {
	const text = "{model: {model_type: qwen2, hidden_size: 5120, num_hidden_layers: 6, num_attention_heads: 80, num_key_value_heads: 20, intermediate_size: 10240, vocab_size: 50304, tie_word_embeddings: false}, hardware: h200-sxm, gpus: %d, runtime: {recipe: %s}, plan: {data_parallel: %s, bucket: %s}, train: {sequence_length: 1024, micro_batch: 4, grad_accumulation: 4, precision: bf16-pure, recompute: %s%s}}"
	for _, c := range []struct {
		gpus                             int
		recipe, kind, bucket, recomputed string
		more                             string
		apart                            int64 // layers
	}{
		{4, "hf-compile", "ddp", "25MiB", "none", "", 6},
		{4, "hf-compile", "zero1", "25MiB", "none", "", 6},
		{4, "hf-compile", "ddp", "100MiB", "none", "", 6}, // exactly as large as a projection
		{4, "hf-compile", "ddp", "101MiB", "none", "", 3}, // two, of one MLP down and up, of the next up and gate
		{4, "hf-compile", "ddp", "1GiB", "none", "", 1},   // 2.4 layers
		{4, "hf-compile", "ddp", "25MiB", "full", "", 0},
		{4, "hf-compile-layer", "ddp", "25MiB", "none", "", 6},  // each layer is cut
		{4, "hf-compile-layer", "ddp", "101MiB", "none", "", 0}, // in the same places, the last bucket of 1 MiB
		{4, "nanogpt", "ddp", "25MiB", "none", "", 6},           // though compiled before DDP wraps it
		{4, "hf-eager", "ddp", "25MiB", "none", "", 0},
		{1, "hf-compile", "ddp", "25MiB", "none", "", 0},
		{4, "hf-compile", "ddp", "25MiB", "none", ", lora: {rank: 8}", 0},
	} {
		cut := config(mustParse(t, fmt.Sprintf(text, c.gpus, c.recipe, c.kind, c.bucket, c.recomputed, c.more)))
		whole := cut
		whole.Bucket = 0
		saved := func(c ops.Config) (sum units.Bytes) {
			m := ops.Build(c)
			for _, k := range m.Layers {
				sum += m.Kinds[k].Saved()
			}
			return
		}
		require.InDelta(t, 2*4096*10240*float64(c.apart), float64(saved(cut)-saved(whole)), 1e3, c)
	}
	r := mustEstimate(t, mustParse(t, fmt.Sprintf(text, 4, "hf-compile", "ddp", "25MiB", "none", "")))
	require.InEpsilon(t, 24.1076e9, float64(r.Memory.PeakAllocated), 0.01)
}

// TestTorchShardedOptimizer: ZeroRedundancyOptimizer stands behind DDP, which sums whole gradients, and sends
// each parameter from the rank that updated it.
func TestTorchShardedOptimizer(t *testing.T) {
	for kind, want := range map[string]map[string]bool{"ddp": {"all-reduce": true}, "zero1": {"all-reduce": true, "broadcast": true}} {
		r, err := Estimate(mustParse(t, "{model: gpt2-xl, hardware: h200-sxm, gpus: 4, runtime: {recipe: hf-eager}, plan: {data_parallel: "+kind+"}, train: {micro_batch: 1, sequence_length: 1024, precision: bf16-autocast}}"), Options{Detail: true})
		require.NoError(t, err)
		got := map[string]bool{}
		for _, c := range r.Detail.Collectives {
			got[c.Kind] = true
		}
		require.Equal(t, want, got)
	}
}

// TestShardedOptimizer: under PyTorch ZeRO 1 keeps gradients as DDP does, in the dtype that
// they are said to have.
func TestShardedOptimizer(t *testing.T) {
	r := mustEstimate(t, mustParse(t, "{model: llama3-8b, hardware: b300-sxm, gpus: 8, runtime: {recipe: torchtitan}, plan: {data_parallel: zero1}, train: {micro_batch: 1, recompute: full, grad_accumulation: 4}}"))
	require.Equal(t, "fp32", r.Job.Precision.Gradients.String())
	held := float64(r.Memory.By[memory.Gradients] + r.Memory.By[memory.Gathered])
	require.GreaterOrEqual(t, held, 4*float64(r.Job.Model.Params().Total))
}
