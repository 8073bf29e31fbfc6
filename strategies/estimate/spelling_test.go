package estimate

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/internal/yamlx"
)

// TestSpellings: two ways to write one workload give one prediction.
func TestSpellings(t *testing.T) {
	const llama = "model_type: llama, hidden_size: 2048, num_hidden_layers: 22, num_attention_heads: 32, num_key_value_heads: 4, intermediate_size: 5632, vocab_size: 32000, tie_word_embeddings: false, max_position_embeddings: 2048, rms_norm_eps: 1e-5"
	for _, c := range []struct{ name, a, b string }{
		{"global batch or accumulation", "{model: llama2-7b, gpus: 16, plan: {tp: 2}, train: {micro_batch: 2, global_batch: 64}}", "{model: llama2-7b, gpus: 16, plan: {tp: 2}, train: {micro_batch: 2, grad_accumulation: 4}}"},
		{"dp given or not", "{model: llama2-7b, gpus: 16, plan: {tp: 2, pp: 2, dp: 4}}", "{model: llama2-7b, gpus: 16, plan: {tp: 2, pp: 2}}"},
		{"defaults written out", "{model: llama2-7b, gpus: 8, plan: {}}", "{perfplan: job/v1, model: llama2-7b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, attention: flash}, plan: {tp: 1, cp: 1, ep: 1, pp: 1, dp: 8, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 1, precision: bf16, recompute: none, optimizer: adamw-fused}}"},
		{"catalog or keys", "{model: tinyllama-1.1b, gpus: 8, plan: {}, train: {sequence_length: 2048}}", "{model: {" + llama + "}, gpus: 8, plan: {}, train: {sequence_length: 2048}}"},
		{"alias of the catalog's name", "{model: meta-llama/Llama-2-7b-hf, gpus: 8, plan: {}}", "{model: llama2-7b, gpus: 8, plan: {}}"},
		{"units", "{model: llama2-7b, gpus: 16, plan: {data_parallel: ddp, bucket: 25 MiB}, runtime: {recipe: hf-eager}}", "{model: llama2-7b, gpus: 16, plan: {data_parallel: ddp, bucket: 26214400 B}, runtime: {recipe: hf-eager}}"},
		{"inline hardware", "{model: llama2-7b, gpus: 16, hardware: h200-sxm, plan: {}}", "{model: llama2-7b, gpus: 16, hardware: {inherits: h200-sxm}, plan: {}}"},
		{"network in bits or bytes", "{model: llama2-7b, gpus: 16, network: {bandwidth_per_gpu: 400 Gbit/s}, plan: {}}", "{model: llama2-7b, gpus: 16, network: {bandwidth_per_gpu: 50 GB/s}, plan: {}}"},
		{"no recomputation", "{model: llama2-7b, gpus: 8, plan: {}, train: {recompute: none}}", "{model: llama2-7b, gpus: 8, plan: {}}"},
		{"whole sharding as a degree", "{model: llama2-7b, gpus: 16, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2, shard_degree: 16}}", "{model: llama2-7b, gpus: 16, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2}}"},
		{"precision and its own cells", "{model: llama2-7b, gpus: 8, plan: {}, train: {precision: bf16, dtypes: {master: fp32, reduce: fp32}}}", "{model: llama2-7b, gpus: 8, plan: {}, train: {precision: bf16}}"},
		{"loss of tensor ranks as torchtitan has it", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, loss_parallel: true}, plan: {tp: 8}}", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan}, plan: {tp: 8}}"},
		{"layouts of tensor ranks as torchtitan has them", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, shared_tp_input: true, vocab_parallel: true}, plan: {tp: 8}}", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan}, plan: {tp: 8}}"},
		{"chunks of the loss as torchtitan has them", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, loss_chunks: 8}, plan: {}}", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan}, plan: {}}"},
		{"and had none", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, release: \"26.04\", loss_chunks: 1}, plan: {}}", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, release: \"26.04\"}, plan: {}}"},
		{"pieces of tensor ranks as torchtitan has them", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, tp_overlap: false}, plan: {tp: 8}}", "{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan}, plan: {tp: 8}}"},
		{"exchanges of Megatron-Core's data ranks", "{model: llama3-8b, gpus: 16, runtime: {overlap_grad_reduce: true, overlap_param_gather: true}, plan: {tp: 4}}", "{model: llama3-8b, gpus: 16, plan: {tp: 4}}"},
		{"exchanges of pretrain_gpt.py's data ranks", "{model: llama3-8b, gpus: 16, runtime: {recipe: megatron-pretrain, overlap_grad_reduce: false}, plan: {tp: 4}}", "{model: llama3-8b, gpus: 16, runtime: {recipe: megatron-pretrain}, plan: {tp: 4}}"},
		{"gathered stages of torchtitan", "{model: llama3-8b, gpus: 16, runtime: {recipe: torchtitan}, plan: {pp: 2, reshard_after_forward: false}, train: {grad_accumulation: 4}}", "{model: llama3-8b, gpus: 16, runtime: {recipe: torchtitan}, plan: {pp: 2}, train: {grad_accumulation: 4}}"},
		{"sequence parallelism of Megatron", "{model: llama2-7b, gpus: 8, plan: {tp: 4}}", "{model: llama2-7b, gpus: 8, plan: {tp: 4, sequence_parallel: true}}"},
	} {
		a, b := mustEstimate(t, mustParse(t, c.a)), mustEstimate(t, mustParse(t, c.b))
		require.Equal(t, figuresOf(t, a), figuresOf(t, b), c.name)
	}
}

