package strategies

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/internal/units"
)

// TestOffloadRules: what a framework cannot leave to the host, and what a host cannot take,
// is refused with what can be done instead.
func TestOffloadRules(t *testing.T) {
	for _, c := range []struct{ job, want string }{
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: parameters, dp: 8}}", ""},
		{"{model: llama3-8b, gpus: 1, runtime: {recipe: hf-eager}, plan: {offload: parameters, dp: 1}}", ""},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: none, tp: 8}}", ""},
		{"{model: llama3-8b, gpus: 8, plan: {offload: disk}}", `"disk" is not what can be left to the host; known: none, optimizer, parameters`},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: nanotron}, plan: {offload: optimizer, dp: 8}}", "recipe nanotron does not do; leave it out"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: optimizer, dp: 8}}", "recipe hf-eager does not do; use parameters"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: parameters, data_parallel: ddp, dp: 8}}", "parameters beside data_parallel ddp, which recipe hf-eager does not do; use fsdp2"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: parameters, pp: 2, data_parallel: fsdp2}}", "parameters with pp 2"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: parameters, dp: 8}, train: {lora: {rank: 8}}}", "parameters with train.lora"},
		{"{model: llama3.1-405b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: parameters, dp: 8}}", "takes 5.91 TiB of the hosts' memory, which have 2.00 TiB each; use more GPUs"},
		{"{model: llama3-8b, hardware: {inherits: h100-sxm, node: {host_bandwidth: 0 GB/s}}, runtime: {recipe: hf-eager}, plan: {offload: parameters, dp: 8}}", "give node.host_bandwidth"},
		{"{model: llama3-8b, hardware: gb10, gpus: 1, runtime: {recipe: deepspeed-hf}, plan: {dp: 1, offload: optimizer}}", "the memory of gb10 is its host's, so that leaving anything to the host frees none of it; leave them out"},
		{"{model: llama3-8b, hardware: gb10, gpus: 1, runtime: {recipe: hf-eager}, plan: {dp: 1}, train: {offload_activations: true}}", "the memory of gb10 is its host's"},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8, offload: optimizer, offload_fraction: 0.5, offload_overlap: true}}", ""},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8, offload: optimizer, offload_fraction: 1.5}}", "plan.offload_fraction: 1.5 is outside 0 to 1"},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8, offload_overlap: true}}", "give plan.offload: optimizer"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {dp: 8, offload: optimizer, offload_fraction: 0.5}}", "recipe deepspeed-hf has neither"},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8}, train: {offload_layers: 31}}", ""},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8}, train: {offload_layers: 32}}", "train.offload_layers: 32 of 32 layers; give 1 to 31"},
		{"{model: llama3-8b, gpus: 8, plan: {pp: 2}, train: {offload_layers: 4}}", "train.offload_layers: 4 with pp 2"},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8}, train: {offload_layers: 4, recompute: full}}", "train.offload_layers: 4 with recompute full"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {dp: 8}, train: {offload_layers: 4}}", "recipe hf-eager does not leave activations to the host"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {dp: 8, data_parallel: fsdp2}, train: {offload_activations: true}}", ""},
		{"{model: llama3-8b, gpus: 8, plan: {dp: 8}, train: {offload_activations: true}}", "train.offload_activations: recipe megatron-core does not leave activations to the host tensor by tensor; leave it out, or use hf-eager"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {pp: 2}, train: {offload_activations: true}}", "train.offload_activations: with pp 2"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {dp: 8, data_parallel: fsdp2, offload: parameters}, train: {clip_gradients: true}}", "train.clip_gradients: with plan.offload: parameters, but what clipping them takes the host is not known"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-compile}, plan: {dp: 8}, train: {offload_activations: true}}", "recipe hf-compile does not leave activations to the host tensor by tensor"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-compile, compile_scope: layer}, plan: {dp: 8}, train: {offload_activations: true}}", "train.offload_activations: with layers that are compiled"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: deepspeed-hf}, plan: {dp: 8, data_parallel: zero3}, train: {offload_activations: true}}", "recipe deepspeed-hf does not leave activations to the host tensor by tensor"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: megatron-deepspeed}, plan: {dp: 8, data_parallel: zero2, offload: optimizer}}", ""},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: megatron-deepspeed}, plan: {pp: 2, offload: optimizer}}", ""},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: megatron-deepspeed}, plan: {dp: 8, data_parallel: zero3, offload: parameters}}", "parameters, which recipe megatron-deepspeed does not do; use optimizer"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: megatron-deepspeed}, plan: {dp: 8, data_parallel: ddp, offload: optimizer}}", "optimizer beside data_parallel ddp, which recipe megatron-deepspeed does not do; use zero1, zero2 or zero3"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: megatron-deepspeed, release: '21.10'}, plan: {dp: 8, data_parallel: zero3, offload: optimizer}}", "optimizer beside zero3, but what DeepSpeed of this release does with gradients then is not known; use zero1, or a later runtime.release"},
		{"{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager, cpu_threads: -1}}", "runtime.cpu_threads: -1 is outside 1 to 1024"},
	} {
		_, err := decode(c.job)
		if c.want == "" {
			require.NoError(t, err, c.job)
		} else {
			require.ErrorContains(t, err, c.want, c.job)
		}
	}
}

