package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware/collective"
	"github.com/perfplan/perfplan/strategies/memory"
)

// TestLoRA: beside frozen weights of 16 bits only adapters have gradients and states of the
// optimizer, in their own dtype; a step takes less time and memory than one that trains all.
func TestLoRA(t *testing.T) {
	of := func(recipe, plan, train string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3-8b, hardware: h200-sxm, gpus: 8, runtime: {recipe: %s}, plan: {%s}, train: {sequence_length: 4096, micro_batch: 1%s}}", recipe, plan, train)))
	}
	const all, adapters = 8030261248, 41943040 // of rank 16
	for _, c := range []struct {
		recipe, kind, full, precision string  // full: of the step that trains all
		weights, states, adapter      float64 // bytes of a frozen weight, of an adapter's states and of an adapter
		ranks                         float64 // that share them
	}{
		{"hf-eager", "ddp", "bf16-pure", "bf16-pure", 2, 4, 2, 1},
		{"hf-eager", "ddp", "bf16-pure", "bf16-frozen", 2, 8, 4, 1},
		{"hf-eager", "fsdp2", "bf16-pure", "bf16-frozen", 2, 4, 2, 8},
		{"hf-eager", "fsdp2", "bf16-mixed", "bf16-mixed", 4, 8, 4, 8},
		{"hf-eager", "ddp", "bf16-autocast", "bf16-autocast", 4, 8, 4, 1},
		{"automodel", "ddp", "bf16-pure", "bf16-pure", 2, 4, 2, 1},
	} {
		plan := "data_parallel: " + c.kind
		whole := of(c.recipe, plan, ", precision: "+c.full)
		r := of(c.recipe, plan, ", precision: "+c.precision+", lora: {rank: 16}")
		require.InEpsilon(t, (all*c.weights+adapters*c.adapter)/c.ranks, float64(r.Memory.By[memory.Parameters]), 0.001, "%v", c)
		require.InEpsilon(t, adapters*c.states/c.ranks, float64(r.Memory.By[memory.OptimizerStates]), 0.01, "%v", c)
		require.Less(t, float64(r.Memory.PeakAllocated), float64(whole.Memory.PeakAllocated), "%v", c)
		require.Less(t, float64(r.StepTime), 0.9*float64(whole.StepTime), "%v", c)
		require.Less(t, float64(r.Optimizer), 0.2*float64(whole.Optimizer), "%v", c)
	}

	// QLoRA: 4 bits and scales of each matrix of a layer, by itself and among ranks of DDP.
	const packed, rest = 32 * (4096*(2*4096+2*1024) + 3*4096*14336), 8030261248 - 32*(4096*(2*4096+2*1024)+3*4096*14336)
	for _, gpus := range []string{"1", "8"} {
		r := mustEstimate(t, mustParse(t, "{model: llama3-8b, hardware: h200-sxm, gpus: "+gpus+", runtime: {recipe: hf-eager}, plan: {data_parallel: ddp}, train: {sequence_length: 4096, micro_batch: 1, precision: nf4-frozen, lora: {rank: 16}}}"))
		require.InEpsilon(t, packed*(0.5+1./64+1./4096)+rest*2+adapters*4, float64(r.Memory.By[memory.Parameters]), 0.001, gpus)
	}
	// Sharded, each rank has all scales, which are buffers of a module (h200x2-fq-q1: half of the packed weights, of embedding,
	// head and adapters, and all scales, are 1.52 GB of 1.54); what is gathered has none.
	for _, kind := range []string{"fsdp1", "fsdp2"} {
		j := mustParse(t, "{model: llama3-8b, hardware: h200-sxm, gpus: 8, runtime: {recipe: hf-eager}, plan: {data_parallel: "+kind+"}, train: {sequence_length: 4096, micro_batch: 1, precision: nf4-frozen, recompute: full, lora: {rank: 16}}}")
		r, err := Estimate(j, Options{Detail: true})
		require.NoError(t, err)
		require.InEpsilon(t, packed*(0.5/8+1./64+1./4096)+(rest+adapters)*2/8, float64(r.Memory.By[memory.Parameters]), 0.001, kind)
		var layers float64
		for _, c := range r.Detail.Collectives {
			if c.Kind == collective.AllGather.String() && c.Bytes < rest {
				layers += float64(c.Count) * float64(c.Bytes)
			}
		}
		require.InEpsilon(t, 2*(packed*0.5+adapters*2), layers, 0.01, kind)
	}

	// Megatron: main gradients, masters and moments of adapters; frozen weights in the 8 bits
	// that products read, in one copy.
	r := of("megatron-core", "", ", precision: bf16, lora: {rank: 16}")
	fused := float64(r.Job.Model.Params().Trained) - 32*16*(2*4096+4096) // q, k, v and gate, up have one A
	require.InEpsilon(t, all*2+fused*2, float64(r.Memory.By[memory.Parameters]), 0.001)
	require.InEpsilon(t, fused*12/8, float64(r.Memory.By[memory.OptimizerStates]), 0.01)
	eight := of("megatron-core", "", ", precision: fp8, lora: {rank: 16}")
	const matrices = 32 * (4096*(2*4096+2*1024) + 3*4096*14336)
	require.InEpsilon(t, matrices, float64(eight.Memory.By[memory.WeightCopies]), 0.001, "one byte each")
	require.InEpsilon(t, (all-matrices)*2+fused*2, float64(eight.Memory.By[memory.Parameters]), 0.001)
	wide := of("megatron-core", "", ", precision: fp8, dtypes: {adapters: fp32}, lora: {rank: 16}")
	require.InEpsilon(t, (all-matrices)*2+fused*4, float64(wide.Memory.By[memory.Parameters]), 0.001, "the dtype of adapters is theirs alone")

	// FSDP2 shards adapters in a dtype of their own: two bytes more of each of rank 16 and two of each state of AdamW, on either of two ranks a half
	const rank16 = 16 * 32 * ((4096+4096)*2 + (4096+1024)*2 + (4096+14336)*3)
	sharded := func(dtype string) *Result {
		return mustEstimate(t, mustParse(t, "{model: llama3-8b, hardware: h100-sxm, gpus: 2, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2}, train: {precision: bf16-pure, dtypes: {adapters: "+dtype+"}, sequence_length: 2048, micro_batch: 1, optimizer: adamw, lora: {rank: 16}}}"))
	}
	narrow, wide := sharded("bf16"), sharded("fp32")
	for class, bytes := range map[memory.Class]float64{memory.Parameters: 2, memory.OptimizerStates: 4} {
		require.InEpsilon(t, bytes*rank16/2, float64(wide.Memory.By[class]-narrow.Memory.By[class]), 0.01, class)
	}
}

