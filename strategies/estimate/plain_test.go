package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlainPyTorch: the bytes that a training file in plain PyTorch allocated at most on an H200, by its norms, precision
// and loss, and its kernels, in ms (PyTorch 2.11, 2026-11-29; calibrate/runs/data/plain.yaml): 12 layers 2048 wide, 8 sequences of 2048 tokens.
func TestPlainPyTorch(t *testing.T) {
	const text = `{model: {model_type: decoder, hidden_size: 2048, num_hidden_layers: 12, num_attention_heads: 16, num_key_value_heads: %d, intermediate_size: 5632, gated_mlp: true, hidden_act: silu, norm: rmsnorm, vocab_size: 32000, tie_word_embeddings: false},
hardware: h200-sxm, gpus: 1, runtime: {recipe: pytorch, release: "%s"%s}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: 2048, micro_batch: 8, precision: %s, clip_gradients: true, recompute: none}}`
	for _, c := range []struct {
		kv                          int
		release, runtime, precision string
		peak, step                  float64
	}{
		{16, "26.04", "", "bf16-autocast", 35191748096, 195.3},
		{16, "26.04", "", "bf16-pure", 23153787392, 158.4},
		{16, "26.04", ", norm_fusion: false", "bf16-autocast", 38547191296, 215.2},
		{16, "26.04", ", norm_fusion: false", "bf16-pure", 26509230592, 191.1},
		{16, "26.04", ", rotary: complex", "bf16-pure", 23151690240, 146.3},
		{4, "26.04", "", "bf16-autocast", 34134783488, 176.2},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(text, c.kv, c.release, c.runtime, c.precision)))
		require.InEpsilon(t, c.peak, float64(r.Memory.PeakAllocated), 0.001, "%+v", c)
		require.InEpsilon(t, c.step, 1e3*float64(r.StepTime), 0.03, "%+v", c)
	}
	// Before PyTorch 2.8 nn.RMSNorm is written out in PyTorch itself.
	older := mustEstimate(t, mustParse(t, fmt.Sprintf(text, 16, "25.07", "", "bf16-pure")))
	written := mustEstimate(t, mustParse(t, fmt.Sprintf(text, 16, "25.07", ", norm_fusion: false", "bf16-pure")))
	require.Equal(t, written.StepTime, older.StepTime)
}

// TestWrittenOutBook: rasbt/LLMs-from-scratch ch05/10_llm-training-speed on an A100 (README.md @0636158, PyTorch 2.6.0): 8 sequences of a GPT of 124M shape, layer norms
// and GELU first written out, then PyTorch's. What the process had reserved, in GiB, and what the change takes off a step: of 45,486 and 55,256
// tokens/s, readings of 15 steps and one evaluation of two thirds of a step, 30.5 ms.
func TestWrittenOutBook(t *testing.T) {
	const text = `{model: {model_type: gpt2, n_embd: 768, n_layer: 12, n_head: 12, n_positions: 1024, vocab_size: 50257, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1, activation_function: %s, tie_word_embeddings: false},
hardware: a100-40g-sxm, gpus: 1, runtime: {recipe: pytorch, attention: unfused, tf32: true, norm_fusion: %t, release: "25.02"}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: 1024, micro_batch: 8, precision: %s, optimizer: adamw-fused, clip_gradients: false, recompute: none}}`
	var steps []float64
	for _, c := range []struct {
		gelu, precision string
		fused           bool
		reserved        float64
	}{
		{"gelu_new", "fp32", false, 26.2422},
		{"gelu_new", "bf16-pure", false, 13.7871},
		{"gelu_pytorch_tanh", "bf16-pure", true, 11.5645},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(text, c.gelu, c.fused, c.precision)))
		require.InEpsilon(t, c.reserved, float64(r.Memory.PeakReserved)/(1<<30), 0.01, "%+v", c)
		steps = append(steps, 1e3*float64(r.StepTime))
	}
	require.InEpsilon(t, 30.5, steps[1]-steps[2], 0.05)
}

// TestNormStays: torch.nn.utils.clip_grad_norm_ leaves the norm on the device (torch/nn/utils/clip_grad.py), so that a host with as
// much to do as Muon's products by hand is at them while the backward pass runs; before PyTorch 2.1 it waits for the number.
func TestNormStays(t *testing.T) {
	const text = `{model: {model_type: gpt2, n_embd: 512, n_layer: 22, n_head: 8, n_positions: 2048, vocab_size: 49152}, hardware: rtx-4090, gpus: 1, runtime: {recipe: pytorch, attention: sdpa, host_speed: 0.8, release: "%s"}, plan: {dp: 1, data_parallel: ddp},
train: {sequence_length: 2048, micro_batch: 8, precision: bf16-autocast, optimizer: muon, clip_gradients: %t, recompute: none}}`
	for _, c := range []struct {
		release     string
		clips, wait bool
	}{{"25.12", true, false}, {"23.06", true, true}, {"23.06", false, false}} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(text, c.release, c.clips)))
		require.Equal(t, c.wait, r.HostIdle > 0.03*r.StepTime, "%+v: %v of %v", c, r.HostIdle, r.StepTime)
	}
}

