package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

const deepspeedJob = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: deepspeed-hf%s}, plan: {dp: 2, data_parallel: %s}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: %d}}"

// moved is what kernels of each name read and write, and the collectives of the data ranks,
// by the bytes of each.
func moved(t *testing.T, job string) (kernels map[string]float64, exchanges map[string]float64) {
	t.Helper()
	r, err := Estimate(mustParse(t, job), Options{Detail: true})
	require.NoError(t, err)
	kernels, exchanges = map[string]float64{}, map[string]float64{}
	for _, d := range r.Detail.Kernels {
		kernels[d.Op.Prim] += float64(d.Op.Bytes) * float64(max(d.Op.Count, 1)) * float64(d.Count)
	}
	for _, c := range r.Detail.Collectives {
		exchanges[c.Kind] += float64(c.Bytes) * float64(c.Count)
	}
	return kernels, exchanges
}

// TestDeepSpeedUpdate: ZeRO 1 and 2 look for infinities in a rank's part of the gradients,
// which took 36 bytes of each in a trace; all take the norm in double precision, 2 + 8 + 8,
// join the gradients, cast them to fp32 for the update and copy the weights back
// (DeepSpeed, stage_1_and_2.py, step, _has_inf_or_nan and get_grad_norm_direct; stage3.py).
func TestDeepSpeedUpdate(t *testing.T) {
	const part = 1235814400. / 2
	for _, c := range []struct {
		kind, release string
		check         float64
	}{{"zero1", "", 36}, {"zero2", "", 36}, {"zero2", ", release: 24.01", 10}, {"zero3", "", 0}} {
		got, _ := moved(t, fmt.Sprintf(deepspeedJob, c.release, c.kind, 1))
		for prim, bytes := range map[string]float64{"cast_gradients": 6, "grad_norm": 18, "join_gradients": 4, "optimizer": 28, "copy_weights": 6} {
			require.InEpsilon(t, bytes*part, got[prim], 0.01, "%s: %s", c.kind, prim)
		}
		require.InDelta(t, c.check*part, got["check_gradients"], 0.01*part, "%s%s", c.kind, c.release)
	}
}

// TestDeepSpeedBuckets: ZeRO 1 and 2 sum whole buckets over all ranks (average_tensor,
// allreduce_and_scatter), until November 2023 each rank's part to it; ZeRO 2 after every micro
// batch. Around each reduction a bucket is divided and joined, and a rank's part of it copied
// twice: 2 · 2 + 2 · 2/2 times its size through memory.
func TestDeepSpeedBuckets(t *testing.T) {
	const all = 2 * 1235814400.
	for _, c := range []struct {
		kind, release, op string
		times             float64
	}{
		{"zero1", "", "all-reduce", 1}, {"zero2", "", "all-reduce", 3}, {"zero2", ", overlap_grad_reduce: true", "all-reduce", 3},
		{"zero1", ", release: 23.10", "reduce", 1}, {"zero3", "", "reduce-scatter", 3},
	} {
		kernels, exchanges := moved(t, fmt.Sprintf(deepspeedJob, c.release, c.kind, 3))
		require.InEpsilon(t, c.times*all, exchanges[c.op], 0.01, "%s%s", c.kind, c.release)
		passes := 6.
		if c.kind == "zero3" { // copied into the bucket on the same stream
			passes = 8
		}
		require.InEpsilon(t, passes*c.times*all, kernels["bucket_passes"], 0.01, "%s%s", c.kind, c.release)
	}
}

// TestLiveParameters: of ZeRO 3 the parameters of the last units stay gathered from the
// forward to the backward pass, up to 1e9 (stage3_max_live_parameters): all but the embedding
// of a model of 1.2 billion, not those of the first layers of a larger one.
func TestLiveParameters(t *testing.T) {
	const job = "{model: %s, hardware: h100-sxm, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {dp: 8, data_parallel: zero3}, train: {sequence_length: 2048, micro_batch: 1}}"
	for _, c := range []struct {
		model      string
		parameters float64
		again      float64 // those gathered for the backward pass
	}{{"llama3.2-1b", 1.2358e9, 0}, {"llama3-8b", 8.03e9, 8.03e9 - 1e9}} {
		_, exchanges := moved(t, fmt.Sprintf(job, c.model))
		require.InDelta(t, 2*(c.parameters+c.again), exchanges["all-gather"], 2*0.45e9, c.model)
	}
}

