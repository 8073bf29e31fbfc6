package estimate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/diag"
	"github.com/perfplan/perfplan/internal/units"
)

// Torchtitan v0.2.2 on four H200 under FSDP, 8 layers of Llama-3 8B (2026-11-22): 19
// all-gathers and 10 reduce-scatters. The embedding is gathered in both passes, the head,
// which stays, in one; peak allocated 17.48 GB. Software of 2024-12 gathers embedding and
// head as one unit and casts the logits.
func TestTorchtitanUnits(t *testing.T) {
	at := func(release string) *Result {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 8, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false}, hardware: h200-sxm, gpus: 4, runtime: {recipe: torchtitan, release: "%s"}, plan: {data_parallel: fsdp2}, train: {sequence_length: 8192, micro_batch: 1, recompute: selective}}`, release)), Options{Detail: true})
		require.NoError(t, err)
		return r
	}
	calls := func(r *Result, kind string) (n int64) {
		for _, c := range r.Detail.Collectives {
			if c.Kind == kind && c.Group == "shard" {
				n += c.Count
			}
		}
		return
	}
	now, then := at("26.02"), at("24.12")
	require.Equal(t, int64(19), calls(now, "all-gather"))
	require.Equal(t, int64(10), calls(now, "reduce-scatter"))
	require.InEpsilon(t, 17.48e9, float64(now.Memory.PeakAllocated), 0.02)
	require.Equal(t, int64(18), calls(then, "all-gather"))
	require.Equal(t, int64(9), calls(then, "reduce-scatter"))
	require.Greater(t, float64(then.Memory.PeakAllocated), 1.4*17.48e9)
}

// TestNarrowGathers: in 8 bits the matrices of layers are gathered as their products read
// them, embedding, norms and head, which no 8-bit product reads, in 16: the gathers of a
// snapshot of two H200 have 218 MB for a layer and 1050.7 MB for embedding and head.
func TestNarrowGathers(t *testing.T) {
	r, err := Estimate(mustParse(t, `{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 8, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false}, hardware: h200-sxm, gpus: 2, runtime: {recipe: torchtitan, release: "26.02"}, plan: {data_parallel: fsdp2}, train: {sequence_length: 8192, micro_batch: 1, precision: fp8, recompute: selective}}`), Options{Detail: true})
	require.NoError(t, err)
	calls := map[int64]int64{}
	for _, c := range r.Detail.Collectives {
		if c.Kind == "all-gather" {
			calls[int64(float64(c.Bytes)/1e5)] += c.Count
		}
	}
	require.Equal(t, map[int64]int64{10506: 3, 2181: 16}, calls)
}

// TestLoneExperts: what no other rank has a part of is neither gathered nor copied out of a
// gather, but cast and copied where it is used, and divided and copied where it would be
// reduced (a trace of two H200, each with half of the experts).
func TestLoneExperts(t *testing.T) {
	copied := func(plan string) map[string]float64 {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: qwen3-30b-a3b, hardware: h200-sxm, gpus: 2, runtime: {recipe: torchtitan, release: "26.02"}, plan: {%s, data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: 1, recompute: selective}}`, plan)), Options{Detail: true})
		require.NoError(t, err)
		most := map[string]float64{}
		for _, k := range r.Detail.Kernels {
			most[k.Op.Prim] = max(most[k.Op.Prim], k.Op.Elements)
		}
		return most
	}
	const layer = 128 * 3 * 768 * 2048 // of experts
	alone, cut := copied("ep: 2"), copied("ep: 1")
	require.InDelta(t, layer/2, alone["fsdp_copy"], 1)
	require.InDelta(t, layer/2, alone["fsdp_divide"], 1)
	require.Less(t, alone["fsdp_copy_out"], 320e6, "embedding")
	require.Zero(t, cut["fsdp_copy"])
	require.Greater(t, cut["fsdp_copy_out"], float64(layer))
}

// TestReducedInSixteenBits: what FSDP2 reduces in 16 bits is cast to the gradients' 32 where it comes
// out, by the stream that reduces it: a rank's part of a layer, or of all else.
func TestReducedInSixteenBits(t *testing.T) {
	cast := func(train string) (most float64) {
		r, err := Estimate(mustParse(t, `{model: llama3-8b, hardware: h200-sxm, gpus: 4, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2}, train: {sequence_length: 512, micro_batch: 1`+train+`}}`), Options{Detail: true})
		require.NoError(t, err)
		for _, k := range r.Detail.Kernels {
			if k.Op.Prim == "fsdp_cast_reduced" {
				require.True(t, k.Beside)
				require.Equal(t, units.Bytes((2+4)*k.Op.Elements), k.Op.Bytes)
				most = max(most, k.Op.Elements)
			}
		}
		return most
	}
	require.InDelta(t, (2*128256*4096+4096)/4, cast(", reduce_dtype: bf16"), 1)
	require.Zero(t, cast(""), "it is reduced in 32")
	require.Zero(t, cast(", precision: bf16-pure"), "they have 16")
}

