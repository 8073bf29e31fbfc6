package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/hardware"
	"github.com/perfplan/perfplan/internal/units"
	"github.com/perfplan/perfplan/strategies/memory"
)

// offloaded is Llama-3.2 1B under FSDP2 on two H100, with more keys of plan, runtime and machine.
func offloaded(t *testing.T, gpus int, plan, runtime, node string) *Result {
	t.Helper()
	return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: {inherits: h100-sxm%s}, gpus: %d, runtime: {recipe: hf-eager%s}, plan: {data_parallel: fsdp2, dp: %d%s}, train: {sequence_length: 2048, micro_batch: 4, precision: bf16-mixed}}",
		node, gpus, runtime, gpus, plan)))
}

// TestOffloadTakesStatesAway: weights, gradients and states of a shard, 16 bytes of each of
// its parameters, are the host's; what a step holds beside them stays.
func TestOffloadTakesStatesAway(t *testing.T) {
	here, away := offloaded(t, 2, "", "", ""), offloaded(t, 2, ", offload: parameters", "", "")
	for _, c := range []memory.Class{memory.Parameters, memory.Gradients, memory.OptimizerStates} {
		require.Zero(t, away.Memory.By[c], c.String())
	}
	shard := units.Bytes(here.Job.Model.Params().Total / 2)
	require.InEpsilon(t, float64(12*shard), float64(here.Memory.PeakAllocated-away.Memory.PeakAllocated), 0.01) // gradients have not come at the peak
	require.InEpsilon(t, float64(2*16*shard), float64(away.Memory.Host), 0.001)
	require.Zero(t, here.Memory.Host)
}

// TestHostUpdate: the update takes what the law of the machine's hosts says, longer with fewer
// threads and slower memory, and is no part of waiting for launches. PyTorch's for-loop takes
// longer than its fused kernel.
func TestHostUpdate(t *testing.T) {
	many := offloaded(t, 2, ", offload: parameters", ", cpu_threads: 16", ", node: {cores: 32, host_bandwidth: 307.2 GB/s, gpus: 2}")
	law, n := many.Job.Hardware.Laws.Offload, float64(many.Job.Model.Params().Total)
	require.InEpsilon(t, n/(32*law.Update)+28*n/(law.Memory*307.2e9), float64(many.Parts.Update), 0.04)
	require.InDelta(t, 1, float64(many.Parts.Total()/many.StepTime), 1e-9)
	require.Equal(t, "host_update", many.Bound)

	one := offloaded(t, 2, ", offload: parameters", ", cpu_threads: 1", ", node: {cores: 32, host_bandwidth: 307.2 GB/s, gpus: 2}")
	require.Greater(t, float64(one.Parts.Update), 3*float64(many.Parts.Update))
	fast := offloaded(t, 2, ", offload: parameters", ", cpu_threads: 16", ", node: {cores: 32, host_bandwidth: 1 TB/s, gpus: 2}")
	require.Less(t, float64(fast.Parts.Update), 0.5*float64(many.Parts.Update))

	loop := mustEstimate(t, mustParse(t, "{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: hf-eager, cpu_threads: 8}, plan: {data_parallel: fsdp2, dp: 2, offload: parameters}, train: {optimizer: adamw}}"))
	fused := mustEstimate(t, mustParse(t, "{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: hf-eager, cpu_threads: 8}, plan: {data_parallel: fsdp2, dp: 2, offload: parameters}}"))
	require.Greater(t, float64(loop.Parts.Update), 4*float64(fused.Parts.Update))
}

