package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/memory"
)

// TestOptimizers: Adam keeps two moments of each parameter, Megatron's SGD one,
// torch.optim.SGD none, which then reads and writes as many bytes less; Adam's loop over
// tensors, ten launches for each, takes longer than its few launches of many tensors.
func TestOptimizers(t *testing.T) {
	of := func(recipe, optimizer string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: gpt2, hardware: h100-sxm, gpus: 1, runtime: {recipe: %s}, plan: {}, train: {micro_batch: 1, precision: %s, optimizer: %s}}", recipe, map[string]string{"hf-eager": "bf16-autocast", "megatron-lm": "bf16"}[recipe], optimizer)))
	}
	parameters := float64(of("hf-eager", "sgd").Job.Model.Params().Total)
	states := func(r *Result) float64 { return float64(r.Memory.By[memory.OptimizerStates]) / parameters }
	for _, c := range []struct {
		recipe, optimizer string
		bytes             float64
	}{
		{"hf-eager", "adamw-fused", 8}, {"hf-eager", "adamw-foreach", 8}, {"hf-eager", "adamw", 8}, {"hf-eager", "sgd", 0},
		{"megatron-lm", "adamw-fused", 12}, {"megatron-lm", "sgd", 8},
	} {
		require.InDelta(t, c.bytes, states(of(c.recipe, c.optimizer)), 0.1, "%s %s", c.recipe, c.optimizer)
	}
	require.Less(t, float64(of("hf-eager", "sgd").Optimizer), 0.8*float64(of("hf-eager", "adamw-foreach").Optimizer))
	require.Greater(t, float64(of("hf-eager", "adamw").Optimizer), 2*float64(of("hf-eager", "adamw-foreach").Optimizer))
}

// TestWrittenAdamW: CS336's AdamW goes through 35 values for each of fp32, PyTorch's loop through 21. Whole steps of 2.0 billion on an
// A100 of 40 GB took 194.1 and 218.7 ms more than both passes (yyin-dev/cs336-a2 data/e2e_benchmark, 1600, 48 layers, 128 and 256 tokens).
func TestWrittenAdamW(t *testing.T) {
	const job = "{model: {model_type: decoder, hidden_size: 1600, num_hidden_layers: 48, num_attention_heads: 25, intermediate_size: 6400, gated_mlp: true, vocab_size: 10000, position: rope, bias: false, tie_word_embeddings: false}, " +
		"hardware: a100-40g-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: unfused}, plan: {}, train: {sequence_length: 256, micro_batch: 4, precision: fp32, optimizer: %s}}"
	of := func(optimizer string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(job, optimizer))).Optimizer)
	}
	require.InEpsilon(t, (0.1941+0.2187)/2, of("adamw-written"), 0.06)
	require.InEpsilon(t, 35./21, of("adamw-written")/of("adamw"), 0.05)
}

// TestLoopRunsBesideItsKernels: PyTorch's loop over tensors waits for none of them, so that the
// update takes as long as the slower of the host and the device: of 8 billion parameters the
// device, at any speed of the host. Source: torch/optim/adam.py, _single_tensor_adam; the loops
// of calibrate/runs/data/turns.yaml took less than both in turn.
func TestLoopRunsBesideItsKernels(t *testing.T) {
	of := func(model, speed string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf("{model: %s, hardware: b200-sxm, gpus: 1, runtime: {recipe: hf-eager, host_speed: %s}, plan: {}, train: {sequence_length: 128, micro_batch: 1, precision: bf16-pure, optimizer: adamw}}", model, speed))).Optimizer)
	}
	require.InEpsilon(t, of("llama3-8b", "10"), of("llama3-8b", "1"), 0.02)
	require.Greater(t, of("gpt2", "1"), 3*of("gpt2", "10"))
}