// TestShardedMemory: what PyTorch's allocator held of torchtitan v0.2.2 on two H200, layers
// of Llama-3 8B, memory snapshots of which say from which streams (2026-11-22). Gathers
// have a stream of their own, with the cast shard, the gather and, in the forward pass,
// the one before; 8-bit layers gather half as much, embedding and head do not; the loss
// runs when the head's gather is gone.
func TestShardedMemory(t *testing.T) {
	for _, c := range []struct {
		recipe, plan, train string
		layers              int
		allocated, reserved float64 // GB
	}{
		{"torchtitan-eager", "dp: 2", "sequence_length: 8192, recompute: selective", 8, 34.8071, 45.2251},
		{"torchtitan", "dp: 2", "sequence_length: 8192, recompute: selective", 8, 25.8774, 34.1731},
		{"torchtitan", "dp: 2", "sequence_length: 8192, recompute: none", 8, 31.3683, 39.6047},
		{"torchtitan", "dp: 2", "sequence_length: 8192, recompute: full", 8, 25.5881, 31.0609},
		{"torchtitan", "dp: 2", "sequence_length: 8192, recompute: selective, precision: fp8", 8, 25.8670, 33.8837},
		{"torchtitan", "cp: 2", "sequence_length: 32768, recompute: selective", 4, 25.6516, 32.4052},
		{"torchtitan", "cp: 2", "sequence_length: 32768, recompute: full", 4, 21.8851, 28.6492},
		{"torchtitan-eager", "cp: 2", "sequence_length: 32768, recompute: selective", 4, 42.3280, 53.4166},
	} {
		t.Run(c.recipe+" "+c.plan+" "+c.train, func(t *testing.T) {
			m := predicted(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: %d, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false}, hardware: h200-sxm, gpus: 2, runtime: {recipe: %s, release: "26.02"}, plan: {%s, data_parallel: fsdp2}, train: {%s, micro_batch: 1}}`,
				c.layers, c.recipe, c.plan, c.train)).Memory
			require.InEpsilon(t, c.allocated*1e9, float64(m.PeakAllocated), 0.002)
			require.InEpsilon(t, c.reserved*1e9, float64(m.PeakReserved), 0.006)
		})
	}
}

// TestTorchtitanStages: peak allocated of the first of four stages of 16 such layers, with 4
// of them and 8 micro batches of 4096 tokens: 16.00 GB on an H200 (v0.2.2). Until October
// 2025 the last stage held the logits of all micro batches and, when all had come back, joined
// them in one tensor; now its peak is that of a backward pass, two to three micro batches' logits.
func TestTorchtitanStages(t *testing.T) {
	at := func(release string) *Result {
		return predicted(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 16, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false}, hardware: h200-sxm, gpus: 4, runtime: {recipe: torchtitan, release: "%s"}, plan: {pp: 4, data_parallel: ddp}, train: {sequence_length: 4096, micro_batch: 1, grad_accumulation: 8, recompute: selective, dtypes: {weights: bf16, gradients: bf16, moments: bf16, reduce: bf16}}}`, release))
	}
	now, then := at("25.11"), at("25.10")
	require.InEpsilon(t, 16.00e9, float64(now.Stages[0].PeakAllocated), 0.03)
	logits := 4096 * 128256 * 2.0
	require.InDelta(t, (2*8-2.5)*logits, float64(then.Stages[3].PeakAllocated-now.Stages[3].PeakAllocated), logits)
}

// TestRingMemory: what torchtitan's ring of four H200 takes beside the allocator, 2.96 GB,
// is 1.27 GB more than data parallelism alone.
func TestRingMemory(t *testing.T) {
	at := func(plan string) float64 {
		r := predicted(t, fmt.Sprintf(`{model: llama3-8b, hardware: h200-sxm, gpus: 4, runtime: {recipe: torchtitan}, plan: {%s, data_parallel: fsdp2}, train: {sequence_length: 32768, micro_batch: 1, recompute: full}}`, plan))
		return float64(r.Memory.DeviceUsed - r.Memory.PeakReserved)
	}
	require.InEpsilon(t, 1.69e9, at("dp: 4"), 0.02)
	require.InEpsilon(t, 2.96e9, at("cp: 4"), 0.05)
}