// TestCopiesSetThePace: where a GPU's link takes longer than its kernels, a pass takes as long
// as what comes over it, fp32 weights, at the rate measured on the machine where there is one.
func TestCopiesSetThePace(t *testing.T) {
	const slow = ", gpu: {pcie: 8 GB/s}"
	r := offloaded(t, 1, ", offload: parameters", "", slow)
	law := r.Job.Hardware.Laws.Offload
	weights := 4 * float64(r.Job.Model.Params().Total)
	kernels := offloaded(t, 1, "", "", "")
	copies := weights / (law.ToDevice * 8e9)
	require.InEpsilon(t, copies+float64(kernels.Forward), float64(r.Forward), 0.1)              // one rank copies between its kernels
	require.InEpsilon(t, law.Crowd*copies+float64(kernels.Backward), float64(r.Backward), 0.25) // while gradients go back, those of the embedding, a fifth, when all else is over
	two := offloaded(t, 2, ", offload: parameters", "", slow)
	require.InEpsilon(t, copies/2, float64(two.Forward), 0.1) // of two half of it comes beside kernels, which take less

	j := mustParse(t, "{model: llama3.2-1b, hardware: {inherits: h100-sxm, gpu: {pcie: 8 GB/s}, measured: {copies: [{direction: h2d, pinned: true, bytes: [1 GiB], time: [20 ms]}]}}, gpus: 1, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2, dp: 1, offload: parameters}, train: {sequence_length: 2048, micro_batch: 4, precision: bf16-mixed}}")
	rate, ok := j.Hardware.Laws.CopyRate("h2d", true)
	require.True(t, ok)
	require.InEpsilon(t, float64(units.GiB)/0.02, float64(rate), 1e-9)
	require.Less(t, float64(mustEstimate(t, j).Forward), 0.5*float64(r.Forward))
}

// TestOffloadSavesNoTime: gradients are reduced in turn with the gathers of parameters, by one communicator,
// wherever they go then, so that parameters that live on the hosts make no step shorter.
func TestOffloadSavesNoTime(t *testing.T) {
	for _, job := range []string{
		"{model: falcon-40b, hardware: aws-p4d, gpus: 1024, runtime: {recipe: torchtitan}, plan: {tp: 8, cp: 4, dp: 32, data_parallel: fsdp2%s}, train: {sequence_length: 2048, micro_batch: 3, precision: fp32, recompute: selective}}",
		"{model: llama3-8b, hardware: aws-p4d, gpus: 64, runtime: {recipe: torchtitan}, plan: {dp: 64, data_parallel: fsdp2%s}, train: {sequence_length: 1024, micro_batch: 1, grad_accumulation: 3}}",
		"{model: llama3-8b, hardware: a100-80g-sxm, gpus: 32, runtime: {recipe: hf-eager}, plan: {dp: 32, data_parallel: fsdp2%s}, train: {sequence_length: 1024, micro_batch: 1}}",
		"{model: llama3-8b, hardware: h100-sxm, gpus: 16, runtime: {recipe: hf-eager}, plan: {dp: 16, shard_degree: 8, data_parallel: fsdp2%s}, train: {sequence_length: 1024, micro_batch: 1}}",
		"{model: llama3-8b, hardware: a100-80g-sxm, gpus: 32, runtime: {recipe: deepspeed-hf}, plan: {dp: 32, data_parallel: zero3%s}, train: {sequence_length: 1024, micro_batch: 1}}",
	} {
		here, away := mustEstimate(t, mustParse(t, fmt.Sprintf(job, ""))), mustEstimate(t, mustParse(t, fmt.Sprintf(job, ", offload: parameters")))
		require.GreaterOrEqual(t, float64(away.StepTime-away.Optimizer), float64(here.StepTime-here.Optimizer)*0.995, job)
	}
}

// TestGradientsAddedOnTheHost: gradients reduced after every micro batch are added to those that
// the host has, through memory that is not page-locked, while it waits: the second backward
// pass takes far longer (2.7 s were measured where the first took 0.15).
func TestGradientsAddedOnTheHost(t *testing.T) {
	of := func(every bool) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h100-sxm, gpus: 2, runtime: {recipe: hf-eager}, plan: {data_parallel: fsdp2, dp: 2, offload: parameters, sync_every_micro_batch: %v}, train: {sequence_length: 2048, micro_batch: 2, grad_accumulation: 2, precision: bf16-mixed}}", every)))
	}
	whole, added := of(false), of(true)
	shard := 4 * float64(whole.Job.Model.Params().Total) / 2
	require.InEpsilon(t, shard/float64(whole.Job.Hardware.Laws.Offload.Fresh), float64(added.Backward-whole.Backward), 0.1)
	require.Less(t, float64(added.Memory.PeakAllocated), float64(whole.Memory.PeakAllocated)) // which keeps whole gradients
}

// TestOffloadSpread: how long an update takes on a host that nobody measured is uncertain.
func TestOffloadSpread(t *testing.T) {
	r := offloaded(t, 2, ", offload: parameters", "", "")
	_, high := hardware.Range(1, r.Job.Hardware.Laws.Offload.Spread*float64(r.Parts.Update/r.StepTime))
	require.GreaterOrEqual(t, float64(r.High/r.StepTime), float64(high))
}

