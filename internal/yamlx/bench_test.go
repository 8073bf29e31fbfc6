package yamlx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchmarkJob is a job file with comments, an inline model and an inline
// profile: about a hundred lines.
const benchmarkJob = `# Llama-2-7B on a changed machine.
perfplan: job/v1

model:                             # the keys of a config.json
  model_type: llama
  hidden_size: 4096
  num_hidden_layers: 32
  num_attention_heads: 32
  num_key_value_heads: 32
  intermediate_size: 11008
  vocab_size: 32000
  max_position_embeddings: 4096
  rms_norm_eps: 1.0e-05
  hidden_act: silu
  tie_word_embeddings: false
  torch_dtype: bfloat16
  architectures:
    - LlamaForCausalLM
  bos_token_id: 1
  eos_token_id: 2

hardware:
  inherits: h100-sxm
  gpu:
    name: H100 with a lower cap
    architecture: hopper
    peak:
      bf16: {value: 989.4 TFLOP/s, source: "NVIDIA H100 datasheet, dense", kind: datasheet}
      fp8: {value: 1978.9 TFLOP/s, source: "NVIDIA H100 datasheet, dense", kind: datasheet}
      tf32: {value: 494.7 TFLOP/s, source: "NVIDIA H100 datasheet, dense", kind: datasheet}
      fp32: {value: 66.9 TFLOP/s, source: "NVIDIA H100 datasheet", kind: datasheet}
    memory: {value: 81559 MiB, source: nvidia-smi, kind: measured}
    bandwidth: 3.35 TB/s
    l2: 50 MiB
    sms: 132
    clock: 1830 MHz
    max_clock: 1980 MHz
    power: 500 W
    nvlink: 450 GB/s
    pcie: 64 GB/s
    compute_capability: "9.0"
  node:
    gpus: 8
    nvswitch: true
    cpu_cores: 96
    host_memory: 2 TB
  network:
    nics: 8
    nic_bandwidth: 400 Gbit/s
    topology: rail
    oversubscription: 1.0
  software:
    cuda: 12.8
    nccl: 2.26.2
    driver: 570.124
  price:
    gpu_hour: {value: 2.5, source: "list price", kind: assumed}
  measured:
    clock:
      - {load: gemm, power: 500 W, clock: 1410 MHz}
      - {load: memory, power: 430 W, clock: 1830 MHz}
    collectives:
      - op: all-reduce
        ranks: 8
        bytes: [1 KiB, 32 KiB, 1 MiB, 32 MiB, 1 GiB]
        time: [21.4 us, 24.0 us, 36.2 us, 160.5 us, 4.1 ms]
      - op: all-gather
        ranks: 8
        bytes: [1 KiB, 32 KiB, 1 MiB, 32 MiB, 1 GiB]
        time: [18.9 us, 20.1 us, 29.7 us, 103.2 us, 2.4 ms]
      - op: reduce-scatter
        ranks: 8
        bytes: [1 KiB, 32 KiB, 1 MiB, 32 MiB, 1 GiB]
        time: [19.3 us, 20.8 us, 30.4 us, 105.9 us, 2.4 ms]

gpus: 64

runtime:
  recipe: torchtitan
  attention: sdpa
  compile_scope: layer
  fused_cross_entropy: false

plan:
  tp: 2
  sequence_parallel: true
  cp: 1
  ep: 1
  pp: 1
  virtual_stages: 1
  dp: 32
  data_parallel: fsdp2
  shard_degree: 8
  reshard_after_forward: true
  bucket: 25 MiB

train:
  sequence_length: 4096
  micro_batch: 1
  grad_accumulation: 4
  precision: bf16-mixed
  reduce_dtype: fp32
  optimizer: adamw-fused
  recompute: none
`

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(benchmarkJob)))
	for b.Loop() {
		if _, err := Parse("job.yaml", []byte(benchmarkJob)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	d, err := Parse("job.yaml", []byte(benchmarkJob))
	require.NoError(b, err)
	type curve struct {
		Op    string   `yaml:"op"`
		Ranks int64    `yaml:"ranks"`
		Bytes []string `yaml:"bytes"`
		Time  []string `yaml:"time"`
	}
	b.ReportAllocs()
	for b.Loop() {
		var curves []curve
		if errs := d.DecodeInto(d.At("hardware", "measured", "collectives"), &curves); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	d, err := Parse("job.yaml", []byte(benchmarkJob))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Set("--tp", "plan.tp", "4", ""); err != nil {
			b.Fatal(err)
		}
	}
}

// The largest file of the catalog has some hundred kilobytes; its lines must not
// cost more than those of a small one.
func BenchmarkParseRuns(b *testing.B) {
	text := []byte("runs:\n" + strings.Repeat("  - {id: a, model: llama2-7b, gpus: 64, plan: {tp: 2, data_parallel: fsdp2}, measured: {step_time: 529.5 ms}}\n", 3000))
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse("runs.yaml", text); err != nil {
			b.Fatal(err)
		}
	}
}