// TestDistributedUpdates: what DTensors cost the host beyond plain tensors. PyTorch's loop
// dispatches eight ops of each, foreach as many of all, the fused AdamW one: 11 and 2.6 times as
// long (model/recipe/base/pytorch.yaml). They are DTensors under FSDP2, and where torchtitan's
// tensor parallelism cuts them.
func TestDistributedUpdates(t *testing.T) {
	of := func(recipe, plan, optimizer string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf("{model: gpt2, hardware: b200-sxm, gpus: 2, runtime: {recipe: %s, host_speed: 0.05}, plan: {%s}, train: {sequence_length: 128, micro_batch: 1, optimizer: %s, clip_gradients: false}}", recipe, plan, optimizer))).Optimizer)
	}
	more := func(optimizer string) float64 {
		return of("hf-eager", "data_parallel: fsdp2", optimizer) - of("hf-eager", "data_parallel: ddp", optimizer)
	}
	require.InEpsilon(t, 11, more("adamw")/more("adamw-fused"), 0.05)
	require.InEpsilon(t, 2.6, more("adamw-foreach")/more("adamw-fused"), 0.05)
	require.Greater(t, of("torchtitan-eager", "tp: 2", "adamw-fused"), 2*of("torchtitan-eager", "data_parallel: ddp", "adamw-fused"))
}

// TestOneRankWrapped: fully_shard on a mesh of one rank copies each unit's parameters before
// both of its passes and its gradients twice, cast in between: 2*4 and 6*4 bytes of each and
// more, beside what the compute stream does. Without, and where torchtitan wraps none, there is
// nothing to gather.
func TestOneRankWrapped(t *testing.T) {
	of := func(more string) *Result {
		return mustEstimate(t, mustParse(t, "{model: llama3-8b, hardware: gh200-96g, gpus: 1, runtime: {recipe: torchtitan-eager, release: '25.01'}, plan: {data_parallel: fsdp2"+more+"}, train: {sequence_length: 2048, micro_batch: 1, precision: bf16, dtypes: {weights: bf16, gradients: bf16, moments: bf16, reduce: fp32}, optimizer: adamw-fused}}"))
	}
	plain, wrapped := of(""), of(", wrap_one_rank: true")
	require.Equal(t, "one GPU", plain.Job.Plan.String())
	require.Equal(t, "fsdp2", wrapped.Job.Plan.String())
	n, rate := float64(plain.Job.Model.Params().Total), float64(plain.Job.Hardware.GPU.Bandwidth.Value)
	require.Greater(t, float64(wrapped.StepTime-plain.StepTime), 8*n/rate)
	require.Less(t, float64(wrapped.StepTime-plain.StepTime), 60*n/rate) // at less than full bandwidth
	const layer = 218_112_000                                            // parameters
	require.Greater(t, float64(wrapped.Memory.PeakAllocated-plain.Memory.PeakAllocated), 2.*layer)
}

// TestClipping: clipping reads gradients once for their norm, and reads and writes them once
// more, whatever the framework does by itself; an H100 took 2.7 to 8.9 ms of 1.2 to 2.8
// billion values in 16 bits and 5.7 of 1.2 in 32.
func TestClipping(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 1, runtime: {recipe: %s}, plan: {dp: 1}, train: {sequence_length: 4096, micro_batch: 2, precision: %s%s}}"
	optimizer := func(recipe, precision, more string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(job, recipe, precision, more))).Optimizer)
	}
	for _, c := range []struct {
		recipe, precision string
		clips             bool
		size              float64
	}{{"hf-eager", "bf16-pure", false, 2}, {"hf-eager", "bf16-autocast", false, 4}, {"torchtitan", "bf16-mixed", true, 4}} {
		on, off := optimizer(c.recipe, c.precision, ", clip_gradients: true"), optimizer(c.recipe, c.precision, ", clip_gradients: false")
		require.InEpsilon(t, 3*c.size*1.236e9/2.6e12, on-off, 0.15, c.recipe)
		own := off
		if c.clips {
			own = on
		}
		require.Equal(t, own, optimizer(c.recipe, c.precision, ""), "%s: left out", c.recipe)
	}
}

