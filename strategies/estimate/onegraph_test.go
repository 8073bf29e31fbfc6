package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/model/tape"
)

// TestCompiledTables: what a compiler that sees the whole model makes of the gradients of a
// tied table, 4096 tokens of 2048 into 128,256 rows (traces of one H200, shared with the
// steps u0-01 and u1-00 of h200-steps.yaml; the sum of rows without the norm it is fused with).
func TestCompiledTables(t *testing.T) {
	const model = `{model_type: llama, hidden_size: 2048, num_hidden_layers: 4, num_attention_heads: 32, num_key_value_heads: 8, intermediate_size: 8192, vocab_size: 128256, tie_word_embeddings: true}`
	for _, c := range []struct {
		precision string
		want      map[string]units.Seconds
	}{
		{"bf16-pure", map[string]units.Seconds{"fill_": 227.7e-6, "embedding_backward": 42e-6, "to": 359.1e-6, "tied": 244.3e-6}},
		{"bf16-autocast", map[string]units.Seconds{"fill_": 227.7e-6, "embedding_backward": 37e-6, "tied": 605.9e-6}},
	} {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: %s, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-compile}, plan: {}, train: {precision: %s, sequence_length: 2048, micro_batch: 2, grad_accumulation: 1}}`,
			model, c.precision)), Options{Detail: true})
		require.NoError(t, err)
		got := map[string]units.Seconds{}
		for _, o := range r.Detail.Units[0].Backward {
			got[o.Op.Prim] += o.Time
		}
		for _, k := range r.Detail.Kernels {
			got[k.Op.Prim] += k.Time
		}
		for name, want := range c.want {
			require.InEpsilon(t, float64(want), float64(got[name]), 0.2, "%s of %s", name, c.precision)
		}
		require.NotContains(t, got, "sort", c.precision)
		for _, o := range r.Detail.Units[len(r.Detail.Units)-1].Backward {
			require.NotEqual(t, "to", o.Op.Prim, "the head's gradient is cast as it is added")
		}
	}
}

// TestCutGraphs: DDP's buckets cut a compiled graph, and the host enters each piece; where the
// device is busy all the time nothing is lost, but the casts that each makes for itself under autocast.
func TestCutGraphs(t *testing.T) {
	step := func(seq, bucket int, precision string) *Result {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: {model_type: llama, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 16, intermediate_size: 2816, vocab_size: 32000},
			hardware: h200-sxm, gpus: 2, runtime: {recipe: hf-compile}, plan: {dp: 2, data_parallel: ddp, bucket: %d MiB}, train: {precision: %s, sequence_length: %d, micro_batch: 1, grad_accumulation: 1}}`, bucket, precision, seq)), Options{})
		require.NoError(t, err)
		return r
	}
	many, few := step(16, 25, "bf16-autocast"), step(16, 100000, "bf16-autocast")
	// 42 pieces and two: two H200 whose host took 1.26 times as long as its eager passes were said to
	// (2026-11-27, the fastest of 20 passes: 27.06 and 14.07 ms forward, 33.64 and 19.79 backward)
	require.InEpsilon(t, (27.06-14.07)/1.26*1e-3, float64(many.Forward-few.Forward), 0.15)
	require.Less(t, few.StepTime, many.StepTime)
	require.Less(t, step(8192, 25, "bf16-pure").Forward, 1.02*step(8192, 100000, "bf16-pure").Forward)
}

// TestCompiledActivations: a compiler makes one kernel of an activation and one of its
// gradient, whatever it is made of.
func TestCompiledActivations(t *testing.T) {
	for _, name := range []string{"silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2"} {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 16, intermediate_size: 4096, gated_mlp: false, hidden_act: %s, vocab_size: 32000},
			hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-compile}, plan: {}, train: {precision: bf16-pure, sequence_length: 2048, micro_batch: 1}}`, name)), Options{Detail: true})
		require.NoError(t, err)
		for _, pass := range [][]OpDetail{r.Detail.Units[1].Forward, r.Detail.Units[1].Backward} {
			kernels := 0
			for _, o := range pass {
				if o.Op.Module == "mlp" && o.Op.Class != tape.GEMM && o.Op.Class != tape.ColReduce { // sums of biases' gradients
					kernels++
				}
			}
			require.Equal(t, 1, kernels, name)
		}
	}
}

// TestLayerGraphs: FSDP's hooks leave a graph of each layer, which turns the mask of all pairs into numbers of its own and keeps them: an OLMo 3 of
// eight layers, compiled whole, four sequences of 4,096 on two H200 under FSDP2, held 8 of 128 MiB at its peak of 10.01 GiB, alone two (2026-11-30).
func TestLayerGraphs(t *testing.T) {
	const job = "{model: {model_type: olmo3, hidden_size: 768, num_hidden_layers: 8, num_attention_heads: 12, vocab_size: 50304, max_position_embeddings: 4100, num_key_value_heads: 12, head_dim: 64, intermediate_size: 2048}, hardware: h200-sxm, gpus: 2, runtime: {recipe: hf-compile, attention: sdpa}, plan: {dp: 2, data_parallel: %s}, train: {sequence_length: 4096, micro_batch: 4, precision: %s, grad_accumulation: 1, optimizer: adamw}}"
	r := predicted(t, fmt.Sprintf(job, "fsdp2", "bf16-mixed, reduce_dtype: fp32"))
	require.InEpsilon(t, 10753057792, float64(r.Memory.PeakAllocated), 0.01)
	require.False(t, layerGraphs(predicted(t, fmt.Sprintf(job, "ddp", "bf16-pure")).Job), "DDP's graphs are of buckets")
	alone := strings.NewReplacer("gpus: 2", "gpus: 1", "dp: 2", "dp: 1").Replace(job)
	for _, c := range []struct {
		plan   string
		layers bool
	}{{"fsdp2", false}, {"fsdp2, wrap_one_rank: true", true}} { // hooks go with the wrapping
		j := predicted(t, fmt.Sprintf(alone, c.plan, "bf16-mixed")).Job
		require.Equal(t, c.layers, layerGraphs(j), c.plan)
		require.Equal(t, !c.layers, oneGraph(j), c.plan)
	}
}