// TestHybridDeviceOptimizer: Megatron-Core's optimizer on the host (hybrid_optimizer.py of 2026-11, by
// itself: all of bf16 parameters and fp32 gradients of one H100 offloaded, one copy after the
// other), medians of four steps on a virtual machine of 32 cores, 2026-11-25.
func TestHybridDeviceOptimizer(t *testing.T) {
	for _, c := range []struct {
		values   float64
		threads  int
		measured units.Seconds
		within   float64
	}{
		{1 << 28, 16, 107.05e-3, 0.1},
		{48 << 24, 16, 311.87e-3, 0.1},
		{1 << 28, 1, 495.59e-3, 0.25},
	} {
		j := mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: {inherits: h100-sxm, node: {gpus: 1, cores: 32, host_bandwidth: 307.2 GB/s}}, gpus: 1, runtime: {recipe: megatron-core, cpu_threads: %d}, plan: {offload: optimizer, data_parallel: zero1}}", c.threads))
		var e Evaluator
		_, err := e.prepare(j)
		require.NoError(t, err)
		p := &e.p
		got := p.toHost(units.Bytes(4*c.values)) + p.hostUpdate(&update{local: c.values}, 28) + p.toDevice(units.Bytes(float64(j.Recipe.Offload.Back)*c.values))
		require.InEpsilon(t, float64(c.measured), float64(got), c.within, "%g values, %d threads", c.values, c.threads)
	}
}

// TestOptimizerOnTheHost: Megatron-Core's states are the host's, 12 bytes of each parameter that
// a rank updates, and a step takes longer by two copies and the update, with a pipeline as without.
func TestOptimizerOnTheHost(t *testing.T) {
	for _, plan := range []string{"dp: 8", "pp: 2, dp: 4", "tp: 2, dp: 4"} {
		of := func(more string) *Result {
			return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: h100-sxm, gpus: 8, runtime: {recipe: megatron-core, cpu_threads: 12}, plan: {%s%s}, train: {global_batch: 64, micro_batch: 1}}", plan, more)))
		}
		here, away := of(""), of(", offload: optimizer")
		require.Zero(t, away.Memory.By[memory.OptimizerStates], plan)
		require.InEpsilon(t, float64(here.Memory.By[memory.OptimizerStates]), float64(here.Memory.PeakAllocated-away.Memory.PeakAllocated), 0.02, plan)
		longer := float64(away.Optimizer - here.Optimizer)
		require.Greater(t, longer, float64(away.Parts.Update)*0.9, plan)
		require.InDelta(t, longer, float64(away.StepTime-here.StepTime), 0.1*longer, plan) // a card that rests meanwhile runs faster after
		require.InDelta(t, 1, float64(away.Parts.Total()/away.StepTime), 1e-9, plan)
	}
}

// TestPartOfTheOptimizer: half of the optimizer on the host takes half as long and leaves half of the
// states on the device; copies beside the update take less than before and after it (measured:
// 107 -> 81 ms of all, 52 -> 42 of half).
func TestPartOfTheOptimizer(t *testing.T) {
	of := func(more string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama2-7b, hardware: {inherits: h100-sxm, node: {gpus: 1, cores: 16, host_bandwidth: 307.2 GB/s}}, gpus: 1, runtime: {recipe: megatron-core, cpu_threads: 16}, plan: {data_parallel: zero1%s}, train: {global_batch: 8, micro_batch: 1}}", more)))
	}
	none, all, half := of(""), of(", offload: optimizer"), of(", offload: optimizer, offload_fraction: 0.5")
	overlapped := of(", offload: optimizer, offload_overlap: true")
	require.InEpsilon(t, 0.5*float64(none.Memory.By[memory.OptimizerStates]), float64(half.Memory.By[memory.OptimizerStates]), 0.01)
	require.InEpsilon(t, 0.5*float64(all.Memory.Host), float64(half.Memory.Host), 0.01)
	require.InEpsilon(t, 0.5*float64(all.Optimizer), float64(half.Optimizer), 0.1)
	require.InEpsilon(t, 81./107, float64(overlapped.Optimizer/all.Optimizer), 0.1)
	require.InDelta(t, 1, float64(half.Parts.Total()/half.StepTime), 1e-9)
}

