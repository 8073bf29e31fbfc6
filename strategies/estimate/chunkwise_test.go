package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestChunkwise: the gradients of GPT-3's stages on 8192 H100. In one chunk all of a
// stage but the first is reduced after its last pass; of twelve, the last one's twelfth.
func TestChunkwise(t *testing.T) {
	exposed := func(chunks string) float64 {
		r := mustEstimate(t, mustParse(t, `{model: gpt3-175b, hardware: h100-sxm, gpus: 8192, runtime: {recipe: megatron-core, attention: flash}, network: {bandwidth_per_gpu: 400 Gbit/s},
			plan: {tp: 4, sequence_parallel: true, pp: 8, dp: 256, `+chunks+`, data_parallel: zero1}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: 16, precision: fp8}}`))
		return float64(r.Exposed["dp"])
	}
	one := exposed("schedule: 1f1b")
	many := exposed("schedule: interleaved-1f1b, virtual_stages: 12")
	require.Greater(t, one, 0.1)
	require.Less(t, many, one/2) // with the kernels that they slow
}

// TestChunksReduceBesidePasses: reducing by chunks never exposes more than reducing all
// at the end.
func TestChunksReduceBesidePasses(t *testing.T) {
	for _, schedule := range []string{"interleaved-1f1b", "interleaved-zero-bubble", "looped-bfs", "zb-v", "dualpipe"} {
		for _, kind := range []string{"ddp", "zero1"} {
			for _, dp := range []int{2, 64, 512} {
				j := mustParse(t, fmt.Sprintf(`{model: llama2-13b, hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core}, network: {bandwidth_per_gpu: 200 Gbit/s},
					plan: {tp: 1, pp: 4, dp: %d, schedule: %s, virtual_stages: 2, data_parallel: %s}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: 8}}`, 4*dp, dp, schedule, kind))
				early := mustEstimate(t, j)
				late, recipe := *j, *j.Recipe
				recipe.Overlap.GradReduce = false
				late.Recipe = &recipe
				require.LessOrEqual(t, float64(early.Exposed["dp"]), float64(mustEstimate(t, &late).Exposed["dp"])*1.001, "%s %s dp %d", schedule, kind, dp)
			}
		}
	}
}

// TestChunksPassOverEqualLayers: reductions by chunk run fewer layers than a chunk has, and come
// to what those of all layers do, whether the network keeps up or falls behind.
func TestChunksPassOverEqualLayers(t *testing.T) {
	for _, bandwidth := range []string{"25", "100", "400"} {
		for _, bucket := range []string{"10 MiB", "100 MiB", "800 MiB"} {
			for _, kind := range []string{"ddp", "zero1"} {
				j := mustParse(t, fmt.Sprintf(`{model: gpt3-175b, hardware: h100-sxm, gpus: 512, network: {bandwidth_per_gpu: %s Gbit/s},
					plan: {tp: 8, pp: 4, schedule: interleaved-1f1b, virtual_stages: 2, data_parallel: %s, bucket: %s}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: 16}}`, bandwidth, kind, bucket))
				var whole, short Evaluator
				_, err := whole.prepare(j)
				require.NoError(t, err)
				whole.sim.step.layers.every = true
				want, err := whole.Estimate(j, Options{})
				require.NoError(t, err)
				got, err := short.Estimate(j, Options{})
				require.NoError(t, err)
				require.NotZero(t, short.sim.step.layers.marks[0], "no layer was compared with the one before")
				require.InEpsilon(t, float64(want.StepTime), float64(got.StepTime), 1e-12)
				require.InDelta(t, float64(want.Exposed["dp"]), float64(got.Exposed["dp"]), 1e-12*float64(want.StepTime))
			}
		}
	}
}