// TestMemoryWithoutMoments: an optimizer that keeps no moments needs less memory than one that
// does. What the step's memory was made of, such as DeepSpeed's copies of weights that go into flat
// buffers, is no part of the step's peak, whatever the optimizer.
func TestMemoryWithoutMoments(t *testing.T) {
	for _, plan := range []string{"recipe: deepspeed-hf, release: 26.03/zero2", "recipe: deepspeed-hf/zero1", "recipe: deepspeed-hf/zero2", "recipe: deepspeed-hf/zero3", "recipe: hf-eager/fsdp2", "recipe: hf-eager/ddp", "recipe: megatron-core/zero1"} {
		recipe, kind, _ := strings.Cut(plan, "/")
		of := func(optimizer string) *Memory {
			r := mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: h100-sxm, gpus: 32, runtime: {%s}, plan: {dp: 32, data_parallel: %s}, train: {sequence_length: 256, micro_batch: 1, optimizer: %s}}", recipe, kind, optimizer)))
			return &r.Memory
		}
		sgd, adam := of("sgd"), of("adamw-fused")
		require.Less(t, float64(sgd.PeakAllocated), float64(adam.PeakAllocated), plan)
		require.NotEqual(t, "between steps", sgd.Moment, plan)
	}
}

// TestTensorwise: what PyTorch allocated, and how long updates took, of a Llama of a billion
// parameters with bitsandbytes' optimizers (H200, bitsandbytes 0.48.2, 2026-11-29). In 8 bits the
// embedding keeps 32; paged states are on the device, but not PyTorch's. Adafactor's updates wait
// for their host, which is taken to be ahead of the device.
func TestTensorwise(t *testing.T) {
	const job = `{model: {model_type: llama, hidden_size: 2048, num_hidden_layers: 12, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 64, intermediate_size: 8192, vocab_size: 64000, tie_word_embeddings: false},
		hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: sdpa}, plan: {}, train: {sequence_length: 2048, micro_batch: 4, precision: %s, optimizer: %s}}`
	for _, c := range []struct {
		precision, optimizer string
		allocated, outside   float64 // GB
		update               float64 // ms
	}{
		{"bf16-pure", "adamw-8bit", 21.959, 0, 31.8}, {"bf16-autocast", "adamw-8bit", 27.714, 0, 35.4},
		{"bf16-pure", "paged-adamw-8bit", 19.189, 2.77, 34.5}, {"bf16-autocast", "paged-adamw-8bit", 24.942, 2.77, 34.7},
		{"bf16-pure", "adamw-32bit", 27.097, 0, 16.5}, {"bf16-pure", "paged-adamw-32bit", 19.161, 7.936, 23.4},
		{"bf16-pure", "adafactor", 19.164, 0, 38.3}, {"bf16-autocast", "adafactor", 24.917, 0, 30.1},
		{"bf16-pure", "lion-8bit", 20.560, 0, 25.4}, {"bf16-autocast", "lion-32bit", 28.882, 0, 15.8},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(job, c.precision, c.optimizer)))
		require.InEpsilon(t, c.allocated, float64(r.Memory.PeakAllocated)/1e9, 0.002, "%s %s", c.precision, c.optimizer)
		off := 0.25
		if c.optimizer == "adafactor" {
			off = 0.35
		}
		require.InEpsilon(t, c.update, 1e3*float64(r.Optimizer), off, "%s %s", c.precision, c.optimizer)
		var outside float64
		for _, x := range r.Memory.Outside {
			if x.Name == "paged_states" {
				outside = float64(x.Bytes) / 1e9
			}
		}
		require.InDelta(t, c.outside, outside, 0.02, "%s %s", c.precision, c.optimizer)
	}
}

// TestAdafactorOfVectors: transformers' Adafactor launches 24 kernels for a matrix and 16 for a vector, whose
// statistics are not factored, and three casts of either in 16 bits (optimization.py of 5.17; traces of an H200).
// Biases of a layer's six projections and its two norms are eight vectors more.
func TestAdafactorOfVectors(t *testing.T) {
	of := func(bias bool, precision string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf("{model: {model_type: decoder, hidden_size: 256, num_hidden_layers: 10, num_attention_heads: 4, intermediate_size: 1024, vocab_size: 1000, norm: layernorm, gated_mlp: false, fused_qkv: false, bias: %t}, "+
			"hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, host_speed: 0.05}, plan: {}, train: {sequence_length: 128, micro_batch: 1, precision: %s, optimizer: adafactor}}", bias, precision))).Optimizer)
	}
	const call = 0.17e-3 // of a host that slow
	require.InEpsilon(t, 61*16*call, of(true, "fp32")-of(false, "fp32"), 0.1)
	require.InEpsilon(t, 61*19*call, of(true, "bf16-pure")-of(false, "bf16-pure"), 0.1)
	require.InEpsilon(t, (62*24+61*16+21*16)*call, of(true, "fp32"), 0.25)
}