// TestReducedToTheHost: DeepSpeed's gradients go to the host as they are reduced, bucket by bucket
// and rank by rank, or at once where ranks have parts of a bucket, 16 bits after every micro batch but the last, which has them back to
// add to, and 32 after that.
func TestReducedToTheHost(t *testing.T) {
	of := func(accumulation int, more string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: {inherits: h100-sxm, gpu: {pcie: 2 GB/s}}, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {dp: 8, data_parallel: zero2%s}, train: {sequence_length: 2048, micro_batch: 1, grad_accumulation: %d}}", more, accumulation)))
	}
	n := float64(of(1, "").Job.Model.Params().Total)
	law := of(1, "").Job.Hardware.Laws.Offload
	for _, c := range []struct {
		accumulation int
		bucket       string
		copies       float64 // seconds
	}{
		{1, "100 MB", 4 * n / law.ToHost / 2e9},
		{1, "3 GB", 4 * n / 8 / law.ToHost / 2e9},
		{3, "100 MB", (2+2+4)*n/law.ToHost/2e9 + (2+2)*n/law.ToDevice/2e9},
	} {
		here, away := of(c.accumulation, ", bucket: "+c.bucket), of(c.accumulation, ", offload: optimizer, bucket: "+c.bucket)
		require.InEpsilon(t, c.copies, float64(away.Backward-here.Backward), 0.1, "%d micro batches", c.accumulation)
	}
}

// TestWeightsCastByTheHost: before DeepSpeed 0.14.2 of April 2024 weights that the host updates come
// back as those of ZeRO 3 do, whatever the stage, in both recipes of its software: cast by the
// host, from memory that is not page-locked.
func TestWeightsCastByTheHost(t *testing.T) {
	for _, recipe := range []string{"deepspeed-hf", "megatron-deepspeed"} {
		for _, kind := range []string{"zero1", "zero2"} {
			of := func(release string) *Result {
				return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: h100-sxm, gpus: 8, runtime: {recipe: %s, release: %q}, plan: {dp: 8, data_parallel: %s, offload: optimizer}, train: {sequence_length: 2048, micro_batch: 4, grad_accumulation: 1}}", recipe, release, kind)))
			}
			older, newer := of("24.04"), of("24.05")
			shard := 2 * float64(older.Job.Model.Params().Total) / 8
			n := older.Job.Hardware
			page := shard / (n.Laws.Offload.ToDevice * float64(n.GPU.PCIe.Value))
			require.InEpsilon(t, shard/float64(n.Laws.Offload.Recast)-page, float64(older.Optimizer-newer.Optimizer), 0.1, "%s %s", recipe, kind)
		}
	}
}

// TestShardsUpdatedOnTheHost: under DeepSpeed's ZeRO 3 with the optimizer alone on the host the
// device keeps its shard of the weights and has it back, cast by the host, when all are updated;
// gradients leave it after every micro batch.
func TestShardsUpdatedOnTheHost(t *testing.T) {
	of := func(accumulation int, more string) *Result {
		return mustEstimate(t, mustParse(t, fmt.Sprintf("{model: llama3.2-1b, hardware: {inherits: h100-sxm, gpu: {pcie: 1 GB/s}}, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {dp: 8, data_parallel: zero3%s}, train: {sequence_length: 2048, micro_batch: 4, grad_accumulation: %d}}", more, accumulation)))
	}
	here, away, weights := of(1, ""), of(1, ", offload: optimizer"), of(1, ", offload: parameters")
	shard := float64(here.Job.Model.Params().Total) / 8
	require.Zero(t, away.Memory.By[memory.OptimizerStates])
	require.Zero(t, away.Memory.By[memory.Gradients])
	require.Equal(t, here.Memory.By[memory.Parameters], away.Memory.By[memory.Parameters])
	require.InEpsilon(t, 2*shard, float64(away.Memory.PeakAllocated-weights.Memory.PeakAllocated), 0.02)
	require.InEpsilon(t, 2*shard/float64(away.Job.Hardware.Laws.Offload.Recast), float64(away.Optimizer-weights.Optimizer), 0.1)

	law := here.Job.Hardware.Laws.Offload
	once := (2+4)*shard/law.ToHost/1e9 + 2*shard/law.ToDevice/1e9
	for _, n := range []int{1, 3} {
		require.InEpsilon(t, float64(n)*once, float64(of(n, ", offload: optimizer").Backward-of(n, "").Backward), 0.12, "%d micro batches", n)
	}
}