// TestChunksGatherAhead: the parameters of Nemotron-4 340B on 256 B200, a bus of 47 GB/s to each
// GPU. Of twelve chunks most are gathered beside the passes of those before them; of one, and
// where nothing overlaps, all are waited for.
func TestChunksGatherAhead(t *testing.T) {
	update := func(chunks, overlap string) float64 {
		r := mustEstimate(t, mustParse(t, `{model: {model_type: decoder, hidden_size: 18432, num_hidden_layers: 96, num_attention_heads: 96, num_key_value_heads: 8, head_dim: 192, intermediate_size: 73728, gated_mlp: false, hidden_act: relu2, vocab_size: 256000, tie_word_embeddings: false},
			hardware: b200-sxm, gpus: 256, runtime: {recipe: megatron-core, attention: flash, overlap_param_gather: `+overlap+`},
			plan: {tp: 8, sequence_parallel: true, pp: 4, dp: 8, `+chunks+`, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 8, precision: bf16}}`))
		return float64(r.Optimizer)
	}
	const gather = 0.404 // of 21.9 GB
	one, many := "schedule: 1f1b", "schedule: interleaved-1f1b, virtual_stages: 12"
	require.Greater(t, update(one, "true"), gather)
	require.Greater(t, update(many, "false"), gather)
	require.Less(t, update(many, "true"), 0.6*gather) // the first of twelve, what kernels beside the others lose, and the update itself
}

// TestGathersAheadNeverCost: beginning them earlier never takes longer than waiting for all.
func TestGathersAheadNeverCost(t *testing.T) {
	for _, dp := range []int{2, 64, 512} {
		for _, chunks := range []int{2, 5, 10} {
			step := func(overlap bool) float64 {
				return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(`{model: llama2-13b, hardware: h100-sxm, gpus: %d, runtime: {recipe: megatron-core, overlap_param_gather: %t}, network: {bandwidth_per_gpu: 200 Gbit/s},
					plan: {tp: 1, pp: 4, dp: %d, schedule: interleaved-1f1b, virtual_stages: %d, data_parallel: zero1}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: 8}}`, 4*dp, overlap, dp, chunks))).StepTime)
			}
			require.LessOrEqual(t, step(true), step(false)*1.001, "dp %d, %d chunks", dp, chunks)
		}
	}
}

// TestSharedTable: the first rank of a V holds embedding and head. Where they share a
// table, its gradient is reduced once, as all others are.
func TestSharedTable(t *testing.T) {
	r, err := Estimate(mustParse(t, `{model: gpt2-xl, hardware: h100-sxm, gpus: 16, runtime: {recipe: megatron-core},
		plan: {tp: 1, pp: 2, dp: 8, schedule: zb-v, virtual_stages: 2, data_parallel: ddp}, train: {sequence_length: 1024, micro_batch: 1, grad_accumulation: 8}}`), Options{Detail: true})
	require.NoError(t, err)
	require.Zero(t, r.Detail.Rank)
	sent := units.Bytes(0)
	for _, c := range r.Detail.Collectives {
		if c.Group == "dp" {
			sent += c.Bytes * units.Bytes(c.Count)
		}
	}
	table := r.Job.Model.Vocab * r.Job.Model.Hidden // which the stage counts for both of its chunks
	require.InEpsilon(t, 4*float64(r.Stages[0].Params-table), float64(sent), 0.005)
}

// TestGathersInTurn: without interleaving each stage of Megatron-Core begins to gather its
// parameters when its first input is there, so that those of eight stages hold up a step one after
// the other, of which the first alone has buckets to run beside; before core_v0.9 all began with it.
func TestGathersInTurn(t *testing.T) {
	step := func(runtime string) float64 {
		return float64(mustEstimate(t, mustParse(t, `{model: {model_type: decoder, hidden_size: 5120, num_hidden_layers: 64, num_attention_heads: 64, num_key_value_heads: 8, intermediate_size: 25600, gated_mlp: true, norm: rmsnorm, vocab_size: 131072, tie_word_embeddings: false},
			hardware: jupiter-gh200, gpus: 2048, runtime: {recipe: megatron-core, cuda_graphs: none, tp_overlap: false, `+runtime+`},
			plan: {tp: 4, sequence_parallel: true, pp: 8, dp: 64, schedule: 1f1b, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 2, grad_accumulation: 32, precision: bf16}}`)).StepTime)
	}
	const stage = 0.078 // 8 layers of 121 million parameters a tensor rank, 1.94 GB at 24.8 GB/s
	for release, stages := range map[string]float64{"26.04": 8, "24.09": 1} {
		on, off := step(`release: "`+release+`", overlap_param_gather: true`), step(`release: "`+release+`", overlap_param_gather: false`)
		require.InDelta(t, (stages-1)*stage, on-off, 0.8*stage, release) // what the first stage hides, and wider ends
	}
}