// TestGatherAhead: experts wait for the device in each layer. torchtitan and Megatron-FSDP
// (megatron_fsdp.py, _pre_forward_param_unshard) gather the next layer before, which hides but
// for the last one's share.
func TestGatherAhead(t *testing.T) {
	for recipe, text := range map[string]string{
		"torchtitan":    `{model: qwen3-30b-a3b, hardware: h200-sxm, gpus: 8, runtime: {recipe: torchtitan, release: "26.02"}, plan: {ep: 8, data_parallel: fsdp2}, train: {sequence_length: 4096, micro_batch: 4, recompute: full}}`,
		"Megatron-FSDP": `{model: olmoe-1b-7b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, token_dispatcher: alltoall, cuda_graphs: none}, plan: {ep: 1, data_parallel: fsdp1}, train: {sequence_length: 4096, micro_batch: 4, recompute: none}}`,
	} {
		j := mustParse(t, text)
		ahead := mustEstimate(t, j)
		own := *j.Recipe
		own.Structure.GatherAhead = false
		j.Recipe = &own
		late := mustEstimate(t, j)
		require.Less(t, float64(ahead.Exposed["dp"]), 0.8*float64(late.Exposed["dp"]), recipe)
		require.Less(t, ahead.StepTime, late.StepTime, recipe)
	}
}

// TestUnshardedPrecision: torchtitan leaves mixed precision to FSDP. Two tensor ranks of 8
// layers of Llama-3 8B, with nothing else to shard over, took 1.663 s on two H200, in fp32
// without TF32 (2026-11-22).
func TestUnshardedPrecision(t *testing.T) {
	at := func(gpus int, train string) *Result {
		return predicted(t, fmt.Sprintf(`{model: {model_type: decoder, hidden_size: 4096, num_hidden_layers: 8, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, gated_mlp: true, vocab_size: 128256, tie_word_embeddings: false}, hardware: h200-sxm, gpus: %d, runtime: {recipe: torchtitan, tf32: false}, plan: {tp: 2, data_parallel: fsdp2}, train: {sequence_length: 8192, micro_batch: 1, recompute: selective, %s}}`, gpus, train))
	}
	noted := func(r *Result) bool {
		return slices.ContainsFunc(r.Notes, func(n diag.Note) bool { return n.Code == "precision.unsharded" })
	}
	require.True(t, noted(at(2, "precision: bf16")))
	require.False(t, noted(at(2, "precision: bf16, dtypes: {weights: bf16}")))
	require.False(t, noted(at(4, "precision: bf16")))
	full := at(2, "precision: fp32")
	require.False(t, noted(full))
	require.InEpsilon(t, 1.663, float64(full.StepTime), 0.08)
}

// TestHeldLogits: until June 2024 torchtitan's script held the logits that its model cast to
// fp32 (3.9 GiB of 8192 tokens), until October its launcher left PyTorch's segments as they were.
func TestHeldLogits(t *testing.T) {
	peak := func(release string) Memory {
		r, err := Estimate(mustParse(t, fmt.Sprintf(`{model: llama3-8b, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: torchtitan-eager, release: "%s"}, plan: {data_parallel: fsdp2},
			train: {sequence_length: 8192, micro_batch: 1, grad_accumulation: 1, recompute: selective}}`, release)), Options{})
		require.NoError(t, err)
		return r.Memory
	}
	held, freed, expanding := peak("24.06"), peak("24.08"), peak("24.12")
	require.InDelta(t, 4*8192*128256, float64(held.PeakAllocated-freed.PeakAllocated), 1e6)
	require.Equal(t, freed.PeakAllocated, expanding.PeakAllocated)
	slack := func(m Memory) units.Bytes { return m.PeakReserved - m.PeakAllocated }
	require.Less(t, slack(expanding), slack(freed))
}

// TestChunkedHead: a loss by chunks has the head sharded after each of the passes that read it, so that FSDP gathers
// it three times instead of once: for its norm, for the chunks and for the norm's gradient (torchtitan,
// components/loss.py, ChunkedCELoss, and _force_complete_incomplete_states of torch.distributed.fsdp). Its gradient is
// reduced once, after the last chunk. Logits are those of an eighth of the tokens.
func TestChunkedHead(t *testing.T) {
	at := func(chunks int) (gathers, reduces int64, peak units.Bytes) {
		r, err := Estimate(mustParse(t, fmt.Sprintf("{model: llama3-8b, gpus: 8, runtime: {recipe: torchtitan, loss_chunks: %d}, plan: {data_parallel: fsdp2}, train: {sequence_length: 8192, micro_batch: 4, recompute: full}}", chunks)), Options{Detail: true})
		require.NoError(t, err)
		for _, c := range r.Detail.Collectives {
			switch c.Kind {
			case "all-gather":
				gathers += c.Count
			case "reduce-scatter":
				reduces += c.Count
			}
		}
		return gathers, reduces, r.Memory.PeakAllocated
	}
	once, reduced, whole := at(1)
	gathers, reduces, peak := at(8)
	require.EqualValues(t, 2, gathers-once)
	require.Equal(t, reduced, reduces)
	require.Less(t, peak, whole-units.Bytes(4*8192*128256*2), "a copy of the logits")
}