// TestScriptsHost: a step that waits for the host takes as long by Megatron-LM's scripts as by
// megatron-core at 0.8 of the speed with their checks, and longer than at all of it.
func TestScriptsHost(t *testing.T) {
	const text = "{model: qwen3-30b-a3b, gpus: 8, runtime: {recipe: %s, cuda_graphs: none, token_dispatcher: deepep}, plan: {ep: 8}, train: {sequence_length: 1024, micro_batch: 1}}"
	of := func(runtime string) units.Seconds {
		return mustEstimate(t, mustParse(t, fmt.Sprintf(text, runtime))).StepTime
	}
	require.InEpsilon(t, float64(of("megatron-core, nan_checks: true, host_speed: 0.8")), float64(of("megatron-script")), 1e-12)
	require.Greater(t, of("megatron-script"), 1.15*of("megatron-core, nan_checks: true"))
}

// figuresOf is everything that a result says but for the job and its defaults.
func figuresOf(t require.TestingT, r *Result) string {
	x := *r
	x.Job, x.Notes, x.Detail = nil, nil, nil
	x.Memory.Moment = "" // only a recorded walk tells the layers apart
	text, err := json.Marshal(x)
	require.NoError(t, err)
	return string(text)
}

// TestJSONIsYAML: a job in JSON is the job in YAML.
func TestJSONIsYAML(t *testing.T) {
	yaml := mustParse(t, "model: tinyllama-1.1b\ngpus: 8\nplan:\n  tp: 2\ntrain:\n  micro_batch: 2\n")
	doc, err := yamlx.Parse("job.json", []byte(`{"model": "tinyllama-1.1b", "gpus": 8, "plan": {"tp": 2}, "train": {"micro_batch": 2}}`))
	require.NoError(t, err)
	require.NotNil(t, doc)
	json := mustParse(t, `{"model": "tinyllama-1.1b", "gpus": 8, "plan": {"tp": 2}, "train": {"micro_batch": 2}}`)
	require.Equal(t, figuresOf(t, mustEstimate(t, yaml)), figuresOf(t, mustEstimate(t, json)))
}

// TestEstimateIsDeterministic: the same job gives the same result to the last bit,
// with and without recording.
func TestEstimateIsDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d, j, first := drawn(t)
		for _, o := range []Options{{}, {Detail: true}, {Record: true}} {
			again, err := parse(d.String())
			require.NoError(t, err)
			r, err := Estimate(again, o)
			require.NoError(t, err)
			r.Spans, first.Spans = nil, nil
			require.Equal(t, figuresOf(t, first), figuresOf(t, r), "%s", d)
		}
		again, err := Estimate(j, Options{})
		require.NoError(t, err)
		require.Equal(t, figuresOf(t, first), figuresOf(t, again), "%s: an estimate changes its job", d)
	})
}

// BenchmarkEstimate is one estimate of a 70B job on 64 GPUs.
func BenchmarkEstimate(b *testing.B) {
	for name, text := range map[string]string{
		"tp8+dp8": "{model: llama2-70b, gpus: 64, plan: {tp: 8, data_parallel: zero1}, train: {global_batch: 64, recompute: full}}",
		"fsdp2":   "{model: llama3-70b, gpus: 64, runtime: {recipe: torchtitan}, plan: {data_parallel: fsdp2}, train: {sequence_length: 8192, recompute: full}}",
		"tp4+pp4": "{model: llama2-70b, gpus: 64, plan: {tp: 4, pp: 4, data_parallel: zero1}, train: {global_batch: 128}}",
	} {
		j := mustParse(b, text)
		for mode, o := range map[string]Options{"bare": {}, "record": {Record: true}, "detail": {Record: true, Detail: true}} {
			b.Run(name+"/"+mode, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Estimate(j, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
