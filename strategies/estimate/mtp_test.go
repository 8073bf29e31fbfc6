package estimate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model"
	"github.com/perfplan/perfplan/model/ops"
	"github.com/perfplan/perfplan/model/tape"
	"github.com/perfplan/perfplan/strategies/memory"
)

const predicting = `{model: deepseek-v3, hardware: b200-sxm, gpus: 256, runtime: {recipe: %s}, plan: {pp: 16, ep: 8, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 32, precision: %s%s}}`

// TestMultiTokenPrediction: the head's unit runs a layer like the last one, in 8 bits where
// layers are, a projection and a second head in 16; the last rank stores them with a table
// of its own, whose gradients it adds to the first one's.
func TestMultiTokenPrediction(t *testing.T) {
	for _, recompute := range []string{"", ", recompute: full", ", recompute: selective, recompute_modules: [mla_up_proj, moe_act]"} {
		with, without := mustParse(t, fmt.Sprintf(predicting, "megatron-core", "mxfp8", recompute)), mustParse(t, fmt.Sprintf(predicting, "megatron-core", "mxfp8", recompute+", mtp_layers: 0"))
		m, plain := ops.Build(config(with)), ops.Build(config(without))
		layer := &m.Kinds[len(m.Kinds)-1]
		products := func(u *ops.Unit) map[bool]float64 { // narrow or not
			out := map[bool]float64{}
			for _, s := range []*tape.Section{&u.Forward, &u.Backward} {
				for i := range s.Ops {
					if o := &s.Ops[i]; o.Class == tape.GEMM || o.Class == tape.GroupedGEMM {
						out[o.DType != tape.BF16] += float64(o.FLOPs)
					}
				}
			}
			return out
		}
		projection := 3 * 4096 * 4.0 * 7168 * 7168
		require.InEpsilon(t, products(layer)[true]+projection, products(&m.Head)[true], 1e-9, recompute)
		require.InEpsilon(t, 2*products(&plain.Head)[false]+products(layer)[false], products(&m.Head)[false], 1e-9, recompute)

		c := with.Model.Params()
		table := 129280.0 * 7168
		var n float64
		for _, p := range m.Head.Params {
			if n += float64(p.Local); p.Split == model.ExpertSplit {
				n += 7 * float64(p.Local)
			}
		}
		require.Equal(t, float64(c.MTP)+2*table+7168, n, "with the head's own")

		a, err := Estimate(with, Options{Detail: true})
		require.NoError(t, err)
		b, err := Estimate(without, Options{Detail: true})
		require.NoError(t, err)
		require.Greater(t, float64(a.StepTime), 1.1*float64(b.StepTime), "the last of 16 stages is the longest")
		require.Greater(t, a.Memory.ByStage[15], b.Memory.ByStage[15])
		require.Contains(t, fmt.Sprint(a.Detail.Collectives), "embedding")
		require.NotContains(t, fmt.Sprint(b.Detail.Collectives), "embedding")
	}
}

// TestMultiTokenPredictionOnOneRank: where embedding and head share a rank, the table is one.
func TestMultiTokenPredictionOnOneRank(t *testing.T) {
	const job = `{model: deepseek-v2-lite, hardware: h200-sxm, gpus: 8, runtime: {recipe: megatron-core}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, precision: bf16%s}}`
	for _, plan := range []string{"ep: 8", "ep: 8, tp: 2", "ep: 4, cp: 2"} {
		with, without := mustParse(t, fmt.Sprintf(job, plan, ", mtp_layers: 1")), mustParse(t, fmt.Sprintf(job, plan, ""))
		a, err := Estimate(with, Options{})
		require.NoError(t, err)
		b, err := Estimate(without, Options{})
		require.NoError(t, err)
		u, bare := ops.Build(config(with)).Head, ops.Build(config(without)).Head
		more := float64(a.Memory.By[memory.Parameters] - b.Memory.By[memory.Parameters])
		require.InEpsilon(t, 2*float64(u.LocalParams()-bare.LocalParams()), more, 1e-3, "no second table: "+plan)
		require.Greater(t, float64(a.ModelFLOPs), float64(b.ModelFLOPs))
	}
}

// TestMultiTokenPredictionIsAsked: recipes that run the model alone leave it out, Megatron's
// own scripts train it when asked.
func TestMultiTokenPredictionIsAsked(t *testing.T) {
	for _, c := range []struct {
		recipe, train string
		layers        int64
	}{{"megatron-core", "", 1}, {"megatron-core", ", mtp_layers: 2", 2}, {"megatron-core", ", mtp_layers: 0", 0}, {"megatron-pretrain", "", 0}, {"megatron-pretrain", ", mtp_layers: 1", 1}, {"torchtitan", "", 0}} {
		j := mustParse(t, fmt.Sprintf(predicting, c.recipe, "bf16", c.train))
		require.Equal(t, c.layers, j.Model.MTPLayers, c.recipe+c.train)
		require.Equal(t, c.layers == 0 && c.train == "", slices.Contains(j.Defaulted, "train.mtp_layers = 0 (recipe "+c.recipe+" leaves the model's 1 out)"))
	}
	const sharded = `{model: nemotron-3-super-120b-a12b, hardware: h100-sxm, gpus: 64, runtime: {recipe: automodel-moe}, plan: {ep: 64, data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: 2, recompute: full%s}}`
	with, without := mustEstimate(t, mustParse(t, fmt.Sprintf(sharded, ", mtp_layers: 2"))), mustEstimate(t, mustParse(t, fmt.Sprintf(sharded, "")))
	require.Greater(t, float64(with.StepTime), 1.03*float64(without.StepTime))
}

// TestRepeatedPrediction: where one module stands for all, it runs as often and has parameters
// once; head and table are reduced once, whatever uses them.
func TestRepeatedPrediction(t *testing.T) {
	const job = `{model: %s, hardware: b200-sxm, gpus: 8, runtime: {recipe: megatron-core, squared_relu_fusion: true}, plan: {ep: 8, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 2, precision: bf16, mtp_layers: %d}}`
	const shape = `{model_type: nemotron_h, hybrid_override_pattern: "ME*E", hidden_size: 2048, intermediate_size: 1024, num_attention_heads: 16, num_key_value_heads: 2, head_dim: 128, mamba_num_heads: 64, mamba_head_dim: 64, vocab_size: 131072, n_routed_experts: 64, num_experts_per_tok: 4, moe_intermediate_size: 1024, moe_shared_expert_intermediate_size: 2048, tie_word_embeddings: false%s}`
	of := func(more string, n int) (products, params, reduced float64) {
		j := mustParse(t, fmt.Sprintf(job, fmt.Sprintf(shape, more), n))
		m := ops.Build(config(j))
		for _, s := range []*tape.Section{&m.Head.Forward, &m.Head.Backward} {
			for i := range s.Ops {
				products += float64(s.Ops[i].FLOPs)
			}
		}
		r, err := Estimate(j, Options{Detail: true})
		require.NoError(t, err)
		for _, c := range r.Detail.Collectives {
			if c.Kind == "reduce-scatter" {
				reduced += float64(c.Bytes) * float64(c.Count)
			}
		}
		return products, float64(m.Head.LocalParams()), reduced
	}
	own, two, each := of("", 2)
	same, shared, once := of(", mtp_use_repeated_layer: true", 2)
	work, one, alone := of("", 1)
	require.Equal(t, own, same)
	require.Less(t, work, own)
	require.Equal(t, one, shared)
	require.Less(t, shared, two)
	require.Equal(t, alone, once)
	require.Less(t, once, each)
}