// TestViewsOfGathered: a model that was loaded before ZeRO 3 was known of keeps views of what is gathered for its layers, which reach
// into the backward pass: active memory of Llama 3 8B on eight A100, 2048 tokens each, without recomputation, two of them, and with it
// (gpjt/fine-tune-2024-04, batch-size-memory-modeling-8B/*.csv, active_bytes.all.peak).
func TestViewsOfGathered(t *testing.T) {
	const job = "{model: llama3-8b, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: deepspeed-hf, release: 24.04%s}, plan: {dp: 8, data_parallel: zero3, bucket: 1 GB}, train: {sequence_length: 2048, micro_batch: %d, padding: 0.8, precision: fp16, clip_gradients: false, recompute: %s}}"
	peak := func(runtime string, batch int, recompute string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(job, runtime, batch, recompute))).Memory.PeakAllocated)
	}
	for _, c := range []struct {
		batch int
		mib   float64
	}{{1, 49086}, {2, 64180}} {
		require.InEpsilon(t, c.mib*(1<<20), peak(", zero_init: false", c.batch, "none"), 0.04)
		require.Less(t, peak("", c.batch, "none"), 0.85*c.mib*(1<<20))
	}
	require.Equal(t, peak("", 4, "full"), peak(", zero_init: false", 4, "full"))
	note := mustEstimate(t, mustParse(t, "{model: llama3-8b, hardware: a100-80g-sxm, gpus: 8, runtime: {recipe: deepspeed-hf, zero_init: false}, plan: {dp: 8, data_parallel: zero2}, train: {sequence_length: 2048, micro_batch: 1}}"))
	require.Contains(t, fmt.Sprint(note.Notes), "runtime.zero_init: false has no effect without ZeRO 3")
}

// TestDeepSpeedBucketMemory: a bucket of ZeRO 3 is there all the time, those of ZeRO 1 from its
// first backward pass to its last, two where they overlap (setup_buckets).
func TestDeepSpeedBucketMemory(t *testing.T) {
	peak := func(runtime, plan string, steps int) units.Bytes {
		return mustEstimate(t, mustParse(t, fmt.Sprintf(deepspeedJob, runtime, plan, steps))).Memory.PeakAllocated
	}
	const slack = 1e7
	require.InDelta(t, 1e9, float64(peak("", "zero3, bucket: 1 GB", 2)-peak("", "zero3, bucket: 1 kB", 2)), slack)
	require.InDelta(t, 1e9, float64(peak("", "zero1, bucket: 1 GB", 2)-peak("", "zero1, bucket: 1 kB", 2)), slack)
	require.InDelta(t, 1e9, float64(peak(", overlap_grad_reduce: true", "zero1", 2)-peak("", "zero1", 2)), slack)
}

// TestDeepSpeedSecondStage: ZeRO 2 has its buckets through a backward pass, and the rank's part of
// all gradients from when the first is full. In memory snapshots of two H100 6 layers of width 4096
// reached 21.01 and 21.25 GB in a layer's backward pass, where two buckets take 2 GB and the part
// 1.6; logits took 20.3 before.
func TestDeepSpeedSecondStage(t *testing.T) {
	const job = `{model: {model_type: llama, hidden_size: 4096, num_hidden_layers: 6, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336, vocab_size: 32000, tie_word_embeddings: false},
		hardware: h100-sxm, gpus: 2, runtime: {recipe: deepspeed-hf, release: 26.08, overlap_grad_reduce: %v}, plan: {cp: 2, data_parallel: zero2%s}, train: {sequence_length: 32768, micro_batch: 1, recompute: full}}`
	peak := func(overlap bool, bucket string) float64 {
		return float64(mustEstimate(t, mustParse(t, fmt.Sprintf(job, overlap, bucket))).Memory.PeakAllocated)
	}
	require.InEpsilon(t, 21.25e9, peak(true, ""), 0.02)
	full := 3.2e9 // beyond all gradients, the part comes last
	require.InDelta(t, 0.5e9, peak(false, ", bucket: 3.7 GB")-peak(false, ", bucket: 3.2 GB"), 1e7)
	require.InDelta(t, full, peak(true, ", bucket: 3.2 GB")-peak(false, ", bucket: 3.2 GB"), 1e7)
}