// TestLoRALaws: more rank and more targets take longer and need more memory; dropout, too.
func TestLoRALaws(t *testing.T) {
	of := func(lora string) *Result {
		return mustEstimate(t, mustParse(t, "{model: llama3.2-1b, hardware: h100-sxm, gpus: 1, runtime: {recipe: hf-eager}, plan: {}, train: {sequence_length: 4096, micro_batch: 2, lora: "+lora+"}}"))
	}
	var before *Result
	for _, lora := range []string{"{rank: 8, targets: [q]}", "{rank: 8, targets: [q, v]}", "{rank: 8, targets: [attention]}", "{rank: 8}", "{rank: 64}", "{rank: 512}", "{rank: 512, dropout: 0.1}"} {
		r := of(lora)
		if before != nil {
			require.Greater(t, float64(r.StepTime), float64(before.StepTime), lora)
			require.Greater(t, float64(r.Memory.PeakAllocated), float64(before.Memory.PeakAllocated), lora)
		}
		before = r
	}
}

// TestDocumentsTakeLess: documents packed into a sequence are attended one by one.
func TestDocumentsTakeLess(t *testing.T) {
	of := func(more string) *Result {
		return mustEstimate(t, mustParse(t, "{model: llama3-8b, hardware: h200-sxm, gpus: 8, plan: {}, train: {sequence_length: 8192"+more+"}}"))
	}
	whole, same, packed := of(""), of(", document_length: 8192"), of(", document_length: 512")
	require.Equal(t, whole.StepTime, same.StepTime)
	require.Less(t, float64(packed.Parts.Attention), 0.25*float64(whole.Parts.Attention))
	require.Less(t, float64(packed.ModelFLOPs), float64(whole.ModelFLOPs))
	require.InEpsilon(t, float64(whole.Memory.PeakAllocated), float64(packed.Memory.PeakAllocated), 1e-9, "which keeps as much")
}