// TestGradScaler: torch.amp.GradScaler reads and writes all gradients once more than bf16 does, and reads on the host whether they are finite, but
// for fused updates, whose kernel does and writes what it scales (torch/amp/grad_scaler.py, _unscale_grads_, _maybe_opt_step and step; fused_adam_utils.cuh).
// An H200 updates 112 million parameters at 8.1 ps each, under a scaler 222 million at 9.2 (2026-11-30).
func TestGradScaler(t *testing.T) {
	const text = `{model: gpt2, hardware: a100-80g-sxm, gpus: 1, runtime: {recipe: %s, attention: sdpa}, plan: {dp: 1, data_parallel: ddp}, train: {sequence_length: 1024, micro_batch: 8, precision: %s, optimizer: %s, clip_gradients: false, recompute: none}}`
	const pass = 2 * 4 * 124.44e6 / 1.8e9 // ms
	for _, recipe := range []string{"pytorch", "hf-eager"} {
		more := func(optimizer string) float64 {
			update := func(precision string) float64 {
				return 1e3 * float64(mustEstimate(t, mustParse(t, fmt.Sprintf(text, recipe, precision, optimizer))).Optimizer)
			}
			return update("fp16-autocast") - update("bf16-autocast")
		}
		require.InEpsilon(t, 1.5*pass, more("adamw-fused"), 0.15, recipe)
		require.Greater(t, more("adamw-foreach"), 1.5*pass, recipe)
	}
}

// TestOldMathAttention: before PyTorch 2.5 its attention by products of its own computed in the 16 bits that it got, where attention
// written out has autocast take softmax in fp32: 0.573 and 0.574 of its step with a model of nanoGPT's size, and 0.349 and 0.339
// with FlashAttention (Russyyds/nanonanoGPT README.md @97c9745, PyTorch 2.1, RTX 4070 and A100). Since then it computes in fp32.
func TestOldMathAttention(t *testing.T) {
	of := func(attention, release string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: 3072, gated_mlp: false, hidden_act: gelu, norm: layernorm, position: learned, max_position_embeddings: 1024, bias: false, vocab_size: 65, tie_word_embeddings: true},
			hardware: a100-40g-sxm, gpus: 1, runtime: {recipe: pytorch, attention: %s, release: "%s"}, plan: {}, train: {sequence_length: 1024, micro_batch: 6, grad_accumulation: 5, precision: bf16-autocast}}`, attention, release))).StepTime)
	}
	old := of("unfused", "23.10")
	require.InEpsilon(t, 0.574, of("math", "23.10")/old, 0.1)
	require.InEpsilon(t, 0.339, of("sdpa", "23.10")/old, 0.05)
	require.InDelta(t, 1, of("math", "24.11")/of("unfused", "24.11"), 0.1)
}

// TestWrittenOutAutocast: under bf16 autocast exp, sum and log of CS336's softmax and loss run in fp32: passes of four sequences of
// 1024 tokens through 24 layers of 1024 took an RTX 5090 87.0 and 184.1 ms, which 16 bits throughout make 30 % less
// (tiden0614/cs336-assignment2-systems Answers.md @3c8a30d, PyTorch 2.10).
func TestWrittenOutAutocast(t *testing.T) {
	r := mustEstimate(t, mustParse(t, `{model: {model_type: decoder, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 16, head_dim: 64, intermediate_size: 4096, gated_mlp: true, activation: silu, norm: rmsnorm, position: rope, bias: false, fused_qkv: false, vocab_size: 10000, tie_word_embeddings: false},
		hardware: rtx-5090, gpus: 1, runtime: {recipe: cs336, attention: unfused, upcast: false, tf32: false, release: "26.01"}, plan: {}, train: {sequence_length: 1024, micro_batch: 4, precision: bf16-autocast, optimizer: adamw}}`))
	require.InEpsilon(t, 87.0+184.1, 1e3*float64(r.Forward+r.Backward), 0.06)
}

// TestBlackwellVectorPower: fp32 products on the vector units of a B200 draw too little to slow its clock: passes of 2.7 and 10 billion
// parameters, 2048 tokens, compiled, at 51 to 60 TFLOP/s (subha-v's CS336 writeup of 2026, PyTorch 2.11). As many tensor cores
// would have to run at three quarters of it.
func TestBlackwellVectorPower(t *testing.T) {
	for _, c := range []struct {
		width, layers, heads, ffn int
		passes                    float64 // ms
	}{{2560, 32, 32, 10240, 269.1 + 523.7}, {4608, 50, 36, 12288, 897.8 + 1773.4}} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: %d, num_hidden_layers: %d, num_attention_heads: %d, intermediate_size: %d, gated_mlp: true, norm: rmsnorm, position: rope, bias: false, fused_qkv: false, vocab_size: 10000, tie_word_embeddings: false},
			hardware: b200-sxm, gpus: 1, runtime: {recipe: nanogpt, attention: unfused, fused_cross_entropy: false, upcast: false, tf32: false, release: "26.04"}, plan: {}, train: {sequence_length: 512, micro_batch: 4, precision: fp32, optimizer: adamw-foreach}}`, c.width, c.layers, c.heads, c.ffn)))
		require.InEpsilon(t, c.passes, 1e3*float64(r.Forward+r.Backward), 0.07)
	}
}