// TestOffloadLeavesThePlanOpen: to leave something to the host says how a job runs. What is
// chosen beside it is a kind that the framework has with it.
func TestOffloadLeavesThePlanOpen(t *testing.T) {
	j := mustDecode(t, "{model: llama3-8b, gpus: 8, runtime: {recipe: hf-eager}, plan: {offload: parameters}}")
	require.True(t, j.Open)
	require.Equal(t, []string{"fsdp2"}, j.Beside(OffloadParameters))
	require.NoError(t, j.TakeGiven())
	require.Equal(t, FSDP2, j.Plan.DataParallel)
	require.Contains(t, j.Plan.String(), "fsdp2, parameters on the host")
}

// TestHostThreads: torchrun gives each of several ranks of a node one thread (torch/distributed/run.py),
// one alone all cores that it has a part of, and none more than there are.
func TestHostThreads(t *testing.T) {
	for _, c := range []struct {
		job            string
		threads, ranks int64
	}{
		{"gpus: 8, runtime: {recipe: hf-eager}", 8, 8},
		{"gpus: 16, runtime: {recipe: hf-eager}", 8, 8},
		{"gpus: 2, runtime: {recipe: hf-eager}", 2, 2},
		{"gpus: 1, runtime: {recipe: hf-eager}", 14, 1},
		{"gpus: 8, runtime: {recipe: hf-eager, cpu_threads: 8}", 64, 8},
		{"gpus: 8, runtime: {recipe: hf-eager, cpu_threads: 100}", 112, 8},
	} {
		threads, ranks := mustDecode(t, "{model: gpt2, hardware: h100-sxm, plan: {}, "+c.job+"}").HostThreads()
		require.Equal(t, [2]int64{c.threads, c.ranks}, [2]int64{threads, ranks}, c.job)
	}
}

// TestHostMemory: of each parameter the host keeps fp32 weights, gradient and two moments.
func TestHostMemory(t *testing.T) {
	j := mustDecode(t, "{model: llama2-7b, gpus: 16, runtime: {recipe: hf-eager}, plan: {offload: parameters, dp: 16}}")
	require.InDelta(t, 16.0/2*float64(j.Model.Params().Total), float64(j.HostMemory()), 1)
	require.Zero(t, mustDecode(t, "{model: llama2-7b, gpus: 16, runtime: {recipe: hf-eager}, plan: {dp: 16}}").HostMemory())
	require.True(t, strings.HasSuffix(j.HostMemory().String(), "GiB"), units.Bytes(j.HostMemory()))
}