// TestCompiledAdapters: how long an H200 was busy with steps of compiled models that have PEFT's adapters, and a gap behind
// each of their kernels, whatever their hosts took (traces, PyTorch 2.11, transformers 5.17, 2026-11-30). Kernels around
// adapters add up their terms, cast and drop out.
func TestCompiledAdapters(t *testing.T) {
	for _, c := range []struct {
		recipe, model, train string
		busy                 float64 // ms
		kernels              int
	}{
		{"hf-compile-layer", "model_type: gemma3_text, hidden_size: 1280, num_hidden_layers: 12, num_attention_heads: 20, vocab_size: 32000, max_position_embeddings: 4100, num_key_value_heads: 20, head_dim: 64, intermediate_size: 3392, pad_token_id: 0",
			"sequence_length: 512, micro_batch: 16, grad_accumulation: 2, precision: bf16-frozen, optimizer: adamw-fused, clip_gradients: false, recompute: none, lora: {rank: 8, dropout: 0.05}", 80.73, 3437},
		{"hf-compile-layer", "model_type: qwen3, hidden_size: 1024, num_hidden_layers: 4, num_attention_heads: 8, vocab_size: 100352, max_position_embeddings: 4100, num_key_value_heads: 2, head_dim: 128, intermediate_size: 2688, pad_token_id: 0",
			"sequence_length: 1024, micro_batch: 2, grad_accumulation: 1, precision: bf16-frozen, optimizer: adamw-fused, clip_gradients: false, recompute: none, lora: {rank: 8}", 6.28, 514},
		{"hf-compile", "model_type: gemma2, hidden_size: 1280, num_hidden_layers: 4, num_attention_heads: 20, vocab_size: 32000, max_position_embeddings: 4100, num_key_value_heads: 5, head_dim: 64, intermediate_size: 3392, pad_token_id: 0",
			"sequence_length: 1024, micro_batch: 8, grad_accumulation: 2, precision: bf16-frozen, optimizer: adamw-foreach, clip_gradients: false, recompute: none, lora: {rank: 16, dropout: 0.05}", 29.74, 1108},
		{"hf-compile-layer", "model_type: phi, hidden_size: 2048, num_hidden_layers: 6, num_attention_heads: 16, vocab_size: 100352, max_position_embeddings: 4100, intermediate_size: 8192",
			"sequence_length: 2048, micro_batch: 4, grad_accumulation: 1, precision: bf16-frozen, optimizer: adamw-fused, clip_gradients: false, recompute: none, lora: {rank: 16, dropout: 0.05}", 47.02, 799},
		{"hf-compile-layer", "model_type: gpt_neox, hidden_size: 1024, num_hidden_layers: 6, num_attention_heads: 8, vocab_size: 32000, max_position_embeddings: 4100, intermediate_size: 4096",
			"sequence_length: 512, micro_batch: 4, grad_accumulation: 1, precision: bf16-pure, optimizer: adamw-foreach, clip_gradients: true, recompute: none, lora: {rank: 8}", 4.07, 369},
		{"hf-compile-layer", "model_type: olmo2, hidden_size: 1536, num_hidden_layers: 12, num_attention_heads: 12, vocab_size: 50304, max_position_embeddings: 4100, num_key_value_heads: 3, head_dim: 128, intermediate_size: 4096, pad_token_id: 0",
			"sequence_length: 1000, micro_batch: 8, grad_accumulation: 1, precision: bf16-frozen, optimizer: adamw-foreach, clip_gradients: false, recompute: full, lora: {rank: 16, targets: [attention]}", 44.20, 1844},
	} {
		r := mustEstimate(t, mustParse(t, fmt.Sprintf("{model: {%s}, hardware: h200-sxm, gpus: 1, runtime: {recipe: %s, attention: sdpa, host_speed: 10}, plan: {}, train: {%s}}", c.model, c.recipe, c.train)))
		require.InEpsilon(t, c.busy+0.0012*float64(c.kernels), 1e3*float64(r.StepTime), 0.07, c.model)
	}
}