// TestWideBuckets: where ranks share sequences ZeRO 1 and 2 reduce in fp32 as many gradients at
// once as elsewhere in bf16: 5e8, of 1.2 billion in three (stage_1_and_2.py, allreduce_bucket;
// a trace of two H100).
func TestWideBuckets(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: deepspeed-hf}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1}}"
	var calls [2]int64
	for i, plan := range []string{"dp: 2", "cp: 2"} {
		r, err := Estimate(mustParse(t, fmt.Sprintf(job, plan)), Options{Detail: true})
		require.NoError(t, err)
		var sent float64
		for _, c := range r.Detail.Collectives {
			if c.Kind == "all-reduce" {
				calls[i] += int64(c.Count)
				sent += float64(c.Bytes) * float64(c.Count)
			}
		}
		require.InEpsilon(t, 1235814400*[]float64{2, 4}[i], sent, 0.01)
	}
	require.Equal(t, calls[0], calls[1])
}

// TestDeepSpeedCommunicators: beside the allocator's memory two H100 had 2.21 GB of the device in
// use under ZeRO 1, and 3.18 where the ranks shared sequences.
func TestDeepSpeedCommunicators(t *testing.T) {
	const job = "{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: deepspeed-hf}, plan: {%s, data_parallel: zero1}, train: {sequence_length: 4096, micro_batch: 1}}"
	for plan, want := range map[string]float64{"dp: 2": 2.21e9, "cp: 2": 3.18e9} {
		m := mustEstimate(t, mustParse(t, fmt.Sprintf(job, plan))).Memory
		require.InEpsilon(t, want, float64(m.DeviceUsed-m.PeakReserved), 0.02, plan)
	}
}

// TestFlatBuffers: ZeRO 1 and 2 update a rank's part of all parameters at once, ZeRO 3 groups of
// them that are closed by the parameter that makes them 1e9 (sub_group_size; stage3.py,
// _create_fp16_sub_groups). Since February 2026 (pull request 7828) the weights that ZeRO 1 and 2
// join are still on the device; master weights of ZeRO 3 are cast from a copy in fp32. Stage 0 has
// no flat buffers: it casts each gradient of all parameters (runtime/fp16/unfused_optimizer.py).
func TestFlatBuffers(t *testing.T) {
	const (
		job  = "{model: llama3-8b, hardware: h100-sxm, gpus: 2, runtime: {recipe: deepspeed-hf, release: %s}, plan: {dp: 2, data_parallel: %s}, train: {sequence_length: 512, micro_batch: 1}}"
		part = 8030261248. / 2
	)
	for _, c := range []struct {
		release, kind  string
		copied, clone  units.Bytes
		groups, single int
	}{
		{"25.12", "zero1", 0, 2, 1, 0}, {"25.12", "zero2", 0, 2, 1, 0}, {"25.12", "zero3", 0, 4, 4, 0},
		{"26.08", "zero1", 2, 2, 1, 0}, {"26.08", "zero2", 2, 2, 1, 0}, {"26.08", "zero3", 0, 4, 4, 0},
		{"26.08", "ddp", 0, 0, 0, 4},
	} {
		var e Evaluator
		_, err := e.Estimate(mustParse(t, fmt.Sprintf(job, c.release, c.kind)), Options{})
		require.NoError(t, err)
		f := e.p.footprint()
		u, flat := f.updateOf(e.sim.layout.ranks[0])
		require.Equal(t, [2]units.Bytes{c.copied, c.clone}, [2]units.Bytes{u.Copied, u.Clone}, "%s %s", c.kind, c.release)
		require.EqualValues(t, c.single, f.dense.Update, "%s: bytes of each gradient that is cast apart", c.kind)
		require.Len(t, flat, c.groups, c.kind)
		var all units.Bytes
		for i, n := range flat {
			if all += n; c.groups > 1 && i < len(flat)-1 {
				require.GreaterOrEqual(t, n, units.Bytes(1e9))
				require.Less(t, n, units.Bytes(1e9+128256*4096/2), "and at most the largest parameter more")
			}
		}
		if c.groups > 0 {
			require.InEpsilon(t, part, float64(all), 1e-6, c.kind)
		}
	}
}