// TestPreparedWeights: QLoRA on 16 layers as wide as Llama 3 8B's (H200, PEFT 0.18, bitsandbytes
// 0.48.2, 2026-11-29), as loaded and after prepare_model_for_kbit_training, by which what lies between
// layers, and what projections put out, is fp32.
func TestPreparedWeights(t *testing.T) {
	const job = `{model: {model_type: llama, hidden_size: 4096, num_hidden_layers: 16, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, vocab_size: 128256, tie_word_embeddings: false},
		hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager, attention: sdpa}, plan: {}, train: {sequence_length: 2048, %s, optimizer: %s, lora: {rank: 16, targets: [attention, mlp]}}}`
	for _, c := range []struct {
		train, optimizer string
		allocated        float64 // GB
		step             float64 // ms
	}{
		{"micro_batch: 4, precision: nf4-frozen", "adamw-fused", 0, 360.1},
		{"micro_batch: 2, precision: nf4-frozen, recompute: full", "adamw-fused", 11.130, 265.1},
		{"micro_batch: 2, precision: nf4-pure, dtypes: {adapters: fp32}, recompute: full", "adamw-fused", 11.130, 333.8},
		{"micro_batch: 1, precision: nf4-prepared", "adamw-fused", 20.244, 146.9},
		{"micro_batch: 2, precision: nf4-prepared, recompute: full", "paged-adamw-32bit", 14.732, 356.1},
		{"micro_batch: 4, precision: nf4-prepared, recompute: full", "adamw-fused", 0, 652.6},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(job, c.train, c.optimizer)))
		require.InEpsilon(t, c.step, 1e3*float64(r.StepTime), 0.12, c.train)
		if c.allocated > 0 {
			require.InEpsilon(t, c.allocated, float64(r.Memory.PeakAllocated)/1e9, 0.005, c.train)
		}
	}
}

// TestLoopTemporaries: AdamW's loop holds two results beside the tensor at hand, the largest a table
// (torch/optim/adam.py, _single_tensor_adam: denom). Of the same in transformers' tensor parallelism on
// four H100 a public page has 38.88 GiB, 4.1 of them such.
func TestLoopTemporaries(t *testing.T) {
	t.Parallel()
	peak := func(optimizer string) float64 {
		return float64(mustEstimate(t, mustParse(t, "{model: qwen2.5-7b, hardware: h200-sxm, gpus: 1, runtime: {recipe: hf-eager}, plan: {}, train: {sequence_length: 64, micro_batch: 1, precision: bf16-pure, optimizer: "+optimizer+"}}")).Memory.PeakAllocated)
	}
	require.InEpsilon(t, 2*2*152064*3584, peak("adamw")-peak("adamw-fused"), 0.05)
}

// TestClippingHost: small gradients wait for the Python that clips them, 160 us and 5.2 for each tensor (clip_grad_norm_ of 20 to 400 on a
// host that takes 3.95 for a tensor of AdamW).
func TestClippingHost(t *testing.T) {
	took := func(layers int, clip bool) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf("{model: {model_type: decoder, hidden_size: 64, num_hidden_layers: %d, num_attention_heads: 1, intermediate_size: 128, gated_mlp: true, hidden_act: silu, norm: rmsnorm, position: rope, bias: false, vocab_size: 128, tie_word_embeddings: false}, "+
			"hardware: h200-sxm, gpus: 1, runtime: {recipe: pytorch, release: '26.04'}, plan: {dp: 1}, train: {sequence_length: 64, micro_batch: 1, precision: bf16-pure, clip_gradients: %v}}", layers, clip))).Optimizer)
	}
	const tensors = 9
	for _, layers := range []int{8, 32} {
		require.InDelta(t, 160e-6+5.2e-6*float64(tensors*layers+3), took(layers, true)-took(layers, false), 50e-6, layers)
	}
}
